#!/bin/sh
# Writes the expected files anew: regenerate.sh [FOLDER-OF-ansible-inventory]
cd "$(dirname "$0")" || exit
[ -z "$1" ] || PATH=$1:$PATH
export ANSIBLE_LOCALHOST_WARNING=0
for case in */; do
  [ -f "$case/args" ] || continue
  (
    cd "$case" || exit
    tr '\n' '\0' <args | xargs -0 ansible-inventory --list >expected.json 2>/dev/null || echo "$case: failed"
    grep -q -e --limit args || tr '\n' '\0' <args | xargs -0 ansible-inventory --graph >expected.graph 2>/dev/null
  )
done

cd patterns || exit
while read -r pattern; do
  hosts=$(ansible -i hosts.ini "$pattern" --list-hosts 2>/dev/null </dev/null | tail -n +2 | xargs)
  printf '%s\t%s\n' "$pattern" "$hosts"
done <patterns >expected
