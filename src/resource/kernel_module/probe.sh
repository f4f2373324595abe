# What there is of kernel modules, and what is said about them for the next boot. Arguments: their names, with `_`.
r=$(uname -r)
echo "kernel $r"
[ -e /proc/modules ] || echo fixed
[ -d "/lib/modules/$r" ] || echo bare
# modprobe(8) and the kernel take `-` for `_`.
any=
for m; do any="$any|$(printf '%s' "$m" | sed 's/_/[-_]/g')"; done
any=${any#|}
# Interfaces that go with a module, which the kernel counts as no use of it.
for m; do
  for i in /sys/class/net/*; do
    t=
    case $m in
      bonding) [ -d "$i/bonding" ] ;;
      bridge) [ -d "$i/bridge" ] ;;
      8021q) [ -e "/proc/net/vlan/${i##*/}" ] ;;
      ib_ipoib) read -r t 2>/dev/null <"$i/type"; [ "$t" = 32 ] ;;
      *) [ "$i/device/driver/module" -ef "/sys/module/$m" ] ;;
    esac && echo "carries $m ${i##*/}"
  done
done
for m; do [ -d "/sys/module/$m" ] && set -- "$@" "/sys/module/$m"; shift; done
for d; do
  for h in "$d/holders/"*; do [ ! -e "$h" ] || echo "holder ${d##*/} ${h##*/}"; done
  for f in "$d/initstate" "$d/refcnt" "$d/parameters/"*; do [ ! -e "$f" ] || set -- "$@" "$f"; done
  shift
done
if [ $# -gt 0 ]; then
  echo "== modes"
  stat -c '%a %n' -- "$@"
  echo "== sys"
  # A parameter that can only be written has no value.
  grep -asH '' -- "$@"
fi
echo "== known"
[ ! -d "/lib/modules/$r" ] || grep -Eo "^[^:]*/($any)\.ko(\.[a-z0-9]+)?(:|$)" "/lib/modules/$r/modules.builtin" "/lib/modules/$r/modules.dep"
echo "== command line"
cat /proc/cmdline
echo "== files"
set --
for d in /etc /run /usr/local/lib /usr/lib /lib; do
  for f in "$d/modules-load.d/"*.conf "$d/modprobe.d/"*.conf; do
    [ ! -e "$f" ] || { echo "$f"; set -- "$@" "$f"; }
  done
done
echo "== lines"
[ $# -eq 0 ] || grep -aHnE '^[[:space:]]*[^#;[:space:]]' -- "$@" || [ $? -eq 1 ]
