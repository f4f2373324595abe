//! The contract of resource types, and their registry.
//!
//! A type is one file (a folder where it has back ends), one line in [`TYPES`] and one folder of cases. Every method is
//! pure: no session, no clock, no printing. The engine does all I/O:
//!
//! 1. it asks the host every [`Resource::probe`] question of the play in one execution;
//! 2. [`Resource::read`] makes a state of the answers, or says that it can't be known yet;
//! 3. [`Resource::diff`] says what differs, in values and never in raw bytes: *absent* is not `0` and not the empty
//!    string, what runs and what is there at the next boot are two fields, and both must be right;
//! 4. [`Resource::apply`] gives the steps that mend it, for the state that was read;
//! 5. after the steps the host is probed again and [`Resource::verify`] must be empty: what is left is a failure
//!    (`wanted …, got …`). A type whose steps succeed and whose difference stays is so found out at run time.
//!
//! A probe that failed is an error of the resource ([`Trouble`]), never an empty state.

pub mod assert;
mod attributes;
pub mod cards;
pub mod command;
pub mod copy;
pub mod file;
pub mod firewall_rule;
pub mod firmware;
pub mod ifcfg;
pub mod irq_affinity;
pub mod joint;
pub mod kernel_module;
pub mod keyfile;
pub mod managed;
pub mod mlxconfig;
pub mod mtu;
pub mod nic;
pub mod owner;
pub mod package;
pub mod probes;
pub mod question;
pub mod reapply;
pub mod roce_qos;
pub mod service;
pub mod spec;
pub mod sysctl;
pub mod template;
#[cfg(test)]
pub(crate) mod trial;

pub use joint::{Joint, Share};
pub use question::{Answers, Fragment, Group, Inquiry, Output, Question};
pub use spec::{Env, Key, Predicate, Spec};

use crate::error::Error;
use crate::shell::Script;
use keyfile::Edit;
use probes::premise::{Premise, Premises};
use std::fmt::{self, Debug};
use std::marker::PhantomData;

/// A resource type.
pub trait Resource: Debug + Send + Sync + Sized + 'static {
    /// All that a probe can learn.
    type State: Debug;
    /// The key that names it in a playbook.
    const TYPE: &'static str;
    /// What it is for, in one sentence.
    const SUMMARY: &'static str;
    /// What it changes and keeps on a host, in sentences for the documentation.
    const TOUCHES: &'static str;
    /// Whether it changes interfaces, links or packet filters: with `confirm: {all: true}` that is confirmed over a new
    /// connection also where the session doesn't go over them.
    const LINK: bool = false;
    /// Its keys, which are checked offline before anything is rendered.
    const KEYS: &'static [Key];
    /// A complete entry of `resources:`, shown by the documentation; a test plans it.
    const EXAMPLE: &'static str;

    /// Reads the keys, rendered for one host. Which keys there are has been checked against [`Resource::KEYS`].
    ///
    /// # Errors
    /// What is wrong, at its place.
    fn parse(spec: &Spec<'_>) -> Result<Self, Error>;
    /// Its name among those of its type: `eth0` of `mtu:eth0`.
    fn identity(&self) -> String;
    /// What it owns. The same claim twice on one host is an error of the playbook.
    fn claims(&self) -> Vec<Claim>;
    /// What comes before it or after it if something on the host claims it: what is known offline, and with a state
    /// what that adds.
    fn needs(&self, _now: Option<&Self::State>) -> Vec<Need> {
        Vec::new()
    }
    /// Which changes before it make its probe worthless, so that it is probed again after them.
    fn stale_after(&self) -> Stale {
        Stale::Never
    }
    /// What it asks; read-only. A question that several resources ask is asked once.
    fn probe(&self) -> Vec<Question>;
    /// Makes a state of the answers.
    ///
    /// # Errors
    /// What the probe couldn't find out, and why.
    fn read(&self, answers: &Answers) -> Result<Reading<Self::State>, Trouble>;
    /// What differs from what is wanted.
    fn diff(&self, now: &Self::State) -> Vec<Change>;
    /// The steps that mend it, in order; only asked for where [`Resource::diff`] isn't empty, and of an action.
    fn apply(&self, now: &Self::State) -> Vec<Step>;
    /// What is still wrong after the steps succeeded.
    fn verify(&self, now: &Self::State) -> Vec<Change> {
        self.diff(now)
    }
    /// What is set and waits for no boot any more, as there was one since that didn't bring it. It is told as a warning;
    /// in the visit that booted the host for it, it is a failure.
    fn unapplied(&self, _now: &Self::State) -> Vec<Change> {
        Vec::new()
    }
    /// Files that the steps write, for `--diff`.
    fn files(&self, _now: &Self::State) -> Vec<FileDiff> {
        Vec::new()
    }
    /// What stands in the way on this host. It is a failure of the resource.
    fn obstacle(&self, _now: &Self::State) -> Option<Obstacle> {
        None
    }
    /// What its steps take for granted: without a state all that they may, with one those for it. An apply leaves it to
    /// the steps to fail; `--check` foresees that.
    fn premises(&self, _now: Option<&Self::State>) -> Vec<Premise> {
        Vec::new()
    }
    /// What the operator should know though nothing fails.
    fn warnings(&self, _now: &Self::State) -> Vec<String> {
        Vec::new()
    }
    /// What it names and this host has nothing of, in sentences without a full stop that don't name the host. What is so on
    /// all hosts that were looked at is told at the end of the play: a slip, most likely.
    fn in_vain(&self, _now: &Self::State) -> Vec<String> {
        Vec::new()
    }
    /// Whether its steps may cut off the session that makes them.
    fn risk(&self, _now: &Self::State) -> Risk {
        Risk::None
    }
    /// What takes its steps back, beside the files that it tells (`files`): for steps that could cut the session off and aren't
    /// confirmed in time. Nothing where there is no way back.
    fn undo(&self, _now: &Self::State) -> Option<Undo> {
        None
    }
    /// The interface whose MTU its steps raise, and to what: packets of that size have to pass then.
    fn raises(&self, _now: &Self::State) -> Option<(String, u32)> {
        None
    }
    /// Whether it is something to do (`restarted`, a command that always runs) and not a state to reach: its steps run
    /// in every apply, or as a handler when notified.
    fn action(&self) -> bool {
        false
    }
    /// For an action: whether what its steps gave counts as a change.
    ///
    /// # Errors
    /// An expression of the user's that can't be evaluated.
    fn changed(&self, _outputs: &[Output]) -> Result<bool, Error> {
        Ok(true)
    }
    /// Whether its failure keeps everything else of the play from being done on this host (`assert`).
    fn gate(&self) -> bool {
        false
    }
    /// Why it can't be done in the root of an image, which doesn't run, where that is so: it is left out there.
    fn live_only(&self) -> Option<&'static str> {
        None
    }
    /// Whether it may bring what others find missing (a package: units, folders, modules). What stands behind it in the
    /// file and isn't there yet is then done after it, and is not skipped if it fails.
    fn brings(&self) -> bool {
        false
    }
    /// Seconds that each of its steps may take where `timeout` doesn't say; nothing means the usual 120.
    fn seconds(&self) -> Option<u32> {
        None
    }
}

/// For [`Resource::live_only`] of what has no part that is there at the next boot.
const NOTHING_LASTS: &str = "nothing of it lasts, and an image doesn't run";

/// What a probe found.
#[derive(Debug)]
pub enum Reading<S> {
    /// The state.
    State(S),
    /// It can't be known before something that comes first has changed. If nothing that comes first changes, this is
    /// a failure, with these words.
    NotYet(Trouble),
}

/// Something on a host that one resource owns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// What kind of thing: `path`, `sysctl`, `mtu`, `unit`, `ifcfg`.
    pub kind: &'static str,
    /// Which one.
    pub name: String,
    /// Of what it is a part, such as a file: whoever claims one of these as a whole claims it too.
    pub within: Vec<Claim>,
}

impl Claim {
    /// A claim.
    pub fn new(kind: &'static str, name: impl Into<String>) -> Claim {
        Claim { kind, name: name.into(), within: Vec::new() }
    }

    /// A claim of a part of a file, which others may share.
    pub fn part(kind: &'static str, file: &str, part: &str) -> Claim {
        Claim { kind, name: format!("{file} {part}"), within: vec![Claim::new("path", file)] }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// An edge of the graph that a type knows of: it holds if something on the host claims that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// This comes after whoever claims it.
    After(Claim),
    /// This comes after whoever claims a path below this folder.
    AfterBelow(String),
    /// This comes after all who claim something of this kind.
    AfterAll(&'static str),
    /// The two rule each other out: whoever claims it is an error of the playbook.
    Without(Claim),
    /// This comes before whoever claims it.
    Before(Claim),
}

/// When a probe is worthless because of what changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// It stays good.
    Never,
    /// After a change of anything that this resource comes after.
    AnyDependency,
    /// After a change of whoever claims one of these.
    Claims(Vec<Claim>),
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// At once.
    Now,
    /// At the next boot.
    Reboot,
    /// When power was off.
    PowerCycle,
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which: `live`, `boot`, `net.core.rmem_max`, `mode`.
    pub field: String,
    /// What it is; null is absent.
    pub from: serde_json::Value,
    /// What it is to be; null is absent.
    pub to: serde_json::Value,
    /// When that takes effect.
    pub effect: Effect,
}

impl Change {
    /// A change that takes effect at once.
    pub fn now(
        field: impl Into<String>,
        from: impl Into<serde_json::Value>,
        to: impl Into<serde_json::Value>,
    ) -> Change {
        Change { field: field.into(), from: from.into(), to: to.into(), effect: Effect::Now }
    }
}

/// A file that the steps would write, remove or make, for a unified diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// Its path.
    pub path: String,
    /// Its bytes now; nothing where it isn't there.
    pub before: Option<Vec<u8>>,
    /// Its bytes then; nothing where it is removed.
    pub after: Option<Vec<u8>>,
    /// What is done to it where others may write it too; nothing once that is told.
    pub edit: Option<Edit>,
}

/// One thing done on the host. The steps of a resource run in order, and one that fails ends them.
#[derive(Debug, Clone)]
pub enum Step {
    /// Shell text: standard input is empty, both outputs are captured (the last 64 KiB), exit code 0 is success.
    Run(Script),
    /// A file replaced in one go.
    Put(Put),
    /// A part of what several resources do together. It is then the resource's only step.
    Share(Share),
}

/// A file to write: into a new file in the target's folder that is then renamed, so that a reader sees the old or the
/// new one and never half of it. A link stays and its target is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// Absolute path.
    pub path: String,
    /// Its bytes, at most 1 MiB.
    pub body: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// `user:group` by name or number; nothing keeps whom the writing user makes.
    pub owner: Option<String>,
    /// Whether what was there is kept in the backup folder of the host.
    pub backup: bool,
    /// Shell text that must succeed for the new file before it is renamed; `$file` is its path.
    pub validate: Option<Script>,
    /// Written in place, not replaced: for a mount point, which can't be.
    pub in_place: bool,
}

/// Whether a step may cut off the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Risk {
    /// It doesn't.
    None,
    /// It doesn't, as the session is elsewhere.
    Beside,
    /// It may; why, in words that follow `it could cut off the session: `.
    Link(String),
}

/// What takes back the steps of a resource.
#[derive(Debug, Clone, Default)]
pub struct Undo {
    /// Files that they write and `files` doesn't tell. All files are put back first, byte for byte, with owner and permissions.
    pub files: Vec<String>,
    /// What takes back the rest, in its order.
    pub steps: Vec<Script>,
}

/// Something that is wrong on a host, in one sentence without a full stop, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Trouble {
    /// Without a hint.
    pub fn new(message: impl Into<String>) -> Trouble {
        Trouble { message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Trouble {
        self.hint = Some(hint.into());
        self
    }

    /// Several as one, hints that are the same once; nothing if there are none.
    pub fn all(troubles: Vec<Trouble>) -> Option<Trouble> {
        let (messages, hints): (Vec<String>, Vec<_>) = troubles.into_iter().map(|t| (t.message, t.hint)).unzip();
        let mut hints: Vec<String> = hints.into_iter().flatten().collect();
        hints.dedup();
        let hint = (!hints.is_empty()).then(|| hints.join("; "));
        (!messages.is_empty()).then(|| Trouble { message: messages.join("; "), hint })
    }
}

/// What stands in the way of a resource on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is.
    pub trouble: Trouble,
    /// What follows from it.
    pub weight: Weight,
}

/// What follows from an [`Obstacle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weight {
    /// The resource fails and none of its steps are taken.
    Stops,
    /// The steps are worth taking all the same (a live value, where another file wins at boot), and then it fails.
    Lasts,
    /// It fails and nothing is done, unless something that claims one of these changes before it: the folder that a
    /// file needs, in the same segment.
    Unless(Vec<Claim>),
    /// The steps will fail, unless what is done before them takes it away: a failure under `--check`. In an apply they are
    /// taken, and say themselves what comes of it.
    Foreseen,
}

impl Obstacle {
    /// One that stops the resource.
    pub fn stops(trouble: Trouble) -> Obstacle {
        Obstacle { trouble, weight: Weight::Stops }
    }

    /// One that doesn't keep the steps from being taken.
    pub fn lasts(trouble: Trouble) -> Obstacle {
        Obstacle { trouble, weight: Weight::Lasts }
    }

    /// One that a change of whoever claims one of these takes away.
    pub fn unless(trouble: Trouble, claims: Vec<Claim>) -> Obstacle {
        Obstacle { trouble, weight: Weight::Unless(claims) }
    }
}

/// All that the engine needs to know of a resource on a host at one moment.
#[derive(Debug)]
pub struct Assessment {
    /// What differs.
    pub changes: Vec<Change>,
    /// What is still wrong, judged as after the steps.
    pub remaining: Vec<Change>,
    /// What a boot was to bring and didn't.
    pub unapplied: Vec<Change>,
    /// What to do about it.
    pub steps: Vec<Step>,
    /// Files among that.
    pub files: Vec<FileDiff>,
    /// What stands in the way.
    pub obstacle: Option<Obstacle>,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// What it names in vain.
    pub in_vain: Vec<String>,
    /// Edges that the state decides.
    pub needs: Vec<Need>,
    /// Whether the steps may cut off the session.
    pub risk: Risk,
    /// What takes them back beside the files, if there is a way back.
    pub undo: Option<Undo>,
    /// The interface whose MTU they raise, and to what.
    pub raises: Option<(String, u32)>,
}

/// A resource of any type, as the engine sees it.
pub trait AnyResource: Debug + Send + Sync {
    /// Its type's key.
    fn type_name(&self) -> &'static str;
    /// [`Resource::identity`].
    fn identity(&self) -> String;
    /// [`Resource::claims`].
    fn claims(&self) -> Vec<Claim>;
    /// [`Resource::needs`] without a state.
    fn needs(&self) -> Vec<Need>;
    /// [`Resource::stale_after`].
    fn stale_after(&self) -> Stale;
    /// [`Resource::probe`].
    fn probe(&self) -> Vec<Question>;
    /// Reads the answers and judges them.
    ///
    /// # Errors
    /// The probe failed.
    fn assess(&self, answers: &Answers) -> Result<Reading<Assessment>, Trouble>;
    /// [`Resource::action`].
    fn action(&self) -> bool;
    /// [`Resource::changed`].
    ///
    /// # Errors
    /// As there.
    fn changed(&self, outputs: &[Output]) -> Result<bool, Error>;
    /// [`Resource::gate`].
    fn gate(&self) -> bool;
    /// [`Resource::live_only`].
    fn live_only(&self) -> Option<&'static str>;
    /// [`Resource::brings`].
    fn brings(&self) -> bool;
    /// [`Resource::seconds`].
    fn seconds(&self) -> Option<u32>;
}

impl<R: Resource> AnyResource for R {
    fn type_name(&self) -> &'static str {
        R::TYPE
    }
    fn identity(&self) -> String {
        Resource::identity(self)
    }
    fn claims(&self) -> Vec<Claim> {
        Resource::claims(self)
    }
    fn needs(&self) -> Vec<Need> {
        Resource::needs(self, None)
    }
    fn stale_after(&self) -> Stale {
        Resource::stale_after(self)
    }
    fn probe(&self) -> Vec<Question> {
        let mut questions = Resource::probe(self);
        questions.extend(self.premises(None).iter().map(Premise::ask));
        questions
    }
    fn assess(&self, answers: &Answers) -> Result<Reading<Assessment>, Trouble> {
        let now = match self.read(answers)? {
            Reading::State(now) => now,
            Reading::NotYet(why) => return Ok(Reading::NotYet(why)),
        };
        let changes = self.diff(&now);
        let mut obstacle = self.obstacle(&now);
        let act = (Resource::action(self) || !changes.is_empty())
            && obstacle.as_ref().is_none_or(|o| o.weight != Weight::Stops);
        if act && obstacle.is_none() {
            // What can't be asked isn't foreseen.
            let amiss = |p: &Premise| answers.get::<Premises>(&p.arg()).ok()?.clone();
            let foreseen = self.premises(Some(&now)).iter().find_map(amiss);
            obstacle = foreseen.map(|trouble| Obstacle { trouble, weight: Weight::Foreseen });
        }
        Ok(Reading::State(Assessment {
            remaining: self.verify(&now),
            unapplied: self.unapplied(&now),
            steps: if act { self.apply(&now) } else { Vec::new() },
            files: if act { self.files(&now) } else { Vec::new() },
            risk: match self.risk(&now) {
                _ if !act => Risk::None,
                Risk::None if R::LINK => Risk::Beside,
                risk => risk,
            },
            undo: if act { self.undo(&now) } else { None },
            raises: if act { self.raises(&now) } else { None },
            needs: Resource::needs(self, Some(&now)),
            warnings: Resource::warnings(self, &now),
            in_vain: Resource::in_vain(self, &now),
            changes,
            obstacle,
        }))
    }
    fn action(&self) -> bool {
        Resource::action(self)
    }
    fn changed(&self, outputs: &[Output]) -> Result<bool, Error> {
        Resource::changed(self, outputs)
    }
    fn gate(&self) -> bool {
        Resource::gate(self)
    }
    fn live_only(&self) -> Option<&'static str> {
        Resource::live_only(self)
    }
    fn brings(&self) -> bool {
        Resource::brings(self)
    }
    fn seconds(&self) -> Option<u32> {
        Resource::seconds(self)
    }
}

/// A resource type as the playbook sees it.
pub trait AnyType: Sync {
    /// Its key.
    fn name(&self) -> &'static str;
    /// [`Resource::SUMMARY`].
    fn summary(&self) -> &'static str;
    /// [`Resource::TOUCHES`].
    fn touches(&self) -> &'static str;
    /// [`Resource::KEYS`].
    fn keys(&self) -> &'static [Key];
    /// [`Resource::EXAMPLE`].
    fn example(&self) -> &'static str;
    /// [`Resource::parse`].
    ///
    /// # Errors
    /// As there.
    fn parse(&self, spec: &Spec<'_>) -> Result<Box<dyn AnyResource>, Error>;
}

struct Of<R>(PhantomData<fn() -> R>);

impl<R: Resource> AnyType for Of<R> {
    fn name(&self) -> &'static str {
        R::TYPE
    }
    fn summary(&self) -> &'static str {
        R::SUMMARY
    }
    fn touches(&self) -> &'static str {
        R::TOUCHES
    }
    fn keys(&self) -> &'static [Key] {
        R::KEYS
    }
    fn example(&self) -> &'static str {
        R::EXAMPLE
    }
    fn parse(&self, spec: &Spec<'_>) -> Result<Box<dyn AnyResource>, Error> {
        Ok(Box::new(R::parse(spec)?))
    }
}

/// All types, by name.
pub const TYPES: &[&dyn AnyType] = &[
    // One line a type, by name.
    &Of::<assert::Assert>(PhantomData),
    &Of::<command::Command>(PhantomData),
    &Of::<copy::Copy>(PhantomData),
    &Of::<file::File>(PhantomData),
    &Of::<firewall_rule::FirewallRule>(PhantomData),
    &Of::<firmware::Firmware>(PhantomData),
    &Of::<ifcfg::Ifcfg>(PhantomData),
    &Of::<irq_affinity::IrqAffinity>(PhantomData),
    &Of::<kernel_module::KernelModule>(PhantomData),
    &Of::<mlxconfig::Mlxconfig>(PhantomData),
    &Of::<mtu::Mtu>(PhantomData),
    &Of::<nic::Nic>(PhantomData),
    &Of::<package::Package>(PhantomData),
    &Of::<roce_qos::RoceQos>(PhantomData),
    &Of::<service::Service>(PhantomData),
    &Of::<sysctl::Sysctl>(PhantomData),
    &Of::<template::Template>(PhantomData),
];

/// The type of this name.
pub fn find(name: &str) -> Option<&'static dyn AnyType> {
    TYPES.iter().copied().find(|t| t.name() == name)
}
