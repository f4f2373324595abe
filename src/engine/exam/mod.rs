//! Checks of the fabric: each host keeps one connection over all of them, and a thread is only taken while something runs
//! on it. What is tested and what follows is `verify`'s; here it is run.

mod pairs;
mod path_mtu;

use super::guard::Proof;
use super::host::{Going, Kept};
use super::pool;
use super::run::{Host, bug};
use super::visit::{Shared, Stop, Visit};
use crate::event::{Event, HostEvent, Problem, Verdict, Warning};
use crate::facts;
use crate::finding::{self, Finding};
use crate::plan::Policy;
use crate::playbook::Become;
use crate::resource::probes::line::CommandLine;
use crate::resource::{Answers, Inquiry, Output, Trouble};
use crate::shell::Script;
use crate::transport::FailureKind;
use crate::verify::counters::{self, Counters};
use crate::verify::fabric::{Node, bare, parts};
use crate::verify::measure::{self, About};
use crate::verify::schedule::Round;
use crate::verify::suite::RdmaTest;
use crate::verify::{Check, Judged, Pairs, audit, busy, ports};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// What a play has checked, and how.
#[derive(Debug, Clone)]
pub struct Exam {
    /// The checks, in this order.
    pub checks: Vec<Check>,
    /// Who is tested with whom.
    pub pairs: Pairs,
    /// Whether hosts that work for somebody are tested with what takes their network for itself.
    pub busy: bool,
    /// As whom.
    pub keywords: Become,
    /// What hosts are called at Slurm, where that isn't their own name.
    pub nodes: HashMap<String, String>,
    /// The groups of the inventory that each host is in.
    pub groups: HashMap<String, Vec<Arc<str>>>,
}

const LOSS: About = About { check: "loss", unit: "%", slow: &finding::PACKET_LOSS };
const RDMA: About = About { check: "rdma", unit: "Gb/s", slow: &finding::RDMA_SLOW };
const TCP: About = About { check: "tcp", unit: "Gb/s", slow: &finding::TCP_SLOW };

/// Makes the checks on these hosts and tells what they come to. Gives what each host came to.
pub(super) fn examine(
    shared: &Shared,
    play: &Arc<str>,
    exam: &Exam,
    hosts: &[&Host],
    forks: usize,
    sink: &mut dyn FnMut(Event),
) -> Vec<HostEvent> {
    // A connection outlives the jobs that use it, and so does what it tells.
    let (sender, told) = mpsc::channel::<Event>();
    let events = |event: Event| drop(sender.send(event));
    let visits = hosts.iter().map(|host| Visit {
        shared,
        target: &host.target,
        site: &*host.site,
        play: play.clone(),
        policy: Policy::default(),
        events: &events,
        patient: false,
        confirm: Proof::default(),
        canary: None,
    });
    let visits: Vec<Visit<'_>> = visits.collect();
    let lines: Vec<Mutex<Going<'_>>> = visits.iter().map(|v| Mutex::new(v.set_out(Kept::default()))).collect();
    let mut room = Room {
        exam,
        play,
        lines: Lines { shared, keywords: &exam.keywords, forks, all: &lines },
        told: &told,
        sink,
        lost: hosts.iter().map(|_| None).collect(),
        bad: BTreeMap::new(),
        found: Vec::new(),
    };
    room.all();
    let Room { mut lost, mut bad, .. } = room;
    let close = |(at, (visit, line)): (usize, (&Visit<'_>, &Mutex<Going<'_>>))| {
        let mut going = lock(line);
        let found = bad.remove(&*visit.target.host).map(|names| {
            let names: Vec<&str> = names.into_iter().collect();
            let message = format!("the fabric isn't as it should be here: {}", names.join(", "));
            Stop::Broken(Problem { kind: "verify", message, hint: None })
        });
        // A host that an interruption kept from being tested hasn't failed.
        let lost = lost[at].take().map(|stop| match stop {
            Stop::Broken(problem) if problem.kind == "interrupted" => Stop::Unreachable(problem),
            stop => stop,
        });
        let result = lost.or(found).map_or(Ok(()), Err);
        visit.close(&mut going, result)
    };
    visits.iter().zip(&lines).enumerate().map(close).collect()
}

/// The connections, one a host. Whoever holds a lock is the only one who tests with that host.
struct Lines<'r, 'v> {
    shared: &'r Shared,
    keywords: &'r Become,
    forks: usize,
    all: &'r [Mutex<Going<'v>>],
}

/// The connection of this host doesn't go on.
type Lost = (usize, Stop);

impl Lines<'_, '_> {
    fn name(&self, at: usize) -> Arc<str> {
        lock(&self.all[at]).visit.target.host.as_str().into()
    }

    /// Asks a host.
    fn ask(&self, at: usize, inquiry: &Inquiry) -> Result<Answers, Lost> {
        let mut going = lock(&self.all[at]);
        going.renew();
        going.ask(inquiry, self.keywords).map_err(|stop| (at, stop))
    }

    /// Runs a script of so many seconds at most. What it gave, also if that is a failure.
    fn run(&self, at: usize, script: &Script, seconds: u32) -> Result<Output, Lost> {
        let argument = CommandLine::argument(seconds, script.as_str());
        let answers = self.ask(at, &Inquiry::new([CommandLine::ask(&argument)]))?;
        let broken = |t: Trouble| (at, Stop::Broken(Problem { kind: "probe", message: t.message, hint: t.hint }));
        answers.get::<CommandLine>(&argument).cloned().map_err(broken)
    }
}

fn lock<'g, 'v>(line: &'g Mutex<Going<'v>>) -> MutexGuard<'g, Going<'v>> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks under way.
struct Room<'r, 'v> {
    exam: &'r Exam,
    play: &'r Arc<str>,
    lines: Lines<'r, 'v>,
    told: &'r mpsc::Receiver<Event>,
    sink: &'r mut dyn FnMut(Event),
    /// Why a host is tested no further.
    lost: Vec<Option<Stop>>,
    /// What is wrong with whom, by the names of findings.
    bad: BTreeMap<String, BTreeSet<&'static str>>,
    /// What was found so far: two checks may find the same.
    found: Vec<Finding>,
}

impl Room<'_, '_> {
    fn all(&mut self) {
        let everybody: Vec<usize> = (0..self.lines.all.len()).collect();
        let audits = self.exam.checks.contains(&Check::Audit);
        let mut questions = facts::questions();
        if audits {
            questions.extend(audit::questions());
        }
        let inquiry = Inquiry::new(questions);
        let answers = self.each(&everybody, |lines, at| lines.ask(*at, &inquiry));
        let (mut known, mut seen) = (BTreeMap::new(), BTreeMap::new());
        for (at, answers) in answers.into_iter().enumerate() {
            let Some(answers) = answers else { continue };
            let (facts, warnings) = facts::read(&answers);
            if audits {
                seen.insert(at, audit::see(&self.lines.name(at), &facts, &answers));
            }
            let missing = warnings.into_iter().filter(|w| w.starts_with("a part of the facts is missing"));
            lock(&self.lines.all[at]).kept.warnings.extend(missing);
            known.insert(at, facts);
        }
        let heavy = self.exam.checks.iter().any(Check::is_heavy);
        let busy = if heavy && !self.exam.busy { self.busy(&known) } else { BTreeMap::new() };
        let before = if heavy { self.counters(&known, &busy) } else { BTreeMap::new() };
        for check in &self.exam.checks {
            if self.stopped() {
                return;
            }
            let seats = known.keys().copied().filter(|at| self.lost[*at].is_none());
            let mut seats: Vec<usize> = seats.filter(|at| !check.is_heavy() || !busy.contains_key(at)).collect();
            let node = |at: &usize| Node::of_facts(&self.lines.name(*at), &known[at], check.interfaces());
            let mut nodes: Vec<Node> = seats.iter().map(node).collect();
            let mut judged = Judged::default();
            for (node, at) in nodes.iter().zip(&seats) {
                lacking(check, node, &known[at], &mut judged);
            }
            let bare = if *check == Check::Audit { Vec::new() } else { bare(&nodes) };
            for (at, name, others) in bare {
                let reason = format!("{name} has no address, as it has on {others} of {} hosts", nodes.len());
                judged.verdicts.push(Verdict::of(check.name(), &nodes[at].host, Some(name), reason).skipped());
            }
            if check.is_heavy() {
                for (at, why) in &busy {
                    let reason = format!("left out, as it is busy: {why}");
                    judged.verdicts.push(Verdict::of(check.name(), &self.lines.name(*at), None, reason).skipped());
                }
            }
            if check.is_heavy() {
                let told = |new: &Finding| self.found.iter().any(|old| old.tells(new));
                measure::fit(check.name(), &mut nodes, &mut seats, told, &mut judged);
            }
            match check {
                Check::Audit => self.audit(&seats, &seen, &mut judged),
                Check::Ports => ports::judge(&nodes, &mut judged),
                Check::PathMtu(check) => self.path_mtu(check, &nodes, &seats, &mut judged),
                Check::Loss(check) => {
                    self.measure(LOSS, &nodes, &seats, &mut judged, |lines, way| {
                        pairs::loss(lines, &nodes, &seats, check, way)
                    });
                }
                Check::Tcp(check) => {
                    self.measure(TCP, &nodes, &seats, &mut judged, |lines, way| {
                        pairs::tcp(lines, &nodes, &seats, check, way)
                    });
                }
                Check::Rdma(check) => {
                    let unit = if check.test == RdmaTest::SendLat { "µs" } else { RDMA.unit };
                    self.measure(About { unit, ..RDMA }, &nodes, &seats, &mut judged, |lines, way| {
                        pairs::rdma(lines, &nodes, &seats, check, way)
                    });
                }
            }
            self.tell(judged);
        }
        let after = if heavy { self.counters(&known, &busy) } else { BTreeMap::new() };
        let mut judged = Judged::default();
        for (at, after) in &after {
            let node = Node { host: self.lines.name(*at), ..Node::default() };
            let Some(before) = before.get(at) else { continue };
            counters::judge(&node, before, after, &mut judged);
        }
        self.tell(judged);
        self.mute();
    }

    /// Tells of hosts that can't be reached though they answer.
    fn mute(&mut self) {
        let mut judged = Judged::default();
        for (at, lost) in self.lost.iter().enumerate() {
            if let Some(Stop::Unreachable(problem)) = lost
                && problem.kind == FailureKind::KeyExchange.name()
            {
                let host = self.lines.name(at);
                judged.find(Finding::new(&finding::SSH_SMALL_PACKETS, [host], &*problem.message, &[]));
            }
        }
        self.tell(judged);
    }

    /// Compares the hosts with each other.
    fn audit(&mut self, seats: &[usize], seen: &BTreeMap<usize, audit::Seen>, judged: &mut Judged) {
        let hosts: Vec<audit::Seen> = seats.iter().filter_map(|at| seen.get(at).cloned()).collect();
        // What `ports` and `path_mtu` tell begins with the interface.
        let found = |host: &str, name: &str, place: &str| {
            let same = |f: &Finding| f.name == name && f.evidence.starts_with(&format!("{place} has "));
            self.found.iter().any(|f| same(f) && f.hosts.iter().any(|h| **h == *host))
        };
        let apart = audit::judge(&hosts, &self.exam.groups, &found, judged);
        if !apart.is_empty() {
            let message =
                format!("compared within groups of the inventory, which are other machines: {}", apart.join("; "));
            (self.sink)(Event::Warning(Warning { message }));
        }
    }

    /// Why hosts aren't to be disturbed.
    fn busy(&mut self, known: &BTreeMap<usize, serde_json::Value>) -> BTreeMap<usize, String> {
        let seats: Vec<usize> = known.keys().copied().collect();
        let nodes = &self.exam.nodes;
        let answers = self.each(&seats, |lines, at| {
            let name = lines.name(*at);
            let node = nodes.get(&*name).map_or(&*name, String::as_str);
            Ok(busy::read(&lines.run(*at, &busy::ask(node), busy::SECONDS)?.text()))
        });
        let busy: BTreeMap<usize, String> =
            seats.into_iter().zip(answers).filter_map(|(at, why)| Some((at, why??))).collect();
        for (at, why) in &busy {
            let told =
                format!("left out of what takes its network for itself ({why}); `--on-busy run` tests it all the same");
            lock(&self.lines.all[*at]).kept.warnings.push(told);
        }
        busy
    }

    /// The counters of errors of all hosts that are tested.
    fn counters(
        &mut self,
        known: &BTreeMap<usize, serde_json::Value>,
        busy: &BTreeMap<usize, String>,
    ) -> BTreeMap<usize, Counters> {
        let seats: Vec<usize> =
            known.keys().copied().filter(|at| !busy.contains_key(at) && self.lost[*at].is_none()).collect();
        let jobs: Vec<(usize, Script)> = seats
            .iter()
            .map(|at| {
                let node = Node::of_facts(&self.lines.name(*at), &known[at], &[]);
                let names: Vec<String> = node.nics.into_iter().map(|nic| nic.name).collect();
                (*at, counters::ask(&names))
            })
            .collect();
        let answers = self.each(&jobs, |lines, (at, script)| Ok(counters::read(&lines.run(*at, script, 60)?.text())));
        seats.into_iter().zip(answers).filter_map(|(at, counters)| Some((at, counters?))).collect()
    }

    /// Whether the run was interrupted.
    fn stopped(&self) -> bool {
        self.lines.shared.interrupted.load(Ordering::Relaxed)
    }

    /// Who is tested with whom: only hosts that could face each other. Each part of them has its own schedule.
    fn schedule(&self, nodes: &[Node]) -> Vec<Round> {
        // What chooses a sample is another one each run.
        let id = &self.lines.shared.run;
        let seed = id.bytes().fold(17, |all: u64, byte| all.wrapping_mul(31).wrapping_add(byte.into()));
        let mut rounds: Vec<Round> = Vec::new();
        for part in parts(nodes) {
            for (i, round) in self.exam.pairs.rounds(part.len(), seed).into_iter().enumerate() {
                let round = round.into_iter().map(|(a, b)| (part[a], part[b]));
                match rounds.get_mut(i) {
                    Some(same) => same.extend(round),
                    None => rounds.push(round.collect()),
                }
            }
        }
        rounds
    }

    /// Tells what a check came to.
    fn tell(&mut self, judged: Judged) {
        for verdict in judged.verdicts {
            (self.sink)(Event::Verdict { play: self.play.clone(), verdict: Box::new(verdict) });
        }
        for finding in judged.findings {
            if self.found.contains(&finding) {
                continue;
            }
            self.found.push(finding.clone());
            for host in &finding.hosts {
                self.bad.entry(host.to_string()).or_default().insert(finding.name);
            }
            (self.sink)(Event::Finding { play: self.play.clone(), finding: Box::new(finding) });
        }
    }

    /// Does a job for each of these, as many at once as may be, and gives what came of them in their order; nothing where a
    /// connection was lost, whose host is tested no further.
    fn each<J: Sync, R: Send>(
        &mut self,
        jobs: &[J],
        work: impl Fn(&Lines<'_, '_>, &J) -> Result<R, Lost> + Sync,
    ) -> Vec<Option<R>> {
        let mut done: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
        let items: Vec<(usize, &J)> = jobs.iter().enumerate().collect();
        let Room { lines, told, sink, lost, .. } = self;
        let lines = &*lines;
        enum Came<R> {
            Of(usize, Result<R, Lost>),
            Panic(String),
        }
        let job = |(at, job): &(usize, &J), send: &(dyn Fn(Came<R>) + Sync)| send(Came::Of(*at, work(lines, job)));
        pool::each(
            lines.forks,
            &items,
            job,
            |_, message| Came::Panic(message),
            |came| {
                told.try_iter().for_each(&mut *sink);
                match came {
                    Some(Came::Of(at, Ok(result))) => done[at] = Some(result),
                    Some(Came::Of(_, Err((host, stop)))) => _ = lost[host].get_or_insert(stop),
                    Some(Came::Panic(message)) => sink(Event::Warning(Warning { message: bug(message).message })),
                    None => {}
                }
            },
        );
        done
    }
}

/// Tells of interfaces that a check names and a host doesn't have.
fn lacking(check: &Check, node: &Node, facts: &serde_json::Value, judged: &mut Judged) {
    for name in check.interfaces().iter().filter(|name| node.nic(name).is_none()) {
        let interfaces = facts["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        let known: Vec<&str> = interfaces.iter().filter_map(|i| i["name"].as_str()).collect();
        let evidence = if known.contains(&name.as_str()) {
            format!("{name} leads to no other host: it is a loopback, a port of another interface, or the like")
        } else {
            format!("it has no interface {name}; it has {}", known.join(", "))
        };
        let words = [("interface", name.as_str())];
        let found = Finding::new(&finding::NO_PEER, [node.host.clone()], &*evidence, &words);
        judged.failed(Verdict::of(check.name(), &node.host, Some(name), evidence), found);
    }
}
