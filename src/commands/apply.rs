//! `netplay apply`: bring the hosts to the state that the playbooks describe.

use super::{carriers, defaults, plays, shared, unlock};
use crate::cli;
use crate::engine::run::{Options, run as carry_out};
use crate::error::{Error, Errors};
use crate::event::{Event, HostStatus, RunFinished};
use crate::hostlist;
use crate::report::{Reporters, Verbosity};
use crate::transport::Local;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Applies, or with `--check` tells what would be done.
///
/// # Errors
/// Everything that can be found wrong before the first connection.
pub fn run(args: &cli::Apply, argv: &[OsString]) -> Result<u8, Errors> {
    let root = args.root.as_deref().map(root).transpose()?;
    let programme = plays::load(&args.plays, root.is_some())?;
    let outputs = args.reach.outputs()?;
    let defaults = Arc::new(defaults(&args.reach)?);
    let plays = plays::stage(&programme, &defaults, args.check)?;
    let hosts = &args.plays.hosts;
    let keyring = unlock(plays.iter().flat_map(|play| play.hosts.iter().map(|host| &host.target)), hosts);
    let mut transport = carriers(keyring);
    if let Some(root) = root.filter(|root| root != Path::new("/")) {
        transport = transport.in_root(&root);
    }
    let shared = shared(&args.reach, &defaults, transport, hosts.verbosity() >= Verbosity::Scripts)?;
    let mut reporters = Reporters::open(&outputs, hosts.color(), hosts.verbosity())?;
    let options = Options {
        forks: args.reach.forks.into(),
        check: args.check,
        diff: args.diff,
        detailed_exitcode: args.detailed_exitcode,
    };
    let mut finished = carry_out(&shared, &plays, options, &mut |event| reporters.event(&event));
    finished.again = again(&finished, argv);
    let code = finished.exit_code;
    reporters.event(&Event::RunFinished(Box::new(finished)));
    Ok(super::close(reporters, code, hosts))
}

/// The root folder of an image, absolute.
fn root(folder: &Path) -> Result<PathBuf, Errors> {
    let wrong = |what: String, hint: &str| {
        Errors::from(Error::usage(format!("--root {}: {what}", folder.display())).hint(hint))
    };
    let found = folder
        .canonicalize()
        .map_err(|e| wrong(e.to_string(), "name the folder where the image is unpacked or mounted"))?;
    if found == Path::new("/") {
        return Ok(found);
    }
    match Local::in_root(&found).try_shell() {
        Ok(()) => Ok(found),
        Err(said) => Err(wrong(
            said,
            "it takes root's rights and a /bin/sh in there that this machine can run; where a container may mount \
             nothing, run netplay inside the image with --root /",
        )),
    }
}

/// The command line that does the hosts again that aren't done.
fn again(finished: &RunFinished, argv: &[OsString]) -> Option<String> {
    let done = |s: HostStatus| matches!(s, HostStatus::Ok | HostStatus::Changed);
    let left: Vec<&str> = finished.hosts.iter().filter(|(_, t)| !done(t.status)).map(|(name, _)| &**name).collect();
    if left.is_empty() {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    let mut given = argv.iter().map(|word| word.to_string_lossy().into_owned()).peekable();
    while let Some(word) = given.next() {
        match word.as_str() {
            "-l" | "--limit" => drop(given.next()),
            w if w.starts_with("--limit=") || (w.starts_with("-l") && !w.starts_with("--") && w.len() > 2) => {}
            "-e" | "--extra-vars" => words.extend([word].into_iter().chain(given.next().map(|vars| shown(&vars)))),
            w => match ["--extra-vars=", "-e"].iter().find_map(|flag| Some((*flag, w.strip_prefix(flag)?))) {
                Some((flag, vars)) => words.push(format!("{flag}{}", shown(vars))),
                None => words.push(word),
            },
        }
    }
    words.extend(["--limit".to_owned(), hostlist::fold(left.iter().copied())]);
    Some(shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default())
}

/// Variables of the command line as they may be told: logs keep what is told, so passwords aren't.
fn shown(vars: &str) -> String {
    let lower = vars.to_lowercase();
    let secret = !vars.starts_with('@') && ["pass", "secret", "token"].iter().any(|word| lower.contains(word));
    if secret { "(as before)".to_owned() } else { vars.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::HostTotal;

    #[test]
    fn the_hosts_that_failed_are_done_again() {
        let total = |status| HostTotal { status, resources: Default::default(), reboot_pending: false, executions: 1 };
        let hosts = [("n1", HostStatus::Ok), ("n2", HostStatus::Failed), ("n3", HostStatus::Unreachable)];
        let hosts = hosts.map(|(name, status)| (name.into(), total(status))).into();
        let finished = RunFinished { hosts, ..RunFinished::default() };
        let argv: Vec<OsString> =
            ["netplay", "apply", "-i", "my inv", "--limit", "n[1-3]", "-lx", "site.yaml"].map(Into::into).into();
        assert_eq!(again(&finished, &argv).unwrap(), "netplay apply -i 'my inv' site.yaml --limit 'n[2-3]'");
        assert_eq!(again(&RunFinished::default(), &argv), None);
        let argv = [
            "netplay",
            "apply",
            "-e",
            "ansible_password=p1",
            "-eDB_PASS=p2",
            "--extra-vars",
            "mtu=9",
            "-e",
            "@pass.yaml",
        ];
        let argv: Vec<OsString> = argv.map(Into::into).into();
        let told = again(&finished, &argv).unwrap();
        assert_eq!(
            told,
            "netplay apply -e '(as before)' '-e(as before)' --extra-vars 'mtu=9' -e @pass.yaml --limit 'n[2-3]'"
        );
    }
}
