//! `netplay reboot`: boot hosts that no playbook needs booted, a few at a time, drained and proven.

use super::apply::Run;
use super::{defaults, plays, vault};
use crate::cli;
use crate::error::{Error, Errors};
use crate::playbook::{Playbook, REBOOT_KEYS};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

/// Boots them.
///
/// # Errors
/// Everything that can be found wrong before the first connection.
pub fn run(args: &cli::Reboot, argv: &[OsString]) -> Result<u8, Errors> {
    let vault = vault(&args.hosts)?;
    let mut text =
        "- name: reboot\n  hosts: all\n  become: true\n  resources: []\n  reboot:\n    max_unavailable: 1\n".to_owned();
    for setting in &args.set {
        let Some((key, value)) = setting.split_once('=') else {
            let known: Vec<&str> = REBOOT_KEYS.iter().map(|key| key.name).collect();
            let error = Error::usage(format!("--set {setting}: it sets nothing"));
            return Err(error.hint(format!("write KEY=VALUE, with a key of `reboot`: {}", known.join(", "))).into());
        };
        // The later one wins.
        text = text
            .lines()
            .filter(|l| !l.starts_with(&format!("    {}:", key.trim())))
            .fold(String::new(), |t, l| t + l + "\n");
        let _ = writeln!(text, "    {}: {}", key.trim(), value.trim().replace('\n', " "));
    }
    let plays = cli::Plays::of_hosts(args.hosts.clone());
    let programme = plays::cast(&plays, vec![Playbook::of_text("netplay reboot", text, &vault)], &vault, false)?;
    let defaults = Arc::new(defaults(&args.reach)?);
    let mut staged = plays::stage(&programme, &defaults, args.check, None)?;
    let why: Arc<str> = args.reason.as_str().into();
    for host in staged.iter().flat_map(|play| &play.hosts) {
        host.play.lock().unwrap_or_else(PoisonError::into_inner).boot_for = Some(why.clone());
    }
    let run = Run {
        command: "reboot",
        args: &plays,
        reach: &args.reach,
        check: args.check,
        diff: false,
        detailed_exitcode: false,
        root: None,
    };
    run.carry_out(&mut staged, &defaults, argv)
}
