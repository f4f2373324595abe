//! Whom the scheduler has as unavailable, of all its nodes.

use super::Drain;
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;

/// A node that isn't available, as its scheduler has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Its name there.
    pub node: String,
    /// Its state and the reason that is given for it.
    pub why: String,
    /// The run that has drained it, if it was netplay.
    pub run: Option<String>,
}

/// The question. Its argument is the scheduler's program, by [`Census::of`].
pub(in super::super) struct Census;

const SLURM: &str = "scontrol";
const KUBERNETES: &str = "kubectl";

// Source: scontrol(1), `show node` with `-o`, one node a line.
const SLURM_LIST: &str = r#"scontrol show node -o; echo "status $?""#;
const SLURM_AWK: &str = r#"/^NodeName=/ && match($0, / State=[^ ]+/) {
  n++; state = substr($0, RSTART + 7, RLENGTH - 7); split($0, word, " ")
  if (state !~ /DRAIN|DOWN|FAIL/) next
  at = index($0, " Reason="); reason = at ? substr($0, at + 8, 40) : ""
  print "away\t" substr(word[1], 10) "\t" state "\t" reason
  next
}
/^status [0-9]+$/ { print "nodes " n + 0; print; next }
NF { print "unread " substr($0, 1, 200) }"#;

// Source: Kubernetes' API v1, Node; kubectl's JSONPath leaves out what isn't there.
const KUBERNETES_LIST: &str = r#"kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.name}{"\t"}{.spec.unschedulable}{"\t"}{.metadata.annotations.netplay\.dev/run}{"\t"}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'; echo "status $?""#;
const KUBERNETES_AWK: &str = r#"NF == 4 && $1 != "" {
  n++
  if ($2 == "true") print "away\t" $1 "\tcordoned\t" $3
  else if ($4 != "True") print "away\t" $1 "\tnot ready\t"
  next
}
/^status [0-9]+$/ { print "nodes " n + 0; print; next }
NF { print "unread " substr($0, 1, 200) }"#;

impl Census {
    /// The program of the scheduler by which a host is drained; nothing where none knows of it.
    pub(in super::super) fn of(drain: &Drain) -> Option<&'static str> {
        match drain {
            Drain::Slurm(_) | Drain::SlurmReboots(_) => Some(SLURM),
            Drain::Kubernetes(_) => Some(KUBERNETES),
            Drain::None | Drain::Command { .. } => None,
        }
    }
}

impl Group for Census {
    type Answer = Vec<Unavailable>;
    const NAME: &'static str = "nodes that aren't available";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let fragment = |tool: &&str| {
            let (list, awk) = if *tool == SLURM { (SLURM_LIST, SLURM_AWK) } else { (KUBERNETES_LIST, KUBERNETES_AWK) };
            Script::new().set("tool", tool).set("list", list).set("awk", awk).line(include_str!("census.sh")).into()
        };
        args.iter().map(fragment).collect()
    }

    fn split(_: &[&str], outputs: &[Output]) -> Vec<Result<Vec<Unavailable>, Trouble>> {
        outputs.iter().map(read).collect()
    }
}

fn read(output: &Output) -> Result<Vec<Unavailable>, Trouble> {
    let text = output.text();
    if output.code != 0 {
        let said = super::drain::saying(&output.complaint());
        return Err(Trouble::new(match output.code {
            124 | 137 => format!("it didn't answer within 60 s{said}"),
            code => format!("exit code {code}{said}"),
        }));
    }
    if let Some(line) = text.lines().find_map(|line| line.strip_prefix("unread ")) {
        return Err(Trouble::new(format!("this of its answer can't be read: {line}")));
    }
    let mut end = text.lines().rev();
    let status = end.next().and_then(|line| line.strip_prefix("status "));
    let nodes = end.next().and_then(|line| line.strip_prefix("nodes "));
    match (nodes, status) {
        (Some("0"), Some("0")) => return Err(Trouble::new("it has no node")),
        (Some(_), Some("0")) => {}
        (_, Some(code)) => {
            let said = super::drain::saying(&String::from_utf8_lossy(&output.stderr));
            return Err(Trouble::new(format!("exit code {code}{said}")));
        }
        _ => return Err(Trouble::new("its answer broke off")),
    }
    let node = |line: &str| {
        let [_, node, state, reason] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let kubernetes = ["cordoned", "not ready"].contains(&state);
        let reason = reason.split(" [").next().unwrap_or(reason).trim();
        let run = if kubernetes { Some(reason) } else { reason.strip_prefix("netplay:") };
        let run = run.and_then(|run| run.split_whitespace().next()).map(str::to_owned);
        let why = match &run {
            Some(run) if kubernetes => format!("{state} by netplay:{run}"),
            None if reason.is_empty() => state.to_owned(),
            _ => format!("{state}: {reason}"),
        };
        Some(Unavailable { node: node.to_owned(), why, run })
    };
    let away = text.lines().filter(|line| line.starts_with("away\t"));
    away.map(|line| node(line).ok_or_else(|| Trouble::new(format!("this of its answer can't be read: {line}"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, ask};

    /// As Slurm 22.05.8 told of a node, by `scontrol show node -o`.
    const NODE: &str = "NodeName=@ Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=9.81 AvailableFeatures=(null) \
        ActiveFeatures=(null) Gres=(null) NodeAddr=10.99.200.2 NodeHostName=@ Version=22.05.8 OS=Linux 6.18.44-fc-v657 #1 SMP \
        PREEMPT_DYNAMIC @0  RealMemory=256 AllocMem=0 FreeMem=211 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 \
        Owner=N/A MCS_label=N/A Partitions=main  BootTime=2026-12-02T09:25:33 SlurmdStartTime=2026-12-02T09:25:33 \
        LastBusyTime=2026-12-02T09:25:33 CfgTRES=cpu=1,mem=256M,billing=1 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 \
        ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s";
    const HOSTS: usize = 10_000;

    fn away(node: &str, why: &str, run: Option<&str>) -> Unavailable {
        Unavailable { node: node.into(), why: why.into(), run: run.map(str::to_owned) }
    }

    /// What is known where a **simulated** scheduler's program does this.
    fn simulated(shell: Shell, tool: &str, does: &str) -> Result<Vec<Unavailable>, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("does"), does).unwrap();
        let setup = format!(
            "mount -t tmpfs tmpfs /usr/local/sbin; cd /usr/local/sbin; printf '#!/bin/sh\\n. {}/does\\n' >{tool}; chmod +x {tool}; cd /",
            folder.path().display()
        );
        let script = Census::compose(&[tool]).remove(0).script;
        let output = shell.run_in_net(&setup, script.as_str());
        assert!(output.stdout.len() <= crate::engine::reader::MAX_OUTPUT, "{}", output.stdout.len());
        let found = Census::split(&[tool], &[output]).remove(0);
        found.map_err(|trouble| trouble.message)
    }

    fn printing(text: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let does = format!("cat {}", file.path().display());
        (file, does)
    }

    #[test]
    fn slurm_tells_who_is_away_of_ten_thousand_nodes() {
        let line = |i: usize| {
            let (state, reason) = match i {
                2 => ("IDLE+DRAIN", " Reason=netplay:r1 mlxconfig:all [root@2026-12-02T09:25:54]"),
                3 => ("DOWN*", " Reason=bad fan [x] State=IDLE \"q [root@2026-12-02T09:25:54]"),
                9_999 => ("MIXED+DRAIN", ""),
                _ => ("IDLE", ""),
            };
            NODE.replace("=@", &format!("=gpu{i}")).replace("State=IDLE", &format!("State={state}")) + reason + "\n"
        };
        let (_file, does) = printing(&(0..HOSTS).map(line).collect::<String>());
        let found = [
            away("gpu2", "IDLE+DRAIN: netplay:r1 mlxconfig:all", Some("r1")),
            away("gpu3", "DOWN*: bad fan", None),
            away("gpu9999", "MIXED+DRAIN", None),
        ];
        for shell in Shell::ALL {
            assert_eq!(simulated(shell, SLURM, &does).as_deref(), Ok(&found[..]), "{shell:?}");
        }
        // All of them may be away, and each is told.
        let long = format!(" Reason={} [root@2026-12-02T09:25:54]", "switch firmware ".repeat(20));
        let down =
            |i: usize| line(i + HOSTS).trim_end().replace("State=IDLE", "State=DOWN+DRAIN+NOT_RESPONDING") + &long;
        let (_file, does) = printing(&(0..HOSTS).map(|i| down(i) + "\n").collect::<String>());
        let found = simulated(Shell::Dash, SLURM, &does).unwrap();
        assert_eq!((found.len(), found.last().unwrap().node.as_str()), (HOSTS, "gpu19999"));
    }

    #[test]
    fn kubernetes_tells_who_is_away_of_ten_thousand_nodes() {
        // As kubectl 1.32.4 printed it, of a stand-in for the API server.
        let line = |i: usize| match i {
            1 => "gpu1\ttrue\t\tTrue\n".to_owned(),
            2 => "gpu2\ttrue\tr1\tTrue\n".to_owned(),
            3 => "gpu3\t\t\tUnknown\n".to_owned(),
            9_999 => "gpu9999\t\t\t\n".to_owned(),
            _ => format!("gpu{i}\t\t\tTrue\n"),
        };
        let (_file, does) = printing(&(0..HOSTS).map(line).collect::<String>());
        let found = [
            away("gpu1", "cordoned", None),
            away("gpu2", "cordoned by netplay:r1", Some("r1")),
            away("gpu3", "not ready", None),
            away("gpu9999", "not ready", None),
        ];
        for shell in Shell::ALL {
            assert_eq!(simulated(shell, KUBERNETES, &does).as_deref(), Ok(&found[..]), "{shell:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_list_of_nodes_is_an_error() {
        let good = NODE.replace("=@", "=gpu1");
        for shell in Shell::ALL {
            for (does, told) in [
                (
                    "echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
                    "exit code 1: slurm_load",
                ),
                ("", "it has no node"),
                ("echo 'No nodes in the system'", "this of its answer can't be read: No nodes in the system"),
                ("echo 'NodeName=gpu1 Arch=x86_64'", "this of its answer can't be read: NodeName=gpu1"),
                // What it has told before it failed, or was killed, isn't all.
                (&format!("echo '{good}'; exit 3"), "exit code 3"),
                (&format!("echo '{good}'; kill -9 $$"), "exit code 137"),
                (&format!("echo '{good}'; kill -9 $PPID"), "broke off"),
                ("echo 'status 0'", "it has no node"),
            ] {
                let found = simulated(shell, SLURM, does);
                assert!(found.as_ref().is_err_and(|why| why.contains(told)), "{shell:?}: {does}: {found:?}");
            }
        }
        let cut = Output { code: 0, stdout: b"away\tgpu1\tDOWN\t\nnodes 1\n".to_vec(), stderr: Vec::new() };
        assert_eq!(read(&cut).unwrap_err().message, "its answer broke off");
        // Where it isn't installed.
        let answers = ask(Shell::Dash, [crate::resource::Question::of::<Census>(SLURM)]);
        assert!(answers.get::<Census>(SLURM).unwrap_err().message.contains("there is no scontrol here"));
    }
}
