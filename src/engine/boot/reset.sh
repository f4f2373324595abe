# Resets the firmware of NVIDIA's cards, each by its first function; a virtual function is none. What fails is told after the
# boot.
for w in mlxfwreset mstfwreset ''; do [ -z "$w" ] || ! command -v "$w" >/dev/null || break; done
for d in /sys/bus/pci/devices/*.0; do
  case $(cat "$d/vendor" 2>/dev/null)$(cat "$d/class" 2>/dev/null) in 0x15b30x02*) ;; *) continue ;; esac
  [ ! -e "$d/physfn" ] || continue
  a=${d##*/}
  [ -n "$w" ] || { echo "$a: neither mlxfwreset nor mstfwreset is here to reset its firmware: install MFT or mstflint"; continue; }
  o=$(timeout 300 "$w" -d "$a" -y -l 3 reset 2>&1 </dev/null)
  r=$?
  [ "$r" = 0 ] || echo "$w of $a ended with $r: $(printf '%s\n' "$o" | tail -n 1)"
done >/var/lib/netplay/firmware_reset 2>&1
sync
