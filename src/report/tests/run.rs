//! A run made by hand: its events, and what is written of them.

use super::super::Reporter;
use super::super::human::{Human, Look};
use super::super::ndjson::NdJson;
use crate::event::*;
use crate::hostlist;
use crate::source::{Source, Span};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The events of a run, and how to make them.
pub(super) struct Run {
    pub(super) command: &'static str,
    pub(super) check: bool,
    pub(super) diff: bool,
    pub(super) events: Vec<Event>,
    pub(super) again: bool,
    pub(super) interrupted: bool,
}

pub(super) fn change(field: &str, from: impl Into<Value>, to: impl Into<Value>) -> Change {
    Change::now(field, from, to)
}

pub(super) fn resource(address: &str, status: Status) -> ResourceEvent {
    ResourceEvent {
        play: "".into(),
        host: "".into(),
        address: address.into(),
        title: None,
        handler: false,
        position: 0,
        status,
        changes: Vec::new(),
        done: Vec::new(),
        files: Vec::new(),
        warnings: Vec::new(),
        error: None,
        ignored: false,
        because: None,
        in_vain: None,
    }
}

pub(super) fn changed(address: &str, changes: &[Change]) -> ResourceEvent {
    ResourceEvent { changes: changes.to_vec(), ..resource(address, Status::Changed) }
}

pub(super) fn failed(address: &str, message: &str, hint: Option<&str>) -> ResourceEvent {
    ResourceEvent { error: Some(problem("verify", message, hint)), ..resource(address, Status::Failed) }
}

pub(super) fn skipped(address: &str, because: &str) -> ResourceEvent {
    ResourceEvent { because: Some(because.to_owned()), ..resource(address, Status::Skipped) }
}

pub(super) fn problem(kind: &'static str, message: &str, hint: Option<&str>) -> Problem {
    Problem { kind, message: message.to_owned(), hint: hint.map(str::to_owned) }
}

pub(super) fn hosts(list: &str) -> Vec<Arc<str>> {
    let place = Span::start(&Source::new("hosts", list));
    let parts = hostlist::split_list(list);
    parts.iter().flat_map(|(_, part)| hostlist::expand(part, &place).unwrap()).map(Arc::from).collect()
}

impl Run {
    pub(super) fn new() -> Run {
        Run { command: "apply", check: false, diff: false, events: Vec::new(), again: true, interrupted: false }
    }

    pub(super) fn check() -> Run {
        Run { check: true, diff: true, ..Run::new() }
    }

    pub(super) fn play(mut self, name: &str, list: &str, first_batch: usize) -> Run {
        let hosts = hosts(list);
        let first_batch = first_batch.min(hosts.len());
        self.events.push(Event::PlayStarted(PlayStarted { play: name.into(), hosts, first_batch, resources: 32 }));
        self
    }

    pub(super) fn batch(mut self, number: usize, of: usize, list: &str) -> Run {
        self.events.push(Event::BatchStarted { play: "".into(), number: (number, of), hosts: hosts(list) });
        self
    }

    /// What these hosts say of a play: their resources, then what became of them.
    pub(super) fn on(mut self, list: &str, status: HostStatus, resources: &[ResourceEvent]) -> Run {
        for host in hosts(list) {
            for (position, resource) in resources.iter().enumerate() {
                let resource = ResourceEvent { host: host.clone(), position, ..resource.clone() };
                self.events.push(Event::Resource(Box::new(resource)));
            }
            self.events.push(Event::Host(Box::new(HostEvent { host, ..host_event(status) })));
        }
        self
    }

    pub(super) fn host(mut self, list: &str, event: HostEvent) -> Run {
        let events = hosts(list).into_iter().map(|host| Event::Host(Box::new(HostEvent { host, ..event.clone() })));
        self.events.extend(events);
        self
    }

    pub(super) fn event(mut self, event: Event) -> Run {
        self.events.push(event);
        self
    }

    /// All events, with a beginning and an end that follow from them.
    pub(super) fn all(&self) -> Vec<Event> {
        let mut totals: BTreeMap<Arc<str>, HostTotal> = BTreeMap::new();
        let mut resources: BTreeMap<Status, usize> = BTreeMap::new();
        let total = |status| HostTotal {
            status,
            resources: BTreeMap::new(),
            ignored: 0,
            reboot_pending: false,
            executions: 0,
            passed_over: false,
        };
        for event in &self.events {
            match event {
                Event::Resource(e) => {
                    *resources.entry(e.status).or_default() += 1;
                    let total = totals.entry(e.host.clone()).or_insert_with(|| total(HostStatus::Skipped));
                    *total.resources.entry(e.status).or_default() += 1;
                    total.ignored += usize::from(e.ignored);
                }
                Event::Host(e) => {
                    let total = totals.entry(e.host.clone()).or_insert_with(|| total(e.status));
                    total.status = match (total.status, e.status) {
                        (HostStatus::Skipped, now) => now,
                        (before, HostStatus::Skipped) => before,
                        (before, now) => before.max(now),
                    };
                    total.passed_over |= e.status == HostStatus::Skipped;
                    total.reboot_pending |= !e.reboot_pending.is_empty();
                    total.executions += e.executions;
                }
                _ => {}
            }
        }
        let any = |status| totals.values().any(|t| t.status == status);
        let exit_code = if self.interrupted { 130 } else { 0 }
            | if any(HostStatus::Failed) { 2 } else { 0 }
            | if any(HostStatus::Unreachable) { 4 } else { 0 };
        let started = RunStarted {
            run: "r1".into(),
            check: self.check,
            diff: self.diff,
            command: self.command,
            arguments: vec!["netplay".to_owned(), self.command.to_owned()],
            plays: match self.command {
                "facts" => vec![("facts".into(), totals.keys().cloned().collect())],
                _ => Vec::new(),
            },
            ..RunStarted::default()
        };
        let again = "netplay apply -i hosts.yaml site.yaml --limit @failed".to_owned();
        let finished = RunFinished {
            check: self.check,
            hosts: totals,
            resources,
            time: Duration::from_millis(72_345),
            exit_code,
            interrupted: self.interrupted,
            again: (self.again && exit_code != 0).then_some(again),
            log: Some("/root/.local/state/netplay/r1.ndjson".to_owned()),
        };
        let mut events = vec![Event::RunStarted(started)];
        let mut play: Arc<str> = "".into();
        for event in &self.events {
            let mut event = event.clone();
            // What doesn't name its play is of the one that was begun last.
            match &mut event {
                Event::PlayStarted(e) => play = e.play.clone(),
                Event::Resource(e) if e.play.is_empty() => e.play = play.clone(),
                Event::Host(e) if e.play.is_empty() => e.play = play.clone(),
                _ => {}
            }
            events.push(event);
        }
        events.push(Event::RunFinished(Box::new(finished)));
        events
    }

    pub(super) fn told(&self, look: Look) -> String {
        let out = Shared::default();
        let mut human = Human::new(Box::new(out.clone()), look);
        self.all().iter().for_each(|event| human.event(event).unwrap());
        human.finish().unwrap();
        out.text()
    }

    pub(super) fn human(&self) -> String {
        self.told(Look::default())
    }

    pub(super) fn ndjson(&self) -> String {
        self.written(|out| NdJson::new(out, now))
    }

    pub(super) fn written<R: Reporter>(&self, reporter: impl FnOnce(Box<dyn Write + Send>) -> R) -> String {
        let out = Shared::default();
        let mut reporter = reporter(Box::new(out.clone()));
        self.all().iter().for_each(|event| reporter.event(event).unwrap());
        reporter.finish().unwrap();
        out.text()
    }
}

pub(super) fn now() -> jiff::Timestamp {
    "2026-03-01T02:03:04.5Z".parse().unwrap()
}

pub(super) fn host_event(status: HostStatus) -> HostEvent {
    HostEvent {
        play: "".into(),
        host: "".into(),
        status,
        executions: if status == HostStatus::Ok { 1 } else { 2 },
        time: Duration::from_millis(1234),
        warnings: Vec::new(),
        reboot_pending: Vec::new(),
        error: None,
    }
}

pub(super) fn unreachable(message: &str, hint: Option<&str>) -> HostEvent {
    HostEvent { error: Some(problem("connect", message, hint)), ..host_event(HostStatus::Unreachable) }
}

/// A file in memory that is still there when the writer is gone.
#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn mtu() -> ResourceEvent {
    changed("mtu:eth0", &[change("live", 1500, 9000), change("boot", 1500, 9000)])
}

pub(super) fn buffers() -> ResourceEvent {
    let all = [
        change("net.core.rmem_max", "212992", "134217728"),
        change("net.core.wmem_max", "212992", "134217728"),
        change("net.ipv4.tcp_rmem", "4096 131072 6291456", "4096 87380 134217728"),
    ];
    changed("sysctl:net.core.rmem_max", &all)
}

pub(super) fn ok(n: usize) -> Vec<ResourceEvent> {
    (0..n).map(|i| resource(&format!("file:/etc/{i}"), Status::Ok)).collect()
}

pub(super) fn would(event: ResourceEvent) -> ResourceEvent {
    ResourceEvent { status: Status::WouldChange, ..event }
}
