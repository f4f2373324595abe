# The frame of a transaction. $seconds: how long it may take. Arguments: parts, words of `+name` and `-name`, `!` where
# what was interrupted has to be finished first, and the tool where there are several.
set -f
NL='
'
# What is under way is not to be cut off by the deadline only for having waited.
end=$(($(date +%s) + (seconds > 30 ? seconds - 15 : seconds / 2)))
count=$# fix= tool= k=0
for p; do
  k=$((k + 1)) q= c=0 t=
  for w in $p; do case $w in !) fix=1 ;; [+-]*) q="$q $w" ;; *) tool=$w ;; esac; done
  eval "p$k=\$q c$k=0 t$k="
done
todo=; k=0; while [ $((k += 1)) -le $count ]; do todo="$todo $k"; done

# That this part failed, and why: NUMBER WHY.
fail() { eval "c$1=1 t$1=\$2"; }

# The names of parts with this sign: SIGN NUMBER...
names() {
  s=$1 n=; shift
  for k; do
    eval "p=\$p$k"
    for w in $p; do case $w in "$s"*) n="$n ${w#?}" ;; esac; done
  done
}

# Leaves in $todo the parts for which a check succeeds, all together or else each alone; it is given the numbers and says
# why not in $why.
sieve() {
  [ -n "$todo" ] || return 0
  "$1" $todo && return
  good=
  case $todo in
    ' '*' '*) for part in $todo; do if "$1" $part; then good="$good $part"; else fail $part "$why"; fi; done ;;
    *) fail $todo "$why" ;;
  esac
  todo=$good
  [ -n "$todo" ] || return 0
  "$1" $todo && return
  for part in $todo; do fail $part "together with the other packages of this play: $why"; done
  todo=
}

# Runs a command that may find a lock held until it gets it. Leaves its output in $said.
patiently() {
  while :; do
    said=$("$@" 2>&1) && return
    r=$?
    locked || return $r
    if [ "$(date +%s)" -ge "$end" ]; then
      echo "$holder, and still did when the time of this step was over: let it finish, or give the resource a longer \`timeout\`"
      exit 1
    fi
    sleep 1
  done
}

# What came of each part.
verdicts() {
  printf '\n== parts\n'
  k=0
  while [ $((k += 1)) -le $count ]; do
    eval "c=\$c$k t=\$t$k"
    printf '== %s %s\n' $k $c
    [ -z "$t" ] || printf '%s\n' "$t"
  done
  exit 0
}
