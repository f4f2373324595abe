//! Boots in the middle of a play.

use super::fake::{Fake, Host, drive, plan};
use crate::plan::{Boot, Policy, Rung};

fn boots(rung: Rung) -> Policy {
    Policy { boots: Some(rung), ..Policy::default() }
}

fn card() -> Fake {
    Fake { later: Some("set"), ..Fake::new("card") }
}

/// A card that takes what was set over at a boot.
fn host(others: &[(&'static str, &'static str)]) -> Host {
    let mut host = Host::new(&[&[("card", "x")], others].concat());
    host.made.insert("card", "set");
    host.at_boot.push((Rung::Reboot, "card", "up"));
    host
}

#[test]
fn what_is_independent_runs_before_and_what_depends_on_it_after() {
    let resources = || vec![card(), Fake::new("qos").after("card"), Fake::new("other")];
    let mut host_ = host(&[("qos", "x"), ("other", "x")]);
    let told = drive(&mut plan(resources(), vec![], boots(Rung::Reboot)), &mut host_);
    assert_eq!(told, "card=Changed, qos=Changed, other=Changed");
    assert_eq!(host_.log, ["card", "other", "Reboot for fake:card (word up)", "qos"]);

    let mut host_ = host(&[("qos", "x"), ("other", "x")]);
    let told = drive(&mut plan(resources(), vec![], Policy::default()), &mut host_);
    assert_eq!(told, "card=RebootPending, qos=Skipped (fake:card takes effect at boot), other=Changed");
    assert_eq!(host_.log, ["card", "other"]);
}

#[test]
fn a_host_that_has_failed_is_not_booted() {
    let resources = |ignore| vec![card(), Fake::new("qos").after("card"), Fake { ignore, ..Fake::new("bad") }];
    let bad = || Host { broken: vec!["bad"], ..host(&[("qos", "x"), ("bad", "x")]) };
    let (mut host_, mut plan_) = (bad(), plan(resources(false), vec![], boots(Rung::Reboot)));
    let told = drive(&mut plan_, &mut host_);
    assert_eq!(
        told,
        "card=RebootPending, qos=Skipped (fake:card takes effect at boot), bad=Failed [step: exit code 1, and it said nothing]"
    );
    assert_eq!(host_.log, ["card", "bad"]);
    assert_eq!(
        plan_.warnings(),
        ["it isn't booted (fake:card (word up)), as it has failed: mend that and run this again"]
    );

    let (mut host_, mut plan_) = (bad(), plan(resources(true), vec![], boots(Rung::Reboot)));
    let told = drive(&mut plan_, &mut host_);
    assert!(told.starts_with("card=Changed, qos=Changed, bad=Failed"), "{told}");
    assert!(plan_.warnings().is_empty());
}

#[test]
fn a_check_foretells_both_ways() {
    let resources = || vec![Fake { later: Some("set"), ..Fake::new("card") }, Fake::new("qos").after("card")];
    for (policy, qos) in
        [(Policy::default(), "Skipped (fake:card takes effect at boot)"), (boots(Rung::Reboot), "WouldChange")]
    {
        let mut host = Host::new(&[("card", "set"), ("qos", "x")]);
        let told = drive(&mut plan(resources(), vec![], Policy { check: true, ..policy }), &mut host);
        assert_eq!(told, format!("card=RebootPending, qos={qos}"));
        assert_eq!(host.executions, 1);
    }
}

#[test]
fn what_is_lost_at_boot_is_made_again_and_handlers_wait() {
    let mut host = host(&[("live", "x"), ("kept", "up"), ("h", "up")]);
    host.at_boot.push((Rung::Reboot, "live", "x"));
    let resources = vec![card(), Fake::new("live").notify("h"), Fake::new("kept")];
    let handlers = vec![Fake { act: true, ..Fake::new("h") }];
    let told = drive(&mut plan(resources, handlers, boots(Rung::Reboot)), &mut host);
    assert_eq!(told, "card=Changed, live=Changed, kept=Ok, h=Changed (notified by fake:live)");
    assert_eq!(
        host.log,
        ["card", "owe fake:h", "live", "Reboot for fake:card (word up)", "live", "h", "settle fake:h"]
    );
}

#[test]
fn no_second_boot_for_the_same_reason() {
    // It stays as it is; it reads as set and not current; the boot sets it back.
    for after in ["set", "up, not current", "x"] {
        let mut host = Host::new(&[("card", "x"), ("qos", "x")]);
        host.made.insert("card", "set");
        host.at_boot.push((Rung::Reboot, "card", after));
        let resources = vec![card(), Fake::new("qos").after("card")];
        let told = drive(&mut plan(resources, vec![], boots(Rung::Reboot)), &mut host);
        assert!(
            told.contains("card=Failed [firmware: the firmware didn't take it")
                && told.contains("qos=Skipped (fake:card failed)"),
            "{after}: {told}"
        );
        let boots = host.log.iter().filter(|l| l.starts_with("Reboot")).count();
        assert_eq!(boots, 1, "{after}: {:?}", host.log);
    }
}

#[test]
fn a_boot_for_something_else_is_not_what_was_asked_for() {
    let mut plan = plan(vec![], vec![], boots(Rung::Reboot));
    plan.play.boot_for = Some("new kernel".into());
    let boot = |why: &str| Boot { rung: Rung::Reboot, reasons: vec![why.to_owned()] };
    plan.booted(&boot("mlxconfig:all (NUM_OF_VFS 4)"));
    assert!(plan.boot_asked());
    plan.booted(&boot("new kernel"));
    assert!(!plan.boot_asked());
}

#[test]
fn waves_are_booted_one_after_the_other_and_two_reasons_at_once() {
    // The second one is there only after the first boot, and needs one of its own.
    let mut host = host(&[("other", "x"), ("hidden", "?")]);
    host.made.extend([("other", "set"), ("hidden", "set")]);
    host.at_boot.push((Rung::Reboot, "other", "up"));
    let mut first = true;
    let resources = vec![
        card(),
        Fake { later: Some("set"), ..Fake::new("other") },
        Fake { later: Some("set"), ..Fake::new("hidden").after("card") },
    ];
    let mut plan = plan(resources, vec![], boots(Rung::Reboot));
    let told = super::fake::drive_booting(&mut plan, &mut host, &mut |host| {
        let word = if std::mem::take(&mut first) { "x" } else { "up" };
        host.words.insert("hidden", word);
    });
    assert_eq!(told, "card=Changed, other=Changed, hidden=Changed");
    assert_eq!(
        host.log,
        [
            "card",
            "other",
            "Reboot for fake:card (word up), fake:other (word up)",
            "hidden",
            "Reboot for fake:hidden (word up)"
        ]
    );
}

#[test]
fn a_power_cycle_is_made_only_where_it_can_be() {
    let cycle = || Fake { cycle: true, ..card() };
    let resources = || vec![cycle(), Fake { later: Some("set"), ..Fake::new("warm") }, Fake::new("qos").after("card")];
    let mut host = Host::new(&[("card", "set"), ("warm", "set"), ("qos", "x")]);
    host.at_boot.extend([(Rung::PowerCycle, "card", "up"), (Rung::Reboot, "warm", "up")]);
    let told = drive(&mut plan(resources(), vec![], boots(Rung::Reboot)), &mut host);
    assert_eq!(told, "card=RebootPending, warm=Changed, qos=Skipped (fake:card takes effect at a power cycle)");
    assert_eq!(host.log, ["Reboot for fake:warm (word up)"]);

    let mut host = Host::new(&[("card", "set"), ("warm", "set"), ("qos", "x")]);
    host.at_boot.extend([(Rung::PowerCycle, "card", "up"), (Rung::Reboot, "warm", "up")]);
    let told = drive(&mut plan(resources(), vec![], boots(Rung::PowerCycle)), &mut host);
    assert_eq!(told, "card=Changed, warm=Changed, qos=Changed");
    assert_eq!(host.log, ["PowerCycle for fake:card (word up), fake:warm (word up)", "qos"]);
}

#[test]
fn what_an_earlier_run_booted_for_is_known_by_its_resource() {
    let plan = plan(vec![Fake::new("a")], vec![], boots(Rung::Reboot));
    let lacks = |why: &str| {
        let reasons = [why.to_owned()];
        plan.lacks(&reasons).map(str::to_owned)
    };
    assert_eq!(lacks("mlxconfig:all (NUM_OF_VFS 4, SRIOV_EN 1)").as_deref(), Some("mlxconfig:all"));
    assert_eq!(lacks("mlxconfig:all").as_deref(), Some("mlxconfig:all"), "of a no_log resource");
    assert_eq!(lacks("fake:a (word up)"), None);
    assert_eq!(lacks("a kernel: 6.1"), None, "what was asked for is no resource");
}
