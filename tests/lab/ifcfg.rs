//! `ifcfg` on real hosts. What reads the files is simulated by the script that Red Hat's network-scripts bring.

use crate::harness::{Hosts, Kind};
use crate::told::{Told, apply, play};

const FOLDER: &str = "/etc/sysconfig/network-scripts";

/// Makes a host one with network-scripts.
const RED_HAT: &str = "mkdir -p /etc/sysconfig/network-scripts; printf '#!/bin/sh\\n' >/etc/init.d/network; \
                       chmod +x /etc/init.d/network";

#[test]
fn several_resources_share_a_file_and_its_interface() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(&format!(
        "{RED_HAT}; printf '# by hand\\nDEVICE=\"eth1\"\\nMTU=\"1500\"  # was 1400\\nONBOOT=no\\n' >{FOLDER}/ifcfg-eth1"
    ));
    let site = play(
        "    - mtu: {interface: eth1, mtu: 9000}
    - ifcfg: {interface: eth1, settings: {ONBOOT: yes, NAME: \"a 'b' \\\"c\\\" $(id) \\\\ `id`\"}}
    - ifcfg: {interface: eth1, settings: {DEVICE: eth1, MTU: 9000, GATEWAY: null}}
",
    );
    let netplay = apply(&hosts, &site, &[]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (3, 2), "{}", run.run.stdout);
    let wanted = "# by hand\nDEVICE=\"eth1\"\nMTU=\"9000\"  # was 1400\nONBOOT=yes\n\
                  NAME=\"a 'b' \\\"c\\\" \\$(id) \\\\ \\`id\\`\"\n";
    assert_eq!(host.sh(&format!("cat {FOLDER}/ifcfg-eth1")), wanted);
    assert_eq!(host.sh(&format!(". {FOLDER}/ifcfg-eth1; echo \"$NAME\"")), "a 'b' \"c\" $(id) \\ `id`\n");
    assert_eq!(host.sh(&format!("ls -A {FOLDER}")), "ifcfg-eth1\n", "another file there would be configuration");
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("ok"), run.executions(host.0)), (3, 1), "{}", run.run.stdout);
    // A live value that somebody changed is found though the file is right, and the other way round.
    host.sh("ip link set eth1 mtu 1500");
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "changed");
    host.sh(&format!("sed -i 's/9000/1500/' {FOLDER}/ifcfg-eth1"));
    let run = Told::by(&netplay, 0);
    assert_eq!(run.status("mtu:eth1"), "changed", "{}", run.run.stdout);
    assert_eq!(host.sh(&format!("cat {FOLDER}/ifcfg-eth1")), wanted);
}

#[test]
fn a_template_is_the_whole_file_and_the_mtu_in_it_is_seen() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(&format!("{RED_HAT}; echo MTU=1500 >{FOLDER}/ifcfg-eth1; chmod 600 {FOLDER}/ifcfg-eth1"));
    let site = play(
        "    - mtu: {interface: eth1, mtu: 9000}
    - ifcfg: {interface: eth1, template: ifcfg.j2}
",
    );
    let template = "# {{ inventory_hostname }}\nDEVICE=eth1\nMTU=9000\n";
    let netplay = apply(&hosts, &site, &[]).file("templates/ifcfg.j2", template);
    let run = Told::by(&netplay, 0);
    assert_eq!(run.count("changed"), 2, "{}", run.run.stdout);
    assert_eq!(
        host.sh(&format!("cat {FOLDER}/ifcfg-eth1; stat -c %a {FOLDER}/ifcfg-eth1")),
        format!("# {}\nDEVICE=eth1\nMTU=9000\n600\n", host.0)
    );
    assert_eq!(Told::by(&netplay, 0).count("ok"), 2);
}

#[test]
fn a_file_that_nothing_reads_is_not_written() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let netplay = apply(&hosts, &play("    - ifcfg: {interface: eth1, settings: {MTU: 9000}}\n"), &[]);
    let said = Told::by(&netplay, 2).error("ifcfg:eth1");
    let wanted = format!(
        "nothing on this host reads {FOLDER}/ifcfg-eth1: networkd (/etc/systemd/network/10-eth1.network) configures eth1"
    );
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(host.sh(&format!("ls -A {FOLDER}")), "");
    let with_path = "    - file: {path: /etc/ifcfg, state: directory}
    - ifcfg: {interface: eth1, path: /etc/ifcfg/eth1, settings: {MTU: 9000}}
";
    let run = Told::by(&netplay.file("site.yaml", &play(with_path)), 0);
    assert!(run.warnings().contains("netplay finds nothing that reads /etc/ifcfg/eth1"), "{}", run.warnings());
    assert_eq!(host.sh("cat /etc/ifcfg/eth1"), "MTU=9000\n");
}

#[test]
fn mount_points_links_and_what_can_not_be_written() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let file = format!("{FOLDER}/ifcfg-eth1");
    host.sh(&format!("{RED_HAT}; echo MTU=1500 >/srv/real; ln -s /srv/real {file}"));
    let set =
        |mtu: u32| apply(&hosts, &play(&format!("    - ifcfg: {{interface: eth1, settings: {{MTU: {mtu}}}}}\n")), &[]);
    assert_eq!(Told::by(&set(9000), 0).count("changed"), 1);
    assert_eq!(host.sh(&format!("readlink {file}; cat /srv/real")), "/srv/real\nMTU=9000\n");
    host.sh(&format!("rm {file}; echo MTU=1500 >{file}; mount --bind /srv/real {file}"));
    assert_eq!(Told::by(&set(4000), 0).count("changed"), 1);
    assert_eq!(host.sh("cat /srv/real"), "MTU=4000\n", "written in place, as it can't be replaced");
    host.sh(&format!("mount -o remount,ro,bind {file}"));
    let said = Told::by(&set(9000), 2).error("ifcfg:eth1");
    assert!(said.contains("Read-only file system"), "{said}");
    assert_eq!(host.sh(&format!("cat {file}; ls -A {FOLDER}")), "MTU=4000\nifcfg-eth1\n");
    host.sh(&format!("umount {file}; rm {file}; mkdir {file}"));
    let said = Told::by(&set(9000), 2).error("ifcfg:eth1");
    assert!(said.contains(&format!("{file} is no file")), "{said}");
}
