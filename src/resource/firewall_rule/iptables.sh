# Puts a rule into a chain of netplay's own or takes it out, in one transaction. $mark is its comment. What lets packets pass
# is in CHAIN, to which BASE jumps before the rule BEFORE, or before what drops all the rest; what drops them is in
# CHAIN-DROP, to which the first rule jumps, and which returns what CHAIN lets pass.
netplay_iptables() { # HOW(insert, add or nothing) COMMAND BASE CHAIN BEFORE RULE
  # A lock that stays held is told by what waits for it.
  all=$("$2" -w 10 -S 2>&1) || { printf '%s\n' "$all"; return 1; }
  [ "$1" ] || printf '%s\n' "$all" | grep -qx -e "-N $4" -e "-N $4-DROP" || return 0
  old=$(printf '%s\n' "$all" | grep -vF -- " --comment \"$mark\" ")
  lets=$(
    [ "$1" != insert ] || printf '%s %s %s\n' -A "$4" "$6"
    printf '%s\n' "$old" | grep "^-A $4 "
  )
  drops=$(
    printf '%s\n' "$old" | grep "^-A $4-DROP " | grep -v ' -j RETURN$' || :
    [ "$1" != add ] || printf '%s %s %s\n' -A "$4-DROP" "$6"
  )
  others=$(printf '%s\n' "$all" | grep "^-A $3 " | grep -vxF -- "-A $3 -j $4")
  at=$(
    printf '%s\n' "$others" | grep -nxF -- "$5" || :
    printf '%s\n' "$others" | grep -nE -- "^-A $3 (-m comment --comment (\"[^\"]*\"|[^ ]*) )?-j (DROP|REJECT)" || :
    echo "$(($(printf '%s\n' "$others" | grep -c .) + 1)):"
  )
  {
    echo '*filter'
    netplay_chain "$3" "$4" "${at%%:*}" "$lets"
    returns=$(printf '%s\n' "$lets" | sed -n "s/^-A $4 \(.*\)-m comment --comment \"netplay:[^\"]*\" -j ACCEPT\$/-A $4-DROP \1-j RETURN/p")
    netplay_chain "$3" "$4-DROP" 1 "${drops:+$returns
$drops}"
    echo COMMIT
  } | "$2-restore" -w 10 --noflush
}
# A chain with these rules, and one jump to it that is at this place or before it; without rules neither.
netplay_chain() { # BASE CHAIN PLACE RULES
  now=$(printf '%s\n' "$all" | grep "^-A $1 " | grep -nxF -- "-A $1 -j $2" | cut -d: -f1)
  there=$(printf '%s\n' "$all" | grep -xF -- "-N $2")
  [ -z "$4$there" ] || printf ':%s - [0:0]\n%s\n' "$2" "$4"
  if [ -z "$4" ] || ! [ "$now" -le "$3" ] 2>/dev/null; then
    for place in $now; do printf '%s %s -j %s\n' -D "$1" "$2"; done
    [ -z "$4" ] || printf '%s %s %s -j %s\n' -I "$1" "$3" "$2"
  fi
  [ -n "$4" ] || [ -z "$there" ] || printf '%s %s\n' -X "$2"
}
