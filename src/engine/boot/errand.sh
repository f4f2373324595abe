# The operator's command $cmd, which may take $seconds, run by a process of its own, so that nobody holds a session for it: begun
# where $d isn't set, a folder whose name is told first (`in FOLDER`). After a second, or once it has ended, how far it is:
# `ended CODE` with what it printed last, and nothing is left of it; or nothing. Ends with 1 where nobody will know any more.
nap() { sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; }
if [ -z "$d" ]; then
  d=$(mktemp -d 2>&1) || { printf '%s\n' "$d"; exit 1; }
  printf '%s' "$cmd" >"$d/command" || { rm -rf -- "$d"; exit 1; }
  # An old busybox' timeout knows no -k, and an older one wants -t.
  t=; for l in 'timeout -k 5' timeout; do [ -n "$t" ] || ! $l 9 true 2>/dev/null || t="$l $seconds"; done
  command -v setsid >/dev/null && s=setsid || s=
  $s /bin/sh -c 'echo "$$" >"$0/pid"; $1 /bin/sh "$0/command" >"$0/out" 2>&1; echo "$?" >"$0/new"; mv "$0/new" "$0/code"' "$d" "$t" \
    </dev/null >/dev/null 2>&1 9>&- &
  i=0; while [ ! -s "$d/pid" ] && [ $((i += 1)) -le 100 ]; do nap; done
  echo "in $d"
fi
# kill of busybox takes no number for a 0, its own group.
lives() { p=; read -r p <"$d/pid" && [ -n "$p" ] && kill -0 "$p"; } 2>/dev/null
i=0; while [ ! -e "$d/code" ] && lives && [ $((i += 1)) -le 10 ]; do nap; done
[ -e "$d/code" ] || ! lives || exit 0
[ -e "$d/code" ] || { echo 'its process is gone, and what came of it is not known'; exit 1; }
printf 'ended %s\n' "$(cat "$d/code")"
# With what comes before it, it has to fit into the 64 KiB that are kept of a command's output, from its end.
tail -c 16384 "$d/out"
rm -rf -- "$d"
