//! What happens in a run, as values. The owner loop of the engine sends them to the reporters in one order; nothing
//! else prints. `ndjson` writes of them, among others, `resource`, `host`, `finding`, `run_finished`.

pub use crate::finding::Finding;
pub use crate::resource::{Change, Effect, FileDiff};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A run begins.
    RunStarted(RunStarted),
    /// A play begins.
    PlayStarted(PlayStarted),
    /// A batch of a play's hosts begins (`serial`); a play without `serial` is one batch.
    BatchStarted {
        /// The play's name.
        play: Arc<str>,
        /// Which batch, from 1, and of how many.
        number: (usize, usize),
        /// Its hosts.
        hosts: Vec<Arc<str>>,
    },
    /// A host's visit reached this stage; for progress only.
    HostStage {
        /// The host.
        host: Arc<str>,
        /// What is done now.
        stage: Stage,
    },
    /// What became of one resource or handler on one host.
    Resource(Box<ResourceEvent>),
    /// What became of one host in one play.
    Host(Box<HostEvent>),
    /// Which hosts of a play would be booted (`--check`).
    BootsPlanned(BootsPlanned),
    /// How far the boot of a host is.
    Boot(Box<BootEvent>),
    /// The output of `run -- CMD` on one host.
    Output(Box<CommandOutput>),
    /// What `facts` found out about one host.
    Facts {
        /// The host.
        host: Arc<str>,
        /// Its facts, as templates see them.
        facts: serde_json::Value,
    },
    /// A script that is sent to a host, as it is sent; shown with `-vv`.
    Script {
        /// The host.
        host: Arc<str>,
        /// Its text, without passwords.
        text: Arc<str>,
    },
    /// What a check of the fabric came to, of a host or from one host to another.
    Verdict {
        /// The play's name.
        play: Arc<str>,
        /// It.
        verdict: Box<Verdict>,
    },
    /// What is wrong with the fabric.
    Finding {
        /// The play's name.
        play: Arc<str>,
        /// It.
        finding: Box<Finding>,
    },
    /// Something the operator should know that isn't of one host.
    Warning(Warning),
    /// A run has ended.
    RunFinished(Box<RunFinished>),
}

/// See [`Event::RunStarted`].
#[derive(Debug, Clone, Default)]
pub struct RunStarted {
    /// The run's id, which is also the name of its log.
    pub run: Arc<str>,
    /// `apply`, `facts`, `run`.
    pub command: &'static str,
    /// Whether it only looks (`--check`).
    pub check: bool,
    /// Whether it is about the root of an image (`--root`) and not about hosts.
    pub image: bool,
    /// Whether diffs are to be shown.
    pub diff: bool,
    /// The words of the command line, values that look like passwords left out.
    pub arguments: Vec<String>,
    /// The inventories: absolute paths, or lists of hosts as they were given.
    pub inventory: Vec<String>,
    /// The absolute paths of the playbooks.
    pub playbooks: Vec<String>,
    /// The plays that are to come and the hosts of each; of a command without plays, one with its name.
    pub plays: Vec<(Arc<str>, Vec<Arc<str>>)>,
}

/// See [`Event::PlayStarted`].
#[derive(Debug, Clone)]
pub struct PlayStarted {
    /// Its name, or `hosts: PATTERN`.
    pub play: Arc<str>,
    /// All of its hosts in the order in which they are visited.
    pub hosts: Vec<Arc<str>>,
    /// How many hosts the first batch has.
    pub first_batch: usize,
    /// How many resources it lists.
    pub resources: usize,
}

/// Where a visit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// TCP, handshake, login.
    Connecting,
    /// Reading facts and states.
    Probing,
    /// Running steps.
    Changing,
    /// For a boot: until it may go, drains, boots, or comes back.
    Waiting,
    /// Done.
    Done,
}

/// What a resource came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As wanted, nothing done.
    Ok,
    /// Changed and verified.
    Changed,
    /// `--check`: it would change.
    WouldChange,
    /// Not as wanted.
    Failed,
    /// Not done, because of `when`, tags, or something else that failed.
    Skipped,
    /// Undone.
    RolledBack,
    /// All is done that can be before a reboot.
    RebootPending,
}

/// Why something failed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// For scripts: `probe`, `step`, `verify`, `obstacle`, `timeout`, `unknown`, `sudo`, `lock`, or a kind of
    /// connection failure.
    pub kind: &'static str,
    /// What happened, in one sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// See [`Event::Resource`]. Values of a `no_log` resource have been taken out of it.
#[derive(Debug, Clone)]
pub struct ResourceEvent {
    /// The play's name.
    pub play: Arc<str>,
    /// The host.
    pub host: Arc<str>,
    /// `type:identity`.
    pub address: Arc<str>,
    /// Its `name`.
    pub title: Option<Arc<str>>,
    /// Whether it is a handler.
    pub handler: bool,
    /// Its rank in the play (resources in the file's order, then handlers), for output in that order.
    pub position: usize,
    /// What it came to.
    pub status: Status,
    /// What has changed, would change, or is still to.
    pub changes: Vec<Change>,
    /// Of what failed: what was changed all the same.
    pub done: Vec<Change>,
    /// The files among that.
    pub files: Vec<FileDiff>,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// Why it failed.
    pub error: Option<Problem>,
    /// Whether its failure was to be ignored (`ignore_errors`).
    pub ignored: bool,
    /// Why it was skipped (`when: …` or `tags` where the playbook leaves it out; where something that it comes after
    /// failed, words that name that address), or what can't be known yet; for a handler, who called for it: addresses,
    /// and `owed by run R`.
    pub because: Option<String>,
    /// What it names and this host has nothing of; nothing where that isn't known. The engine makes a [`Warning`] of what is
    /// so on all hosts.
    pub in_vain: Option<Vec<String>>,
}

/// What a host came to in a play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostStatus {
    /// All as wanted before.
    Ok,
    /// Something changed (with `--check`: would).
    Changed,
    /// Something failed.
    Failed,
    /// There was no session.
    Unreachable,
    /// Not visited, or nothing of the play applies to it.
    Skipped,
}

/// See [`Event::Host`].
#[derive(Debug, Clone)]
pub struct HostEvent {
    /// The play's name.
    pub play: Arc<str>,
    /// The host.
    pub host: Arc<str>,
    /// What it came to.
    pub status: HostStatus,
    /// Executions on it in this play.
    pub executions: u32,
    /// How long its visit took.
    pub time: Duration,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// Why it must be booted for what was set to take effect; empty if it needn't.
    pub reboot_pending: Vec<String>,
    /// Why there was no session, or it broke, or why it was skipped.
    pub error: Option<Problem>,
}

/// See [`Event::BootsPlanned`].
#[derive(Debug, Clone)]
pub struct BootsPlanned {
    /// The play's name.
    pub play: Arc<str>,
    /// The hosts in the order in which they would go, and why.
    pub hosts: Vec<(Arc<str>, Vec<String>)>,
    /// How many may be away at once.
    pub at_once: usize,
    /// How long it takes at most, if each takes all the time that it may.
    pub at_most: Duration,
}

/// See [`Event::Boot`].
#[derive(Debug, Clone)]
pub struct BootEvent {
    /// The play's name.
    pub play: Arc<str>,
    /// The host.
    pub host: Arc<str>,
    /// How far.
    pub step: BootStep,
    /// Since its boot was begun with.
    pub time: Duration,
    /// For what, or by what; possibly empty.
    pub detail: String,
}

/// A step of a host's boot, each told when it is done or begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BootStep {
    /// Work is being taken away from it.
    Draining,
    /// Nothing runs there any more.
    Drained,
    /// It is told to boot, or its power is cycled. This is told before that is done, so that the log of a run which is killed
    /// names each host that may be on its way.
    Booting,
    /// An earlier run had it boot, and it is waited for; `time` is since then.
    Awaited,
    /// It answers with a new boot, its system is up, its ports and links are as they were.
    Back,
    /// Its play is done and it has been given back.
    Done,
}

/// See [`Event::Verdict`].
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The check: `ports`, `path_mtu`.
    pub check: &'static str,
    /// The host; of a test between two, the one that sends.
    pub host: Arc<str>,
    /// Its interface, or RDMA device and port.
    pub interface: Option<String>,
    /// The host and the interface that gets what is sent.
    pub peer: Option<(Arc<str>, String)>,
    /// Whether it is as it should be; nothing where that wasn't judged.
    pub ok: Option<bool>,
    /// What was measured, in `unit`.
    pub value: Option<f64>,
    /// What it was to be at least, or at most where less is better.
    pub wanted: Option<f64>,
    /// The unit of both: `Gb/s`, `bytes`, `%`, or nothing.
    pub unit: &'static str,
    /// Why it was judged so.
    pub reason: String,
}

/// See [`Event::Output`].
#[derive(Debug, Clone)]
pub struct CommandOutput {
    /// The host.
    pub host: Arc<str>,
    /// Exit code.
    pub code: i32,
    /// Both outputs, as they came.
    pub output: Vec<u8>,
    /// The seconds that it was given.
    pub limit: u32,
}

/// See [`Event::Warning`].
#[derive(Debug, Clone)]
pub struct Warning {
    /// What it is, possibly several lines.
    pub message: String,
}

/// See [`Event::RunFinished`].
#[derive(Debug, Clone, Default)]
pub struct RunFinished {
    /// Whether it only looked.
    pub check: bool,
    /// What each host came to over all plays: the worst of them.
    pub hosts: BTreeMap<Arc<str>, HostTotal>,
    /// How many resources came to each status.
    pub resources: BTreeMap<Status, usize>,
    /// How long it took.
    pub time: Duration,
    /// The exit code.
    pub exit_code: u8,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// A command that runs the hosts again that aren't done, if there are any.
    pub again: Option<String>,
    /// Path of the run's log, if one was kept.
    pub log: Option<String>,
}

/// A host's line in the closing table.
#[derive(Debug, Clone)]
pub struct HostTotal {
    /// The worst of its plays.
    pub status: HostStatus,
    /// How many resources came to each status.
    pub resources: BTreeMap<Status, usize>,
    /// How many of those that failed don't count (`ignore_errors`).
    pub ignored: usize,
    /// Whether it must be booted.
    pub reboot_pending: bool,
    /// Executions over all plays.
    pub executions: u32,
    /// Whether a play was never begun on it.
    pub passed_over: bool,
}

impl RunFinished {
    /// The hosts that aren't done: they failed, were unreachable, or a play was never begun on them.
    pub fn left(&self) -> impl Iterator<Item = &Arc<str>> {
        let done = |t: &HostTotal| matches!(t.status, HostStatus::Ok | HostStatus::Changed) && !t.passed_over;
        self.hosts.iter().filter(move |(_, total)| !done(total)).map(|(name, _)| name)
    }
}
