# Reads units by their names. First what systemctl doesn't tell, a `KIND NAME PATH` a line, then an empty line, then a
# block of properties for each unit.
if [ ! -d /run/systemd/system ]; then
  printf 'offline %s\n' "$(cat /proc/1/comm)"
  exit 0
fi
shown=$(lim 30 systemctl show --no-pager \
  -p Id,Names,LoadState,LoadError,ActiveState,SubState,UnitFileState,Type,RemainAfterExit \
  -p Result,NeedDaemonReload,ConditionResult,ConditionTimestampMonotonic,ExecMainExitTimestampMonotonic,DropInPaths \
  -p FragmentPath,SourcePath,TriggeredBy,WantedBy,RequiredBy,CanReload -- "$@")
code=$?
set -f
IFS='
'
set --
for line in $shown; do
  case $line in Names=*) set -- "$@" "${line#Names=}" ;; esac
done
unset IFS
set -- $*
set +f
for u; do
  # The drop-ins of an instance are those of its template too.
  case $u in *@?*.*) t=${u%%@*}@.${u##*.} ;; *) t=$u ;; esac
  if [ -f "/etc/systemd/system/$u" ] || [ -f "/etc/systemd/system/$t" ]; then printf 'file %s\n' "$u"; fi
  # systemd doesn't notice a folder that is new since it looked last (NeedDaemonReload stays `no`).
  for f in "/etc/systemd/system/$u.d/"*.conf "/etc/systemd/system/$t.d/"*.conf; do
    if [ -s "$f" ]; then printf 'dropin %s %s\n' "$u" "$f"; fi
  done
  if [ -e "/run/netplay/started/$u" ]; then printf 'started %s\n' "$u"; fi
done
printf '\n%s\n' "$shown"
exit $code
