//! What configures interfaces at boot, real ones: NetworkManager, netplan, ifupdown. Each is told an MTU, and after a
//! restart has set it itself. All are in the hosts' file system and off; networkd keeps eth0, which carries the session.

use std::time::{Duration, Instant};

use crate::harness::{Host, Hosts, Kind, Netplay, ssh};
use crate::told::{Told, apply, play};

/// Takes eth1 and eth2 from networkd, and makes them at boot what they are on a machine: without addresses, and down.
const BARE: &str = "rm /etc/systemd/network/10-eth1.network /etc/systemd/network/10-eth2.network
    printf '[Unit]\\nDefaultDependencies=no\\nBefore=network-pre.target\\nWants=network-pre.target\\n[Service]\\nType=oneshot\\n\
    ExecStart=/bin/sh -c \"for i in eth1 eth2; do ip addr flush dev $i; ip link set $i down; done\"\\n' \
    >/etc/systemd/system/bare.service
    systemctl add-wants sysinit.target bare.service 2>/dev/null\n";

/// NetworkManager without its own idea of what eth0 should be.
const MANAGER: &str = "printf '[main]\\nno-auto-default=*\\n[keyfile]\\nunmanaged-devices=interface-name:eth0\\n' \
    >/etc/NetworkManager/conf.d/lab.conf\n";

fn reboot(host: Host<'_>) {
    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
}

/// The MTU of an interface.
fn mtu(host: Host<'_>, interface: &str) -> String {
    host.sh(&format!("cat /sys/class/net/{interface}/mtu")).trim().to_owned()
}

/// Waits until a command of the host prints this.
#[track_caller]
fn wait_for(host: Host<'_>, command: &str, wanted: &str) {
    let start = Instant::now();
    loop {
        let got = host.sh(&format!("{command} || true"));
        if got.trim() == wanted {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{command}: {got} and not {wanted}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Sets an MTU of 9000 on eth1 and 4000 on eth2 through this owner, and looks whether nothing else changes, a second run
/// has nothing to do, and the owner has set both after a restart.
fn lasts(hosts: &Hosts, owners: [&str; 2]) -> (Netplay, Told) {
    let host = hosts.first();
    let facts = Netplay::new(hosts, &["facts", "-i", "inventory.yaml"]).run().exits(0);
    let facts: serde_json::Value = serde_json::from_str(&facts.stdout).unwrap();
    let links = facts[host.0]["interfaces"].as_array().unwrap();
    let of = |name: &str| links.iter().find(|l| l["name"] == name).unwrap()["owner"].clone();
    assert_eq!([of("eth0"), of("eth1"), of("eth2")], ["networkd", owners[0], owners[1]].map(serde_json::Value::from));

    let resources = "    - mtu: {interface: eth1, mtu: 9000}\n    - mtu: {interface: eth2, mtu: 4000}\n";
    let netplay = apply(hosts, &play(resources), &[]);
    let addresses = "ip -o -4 addr; ip route";
    let before = host.sh(addresses);
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (2, 2), "{}", changed.run.stdout);
    assert_eq!((mtu(host, "eth1"), mtu(host, "eth2")), ("9000".to_owned(), "4000".to_owned()));
    assert_eq!(host.sh(addresses), before, "no owner is asked to apply anything");
    let converged = Told::by(&netplay, 0);
    assert_eq!((converged.count("ok"), converged.executions(host.0)), (2, 1), "{}", converged.run.stdout);

    reboot(host);
    wait_for(host, "cat /sys/class/net/eth1/mtu /sys/class/net/eth2/mtu | xargs", "9000 4000");
    wait_for(
        host,
        &format!("{{ {addresses}; }} | sort | md5sum"),
        host.sh(&format!("sort <<E | md5sum\n{before}E\n")).trim(),
    );
    let again = Told::by(&netplay, 0);
    assert_eq!(again.count("ok"), 2, "{}", again.run.stdout);
    (netplay, changed)
}

#[test]
fn networkmanager_and_netplan_above_it_set_what_they_are_told() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let address = |interface: &str| {
        host.sh(&format!("ip -o -4 addr show {interface}")).split_whitespace().nth(3).unwrap().to_owned()
    };
    let (one, two) = (address("eth1"), address("eth2"));
    host.sh(&format!(
        "{BARE}{MANAGER}umask 077
        printf '[connection]\\nid=rail: 1\\nuuid=5e1b0000-0000-4000-8000-000000000001\\ntype=ethernet\\ninterface-name=eth1\\n\
        [ipv4]\\nmethod=manual\\naddress1={one}\\n[ipv6]\\nmethod=disabled\\n' >/etc/NetworkManager/system-connections/rail.nmconnection
        printf 'network:\\n  version: 2\\n  renderer: NetworkManager\\n  ethernets:\\n    eth2: {{addresses: [{two}]}}\\n' \
        >/etc/netplan/50-fabric.yaml
        systemctl enable NetworkManager 2>/dev/null"
    ));
    reboot(host);
    wait_for(host, "nmcli -g GENERAL.STATE device show eth2", "100 (connected)");
    wait_for(host, "nmcli -g GENERAL.STATE device show eth1", "100 (connected)");
    let (netplay, changed) = lasts(&hosts, ["networkmanager", "netplan"]);
    assert_eq!(changed.warnings(), "");
    let profile = "nmcli -g 802-3-ethernet.mtu connection show";
    assert_eq!(host.sh(&format!("{profile} 'rail: 1'; {profile} netplan-eth2")), "9000\n4000\n");
    assert_eq!(host.sh("grep -c mtu=9000 /etc/NetworkManager/system-connections/rail.nmconnection"), "1\n");
    assert_eq!(
        host.sh("ls /etc/netplan; stat -c %a:%U /etc/netplan/99*"),
        "50-fabric.yaml\n99-netplay-mtu-eth2.yaml\n600:root\n"
    );

    // A profile that is in memory only, and takes the interface over.
    host.sh(
        "nmcli connection add save no type ethernet ifname eth1 con-name volatile ipv4.method disabled ipv6.method disabled
        nmcli connection up volatile",
    );
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    assert!(said.contains("the profile `volatile` of eth1 is in memory only"), "{said}");
    assert_eq!(mtu(host, "eth1"), "9000", "the live value is set all the same");
    let hint = said.split('`').find(|part| part.starts_with("nmcli")).unwrap().to_owned();
    host.sh(&hint);
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "changed", "what the hint says makes it possible");
    assert_eq!(host.sh(&format!("{profile} volatile")), "9000\n");
    // None is active, and two would do.
    host.sh("nmcli connection down volatile; nmcli device disconnect eth1 || true");
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    assert!(
        said.contains("several profiles for eth1") && said.contains("`rail: 1`") && said.contains("`volatile`"),
        "{said}"
    );
    // Switched off, it owns nothing, and nobody else does.
    host.sh("systemctl disable --now NetworkManager 2>/dev/null");
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    assert!(said.contains("NetworkManager is installed and off"), "{said}");
}

#[test]
fn netplan_sets_what_it_is_told() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh(&format!(
        "one=$(ip -o -4 addr show eth1 | awk '{{print $4}}')
        two=$(ip -o -4 addr show eth2 | awk '{{print $4}}')
        {BARE}umask 077; own='accept-ra: false, link-local: []'
        printf 'network:\\n  version: 2\\n  ethernets:\\n    eth1: {{addresses: [%s], %s}}\\n    rail-2:\\n      \
        match: {{name: eth2}}\\n      addresses: [%s]\\n      accept-ra: false\\n      link-local: []\\n' \
        \"$one\" \"$own\" \"$two\" >/etc/netplan/50-cloud-init.yaml"
    ));
    let kept = host.sh("cat /etc/netplan/50-cloud-init.yaml");
    reboot(host);
    wait_for(host, "networkctl list eth2 | awk '/eth2/{print $5}'", "configured");
    wait_for(host, "networkctl list eth1 | awk '/eth1/{print $5}'", "configured");
    let (netplay, changed) = lasts(&hosts, ["netplan", "netplan"]);
    // A veth has no permanent address that netplan could match.
    for name in ["eth1", "eth2"] {
        assert!(
            changed.warnings().contains(&format!("netplan matches {name} by its name only")),
            "{}",
            changed.warnings()
        );
    }
    assert_eq!(host.sh("cat /etc/netplan/50-cloud-init.yaml"), kept, "no file but our own is edited");
    assert_eq!(
        host.sh("ls /etc/netplan | xargs"),
        "50-cloud-init.yaml 99-netplay-mtu-eth1.yaml 99-netplay-mtu-rail-2.yaml\n"
    );

    // What netplan itself refuses isn't put there, whoever wrote it.
    let site = play("    - mtu: {interface: eth1, mtu: 8000}\n");
    let netplay = netplay.file("site.yaml", &site);
    host.sh("printf 'network:\\n  ethernets:\\n    eth1:\\n      mtuu: 1\\n' >/etc/netplan/60-fabric.yaml");
    let ours = host.sh("cat /etc/netplan/99-netplay-mtu-eth1.yaml");
    let said = Told::by(&netplay, 2);
    let event = said.resource(host.0, "mtu:eth1").to_string();
    assert!(
        event.contains("/etc/netplan/60-fabric.yaml:4:7") && event.contains("mtuu") && !event.contains("/tmp/"),
        "{event}"
    );
    assert_eq!(host.sh("cat /etc/netplan/99-netplay-mtu-eth1.yaml"), ours, "it is as it was");
    // What is no YAML is named with its place, and nothing is tried.
    host.sh("printf 'network:\\n  ethernets:\\n    eth1:\\n   mtu: 1\\n' >/etc/netplan/60-fabric.yaml");
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    assert!(said.contains("netplan's configuration can't be read: /etc/netplan/60-fabric.yaml:4:"), "{said}");
    assert_eq!(mtu(host, "eth1"), "8000", "the live value is set all the same");
    host.sh("rm /etc/netplan/60-fabric.yaml");
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "changed");
    assert_eq!(host.sh("grep -h MTU /run/systemd/network/10-netplan-eth1.network"), "MTUBytes=8000\n");
}

#[test]
fn ifupdown_sets_what_it_is_told() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh(&format!(
        "one=$(ip -o -4 addr show eth1 | awk '{{print $4}}')
        {BARE}printf '# rails\\nsource-directory rails\\nauto lo\\niface lo inet loopback\\n' >/etc/network/interfaces
        mkdir /etc/network/rails
        printf 'auto eth1 eth2\\n# as the switch\\niface eth1 inet static\\n\\taddress %s\\n\\tmtu 1500\\n\\n\
        iface eth2 inet6 auto\\n  # no DHCP\\n  up true\\niface other inet static\\n\\taddress 10.9.9.9/24\\n\\tmtu 1500\\n' \
        \"$one\" >/etc/network/rails/fabric; chmod 640 /etc/network/rails/fabric
        systemctl enable networking 2>/dev/null"
    ));
    let before = host.sh("cat /etc/network/rails/fabric");
    reboot(host);
    wait_for(host, "systemctl is-active networking", "active");
    let (netplay, changed) = lasts(&hosts, ["ifupdown", "ifupdown"]);
    assert_eq!(changed.warnings(), "");
    let line = "iface eth2 inet6 auto\n";
    let wanted = before
        .replacen("mtu 1500", "mtu 9000", 1)
        .replace(line, &format!("{line}  post-up ip link set dev $IFACE mtu 4000\n"));
    assert_eq!(host.sh("cat /etc/network/rails/fabric"), wanted, "two lines, and nothing else");
    assert_eq!(host.sh("ls -A /etc/network/rails; stat -c %a /etc/network/rails/fabric"), "fabric\n640\n");
    let netplay = netplay.file("site.yaml", &play("    - mtu: {interface: eth2, mtu: 5000}\n"));
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth2"), "changed");
    assert_eq!(host.sh("cat /etc/network/rails/fabric"), wanted.replace("mtu 4000", "mtu 5000"));
    // Switched off, its stanzas have no say.
    host.sh("systemctl disable networking 2>/dev/null");
    let said = Told::by(&netplay, 2).error("mtu:eth2");
    assert!(
        said.contains("/etc/network/rails/fabric:7 has a stanza for it, but ifupdown's networking.service is off"),
        "{said}"
    );
}

#[test]
fn two_owners_of_an_interface_are_both_named() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh(&format!(
        "{MANAGER}systemctl start NetworkManager
        nmcli connection add type ethernet ifname eth1 con-name rail ipv4.method disabled ipv6.method disabled
        nmcli connection up rail"
    ));
    let netplay = apply(&hosts, &play("    - mtu: {interface: eth1, mtu: 9000}\n"), &[]);
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    let both = "both NetworkManager (profile rail) and networkd (/etc/systemd/network/10-eth1.network) configure eth1";
    assert!(said.contains(both) && said.contains("`owner: networkmanager` or `owner: networkd`"), "{said}");
    let files = "ls /etc/systemd/network; nmcli -g 802-3-ethernet.mtu connection show rail";
    assert!(host.sh(files).ends_with("10-eth2.network\nauto\n"), "neither is changed: {}", host.sh(files));
    let netplay = netplay.file(
        "site.yaml",
        &play("    - mtu: {interface: eth1, mtu: 9000, owner: networkd}\n    - assert: {that: [facts.kernel is defined]}\n"),
    );
    let run = Told::by(&netplay, 0);
    assert!(run.warnings().contains(both), "facts tell of it: {}", run.warnings());
    assert!(run.warnings().contains("NetworkManager (profile rail) configures eth1 too"), "{}", run.warnings());
    // Left to networkd, it is networkd's.
    host.sh("nmcli connection delete rail; nmcli device set eth1 managed no");
    let netplay = netplay.file("site.yaml", &play("    - mtu: {interface: eth1, mtu: 9000}\n"));
    assert_eq!(Told::by(&netplay, 0).status("mtu:eth1"), "ok");
    // udev will call it something else.
    host.sh("printf '[Match]\\nMACAddress=%s\\n[Link]\\nName=rail1\\n' \"$(cat /sys/class/net/eth1/address)\" \
         >/etc/systemd/network/10-rail.link");
    let said = Told::by(&netplay, 2).error("mtu:eth1");
    assert!(said.contains("/etc/systemd/network/10-rail.link renames eth1 to rail1 at the next boot"), "{said}");
}

#[test]
fn a_bridge_is_raised_after_its_ports_and_lowered_before_them() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(
        "ip link add br0 type bridge; ip link set eth1 master br0; ip link set eth2 master br0; ip link set br0 up",
    );
    let set = |mtu: u32, names: [&str; 3]| {
        play(&names.map(|name| format!("    - mtu: {{interface: {name}, mtu: {mtu}, persist: false}}\n")).concat())
    };
    // What the kernel tells of it, in its order.
    let order = |netplay: &Netplay, code: i32| {
        host.sh("ip -o monitor link >/tmp/order 2>&1 & echo $! >/tmp/monitor; sleep 0.2");
        let run = Told::by(netplay, code);
        let text = host.sh("sleep 0.2; kill $(cat /tmp/monitor); cat /tmp/order");
        let mut seen: Vec<String> = Vec::new();
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(": ").and_then(|(_, rest)| rest.split_once([':', '@'])) else {
                continue;
            };
            let Some(mtu) = rest.split_once(" mtu ").and_then(|(_, rest)| rest.split(' ').next()) else { continue };
            let now = format!("{name} {mtu}");
            if !seen.contains(&now) {
                seen.push(now);
            }
        }
        (run, seen)
    };
    let netplay = apply(&hosts, &set(9000, ["br0", "eth1", "eth2"]), &[]);
    let (run, seen) = order(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (3, 2), "{}", run.run.stdout);
    let at = |seen: &[String], what: &str| {
        seen.iter().rposition(|s| s == what).unwrap_or_else(|| panic!("{what}: {seen:?}"))
    };
    let (bridge, ports) = (at(&seen, "br0 9000"), [at(&seen, "eth1 9000"), at(&seen, "eth2 9000")]);
    assert!(ports.iter().all(|port| *port < bridge), "{seen:?}");
    assert_eq!(Told::by(&netplay, 0).count("ok"), 3);

    let netplay = netplay.file("site.yaml", &set(1400, ["eth1", "eth2", "br0"]));
    let (run, seen) = order(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (3, 2), "{}", run.run.stdout);
    let (bridge, ports) = (at(&seen, "br0 1400"), [at(&seen, "eth1 1400"), at(&seen, "eth2 1400")]);
    assert!(ports.iter().all(|port| *port > bridge), "{seen:?}");
    // What the kernel takes for none of them isn't begun.
    let netplay = netplay.file("site.yaml", &set(65536, ["br0", "eth1", "eth2"]));
    let (run, seen) = order(&netplay, 2);
    assert!(run.error("mtu:eth1").contains("eth1 can't have an MTU of 65536: the most that its driver takes is 65535"));
    assert_eq!(run.status("mtu:br0"), "skipped");
    assert_eq!(seen, Vec::<String>::new());
}
