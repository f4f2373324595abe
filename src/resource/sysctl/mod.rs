//! `sysctl`: kernel parameters, live and at the next boot.
//!
//! Live is what `/proc/sys` reads back, always, since writers can return success for what the kernel refused (procps'
//! `sysctl -w` does so for a read-only parameter). At boot is what systemd-sysctl makes of all of its files: a line of
//! ours that another file overrides is a failure that names that file.

mod boot;
mod key;
mod language;
mod module;
#[cfg(test)]
mod tests;
mod value;

use self::boot::{Boot, BootFiles, Winner, assignment};
use self::key::Parameter;
use self::module::Module;
use super::kernel_module;
use super::keyfile::Edit;
use super::probes::premise::{self, Premise};
use super::probes::small::{Small, SmallFile};
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, FileDiff, NOTHING_LASTS, Need, Obstacle, Question, Reading, Resource, Stale, Step, Trouble,
};
use crate::error::Error;
use crate::shell::Script;
use serde_json::Value as Json;

/// Asks what is set at boot.
pub fn survey() -> Question {
    Question::of::<BootFiles>("")
}

/// What a parameter is set to at boot, by its path below `/proc/sys`; nothing where nothing sets it.
///
/// # Errors
/// The host didn't say.
pub fn at_boot(answers: &Answers, path: &str) -> Result<Option<String>, Trouble> {
    Ok(answers.get::<BootFiles>("")?.value(path).map(str::to_owned))
}

/// Kernel parameters.
#[derive(Debug)]
pub struct Sysctl {
    settings: Vec<Setting>,
    /// The file of the next boot; nothing with `persist: false`.
    file: Option<String>,
    ignore_missing: bool,
    /// In the root of an image: there is no running value.
    image: bool,
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
    /// What each parameter reads, squashed, in the order of the settings; nothing where it isn't there, and in an image.
    live: Vec<Option<String>>,
    /// The next boot, if it is asked about.
    persistent: Option<Persistent>,
    /// The module of a congestion control.
    module: Option<module::Found>,
}

#[derive(Debug)]
struct Persistent {
    boot: Boot,
    /// The bytes of our file, if it is there.
    text: Option<Vec<u8>>,
    /// Its lines that count, with their text.
    lines: Vec<(boot::Assignment, String)>,
}

const QDISC: &str = "net/core/default_qdisc";

impl Sysctl {
    /// The module of the congestion control that is asked for.
    fn module(&self) -> Option<Module<'_>> {
        let setting = self.settings.iter().find(|s| s.key.path() == module::PARAMETER)?;
        setting.value.as_deref().and_then(Module::of)
    }

    /// The same where the value is to be there after a boot too.
    fn module_at_boot<'a>(&self, now: &'a State) -> Option<&'a module::Found> {
        now.module.as_ref().filter(|_| self.file.is_some())
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
                None if !self.ignore_missing && !self.image => false,
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

impl Resource for Sysctl {
    type State = State;
    const TYPE: &'static str = "sysctl";
    const SUMMARY: &'static str = "Kernel parameters, live and at the next boot";
    const TOUCHES: &'static str = "\
        The values below `/proc/sys`, and their lines in `file`; for a congestion control that is a module, \
        `/etc/modules-load.d/tcp_NAME.conf` too. All other boot files are only read.";
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
        let settings = language::settings(spec, absent)?;
        let file = spec.path("file")?.unwrap_or_else(|| "/etc/sysctl.d/99-zz-netplay.conf".to_owned());
        let folder = boot::rank(&file).map(|i| boot::FOLDERS[i]);
        let read = file == boot::CLASSIC || (folder.is_some_and(|f| f != "/run/sysctl.d") && file.ends_with(".conf"));
        if let (false, Some(node)) = (read && !file.contains('\n'), spec.get("file")) {
            return Err(Error::playbook(&node.span, format!("`{file}` isn't read at boot"))
                .hint("name a file whose name ends in `.conf` in /etc/sysctl.d, or leave `file` out"));
        }
        let ignore_missing = spec.bool("ignore_missing")?.unwrap_or(false);
        Ok(Sysctl { settings, file: persist.then_some(file), ignore_missing, image: spec.image })
    }

    fn identity(&self) -> String {
        self.settings.first().map(|s| s.key.to_string()).unwrap_or_default()
    }

    fn claims(&self) -> Vec<Claim> {
        self.settings.iter().map(|s| Claim::new("sysctl", s.key.to_string())).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        let modules = self.settings.iter().flat_map(|s| {
            let control =
                (s.key.path() == module::PARAMETER).then(|| format!("tcp_{}", s.value.as_deref().unwrap_or_default()));
            control.into_iter().chain(s.key.modules().map(str::to_owned))
        });
        let mut needs: Vec<Need> = modules.map(|m| Need::After(Claim::new(kernel_module::KIND, m))).collect();
        needs.dedup();
        if self.file.is_none() {
            return needs;
        }
        let folders = boot::FOLDERS.iter().map(|f| Need::AfterBelow((*f).to_owned()));
        needs.extend(folders.chain([Need::After(Claim::new("path", boot::CLASSIC))]));
        needs
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        let live = self.settings.iter().filter(|_| !self.image);
        let mut questions: Vec<_> = live.map(|s| SmallFile::ask(s.key.file())).collect();
        if let Some(file) = &self.file {
            questions.extend([SmallFile::ask(file), Question::of::<BootFiles>("")]);
        }
        questions.extend(self.module().iter().flat_map(|m| m.probe(self.image)));
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let small = |path: &str| answers.get::<SmallFile>(path);
        let bytes = |path: &str| match small(path)? {
            Small::Absent => Ok(None),
            Small::Text(bytes) => Ok(Some(bytes.clone())),
            Small::Unreadable(why) => Err(why.clone()),
        };
        let live = |s: &Setting| {
            if self.image { Ok(None) } else { Ok(small(&s.key.file())?.text()?.map(|t| value::squash(&t))) }
        };
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
        let module = self.module().map(|m| m.read(answers, self.image)).transpose()?;
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
            // Where another file already says the same, it is the line that is missing.
            let (field, from) = match (from, &self.file) {
                (Some(value), Some(file)) if setting.is(value) => (format!("{} in {file}", setting.key), None),
                _ => (format!("{} at boot", setting.key), from),
            };
            changes.push(Change::now(field, json(from), json(setting.value.as_deref())));
        }
        changes.extend(self.module_at_boot(now).and_then(module::Found::change));
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
        steps.extend(self.module_at_boot(now).into_iter().flat_map(module::Found::steps));
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        let before = now.persistent.as_ref().and_then(|p| p.text.as_deref());
        let mut files: Vec<FileDiff> = self.edit(now).map(|edit| edit.preview(before)).into_iter().collect();
        files.extend(self.module_at_boot(now).and_then(module::Found::preview));
        files
    }

    fn premises(&self, now: Option<&State>) -> Vec<Premise> {
        match now {
            None => self.file.iter().cloned().map(Premise::Replaced).collect(),
            Some(now) => premise::of_files(self.files(now)),
        }
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let mut found: Vec<Trouble> = Vec::new();
        for (setting, live) in self.each(now) {
            let key = &setting.key;
            match live {
                _ if setting.value.is_none() => continue,
                None if !self.ignore_missing && !self.image => {
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
        let unknown = now.module.as_ref().and_then(module::Found::unknown);
        found.extend(unknown.iter().map(|(why, _)| (*why).clone()));
        let trouble = Trouble::all(found)?;
        Some(match unknown {
            Some((_, module)) => Obstacle::unless(trouble, vec![module]),
            None => Obstacle::lasts(trouble),
        })
    }

    fn live_only(&self) -> Option<&'static str> {
        self.file.is_none().then_some(NOTHING_LASTS)
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
                if !self.image && persistent.lines.iter().any(|(a, _)| a.path == path) {
                    let value =
                        live.map_or_else(|| "isn't on this host".to_owned(), |v| format!("keeps its live value {v}"));
                    warnings.push(format!("{key} {value} until the next boot"));
                }
                continue;
            }
            warnings.extend(persistent.boot.rivals(&key.to_string(), path, |v| setting.is(v)));
        }
        for (setting, _) in
            self.each(now).filter(|(s, live)| s.value.is_some() && live.is_none() && self.ignore_missing && !self.image)
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
