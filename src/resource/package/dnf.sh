# dnf, dnf5 or yum, and rpm. What is to go goes first, which makes room for the rest; nothing goes that isn't named.
run() { "$tool" -y -q --color=never --setopt=exit_on_lock=True --setopt=clean_requirements_on_remove=False "$@"; }
locked() {
  case $said in
    *'already locked by '*) h=${said#*already locked by } h=${h%%[!0-9]*} ;;
    *'ailed to obtain '*lock* | *'holding the yum lock'*) h=$(cat /var/lib/dnf/rpmdb_lock.pid /var/cache/dnf/metadata_lock.pid /run/yum.pid /var/run/yum.pid 2>/dev/null | head -n 1) ;;
    *) return 1 ;;
  esac
  holder="process ${h:-unknown} ($(cat "/proc/${h:-0}/comm" 2>/dev/null)) holds the lock of $tool"
}
leaves() {
  names - $todo
  [ -n "$n" ] || return 0
  why=$(rpm -e --test $n 2>&1) || { why="others need it: $why"; return 1; }
}
fetch() {
  names + "$@"
  [ -n "$n" ] || return 0
  patiently run --downloadonly install $n && return
  why=$said
  return 1
}
there() { rpm -q "$1" >/dev/null 2>&1; }

failed=
sieve leaves
names - $todo
if [ -n "$n" ]; then patiently run remove $n || failed=$?; printf '%s\n' "$said"; fi
# Metadata that don't do are fetched anew, once.
[ -z "$todo" ] || fetch $todo || run clean expire-cache >/dev/null 2>&1
sieve fetch
names + $todo
if [ -n "$n" ]; then patiently run -C install $n || failed=$?; printf '%s\n' "$said"; fi
if [ -n "$failed" ]; then
  for k in $todo; do
    eval "p=\$p$k"
    for w in $p; do
      case $w in
        -*) if there "${w#-}"; then eval "c$k=$failed"; fi ;;
        *) there "${w#+}" || rpm -q --whatprovides "${w#+}" >/dev/null 2>&1 || eval "c$k=$failed" ;;
      esac
    done
  done
fi
verdicts
