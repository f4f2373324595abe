# A rule is put into a chain, or taken out of it, in one go: what is there of it goes and it comes, in one transaction.
# $mark is the comment by which it is known.
netplay_nft() { # HOW(insert, add or nothing) FAMILY TABLE CHAIN RULE
  own=
  [ "$2 $3" != 'inet netplay' ] || own=1
  if ! old=$(nft -a list chain "$2" "$3" "$4" 2>&1); then
    [ "$own" ] || { printf '%s\n' "$old"; return 1; }
    [ "$1" ] || return 0
    old=
  fi
  {
    if [ "$own" ] && [ "$1" ]; then
      echo 'add table inet netplay'
      # Before the usual chains: what is dropped here needs no other chain.
      printf 'add chain inet netplay %s { type filter hook %s priority -10; policy accept; }\n' "$4" "$4"
    fi
    printf '%s\n' "$old" | while IFS= read -r line; do
      case $line in *" comment \"$mark\" # handle "*) printf 'delete rule %s %s %s handle %s\n' "$2" "$3" "$4" "${line##* }" ;; esac
    done
    [ -z "$1" ] || printf '%s rule %s %s %s %s\n' "$1" "$2" "$3" "$4" "$5"
  } | nft -f - || return
  if [ "$own" ] && ! [ "$1" ]; then
    case $(nft list table inet netplay) in *' comment "'*) ;; *) nft delete table inet netplay ;; esac
  fi
}
netplay_iptables() { # HOW(insert, add or nothing) COMMAND BASE CHAIN MOVE RULE
  # A lock that stays held is told by what waits for it.
  base=$("$2" -w 10 -S "$3" 2>&1) || { printf '%s\n' "$base"; return 1; }
  old=$("$2" -w 10 -S "$4" 2>/dev/null) || old=
  jumps=$(printf '%s\n' "$base" | grep -cxF -- "-A $3 -j $4")
  others=$(printf '%s\n' "$old" | grep "^-A " | grep -vF -- " --comment \"$mark\" ")
  [ "$1$old" ] || return 0
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
