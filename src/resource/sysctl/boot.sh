# Reads what sets kernel parameters at boot. $root is empty, or a folder that stands for /.
# First `KIND WORDS` lines, then an empty line, then `FILE:LINE:TEXT` of every line that isn't empty or a comment.
for f in /usr/lib/systemd/systemd-sysctl /lib/systemd/systemd-sysctl; do
  if [ -x "$root$f" ]; then echo systemd; break; fi
done
if [ -c "$root/etc/systemd/system/systemd-sysctl.service" ]; then echo masked; fi
for f in procps procps.sh sysctl boot.sysctl; do
  if [ -e "$root/etc/init.d/$f" ]; then echo script; break; fi
done
set --
for d in /etc /run /usr/local/lib /usr/lib /lib; do
  if [ "$d" = /lib ] && [ -L "$root/lib" ]; then continue; fi
  for f in "$root$d"/sysctl.d/*.conf; do
    case $f in *'
'*) continue ;; esac
    if [ -f "$f" ]; then
      set -- "$@" "$f"
      if [ "$f" -ef "$root/etc/sysctl.conf" ]; then echo "link $f"; else echo "file $f"; fi
    elif [ -e "$f" ] || [ -L "$f" ]; then
      echo "empty $f"
    fi
  done
done
for f in /etc/sysctl.conf /etc/infiniband/openib.conf; do
  if [ -f "$root$f" ]; then set -- "$@" "$root$f"; fi
done
if [ -s "$root/etc/tuned/active_profile" ]; then
  if [ -f "$root/etc/tuned/tuned-main.conf" ]; then set -- "$@" "$root/etc/tuned/tuned-main.conf"; fi
  set -f
  todo='' seen=' '
  for n in $(cat "$root/etc/tuned/active_profile"); do todo="$n $todo"; done
  while [ -n "$todo" ]; do
    next=
    for n in $todo; do
      case "$n$seen" in */* | *" $n "*) continue ;; esac
      seen="$seen$n "
      for d in /etc/tuned/profiles /etc/tuned /usr/lib/tuned/profiles /usr/lib/tuned; do
        f=$root$d/$n/tuned.conf
        [ -f "$f" ] || continue
        echo "tuned $f"
        set -- "$@" "$f"
        next="$next $(sed -n '/^[[:space:]]*include[[:space:]]*=/{s///;s/[,;]/ /g;p;}' "$f")"
        break
      done
    done
    todo=$next
    case $todo in *[!\ ]*) ;; *) todo='' ;; esac
  done
fi
echo
[ $# -eq 0 ] || grep -aHn '^[[:space:]]*[^#;[:space:]]' -- "$@"
