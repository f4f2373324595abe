# What firmware tools say of cards. Arguments: `DEVICE NAME:VALUE...`, the value without what stands for it; the name `*` stands
# for all parameters that aren't at their default. After the lines of cards.sh and `mark FILE:LINE`, for each card
# `== ADDRESS CODE` and the lines of its table that matter; `names ...` are those of the whole table, where a wanted one isn't
# among them, and `value NAME WORD NUMBER` what a parameter can be of which a wanted value isn't in the table.
tool mlxconfig mstconfig
echo "tool $tool"
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
[ ! -d "$D" ] || { cd "$D" && grep -asH '' -- * | sed 's/^/mark /'; cd /; }
cards
[ -n "$tool" ] || exit 0
set -f
asks= targets=
for p; do
  set -- $p
  resolve "$1"
  shift
  for t in $at; do for w; do asks="$asks $t=$w"; done; done
done

# An old tool has no -e, and tells the values of the next boot alone.
#   query ADDRESS NAME...
query() {
  d=$1
  shift
  o=$(lim 60 "$tool" -d "$d" -e q "$@" 2>&1 </dev/null); r=$?
  case $r,$o in
    0,* | 124,* | 137,* | *Configurations:*) ;;
    *[Oo]ption* | *[Ff]lag* | *[Aa]rgument* | *[Uu]sage*) o=$(lim 60 "$tool" -d "$d" q "$@" 2>&1 </dev/null); r=$? ;;
  esac
  printf '%s\n' "$o"
  return $r
}

# The whole table has no elements of arrays: those are asked by name, and with them all else that is wanted. One name that
# the card doesn't know fails such a query; which ones it knows the whole table tells. A further port (_P2) many cards don't
# have, so that those are asked for the whole table at once.
ask() {
  names= arrays= stars= whole=1 wanted=
  for q in $asks; do
    case $q in "$1="*) w=${q#*=} ;; *) continue ;; esac
    case $w in
      '*') stars=1; continue ;;
      *'['*) arrays="$arrays ${w%%:*}" ;;
      *:*) wanted="$wanted $w" ;;
    esac
    names="$names ${w%%:*}"
  done
  case $names in *_P[2-9]*) ports=1 ;; *) ports= ;; esac
  if [ -n "$arrays" ] && [ -z "$stars$ports" ]; then
    o=$(query "$1" $names); r=$?
    case $o in *"doesn't support"* | *"Unknown Parameter"* | *"Failed to find Param"*) ;; *) whole= ;; esac
  fi
  if [ -n "$whole" ]; then
    o=$(query "$1"); r=$?
    [ -z "$arrays" ] || [ $r != 0 ] || { more=$(query "$1" $arrays); r=$?; o=$o$NL$more; }
  fi
  echo "== $1 $r"
  [ $r = 0 ] || [ "$(id -u)" = 0 ] || echo '-E- not root'
  o=$(printf '%s\n' "$o" | awk -v "names=$names" -v "stars=$stars" -v "wanted=$wanted" '
    function stem(n) { sub(/\[.*/, "", n); sub(/_P[0-9]+$/, "", n); return n }
    BEGIN {
      n = split(names, a, " ")
      for (i = 1; i <= n; i++) want[stem(a[i])]
      m = split(wanted, w, " ")
      for (i = 1; i <= m; i++) { at = index(w[i], ":"); of[i] = substr(w[i], 1, at - 1); is[i] = toupper(substr(w[i], at + 1)) }
    }
    /^Configurations:/ { table = 1; print; next }
    !table || !/^[ *]/ { print; next }
    {
      row = $0
      sub(/^[* ]*(RO )?[ ]*/, "", row)
      split(row, cells, " ")
      s = stem(cells[1])
      all = all " " cells[1]
      seen[cells[1]]
      if (/\(/ && !/(True|False)\(/) {
        up = toupper($0) " "
        for (i = 1; i <= m; i++)
          if (of[i] == cells[1] && !index(up, " " is[i] "(") && !index(up, "(" is[i] ") ")) open = open " " s
      }
      if (s in want || s ~ /^ADVANCED_/ || (stars && $0 ~ /^[*]/)) print
    }
    END {
      if (open) print "open" open
      for (i = 1; i <= n; i++) if (!(a[i] in seen)) { print "names" all; exit }
    }')
  printf '%s\n' "$o"
  open=$(printf '%s\n' "$o" | sed -n 's/^open//p')
  [ -z "$open" ] || lim 60 "$tool" -d "$1" show_confs 2>&1 </dev/null | awk -v "open=$open" '
    BEGIN { n = split(open, a, " "); for (i = 1; i <= n; i++) want[a[i]] }
    /^ *[A-Z][A-Z0-9_]*=/ { split($1, p, "="); name = p[1]; s = name; sub(/_P[0-9]+$/, "", s); next }
    s in want && /^ *0x[0-9a-f]+: [^ ]+ *$/ { sub(/:$/, "", $1); print "value", s, $2, $1 }'
}
[ -z "$targets" ] || each_card ask $targets
exit 0
