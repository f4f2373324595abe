# Puts a rule into a chain, or takes it out, in one transaction. $mark is its comment.
netplay_nft() { # HOW(insert, add or nothing) FAMILY TABLE CHAIN RULE
  own=
  [ "$2 $3" != 'inet netplay' ] || own=1
  if ! old=$(nft -a list chain "$2" "$3" "$4" 2>&1); then
    # A chain that isn't there drops nothing.
    case $old in *'No such file or directory'*) ;; *) printf '%s\n' "$old"; return 1 ;; esac
    [ "$own" ] && [ "$1" ] || return 0
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
