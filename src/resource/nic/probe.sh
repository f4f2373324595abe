# Arguments: pairs of a kind of setting and an interface. Of each pair its number, the tool's exit code and what it said.
n=0
while [ $# -gt 0 ]; do
  n=$((n + 1)) i=$2 t=ethtool
  case $1 in
    private_flags) o=--show-priv-flags ;;
    features) o=-k ;;
    channels) o=-l ;;
    rings) o=-g ;;
    coalesce) o=-c ;;
    pause) o=-a ;;
    max_read_request) t=setpci ;;
  esac
  shift 2
  if ! command -v $t >/dev/null; then echo "== $n none"; continue; fi
  if [ $t = ethtool ]; then e=$(ethtool $o "$i" 2>&1)
  else
    d=$(readlink -f "/sys/class/net/$i/device"); [ -e "$d/config" ] || d=${d%/*}
    e=$(setpci -s "${d##*/}" CAP_EXP+8.w 2>&1)
  fi
  printf '== %s %s\n%s\n' $n $? "$e"
done
