# Puts a rule behind those by which netplay lets something in, which come first. What ufw counts is all rules of IPv4, then
# those of IPv6. In its files a comment is in hexadecimal: `netplay:`.
netplay_ufw() { # FILE RULE…
  tuples() { grep -hs '^### tuple ### ' "/etc/ufw/$1" "/lib/ufw/$1"; }
  file=$1
  shift
  first=$(tuples "$file" | awk '/ allow/ && /comment=6e6574706c61793a/ { n++; next } { exit } END { print n + 0 }')
  if [ "$first" -ge "$(tuples "$file" | grep -c .)" ]; then ufw "$@"; return; fi
  before=0
  [ "$file" = user.rules ] || before=$(tuples user.rules | grep -c .)
  ufw insert $((before + first + 1)) "$@"
}
