led() {
  l=$1 i=0
  while [ -L "$l" ] && [ $((i += 1)) -le 40 ]; do
    if [ -k "${l%/*}/" ]; then
      u=$(stat -c %u -- "$l"); case $u in 0|"$(id -u)"|"$(stat -L -c %u -- "${l%/*}/")") ;;
        *) echo "$l is a link that the user $u made in a folder that everybody may write to; it isn't followed"; return 1 ;; esac
    fi
    n=$(readlink -- "$l"); case $n in /*) l=$n ;; *) l=${l%/*}/$n ;; esac
  done
}
