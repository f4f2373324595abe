# Between the arguments of an edit (triples of what, the old and the new line) and the edit itself: the folder is made,
# and what the kernel refused isn't written for the next boot.
mkdir -p -- "${p%/*}" || exit 1
n=$#
while [ "$n" -gt 0 ]; do
  case $bad in *" ${3%% = *} "*) ;; *) set -- "$@" "$1" "$2" "$3" ;; esac
  shift 3
  n=$((n - 3))
done
[ $# -gt 0 ] || exit 1
