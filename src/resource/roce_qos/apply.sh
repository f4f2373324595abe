# Sets of $i, a network interface, what these variables give: trust, pfc and ecn (a 0 or 1 for each priority), cable,
# buffers, cnp, tos, cm, pause. $dcbx is `os`, or `ask` where it isn't known who controls DCBX.
n=/sys/class/net/$i bad=
no() { printf '%s\n' "$1"; bad=1; }
tool() { o=$("$@" 2>&1) || no "$* failed: $o"; }
put() { { printf '%s\n' "$2" >"$1"; } 2>/dev/null || no "$1 can't be set to $2"; }
words() { # sets w to `NUMBER:VALUE`, for each of the values of $1
  w= p=0 r=$1,
  while [ -n "$r" ]; do w="$w $p:${r%%,*}" p=$((p + 1)) r=${r#*,}; done
}
[ -e "$n" ] || { echo "there is no interface $i"; exit 1; }
if [ -z "$trust$pfc$cable$buffers$dcbx" ]; then :
elif command -v mlnx_qos >/dev/null; then
  [ "$dcbx" != ask ] || case $(mlnx_qos -i "$i" 2>/dev/null) in *'DCBX mode: Firmware'*) dcbx=os ;; *) dcbx= ;; esac
  set --
  [ -z "$dcbx" ] || set -- "$@" -d "$dcbx"
  [ -z "$pfc" ] || set -- "$@" --pfc "$pfc"
  [ -z "$cable" ] || set -- "$@" --cable_len "$cable"
  [ -z "$trust" ] || set -- "$@" --trust "$trust"
  [ -z "$buffers" ] || set -- "$@" --buffer_size "$buffers"
  [ $# -eq 0 ] || tool mlnx_qos -i "$i" "$@"
elif command -v dcb >/dev/null; then
  if [ -n "$pfc" ]; then
    words "$pfc"
    set --
    for o in $w; do case $o in *:1) set -- "$@" "${o%1}on" ;; *) set -- "$@" "${o%0}off" ;; esac; done
    [ -z "$cable" ] || set -- "$@" delay "$cable"
    tool dcb pfc set dev "$i" prio-pfc "$@"
  fi
  # The driver trusts the DSCP while there are entries for it. What somebody has mapped stays.
  case $trust in
    pcp) tool dcb app flush dev "$i" dscp-prio ;;
    dscp) case $(dcb -j app show dev "$i" dscp-prio 2>/dev/null) in *dscp_prio*) ;; *)
        set --
        p=0
        while [ $p -lt 64 ]; do set -- "$@" $p:$((p / 8)); p=$((p + 1)); done
        tool dcb app add dev "$i" dscp-prio "$@" ;;
      esac ;;
  esac
  if [ -n "$buffers" ]; then words "$buffers"; tool dcb buffer set dev "$i" buffer-size $w; fi
elif [ -n "$trust$pfc$cable$buffers" ]; then no "neither mlnx_qos nor dcb is on this host"
fi
if [ -n "$ecn" ]; then
  words "$ecn"
  for o in $w; do
    put "$n/ecn/roce_np/enable/${o%:*}" "${o#*:}"
    put "$n/ecn/roce_rp/enable/${o%:*}" "${o#*:}"
  done
fi
[ -z "$cnp" ] || put "$n/ecn/roce_np/cnp_dscp" "$cnp"
if [ -n "$tos$cm" ]; then
  d=
  for o in "$n"/device/infiniband/* "$n"/master/bonding/../lower_*/device/infiniband/*; do [ ! -e "$o" ] || { d=${o##*/}; break; }; done
  [ -n "$d" ] || for o in $(grep -lsxF -e "$i" /sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0); do o=${o#/sys/class/infiniband/} d=${o%%/*}; done
  c=/sys/kernel/config/rdma_cm/$d t=/sys/class/infiniband/$d/tc/1/traffic_class
  if [ -z "$d" ]; then no "no RDMA device belongs to $i"
  elif command -v cma_roce_tos >/dev/null; then
    [ -z "$tos" ] || tool cma_roce_tos -d "$d" -t "$tos"
    [ -z "$cm" ] || tool cma_roce_mode -d "$d" -p 1 -m "$cm"
  else
    [ -d "${c%/*}" ] || modprobe -q rdma_cm 2>/dev/null
    # Where configfs was a module that came late, nobody has mounted it.
    [ -d "${c%/*}" ] || mount -t configfs configfs /sys/kernel/config 2>/dev/null
    if [ ! -d "${c%/*}" ]; then no "there is no ${c%/*}: rdma_cm can't be loaded (modprobe rdma_cm), or configfs can't be mounted"
    else
      # The folder stays, so that what is set can be read.
      [ -d "$c" ] || tool mkdir "$c"
      [ -z "$tos" ] || put "$c/ports/1/default_roce_tos" "$tos"
      case $cm in 1) put "$c/ports/1/default_roce_mode" 'IB/RoCE v1' ;; 2) put "$c/ports/1/default_roce_mode" 'RoCE v2' ;; esac
    fi
  fi
  [ -z "$d" ] || [ -z "$tos" ] || [ ! -e "$t" ] || put "$t" "$tos"
fi
if [ -n "$pause" ]; then
  # What a device doesn't have is off.
  o=$(ethtool -A "$i" rx "$pause" tx "$pause" 2>&1) || case $pause:$o in
    *unmodified*|*'no pause parameters changed'*|off:*'not supported'*) ;;
    *) no "ethtool -A $i rx $pause tx $pause failed: $o" ;;
  esac
fi
[ -z "$bad" ]
