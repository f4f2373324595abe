# $i: the interface; $policy: local, spread, all or, with a list in $cpus, these. All else is found out when it runs.
each() { # the numbers of a list such as 0-3,8
  IFS=,; set -- $1; unset IFS
  for r; do a=${r%%-*} b=${r##*-}; while [ "$a" -le "$b" ]; do printf '%s ' "$a"; a=$((a + 1)); done; done
}
within() { for c in $1; do case " $2" in *" $c "*) printf '%s ' "$c" ;; esac; done; }
without() { for c in $1; do case " $2" in *" $c "*) ;; *) printf '%s ' "$c" ;; esac; done; }
at() { k=$1; shift; shift $((k % $#)); cpu=$1; }
s=/sys/devices/system/cpu d=/sys/class/net/$i/device
[ -e "/sys/class/net/$i" ] || { echo "there is no interface $i"; exit 1; }
[ -d "$d/msi_irqs" ] || d=$d/.. # a virtio device is below its PCI device
[ -d "$d/msi_irqs" ] || { echo "$i has no interrupts of its own in /sys/class/net/$i/device"; exit 1; }
on=$(each "$(cat $s/online)") free=$(without "$on" "$(each "$(cat $s/isolated 2>/dev/null)")")
free=${free:-$on}
case $policy in
  these) set=$(within "$(each "$cpus")" "$on") ;;
  local)
    set=$on
    [ "$(cat "$d/numa_node" 2>/dev/null || echo -1)" = -1 ] || set=$(each "$(cat "$d/local_cpulist")")
    set=$(within "$set" "$free") ;;
  *) set=$free ;;
esac
set=${set:-$free} n=0 moved=0 managed=0 bad=
list=$set; list=${list% }; while case $list in *' '*) ;; *) false ;; esac; do list=${list%% *},${list#* }; done
for f in "$d"/msi_irqs/*; do
  q=${f##*/} name= f=/proc/irq/${f##*/}/smp_affinity_list
  if [ -d /sys/kernel/irq ]; then { read -r name <"/sys/kernel/irq/$q/actions"; } 2>/dev/null
  else for g in "/proc/irq/$q"/*/; do [ ! -d "$g" ] || { name=${g%/}; name=${name##*/}; }; done; fi
  # Without a name nobody has asked for it; the others aren't of a queue.
  case $name in '' | *async* | *config* | *misc* | *mgmnt* | *mgmt* | *ctrl* | *cmd* | *pages* | *admin*) continue ;; esac
  k=${name%%@*}; k=${k##*[!0-9]}
  while case $k in 0?*) ;; *) false ;; esac; do k=${k#0}; done
  at "${k:-$n}" $set
  if [ "$policy" = all ]; then want=$set text=$list; else want="$cpu " text=$cpu; fi
  { read -r now <"$f"; } 2>/dev/null || continue # it vanished since it was listed
  n=$((n + 1))
  [ "$now" != "$text" ] && [ "$(each "$now")" != "$want" ] || continue
  if { printf '%s\n' "$text" >"$f"; } 2>/dev/null; then moved=$((moved + 1)); continue; fi
  e=$(printf '%s\n' "$text" | dd of="$f" conv=notrunc 2>&1) && { moved=$((moved + 1)); continue; }
  # It vanished since it was read. One that goes while it is being written gives the same error as a managed one.
  [ -e "$f" ] || continue
  e=${e%%'
'*}
  case $e in
    *'Operation not permitted' | *'nput/output error')
      # Placed by the kernel alone (irqd_affinity_is_managed; the second error before Linux 6.10). The probe of an older
      # kernel can't see that, and reads this note.
      managed=$((managed + 1))
      (umask 077; mkdir -p /run/netplay; grep -qsxF -e "$q $name" /run/netplay/managed-irqs || printf '%s\n' "$q $name" >>/run/netplay/managed-irqs) ;;
    *) bad="$bad
$name (interrupt $q) can't be set to CPU $text: ${e##*: }" ;;
  esac
done
[ $n -gt 0 ] || bad="
many drivers ask for them when the interface is switched on: ip link set $i up"
echo "$i: $n interrupts of queues, $moved moved, $managed managed by the kernel$bad"
[ -z "$bad" ]
