bad=
# That nothing had to be changed is a failure to an old ethtool.
change() {
  e=$(ethtool "$@" 2>&1) && return
  case $e in *' parameters changed, aborting'*) return ;; esac
  printf '%s\n' "ethtool $*: $e"; bad=1
}
# Bits 12 to 14 of Device Control in the PCI Express capability (PCI Express Base Specification, 7.5.3.4).
max_read_request() {
  d=$(readlink -f "/sys/class/net/$1/device"); [ -e "$d/config" ] || d=${d%/*}
  e=$(setpci -s "${d##*/}" "CAP_EXP+8.w=$2:7000" 2>&1) && return
  printf '%s\n' "setpci -s ${d##*/}: $e"; bad=1
}
