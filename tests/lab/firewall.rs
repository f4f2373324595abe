//! `firewall_rule`: packets that get through, rules that are there after a boot, sessions that aren't closed.

use crate::harness::{Host, Hosts, Kind, ssh};
use crate::told::{Told, apply, play};

/// What a training cluster's nodes let in.
const GUIDE: &str = "
    - firewall_rule: {name: ssh, protocol: tcp, port: 22}
    - firewall_rule: {name: rocev2, protocol: udp, port: 4791}
    - firewall_rule: {name: iperf3, protocol: tcp, port: [5201, 18515-18530]}
";

/// Whether a UDP packet to this address and port of `to` arrives there.
fn arrives(from: Host<'_>, to: Host<'_>, address: &str, port: u16) -> bool {
    let program = format!(
        "import os,socket
s=socket.socket(socket.AF_INET6 if ':' in '{address}' else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('{address}', {port})); s.settimeout(0.5); open('/run/listens', 'w').close()
while True:
    sent = os.path.exists('/run/sent')
    try: s.recv(9); print('yes'); break
    except TimeoutError:
        if sent: print('no'); break"
    );
    to.sh("rm -f /run/listens /run/sent");
    std::thread::scope(|scope| {
        let listener = scope.spawn(move || to.sh(&format!("python3 -c \"{program}\"")));
        while to.sh("ls /run/listens 2>/dev/null || :").is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        from.sh(&format!(
            "python3 -c \"import socket
s=socket.socket(socket.AF_INET6 if ':' in '{address}' else socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b'x', ('{address}', {port}))\""
        ));
        to.sh("touch /run/sent");
        listener.join().unwrap().trim() == "yes"
    })
}

/// Gives both hosts an IPv6 address on the fabric, which no other test has: the first one's IPv4 and IPv6 addresses there.
fn addresses(host: Host<'_>, peer: Host<'_>) -> (String, String) {
    let [ours, _] = [host, peer].map(|on| {
        let v4 = on.sh("ip -4 -o addr show dev eth1").split_whitespace().nth(3).unwrap().replace("/16", "");
        let v6 = format!("fd00:1::{v4}");
        on.sh(&format!("ip -6 addr add {v6}/64 dev eth1 nodad"));
        (v4, v6)
    });
    ours
}

/// The play once more, as it is.
fn converged(netplay: &crate::harness::Netplay, host: Host<'_>, rules: usize) {
    let run = Told::by(netplay, 0);
    assert_eq!((run.count("ok"), run.executions(host.0)), (rules, 1), "{}", run.run.stdout);
}

fn reboot(host: Host<'_>) {
    let boots = host.boots();
    ssh(host.0, "systemctl reboot");
    host.wait_for_boot(boots + 1);
    host.sh("systemctl is-system-running --wait || :");
}

#[test]
fn packets_pass_both_kinds_of_iptables_and_nft() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let [host, peer]: [Host<'_>; 2] = hosts.each().collect::<Vec<_>>().try_into().unwrap();
    let (v4, v6) = addresses(host, peer);
    // All three would drop it, in IPv4 and in IPv6, and none of them may lose a rule.
    host.sh(
        "for t in iptables ip6tables; do
           $t-legacy -A INPUT -i eth1 -p udp -j DROP
           $t-nft -A INPUT ! -i eth1 -j ACCEPT; $t-nft -A INPUT -p icmp -j ACCEPT; $t-nft -A INPUT -p ipv6-icmp -j ACCEPT
           $t-nft -A INPUT -j REJECT
         done
         nft -f - <<'N'
table inet fw {
  chain input {
    type filter hook input priority 10; policy drop;
    iifname { lo, eth0 } accept
    meta l4proto { icmp, ipv6-icmp } accept
    udp dport 5000 accept
  }
}
N",
    );
    let saved = "iptables-legacy -S; ip6tables-legacy -S; iptables-nft -S; ip6tables-nft -S; nft list table inet fw";
    let foreign = host.sh(saved);
    assert!(!arrives(peer, host, &v4, 4791) && !arrives(peer, host, &v6, 4791));
    let rule = |more: &str| {
        play(&format!("    - firewall_rule: {{name: rocev2, protocol: udp, port: 4791, persist: false{more}}}\n"))
    };
    let netplay = apply(&hosts, &rule(""), &["--limit", host.0]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.status("firewall_rule:rocev2"), run.executions(host.0)), ("changed", 2), "{}", run.run.stdout);
    assert!(arrives(peer, host, &v4, 4791) && arrives(peer, host, &v6, 4791), "{}", host.sh(saved));
    assert!(!arrives(peer, host, &v4, 4790), "only what was asked for");
    converged(&netplay, host, 1);
    let ours = ["NETPLAY-IN", "netplay:rocev2"];
    let rest = |text: &str| {
        text.lines().filter(|l| !ours.iter().any(|o| l.contains(o))).map(|l| format!("{l}\n")).collect::<String>()
    };
    assert_eq!(rest(&host.sh(saved)), foreign);
    // A drop of ours wins over all that others accept.
    let netplay = netplay.file("site.yaml", &rule(", action: drop"));
    Told::by(&netplay, 0);
    assert!(!arrives(peer, host, &v4, 4791) && !arrives(peer, host, &v6, 4791));
    let netplay = netplay.file("site.yaml", &rule(", state: absent"));
    assert_eq!(Told::by(&netplay, 0).status("firewall_rule:rocev2"), "changed");
    assert_eq!(host.sh(saved), foreign);
    converged(&netplay, host, 1);
}

#[test]
fn nftables_has_it_again_after_a_boot_and_after_its_service_was_restarted() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh("cat >/etc/nftables.conf <<'N'
#!/usr/sbin/nft -f
flush ruleset
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iifname lo accept
    tcp dport 22 accept
  }
}
N
systemctl enable --now nftables");
    let netplay = apply(&hosts, &play(GUIDE), &[]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (3, 2), "{}", run.run.stdout);
    let changes = run.resource(host.0, "firewall_rule:rocev2")["changes"].clone();
    let fields: Vec<&str> = changes.as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["inet netplay input", "inet filter input", "boot"]);
    converged(&netplay, host, 3);
    let rules = "nft list ruleset | grep -c 'netplay:'";
    // What lets ssh in is there already, so that it is in netplay's own table alone.
    assert_eq!(host.sh(rules).trim(), "5", "{}", host.sh("nft list ruleset"));

    reboot(host);
    assert_eq!(host.sh(rules).trim(), "5", "{}", host.sh("nft list ruleset; journalctl -b -u netplay-reapply"));
    converged(&netplay, host, 3);
    // It was flushed; the next run has it there again.
    host.sh("systemctl restart nftables");
    let run = Told::by(&netplay, 0);
    assert_eq!(run.status("firewall_rule:rocev2"), "changed");
    converged(&netplay, host, 3);

    let absent = GUIDE.replace('}', ", state: absent}");
    let netplay = netplay.file("site.yaml", &play(&absent));
    assert_eq!(Told::by(&netplay, 0).count("changed"), 3);
    assert_eq!(host.sh("nft list ruleset | grep -c netplay || :; ls /etc/netplay 2>&1 || :").lines().next(), Some("0"));
    converged(&netplay, host, 3);
}

#[test]
fn iptables_has_it_again_after_a_boot_and_nothing_else_is_saved() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh("iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -A INPUT -j DROP; ip6tables -P INPUT DROP");
    let netplay = apply(&hosts, &play(GUIDE), &[]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (3, 2), "{}", run.run.stdout);
    converged(&netplay, host, 3);
    let own = "iptables -S NETPLAY-IN; ip6tables -S NETPLAY-IN";
    let before = host.sh(own);
    assert_eq!(before.matches("-j ACCEPT").count(), 6, "{before}");

    reboot(host);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(host.sh(own)), sorted(before), "{}", host.sh("journalctl -b -u netplay-reapply"));
    assert_eq!(host.sh("iptables -S INPUT"), "-P INPUT ACCEPT\n-A INPUT -j NETPLAY-IN\n", "what others had is theirs");
    converged(&netplay, host, 3);
}

/// A rule that would lock everybody out is told by a check, and taken back by the host.
fn locks_out(hosts: &Hosts, rule: &str) {
    let playbook = format!("{}  confirm: {{timeout: 5}}\n", play(&format!("    - firewall_rule: {rule}\n")));
    let check = Told::by(&apply(hosts, &playbook, &["--check"]), 0).warnings();
    assert!(check.contains("tcp port 22 would be closed"), "{check}");
    let kept = "find /etc/firewalld /etc/ufw /etc/netplay /etc/systemd/system /etc/udev/rules.d ! -type d -exec md5sum {} + 2>/dev/null | sort -k 2";
    let before = hosts.first().sh(kept);
    let told = Told::by(&apply(hosts, &playbook, &[]), 2);
    assert_eq!(told.count("rolled_back"), 1, "{}", told.run.stdout);
    assert_eq!(told.warnings(), "", "it is as it was");
    assert_eq!(hosts.first().sh(kept), before);
}

#[test]
fn what_keeps_the_session_open_is_left_alone() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let confirmed = |resources: &str| format!("{}  confirm: {{timeout: 5}}\n", play(resources));
    let rolled_back = |resources: &str| {
        let told = Told::by(&apply(&hosts, &confirmed(resources), &[]), 2);
        assert_eq!(told.count("rolled_back"), resources.lines().count(), "{}", told.run.stdout);
    };
    let drop = "    - firewall_rule: {name: x, action: drop, protocol: tcp, persist: false}\n";
    let check = Told::by(&apply(&hosts, &play(drop), &["--check"]), 0).warnings();
    assert!(check.contains("tcp port 22 would be closed to 10.99.0.1"), "{check}");
    rolled_back(drop);
    assert_eq!(host.sh("iptables -S | grep -c netplay || :"), "0\n");
    // The one that lets it in through a chain that drops all else.
    let ssh = "    - firewall_rule: {name: ssh, protocol: tcp, port: 22, persist: false";
    let netplay = apply(&hosts, &play(&format!("{ssh}}}\n")), &[]);
    assert_eq!(Told::by(&netplay, 0).status("firewall_rule:ssh"), "changed");
    host.sh("iptables -P INPUT DROP; ip6tables -P INPUT DROP");
    converged(&netplay, host, 1);
    // What the same play lets in counts, though it stands behind it.
    let both = "    - firewall_rule: {name: x, action: drop, protocol: tcp, port: 22, persist: false}
    - firewall_rule: {name: mine, protocol: tcp, port: 22, source: 10.99.0.0/24, persist: false}\n";
    let gone = play(
        "    - firewall_rule: {name: ssh, state: absent}
    - firewall_rule: {name: x, state: absent}
",
    );
    host.sh("iptables -P INPUT ACCEPT; ip6tables -P INPUT ACCEPT");
    Told::by(&netplay.file("site.yaml", &gone), 0);
    let netplay = apply(&hosts, &play(both), &[]);
    assert_eq!(Told::by(&netplay, 0).count("changed"), 2);
    converged(&netplay, host, 2);
    // Both go in one run, though what lets it in stands first.
    let none = "    - firewall_rule: {name: mine, state: absent}\n    - firewall_rule: {name: x, state: absent}\n";
    assert_eq!(Told::by(&netplay.file("site.yaml", &play(none)), 0).count("changed"), 2);
    let netplay = apply(&hosts, &play(&format!("{ssh}}}\n")), &[]);
    Told::by(&netplay, 0);
    host.sh("iptables -P INPUT DROP; ip6tables -P INPUT DROP");
    let narrower = Told::by(&apply(&hosts, &play(&format!("{ssh}, source: 10.98.0.0/16}}\n")), &["--check"]), 0);
    assert!(narrower.warnings().contains("tcp port 22 would be closed"), "{}", narrower.run.stdout);
    rolled_back(&format!("{ssh}, state: absent}}\n"));
    let other = apply(&hosts, &play(&format!("{ssh}, source: 10.99.0.0/16}}\n")), &[]);
    assert_eq!(Told::by(&other, 0).status("firewall_rule:ssh"), "changed");
    assert_eq!(Told::by(&other, 0).status("firewall_rule:ssh"), "ok");
    // Of two rules that let it in each could go, and not both.
    Told::by(
        &apply(&hosts, &play("    - firewall_rule: {name: too, protocol: tcp, port: 22, persist: false}\n"), &[]),
        0,
    );
    let both = "    - firewall_rule: {name: ssh, state: absent}\n    - firewall_rule: {name: too, state: absent}\n";
    let told = Told::by(&apply(&hosts, &confirmed(both), &[]), 2);
    assert_eq!((told.count("changed"), told.count("rolled_back")), (1, 1), "{}", told.run.stdout);
    assert_eq!(host.sh("iptables -S | grep -c 'netplay:.*ACCEPT'"), "1\n");
}

#[test]
fn rules_that_let_the_same_in_are_done_in_one_run() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let rules = "    - firewall_rule: {name: one, protocol: udp, port: 5201, backend: nftables}
    - firewall_rule: {name: two, protocol: udp, port: 5000-6000, backend: nftables}\n";
    let netplay = apply(&hosts, &play(rules), &[]);
    assert_eq!(Told::by(&netplay, 0).count("changed"), 2);
    host.sh("nft add table inet f; nft add chain inet f in '{ type filter hook input priority 0; }'
        nft add rule inet f in tcp dport 22 accept; nft add rule inet f in ct state established,related accept
        nft chain inet f in '{ policy drop; }'");
    assert_eq!(Told::by(&netplay, 0).count("changed"), 2);
    converged(&netplay, host, 2);
    host.sh("nft delete table inet f");
}

#[test]
fn a_user_who_is_not_root_is_told_so() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let netplay =
        apply(&hosts, &play("    - firewall_rule: {name: x, protocol: tcp, port: 22}\n"), &["-e", "ansible_user=ops"]);
    let said = Told::by(&netplay, 2).error("firewall_rule:x");
    assert!(said.contains("only root may read them") && said.contains("become: true"), "{said}");
}

#[test]
fn ufw_has_it_before_what_it_denies() {
    let (hosts, peers) = (Hosts::take(Kind::Sysd, 1), Hosts::take(Kind::Fleet, 1));
    let (host, peer) = (hosts.first(), peers.first());
    host.sh("ufw allow 22/tcp; ufw deny 5201/tcp; ufw --force enable; systemctl enable --now ufw");
    let (v4, v6) = addresses(host, peer);
    assert!(!arrives(peer, host, &v4, 4791) && !arrives(peer, host, &v6, 4791));
    let netplay = apply(&hosts, &play(GUIDE), &[]);
    let run = Told::by(&netplay, 0);
    let told = |run: &Told| ["ssh", "rocev2", "iperf3"].map(|n| run.status(&format!("firewall_rule:{n}")).to_owned());
    // ufw has what lets ssh in already.
    assert_eq!(told(&run), ["ok", "changed", "changed"], "{}", run.run.stdout);
    assert_eq!(run.executions(host.0), 2);
    assert!(arrives(peer, host, &v4, 4791) && arrives(peer, host, &v6, 4791), "{}", host.sh("iptables -S"));
    converged(&netplay, host, 3);
    let first = "iptables -S ufw-user-input | grep -n -e 5201,18515 -e 'dport 5201 ' | cut -d' ' -f 2-";
    assert!(host.sh(first).lines().next().unwrap().ends_with("-j ACCEPT"), "{}", host.sh("ufw status numbered"));

    reboot(host);
    assert!(arrives(peer, host, &v4, 4791), "{}", host.sh("iptables -S"));
    converged(&netplay, host, 3);
    // Not in force, and behind a rule that denies.
    host.sh("ufw prepend deny 18520/tcp; iptables -D ufw-user-input -p udp --dport 4791 -j ACCEPT");
    let run = Told::by(&netplay, 0);
    assert_eq!(told(&run), ["ok", "changed", "changed"], "{}", run.run.stdout);
    converged(&netplay, host, 3);

    let more = play(
        "    - firewall_rule: {name: rocev2, protocol: udp, port: 4792, source: 10.0.0.0/8, interface: eth1}
    - firewall_rule: {name: iperf3, state: absent}
    - firewall_rule: {name: telnet, action: reject, protocol: tcp, port: 23}
    - firewall_rule: {name: smtp, action: drop, protocol: tcp, port: 25, direction: out, family: ipv6}
",
    );
    let netplay = netplay.file("site.yaml", &more);
    assert_eq!(Told::by(&netplay, 0).count("changed"), 4);
    converged(&netplay, host, 4);
    let left = host.sh("ufw status");
    assert!(!left.contains("4791") && !left.contains("18515") && left.contains("4792/udp on eth1"), "{left}");
    assert!(left.contains("22/tcp (v6)") && left.contains("18520/tcp"), "others' rules stay: {left}");
    let refused = |rule: &str| {
        Told::by(&apply(&hosts, &play(&format!("    - firewall_rule: {rule}\n")), &[]), 2).error("firewall_rule:x")
    };
    locks_out(&hosts, "{name: x, action: drop, protocol: tcp, port: 1-1024}");
    let said = refused("{name: x, protocol: icmp}");
    assert!(said.contains("ufw has no rules of ICMP"), "{said}");
    let said = refused("{name: x, protocol: udp, port: 1, backend: nftables}");
    assert!(said.contains("ufw manages the packet filter"), "{said}");
    host.sh("nft add table inet fw; nft add chain inet fw in '{ type filter hook input priority 5; policy accept; }'; nft add rule inet fw in udp dport 4792 drop");
    let said = Told::by(&netplay, 2).error("firewall_rule:rocev2");
    assert!(said.contains("inet fw in drops its packets all the same, and isn't ufw's"), "{said}");
}

#[test]
fn firewalld_has_it_after_a_reload_and_a_boot() {
    let (hosts, peers) = (Hosts::take(Kind::Sysd, 1), Hosts::take(Kind::Fleet, 1));
    let (host, peer) = (hosts.first(), peers.first());
    // Its unit has started before its rules are there, which its client waits for.
    host.sh("systemctl enable --now firewalld; firewall-cmd --state");
    let (v4, v6) = addresses(host, peer);
    assert!(!arrives(peer, host, &v4, 4791) && !arrives(peer, host, &v6, 4791));
    let storage = "    - firewall_rule: {name: storage, protocol: tcp, port: [2049, 20048], source: 10.0.0.0/8}\n";
    let netplay = apply(&hosts, &play(&format!("{GUIDE}{storage}")), &[]);
    let run = Told::by(&netplay, 0);
    assert_eq!((run.count("changed"), run.executions(host.0)), (4, 2), "{}", run.run.stdout);
    let changes = run.resource(host.0, "firewall_rule:rocev2")["changes"].clone();
    let fields: Vec<&str> = changes.as_array().unwrap().iter().map(|c| c["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["zone public", "zone public (permanent)"]);
    let passes = |why: &str| {
        assert!(arrives(peer, host, &v4, 4791), "{why}: {}", host.sh("firewall-cmd --list-all"));
        converged(&netplay, host, 4);
    };
    passes("at once");
    assert!(arrives(peer, host, &v6, 4791));
    host.sh("firewall-cmd --reload");
    passes("after a reload");
    reboot(host);
    passes("after a boot");
    // What runs and what is kept are two things.
    host.sh("firewall-cmd --remove-port=4791/udp");
    assert_eq!(Told::by(&netplay, 0).status("firewall_rule:rocev2"), "changed");
    passes("again");

    // Zones: those in use, or the one that is named.
    host.sh("firewall-cmd --zone=internal --change-interface=eth1; firewall-cmd --permanent --zone=internal --change-interface=eth1");
    assert!(!arrives(peer, host, &v4, 4791));
    assert_eq!(Told::by(&netplay, 0).count("changed"), 4);
    passes("in the other zone");
    let only = |rule: &str, code: i32| {
        let netplay = apply(&hosts, &play(&format!("    - firewall_rule: {{name: x, {rule}}}\n")), &[]);
        Told::by(&netplay, code)
    };
    assert_eq!(only("protocol: udp, port: 5000, interface: eth1", 0).status("firewall_rule:x"), "changed");
    assert_eq!(
        host.sh(
            "firewall-cmd --zone=internal --query-port=5000/udp; firewall-cmd --zone=public --query-port=5000/udp || :"
        ),
        "yes\nno\n"
    );
    assert_eq!(only("protocol: udp, port: 5000, zone: internal", 0).status("firewall_rule:x"), "ok");
    let gone = only("protocol: udp, port: 5000, zone: internal, state: absent", 0);
    assert_eq!(gone.status("firewall_rule:x"), "changed");
    assert!(gone.warnings().contains("`udp dport 5000 accept` goes, whoever has put it there"), "{}", gone.warnings());
    let said = only("protocol: udp, port: 5000, interface: eth2", 2).error("firewall_rule:x");
    assert!(said.contains("zone public isn't eth2's alone"), "{said}");
    let said = only("protocol: udp, port: 5000, zone: publik", 2).error("firewall_rule:x");
    assert!(said.contains("no zone publik") && said.contains("public"), "{said}");
    locks_out(&hosts, "{name: x, protocol: tcp, port: 22, action: reject}");
    let said = only("protocol: udp, port: 5000, direction: out", 2).error("firewall_rule:x");
    assert!(said.contains("no rules of what goes out"), "{said}");
    // A rich rule that drops comes before what accepts.
    host.sh("firewall-cmd --add-rich-rule='rule port port=\"4791\" protocol=\"udp\" drop'");
    let said = Told::by(&netplay, 2).error("firewall_rule:rocev2");
    assert!(
        said.contains("zone public has the rule, and inet firewalld filter_INPUT drops its packets before"),
        "{said}"
    );
}
