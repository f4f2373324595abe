//! Segments that may cut the session off: armed with their way back, confirmed over a new connection, or taken back.
//!
//! The host itself makes the steps, by a process that outlives the session, and takes them back when nobody has disarmed them
//! in time: also if the controller dies, the network is gone, or the host boots meanwhile. What disarms and what takes back are
//! one renaming each of the same file, so exactly one of them comes to be.

mod canary;

pub use canary::Canary;

use super::batch::Verb;
use super::execution::{Errand, Report, ended, problem};
use super::host::{BOOT_ID, Going};
use super::reader::Ending;
use super::visit::Stop;
use crate::event::{Problem, Status};
use crate::plan::{Guard, Plan, STEP_SECONDS, Segment};
use crate::resource::probes::line::CommandLine;
use crate::resource::probes::links::LinkList;
use crate::resource::probes::small::SmallFile;
use crate::resource::{Answers, Inquiry, Question};
use crate::transport::{Failure, Target};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What stands on a host of what was armed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How far it is.
    pub(super) stage: Armed,
    /// The run, and who it was: `run 20261201T… of root@head1 4711`.
    pub(super) about: String,
    /// Whether the host has no systemd, so that a boot doesn't take it back.
    pub(super) bare: bool,
    /// Whether what would take it back is gone: it was killed, or the host has booted.
    pub(super) forsaken: bool,
    /// What the way back said.
    pub(super) log: String,
}

/// What has to be true of a host, beside that a new connection reaches it, before a change is confirmed.
#[derive(Debug, Clone, Default)]
pub struct Proof {
    /// A command of the play's that succeeds on it.
    pub command: Option<Arc<str>>,
    /// Packets of full size pass between it and another host where an MTU was raised.
    pub path_mtu: bool,
    /// One of the hosts that are reached through it still can be, if one could before.
    pub leads_to: Arc<[Target]>,
}

/// What the way back says of what isn't as it was, though the session's way is.
const STAYS: &str = "stays: ";
/// The line behind what a host tells of it.
pub const END: &str = "end of armed";

/// How far what was armed is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    /// Its steps run.
    Running,
    /// They have ended, and it waits for its confirmation.
    Ended,
    /// It is being taken back.
    Undoing,
    /// It was taken back.
    Undone,
    /// Not all of it could be.
    Failed,
    /// It was confirmed.
    Kept,
}

impl Standing {
    /// Reads it behind the first line of what a host tells: `armed`, then `STAGE ABOUT`, then what the way back said.
    pub fn of_state(state: &str) -> Option<Standing> {
        let lines: Vec<&str> = state.lines().skip(1).take_while(|l| *l != END).collect();
        let ["armed", lines @ ..] = lines.as_slice() else { return None };
        let (stage, about) = lines.first()?.split_once(' ')?;
        let stage = match stage {
            "running" => Armed::Running,
            "ended" => Armed::Ended,
            "undoing" => Armed::Undoing,
            "undone" => Armed::Undone,
            "failed" => Armed::Failed,
            "kept" => Armed::Kept,
            _ => return None,
        };
        let bare = lines.get(1) == Some(&"no systemd");
        let forsaken = lines.get(1 + usize::from(bare)) == Some(&"forsaken");
        let log = lines[1 + usize::from(bare) + usize::from(forsaken)..].join("\n").trim().to_owned();
        Some(Standing { stage, about: about.to_owned(), bare, forsaken, log })
    }

    /// What isn't as it was though all was taken back, as the way back has told it; nothing else is.
    fn stays(&self) -> String {
        let stays: Vec<&str> = self.log.lines().filter_map(|line| line.strip_prefix(STAYS)).collect();
        if stays.is_empty() { String::new() } else { format!(", but for this: {}", stays.join("; ")) }
    }

    fn run(&self) -> &str {
        self.about.split(' ').nth(1).unwrap_or_default()
    }

    /// Whether anything is left to be done or told: what was confirmed stays, and only its note is there.
    pub fn is_open(&self) -> bool {
        self.stage != Armed::Kept
    }

    /// What is said of it later.
    pub fn told(&self) -> String {
        let what = format!("{} made a change that could have cut the host off", self.about);
        match self.stage {
            Armed::Running | Armed::Ended | Armed::Undoing if self.forsaken => format!(
                "{what}, nobody has confirmed it, and what was to take it back is gone: the next run that changes the host takes it \
                 back first"
            ),
            Armed::Running | Armed::Ended => format!("{what}, and it isn't confirmed yet: it will be taken back"),
            Armed::Undoing => format!("{what}, and it is being taken back"),
            Armed::Undone => format!("{what}; nobody confirmed it, and it was taken back{}", self.stays()),
            Armed::Failed => {
                let Problem { message, hint, .. } = failed(self);
                [Some(message), hint].into_iter().flatten().collect::<Vec<_>>().join("; ")
            }
            Armed::Kept => format!("{what}, and it was confirmed"),
        }
    }
}

/// How long one try to reach the host may take, so that a dead connection doesn't use up the time there is.
const TRY: Duration = Duration::from_secs(10);
/// How long after the end of the steps the connection is made that confirms them: what a link, a rule and a service do about
/// them isn't over when the commands are. A network service that was restarted drops addresses a second or two later.
const SETTLED: Duration = Duration::from_secs(1);
const RESTARTED: Duration = Duration::from_secs(5);
/// Seconds that a check may take.
const CHECK: u32 = 30;
/// How long a host that takes something back is given to be reachable again.
const BACK: Duration = Duration::from_secs(60);

/// How long beyond that, and its time to be confirmed, one is waited for that hasn't been reached since its steps began.
const UNSEEN: Duration = Duration::from_secs(20);

/// What came of a segment that was armed.
enum Verdict {
    /// It is confirmed: what its steps gave, and the probe over the new connection.
    Kept(Box<Report>),
    /// It was taken back, or will be: why, and what is known of it.
    Back(String),
}

impl Going<'_> {
    /// Makes a segment that may cut the session off. False if the host has moved on since it was probed, so that nothing was
    /// done.
    pub(super) fn guarded(&mut self, plan: &mut Plan, segment: &Segment, guard: &Guard) -> Result<bool, Stop> {
        if !self.kept.generation.contains_key(&segment.who) {
            let message = "it could cut off the session, and only root can have the host take it back by itself";
            let hint = Some("`become: true` in the play; `confirm: none` makes it all the same".to_owned());
            let problem = Problem { kind: "risk", message: message.to_owned(), hint };
            plan.taken_back(segment, Status::Failed, &problem, None);
            return Ok(true);
        }
        if !guard.raises.is_empty() && self.visit.canary.is_some_and(|canary| canary.alone(&self.visit.target.host)) {
            let message =
                "`path_mtu` needs two at once that raise their MTU, and no other host goes along with this one";
            let hint =
                "let --forks, --limit and the first size of `serial` be two hosts at least, or leave `path_mtu` out";
            let problem = Problem { kind: "risk", message: message.to_owned(), hint: Some(hint.to_owned()) };
            plan.taken_back(segment, Status::Failed, &problem, None);
            return Ok(true);
        }
        // Others only go when the first has come through.
        let ticket = match self.visit.canary.map(|canary| canary.enter(&self.visit.shared.interrupted)) {
            None => None,
            Some(Ok(ticket)) => Some(ticket),
            Some(Err(why)) => {
                let problem = Problem { kind: "stopped", message: why, hint: None };
                plan.taken_back(segment, Status::Skipped, &problem, None);
                return Err(Stop::Broken(problem));
            }
        };
        let nonce = super::execution::nonce().map_err(Stop::Broken)?;
        let nothing = Inquiry::new([]);
        // The first that can be reached now is the first to be tried then; any of them will do, as one may go down by itself.
        let patience = Instant::now() + 3 * TRY;
        let mut leads_to: Vec<&Target> = self.visit.confirm.leads_to.iter().collect();
        let known = leads_to.iter().position(|target| Instant::now() < patience && self.leads(target, TRY).is_ok());
        match known {
            Some(at) => leads_to.rotate_left(at),
            None => leads_to.clear(),
        }
        let began = Instant::now();
        let errand = Errand { nonce: Some(&nonce), ..Errand::of(&segment.who, &nothing) };
        let report = self.execute(&Errand { segment: Some(segment), ..errand })?;
        match &report.ending {
            Ending::Moved => return Ok(false),
            Ending::Unarmed(_) => {
                plan.taken_back(segment, Status::Failed, &ended(&report.ending), None);
                self.kept.generation.clear();
                return Ok(true);
            }
            Ending::Locked(_) | Ending::Armed(_) | Ending::Unlockable(_) | Ending::Interrupted(_) => {
                return Err(Stop::Broken(ended(&report.ending)));
            }
            _ => {}
        }
        let bare = report.standing.as_ref().is_some_and(|s| s.bare);
        if bare {
            let warning =
                "it has no systemd: what could cut it off wouldn't be taken back at a boot before it is confirmed";
            self.kept.warnings.push(warning.to_owned());
        }
        let steps: u64 = segment.pieces.iter().map(|p| u64::from(p.seconds)).sum();
        let most = Duration::from_secs(steps + u64::from(guard.timeout));
        let inquiry = Inquiry::new(plan.questions(&segment.who).into_iter().chain([SmallFile::ask(BOOT_ID)]));
        let finished = report.standing.as_ref().filter(|s| s.stage == Armed::Ended).map(|_| Instant::now());
        let verdict = self.confirm(plan, segment, &nonce, &inquiry, began + most, (finished, bare, &leads_to));
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(stop) => {
                let (Stop::Broken(problem) | Stop::Unreachable(problem)) = &stop;
                let problem = Problem { hint: None, ..problem.clone() };
                plan.taken_back(segment, Status::Failed, &problem, None);
                if !self.visit.shared.cut.load(Ordering::Relaxed) {
                    let what = format!("what became of it on {} isn't known", self.visit.target.host);
                    ticket.into_iter().for_each(|ticket| ticket.failed(&what));
                }
                return Err(stop);
            }
        };
        match verdict {
            Verdict::Kept(report) => {
                ticket.into_iter().for_each(canary::Ticket::confirmed);
                plan.settle(segment, &report.steps);
                plan.absorb(&segment.who, &report.answers.unwrap_or_default());
                Ok(true)
            }
            Verdict::Back(why) => {
                self.visit.canary.inspect(|canary| canary.left(&self.visit.target.host));
                let what = format!("it was rolled back on {}", self.visit.target.host);
                ticket.into_iter().for_each(|ticket| ticket.failed(&what));
                let hint =
                    "see what kept the host from being reached, or the check from passing, before you try it again";
                let problem = Problem { kind: "rolled_back", message: why, hint: Some(hint.to_owned()) };
                let now = self.freshly(TRY, &Errand::of(&segment.who, &inquiry)).ok().and_then(|r| r.answers);
                plan.taken_back(segment, Status::RolledBack, &problem, now.as_ref());
                let message = "it was rolled back, and nothing else of the play is done here".to_owned();
                Err(Stop::Broken(Problem { kind: "rolled_back", message, hint: None }))
            }
        }
    }

    /// Disarms it over a connection that was made after its steps had ended, if all that has to be true there is. `bare`: nothing
    /// stands behind the process that takes it back.
    fn confirm(
        &mut self,
        plan: &Plan,
        segment: &Segment,
        nonce: &Arc<str>,
        inquiry: &Inquiry,
        until: Instant,
        (mut finished, bare, leads_to): (Option<Instant>, bool, &[&Target]),
    ) -> Result<Verdict, Stop> {
        let nothing = Inquiry::new([SmallFile::ask(BOOT_ID)]);
        let look = |verb| Errand { nonce: Some(nonce), found: Some((5, verb)), ..Errand::of(&segment.who, &nothing) };
        let (mut last, mut refused) = (String::new(), None);
        let raises = segment.guard.as_ref().map(|guard| guard.raises.clone()).unwrap_or_default();
        let checks = self.visit.confirm.command.is_some() || (self.visit.confirm.path_mtu && !raises.is_empty());
        let checks = checks || !leads_to.is_empty();
        // A host that tries it out has to be told in the time that is left then.
        let timeout = segment.guard.as_ref().map_or(Duration::ZERO, |guard| Duration::from_secs(guard.timeout.into()));
        let latest =
            |finished: Option<Instant>| finished.unwrap_or_else(Instant::now) + timeout - (timeout / 2).min(TRY);
        let settle = (if segment.restarts() { RESTARTED } else { SETTLED }).min(timeout / 2);
        let seconds = segment.guard.as_ref().map_or(0, |guard| guard.timeout);
        // Who can't be reached isn't waited for as long as its steps may take at the most.
        let own = segment.pieces.iter().map(|p| u64::from(p.seconds)).filter(|s| *s != u64::from(STEP_SECONDS)).sum();
        let silent = Instant::now() + Duration::from_secs(own) + UNSEEN;
        let mut seen = None;
        let ends = |finished: Option<Instant>| finished.map_or(until, |at| at + timeout);
        while Instant::now() < until + BACK
            && Instant::now() < seen.unwrap_or_else(|| ends(finished).min(silent + timeout)) + BACK
        {
            if self.visit.shared.cut.load(Ordering::Relaxed) {
                let message = "the run was interrupted before a change that may cut off the session was confirmed";
                let hint =
                    format!("the host takes it back by itself within {seconds} s of its end; `netplay status` tells");
                return Err(Stop::Broken(Problem {
                    kind: "interrupted",
                    message: message.to_owned(),
                    hint: Some(hint),
                }));
            }
            let left = until.saturating_duration_since(Instant::now()).max(TRY);
            let verb = match (&refused, finished) {
                (Some(_), _) => Verb::Undo,
                (None, Some(_)) if !checks => Verb::Keep,
                _ => Verb::Look,
            };
            if let Some(since) = finished {
                std::thread::sleep(settle.saturating_sub(since.elapsed()));
            }
            let asked = if verb == Verb::Keep { inquiry } else { &nothing };
            let report = match self.freshly(left.min(TRY), &Errand { inquiry: asked, ..look(verb) }) {
                Ok(report) => report,
                Err(problem) => {
                    last = problem.message;
                    std::thread::sleep(Duration::from_millis(500));
                    continue;
                }
            };
            seen = Some(Instant::now());
            let Some(standing) = report.standing.clone().filter(|s| s.run() == &*self.visit.shared.run) else {
                return Ok(Verdict::Back(
                    "what became of it isn't known: nothing of it is left on the host".to_owned(),
                ));
            };
            match standing.stage {
                Armed::Kept => return Ok(Verdict::Kept(Box::new(report))),
                // The connection may be older than the end of the steps.
                Armed::Ended if finished.is_none() => finished = Some(Instant::now()),
                Armed::Ended if refused.is_none() => match self.proven(segment, &raises, leads_to, latest(finished))? {
                    None => {
                        // Over the same connection, which is new enough.
                        let report = self.execute(&Errand { inquiry, ..look(Verb::Keep) });
                        if let Ok(report) = report {
                            match report.standing.as_ref().map(|s| (s.stage, s)) {
                                Some((Armed::Kept, _)) => return Ok(Verdict::Kept(Box::new(report))),
                                Some((Armed::Undone, standing)) => {
                                    let why = format!("what was checked took longer than the {seconds} s of `timeout`");
                                    return Ok(Verdict::Back(format!(
                                        "{why}; the host is as it was before{}",
                                        standing.stays()
                                    )));
                                }
                                _ => {}
                            }
                        }
                    }
                    Some(why) => refused = Some(why),
                },
                Armed::Running | Armed::Ended | Armed::Undoing => {}
                Armed::Undone | Armed::Failed => {
                    let boot = report
                        .answers
                        .as_ref()
                        .and_then(|answers| answers.get::<SmallFile>(BOOT_ID).ok()?.value().ok()?);
                    let before = self.kept.machine.as_ref().map(|(boot, _)| boot);
                    let booted = before.zip(boot).is_some_and(|(before, now)| *before != now);
                    let why = match refused.or_else(|| plan.broken_off(segment, &report.steps)) {
                        Some(why) => why,
                        None if booted => "the host booted before it was confirmed".to_owned(),
                        None if last.is_empty() => "no new connection came to be in time".to_owned(),
                        None => format!("no new connection came to be: {last}"),
                    };
                    if standing.stage == Armed::Failed {
                        return Err(Stop::Broken(failed(&standing)));
                    }
                    return Ok(Verdict::Back(format!("{why}; the host is as it was before{}", standing.stays())));
                }
            }
        }
        Err(Stop::Unreachable(lost(&last, ends(finished), Instant::now(), bare)))
    }

    /// Whether what the play asks for is true of the host; why not.
    fn proven(
        &mut self,
        segment: &Segment,
        raises: &[(String, u32)],
        leads_to: &[&Target],
        until: Instant,
    ) -> Result<Option<String>, Stop> {
        let mut why = None;
        for (turn, target) in leads_to.iter().cycle().enumerate() {
            // Each of a few has its turn in the time there is.
            let left = until.saturating_duration_since(Instant::now());
            let within = if leads_to.len() > 1 { (left / 3).clamp(Duration::from_secs(2), TRY) } else { TRY };
            let Err(failure) = self.leads(target, within) else { break };
            let why = why.get_or_insert_with(|| {
                format!("{}, which is reached through it, can't be any more: {}", target.host, failure.message)
            });
            let over = Instant::now() >= until && turn + 1 >= leads_to.len().min(2);
            if over || self.visit.shared.cut.load(Ordering::Relaxed) {
                return Ok(Some(std::mem::take(why)));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let mut commands: Vec<(String, String)> = Vec::new();
        if let Some(canary) = self.visit.canary.filter(|_| self.visit.confirm.path_mtu && !raises.is_empty()) {
            let links = self.asked(segment, LinkList::ask())?;
            let links =
                links.and_then(|answers| answers.get::<LinkList>("").cloned().map_err(|trouble| trouble.message));
            let own = match links.and_then(|links| canary::senders(raises, &links)) {
                Ok(own) => own,
                Err(why) => return Ok(Some(why)),
            };
            match canary.meet(&self.visit.target.host, &own, until, &self.visit.shared.interrupted) {
                Ok(peers) => commands.extend(peers.into_iter().map(|(peer, interface, address, mtu)| {
                    // The headers of IP and ICMP are part of it. An answer is as large as the question.
                    let size = mtu - if address.contains(':') { 48 } else { 28 };
                    let ping = format!(
                        "ping -n -c 3 -i 0.2 -W 2 -M do -s {size} -I {} {address}",
                        crate::shell::quote(&interface)
                    );
                    (format!("packets of {mtu} bytes don't pass between {interface} and {peer} ({address})"), ping)
                })),
                Err(why) => return Ok(Some(why)),
            }
        }
        if let Some(command) = &self.visit.confirm.command {
            commands.push(("its check failed".to_owned(), command.to_string()));
        }
        for (what, command) in commands {
            let argument = CommandLine::argument(CHECK, &command);
            let answers = match self.asked(segment, CommandLine::ask(&argument))? {
                Ok(answers) => answers,
                Err(why) => return Ok(Some(format!("{what}: {why}"))),
            };
            match answers.get::<CommandLine>(&argument) {
                Ok(output) if output.code == 0 => {}
                Ok(output) => {
                    let said = output.complaint();
                    let said = said.lines().rfind(|l| !l.trim().is_empty()).map(|l| format!(": {l}"));
                    let ended = match output.code {
                        124 | 137 => format!("it still ran after {CHECK} s"),
                        code => format!("exit code {code}"),
                    };
                    return Ok(Some(format!("{what}: {ended}{}", said.unwrap_or_default())));
                }
                Err(trouble) => return Ok(Some(format!("{what}: {}", trouble.message))),
            }
        }
        Ok(None)
    }

    /// Whether another host is reached, by a new connection through this one.
    fn leads(&self, target: &Target, within: Duration) -> Result<(), Failure> {
        let deadline = self.deadline.within(within);
        self.visit.shared.transport.connect(target, &self.visit.shared.gate, &deadline).map(drop)
    }

    /// The answers over the connection there is, or why there are none.
    fn asked(&mut self, segment: &Segment, question: Question) -> Result<Result<Answers, String>, Stop> {
        let report = self.execute(&Errand::of(&segment.who, &Inquiry::new([question])))?;
        Ok(match (report.answers, report.failure) {
            (Some(answers), None) => Ok(answers),
            (_, Some(failure)) => Err(failure.message),
            (None, None) => Err("the host gave no answer".to_owned()),
        })
    }

    /// An execution over a new connection, all in so much time.
    fn freshly(&mut self, within: Duration, errand: &Errand<'_>) -> Result<Report, Problem> {
        self.session = None;
        let (deadline, hasty) = (self.deadline.clone(), self.hasty.clone());
        // An interruption waits for it, as for all that is under way.
        (self.deadline, self.hasty) = (deadline.within(within), deadline.within(within));
        let result = self.connect().and_then(|()| self.execute(errand));
        (self.deadline, self.hasty) = (deadline, hasty);
        let report = result.map_err(Stop::problem)?;
        match (&report.ending, &report.failure) {
            (Ending::Complete, _) => Ok(report),
            (_, Some(failure)) => Err(problem(failure)),
            (ending, None) => Err(ended(ending)),
        }
    }
}

/// That a host with a change that isn't confirmed isn't waited for any longer: what was said last of it, when the time was over in
/// which it takes the change back by itself, and whether it has no systemd.
fn lost(last: &str, end: Instant, now: Instant, bare: bool) -> Problem {
    let what = match last {
        "" => "it hasn't come to an end on the host".to_owned(),
        last => format!("the host can't be reached: {last}"),
    };
    let back = if now >= end {
        format!("the time in which it takes the change back by itself was over {} s ago", (now - end).as_secs())
    } else {
        let unless = if bare { ", unless the process that does so was killed there, as it has no systemd" } else { "" };
        format!("it takes the change back by itself within {} s from now{unless}", (end - now).as_secs() + 1)
    };
    let message = format!("a change that may cut off the session isn't confirmed, and {what}; {back}");
    let hint = "`netplay status` tells what became of it when the host can be reached; otherwise at its console: as long as \
                /var/lib/netplay/armed/back is there, `sh /var/lib/netplay/armed/back late` takes the change back at once; \
                /var/lib/netplay/armed/log tells what was done, and what of it failed"
        .to_owned();
    Problem { kind: "rolled_back", message, hint: Some(hint) }
}

/// That a way back wasn't taken to its end.
pub(super) fn failed(standing: &Standing) -> Problem {
    let said = standing.log.lines().rfind(|line| !line.starts_with(STAYS)).unwrap_or_default();
    Problem {
        kind: "rolled_back",
        message: format!("run {} was to be taken back here, and not all of it could be: {said}", standing.run()),
        hint: Some(
            "read /var/lib/netplay/armed/log on the host; `sh /var/lib/netplay/armed/undone again` tries it again, and when all is \
             mended `rm -r /var/lib/netplay/armed` lets netplay go on"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests;
