//! `service` on hosts with a real systemd.

use crate::harness::{Host, Hosts, Kind};
use crate::outcome::{Outcome, apply};

fn service(hosts: &Hosts, keys: &str) -> Outcome {
    let mut outcomes = apply(hosts, &format!("  - service: {keys}\n"), "");
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

/// Writes a unit file. The lines of a section are divided by `; `.
fn unit(host: Host<'_>, name: &str, service: &str, rest: &str) {
    let text = format!("[Service]\n{service}\n{rest}\n").replace("; ", "\n");
    host.sh(&format!("cat >/etc/systemd/system/{name} <<'E'\n{text}E\nsystemctl daemon-reload"));
}

const INSTALL: &str = "[Install]; WantedBy=multi-user.target";
const SLEEP: &str = "ExecStart=/bin/sleep infinity";

fn active(host: Host<'_>, unit: &str) -> String {
    host.sh(&format!("systemctl is-active {unit} || :")).trim().to_owned()
}

#[test]
fn started_and_enabled_is_so_after_a_reboot() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    unit(host, "w.service", SLEEP, INSTALL);
    let keys = "{name: w, state: started, enabled: true}";
    let changed = service(&hosts, keys);
    assert_eq!(changed.changes, "enabled false true\nstate \"stopped\" \"started\"");
    changed.is("changed");
    service(&hosts, keys).is("ok");
    host.reset();
    assert_eq!(active(host, "w"), "active");
    service(&hosts, keys).is("ok");
    service(&hosts, "{name: w, state: stopped, enabled: false}").is("changed");
    service(&hosts, "{name: w, state: stopped, enabled: false}").is("ok");
    assert_eq!(active(host, "w"), "inactive");
    // Links of this boot only are no links for the next one, and are taken away too.
    host.sh("systemctl enable --runtime w");
    service(&hosts, "{name: w, enabled: false}").is("changed");
    service(&hosts, "{name: w, enabled: false}").is("ok");
    host.sh("systemctl enable --runtime w");
    service(&hosts, "{name: w, enabled: true}").is("changed");
    service(&hosts, "{name: w, enabled: true}").is("ok");
}

#[test]
fn failures_say_why_and_are_mended() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    for (name, kind) in [("one", "Type=oneshot; "), ("simple", ""), ("again", "Restart=always; RestartSec=1h; ")] {
        unit(
            host,
            &format!("{name}.service"),
            &format!("{kind}ExecStart=/bin/sh -c 'echo no such card && exit 3'"),
            "",
        );
        let keys = format!("{{name: {name}, state: started}}");
        for _ in 0..2 {
            let failed = service(&hosts, &keys);
            assert!(failed.error.contains("no such card"), "{failed:?}");
            failed.fails("Result=exit-code");
        }
        let mended = if name == "one" { "RemainAfterExit=yes; ExecStart=/bin/true" } else { SLEEP };
        unit(host, &format!("{name}.service"), &format!("{kind}{mended}"), "");
        service(&hosts, &keys).is("changed");
        service(&hosts, &keys).is("ok");
    }
    unit(host, "one.service", "Type=oneshot; ExecStart=/bin/false", "");
    host.sh("systemctl restart one || :");
    service(&hosts, "{name: one, state: stopped}").is("changed");
    assert_eq!(active(host, "one"), "inactive");
    unit(host, "quick.service", "ExecStart=/bin/true", INSTALL);
    service(&hosts, "{name: quick, state: started, enabled: true}").fails("it was started and ended by itself");
}

#[test]
fn what_runs_through_or_has_nothing_to_do_is_started_once() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    const COUNT: &str = "Type=oneshot; ExecStart=/bin/sh -c 'echo x >>/count'";
    unit(host, "static.service", COUNT, "");
    unit(host, "wanted.service", COUNT, INSTALL);
    for (name, keys) in
        [("static", "{name: static, state: started}"), ("wanted", "{name: wanted, state: started, enabled: true}")]
    {
        host.sh("rm -f /count");
        service(&hosts, keys).is("changed");
        service(&hosts, keys).is("ok");
        assert_eq!(host.sh("cat /count"), "x\n", "{name}");
    }
    for (name, install) in [("never", ""), ("never-wanted", INSTALL)] {
        unit(host, &format!("{name}.service"), SLEEP, &format!("[Unit]; ConditionPathExists=/nope; {install}"));
        let enabled = if install.is_empty() { "" } else { ", enabled: true" };
        let keys = format!("{{name: {name}, state: started{enabled}}}");
        let first = service(&hosts, &keys);
        assert!(first.warnings.contains("start condition isn't met"), "{first:?}");
        first.is("changed");
        let second = service(&hosts, &keys);
        assert!(second.warnings.contains("start condition isn't met"), "{second:?}");
        second.is("ok");
    }
}

#[test]
fn kinds_of_unit_files_are_told_apart() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    unit(host, "plain.service", SLEEP, "");
    unit(host, "also.service", SLEEP, "[Install]; Also=plain.service");
    service(&hosts, "{name: nosuch, state: started}").fails("there is no unit nosuch.service on this host");
    service(&hosts, "{name: plain, enabled: true}").fails("plain.service is static and can't be enabled");
    service(&hosts, "{name: also, enabled: true}").fails("also.service is indirect");
    let pulled = service(&hosts, "{name: systemd-sysctl, enabled: true}");
    assert!(pulled.warnings.contains("sysinit.target starts it"), "{pulled:?}");
    pulled.is("ok");
    host.sh("systemd-run --unit passing sleep 1000");
    service(&hosts, "{name: passing, enabled: true}").fails("passing.service is transient");
    host.sh("printf 'nonsense\\n[\\n' >/etc/systemd/system/garbage.service; systemctl daemon-reload");
    service(&hosts, "{name: garbage, state: started}").fails("garbage.service can't be loaded");
    // A unit of another name: the one that it stands for is driven.
    unit(host, "real.service", SLEEP, "[Install]; WantedBy=multi-user.target; Alias=other.service");
    host.sh("systemctl enable real");
    service(&hosts, "{name: other, state: started, enabled: true}").is("changed");
    assert_eq!(active(host, "real"), "active");
    service(&hosts, "{name: other, enabled: false}").fails("write `name: real.service`");
    service(&hosts, "{name: real, enabled: false}").is("changed");
    assert_eq!(host.sh("systemctl is-enabled real || :"), "disabled\n");
    host.sh(
        "mkdir -p /opt; printf '[Service]\\nExecStart=/bin/sleep 9999\\n[Install]\\nWantedBy=multi-user.target\\n' \
             >/opt/linked.service; systemctl link /opt/linked.service",
    );
    for status in ["changed", "ok"] {
        service(&hosts, "{name: linked, state: started, enabled: true}").is(status);
    }
}

#[test]
fn a_start_script_of_old() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    host.sh("cat >/etc/init.d/oldie <<'E'\n#!/bin/sh\n### BEGIN INIT INFO\n# Provides: oldie\n# Required-Start:\n\
             # Required-Stop:\n# Default-Start: 2 3 4 5\n# Default-Stop: 0 1 6\n### END INIT INFO\nexit 0\nE\n\
             chmod +x /etc/init.d/oldie; systemctl daemon-reload");
    for (enabled, links) in [("true", "1"), ("false", "0")] {
        service(&hosts, &format!("{{name: oldie, enabled: {enabled}}}")).is("changed");
        service(&hosts, &format!("{{name: oldie, enabled: {enabled}}}")).is("ok");
        assert_eq!(host.sh("ls /etc/rc3.d | grep -c '^S.*oldie' || :").trim(), links);
    }
}

#[test]
fn masks() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    unit(host, "own.service", SLEEP, INSTALL);
    host.sh("mkdir -p /usr/local/lib/systemd/system; cp /etc/systemd/system/own.service \
             /usr/local/lib/systemd/system/away.service; systemctl daemon-reload; systemctl start away");
    for status in ["changed", "ok"] {
        service(&hosts, "{name: away, state: stopped, masked: true}").is(status);
    }
    assert_eq!(active(host, "away"), "inactive");
    service(&hosts, "{name: away, state: started}").fails("away.service is masked");
    for status in ["changed", "ok"] {
        service(&hosts, "{name: away, state: started, enabled: true, masked: false}").is(status);
    }
    host.sh("systemctl stop away; systemctl mask --runtime away");
    for status in ["changed", "ok"] {
        service(&hosts, "{name: away, masked: false}").is(status);
    }
    service(&hosts, "{name: own, masked: true}").fails("can't be masked, since its file is where the mask would be");
}

#[test]
fn a_stop_takes_the_sockets_along() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    unit(host, "s.service", SLEEP, "");
    host.sh("printf '[Socket]\\nListenStream=/run/s.sock\\n' >/etc/systemd/system/s.socket; systemctl daemon-reload; \
             systemctl start s.socket s.service");
    service(&hosts, "{name: s, state: stopped}").is("changed");
    assert_eq!((active(host, "s.service"), active(host, "s.socket")), ("inactive".to_owned(), "inactive".to_owned()));
    host.sh("systemctl start s.socket");
    service(&hosts, "{name: s, state: stopped}").is("changed");
    service(&hosts, "{name: s, state: stopped}").is("ok");
}

#[test]
fn files_of_the_play_are_taken_in() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    let play = |grace: &str| {
        let resources = format!(
            "  - copy: {{dest: /etc/systemd/system/w.service, content: \"[Service]\\n{SLEEP}\\n[Install]\\nWantedBy=multi-user.target\\n\"}}\n  \
             - file: {{path: /etc/systemd/system/w.service.d, state: directory}}\n  \
             - copy: {{dest: /etc/systemd/system/w.service.d/grace.conf, content: \"[Service]\\nEnvironment=GRACE={grace}\\n\"}}\n    \
               notify: again\n  \
             - service: {{name: w, state: started, enabled: true}}\n"
        );
        apply(&hosts, &resources, "  - name: again\n    service: {name: w, state: restarted}\n")
    };
    let environment =
        || host.sh("tr '\\0' '\\n' </proc/$(systemctl show -p MainPID w | cut -d= -f2)/environ | grep GRACE");
    for grace in ["one", "two"] {
        let outcomes = play(grace);
        assert!(outcomes.iter().all(|o| o.status == "changed" || o.status == "ok"), "{outcomes:?}");
        assert_eq!(environment(), format!("GRACE={grace}\n"));
        assert_eq!(host.sh("systemctl show -p NeedDaemonReload w"), "NeedDaemonReload=no\n");
        let again = play(grace);
        assert!(again.iter().all(|o| o.status == "ok"), "{again:?}");
    }
    // A drop-in in a folder that is new, which systemd itself doesn't notice at once.
    host.sh("mkdir /etc/systemd/system/ssh.service.d; printf '[Service]\\nEnvironment=A=1\\n' >/etc/systemd/system/ssh.service.d/a.conf");
    let loaded = service(&hosts, "{name: sshd, state: started}");
    assert!(loaded.changes.starts_with("unit file "), "{loaded:?}");
    loaded.is("changed");
    service(&hosts, "{name: sshd, state: started}").is("ok");
}

#[test]
fn a_host_without_systemd() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    service(&hosts, "{name: ssh, state: started}").fails("this host isn't run by systemd: its first process is ");
}
