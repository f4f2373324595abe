//! A file with given content: `copy` and `template` differ only in where that comes from.

use super::attributes::Wanted;
use super::package;
use super::probes::premise::Premise;
use super::probes::whole::{Attributes, Content, Found, Kind, WholeFile};
use super::{
    Answers, Change, Claim, FileDiff, Key, Need, Obstacle, Put, Question, Reading, Resource, Spec, Step, Trouble, Undo,
};
use crate::error::Error;
use crate::shell::Script;
use sha2::{Digest, Sha256};
use std::fmt::{Debug, Write as _};
use std::marker::PhantomData;

/// The most bytes that a file may have.
const MOST: usize = 1 << 20;
/// Permissions of a file that wasn't there, if none are given.
const NEW: u32 = 0o644;

/// What makes a type of [`Managed`]: its name and keys, and where the content comes from.
pub trait Origin: Debug + Send + Sync + 'static {
    /// [`Resource::TYPE`].
    const TYPE: &'static str;
    /// [`Resource::SUMMARY`].
    const SUMMARY: &'static str;
    /// [`Resource::TOUCHES`].
    const TOUCHES: &'static str;
    /// [`Resource::KEYS`].
    const KEYS: &'static [Key];
    /// [`Resource::EXAMPLE`].
    const EXAMPLE: &'static str;
    /// The content.
    ///
    /// # Errors
    /// It isn't given, or the file that it comes from isn't there or can't be rendered.
    fn body(spec: &Spec<'_>) -> Result<Vec<u8>, Error>;
}

/// A file that has a given content.
#[derive(Debug)]
pub struct Managed<O> {
    path: String,
    body: Vec<u8>,
    wanted: Wanted,
    backup: bool,
    validate: Option<Script>,
    origin: PhantomData<fn() -> O>,
}

impl<O> Managed<O> {
    fn question(&self) -> String {
        WholeFile::compare(&self.path, &self.body)
    }
}

impl<O: Origin> Resource for Managed<O> {
    type State = Found;
    const TYPE: &'static str = O::TYPE;
    const SUMMARY: &'static str = O::SUMMARY;
    const TOUCHES: &'static str = O::TOUCHES;
    const KEYS: &'static [Key] = O::KEYS;
    const EXAMPLE: &'static str = O::EXAMPLE;

    fn parse(spec: &Spec<'_>) -> Result<Managed<O>, Error> {
        let node = spec.need("dest")?;
        let path = spec.path("dest")?.unwrap_or_default();
        if node.text().is_some_and(|t| t.ends_with('/')) {
            return Err(Error::playbook(&node.span, "`dest` names a folder")
                .hint(format!("write the path of the file itself: `{path}/NAME`")));
        }
        let body = O::body(spec)?;
        if body.len() > MOST {
            let message = format!("the file has {} bytes, and at most {MOST} can be written", body.len());
            return Err(
                Error::playbook(&spec.node.span, message).hint("bring larger files by a package or by shared storage")
            );
        }
        Ok(Managed {
            path,
            body,
            wanted: Wanted::parse(spec)?,
            backup: spec.bool("backup")?.unwrap_or_default(),
            validate: validate(spec)?,
            origin: PhantomData,
        })
    }

    fn identity(&self) -> String {
        self.path.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::new("path", &*self.path)]
    }

    fn needs(&self, _now: Option<&Found>) -> Vec<Need> {
        let folders = folders(&self.path).map(|folder| Need::After(Claim::new("path", folder)));
        folders.chain(package::of_path(&self.path)).collect()
    }

    fn probe(&self) -> Vec<Question> {
        vec![WholeFile::ask(self.question())]
    }

    fn read(&self, answers: &Answers) -> Result<Reading<Found>, Trouble> {
        let found = answers.get::<WholeFile>(&self.question())?;
        match &found.kind {
            Kind::File(_, Content::Unreadable(why)) => Err(why.clone()),
            Kind::Blocked => Ok(Reading::NotYet(no_folder(&self.path, found))),
            Kind::NoParent if found.link.is_some() => Ok(Reading::NotYet(no_folder(&self.path, found))),
            _ => Ok(Reading::State(found.clone())),
        }
    }

    fn diff(&self, now: &Found) -> Vec<Change> {
        let attributes = attributes(now);
        let mut changes = Vec::new();
        if differs(now) {
            let from = match &now.kind {
                Kind::File(_, Content::Bytes(bytes)) => Some(sum(bytes)),
                Kind::File(attributes, _) => Some(format!("other {} bytes", attributes.size)),
                _ => None,
            };
            changes.push(Change::now("content", from, sum(&self.body)));
        }
        changes.extend(self.wanted.diff(attributes));
        changes
    }

    fn apply(&self, now: &Found) -> Vec<Step> {
        match &now.kind {
            Kind::File(attributes, Content::Same) => self.wanted.steps(&self.path, now.link.is_some(), attributes),
            _ => vec![Step::Put(Put {
                path: self.path.clone(),
                body: self.body.clone(),
                mode: self.wanted.mode.or(attributes(now).map(|a| a.mode)).unwrap_or(NEW),
                owner: self.wanted.owner_of_new(attributes(now)),
                backup: self.backup,
                validate: self.validate.clone(),
                in_place: now.mounted,
            })],
        }
    }

    fn undo(&self, _: &Found) -> Option<Undo> {
        Some(Undo { files: vec![self.path.clone()], ..Undo::default() })
    }

    fn files(&self, now: &Found) -> Vec<FileDiff> {
        let before = match &now.kind {
            Kind::Absent | Kind::NoParent => None,
            Kind::File(_, Content::Bytes(bytes)) => Some(bytes.clone()),
            _ => return Vec::new(),
        };
        vec![FileDiff { path: self.path.clone(), before, after: Some(self.body.clone()), edit: None }]
    }

    fn obstacle(&self, now: &Found) -> Option<Obstacle> {
        let path = &self.path;
        let trouble = match &now.kind {
            Kind::Directory(_) => Trouble::new(format!("{path} is a folder"))
                .hint(format!("write the path of the file itself: `{path}/NAME`")),
            Kind::Other(_) => {
                Trouble::new(format!("{path} is a device, a socket or a pipe, which is no file to write"))
            }
            Kind::NoParent => return Some(no_folder_yet(path, now)),
            _ => return None,
        };
        Some(Obstacle::stops(trouble))
    }

    fn premises(&self, now: Option<&Found>) -> Vec<Premise> {
        let (replaced, changed) = (Premise::Replaced(self.path.clone()), Premise::Changed(self.path.clone()));
        let path = match now {
            None => vec![replaced, changed],
            Some(now) if differs(now) && !now.mounted => vec![replaced],
            Some(_) => vec![changed],
        };
        path.into_iter().chain(self.wanted.premises()).collect()
    }

    fn warnings(&self, now: &Found) -> Vec<String> {
        if !now.mounted || !differs(now) {
            return Vec::new();
        }
        vec![format!(
            "{} is a mount point: it is written in place and not replaced, so that who reads it meanwhile may see half \
             of it",
            self.path
        )]
    }
}

fn differs(now: &Found) -> bool {
    !matches!(&now.kind, Kind::File(_, Content::Same))
}

fn attributes(now: &Found) -> Option<&Attributes> {
    match &now.kind {
        Kind::File(attributes, _) => Some(attributes),
        _ => None,
    }
}

pub(super) fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).fold("sha256:".to_owned(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The folders above a path, the nearest first, without the root.
pub(super) fn folders(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|(folder, _)| folder), |path| {
        path.rsplit_once('/').map(|(folder, _)| folder)
    })
    .filter(|folder| !folder.is_empty())
}

/// That there is nowhere to put something, and what to do.
pub(super) fn no_folder(path: &str, found: &Found) -> Trouble {
    let folder = folders(path).next().unwrap_or("/");
    match (&found.link, &found.kind) {
        (Some(link), _) => Trouble::new(format!("{path} is a link to {link}, which leads nowhere"))
            .hint("make the folder that it leads to, or remove the link"),
        (None, Kind::Blocked) => Trouble::new(format!("{path} can't be: {folder}, or what it stands on, is no folder")),
        (None, _) => Trouble::new(format!("the folder {folder} isn't there"))
            .hint(format!("make it before: `file: {{path: {folder}, state: directory}}`")),
    }
}

/// The same as an obstacle, which whoever makes the folder takes away.
pub(super) fn no_folder_yet(path: &str, found: &Found) -> Obstacle {
    Obstacle::unless(no_folder(path, found), folders(path).map(|f| Claim::new("path", f)).collect())
}

/// `validate` as Ansible has it: a command, no shell, in which `%s` is the path of the new file.
fn validate(spec: &Spec<'_>) -> Result<Option<Script>, Error> {
    // Stands for the path until the shell knows it.
    const MARK: &str = "\u{1}";
    let Some(node) = spec.get("validate") else { return Ok(None) };
    let error = |message: &str| Error::playbook(&node.span, message.to_owned());
    let text = super::spec::text("validate", node)?;
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        rest = if let Some(rest) = after.strip_prefix('s') {
            out.push_str(MARK);
            rest
        } else if let Some(rest) = after.strip_prefix('%') {
            out.push('%');
            rest
        } else {
            return Err(error("`validate` has a `%` that is neither `%s` nor `%%`")
                .hint("`%s` is the path of the new file, `%%` a percent sign"));
        };
    }
    out.push_str(rest);
    if out.matches(MARK).count() != 1 {
        return Err(error("`validate` must name the new file once, as `%s`").hint("like `validate: visudo -cf %s`"));
    }
    let words = shlex::split(&out).filter(|words| !words.is_empty() && !words[0].contains(MARK));
    let Some(words) = words else {
        return Err(error("`validate` is no command: its quotes aren't closed, or it begins with the file"));
    };
    Ok(Some(
        Script::new()
            .set("mark", MARK)
            .args(words)
            .line(r#"for w do shift; case $w in *"$mark"*) w=${w%%"$mark"*}$file${w#*"$mark"} ;; esac; set -- "$@" "$w"; done"#)
            .line(r#""$@""#),
    ))
}

#[cfg(test)]
mod tests {
    use crate::resource::copy::Copy;
    use crate::resource::trial::{Shell, name, parse, settle};
    use crate::shell::quote;
    use proptest::prelude::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_name_and_content(name in name(), first in "[^\u{0}]{0,40}", second in "[^\u{0}]{0,40}") {
            let dir = tempfile::tempdir().unwrap();
            for shell in Shell::ALL {
                let path = dir.path().join(format!("{shell:?}{name}"));
                let text = path.to_str().unwrap();
                for (content, mode) in [(&first, "0600"), (&second, "0640"), (&second, "04755")] {
                    let copy: Copy = parse(&[("dest", text), ("content", content), ("mode", mode)]).unwrap();
                    settle(shell, &copy).unwrap();
                    prop_assert_eq!(fs::read_to_string(&path).unwrap(), content.as_str());
                    let wanted = u32::from_str_radix(mode, 8).unwrap();
                    prop_assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, wanted);
                    prop_assert!(settle(shell, &copy).unwrap().changes.is_empty());
                }
            }
        }

        #[test]
        fn words_of_validate(words in prop::collection::vec("[^\u{0}\u{1}]{0,12}", 0..4)) {
            let dir = tempfile::tempdir().unwrap();
            let out = format!("{}/out", dir.path().display());
            let check = format!("printf '%%s\\001' \"$@\" >{out}");
            let mut all = vec!["sh".to_owned(), "-c".to_owned(), check, "sh".to_owned()];
            all.extend(words.iter().map(|word| word.replace('%', "%%")));
            let text = format!("{} --file=%s", all.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "));
            let path = format!("{}/it's", dir.path().display());
            for shell in Shell::ALL {
                let content = format!("{shell:?}");
                let copy: Copy =
                    parse(&[("dest", &path), ("content", &content), ("validate", &text)]).unwrap();
                settle(shell, &copy).unwrap();
                let ran = fs::read_to_string(&out).unwrap();
                let mut got: Vec<&str> = ran.split_terminator('\u{1}').collect();
                let file = got.pop().unwrap();
                prop_assert!(file.starts_with("--file=/") && file.contains("it's"), "{file}");
                prop_assert_eq!(got, words.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_validate_refuses_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("{}/x", dir.path().display());
        fs::write(&path, "old").unwrap();
        let copy: Copy = parse(&[("dest", &path), ("content", "new"), ("validate", "grep -q old %s")]).unwrap();
        for shell in Shell::ALL {
            assert!(settle(shell, &copy).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        }
    }

    #[test]
    fn a_link_stays_and_its_target_keeps_its_permissions() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| format!("{}/{name}", dir.path().display());
            fs::create_dir(path("folder")).unwrap();
            fs::write(path("folder/target"), "old").unwrap();
            fs::set_permissions(path("folder/target"), Permissions::from_mode(0o460)).unwrap();
            symlink("folder/target", path("link")).unwrap();
            let copy: Copy = parse(&[("dest", &path("link")), ("content", "new")]).unwrap();
            settle(shell, &copy).unwrap();
            assert_eq!(fs::read_to_string(path("folder/target")).unwrap(), "new");
            assert_eq!(fs::metadata(path("folder/target")).unwrap().mode() & 0o7777, 0o460);
            assert_eq!(fs::read_link(path("link")).unwrap().to_str(), Some("folder/target"), "{shell:?}");
        }
    }
}
