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
# Folders that came with their files go, when nothing needs them to take something back.
folders() { for f in "$A/"*.alone; do [ ! -e "$f" ] || { IFS= read -r p <"${f%alone}path"; [ ! -d "${p%/*}" ] || rmdir -- "${p%/*}" 2>/dev/null; }; done; }
# Whether a line of what is read is this, or begins with it.
has() { while read -r n; do case $n in "$1" | "$1 "*) return 0 ;; esac; done; return 1; }
# What carried the session is put back where a service that is started again has left it otherwise: it may keep an MTU, an
# address, a route that its files don't name any more. What has come since stays, but for a route that leads away from the
# controller and is no daemon's. True where something differed; `w` is what of the session's way did.
round() {
  m= w= c= f= y= moved=
  while read -r k v o; do
    case $k in
      way) c=$v f=${o%% *} y=${o#"$f"} y=${y# } k=4; case $c in *:*) k=6 ;; esac; q=$k ;;
      link)
        set -- $o
        [ -e "/sys/class/net/$v" ] || { w="$w; there is no $v any more"; continue; }
        read -r n <"/sys/class/net/$v/flags"
        [ "$3" = 0 ] || [ $((n & 1)) = 1 ] || { w="$w; $v is down"; ip link set dev "$v" up; }
        if [ $((n & 128)) != "$2" ]; then
          p=off; [ "$2" != 0 ] || p=on; w="$w; ARP isn't $p on $v"; ip link set dev "$v" arp $p
        fi
        read -r n <"/sys/class/net/$v/mtu"
        [ "$n" = "$1" ] || { w="$w; the MTU of $v is $n and not $1"; ip link set dev "$v" mtu "$1"; } ;;
      own)
        addresses "$v" | has "${o%% *}" || if ip -o address show | grep -qF -e " $f/" -e " $f "; then moved=1; else
          w="$w; $v hasn't got the address ${o%% *}"; ip address add $o dev "$v" || ip address add "${o%% *}" dev "$v"
        fi ;;
      route) leads "$c" | has "$v $o" || { m=1; ip -$q route replace $v $o; } ;;
    esac
  done <"$A/live"
  n=$(way "$c" "$f")
  if [ "$n" != "$y" ] && [ -n "$y" ] && [ -z "$moved" ]; then
    w="$w; the way to $c is ${n:-gone} and was $y"
    leads "$c" | while read -r n; do
      sed -n 's/^route //p' "$A/live" | has "$n" || case " $n " in
        *' proto static '* | *' proto dhcp '*) ip -$q route del $n ;;
        *' proto '* | *' src '*) ;;
        *) ip -$q route del $n ;;
      esac
    done
  fi
  [ -n "$m$w" ]
}
live() {
  read -r k v <"$A/live" && [ "$k $v" = "boot $(cat /proc/sys/kernel/random/boot_id)" ] || return 0
  i=0; while round && [ $((i += 1)) -lt 6 ]; do sleep 1; done
  [ -z "$w" ] || bad "what carried the session isn't as it was: ${w#; }"
  while read -r k v o; do
    case $k in
      own) l=$v; addresses "$v" | has "${o%% *}" || echo "stays: $v hasn't got the address ${o%% *} that it had" ;;
      address) addresses "$v" | has "${o%% *}" || echo "stays: $v hasn't got the address ${o%% *} that it had" ;;
      route) leads "$c" | has "$v $o" || echo "stays: there is no route \`$v $o\` as there was" ;;
    esac
  done <"$A/live"
  addresses "$l" | while read -r v o; do
    case $o in *'scope link'*) continue ;; esac
    sed -n 's/^[ao][a-z]* //p' "$A/live" | has "$l $v" || echo "stays: $l has the address $v that it hadn't"
  done
  leads "$c" | while read -r o; do
    sed -n 's/^route //p' "$A/live" | has "$o" || echo "stays: there is a route \`$o\` that there wasn't"
  done
}
files
# What is told to a daemon may write its files anew.
if [ "$how" != boot ]; then steps; files; [ ! -s "$A/live" ] || live; fi
folders
if [ -d /run/systemd/system ]; then
  rm -f -- /etc/systemd/system/netplay-back.service /etc/systemd/system/sysinit.target.wants/netplay-back.service
fi
mv -- "$A/undoing" "$A/undone" 2>/dev/null
[ "$how" = late ] || [ ! -d /run/systemd/system ] || systemctl --no-block stop netplay-late.timer 2>/dev/null
[ ! -e "$A/failed" ]
