//! `--check` looks and touches nothing; what it says is what `apply` then does.

use crate::harness::{Host, Hosts, Kind, ssh};
use crate::told::{Told, apply, play};
use std::collections::BTreeSet;

const RESOURCES: &str = "    - sysctl: {values: {net.core.rmem_max: 134217728, net.ipv4.tcp_mtu_probing: 1}}
    - mtu: {interface: eth1, mtu: 9000}
    - copy: {dest: /etc/systemd/system/demo.service, content: \"[Service]\\nExecStart=/bin/sleep 1000\\n\"}
      notify: note it
    - service: {name: demo, state: started}
    - file: {path: /opt/a/b, state: directory, mode: 0750}
    - copy: {dest: /opt/a/b/c, content: \"x\\n\", backup: true}
    - file: {path: /opt/link, state: link, src: /opt/a}
    - command: {cmd: touch /opt/made, creates: /opt/made}
    - command: {cmd: touch /opt/unless, unless: test -e /opt/unless}
    - assert: {that: facts.interfaces | length > 2}
  handlers:
    - name: note it
      command: {cmd: touch /opt/handled}
";

/// All files of the host with their times and sizes, live values included; without what any login or any process
/// writes.
fn everything(host: Host<'_>) -> String {
    host.sh(
        "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/log \
         -o -path /var/lib/systemd -o -name 'lastlog' -o -name 'wtmp' \\) -prune -o -printf '%p %s %T@ %m %u\\n' | sort; \
         ls -A /run /var/lib | sort; cat /proc/sys/net/core/rmem_max /proc/sys/net/ipv4/tcp_mtu_probing /sys/class/net/*/mtu",
    )
}

#[test]
fn a_check_touches_nothing_and_tells_what_apply_does() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    // The first login of a boot makes files of its own.
    ssh(host.0, "true");
    let before = everything(host);
    let checked = Told::by(&apply(&hosts, &play(RESOURCES), &["--check", "--diff"]), 0);
    let after = everything(host);
    let [was, is] = [&before, &after].map(|all| all.lines().collect::<BTreeSet<_>>());
    let (gone, new): (Vec<_>, Vec<_>) = (was.difference(&is).collect(), is.difference(&was).collect());
    assert!(gone.is_empty() && new.is_empty(), "gone: {gone:#?}, new: {new:#?}");
    let unknown = "can't be known before copy:/etc/systemd/system/demo.service has changed";
    assert!(checked.run.stdout.contains(unknown), "{}", checked.run.stdout);
    let exit = apply(&hosts, &play(RESOURCES), &["--check", "--detailed-exitcode"]);
    Told::by(&exit, 3);
    let applied = Told::by(&apply(&hosts, &play(RESOURCES), &[]), 0);
    for address in [
        "sysctl:net.core.rmem_max",
        "mtu:eth1",
        "copy:/etc/systemd/system/demo.service",
        "service:demo",
        "file:/opt/a/b",
        "copy:/opt/a/b/c",
        "file:/opt/link",
        "assert:#13",
        "command:note it",
    ] {
        let expected = match checked.status(address) {
            "would_change" => "changed",
            other => other,
        };
        assert_eq!(applied.status(address), expected, "{address}");
    }
    assert_eq!(checked.count("would_change"), applied.count("changed"), "{}", applied.run.stdout);
    let again = Told::by(&apply(&hosts, &play(RESOURCES), &["--check", "--detailed-exitcode"]), 0);
    assert_eq!(again.count("would_change"), 0, "{}", again.run.stdout);
}
