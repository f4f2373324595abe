# What can start units by itself (sockets, timers, paths), with its state.
[ -d /run/systemd/system ] || exit 0
t=$(lim 30 systemctl show --no-pager -p TriggeredBy -- "$@") || exit
set -f
set --
for w in $t; do
  w=${w#TriggeredBy=}
  if [ -n "$w" ]; then set -- "$@" "$w"; fi
done
[ $# -eq 0 ] || lim 30 systemctl show --no-pager -p Id,ActiveState,UnitFileState -- "$@"
