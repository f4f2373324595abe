# apt-get and dpkg. Configuration files that were changed are kept, nobody is asked anything, and services are restarted
# by nobody but the packages themselves.
export DEBIAN_FRONTEND=noninteractive DEBIAN_PRIORITY=critical APT_LISTCHANGES_FRONTEND=none NEEDRESTART_MODE=l UCF_FORCE_CONFFOLD=1
apt() {
  apt-get -q -y -o Dpkg::Use-Pty=0 -o APT::Get::AutomaticRemove=false -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
    -o Acquire::https::Timeout=20 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}
# Whether $said tells of a lock, and who holds it. apt before 1.9 doesn't say who: the kernel does.
locked() {
  case $said in
    *'Could not get lock '*) f=${said#*Could not get lock } f=${f%%"$NL"*} f=${f%%. *} f=${f%% - *} ;;
    *'lock was locked by another process'*) f=/var/lib/dpkg/lock-frontend ;;
    *) return 1 ;;
  esac
  case $said in
    *'held by process '*) h=${said#*held by process } h=${h%%"$NL"*} h=${h%.} ;;
    *'another process with pid '*) h=${said#*another process with pid } h=${h%%[!0-9]*} ;;
    *) i=$(stat -c %i "$f" 2>/dev/null); h=$(sed -n "s/.* WRITE \([0-9]*\) [^ ]*:$i .*/\1/p" /proc/locks | head -n 1) ;;
  esac
  case $h in *[!0-9]* | '') ;; *) h="$h ($(cat "/proc/$h/comm" 2>/dev/null))" ;; esac
  holder="process ${h:-unknown} holds $f"
}
# Why it failed, out of $said, the cause first: what dpkg says of a package, of this one if it is among them, then apt's
# errors; and behind them what else was said, without the course of things.
#   errors [PACKAGE]
errors() {
  e=$(printf '%s\n' "$said" | sed -n '/^dpkg: error processing /{N;s/\n */ /;p;}')
  m=${1:+$(printf '%s\n' "$e" | grep -F -e " package $1 (" -e " package $1:" -e "/${1}_")}
  e=${m:-$e}
  [ -z "$e" ] || printf '%s\n' "$e"
  e=$(printf '%s\n' "$said" | grep '^E: ' | grep -v '^E: Sub-process ')
  [ -z "$e" ] || printf '%s\n' "$e"
  printf '%s\n' "$said" | sed '/^dpkg: error processing /{N;d;}' | grep -v '^Inst \|^Conf \|^Remv \|^NOTE: \|^Reading \|^(Reading \|^Building \|^[A-Z][a-z][a-z]*:[0-9][0-9]* \|^[EN]: \|^The following \|^  \|^[0-9][0-9]* upgraded, \|^Need to get \|^After this \|^Selecting \|^Preparing \|^Unpacking \|^Setting up \|^Processing triggers \|^Errors were encountered \|^debconf: delaying \|^ [^ ]*$\|^$' | tail -n 12
}
# The words of apt-get install for these parts, and for all that is to be removed, which makes room for them.
words() {
  names + "$@"
  plus=$n
  names - $todo
  w=$plus
  for name in $n; do w="$w $name-"; done
}
foresee() {
  words "$@"
  named=" $n "
  exact $plus || { why="E: Unable to locate package $unknown"; return 1; }
  said=$(apt -s install $w 2>&1) || { why=$(errors); return 1; }
  lost=$(printf '%s\n' "$said" | while read -r verb name _; do
    [ "$verb" = Remv ] || continue
    case $named in *" $name "* | *" ${name%%:*} "*) ;; *) printf ' %s' "$name" ;; esac
  done)
  [ -n "$lost" ] || return 0
  why="it would remove$lost too, which the play doesn't name"
  return 1
}
update() {
  updated=1
  # Sources that can't be read are warnings and the exit code 0.
  patiently apt update || :
  missed=$(printf '%s\n' "$said" | grep '^[EW]: ')
}
fetch() {
  words "$@"
  patiently apt -d install $w && return
  why=$(errors)
  return 1
}
# A package may be unknown for want of its list.
known() {
  foresee "$@" && return
  e=${why%%"$NL"*} f=${missed%%"$NL"*}
  [ -z "$missed" ] || why="$e, and not all lists could be fetched: ${f#[EW]: }${why#"$e"}$NL$missed"
  return 1
}

updated= missed=
if [ -n "$fix" ]; then
  # One that can't be finished keeps only itself back.
  patiently dpkg --force-confdef --force-confold --configure -a || printf '%s\n' "$said"
fi
# The lists are fetched where they don't do, once.
if ! foresee $todo; then
  update
  sieve known
fi
if [ -n "$todo" ] && [ -z "$updated" ] && ! fetch $todo; then update; fi
sieve fetch
if [ -n "$todo" ]; then
  words $todo
  left=$((end - $(date +%s)))
  # Told as it comes too, lest it be lost with a deadline.
  said=$( { apt -o DPkg::Lock::Timeout=$((left > 0 ? left : 0)) install $w 2>&1 || echo "== code $?"; } | tee /dev/stderr)
  case $said in *'== code '*)
    code=${said##*== code } said=${said%== code *}
    for k in $todo; do
      eval "p=\$p$k"
      for w in $p; do
        case $w$(dpkg-query -W -f=' ${Status}' "${w#?}" 2>/dev/null) in
          +*\ installed | -*\ config-files | -*\ not-installed) ;;
          -*\ *\ * | +*) eval "c$k=$code"; why=$(errors "${w#?}"); eval "t$k=\$why" ;;
        esac
      done
    done ;;
  esac
fi
verdicts
