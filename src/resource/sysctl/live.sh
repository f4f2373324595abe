# Sets live values. Arguments: for each key its name, file, value, and `exact` if it must read back as it is.
# Leaves in $bad the names that the kernel refused, and tells why.
bad=' '
while [ $# -gt 0 ]; do
  why=
  # dash doesn't tell why a write failed, so that a refused one is made again by a tool that does.
  if ! { printf '%s\n' "$3" >"$2"; } 2>/dev/null; then
    why=$({ printf '%s\n' "$3" | dd of="$2" conv=notrunc; } 2>&1) && why= || {
      why=${why%%'
'*}
      why=${why##*: }
      case $why in
        'No such file or directory') if [ -e "$2" ]; then why="the kernel doesn't know it ($why)"; fi ;;
        'Permission denied') if [ "$(id -u)" = 0 ]; then why="read-only here ($why)"; else why="only root may ($why)"; fi ;;
      esac
    }
  fi
  if [ -z "$why" ] && [ "$4" = exact ]; then
    got=$(set -f; for w in $(cat -- "$2"); do printf '%s ' "$w"; done)
    if [ "${got% }" != "$3" ]; then why="the kernel took it without an error, and it reads \`${got% }\`"; fi
  fi
  if [ -n "$why" ]; then
    echo "$1 = $3: $why"
    bad="$bad$1 "
  fi
  shift 4
done
