# The way back of what may have cut the session off, on the host. It is taken by whoever renames this file first: the process
# that made the steps, when nobody has disarmed it in time, or what stands behind it should it be killed (`timer`), a timer of
# the system's (`late`), or a unit before the network is up (`boot`), when only files are of use. `resume` goes on with what was
# broken off, and `again` takes it once more, by hand. Who does it holds a lock (`held`: has it already).
A=$L/armed how=${1-}
umask 077
if [ "$how" = late ] && [ -e "$A/back" ]; then systemctl kill --signal=KILL netplay-guard.service; fi
if [ "${2-}" != held ]; then mkdir -p "$R"; ( : >>"$R/guard" ) 2>/dev/null && exec 9>>"$R/guard" && flock 9; fi
case $how in
  again) ;;
  boot | late | resume) [ -e "$A/undoing" ] || mv -- "$A/back" "$A/undoing" 2>/dev/null || exit 0 ;;
  *) mv -- "$A/back" "$A/undoing" 2>/dev/null || exit 0 ;;
esac
exec >"$A/log" 2>&1 </dev/null
{ echo 0 >/proc/self/oom_score_adj; } 2>/dev/null
T=; command -v timeout >/dev/null && timeout -k 5 9 true 2>/dev/null && T='timeout -k 5'
rm -f -- "$A/failed"
bad() { echo "$1"; : >"$A/failed"; }
one() {
  if [ -n "$T" ]; then f=$1 $T 120 /bin/sh -c 'eval "unset f
$f"'; else ( f=$1; set --; eval "$f" ); fi 9>&- || bad "exit code $?: $1"
}
same() { cmp -s -- "$1" "$2" && [ "$(stat -c '%a %u %g' -- "$1")" = "$(stat -c '%a %u %g' -- "$2")" ]; }
files() {
  i=0; while [ -e "$A/$((i + 1)).path" ]; do i=$((i + 1)); done
  while [ "$i" -gt 0 ]; do
    IFS= read -r p <"$A/$i.path"
    if [ -e "$A/$i" ]; then
      # Where it can't be replaced, as it is a mount point, it is written over.
      if ! same "$A/$i" "$p"; then
        [ -d "${p%/*}" ] || ( umask 022; mkdir -p -- "${p%/*}" )
        e=$( t=${p%/*}/.netplay-back; { rm -f -- "$t"; { cp -a -- "$A/$i" "$t" && mv -f -- "$t" "$p"; } ||
          { rm -f -- "$t"; cat -- "$A/$i" >"$p"; }; } 2>&1 ) || bad "$p isn't as it was: ${e##*: }"
        ! command -v restorecon >/dev/null || restorecon -- "$p"
      fi
    else
      rm -f -- "$p" || bad "$p is still there"
    fi
    case $p in /etc/netplan/*) [ "$how" != boot ] || ! command -v netplan >/dev/null || netplan generate 9>&- ;; esac
    i=$((i - 1))
  done
  sync -d -- "$A" 2>/dev/null || sync
}
files
# What is told to a daemon may write its files anew.
if [ "$how" != boot ]; then steps; files; fi
if [ -d /run/systemd/system ]; then
  rm -f -- /etc/systemd/system/netplay-back.service /etc/systemd/system/sysinit.target.wants/netplay-back.service
fi
mv -- "$A/undoing" "$A/undone" 2>/dev/null
[ "$how" = late ] || [ ! -d /run/systemd/system ] || systemctl --no-block stop netplay-late.timer 2>/dev/null
[ ! -e "$A/failed" ]
