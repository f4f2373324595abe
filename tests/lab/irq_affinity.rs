//! Interrupts of a simulated network card: where a host's namespaces have none, files stand for its part of `/sys` and
//! `/proc/irq`. Everything else is real, the boot and what runs again at it too. Real interrupts are in `machine.rs`.

use crate::harness::{Host, Hosts, Kind, ssh};
use crate::told::{Told, apply, play};

/// Simulates that `eth1` is a card of four queues, near to the CPUs 2 and 3 of 4, whose interrupts begin with the number
/// that /base holds.
const CARD: &str = r#"set -e
base=$(cat /base) m=/run/card
mkdir -p $m/kernel $m/irq; mount -t tmpfs card $m
d=$m/eth1/device
mkdir -p $d/msi_irqs $m/kernel $m/irq
cp -a /sys/class/net/eth1/. $m/eth1 2>/dev/null || :
echo 0 >$d/numa_node; echo 2-3 >$d/local_cpulist; echo 0-3 >$m/online; : >$m/isolated
for n in 0 1 2 3; do
  q=$((base + n))
  echo msix >$d/msi_irqs/$q
  mkdir -p $m/kernel/$q $m/irq/$q
  echo mlx5_comp$n@pci:0000:86:00.0 >$m/kernel/$q/actions
  echo 0-3 >$m/irq/$q/smp_affinity_list
done
mount --bind $m/eth1 $(readlink -f /sys/class/net/eth1)
mount --bind $m/kernel /sys/kernel/irq
mount --bind $m/irq /proc/irq
mount --bind $m/online /sys/devices/system/cpu/online
mount --bind $m/isolated /sys/devices/system/cpu/isolated
"#;

/// The card is there at each boot, before what runs again.
fn install(host: Host<'_>, base: u32) {
    let card = CARD.replace('\'', "'\\''");
    host.sh(&format!(
        "echo {base} >/base; printf '%s' '{card}' >/card
         if [ -d /run/systemd/system ]; then
           printf '[Unit]\\nBefore=network.target\\n[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/sh /card\\n\
         [Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/card.service
           systemctl -q daemon-reload; systemctl -q enable --now card
         else sh /card; fi"
    ));
}

fn affinities(host: Host<'_>) -> String {
    host.sh("cd /proc/irq; grep -H '' */smp_affinity_list | sed 's,/[^:]*:, ,'").trim().replace('\n', ", ")
}

#[test]
fn queues_are_dealt_out_and_what_fails_is_told() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    install(host, 60);
    let netplay = apply(&hosts, &play("    - irq_affinity: {interface: eth1, persist: false}\n"), &[]);
    let check =
        Told::by(&apply(&hosts, &play("    - irq_affinity: {interface: eth1, persist: false}\n"), &["--check"]), 0);
    assert_eq!(check.status("irq_affinity:eth1"), "would_change");
    assert_eq!(affinities(host), "60 0-3, 61 0-3, 62 0-3, 63 0-3");
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (1, 2), "{}", changed.run.stdout);
    assert_eq!(affinities(host), "60 2, 61 3, 62 2, 63 3");
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (1, 1), "{}", again.run.stdout);
    assert_eq!(host.sh("ls -A /etc/netplay 2>/dev/null || :"), "");

    host.sh("rm /etc/systemd/system/multi-user.target.wants/irqbalance.service");
    // It lasts only where something can set it again.
    let lasting = apply(&hosts, &play("    - irq_affinity: {interface: eth1, cpus: 0}\n"), &[]);
    let said = Told::by(&lasting, 2).error("irq_affinity:eth1");
    assert!(said.contains("this host isn't run by systemd, so that nothing sets it again at boot"), "{said}");
    assert_eq!(affinities(host), "60 0, 61 0, 62 0, 63 0");

    // irqbalance really runs here, and would write to the same files.
    host.sh("irqbalance; until pidof irqbalance >/dev/null; do sleep 0.1; done");
    let said = Told::by(&netplay, 2).error("irq_affinity:eth1");
    assert!(said.contains("irqbalance runs, and would undo it within ten seconds"), "{said}");
    host.sh("kill $(pidof irqbalance)");

    for (interface, why) in [("eth2", "eth2 has no interrupts of its own"), ("eth9", "this host has no interface eth9")]
    {
        let one = play(&format!("    - irq_affinity: {{interface: {interface}, persist: false}}\n"));
        let said = Told::by(&apply(&hosts, &one, &[]), 2).error(&format!("irq_affinity:{interface}"));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn they_are_set_again_after_a_boot_whatever_their_numbers_are() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    install(host, 60);
    // Without its start condition irqbalance runs in a container too.
    host.sh("mkdir -p /etc/systemd/system/irqbalance.service.d
         printf '[Unit]\\nConditionVirtualization=\\nConditionCPUs=\\n' >/etc/systemd/system/irqbalance.service.d/lab.conf
         systemctl daemon-reload; systemctl enable --now irqbalance 2>/dev/null
         [ $(systemctl is-active irqbalance) = active ]");
    let alone = "    - irq_affinity: {interface: eth1}\n";
    let said = Told::by(&apply(&hosts, &play(alone), &[]), 2).error("irq_affinity:eth1");
    assert!(said.contains("irqbalance runs, and would undo it"), "{said}");

    // Stopped by the same play, though that stands behind it.
    let both = format!("{alone}    - service: {{name: irqbalance, state: stopped, enabled: false}}\n");
    let netplay = apply(&hosts, &play(&both), &[]);
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (2, 2), "{}", changed.run.stdout);
    assert_eq!(affinities(host), "60 2, 61 3, 62 2, 63 3");
    let converged = || {
        let again = Told::by(&netplay, 0);
        assert_eq!((again.count("ok"), again.executions(host.0)), (2, 1), "{}", again.run.stdout);
    };
    converged();

    // What another type keeps fails, and stops nothing.
    host.sh("echo 'echo a word of it; exit 7' >/etc/netplay/reapply.d/10-other; echo 80 >/base");
    let reboot = || {
        let boots = host.boots();
        ssh(host.0, "systemctl reboot");
        host.wait_for_boot(boots + 1);
        host.sh(
            "while s=$(systemctl is-system-running); [ $s = starting ] || [ $s = initializing ]; do sleep 0.1; done",
        );
    };
    reboot();
    assert_eq!(affinities(host), "80 2, 81 3, 82 2, 83 3");
    let journal = host.sh("systemctl is-failed netplay-reapply || :; journalctl -b -u netplay-reapply -o cat");
    for said in ["failed", "a word of it", "10-other: failed with exit code 7", "eth1: 4 interrupts of queues, 4 moved"]
    {
        assert!(journal.contains(said), "{journal}");
    }
    converged();

    // It fails itself: the next run tells.
    host.sh("rm /etc/netplay/reapply.d/10-other /etc/systemd/system/multi-user.target.wants/card.service");
    reboot();
    host.sh("sh /card");
    let told = Told::by(&netplay, 0);
    assert_eq!(told.status("irq_affinity:eth1"), "changed", "{}", told.run.stdout);
    assert!(told.warnings().contains("it failed when netplay-reapply.service last ran"), "{}", told.warnings());
    host.sh("systemctl restart netplay-reapply");
    let told = Told::by(&netplay, 0);
    assert_eq!((told.count("ok"), told.warnings().as_str()), (2, ""), "{}", told.run.stdout);

    // What was taken away comes back, and the last one takes all with it.
    host.sh("systemctl -q disable netplay-reapply; rm /etc/udev/rules.d/99-netplay-reapply.rules");
    assert_eq!(Told::by(&netplay, 0).status("irq_affinity:eth1"), "changed");
    converged();
    let gone = both.replace("eth1}", "eth1, persist: false}");
    let told = Told::by(&apply(&hosts, &play(&gone), &[]), 0);
    assert_eq!(told.status("irq_affinity:eth1"), "changed", "{}", told.run.stdout);
    assert_eq!(host.sh("find /etc -name '*netplay-*'; ls -d /etc/netplay 2>/dev/null || :"), "");
    assert_eq!(host.sh("systemctl show -P LoadState netplay-reapply"), "not-found\n");
}

/// Simulates a driver that sets its channels up anew for another MTU, as mlx5 does: the card's interrupts get other numbers.
const ANEW: &str = r#"#!/bin/sh
/bin/ip "$@" || exit
case " $* " in *' mtu '*) ;; *) exit 0 ;; esac
cd /run/card
for n in 0 1 2 3; do
  mv eth1/device/msi_irqs/6$n eth1/device/msi_irqs/9$n; mv kernel/6$n kernel/9$n; mv irq/6$n irq/9$n
  echo 0-3 >irq/9$n/smp_affinity_list
done
"#;

#[test]
fn a_change_of_the_mtu_in_the_same_run_makes_other_interrupts() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    install(host, 60);
    let affinity = "    - irq_affinity: {interface: eth1, persist: false}\n";
    Told::by(&apply(&hosts, &play(affinity), &[]), 0);
    assert_eq!(affinities(host), "60 2, 61 3, 62 2, 63 3");
    host.sh(&format!(
        "rm /usr/sbin/ip; printf '%s' '{}' >/usr/sbin/ip; chmod +x /usr/sbin/ip",
        ANEW.replace('\'', "'\\''")
    ));
    // What was right before the MTU was changed is looked at again after it.
    let both = format!("{affinity}    - mtu: {{interface: eth1, mtu: 9000, persist: false}}\n");
    let netplay = apply(&hosts, &play(&both), &[]);
    let told = Told::by(&netplay, 0);
    assert_eq!(affinities(host), "90 2, 91 3, 92 2, 93 3");
    assert_eq!((told.count("changed"), told.executions(host.0)), (2, 3), "{}", told.run.stdout);
    let again = Told::by(&netplay, 0);
    assert_eq!((again.count("ok"), again.executions(host.0)), (2, 1), "{}", again.run.stdout);

    // One goes after the probe has seen it, and before the change: the others are set, and it isn't missed.
    host.sh("cd /proc/irq; for n in 0 1 2 3; do echo 0-3 >9$n/smp_affinity_list; done");
    let goes = "    - command: {cmd: [rm, -r, /run/card/irq/91, /run/card/eth1/device/msi_irqs/91], removes: /run/card/irq/91}\n";
    let told = Told::by(&apply(&hosts, &play(&format!("{goes}{affinity}")), &[]), 0);
    let moved = told.resource(host.0, "irq_affinity:eth1")["changes"].to_string();
    assert!(moved.contains("mlx5_comp1@pci:0000:86:00.0 on 0-3"), "the probe saw it: {moved}");
    assert_eq!(affinities(host), "90 2, 92 2, 93 3");
    assert_eq!((told.count("changed"), told.executions(host.0)), (2, 2), "{}", told.run.stdout);
}
