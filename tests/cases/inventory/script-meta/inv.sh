#!/bin/sh
[ "$1" = --list ] || exit 9
cat <<'E'
{"_meta": {"hostvars": {"h1": {"x": 1, "f": 1e3, "s": "yes", "nested": {"b": [null, true]}}, "nobody": {"y": 1}}},
 "g": {"hosts": ["h1", "h2"], "vars": {"v": "g"}, "children": ["sub"]},
 "sub": {"hosts": ["h3"]}, "only_vars": {"vars": {"q": 1}}, "all": {"hosts": ["h4"], "vars": {"a": "\ud83d\ude00"}}}
E
