//! `service`: units of systemd, as they run and as they start at boot.

mod risk;

pub(crate) use risk::says_how_it_is_reached;
#[cfg(test)]
mod tests;
mod unit;

use self::unit::{Enabled, Run, Trigger, Triggers, Unit, UnitFiles, Units, full_name, template};
use super::owner::OwnerList;
use super::package;
use super::probes::links::LinkList;
use super::probes::session::SessionEnds;
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, NOTHING_LASTS, Need, Obstacle, Question, Reading, Resource, Risk, Stale, Step, Trouble,
    Undo,
};
use crate::error::Error;
use crate::shell::Script;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A unit of systemd.
#[derive(Debug)]
pub struct Service {
    /// Its full name, as it was asked for.
    unit: String,
    state: Option<Wanted>,
    enabled: Option<bool>,
    masked: Option<bool>,
    /// In the root of an image: no systemd runs there.
    image: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Started,
    Stopped,
    Restarted,
    Reloaded,
}

/// The kind of claim of who has a unit run, now or from the next boot on.
pub(super) const RUNS: &str = "running unit";

/// What a probe found.
#[derive(Debug)]
pub struct State {
    unit: Unit,
    /// What can start it by itself, where it is to be stopped.
    triggers: BTreeMap<String, Trigger>,
    /// The interface that carries the session, where it is this unit's and may not be at the next boot.
    carries: Option<String>,
}

impl Wanted {
    fn word(self) -> &'static str {
        match self {
            Wanted::Started => "started",
            Wanted::Stopped => "stopped",
            Wanted::Restarted => "restarted",
            Wanted::Reloaded => "reloaded",
        }
    }
}

impl Service {
    /// Whether it has to be stopped or started, to be as `state` says.
    fn moves(&self, now: &State) -> bool {
        let unit = &now.unit;
        match self.state {
            Some(Wanted::Started) => unit.run() == Run::No,
            Some(Wanted::Stopped) => unit.get("ActiveState") != "inactive",
            _ => false,
        }
    }

    /// The sockets that would start it again.
    fn sockets<'a>(&self, now: &'a State) -> impl Iterator<Item = &'a str> {
        let own: Vec<&str> = now.unit.get("TriggeredBy").split_whitespace().collect();
        let stop = self.state == Some(Wanted::Stopped);
        now.triggers
            .iter()
            .filter(move |(name, t)| stop && t.active && name.ends_with(".socket") && own.contains(&name.as_str()))
            .map(|(name, _)| name.as_str())
    }

    fn mask_changes(&self, now: &State) -> bool {
        let state = now.unit.get("UnitFileState");
        match self.masked {
            Some(true) => state != "masked" && !self.mask_blocked(now),
            Some(false) => matches!(state, "masked" | "masked-runtime"),
            None => false,
        }
    }

    /// Whether its own file is where the mask, a link, would be.
    fn mask_blocked(&self, now: &State) -> bool {
        let path = now.unit.get("FragmentPath");
        now.unit.enabled() != Enabled::Masked && path.strip_prefix("/etc/systemd/system/") == Some(&now.unit.id)
    }

    /// Whether `systemctl enable` or `disable` has to be run.
    fn links_change(&self, now: &State) -> bool {
        match (self.enabled, now.unit.enabled()) {
            (Some(true), Enabled::No | Enabled::Runtime) => true,
            (Some(true), Enabled::Masked) => self.masked == Some(false),
            (Some(false), Enabled::Yes | Enabled::Runtime) => true,
            _ => false,
        }
    }

    fn short(&self) -> &str {
        self.unit.strip_suffix(".service").unwrap_or(&self.unit)
    }

    /// A script that goes on only if nobody is locked out by a configuration of sshd that isn't valid.
    fn sound(&self, script: Script, id: &str, back: &str) -> Script {
        if !risk::lets_in(id) {
            return script;
        }
        script.set("unit", id).set("back", back).line(include_str!("sound.sh"))
    }

    /// The owners of interfaces that this unit carries out, where it isn't to run from the next boot on.
    fn owner(&self) -> Option<&'static [&'static str]> {
        let off = self.enabled == Some(false) || self.masked == Some(true);
        match self.short() {
            "systemd-networkd" if off && !self.image => Some(&["networkd", "netplan"]),
            "NetworkManager" if off && !self.image => Some(&["networkmanager", "ifcfg"]),
            _ => None,
        }
    }

    /// A step of systemctl.
    fn systemctl(&self, verb: &[&str], units: &[&str]) -> Step {
        let words = ["systemctl", if self.image { "--root=/" } else { "--no-ask-password" }];
        let end = ["--"];
        let words = words.iter().chain(verb).chain(end.iter().filter(|_| !units.is_empty())).chain(units);
        Step::Run(Script::new().command(words.copied()))
    }
}

impl Resource for Service {
    type State = State;
    const TYPE: &'static str = "service";
    const SUMMARY: &'static str = "A unit of systemd: whether it runs, and whether it starts at boot";
    const TOUCHES: &'static str = "\
        The unit, by `systemctl`: that it runs, the links in `/etc/systemd/system` that enable or mask it; \
        systemd reads unit files anew if one has changed. No unit file is written.";
    const KEYS: &'static [Key] = &[
        Key::required("name", "string", "The unit; without a suffix it is a service."),
        Key::optional(
            "state",
            "started | stopped | restarted | reloaded",
            "Whether it runs. The last two are for handlers. Stopping it stops the sockets that would start it again.",
        ),
        Key::optional("enabled", "boolean", "Whether it starts at boot."),
        Key::optional("masked", "boolean", "Whether nothing at all can start it."),
        Key::refused("daemon_reload", "it is done by itself when a unit file has changed; leave it out"),
        Key::refused("daemon_reexec", "use a `command` in a handler: `systemctl daemon-reexec`"),
        Key::refused("scope", "only units of the system are managed; leave it out"),
        Key::refused("no_block", "a state is only reached when it is there; leave it out"),
        Key::refused("force", "remove the links that stand in the way by a `file` with `state: absent`"),
        Key::refused("use", "systemd is the only one; leave it out"),
        Key::refused("pattern", "systemd knows whether a unit runs; leave it out"),
        Key::refused("sleep", "systemd waits by itself; leave it out"),
        Key::refused("runlevel", "`enabled` goes by the unit's own [Install] section; leave it out"),
        Key::refused("arguments", "write them into a drop-in of the unit"),
    ];
    const EXAMPLE: &'static str = "\
- name: interrupts are spread over the cores
  service: {name: irqbalance, state: started, enabled: true}
";

    fn parse(spec: &Spec<'_>) -> Result<Service, Error> {
        let node = spec.need("name")?;
        let unit = full_name(&spec.need_text("name")?).map_err(|t| {
            let error = Error::playbook(&node.span, t.message);
            t.hint.into_iter().fold(error, Error::hint)
        })?;
        let all = [Wanted::Started, Wanted::Stopped, Wanted::Restarted, Wanted::Reloaded];
        let word = spec.choice("state", &all.map(Wanted::word))?;
        let state = all.into_iter().find(|w| Some(w.word()) == word);
        let (enabled, masked) = (spec.bool("enabled")?, spec.bool("masked")?);
        if let (Some(Wanted::Restarted | Wanted::Reloaded), false, Some(at)) = (state, spec.handler, spec.get("state"))
        {
            return Err(Error::playbook(
                &at.span,
                format!("`state: {}` is for handlers only", word.unwrap_or_default()),
            )
            .hint("put it under `handlers:` and `notify` it from what makes it necessary"));
        }
        if state.is_none() && enabled.is_none() && masked.is_none() {
            return Err(Error::playbook(
                &spec.node.span,
                "`service` needs one of the keys `state`, `enabled` and `masked`",
            ));
        }
        if let (Some(true), Some(at)) = (masked, spec.get("masked")) {
            let other = if enabled == Some(true) { Some("enabled: true".to_owned()) } else { None };
            let state = state.filter(|s| *s != Wanted::Stopped).map(|s| format!("state: {}", s.word()));
            if let Some(other) = other.or(state) {
                let message = format!("`masked: true` and `{other}` exclude each other");
                return Err(
                    Error::playbook(&at.span, message).hint("a unit that is masked can't be started by anything")
                );
            }
        }
        let state = state.filter(|_| !spec.image);
        Ok(Service { unit, state, enabled, masked, image: spec.image })
    }

    fn identity(&self) -> String {
        self.short().to_owned()
    }

    fn claims(&self) -> Vec<Claim> {
        let runs = matches!(self.state, Some(Wanted::Started | Wanted::Restarted)) || self.enabled == Some(true);
        let runs = runs.then(|| Claim::new(RUNS, &self.unit));
        [Claim::new("unit", &self.unit)].into_iter().chain(runs).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        let folders = ["/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];
        let names: Vec<String> = [Some(self.unit.clone()), template(&self.unit)].into_iter().flatten().collect();
        let of = |folder: &&str| {
            let files = names.iter().map(|name| format!("{folder}/{name}")).collect::<Vec<_>>();
            files.into_iter().flat_map(|f| [Need::AfterBelow(format!("{f}.d")), Need::After(Claim::new("path", f))])
        };
        folders.iter().flat_map(of).chain(package::of_name(self.short())).collect()
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        if self.image {
            return vec![Question::of::<UnitFiles>(&self.unit)];
        }
        let mut questions = vec![Question::of::<Units>(&self.unit)];
        if self.state == Some(Wanted::Stopped) {
            questions.push(Question::of::<Triggers>(&self.unit));
        }
        if self.owner().is_some() {
            questions.extend([OwnerList::ask(), LinkList::ask(), SessionEnds::ask()]);
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found =
            if self.image { answers.get::<UnitFiles>(&self.unit)? } else { answers.get::<Units>(&self.unit)? };
        let Some(unit) = found.clone() else {
            return Ok(Reading::NotYet(Trouble::new(format!("there is no unit {} on this host", self.unit)).hint(
                "check its name, or install what brings it before this; a name that is an `Alias=` is there once \
                         its unit is enabled: use the unit's own, or `after`",
            )));
        };
        let triggers = match self.state {
            Some(Wanted::Stopped) => answers.get::<Triggers>(&self.unit)?.clone(),
            _ => BTreeMap::new(),
        };
        let carries = self.owner().and_then(|owner| {
            // What can't be found out is no reason to fail.
            let links = answers.get::<LinkList>("").ok()?;
            let link = answers.get::<SessionEnds>("").ok()?.interface(links)?;
            OwnerList::of(answers)
                .ok()?
                .all(link)
                .iter()
                .any(|owned| owner.contains(&owned.owner.name()))
                .then(|| link.name.clone())
        });
        Ok(Reading::State(State { unit, triggers, carries }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let unit = &now.unit;
        let mut changes = Vec::new();
        if unit.outdated {
            changes.push(Change::now("unit file", "changed since it was loaded", "loaded"));
        }
        if let Some(masked) = self.masked.filter(|_| self.mask_changes(now)) {
            let from = match unit.get("UnitFileState") {
                "masked-runtime" => Json::from("masked-runtime"),
                state => Json::from(state == "masked"),
            };
            changes.push(Change::now("masked", from, masked));
        }
        if let Some(enabled) = self.enabled.filter(|_| self.links_change(now)) {
            let from = match unit.enabled() {
                Enabled::Yes => Json::from(true),
                Enabled::No => Json::from(false),
                _ => Json::from(unit.get("UnitFileState")),
            };
            changes.push(Change::now("enabled", from, enabled));
        }
        changes.extend(self.sockets(now).map(|socket| Change::now(socket, "started", "stopped")));
        if let Some(state) = self.state.filter(|_| self.moves(now) || self.action()) {
            changes.push(Change::now("state", unit.state(), state.word()));
        }
        changes
    }

    fn verify(&self, now: &State) -> Vec<Change> {
        let mut left = self.diff(now);
        left.retain(|c| c.field != "state");
        let wanted = match self.state {
            Some(Wanted::Stopped) => self.moves(now).then_some("stopped"),
            Some(_) => (now.unit.run() == Run::No).then_some("started"),
            None => None,
        };
        let state = match now.unit.state() {
            state if state == "stopped" && now.unit.get("ConditionResult") == "yes" => {
                "stopped (it was started and ended by itself)".to_owned()
            }
            state => state,
        };
        left.extend(wanted.map(|wanted| Change::now("state", state, wanted)));
        left
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let (unit, id) = (&now.unit, now.unit.id.as_str());
        let mut steps = Vec::new();
        if self.masked == Some(false) && self.mask_changes(now) {
            steps.push(self.systemctl(&["unmask"], &[id]));
            if unit.get("UnitFileState") == "masked-runtime" {
                steps.push(self.systemctl(&["unmask", "--runtime"], &[id]));
            }
        }
        if unit.outdated {
            steps.push(self.systemctl(&["daemon-reload"], &[]));
        }
        let links = self.enabled.filter(|_| self.links_change(now));
        if let Some(enabled) = links {
            steps.push(self.systemctl(&[if enabled { "enable" } else { "disable" }], &[id]));
            if !enabled && unit.enabled() == Enabled::Runtime {
                steps.push(self.systemctl(&["disable", "--runtime"], &[id]));
            }
            if unit.get("UnitFileState") == "generated" {
                // Its links are seen by its generator only.
                steps.push(self.systemctl(&["daemon-reload"], &[]));
            }
        }
        let verb = match self.state {
            // A start would wait for the time that is set between two tries (systemd, src/core/service.c).
            Some(Wanted::Started) if unit.get("SubState") == "auto-restart" => Some("restart"),
            Some(Wanted::Started) if self.moves(now) => Some("start"),
            Some(Wanted::Restarted) => Some("restart"),
            Some(Wanted::Reloaded) => Some("reload-or-restart"),
            _ => None,
        };
        if let Some(verb) = verb {
            let script = Script::new().set("verb", verb).set("unit", id).set("type", unit.get("Type"));
            let script = if self.action() { self.sound(script, id, "") } else { script };
            let fresh = if self.action() { "1" } else { "" };
            steps.push(Step::Run(script.set("fresh", fresh).line(include_str!("start.sh"))));
        }
        let sockets: Vec<&str> = self.sockets(now).collect();
        if self.state == Some(Wanted::Stopped) && (self.moves(now) || !sockets.is_empty()) {
            if risk::lets_in(id) {
                steps.push(Step::Run(self.sound(Script::new(), id, "")));
            }
            let units: Vec<&str> = sockets.into_iter().chain([id]).collect();
            steps.push(self.systemctl(&["stop"], &units));
            if unit.get("ActiveState") == "failed" {
                steps.push(self.systemctl(&["reset-failed"], &[id]));
            }
            let forget = Script::new().set("unit", id).line("rm -f -- \"/run/netplay/started/$unit\"");
            steps.push(Step::Run(forget));
        }
        if self.masked == Some(true) && self.mask_changes(now) {
            steps.push(self.systemctl(&["mask"], &[id]));
        }
        steps
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let (unit, id) = (&now.unit, &now.unit.id);
        let starts = self.state.is_some_and(|s| s != Wanted::Stopped);
        let (trouble, partly) = if unit.enabled() == Enabled::Masked
            && self.masked.is_none()
            && (starts || self.enabled == Some(true))
        {
            (Trouble::new(format!("{id} is masked")).hint("`masked: false` lifts that"), false)
        } else if let Some(error) = unit.load_error().filter(|_| !unit.outdated && (starts || self.enabled.is_some())) {
            (Trouble::new(error).hint("mend its file; `systemd-analyze verify` tells what is wrong in it"), false)
        } else if self.masked == Some(true) && self.mask_blocked(now) {
            let path = unit.get("FragmentPath");
            let message = format!("{id} can't be masked, since its file is where the mask would be: {path}");
            (Trouble::new(message).hint("move the file to /usr/local/lib/systemd/system, or remove it"), true)
        } else if self.enabled == Some(false) && unit.alias && self.links_change(now) {
            let message =
                format!("{} is a name that {id} has while it is enabled, so it would be gone then", self.unit);
            (Trouble::new(message).hint(format!("write `name: {id}`")), false)
        } else if self.state == Some(Wanted::Reloaded) && unit.run() == Run::Yes && unit.get("CanReload") == "no" {
            let message = format!("{id} can't be reloaded: its file has no ExecReload=");
            (Trouble::new(message).hint("use `state: restarted`"), false)
        } else if self.enabled == Some(true) && unit.enabled() == Enabled::Fixed(false) {
            let state = unit.get("UnitFileState");
            let why = match state {
                "transient" | "generated" => "it was made at run time",
                "indirect" => "its [Install] section only names other units (Also=)",
                _ => "it has no [Install] section",
            };
            let message = format!("{id} is {state} and can't be enabled: {why}, and nothing else starts it at boot");
            (Trouble::new(message).hint("give it a WantedBy= by a drop-in, or enable what starts it"), true)
        } else {
            return None;
        };
        Some(if partly { Obstacle::lasts(trouble) } else { Obstacle::stops(trouble) })
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let (unit, id) = (&now.unit, &now.unit.id);
        let mut warnings = Vec::new();
        let off = (self.enabled == Some(false) && self.links_change(now))
            || (self.masked == Some(true) && self.mask_changes(now));
        if off && risk::lets_in(id) {
            warnings.push(format!("{id} lets sessions in: after the next boot nobody gets in unless something else does; nothing confirms that"));
        } else if off && let Some(link) = &now.carries {
            warnings.push(format!(
                "{id} configures {link}, which carries the session: after the next boot the host can't be reached unless something \
                 else does; nothing confirms that"
            ));
        }
        if self.state == Some(Wanted::Started) || self.action() {
            match unit.run() {
                Run::Unmet => warnings.push(format!("{id} doesn't run, since its start condition isn't met on this host")),
                Run::Forgotten => warnings.push(format!(
                    "{id} doesn't run: its start succeeded, and either its start condition isn't met or it ended at once"
                )),
                Run::Yes | Run::No => {}
            }
        }
        if let (Some(enabled), Enabled::Fixed(true)) = (self.enabled, unit.enabled()) {
            let (state, by) = (unit.get("UnitFileState"), unit.pulled_by().join(", "));
            let remedy = if enabled { "" } else { "; `masked: true` keeps it from starting" };
            let verb = if enabled { "enabled" } else { "disabled" };
            warnings.push(format!("{id} is {state} and can't be {verb}: {by} starts it{remedy}"));
        }
        for name in unit.get("TriggeredBy").split_whitespace() {
            let Some(trigger) = now.triggers.get(name) else { continue };
            if trigger.active && !name.ends_with(".socket") {
                warnings.push(format!("{name} is active and can start {id} again"));
            } else if trigger.enabled && self.enabled != Some(true) {
                warnings.push(format!("{name} is enabled and can start {id} again after a boot"));
            }
        }
        warnings
    }

    fn undo(&self, now: &State) -> Option<Undo> {
        let id = now.unit.id.as_str();
        let script = |verb: &str| Script::new().command(["systemctl", verb, "--", id]);
        let again = |verb: &str| self.sound(Script::new(), id, "1").command(["systemctl", verb, "--", id]);
        let mut undo = Undo { steps: vec![Script::new().command(["systemctl", "daemon-reload"])], ..Undo::default() };
        if self.masked == Some(true) && self.mask_changes(now) {
            undo.steps.push(script("unmask"));
        }
        if let Some(enabled) = self.enabled.filter(|_| self.links_change(now)) {
            undo.steps.push(script(if enabled { "disable" } else { "enable" }));
        }
        match self.state {
            Some(Wanted::Restarted) => undo.steps.push(again("restart")),
            Some(Wanted::Reloaded) => undo.steps.push(again("reload-or-restart")),
            Some(Wanted::Stopped) => {
                undo.steps.extend(
                    self.sockets(now).chain([id]).map(|unit| Script::new().command(["systemctl", "start", "--", unit])),
                );
            }
            Some(Wanted::Started) if self.moves(now) => undo.steps.push(script("stop")),
            _ => {}
        }
        if self.masked == Some(false) && self.mask_changes(now) {
            undo.steps.push(script("mask"));
        }
        Some(undo)
    }

    fn risk(&self, now: &State) -> Risk {
        let verb = match self.state {
            Some(Wanted::Restarted) => "a restart",
            Some(Wanted::Reloaded) => "a reload",
            Some(Wanted::Stopped) if self.moves(now) || self.sockets(now).next().is_some() => "a stop",
            // A start of what isn't there yet may bring rules and addresses too.
            Some(Wanted::Started) if self.moves(now) && !now.unit.id.starts_with("ssh") => "a start",
            _ => return Risk::None,
        };
        let found = [now.unit.id.as_str(), &self.unit].into_iter().find_map(risk::of);
        found.map_or(Risk::None, |does| Risk::Link(format!("{verb} of {} {does}", now.unit.id)))
    }

    fn live_only(&self) -> Option<&'static str> {
        (self.enabled.is_none() && self.masked.is_none()).then_some(NOTHING_LASTS)
    }

    fn action(&self) -> bool {
        matches!(self.state, Some(Wanted::Restarted | Wanted::Reloaded))
    }
}
