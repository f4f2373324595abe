//! Units of systemd: their names, and what `systemctl show` says of them.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;
use std::iter::once;

/// The state of units, of all by one `systemctl show`. An argument is a full name: `irqbalance.service`.
pub(super) struct Units;

/// The state of units of an image, whose files are all there is of them. As for [`Units`]; of a unit's properties only
/// those that files tell are there.
pub(super) struct UnitFiles;

/// What can start units by itself, with its state: the sockets, timers and paths that trigger them.
pub(super) struct Triggers;

/// A unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// Its own name, where it was asked for by an alias.
    pub(super) id: String,
    /// It was asked for by an alias that its being enabled made.
    pub(super) alias: bool,
    /// Something on disk isn't what systemd has loaded.
    pub(super) outdated: bool,
    /// It was started by netplay in this boot, was inactive right after it, and systemd has no memory of such a unit.
    pub(super) started: bool,
    properties: BTreeMap<String, String>,
}

/// A trigger of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trigger {
    pub(super) active: bool,
    pub(super) enabled: bool,
}

/// Whether a unit runs, as far as `state: started` means it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    /// It does, or it is of a kind that did its work in this boot, with success.
    Yes,
    /// It was started, but its start condition isn't met (`Condition…=` in its file).
    Unmet,
    /// It was started, and systemd, which told that as a success, doesn't tell whether it ran.
    Forgotten,
    /// It doesn't.
    No,
}

/// What starts a unit at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enabled {
    /// Its own links.
    Yes,
    /// Nothing.
    No,
    /// Links of this boot only.
    Runtime,
    /// It is masked, so nothing can.
    Masked,
    /// It has no links of its own to make; whether something else pulls it in.
    Fixed(bool),
}

/// The full name of a unit, as systemctl takes it: a name without a known suffix is a service.
pub(super) fn full_name(name: &str) -> Result<String, Trouble> {
    let wrong = |why: &str, hint: &str| Err(Trouble::new(format!("`{name}` is no unit: {why}")).hint(hint.to_owned()));
    const SUFFIXES: [&str; 11] =
        ["service", "socket", "timer", "target", "path", "mount", "automount", "swap", "slice", "scope", "device"];
    if name.contains('/') {
        return wrong("it is a path", "write the unit's name, such as `irqbalance`");
    }
    if name.is_empty()
        || name.starts_with('-')
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b))
    {
        return wrong(
            "names have letters, digits and `:-_.\\@`",
            "write one unit, such as `irqbalance`; for several use `loop`",
        );
    }
    let known = name.rsplit_once('.').is_some_and(|(stem, suffix)| !stem.is_empty() && SUFFIXES.contains(&suffix));
    let full = if known { name.to_owned() } else { format!("{name}.service") };
    if full.len() > 255 {
        return wrong("it is longer than 255 characters", "check it");
    }
    let stem = full.rsplit_once('.').map_or(full.as_str(), |(stem, _)| stem);
    if stem.ends_with('@') {
        return wrong("it is a template", "name an instance of it, such as `getty@tty1`");
    }
    Ok(full)
}

/// The template of an instance: `getty@.service` of `getty@tty1.service`.
pub(super) fn template(unit: &str) -> Option<String> {
    let (stem, suffix) = unit.rsplit_once('.')?;
    let (name, instance) = stem.split_once('@')?;
    (!instance.is_empty()).then(|| format!("{name}@.{suffix}"))
}

impl Unit {
    /// A property as `systemctl show` prints it; empty where it isn't there.
    pub(super) fn get(&self, property: &str) -> &str {
        self.properties.get(property).map_or("", String::as_str)
    }

    fn after_boot(&self, timestamp: &str) -> bool {
        !matches!(self.get(timestamp), "" | "0")
    }

    /// Whether it runs.
    pub(super) fn run(&self) -> Run {
        match self.get("ActiveState") {
            "active" | "reloading" | "refreshing" => Run::Yes,
            "inactive" if self.get("Result") == "success" => {
                let oneshot = self.get("Type") == "oneshot" && self.get("RemainAfterExit") != "yes";
                let known = self.after_boot("ConditionTimestampMonotonic");
                match known {
                    true if self.get("ConditionResult") == "no" => Run::Unmet,
                    true if oneshot && self.after_boot("ExecMainExitTimestampMonotonic") => Run::Yes,
                    false if self.started && oneshot => Run::Yes,
                    false if self.started => Run::Forgotten,
                    _ => Run::No,
                }
            }
            _ => Run::No,
        }
    }

    /// Its state in the words of the key `state`, or in systemd's where there are none.
    pub(super) fn state(&self) -> String {
        match (self.get("ActiveState"), self.get("SubState")) {
            ("active", _) => "started".to_owned(),
            ("inactive", _) => "stopped".to_owned(),
            ("failed", _) => format!("failed ({})", self.get("Result")),
            ("activating", "auto-restart") => "failing again and again".to_owned(),
            (active, _) => active.to_owned(),
        }
    }

    /// What starts it at boot.
    pub(super) fn enabled(&self) -> Enabled {
        let pulled = !self.pulled_by().is_empty();
        match self.get("UnitFileState") {
            "enabled" => Enabled::Yes,
            "enabled-runtime" => Enabled::Runtime,
            "masked" | "masked-runtime" => Enabled::Masked,
            // A start script of old: `systemctl enable` makes its links in /etc/rc?.d, which its generator reads.
            "generated" if self.get("SourcePath").contains("/init.d/") => {
                if pulled {
                    Enabled::Yes
                } else {
                    Enabled::No
                }
            }
            "static" | "indirect" | "generated" | "transient" | "alias" => Enabled::Fixed(pulled),
            _ => Enabled::No,
        }
    }

    /// The units that start it.
    pub(super) fn pulled_by(&self) -> Vec<&str> {
        ["WantedBy", "RequiredBy", "TriggeredBy"].iter().flat_map(|p| self.get(p).split_whitespace()).collect()
    }

    /// Why it can't be loaded, if it can't.
    pub(super) fn load_error(&self) -> Option<String> {
        matches!(self.get("LoadState"), "bad-setting" | "error" | "stub" | "merged").then(|| {
            // Printed as `org.freedesktop.systemd1.BadUnitSetting "Unit x.service has a bad unit file setting."`.
            let error = self.get("LoadError");
            let words = error.split_once(" \"").map_or(error, |(_, words)| words.trim_end_matches('"'));
            format!("{} can't be loaded: {}", self.id, words.trim_end_matches('.'))
        })
    }
}

/// The blocks of `systemctl show`.
fn blocks(text: &str) -> impl Iterator<Item = BTreeMap<String, String>> + '_ {
    let pairs = |block: &str| {
        block.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    text.split("\n\n").filter(|b| !b.trim().is_empty()).map(pairs)
}

impl Group for Units {
    /// Nothing where there is no such unit.
    type Answer = Option<Unit>;
    const NAME: &'static str = "units";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(include_str!("units.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Option<Unit>, Trouble>> {
        let text = outputs[0].text();
        let (head, shown) = match text.strip_prefix('\n') {
            Some(shown) => ("", shown),
            None => text.split_once("\n\n").unwrap_or((&text, "")),
        };
        if let Some(first) = head.strip_prefix("offline ") {
            let trouble =
                Trouble::new(format!("this host isn't run by systemd: its first process is {}", first.trim()))
                    .hint("`service` drives systemd only; use `command` here");
            return vec![Err(trouble); args.len()];
        }
        let shown: Vec<_> = blocks(shown).collect();
        if shown.len() != args.len() {
            let said = String::from_utf8_lossy(outputs[0].stderr.trim_ascii()).into_owned();
            let told = format!("systemctl show told of {} units out of {}: {said}", shown.len(), args.len());
            return vec![Err(Trouble::new(told)); args.len()];
        }
        let notes: Vec<Vec<&str>> = head.lines().map(|l| l.splitn(3, ' ').collect()).collect();
        let unit = |(name, properties): (&&str, BTreeMap<String, String>)| {
            let mut unit = Unit { id: (*name).to_owned(), properties, ..Unit::default() };
            let names: Vec<&str> = once(*name).chain(unit.get("Names").split_whitespace()).collect();
            let noted = |kind: &str| notes.iter().any(|n| n[0] == kind && n.get(1).is_some_and(|n| names.contains(n)));
            let loaded: Vec<&str> = unit.get("DropInPaths").split_whitespace().collect();
            let new = |note: &Vec<&str>| match note[..] {
                ["dropin", name, path] => names.contains(&name) && !loaded.contains(&path) && !path.contains(' '),
                _ => false,
            };
            let missing = unit.get("LoadState") == "not-found";
            if missing && !noted("file") {
                return Ok(None);
            }
            let outdated = missing || unit.get("NeedDaemonReload") == "yes" || notes.iter().any(new);
            let (started, id) = (noted("started"), unit.get("Id").to_owned());
            let alias = id != *name && notes.iter().any(|n| n[..] == ["file", *name]);
            if !id.is_empty() {
                unit.id = id;
            }
            (unit.outdated, unit.started, unit.alias) = (outdated, started, alias);
            Ok(Some(unit))
        };
        args.iter().zip(shown).map(unit).collect()
    }
}

impl Group for UnitFiles {
    /// Nothing where there is no such unit.
    type Answer = Option<Unit>;
    const NAME: &'static str = "unit files";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(include_str!("files.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Option<Unit>, Trouble>> {
        if outputs[0].code != 0 {
            return vec![Err(Trouble::new(outputs[0].complaint())); args.len()];
        }
        Units::split(args, outputs)
    }
}

impl Group for Triggers {
    /// Of all arguments together, by name.
    type Answer = BTreeMap<String, Trigger>;
    const NAME: &'static str = "unit triggers";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(include_str!("triggers.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Self::Answer, Trouble>> {
        if outputs[0].code != 0 {
            let trouble = Trouble::new(format!("systemctl show failed: {}", outputs[0].complaint()));
            return vec![Err(trouble); args.len()];
        }
        let trigger = |mut block: BTreeMap<String, String>| {
            let active = block.get("ActiveState").is_some_and(|s| s == "active" || s == "activating");
            let enabled = block.get("UnitFileState").is_some_and(|s| s.starts_with("enabled"));
            Some((block.remove("Id")?, Trigger { active, enabled }))
        };
        let all: BTreeMap<String, Trigger> = blocks(&outputs[0].text()).filter_map(trigger).collect();
        vec![Ok(all); args.len()]
    }
}
