use super::*;
use crate::resource::trial::{Shell, ask};

fn link(index: u32, name: &str) -> Link {
    Link { index, name: name.to_owned(), ..Link::default() }
}

fn owners(text: &str) -> Owners {
    read(&Output { stdout: text.into(), ..Output::default() }).unwrap()
}

fn owner(owners: &Owners, index: u32, name: &str) -> String {
    let all: Vec<String> = owners.all(&link(index, name)).iter().map(ToString::to_string).collect();
    all.join(" + ")
}

#[test]
fn each_owner_has_its_links() {
    let found = owners(
        "== networkmanager\nib0:connected:u-1\nib1:connected:u-2\nib2:disconnected:\n\
         docker0:connected (externally):u-3\neth0:unmanaged:\nrc 0\n\
         u-1:infiniband:yes:0:/etc/NetworkManager/system-connections/rail.nmconnection:Rail \\: 0\n\
         u-2:802-3-ethernet:yes:0:/run/NetworkManager/system-connections/netplan-ib1.nmconnection:netplan-ib1\n\
         u-3:bridge:no:0:/run/NetworkManager/system-connections/docker0.nmconnection:docker0\nrc 0\n\
         == networkd\n/run/systemd/netif/links/2:NETWORK_FILE=/etc/systemd/network/10-eth0.network\n\
         /run/systemd/netif/links/3:NETWORK_FILE=/run/systemd/network/10-netplan-eth1.network\n\
         /run/systemd/netif/links/9:NETWORK_FILE=/etc/systemd/network/20-ib2.network\n\
         == ifupdown\nfile /etc/network/interfaces\nfile /etc/network/interfaces.d/eth2\n\
         /etc/network/interfaces:iface lo inet loopback\n/etc/network/interfaces:iface eth1 inet dhcp\n\
         /etc/network/interfaces.d/eth2:  iface eth2 inet static\n\
         == ifcfg\n/etc/sysconfig/network-scripts/ifcfg-eth3\n/etc/sysconfig/network-scripts/ifcfg-ib0\n\
         network-scripts\nNetworkManager\n== cloud-init\n/etc/sysconfig/network-scripts/ifcfg-eth3\n",
    );
    assert_eq!(owner(&found, 2, "eth0"), "networkd (/etc/systemd/network/10-eth0.network)");
    assert_eq!(owner(&found, 4, "eth2"), "ifupdown (/etc/network/interfaces.d/eth2)");
    assert_eq!(owner(&found, 5, "eth3"), "network-scripts (/etc/sysconfig/network-scripts/ifcfg-eth3)");
    assert_eq!(owner(&found, 6, "ib0"), "NetworkManager (profile Rail : 0)", "the scripts leave it to NetworkManager");
    let profile = "/run/NetworkManager/system-connections/netplan-ib1.nmconnection";
    assert_eq!(owner(&found, 8, "ib1"), format!("netplan ({profile})"));
    assert_eq!(owner(&found, 10, "docker0"), "");
    let both = "netplan (/run/systemd/network/10-netplan-eth1.network) + ifupdown (/etc/network/interfaces)";
    assert_eq!(owner(&found, 3, "eth1"), both);
    assert_eq!(
        owner(&found, 9, "ib2"),
        "networkd (/etc/systemd/network/20-ib2.network)",
        "one without a profile is weak"
    );
    assert_eq!(owner(&found, 11, "ib2"), "NetworkManager");
    assert!(found.by_cloud_init("/etc/sysconfig/network-scripts/ifcfg-eth3"));
    assert!(!found.by_cloud_init("/etc/sysconfig/network-scripts/ifcfg-eth0"));
}

#[test]
fn who_is_off_owns_nothing() {
    let stanza = "file /etc/network/interfaces\n/etc/network/interfaces:iface eth0 inet static\n";
    let found = owners(&format!("== networkmanager\noff\n== ifupdown\noff\n{stanza}"));
    assert_eq!(owner(&found, 2, "eth0"), "");
    let idle: Vec<String> = OWNERS.iter().filter_map(|o| o.idle(&found.said, &link(2, "eth0"))).collect();
    let wanted = [
        "NetworkManager is installed and off",
        "/etc/network/interfaces:1 has a stanza for it, but ifupdown's networking.service is off",
    ];
    assert_eq!(idle, wanted);
    assert_eq!(owner(&owners(&format!("== ifupdown\n{stanza}")), 2, "eth0"), "ifupdown (/etc/network/interfaces)");
}

#[test]
fn who_reads_ifcfg_files() {
    let reader = |text: &str, path: &str| owners(text).reader(path);
    let red_hat = "/etc/sysconfig/network-scripts/ifcfg-eth0";
    let files = "== ifcfg\n/etc/sysconfig/network-scripts/ifcfg-eth0\n";
    let manager = |rest: &str| format!("== networkmanager\nrc 0\nrc 0\n== ifcfg\nNetworkManager\n{rest}");
    assert_eq!(reader("== ifcfg\nnetwork-scripts\n", red_hat), Some("network-scripts"));
    assert_eq!(reader(&manager(""), red_hat), Some("NetworkManager"));
    assert_eq!(reader(&manager("plugins=keyfile,ifcfg-rh\n"), red_hat), Some("NetworkManager"));
    assert_eq!(reader(&manager("plugins = keyfile\n"), red_hat), None);
    assert_eq!(reader("== networkmanager\nrc 8\n== ifcfg\nNetworkManager\n", red_hat), None);
    assert_eq!(reader("== networkmanager\noff\n== ifcfg\nNetworkManager\n", red_hat), None);
    assert_eq!(reader("== ifcfg\nwicked\n", red_hat), None);
    assert_eq!(reader("== ifcfg\nwicked\n", "/etc/sysconfig/network/ifcfg-eth0"), Some("wicked"));
    assert_eq!(owner(&owners(files), 2, "eth0"), "", "an ifcfg file that nothing reads has no say");
}

#[test]
fn nmcli_that_fails_is_no_answer() {
    let output = Output {
        stdout: b"== networkmanager\nrc 124\n".to_vec(),
        stderr: b"Error: Timeout 10 sec expired.".to_vec(),
        code: 0,
    };
    assert_eq!(read(&output).unwrap_err().message, "nmcli failed with 124: Error: Timeout 10 sec expired.");
}

#[test]
fn names_are_those_of_the_key() {
    let names: Vec<&str> = OWNERS.iter().map(|o| o.name()).collect();
    assert_eq!(names, ["networkmanager", "netplan", "networkd", "ifupdown", "ifcfg"]);
    assert!(names.iter().all(|name| named(name).is_some_and(|o| o.name() == *name)));
}

#[test]
fn the_probe_runs_in_every_shell() {
    for shell in Shell::ALL {
        let answers = ask(shell, [OwnerList::ask(), OwnerList::ask_more()]);
        assert_eq!(OwnerList::of(&answers).unwrap(), OwnerList::more(&answers).unwrap());
        for args in [&[""][..], &[MORE]] {
            let output = shell.run(OwnerList::compose(args)[0].script.as_str());
            assert_eq!(output.stderr, b"", "{shell:?}: {}", output.complaint());
            assert!(output.text().starts_with("== networkmanager\n"), "{shell:?}");
        }
    }
}

/// A host's files, made in a namespace of its own, and what its probe says.
fn said(shell: Shell, setup: &str) -> Said {
    let fresh = "mount -t tmpfs t /run; mount -t tmpfs t /etc; mkdir -p /etc/network /run/systemd/units\n";
    let ifup = "mount -t tmpfs t /sbin; printf '#!/bin/sh\\n' >/sbin/ifup; chmod +x /sbin/ifup\n";
    let script = OwnerList::compose(&[MORE]).remove(0).script;
    let output = shell.run_in_net(&format!("{fresh}{ifup}{setup}"), script.as_str());
    assert_eq!(output.stderr, b"", "{shell:?}: {}", output.complaint());
    read(&output).unwrap().said
}

#[test]
fn included_files_are_followed() {
    let setup = "cd /etc/network
        mkdir -p interfaces.d more deep
        printf 'source interfaces.d/*\\nsource-directory more\\nsource /etc/network/gone\\nauto eth0\\niface eth0 inet dhcp' >interfaces
        printf '# a\\n\\niface eth1 inet static\\n  source x\\n  mtu 9000\\n' >interfaces.d/eth1
        printf 'source /etc/network/interfaces\\nsource deep/x' >interfaces.d/a-cycle
        printf 'iface eth2 inet manual\\n' >more/rail-2; printf 'iface eth3 inet manual\\n' >more/rail-3.bak
        printf 'iface eth4 inet manual\\n' >deep/x; printf 'iface eth5 inet manual\\n' >deep/y";
    for shell in Shell::ALL {
        let said = said(shell, setup);
        let files = said.files("ifupdown").unwrap();
        let names: Vec<&str> = said.of("ifupdown").lines().filter_map(|l| l.strip_prefix("file ")).collect();
        let wanted = ["interfaces", "interfaces.d/a-cycle", "deep/x", "interfaces.d/eth1", "more/rail-2"];
        assert_eq!(names, wanted.map(|n| format!("/etc/network/{n}")), "{shell:?}");
        assert_eq!(files["/etc/network/interfaces.d/eth1"], "# a\n\niface eth1 inet static\n  source x\n  mtu 9000\n");
        assert!(files["/etc/network/interfaces"].ends_with("iface eth0 inet dhcp\n"));
    }
}

#[test]
fn netplans_files_and_links_files_are_read() {
    let setup = "mkdir -p /etc/netplan /run/netplan /etc/systemd/network
        printf 'network:\\n  version: 2' >'/etc/netplan/50-a b.yaml'; : >/run/netplan/empty.yaml
        printf 'x' >/etc/netplan/99.yaml.save
        printf '[Match]\\nOriginalName=eth0\\n[Link]\\nName=rail0\\n' >/etc/systemd/network/10-a.link
        : >/run/systemd/system; rm -r /run/systemd/units";
    for shell in Shell::ALL {
        let said = said(shell, setup);
        let files = said.files("netplan").unwrap();
        let wanted = [("/etc/netplan/50-a b.yaml", "network:\n  version: 2\n"), ("/run/netplan/empty.yaml", "")];
        assert_eq!(files.iter().map(|(p, t)| (*p, t.as_str())).collect::<Vec<_>>(), wanted, "{shell:?}");
        let owners = Owners { said, owned: Vec::new() };
        let link = Link { kind: "ethernet".to_owned(), ..link(2, "eth0") };
        let wanted = Some(("rail0".to_owned(), "/etc/systemd/network/10-a.link".to_owned()));
        assert_eq!(owners.renamed(&link), Ok(wanted));
    }
}

#[test]
fn a_file_that_rights_forbid_is_an_error() {
    let owners =
        owners("== netplan\nfile /etc/netplan/a.yaml\nunreadable /etc/netplan/b.yaml\n/etc/netplan/a.yaml:x\n");
    let trouble = owners.said.files("netplan").unwrap_err();
    assert_eq!(trouble.message, "/etc/netplan/b.yaml can't be read: permission denied");
    assert_eq!(trouble.hint.as_deref(), Some("`become: true` reads it as root"));
}
