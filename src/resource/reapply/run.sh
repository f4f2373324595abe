# Written by netplay, and run by netplay-reapply.service at boot and when a network device comes back: runs the files of
# /etc/netplay/reapply.d in the order of their names. One that fails doesn't stop the others, and fails the unit.
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin LC_ALL=C
export PATH LC_ALL
umask 022
failed=
for f in /etc/netplay/reapply.d/*; do
  n=${f##*/}
  # Not what an editor or a package manager leaves beside them.
  case $n in *[.~]*) continue ;; esac
  [ -f "$f" ] || continue
  timeout 120 /bin/sh "$f" </dev/null && continue
  echo "<3>$n: failed with exit code $?"
  failed="$failed $n"
done
mkdir -p -m 0700 /run/netplay
if [ -n "$failed" ]; then
  echo "${failed# }" >/run/netplay/reapply.failed
  exit 1
fi
rm -f /run/netplay/reapply.failed
