//! The owner loop of a run: play after play, batch after batch, one thread that owns all state.

use super::boot::{Drain, Reboot, Way};
use super::exam::{Exam, examine};
use super::guard::{Canary, Proof};
use super::rolling::Away;
use super::visit::{Shared, Site};
use super::{pool, rolling};
use crate::event::{
    BootsPlanned, Event, HostEvent, HostStatus, HostTotal, PlayStarted, Problem, RunFinished, Status, Warning,
};
use crate::plan::Policy;
use crate::playbook::{Batch, HostPlay};
use crate::transport::Target;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A play and its hosts.
pub struct Play {
    /// Its name.
    pub name: Arc<str>,
    /// Its hosts, in the order in which they are visited.
    pub hosts: Vec<Host>,
    /// The sizes of its batches.
    pub serial: Vec<Batch>,
    /// How many of a batch may be lost.
    pub max_fail_percentage: Option<f64>,
    /// What holds for its resources.
    pub policy: Policy,
    /// How many resources it lists.
    pub resources: usize,
    /// How it boots its hosts, if it does.
    pub reboot: Option<Reboot>,
    /// What has to be true of a host before a change that may cut it off is confirmed.
    pub confirm: Proof,
    /// What is checked of the fabric: after each batch, or, of a play that changes nothing, in its place.
    pub exam: Option<Exam>,
}

/// A host of a play.
pub struct Host {
    /// How it is reached.
    pub target: Target,
    /// The play, rendered as far as it can be without facts; taken by the visit.
    pub play: Mutex<HostPlay>,
    /// What else is to be known of it.
    pub site: Box<dyn Site + Send>,
    /// What is to be known for its boot.
    pub way: Way,
    /// The other hosts of the run that are reached through it.
    pub leads_to: Arc<[Target]>,
}

/// How a run goes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many hosts are visited at once.
    pub forks: usize,
    /// Only look.
    pub check: bool,
    /// Exit code 3 when changes are pending.
    pub detailed_exitcode: bool,
}

/// Carries plays out.
pub fn run(shared: &Shared, plays: &[Play], options: Options, sink: &mut dyn FnMut(Event)) -> RunFinished {
    let most = |play: &Play| play.reboot.as_ref().map(|r| rolling::at_most(r.hosts, &r.max_unavailable));
    let most = plays.iter().filter_map(most).min().unwrap_or(1);
    let mut ledger = Ledger { check: options.check, most, ..Ledger::default() };
    let started = Instant::now();
    for play in plays {
        ledger.play(shared, play, options, sink);
    }
    let mut finished = ledger.finish(options.detailed_exitcode, shared.interrupted.load(Ordering::Relaxed));
    finished.time = started.elapsed();
    finished
}

/// Makes the checks of plays that change nothing.
pub fn verify(shared: &Shared, plays: &[Play], forks: usize, sink: &mut dyn FnMut(Event)) -> RunFinished {
    let mut ledger = Ledger::default();
    let started = Instant::now();
    for play in plays {
        let Some(exam) = &play.exam else { continue };
        let name = |host: &Host| -> Arc<str> { host.target.host.as_str().into() };
        let (out, hosts): (Vec<&Host>, Vec<&Host>) = play
            .hosts
            .iter()
            .partition(|h| ledger.lost.contains(&name(h)) || shared.interrupted.load(Ordering::Relaxed));
        sink(Event::PlayStarted(PlayStarted {
            play: play.name.clone(),
            hosts: hosts.iter().map(|h| name(h)).collect(),
            first_batch: hosts.len(),
            resources: exam.checks.len(),
        }));
        for host in out {
            ledger.pass_over(play, name(host), "it was unreachable, or the run was interrupted", sink);
        }
        for event in examine(shared, &play.name, exam, &hosts, forks, sink) {
            if event.status == HostStatus::Unreachable {
                ledger.lost.insert(event.host.clone());
            }
            ledger.close(&event);
            sink(Event::Host(Box::new(event)));
        }
    }
    let mut finished = ledger.finish(false, shared.interrupted.load(Ordering::Relaxed));
    finished.time = started.elapsed();
    finished
}

/// Visits hosts without a play, each in its own way.
pub fn survey<T: Sync>(
    shared: &Shared,
    forks: usize,
    hosts: &[T],
    name: impl Fn(&T) -> Arc<str> + Sync,
    visit: impl Fn(&T, &(dyn Fn(Event) + Sync)) -> HostEvent + Sync,
    sink: &mut dyn FnMut(Event),
) -> RunFinished {
    let mut ledger = Ledger::default();
    let started = Instant::now();
    let work = |host: &T, send: &(dyn Fn(Event) + Sync)| send(Event::Host(Box::new(visit(host, send))));
    let panicked = |at: usize, message| {
        Event::Host(Box::new(host_event("", name(&hosts[at]), HostStatus::Failed, Some(bug(message)))))
    };
    pool::each(forks, hosts, work, panicked, |event| {
        let Some(event) = event else { return ledger.notice(shared, sink) };
        if let Event::Host(event) = &event {
            ledger.close(event);
        }
        sink(event);
    });
    let mut finished = ledger.finish(false, shared.interrupted.load(Ordering::Relaxed));
    finished.time = started.elapsed();
    finished
}

/// What the run knows.
#[derive(Default)]
pub(super) struct Ledger {
    check: bool,
    hosts: BTreeMap<Arc<str>, HostTotal>,
    pub(super) resources: BTreeMap<Status, usize>,
    pub(super) lost: HashSet<Arc<str>>,
    /// Why no further batch and no further play begins.
    pub(super) stopped: Option<String>,
    pub(super) held_back: bool,
    pub(super) pending: bool,
    /// Whether an interruption was told.
    noticed: bool,
    /// The names of each machine.
    pub(super) machines: HashMap<(String, String), Vec<Arc<str>>>,
    /// How many hosts may be unavailable at once: the least that a play of the run says.
    pub(super) most: usize,
    /// The hosts of the play that would be booted (`--check`), and why.
    pub(super) planned: Vec<(Arc<str>, Vec<String>)>,
    /// What resources of the play name and no host had so far, by their addresses, with the number of those hosts.
    vain: BTreeMap<Arc<str>, (usize, Vec<String>)>,
    /// The hosts that are.
    pub(super) away: BTreeMap<Arc<str>, Away>,
    /// Those among them that the scheduler has so, as it was last asked.
    pub(super) unavailable: Vec<Arc<str>>,
    /// The hosts that were booted and given back.
    pub(super) returned: HashSet<Arc<str>>,
}

impl Ledger {
    fn play(&mut self, shared: &Shared, play: &Play, options: Options, sink: &mut dyn FnMut(Event)) {
        let name = |host: &Host| -> Arc<str> { host.target.host.as_str().into() };
        let (left_out, hosts): (Vec<&Host>, Vec<&Host>) = play.hosts.iter().partition(|h| self.lost.contains(&name(h)));
        let sizes = rolling::batches(hosts.len(), &play.serial);
        if self.stopped.is_none() && !shared.interrupted.load(Ordering::Relaxed) {
            sink(Event::PlayStarted(PlayStarted {
                play: play.name.clone(),
                hosts: hosts.iter().map(|h| name(h)).collect(),
                first_batch: sizes.first().copied().unwrap_or(0),
                resources: play.resources,
            }));
        }
        for host in left_out {
            self.pass_over(play, name(host), "it failed in an earlier play", sink);
        }
        let canary = Canary::new(play.max_fail_percentage, play.confirm.path_mtu);
        if play.confirm.path_mtu && options.forks < 2 {
            let message = format!(
                "{}: `path_mtu` needs two hosts at once, and --forks is 1: an MTU that has to be raised fails",
                play.name
            );
            sink(Event::Warning(Warning { message }));
        }
        // A host that an earlier play has lost has its place in this one as well.
        for (host, away) in &mut self.away {
            if let Some(domain) = play.reboot.as_ref().and_then(|r| r.domains.get(host)) {
                away.domain = Some(domain.clone());
            }
        }
        let mut rest = hosts.as_slice();
        let mut batches = Vec::new();
        for size in &sizes {
            let (batch, later) = rest.split_at(*size);
            rest = later;
            batches.push(batch);
        }
        for (i, &batch) in batches.iter().enumerate() {
            if shared.interrupted.load(Ordering::Relaxed) {
                self.stopped.get_or_insert_with(|| "the run was interrupted".to_owned());
            }
            if let Some(why) = self.stopped.clone() {
                for host in batch {
                    self.held_back = true;
                    self.pass_over(play, name(host), &why, sink);
                }
                continue;
            }
            let names = batch.iter().map(|h| name(h)).collect();
            sink(Event::BatchStarted { play: play.name.clone(), number: (i + 1, sizes.len()), hosts: names });
            let lost = self.batch(shared, play, batch, &canary, options, sink);
            if !options.check && !shared.interrupted.load(Ordering::Relaxed) {
                let done = batches[..=i].iter().copied().flatten().copied();
                let done: Vec<&Host> = done.filter(|h| !self.lost.contains(&name(h))).collect();
                self.prove(shared, play, &done, options.forks, i + 1, sink);
            }
            // A check touches nothing, so it goes on and shows all hosts.
            if !options.check && rolling::over(lost, batch.len(), play.max_fail_percentage) {
                let rule = match play.max_fail_percentage {
                    Some(limit) => format!("over max_fail_percentage: {limit}"),
                    None => "all of it".to_owned(),
                };
                self.stopped =
                    Some(format!("the run was stopped: {lost} of {} hosts of a batch failed, {rule}", batch.len()));
            }
        }
        for (address, (n, vain)) in std::mem::take(&mut self.vain) {
            for what in vain {
                let message = format!("{address}: {what} ({})", self::hosts(n));
                sink(Event::Warning(Warning { message }));
            }
        }
        if let (true, Some(reboot)) = (options.check, &play.reboot) {
            self.foresee(play, reboot, &batches, sink);
        }
    }

    /// Makes the checks of a play on the hosts that are done so far; where one fails nothing else is begun.
    fn prove(
        &mut self,
        shared: &Shared,
        play: &Play,
        done: &[&Host],
        forks: usize,
        batch: usize,
        sink: &mut dyn FnMut(Event),
    ) {
        let Some(exam) = play.exam.as_ref().filter(|_| !done.is_empty()) else { return };
        let mut failed = 0;
        for event in examine(shared, &play.name, exam, done, forks, sink) {
            if matches!(event.status, HostStatus::Failed | HostStatus::Unreachable) {
                failed += 1;
                self.lost.insert(event.host.clone());
            }
            if let Some(error) = event.error.as_ref().filter(|e| e.kind != "verify") {
                let message = format!("{} couldn't be tested: {}", event.host, error.message);
                sink(Event::Warning(Warning { message }));
            }
            self.close(&event);
        }
        if failed > 0 {
            let why = format!("the run was stopped: the checks of `verify` failed after batch {batch}");
            self.stopped.get_or_insert(why);
        }
    }

    /// Tells in which order the hosts of a play would be booted, and which wouldn't.
    fn foresee(&mut self, play: &Play, reboot: &Reboot, batches: &[&[&Host]], sink: &mut dyn FnMut(Event)) {
        let mut planned = std::mem::take(&mut self.planned);
        let places: HashMap<&str, (usize, usize)> = batches
            .iter()
            .enumerate()
            .flat_map(|(batch, hosts)| hosts.iter().enumerate().map(move |(i, h)| (h.target.host.as_str(), (batch, i))))
            .collect();
        let place = |host: &Arc<str>| places.get(&**host).copied().unwrap_or_default();
        planned.sort_by_key(|(host, _)| place(host));
        let twin = |host: &Arc<str>| self.machines.values().any(|names| names.len() > 1 && names.contains(host));
        planned.retain(|(host, _)| !twin(host));
        let lost = |host: &Arc<str>| self.away.get(host).and_then(|away| away.lost.as_ref());
        let told: Vec<String> =
            planned.iter().filter_map(|(host, _)| Some(format!("{host} ({})", lost(host)?))).collect();
        planned.retain(|(host, _)| lost(host).is_none());
        let mut warn = |message: String| sink(Event::Warning(Warning { message }));
        if !told.is_empty() {
            warn(format!("these wouldn't be booted, as somebody else has them out of service: {}", told.join(", ")));
        }
        let domains: Vec<Option<String>> = planned.iter().map(|(host, _)| reboot.domains.get(host).cloned()).collect();
        let of: Vec<usize> = planned.iter().map(|(host, _)| place(host).0).collect();
        let rounds = rolling::rounds(self.most, &self.away, &domains, &of);
        let order: Vec<usize> = rounds.concat();
        if order.len() < planned.len() {
            let left = planned.iter().enumerate().filter(|(i, _)| !order.contains(i));
            let left: Vec<&str> = left.map(|(_, (host, _))| &**host).collect();
            let spent = self.spent(domains.iter().any(Option::is_some));
            warn(format!("these wouldn't be booted: {}: {spent}", left.join(", ")));
        }
        if !order.is_empty() {
            let drained = play.hosts.iter().any(|host| host.way.drain != Drain::None);
            sink(Event::BootsPlanned(BootsPlanned {
                play: play.name.clone(),
                hosts: order.into_iter().map(|i| planned[i].clone()).collect(),
                at_once: rounds.iter().map(Vec::len).max().unwrap_or(0),
                at_most: reboot.at_most(rounds.len(), drained),
            }));
        }
    }

    /// What uses up how many may be away.
    pub(super) fn spent(&self, domains: bool) -> String {
        let told = |(host, away): (&Arc<str>, &Away)| Some(format!("{host} ({})", away.lost.as_ref()?));
        let away: Vec<String> = self.away.iter().filter_map(told).collect();
        format!(
            "{} may be unavailable at once (`max_unavailable`{}), and {} already: {}",
            hosts(self.most),
            if domains { ", one of a `domain`" } else { "" },
            if away.len() == 1 { "one is" } else { "these are" },
            away.join(", ")
        )
    }

    /// Who interrupts is told why it goes on, lest they end what can't be ended without harm.
    pub(super) fn notice(&mut self, shared: &Shared, sink: &mut dyn FnMut(Event)) {
        if shared.interrupted.load(Ordering::Relaxed) && !std::mem::replace(&mut self.noticed, true) {
            let message = "interrupted: a host that is being changed finishes the steps that it was sent, handlers among \
                           them, and nothing else is begun; a second Ctrl-C ends it at once and leaves open what \
                           becomes of them";
            sink(Event::Warning(Warning { message: message.to_owned() }));
        }
    }

    /// Takes in what a resource names and a host has nothing of.
    pub(super) fn in_vain(&mut self, address: &Arc<str>, what: &[String]) {
        let (hosts, vain) = self.vain.entry(address.clone()).or_insert_with(|| (0, what.to_vec()));
        *hosts += 1;
        vain.retain(|v| what.contains(v));
    }

    pub(super) fn total(&mut self, host: &Arc<str>) -> &mut HostTotal {
        self.hosts.entry(host.clone()).or_insert_with(|| HostTotal {
            status: HostStatus::Skipped,
            resources: BTreeMap::new(),
            ignored: 0,
            reboot_pending: false,
            executions: 0,
            passed_over: false,
        })
    }

    /// Whether an earlier play has come to an end on a host.
    pub(super) fn visited(&self, host: &Arc<str>) -> bool {
        self.hosts.contains_key(host)
    }

    pub(super) fn close(&mut self, event: &HostEvent) {
        let total = self.total(&event.host);
        total.executions += event.executions;
        total.reboot_pending |= !event.reboot_pending.is_empty();
        total.passed_over |= event.status == HostStatus::Skipped;
        // A host that a later play passed over keeps what it came to before.
        let rank = |s: HostStatus| match s {
            HostStatus::Skipped => 0,
            HostStatus::Ok => 1,
            HostStatus::Changed => 2,
            HostStatus::Failed => 3,
            HostStatus::Unreachable => 4,
        };
        if rank(event.status) > rank(total.status) {
            total.status = event.status;
        }
    }

    fn pass_over(&mut self, play: &Play, host: Arc<str>, why: &str, sink: &mut dyn FnMut(Event)) {
        let problem = Problem { kind: "skipped", message: why.to_owned(), hint: None };
        let event = host_event(&play.name, host, HostStatus::Skipped, Some(problem));
        self.close(&event);
        sink(Event::Host(Box::new(event)));
    }

    /// Two names for one machine: both are done, one after the other by the host's lock, and it is told.
    pub(super) fn meet(&mut self, machine: (String, String), host: &Arc<str>, sink: &mut dyn FnMut(Event)) {
        let names = self.machines.entry(machine).or_default();
        if names.contains(host) {
            return;
        }
        names.push(host.clone());
        if let [first, _, ..] = names.as_slice() {
            let message = format!("{first} and {host} are the same machine: they have the same boot_id and machine-id");
            sink(Event::Warning(Warning { message }));
        }
    }

    fn finish(self, detailed: bool, interrupted: bool) -> RunFinished {
        let any = |s: HostStatus| self.hosts.values().any(|t| t.status == s);
        let failed = any(HostStatus::Failed) || (self.held_back && !interrupted);
        let reboot = self.hosts.values().any(|t| t.reboot_pending);
        let exit_code = match (interrupted, failed, any(HostStatus::Unreachable)) {
            (true, _, _) => 130,
            (_, true, true) => 6,
            (_, false, true) => 4,
            (_, true, false) => 2,
            _ if detailed && (self.pending || reboot) => 3,
            _ => 0,
        };
        RunFinished {
            check: self.check,
            hosts: self.hosts,
            resources: self.resources,
            exit_code,
            interrupted,
            ..RunFinished::default()
        }
    }
}

pub(super) fn bug(message: String) -> Problem {
    let hint = Some("please report it".to_owned());
    Problem { kind: "internal", message: format!("netplay itself failed: {message}"), hint }
}

pub(super) fn host_event(play: &str, host: Arc<str>, status: HostStatus, error: Option<Problem>) -> HostEvent {
    HostEvent {
        play: play.into(),
        host,
        status,
        executions: 0,
        time: Duration::ZERO,
        warnings: Vec::new(),
        reboot_pending: Vec::new(),
        error,
    }
}

pub(super) fn hosts(n: usize) -> String {
    if n == 1 { "one host".to_owned() } else { format!("{n} hosts") }
}
