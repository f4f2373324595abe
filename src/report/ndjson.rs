//! One JSON object a line, for scripts. `docs/output.md` lists every field.

use super::{Reporter, diff};
use crate::event::{
    BootsPlanned, Change, CommandOutput, Effect, Event, Finding, HostEvent, HostStatus, Problem, ResourceEvent,
    RunFinished, RunStarted, Status, Verdict, Warning,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Writes events as lines, each at once.
pub(super) struct NdJson {
    out: Box<dyn Write + Send>,
    now: fn() -> Timestamp,
    diff: bool,
}

impl NdJson {
    /// Writes to `out`; `now` is the clock.
    pub(super) fn new(out: Box<dyn Write + Send>, now: fn() -> Timestamp) -> NdJson {
        NdJson { out, now, diff: false }
    }
}

/// What every line begins with.
#[derive(Serialize)]
struct Line<T> {
    v: u8,
    event: &'static str,
    time: String,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
pub(super) struct ResourceLine<'a> {
    play: &'a str,
    host: &'a str,
    address: &'a str,
    title: Option<&'a str>,
    handler: bool,
    status: Status,
    ignored: bool,
    changes: Vec<ChangeLine<'a>>,
    done: Vec<ChangeLine<'a>>,
    diff: Option<String>,
    warnings: &'a [String],
    error: Option<&'a Problem>,
    because: Option<&'a str>,
}

#[derive(Serialize)]
struct ChangeLine<'a> {
    field: &'a str,
    from: &'a Value,
    to: &'a Value,
    effect: Effect,
}

#[derive(Serialize)]
pub(super) struct HostLine<'a> {
    play: &'a str,
    host: &'a str,
    status: HostStatus,
    executions: u32,
    seconds: f64,
    warnings: &'a [String],
    reboot_pending: &'a [String],
    error: Option<&'a Problem>,
}

fn names(hosts: &[Arc<str>]) -> Vec<&str> {
    hosts.iter().map(|host| &**host).collect()
}

/// Seconds with three decimals.
fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

/// The fields of a run's beginning.
pub(super) fn run_started(e: &RunStarted) -> Value {
    let play = |(play, hosts): &(Arc<str>, Vec<Arc<str>>)| json!({ "play": &**play, "hosts": names(hosts) });
    json!({
        "run": &*e.run,
        "command": e.command,
        "check": e.check,
        "image": e.image,
        "diff": e.diff,
        "arguments": e.arguments,
        "inventory": e.inventory,
        "playbooks": e.playbooks,
        "plays": e.plays.iter().map(play).collect::<Vec<_>>(),
    })
}

/// The fields of a resource.
pub(super) fn resource<'a>(e: &'a ResourceEvent, diffs: bool) -> ResourceLine<'a> {
    let change = |c: &'a Change| ChangeLine { field: &c.field, from: &c.from, to: &c.to, effect: c.effect };
    ResourceLine {
        play: &e.play,
        host: &e.host,
        address: &e.address,
        title: e.title.as_deref(),
        handler: e.handler,
        status: e.status,
        ignored: e.ignored,
        changes: e.changes.iter().map(change).collect(),
        done: e.done.iter().map(change).collect(),
        diff: (diffs && !e.files.is_empty()).then(|| e.files.iter().map(diff::unified).collect()),
        warnings: &e.warnings,
        error: e.error.as_ref(),
        because: e.because.as_deref(),
    }
}

/// The fields of a verdict.
pub(super) fn verdict(play: &str, e: &Verdict) -> Value {
    json!({
        "play": play,
        "check": e.check,
        "host": &*e.host,
        "interface": e.interface,
        "peer": e.peer.as_ref().map(|(host, interface)| json!({ "host": &**host, "interface": interface })),
        "ok": e.ok,
        "value": e.value,
        "wanted": e.wanted,
        "unit": e.unit,
        "reason": e.reason,
    })
}

/// The fields of a finding.
pub(super) fn finding(play: &str, e: &Finding) -> Value {
    json!({
        "play": play,
        "name": e.name,
        "hosts": names(&e.hosts),
        "pair": e.pair.as_ref().map(|(from, to)| [&**from, &**to]),
        "evidence": e.evidence,
        "cause": e.cause,
        "remedy": e.remedy,
    })
}

/// The fields of a host.
pub(super) fn host(e: &HostEvent) -> HostLine<'_> {
    HostLine {
        play: &e.play,
        host: &e.host,
        status: e.status,
        executions: e.executions,
        seconds: seconds(e.time),
        warnings: &e.warnings,
        reboot_pending: &e.reboot_pending,
        error: e.error.as_ref(),
    }
}

/// The fields of the output of a command.
fn boots_planned(e: &BootsPlanned) -> Value {
    let host = |(host, why): &(Arc<str>, Vec<String>)| json!({ "host": &**host, "reasons": why });
    let hosts: Vec<Value> = e.hosts.iter().map(host).collect();
    json!({ "play": &*e.play, "hosts": hosts, "at_once": e.at_once, "at_most_seconds": e.at_most.as_secs() })
}

pub(super) fn output(e: &CommandOutput) -> Value {
    let (output, utf8) = (super::text::from_bytes(&e.output), std::str::from_utf8(&e.output).is_ok());
    json!({ "host": &*e.host, "code": e.code, "output": output, "utf8": utf8 })
}

/// The fields of a run's end.
pub(super) fn run_finished(e: &RunFinished) -> Value {
    let hosts = |status| e.hosts.values().filter(|t| t.status == status).count();
    let resources = |status| e.resources.get(&status).copied().unwrap_or(0);
    json!({
        "check": e.check,
        "hosts": {
            "ok": hosts(HostStatus::Ok),
            "changed": hosts(HostStatus::Changed),
            "failed": hosts(HostStatus::Failed),
            "unreachable": hosts(HostStatus::Unreachable),
            "skipped": hosts(HostStatus::Skipped),
            "reboot_pending": e.hosts.values().filter(|t| t.reboot_pending).count(),
        },
        "resources": {
            "ok": resources(Status::Ok),
            "changed": resources(Status::Changed),
            "would_change": resources(Status::WouldChange),
            "failed": resources(Status::Failed),
            "skipped": resources(Status::Skipped),
            "rolled_back": resources(Status::RolledBack),
            "reboot_pending": resources(Status::RebootPending),
            "ignored": e.hosts.values().map(|t| t.ignored).sum::<usize>(),
        },
        "seconds": seconds(e.time),
        "exit_code": e.exit_code,
        "interrupted": e.interrupted,
        "left": e.left().map(|host| &**host).collect::<Vec<_>>(),
        "again": e.again,
        "log": e.log,
    })
}

impl NdJson {
    fn line(&mut self, event: &'static str, body: impl Serialize) -> io::Result<()> {
        let line = Line { v: 1, event, time: format!("{:.3}", (self.now)()), body };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl Reporter for NdJson {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted(e) => {
                self.diff = e.diff;
                self.line("run_started", run_started(e))
            }
            Event::PlayStarted(e) => self.line(
                "play_started",
                json!({
                    "play": &*e.play,
                    "hosts": names(&e.hosts),
                    "first_batch": e.first_batch,
                    "resources": e.resources,
                }),
            ),
            Event::BatchStarted { play, number: (number, of), hosts } => {
                let body = json!({ "play": &**play, "number": number, "of": of, "hosts": names(hosts) });
                self.line("batch_started", body)
            }
            Event::HostStage { .. } | Event::Script { .. } => Ok(()),
            Event::BootsPlanned(e) => self.line("boots_planned", boots_planned(e)),
            Event::Boot(e) => self.line(
                "boot",
                json!({
                    "play": &*e.play,
                    "host": &*e.host,
                    "step": e.step,
                    "seconds": seconds(e.time),
                    "detail": e.detail,
                }),
            ),
            Event::Resource(e) => self.line("resource", resource(e, self.diff)),
            Event::Host(e) => self.line("host", host(e)),
            Event::Output(e) => self.line("output", output(e)),
            Event::Facts { host, facts } => self.line("facts", json!({ "host": &**host, "facts": facts })),
            Event::Verdict { play, verdict } => self.line("verdict", self::verdict(play, verdict)),
            Event::Finding { play, finding } => self.line("finding", self::finding(play, finding)),
            Event::Warning(Warning { message }) => self.line("warning", json!({ "message": message })),
            Event::RunFinished(e) => self.line("run_finished", run_finished(e)),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
