# Has the host boot in two seconds, when the session that says so has ended. $reset: whether cards' firmware is reset before.
k=$(cat /sys/kernel/kexec_loaded 2>/dev/null)
if [ "$k" = 1 ]; then
  kexec -u 2>&1 || { echo 'a kernel is loaded for kexec, which boots without resetting any card, and it could not be unloaded'; exit 1; }
fi
go='systemctl reboot -i'
[ -d /run/systemd/system ] || go='shutdown -r now || reboot'
if [ -n "$reset" ]; then
  t=; for w in mlxfwreset mstfwreset; do ! command -v "$w" >/dev/null || { t=$w; break; }; done
  [ -n "$t" ] || { echo 'neither mlxfwreset nor mstfwreset is here (`firmware_reset`): install MFT or mstflint'; exit 1; }
  go="for d in /sys/bus/pci/drivers/mlx5_core/*:*; do a=\${d##*/}; [ \"\${a##*.}\" = 0 ] || continue; \
o=\$(timeout 300 $t -d \"\$a\" -y -l 3 reset 2>&1 </dev/null) || echo \"$t of \$a ended with \$?: \$(printf '%s\\n' \"\$o\" | tail -n 1)\"; \
done >/var/lib/netplay/firmware_reset 2>&1; sync; $go"
fi
if [ -d /run/systemd/system ] && command -v systemd-run >/dev/null; then
  systemctl reset-failed netplay-reboot.service 2>/dev/null
  systemd-run --quiet --collect --unit=netplay-reboot --on-active=2 --timer-property=AccuracySec=100ms /bin/sh -c "$go" 2>&1 || exit 1
else
  command -v setsid >/dev/null && s=setsid || s=
  $s /bin/sh -c "sleep 2; $go" </dev/null >/dev/null 2>&1 9>&- &
fi
