#!/bin/sh
# SIMULATED restarts of a host whose first process is sshd and not systemd: under the names reboot, shutdown and systemctl
# it ends the host as the kernel ends a container that reboots, and the lab boots it again. Whatever else the commands are
# asked for, Debian's own answer.
program=${0##*/} force= words= delay=0
case $program in
systemctl)
    for word; do
        case $word in
        -f | --force) force=$force+ ;;
        -ff) force=++ ;;
        -*) ;;
        *) words="$words $word" ;;
        esac
    done
    [ "$words" = ' reboot' ] || exec /usr/bin/systemctl "$@" ;;
shutdown)
    delay=60
    for word; do
        case $word in
        -r | --reboot) words=reboot ;;
        now) delay=0 ;;
        +[0-9]*) delay=$((60 * ${word#+})) ;;
        esac
    done
    [ "$words" = reboot ] || exec /usr/sbin/shutdown "$@" ;;
reboot)
    for word; do
        case $word in
        -f | --force) force=$force+ ;;
        -ff) force=++ ;;
        --help | -p | --poweroff | --halt | -w | --wtmp-only) exec /usr/sbin/reboot "$@" ;;
        esac
    done ;;
esac
if [ "$(id -u)" != 0 ]; then
    echo 'Call to Reboot failed: Interactive authentication required.' >&2
    exit 1
fi
# Twice forced, no unit is stopped and nothing waits.
[ "$force" = ++ ] && exec busybox reboot -n -f
setsid sh -c 'sleep "$0"; [ "$1" ] || /usr/local/sbin/lab-shutdown; exec busybox reboot -n -f' "$delay" "$force" \
    </dev/null >/dev/null 2>&1 &
