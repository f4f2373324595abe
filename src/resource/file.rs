//! `file`: folders, links, permissions, and that something isn't there.

use super::attributes::{WHY, Wanted, pair};
use super::managed::{folders, no_folder, no_folder_yet};
use super::package;
use super::probes::premise::Premise;
use super::probes::whole::{Attributes, Content, Found, Kind, WholeFile};
use super::{
    Answers, Change, Claim, FileDiff, Key, Need, Obstacle, Question, Reading, Resource, Spec, Step, Trouble, spec,
};
use crate::error::Error;
use crate::shell::Script;

/// A path and what is to be there.
#[derive(Debug)]
pub struct File {
    path: String,
    state: State,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Whatever is there, with these attributes.
    Any,
    /// A file that is there, with these attributes.
    File,
    /// A folder.
    Directory,
    /// A link to this.
    Link(String),
    /// Nothing.
    Absent,
}

impl Resource for File {
    type State = Found;
    const TYPE: &'static str = "file";
    const SUMMARY: &'static str = "A folder, a link, the permissions of what is there, or that nothing is there";
    const TOUCHES: &'static str = "\
        `path`, its owner and its permissions, never the content of a file; with `directory` missing folders \
        above it, with `absent` all that is below it.";
    const KEYS: &'static [Key] = &[
        Key::required("path", "absolute path", "What it is about."),
        Key::optional(
            "state",
            "file | directory | link | absent",
            "`directory` makes the folder and those above it that are missing, all with these permissions; `link` makes \
             a link to `src`; `absent` removes, a folder with all that is in it, but nothing that is mounted; `file`, \
             and no state at all, only set permissions and fail if nothing is there.",
        ),
        Key::optional(
            "src",
            "path",
            "What a link points to, as it is to be written: relative to the link's own folder.",
        ),
        Key::optional("mode", "octal, like `0644`", "Permissions, of what a link points to if it is one."),
        Key::optional("owner", "name or number", "Who owns it. Not given, it stays as it is."),
        Key::optional("group", "name or number", "Its group. Not given, it stays as it is."),
        Key::refused("dest", "it is called `path` here"),
        Key::refused("name", "it is called `path` here"),
        Key::refused("recurse", "list the paths, or run `chmod -R` or `chown -R` by `command` with a guard"),
        Key::refused(
            "force",
            "what is in the way of a link is not removed: do that by hand or by `command` with a guard",
        ),
        Key::refused("follow", "leave it out: attributes are those of what a link points to"),
        Key::refused("modification_time", "a time is no state that can be kept; use `command` with a guard"),
        Key::refused("access_time", "a time is no state that can be kept; use `command` with a guard"),
        Key::refused("unsafe_writes", "leave it out: nothing is written"),
        Key::refused("attributes", "run `chattr` by `command` with a guard"),
        Key::refused("attr", "run `chattr` by `command` with a guard"),
        Key::refused("setype", "run `semanage fcontext` and `restorecon` by `command` with a guard"),
        Key::refused("seuser", "run `semanage fcontext` and `restorecon` by `command` with a guard"),
        Key::refused("serole", "run `semanage fcontext` and `restorecon` by `command` with a guard"),
        Key::refused("selevel", "run `semanage fcontext` and `restorecon` by `command` with a guard"),
    ];
    const EXAMPLE: &'static str = "\
- name: a folder for core dumps that only root reads
  file:
    path: /var/crash/nccl
    state: directory
    owner: root
    group: root
    mode: 0700
";

    fn parse(spec: &Spec<'_>) -> Result<File, Error> {
        spec.need("path")?;
        let path = spec.path("path")?.unwrap_or_default();
        if let Some(node) = spec.get("state")
            && let Some(remedy) = match node.text() {
                Some("touch") => Some("an empty file is `copy` with `content: \"\"`"),
                Some("hard") => Some("hard links aren't supported; `link` makes a symbolic one"),
                _ => None,
            }
        {
            return Err(Error::playbook(
                &node.span,
                format!("there is no state `{}`", node.text().unwrap_or_default()),
            )
            .hint(remedy));
        }
        let src = match spec.get("src") {
            Some(node) => Some((node, spec::text("src", node)?)),
            None => None,
        };
        let state = match (spec.choice("state", &["file", "directory", "link", "absent"])?, src) {
            (Some("link"), Some((_, src))) if !src.is_empty() => State::Link(src),
            (Some("link"), _) => {
                return Err(Error::playbook(&spec.node.span, "a link needs `src`, what it points to"));
            }
            (_, Some((node, _))) => {
                return Err(Error::playbook(&node.span, "`src` is for a link").hint("add `state: link`"));
            }
            (Some("directory"), None) => State::Directory,
            (Some("absent"), None) => State::Absent,
            (Some(_), None) => State::File,
            (None, None) => State::Any,
        };
        let wanted = Wanted::parse(spec)?;
        match state {
            State::Link(_) | State::Absent if wanted != Wanted::default() => {
                let key = ["mode", "owner", "group"].into_iter().find_map(|key| spec.get(key));
                let (message, hint) = match state {
                    State::Absent => ("what is absent has no permissions", "leave `mode`, `owner` and `group` out"),
                    _ => ("a link has no permissions of its own", "give them to what it points to"),
                };
                Err(Error::playbook(key.map_or(&spec.node.span, |node| &node.span), message).hint(hint))
            }
            State::File | State::Any if wanted == Wanted::default() => {
                Err(Error::playbook(&spec.node.span, "this `file` asks for nothing")
                    .hint("give `mode`, `owner` or `group`, or `state: directory`, `link` or `absent`"))
            }
            state => Ok(File { path, state, wanted }),
        }
    }

    fn identity(&self) -> String {
        self.path.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::new("path", &*self.path)]
    }

    fn needs(&self, _now: Option<&Found>) -> Vec<Need> {
        let mut paths: Vec<String> = folders(&self.path).map(str::to_owned).collect();
        if let State::Link(src) = &self.state {
            paths.push(absolute(&self.path, src));
        }
        let paths = paths.into_iter().map(|path| Need::After(Claim::new("path", path)));
        paths.chain(package::of_path(&self.path)).collect()
    }

    fn probe(&self) -> Vec<Question> {
        vec![WholeFile::ask(self.question())]
    }

    fn read(&self, answers: &Answers) -> Result<Reading<Found>, Trouble> {
        let found = answers.get::<WholeFile>(&self.question())?;
        let path = &self.path;
        Ok(match (&self.state, &found.kind) {
            (State::File | State::Any, Kind::Absent | Kind::NoParent | Kind::Blocked) => {
                let what = match &found.link {
                    Some(link) => format!("{path} is a link to {link}, and nothing is there"),
                    None => format!("{path} isn't there, so that it has no permissions to set"),
                };
                Reading::NotYet(Trouble::new(what).hint("`copy` and `template` make files, `state: directory` folders"))
            }
            (State::Link(_) | State::Directory, Kind::Blocked) if found.link.is_none() => {
                Reading::NotYet(no_folder(path, found))
            }
            _ => Reading::State(found.clone()),
        })
    }

    fn diff(&self, now: &Found) -> Vec<Change> {
        let is = what(now);
        match &self.state {
            State::File | State::Any => self.wanted.diff(attributes(now)),
            State::Directory if matches!(now.kind, Kind::Directory(_)) => self.wanted.diff(attributes(now)),
            State::Directory => {
                let mut changes = vec![Change::now("state", is, "directory")];
                changes.extend(self.wanted.diff(None));
                changes
            }
            State::Link(src) if now.link.as_ref() == Some(src) => Vec::new(),
            State::Link(src) => vec![Change::now("link", now.link.clone().or(is.map(str::to_owned)), src.as_str())],
            State::Absent if is.is_none() => Vec::new(),
            State::Absent => vec![Change::now("state", is, serde_json::Value::Null)],
        }
    }

    fn apply(&self, now: &Found) -> Vec<Step> {
        let path = &self.path;
        match (&self.state, attributes(now)) {
            (State::File | State::Any | State::Directory, Some(attributes)) => {
                self.wanted.steps(path, now.link.is_some(), attributes)
            }
            (State::File | State::Any, None) => Vec::new(),
            (State::Directory, None) => {
                let owner = pair(self.wanted.owner.as_deref(), self.wanted.group.as_deref());
                let mode = self.wanted.mode.map(|mode| format!("{mode:05o}"));
                let script = Script::new()
                    .set("p", path)
                    .set("o", owner.as_deref().unwrap_or_default())
                    .set("m", mode.as_deref().unwrap_or_default())
                    .line(MAKE);
                vec![Step::Run(script)]
            }
            (State::Link(src), _) => vec![Step::Run(Script::new().set("f", path).set("src", src).line(LINK))],
            (State::Absent, _) => {
                let folder = now.link.is_none() && matches!(now.kind, Kind::Directory(_));
                let rm = if folder { r#"rm -rf -- "$f""# } else { r#"rm -f -- "$f""# };
                vec![Step::Run(Script::new().set("f", path).line(rm).line(WHY))]
            }
        }
    }

    fn files(&self, now: &Found) -> Vec<FileDiff> {
        match (&self.state, &now.kind) {
            (State::Absent, Kind::File(_, Content::Bytes(bytes))) if now.link.is_none() => {
                vec![FileDiff { path: self.path.clone(), before: Some(bytes.clone()), after: None, edit: None }]
            }
            _ => Vec::new(),
        }
    }

    fn obstacle(&self, now: &Found) -> Option<Obstacle> {
        let path = &self.path;
        let is = what(now).unwrap_or_default();
        let trouble = match (&self.state, &now.kind) {
            (State::File, Kind::Directory(_) | Kind::Other(_)) => {
                Trouble::new(format!("{path} is no file: it is a {is}"))
                    .hint("leave `state` out to set the permissions of whatever is there")
            }
            (State::Directory, Kind::Absent | Kind::NoParent) if now.link.is_some() => no_folder(path, now),
            (State::Directory, Kind::File(..) | Kind::Other(_)) => {
                Trouble::new(format!("{path} is in the way: it is a {is} and no folder"))
                    .hint("remove it by hand, or by `command` with a guard")
            }
            (State::Link(_), Kind::File(..) | Kind::Directory(_) | Kind::Other(_)) if now.link.is_none() => {
                Trouble::new(format!("{path} is in the way: it is a {is} and no link")).hint(
                    "what is there is not thrown away for a link: remove it by hand, or by `command` with a guard",
                )
            }
            (State::Absent, _) if now.link.is_none() && now.mounted => {
                Trouble::new(format!("{path} is a mount point, which isn't removed")).hint("unmount it first")
            }
            (State::Absent, _) if now.link.is_none() && !now.mounts_below.is_empty() => {
                Trouble::new(format!("something is mounted below {path}, on {}", now.mounts_below.join(", ")))
                    .hint("unmount it first: to remove the folder would remove what is in there")
            }
            (State::Link(_), Kind::NoParent) if now.link.is_none() => return Some(no_folder_yet(path, now)),
            _ => return None,
        };
        Some(Obstacle::stops(trouble))
    }

    fn premises(&self, now: Option<&Found>) -> Vec<Premise> {
        let (replaced, changed) = (Premise::Replaced(self.path.clone()), Premise::Changed(self.path.clone()));
        let path = match (now, &self.state) {
            (None, _) => vec![replaced, changed],
            (Some(_), State::Link(_) | State::Absent) => vec![replaced],
            (Some(now), _) if attributes(now).is_none() => vec![replaced],
            _ => vec![changed],
        };
        path.into_iter().chain(self.wanted.premises()).collect()
    }

    fn warnings(&self, now: &Found) -> Vec<String> {
        match &self.state {
            State::Link(src)
                if now.link.as_ref() == Some(src)
                    && matches!(now.kind, Kind::Absent | Kind::NoParent | Kind::Blocked) =>
            {
                vec![format!("{} points to {src}, and nothing is there", self.path)]
            }
            _ => Vec::new(),
        }
    }
}

impl File {
    fn question(&self) -> String {
        match self.state {
            State::Absent => WholeFile::bytes(&self.path),
            _ => WholeFile::attributes(&self.path),
        }
    }
}

/// What is there, if anything; a link is one even if it leads nowhere.
fn what(now: &Found) -> Option<&'static str> {
    if now.link.is_some() {
        return Some("link");
    }
    match now.kind {
        Kind::File(..) => Some("file"),
        Kind::Directory(_) => Some("directory"),
        Kind::Other(_) => Some("device, socket or pipe"),
        Kind::Absent | Kind::NoParent | Kind::Blocked => None,
    }
}

fn attributes(now: &Found) -> Option<&Attributes> {
    match &now.kind {
        Kind::File(attributes, _) | Kind::Directory(attributes) | Kind::Other(attributes) => Some(attributes),
        Kind::Absent | Kind::NoParent | Kind::Blocked => None,
    }
}

/// What a link of this path with this text points to.
fn absolute(path: &str, src: &str) -> String {
    let folder = folders(path).next().unwrap_or_default();
    let whole = if src.starts_with('/') { src.to_owned() } else { format!("{folder}/{src}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Each folder that is missing is made with what is wanted, as Ansible does, from the top. No link is followed that took
/// the place of a folder just made.
const MAKE: &str = r#"d= rest=${p#/}/
while [ -n "$rest" ]; do
  d=$d/${rest%%/*}; rest=${rest#*/}
  [ ! -d "$d" ] || continue
  mkdir ${m:+-m "$m"} -- "$d" || exit 1
  [ -z "$o" ] || chown -h -- "$o" "$d" || exit 1
done"#;

/// The link is made beside its place and renamed, so that it is there at any moment. An old busybox' mv lacks -T.
const LINK: &str = r#"t=${f%/*}/.netplay-link
rm -f -- "$t" && ln -sn -- "$src" "$t" || exit 1
mv -fT -- "$t" "$f" 2>/dev/null && exit
rm -f -- "$t"
if [ -d "$f" ] && [ ! -L "$f" ]; then echo "$f is a folder" >&2; exit 1; fi
ln -sfn -- "$src" "$f""#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, name, parse, settle};
    use proptest::prelude::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn any_path_and_any_link(names in prop::collection::vec(name(), 3..4), src in "[^\u{0}]{1,20}") {
            let dir = tempfile::tempdir().unwrap();
            for shell in Shell::ALL {
                let root = dir.path().join(format!("{shell:?}"));
                let path = root.join(&names[0]).join(&names[1]);
                let text = path.to_str().unwrap();
                let folder: File = parse(&[("path", text), ("state", "directory"), ("mode", "0750")]).unwrap();
                settle(shell, &folder).unwrap();
                prop_assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
                prop_assert_eq!(fs::metadata(&root).unwrap().mode() & 0o7777, 0o750);
                prop_assert!(settle(shell, &folder).unwrap().changes.is_empty());

                let link_path = path.join(&names[2]);
                let link_text = link_path.to_str().unwrap();
                for src in ["first", src.as_str()] {
                    let link: File = parse(&[("path", link_text), ("state", "link"), ("src", src)]).unwrap();
                    settle(shell, &link).unwrap();
                    prop_assert_eq!(fs::read_link(&link_path).unwrap(), Path::new(src));
                    prop_assert!(settle(shell, &link).unwrap().changes.is_empty());
                }
                prop_assert_eq!(fs::read_dir(&path).unwrap().count(), 1);

                let absent: File = parse(&[("path", text), ("state", "absent")]).unwrap();
                settle(shell, &absent).unwrap();
                prop_assert!(!path.exists() && root.join(&names[0]).is_dir());
                prop_assert!(settle(shell, &absent).unwrap().changes.is_empty());
            }
        }
    }

    #[test]
    fn a_link_that_another_user_put_into_a_common_folder_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| dir.path().join(name);
            let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
            fs::create_dir(path("common")).unwrap();
            fs::set_permissions(path("common"), fs::Permissions::from_mode(0o1777)).unwrap();
            fs::write(path("victim"), "x").unwrap();
            fs::set_permissions(path("victim"), fs::Permissions::from_mode(0o600)).unwrap();
            symlink(path("victim"), path("common/link")).unwrap();
            let link = path("common/link").display().to_string();
            let wanted: File = parse(&[("path", &link), ("mode", "0666")]).unwrap();
            // One's own is followed.
            settle(shell, &wanted).unwrap();
            assert_eq!(mode("victim"), 0o666, "{shell:?}");
            // Only root can make it another user's.
            if rustix::process::geteuid().is_root() {
                fs::set_permissions(path("victim"), fs::Permissions::from_mode(0o600)).unwrap();
                lchown(path("common/link"), Some(65534), None).unwrap();
                let said = settle(shell, &wanted).unwrap_err();
                assert!(said.contains("isn't followed"), "{shell:?}: {said}");
                assert_eq!(mode("victim"), 0o600, "{shell:?}");
            }
        }
    }

    #[test]
    fn links_are_removed_and_not_what_they_point_to() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("kept")).unwrap();
            fs::write(dir.path().join("kept/x"), "").unwrap();
            symlink("kept", dir.path().join("link")).unwrap();
            let path = format!("{}/link", dir.path().display());
            let absent: File = parse(&[("path", &path), ("state", "absent")]).unwrap();
            settle(shell, &absent).unwrap();
            assert!(fs::symlink_metadata(&path).is_err() && dir.path().join("kept/x").exists(), "{shell:?}");
        }
    }

    #[test]
    fn a_link_to_a_folder_is_replaced_and_not_entered() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("folder")).unwrap();
            symlink("folder", dir.path().join("link")).unwrap();
            let path = format!("{}/link", dir.path().display());
            let link: File = parse(&[("path", &path), ("state", "link"), ("src", "other")]).unwrap();
            settle(shell, &link).unwrap();
            assert_eq!(fs::read_link(&path).unwrap().to_str(), Some("other"), "{shell:?}");
            assert_eq!(fs::read_dir(dir.path().join("folder")).unwrap().count(), 0, "{shell:?}");
        }
    }

    #[test]
    fn setgid_of_a_folder_is_set_and_taken_away() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), Permissions::from_mode(0o2755)).unwrap();
            let path = format!("{}/x/y", dir.path().display());
            for mode in ["0755", "02750", "0700"] {
                let folder: File = parse(&[("path", &path), ("state", "directory"), ("mode", mode)]).unwrap();
                settle(shell, &folder).unwrap();
                let wanted = u32::from_str_radix(mode, 8).unwrap();
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, wanted, "{shell:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_made_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let path = format!("{}/file/x", dir.path().display());
        let folder: File = parse(&[("path", &path), ("state", "directory")]).unwrap();
        assert_eq!(
            settle(Shell::Dash, &folder).unwrap_err(),
            format!("{path} can't be: {}, or what it stands on, is no folder", dir.path().join("file").display())
        );
        let owner: File = parse(&[("path", dir.path().to_str().unwrap()), ("owner", "no such user")]).unwrap();
        assert!(settle(Shell::Dash, &owner).unwrap_err().contains("invalid user"));
    }

    #[test]
    fn what_a_link_comes_after() {
        for (src, target) in [("x", "/a/b/x"), ("../x", "/a/x"), ("/x/./y", "/x/y"), ("../../../..", "/")] {
            assert_eq!(absolute("/a/b/link", src), target);
        }
    }
}
