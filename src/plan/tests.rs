mod boot;
mod fake;

pub(crate) use fake::{Fake, play};

use super::*;
use fake::{Host, drive, plan};

#[test]
fn a_converged_host_costs_one_execution() {
    let mut host = Host::new(&[("a", "up"), ("b", "up")]);
    let mut plan = plan(vec![Fake::new("a"), Fake::new("b").after("a")], vec![], Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "a=Ok, b=Ok");
    assert_eq!(host.executions, 1);
}

#[test]
fn a_changed_one_costs_two_with_its_handler() {
    let mut host = Host::new(&[("a", "down"), ("b", "up"), ("c", "down"), ("h", "up"), ("i", "up")]);
    let handlers = vec![Fake { act: true, ..Fake::new("h") }, Fake { act: true, ..Fake::new("i") }];
    let resources = vec![Fake::new("a").after("c").notify("h"), Fake::new("b").notify("i"), Fake::new("c")];
    let mut plan = plan(resources, handlers, Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "a=Changed, b=Ok, c=Changed, h=Changed (notified by fake:a)");
    assert_eq!(host.log, ["c", "owe fake:h", "a", "h", "settle fake:h"]);
    assert_eq!(host.executions, 2);
}

#[test]
fn check_foretells_and_touches_nothing() {
    let mut host = Host::new(&[("a", "down"), ("b", "up"), ("s", "down"), ("h", "up")]);
    let resources = vec![Fake::new("a").notify("h"), Fake::new("b"), Fake { stale: true, ..Fake::new("s").after("a") }];
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(resources, handlers, Policy { check: true, ..Policy::default() });
    let seen = drive(&mut plan, &mut host);
    assert_eq!(
        seen,
        "a=WouldChange, b=Ok, s=WouldChange (looked at again after fake:a has changed), h=WouldChange (notified by fake:a)"
    );
    assert_eq!((host.executions, host.log.len()), (1, 0));
}

/// What differs now is told though it is looked at again, and what doesn't is no change.
#[test]
fn a_check_tells_what_is_known_before_something_else_changes() {
    let words = [("a", "down"), ("known", "down"), ("right", "up"), ("stopped", "down"), ("unknown", "?")];
    let after = |name| Fake { stale: true, ..Fake::new(name).after("a") };
    let resources = vec![
        Fake::new("a"),
        after("known"),
        after("right"),
        Fake { lasts: true, ..after("stopped") },
        after("unknown"),
    ];
    let mut plan = plan(resources, vec![], Policy { check: true, ..Policy::default() });
    let mut host = Host::new(&words);
    let told = drive(&mut plan, &mut host);
    assert_eq!(
        told,
        "a=WouldChange, known=WouldChange (looked at again after fake:a has changed), \
         right=Ok (as wanted now, looked at again after fake:a has changed), \
         stopped=WouldChange (can't be known before fake:a has changed; now no), \
         unknown=WouldChange (can't be known before fake:a has changed)"
    );
}

#[test]
fn what_a_failed_one_changed_all_the_same_is_told_apart() {
    let mut host = Host::new(&[("a", "down"), ("h", "up")]);
    let resources = || vec![Fake { lasts: true, ..Fake::new("a").notify("h") }];
    let handlers = || vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(resources(), handlers(), Policy::default());
    for who in plan.users() {
        let answers = host.answers(plan.questions(&who));
        plan.absorb(&who, &answers);
    }
    let Next::Segment(segment) = plan.advance() else { panic!("nothing to do") };
    let ran = host.run(&segment);
    plan.settle(&segment, &ran);
    let answers = host.answers(plan.questions(&segment.who));
    plan.absorb(&segment.who, &answers);
    assert!(matches!(plan.advance(), Next::Done));
    let outcomes = plan.outcomes();
    let a = outcomes.iter().find(|o| o.position == 0).unwrap();
    assert_eq!(a.status, Status::Failed);
    let fields = |changes: &[Change]| changes.iter().map(|c| c.field.clone()).collect::<Vec<_>>();
    assert_eq!((fields(&a.done), fields(&a.changes)), (vec!["word".to_owned()], vec!["boot".to_owned()]));
    // Who fails calls for no handler, though its steps succeed.
    assert_eq!(host.log, ["owe fake:h", "a"]);
}

#[test]
fn a_failure_skips_what_depends_on_it_and_nothing_else() {
    let mut host = Host::new(&[("a", "down"), ("b", "down"), ("c", "down"), ("d", "down"), ("h", "up")]);
    host.broken = vec!["a"];
    let resources =
        vec![Fake::new("a").notify("h"), Fake::new("b").after("a"), Fake::new("c").after("b"), Fake::new("d")];
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(resources, handlers, Policy::default());
    let seen = drive(&mut plan, &mut host);
    let told = "a=Failed [step: exit code 1, and it said nothing], b=Skipped (fake:a failed), c=Skipped (fake:a failed), d=Changed";
    assert!(seen.starts_with(told), "{seen}");
    assert!(seen.contains("h=Skipped (owed by run r1"), "{seen}");
    assert!(!host.log.contains(&"h".to_owned()));
}

#[test]
fn what_a_failed_step_got_done_is_not_told_as_still_to_change() {
    for (half, left) in [("half", "half"), ("down", "down"), ("up", "")] {
        let mut host = Host::new(&[("a", "down"), ("b", "down")]);
        host.broken = vec!["a"];
        host.half_way = true;
        host.becomes.insert("a", ("a", half));
        let mut plan = plan(vec![Fake::new("a"), Fake::new("b").after("a")], vec![], Policy::default());
        plan.absorb(&Who::Login, &host.answers(plan.questions(&Who::Login)));
        let Next::Segment(segment) = plan.advance() else { panic!("nothing to do") };
        plan.settle(&segment, &host.run(&segment));
        plan.absorb(&Who::Login, &host.answers(plan.questions(&Who::Login)));
        assert!(matches!(plan.advance(), Next::Done));
        let outcomes = plan.outcomes();
        let a = outcomes.iter().find(|o| o.position == 0).unwrap();
        assert_eq!((a.status, a.error.as_ref().unwrap().kind), (Status::Failed, "step"));
        let from: Vec<&str> = a.changes.iter().filter_map(|c| c.from.as_str()).collect();
        assert_eq!(from.concat(), left);
        let b = outcomes.iter().find(|o| o.position == 1).unwrap();
        assert_eq!((b.status, b.because.as_deref()), (Status::Skipped, Some("fake:a failed")));
    }
}

#[test]
fn why_a_step_failed_is_told_in_few_words() {
    let told = |code: i32, said: &[u8]| {
        let trouble = settle::step_trouble(&Output { code, stdout: said.to_vec(), ..Output::default() }, 7);
        (trouble.message, trouble.hint.unwrap_or_default())
    };
    assert_eq!(told(3, b"a\xff\xe4b\n").0, "exit code 3: a\\xff\\xe4b");
    assert_eq!(told(3, b"").0, "exit code 3, and it said nothing");
    let lines = "line\n".repeat(30) + &"x".repeat(65_536) + "end\n";
    let message = told(3, lines.as_bytes()).0;
    assert_eq!((message.lines().count(), message.len() < 1000), (20, true), "{message}");
    assert!(message.contains("x … 65039 characters … x") && message.ends_with("xend"), "{message}");
    assert!(told(124, b"").0.contains("by its deadline of 7 s") && !told(124, b"").1.contains("memory"));
    // Who killed it can't be told.
    let (message, hint) = told(137, b"Killed");
    assert_eq!(
        message,
        "it was killed by signal 9: its deadline of 7 s, want of memory, or a `kill -9` (exit code 137): Killed"
    );
    assert!(hint.contains("Out of memory") && hint.contains("timeout"), "{hint}");
    assert_eq!(told(143, b"").0, "it was ended by signal 15: its deadline of 7 s, or a `kill` (exit code 143)");
}

#[test]
fn ignored_and_stopping_failures() {
    let mut host = Host::new(&[("a", "down"), ("b", "down")]);
    host.broken = vec!["a"];
    let resources = vec![Fake { ignore: true, ..Fake::new("a") }, Fake::new("b").after("a")];
    assert!(drive(&mut plan(resources, vec![], Policy::default()), &mut host).ends_with("b=Changed"));
    let mut host = Host::new(&[("a", "down"), ("b", "down")]);
    host.broken = vec!["a"];
    let stop = Policy { stop_on_error: true, ..Policy::default() };
    let seen = drive(&mut plan(vec![Fake::new("a"), Fake::new("b")], vec![], stop), &mut host);
    assert!(seen.ends_with("b=Skipped (fake:a failed)"), "{seen}");
}

#[test]
fn what_a_change_brings_to_light_waits_for_a_probe() {
    let mut host = Host::new(&[("pkg", "down"), ("svc", "?")]);
    host.becomes.insert("pkg", ("svc", "down"));
    let mut plan = plan(vec![Fake::new("pkg"), Fake::new("svc").after("pkg")], vec![], Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "pkg=Changed, svc=Changed");
    assert_eq!(host.executions, 3);
    let mut host = Host::new(&[("pkg", "up"), ("svc", "?")]);
    let mut plan = super::tests::plan(vec![Fake::new("pkg"), Fake::new("svc").after("pkg")], vec![], Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "pkg=Ok, svc=Failed [probe: there is none]");
    assert_eq!(host.executions, 1);
}

#[test]
fn users_have_executions_of_their_own() {
    let mut host = Host::new(&[("a", "down"), ("b", "down"), ("c", "down"), ("h", "up")]);
    let root = |f: Fake| Fake { who: Some("root"), ..f };
    let resources = vec![root(Fake::new("a")), Fake::new("b").after("a"), root(Fake::new("c").after("b").notify("h"))];
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(resources, handlers, Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "a=Changed, b=Changed, c=Changed, h=Changed (notified by fake:c)");
    assert_eq!(host.log, ["a", "b", "owe fake:h as root", "c", "h", "settle fake:h as root"]);
}

fn owed(name: &str) -> Owed {
    Owed { address: format!("fake:{name}"), title: name.into(), run: "r0".into() }
}

#[test]
fn an_owed_handler_runs_in_the_next_run() {
    let mut host = Host::new(&[("a", "up"), ("h", "up")]);
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(vec![Fake::new("a").notify("h")], handlers, Policy::default());
    assert!(plan.owe(&owed("h"), &Who::Login));
    assert!(!plan.owe(&owed("x"), &Who::Login));
    assert_eq!(drive(&mut plan, &mut host), "a=Ok, h=Changed (owed by run r0)");
    assert_eq!(host.log, ["h", "settle fake:h"]);
}

#[test]
fn a_gate_stops_the_host_before_anything_is_changed() {
    let mut host = Host::new(&[("a", "down"), ("g", "down"), ("b", "down")]);
    let resources = vec![Fake::new("a"), Fake { gate: true, ..Fake::new("g") }, Fake::new("b")];
    let seen = drive(&mut plan(resources, vec![], Policy::default()), &mut host);
    assert_eq!(seen, "a=Skipped (fake:g failed), g=Failed [assert: no], b=Skipped (fake:g failed)");
    assert_eq!(host.executions, 1);
}

#[test]
fn a_folder_and_its_file_are_one_segment() {
    let file = Fake { folder: Some("dir"), ..Fake::new("file").needs("dir") };
    let mut host = Host::new(&[("dir", "down"), ("file", "no folder")]);
    let mut plan = plan(vec![file.clone(), Fake::new("dir")], vec![], Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "file=Changed, dir=Changed");
    assert_eq!((host.executions, host.log.join(" ")), (2, "dir file".to_owned()));
    // Nobody makes it: then it is in the way, also under --check.
    for check in [false, true] {
        let mut host = Host::new(&[("dir", "up"), ("file", "no folder")]);
        let policy = Policy { check, ..Policy::default() };
        let mut plan = super::tests::plan(vec![file.clone(), Fake::new("dir")], vec![], policy);
        assert_eq!(drive(&mut plan, &mut host), "file=Failed [obstacle: no], dir=Ok");
    }
}

#[test]
fn resources_that_fight_are_found_out() {
    let mut host = Host::new(&[("a", "up"), ("b", "down")]);
    host.becomes.insert("b", ("a", "down"));
    let mut plan = plan(vec![Fake::new("a"), Fake::new("b")], vec![], Policy::default());
    let told = "a=Failed [verify: it was as wanted, then something else in this play changed it: word: wanted up, got down], b=Changed";
    assert_eq!(drive(&mut plan, &mut host), told, "each is told once");
}

#[test]
fn what_is_owed_is_settled_by_whom_the_note_belongs_to() {
    // The handler's own user could not take root's note back.
    let root = |f: Fake| Fake { who: Some("root"), ..f };
    let mut host = Host::new(&[("a", "down"), ("h", "up")]);
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let mut plan = plan(vec![root(Fake::new("a").notify("h"))], handlers.clone(), Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "a=Changed, h=Changed (notified by fake:a)");
    assert_eq!(host.log, ["owe fake:h as root", "a", "h", "settle fake:h as root"]);
    let mut host = Host::new(&[("a", "up"), ("h", "up")]);
    let mut plan = super::tests::plan(vec![root(Fake::new("a").notify("h"))], handlers, Policy::default());
    assert!(plan.owe(&owed("h"), &Who::User("root".into())));
    assert_eq!(drive(&mut plan, &mut host), "a=Ok, h=Changed (owed by run r0)");
    assert_eq!(host.log, ["h", "settle fake:h as root"]);
}

#[test]
fn a_handler_with_nothing_to_do_is_owed_no_more() {
    let mut host = Host::new(&[("a", "down"), ("h", "up")]);
    let mut plan = plan(vec![Fake::new("a").notify("h")], vec![Fake::new("h")], Policy::default());
    assert_eq!(drive(&mut plan, &mut host), "a=Changed, h=Ok (notified by fake:a)");
    assert_eq!(host.log, ["owe fake:h", "a", "settle fake:h"]);
}

#[test]
fn an_action_that_changed_nothing_calls_for_nothing() {
    for (calm, seen, log) in [
        (true, "a=Ok", vec!["owe fake:h", "a", "settle fake:h"]),
        (false, "a=Changed, h=Changed (notified by fake:a)", vec!["owe fake:h", "a", "h", "settle fake:h"]),
    ] {
        let mut host = Host::new(&[("a", "up"), ("h", "up")]);
        let action = Fake { act: true, calm, ..Fake::new("a").notify("h") };
        let mut plan = plan(vec![action], vec![Fake { act: true, ..Fake::new("h") }], Policy::default());
        assert_eq!(
            (drive(&mut plan, &mut host).as_str(), &host.log),
            (seen, &log.iter().map(|s| s.to_string()).collect())
        );
    }
    // What an earlier run owes isn't taken back by it.
    let mut host = Host::new(&[("a", "up"), ("h", "up")]);
    let action = Fake { act: true, calm: true, ..Fake::new("a").notify("h") };
    let mut plan = plan(vec![action], vec![Fake { act: true, ..Fake::new("h") }], Policy::default());
    assert!(plan.owe(&owed("h"), &Who::Login));
    assert_eq!(drive(&mut plan, &mut host), "a=Ok, h=Changed (owed by run r0)");
}

#[test]
fn a_handler_that_fails_stays_owed() {
    let mut host = Host::new(&[("a", "down"), ("h", "up")]);
    host.broken = vec!["h"];
    let mut plan =
        plan(vec![Fake::new("a").notify("h")], vec![Fake { act: true, ..Fake::new("h") }], Policy::default());
    assert!(drive(&mut plan, &mut host).contains("h=Failed (notified by fake:a)"));
    assert!(!host.log.iter().any(|l| l.starts_with("settle")), "{:?}", host.log);
}

#[test]
fn check_foretells_what_keeps_a_handler_from_running() {
    let handlers = |word: &'static str| {
        let mut host = Host::new(&[("a", "down"), ("h", word)]);
        let told = [false, true].map(|check| {
            let policy = Policy { check, ..Policy::default() };
            let handler = Fake { act: word == "risky", ..Fake::new("h") };
            let mut plan = plan(vec![Fake::new("a").notify("h")], vec![handler], policy);
            host.words.insert("a", "down");
            let told = drive(&mut plan, &mut host);
            told.split_once(", ").unwrap().1.to_owned()
        });
        assert_eq!(told[0], told[1], "{word}");
        told[0].clone()
    };
    assert_eq!(handlers("up"), "h=Ok (notified by fake:a)");
    assert_eq!(handlers("risky"), "h=Failed (notified by fake:a) [risk: it could cut off the session: it is risky]");
}

#[test]
fn a_handler_in_trouble_is_told_only_if_it_is_called() {
    let mut host = Host::new(&[("a", "down"), ("h", "risky")]);
    host.broken = vec!["a"];
    let mut plan =
        plan(vec![Fake::new("a").notify("h")], vec![Fake { act: true, ..Fake::new("h") }], Policy::default());
    let seen = drive(&mut plan, &mut host);
    assert!(seen.contains("h=Skipped (owed by run r1"), "{seen}");
}

#[test]
fn on_error_stop_keeps_the_order_over_users() {
    let stop = Policy { stop_on_error: true, ..Policy::default() };
    let root = |f: Fake| Fake { who: Some("root"), ..f };
    let resources = || vec![root(Fake::new("a")), Fake::new("b"), root(Fake::new("c"))];
    let mut host = Host::new(&[("a", "down"), ("b", "down"), ("c", "down")]);
    assert_eq!(drive(&mut plan(resources(), vec![], stop), &mut host), "a=Changed, b=Changed, c=Changed");
    assert_eq!(host.log, ["a", "b", "c"]);
    let mut host = Host::new(&[("a", "down"), ("b", "down"), ("c", "down")]);
    host.broken = vec!["b"];
    let seen = drive(&mut plan(resources(), vec![], stop), &mut host);
    assert!(seen.ends_with("c=Skipped (fake:b failed)") && seen.starts_with("a=Changed"), "{seen}");
    assert_eq!(host.log, ["a", "b"]);
}

#[test]
fn what_can_never_be_known_is_one_failure() {
    let mut host = Host::new(&[("pkg", "up"), ("svc", "?"), ("use", "down"), ("other", "down")]);
    let resources =
        vec![Fake::new("pkg"), Fake::new("svc").after("pkg"), Fake::new("use").after("svc"), Fake::new("other")];
    let seen = drive(&mut plan(resources, vec![], Policy::default()), &mut host);
    assert_eq!(seen, "pkg=Ok, svc=Failed [probe: there is none], use=Skipped (fake:svc failed), other=Changed");
}

#[test]
fn a_change_that_failed_half_way_makes_others_stale() {
    let mut host = Host::new(&[("mtu", "down"), ("irq", "up"), ("app", "down")]);
    host.broken = vec!["mtu"];
    host.becomes.insert("mtu", ("irq", "down"));
    host.half_way = true;
    let app = |f: Fake| Fake { who: Some("app"), ..f };
    let irq = Fake { claims_stale: Some("mtu"), ..app(Fake::new("irq").after("app")) };
    let mut plan = plan(vec![Fake::new("mtu"), app(Fake::new("app")), irq], vec![], Policy::default());
    let seen = drive(&mut plan, &mut host);
    assert!(seen.ends_with("app=Changed, irq=Changed"), "{seen}");
}

#[test]
fn an_edge_left_out_is_told_once() {
    let mut host = Host::new(&[("file", "down"), ("service", "down")]);
    let resources = vec![Fake::new("file").after("service"), Fake::new("service").needs("file")];
    let mut plan = plan(resources, vec![], Policy::default());
    drive(&mut plan, &mut host);
    assert_eq!(plan.warnings().len(), 1);
}

#[test]
fn a_note_that_may_be_there_is_taken_back() {
    let mut plan = plan(vec![Fake::new("a").notify("h")], vec![Fake::new("h")], Policy::default());
    let mut host = Host::new(&[("a", "down"), ("h", "up")]);
    plan.absorb(&Who::Login, &host.answers(plan.questions(&Who::Login)));
    let Next::Segment(segment) = plan.advance() else { panic!("nothing to do") };
    // All of it was done, and the session broke before anything was told.
    host.run(&segment);
    host.log.clear();
    let unknown = segment.pieces.iter().map(|p| (p.id, Ran::Unknown("lost".into()))).collect();
    plan.settle(&segment, &unknown);
    assert_eq!(drive(&mut plan, &mut host), "a=Changed, h=Ok (notified by fake:a)");
    assert_eq!(host.log, ["settle fake:h"]);
}

#[test]
fn a_check_tells_a_handler_that_will_fail() {
    let resources = || vec![Fake::new("a").notify("h")];
    let words = [("a", "down"), ("h", "?")];
    let act = |f: Fake| Fake { act: true, ..f };
    let check = Policy { check: true, ..Policy::default() };
    let mut there = plan(resources(), vec![act(Fake::new("h"))], check);
    let told = "a=WouldChange, h=Failed (notified by fake:a) [probe: there is none]";
    assert_eq!(drive(&mut there, &mut Host::new(&words)), told);
    let mut applied = plan(resources(), vec![act(Fake::new("h"))], Policy::default());
    assert_eq!(drive(&mut applied, &mut Host::new(&words)), told.replace("WouldChange", "Changed"));
    // What it stands on would change: then nobody knows.
    let mut made = plan(resources(), vec![act(Fake::new("h").needs("a"))], check);
    assert_eq!(drive(&mut made, &mut Host::new(&words)), "a=WouldChange, h=WouldChange (notified by fake:a)");
}

fn shared(name: &'static str) -> Fake {
    Fake { share: true, ..Fake::new(name) }
}

#[test]
fn what_is_done_together_is_told_apart() {
    let mut host = Host::new(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("file", "x"), ("e", "x")]);
    host.broken.push("b");
    let resources = vec![
        shared("a"),
        Fake::new("e"),
        shared("b"),
        Fake::new("c").after("a"),
        Fake::new("d").after("b"),
        Fake::new("file"),
    ];
    let mut plan = plan(resources, vec![], Policy::default());
    let told = drive(&mut plan, &mut host);
    assert_eq!(
        told,
        "a=Changed, e=Changed, b=Failed [step: exit code 1, and it said nothing], c=Changed, d=Skipped (fake:b failed), \
         file=Changed"
    );
    assert_eq!((host.log.join(" "), host.executions), ("a+b e c file".to_owned(), 2));
}

#[test]
fn what_comes_after_other_things_is_done_apart() {
    let mut host = Host::new(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("file", "x"), ("key", "x")]);
    host.broken.push("key");
    // `a` and `d` come after one file, `b` after another that fails, `c` after `a`.
    let resources = vec![
        Fake { timeout: Some(7), ..shared("a").after("file") },
        shared("b").after("key"),
        shared("c").after("a"),
        Fake { timeout: Some(9), ..shared("d").after("file") },
        Fake::new("key"),
        Fake::new("file"),
    ];
    let mut plan = plan(resources, vec![], Policy::default());
    let answers = host.answers(plan.questions(&Who::Login));
    plan.absorb(&Who::Login, &answers);
    let Next::Segment(segment) = plan.advance() else { panic!("no segment") };
    let seconds: Vec<u32> = segment.pieces.iter().map(|p| p.seconds).collect();
    let ran = host.run(&segment);
    assert_eq!(host.log.join(" "), "key file a+d c");
    assert!(seconds.windows(3).any(|w| w == [9, 9, 9]), "the longest of them: {seconds:?}");
    plan.settle(&segment, &ran);
    let answers = host.answers(plan.questions(&Who::Login));
    plan.absorb(&Who::Login, &answers);
    while !matches!(plan.advance(), Next::Done) {}
    let skipped: Vec<_> = plan.outcomes().into_iter().filter_map(|o| Some((o.position, o.because?))).collect();
    assert_eq!(skipped, [(1, "fake:key failed".to_owned())]);
}

#[test]
fn a_list_that_stops_does_nothing_together() {
    let mut host = Host::new(&[("a", "x"), ("b", "x")]);
    host.broken.push("a");
    let policy = Policy { stop_on_error: true, ..Policy::default() };
    let told = drive(&mut plan(vec![shared("a"), shared("b")], vec![], policy), &mut host);
    assert_eq!(told, "a=Failed [step: exit code 1, and it said nothing], b=Skipped (fake:a failed)");
    assert_eq!(host.log.join(" "), "a");
}

#[test]
fn what_is_not_there_may_come_from_what_stands_before_it() {
    let resources = || {
        let brings = |name| Fake { brings: true, ..shared(name) };
        vec![brings("tool"), brings("pkg"), Fake::new("service"), Fake::new("other")]
    };
    let words = [("tool", "x"), ("pkg", "x"), ("service", "?"), ("other", "x")];
    let mut host = Host::new(&words);
    host.becomes.insert("pkg", ("service", "down"));
    // The failure of one that may have brought it is no reason to leave it out when it is there.
    host.broken.push("tool");
    let told = drive(&mut plan(resources(), vec![], Policy::default()), &mut host);
    assert_eq!(
        told,
        "tool=Failed [step: exit code 1, and it said nothing], pkg=Changed, service=Changed, other=Changed"
    );
    assert_eq!((host.log.join(" "), host.executions), ("tool+pkg other service".to_owned(), 3));

    let mut host = Host::new(&words);
    host.broken.push("pkg");
    let mut lacking = plan(resources(), vec![], Policy::default());
    let told = drive(&mut lacking, &mut host);
    assert!(told.contains("service=Failed [probe: there is none]"), "{told}");

    let mut host = Host::new(&words);
    let told = drive(&mut plan(resources(), vec![], Policy { check: true, ..Policy::default() }), &mut host);
    assert!(told.contains("service=WouldChange (can't be known before fake:tool has changed)"), "{told}");
}

#[test]
fn what_will_fail_is_foreseen_by_check_and_left_to_the_steps_by_an_apply() {
    let run = |first: Fake, word, check| {
        let mut host = Host::new(&[("first", word), ("file", "locked"), ("last", "x")]);
        let resources = vec![first, Fake::new("file"), Fake { brings: true, ..Fake::new("last") }];
        drive(&mut plan(resources, vec![], Policy { check, ..Policy::default() }), &mut host)
    };
    let command = || Fake { unclaimed: true, ..Fake::new("first") };
    let package = || Fake { brings: true, ..Fake::new("first") };
    let foreseen = "file=Failed [obstacle: no], last=WouldChange";
    // What is as wanted does nothing, and a file of its own brings no account.
    assert_eq!(run(command(), "up", true), format!("first=Ok, {foreseen}"));
    assert_eq!(run(Fake::new("first"), "x", true), format!("first=WouldChange, {foreseen}"));
    // A command or a package may take it away.
    for first in [command(), package()] {
        assert_eq!(run(first, "x", true), "first=WouldChange, file=WouldChange, last=WouldChange");
    }
    let always = run(Fake { act: true, ..command() }, "up", true);
    assert!(always.contains("first=Skipped") && always.contains("file=WouldChange"), "{always}");
    assert_eq!(run(command(), "up", false), "first=Ok, file=Changed, last=Changed");
}

#[test]
fn a_file_that_several_write_is_told_as_each_leaves_it() {
    for check in [true, false] {
        let mut host = Host::new(&[("a", "x"), ("b", "up"), ("c", "x")]);
        let writer = |name, line| Fake { line: Some(line), ..Fake::new(name) };
        let resources = vec![writer("a", "1"), writer("b", "2"), writer("c", "3")];
        let mut plan = plan(resources, vec![], Policy { check, ..Policy::default() });
        let answers = host.answers(plan.questions(&Who::Login));
        plan.absorb(&Who::Login, &answers);
        if let Next::Segment(segment) = plan.advance() {
            let ran = host.run(&segment);
            plan.settle(&segment, &ran);
            let answers = host.answers(plan.questions(&Who::Login));
            plan.absorb(&Who::Login, &answers);
            plan.advance();
        }
        let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
        let files = plan.outcomes().into_iter().flat_map(|o| o.files);
        let seen: Vec<_> = files.map(|f| (text(f.before), text(f.after), f.edit)).collect();
        let (first, both) = ("old\n1\n".to_owned(), "old\n1\n3\n".to_owned());
        assert_eq!(seen, [("old\n".to_owned(), first.clone(), None), (first, both, None)]);
    }
}

#[test]
fn what_waits_for_a_boot_is_told_in_every_run() {
    for check in [false, true] {
        let mut host = Host::new(&[("a", "waiting")]);
        let resources = vec![Fake { later: Some("waiting"), ..Fake::new("a") }];
        let told = drive(&mut plan(resources, vec![], Policy { check, ..Policy::default() }), &mut host);
        assert_eq!((told.as_str(), host.executions), ("a=RebootPending", 1));
    }
}
