# Arguments: interfaces. Of each its number among them and the numbers of its interrupts; then the texts of small files as
# grep prints them, and who may write which affinity.
n=0 all=
for i; do
  shift
  n=$((n + 1)) d=/sys/class/net/$i/device
  if [ ! -e "/sys/class/net/$i" ]; then echo "gone $n" $(ls /sys/class/net); continue; fi
  [ -d "$d/msi_irqs" ] || d=$d/.. # a virtio device is below its PCI device
  [ -d "$d/msi_irqs" ] || { echo "none $n"; continue; }
  m=; for f in "$d"/msi_irqs/*; do m="$m ${f##*/}"; done
  echo "irqs $n$m"
  all=$all$m
  set -- "$@" "$d/numa_node" "$d/local_cpulist"
done
# Whether irqbalance runs, and whether it is started at boot; masked it isn't.
u=system.slice/irqbalance.service
if [ -d /run/systemd/system ]; then
  for d in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do [ ! -d "$d/$u" ] || echo balances; done
else
  ! pidof irqbalance >/dev/null 2>&1 || echo balances
fi
u=/etc/systemd/system
[ ! -L $u/multi-user.target.wants/irqbalance.service ] || [ $u/irqbalance.service -ef /dev/null ] || echo 'balances at boot'
affinities=$([ -z "$all" ] || printf '/proc/irq/%s/smp_affinity_list ' $all)
names=$([ -z "$all" ] || printf '/sys/kernel/irq/%s/actions ' $all)
cpu=/sys/devices/system/cpu
grep -asH '' $cpu/online $cpu/isolated /run/netplay/managed-irqs $affinities $names "$@"
[ -d /sys/kernel/irq ] || for q in $all; do for f in /proc/irq/$q/*/; do [ ! -d "$f" ] || echo "$f"; done; done
[ -z "$all" ] || stat -c '%a %n' $affinities 2>/dev/null
exit 0
