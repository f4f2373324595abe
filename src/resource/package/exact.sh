# Whether apt's sources know each of these names as it is written; $unknown is the first that they don't. apt-get takes `+`
# at the end of one that isn't there for "install", and before version 2 a name with `+` or `.` for a pattern.
exact() {
  for unknown; do
    case $unknown in *[+.]*) ;; *) continue ;; esac
    apt-cache showpkg "$unknown" 2>/dev/null | grep -qxF -e "Package: $unknown" -e "Package: ${unknown%:*}" || return 1
  done
}
