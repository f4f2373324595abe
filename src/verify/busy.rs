//! Whether a host works for somebody: then nothing is measured on it that takes its network for itself.

use crate::shell::Script;

// slurmstepd runs as long as a step of a job does; a job that has none yet is known to Slurm alone. nvidia-smi and the kernel's
// KFD tell processes that use GPUs, also those of containers.
const ASK: &str = r#"PATH=$PATH:/opt/slurm/bin:/opt/slurm/current/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin
n=$(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx slurmstepd); [ "$n" = 0 ] || echo "a job of Slurm runs there"
if command -v scontrol >/dev/null; then
  s=$(timeout 20 scontrol show node -o "$node" 2>/dev/null)
  case $s in *" State="*) s=${s#*" State="}; s=${s%% *}
    case $s in *ALLOC* | *MIX* | *COMPLETING*) echo "Slurm has it as $s" ;; esac ;;
  esac
fi
n=0; ! command -v nvidia-smi >/dev/null || n=$(timeout 20 nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | grep -c '^ *[0-9]')
[ "$n" = 0 ] || echo "$n processes use its GPUs"
n=$(ls /sys/class/kfd/kfd/proc 2>/dev/null | grep -c .); [ "$n" = 0 ] || echo "$n processes use its GPUs"
exit 0"#;

/// Asks; `node` is the host's name at Slurm.
pub fn ask(node: &str) -> Script {
    Script::new().set("node", node).line(ASK)
}

/// Seconds that it takes at most.
pub const SECONDS: u32 = 60;

/// Why it is busy, if it is.
pub fn read(printed: &str) -> Option<String> {
    let lines: Vec<&str> = printed.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}
