//! One batch of a play: its visits, and the boots among them, so many at once as may be away.

use super::boot::{Awaited, Left, Trip, Turn, Unavailable};
use super::guard::{Canary, Proof};
use super::pool::{self, Heard, WHILE};
use super::rolling::{self, Admission, Away, Claim};
use super::run::{Host, Ledger, Options, Play, bug, host_event};
use super::visit::{Visit, Visited};
use super::{boot, visit::Shared};
use crate::event::{BootEvent, BootStep, Event, HostEvent, HostStatus, Problem, Status, Warning};
use crate::resource::Question;
use crate::transport::{FailureKind, Knock};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// What a thread is to do for the host of a number.
enum Job {
    Visit,
    /// To see whether what an earlier run had boot is back.
    Await,
    /// To find out where it can be seen whether its host is there at all, before this is done.
    Door(Box<Job>),
    Turn(Box<Trip>),
    GiveUp(Box<Trip>, Problem),
    /// It was drained, and isn't booted: it is given back.
    StandBack(Box<Trip>, Problem),
    /// The scheduler is asked whom it has as unavailable.
    Census,
}

/// What a thread tells.
enum Told {
    Event(Event),
    Visited(usize, Visited),
    /// Whether what is awaited is still away.
    Awaited(usize, bool),
    /// Where a knock tells whether the host is there, if it does, and what is to be done then.
    Door(usize, Option<SocketAddr>, Job),
    Turn(usize, Turn),
    Census(Result<Vec<Unavailable>, Problem>),
}

/// What is known of a host of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// For the first time, just now.
    Visited,
    OnItsWay,
    Over,
}

/// Where the scheduler's view stands.
#[derive(Debug, PartialEq, Eq)]
enum Census {
    Open,
    /// When.
    Asked(Instant),
    /// When it was asked and when it answered, which of ten thousand nodes may take seconds.
    Known(Instant, Instant),
}

/// How old the scheduler's view may be when further hosts are taken away: others drain, and lose, hosts meanwhile.
const FRESH: Duration = Duration::from_secs(2);

/// How long a run that began later is given to see that it has to give way.
const GIVES_WAY: Duration = Duration::from_secs(20);

/// How long until knocks are looked at again.
const SOON: Duration = Duration::from_millis(50);

/// How long an address is good: a host may come back with another one.
const RESOLVED: Duration = Duration::from_secs(60);

/// A batch under way.
struct Round<'r> {
    ledger: &'r mut Ledger,
    play: &'r Play,
    batch: &'r [&'r Host],
    hosts: Vec<Is>,
    lost: usize,
    /// Those that wait until they may be taken away.
    waiting: Vec<(usize, Box<Trip>)>,
    /// Those that were drained at this moment, and are booted if not too many are away since then.
    claims: Vec<(Instant, usize, Box<Trip>)>,
    /// What the scheduler has as drained by later runs.
    behind: HashSet<Arc<str>>,
    /// Those that wait for something of their own.
    due: Vec<(Instant, usize, Job)>,
    /// Those of them that may be down: whether they take connections.
    knocks: Vec<(Knock, Instant, usize, Job)>,
    /// When these were looked at.
    knocked: Instant,
    /// Where that can be found out, by when.
    doors: Vec<Option<(Instant, Option<SocketAddr>)>>,
    census: Census,
    /// Whether hosts have come to those that wait since it was looked which names are one machine.
    newcomers: bool,
    /// Whether a scheduler has a view of it.
    scheduled: bool,
}

type Desk = pool::Desk<Job, Told>;

impl Ledger {
    /// Visits the hosts of one batch and boots those that need it. Gives how many of them were lost.
    pub(super) fn batch(
        &mut self,
        shared: &Shared,
        play: &Play,
        batch: &[&Host],
        canary: &Canary,
        options: Options,
        sink: &mut dyn FnMut(Event),
    ) -> usize {
        let work = |at: usize, job: Job, send: &(dyn Fn(Told) + Sync)| {
            let events = |event| send(Told::Event(event));
            let host = batch[at];
            let visit = Visit {
                shared,
                target: &host.target,
                site: &*host.site,
                play: play.name.clone(),
                policy: play.policy,
                events: &events,
                patient: false,
                confirm: Proof { leads_to: host.leads_to.clone(), ..play.confirm.clone() },
                canary: Some(canary),
            };
            match (job, &play.reboot) {
                (Job::Visit, _) => {
                    let rendered = std::mem::take(&mut *host.play.lock().unwrap_or_else(PoisonError::into_inner));
                    send(Told::Visited(at, visit.make(rendered)));
                }
                (Job::Await, _) => send(Told::Awaited(at, boot::absent(&visit))),
                (Job::Door(job), _) => send(Told::Door(at, visit.door(), *job)),
                (Job::Turn(trip), Some(reboot)) => send(Told::Turn(at, trip.turn(&visit, reboot, &host.way))),
                (Job::Turn(trip), None) => send(Told::Turn(at, trip.give_up(&visit, bug("no boots here".to_owned())))),
                (Job::StandBack(trip, problem), Some(reboot)) => {
                    send(Told::Turn(at, trip.fail(&visit, reboot, problem)));
                }
                (Job::GiveUp(trip, problem) | Job::StandBack(trip, problem), _) => {
                    send(Told::Turn(at, trip.give_up(&visit, problem)))
                }
                (Job::Census, _) => send(Told::Census(census(&visit, play))),
            }
        };
        canary.batch(batch.len(), options.forks);
        let mut round = Round {
            ledger: self,
            play,
            batch,
            hosts: vec![Is::Visited; batch.len()],
            lost: 0,
            waiting: Vec::new(),
            claims: Vec::new(),
            behind: HashSet::new(),
            due: Vec::new(),
            knocks: Vec::new(),
            knocked: Instant::now(),
            doors: vec![None; batch.len()],
            census: Census::Open,
            newcomers: false,
            scheduled: play.hosts.iter().any(|host| boot::Census::of(&host.way.drain).is_some()),
        };
        pool::crew(options.forks.min(batch.len()), work, |desk| round.owner(shared, desk, sink));
        round.lost
    }
}

/// Asks the schedulers of all hosts of the play.
fn census(visit: &Visit<'_>, play: &Play) -> Result<Vec<Unavailable>, Problem> {
    let asked: BTreeSet<&str> = play.hosts.iter().filter_map(|host| boot::Census::of(&host.way.drain)).collect();
    let Some(reboot) = play.reboot.as_ref().filter(|_| !asked.is_empty()) else { return Ok(Vec::new()) };
    let answers = reboot.desk.ask(visit, asked.iter().map(|tool| Question::of::<boot::Census>(*tool)), false)?;
    let mut unavailable = Vec::new();
    for tool in asked {
        let found = answers.get::<boot::Census>(tool).map_err(|trouble| {
            let message = format!("the scheduler doesn't tell who is available: {tool}: {}", trouble.message);
            let host = &reboot.desk.target.host;
            Problem { kind: "drain", message, hint: Some(format!("the command runs on {host} (`drain_on`)")) }
        })?;
        unavailable.extend_from_slice(found);
    }
    Ok(unavailable)
}

impl Round<'_> {
    fn owner(&mut self, shared: &Shared, desk: &Desk, sink: &mut dyn FnMut(Event)) {
        for (at, host) in self.batch.iter().enumerate() {
            let due = host.way.awaited.as_ref().is_some_and(Awaited::due);
            let awaited = due && !self.ledger.visited(&self.name(at));
            // Whether it is there at all takes no look where it can be found out otherwise.
            self.look(at, if awaited { Job::Await } else { Job::Visit }, false, desk);
        }
        let mut hurried = false;
        while self.hosts.iter().any(|is| *is != Is::Over) || self.asks(desk) {
            let interrupted = shared.interrupted.load(Ordering::Relaxed);
            let now = Instant::now();
            let hurry = interrupted && !std::mem::replace(&mut hurried, interrupted);
            for (when, at, job) in std::mem::take(&mut self.due) {
                if when > now && !hurry {
                    self.due.push((when, at, job));
                } else {
                    self.look(at, job, interrupted, desk);
                }
            }
            self.knocks(interrupted, desk, sink);
            self.claim(desk, interrupted);
            self.admit(desk, interrupted);
            let next = self.due.iter().map(|(when, ..)| when.saturating_duration_since(now)).min();
            let next = if self.knocks.is_empty() { next } else { Some(next.unwrap_or(SOON).min(SOON)) };
            match desk.hear(next.map_or(WHILE, |n| n.min(WHILE))) {
                None => self.ledger.notice(shared, sink),
                Some(Heard::Event(Told::Event(event))) => self.event(event, sink),
                Some(Heard::Event(Told::Visited(at, visited))) => self.visited(at, visited, desk, sink),
                Some(Heard::Event(Told::Turn(at, Turn::Later(trip, wait)))) => {
                    // What is waited for though the run is interrupted isn't asked for all the time.
                    let wait = if interrupted { wait.min(Duration::from_secs(1)) } else { wait };
                    self.due.push((Instant::now() + wait, at, Job::Turn(trip)));
                }
                Some(Heard::Event(Told::Door(at, door, job))) => {
                    self.doors[at] = Some((Instant::now(), door));
                    self.look(at, job, interrupted, desk);
                }
                Some(Heard::Event(Told::Awaited(at, absent))) => self.awaited(at, absent && !interrupted, desk, sink),
                // It is drained, if it was, and goes before all others.
                Some(Heard::Event(Told::Turn(at, Turn::Needs(trip)))) => {
                    self.ledger.away.remove(&self.name(at));
                    self.wait(at, trip);
                }
                Some(Heard::Event(Told::Turn(at, Turn::Counts(trip)))) => self.claims.push((Instant::now(), at, trip)),
                Some(Heard::Event(Told::Turn(at, Turn::Over(event, machine, left)))) => {
                    let name = self.name(at);
                    match left {
                        Left::Back => {
                            self.ledger.away.remove(&name);
                            self.ledger.returned.insert(name.clone());
                        }
                        Left::AsItWas => {}
                        Left::Away(why) => self.away(at, Some(why)),
                    }
                    if let Some(machine) = machine {
                        self.ledger.meet(machine, &name, sink);
                    }
                    self.over(at, event, sink);
                }
                Some(Heard::Event(Told::Census(found))) => {
                    if let (true, Err(problem)) = (self.play.policy.check, &found) {
                        sink(Event::Warning(Warning {
                            message: format!("boots can't be foreseen: {}", problem.message),
                        }));
                    }
                    self.counted(shared, found, desk);
                }
                Some(Heard::Over(at, Some(message))) => {
                    self.waiting.retain(|(other, _)| *other != at);
                    self.claims.retain(|(_, other, _)| *other != at);
                    if let Census::Asked(_) = self.census {
                        self.counted(shared, Err(bug(message.clone())), desk);
                    }
                    if self.hosts[at] == Is::Over {
                        continue;
                    }
                    if self.hosts[at] == Is::OnItsWay {
                        self.away(at, Some("netplay itself failed".to_owned()));
                    }
                    let event = host_event(&self.play.name, self.name(at), HostStatus::Failed, Some(bug(message)));
                    self.over(at, Box::new(event), sink);
                }
                Some(Heard::Over(..)) => {}
            }
        }
    }

    /// How long until the next look at a host of which it isn't known that it is up; nothing where one is due now whatever it
    /// does.
    fn down(&self, at: usize, job: &Job) -> Option<Duration> {
        match job {
            Job::Await => self.batch[at].way.awaited.as_ref().filter(|a| a.due()).map(Awaited::pause),
            Job::Turn(trip) => trip.down(self.play.reboot.as_ref()?),
            _ => None,
        }
    }

    /// Has a job done, after a knock where its host may be down.
    fn look(&mut self, at: usize, job: Job, interrupted: bool, desk: &Desk) {
        if interrupted || self.down(at, &job).is_none() {
            return desk.give(at, job);
        }
        match self.doors[at].filter(|(when, _)| when.elapsed() < RESOLVED) {
            Some((_, Some(door))) => self.knocks.push((Knock::at(&door), Instant::now(), at, job)),
            Some((_, None)) => desk.give(at, job),
            None => desk.give(at, Job::Door(Box::new(job))),
        }
    }

    /// Who takes connections again is looked at. To wait for the others takes no thread: a look at a host that says nothing would
    /// hold one for seconds. They aren't asked at each event, of which thousands come while a thousand hosts boot.
    fn knocks(&mut self, interrupted: bool, desk: &Desk, sink: &mut dyn FnMut(Event)) {
        if self.knocked.elapsed() < SOON && !interrupted {
            return;
        }
        self.knocked = Instant::now();
        for (knock, since, at, job) in std::mem::take(&mut self.knocks) {
            let silent = since.elapsed() > boot::QUICK;
            match (knock.answer(), self.down(at, &job)) {
                (Some(true), _) | (_, None) => desk.give(at, job),
                _ if interrupted => desk.give(at, job),
                (None, Some(_)) if !silent => self.knocks.push((knock, since, at, job)),
                (_, Some(pause)) => match job {
                    Job::Await => self.awaited(at, true, desk, sink),
                    job => self.due.push((Instant::now() + pause, at, job)),
                },
            }
        }
    }

    /// A check that would boot hosts asks the scheduler too, at its end. Whether that goes on.
    fn asks(&mut self, desk: &Desk) -> bool {
        if self.play.policy.check && self.census == Census::Open && !self.ledger.planned.is_empty() {
            self.ask(0, desk);
        }
        matches!(self.census, Census::Asked(_))
    }

    fn ask(&mut self, at: usize, desk: &Desk) {
        self.census = Census::Asked(Instant::now());
        desk.give(at, Job::Census);
    }

    /// What fails together with a host of the play, before `--limit` and of any batch.
    fn domain(&self, host: &Arc<str>) -> Option<String> {
        self.play.reboot.as_ref()?.domains.get(host).cloned()
    }

    fn name(&self, at: usize) -> Arc<str> {
        self.batch[at].target.host.as_str().into()
    }

    /// A host isn't available, for this reason if this run can't change it.
    fn away(&mut self, at: usize, lost: Option<String>) {
        let name = self.name(at);
        // It isn't the scheduler any more that says so.
        self.ledger.unavailable.retain(|host| *host != name);
        self.ledger.away.insert(name.clone(), Away { domain: self.domain(&name), lost });
    }

    fn event(&mut self, event: Event, sink: &mut dyn FnMut(Event)) {
        if let Event::Resource(resource) = &event {
            *self.ledger.resources.entry(resource.status).or_default() += 1;
            let total = self.ledger.total(&resource.host);
            *total.resources.entry(resource.status).or_default() += 1;
            total.ignored += usize::from(resource.ignored && resource.status == Status::Failed);
            if let Some(in_vain) = &resource.in_vain {
                self.ledger.in_vain(&resource.address, in_vain);
            }
            self.ledger.pending |= matches!(resource.status, Status::WouldChange | Status::RebootPending);
        }
        sink(event);
    }

    fn over(&mut self, at: usize, event: Box<HostEvent>, sink: &mut dyn FnMut(Event)) {
        self.hosts[at] = Is::Over;
        if matches!(event.status, HostStatus::Failed | HostStatus::Unreachable) {
            self.lost += 1;
            self.ledger.lost.insert(event.host.clone());
        }
        // A change that a host had to take back is made on no other, unless the play allows some to fail.
        let rolled_back = event.error.as_ref().is_some_and(|e| e.kind == "rolled_back");
        if rolled_back && self.play.max_fail_percentage.is_none() {
            let why = format!("the run was stopped: {} was rolled back", event.host);
            self.ledger.stopped.get_or_insert(why);
        }
        self.ledger.close(&event);
        sink(Event::Host(event));
    }

    /// A host that an earlier run had boot has its place in the budget as long as it may come back, and is visited then.
    fn awaited(&mut self, at: usize, absent: bool, desk: &Desk, sink: &mut dyn FnMut(Event)) {
        let Some(awaited) = self.batch[at].way.awaited.as_ref().filter(|awaited| absent && awaited.due()) else {
            return desk.give(at, Job::Visit);
        };
        if self.hosts[at] == Is::Visited {
            self.hosts[at] = Is::OnItsWay;
            self.away(at, None);
            sink(Event::Boot(Box::new(BootEvent {
                play: self.play.name.clone(),
                host: self.name(at),
                step: BootStep::Awaited,
                time: awaited.ago(),
                detail: awaited.told(),
            })));
        }
        self.due.push((Instant::now() + awaited.pause(), at, Job::Await));
    }

    fn visited(&mut self, at: usize, visited: Visited, desk: &Desk, sink: &mut dyn FnMut(Event)) {
        let name = self.name(at);
        let way = &self.batch[at].way;
        let awaited = self.hosts[at] == Is::OnItsWay;
        if awaited {
            self.ledger.away.remove(&name);
        }
        match visited {
            Visited::Boot(paused, boot) => {
                self.hosts[at] = Is::OnItsWay;
                let machine = paused.kept.machine.clone();
                if let Some(machine) = machine {
                    self.ledger.meet(machine, &name, sink);
                }
                let foreign = paused.kept.foreign;
                let trip = Trip::new(paused, boot, way);
                if foreign {
                    let message = "it isn't booted: an earlier run's boot isn't over, and this play doesn't have what that was for";
                    let hint = Some("run the play that has it".to_owned());
                    self.away(at, Some("an earlier run's boot isn't over".to_owned()));
                    let problem = Problem { kind: "reboot", message: message.to_owned(), hint };
                    return desk.give(at, Job::GiveUp(trip, problem));
                }
                self.wait(at, trip);
            }
            // It has booted already: to prove that takes nobody else away.
            Visited::Proof(paused, note) => {
                self.hosts[at] = Is::OnItsWay;
                if let Some(machine) = paused.kept.machine.clone() {
                    self.ledger.meet(machine, &name, sink);
                }
                self.away(at, None);
                desk.give(at, Job::Turn(Trip::proof(paused, note, way)));
            }
            Visited::Done(mut event, mut kept) => {
                if let Some(machine) = kept.machine.clone() {
                    self.ledger.meet(machine, &name, sink);
                }
                // Another run is at it: it isn't this one's to finish.
                if let Some(problem) = event.error.as_ref().filter(|e| e.kind == "reboot") {
                    kept.note = None;
                    self.away(at, Some(problem.message.clone()));
                }
                if let Some(awaited) =
                    way.awaited.as_ref().filter(|_| awaited && event.status == HostStatus::Unreachable)
                {
                    event.warnings.push(format!("it didn't come back: {}", awaited.told()));
                }
                if event.status == HostStatus::Unreachable {
                    let why = event.error.as_ref().map_or("", |e| &e.message);
                    self.away(at, Some(format!("unreachable: {why}")));
                }
                let boots = self.play.reboot.is_some() && !self.play.policy.check;
                if self.play.reboot.is_some() && !kept.foreseen.is_empty() {
                    let failed = (event.status == HostStatus::Failed).then(|| "it has failed".to_owned());
                    match way.refused.as_ref().or(kept.unbootable.as_ref()).or(failed.as_ref()) {
                        Some(why) => event.warnings.push(format!("it wouldn't be booted: {why}")),
                        None => self.ledger.planned.push((name.clone(), std::mem::take(&mut kept.foreseen))),
                    }
                }
                if kept.foreign {
                    self.away(at, Some("an earlier run's boot isn't over".to_owned()));
                }
                let foreign = kept.foreign;
                match kept.note.clone().filter(|_| boots && !foreign) {
                    Some(note) => {
                        self.hosts[at] = Is::OnItsWay;
                        self.away(at, None);
                        desk.give(at, Job::Turn(Trip::unfinished(event, kept, note, way)));
                    }
                    None => self.over(at, event, sink),
                }
            }
        }
    }

    fn wait(&mut self, at: usize, trip: Box<Trip>) {
        self.waiting.push((at, trip));
        self.newcomers = true;
    }

    /// Two names of one machine are both not booted.
    fn twins(&mut self, desk: &Desk) {
        let twins = self.ledger.machines.values().filter(|names| names.len() > 1);
        let twins: HashMap<&str, &Vec<Arc<str>>> =
            twins.flat_map(|names| names.iter().map(move |name| (&**name, names))).collect();
        let problem = |at: usize| {
            let mut names: Vec<&str> = twins.get(&*self.name(at))?.iter().map(|name| &**name).collect();
            names.sort_unstable();
            let message = format!("it isn't booted: {} are one machine by boot_id and machine-id", names.join(" and "));
            let hint = "leave one of these names in the inventory, or give cloned images machine-ids of their own";
            Some((at, Problem { kind: "reboot", message, hint: Some(hint.to_owned()) }))
        };
        let problems: HashMap<usize, Problem> = self.waiting.iter().filter_map(|(at, _)| problem(*at)).collect();
        self.give_up(desk, |at| problems.get(&at).cloned());
    }

    /// Lets go whom the budget allows, when all hosts were seen once and the scheduler was asked: before that nobody
    /// knows who is away anyhow, and which names are one machine.
    fn admit(&mut self, desk: &Desk, interrupted: bool) {
        if self.waiting.is_empty() || self.hosts.contains(&Is::Visited) {
            return;
        }
        if interrupted {
            let kind = FailureKind::Interrupted.name();
            let message = "the run was interrupted before it was booted".to_owned();
            return self.give_up(desk, |_| Some(Problem { kind, message: message.clone(), hint: None }));
        }
        let since = match self.census {
            Census::Known(_, since) => since,
            Census::Open => return self.ask(self.waiting[0].0, desk),
            Census::Asked(_) => return,
        };
        if std::mem::take(&mut self.newcomers) {
            self.twins(desk);
        }
        if let Some(limit) = self.play.max_fail_percentage
            && rolling::over(self.lost, self.batch.len(), Some(limit))
        {
            let message = format!(
                "it isn't booted: {} of {} hosts of the batch failed, over max_fail_percentage: {limit}",
                self.lost,
                self.batch.len()
            );
            return self.give_up(desk, |_| Some(Problem { kind: "stopped", message: message.clone(), hint: None }));
        }
        // Where all places are taken, one of them will be free again.
        if self.ledger.away.len() >= self.ledger.most && self.ledger.away.values().any(|away| away.lost.is_none()) {
            return;
        }
        // As they stand in the play, which is the order that a check told; those that are drained already first.
        self.waiting.sort_by_key(|(at, trip)| (!trip.begun(), *at));
        let domains: Vec<Option<String>> = self.waiting.iter().map(|(at, _)| self.domain(&self.name(*at))).collect();
        match rolling::admit(self.ledger.most, &self.ledger.away, &domains) {
            Admission::Go(going) if self.scheduled && !going.is_empty() && since.elapsed() > FRESH => {
                self.ask(self.waiting[0].0, desk);
            }
            Admission::Go(going) => {
                for i in going.into_iter().rev() {
                    let (at, mut trip) = self.waiting.remove(i);
                    trip.begin();
                    self.away(at, None);
                    desk.give(at, Job::Turn(trip));
                }
            }
            Admission::Spent => {
                let message = format!("it isn't booted: {}", self.ledger.spent(domains.iter().any(Option::is_some)));
                let hint = "bring them back, or leave them out of the play (`hosts: all:!NAME`), or allow more by \
                            `max_unavailable`";
                self.ledger.stopped = Some(message.replacen("it isn't booted", "the run was stopped", 1));
                self.ledger.held_back = true;
                self.give_up(desk, |_| {
                    Some(Problem { kind: "budget", message: message.clone(), hint: Some(hint.to_owned()) })
                });
            }
        }
    }

    /// Which of those that were drained may be booted. Each run drains first and counts then, so of two that drain at the same
    /// moment at least one sees the other; the one that began later gives way, and the other one waits until it has.
    fn claim(&mut self, desk: &Desk, interrupted: bool) {
        if self.claims.is_empty() {
            return;
        }
        let (since, answered) = match self.census {
            Census::Asked(_) if !interrupted => return,
            Census::Open if !interrupted => return self.ask(self.claims[0].1, desk),
            Census::Open | Census::Asked(_) => (Instant::now(), Instant::now()),
            Census::Known(since, answered) => (since, answered),
        };
        let mut again = false;
        for (when, at, trip) in std::mem::take(&mut self.claims) {
            if when >= since && !interrupted {
                again = true;
                self.claims.push((when, at, trip));
                continue;
            }
            let name = self.name(at);
            match rolling::claim(self.ledger.most, &self.ledger.away, &name, |host| self.behind.contains(host)) {
                // It is given back by its next turn.
                _ if interrupted => desk.give(at, Job::Turn(trip)),
                Claim::Holds => desk.give(at, Job::Turn(trip)),
                Claim::Disputed if when.elapsed() < GIVES_WAY => {
                    again |= answered.elapsed() > FRESH;
                    self.claims.push((when, at, trip));
                }
                Claim::Disputed | Claim::Yields => {
                    let spent = self.ledger.spent(self.domain(&name).is_some());
                    let own = self.ledger.away.values().filter(|away| away.lost.is_none()).count();
                    let own = super::run::hosts(own);
                    let message = format!("it was drained, and isn't booted: {spent}; this run has taken away {own}");
                    let hint = Some(
                        "another run took them away at the same moment: let it finish, then run this again".to_owned(),
                    );
                    // The others of this run may have its place.
                    self.ledger.away.remove(&name);
                    desk.give(at, Job::StandBack(trip, Problem { kind: "budget", message, hint }));
                }
            }
        }
        if again {
            self.ask(self.claims[0].1, desk);
        }
    }

    /// Ends the plays of those that wait and for which there is a problem.
    fn give_up(&mut self, desk: &Desk, problem: impl Fn(usize) -> Option<Problem>) {
        for (at, trip) in std::mem::take(&mut self.waiting) {
            match problem(at) {
                Some(problem) => desk.give(at, Job::GiveUp(trip, problem)),
                None => self.waiting.push((at, trip)),
            }
        }
    }

    /// Takes in what the scheduler told, and which names are one machine.
    fn counted(&mut self, shared: &Shared, found: Result<Vec<Unavailable>, Problem>, desk: &Desk) {
        let now = Instant::now();
        self.census = Census::Known(if let Census::Asked(when) = self.census { when } else { now }, now);
        let unavailable = match found {
            Ok(unavailable) => unavailable,
            Err(problem) => {
                // Those that come later have it asked again; a check asks once.
                if !self.play.policy.check {
                    self.census = Census::Open;
                }
                for (_, at, trip) in std::mem::take(&mut self.claims) {
                    desk.give(at, Job::StandBack(trip, problem.clone()));
                }
                return self.give_up(desk, |_| Some(problem.clone()));
            }
        };
        self.behind.clear();
        // What it had as unavailable when it was asked before may be back.
        for host in std::mem::take(&mut self.ledger.unavailable) {
            self.ledger.away.remove(&host);
        }
        let waiting: Vec<Arc<str>> = self.waiting.iter().map(|(at, _)| self.name(*at)).collect();
        let nodes = self.play.reboot.as_ref().map(|r| &r.nodes);
        for node in unavailable {
            let Some(host) = nodes.and_then(|nodes| nodes.get(&node.node)) else { continue };
            // What netplay drained and waits here is taken over by its own drain; and of what it has just given back the
            // scheduler may not know that it is up.
            let ours = node.run.is_some() && waiting.contains(host);
            if self.ledger.away.contains_key(host) || self.ledger.returned.contains(host) || ours {
                continue;
            }
            if node.run.is_some_and(|run| *run > *shared.run) {
                self.behind.insert(host.clone());
            }
            self.ledger.unavailable.push(host.clone());
            let lost = Some(format!("{} at the scheduler", node.why));
            self.ledger.away.insert(host.clone(), Away { domain: self.domain(host), lost });
        }
        let drained = |host: &Arc<str>| self.ledger.away.get(host).and_then(|away| away.lost.clone());
        let problems: Vec<Option<Problem>> = (0..self.batch.len())
            .map(|at| {
                let host = self.name(at);
                let why = drained(&host)?;
                let message = format!("somebody else has taken it out of service, and it wasn't booted: {why}");
                let hint = Some("when they are done with it, put it back and run this again".to_owned());
                Some(Problem { kind: "drained", message, hint })
            })
            .collect();
        self.give_up(desk, |at| problems[at].clone());
    }
}
