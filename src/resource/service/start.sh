# $verb: start, restart or reload-or-restart; $unit; $type: its Type=, if it is known; $fresh: whether changed unit
# files have to be looked for, which they need not where the probe did.
if [ -n "$fresh" ]; then
  s=" $(systemctl show -p NeedDaemonReload,DropInPaths -- "$unit" | tr '\n' ' ') " need=
  case $s in *NeedDaemonReload=yes*) need=1 ;; esac
  for f in "/etc/systemd/system/$unit.d/"*.conf; do
    [ -s "$f" ] || continue
    case $s in *[\ =]"$f"\ *) ;; *) need=1 ;; esac
  done
  [ -z "$need" ] || systemctl --no-ask-password daemon-reload || exit 1
fi
why() {
  systemctl show -p ActiveState,SubState,Result,ExecMainStatus -- "$unit" | tr '\n' ' '
  printf '\nthe last lines of its journal:\n'
  journalctl -b -u "$unit" -n 5 -o cat --no-pager 2>&1
  exit 1
}
# Neither the failures before nor their number stand in the way.
systemctl --no-ask-password reset-failed -- "$unit" 2>/dev/null
systemctl --no-ask-password "$verb" -- "$unit" || why
# systemd calls a simple service started before it has done anything: give it the time to fail.
case $type in simple | exec | idle) sleep 0.3 2>/dev/null || sleep 1 ;; esac
case $(systemctl show -p ActiveState,SubState -- "$unit" | tr '\n' ' ') in
  *ActiveState=failed* | *SubState=auto-restart*) why ;;
  # Of an inactive unit that nothing refers to, systemd forgets at once that it ran or why it didn't.
  *ActiveState=inactive*) (umask 077; mkdir -p /run/netplay/started && : >"/run/netplay/started/$unit") ;;
esac
