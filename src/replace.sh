keep() {
  case $(cp --version 2>/dev/null) in *coreutils*) ;; *) return 0 ;; esac
  ( set -C; umask 077; exec 7>"$t.as" || exit 1; rm -f -- "$t.as"
    cp --attributes-only --preserve=mode,xattr -- "$p" /proc/self/fd/7 && chmod -- "$1" /proc/self/fd/7 &&
      cp --attributes-only --preserve=mode,xattr -- /proc/self/fd/7 /proc/self/fd/8 )
}
place() {
  if [ "$1" = in-place ]; then
    w=$( { : >>"$p"; } 2>&1 ) || no "$p is a mount point and can't be written in place: ${w##*: }"
    ( set -C; umask 077; cat -- "$p" >"$t.old" ) || no "what is there could not be kept meanwhile"
    w=$(dd if="$t" of="$p" bs=65536 conv=fsync 2>&1) || {
      w=${w%%"$NL"*} b='could not be put back'; { cat -- "$t.old" >|"$p"; } 2>/dev/null && b='is back'
      no "it could not be written in place, and what was there $b: ${w##*: }"
    }
    rm -f -- "$t" "$t.old"
    return 0
  fi
  x=
  if [ -e /sys/fs/selinux/enforce ]; then
    if [ -e "$p" ]; then w=$(chcon --reference="$p" -- "$t" 2>&1) || no "its SELinux context could not be kept: ${w##*: }"; else x=new; fi
  fi
  w=$(mv -f -- "$t" "$p" 2>&1) || no "the new file can't take the place of $p, and lsattr shows whether that is immutable: ${w##*: }"
  [ "$x" != new ] || ! command -v restorecon >/dev/null || restorecon -- "$p"
}
