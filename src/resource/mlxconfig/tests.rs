use super::*;
use crate::resource::cards::{FOLDER, refusal};
use crate::resource::trial::Shell;
use crate::resource::{AnyResource, Assessment, Inquiry};

/// Puts simulated cards on this machine, as a script sees it.
fn simulated(cards: &str) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/card.py");
    let hide = "for d in /run /var/lib /usr/local/bin; do mount -t tmpfs simulated $d; done\n";
    cards.lines().fold(hide.to_owned(), |all, line| format!("{all}{program} {line}\n"))
}

fn resource(keys: &[(&'static str, &str)], set: &[(&str, &str)]) -> Mlxconfig {
    let set = set.iter().map(|(name, value)| Setting { name: (*name).to_owned(), value: value::Value::of(value) });
    let get = |key: &str| keys.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    Mlxconfig {
        device: Device(get("device").unwrap_or("all").to_owned()),
        set: set.collect(),
        reset: get("reset").is_some(),
        accept_session_loss: true,
    }
}

/// What a resource makes of simulated cards, after these commands of the simulation and steps of the resource.
fn assess(shell: Shell, setup: &str, resource: &Mlxconfig, before: &str) -> Result<Assessment, Trouble> {
    let inquiry = Inquiry::new([Question::of::<Settings>(resource.question())]);
    let script = format!("{before}\n{}", inquiry.fragments()[0].script.as_str());
    let output = shell.run_in_net(setup, &script);
    match (resource as &dyn AnyResource).assess(&inquiry.answers(vec![Ok(output)]))? {
        Reading::State(found) => Ok(found),
        Reading::NotYet(why) => Err(why),
    }
}

fn shown(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|c| format!("{} {} {} {:?}", c.field, c.from, c.to, c.effect)).collect()
}

#[test]
fn a_card_is_asked_and_set_by_all_shells() {
    for (shell, (version, tools)) in Shell::ALL.into_iter().zip([("4.25", "mst"), ("4.30", "mft"), ("4.36", "mst")]) {
        let setup = simulated(&format!("add 0000:86:00.0 ports=2 version={version} tools={tools} seconds=0"));
        let set = [("NUM_OF_VFS", "16"), ("LINK_TYPE_P2", "ib"), ("CNP_DSCP_P1", "48"), ("PCI_ATOMIC_MODE", "0")];
        let resource = resource(&[("device", "0000:86:00.1")], &set);
        let found = assess(shell, &setup, &resource, "").unwrap();
        assert_eq!(
            shown(&found.changes),
            [
                "NUM_OF_VFS next boot 0 16 Now",
                "NUM_OF_VFS 0 16 Reboot",
                "LINK_TYPE_P2 next boot \"ETH(2)\" \"IB(1)\" Now",
                "LINK_TYPE_P2 \"ETH(2)\" \"IB(1)\" Reboot",
            ],
            "{shell:?} {version}"
        );
        assert!(found.obstacle.is_none() && found.warnings.is_empty(), "{found:?}");
        // After the step, in the same namespace, only the boot is awaited, and it is noted.
        let [Step::Share(share)] = found.steps.as_slice() else { panic!("{found:?}") };
        let step = share.of.script(&[&share.part], 60);
        let after = assess(shell, &setup, &resource, &format!("( {} ) >&2\n", step.as_str())).unwrap();
        let pending = ["NUM_OF_VFS 0 16 Reboot", "LINK_TYPE_P2 \"ETH(2)\" \"IB(1)\" Reboot"];
        assert_eq!(shown(&after.changes), pending, "{shell:?} {version}: {after:?}");
        assert!(after.steps.is_empty(), "{shell:?} {version}: {after:?}");
    }
}

/// What the tools are asked is in their log, and so is what the resource sets.
#[test]
fn one_query_a_card_and_elements_of_arrays_beside_a_port_that_is_not_there() {
    for shell in Shell::ALL {
        let setup = simulated("add 0000:86:00.0 seconds=0");
        let calls = |before: &str| {
            let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/card.py");
            format!("{program} calls >/dev/null; {before}")
        };
        let one = resource(&[("device", "0000:86:00.0")], &[("NUM_OF_VFS", "0")]);
        assert!(assess(shell, &setup, &one, &calls("")).unwrap().changes.is_empty(), "{shell:?}");
        let inquiry = Inquiry::new([Question::of::<Settings>(one.question())]);
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/card.py");
        let script = format!("( {} ) >/dev/null\n{program} calls", inquiry.fragments()[0].script.as_str());
        let log = shell.run_in_net(&setup, &script);
        let queries = |log: &Output| log.text().lines().filter(|l| l.contains("\"q\"")).count();
        assert_eq!(queries(&log), 1, "{shell:?}: {}", log.text());

        let set = [("HOST_CHAINING_DESCRIPTORS[0]", "7"), ("CNP_DSCP_P3", "48"), ("NUM_OF_VFS", "3")];
        let some = resource(&[("device", "all")], &set);
        let found = assess(shell, &setup, &some, "").unwrap();
        // Once for what is there at all, and once for the elements, which the whole table doesn't show.
        let inquiry = Inquiry::new([Question::of::<Settings>(some.question())]);
        let script = format!("( {} ) >/dev/null\n{program} calls", inquiry.fragments()[0].script.as_str());
        assert_eq!(queries(&shell.run_in_net(&setup, &script)), 2, "{shell:?}");
        assert!(found.obstacle.is_none(), "{shell:?}: {found:?}");
        let next: Vec<&str> = found.changes.iter().filter_map(|c| c.field.strip_suffix(" next boot")).collect();
        assert_eq!(next, ["HOST_CHAINING_DESCRIPTORS[0]", "NUM_OF_VFS"], "{shell:?}: {found:?}");
        assert_eq!(found.warnings, ["0000:86:00.0: CNP_DSCP_P3 is left out: this card has no port 3"]);

        // What is there is not taken for what is revealed later.
        let set = [("HOST_CHAINING_DESCRIPTORS[0]", "7"), ("ADVANCED_PCI_SETTINGS", "1"), ("MAX_ACC_OUT_READ", "44")];
        let found = assess(shell, &setup, &resource(&[("device", "all")], &set), "").unwrap();
        assert_eq!(found.warnings.len(), 1, "{shell:?}: {found:?}");
        assert!(found.warnings[0].contains("MAX_ACC_OUT_READ isn't there yet"), "{shell:?}: {found:?}");
    }
}

/// What a parameter can be is asked of the card where a value isn't among those that its table shows, and only there.
#[test]
fn what_a_parameter_can_be_is_known_before_it_is_set() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/card.py");
    for shell in Shell::ALL {
        let setup = simulated("add 0000:86:00.0 ports=2 seconds=0");
        let of = |set: &[(&str, &str)]| resource(&[("device", "0000:86:00.0")], set);
        for (set, why) in [
            (("LINK_TYPE_P2", "ETHER"), "LINK_TYPE_P2 can't be ETHER: it can be IB(1), ETH(2)"),
            (
                ("ROCE_CONTROL", "7"),
                "ROCE_CONTROL can't be 7: it can be DEVICE_DEFAULT(0), ROCE_DISABLE(1), ROCE_ENABLE(2)",
            ),
        ] {
            let found = assess(shell, &setup, &of(&[set]), "").unwrap();
            assert_eq!(found.obstacle.unwrap().trouble.message, why, "{shell:?}");
        }
        let found = assess(shell, &setup, &of(&[("ROCE_CONTROL", "1"), ("SRIOV_EN", "1")]), "").unwrap();
        let told = [
            "ROCE_CONTROL next boot \"ROCE_ENABLE(2)\" \"ROCE_DISABLE(1)\" Now",
            "SRIOV_EN next boot \"False(0)\" \"True(1)\" Now",
        ];
        let shown = shown(&found.changes);
        assert!(told.iter().all(|told| shown.iter().any(|s| s == told)), "{shell:?}: {shown:?}");
        // A tool that doesn't list them leaves it to the set.
        let old = format!("{setup}{program} fault 0000:86:00.0 no-confs\n");
        assert!(assess(shell, &old, &of(&[("LINK_TYPE_P2", "ETHER")]), "").unwrap().obstacle.is_none(), "{shell:?}");
        for (value, calls) in [("roce_enable", 0), ("2", 0), ("1", 1)] {
            let inquiry = Inquiry::new([Question::of::<Settings>(of(&[("ROCE_CONTROL", value)]).question())]);
            let script = format!("( {} ) >/dev/null\n{program} calls", inquiry.fragments()[0].script.as_str());
            let log = shell.run_in_net(&setup, &script);
            assert_eq!(log.text().lines().filter(|l| l.contains("show_confs")).count(), calls, "{shell:?} {value}");
        }
    }
}

/// Two names of one card, of which only the host knows that they are.
#[test]
fn two_resources_do_not_set_one_parameter_of_one_card() {
    let first = resource(&[("device", "mlx5_0")], &[("NUM_OF_VFS", "1"), ("SRIOV_EN", "1")]);
    let told = |other: &Mlxconfig, targets: &str| {
        let inquiry = Inquiry::new([&first, other].map(|r| Question::of::<Settings>(r.question())));
        let text = format!(
            "tool mstconfig\nboot b\ncard 0000:86:00.0 0x020000 - mlx5_0\nis mlx5_0 0000:86:00.0\n{targets}\n== 0000:86:00.0 0\n\
             Configurations: Default Current Next Boot\n NUM_OF_VFS 0 0 0\n SRIOV_EN False(0) False(0) False(0)\n"
        );
        let text = format!("{text}{}", text[text.find("== ").unwrap_or_default()..].replace("86", "09"));
        let output = Output { stdout: text.into(), ..Output::default() };
        let answers = inquiry.answers(vec![Ok(output)]);
        let mut said = Vec::new();
        for one in [&first, other] {
            let Reading::State(found) = (one as &dyn AnyResource).assess(&answers).unwrap() else { panic!("no state") };
            said.push(found.obstacle.map(|o| o.trouble.message).unwrap_or_default());
        }
        said
    };
    let other = resource(&[("device", "0000:86:00.1")], &[("NUM_OF_VFS", "2")]);
    let same = "is 0000:86:00.1 0000:86:00.0";
    assert_eq!(
        told(&other, same),
        [
            "`mlxconfig:mlx5_0` and `mlxconfig:0000:86:00.1` both set NUM_OF_VFS of the card 0000:86:00.0",
            "`mlxconfig:0000:86:00.1` and `mlxconfig:mlx5_0` both set NUM_OF_VFS of the card 0000:86:00.0",
        ]
    );
    let apart = resource(&[("device", "0000:86:00.1")], &[("CNP_DSCP_P1", "2")]);
    assert!(told(&apart, same)[0].is_empty());
    assert!(told(&other, "is 0000:86:00.1 0000:09:00.0")[0].is_empty());
    let reset = resource(&[("device", "0000:86:00.1"), ("reset", "true")], &[]);
    assert!(told(&reset, same)[0].contains("both set NUM_OF_VFS"), "{:?}", told(&reset, same));
    // What all cards have in common with one of them is known offline, and which functions are one card.
    for (a, b, clash) in
        [("all", "mlx5_0", true), ("0000:86:00.0", "0000:86:00.1", true), ("0000:86:00.0", "0000:87:00.0", false)]
    {
        let [a, b] =
            [a, b].map(|device| Resource::claims(&resource(&[("device", device)], &[("NUM_OF_VFS", "1")])).remove(0));
        assert_eq!(a == b || b.within.contains(&a), clash, "{a} {b}");
    }
}

/// The lines that tools print when they refuse, as far as they are known.
#[test]
fn what_a_refusal_means() {
    let found = Found::read("card 0000:03:00.0 0x020000 - mlx5_0");
    let of = |address: &str, code, said: &str| {
        let Trouble { message, hint } = refusal(&found, "mstconfig", address, code, said);
        format!("{message} | {}", hint.unwrap_or_default())
    };
    let mut seen = 0;
    for line in include_str!("samples/errors.txt").lines().filter(|l| !l.starts_with('#')) {
        seen += 1;
        let complaint = match line.split_once("'-E- ") {
            Some((_, rest)) => rest.split('\'').next().unwrap(),
            None if line.starts_with("-E- ") => line.trim_start_matches("-E- ").split("   ").next().unwrap(),
            None => continue,
        };
        let told = of("0000:03:00.0", 3, &format!("-E- {complaint}\n"));
        assert!(told.starts_with("0000:03:00.0: ") && told.contains(complaint.trim()), "{line}: {told}");
        let table = Table::read(&format!("-E- {complaint}\n"), "0000:03:00.0");
        assert!(!table.seen && table.complaint.as_deref() == Some(complaint.trim()), "{line}: {table:?}");
    }
    assert_eq!(seen, 19);
    assert!(of("0000:09:00.0", 3, "-E- Failed to open the device").contains("this host has 0000:03:00.0 (mlx5_0)"));
    assert!(of("0000:03:00.0", 3, "-E- Failed to open the device\n-E- not root").contains("`become: true`"));
    assert!(of("0000:03:00.0", 3, "-E- Device in Livefish mode is not supported").contains("burn its firmware anew"));
    assert!(of("0000:03:00.0", 124, "").contains("didn't answer within 60 s"));
    assert!(of("0000:03:00.0", 3, "-E- the flash semaphore is locked").contains("another tool holds its lock"));
    assert!(of("0000:03:00.0", 5, "").contains("mstconfig ended with 5: it said nothing"));
    assert!(of("0000:03:00.0", 0, "names\n").contains("mstconfig ended with 0: it said nothing"));
}

/// What loads a setting: the tool's line behind a set, or the levels of reset that the device supports.
#[test]
fn a_set_notes_what_loads_it() {
    let levels = include_str!("samples/mstfwreset_query.txt");
    let warm = "4: Warm Reboot                                                   -Supported";
    assert!(levels.contains(warm));
    let cold = levels.replace(warm, "4: Warm Reboot                                                   -Not Supported");
    let lines: Vec<&str> = include_str!("samples/set_results.txt").lines().filter(|l| l.starts_with("-I-")).collect();
    let (reboot, cycle) = (lines[0], *lines.iter().find(|l| l.contains("power cycle")).unwrap());
    let card = cards::Setting {
        assignments: vec!["NUM_OF_VFS=16".to_owned()],
        notes: vec![new_line("NUM_OF_VFS", "16", Some("0"))],
        dropped: vec!["SRIOV_EN".to_owned()],
    };
    let Step::Share(share) = cards::step(&[("0000:86:00.0".to_owned(), card)].into()) else { panic!("no share") };
    let script = share.of.script(&[&share.part], 60);
    for shell in Shell::ALL {
        for (said, levels, loads) in
            [(reboot, levels, "reboot"), (reboot, cold.as_str(), "power_cycle"), (cycle, levels, "power_cycle")]
        {
            let setup = format!(
                "for d in /var/lib /usr/local/bin; do mount -t tmpfs x $d; done; cd /usr/local/bin\n\
                 cat >said <<'END'\n\nApplying... Done!\n{said}\nEND\ncat >levels <<'END'\n{levels}END\n\
                 for t in mstconfig:said mstfwreset:levels; do\n\
                 printf '#!/bin/sh\\ncat /usr/local/bin/%s\\n' ${{t#*:}} >${{t%:*}}; chmod 755 ${{t%:*}}\ndone\n\
                 mkdir -p {FOLDER}; printf '%s\\n' 'SRIOV_EN 1 0 b reboot' 'CNP_DSCP_P1 26 48 b reboot' >{FOLDER}/0000:86:00"
            );
            let output = shell.run_in_net(&setup, &format!("( {} )\ncat {FOLDER}/0000:86:00", script.as_str()));
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let noted = format!("CNP_DSCP_P1 26 48 b reboot\nNUM_OF_VFS 16 0 {} {loads}\n", boot.trim());
            assert_eq!(output.text(), format!("== parts\n== 1 0\n{noted}"), "{shell:?} {said}: {}", output.complaint());
        }
    }
}
