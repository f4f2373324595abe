//! `sysctl`: kernel parameters, live and at the next boot.
//!
//! Live is what `/proc/sys` reads back, always, since writers can return success for what the kernel refused (procps'
//! `sysctl -w` does so for a read-only parameter). At boot is what systemd-sysctl makes of all of its files: a line of
//! ours that another file overrides is a failure that names that file.

mod boot;
mod key;
#[cfg(test)]
mod tests;
mod value;

use self::boot::{Boot, BootFiles, Winner, assignment};
use self::key::Parameter;
use super::keyfile::Edit;
use super::probes::small::{Small, SmallFile};
use super::spec::{Key, Spec, text};
use super::{Answers, Change, Claim, FileDiff, Need, Obstacle, Put, Question, Reading, Resource, Stale, Step, Trouble};
use crate::error::Error;
use crate::shell::Script;
use crate::yaml::{Node, Value};
use serde_json::Value as Json;

/// Kernel parameters.
#[derive(Debug)]
pub struct Sysctl {
    settings: Vec<Setting>,
    /// The file of the next boot; nothing with `persist: false`.
    file: Option<String>,
    ignore_missing: bool,
}

/// One parameter and what it is to be.
#[derive(Debug)]
struct Setting {
    key: Parameter,
    /// Squashed; nothing with `state: absent`.
    value: Option<String>,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    /// What each parameter reads, squashed, in the order of the settings; nothing where it isn't there.
    live: Vec<Option<String>>,
    /// The next boot, if it is asked about.
    persistent: Option<Persistent>,
    /// The module of a congestion control.
    module: Option<Module>,
}

#[derive(Debug)]
struct Persistent {
    boot: Boot,
    /// The bytes of our file, if it is there.
    text: Option<Vec<u8>>,
    /// Its lines that count, with their text.
    lines: Vec<(boot::Assignment, String)>,
}

/// A congestion control is a module of its own, `tcp_bbr`, which the kernel loads when the value is written. It is
/// loaded before systemd-sysctl runs by a line in a file of modules-load.d(5).
#[derive(Debug)]
struct Module {
    name: String,
    file: String,
    /// The kernel has it, without a module.
    built_in: bool,
    text: Option<Vec<u8>>,
}

const CONGESTION: &str = "net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const QDISC: &str = "net/core/default_qdisc";

impl Sysctl {
    /// The congestion control that is asked for, if its name can be that of a module.
    fn module(&self) -> Option<(String, String)> {
        let wanted = self.settings.iter().find(|s| s.key.path() == CONGESTION)?.value.as_ref()?;
        let good = !wanted.is_empty() && wanted.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        (good && self.file.is_some()).then(|| {
            let name = format!("tcp_{wanted}");
            (format!("/etc/modules-load.d/{name}.conf"), name)
        })
    }

    /// Each setting with what it reads.
    fn each<'a>(&'a self, now: &'a State) -> impl Iterator<Item = (&'a Setting, Option<&'a str>)> {
        self.settings.iter().zip(now.live.iter().map(Option::as_deref))
    }

    /// The settings that can be written live and have to be.
    fn to_write<'a>(&'a self, now: &'a State) -> impl Iterator<Item = (&'a Setting, &'a str, &'a str)> {
        self.each(now).filter_map(|(setting, live)| {
            let (wanted, live) = (setting.value.as_deref()?, live?);
            (!setting.is(live) && setting.unfit(live).is_none()).then_some((setting, wanted, live))
        })
    }

    /// The settings that our file has to have or to lose, with the lines of it that are about them. What can't be set or
    /// wouldn't win isn't written.
    fn to_persist<'a>(&'a self, now: &'a State) -> Vec<(&'a Setting, Vec<&'a (boot::Assignment, String)>)> {
        let Some(persistent) = &now.persistent else { return Vec::new() };
        let mut found = Vec::new();
        for (setting, live) in self.each(now) {
            let lines: Vec<_> = persistent.lines.iter().filter(|(a, _)| a.path == setting.key.path()).collect();
            let is = |(a, _): &&(boot::Assignment, String)| a.value.as_deref().is_some_and(|v| setting.is(v));
            let wrong = match live {
                _ if setting.value.is_none() => !lines.is_empty(),
                None if !self.ignore_missing => false,
                Some(live) if setting.unfit(live).is_some() => false,
                _ => !lines.last().is_some_and(is) && self.loses(setting, persistent).is_none(),
            };
            if wrong {
                found.push((setting, lines));
            }
        }
        found
    }

    /// The edit of our file, if it needs one.
    fn edit(&self, now: &State) -> Option<Edit> {
        let pending = self.to_persist(now);
        let mut edit = Edit::of(self.file.as_ref().filter(|_| !pending.is_empty())?);
        for (setting, lines) in pending {
            let new = setting.value.as_ref().map(|value| format!("{} = {value}", setting.key));
            let (first, others) = match (lines.split_first(), &new) {
                (Some((first, others)), Some(new)) => {
                    edit = edit.replace(&first.1, new);
                    (Some(&first.1), others)
                }
                (None, Some(new)) => {
                    edit = edit.append(new);
                    (None, &[][..])
                }
                (_, None) => (None, &lines[..]),
            };
            for (_, line) in others.iter().filter(|(_, line)| Some(line) != first) {
                edit = edit.remove(line);
            }
        }
        Some(edit)
    }

    /// Why the line of our file would not win at boot, if it wouldn't.
    fn loses(&self, setting: &Setting, persistent: &Persistent) -> Option<Trouble> {
        let (key, file) = (&setting.key, self.file.as_deref()?);
        match persistent.boot.winner(file, key.path()) {
            Winner::Own => None,
            Winner::Other(_, other) if other.value.as_deref().is_some_and(|v| setting.is(v)) => None,
            Winner::Other(path, other) => {
                let says = match &other.value {
                    Some(value) => format!("at boot {value} wins: {path}:{}", other.line),
                    None => format!("at boot it isn't set, by the line `-{key}`: {path}:{}", other.line),
                };
                let remedy = format!("remove that line, or let `file` name one that comes after {path}");
                Some(Trouble::new(self.about(key, &says)).hint(remedy))
            }
            Winner::Unread(why) => Some(Trouble::new(self.about(key, &why)).hint("leave `file` out, or link the file")),
        }
    }

    /// What is said of one parameter, by its name where the resource has several.
    fn about(&self, key: &Parameter, says: &str) -> String {
        if self.settings.len() == 1 { says.to_owned() } else { format!("{key}: {says}") }
    }
}

impl Setting {
    /// Whether a value that is read is the one that is wanted.
    fn is(&self, got: &str) -> bool {
        self.value.as_ref().is_some_and(|wanted| value::same(self.key.path(), wanted, got))
    }

    /// Why its value can't be written, where that can be seen from the one that is read.
    fn unfit(&self, got: &str) -> Option<Trouble> {
        value::unfit(&self.key, self.value.as_deref()?, got)
    }
}

impl Module {
    fn pending(&self) -> bool {
        !self.built_in && !self.lines().any(|line| line == self.name.as_bytes())
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.text.iter().flat_map(|t| t.split(|&b| b == b'\n')).map(<[u8]>::trim_ascii)
    }

    fn body(&self) -> Vec<u8> {
        let mut body = self.text.clone().unwrap_or_default();
        body.extend_from_slice(self.name.as_bytes());
        body.push(b'\n');
        body
    }
}

impl Resource for Sysctl {
    type State = State;
    const TYPE: &'static str = "sysctl";
    const SUMMARY: &'static str = "Kernel parameters, live and at the next boot";
    const KEYS: &'static [Key] = &[
        Key::optional("name", "string", "One parameter, with dots or slashes: `net.ipv4.conf.eth0/100.rp_filter`."),
        Key::optional("value", "string", "Its value. White space is squashed."),
        Key::optional("values", "mapping", "Several parameters and their values, instead of `name` and `value`."),
        Key::default(
            "state",
            "present | absent",
            "present",
            "`absent` takes the parameters out of the file and leaves their live values.",
        ),
        Key::default(
            "file",
            "path",
            "/etc/sysctl.d/99-zz-netplay.conf",
            "The boot file that has the lines. Other lines of it stay, and several resources can share it.",
        ),
        Key::default("persist", "boolean", "true", "Whether the values are there after a boot too."),
        Key::default(
            "ignore_missing",
            "boolean",
            "false",
            "Whether a parameter that isn't on the host passes; it is written for the next boot all the same.",
        ),
        Key::refused("key", "the parameter is called `name`"),
        Key::refused("val", "it is called `value`"),
        Key::refused("sysctl_file", "it is called `file`"),
        Key::refused("sysctl_set", "values are always set live too; leave it out"),
        Key::refused("reload", "only what differs is set, and live values need no reload; leave it out"),
        Key::refused("ignoreerrors", "it is called `ignore_missing`, and only lets missing parameters pass"),
    ];
    const EXAMPLE: &'static str = "\
- name: socket buffers for 100 Gb/s and more
  sysctl:
    values:
      net.core.rmem_max: 134217728
      net.core.wmem_max: 134217728
      net.ipv4.tcp_rmem: 4096 131072 134217728
";

    fn parse(spec: &Spec<'_>) -> Result<Sysctl, Error> {
        let absent = spec.choice("state", &["present", "absent"])? == Some("absent");
        let persist = spec.bool("persist")?.unwrap_or(true);
        if let (true, false, Some(node)) = (absent, persist, spec.node.get("persist")) {
            return Err(Error::playbook(&node.span, "`state: absent` with `persist: false` is nothing to do")
                .hint("`absent` takes parameters out of the boot file; live values can't be absent"));
        }
        let settings = settings(spec, absent)?;
        let file = spec.path("file")?.unwrap_or_else(|| "/etc/sysctl.d/99-zz-netplay.conf".to_owned());
        let folder = boot::rank(&file).map(|i| boot::FOLDERS[i]);
        let read = file == boot::CLASSIC || (folder.is_some_and(|f| f != "/run/sysctl.d") && file.ends_with(".conf"));
        if let (false, Some(node)) = (read && !file.contains('\n'), spec.get("file")) {
            return Err(Error::playbook(&node.span, format!("`{file}` isn't read at boot"))
                .hint("name a file whose name ends in `.conf` in /etc/sysctl.d, or leave `file` out"));
        }
        let ignore_missing = spec.bool("ignore_missing")?.unwrap_or(false);
        Ok(Sysctl { settings, file: persist.then_some(file), ignore_missing })
    }

    fn identity(&self) -> String {
        self.settings.first().map(|s| s.key.to_string()).unwrap_or_default()
    }

    fn claims(&self) -> Vec<Claim> {
        self.settings.iter().map(|s| Claim::new("sysctl", s.key.to_string())).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        if self.file.is_none() {
            return Vec::new();
        }
        let folders = boot::FOLDERS.iter().map(|f| Need::AfterBelow((*f).to_owned()));
        folders.chain([Need::After(Claim::new("path", boot::CLASSIC))]).collect()
    }

    fn stale_after(&self) -> Stale {
        if self.file.is_none() { Stale::Never } else { Stale::AnyDependency }
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions: Vec<_> = self.settings.iter().map(|s| SmallFile::ask(s.key.file())).collect();
        if let Some(file) = &self.file {
            questions.extend([SmallFile::ask(file), Question::of::<BootFiles>("")]);
        }
        if let Some((file, name)) = self.module() {
            let loadable = format!("/sys/module/{name}/initstate");
            questions.extend([file, loadable, AVAILABLE.to_owned()].map(SmallFile::ask));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let small = |path: &str| answers.get::<SmallFile>(path);
        let bytes = |path: &str| match small(path)? {
            Small::Absent => Ok(None),
            Small::Text(bytes) => Ok(Some(bytes.clone())),
            Small::Unreadable(why) => Err(why.clone()),
        };
        let live = |s: &Setting| Ok(small(&s.key.file())?.text()?.map(|t| value::squash(&t)));
        let live = self.settings.iter().map(live).collect::<Result<Vec<_>, Trouble>>()?;
        let persistent = match &self.file {
            None => None,
            Some(file) => {
                let text = bytes(file)?;
                let content = String::from_utf8_lossy(text.as_deref().unwrap_or_default()).into_owned();
                let lines = content.lines().enumerate();
                let lines = lines.filter_map(|(i, l)| Some((assignment(i + 1, l)?, l.to_owned()))).collect();
                Some(Persistent { boot: answers.get::<BootFiles>("")?.clone(), text, lines })
            }
        };
        let module = match self.module() {
            None => None,
            Some((file, name)) => {
                let loadable = !matches!(small(&format!("/sys/module/{name}/initstate"))?, Small::Absent);
                let available = small(AVAILABLE)?.value()?.unwrap_or_default();
                let known = available.split_whitespace().any(|word| name.strip_prefix("tcp_") == Some(word));
                Some(Module { built_in: known && !loadable, text: bytes(&file)?, file, name })
            }
        };
        Ok(Reading::State(State { live, persistent, module }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let mut changes: Vec<Change> = self
            .to_write(now)
            .map(|(setting, wanted, live)| Change::now(setting.key.to_string(), value::json(live), value::json(wanted)))
            .collect();
        for (setting, lines) in self.to_persist(now) {
            let own = lines.last().map(|(a, _)| a.value.as_deref());
            let from = own.unwrap_or_else(|| now.persistent.as_ref().and_then(|p| p.boot.value(setting.key.path())));
            let json = |v: Option<&str>| v.map_or(Json::Null, value::json);
            let field = format!("{} at boot", setting.key);
            changes.push(Change::now(field, json(from), json(setting.value.as_deref())));
        }
        if let Some(module) = now.module.as_ref().filter(|m| m.pending()) {
            changes.push(Change::now(format!("module {} at boot", module.name), Json::Null, "loaded"));
        }
        changes
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        let edit = self.edit(now);
        let live: Vec<String> = self
            .to_write(now)
            .flat_map(|(setting, wanted, _)| {
                let exact = if value::reads_back(setting.key.path(), wanted) { "exact" } else { "" };
                [setting.key.to_string(), setting.key.file(), wanted.to_owned(), exact.to_owned()]
            })
            .collect();
        if !live.is_empty() || edit.is_some() {
            let mut script = Script::new().args(live).line(include_str!("live.sh"));
            if let Some(edit) = edit {
                script = edit.after(script, include_str!("persist.sh"));
            }
            steps.push(Step::Run(script.line("[ \"$bad\" = ' ' ]")));
        }
        if let Some(module) = now.module.as_ref().filter(|m| m.pending()) {
            steps.push(Step::Run(Script::new().line("mkdir -p /etc/modules-load.d")));
            steps.push(Step::Put(Put {
                path: module.file.clone(),
                body: module.body(),
                mode: 0o644,
                owner: None,
                backup: false,
                validate: None,
                in_place: false,
            }));
        }
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        let before = now.persistent.as_ref().and_then(|p| p.text.as_deref());
        let mut files: Vec<FileDiff> = self.edit(now).map(|edit| edit.preview(before)).into_iter().collect();
        if let Some(module) = now.module.as_ref().filter(|m| m.pending()) {
            let (before, after) = (module.text.clone(), Some(module.body()));
            files.push(FileDiff { path: module.file.clone(), before, after });
        }
        files
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let mut found: Vec<Trouble> = Vec::new();
        for (setting, live) in self.each(now) {
            let key = &setting.key;
            match live {
                _ if setting.value.is_none() => continue,
                None if !self.ignore_missing => {
                    let says = format!("{key} isn't on this host");
                    found.push(Trouble::new(says).hint(key.missing()));
                    continue;
                }
                Some(live) => {
                    if let Some(why) = setting.unfit(live) {
                        found.push(why);
                        continue;
                    }
                }
                None => {}
            }
            found.extend(now.persistent.as_ref().and_then(|p| self.loses(setting, p)));
        }
        let (messages, hints): (Vec<String>, Vec<_>) = found.into_iter().map(|t| (t.message, t.hint)).unzip();
        let mut hints: Vec<String> = hints.into_iter().flatten().collect();
        hints.dedup();
        let trouble = Trouble::new(messages.join("; ")).hint(hints.join("; "));
        (!messages.is_empty()).then_some(Obstacle::lasts(trouble))
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(persistent) = &now.persistent {
            warnings.extend(persistent.boot.idle().map(str::to_owned));
        }
        for (setting, live) in self.each(now) {
            let (key, path) = (&setting.key, setting.key.path());
            let Some(persistent) = &now.persistent else { continue };
            if setting.value.is_none() {
                if persistent.lines.iter().any(|(a, _)| a.path == path) {
                    let value =
                        live.map_or_else(|| "isn't on this host".to_owned(), |v| format!("keeps its live value {v}"));
                    warnings.push(format!("{key} {value} until the next boot"));
                }
                continue;
            }
            warnings.extend(persistent.boot.rivals(&key.to_string(), path, |v| setting.is(v)));
        }
        for (setting, _) in
            self.each(now).filter(|(s, live)| s.value.is_some() && live.is_none() && self.ignore_missing)
        {
            warnings.push(format!("{} isn't on this host, which `ignore_missing` lets pass", setting.key));
        }
        if self.to_write(now).any(|(setting, ..)| setting.key.path() == QDISC) {
            warnings.push(
                "net.core.default_qdisc holds for queues that are made from now on: interfaces that are up keep theirs \
                 until the next boot or a `tc qdisc replace`"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// The parameters that a resource names.
fn settings(spec: &Spec<'_>, absent: bool) -> Result<Vec<Setting>, Error> {
    let pairs: Vec<(&Node, Option<&Node>)> = match (spec.entries("values")?, spec.get("name")) {
        (Some(_), Some(name)) => {
            return Err(Error::playbook(&name.span, "`name` and `values` exclude each other")
                .hint("write all parameters under `values`"));
        }
        (Some(entries), None) => {
            if let Some(stray) = spec.get("value") {
                return Err(Error::playbook(&stray.span, "`value` goes with `name`, not with `values`"));
            }
            entries.iter().map(|(name, value)| (name, Some(value))).collect()
        }
        (None, Some(name)) => vec![(name, if absent { None } else { Some(spec.need("value")?) })],
        (None, None) => {
            return Err(Error::playbook(&spec.node.span, "`sysctl` needs the key `values`, or `name` and `value`"));
        }
    };
    let mut found: Vec<Setting> = Vec::new();
    for (i, (name, written)) in pairs.iter().enumerate() {
        let key = Parameter::parse(&text("name", name)?).map_err(|t| {
            let error = Error::playbook(&name.span, t.message);
            t.hint.into_iter().fold(error, Error::hint)
        })?;
        if let Some(first) = found.iter().position(|s| s.key == key) {
            let (first, _) = pairs[first];
            return Err(
                Error::playbook(&pairs[i].0.span, format!("`{key}` is named twice")).also(&first.span, "first here")
            );
        }
        let value = written.filter(|_| !absent).map(|node| value(&key, node)).transpose()?;
        found.push(Setting { key, value });
    }
    match spec.get("values") {
        Some(node) if found.is_empty() => Err(Error::playbook(&node.span, "`values` is empty")),
        _ => Ok(found),
    }
}

/// A value as it is written to the kernel: the text as it stands, a truth value of an expression as 1 or 0, a list with
/// blanks between its items.
fn value(key: &Parameter, node: &Node) -> Result<String, Error> {
    if node.is_null() {
        return Err(Error::playbook(&node.span, format!("`{key}` has no value"))
            .hint("write `\"\"` for an empty value, or `state: absent`"));
    }
    let written = match &node.value {
        Value::Bool(on) => u8::from(*on).to_string(),
        Value::Seq(items) => items.iter().map(|item| value(key, item)).collect::<Result<Vec<_>, _>>()?.join(" "),
        _ => text(&key.to_string(), node)?,
    };
    let written = value::squash(&written);
    if written.chars().any(char::is_control) {
        return Err(Error::playbook(&node.span, format!("`{key}` can't have a control character in its value")));
    }
    // The kernel takes one page (fs/proc/proc_sysctl.c).
    if written.len() > 4000 {
        return Err(Error::playbook(&node.span, format!("the value of `{key}` is longer than the kernel takes")));
    }
    Ok(written)
}
