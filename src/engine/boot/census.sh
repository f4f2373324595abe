# Who isn't available, as the scheduler has it: of all its nodes, which may be ten thousand, a line for each of these. $list
# prints the nodes and `status CODE`, $awk reads that. `nodes COUNT` and `status CODE` are the last lines, so that a list which
# broke off somewhere isn't taken for one; `unread LINE` is one that isn't understood.
PATH=$PATH:/opt/slurm/bin:/opt/slurm/current/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin; export PATH list awk
command -v "$tool" >/dev/null || { echo "there is no $tool here" >&2; exit 127; }
command -v awk >/dev/null || { echo 'there is no awk here' >&2; exit 127; }
lim 60 /bin/sh -c 'eval "$list" | LC_ALL=C awk -F "\t" "$awk"'
