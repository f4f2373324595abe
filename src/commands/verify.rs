//! `netplay verify`: prove the fabric between the hosts. `netplay audit`: tell which of them differ.

use super::{Origin, carriers, defaults, plays, shared, unlock, vault};
use crate::cli;
use crate::engine::run::{self, verify};
use crate::error::Errors;
use crate::event::{Event, RunStarted, Warning};
use crate::inventory::vault::Vault;
use crate::logs;
use crate::playbook::Playbook;
use crate::report::{Reporters, Verbosity};
use crate::verify::compare::{self, History};
use crate::verify::{Check, Judged, Verdict};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is checked where no suite says otherwise.
const USUAL: &str = "- name: fabric\n  hosts: all\n  checks:\n    - ports\n    - path_mtu\n";

/// Makes the checks of the suites and tells what is wrong.
///
/// # Errors
/// Everything that can be found wrong before the first connection.
pub fn run(args: &cli::Verify, argv: &[OsString]) -> Result<u8, Errors> {
    let vault = vault(&args.hosts)?;
    let suites: Vec<_> = match args.suites.as_slice() {
        [] => vec![Playbook::suite_of_text("netplay verify", USUAL.to_owned(), &vault)],
        paths => paths.iter().map(|path| Playbook::load_suite(path, &vault)).collect(),
    };
    let given = Given { command: "verify", suites, paths: &args.suites, hosts: &args.hosts, reach: &args.reach };
    let past = args.compare.as_deref().map(|with| past(with, &args.hosts, &args.suites)).transpose()?;
    examine(given, past, argv, &vault, |plays| {
        for exam in plays.iter_mut().filter_map(|play| play.exam.as_mut()) {
            exam.pairs = args.pairs;
            exam.busy = args.on_busy == cli::OnBusy::Run;
        }
        audited(plays);
    })
}

/// Compares the hosts and tells who differs.
///
/// # Errors
/// Everything that can be found wrong before the first connection.
pub fn audit(args: &cli::Audit, argv: &[OsString]) -> Result<u8, Errors> {
    let vault = vault(&args.hosts)?;
    let become_ = if args.become_ { "  become: true\n" } else { "" };
    let text = format!("- name: audit\n  hosts: all\n{become_}  checks:\n    - audit\n");
    let suites = vec![Playbook::suite_of_text("netplay audit", text, &vault)];
    let given = Given { command: "audit", suites, paths: &[], hosts: &args.hosts, reach: &args.reach };
    examine(given, None, argv, &vault, |_| ())
}

/// Has the hosts of these plays compared at the end, each once.
fn audited(plays: &mut [run::Play]) {
    let mut later = HashSet::new();
    for play in plays.iter_mut().rev() {
        let names: Vec<String> = play.hosts.iter().map(|host| host.target.host.clone()).collect();
        let new = names.iter().any(|name| !later.contains(name));
        let Some(exam) = play.exam.as_mut() else { continue };
        if exam.checks.contains(&Check::Audit) {
            later.extend(names);
        } else if new {
            exam.checks.push(Check::Audit);
            later.extend(names);
        }
    }
}

/// What was asked for.
struct Given<'g> {
    command: &'static str,
    suites: Vec<Result<Playbook, Errors>>,
    paths: &'g [PathBuf],
    hosts: &'g cli::Hosts,
    reach: &'g cli::Reach,
}

fn examine(
    given: Given<'_>,
    past: Option<History>,
    argv: &[OsString],
    vault: &Arc<Vault>,
    adjust: impl FnOnce(&mut [run::Play]),
) -> Result<u8, Errors> {
    let Given { command, suites, paths, hosts, reach } = given;
    let of = cli::Plays { playbooks: paths.to_vec(), ..cli::Plays::of_hosts(hosts.clone()) };
    let programme = plays::cast(&of, suites, vault, false)?;
    let defaults = Arc::new(defaults(reach)?);
    let mut staged = plays::stage(&programme, &defaults, false, None)?;
    adjust(&mut staged);
    let outputs = reach.outputs()?;
    let keyring = unlock(staged.iter().flat_map(|play| play.hosts.iter().map(|host| &host.target)), hosts);
    let shared = shared(reach, &defaults, carriers(keyring), hosts.verbosity() >= Verbosity::Scripts)?;
    let mut reporters = Reporters::open(&outputs, hosts.color(), hosts.verbosity(), &hosts.secrets)?;
    let log = super::log(&mut reporters, &shared.run, hosts);
    let names = |play: &run::Play| play.hosts.iter().map(|h| h.target.host.as_str().into()).collect();
    reporters.event(&Event::RunStarted(RunStarted {
        plays: staged.iter().map(|play| (play.name.clone(), names(play))).collect(),
        ..Origin::of(hosts, paths).started(&shared.run, command, argv)
    }));
    let mut measured = Vec::new();
    let mut finished = verify(&shared, &staged, reach.forks.into(), &mut |event| {
        if let (Some(_), Event::Verdict { verdict, .. }) = (&past, &event) {
            measured.push((**verdict).clone());
        }
        reporters.event(&event);
    });
    if let Some(past) = past {
        finished.exit_code = compared(&past, &measured, finished.exit_code, &mut |event| reporters.event(&event));
    }
    finished.log = log;
    let code = finished.exit_code;
    reporters.event(&Event::RunFinished(Box::new(finished)));
    Ok(super::close(reporters, code, hosts))
}

/// What earlier runs measured.
fn past(with: &Path, hosts: &cli::Hosts, suites: &[PathBuf]) -> Result<History, Errors> {
    let Origin { inventory, playbooks, .. } = Origin::of(hosts, suites);
    let last = with == Path::new("last");
    let mut history = History::default();
    let value = |v: logs::Value| {
        let peer = v.peer.map(|peer| (peer.host, peer.interface));
        Some(((v.check, v.host, v.interface, peer, v.unit, 0), v.value?))
    };
    // Of runs in which something was wrong nothing is usual.
    for run in logs::measured(&super::state_folder()?, &inventory, &playbooks)?.into_iter().filter(|run| run.good) {
        history.run(run.values.into_iter().filter_map(value), last);
    }
    if !last {
        for run in logs::measured_in(with)? {
            history.run(run.values.into_iter().filter_map(value), true);
        }
    }
    Ok(history)
}

/// Tells what got worse. Gives the exit code.
fn compared(past: &History, measured: &[Verdict], code: u8, sink: &mut dyn FnMut(Event)) -> u8 {
    let mut judged = Judged::default();
    let new = compare::judge(measured, past, &mut judged);
    let message = match (past.is_empty(), new) {
        (true, _) => Some("there is no earlier good run to compare with: this is the first".to_owned()),
        (false, 0) => None,
        (false, n) => Some(format!("{n} measurements have no earlier one to be compared with")),
    };
    if let Some(message) = message {
        sink(Event::Warning(Warning { message }));
    }
    let worse = !judged.findings.is_empty();
    for finding in judged.findings {
        sink(Event::Finding { play: "compare".into(), finding: Box::new(finding) });
    }
    match code {
        0 if worse => 2,
        4 if worse => 6,
        code => code,
    }
}
