//! `package` on real hosts: Debian's own apt and dpkg, with a repository of tiny packages in the host and no network.

use crate::harness::{Host, Hosts, Kind};
use crate::outcome::{Outcome, apply};
use crate::told;

/// Shell functions that make packages and their list, and a source that is a folder of the host.
const REPOSITORY: &str = r#"
deb() { # NAME FIELD POSTINST
  rm -rf /tmp/b; mkdir -p /tmp/b/DEBIAN "/tmp/b/usr/share/$1"
  echo "$1" >"/tmp/b/usr/share/$1/v"
  { printf 'Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n' "$1"
    [ -z "$2" ] || printf '%s\n' "$2"; } >/tmp/b/DEBIAN/control
  if [ -n "$3" ]; then printf '#!/bin/sh\n%s\n' "$3" >/tmp/b/DEBIAN/postinst; chmod 755 /tmp/b/DEBIAN/postinst; fi
  dpkg-deb -Znone --build /tmp/b "/srv/repo/$1.deb" >/dev/null
}
index() {
  cd /srv/repo
  for f in *.deb; do
    dpkg-deb -f "$f"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$f" "$(stat -c %s "$f")" "$(sha256sum "$f" | cut -d' ' -f1)"
  done >Packages
}
mkdir -p /srv/repo
"#;

/// A host with packages `a`, `b` (which needs `lib`), and no lists yet.
fn ready(host: Host<'_>, more: &str) {
    host.sh(&format!(
        "{REPOSITORY}deb tool-a; deb tool-b 'Depends: lib-b'; deb lib-b; {more}\nindex\n\
         rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /var/lib/apt/lists/*; mkdir /etc/apt/sources.list.d\n\
         echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list.d/lab.list"
    ));
}

fn one(hosts: &Hosts, keys: &str) -> Outcome {
    let mut outcomes = apply(hosts, &format!("  - package: {keys}\n"), "");
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

/// What became of each, `ADDRESS STATUS`, by address: they are told in the order in which they are settled.
fn told_of(outcomes: &[Outcome]) -> Vec<String> {
    let mut told: Vec<String> = outcomes.iter().map(|o| format!("{} {}", o.address, o.status)).collect();
    told.sort();
    told
}

/// The message of one.
fn error_of<'a>(outcomes: &'a [Outcome], address: &str) -> &'a str {
    &outcomes.iter().find(|o| o.address == address).unwrap().error
}

fn status(host: Host<'_>, name: &str) -> String {
    host.sh(&format!("dpkg-query -W -f='${{db:Status-Abbrev}}' {name} 2>/dev/null || :")).trim().to_owned()
}

#[test]
fn installed_together_told_apart_and_removed() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    ready(host, "deb broken '' 'echo my card is missing >&2; exit 3'");
    let resources = "  - package: {name: tool-a}\n  - package: {name: [tool-b]}\n  - package: {name: nope}\n  \
                     - package: {name: broken}\n  - package: {name: mawk}\n  \
                     - command: {cmd: touch /a-is-there, creates: /a-is-there}\n    after: package:tool-a\n  \
                     - command: {cmd: touch /nope-is-there, creates: /nope-is-there}\n    after: package:nope\n";
    let outcomes = apply(&hosts, resources, "");
    let wanted = [
        "command:#10 skipped",
        "command:#8 changed",
        "package:broken failed",
        "package:mawk ok",
        "package:nope failed",
        "package:tool-a changed",
        "package:tool-b changed",
    ];
    assert_eq!(told_of(&outcomes), wanted, "{outcomes:?}");
    assert!(error_of(&outcomes, "package:nope").contains("Unable to locate package nope"), "{outcomes:?}");
    let broken = error_of(&outcomes, "package:broken");
    // The cause comes first, and of each its own.
    let cause = "exit code 100: dpkg: error processing package broken (--configure): installed broken package \
                 post-installation script subprocess returned error exit status 3\nmy card is missing";
    assert!(broken.starts_with(cause), "{broken}");
    assert!(!broken.contains("Reading") && !broken.contains("tool-a"), "{broken}");
    assert_eq!(host.sh("grep -c '^Start-Date' /var/log/apt/history.log"), "1\n", "one transaction");
    // What fails again doesn't take others with it, and what it brought along is no package of the play.
    let again = apply(&hosts, "  - package: {name: broken}\n  - package: {name: [tool-a, tool-b]}\n", "");
    assert_eq!(told_of(&again), ["package:broken failed", "package:tool-a ok"], "{again:?}");
    host.sh("printf '#!/bin/sh\\n' >/var/lib/dpkg/info/broken.postinst");
    one(&hosts, "{name: broken}").is("changed");
    one(&hosts, "{name: [tool-a, tool-b, broken]}").is("ok");
    // A package that others need isn't taken with them unless they are named.
    one(&hosts, "{name: lib-b, state: absent}").fails("it would remove tool-b too, which the play doesn't name");
    let both = "  - package: {name: lib-b, state: absent}\n  - package: {name: tool-b, state: absent}\n";
    for wanted in ["changed", "ok"] {
        apply(&hosts, both, "").into_iter().for_each(|o| o.is(wanted));
    }
    assert_eq!(status(host, "lib-b"), "");
}

#[test]
fn a_check_names_what_would_come_and_go() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    ready(
        host,
        "deb tool-c++; deb time-x 'Provides: time-daemon\nConflicts: time-daemon'; deb time-y 'Provides: time-daemon\nConflicts: time-daemon'",
    );
    host.sh("apt-get -qq update; apt-get -qq install time-x >/dev/null");
    let play = told::play("  - package: {name: tool-b}\n  - package: {name: tool-a}\n");
    let check = told::apply(&hosts, &play, &["--check"]).run().exits(0);
    assert!(check.stdout.contains(r#"{"field":"tool-b","from":null,"to":"1.0","effect":"now"}"#), "{check:?}");
    assert!(check.stdout.contains(r#"{"field":"along with it","from":null,"to":"lib-b 1.0","effect":"now"}"#));
    assert_eq!(status(host, "tool-b"), "");
    // apt would take the sign for "install", and install tool-a.
    one(&hosts, "{name: tool-a+}").fails("Unable to locate package tool-a+");
    assert_eq!(status(host, "tool-a"), "");
    one(&hosts, "{name: tool-c++}").is("changed");
    // One that stands against another takes its place only if that is named.
    one(&hosts, "{name: time-y}").fails("it would remove time-x too, which the play doesn't name");
    assert_eq!(status(host, "time-x"), "ii");
    one(&hosts, "{name: time-daemon}").is("ok");
    let swap = "  - package: {name: time-y}\n  - package: {name: time-x, state: absent}\n";
    for wanted in ["changed", "ok"] {
        apply(&hosts, swap, "").into_iter().for_each(|o| o.is(wanted));
    }
    host.sh("apt-mark hold time-y >/dev/null");
    one(&hosts, "{name: time-y, state: absent}").fails("time-y is on hold, so it isn't removed");
    one(&hosts, "{name: time-y}").is("ok");
    host.sh("apt-mark unhold time-y >/dev/null; apt-get -qq remove time-y >/dev/null");
    one(&hosts, "{name: time-daemon}").fails("is a virtual package provided by:");
}

#[test]
fn a_file_that_was_changed_is_kept_and_a_removed_one_is_no_package() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(&format!(
        "{REPOSITORY}mkdir -p /tmp/b/DEBIAN /tmp/b/etc/conf; echo theirs >/tmp/b/etc/conf/conf.conf\n\
         echo /etc/conf/conf.conf >/tmp/b/DEBIAN/conffiles\n\
         printf 'Package: conf\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.com>\\nDescription: x\\n' >/tmp/b/DEBIAN/control\n\
         dpkg-deb -Znone --build /tmp/b /srv/repo/conf.deb >/dev/null; index; rm -rf /etc/apt/sources.list /tmp/b\n\
         echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list.d/lab.list"
    ));
    // The file belongs to a folder that the package brings, and comes after it though it stands before.
    let resources = "  - copy: {dest: /etc/conf/conf.conf, content: ours}\n  - package: {name: conf}\n";
    for wanted in ["changed", "ok"] {
        apply(&hosts, resources, "").into_iter().for_each(|o| o.is(wanted));
    }
    one(&hosts, "{name: conf, state: absent}").is("changed");
    assert_eq!((status(host, "conf").as_str(), host.sh("cat /etc/conf/conf.conf").as_str()), ("rc", "ours"));
    one(&hosts, "{name: conf, state: absent}").is("ok");
    host.sh("echo mine >/etc/conf/conf.conf");
    one(&hosts, "{name: conf}").is("changed");
    assert_eq!(host.sh("cat /etc/conf/conf.conf"), "mine\n");
}

#[test]
fn who_holds_the_lock_is_waited_for_and_told() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    ready(host, "");
    // dpkg's lock is one of fcntl, which flock(1) can't take.
    let hold = |seconds: u32| {
        host.sh(&format!(
            "rm -f /held; setsid python3 -c 'import fcntl,time\nf=open(\"/var/lib/dpkg/lock-frontend\",\"w\")\n\
             fcntl.lockf(f,fcntl.LOCK_EX)\nopen(\"/held\",\"w\")\ntime.sleep({seconds})' >/dev/null 2>&1 </dev/null &\n\
             until [ -e /held ]; do sleep 0.05; done"
        ));
    };
    hold(3);
    one(&hosts, "{name: tool-a}").is("changed");
    hold(60);
    let mut outcomes = apply(&hosts, "  - package: {name: tool-b}\n    timeout: 4\n", "");
    let failed = outcomes.remove(0);
    assert!(failed.error.contains("(python3) holds /var/lib/dpkg/lock-frontend, and still did when"), "{failed:?}");
    failed.is("failed");
    assert_eq!(status(host, "tool-b"), "");
}

#[test]
fn what_was_interrupted_is_finished_if_it_was_asked_for() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    ready(host, "deb slow '' '[ -e /go ] || { touch /began; sleep 60; }'");
    // dpkg and its script are killed in the middle, as by a power cut.
    host.sh(
        "apt-get -qq update; rm -f /began; setsid apt-get -qq -y install slow >/dev/null 2>&1 </dev/null & \
         until [ -e /began ]; do sleep 0.05; done; pkill -KILL -x apt-get; pkill -KILL -x dpkg; pkill -KILL -f 'slow[.]postinst'; \
         touch /go; sleep 0.2",
    );
    assert_ne!(status(host, "slow"), "ii");
    one(&hosts, "{name: tool-a}").fails("dpkg has begun and not finished slow (half-configured)");
    assert_eq!(status(host, "tool-a"), "");
    // Nothing to do is no failure, and the operator hears of it.
    let fine = one(&hosts, "{name: mawk}");
    assert!(fine.warnings.contains("dpkg has begun and not finished slow"), "{fine:?}");
    fine.is("ok");
    one(&hosts, "{name: [tool-a, slow]}").is("changed");
    one(&hosts, "{name: [tool-a, slow]}").is("ok");
}

#[test]
fn a_host_without_network_and_stale_lists() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    ready(host, "");
    host.sh("apt-get -qq update; echo 'deb http://10.99.0.1/debian bookworm main' >/etc/apt/sources.list.d/net.list");
    // The controller has no web server: its kernel refuses.
    let failed = one(&hosts, "{name: nope}");
    let cause =
        "E: Unable to locate package nope, and not all lists could be fetched: Failed to fetch http://10.99.0.1";
    assert!(failed.error.starts_with(cause), "{failed:?}");
    failed.fails("http://10.99.0.1/debian/dists/bookworm/InRelease");
    one(&hosts, "{name: tool-a}").is("changed");
    // The lists name a file that the repository no longer has.
    host.sh("rm /etc/apt/sources.list.d/net.list");
    host.sh(&format!("{REPOSITORY}mv /srv/repo/lib-b.deb /srv/repo/lib-b-new.deb; index"));
    one(&hosts, "{name: tool-b}").is("changed");
    // A source that comes with the same play is known to its packages.
    host.sh("rm -rf /var/lib/apt/lists/*; mv /etc/apt/sources.list.d/lab.list /; apt-get -qq -y remove tool-a tool-b");
    let resources = "  - package: {name: tool-a}\n  \
                     - copy: {dest: /etc/apt/sources.list.d/lab.list, content: 'deb [trusted=yes] file:/srv/repo ./'}\n";
    apply(&hosts, resources, "").into_iter().for_each(|o| o.is("changed"));
}

#[test]
fn a_unit_comes_after_the_package_that_brings_it() {
    let hosts = Hosts::take(Kind::Sysd, 1);
    let host = hosts.first();
    // The unit has another name than its package.
    host.sh(&format!(
        "{REPOSITORY}mkdir -p /tmp/b/DEBIAN /tmp/b/lib/systemd/system\n\
         printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' >/tmp/b/lib/systemd/system/agent.service\n\
         printf 'Package: vendor-tools\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.com>\\nDescription: x\\n' >/tmp/b/DEBIAN/control\n\
         dpkg-deb -Znone --build /tmp/b /srv/repo/vendor-tools.deb >/dev/null; index; rm -rf /etc/apt/sources.list\n\
         echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list.d/lab.list"
    ));
    let resources = "  - package: {name: nope}\n  - package: {name: vendor-tools}\n  \
                     - service: {name: agent, state: started, enabled: true}\n";
    let outcomes = apply(&hosts, resources, "");
    let wanted = ["package:nope failed", "package:vendor-tools changed", "service:agent changed"];
    assert_eq!(told_of(&outcomes), wanted, "{outcomes:?}");
    assert_eq!(host.sh("systemctl is-active agent"), "active\n");
    let missing = apply(&hosts, "  - package: {name: nope}\n  - service: {name: nothing, state: started}\n", "");
    let why = error_of(&missing, "service:nothing");
    assert!(why.contains("`package:nope` failed, which may have been to bring it"), "{missing:?}");
}

#[test]
fn a_host_whose_manager_is_not_known() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    hosts.first().sh("rm /usr/bin/apt-get; printf '#!/bin/sh\\n' >/usr/bin/zypper; chmod +x /usr/bin/zypper");
    one(&hosts, "{name: tool-a}").fails("packages of this host are managed by zypper");
}
