//! `netplay apply`: bring the hosts to the state that the playbooks describe.

use super::{Origin, again, carriers, defaults, plays, shared, unlock};
use crate::cli;
use crate::engine::run::{Options, run as carry_out};
use crate::error::{Error, Errors};
use crate::event::{Event, RunStarted};
use crate::report::{Reporters, Verbosity};
use crate::transport::{Defaults, Local};
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
    let defaults = Arc::new(defaults(&args.reach)?);
    let mut plays = plays::stage(&programme, &defaults, args.check, args.reboot)?;
    let run = Run {
        command: "apply",
        args: &args.plays,
        reach: &args.reach,
        check: args.check,
        diff: args.diff,
        detailed_exitcode: args.detailed_exitcode,
        root,
    };
    run.carry_out(&mut plays, &defaults, argv)
}

/// How plays are carried out.
pub(super) struct Run<'a> {
    pub(super) command: &'static str,
    pub(super) args: &'a cli::Plays,
    pub(super) reach: &'a cli::Reach,
    pub(super) check: bool,
    pub(super) diff: bool,
    pub(super) detailed_exitcode: bool,
    pub(super) root: Option<PathBuf>,
}

impl Run<'_> {
    /// Carries them out and tells what becomes of them.
    pub(super) fn carry_out(
        self,
        plays: &mut [crate::engine::run::Play],
        defaults: &Arc<Defaults>,
        argv: &[OsString],
    ) -> Result<u8, Errors> {
        let hosts = &self.args.hosts;
        let outputs = self.reach.outputs()?;
        let keyring = unlock(plays.iter().flat_map(|play| play.hosts.iter().map(|host| &host.target)), hosts);
        let mut transport = carriers(keyring);
        let image = self.root.is_some();
        if let Some(root) = self.root.filter(|root| root != Path::new("/")) {
            transport = transport.in_root(&root);
        }
        let shared = shared(self.reach, defaults, transport, hosts.verbosity() >= Verbosity::Scripts)?;
        let mut reporters = Reporters::open(&outputs, hosts.color(), hosts.verbosity(), &hosts.secrets)?;
        let options =
            Options { forks: self.reach.forks.into(), check: self.check, detailed_exitcode: self.detailed_exitcode };
        let origin = Origin::of(hosts, &self.args.playbooks);
        if !self.check {
            origin.await_booting(plays);
        }
        let log = super::log(&mut reporters, &shared.run, hosts);
        let names =
            |play: &crate::engine::run::Play| play.hosts.iter().map(|h| h.target.host.as_str().into()).collect();
        reporters.event(&Event::RunStarted(RunStarted {
            check: self.check,
            image,
            diff: self.diff,
            plays: plays.iter().map(|play| (play.name.clone(), names(play))).collect(),
            ..origin.started(&shared.run, self.command, argv)
        }));
        let mut found = false;
        let mut finished = carry_out(&shared, plays, options, &mut |event| {
            found |= matches!(event, Event::Finding { .. });
            reporters.event(&event);
        });
        finished.again = again::command(&finished, found, argv);
        finished.log = log;
        let code = finished.exit_code;
        reporters.event(&Event::RunFinished(Box::new(finished)));
        Ok(super::close(reporters, code, hosts))
    }
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
    if !found.is_dir() {
        return Err(wrong("it is a file".to_owned(), "mount the image that is in it, and name the folder"));
    }
    // Not followed, as a link of the image's would lead out of it.
    let shell = |name: &&str| found.join(name).symlink_metadata().is_ok();
    if !["bin/sh", "usr/bin/sh"].iter().any(shell) {
        let what = "no system is in there: it has no /bin/sh".to_owned();
        return Err(wrong(
            what,
            "name the folder where the image is unpacked or mounted, the one with etc and usr in it",
        ));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_told_as_that() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("disk.img"), "x").unwrap();
        for (name, told) in [("", "no system is in there"), ("disk.img", "it is a file"), ("nope", "No such file")] {
            let error = root(&dir.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("name the folder"), "{error}");
        }
    }
}
