# What there is of $i, a network interface, as far as $parts asks: `qos buffer cm`. What tools
# said, and at last files, each part behind a line `== PART EXIT-CODE`.
n=/sys/class/net/$i
[ -e "$n" ] || { echo absent; exit 0; }
said() {
  k=$1; shift
  o=$(lim 20 "$@" 2>&1); echo "== $k $?"
  [ -z "$o" ] || printf '%s\n' "$o"
}
d=
# Of a bond's ports one has the RDMA device of all.
for p in "$n"/device/infiniband/* "$n"/master/bonding/../lower_*/device/infiniband/*; do [ ! -e "$p" ] || { d=${p##*/}; break; }; done
# What is RoCE in software stands on the interface, and not beside it on a device.
[ -n "$d" ] || for p in $(grep -lsxF -e "$i" /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0); do p=${p#/sys/class/infiniband/} d=${p%%/*}; done
[ -z "$d" ] || echo "rdma $d"
b=/sys/class/infiniband/$d
# A port has a GID of RoCE v2 where RoCE is on.
if [ -n "$d" ] && grep -qs Ethernet "$b"/ports/*/link_layer; then grep -qs v2 "$b"/ports/*/gid_attrs/types/* || echo off; fi
t=$b/tc/1/traffic_class
[ -z "$d" ] || [ ! -e "$t" ] || echo "tc"
case " $parts " in *' qos '*|*' buffer '*)
  if command -v mlnx_qos >/dev/null; then said mlnx_qos mlnx_qos -i "$i"
  elif command -v dcb >/dev/null; then
    case " $parts " in *' qos '*) said pfc dcb -j pfc show dev "$i"; said app dcb -j app show dev "$i" dscp-prio ;; esac
    case " $parts " in *' buffer '*) said buffer dcb -j buffer show dev "$i" ;; esac
  fi ;;
esac
case " $parts " in *' cm '*)
  c=/sys/kernel/config/rdma_cm/$d/ports/1
  if [ -z "$d" ]; then :
  elif command -v cma_roce_tos >/dev/null; then
    said tos cma_roce_tos -d "$d"
    said mode cma_roce_mode -d "$d" -p 1
  elif [ -d "$c" ]; then
    said tos cat "$c/default_roce_tos"
    said mode cat "$c/default_roce_mode"
  elif command -v modprobe >/dev/null; then
    # Whether there can be such a folder, which is made when something is set.
    for m in rdma_cm configfs; do
      [ -d "/sys/module/$m" ] || grep -qsw "$m" /proc/filesystems || modprobe -qn "$m" 2>/dev/null || {
        o="there is no ${c%/*/*/*}, and this kernel has no module $m"
        printf '== %s 1\n%s\n' tos "$o" mode "$o"; break
      }
    done
  fi ;;
esac
echo "== files 0"
grep -asH '' "$n"/ecn/roce_np/enable/[0-7] "$n"/ecn/roce_rp/enable/[0-7] "$n/ecn/roce_np/cnp_dscp" "$t"
exit 0
