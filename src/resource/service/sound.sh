# $unit: a unit of sshd's. While it runs, its configuration has to be valid before it is stopped or told to read that: otherwise
# nobody would get in any more. $back: this is done to take something back.
if systemctl is-active --quiet -- "$unit" && command -v sshd >/dev/null; then
  # But for the file that it writes its log to, where its words would go.
  o=$(sed -n -e 's/^SSHD_OPTS=//p' -e 's/^OPTIONS=//p' /etc/default/ssh /etc/sysconfig/sshd 2>/dev/null | tr -d "\"'" | sed 's/-E *[^ ]*//')
  if ! e=$(sshd -t $o 2>&1); then
    e=$(printf '%s' "$e" | tr -s '\r\n' ' ')
    if [ -n "$back" ]; then
      printf 'stays: %s runs on as it is, since `sshd -t` says that its files are not valid without the change either: %s\n' "$unit" "$e"
      exit 0
    fi
    printf '%s was left as it is, since it would let nobody in any more: `sshd -t` says that its files are not valid, and they have to be mended first: %s\n' "$unit" "$e"
    exit 1
  fi
fi
