# Arguments: none. What filters packets on this host; only root may ask.
if ! [ "$(id -u)" = 0 ]; then echo 'not root'; exit 0; fi
[ ! -e /proc/net/if_inet6 ] || echo 'ipv6'
units=
if [ -d /run/systemd/system ]; then
  echo '== units'
  units=$(systemctl show -p Id,ActiveState,UnitFileState firewalld.service nftables.service ufw.service 2>&1)
  printf '%s\n' "$units"
fi
# Why a tool gave no answer: why CODE SECONDS TEXT.
why() { case $1 in 124 | 137 | 143) echo "failed: no answer within $2 s" ;; *) printf 'failed: %s\n' "${3:-exit code $1}" ;; esac; }
there() { command -v "$1" >/dev/null 2>&1; }
case $units in *'Id=firewalld.service
ActiveState=active'*)
  echo '== firewalld default'
  sed -n 's/^DefaultZone=//p' /etc/firewalld/firewalld.conf
  for kind in runtime permanent; do
    echo "== firewalld $kind"
    option=
    [ "$kind" = runtime ] || option=--permanent
    text=$(lim 20 firewall-cmd $option --list-all-zones 2>&1) || { why $? 20 "$text"; break; }
    printf '%s\n' "$text"
  done ;;
esac
if grep -qsi '^ENABLED=yes' /etc/ufw/ufw.conf && there ufw; then
  echo '== ufw'
  grep -hs '^IPV6=' /etc/default/ufw
  for file in user.rules user6.rules; do
    n=4
    [ "$file" = user.rules ] || n=6
    for folder in /etc/ufw /lib/ufw; do
      [ ! -e "$folder/$file" ] || sed -n "s/^### tuple ###/$n &/p" "$folder/$file"
    done
  done
fi
# The table `filter` of a command. The legacy kind isn't asked where nobody has used it: asking sets it up in the kernel.
ours=
saved() { # COMMAND KIND NAMES
  echo "== $1 $2"
  [ "$2" != legacy ] || grep -qsx filter "$3" || return 0
  text=$(lim 30 "$1-save" -t filter 2>&1) || { why $? 30 "$text"; return 0; }
  printf '%s\n' "$text"
  [ "$2" = legacy ] || case $text in
    *' incompatible'*) ;;
    *'*filter'*) case $1 in ip6*) ours="$ours ip6" ;; *) ours="$ours ip" ;; esac ;;
  esac
}
for ip in ip ip6; do
  names=/proc/net/${ip}_tables_names
  there "${ip}tables-save" || continue
  case $("${ip}tables" --version 2>&1) in *nf_tables*) kind=nft other=legacy ;; *) kind=legacy other=nft ;; esac
  saved "${ip}tables" "$kind" "$names"
  ! there "${ip}tables-$other-save" || saved "${ip}tables-$other" "$other" "$names"
done
if there nft; then
  echo '== nft'
  chains=$(lim 30 nft list chains 2>&1) code=$?
  if [ "$code" = 0 ]; then
    tables=$(printf '%s\n' "$chains" | awk '
      $1 == "table" { table = $2 " " $3 }
      $1 == "type" && / hook (input|output) / && table ~ /^(ip|ip6|inet) / { if (!(table in seen)) print table; seen[table] = 1 }')
    # What iptables made is asked of iptables.
    printf '%s\n' "$tables" | while read -r family table; do
      case "$ours : $family $table" in *' ip '*': ip filter' | *' ip6 '*': ip6 filter' | *':  ') continue ;; esac
      lim 30 nft -j -t list table "$family" "$table" || { why $? 30 "it can't list the table $family $table"; exit 0; }
    done
  else
    why "$code" 30 "$chains"
  fi
fi
