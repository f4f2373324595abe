# The shell functions of a batch, one a paragraph. They run under dash, bash and busybox. Comment lines are left out of
# what is sent, and functions that a batch doesn't need.
# Beside them a batch sets: N, its nonce; RUN, the run's id; L and R, the folders of netplay's state on the host; OK,
# the numbers of the steps that succeeded; SESSION, the host's own SSH_CONNECTION.

# No traps: a lost session ends us by SIGPIPE between two steps; where that is ignored, printf fails and we end ourselves.
exec 3>&1
NL='
'
T=; command -v timeout >/dev/null && T='timeout -k 5'
# An old busybox' timeout knows no -k, and an older one wants -t. coreutils' is no link, and isn't asked.
IFS=:; for d in $PATH; do [ ! -L "$d/timeout" ] || l=1; done; unset IFS
[ -z "${l-}" ] || $T 9 true 2>/dev/null || { T=timeout; timeout 9 true 2>/dev/null || T=; }

# A tool that can hang, or print without end: lim SECONDS TOOL ARGUMENT... What it prints ends after 1 MiB, of which the
# reader makes a failure; its errors too, where they go to the same place.
lim() {
  k=1; [ /proc/self/fd/1 -ef /proc/self/fd/2 ] || k=2
  { k=$( {
    { if [ "$k" = 1 ]; then exec 2>&1; fi; limited "$@" 4>&- 5>&-; echo "$?" >&4; } | head -c 1048577 >&5
  } 4>&1 ); } 5>&1
  return "${k:-1}"
}

limited() { if [ -n "$T" ]; then $T "$@"; else shift; "$@"; fi; }

# A read of our own: its standard output streams, its standard error is captured. No process but its own.
#   probe INDEX FRAGMENT
probe() {
  e=$( ( f=$2; set --; eval "$f" ) 2>&1 1>&3 3>&- 9>&- </dev/null ); r=$?
  printf '\n%s %s %s %s\n%s\n' "$N" "$1" "$r" "${#e}" "$e" >&3 || exit 74
}

# What may print or hang as it likes, steps and whatever a user wrote: the last 64 KiB of all its output are kept.
# sed stops at the marker and not at the end of the pipe, so that a child that keeps the pipe open holds nothing up; the
# line behind the marker is for busybox, whose sed reads one line ahead.
#   step INDEX ALL ANY SECONDS FRAGMENT
step() {
  ready "$1" "$2" "$3" || return 0
  o=$( { run "$4" "$5" 2>&1 3>&- 9>&-; printf '\n%s %s\n.\n' "$N" "$?"; } </dev/null | sed "/^$N /q" | tail -c 65536 )
  frame "$1"
}

# The text travels in the environment, never in an argument that ps shows to everybody.
#   run SECONDS FRAGMENT
run() {
  if [ -n "$T" ] && [ ${#2} -lt 100000 ]; then f=$2 $T "$1" /bin/sh -c 'eval "unset f
$f"'; else ( f=$2; set --; eval "$f" ); fi
}

# Whether a step may run: all of ALL succeeded, and one of ANY unless it is empty. Otherwise it is told as skipped.
#   ready INDEX ALL ANY
ready() {
  for d in $2; do case $OK in *" $d "*) ;; *) printf '\n%s %s skip %s\n\n' "$N" "$1" 0 >&3 || exit 74; return 1 ;; esac; done
  [ -n "$3" ] || return 0
  for d in $3; do case $OK in *" $d "*) return 0 ;; esac; done
  printf '\n%s %s skip %s\n\n' "$N" "$1" 0 >&3 || exit 74
  return 1
}

# The frame of $o, which ends in the marker. A step whose marker is lost has no outcome.
#   frame INDEX
frame() {
  case $o in *"$NL$N "*) r=${o##*"$NL$N "}; o=${o%"$NL$N "*} ;; "$N "*) r=${o#"$N "}; o= ;; *) r=lost ;; esac
  r=${r%%"$NL"*}
  [ "$r" = 0 ] && OK="$OK$1 "
  printf '\n%s %s %s %s\n%s\n' "$N" "$1" "$r" "${#o}" "$o" >&3 || exit 74
}

# Which parts of what was just done together succeeded: those of which the last lines of $o say so.
#   parts INDEX PART...
parts() {
  case $OK in *" $1 "*) ;; *) return 0 ;; esac
  shift; i=0
  for d; do
    i=$((i + 1))
    case $NL${o##*"== parts$NL"}$NL in *"$NL== $i 0$NL"*) OK="$OK$d " ;; esac
  done
}

# A file replaced in one go: a dot file made by us alone in the target's folder, its length checked, that file alone
# synced (a bare sync waits for every dead NFS mount), owner, mode, ACL, attributes and SELinux context set, renamed.
#   put INDEX ALL ANY SECONDS PATH MODE OWNER BYTES PLACE BACKUP VALIDATE BODY
put() {
  ready "$1" "$2" "$3" || return 0
  o=$( { ( set -C; umask 077
      p=$5 t=
      no() { [ -z "$t" ] || rm -f -- "$t" "$t.old"; printf '%s\n' "$1"; exit 1; }
      led "$p" || exit 1
      if [ -L "$p" ]; then q=$(readlink -f -- "$p") && [ -n "$q" ] || no "the link $p leads to a folder that isn't there"; p=$q; fi
      [ ! -d "$p" ] || no "$p is a directory"
      d=${p%/*}/
      [ -d "$d" ] || no "there is no folder $d"
      [ -e /proc/self/fd ] || no "$p can't be written, since /proc isn't mounted"
      rm -f -- "$d.netplay-"* 2>/dev/null
      t=$d.netplay-$RUN-$1
      # By its descriptor, as whoever owns the folder can give its name to something else meanwhile. dd tells why a write
      # failed, which printf of dash doesn't.
      w=$( exec 2>&1; exec 8>"$t" || exit 1
        e=$( "${12}" 2>/dev/null | dd bs=65536 conv=fsync 2>&1 >&8 ) && [ "$(wc -c </proc/self/fd/8)" -eq "$8" ] || { echo "$e"; exit 1; }
        { [ -z "$7" ] || chown -- "$7" /proc/self/fd/8; } && chmod -- "$6" /proc/self/fd/8 || exit 3
        [ "$9" = in-place ] || [ ! -f "$p" ] || keep "$6" || exit 4
      ) || case $? in
        3) printf '%s\n' "$w"; no "its owner or permissions could not be set" ;;
        4) w=${w%%"$NL"*}; no "its ACL or extended attributes could not be kept: ${w##*: }" ;;
        *) w=${w%%"$NL"*}; no "not all of it could be written to $d: ${w##*: }" ;;
      esac
      if [ -n "${11}" ]; then
        file=$t; export file
        run "$4" "${11}" || no "the new file was refused by its validate command (exit code $?); nothing was replaced"
      fi
      if [ -n "${10}" ] && [ -f "$p" ]; then
        b=$L/backup/${10}~$(date +%Y%m%dT%H%M%S)
        w=$( { [ -d "$L/backup" ] || { mkdir -p "$L/backup" && chmod 700 "$L"; } && cp -p -- "$p" "$b"; } 2>&1 ) ||
          { rm -f -- "$b" 2>/dev/null; no "it could not be backed up to $L/backup, and nothing was replaced: ${w##*: }"; }
        ( set -- "$L/backup/${10}~"*; while [ $# -gt 5 ]; do rm -f -- "$1"; shift; done )
      fi
      place "$9"
      [ "$9" != in-place ] || { { [ -z "$7" ] || chown -- "$7" "$p"; } && chmod -- "$6" "$p"; }
    ) 2>&1 3>&- 9>&-; printf '\n%s %s\n.\n' "$N" "$?"; } </dev/null | sed "/^$N /q" | tail -c 65536 )
  frame "$1"
}

# Waits for the lock on descriptor 9 and tells each second for whom, so that nobody who has gone away is waited for: who
# took it just now writes its name a moment later.
#   queue SECONDS
queue() {
  sleep 1; h=; IFS= read -r h <"$R/holder" 2>/dev/null
  w=$1; while printf '\n%s waiting %s\n' "$N" "$h" >&3 || exit 74; ! flock -n 9; do
    [ $((w -= 1)) -gt 0 ] || { printf '\n%s locked %s\n' "$N" "$h" >&3; exit 75; }; sleep 1
  done
}

# Takes the lock that all changes on this host need, and makes sure that nothing has changed since the probe. The
# generation is odd while a change is under way, so that a probe in the middle of one is found to be worthless, also
# if that change never came to its end.
#   lock GENERATION HOLDER SECONDS
lock() {
  command -v flock >/dev/null || { printf '\n%s noflock\n' "$N" >&3; exit 75; }
  e=$( ( umask 077; mkdir -p "$R" && : >>"$R/lock" ) 2>&1 ) && exec 9>>"$R/lock" || nolock "$e"
  # Nobody may be there any more for whom the steps would be run, or may have changed their mind.
  flock -n 9 || { queue "$3"; printf '\n%s turn\n' "$N" >&3 && IFS= read -r g && [ "$g" = go ] || exit 74; }
  # What waits for its confirmation belongs to a run that goes on.
  if forsaken; then takeback; printf '\n%s moved\n' "$N" >&3; exit 0; fi
  if [ -e "$L/armed/back" ] || [ -e "$L/armed/undoing" ]; then
    h=; IFS= read -r h <"$L/armed/about"; printf '\n%s armed %s\n' "$N" "$h" >&3; exit 75
  fi
  [ ! -e "$L/armed/undone" ] || [ -e "$L/armed/failed" ] || rm -rf -- "$L/armed"
  g=; [ -f "$R/generation" ] && IFS= read -r g <"$R/generation"
  case $g in ''|*[!0-9]*|0?*|??????????????????*) g=0 ;; esac
  if [ $((g % 2)) = 1 ]; then g=$((g + 1)); count "$g"; printf '\n%s moved\n' "$N" >&3; exit 0; fi
  [ "$g" = "$1" ] || { printf '\n%s moved\n' "$N" >&3; exit 0; }
  ( umask 077; printf '%s\n' "$2" >"$R/holder" ) 2>/dev/null && count $((g + 1)) || nolock
}

#   nolock [WHY]
nolock() { w=${1-}; w=${w%%"$NL"*}; printf '\n%s nolock %s\n' "$N" "$R can't be written${w:+: ${w##*: }}" >&3; exit 75; }

#   count GENERATION
count() { ( umask 077; printf '%s\n' "$1" >"$R/generation.new" && mv -f "$R/generation.new" "$R/generation" ) 2>/dev/null; }

# The change is done; the lock stays ours to the end of the batch, so that its probe sees what it made.
changed() { count $((g + 2)); }

# Waits until no change is under way: what a session that broke had started may still run.
#   calm SECONDS
calm() {
  [ -w "$R/lock" ] && command -v flock >/dev/null || return 0
  exec 9>>"$R/lock"
  flock -n 9 || queue "$1"
  exec 9>&-
}

# What carries the session, one line each: the boot; the way to the controller (`way`); the link that has the session's address
# and those below it, the lowest first, with MTU, IFF_NOARP and IFF_UP (`link`); their addresses, the session's own as `own`, the
# others as `address`; and the routes among which the kernel finds the one to the controller (`route`).
live() {
  set -- $SESSION; [ $# = 4 ] && command -v ip >/dev/null || return 0
  c=${1%%\%*} x=${3%%\%*} z=; c=${c#::ffff:} x=${x#::ffff:}; case $3 in *%*) z=${3#*%} ;; esac
  v=$(ip -o address show | while read -r n v i a o; do case $a:$z in "$x"/*:"" | "$x":"" | "$x"/*:"$v" | "$x"/*:"${n%:}") echo "$v"; break ;; esac; done)
  [ -n "$v" ] || return 0
  echo "boot $(cat /proc/sys/kernel/random/boot_id)"; echo "way $c $x $(way "$c" "$x")"; ( below "$v" )
  addresses "$v" | while read -r a o; do case $a in "$x" | "$x"/*) echo "own $v $a $o" ;; *) echo "address $v $a $o" ;; esac; done
  leads "$c" | while read -r o; do echo "route $o"; done
}

# A link and those below it.
below() {
  for x in "/sys/class/net/$1/lower_"*; do [ ! -e "$x" ] || below "${x##*/lower_}"; done
  read -r x <"/sys/class/net/$1/mtu" && read -r o <"/sys/class/net/$1/flags" && echo "link $1 $x $((o & 128)) $((o & 1))"
}

# By which gateway and link a packet goes to an address from one of the host's own; nothing where none does.
#   way TO FROM
way() { ip route get "$1" from "$2" 2>/dev/null | sed -n '1{s/.* \(via [^ ]*\).* \(dev [^ ]*\).*/\1 \2/p;t
s/.* \(dev [^ ]*\).*/\1/p}'; }

# The routes that lead to an address, the shortest prefix first, as `ip` takes them: without what it only tells.
#   leads ADDRESS
leads() {
  k=4; case $1 in *:*) k=6 ;; esac
  ip -$k -o route show match "$1" 2>/dev/null | while read r; do
    o= s=; for w in $r; do
      case $s$w in linkdown | dead | pervasive | offload | rt_offload | trap | rt_trap) ;; expires) s=. ;; .*) s= ;; *) o="$o $w" ;; esac
    done
    echo "${o# }"
  done
}

# The addresses of a link, one a line, as `ip` takes them: of those that a lease brought with the time that is left of it.
#   addresses LINK
addresses() {
  ip -o address show dev "$1" 2>/dev/null | while read n v i a w; do
    o= s= l=; for w in $w; do
      case $s in brd | scope | peer) o="$o $s $w" s=; continue ;; *_lft) o="$o $s ${w%sec}" s=; continue ;; esac
      case $w in brd | scope | peer) s=$w ;; dynamic) l=1 ;; *_lft) [ -z "$l" ] || s=$w ;; noprefixroute) o="$o $w" ;; esac
    done
    [ "$i" != inet6 ] || o="$o nodad"
    echo "$a$o"
  done
}

# Stores the way back of what may cut the session off, and has the steps done by a process of its own, which takes that way
# unless somebody disarms it in time. A host that boots meanwhile takes it before its network is up. What is stored is synced.
#   arm TIMEOUT SECONDS UNIT GUARD BACK ABOUT FILE...
arm() {
  a=$L/armed t=$1 s=$2 u=$3 q=$4 b=$5 h=$6; shift 6
  w=$( ( umask 077
    mkdir -p "$L" && chmod 700 "$L" && rm -rf -- "$a" "$a.new" && mkdir "$a.new" || exit 1
    i=0
    for f; do
      i=$((i + 1)); p=$(readlink -f -- "$f") && [ -n "$p" ] || p=$f
      [ -d "${p%/*}" ] || : >"$a.new/$i.alone"
      printf '%s\n' "$p" >"$a.new/$i.path" && { [ ! -e "$p" ] || cp -a -- "$p" "$a.new/$i"; } || exit 1
    done
    printf '%s' "$q" | dd of="$a.new/guard" 2>&1 && printf '%s' "$b" | dd of="$a.new/back" 2>&1 &&
      printf '%s\n' "$h" | dd of="$a.new/about" 2>&1 || exit 1
    live 2>/dev/null | dd of="$a.new/live" 2>&1 || exit 1
    [ "$(cat "$a.new/guard" "$a.new/back" | wc -c)" -eq $((${#q} + ${#b})) ] || exit 1
    for f in "$a.new/"*; do dd if=/dev/null of="$f" conv=notrunc,fsync 2>&1 || exit 1; done
    if [ -d /run/systemd/system ]; then
      d=/etc/systemd/system
      mkdir -p "$d/sysinit.target.wants" && printf '%s' "$u" | dd conv=fsync of="$d/netplay-back.service" 2>&1 &&
        ln -sf ../netplay-back.service "$d/sysinit.target.wants/" || exit 1
    fi
    mv -- "$a.new" "$a" && rm -f -- "$R/ended" "$R/spool" "$R/now" ) 2>&1 ) || unarmed "$w"
  if [ -d /run/systemd/system ]; then
    systemctl stop netplay-guard.service netplay-late.timer 2>/dev/null; systemctl reset-failed netplay-guard.service netplay-late.service 2>/dev/null
    # What was confirmed just now may still have its last second in there.
    i=0; while [ "$(systemctl show -p LoadState --value netplay-guard.service 2>/dev/null)" = loaded ] && [ $((i += 1)) -le 30 ]; do nap; done
    printf '\n%s arming\n' "$N" >&3
    w=$( { systemd-run --quiet --collect --unit=netplay-late --on-active=$((s + t + 10)) /bin/sh "$a/back" late &&
      systemd-run --quiet --collect --unit=netplay-guard --property=KillMode=process --property=TimeoutStopSec=infinity \
        --property=ExecStopPost="/bin/sh -c '[ ! -e $a/back ] || exec /bin/sh $a/back timer'" /bin/sh "$a/guard"; } 2>&1 ) ||
      case $(systemctl is-active netplay-guard.service 2>/dev/null) in inactive | failed) unarmed "$w" ;; esac
  else
    command -v setsid >/dev/null && k=setsid || k=
    printf '\n%s arming\n' "$N" >&3
    $k /bin/sh "$a/guard" </dev/null >/dev/null 2>&1 3>&- 9>&- &
  fi
  i=0; while [ ! -e "$R/spool" ] && [ $((i += 1)) -le 300 ]; do nap; done
  # It doesn't begin any more when it finds no way back.
  [ -e "$R/spool" ] || ! ( exec 8>>"$R/guard" && flock -n 8 && mv -- "$a/back" "$a/kept" ) || unarmed "no process for it came to be in 30 s"
  i=0; while [ ! -e "$R/ended" ] && [ $((i += 1)) -le 20 ]; do nap; done
}

# A tenth of a second, where sleep knows that; else a second is counted as ten of them.
nap() { sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }; }

# Whether something is armed, or half taken back, and the process that would see to it is gone, which holds a lock while it
# lives: it was killed, or the host has booted and nothing took it back before its network was up.
forsaken() { { [ -e "$L/armed/back" ] || [ -e "$L/armed/undoing" ]; } && { [ ! -e "$R/guard" ] || ( exec 8>>"$R/guard" && flock -n 8 ) 2>/dev/null; }; }

# Takes back what is forsaken. Some of it may have been taken back before.
takeback() { for b in back undoing; do [ ! -e "$L/armed/$b" ] || { /bin/sh "$L/armed/$b" resume 9>&-; return; }; done; }

# Nothing was changed: the way back couldn't be stored, or nothing would take it.
#   unarmed WHY
unarmed() {
  rm -rf -- "$L/armed.new" "$L/armed"; count $((g + 2)); d=/etc/systemd/system
  rm -f -- "$d/netplay-back.service" "$d/sysinit.target.wants/netplay-back.service"
  printf '\n%s unarmed %s\n' "$N" "$(printf '%s' "$1" | grep -v -e ' records ' -e ' copied' | head -n 1)" >&3; exit 75
}

# Waits for the steps that were armed, tells what they gave, and disarms them if that is asked (`keep`), or has the way back
# taken at once (`undo`). Disarming and taking it are one renaming each of one file: exactly one of them comes to be.
#   found SECONDS VERB
found() {
  a=$L/armed i=0
  [ -f "$a/about" ] && IFS= read -r x <"$a/about"; case ${x-} in "run $RUN "*) ;; *) return ;; esac
  { [ -e "$R/ended" ] && [ "$2" != undo ]; } || ! forsaken || takeback
  [ "$2" != undo ] || : >"$R/now"
  while { [ -e "$a/back" ] && { [ ! -e "$R/ended" ] || [ "$2" = undo ]; } || [ -e "$a/undoing" ]; } && [ $((i += 1)) -le $(($1 * 10)) ]; do
    nap
  done
  [ ! -e "$R/spool" ] || cat -- "$R/spool" >&3
  if [ -e "$a/undone" ] && [ ! -e "$a/failed" ]; then
    said=$(head -c 4096 "$a/log"); rm -rf -- "$a" "$R/ended" "$R/spool"; disarmed=undone; return
  fi
  [ "$2" = keep ] && [ -e "$R/ended" ] && mv -- "$a/back" "$a/kept" 2>/dev/null || return 0
  if [ -d /run/systemd/system ]; then
    systemctl stop netplay-guard.service netplay-late.timer 2>/dev/null
    rm -f -- /etc/systemd/system/netplay-back.service /etc/systemd/system/sysinit.target.wants/netplay-back.service
  fi
  rm -rf -- "$a" "$R/ended" "$R/spool"; disarmed=kept
  g=0; [ -f "$R/generation" ] && IFS= read -r g <"$R/generation"
  [ $((g % 2)) = 0 ] || count $((g + 1))
}

# What stands of what was armed: whose it is, and whether it waits, is being undone, was undone, or was kept.
standing() {
  a=$L/armed
  if [ -n "${disarmed-}" ]; then printf 'armed\n%s run %s of us\n%s\nend of armed\n' "$disarmed" "$RUN" "${said-}"; return; fi
  [ -f "$a/about" ] || return 0
  echo armed
  s=kept
  [ ! -e "$a/undone" ] || { s=undone; [ ! -e "$a/failed" ] || s=failed; }
  [ ! -e "$a/undoing" ] || s=undoing
  [ ! -e "$a/back" ] || { s=running; [ ! -e "$R/ended" ] || s=ended; }
  printf '%s %s\n' "$s" "$(head -n 1 "$a/about")"
  [ -d /run/systemd/system ] || echo 'no systemd'
  ! forsaken || echo forsaken
  [ ! -f "$a/log" ] || head -c 4096 "$a/log"
  printf '\nend of armed\n'
}

# What netplay keeps on the host, as far as this user may read it.
state() {
  [ "$(id -u)" = 0 ] || return 0
  g=; [ -f "$R/generation" ] && IFS= read -r g <"$R/generation"
  case $g in ''|*[!0-9]*|0?*|??????????????????*) g=0 ;; esac
  printf 'root %s\n' "$g"
  standing
  [ ! -f "$L/reboot" ] || { echo note; head -c 65536 "$L/reboot"; printf '\nend of note\n'; }
  for f in "$L/owed/"*; do
    [ -f "$f" ] || continue
    a= t= r=; { IFS= read -r a; IFS= read -r t; IFS= read -r r; } <"$f"
    printf '%s\n%s\n%s\n' "$a" "$t" "$r"
  done
}
