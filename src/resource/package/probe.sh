# What is installed of what is asked for. Arguments: parts, words of `+name` (wanted) and `-name` (not wanted). First a line
# that names the back end, then lines of what is there; for each part that isn't as wanted `plan NUMBER`, what the
# package manager would do, and `end CODE`.
set -f
NL='
'
names=
for p; do for w in $p; do names="$names ${w#?}"; done; done
# What of a part is still to be installed and to be removed, by what is known of each name.
split() {
  new= gone=
  for w in $1; do
    case $w$NL$told$NL in
      -*"$NL"have\ "${w#-}$NL"*) gone="$gone ${w#-}" ;;
      -* | *"$NL"have\ "${w#?}$NL"* | *"$NL"by\ "${w#?} "*) ;;
      *) new="$new ${w#+}" ;;
    esac
  done
}
# For each part that isn't as wanted what `look` prints.
plans() {
  n=0
  for p; do
    n=$((n + 1))
    split "$p"
    [ -n "$new$gone" ] || continue
    echo "plan $n"
    look 2>&1
    echo "end $?"
  done
}
if [ -s /var/lib/dpkg/status ] && command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  echo apt
  all=$(dpkg-query -W -f='${Status}\t${Package}\t${Architecture}\t${Version}\t${Provides}\n') || exit 1
  told=$(printf '%s\n' "$all" | awk -F '\t' -v "names=$names" -v "native=$(dpkg --print-architecture)" '
    BEGIN { n = split(names, a, " "); for (i = 1; i <= n; i++) want[a[i]] }
    {
      split($1, s, " ")
      there = s[3] == "installed" || s[3] ~ /^triggers/
      if (s[3] ~ /^half/ || s[3] == "unpacked" || s[2] != "ok") print "unfinished", $2, s[3]
      name = $2 ":" $3
      if (!(name in want)) name = ($3 == native || $3 == "all") ? $2 : ""
      if (name in want) {
        print "is", name, s[1], s[3], $4
        if (there) print "have", name
      }
      m = there ? split($5, p, /, */) : 0
      for (i = 1; i <= m; i++) { sub(/ .*/, "", p[i]); if (p[i] in want) print "by", p[i], $2 }
    }') || exit 1
  printf '%s\n' "$told"
  set +f
  for f in /var/lib/dpkg/updates/[0-9]*; do [ ! -e "$f" ] || { echo journal; break; }; done
  set -f
  all=
  for p; do split "$p"; for w in $gone; do all="$all $w-"; done; done
  look() {
    exact $new || { echo "E: Unable to locate package $unknown"; return 100; }
    lim 60 apt-get -s -q -y -o APT::Get::AutomaticRemove=false install $new $all
  }
  plans "$@"
  exit 0
fi
tool=
if command -v rpm >/dev/null; then
  for t in dnf5 dnf yum; do if command -v $t >/dev/null; then tool=$t; break; fi; done
fi
if [ -z "$tool" ]; then
  for t in zypper rpm-ostree microdnf rpm apk pacman emerge xbps-install opkg nix-env swupd; do
    if command -v $t >/dev/null; then echo "other $t"; exit 0; fi
  done
  echo other
  exit 0
fi
echo "$tool"
q=$(rpm -q --qf 'is %{NAME} install installed %{VERSION}-%{RELEASE}\n' $names 2>&1)
case $NL$q in *"${NL}error: "*) printf '%s\n' "$q" >&2; exit 1 ;; esac
told=
for w in $names; do
  case $NL$q$NL in
    *"${NL}package $w is not installed$NL"*)
      by=$(rpm -q --whatprovides --qf '%{NAME}\n' "$w" 2>/dev/null | head -n 1)
      case $by in '' | no\ package*) ;; *) told="$told${NL}by $w $by" ;; esac
      ;;
    *) told="$told${NL}have $w" ;;
  esac
done
printf '%s\n' "$q" | grep '^is ' || :
printf '%s\n' "$told"
all=
for p; do split "$p"; all="$all$gone"; done
# From what the host knows already: a look fetches nothing.
look() { if [ -n "$new" ]; then lim 60 $tool -C --assumeno --color=never install $new; else rpm -e --test $all; fi; }
plans "$@"
