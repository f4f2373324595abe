//! `kernel_module`: modules of the kernel, with their parameters, as they are loaded and as they are at the next boot.
//!
//! A module that is loaded with other parameters is never unloaded for that: what can be written while it is loaded is
//! written, and the rest waits for the next boot.

mod boot;
mod loses;
mod parameters;
mod probe;
mod value;

use self::boot::Line;
use self::probe::{Declared, Live, Modules};
use self::value::same;
use super::keyfile::Edit;
use super::probes::premise::{self, Premise};
use super::probes::small::SmallFile;
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, Effect, FileDiff, Need, Obstacle, Put, Question, Reading, Resource, Stale, Step, Trouble,
};
use crate::error::Error;
use crate::shell::Script;
use serde_json::Value as Json;

/// A kernel module.
#[derive(Debug)]
pub struct KernelModule {
    /// With `_` for `-`, as the kernel shows it.
    name: String,
    present: bool,
    parameters: Vec<(String, String)>,
    persist: bool,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    found: probe::Found,
    /// The parameters that the module of the running kernel takes, where that is known.
    declared: Option<Vec<String>>,
    /// The bytes of our file in modprobe.d, if it is there.
    options: Option<Vec<u8>>,
    /// The bytes of our file in modules-load.d.
    list: Option<Vec<u8>>,
}

/// The kind of claim that a module is.
pub const KIND: &str = "kernel module";

/// The file of modules-load.d(5) that names a module for the next boot.
pub fn list_of(module: &str) -> String {
    format!("/etc/modules-load.d/{module}.conf")
}

/// The steps of an edit of it.
pub fn list_steps(edit: &Edit) -> Vec<Step> {
    vec![Step::Run(Script::new().line("mkdir -p /etc/modules-load.d")), edit.step()]
}

impl KernelModule {
    /// Our file of modprobe.d(5). Files are read in the order of their names, and the last value of an option wins.
    fn options_file(&self) -> String {
        format!("/etc/modprobe.d/zz-netplay-{}.conf", self.name)
    }

    /// What it is to hold; nothing if it isn't to be there.
    fn options(&self, now: &State) -> Option<String> {
        let ours = self.options_file();
        if !self.present {
            let denied = now.found.boot.says("blacklist", &self.name).any(|line| line.path != ours);
            return (!denied).then(|| format!("blacklist {}\n", self.name));
        }
        if self.parameters.is_empty() || now.found.live == Live::BuiltIn {
            return None;
        }
        // Where others have set all of them as wanted, ours isn't needed.
        let others = |(key, value): &(String, String)| {
            let found = now.found.boot.option(&self.name, key);
            found.is_some_and(|(line, got)| line.path != ours && same(value, got))
        };
        if now.options.is_none() && self.parameters.iter().all(others) {
            return None;
        }
        let words: Vec<String> = self.parameters.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        Some(format!("options {}{}\n", self.name, words.concat()))
    }

    /// Whether our file of options has to be written or removed.
    fn options_differ(&self, now: &State) -> bool {
        self.persist && self.options(now).map(String::into_bytes) != now.options
    }

    /// The edit of the list of modules for the next boot, if it needs one.
    fn list(&self, now: &State) -> Option<Edit> {
        let mut lines = now.found.boot.loads(&self.name);
        let path = list_of(&self.name);
        let edit = Edit::of(&path);
        match self.present {
            _ if !self.persist => None,
            true => (now.found.live != Live::BuiltIn && lines.next().is_none()).then(|| edit.append(&self.name)),
            false => {
                let ours: Vec<&Line> = lines.filter(|line| line.path == path).collect();
                (!ours.is_empty()).then(|| ours.iter().fold(edit, |edit, line| edit.remove(line.words.join(" "))))
            }
        }
    }
}

impl Resource for KernelModule {
    type State = State;
    const TYPE: &'static str = "kernel_module";
    const SUMMARY: &'static str = "A module of the kernel with its parameters, loaded now and at the next boot";
    const TOUCHES: &'static str = "\
        The module, by `modprobe`, and `/etc/modules-load.d/NAME.conf` and `/etc/modprobe.d/zz-netplay-NAME.conf`. \
        A module that is loaded with other parameters is left loaded.";
    const KEYS: &'static [Key] = &[
        Key::required(
            "name",
            "string",
            "The module. `-` and `_` are the same. One that is built in is as good as loaded.",
        ),
        Key::default(
            "state",
            "present | absent",
            "present",
            "`absent` unloads it if nothing uses it, and for the next boot takes it off the list and blacklists it: that \
             keeps the kernel from loading it for a device, not other modules that need it.",
        ),
        Key::optional(
            "params",
            "mapping",
            "Its parameters and their values. One that the loaded module doesn't have (in /sys/module/NAME/parameters or `modinfo -p`) is an error. One that a loaded module lets write is written; otherwise it waits for \
             the next boot, since a module is never unloaded for that.",
        ),
        Key::default(
            "persist",
            "boolean",
            "true",
            "Whether it is so after a boot too, by /etc/modules-load.d/NAME.conf and \
             /etc/modprobe.d/zz-netplay-NAME.conf.",
        ),
        Key::refused("persistent", "it is called `persist`, and takes true or false"),
    ];
    const EXAMPLE: &'static str = "\
- name: connection tracking before its sysctls
  kernel_module: {name: nf_conntrack, params: {hashsize: 262144}}
";

    fn parse(spec: &Spec<'_>) -> Result<KernelModule, Error> {
        let node = spec.need("name")?;
        let name = spec.need_text("name")?;
        if !parameters::is_name(&name) {
            let stem = name.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
            let error = Error::playbook(&node.span, format!("`{name}` is no name of a module"));
            let fits = !stem.is_empty() && parameters::is_name(stem);
            return Err(if fits {
                error.hint(format!("write `{stem}`"))
            } else {
                error.hint("names have letters, digits, `_` and `-`")
            });
        }
        let present = spec.choice("state", &["present", "absent"])? != Some("absent");
        let parameters = parameters::parse(spec)?;
        if let (false, Some(node)) = (present, spec.get("params").filter(|_| !parameters.is_empty())) {
            return Err(
                Error::playbook(&node.span, "a module that is absent has no parameters").hint("leave `params` out")
            );
        }
        let persist = spec.bool("persist")?.unwrap_or(true);
        Ok(KernelModule { name: name.replace('-', "_"), present, parameters, persist })
    }

    fn identity(&self) -> String {
        self.name.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![Claim::new(KIND, &self.name)];
        if self.persist {
            claims.push(Claim::part("options of", &self.options_file(), &self.name));
            claims.push(Claim::part("list with", &list_of(&self.name), &self.name));
        }
        claims
    }

    fn needs(&self, now: Option<&State>) -> Vec<Need> {
        let folders = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"];
        let below = |top: &&str| ["modprobe.d", "modules-load.d"].map(|d| Need::AfterBelow(format!("{top}/{d}")));
        // What uses a module goes before it.
        let users = now.filter(|_| !self.present).into_iter().flat_map(|now| &now.found.holders);
        folders.iter().flat_map(below).chain(users.map(|user| Need::After(Claim::new(KIND, user)))).collect()
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = vec![Question::of::<Modules>(&self.name)];
        if self.persist {
            questions.extend([self.options_file(), list_of(&self.name)].map(SmallFile::ask));
        }
        if !self.parameters.is_empty() {
            questions.push(Question::of::<Declared>(&self.name));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found = answers.get::<Modules>(&self.name)?.clone();
        let bytes = |path: String| Ok(answers.get::<SmallFile>(&path)?.bytes()?.map(<[u8]>::to_vec));
        let (options, list) =
            if self.persist { (bytes(self.options_file())?, bytes(list_of(&self.name))?) } else { (None, None) };
        if self.present && found.live == Live::Absent {
            let (name, kernel) = (&self.name, &found.kernel);
            let trouble = if found.fixed {
                Trouble::new(format!("{name} isn't there, and this kernel ({kernel}) loads no modules"))
                    .hint("it has to be built into the kernel")
            } else if found.bare {
                Trouble::new(format!(
                    "this host has no modules of the kernel that runs: there is no /lib/modules/{kernel}"
                ))
                .hint(
                    "a container uses the kernel of its host, where the module has to be loaded; on a machine whose \
                         kernel was replaced, boot the new one first",
                )
            } else {
                Trouble::new(format!("there is no module {name} for the kernel that runs ({kernel})"))
                    .hint("check its name, or install the package that brings it before this")
            };
            if found.fixed || !found.known {
                return Ok(Reading::NotYet(trouble));
            }
        }
        let declared = match self.parameters.is_empty() {
            true => None,
            false => answers.get::<Declared>(&self.name)?.clone(),
        };
        Ok(Reading::State(State { found, declared, options, list }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let mut changes = Vec::new();
        let live = now.found.live;
        match (self.present, live) {
            (true, Live::Absent) => changes.push(Change::now("live", Json::Null, "loaded")),
            (false, Live::Loaded) => changes.push(Change::now("live", "loaded", Json::Null)),
            _ => {}
        }
        for (key, value, got, writable) in self.live(now) {
            let effect = if writable { Effect::Now } else { Effect::Reboot };
            changes.push(Change { effect, ..Change::now(key, got, value) });
        }
        if self.list(now).is_some() {
            let (from, to) = if self.present { (None, Some("loaded")) } else { (Some("loaded"), None) };
            changes.push(Change::now("at boot", from, to));
        }
        if self.options_differ(now) {
            let show = |text: Option<String>| text.map(|t| t.trim_end().replace('\n', "; "));
            let was = now.options.as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
            changes.push(Change::now("modprobe.d", show(was), show(self.options(now))));
        }
        changes
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.options_differ(now) {
            let path = self.options_file();
            match self.options(now) {
                Some(body) => {
                    steps.push(Step::Run(Script::new().line("mkdir -p /etc/modprobe.d")));
                    steps.push(Step::Put(Put {
                        path,
                        body: body.into_bytes(),
                        mode: 0o644,
                        owner: None,
                        backup: false,
                        validate: None,
                        in_place: false,
                    }));
                }
                None => steps.push(Step::Run(Script::new().set("f", &path).line("rm -f -- \"$f\""))),
            }
        }
        steps.extend(self.list(now).iter().flat_map(list_steps));
        match (self.present, now.found.live) {
            (true, Live::Absent) => {
                let words = self.parameters.iter().map(|(key, value)| format!("{key}={value}"));
                let script = Script::new().args([self.name.clone()].into_iter().chain(words));
                steps.push(Step::Run(script.line(LOAD)));
            }
            (false, Live::Loaded) if !now.found.in_use() => {
                steps.push(Step::Run(Script::new().command(["rmmod", &self.name])));
            }
            _ => {}
        }
        steps.extend(self.writes(now));
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        let mut files: Vec<FileDiff> = Vec::new();
        if self.options_differ(now) {
            let after = self.options(now).map(String::into_bytes);
            files.push(FileDiff { path: self.options_file(), before: now.options.clone(), after, edit: None });
        }
        files.extend(self.list(now).map(|edit| edit.preview(now.list.as_deref())));
        files
    }

    fn premises(&self, now: Option<&State>) -> Vec<Premise> {
        match now {
            None if self.persist => [self.options_file(), list_of(&self.name)].map(Premise::Replaced).into(),
            None => Vec::new(),
            Some(now) => premise::of_files(self.files(now)),
        }
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let found = &now.found;
        if !self.present && found.live == Live::BuiltIn {
            let message = format!("{} is built into the kernel, so it can't be absent", self.name);
            return Some(Obstacle::stops(Trouble::new(message)));
        }
        // One that isn't loaded may have more than modinfo lists.
        if found.live != Live::Absent
            && let Some(trouble) = Trouble::all(self.unknown_troubles(now))
        {
            return Some(Obstacle::stops(trouble));
        }
        let mut troubles = self.loses(now);
        if !self.present && found.live == Live::Loaded && found.in_use() {
            let by = match (found.holders.as_slice(), found.interfaces.as_slice()) {
                ([], [_, ..]) => format!("by {}, which would be gone without it", found.interfaces.join(", ")),
                ([], []) => {
                    format!("{} times, by what is no module (an interface, a connection, a program)", found.users)
                }
                (holders, _) => format!("by {}", holders.join(", ")),
            };
            troubles.push(
                Trouble::new(format!("{} is in use {by}, so it isn't unloaded", self.name)).hint("end what uses it"),
            );
        }
        // Shown parameters are all that a loaded module lets be read; an unknown one is ignored by the kernel.
        let (messages, hints): (Vec<String>, Vec<_>) = troubles.into_iter().map(|t| (t.message, t.hint)).unzip();
        let mut hints: Vec<String> = hints.into_iter().flatten().collect();
        hints.dedup();
        (!messages.is_empty()).then(|| Obstacle::lasts(Trouble::new(messages.join("; ")).hint(hints.join("; "))))
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = self.parameter_warnings(now);
        let name = &self.name;
        if self.options_differ(now) {
            warnings.push(format!(
                "if the initramfs has {name}, what is written for the next boot holds only when it is built anew \
                 (`update-initramfs -u`, `dracut --force`)"
            ));
        }
        warnings
    }

    fn brings(&self) -> bool {
        self.present
    }

    fn live_only(&self) -> Option<&'static str> {
        Some("which modules a kernel has and has built in is only known where it runs")
    }
}

/// Arguments: the module and its parameters.
const LOAD: &str = r#"command -v modprobe >/dev/null || { echo "modprobe isn't on this host: install kmod"; exit 1; }
w=$(modprobe -- "$@" 2>&1) && exit
printf '%s\n' "$w"
case $w in
  *'not permitted'*) echo "the kernel refused: a container may not load modules, nor may root under Secure Boot load unsigned ones" ;;
esac
exit 1"#;
