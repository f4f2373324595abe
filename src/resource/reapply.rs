//! What a boot or the reload of a driver loses, and is set again then: `netplay-reapply`, one unit of systemd and one
//! hook of udev for all types, which run the files of `/etc/netplay/reapply.d` in the order of their names.
//!
//! A type says which [`Script`] is to be run again, as its own file. The script finds out anew what a boot changes (the
//! numbers of interrupts). It is run by `/bin/sh` as root, with the sbin folders in its `PATH`; what it prints is in the
//! journal of the unit, and an exit code other than 0 fails the unit, after the files of others were run.
//!
//! ```text
//! KEYS        Reapply::PERSIST
//! parse()     let kept = Reapply::of(spec, 60, "irq_affinity", "eth0", &script)?;
//! probe()     questions.extend(kept.questions())
//! read()      let boot = kept.read(answers)?              a part of the state
//! diff()      changes.extend(boot.change())
//! apply()     steps.extend(boot.steps(possible))          after the step of the live value
//! files()     boot.files()        obstacle()  boot.obstacle()        warnings()  boot.warnings()
//! claims()    kept.claim()
//! ```
//!
//! In an image only the files count. A host that isn't run by systemd is an obstacle: the live value can be set, and
//! nothing would set it at boot.

use super::probes::whole::{Content, Found, Kind, WholeFile};
use super::spec::{Key, Spec};
use super::{Answers, Change, Claim, FileDiff, Obstacle, Put, Question, Step, Trouble, Undo};
use crate::error::Error;
use crate::shell::Script;
use std::fmt::Write as _;

const FOLDER: &str = "/etc/netplay/reapply.d";
const UNIT: &str = "/etc/systemd/system/netplay-reapply.service";
const LINK: &str = "/etc/systemd/system/multi-user.target.wants/netplay-reapply.service";
const FAILED: &str = "/run/netplay/reapply.failed";
/// What runs the files: each with its content.
const PARTS: [(&str, &str); 3] = [
    ("/etc/netplay/reapply", include_str!("reapply/run.sh")),
    (UNIT, include_str!("reapply/netplay-reapply.service")),
    ("/etc/udev/rules.d/99-netplay-reapply.rules", include_str!("reapply/netplay.rules")),
];
/// What is there where systemd runs the host.
const RUNNING: &str = "/run/systemd/system";
/// What is there where it will.
const INSTALLED: [&str; 2] = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];

/// A script that is to be run again, or one that is no longer to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reapply {
    name: String,
    body: Option<String>,
    /// The script is only known with the state, so that the file's bytes are asked for.
    late: bool,
    image: bool,
}

/// What a probe found of it.
#[derive(Debug)]
pub struct Kept {
    wanted: Reapply,
    file: Found,
    /// Why nothing would run the file.
    idle: Option<String>,
    /// Why nothing could.
    blocked: Option<Trouble>,
    /// It failed when it was last run.
    failed: bool,
}

impl Reapply {
    /// The script of the resource `kind:of`; without one its file isn't to be there. Files are run from the lowest
    /// `order` (two digits) to the highest. `image` as in [`super::Spec`].
    pub fn new(order: u8, kind: &str, of: &str, script: Option<&Script>, image: bool) -> Reapply {
        let mut name = format!("{order:02}-{kind}-");
        for b in of.bytes() {
            // A dot would have it passed over.
            if b.is_ascii_alphanumeric() || b == b'_' || b == b'-' {
                name.push(char::from(b));
            } else {
                let _ = write!(name, "%{b:02x}");
            }
        }
        Reapply { name, body: None, late: false, image }.with(script)
    }

    /// The key by which a resource says whether it has a script.
    pub const PERSIST: Key = Key::default(
        "persist",
        "boolean",
        "true",
        "Whether it is set again after a boot and when the driver is loaded anew. `false` takes the file away that does so.",
    );

    /// The script of a resource, as its key [`Reapply::PERSIST`] says.
    ///
    /// # Errors
    /// The key is no truth value.
    pub fn of(spec: &Spec<'_>, order: u8, kind: &str, of: &str, script: &Script) -> Result<Reapply, Error> {
        let persist = spec.bool("persist")?.unwrap_or(true);
        Ok(Reapply::new(order, kind, of, persist.then_some(script), spec.image))
    }

    /// Whether there is to be a file.
    pub fn is_wanted(&self) -> bool {
        self.body.is_some()
    }

    /// One whose script is only known with the state: [`Reapply::with`] gives it, before [`Reapply::read`].
    pub fn late(order: u8, kind: &str, of: &str, image: bool) -> Reapply {
        Reapply { late: true, ..Reapply::new(order, kind, of, None, image) }
    }

    /// The same with this script; without one its file isn't to be there.
    #[must_use]
    pub fn with(&self, script: Option<&Script>) -> Reapply {
        let kind = self.name.split('-').nth(1).unwrap_or_default();
        let body = script
            .map(|script| format!("# Written by netplay for {kind}; changes here are lost.\n{}", script.as_str()));
        Reapply { body, ..self.clone() }
    }

    fn path(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    fn file(&self) -> String {
        match &self.body {
            Some(body) if !self.late => WholeFile::compare(&self.path(), body.as_bytes()),
            _ => WholeFile::bytes(&self.path()),
        }
    }

    fn runs(&self) -> Vec<String> {
        let paths: &[&str] = if self.image { &INSTALLED } else { &[RUNNING] };
        paths.iter().map(|path| WholeFile::attributes(path)).collect()
    }

    /// What is asked of a host; all of it is in files.
    pub fn questions(&self) -> Vec<Question> {
        let mut args = vec![self.file()];
        if self.body.is_some() || self.late {
            args.extend(PARTS.map(|(path, body)| WholeFile::compare(path, body.as_bytes())));
            args.extend([WholeFile::attributes(LINK), WholeFile::bytes(FAILED)]);
            args.extend(self.runs());
        }
        args.into_iter().map(WholeFile::ask).collect()
    }

    /// The file, for [`super::Resource::claims`].
    pub fn claim(&self) -> Claim {
        Claim::new("path", self.path())
    }

    /// Makes a state of the answers.
    ///
    /// # Errors
    /// A file that can't be read, and why.
    pub fn read(&self, answers: &Answers) -> Result<Kept, Trouble> {
        let get = |arg: &str| -> Result<&Found, Trouble> {
            let found = answers.get::<WholeFile>(arg)?;
            match &found.kind {
                Kind::File(_, Content::Unreadable(why)) => Err(why.clone()),
                _ => Ok(found),
            }
        };
        let there = |found: &Found| matches!(found.kind, Kind::File(..) | Kind::Directory(_));
        let mut kept =
            Kept { wanted: self.clone(), file: get(&self.file())?.clone(), idle: None, blocked: None, failed: false };
        if self.body.is_none() {
            return Ok(kept);
        }
        for (path, body) in PARTS {
            let found = get(&WholeFile::compare(path, body.as_bytes()))?;
            if path == UNIT && found.link.as_deref() == Some("/dev/null") {
                let message = "netplay-reapply.service is masked, so that nothing sets it again at boot";
                kept.blocked = Some(Trouble::new(message).hint("`systemctl unmask netplay-reapply`"));
            }
            match &found.kind {
                Kind::File(_, Content::Same) => {}
                Kind::File(..) => kept.idle = Some(format!("{path} differs")),
                _ => kept.idle = Some(format!("{path} isn't there")),
            }
        }
        if kept.idle.is_none() && get(&WholeFile::attributes(LINK))?.link.is_none() {
            kept.idle = Some("netplay-reapply.service isn't enabled".to_owned());
        }
        let mut systemd = false;
        for arg in self.runs() {
            systemd |= there(get(&arg)?);
        }
        if !systemd {
            let host = if self.image { "this image has no systemd" } else { "this host isn't run by systemd" };
            let message = format!("{host}, so that nothing sets it again at boot");
            kept.blocked = Some(Trouble::new(message).hint("`persist: false` sets the live value alone"));
        }
        // Other users than root can't look into its folder.
        if let Ok(Found { kind: Kind::File(_, Content::Bytes(names)), .. }) = get(&WholeFile::bytes(FAILED)) {
            kept.failed = String::from_utf8_lossy(names).split_whitespace().any(|name| name == self.name);
        }
        Ok(kept)
    }
}

impl Kept {
    /// Whether there is nothing to do about it.
    fn right(&self) -> bool {
        match &self.wanted.body {
            Some(_) if self.blocked.is_some() => true,
            Some(_) => self.same() && self.idle.is_none(),
            None => !self.there(),
        }
    }

    /// Whether the file holds what it is to hold.
    fn same(&self) -> bool {
        match &self.file.kind {
            Kind::File(_, Content::Same) => true,
            Kind::File(_, Content::Bytes(bytes)) => {
                self.wanted.body.as_ref().is_some_and(|body| body.as_bytes() == bytes)
            }
            _ => false,
        }
    }

    fn there(&self) -> bool {
        matches!(self.file.kind, Kind::File(..)) || self.file.link.is_some()
    }

    /// What differs.
    pub fn change(&self) -> Option<Change> {
        const RIGHT: &str = "re-applied";
        if self.right() {
            return None;
        }
        let from = match (&self.file.kind, &self.idle) {
            (_, Some(why)) if self.same() => Some(format!("not re-applied: {why}")),
            (Kind::File(..), _) if self.wanted.body.is_none() => Some(RIGHT.to_owned()),
            (Kind::File(..), _) => Some("re-applied by another script".to_owned()),
            _ => None,
        };
        Some(Change::now("boot", from, self.wanted.body.as_ref().map(|_| RIGHT)))
    }

    /// The steps that mend it. `possible`: whether the host can do now what the script does. What can't be done now would
    /// fail at each boot too, so that no file is written for it; one that isn't to be there goes all the same.
    pub fn steps(&self, possible: bool) -> Vec<Step> {
        if self.right() || (self.wanted.body.is_some() && !possible) {
            return Vec::new();
        }
        let path = self.wanted.path();
        let Some(body) = &self.wanted.body else {
            return vec![Step::Run(Script::new().set("f", &path).line(include_str!("reapply/remove.sh")))];
        };
        // Another resource may have taken the unit away since the probe, with what was the last file then: it is looked
        // after whatever was found.
        let parts = PARTS.iter().flat_map(|(path, body)| [*path, *body]);
        vec![
            Step::Run(Script::new().args(parts).line(include_str!("reapply/ensure.sh"))),
            Step::Put(Put {
                path,
                body: body.clone().into_bytes(),
                mode: 0o644,
                owner: None,
                backup: false,
                validate: None,
                in_place: false,
            }),
        ]
    }

    /// Its own file, for `--diff`, where there is another one. One that is new or goes is netplay's own text, the same for
    /// each interface but for some words, and would bury what else is shown.
    pub fn files(&self) -> Vec<FileDiff> {
        match (&self.file.kind, &self.wanted.body) {
            (Kind::File(_, Content::Bytes(bytes)), Some(body)) if !self.right() && !self.same() => vec![FileDiff {
                path: self.wanted.path(),
                before: Some(bytes.clone()),
                after: Some(body.clone().into_bytes()),
                edit: None,
            }],
            _ => Vec::new(),
        }
    }

    /// The file that the steps write or take away, to be put back, and what is to be there where there is such a file.
    pub fn undo(&self) -> Undo {
        if self.right() {
            return Undo::default();
        }
        let path = self.wanted.path();
        let parts = if self.there() {
            Script::new()
                .args(PARTS.iter().flat_map(|(path, body)| [*path, *body]))
                .line(include_str!("reapply/ensure.sh"))
        } else {
            Script::new().set("f", &path).line(include_str!("reapply/remove.sh"))
        };
        Undo { files: vec![path], steps: vec![parts] }
    }

    /// Why it can't last on this host.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.blocked.clone().map(Obstacle::lasts)
    }

    /// That it failed when it was last run by the unit.
    pub fn warnings(&self) -> Vec<String> {
        let failed = "it failed when netplay-reapply.service last ran: `journalctl -b -u netplay-reapply` tells why, and \
                      `systemctl restart netplay-reapply` runs it again";
        self.failed.then(|| failed.to_owned()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;
    use std::fs;
    use std::path::Path;

    /// Runs steps with the host's folders below this one.
    fn run(shell: Shell, root: &Path, steps: &[Step]) {
        let below = |text: &str| {
            let at = |folder: &str| format!("{}{folder}", root.display());
            text.replace("/etc/", &at("/etc/")).replace("/run/", &at("/run/"))
        };
        for step in steps {
            match step {
                Step::Run(script) => {
                    let output = shell.run(&below(script.as_str()));
                    assert_eq!(output.code, 0, "{shell:?}: {}", output.complaint());
                }
                Step::Put(put) => fs::write(below(&put.path), &put.body).unwrap(),
                Step::Share(_) => unreachable!(),
            }
        }
    }

    fn kept(name: &str, script: Option<&'static str>) -> Kept {
        let script = script.map(|text| Script::new().line(text));
        let wanted = Reapply::new(60, "irq_affinity", name, script.as_ref(), false);
        let kind = if wanted.body.is_some() { Kind::Absent } else { Kind::Directory(attributes()) };
        let file = Found { link: Some("x".to_owned()), kind, mounted: false, mounts_below: Vec::new() };
        Kept { wanted, file, idle: None, blocked: None, failed: false }
    }

    fn attributes() -> super::super::probes::whole::Attributes {
        let name = "root".to_owned();
        super::super::probes::whole::Attributes {
            mode: 0o644,
            uid: 0,
            gid: 0,
            user: name.clone(),
            group: name,
            size: 0,
        }
    }

    #[test]
    fn what_can_not_be_done_now_is_not_left_to_the_boot() {
        assert!(kept("eth1", Some("exit 1")).steps(false).is_empty());
        assert_eq!(kept("eth1", Some("exit 1")).steps(true).len(), 2);
        assert_eq!(kept("eth1", None).steps(false).len(), 1, "it is taken away");
    }

    #[test]
    fn files_run_in_order_and_one_that_fails_stops_no_other() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            let there = |path: &str| root.join(path).exists();
            run(shell, root, &kept("b$(id)'", Some("echo second; exit 3")).steps(true));
            run(shell, root, &kept("a.100", Some("echo first")).steps(true));
            run(shell, root, &kept("c", Some("echo third")).steps(true));
            fs::write(root.join("etc/netplay/reapply.d/70-x.bak"), "echo never").unwrap();
            let link = fs::read_link(root.join(&LINK[1..])).unwrap();
            assert!(link.ends_with(&UNIT[1..]), "{link:?}");
            let unit = root.join("etc/netplay/reapply");
            let output = shell.run(&format!(". {}", unit.display()));
            assert_eq!(output.code, 1);
            let failed = "60-irq_affinity-b%24%28id%29%27";
            assert_eq!(
                output.text(),
                format!("first\nsecond\n<3>{failed}: failed with exit code 3\nthird\n"),
                "{shell:?}"
            );
            assert_eq!(fs::read_to_string(root.join("run/netplay/reapply.failed")).unwrap(), format!("{failed}\n"));
            fs::remove_file(root.join("etc/netplay/reapply.d").join(failed)).unwrap();
            let output = shell.run(&format!(". {}", unit.display()));
            assert_eq!((output.code, there("run/netplay/reapply.failed")), (0, false));

            fs::remove_file(root.join("etc/netplay/reapply.d/70-x.bak")).unwrap();
            run(shell, root, &kept("a.100", None).steps(true));
            assert!(there("etc/netplay/reapply.d/60-irq_affinity-c") && there(&UNIT[1..]), "{shell:?}");
            run(shell, root, &kept("c", None).steps(true));
            for (path, _) in PARTS {
                assert!(!there(&path[1..]), "{path} {shell:?}");
            }
            assert!(!there(&LINK[1..]) && !there("etc/netplay"));
        }
    }
}
