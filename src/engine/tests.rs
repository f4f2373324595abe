//! Runs over a transport whose hosts are shells of this machine, with a folder each, and whose sessions break where a
//! test wants it.

use super::batch::Folders;
use super::boot::{Awaited, Way};
use super::exam::Exam;
use super::run::{Host, Options, Play, run, verify};
use super::visit::{Limits, Shared, Site};
use crate::error::Error;
use crate::event::{BootStep, Event, HostStatus, Status};
use crate::plan::Policy;
use crate::playbook::{Become, HostPlay, Item, Reference};
use crate::resource::probes::small::SmallFile;
use crate::resource::spec::Spec;
use crate::resource::{Answers, Change, Claim, Key, Question, Reading, Resource, Stale, Step, Trouble};
use crate::shell::Script;
use crate::source::{Source, Span};
use crate::transport::fake::{Fake, Fault};
use crate::transport::{
    Carrier, Deadline, Failure, FailureKind, Gate, HostKeyChecking, Identity, Session, Target, Transport,
};
use crate::verify::{Check, Pairs};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A file that is to hold a word, written by a step that also counts itself.
#[derive(Debug, Clone)]
struct Word {
    path: String,
    wanted: &'static str,
    /// Shell text run before it is written.
    first: String,
    act: bool,
    panics: bool,
    stale: bool,
}

impl Resource for Word {
    type State = Option<String>;
    const TYPE: &'static str = "word";
    const SUMMARY: &'static str = "";
    const TOUCHES: &'static str = "";
    const KEYS: &'static [Key] = &[];
    const EXAMPLE: &'static str = "";
    fn parse(spec: &Spec<'_>) -> Result<Word, Error> {
        Err(Error::playbook(&spec.node.span, "only made by hand"))
    }
    fn identity(&self) -> String {
        self.path.clone()
    }
    fn claims(&self) -> Vec<Claim> {
        vec![Claim::new("path", &self.path)]
    }
    fn stale_after(&self) -> Stale {
        if self.stale { Stale::AnyDependency } else { Stale::Never }
    }
    fn probe(&self) -> Vec<Question> {
        vec![SmallFile::ask(&self.path)]
    }
    fn read(&self, answers: &Answers) -> Result<Reading<Option<String>>, Trouble> {
        assert!(!self.panics, "it is broken");
        Ok(Reading::State(answers.get::<SmallFile>(&self.path)?.value()?))
    }
    fn diff(&self, now: &Option<String>) -> Vec<Change> {
        if now.as_deref() == Some(self.wanted) {
            vec![]
        } else {
            vec![Change::now(format!("word {}", self.wanted), now.clone(), self.wanted)]
        }
    }
    fn apply(&self, _: &Option<String>) -> Vec<Step> {
        let script = Script::new().set("p", &self.path).set("w", self.wanted).user(&self.first);
        vec![Step::Run(script.line("echo x >>\"$p.count\"; printf '%s\\n' \"$w\" >\"$p.new\" && mv \"$p.new\" \"$p\""))]
    }
    fn action(&self) -> bool {
        self.act
    }
}

pub(super) struct World {
    folder: tempfile::TempDir,
    pub(super) fake: Fake,
}

pub(super) struct Seen {
    pub(super) events: Vec<Event>,
    pub(super) finished: crate::event::RunFinished,
}

fn word(folder: &Path, name: &str) -> Word {
    let path = folder.join(name).display().to_string();
    Word { path, wanted: "up", first: String::new(), act: false, panics: false, stale: false }
}

fn item(word: Word, line: usize) -> Item {
    Item {
        address: format!("word:{}", Path::new(&word.path).file_name().unwrap().to_str().unwrap()).into(),
        title: None,
        place: Span::at(&Source::new("t.yaml", ""), line, 1, 1),
        resource: Arc::new(word),
        after: vec![],
        before: vec![],
        notify: vec![],
        become_: Become::default(),
        ignore_errors: false,
        timeout: None,
        no_log: false,
        untold: Vec::new(),
    }
}

fn refer(name: &str) -> Vec<Reference> {
    vec![Reference { name: name.into(), place: Span::start(&Source::new("t.yaml", "")) }]
}

pub(super) struct Here;
impl Site for Here {
    fn with_facts(&self, _: &serde_json::Value) -> Result<HostPlay, String> {
        Err("no facts here".into())
    }
    fn identity(&self, _: &Become) -> Result<Identity, String> {
        Ok(Identity::Login)
    }
    fn knows_handler(&self, _: &str) -> bool {
        false
    }
}

impl World {
    pub(super) fn new() -> World {
        World { folder: tempfile::tempdir().unwrap(), fake: Fake::new("/bin/sh") }
    }

    pub(super) fn dir(&self, host: &str) -> std::path::PathBuf {
        let dir = self.folder.path().join(host);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn read(&self, host: &str, name: &str) -> Option<String> {
        std::fs::read_to_string(self.dir(host).join(name)).ok()
    }

    pub(super) fn shared(&self, host: &str) -> Shared {
        let dir = self.dir(host);
        let path = |name: &str| dir.join(name).display().to_string();
        Shared {
            transport: Box::new(self.fake.clone()),
            gate: Gate::new(4),
            limits: Limits { execution: Duration::from_secs(20), ..Limits::default() },
            folders: Folders { state: path("lib"), run: path("run") },
            run: "r1".into(),
            holder: "run r1 of me".into(),
            whence: "me@here 1".into(),
            show_scripts: false,
            interrupted: Arc::default(),
            cut: Arc::default(),
        }
    }

    pub(super) fn host(&self, name: &str, play: HostPlay) -> Host {
        let user = if std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0) {
            "root"
        } else {
            "me"
        };
        let target = Target {
            host: name.into(),
            carrier: Carrier::Local,
            address: name.into(),
            port: 22,
            user: user.into(),
            password: None,
            identities: vec![],
            identities_only: false,
            agent: None,
            host_key_checking: HostKeyChecking::No,
            known_hosts: vec![],
            host_key_alias: None,
            jumps: vec![],
            proxy_command: None,
            connect_timeout: None,
            keepalive: (0, 0),
            arguments: Vec::new(),
        };
        Host { target, play: Mutex::new(play), site: Box::new(Here), way: Way::default(), leads_to: Arc::new([]) }
    }

    pub(super) fn play(&self, hosts: Vec<Host>) -> Play {
        Play {
            exam: None,
            reboot: None,
            confirm: super::guard::Proof::default(),
            name: "p".into(),
            hosts,
            serial: vec![],
            max_fail_percentage: None,
            policy: Policy::default(),
            resources: 1,
        }
    }

    pub(super) fn run(&self, shared: &Shared, plays: &[Play]) -> Seen {
        let mut events = Vec::new();
        let options = Options { forks: 8, check: false, detailed_exitcode: false };
        let finished = run(shared, plays, options, &mut |e| events.push(e));
        Seen { events, finished }
    }

    fn one(&self, play: HostPlay) -> Seen {
        self.run(&self.shared("n1"), &[self.play(vec![self.host("n1", play)])])
    }
}

impl Seen {
    fn status(&self, name: &str) -> Status {
        let found = self.events.iter().find_map(|e| match e {
            Event::Resource(r) if *r.address == *format!("word:{name}") => Some(r.status),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("nothing of {name}: {:?}", self.events))
    }

    pub(super) fn host(&self, name: &str) -> &crate::event::HostEvent {
        self.events
            .iter()
            .find_map(|e| match e {
                Event::Host(h) if &*h.host == name => Some(&**h),
                _ => None,
            })
            .unwrap()
    }

    pub(super) fn text(&self) -> String {
        format!("{:?}", self.events)
    }
}

fn play(resources: Vec<Item>, handlers: Vec<Item>) -> HostPlay {
    HostPlay { resources, handlers, ..HostPlay::default() }
}

/// Two words, of which one notifies a handler that counts itself.
fn usual(world: &World, host: &str) -> HostPlay {
    let dir = world.dir(host);
    let mut a = item(word(&dir, "a"), 1);
    a.notify = refer("word:h");
    let handler = Word { act: true, ..word(&dir, "h") };
    play(vec![a, item(word(&dir, "b"), 2)], vec![item(handler, 3)])
}

#[test]
fn executions_are_counted() {
    let world = World::new();
    let seen = world.one(usual(&world, "n1"));
    assert_eq!((seen.status("a"), seen.status("b")), (Status::Changed, Status::Changed), "{}", seen.text());
    assert_eq!((seen.finished.exit_code, seen.host("n1").executions), (0, 2), "{}", seen.text());
    assert_eq!(world.fake.seen("n1").executions.len(), 2);
    assert_eq!(world.read("n1", "h.count").unwrap(), "x\n");
    let seen = world.one(usual(&world, "n1"));
    assert_eq!((seen.status("a"), seen.host("n1").executions), (Status::Ok, 1));
    assert_eq!(world.fake.seen("n1").executions.len(), 3);
    assert_eq!(world.read("n1", "h.count").unwrap(), "x\n");
    assert_eq!(world.fake.seen("n1").connects, 2);
}

#[test]
fn a_broken_change_is_unknown_and_the_next_run_mends_it() {
    // Where the session breaks doesn't matter: no half-written file, the handler runs in the end, and a session that
    // comes back in the same visit settles what was left open.
    let whole = {
        let world = World::new();
        world.one(usual(&world, "n1"));
        world.fake.seen("n1").executions[1].1.len()
    };
    let cuts: Vec<(Option<usize>, Option<usize>)> =
        (0..12).map(|i| (Some(whole * i / 12), None)).chain((0..24).map(|i| (None, Some(i * 13)))).collect();
    for (cut_upload, cut_download) in cuts {
        let world = World::new();
        world.fake.fault("n1", Fault { execution: 2, cut_upload, cut_download, ..Fault::default() });
        let seen = world.one(usual(&world, "n1"));
        let at = format!("{cut_upload:?} {cut_download:?}: {}", seen.text());
        for name in ["a", "b"] {
            let there = world.read("n1", name);
            assert!(there.is_none() || there.as_deref() == Some("up\n"), "{at}");
            match seen.status(name) {
                Status::Changed => assert!(there.is_some(), "{at}"),
                Status::Failed => assert!(seen.finished.exit_code == 2, "{at}"),
                other => panic!("{other:?} {at}"),
            }
        }
        if cut_upload.is_some() {
            assert_eq!(world.read("n1", "a.count"), None, "{at}");
        }
        world.fake.fault("n1", Fault::default());
        let again = world.one(usual(&world, "n1"));
        assert_eq!(again.finished.exit_code, 0, "{at} {}", again.text());
        assert_eq!((world.read("n1", "a").as_deref(), world.read("n1", "b").as_deref()), (Some("up\n"), Some("up\n")));
        // Without root's rights nothing can be owed, so the steps that owe it did not run.
        assert!(world.read("n1", "h.count").is_some(), "{at} {}", again.text());
        assert_eq!(world.read("n1", "a.count").unwrap(), "x\n", "twice: {at}");
        let third = world.one(usual(&world, "n1"));
        assert_eq!(third.host("n1").executions, 1, "{at} {}", third.text());
    }
}

#[test]
fn a_probe_that_breaks_is_tried_once_more() {
    let world = World::new();
    world.fake.fault("n1", Fault { execution: 1, cut_download: Some(40), ..Fault::default() });
    let seen = world.one(usual(&world, "n1"));
    assert_eq!((seen.finished.exit_code, world.fake.seen("n1").connects), (0, 2), "{}", seen.text());
    let world = World::new();
    world.fake.fault("n1", Fault { execution: 0, cut_download: Some(40), ..Fault::default() });
    let seen = world.one(usual(&world, "n1"));
    assert_eq!((seen.finished.exit_code, seen.host("n1").status), (2, HostStatus::Failed));
    assert_eq!(world.read("n1", "a"), None);
}

#[test]
fn a_host_that_hangs_or_is_not_there_holds_nobody_up() {
    let world = World::new();
    let refused = Failure::new(FailureKind::Connect, "connection refused");
    world.fake.fault("n1", Fault { hang: true, ..Fault::default() });
    world.fake.fault("n2", Fault { refuse: Some(refused), ..Fault::default() });
    let hosts = ["n1", "n2", "n3"].map(|n| world.host(n, usual(&world, n)));
    let mut shared = world.shared("n3");
    shared.limits.execution = Duration::from_millis(1);
    let started = Instant::now();
    let seen = world.run(&shared, &[world.play(hosts.into())]);
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(seen.host("n1").status, HostStatus::Failed, "{}", seen.text());
    assert_eq!(seen.host("n1").error.as_ref().unwrap().kind, "timeout");
    assert_eq!((seen.host("n2").status, seen.host("n3").status), (HostStatus::Unreachable, HostStatus::Changed));
    assert_eq!(seen.finished.exit_code, 6);
}

#[test]
fn a_panic_is_one_hosts_failure() {
    let world = World::new();
    let broken = |host: &str| play(vec![item(Word { panics: true, ..word(&world.dir(host), "a") }, 1)], vec![]);
    let hosts = vec![world.host("n1", broken("n1")), world.host("n2", usual(&world, "n2"))];
    let seen = world.run(&world.shared("n2"), &[world.play(hosts)]);
    assert_eq!((seen.host("n1").status, seen.host("n2").status), (HostStatus::Failed, HostStatus::Changed));
    assert!(seen.host("n1").error.as_ref().unwrap().message.contains("it is broken"));
    assert_eq!(seen.finished.exit_code, 2);
}

#[test]
fn batches_stop_when_all_of_one_fail() {
    let world = World::new();
    let fails =
        |host: &str| play(vec![item(Word { first: "exit 3".into(), ..word(&world.dir(host), "a") }, 1)], vec![]);
    let hosts = ["n1", "n2", "n3"].map(|n| world.host(n, fails(n)));
    let first = Play { serial: vec![crate::playbook::Batch::Hosts(1)], ..world.play(hosts.into()) };
    let later = world.play(vec![world.host("n4", usual(&world, "n4"))]);
    let seen = world.run(&world.shared("n4"), &[first, later]);
    assert_eq!((seen.host("n1").status, seen.host("n2").status), (HostStatus::Failed, HostStatus::Skipped));
    assert_eq!(seen.host("n4").status, HostStatus::Skipped);
    assert!(world.read("n2", "a").is_none() && world.read("n4", "a").is_none());
    assert_eq!(seen.finished.exit_code, 2);
    // A host that was done by one play is left all the same if another was never begun on it.
    let earlier = world.play(vec![world.host("n5", usual(&world, "n5"))]);
    let first = world.play(vec![world.host("n1", fails("n1"))]);
    let later = world.play(vec![world.host("n5", usual(&world, "n5"))]);
    let seen = world.run(&world.shared("n5"), &[earlier, first, later]);
    assert_eq!(seen.finished.hosts["n5"].status, HostStatus::Changed);
    assert_eq!(seen.finished.left().map(|name| &**name).collect::<Vec<_>>(), ["n1", "n5"]);
    // A check touches nothing, so it looks at all of them.
    let gone = Failure::new(FailureKind::Connect, "connection refused");
    world.fake.fault("n1", Fault { refuse: Some(gone), ..Fault::default() });
    let hosts = ["n1", "n2"].map(|n| world.host(n, fails(n)));
    let play = Play { serial: vec![crate::playbook::Batch::Hosts(1)], ..world.play(hosts.into()) };
    let play = Play { policy: Policy { check: true, ..Policy::default() }, ..play };
    let mut events = Vec::new();
    let options = Options { forks: 8, check: true, detailed_exitcode: false };
    let finished = run(&world.shared("n2"), &[play], options, &mut |e| events.push(e));
    let seen = Seen { events, finished };
    assert_eq!((seen.host("n1").status, seen.host("n2").status), (HostStatus::Unreachable, HostStatus::Changed));
}

#[test]
fn values_of_no_log_are_in_no_event() {
    let world = World::new();
    let dir = world.dir("n1");
    let secret = |name: &str, first: &str| Word { wanted: "hunter2", first: first.into(), ..word(&dir, name) };
    let mut items = vec![item(secret("a", ""), 1), item(secret("b", "echo hunter2; exit 1"), 2)];
    items.iter_mut().for_each(|i| i.no_log = true);
    let seen = world.one(play(items, vec![]));
    assert_eq!((seen.status("a"), seen.status("b")), (Status::Changed, Status::Failed));
    assert!(!seen.text().contains("hunter2"), "{}", seen.text());
}

#[test]
fn facts_are_asked_as_the_play_says() {
    struct Asked(Arc<Mutex<Vec<Become>>>);
    impl Site for Asked {
        fn with_facts(&self, facts: &serde_json::Value) -> Result<HostPlay, String> {
            assert!(facts["host"]["boot_id"].is_string(), "{facts}");
            Ok(HostPlay::default())
        }
        fn identity(&self, keywords: &Become) -> Result<Identity, String> {
            self.0.lock().unwrap().push(keywords.clone());
            Ok(Identity::Login)
        }
        fn knows_handler(&self, _: &str) -> bool {
            false
        }
    }
    let world = World::new();
    let become_ = Become { enabled: true, user: Some("netops".into()) };
    let asked = Arc::default();
    let wants = HostPlay { wants_facts: true, become_: become_.clone(), ..HostPlay::default() };
    let host = Host { site: Box::new(Asked(Arc::clone(&asked))), ..world.host("n1", wants) };
    let seen = world.run(&world.shared("n1"), &[world.play(vec![host])]);
    assert_eq!((seen.finished.exit_code, seen.host("n1").executions), (0, 1), "{}", seen.text());
    assert_eq!(*asked.lock().unwrap(), [become_]);
}

#[test]
fn two_names_of_one_machine_are_told_and_do_not_undo_each_other() {
    let world = World::new();
    let hosts = vec![world.host("n1", usual(&world, "same")), world.host("n2", usual(&world, "same"))];
    let seen = world.run(&world.shared("same"), &[world.play(hosts)]);
    assert!(seen.text().contains("are the same machine"), "{}", seen.text());
    let plays = [(); 2].map(|()| world.play(["n1", "n2"].map(|n| world.host(n, usual(&world, "same"))).into()));
    let seen_again = world.run(&world.shared("same"), &plays);
    assert_eq!(seen_again.text().matches("are the same machine").count(), 1, "it is told once: {}", seen_again.text());
    assert_eq!(seen.finished.exit_code, 0, "{}", seen.text());
    assert_eq!(
        world.read("same", "a.count").unwrap(),
        "x\n",
        "the lock and the generation keep it from being done twice"
    );
}

#[test]
fn a_second_segment_follows_what_the_first_brings_to_light() {
    let world = World::new();
    let dir = world.dir("n1");
    let mut late = item(Word { stale: true, ..word(&dir, "late") }, 2);
    late.after = refer("word:a");
    let first = Word { first: format!("echo up >{}", dir.join("late").display()), ..word(&dir, "a") };
    let seen = world.one(play(vec![item(first, 1), late], vec![]));
    assert_eq!((seen.status("a"), seen.status("late")), (Status::Changed, Status::Ok), "{}", seen.text());
    assert_eq!(seen.host("n1").executions, 2);
    assert_eq!(world.read("n1", "late.count"), None);
}

#[test]
fn what_an_earlier_run_had_boot_is_waited_for_as_long_as_a_boot_takes_and_holds_nobody_up() {
    let world = World::new();
    let down = Fault { refuse: Some(Failure::new(FailureKind::Connect, "connection refused")), ..Fault::default() };
    world.fake.fault("back", down.clone());
    world.fake.fault("gone", down);
    let awaited = |ago: u64| Awaited {
        run: "r0".into(),
        ago: Duration::from_secs(ago),
        timeout: Duration::from_secs(900),
        found: Instant::now(),
    };
    let host = |name: &str, ago: u64| {
        let way = Way { awaited: Some(awaited(ago)), ..Way::default() };
        Host { way, ..world.host(name, usual(&world, name)) }
    };
    // One may still be on its way, one has had its time in a moment, and one doesn't boot at all.
    let hosts = vec![host("back", 12), host("gone", 898), world.host("up", usual(&world, "up"))];
    let fake = world.fake.clone();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        fake.fault("back", Fault::default());
    });
    let seen = world.run(&world.shared("up"), &[world.play(hosts)]);
    later.join().unwrap();
    let ended: Vec<_> = seen
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Host(h) => Some((&*h.host, h.status)),
            _ => None,
        })
        .collect();
    assert_eq!(
        ended,
        [("up", HostStatus::Changed), ("gone", HostStatus::Unreachable), ("back", HostStatus::Changed)],
        "{}",
        seen.text()
    );
    let warning = seen.host("gone").warnings.concat();
    assert!(warning.starts_with("it didn't come back: run r0 had it boot 90"), "{warning}");
    assert_eq!(seen.host("back").warnings, [""; 0]);
    let steps = seen.events.iter().filter(|e| matches!(e, Event::Boot(b) if b.step == BootStep::Awaited)).count();
    assert_eq!(steps, 2, "each is told once: {}", seen.text());
    assert_eq!(seen.finished.exit_code, 4);
}

/// Hosts that say nothing until they are back: a connection takes a second to fail. A simulated boot.
struct Dark {
    fake: Fake,
    back: Arc<AtomicBool>,
    door: SocketAddr,
    /// How many looks found nobody.
    vain: Arc<AtomicUsize>,
}

impl Transport for Dark {
    fn connect(&self, target: &Target, gate: &Gate, deadline: &Deadline) -> Result<Box<dyn Session>, Failure> {
        if target.host.starts_with('d') && !self.back.load(Ordering::Relaxed) {
            self.vain.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(1));
            return Err(Failure::new(FailureKind::Connect, "it doesn't answer"));
        }
        self.fake.connect(target, gate, deadline)
    }

    fn door(&self, target: &Target, _: &Deadline) -> Option<SocketAddr> {
        target.host.starts_with('d').then_some(self.door)
    }
}

#[test]
fn a_thousand_hosts_that_boot_hold_no_thread() {
    const HOSTS: usize = 1000;
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (door, back, vain) =
        (listener.local_addr().unwrap(), Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    drop(listener);
    let dark = Dark { fake: world.fake.clone(), back: back.clone(), door, vain: vain.clone() };
    let shared = Shared { transport: Box::new(dark), ..world.shared("up") };
    let awaited =
        Awaited { run: "r0".into(), ago: Duration::ZERO, timeout: Duration::from_secs(900), found: Instant::now() };
    let way = Way { awaited: Some(awaited), ..Way::default() };
    let mut hosts: Vec<Host> =
        (0..HOSTS).map(|i| Host { way: way.clone(), ..world.host(&format!("d{i}"), HostPlay::default()) }).collect();
    hosts.push(world.host("up", usual(&world, "up")));
    let began = Instant::now();
    let mut others = Duration::MAX;
    let mut seen = Vec::new();
    let mut listening = None;
    let options = Options { forks: 8, check: false, detailed_exitcode: false };
    let finished = run(&shared, &[world.play(hosts)], options, &mut |event| {
        if let Event::Host(host) = &event
            && &*host.host == "up"
        {
            others = began.elapsed();
        }
        seen.push(event);
        let waiting = seen.iter().filter(|e| matches!(e, Event::Boot(b) if b.step == BootStep::Awaited)).count();
        // They come back when all of them are waited for.
        if waiting == HOSTS && listening.is_none() {
            back.store(true, Ordering::Relaxed);
            listening = Some(TcpListener::bind(door).unwrap());
            let listener = listening.as_ref().unwrap().try_clone().unwrap();
            std::thread::spawn(move || listener.incoming().for_each(drop));
        }
    });
    // A look at each of them would have taken two minutes of eight threads.
    assert!(others < Duration::from_secs(30), "a host that is up was held up for {others:?}");
    let back = seen.iter().filter(|e| matches!(e, Event::Host(h) if h.status == HostStatus::Ok)).count();
    assert_eq!((back, finished.exit_code), (HOSTS, 0));
    assert_eq!(vain.load(Ordering::Relaxed), 0, "looks that hold a thread each");
}

#[test]
fn hosts_that_could_not_be_asked_are_not_compared() {
    let world = World::new();
    let names = ["n1", "n2", "n3", "n4"];
    let mute = Failure::new(FailureKind::KeyExchange, "the host fell silent in the key exchange, for 30 s");
    world.fake.fault("n3", Fault { refuse: Some(mute), ..Fault::default() });
    world.fake.fault("n4", Fault { execution: 0, cut_download: Some(40), ..Fault::default() });
    let hosts = names.map(|name| world.host(name, HostPlay::default())).into();
    let exam = Exam {
        checks: vec![Check::Audit],
        pairs: Pairs::default(),
        busy: false,
        keywords: Become::default(),
        nodes: HashMap::new(),
        groups: HashMap::new(),
    };
    let play = Play { exam: Some(exam), ..world.play(hosts) };
    let mut events = Vec::new();
    let finished = verify(&world.shared("n1"), &[play], 8, &mut |e| events.push(e));
    let judged = |event: &Event| match event {
        Event::Verdict { verdict, .. } => verdict.ok.map(|ok| format!("{} {ok}", verdict.host)),
        _ => None,
    };
    let mut verdicts: Vec<String> = events.iter().filter_map(judged).collect();
    verdicts.sort();
    assert_eq!(verdicts, ["n1 true", "n2 true"], "all are this machine: {events:?}");
    let found = events.iter().find_map(|event| match event {
        Event::Finding { finding, .. } => Some((finding.name, finding.hosts.concat())),
        _ => None,
    });
    assert_eq!(found, Some(("ssh_small_packets", "n3".to_owned())), "{events:?}");
    assert_eq!(finished.exit_code, 6, "{finished:?}");
}
