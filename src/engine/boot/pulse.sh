# What tells whether a host has booted and is as it was: which boot it is, whether its system is up, and how its links and
# RDMA ports stand. One line each: `boot_id ID`, `machine ID`, `system STATE`, `unit NAME`, `going` (it was told to boot, and
# hasn't yet), `link DEVICE NAME SPEED`, `port DEVICE NAME STATE RATE`, `reset WORDS` (what resets of firmware before the boot
# said). The device is where it is on its bus: a name may change with a setting. $R: netplay's folder of this boot.
for f in boot_id:/proc/sys/kernel/random/boot_id machine:/etc/machine-id; do
  v=$(cat "${f#*:}" 2>/dev/null) && echo "${f%%:*} $v"
done
if [ -d /run/systemd/system ]; then
  s=$(lim 10 systemctl is-system-running 2>/dev/null)
  echo "system $s"
  [ "$s" != degraded ] || lim 10 systemctl list-units --failed --plain --no-legend --full 2>/dev/null | while read -r u rest; do echo "unit $u"; done
fi
[ ! -e "$R/boot.sh" ] || echo going
where() { d=$(readlink -f -- "$1/device" 2>/dev/null) && d=${d##*/}; d=${d:-${1##*/}}; }
for n in /sys/class/net/*; do
  [ -e "$n/device" ] || continue
  c=$(cat "$n/carrier" 2>/dev/null)
  [ "$c" = 1 ] || continue
  s=$(cat "$n/speed" 2>/dev/null) || s=-1
  p=$(cat "$n/dev_port" 2>/dev/null) || p=0
  where "$n"
  echo "link $d/$p ${n##*/} $s"
done
for n in /sys/class/infiniband/*/ports/*; do
  [ -e "$n/state" ] || continue
  t=$(cat "$n/state") r=$(cat "$n/rate")
  c=${n%/ports/*}
  where "$c"
  echo "port $d/${n##*/} ${c##*/}/${n##*/} ${t##* } ${r%% *}"
done
[ ! -f /var/lib/netplay/firmware_reset ] || while IFS= read -r l; do echo "reset $l"; done </var/lib/netplay/firmware_reset
exit 0
