//! A type of resource that does as it is told, and a host of words for it.

use super::super::*;
use crate::error::Error;
use crate::graph;
use crate::playbook::{Become, Reference};
use crate::resource::keyfile::Edit;
use crate::resource::spec::Spec;
use crate::resource::{Claim, Effect, Fragment, Group, Inquiry, Joint, Key, Resource, Risk, Share, Stale};
use crate::shell::Script;
use crate::source::{Source, Span};
use std::collections::HashMap;

/// A resource that wants to be `up`, of a host that is a mapping of names to words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fake {
    pub(super) name: &'static str,
    pub(super) after: Vec<&'static str>,
    pub(super) before: Vec<&'static str>,
    pub(super) needs: Vec<&'static str>,
    pub(super) notify: Vec<&'static str>,
    pub(super) stale: bool,
    pub(super) act: bool,
    /// An action that says that it changed nothing.
    pub(super) calm: bool,
    pub(super) gate: bool,
    pub(super) who: Option<&'static str>,
    pub(super) ignore: bool,
    /// Whose change makes its probe worthless.
    pub(super) claims_stale: Option<&'static str>,
    /// Its folder, which must be there.
    pub(super) folder: Option<&'static str>,
    /// It is done together with others.
    pub(super) share: bool,
    pub(super) brings: bool,
    /// A line of a file that others write too.
    pub(super) line: Option<&'static str>,
    /// It claims nothing, as a command.
    pub(super) unclaimed: bool,
    pub(super) timeout: Option<u32>,
    /// Its change takes effect at the next boot, and this is what it reads until then.
    pub(super) later: Option<&'static str>,
    /// What it waits for is a power cycle.
    pub(super) cycle: bool,
    /// What it is at boot can't be made right.
    pub(super) lasts: bool,
}

impl Fake {
    pub(crate) fn new(name: &'static str) -> Fake {
        Fake { name, ..Fake::default() }
    }
    pub(crate) fn after(mut self, other: &'static str) -> Fake {
        self.after.push(other);
        self
    }
    pub(crate) fn before(mut self, other: &'static str) -> Fake {
        self.before.push(other);
        self
    }
    pub(crate) fn needs(mut self, other: &'static str) -> Fake {
        self.needs.push(other);
        self
    }
    pub(super) fn notify(mut self, handler: &'static str) -> Fake {
        self.notify.push(handler);
        self
    }
}

/// What is done together: a script that names its parts.
struct Both;
impl Joint for Both {
    fn name(&self) -> &'static str {
        "both"
    }
    fn script(&self, parts: &[&str], _: u32) -> Script {
        Script::new().set("v", &parts.join("+"))
    }
}

struct Words;
impl Group for Words {
    type Answer = String;
    const NAME: &'static str = "words";
    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).into()]
    }
    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<String, Trouble>> {
        let said: HashMap<String, String> =
            outputs[0].text().lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
        args.iter().map(|a| said.get(*a).cloned().ok_or_else(|| Trouble::new(format!("no word for {a}")))).collect()
    }
}

impl Resource for Fake {
    type State = String;
    const TYPE: &'static str = "fake";
    const SUMMARY: &'static str = "";
    const TOUCHES: &'static str = "";
    const KEYS: &'static [Key] = &[];
    const EXAMPLE: &'static str = "";
    fn parse(_: &Spec<'_>) -> Result<Fake, Error> {
        Ok(Fake::default())
    }
    fn identity(&self) -> String {
        self.name.into()
    }
    fn claims(&self) -> Vec<Claim> {
        if self.unclaimed { Vec::new() } else { vec![Claim::new("fake", self.name)] }
    }
    fn needs(&self, _: Option<&String>) -> Vec<Need> {
        self.needs.iter().map(|n| Need::After(Claim::new("fake", *n))).collect()
    }
    fn stale_after(&self) -> Stale {
        match self.claims_stale {
            Some(name) => Stale::Claims(vec![Claim::new("fake", name)]),
            None if self.stale => Stale::AnyDependency,
            None => Stale::Never,
        }
    }
    fn probe(&self) -> Vec<Question> {
        vec![Question::of::<Words>(self.name)]
    }
    fn read(&self, answers: &Answers) -> Result<Reading<String>, Trouble> {
        let word = answers.get::<Words>(self.name)?;
        Ok(if word == "?" { Reading::NotYet(Trouble::new("there is none")) } else { Reading::State(word.clone()) })
    }
    fn diff(&self, now: &String) -> Vec<Change> {
        if (now.starts_with("up") && !self.lasts) || self.gate {
            return vec![];
        }
        if self.lasts {
            let live = (now != "up").then(|| Change::now("word", now.as_str(), "up"));
            return live.into_iter().chain([Change::now("boot", "down", "up")]).collect();
        }
        let later = if self.cycle { Effect::PowerCycle } else { Effect::Reboot };
        let word = Change::now("word", now.as_str(), "up");
        match self.later {
            None => vec![word],
            Some(set) if set == now => vec![Change { effect: later, ..word }],
            Some(_) => {
                vec![Change::now("word next boot", now.as_str(), "up"), Change { effect: later, ..word }]
            }
        }
    }
    fn unapplied(&self, now: &String) -> Vec<Change> {
        if now == "up, not current" { vec![Change::now("word", now.as_str(), "up")] } else { vec![] }
    }
    fn apply(&self, now: &String) -> Vec<Step> {
        if self.share {
            return vec![Step::Share(Share { of: &Both, part: self.name.into() })];
        }
        if self.later == Some(now) {
            return vec![];
        }
        vec![Step::Run(Script::new().set("v", self.name))]
    }
    fn verify(&self, now: &String) -> Vec<Change> {
        if self.act { vec![] } else { self.diff(now) }
    }
    fn files(&self, _: &String) -> Vec<FileDiff> {
        self.line.iter().map(|line| Edit::of("/f").append(*line).preview(Some(b"old\n"))).collect()
    }
    fn obstacle(&self, now: &String) -> Option<crate::resource::Obstacle> {
        let trouble = Trouble::new("no");
        if let Some(folder) = self.folder.filter(|_| now == "no folder") {
            return Some(crate::resource::Obstacle::unless(trouble, vec![Claim::new("fake", folder)]));
        }
        if now == "locked" {
            return Some(crate::resource::Obstacle { trouble, weight: crate::resource::Weight::Foreseen });
        }
        if self.lasts {
            return Some(crate::resource::Obstacle::lasts(trouble));
        }
        (self.gate && now != "up").then_some(crate::resource::Obstacle::stops(trouble))
    }
    fn action(&self) -> bool {
        self.act
    }
    fn changed(&self, _: &[Output]) -> Result<bool, Error> {
        Ok(!self.calm)
    }
    fn gate(&self) -> bool {
        self.gate
    }
    fn brings(&self) -> bool {
        self.brings
    }
    fn risk(&self, now: &String) -> Risk {
        if now == "risky" { Risk::Link("it is risky".into()) } else { Risk::None }
    }
}

pub(crate) fn play(resources: Vec<Fake>) -> HostPlay {
    HostPlay { resources: items(resources), ..HostPlay::default() }
}

pub(super) fn items(fakes: Vec<Fake>) -> Vec<Item> {
    let source = Source::new("t.yaml", "x\n".repeat(fakes.len()));
    let item = |(i, fake): (usize, Fake)| {
        let place = Span::at(&source, i + 1, 1, 1);
        let names = |list: &[&str]| {
            let name = |n: &&str| if n.contains(':') { (*n).into() } else { format!("fake:{n}").into() };
            list.iter().map(|n| Reference { name: name(n), place: place.clone() }).collect::<Vec<_>>()
        };
        Item {
            address: format!("fake:{}", fake.name).into(),
            title: None,
            place: place.clone(),
            after: names(&fake.after),
            before: names(&fake.before),
            notify: names(&fake.notify),
            become_: Become { enabled: fake.who.is_some(), user: fake.who.map(Into::into) },
            ignore_errors: fake.ignore,
            timeout: fake.timeout,
            no_log: false,
            untold: Vec::new(),
            resource: Arc::new(fake),
        }
    };
    fakes.into_iter().enumerate().map(item).collect()
}

/// A host in memory: `run` does what steps do, unless a name is in `broken`.
pub(super) struct Host {
    pub(super) words: BTreeMap<&'static str, &'static str>,
    pub(super) broken: Vec<&'static str>,
    /// Whether what is broken has its effects on others all the same.
    pub(super) half_way: bool,
    pub(super) becomes: BTreeMap<&'static str, (&'static str, &'static str)>,
    /// What words become at a boot, by what it is.
    pub(super) at_boot: Vec<(Rung, &'static str, &'static str)>,
    /// What a step makes of a word that is this.
    pub(super) made: BTreeMap<&'static str, &'static str>,
    pub(super) log: Vec<String>,
    pub(super) executions: usize,
}

impl Host {
    pub(super) fn new(words: &[(&'static str, &'static str)]) -> Host {
        Host {
            words: words.iter().copied().collect(),
            broken: vec![],
            half_way: false,
            becomes: BTreeMap::new(),
            at_boot: vec![],
            made: BTreeMap::new(),
            log: vec![],
            executions: 0,
        }
    }

    pub(super) fn answers(&self, questions: Vec<Question>) -> Answers {
        let text: String = self.words.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        let inquiry = Inquiry::new(questions);
        let outputs =
            inquiry.fragments().iter().map(|_| Ok(Output { stdout: text.clone().into(), ..Output::default() }));
        inquiry.answers(outputs.collect())
    }

    pub(super) fn run(&mut self, segment: &Segment) -> BTreeMap<u32, Ran> {
        self.executions += 1;
        let by = match &segment.who {
            Who::Login => String::new(),
            Who::User(user) => format!(" as {user}"),
        };
        let mut ran: BTreeMap<u32, Ran> = BTreeMap::new();
        for piece in &segment.pieces {
            let good = |id: &u32| matches!(ran.get(id), Some(Ran::Yes(o)) if o.code == 0);
            if !piece.all.iter().all(good) || !(piece.any.is_empty() || piece.any.iter().any(good)) {
                ran.insert(piece.id, Ran::Skipped);
                continue;
            }
            let named = |script: &Script| script.as_str().trim().trim_start_matches("v=").to_owned();
            let mut told = String::new();
            let (name, code) = match &piece.work {
                Work::Step(Step::Run(script)) => {
                    let name = named(script);
                    let code = self.make(&name);
                    (name, code)
                }
                Work::Joint(Step::Run(script), ids) => {
                    let name = named(script);
                    told.push_str("== parts\n");
                    for (i, (part, &id)) in name.split('+').zip(ids).enumerate() {
                        let code = self.make(part);
                        told.push_str(&format!("== {} {code}\n", i + 1));
                        // The host itself knows which parts succeeded.
                        ran.insert(id, Ran::Yes(Output { code, ..Output::default() }));
                    }
                    (name, 0)
                }
                Work::Part => continue,
                Work::Owe(o) => (format!("owe {}{by}", o.address), 0),
                Work::Settle(o) => (format!("settle {}{by}", o.address), 0),
                Work::Step(_) | Work::Joint(..) => unreachable!(),
            };
            self.log.push(name);
            ran.insert(piece.id, Ran::Yes(Output { code, stdout: told.into_bytes(), ..Output::default() }));
        }
        // A host tells of parts only by what they are parts of.
        let parts = segment.pieces.iter().filter(|p| matches!(p.work, Work::Part));
        parts.for_each(|p| {
            ran.remove(&p.id);
        });
        ran
    }

    /// Does what a step of this name does, and gives its exit code.
    pub(super) fn make(&mut self, name: &str) -> i32 {
        let broken = self.broken.contains(&name);
        if !broken && let Some(word) = self.words.iter_mut().find(|(k, _)| **k == name) {
            *word.1 = self.made.get(*word.0).copied().unwrap_or("up");
        }
        if (!broken || self.half_way)
            && let Some((other, word)) = self.becomes.iter().find(|(k, _)| **k == name).map(|(_, v)| *v)
        {
            self.words.insert(other, word);
        }
        i32::from(broken)
    }
}

pub(super) fn plan(resources: Vec<Fake>, handlers: Vec<Fake>, policy: Policy) -> Plan {
    let play = HostPlay { resources: items(resources), handlers: items(handlers), ..HostPlay::default() };
    let who = |i: &Item| i.become_.user.clone().map_or(Who::Login, Who::User);
    let who = play.resources.iter().chain(&play.handlers).map(who).collect();
    let graph = graph::build(&play).unwrap();
    Plan::new(play, graph, who, policy, &"r1".into())
}

pub(super) fn drive(plan: &mut Plan, host: &mut Host) -> String {
    drive_booting(plan, host, &mut |_| {})
}

/// The same with what each boot does beside `at_boot`.
pub(super) fn drive_booting(plan: &mut Plan, host: &mut Host, boot_does: &mut dyn FnMut(&mut Host)) -> String {
    for who in plan.users() {
        host.executions += 1;
        let answers = host.answers(plan.questions(&who));
        plan.absorb(&who, &answers);
    }
    let mut outcomes = Vec::new();
    loop {
        let next = plan.advance();
        outcomes.extend(plan.outcomes());
        match next {
            Next::Done => break,
            Next::Probe(who) => {
                host.executions += 1;
                let answers = host.answers(plan.questions(&who));
                plan.absorb(&who, &answers);
            }
            Next::Boot(boot) => {
                host.log.push(format!("{:?} for {}", boot.rung, boot.reasons.join(", ")));
                for (rung, name, word) in &host.at_boot {
                    if *rung <= boot.rung {
                        host.words.insert(name, word);
                    }
                }
                boot_does(host);
                plan.booted(&boot);
            }
            Next::Segment(segment) => {
                let ran = host.run(&segment);
                plan.settle(&segment, &ran);
                let answers = host.answers(plan.questions(&segment.who));
                plan.absorb(&segment.who, &answers);
            }
        }
        assert!(host.executions < 20, "no end");
    }
    outcomes.sort_by_key(|o| o.position);
    let show = |o: &Outcome| {
        let because = o.because.as_ref().map_or(String::new(), |b| format!(" ({b})"));
        let error = o.error.as_ref().map_or(String::new(), |e| format!(" [{}: {}]", e.kind, e.message));
        format!("{}={:?}{because}{error}", plan.item(o.position).resource.identity(), o.status)
    };
    outcomes.iter().map(show).collect::<Vec<_>>().join(", ")
}
