# Reads the unit files of an image by their names, as units.sh does of a running host: an empty line, then a block of
# properties for each unit. No systemd runs; systemctl reads the files and links below the folder that stands for /.
command -v systemctl >/dev/null || { echo 'there is no systemctl in this image' >&2; exit 3; }
for u; do
  case $u in *@?*.*) t=${u%%@*}@.${u##*.} ;; *) t=$u ;; esac
  state=$(lim 30 systemctl "--root=${root:-/}" is-enabled -- "$u" 2>/dev/null)
  id=$u path=
  for d in /etc /usr/local/lib /usr/lib /lib; do
    for n in "$u" "$t"; do
      f=$root$d/systemd/system/$n
      [ -e "$f" ] || [ -L "$f" ] || continue
      path=${path:-$f}
      l=$(readlink -- "$f") && [ "$l" != /dev/null ] && [ "$n" = "$u" ] && id=${l##*/}
      break 2
    done
  done
  printf '\nId=%s\nNames=%s\nFragmentPath=%s\nUnitFileState=%s\n' "$id" "$u" "$path" "$state"
  [ -n "$path" ] && echo LoadState=loaded || echo LoadState=not-found
  for k in wants:WantedBy requires:RequiredBy; do
    by=
    for f in "$root"/etc/systemd/system/*."${k%:*}/$u" "$root"/usr/lib/systemd/system/*."${k%:*}/$u"; do
      [ -L "$f" ] || [ -e "$f" ] || continue
      f=${f%/*}; f=${f##*/}; by="$by ${f%.*}"
    done
    printf '%s=%s\n' "${k#*:}" "${by# }"
  done
done
