# What an audit has to know and no probe of a resource tells.
! pidof irqbalance >/dev/null 2>&1 || echo balances
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
  else echo "verbs $n $v $(stat -c %a "/dev/infiniband/$v" 2>/dev/null)"; fi
done
exit 0
