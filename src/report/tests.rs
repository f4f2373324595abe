//! Sequences of events and what is written of them, to the letter.

mod documents;
mod junit_rules;
mod run;
mod targets;

use super::human::{Human, Look};
use super::{Reporter, Verbosity};
use crate::event::*;
use proptest::prelude::*;
use run::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

#[test]
fn converged() {
    let run = Run::new().play("Tune", "gpu[001-128]", 128).on("gpu[001-128]", HostStatus::Ok, &ok(3));
    insta::assert_snapshot!(run.human());
}

#[test]
fn one_host_changed() {
    let run = Run::new().play("Tune", "localhost", 1).on("localhost", HostStatus::Changed, &[mtu(), buffers()]);
    insta::assert_snapshot!(run.human());
}

#[test]
fn three_hosts_changed() {
    let run = Run::new().play("Tune", "gpu[1-3]", 3).on("gpu[1-2]", HostStatus::Changed, &[mtu(), buffers()]).on(
        "gpu3",
        HostStatus::Changed,
        &[changed("mtu:eth0", &[change("live", 1400, 9000)]), buffers()],
    );
    insta::assert_snapshot!(run.human());
}

#[test]
fn a_ramp_over_a_thousand_hosts() {
    let run = Run::new()
        .play("Tune the RoCE fabric", "gpu[0001-1024]", 1)
        .batch(1, 3, "gpu0001")
        .on("gpu0001", HostStatus::Changed, &[mtu(), buffers()])
        .batch(2, 3, "gpu[0002-0103]")
        .on("gpu[0002-0103]", HostStatus::Changed, &[mtu(), buffers()])
        .batch(3, 3, "gpu[0104-1024]")
        .on("gpu[0104-0999]", HostStatus::Changed, &[mtu(), buffers()])
        .on("gpu[1000-1024]", HostStatus::Ok, &ok(2));
    insta::assert_snapshot!(run.human());
}

/// Failures of all sorts, on hosts of which most are well.
fn bad_day() -> Run {
    let hint = Some("remove that line, or set `file: /etc/sysctl.d/zzz-netplay.conf`");
    let obstacle = ResourceEvent {
        title: Some("socket buffers".into()),
        changes: vec![change("net.core.rmem_max", "212992", "134217728")],
        error: Some(problem("obstacle", "at boot 212992 wins: /etc/sysctl.d/zz-x.conf:3", hint)),
        ..resource("sysctl:net.core.rmem_max", Status::Failed)
    };
    let down = [
        mtu(),
        obstacle,
        skipped("service:irqbalance", "sysctl:net.core.rmem_max failed"),
        skipped("irq_affinity:eth0", "service:irqbalance was skipped"),
        skipped("ifcfg:ib0", "when: facts.os.family == 'redhat'"),
        ResourceEvent { ignored: true, ..failed("command:warm up", "exit code 1", None) },
    ];
    Run::new()
        .play("Tune", "gpu[001-128],login1", 129)
        .on("gpu[001-120]", HostStatus::Changed, &[mtu(), buffers()])
        .on("gpu[121-123]", HostStatus::Failed, &down)
        .host("gpu[124-127]", unreachable("connect to 10.0.0.9 port 22: connection refused", None))
        .host(
            "gpu128",
            unreachable("the host key of gpu128 has changed", Some("if that is right: ssh-keygen -R gpu128")),
        )
        .host(
            "login1",
            HostEvent {
                error: Some(problem(
                    "lost",
                    "the session to login1 broke while steps were running\nwhat was done isn't known",
                    None,
                )),
                ..host_event(HostStatus::Failed)
            },
        )
}

#[test]
fn failures() {
    insta::assert_snapshot!(bad_day().human());
}

#[test]
fn failures_quietly() {
    let text = bad_day().told(Look { verbosity: Verbosity::Quiet, ..Look::default() });
    assert!(text.starts_with("gpu[121-123]  sysctl"), "{text:?}");
    insta::assert_snapshot!(text);
}

#[test]
fn failures_at_length() {
    let look = Look { verbosity: Verbosity::Verbose, width: Some(80), ..Look::default() };
    insta::assert_snapshot!(bad_day().told(look));
}

#[test]
fn a_rack_without_power() {
    let mut run = Run::new().play("Tune", "gpu[01-40]", 40);
    for (i, host) in hosts("gpu[01-40]").iter().enumerate() {
        run = run.host(host, unreachable(&format!("connect to 10.0.0.{i} port 22: no answer within 10 s"), None));
    }
    insta::assert_snapshot!(run.human());
}

#[test]
fn plays_that_failed_are_named() {
    let run = Run::new()
        .play("Kernel", "gpu[1-4]", 4)
        .on("gpu[1-3]", HostStatus::Changed, &[buffers()])
        .on("gpu4", HostStatus::Failed, &[failed("assert:kernel", "wanted 6.1 or newer, got 5.15", None)])
        .play("Fabric", "gpu[1-4]", 4)
        .on("gpu[1-2]", HostStatus::Changed, &[mtu()])
        .on("gpu3", HostStatus::Failed, &[failed("mtu:eth0", "wanted 9000, got 1500", None)])
        .host(
            "gpu4",
            HostEvent {
                error: Some(problem("skipped", "it failed in an earlier play", None)),
                ..host_event(HostStatus::Skipped)
            },
        );
    insta::assert_snapshot!(run.human());
}

#[test]
fn a_ramp_that_stopped() {
    let never = HostEvent {
        error: Some(problem("skipped", "too many hosts failed before (1 of 1, max_fail_percentage 0)", None)),
        ..host_event(HostStatus::Skipped)
    };
    let run = Run::new()
        .play("Tune", "gpu[01-99]", 1)
        .batch(1, 3, "gpu01")
        .on("gpu01", HostStatus::Failed, &[failed("mtu:eth0", "wanted 9000, got 1500", Some("raise the switch first"))])
        .host("gpu[02-99]", never);
    insta::assert_snapshot!(run.human());
}

#[test]
fn handlers() {
    let handler = |status, because: &str| ResourceEvent {
        handler: true,
        title: Some("restart network".into()),
        because: Some(because.to_owned()),
        ..resource("service:NetworkManager", status)
    };
    let ifcfg = changed("ifcfg:eth0", &[change("MTU", Value::Null, "9000"), change("ONBOOT", "no", "yes")]);
    let run = Run::new()
        .play("Tune", "gpu[1-3]", 3)
        .on(
            "gpu[1-2]",
            HostStatus::Changed,
            &[ifcfg.clone(), handler(Status::Changed, "notified by ifcfg:eth0, copy:/x")],
        )
        .on("gpu3", HostStatus::Changed, &[handler(Status::Changed, "owed by run r0")]);
    insta::assert_snapshot!("handlers", run.human());
    let run = Run::check()
        .play("Tune", "gpu[1-3]", 3)
        .on(
            "gpu[1-2]",
            HostStatus::Changed,
            &[would(ifcfg), handler(Status::WouldChange, "notified by ifcfg:eth0, copy:/x")],
        )
        .on("gpu3", HostStatus::Changed, &[handler(Status::WouldChange, "owed by run r0")]);
    insta::assert_snapshot!("handlers_checked", run.human());
}

#[test]
fn check_with_diffs() {
    let file = |before: &str| FileDiff {
        path: "/etc/motd".to_owned(),
        before: Some(before.as_bytes().to_vec()),
        after: Some(b"new\twords\n\x1b[31mred\n".to_vec()),
        edit: None,
    };
    let copy = |before| ResourceEvent {
        files: vec![file(before)],
        ..would(changed(
            "copy:/etc/motd",
            &[change("content", "sha256:0a", "sha256:1b"), change("mode", "0600", "0644")],
        ))
    };
    let unknown = ResourceEvent {
        because: Some("its state is known after package:tuned has changed".to_owned()),
        ..would(changed("service:tuned", &[]))
    };
    let again = ResourceEvent {
        because: Some("as wanted now, looked at again after mtu:eth1 has changed".to_owned()),
        ..resource("irq_affinity:eth1", Status::Ok)
    };
    let run = Run::check()
        .play("Tune", "gpu[1-4]", 4)
        .on(
            "gpu[1-3]",
            HostStatus::Changed,
            &[copy("old\n"), unknown, again, skipped("sysctl:a.b", "can't be known yet")],
        )
        .on("gpu4", HostStatus::Changed, &[copy("other\n")]);
    insta::assert_snapshot!(run.human());
    let secretly = Run { diff: false, ..run };
    assert!(!secretly.human().contains("words"));
    assert!(!secretly.ndjson().contains("words"));
}

#[test]
fn warnings() {
    let twice = Event::Warning(Warning { message: "ansible.cfg is not read\nforks = 50 is `--forks 50`".to_owned() });
    let warned = ResourceEvent { warnings: vec!["tuned sets it too".to_owned()], ..resource("sysctl:a", Status::Ok) };
    let tmpfs = HostEvent {
        warnings: vec!["the root file system does not survive a reboot (tmpfs)".to_owned()],
        ..host_event(HostStatus::Ok)
    };
    let mut run = Run::new().event(twice.clone()).play("Tune", "n[1-4]", 4).event(twice);
    for host in hosts("n[1-4]") {
        run = run.event(Event::Resource(Box::new(ResourceEvent { host: host.clone(), ..warned.clone() })));
        run = run.host(&host, if &*host < "n3" { tmpfs.clone() } else { host_event(HostStatus::Ok) });
    }
    insta::assert_snapshot!(run.human());
}

#[test]
fn reboots() {
    let roce = ResourceEvent {
        changes: vec![Change {
            effect: Effect::Reboot,
            ..change("ROCE_CONTROL", "DEVICE_DEFAULT(0)", "ROCE_ENABLE(2)")
        }],
        ..resource("mlxconfig:mlx5_0", Status::RebootPending)
    };
    let pending = HostEvent { reboot_pending: vec!["mlxconfig:mlx5_0".to_owned()], ..host_event(HostStatus::Changed) };
    let mut run = Run::new().play("Tune", "gpu[01-12]", 12);
    for host in hosts("gpu[01-11]") {
        run = run.event(Event::Resource(Box::new(ResourceEvent { host: host.clone(), ..roce.clone() })));
        run = run.host(&host, pending.clone());
    }
    insta::assert_snapshot!(run.on("gpu12", HostStatus::Ok, &ok(1)).human());
}

#[test]
fn boots() {
    let why = |what: &str| vec![format!("mlxconfig:all ({what})")];
    let all = hosts("gpu[1-4]");
    let planned = BootsPlanned {
        play: "RoCE".into(),
        hosts: all
            .iter()
            .map(|h| (h.clone(), why(if &**h == "gpu3" { "SRIOV_EN 1" } else { "NUM_OF_VFS 16" })))
            .collect(),
        at_once: 2,
        at_most: Duration::from_secs(2 * 1380),
    };
    let run = Run::check().play("RoCE", "gpu[1-4]", 4).event(Event::BootsPlanned(planned));
    insta::assert_snapshot!("boots_planned", run.human());
    let steps = [
        (BootStep::Draining, 0, "slurm gpu1"),
        (BootStep::Drained, 12, "slurm gpu1"),
        (BootStep::Booting, 13, "mlxconfig:all (NUM_OF_VFS 16)"),
        (BootStep::Awaited, 14, "run r0 had it boot 14 s ago; it has up to 900 s for that"),
        (BootStep::Back, 255, "boot 14e88f29"),
        (BootStep::Done, 258, "slurm gpu1"),
    ];
    let mut run = Run::new().play("RoCE", "gpu1", 1);
    for (step, seconds, detail) in steps {
        let (play, host, time) = ("RoCE".into(), "gpu1".into(), Duration::from_secs(seconds));
        run = run.event(Event::Boot(Box::new(BootEvent { play, host, step, time, detail: detail.to_owned() })));
    }
    insta::assert_snapshot!(run.on("gpu1", HostStatus::Changed, &[mtu()]).human());
}

#[test]
fn interrupted() {
    let not = HostEvent {
        error: Some(problem("interrupted", "the run was interrupted before it was visited", None)),
        ..host_event(HostStatus::Skipped)
    };
    let unknown =
        [mtu(), skipped("sysctl:a", "the run was interrupted"), skipped("sysctl:b", "the run was interrupted")];
    let run = Run { interrupted: true, ..Run::new() }
        .play("Tune", "gpu[1-9]", 9)
        .on("gpu[1-2]", HostStatus::Changed, &[mtu()])
        .on("gpu3", HostStatus::Changed, &unknown)
        .host("gpu[4-9]", not);
    insta::assert_snapshot!(run.human());
}

#[test]
fn no_hosts() {
    insta::assert_snapshot!(Run::new().play("Tune", "", 0).human());
}

#[test]
fn a_batch_that_never_ended_is_told() {
    let run = Run::new()
        .play("Tune", "n[1-2]", 2)
        .event(Event::Resource(Box::new(ResourceEvent { host: "n1".into(), ..mtu() })));
    assert!(run.human().contains("n1  mtu:eth0  1500 → 9000\n"), "{}", run.human());
}

#[test]
fn hostile_text() {
    let evil = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\nsecond \u{202e}line";
    let run = Run::new()
        .play(evil, "n[1-2]", 2)
        .event(Event::Warning(Warning { message: evil.to_owned() }))
        .on("n1", HostStatus::Changed, &[changed(&format!("file:/{evil}"), &[change(evil, evil, json!([evil]))])])
        .on("n2", HostStatus::Failed, &[failed("file:/x", evil, Some(evil))])
        .event(Event::Output(Box::new(CommandOutput {
            host: "n1".into(),
            code: 0,
            output: evil.as_bytes().to_vec(),
            limit: 120,
        })));
    let text = run.human();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    insta::assert_snapshot!(text);
}

#[test]
fn outputs_of_a_command() {
    let said = |host: &str, code, output: &[u8]| {
        Event::Output(Box::new(CommandOutput { host: host.into(), code, output: output.to_vec(), limit: 3 }))
    };
    let mut run = Run { command: "run", again: false, ..Run::new() }.play("run", "gpu[1-8]", 8);
    for host in hosts("gpu[1-3]") {
        run = run.event(said(&host, 0, b"6.1.0-18-amd64\n")).on(&host, HostStatus::Ok, &[]);
    }
    let long: String = (0..20_000).map(|i| format!("{i}\n")).collect();
    run = run
        .event(said("gpu4", 1, b"gr\xfc\xdfe\r\n\tno newline"))
        .on("gpu4", HostStatus::Failed, &[])
        .event(said("gpu8", 124, b"began\n"))
        .on("gpu8", HostStatus::Failed, &[])
        .event(said("gpu5", 0, b""))
        .on("gpu5", HostStatus::Ok, &[])
        .host("gpu7", unreachable("connect to gpu7 port 22: connection refused", None));
    insta::assert_snapshot!(run.human());
    let long = run.event(said("gpu6", 0, long.as_bytes())).human();
    assert!(long.contains("  6773\n  6774\n  … 76,125 more bytes\n"), "{}", &long[long.len() - 900..]);
}

#[test]
fn facts_are_json_and_nothing_else() {
    let run = Run { command: "facts", ..Run::new() }
        .event(Event::Facts { host: "n3".into(), facts: json!({"cpus": null}) })
        .on("n3", HostStatus::Ok, &[])
        .host("n2", unreachable("no route to host", None))
        .event(Event::Facts { host: "n1".into(), facts: json!({"cpus": {"count": 64}}) })
        .host("n1", HostEvent { warnings: vec!["a part is missing".to_owned()], ..host_event(HostStatus::Ok) });
    let side = Shared::default();
    let out = run.told(Look { side: Some(Box::new(side.clone())), ..Look::default() });
    let values: Vec<Value> = serde_json::Deserializer::from_str(&out).into_iter().map(Result::unwrap).collect();
    // In the order of the inventory, whichever came first.
    assert_eq!(values, [json!({"n1": {"cpus": {"count": 64}}}), json!({"n3": {"cpus": null}})]);
    assert!(side.text().contains("n2  unreachable: no route to host\n"), "{}", side.text());
    assert!(side.text().contains("n1  warning: a part is missing\n"), "{}", side.text());
}

#[test]
fn scripts_are_shown_when_asked_for() {
    let run = Run::new().play("Tune", "n1", 1).event(Event::Script { host: "n1".into(), text: "{\n\tls\n}\n".into() });
    assert!(!run.human().contains("ls"));
    let shown = run.told(Look { verbosity: Verbosity::Scripts, ..Look::default() });
    assert!(shown.contains("# n1: script of 8 bytes\n{\n\tls\n}\n"), "{shown}");
    let run = Run::new().event(Event::Script { host: "n1".into(), text: "{\n\x1b\n}\n".into() });
    let shown = run.told(Look { verbosity: Verbosity::Scripts, ..Look::default() });
    assert!(shown.contains("# n1: script of 6 bytes, control characters in it escaped\n{\n\\x1b\n}\n"), "{shown}");
}

#[test]
fn colours_change_nothing_else() {
    let run = bad_day();
    let colored = run.told(Look { color: true, ..Look::default() });
    assert!(colored.contains("\u{1b}[31m\u{1b}[1mfailed\u{1b}[0m"), "{colored}");
    assert_eq!(console::strip_ansi_codes(&colored), run.human());
}

/// One of each event.
fn all_sorts() -> Run {
    Run { diff: true, ..Run::new() }
        .play("Tune", "n[1-3]", 1)
        .batch(1, 2, "n1")
        .event(Event::HostStage { host: "n1".into(), stage: Stage::Probing })
        .event(Event::Warning(Warning { message: "w".to_owned() }))
        .event(Event::Output(Box::new(CommandOutput {
            host: "n1".into(),
            code: 3,
            output: b"\xff\n".to_vec(),
            limit: 120,
        })))
        .event(Event::Facts { host: "n1".into(), facts: json!({"kernel": "6.1"}) })
        .on(
            "n1",
            HostStatus::Changed,
            &[ResourceEvent {
                title: Some("motd".into()),
                files: vec![FileDiff {
                    path: "/etc/motd".to_owned(),
                    before: None,
                    after: Some(b"hi\n".to_vec()),
                    edit: None,
                }],
                warnings: vec!["it's a link".to_owned()],
                ..changed(
                    "copy:/etc/motd",
                    &[
                        change("content", Value::Null, "sha256:1b"),
                        Change { effect: Effect::PowerCycle, ..change("x", false, 2) },
                    ],
                )
            }],
        )
        .on(
            "n2",
            HostStatus::Failed,
            &[
                failed("mtu:eth0", "wanted 9000, got 1500", Some("look at dmesg")),
                skipped("service:x", "mtu:eth0 failed"),
            ],
        )
        .host("n3", HostEvent { warnings: vec!["slow".to_owned()], ..unreachable("no route", None) })
}

#[test]
fn ndjson_lines() {
    insta::assert_snapshot!(all_sorts().ndjson());
}

/// The fields that scripts may rely on, by name.
#[test]
fn ndjson_keeps_its_contract() {
    let run = bad_day();
    for line in run.ndjson().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let has = |names: &str| names.split(' ').for_each(|n| assert!(line.get(n).is_some(), "{n} in {line}"));
        has("v event time");
        match line["event"].as_str().unwrap() {
            "resource" => has("play host address title status changes diff warnings error because"),
            "host" => has("play host status executions seconds warnings reboot_pending error"),
            "run_finished" => {
                has("hosts resources seconds exit_code left again log");
                assert_eq!(line["left"].as_array().unwrap().len(), 9);
                assert_eq!(
                    line["hosts"],
                    json!({"ok": 0, "changed": 120, "failed": 4, "unreachable": 5, "skipped": 0, "reboot_pending": 0})
                );
                assert_eq!(line["exit_code"], 6);
                assert_eq!(line["seconds"], 72.345);
            }
            other => assert!(["run_started", "play_started"].contains(&other), "{other}"),
        }
    }
}

/// What the human output says of resources: each change of each host, with the word that tells whether it was made.
fn read_back(text: &str) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    let (mut on, mut address) = (Vec::new(), String::new());
    for line in text.lines() {
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let said = match cells[..] {
            [list, of, said] if !line.starts_with(' ') && of.contains(':') => {
                (on, address) = (hosts(list), of.to_owned());
                said
            }
            [said] if line.starts_with(' ') => said,
            _ => continue,
        };
        if said.starts_with("failed") {
            continue;
        }
        let (word, changes) = said.split_once(": ").unwrap_or(("changed", said));
        for change in changes.split("; ") {
            found.extend(on.iter().map(|host| (host.to_string(), address.clone(), format!("{word} {change}"))));
        }
    }
    found
}

proptest! {
    /// Whatever is folded, each change of each host can be read off the output, and nothing else.
    #[test]
    fn folding_loses_nothing(
        says in prop::collection::vec(
            (0..12usize, 0..4usize, 0..3usize, prop::collection::vec((0..3usize, 0..3u32), 1..4)),
            0..40,
        )
    ) {
        let words = ["changed", "would change", "still to change"];
        let names = hosts("r[1-2]n[08-12],login1,10.0.0.7");
        let mut run = Run::new().play("Tune", "r[1-2]n[08-12],login1,10.0.0.7", 12);
        let mut expected = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for (host, address, word, changes) in says {
            if !seen.insert((host, address)) {
                continue;
            }
            let address = format!("t:{address}");
            let fields: BTreeMap<usize, u32> = changes.into_iter().collect();
            let mut by_value: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            for (field, to) in &fields {
                by_value.entry(*to).or_default().push(format!("f{field}"));
            }
            let all: Vec<Change> = fields.iter().map(|(f, to)| change(&format!("f{f}"), Value::Null, *to)).collect();
            for (to, fields) in by_value {
                let said = format!("{} {} absent → {to}", words[word], fields.join(", "));
                expected.insert((names[host].to_string(), address.clone(), said));
            }
            let event = match word {
                0 => changed(&address, &all),
                1 => would(changed(&address, &all)),
                _ => ResourceEvent {
                    changes: all,
                    error: Some(problem("step", "exit code 1", None)),
                    ..resource(&address, Status::Failed)
                },
            };
            run = run.event(Event::Resource(Box::new(ResourceEvent { host: names[host].clone(), ..event })));
        }
        let run = names.iter().fold(run, |run, host| run.host(host, host_event(HostStatus::Changed)));
        let text = run.human();
        prop_assert_eq!(read_back(&text), expected, "{}", text);
    }
}

#[test]
fn ten_thousand_hosts_are_folded_quickly() {
    let events = ten_thousand_hosts();
    let mut human = Human::new(Box::new(io::sink()), Look::default());
    let begun = Instant::now();
    events.iter().for_each(|event| human.event(event).unwrap());
    // Far above what it takes without optimisation, far below what anything quadratic would.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// The events of a run of 32 resources.
fn ten_thousand_hosts() -> Vec<Event> {
    let names = hosts("r[01-10]n[0001-1000]");
    let resources: Vec<ResourceEvent> = (0..32)
        .map(|i| match i % 4 {
            0 => changed(&format!("sysctl:net.k{i}"), &[change("live", 1, 2), change("boot", 1, 2)]),
            _ => resource(&format!("file:/etc/{i}"), Status::Ok),
        })
        .collect();
    let mut run = Run::new();
    run.events.reserve(names.len() * 33);
    let mut run = run.play("Tune", "r[01-10]n[0001-1000]", 10_000);
    for host in &names {
        for resource in &resources {
            run.events.push(Event::Resource(Box::new(ResourceEvent { host: host.clone(), ..resource.clone() })));
        }
        run.events.push(Event::Host(Box::new(HostEvent { host: host.clone(), ..host_event(HostStatus::Changed) })));
    }
    run.all()
}
