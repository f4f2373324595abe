# What an audit has to know and no probe of a resource tells.
! grep -qsxF irqbalance /proc/[0-9]*/comm || echo balances
for f in /etc/netplay/reapply.d/*-irq_affinity-*; do [ ! -e "$f" ] || { echo pinned; break; }; done
echo "user $(id -u) $(id -un 2>/dev/null)"
echo "memlock $(ulimit -l 2>/dev/null)"
# Which device of ib_uverbs opens an RDMA device, and who may.
for d in /sys/class/infiniband/*; do
  [ -e "$d" ] || continue
  n=${d##*/}
  v=$(grep -lsxF -e "$n" /sys/class/infiniband_verbs/uverbs*/ibdev)
  v=${v%/ibdev} v=${v##*/}
  if [ -z "$v" ]; then echo "verbs $n none"
  else echo "verbs $n $v $(stat -c '%a %g' "/dev/infiniband/$v" 2>/dev/null)"; fi
done
# What is lent to a virtual machine needs no driver of this host.
for d in /sys/bus/pci/drivers/vfio-pci/*:*:*; do [ ! -e "$d" ] || echo "lent ${d##*/}"; done
# GPUs and other accelerators, which tell kinds of machines apart: a 3D controller, another display, a processing accelerator.
set -- $(grep -lsE '^0x(0302|0380|1200)' /sys/bus/pci/devices/*/class)
echo "accelerators $#"
exit 0
