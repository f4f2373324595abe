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
                "LINK_TYPE_P2 next boot \"ETH(2)\" \"IB\" Now",
                "LINK_TYPE_P2 \"ETH(2)\" \"IB\" Reboot",
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
                 mkdir -p {FOLDER}; printf '%s\\n' 'SRIOV_EN 1 0 b reboot' 'CNP_DSCP_P1 26 48 b reboot' >{FOLDER}/0000:86:00.0"
            );
            let output = shell.run_in_net(&setup, &format!("( {} )\ncat {FOLDER}/0000:86:00.0", script.as_str()));
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let noted = format!("CNP_DSCP_P1 26 48 b reboot\nNUM_OF_VFS 16 0 {} {loads}\n", boot.trim());
            assert_eq!(output.text(), format!("== parts\n== 1 0\n{noted}"), "{shell:?} {said}: {}", output.complaint());
        }
    }
}
