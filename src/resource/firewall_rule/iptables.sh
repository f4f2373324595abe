# Puts a rule into a chain of netplay's own, to which the first rule jumps, or takes it out, in one transaction. $mark is
# its comment.
netplay_iptables() { # HOW(insert, add or nothing) COMMAND BASE CHAIN MOVE RULE
  # A lock that stays held is told by what waits for it.
  all=$("$2" -w 10 -S 2>&1) || { printf '%s\n' "$all"; return 1; }
  jumps=$(printf '%s\n' "$all" | grep -cxF -- "-A $3 -j $4")
  others=$(printf '%s\n' "$all" | grep "^-A $4 " | grep -vF -- " --comment \"$mark\" ")
  [ "$1" ] || printf '%s\n' "$all" | grep -qxF -- "-N $4" || return 0
  {
    echo '*filter'
    printf ':%s - [0:0]\n' "$4"
    [ "$1" != insert ] || printf '%s %s %s\n' -A "$4" "$6"
    [ -z "$others" ] || printf '%s\n' "$others"
    [ "$1" != add ] || printf '%s %s %s\n' -A "$4" "$6"
    if [ -z "$1$others" ]; then
      while [ "$jumps" -gt 0 ]; do printf '%s %s -j %s\n' -D "$3" "$4"; jumps=$((jumps - 1)); done
      printf '%s %s\n' -X "$4"
    elif [ "$jumps" != 1 ] || [ "$5" = move ]; then
      while [ "$jumps" -gt 0 ]; do printf '%s %s -j %s\n' -D "$3" "$4"; jumps=$((jumps - 1)); done
      printf '%s %s 1 -j %s\n' -I "$3" "$4"
    fi
    echo COMMIT
  } | "$2-restore" -w 10 --noflush
}
