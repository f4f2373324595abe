//! `sysctl` on real hosts: what the kernel and systemd-sysctl make of it.

use crate::harness::{Host, Hosts, Kind, Netplay};
use crate::outcome::{Outcome, apply};

const FILE: &str = "/etc/sysctl.d/99-zz-netplay.conf";

fn sysctl(hosts: &Hosts, keys: &str) -> Outcome {
    one(hosts, &format!("  - sysctl: {keys}\n"))
}

fn one(hosts: &Hosts, resources: &str) -> Outcome {
    let mut outcomes = apply(hosts, resources, "");
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

fn value(host: Host<'_>, path: &str) -> String {
    host.sh(&format!("cat /proc/sys/{path}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn values_survive_a_reboot() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let keys = "{values: {net.ipv4.tcp_mtu_probing: 1, net.ipv4.tcp_rmem: 4096 87380 67108864, \
                net.ipv4.conf.eth0.rp_filter: 2, net.core.rmem_max: 134217728}}";
    sysctl(&hosts, keys).is("changed");
    sysctl(&hosts, keys).is("ok");
    let before = host.boot_id();
    host.reset();
    assert_ne!(host.boot_id(), before);
    assert_eq!(value(host, "net/ipv4/tcp_mtu_probing"), "1");
    assert_eq!(value(host, "net/ipv4/tcp_rmem"), "4096 87380 67108864");
    assert_eq!(value(host, "net/ipv4/conf/eth0/rp_filter"), "2");
    assert_eq!(value(host, "net/core/rmem_max"), "134217728");
    sysctl(&hosts, keys).is("ok");
}

/// The model of boot is held to the real systemd-sysctl: what is told to win is what it sets.
#[test]
fn who_wins_at_boot_is_who_systemd_lets_win() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    const KEY: &str = "net.ipv4.tcp_mtu_probing";
    let cases: [(&str, Option<&str>); 12] = [
        ("", None),
        ("echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.d/zz.conf", Some("at boot 2 wins: /etc/sysctl.d/zz.conf:1")),
        ("echo 'net.ipv4.tcp_mtu_* = 2' >/etc/sysctl.d/zz.conf", None),
        ("echo 'net/ipv4/tcp_mtu_probing=2' >/run/sysctl.d/zz.conf", Some("at boot 2 wins: /run/sysctl.d/zz.conf:1")),
        ("echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.d/10.conf", None),
        ("echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.d/zz.conf.off", None),
        ("echo '# net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.d/zz.conf", None),
        ("echo 'net.ipv4.tcp_mtu_probing = 2' >/usr/lib/sysctl.d/zz.conf; ln -s /dev/null /etc/sysctl.d/zz.conf", None),
        ("echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.conf; rm -f /etc/sysctl.d/99-sysctl.conf", None),
        (
            "echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.conf; ln -s ../sysctl.conf /etc/sysctl.d/zz-c.conf",
            Some("at boot 2 wins: /etc/sysctl.d/zz-c.conf:1"),
        ),
        (
            "printf ';x\\n\\n -net.ipv4.tcp_mtu_probing\\n' >/etc/sysctl.d/zz.conf",
            Some("at boot it isn't set, by the line `-net.ipv4.tcp_mtu_probing`: /etc/sysctl.d/zz.conf:3"),
        ),
        (
            "printf 'net.ipv4.tcp_mtu_probing = 2\\r\\n' >/etc/sysctl.d/zz.conf",
            Some("at boot 2 wins: /etc/sysctl.d/zz.conf:1"),
        ),
    ];
    host.sh("mkdir -p /run/sysctl.d /keep; cp -a /etc/sysctl.d /usr/lib/sysctl.d /keep");
    for (prepare, loses) in cases {
        host.sh(
            "cd /; rm -rf /etc/sysctl.d /usr/lib/sysctl.d; cp -a /keep/sysctl.d /etc/; cp -a /keep/sysctl.d /usr/lib/; \
             rm -f /run/sysctl.d/* /etc/sysctl.conf; echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing",
        );
        host.sh(&format!(": ; {prepare}"));
        let told = sysctl(&hosts, &format!("{{name: {KEY}, value: 1}}"));
        assert_eq!(value(host, "net/ipv4/tcp_mtu_probing"), "1", "live, whoever wins at boot: {prepare}");
        match loses {
            None => told.is("changed"),
            Some(why) => told.fails(why),
        };
        host.sh("echo 0 >/proc/sys/net/ipv4/tcp_mtu_probing; /usr/lib/systemd/systemd-sysctl || :");
        let set = value(host, "net/ipv4/tcp_mtu_probing");
        let expected = match loses {
            None => "1",
            Some(why) if why.contains("isn't set") => "0",
            Some(_) => "2",
        };
        assert_eq!(set, expected, "what systemd-sysctl sets: {prepare}");
    }
}

#[test]
fn resources_share_a_file_and_leave_the_rest_of_it() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(&format!("printf '# ours\\nnet.ipv4.tcp_sack = 1\\n' >{FILE}"));
    let resources = "  - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}\n  \
                     - sysctl: {name: net/ipv4/tcp_sack, value: 0}\n  \
                     - sysctl: {name: net.ipv4.ip_forward, value: \"{{ true }}\"}\n";
    for status in ["changed", "ok"] {
        apply(&hosts, resources, "").into_iter().for_each(|o| o.is(status));
        let wanted = "# ours\nnet.ipv4.tcp_sack = 0\nnet.ipv4.tcp_mtu_probing = 1\nnet.ipv4.ip_forward = 1\n";
        assert_eq!(host.sh(&format!("cat {FILE}")), wanted);
    }
    let absent = sysctl(&hosts, "{state: absent, name: net.ipv4.tcp_sack}");
    assert!(absent.warnings.contains("keeps its live value 0"), "{absent:?}");
    absent.is("changed");
    assert_eq!(value(host, "net/ipv4/tcp_sack"), "0");
}

#[test]
fn what_the_kernel_refuses_is_told_in_its_words() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // Writers such as `sysctl -w` end with 0 for a read-only parameter.
    let refused = "{values: {kernel.osrelease: 7, net.ipv4.tcp_mtu_probing: 1}}";
    sysctl(&hosts, refused).fails("kernel.osrelease = 7: ");
    assert_eq!(value(host, "net/ipv4/tcp_mtu_probing"), "1", "the others are set");
    assert_eq!(host.sh(&format!("cat {FILE}")), "net.ipv4.tcp_mtu_probing = 1\n");
    sysctl(&hosts, "{name: net.ipv4.tcp_sack, value: 12345678901234}")
        .fails("net.ipv4.tcp_sack = 12345678901234: Invalid argument");
    sysctl(&hosts, "{name: net.ipv4.tcp_congestion_control, value: nope}").fails("can't be nope: the kernel has ");
    sysctl(&hosts, "{name: net.ipv4.tcp_sack, value: abc}").fails("net.ipv4.tcp_sack takes a number, not `abc`");
    // Kept in ticks of the kernel's clock, which are 4 ms or less.
    let rounded = "{name: net.ipv4.neigh.eth0.retrans_time_ms, value: 1003}";
    if host.sh(
        "cd /proc/sys/net/ipv4/neigh/eth0; echo 1003 >retrans_time_ms; cat retrans_time_ms; echo 1000 >retrans_time_ms",
    ) == "1003\n"
    {
        sysctl(&hosts, rounded).is("changed");
    } else {
        sysctl(&hosts, rounded).fails("the kernel took it without an error, and it reads `1004`");
    }
    sysctl(&hosts, "{name: net.ipv4.tcp_rmem, value: 4096 87380}").fails("net.ipv4.tcp_rmem takes 3 numbers, not 2");
    sysctl(&hosts, "{name: net.ipv4.conf.eth7.rp_filter, value: 1}")
        .fails("net.ipv4.conf.eth7.rp_filter isn't on this host");
    sysctl(&hosts, "{name: net.ipv4.conf.eth7.rp_filter, value: 1, ignore_missing: true}").is("changed");
    host.sh("chattr +i /etc/sysctl.d 2>/dev/null || mount -t tmpfs -o ro tmpfs /etc/sysctl.d");
    sysctl(&hosts, "{name: net.ipv4.tcp_sack, value: 0}").is("failed");
    assert_eq!(value(host, "net/ipv4/tcp_sack"), "0", "the live value is set all the same");
    host.sh("chattr -i /etc/sysctl.d 2>/dev/null || umount /etc/sysctl.d");
}

#[test]
fn a_host_without_the_folder() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("rm -rf /etc/sysctl.d");
    sysctl(&hosts, "{name: net.ipv4.tcp_mtu_probing, value: 1}").is("changed");
    assert_eq!(
        host.sh(&format!("cat {FILE}; stat -c %a:%U /etc/sysctl.d {FILE}")),
        "net.ipv4.tcp_mtu_probing = 1\n755:root\n644:root\n"
    );
}

#[test]
fn a_file_that_goes_in_the_same_play_is_no_obstacle() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    hosts.first().sh("echo 'net.ipv4.tcp_mtu_probing = 2' >/etc/sysctl.d/zz-x.conf");
    let resources = "  - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}\n  \
                     - file: {path: /etc/sysctl.d/zz-x.conf, state: absent}\n";
    apply(&hosts, resources, "").into_iter().for_each(|o| o.is("changed"));
}

#[test]
fn congestion_control() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("echo reno >/proc/sys/net/ipv4/tcp_congestion_control");
    let keys = "{name: net.ipv4.tcp_congestion_control, value: bbr}";
    sysctl(&hosts, keys).is("changed");
    assert_eq!(value(host, "net/ipv4/tcp_congestion_control"), "bbr");
    // On a kernel that has it built in there is no module to load.
    let loadable = host.sh("[ -e /sys/module/tcp_bbr/initstate ] && echo yes || echo no").trim() == "yes";
    let listed = host.sh("cat /etc/modules-load.d/tcp_bbr.conf 2>/dev/null || :");
    assert_eq!(listed.contains("tcp_bbr"), loadable);
    sysctl(&hosts, keys).is("ok");
}

#[test]
fn a_user_who_may_not() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let run = Netplay::new(&hosts, &["apply", "-i", "inventory.yaml", "site.yaml", "-e", "ansible_user=ops"])
        .file(
            "site.yaml",
            "- hosts: all\n  resources:\n  - sysctl: {name: net.ipv4.tcp_sack, value: 0, persist: false}\n",
        )
        .run()
        .exits(2);
    let told = format!("{run:?}");
    assert!(
        told.contains("only root may (Permission denied)") && told.contains("it runs as ops: `become: true`"),
        "{told}"
    );
}
