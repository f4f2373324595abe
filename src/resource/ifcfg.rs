//! `ifcfg`: the file of shell assignments that Red Hat's network-scripts, NetworkManager's ifcfg-rh plugin and SUSE's
//! wicked read for an interface.
//!
//! Nothing else is ever put beside the file: whatever begins with `ifcfg-` in that folder is configuration too.

use super::keyfile::Edit;
use super::managed::{folders, no_folder, sum};
use super::owner::assignments::{Assignments, assign, is_key};
use super::owner::{NETWORK_SCRIPTS, OwnerList, Owners};
use super::probes::links::{LinkList, interface};
use super::probes::premise::{self, Premise};
use super::probes::whole::{Attributes, Content, Kind, WholeFile};
use super::{
    Answers, Change, Claim, FileDiff, Key, Need, Obstacle, Put, Question, Reading, Resource, Spec, Step, Trouble, Undo,
};
use crate::error::Error;
use crate::resource::spec::text;
use crate::yaml::{Node, Value as Yaml};
use serde_json::Value;

/// The resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Ifcfg {
    interface: String,
    path: String,
    /// Whether the path was given, and with it the word that something reads it.
    given: bool,
    /// In the root of an image, where nothing runs that could be asked who reads the file.
    image: bool,
    want: Want,
}

#[derive(Debug, PartialEq, Eq)]
enum Want {
    /// These keys, in this order; one without a value is to be absent.
    Keys(Vec<(String, Option<String>)>),
    /// These and no others.
    Only(Vec<(String, String)>),
    /// These bytes.
    Whole(String),
}

/// What is known of the file.
#[derive(Debug)]
pub struct State {
    /// Its bytes, and whose they are; nothing where it isn't there.
    file: Option<(Vec<u8>, Attributes)>,
    assignments: Assignments,
    mounted: bool,
    /// Whether the bytes are what is wanted of them, where bytes are wanted.
    same: bool,
    /// Whether there is something that is no file.
    odd: bool,
    /// That nothing reads it, and what configures the interface.
    unread: Option<String>,
    by_cloud_init: bool,
}

impl Resource for Ifcfg {
    type State = State;
    const TYPE: &'static str = "ifcfg";
    const SUMMARY: &'static str = "The ifcfg file of an interface (Red Hat's network-scripts, SUSE)";
    const TOUCHES: &'static str = "\
        The file, replaced in one go; what isn't in `settings` stays in it. Nothing is restarted or told to read \
        it: that is for a handler.";
    const KEYS: &'static [Key] = &[
        Key::required("interface", "string", "The interface whose file it is."),
        Key::optional(
            "settings",
            "mapping",
            "Keys and values, as text: `ONBOOT: yes` is written `yes`. Values are quoted as a shell needs it. A key \
             with null is removed. Other keys, comments, order and the way of quoting stay.",
        ),
        Key::optional("template", "file", "A template of the whole file, instead of `settings`."),
        Key::default("exclusive", "boolean", "false", "Whether `settings` are all that may be in the file."),
        Key::default(
            "path",
            "path",
            "/etc/sysconfig/network-scripts/ifcfg-<interface>",
            "The file. Given, it is written even where netplay finds nothing that reads it; a warning says so when it is written.",
        ),
        Key::refused(
            "state",
            "remove the file with `file: {path: …, state: absent}`, a key with `settings: {KEY: null}`",
        ),
    ];
    const EXAMPLE: &'static str = "- name: jumbo frames at boot\n  ifcfg:\n    interface: eth0\n    settings: {ONBOOT: \
                                   yes, MTU: 9000}\n";

    fn parse(spec: &Spec<'_>) -> Result<Ifcfg, Error> {
        let interface = interface(spec, "interface")?;
        let path = spec.path("path")?;
        let exclusive = spec.bool("exclusive")?.unwrap_or(false);
        let want = match (spec.entries("settings")?, spec.get("template")) {
            (Some(_), Some(template)) => {
                return Err(Error::playbook(&template.span, "`settings` and `template` exclude each other")
                    .hint("write the settings into the template, or leave it out"));
            }
            (None, None) => {
                return Err(Error::playbook(&spec.node.span, "ifcfg needs the key `settings` or `template`"));
            }
            (None, Some(template)) if exclusive => {
                return Err(Error::playbook(&template.span, "`exclusive` goes with `settings`")
                    .hint("a template is the whole file anyhow: leave `exclusive` out"));
            }
            (None, Some(template)) => Want::Whole(spec.env.template(template)?),
            (Some(entries), None) => settings(entries, exclusive)?,
        };
        Ok(Ifcfg {
            given: path.is_some(),
            image: spec.image,
            path: path.unwrap_or_else(|| format!("{NETWORK_SCRIPTS}/ifcfg-{interface}")),
            interface,
            want,
        })
    }

    fn identity(&self) -> String {
        self.interface.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        match &self.want {
            Want::Keys(keys) => keys.iter().map(|(key, _)| Claim::part("ifcfg", &self.path, key)).collect(),
            Want::Only(_) | Want::Whole(_) => vec![Claim::new("path", &self.path)],
        }
    }

    fn needs(&self, _: Option<&State>) -> Vec<Need> {
        let units = ["NetworkManager.service", "network.service", "wicked.service"];
        let units = units.into_iter().map(|unit| Need::Before(Claim::new("unit", unit)));
        units.chain(folders(&self.path).map(|folder| Need::After(Claim::new("path", folder)))).collect()
    }

    fn probe(&self) -> Vec<Question> {
        let owners = [OwnerList::ask(), LinkList::ask()].into_iter().filter(|_| !self.image);
        std::iter::once(WholeFile::ask(self.question())).chain(owners).collect()
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found = answers.get::<WholeFile>(&self.question())?;
        let owners = if self.image { &Owners::default() } else { OwnerList::of(answers)? };
        let path = &self.path;
        let (mut file, mut odd) = (None, false);
        let unread = (!self.image && owners.reader(path).is_none()).then(|| {
            let owner = answers.get::<LinkList>("").ok().and_then(|links| owners.of(links.get(&self.interface)?));
            match (owner, owners.readers()) {
                (_, readers) if !readers.is_empty() => format!("such files are read by {readers}"),
                (Some(owned), _) => format!("{owned} configures {}", self.interface),
                (None, _) => format!("what configures {} wasn't found either", self.interface),
            }
        });
        match &found.kind {
            Kind::File(attributes, content) => {
                let bytes = match content {
                    Content::Bytes(bytes) => bytes.clone(),
                    Content::Same => self.body().unwrap_or_default().into_bytes(),
                    Content::Unreadable(why) => return Err(why.clone()),
                    Content::TooLarge | Content::Unasked => {
                        return Err(Trouble::new(format!("{path} is too large for a file of settings")));
                    }
                };
                file = Some((bytes, attributes.clone()));
            }
            Kind::NoParent | Kind::Blocked if unread.is_none() || self.given => {
                return Ok(Reading::NotYet(no_folder(path, found)));
            }
            Kind::Absent | Kind::NoParent | Kind::Blocked => {}
            Kind::Directory(_) | Kind::Other(_) => odd = true,
        }
        Ok(Reading::State(State {
            assignments: Assignments::parse(file.as_ref().map_or(&[], |(bytes, _)| bytes.as_slice())),
            file,
            mounted: found.mounted,
            same: matches!(found.kind, Kind::File(_, Content::Same)),
            odd,
            unread,
            by_cloud_init: owners.by_cloud_init(path),
        }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let found = &now.assignments;
        let change = |key: &str, wanted: Option<&str>| {
            let to = wanted.map_or(Value::Null, Value::from);
            (!found.has(key, wanted)).then(|| Change::now(key, found.shown(key), to))
        };
        match &self.want {
            Want::Keys(keys) => keys.iter().filter_map(|(key, value)| change(key, value.as_deref())).collect(),
            Want::Whole(_) if now.same => Vec::new(),
            Want::Whole(text) => {
                let from = now.file.as_ref().map(|(bytes, _)| sum(bytes));
                vec![Change::now("content", from, sum(text.as_bytes()))]
            }
            Want::Only(keys) => {
                let mut changes: Vec<Change> =
                    keys.iter().filter_map(|(key, value)| change(key, Some(value))).collect();
                let mut others: Vec<&str> = found.all.iter().map(|a| a.key.as_str()).collect();
                others.retain(|key| !keys.iter().any(|(k, _)| k == key));
                others.sort_unstable();
                others.dedup();
                changes.extend(others.into_iter().filter_map(|key| change(key, None)));
                if found.other {
                    changes.push(Change::now("other lines", "present", Value::Null));
                }
                changes
            }
        }
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        match self.edit(now) {
            Some(Ok(edit)) => vec![edit.step()],
            Some(Err(_)) => Vec::new(),
            None => vec![Step::Put(Put {
                path: self.path.clone(),
                body: self.body().unwrap_or_default().into_bytes(),
                mode: now.file.as_ref().map_or(0o644, |(_, a)| a.mode),
                owner: now.file.as_ref().map(|(_, a)| format!("{}:{}", a.uid, a.gid)),
                backup: false,
                validate: None,
                in_place: now.mounted,
            })],
        }
    }

    fn undo(&self, _: &State) -> Option<Undo> {
        Some(Undo { files: vec![self.path.clone()], ..Undo::default() })
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        let before = now.file.as_ref().map(|(bytes, _)| bytes.clone());
        match self.edit(now) {
            Some(Ok(edit)) => vec![edit.preview(before.as_deref())],
            Some(Err(_)) => Vec::new(),
            None => vec![FileDiff {
                path: self.path.clone(),
                before,
                after: self.body().map(String::into_bytes),
                edit: None,
            }],
        }
    }

    fn premises(&self, now: Option<&State>) -> Vec<Premise> {
        match now {
            None => vec![Premise::Replaced(self.path.clone())],
            Some(now) => premise::of_files(self.files(now)),
        }
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let total = Obstacle::stops;
        if let Some(why) = now.unread.as_ref().filter(|_| !self.given) {
            return Some(total(
                Trouble::new(format!("nothing on this host reads {}: {why}", self.path))
                    .hint("set it there; or give `path`, if something that netplay doesn't know reads that file"),
            ));
        }
        if now.odd {
            return Some(total(Trouble::new(format!("{} is no file", self.path))));
        }
        match self.edit(now) {
            Some(Err(trouble)) => Some(total(trouble)),
            _ => None,
        }
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = Vec::new();
        // Whoever gives the path has said that something reads it: it is told when it is written, not in every run.
        if let Some(why) = now.unread.as_ref().filter(|_| self.given && !self.diff(now).is_empty()) {
            warnings.push(format!("netplay finds nothing that reads {}: {why}", self.path));
        }
        if now.by_cloud_init {
            warnings.push(format!("{} is made by cloud-init, which may make it again at a boot", self.path));
        }
        warnings
    }
}

impl Ifcfg {
    fn question(&self) -> String {
        match &self.want {
            Want::Whole(text) => WholeFile::compare(&self.path, text.as_bytes()),
            Want::Keys(_) | Want::Only(_) => WholeFile::bytes(&self.path),
        }
    }

    /// All of the file, where it is replaced.
    fn body(&self) -> Option<String> {
        match &self.want {
            Want::Keys(_) => None,
            Want::Only(keys) => Some(keys.iter().map(|(key, value)| assign(key, value) + "\n").collect()),
            Want::Whole(text) => Some(text.clone()),
        }
    }

    /// The edit that sets the keys; nothing where the file is replaced.
    fn edit(&self, now: &State) -> Option<Result<Edit, Trouble>> {
        let Want::Keys(keys) = &self.want else { return None };
        let differ = keys.iter().filter(|(key, value)| !now.assignments.has(key, value.as_deref()));
        Some(
            differ
                .into_iter()
                .try_fold(Edit::of(&self.path), |edit, (key, value)| now.assignments.edit(edit, key, value.as_deref())),
        )
    }
}

/// The keys of `settings`.
fn settings(entries: &[(Node, Node)], exclusive: bool) -> Result<Want, Error> {
    let mut keys = Vec::new();
    for (key, node) in entries {
        let name = text("settings", key)?;
        if !is_key(&name) {
            return Err(Error::playbook(&key.span, format!("`{name}` can't be the name of a shell variable"))
                .hint("letters, digits and underscores"));
        }
        let value = match &node.value {
            Yaml::Bool(true) => Some("yes".to_owned()),
            Yaml::Bool(false) => Some("no".to_owned()),
            _ if node.is_null() => None,
            _ => Some(text(&name, node)?),
        };
        if value.as_ref().is_some_and(|v| v.contains(['\n', '\r'])) {
            return Err(Error::playbook(&node.span, format!("the value of `{name}` can't have a line break in it")));
        }
        if value.is_none() && exclusive {
            return Err(Error::playbook(&node.span, format!("`{name}` has no value"))
                .hint("with `exclusive`, a key that isn't listed is removed: leave it out"));
        }
        keys.push((name, value));
    }
    Ok(match exclusive {
        true => Want::Only(keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()),
        false => Want::Keys(keys),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::AnyResource;
    use crate::resource::trial::{Shell, ask, parse_nodes, settle};
    use crate::source::{Source, Span};
    use proptest::prelude::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn ifcfg(path: &str, settings: &[(&str, Option<&str>)], exclusive: bool) -> Ifcfg {
        let at = Span::start(&Source::new("t", ""));
        let value = |v: &Option<&str>| v.map_or_else(|| Node::plain(&at, "null"), |v| Node::string(&at, v));
        let entries = settings.iter().map(|(k, v)| (Node::string(&at, *k), value(v))).collect();
        parse_nodes(vec![
            ("interface", Node::string(&at, "eth0")),
            ("path", Node::string(&at, path)),
            ("settings", Node::map(&at, entries)),
            ("exclusive", Node::bool(&at, exclusive)),
        ])
        .unwrap()
    }

    #[test]
    fn a_file_is_merged_and_keeps_its_owner_and_its_link() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            let path = |name: &str| format!("{}/{name}", dir.path().display());
            fs::write(path("real"), "# by hand\nMTU=\"1500\"\nGATEWAY=10.0.0.1\n").unwrap();
            fs::set_permissions(path("real"), Permissions::from_mode(0o600)).unwrap();
            symlink("real", path("ifcfg-eth0")).unwrap();
            let settings = [("MTU", Some("9000")), ("GATEWAY", None), ("NAME", Some("System eth0"))];
            let wanted = ifcfg(&path("ifcfg-eth0"), &settings, false);
            settle(shell, &wanted).unwrap();
            let text = fs::read_to_string(path("real")).unwrap();
            assert_eq!(text, "# by hand\nMTU=\"9000\"\nNAME=\"System eth0\"\n", "{shell:?}");
            assert_eq!(fs::metadata(path("real")).unwrap().permissions().mode() & 0o7777, 0o600);
            assert!(fs::symlink_metadata(path("ifcfg-eth0")).unwrap().is_symlink());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside it");
            assert!(settle(shell, &wanted).unwrap().changes.is_empty());
            let only = ifcfg(&path("ifcfg-eth0"), &[("DEVICE", Some("eth0"))], true);
            settle(shell, &only).unwrap();
            assert_eq!(fs::read_to_string(path("real")).unwrap(), "DEVICE=eth0\n", "{shell:?}");
            assert!(settle(shell, &only).unwrap().changes.is_empty());
        }
    }

    #[test]
    fn two_of_one_segment_compose() {
        for shell in Shell::ALL {
            let dir = tempfile::tempdir().unwrap();
            let path = format!("{}/ifcfg-eth0", dir.path().display());
            fs::write(&path, "MTU=1500\nONBOOT=no\n").unwrap();
            let both = [
                ifcfg(&path, &[("MTU", Some("9000")), ("A", Some("1"))], false),
                ifcfg(&path, &[("ONBOOT", Some("yes")), ("B", Some("2"))], false),
            ];
            // Both are planned before either is done.
            let plans = both.each_ref().map(|r| match r.assess(&ask(shell, AnyResource::probe(r))) {
                Ok(Reading::State(plan)) => plan.steps,
                other => panic!("{other:?}"),
            });
            shell.steps(&plans.concat()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "MTU=9000\nONBOOT=yes\nA=1\nB=2\n", "{shell:?}");
            for resource in &both {
                assert!(settle(shell, resource).unwrap().changes.is_empty());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn any_value_in_any_file(
            value in "[^\u{0}\r\n]{0,16}|\u{fffd}",
            other in "[^\u{0}\r\n]{0,16}",
            before in "(K=[a-c]{0,3}\n|# .{0,8}\n|L=\"x y\"\n){0,4}",
        ) {
            let dir = tempfile::tempdir().unwrap();
            for shell in Shell::ALL {
                let path = format!("{}/{shell:?}", dir.path().display());
                fs::write(&path, &before).unwrap();
                for (value, exclusive) in [(&value, false), (&other, false), (&value, true)] {
                    let wanted = ifcfg(&path, &[("K", Some(value))], exclusive);
                    prop_assert_eq!(settle(shell, &wanted).map(|_| ()), Ok(()));
                    prop_assert!(settle(shell, &wanted).unwrap().changes.is_empty());
                    let script = format!(". {path}; printf %s \"$K\"");
                    let read = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
                    prop_assert_eq!(read.stdout, value.as_bytes());
                }
            }
        }
    }
}
