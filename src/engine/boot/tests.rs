//! Boots over the fake transport. None of them reaches an order to boot: the hosts are shells of this machine.

use super::super::host::Kept;
use super::super::run::{Host, Play, host_event};
use super::super::tests::{Here, Seen, World};
use super::super::visit::{Place, Shared, Visit};
use super::*;
use crate::engine::guard::Proof;
use crate::plan::{Policy, Rung};
use crate::playbook::{Become, HostPlay};
use crate::transport::Failure;
use crate::transport::fake::Fault;

fn reboot(world: &World) -> Reboot {
    let target = world.host("desk", HostPlay::default()).target;
    Reboot {
        max_unavailable: Batch::Hosts(2),
        hosts: 2,
        timeout: Duration::from_secs(20),
        drain_timeout: Duration::from_secs(100),
        desk: Place { target, site: Box::new(Here), keywords: Become::default() },
        firmware_reset: false,
        nodes: HashMap::new(),
        domains: HashMap::new(),
    }
}

fn gone() -> Fault {
    Fault { refuse: Some(Failure::new(FailureKind::Connect, "connection refused")), ..Fault::default() }
}

fn this_boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

fn visit<'a>(shared: &'a Shared, host: &'a Host, events: &'a (dyn Fn(Event) + Sync)) -> Visit<'a> {
    Visit {
        shared,
        target: &host.target,
        site: &Here,
        play: "p".into(),
        policy: Policy::default(),
        events,
        patient: false,
        confirm: Proof::default(),
        canary: None,
    }
}

/// A host that is waited for after this boot.
fn awaited(drain: Drain, boot: &str) -> Box<Trip> {
    let event = Box::new(host_event("p", "n1".into(), HostStatus::Ok, None));
    let before = Pulse { boot: boot.to_owned(), ..Pulse::default() };
    let boot = Boot { rung: Rung::Reboot, reasons: vec!["word:a (up)".to_owned()] };
    Trip::at(Stage::Wait, Rest::Over(event, Box::default()), boot, before, drain, true)
}

#[test]
fn only_a_host_that_does_not_answer_is_knocked_at() {
    let world = World::new();
    let (shared, host, play) = (world.shared("n1"), world.host("n1", HostPlay::default()), reboot(&world));
    let told = |_| {};
    let visit = visit(&shared, &host, &told);
    for drain in [Drain::None, Drain::SlurmReboots("n1".into())] {
        let mut trip = awaited(drain, &this_boot());
        assert!(trip.down(&play).is_none(), "it wasn't looked at yet");
        assert!(trip.wait(&visit, &play).unwrap().is_some());
        assert!(trip.lack.0 == Lack::Shutdown && trip.down(&play).is_none(), "it is still up: {:?}", trip.lack);
        world.fake.fault("n1", gone());
        assert!(trip.wait(&visit, &play).unwrap().is_some());
        assert!(trip.lack.0 == Lack::Boot && trip.down(&play).is_some(), "{:?}", trip.lack);
        // One look that failed is no boot.
        world.fake.fault("n1", Fault::default());
        assert!(trip.wait(&visit, &play).unwrap().is_some());
        assert!(trip.lack.0 == Lack::Shutdown && trip.down(&play).is_none(), "{:?}", trip.lack);
    }
}

#[test]
fn the_time_for_jobs_is_not_added_to_that_of_a_boot_and_of_what_follows_it() {
    let world = World::new();
    let mut play = reboot(&world);
    let seconds = |trip: &Trip, play: &Reboot| {
        [Lack::Shutdown, Lack::Boot, Lack::System, Lack::Ports].map(|lack| trip.limit(play, lack).1.as_secs())
    };
    let via = awaited(Drain::SlurmReboots("n1".into()), "a");
    assert_eq!(seconds(&via, &play), [120, 20, 20, 20]);
    assert_eq!(seconds(&awaited(Drain::Slurm("n1".into()), "a"), &play), [20; 4]);
    play.timeout = Duration::from_secs(900);
    assert_eq!(seconds(&via, &play), [1000, 900, 300, 180]);
    // It goes down when its jobs have ended, and has the time of a boot from then on.
    let later = via.entered + Duration::from_secs(50);
    let via = Trip { gone: Some(later), ..*via };
    assert_eq!((via.limit(&play, Lack::Shutdown).0, via.limit(&play, Lack::Boot).0), (via.entered, later));
}

/// What becomes of plays that may boot their hosts, when `told` does something at each event.
fn run(world: &World, play: Play, mut told: impl FnMut(&Event)) -> Seen {
    let options = crate::engine::run::Options { forks: 8, check: false, detailed_exitcode: false };
    let policy = Policy { boots: Some(Rung::Reboot), ..Policy::default() };
    let reboot = reboot(world);
    let play = Play { reboot: Some(reboot), policy, ..play };
    let mut events = Vec::new();
    let finished = crate::engine::run::run(&world.shared("n1"), &[play], options, &mut |event| {
        told(&event);
        events.push(event);
    });
    Seen { events, finished }
}

#[test]
fn a_host_whose_play_has_failed_is_not_waited_for_and_what_it_failed_of_is_told() {
    let world = World::new();
    let (shared, host, play) = (world.shared("n1"), world.host("n1", HostPlay::default()), reboot(&world));
    let told = |_| {};
    let visit = visit(&shared, &host, &told);
    let mut event = host_event("p", "n1".into(), HostStatus::Failed, None);
    event.error = Some(Problem { kind: "step", message: "first".into(), hint: None });
    // An earlier run has drained it and was about to boot it, and it goes down when its play has failed.
    world.fake.fault("n1", gone());
    let note =
        format!("run r0\nby me@elsewhere 1\nrung reboot\ndrain command\nwhy word:a (up)\nboot_id {}\n", this_boot());
    let trip = || {
        let command = Drain::Command { drain: "exit 1".into(), undrain: Some("exit 1".into()) };
        let way = Way { drain: command, ..Way::default() };
        let mut kept = Kept::default();
        kept.note = Note::read(&note);
        let note = kept.note.clone().unwrap();
        (Trip::unfinished(Box::new(event.clone()), Box::new(kept), note, &way), way)
    };
    let (one, way) = trip();
    let Turn::Over(event, _, Left::Away(why)) = one.turn(&visit, &play, &way) else { panic!("it is waited for") };
    assert_eq!(event.error.as_ref().unwrap().message, "first", "{event:?}");
    assert!(event.warnings.iter().any(|warning| warning.starts_with("it stays drained (command)")), "{event:?}");
    assert_eq!(why, "it failed, and an earlier run's boot isn't over");
    // Nor does an interruption hide it.
    shared.interrupted.store(true, Ordering::Relaxed);
    let (one, way) = trip();
    let Turn::Over(event, ..) = one.turn(&visit, &play, &way) else { panic!("it is waited for") };
    assert_eq!(event.error.as_ref().unwrap().message, "first", "{event:?}");
}

#[test]
fn a_name_that_comes_later_and_is_the_same_machine_is_not_booted() {
    let world = World::new();
    let host = |name: &str| {
        let asked = HostPlay { boot_for: Some("kernel".into()), ..HostPlay::default() };
        let mut host = world.host(name, asked);
        // Nothing is booted here, whatever happens.
        host.way.drain = Drain::Command { drain: "exit 1".into(), undrain: None };
        host
    };
    let mut late = host("n2");
    late.way.awaited = Some(Awaited {
        run: "r0".into(),
        ago: Duration::from_secs(1),
        timeout: Duration::from_secs(900),
        found: Instant::now(),
    });
    world.fake.fault("n2", gone());
    // The other one has its turn before this one is back.
    let seen = run(&world, world.play(vec![host("n1"), late]), |event| {
        if let Event::Host(host) = event
            && &*host.host == "n1"
        {
            world.fake.fault("n2", Fault::default());
        }
    });
    let problem = seen.host("n2").error.as_ref().unwrap();
    assert_eq!(
        problem.message,
        "it isn't booted: n1 and n2 are one machine by boot_id and machine-id",
        "{}",
        seen.text()
    );
    assert!(!seen.host("n1").error.as_ref().unwrap().message.contains("one machine"), "{}", seen.text());
}
