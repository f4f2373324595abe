# Puts a rule into a chain, or takes it out, in one transaction. $mark is its comment. In a chain of others it comes before
# the rule with this handle or of these words, or before what drops all the rest, or at the end.
netplay_nft() { # HOW(insert, add or nothing) FAMILY TABLE CHAIN BEFORE RULE
  own= how=$1
  [ "$2 $3" != 'inet netplay' ] || own=1
  if ! old=$(nft -a list chain "$2" "$3" "$4" 2>&1); then
    # A chain that isn't there drops nothing.
    case $old in *'No such file or directory'*) ;; *) printf '%s\n' "$old"; return 1 ;; esac
    [ "$own" ] && [ "$1" ] || return 0
    old=
  fi
  at=
  if ! [ "$own" ]; then
    at=$(printf '%s\n' "$old" | before=$5 awk '
      / \{ # handle / || !match($0, / # handle [0-9]+$/) { next }
      {
        handle = $NF
        $0 = substr($0, 1, RSTART - 1)
        sub(/^[ \t]+/, ""); sub(/ comment ".*"$/, ""); gsub(/counter packets [0-9]+ bytes [0-9]+ /, "")
      }
      ENVIRON["before"] == handle || ENVIRON["before"] == $0 { found = handle; exit }
      /^(log .*)?(drop|reject.*)$/ && !last { last = handle }
      END { print found ? found : last }')
    if [ "$1" ] && [ "$at" ]; then how=insert at="position $at"; elif [ "$1" ]; then how=add; fi
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
    [ -z "$1" ] || printf '%s rule %s %s %s %s %s\n' "$how" "$2" "$3" "$4" "$at" "$6"
  } | nft -f - || return
  if [ "$own" ] && ! [ "$1" ]; then
    case $(nft list table inet netplay) in *' comment "'*) ;; *) nft delete table inet netplay ;; esac
  fi
}
