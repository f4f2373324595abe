#!/bin/sh
# Encrypts what lies in plain/ anew: make.sh [FOLDER-OF-ansible-vault]
# Each file becomes one of the same path in sealed/. Those that end in .dev lose that, and get the label `dev` and its
# password;
# `!seal TEXT` in a YAML file becomes a `!vault` value.
cd "$(dirname "$0")" || exit
[ -z "$1" ] || PATH=$1:$PATH
rm -rf sealed
find plain -type f | while read -r file; do
  to=sealed/${file#plain/}
  mkdir -p "${to%/*}"
  case $to in
    */values.yaml)
      while IFS= read -r line; do
        case $line in
          *'!seal '*)
            indent=$(printf '%s' "$line" | sed 's/[^ ].*//')
            printf '%s!vault |\n' "${line%%!seal*}"
            printf %s "${line#*!seal }" | ansible-vault encrypt --vault-id default@password --output - 2>/dev/null |
              sed "s/^/$indent    /"
            ;;
          *) printf '%s\n' "$line" ;;
        esac
      done <"$file" >"$to" ;;
    *.dev) ansible-vault encrypt --vault-id dev@password-dev --output "${to%.dev}" "$file" 2>/dev/null ;;
    *) ansible-vault encrypt --vault-id default@password --output "$to" "$file" 2>/dev/null ;;
  esac
done
