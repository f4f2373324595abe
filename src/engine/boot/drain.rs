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

/// Seconds that a scheduler's command may take.
pub(super) const SECONDS: u32 = 60;
/// Not yet drained.
const NOT_YET: i32 = 10;
/// Drained by others.
const OTHERS: i32 = 11;

// Clusters have it in folders of their own too.
const SLURM: &str = r#"PATH=$PATH:/opt/slurm/bin:/opt/slurm/current/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin
command -v scontrol >/dev/null || { echo 'there is no scontrol here'; exit 127; }
look() {
  s=$(scontrol show node -o "$node") || { printf '%s\n' "$s"; exit 1; }
  # A name may be a list of them (`n[1-8]`), of which all would be drained.
  case $s in "NodeName=$node "*State=*) ;; *) printf '%s is not the name of one node: %s\n' "$node" "$s"; exit 1 ;; esac
  state=${s#*" State="} state=${state%% *}
  reason=; case $s in *" Reason="*) reason=${s#*" Reason="} reason=${reason%%" ["*} ;; esac
}
look"#;

const SLURM_DRAIN: &str = r#"case $state/$reason in *REBOOT_ISSUED*) ;; *REBOOT*/netplay:*) scontrol cancel_reboot "$node" || exit 1; look ;; esac
case $state in
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

// Down after it, so that no job lands there before netplay has proven it. A node whose boot slurmd hasn't told slurmctld yet
// takes no order for another one.
const SLURM_REBOOT: &str = r#"case $state in
  *REBOOT* | *DRAIN* | *DOWN* | *FAIL*)
    case $reason in netplay:*) ;; *) echo "$state: ${reason:-no reason is given}"; exit 11 ;; esac
    ;;
esac
case $state in
  *REBOOT_ISSUED*) [ -z "$again" ] || { echo "$state"; exit 10; }; exit 0 ;;
  *REBOOT*) exit 0 ;;
esac
scontrol reboot ASAP nextstate=DOWN reason="$why" "$node" || exit 1"#;

// slurmd tells slurmctld a new boot time, and Slurm puts a node down for that; where it was drained by us it keeps our
// reason, or has this one. What was resumed before slurmctld knew of the boot that it ordered itself would be down after it.
const SLURM_UNDRAIN: &str = r#"case $state/$reason in *REBOOT_ISSUED*) ;; *REBOOT*/netplay:*) scontrol cancel_reboot "$node" || exit 1; look ;; esac
case $unbooted/$state/$reason in yes/*REBOOT_ISSUED* | yes/*': reboot issued'*) echo "Slurm has begun to boot it: $state"; exit 1 ;; esac
i=0
while case $state in *REBOOT_ISSUED*) [ "$i" -lt 10 ] ;; *) false ;; esac; do sleep 1; i=$((i + 1)); look; done
case $state in
  *REBOOT_ISSUED*) echo "Slurm doesn't know yet that it has booted: $state"; exit 1 ;;
  *DRAIN* | *DOWN* | *FAIL*) ;;
  *) exit 0 ;;
esac
case $reason in
  netplay:* | 'Node unexpectedly rebooted') scontrol update nodename="$node" state=resume ;;
  *) echo "$state: ${reason:-no reason is given}"; exit 11 ;;
esac"#;

// It was ordered a boot, and nobody knows how it is: when its jobs end it isn't booted, and gets no others.
const SLURM_KEEP: &str = r#"case $state/$reason in
  *REBOOT_ISSUED*) ;;
  *REBOOT*/netplay:*) scontrol cancel_reboot "$node" && scontrol update nodename="$node" state=drain reason="$reason" ;;
esac"#;

// What kubectl warns of on standard error is no value.
const KUBERNETES: &str = r#"command -v kubectl >/dev/null || { echo 'there is no kubectl here'; exit 127; }
off=$(kubectl get node "$node" -o 'jsonpath={.spec.unschedulable}') || exit 1
ours=$(kubectl get node "$node" -o 'jsonpath={.metadata.annotations.netplay\.dev/run}') || exit 1
[ "$off" != true ] || [ -n "$ours" ] || { echo 'it is cordoned, and not by netplay'; exit 11; }"#;

// A drain of a moment each time: kubectl goes on where it was, and no thread waits for it in between. What --force would
// delete is nobody's to delete.
const KUBERNETES_DRAIN: &str = r#"kubectl annotate node "$node" --overwrite "netplay.dev/run=$run" 2>&1 >/dev/null || exit 1
o=$(kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=1s 2>&1) && exit 0
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

    /// What drains it, or asks how far that is: it may be run again and again. `run` is the run's id, `why` for what; `again`
    /// where it was booted already and stays drained for another boot.
    pub(super) fn script(&self, run: &str, why: &str, again: bool) -> Option<Script> {
        let slurm = |node: &str| Script::new().set("node", node).set("why", &reason(run, why)).line(SLURM);
        Some(match self {
            Drain::None => return None,
            Drain::Slurm(node) => slurm(node).line(SLURM_DRAIN),
            Drain::SlurmReboots(node) => slurm(node).set("again", if again { "again" } else { "" }).line(SLURM_REBOOT),
            Drain::Kubernetes(node) => {
                Script::new().set("node", node).set("run", run).line(KUBERNETES).line(KUBERNETES_DRAIN)
            }
            Drain::Command { drain, .. } => Script::new().user(drain),
        })
    }

    /// What gives it back, if it was netplay that took it; `unbooted` where the scheduler was to boot it and that is only right if
    /// it hasn't begun.
    pub(super) fn undo(&self, unbooted: bool) -> Option<Script> {
        Some(match self {
            Drain::None => return None,
            Drain::Slurm(node) | Drain::SlurmReboots(node) => {
                let unbooted = if unbooted { "yes" } else { "" };
                Script::new().set("node", node).set("unbooted", unbooted).line(SLURM).line(SLURM_UNDRAIN)
            }
            Drain::Kubernetes(node) => Script::new().set("node", node).line(KUBERNETES).line(KUBERNETES_UNDRAIN),
            Drain::Command { undrain, .. } => Script::new().user(undrain.as_ref()?),
        })
    }

    /// What takes back the scheduler's own order to boot it, if it didn't carry that out yet, and leaves it drained.
    pub(super) fn keep(&self) -> Option<Script> {
        match self {
            Drain::SlurmReboots(node) => Some(Script::new().set("node", node).line(SLURM).line(SLURM_KEEP)),
            _ => None,
        }
    }

    /// Whether what is drained in this way is given back by the other one's commands too.
    pub(super) fn undone_by(&self, other: &Drain) -> bool {
        match (self, other) {
            (Drain::Slurm(a) | Drain::SlurmReboots(a), Drain::Slurm(b) | Drain::SlurmReboots(b)) => a == b,
            // Commands aren't noted: those of the play are taken for the ones that drained it.
            (Drain::Command { .. }, Drain::Command { .. }) => true,
            _ => self == other,
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

/// The same, behind how a command ended.
pub(super) fn saying(said: &str) -> String {
    match last_lines(said.trim()) {
        said if said.is_empty() => ", and it said nothing".to_owned(),
        said => format!(": {said}"),
    }
}

/// Judges what the drain's script gave.
pub(super) fn judge(output: &Output, command: bool, limit: Duration) -> Drained {
    let (said, saying) = (last_lines(&output.complaint()), saying(&output.complaint()));
    match output.code {
        0 => Drained::Yes,
        124 | 137 if command => {
            Drained::No(format!("its command didn't end within the {} s of `drain_timeout`{saying}", limit.as_secs()))
        }
        124 | 137 => Drained::No(format!("the scheduler's command didn't end within {SECONDS} s{saying}")),
        NOT_YET if !command => Drained::NotYet(said),
        OTHERS if !command => Drained::ByOthers(said),
        code => Drained::No(format!("exit code {code}{saying}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// What scripts have a simulated scontrol do, with a node of this state and reason; and the exit code.
    fn simulated(script: &Script, state: &str, reason: &str) -> (i32, String) {
        let scontrol = r#"scontrol() {
  case $1 in
    show) echo "NodeName=n1 State=$S ThreadsPerCore=1 Reason=$W [root@2026-12-01T10:00:00]" ;;
    cancel_reboot) echo "$*"; S=ALLOCATED W= ;;
    update) echo "$*"; case $* in *=resume) S=IDLE W= ;; *) S=$S+DRAIN ;; esac ;;
    *) echo "$*" ;;
  esac
}
squeue() { echo 7; }
sleep() { S=DOWN; }"#;
        let set = Script::new().set("S", state).set("W", reason).line(scontrol);
        let text = format!("{}\n{}", set.as_str(), script.as_str());
        let output = crate::resource::trial::Shell::Dash.run_in_net("", &text);
        (output.code, output.text().lines().collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn a_name_that_is_several_nodes_drains_none() {
        for name in ["n[1-8]", "n1,n2", "n"] {
            let script = Drain::Slurm(name.into()).script("r1", "card", false).unwrap();
            let (code, said) = simulated(&script, "IDLE", "");
            assert!(
                code == 1 && said.starts_with(&format!("{name} is not the name of one node: NodeName=n1 ")),
                "{said}"
            );
        }
    }

    /// With a **simulated** kubectl, which warns as a real one does where an aggregated API is away.
    #[test]
    fn what_kubectl_warns_of_is_not_taken_for_what_a_node_has() {
        let kubectl = "kubectl() {
  echo 'E1202 09:25:54.000000 1 memcache.go:287] couldn t get resource list for metrics.k8s.io/v1beta1' >&2
  case $*/$S in *unschedulable*/cordoned) printf true ;; get*) ;; *) echo \"$1 $2\" ;; esac
}";
        let drain = Drain::Kubernetes("n1".into());
        let run = |script: &Script, state: &str| {
            let text = format!("{}\n{}", Script::new().set("S", state).line(kubectl).as_str(), script.as_str());
            let output = crate::resource::trial::Shell::Dash.run_in_net("", &text);
            (output.code, output.text().into_owned())
        };
        let cordoned = run(&drain.script("r1", "card", false).unwrap(), "cordoned");
        assert_eq!(cordoned, (OTHERS, "it is cordoned, and not by netplay\n".to_owned()));
        assert_eq!(run(&drain.script("r1", "card", false).unwrap(), "").0, 0);
        // Nor is what others have cordoned given back.
        assert_eq!(run(&drain.undo(false).unwrap(), "cordoned"), cordoned);
    }

    #[test]
    fn slurm_boots_a_node_and_keeps_it_until_it_was_proven() {
        let via = Drain::SlurmReboots("n1".into());
        let order =
            |state: &str, reason: &str, again| simulated(&via.script("r1", "card", again).unwrap(), state, reason);
        let ordered = (0, "reboot ASAP nextstate=DOWN reason=netplay:r1 card n1".to_owned());
        assert_eq!(order("IDLE", "", false), ordered);
        // Drained by an earlier run of ours, also by the other `drain`.
        assert_eq!(order("IDLE+DRAIN", "netplay:r0 card", false), ordered);
        assert_eq!(order("IDLE+DRAIN", "bad fan", false), (11, "IDLE+DRAIN: bad fan".to_owned()));
        assert_eq!(order("IDLE+REBOOT_REQUESTED", "kernel", false).0, 11, "that of others is theirs");
        assert_eq!(order("MIXED+DRAIN+REBOOT_REQUESTED", "netplay:r1 card", false), (0, String::new()));
        // The first boot isn't taken for the second one, and that is ordered when the node is back.
        assert_eq!(order("DOWN+DRAIN+REBOOT_ISSUED", "netplay:r1 card : reboot issued", false).0, 0);
        assert_eq!(order("DOWN+DRAIN+REBOOT_ISSUED", "netplay:r1 card : reboot issued", true).0, 10);
        assert_eq!(order("DOWN", "netplay:r1 card : reboot issued : reboot complete", true), ordered);

        for drain in [via.clone(), Drain::Slurm("n1".into())] {
            let undo = |state: &str, reason: &str| simulated(&drain.undo(false).unwrap(), state, reason);
            let resumed = (0, "update nodename=n1 state=resume".to_owned());
            assert_eq!(undo("DOWN", "netplay:r1 card : reboot issued : reboot complete"), resumed);
            assert_eq!(undo("IDLE+DRAIN", "netplay:r1 card"), resumed);
            assert_eq!(undo("DOWN", "Node unexpectedly rebooted"), resumed);
            assert_eq!(undo("IDLE+DRAIN", "bad fan"), (11, "IDLE+DRAIN: bad fan".to_owned()));
            // What it hasn't booted yet is given back by taking the order back; a boot that slurmctld has yet to hear of is waited for.
            assert_eq!(undo("ALLOCATED+DRAIN+REBOOT_REQUESTED", "netplay:r1 card"), (0, "cancel_reboot n1".to_owned()));
            assert_eq!(undo("ALLOCATED+DRAIN+REBOOT_REQUESTED", "kernel").0, 11);
            assert_eq!(undo("DOWN+DRAIN+REBOOT_ISSUED", "netplay:r1 card : reboot issued"), resumed);
            // Where it wasn't seen to have booted, it isn't resumed unproven if it has begun to meanwhile.
            let early = |state: &str, reason: &str| simulated(&drain.undo(true).unwrap(), state, reason);
            assert_eq!(
                early("ALLOCATED+DRAIN+REBOOT_REQUESTED", "netplay:r1 card"),
                (0, "cancel_reboot n1".to_owned())
            );
            for state in ["DOWN+DRAIN+REBOOT_ISSUED", "DOWN"] {
                assert_eq!(early(state, "netplay:r1 card : reboot issued").0, 1, "{state}");
            }
        }
        let keep = |state: &str| simulated(&via.keep().unwrap(), state, "netplay:r1 card");
        assert_eq!(
            keep("MIXED+DRAIN+REBOOT_REQUESTED"),
            (0, "cancel_reboot n1; update nodename=n1 state=drain reason=netplay:r1 card".to_owned())
        );
        assert_eq!(keep("DOWN+DRAIN+REBOOT_ISSUED"), (0, String::new()));
        // A play that drains only takes back the order that an earlier one has given.
        let drain = Drain::Slurm("n1".into()).script("r2", "card", false).unwrap();
        assert_eq!(
            simulated(&drain, "ALLOCATED+DRAIN+REBOOT_REQUESTED", "netplay:r1 card"),
            (
                10,
                "cancel_reboot n1; update nodename=n1 state=drain reason=netplay:r2 card; ALLOCATED+DRAIN, jobs: 7 "
                    .to_owned()
            )
        );
    }

    #[test]
    fn what_was_drained_in_one_way_is_not_finished_in_another() {
        let command = |text: &str| Drain::Command { drain: text.into(), undrain: None };
        let (slurm, via) = (Drain::Slurm("n1".into()), Drain::SlurmReboots("n1".into()));
        assert!(slurm.undone_by(&via) && via.undone_by(&slurm) && command("a").undone_by(&command("b")));
        let kubernetes = Drain::Kubernetes("n1".into());
        for (one, other) in [
            (&slurm, &command("a")),
            (&command("a"), &via),
            (&slurm, &kubernetes),
            (&kubernetes, &command("a")),
            (&slurm, &Drain::Slurm("n2".into())),
        ] {
            assert!(!one.undone_by(other) && !other.undone_by(one), "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_reason_is_one_line_of_plain_text() {
        assert_eq!(reason("r1", "mlxconfig:all (A, B)\nx[0]\""), "netplay:r1 mlxconfig:all (A, B) x 0  ");
    }
}
