# Which firmware cards run and have burnt. Arguments: devices. After the lines of cards.sh and `mark FILE:LINE`, for each card
# `== ADDRESS CODE`, what the driver tells of it (`driver KEY VALUE`), and what flint prints.
tool flint mstflint
echo "tool $tool"
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
[ ! -d "$D" ] || { cd "$D" && grep -asH '' -- * | sed 's/^/mark /'; cd /; }
cards
targets=
for p; do resolve "$p"; done

ask() {
  o= r=0
  [ -z "$tool" ] || { o=$(lim 60 "$tool" -d "$1" q 2>&1 </dev/null); r=$?; }
  echo "== $1 $r"
  for i in "/sys/bus/pci/devices/$1/infiniband/"*; do
    [ -e "$i" ] && echo "driver running $(cat "$i/fw_ver")" && echo "driver psid $(cat "$i/board_id")" && break
  done
  [ $r = 0 ] || [ "$(id -u)" = 0 ] || echo '-E- not root'
  printf '%s\n' "$o"
}
[ -z "$targets" ] || each_card ask $targets
exit 0
