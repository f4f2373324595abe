//! `netplay verify`: prove the fabric between the hosts.

use super::{Origin, carriers, defaults, plays, shared, unlock, vault};
use crate::cli;
use crate::engine::run::verify;
use crate::error::Errors;
use crate::event::{Event, RunStarted};
use crate::playbook::Playbook;
use crate::report::{Reporters, Verbosity};
use std::ffi::OsString;
use std::sync::Arc;

/// What is checked where no suite says otherwise.
const USUAL: &str = "- name: fabric\n  hosts: all\n  checks:\n    - ports\n    - path_mtu\n";

/// Makes the checks of the suites and tells what is wrong.
///
/// # Errors
/// Everything that can be found wrong before the first connection.
pub fn run(args: &cli::Verify, argv: &[OsString]) -> Result<u8, Errors> {
    let vault = vault(&args.hosts)?;
    let suites = match args.suites.as_slice() {
        [] => vec![Playbook::suite_of_text("netplay verify", USUAL.to_owned(), &vault)],
        paths => paths.iter().map(|path| Playbook::load_suite(path, &vault)).collect(),
    };
    let of = cli::Plays { playbooks: args.suites.clone(), ..cli::Plays::of_hosts(args.hosts.clone()) };
    let programme = plays::cast(&of, suites, &vault, false)?;
    let defaults = Arc::new(defaults(&args.reach)?);
    let mut staged = plays::stage(&programme, &defaults, false, None)?;
    for exam in staged.iter_mut().filter_map(|play| play.exam.as_mut()) {
        exam.pairs = args.pairs;
        exam.busy = args.on_busy == cli::OnBusy::Run;
    }
    let hosts = &args.hosts;
    let outputs = args.reach.outputs()?;
    let keyring = unlock(staged.iter().flat_map(|play| play.hosts.iter().map(|host| &host.target)), hosts);
    let shared = shared(&args.reach, &defaults, carriers(keyring), hosts.verbosity() >= Verbosity::Scripts)?;
    let mut reporters = Reporters::open(&outputs, hosts.color(), hosts.verbosity(), &hosts.secrets)?;
    let log = super::log(&mut reporters, &shared.run, hosts);
    let names = |play: &crate::engine::run::Play| play.hosts.iter().map(|h| h.target.host.as_str().into()).collect();
    reporters.event(&Event::RunStarted(RunStarted {
        plays: staged.iter().map(|play| (play.name.clone(), names(play))).collect(),
        ..Origin::of(hosts, &args.suites).started(&shared.run, "verify", argv)
    }));
    let mut finished = verify(&shared, &staged, args.reach.forks.into(), &mut |event| reporters.event(&event));
    finished.log = log;
    let code = finished.exit_code;
    reporters.event(&Event::RunFinished(Box::new(finished)));
    Ok(super::close(reporters, code, hosts))
}
