# Has the host boot in two seconds, when the session that says so has ended: $go, from a file in $R, as systemd-run would
# expand its dollars. By that file others know that it was told. Only in the boot $boot, and while the note in $L is that of
# $run. A kernel loaded by kexec would be booted without resetting any card.
[ "$(cat /proc/sys/kernel/random/boot_id)" = "$boot" ] || { echo 'it has booted meanwhile'; exit 20; }
grep -qx "run $run" "$L/reboot" || { echo "another run has begun to boot it: $(head -n 1 "$L/reboot" 2>&1)"; exit 21; }
k=$(cat /sys/kernel/kexec_loaded 2>/dev/null)
if [ "$k" = 1 ]; then
  kexec -u 2>&1 || { echo 'a kernel is loaded for kexec, which boots without resetting any card, and it could not be unloaded'; exit 1; }
fi
( umask 077; mkdir -p "$R" && printf '%s\n' "$go" >"$R/boot.sh" ) 2>&1 || { rm -f "$R/boot.sh"; exit 1; }
if [ -d /run/systemd/system ] && command -v systemd-run >/dev/null; then
  # It was told so already, or goes down.
  ! systemctl is-active --quiet netplay-reboot.timer && [ "$(systemctl is-system-running 2>/dev/null)" != stopping ] || exit 0
  systemctl reset-failed netplay-reboot.service 2>/dev/null
  systemd-run --quiet --collect --unit=netplay-reboot --on-active=2 --timer-property=AccuracySec=100ms /bin/sh "$R/boot.sh" 2>&1 && exit
  # It may have been taken all the same: only systemd itself can say that it wasn't.
  case $(systemctl is-system-running 2>/dev/null)/$(systemctl is-active netplay-reboot.timer 2>/dev/null) in
    stopping/* | */active) exit 0 ;;
    running/inactive | degraded/inactive | starting/inactive) rm -f "$R/boot.sh"; exit 1 ;;
  esac
  exit 22
fi
command -v setsid >/dev/null && s=setsid || s=
$s /bin/sh -c 'sleep 2; exec /bin/sh "$0"' "$R/boot.sh" </dev/null >/dev/null 2>&1 9>&- &
