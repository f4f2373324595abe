//! Taking work away from a host before it is booted, and giving it back. Scripts and what they say; the scheduler's
//! commands run where the operator wants it, mostly on this machine.

use crate::resource::Output;
use crate::shell::Script;
use std::time::Duration;

/// How a host is drained.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Drain {
    /// Not at all.
    #[default]
    None,
    /// By Slurm, where it has this name.
    Slurm(String),
    /// Slurm boots it itself, when its jobs have ended (`scontrol reboot ASAP`).
    SlurmReboots(String),
    /// By Kubernetes, where it has this name.
    Kubernetes(String),
    /// By commands of the operator's.
    Command {
        /// Ends with 0 when the host is drained.
        drain: String,
        /// Gives it back.
        undrain: Option<String>,
    },
}

/// What draining has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drained {
    /// Nothing runs there any more.
    Yes,
    /// Not yet; why.
    NotYet(String),
    /// Somebody else has taken it out; how that is told there.
    ByOthers(String),
    /// It can't be; why.
    No(String),
}

/// A node that isn't available, as its scheduler has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Its name there.
    pub node: String,
    /// Its state and the reason that is given for it.
    pub why: String,
    /// Whether netplay itself has drained it.
    pub ours: bool,
}

/// Not yet drained.
const NOT_YET: i32 = 10;
/// Drained by others.
const OTHERS: i32 = 11;

// Clusters have it in folders of their own too.
const SLURM: &str = r#"PATH=$PATH:/opt/slurm/bin:/opt/slurm/current/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin
command -v scontrol >/dev/null || { echo 'there is no scontrol here'; exit 127; }
look() {
  s=$(scontrol show node -o "$node" 2>&1) || { printf '%s\n' "$s"; exit 1; }
  case $s in *" State="*) ;; *) printf '%s\n' "$s"; exit 1 ;; esac
  state=${s#*" State="} state=${state%% *}
  reason=; case $s in *" Reason="*) reason=${s#*" Reason="} reason=${reason%%" ["*} ;; esac
}
look"#;

const SLURM_DRAIN: &str = r#"case $state in
  *DRAIN* | *DOWN* | *FAIL*)
    case $reason in netplay:*) ;; *) echo "$state: ${reason:-no reason is given}"; exit 11 ;; esac
    ;;
esac
case $state in
  *DRAIN*) ;;
  *) scontrol update nodename="$node" state=drain reason="$why" || exit 1; look ;;
esac
case $state in
  *ALLOC* | *MIX* | *COMPLETING*) echo "$state, jobs: $(squeue -h -w "$node" -o %i | tr '\n' ' ')"; exit 10 ;;
esac
exit 0"#;

const SLURM_REBOOT: &str = r#"case $state in
  *REBOOT*) exit 0 ;;
  *DRAIN* | *DOWN* | *FAIL*) case $reason in netplay:*) ;; *) echo "$state: ${reason:-no reason is given}"; exit 11 ;; esac ;;
esac
scontrol reboot ASAP nextstate=RESUME reason="$why" "$node" || exit 1"#;

// slurmd tells slurmctld a new boot time, and Slurm puts a node down for that; where it was drained by us it keeps our
// reason, or has this one.
const SLURM_UNDRAIN: &str = r#"case $state in
  *DRAIN* | *DOWN* | *FAIL*) ;;
  *) exit 0 ;;
esac
case $reason in
  netplay:* | 'Node unexpectedly rebooted') scontrol update nodename="$node" state=resume ;;
  *) echo "$state: ${reason:-no reason is given}"; exit 11 ;;
esac"#;

const SLURM_CANCEL: &str = r#"case $state in *REBOOT*) scontrol cancel_reboot "$node" ;; esac
exit 0"#;

const KUBERNETES: &str = r#"command -v kubectl >/dev/null || { echo 'there is no kubectl here'; exit 127; }
off=$(kubectl get node "$node" -o 'jsonpath={.spec.unschedulable}' 2>&1) || { printf '%s\n' "$off"; exit 1; }
ours=$(kubectl get node "$node" -o 'jsonpath={.metadata.annotations.netplay\.dev/run}' 2>&1) || { printf '%s\n' "$ours"; exit 1; }
[ "$off" != true ] || [ -n "$ours" ] || { echo 'it is cordoned, and not by netplay'; exit 11; }"#;

// A drain of a few seconds each time: kubectl goes on where it was, and nobody waits for it in between. What --force would
// delete is nobody's to delete.
const KUBERNETES_DRAIN: &str = r#"kubectl annotate node "$node" --overwrite "netplay.dev/run=$run" 2>&1 >/dev/null || exit 1
o=$(kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=10s 2>&1) && exit 0
printf '%s\n' "$o" | tail -n 3
case $o in *'use --force'*) exit 1 ;; esac
exit 10"#;

const KUBERNETES_UNDRAIN: &str = r#"[ -n "$ours" ] || exit 0
kubectl uncordon "$node" 2>&1 >/dev/null && kubectl annotate node "$node" netplay.dev/run- 2>&1 >/dev/null"#;

impl Drain {
    /// Whether anything is taken away from the host.
    pub(super) fn any(&self) -> bool {
        *self != Drain::None
    }

    /// Whether the scheduler boots the host, and not netplay.
    pub(super) fn boots(&self) -> bool {
        matches!(self, Drain::SlurmReboots(_))
    }

    /// What drains it, or asks how far that is: it may be run again and again. `run` is the run's id, `why` for what.
    pub(super) fn script(&self, run: &str, why: &str) -> Option<Script> {
        let slurm = |node: &str| Script::new().set("node", node).set("why", &reason(run, why)).line(SLURM);
        Some(match self {
            Drain::None => return None,
            Drain::Slurm(node) => slurm(node).line(SLURM_DRAIN),
            Drain::SlurmReboots(node) => slurm(node).line(SLURM_REBOOT),
            Drain::Kubernetes(node) => {
                Script::new().set("node", node).set("run", run).line(KUBERNETES).line(KUBERNETES_DRAIN)
            }
            Drain::Command { drain, .. } => Script::new().user(drain),
        })
    }

    /// What gives it back, if it was netplay that took it.
    pub(super) fn undo(&self) -> Option<Script> {
        Some(match self {
            Drain::None => return None,
            Drain::Slurm(node) => Script::new().set("node", node).line(SLURM).line(SLURM_UNDRAIN),
            Drain::SlurmReboots(node) => {
                Script::new().set("node", node).line(SLURM).line(SLURM_CANCEL).line(SLURM_UNDRAIN)
            }
            Drain::Kubernetes(node) => Script::new().set("node", node).line(KUBERNETES).line(KUBERNETES_UNDRAIN),
            Drain::Command { undrain, .. } => Script::new().user(undrain.as_ref()?),
        })
    }

    /// What lists all nodes that the scheduler has as unavailable.
    pub(in super::super) fn census(&self) -> Option<Script> {
        match self {
            Drain::Slurm(_) | Drain::SlurmReboots(_) => Some(
                Script::new()
                    .line("PATH=$PATH:/opt/slurm/bin:/opt/slurm/current/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin")
                    .line("command -v scontrol >/dev/null || { echo 'there is no scontrol here'; exit 127; }")
                    .line("scontrol show node -o"),
            ),
            Drain::Kubernetes(_) => Some(
                Script::new()
                    .line("command -v kubectl >/dev/null || { echo 'there is no kubectl here'; exit 127; }")
                    .line("kubectl get nodes -o json"),
            ),
            Drain::None | Drain::Command { .. } => None,
        }
    }

    /// Reads what [`Drain::census`] printed.
    pub(in super::super) fn unavailable(&self, printed: &str) -> Vec<Unavailable> {
        let slurm = |line: &str| {
            let field = |name: &str| line.split_once(name).map(|(_, rest)| rest);
            let word = |name: &str| field(name).and_then(|rest| rest.split_whitespace().next());
            let (node, state) = (word("NodeName=")?, word(" State=")?);
            let reason = field(" Reason=").map_or("", |r| r.split(" [").next().unwrap_or(r).trim());
            let away = ["DRAIN", "DOWN", "FAIL"].iter().any(|s| state.contains(s));
            let ours = reason.starts_with("netplay:");
            let why = if reason.is_empty() { state.to_owned() } else { format!("{state}: {reason}") };
            away.then(|| Unavailable { node: node.to_owned(), why, ours })
        };
        // Source: kubectl get nodes -o json, of Kubernetes' API v1.
        let kubernetes = |node: &serde_json::Value| {
            let name = node["metadata"]["name"].as_str()?.to_owned();
            let ours = node["metadata"]["annotations"]["netplay.dev/run"].is_string();
            let ready = node["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready");
            let why = match (node["spec"]["unschedulable"] == true, ready.is_some_and(|c| c["status"] == "True")) {
                (true, _) if ours => "cordoned by netplay",
                (true, _) => "cordoned",
                (false, true) => return None,
                (false, false) => "not ready",
            };
            Some(Unavailable { node: name, why: why.to_owned(), ours })
        };
        match self {
            Drain::Slurm(_) | Drain::SlurmReboots(_) => printed.lines().filter_map(slurm).collect(),
            Drain::Kubernetes(_) => {
                let list: serde_json::Value = serde_json::from_str(printed).unwrap_or_default();
                list["items"].as_array().into_iter().flatten().filter_map(kubernetes).collect()
            }
            Drain::None | Drain::Command { .. } => Vec::new(),
        }
    }

    /// The host's name at the scheduler.
    pub fn node(&self) -> Option<&str> {
        match self {
            Drain::Slurm(node) | Drain::SlurmReboots(node) | Drain::Kubernetes(node) => Some(node),
            Drain::None | Drain::Command { .. } => None,
        }
    }

    /// As it is noted on the host.
    pub(super) fn noted(&self) -> String {
        match self {
            Drain::None => "none".to_owned(),
            Drain::Slurm(node) => format!("slurm {node}"),
            Drain::SlurmReboots(node) => format!("slurm-reboots {node}"),
            Drain::Kubernetes(node) => format!("kubernetes {node}"),
            Drain::Command { .. } => "command".to_owned(),
        }
    }

    /// How a host was drained by what is noted on it; `now` knows the operator's commands.
    pub(super) fn of_note(noted: &str, now: &Drain) -> Drain {
        match noted.split_once(' ') {
            Some(("slurm", node)) => Drain::Slurm(node.to_owned()),
            Some(("slurm-reboots", node)) => Drain::SlurmReboots(node.to_owned()),
            Some(("kubernetes", node)) => Drain::Kubernetes(node.to_owned()),
            _ if noted == "command" && matches!(now, Drain::Command { .. }) => now.clone(),
            _ => Drain::None,
        }
    }
}

/// What a scheduler is told as the reason; netplay knows its own drains by how it begins.
fn reason(run: &str, why: &str) -> String {
    let text = format!("netplay:{run} {why}");
    // Slurm's own limit isn't documented; a reason is read by people in a column of `sinfo -R`.
    text.chars().map(|c| if c.is_control() || "[]\"'".contains(c) { ' ' } else { c }).take(200).collect()
}

/// Whether the scheduler says that somebody else has taken the host out.
pub(super) fn by_others(output: &Output, drain: &Drain) -> bool {
    output.code == OTHERS && !matches!(drain, Drain::Command { .. })
}

/// What a command said last, which says why it failed.
pub(super) fn last_lines(said: &str) -> String {
    const LINES: usize = 8;
    let lines: Vec<&str> = said.lines().collect();
    let left_out = lines.len().saturating_sub(LINES);
    let dots = if left_out > 0 { "… " } else { "" };
    format!("{dots}{}", lines[left_out..].join("\n").chars().take(2000).collect::<String>())
}

/// Judges what the drain's script gave.
pub(super) fn judge(output: &Output, command: bool, limit: Duration) -> Drained {
    let said = last_lines(&output.complaint());
    match output.code {
        0 => Drained::Yes,
        124 | 137 if command => {
            let said = if said.is_empty() { said } else { format!(": {said}") };
            Drained::No(format!("its command didn't end within the {} s of `drain_timeout`{said}", limit.as_secs()))
        }
        NOT_YET if !command => Drained::NotYet(said),
        OTHERS if !command => Drained::ByOthers(said),
        code if said.is_empty() => Drained::No(format!("exit code {code}, and it said nothing")),
        code => Drained::No(format!("exit code {code}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_tells_who_is_away() {
        let printed = "NodeName=n1 Arch=x86_64 State=IDLE ThreadsPerCore=1\n\
                       NodeName=n2 State=IDLE+DRAIN ThreadsPerCore=1 Reason=netplay:r1 mlxconfig:all [root@2026-12-01T10:00:00]\n\
                       NodeName=n3 State=DOWN* ThreadsPerCore=1 Reason=bad fan [ops@2026-12-01T10:00:00]\n\
                       NodeName=n4 State=MIXED+DRAIN ThreadsPerCore=1\n";
        let away = |node: &str, why: &str, ours| Unavailable { node: node.into(), why: why.into(), ours };
        assert_eq!(
            Drain::Slurm(String::new()).unavailable(printed),
            [
                away("n2", "IDLE+DRAIN: netplay:r1 mlxconfig:all", true),
                away("n3", "DOWN*: bad fan", false),
                away("n4", "MIXED+DRAIN", false),
            ]
        );
        let node = |name: &str, off: bool, run: &str, ready: &str| {
            let annotations =
                if run.is_empty() { serde_json::json!({}) } else { serde_json::json!({"netplay.dev/run": run}) };
            serde_json::json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"unschedulable": off},
                "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]}})
        };
        let items = [
            node("n1", false, "", "True"),
            node("n2", true, "", "True"),
            node("n3", true, "r1", "True"),
            node("n4", false, "", "Unknown"),
        ];
        let printed = &serde_json::json!({ "items": items }).to_string();
        assert_eq!(
            Drain::Kubernetes(String::new()).unavailable(printed),
            [away("n2", "cordoned", false), away("n3", "cordoned by netplay", true), away("n4", "not ready", false)]
        );
    }

    #[test]
    fn a_note_tells_how_it_was_drained() {
        let command = Drain::Command { drain: "a".into(), undrain: None };
        for drain in [
            Drain::None,
            Drain::Slurm("n1".into()),
            Drain::SlurmReboots("n1".into()),
            Drain::Kubernetes("k".into()),
            command.clone(),
        ] {
            assert_eq!(Drain::of_note(&drain.noted(), &command), drain);
        }
        assert_eq!(Drain::of_note("command", &Drain::None), Drain::None);
    }

    #[test]
    fn a_reason_is_one_line_of_plain_text() {
        assert_eq!(reason("r1", "mlxconfig:all (A, B)\nx[0]\""), "netplay:r1 mlxconfig:all (A, B) x 0  ");
    }
}
