# Sets parameters of cards for the next boot, all cards at once. $D: where it is noted. Arguments, three for each card: its
# address, assignments, and the lines of its note that are new (`PARAMETER WANTED WAS`; of one that is only taken out, the
# parameter alone). $parts: lines of the addresses that belong to a part. Ends as a joint does: what came of each part.
boot=$(cat /proc/sys/kernel/random/boot_id)
# A card that hangs mustn't hold up what is told of the others. An old busybox has another timeout.
if timeout 9 true 2>/dev/null; then lim() { timeout "$@"; }; else lim() { shift; "$@"; }; fi
tool mlxconfig mstconfig
set -f
n=0 all=
while [ $# -ge 3 ]; do
  n=$((n + 1)) all="$all $n"
  eval "a$n=\$1 s$n=\$2 m$n=\$3"
  shift 3
done

# Writes the note of a card: the lines of $old but for those of the parameters in $new, and these with this boot's id and how
# they are loaded. Prints why it couldn't.
#   note reboot|power_cycle
note() {
  lines=$(
    names=$(printf '%s\n' "$new" | while read -r p l; do printf ' %s ' "$p"; done)
    printf '%s\n' "$old" | while read -r p l; do case $names in *" $p "*) ;; *) [ -z "$p" ] || echo "$p $l" ;; esac; done
    printf '%s\n' "$new" | while read -r p l; do [ -z "$l" ] || echo "$p $l $boot $1"; done
  )
  [ -n "$lines" ] || { rm -f -- "$D/$name" 2>&1; return; }
  e=$( exec 2>&1; umask 077; mkdir -p "$D" && chmod 700 "${D%/*}" && printf '%s\n' "$lines" | dd conv=fsync of="$D/.$name" ) &&
    mv -f -- "$D/.$name" "$D/$name" 2>&1 && return
  printf '%s\n' "${e%%"$NL"*}"
  return 1
}

# It is noted before it is set: a note of what wasn't set says nothing, and without one nobody would know after a boot that
# it was to be loaded by that. Prints a line if the card refuses.
one() {
  eval "address=\$a$1 set=\$s$1 new=\$m$1"
  name=${address##*/} name=${name%.*}
  old=$(cat -- "$D/$name" 2>/dev/null)
  e=$(note reboot) || { echo "$address: nothing was set, as what waits for a boot can't be noted in $D: $e"; return; }
  [ -n "$set" ] || return 0
  o=$(lim 100 "$tool" -d "$address" -y set $set 2>&1 </dev/null); r=$?
  case $r in
    0) ;;
    124 | 137) echo "$address: $tool didn't end within 100 s, and whether it has set anything isn't known"; return ;;
    *)
      new=
      note reboot >/dev/null
      e=$(printf '%s\n' "$o" | grep -e '^-E-' | tr '\n' ' ')
      case $e in *' value '*) e="$e(\`$tool -d $address show_confs\` lists the values)" ;; esac
      printf '%s: %s ended with %s: %s\n' "$address" "${tool:-no tool}" "$r" "${e:-${o##*"$NL"}}"
      return
      ;;
  esac
  case $new in *' '*) ;; *) return 0 ;; esac
  # Which reset loads it is asked of the device too: the line behind a set says "reboot" also where nothing was changed.
  case $o in
    *'power cycle'*) note power_cycle >/dev/null ;;
    *)
      w=${tool%config}fwreset
      ! command -v "$w" >/dev/null || case $(lim 30 "$w" -d "$address" q 2>&1 </dev/null | grep -i 'warm reboot') in
        *'Not Supported'*) note power_cycle >/dev/null ;;
      esac
      ;;
  esac
}
out=$(each one $all)
echo '== parts'
i=0
printf '%s\n' "$parts" | while read -r list; do
  i=$((i + 1))
  e=$(printf '%s\n' "$out" | while IFS= read -r l; do case " $list " in *" ${l%%: *} "*) printf '%s\n' "$l" ;; esac; done)
  [ -z "$e" ] || { printf '== %s 1\n%s\n' "$i" "$e"; continue; }
  echo "== $i 0"
done
exit 0
