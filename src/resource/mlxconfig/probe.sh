# What firmware tools say of cards. Arguments: `DEVICE NAME...`; the name `*` stands for all parameters that aren't at their
# default. After the lines of cards.sh and `mark FILE:LINE`, for each card `== ADDRESS CODE` and the lines of its table that
# matter; `names ...` are those of the whole table, where a wanted one isn't among them.
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
# the card doesn't know fails such a query; which ones it knows the whole table tells.
ask() {
  names= arrays= stars= whole=1
  for q in $asks; do
    case $q in
      "$1=*") stars=1 ;;
      "$1="*'['*) arrays="$arrays ${q#*=}" names="$names ${q#*=}" ;;
      "$1="*) names="$names ${q#*=}" ;;
    esac
  done
  if [ -n "$arrays" ] && [ -z "$stars" ]; then
    o=$(query "$1" $names); r=$?
    case $o in *"doesn't support"* | *"Unknown Parameter"* | *"Failed to find Param"*) ;; *) whole= ;; esac
  fi
  if [ -n "$whole" ]; then
    o=$(query "$1"); r=$?
    [ -z "$arrays" ] || [ $r != 0 ] || { more=$(query "$1" $arrays); r=$?; o=$o$NL$more; }
  fi
  echo "== $1 $r"
  [ $r = 0 ] || [ "$(id -u)" = 0 ] || echo '-E- not root'
  printf '%s\n' "$o" | awk -v "names=$names" -v "stars=$stars" '
    function stem(n) { sub(/\[.*/, "", n); sub(/_P[0-9]+$/, "", n); return n }
    BEGIN { n = split(names, a, " "); for (i = 1; i <= n; i++) want[stem(a[i])] }
    /^Configurations:/ { table = 1; print; next }
    !table || !/^[ *]/ { print; next }
    {
      row = $0
      sub(/^[* ]*(RO )?[ ]*/, "", row)
      split(row, cells, " ")
      s = stem(cells[1])
      all = all " " cells[1]
      seen[cells[1]]
      if (s in want || s ~ /^ADVANCED_/ || (stars && $0 ~ /^[*]/)) print
    }
    END { for (i = 1; i <= n; i++) if (!(a[i] in seen)) { print "names" all; exit } }'
}
[ -z "$targets" ] || each_card ask $targets
exit 0
