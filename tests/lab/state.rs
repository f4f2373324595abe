//! Hosts in a bad state: what can't be done is told and leaves nothing behind, and all else is done.

use crate::harness::{Host, Hosts, Kind};
use crate::told::{Told, apply, play};

/// What must come to the same on every host that can be worked with.
const USUAL: &str = "
    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}
    - file: {path: /srv/folder, state: directory}
    - copy: {dest: /srv/folder/file, content: \"it's $HOME\\n\"}
      notify: count
    - command: {cmd: 'cat; echo ran >>/srv/ran', stdin: x, creates: /srv/ran}
  handlers:
    - name: count
      command: {cmd: 'echo handled >>/srv/handled'}
";

/// Applies [`USUAL`] to a host that something was done to, twice.
#[track_caller]
fn is_as_usual(what: &str) {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh(what);
    let netplay = apply(&hosts, &play(USUAL), &[]);
    let changed = Told::by(&netplay, 0);
    assert_eq!((changed.count("changed"), changed.executions(host.0)), (5, 2), "{}", changed.run.stdout);
    let converged = Told::by(&netplay, 0);
    assert_eq!((converged.count("ok"), converged.executions(host.0)), (4, 1), "{}", converged.run.stdout);
    assert_eq!(
        host.sh("cat /srv/folder/file /srv/ran /srv/handled; stat -c %a /srv/folder /srv/folder/file /etc/sysctl.d/99-zz-netplay.conf"),
        "it's $HOME\nran\nhandled\n755\n644\n644\n"
    );
    assert_eq!(host.sh("stat -c %a /var/lib/netplay /run/netplay"), "700\n700\n");
}

#[test]
fn busybox_as_sh() {
    is_as_usual("ln -sf busybox /bin/sh");
}

#[test]
fn bash_as_sh_and_a_login_shell_that_lets_nobody_read() {
    is_as_usual(
        "ln -sf bash /bin/sh; for f in /etc/profile /root/.profile /root/.bashrc; do echo umask 077 >>$f; done; \
                 sed -i 's/^UMASK.*/UMASK 077/' /etc/login.defs; rm -rf /etc/sysctl.d",
    );
}

#[test]
fn no_tmp_to_write_or_to_run_in() {
    is_as_usual("mount -t tmpfs -o noexec tmpfs /tmp; mount -t tmpfs -o noexec tmpfs /var/tmp");
    is_as_usual(
        "mount -t tmpfs -o ro tmpfs /tmp; mount -t tmpfs -o ro tmpfs /var/tmp; mount -t tmpfs -o ro tmpfs /dev/shm",
    );
    is_as_usual("rm /usr/bin/timeout");
}

/// Applies resources to the host, and asserts the error of those addresses that fail; all others are done.
#[track_caller]
fn fails(hosts: &Hosts, resources: &str, errors: &[(&str, &str)]) -> Told {
    let told = Told::by(&apply(hosts, &play(resources), &[]), 2);
    for (address, text) in errors {
        let error = told.error(address);
        assert!(error.contains(text), "{address}: {error}");
    }
    assert_eq!((told.count("failed"), told.count("skipped")), (errors.len(), 0), "{}", told.run.stdout);
    assert_eq!(leftovers(hosts.first()), "");
    told
}

fn leftovers(host: Host<'_>) -> String {
    host.sh("find / /run -xdev -name '.netplay*'; find /etc/sysctl.d /mnt -name '.netplay*'")
}

#[test]
fn a_disk_that_is_full() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("mount -t tmpfs -o size=16k tmpfs /mnt; echo old >/mnt/file; \
             mount -t tmpfs -o size=4k tmpfs /etc/sysctl.d; head -c 4096 /dev/zero >/etc/sysctl.d/full || true");
    let big = "x".repeat(40_000);
    let resources = format!(
        "    - copy: {{dest: /mnt/file, content: {big}}}
    - copy: {{dest: /mnt/small, content: x}}
    - sysctl: {{name: net.ipv4.tcp_mtu_probing, value: 1}}
    - copy: {{dest: /srv/x, content: x}}
"
    );
    let errors =
        [("copy:/mnt/file", "No space left on device"), ("sysctl:net.ipv4.tcp_mtu_probing", "is the disk full?")];
    let told = fails(&hosts, &resources, &errors);
    assert_eq!(told.count("changed"), 2);
    assert_eq!(host.sh("cat /mnt/file; ls /mnt; cat /proc/sys/net/ipv4/tcp_mtu_probing"), "old\nfile\nsmall\n1\n");
    host.sh("umount /mnt /etc/sysctl.d");
    Told::by(&apply(&hosts, &play(&resources), &[]), 0);
    assert_eq!(host.sh("wc -c </mnt/file"), "40000\n");
}

#[test]
fn file_systems_that_are_read_only() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("mount --bind /etc /etc; mount -o remount,ro,bind /etc");
    let resources = "    - copy: {dest: /etc/x, content: x}
    - file: {path: /etc/folder, state: directory}
    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}
    - copy: {dest: /srv/x, content: x}
";
    let read_only = "ead-only file system";
    let errors =
        ["copy:/etc/x", "file:/etc/folder", "sysctl:net.ipv4.tcp_mtu_probing"].map(|address| (address, read_only));
    let told = fails(&hosts, resources, &errors);
    assert_eq!(told.count("changed"), 1);
    assert_eq!(host.sh("cat /proc/sys/net/ipv4/tcp_mtu_probing"), "1\n");
    host.sh("umount /etc");
    Told::by(&apply(&hosts, &play(resources), &[]), 0);

    // All of the root: what is to run afterwards can't be noted, so that nothing is changed that needs it.
    host.sh("mount -o remount,ro,bind /; mount -t tmpfs tmpfs /mnt");
    let resources = "    - copy: {dest: /srv/x, content: y}
    - copy: {dest: /mnt/noted, content: y}
      notify: count
    - copy: {dest: /mnt/x, content: y}
  handlers:
    - {name: count, command: {cmd: 'echo handled >>/mnt/handled'}}
";
    let told = fails(
        &hosts,
        resources,
        &[("copy:/srv/x", read_only), ("copy:/mnt/noted", "/var/lib/netplay must be writable")],
    );
    assert_eq!(told.count("changed"), 1, "{}", told.run.stdout);
    assert_eq!(host.sh("ls /mnt"), "x\n");
}

#[test]
fn nowhere_to_keep_the_state() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("echo 'a file' >/var/lib/netplay");
    let resources = "    - copy: {dest: /srv/noted, content: y}
      notify: count
    - copy: {dest: /srv/x, content: y}
  handlers:
    - {name: count, command: {cmd: 'echo handled >>/srv/handled'}}
";
    fails(&hosts, resources, &[("copy:/srv/noted", "/var/lib/netplay must be writable")]);
    assert_eq!(host.sh("ls /srv"), "x\n");
    host.sh("rm /var/lib/netplay /srv/x; mkdir /var/lib/netplay; mount -t tmpfs -o size=4k tmpfs /var/lib/netplay; \
             head -c 4096 /dev/zero >/var/lib/netplay/full || true");
    fails(&hosts, resources, &[("copy:/srv/noted", "No space left on device")]);
    assert_eq!(host.sh("ls /srv; ls -A /var/lib/netplay/owed; umount /var/lib/netplay"), "x\n");
    // No lock, no change; what is as wanted is told all the same.
    host.sh("rm -r /run/netplay; echo 'a file' >/run/netplay");
    let nothing = |text: &str| {
        let told = Told::by(&apply(&hosts, &play(resources), &[]), 2);
        assert_eq!((told.status("copy:/srv/x"), told.count("changed")), ("ok", 0), "{}", told.run.stdout);
        let error = crate::told::told(told.host(host.0));
        assert!(error.contains("nothing was changed") && error.contains(text), "{error}");
        assert_eq!(host.sh("ls /srv"), "x\n");
    };
    nothing("/run/netplay");
    host.sh("rm /run/netplay /usr/bin/flock");
    nothing("flock");
}

#[test]
fn targets_that_are_more_than_files() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("cd /srv; mkdir d; echo old >d/target; chmod 640 d/target; chown ops d/target; ln -s d/target link; ln -s nowhere/x dangling;
             echo old >mounted; echo old >under; mount --bind under mounted;
             echo old >fixed; chattr +i fixed; mkdir ro; chattr +i ro; mkfifo pipe; echo old >hard; ln hard hard2");
    let copies: String = ["link", "mounted", "fixed", "ro/x", "pipe", "dangling", "hard"]
        .map(|name| format!("    - copy: {{dest: /srv/{name}, content: \"new\\n\"}}\n"))
        .concat();
    let told = fails(
        &hosts,
        &copies,
        &[
            ("copy:/srv/fixed", "immutable"),
            ("copy:/srv/ro/x", "not permitted"),
            ("copy:/srv/pipe", "pipe"),
            ("copy:/srv/dangling", "leads nowhere"),
        ],
    );
    assert!(told.warnings().contains("/srv/mounted is a mount point"), "{}", told.warnings());
    assert_eq!(
        host.sh(
            "cd /srv; readlink link; stat -c '%a %U' d/target; cat d/target under fixed hard hard2; chattr -i fixed ro"
        ),
        "d/target\n640 ops\nnew\nnew\nold\nnew\nold\n"
    );
}

#[test]
fn a_user_without_rights_is_told_what_it_lacks() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let vars = format!("all: {{hosts: {{{}: {{ansible_user: nosudo}}}}}}\n", host.0);
    let resources = "    - copy: {dest: /home/nosudo/x, content: x}
    - copy: {dest: /etc/x, content: x}
    - copy: {dest: /home/nosudo/noted, content: x}
      notify: count
  handlers:
    - {name: count, command: {cmd: 'echo handled >>/home/nosudo/handled'}}
";
    let told = Told::by(&apply(&hosts, &play(resources), &["-i", "more.yaml"]).file("more.yaml", &vars), 2);
    assert_eq!(told.status("copy:/home/nosudo/x"), "changed", "{}", told.run.stdout);
    assert!(told.error("copy:/etc/x").contains("ermission denied"), "{}", told.error("copy:/etc/x"));
    assert!(told.error("copy:/home/nosudo/noted").contains("/var/lib/netplay must be writable"));
    assert!(told.warnings().contains("without root's rights no lock is taken"), "{}", told.warnings());
    assert_eq!(host.sh("ls /home/nosudo"), "x\n");
}

#[test]
fn a_check_foresees_what_an_apply_fails_at() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    host.sh("cd /srv; echo old >fixed; chattr +i fixed; echo x >kept; mkdir shut closed; chattr +i closed;
             mount -t tmpfs tmpfs shut; echo x >shut/x; mount -o remount,ro shut;
             mkdir -p /etc/sysctl.d; mount -t tmpfs -o ro tmpfs /etc/sysctl.d");
    let resources = "
    - copy: {dest: /srv/fixed, content: x}
    - copy: {dest: /srv/kept, content: \"x\\n\"}
    - file: {path: /srv/closed/folder/below, state: directory}
    - file: {path: /srv/shut/x, mode: 0600}
    - copy: {dest: /srv/owned, content: x, owner: netops, group: daemon}
    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}
    - copy: {dest: /srv/plain, content: x, owner: daemon}
";
    let failures = [
        ("copy:/srv/fixed", "immutable"),
        ("file:/srv/closed/folder/below", "not permitted"),
        ("file:/srv/shut/x", "Read-only file system"),
        ("copy:/srv/owned", "invalid user"),
        ("sysctl:net.ipv4.tcp_mtu_probing", "Read-only file system"),
    ];
    let check = Told::by(&apply(&hosts, &play(resources), &["--check"]), 2);
    for ((address, _), error) in failures.iter().zip([
        "/srv/fixed can't be written: it is immutable",
        "/srv/closed/folder/below can't be written: /srv/closed is immutable",
        "/srv/shut/x can't be written: /srv/shut is mounted read-only",
        "there is no user netops",
        "/etc/sysctl.d/99-zz-netplay.conf can't be written: /etc/sysctl.d is mounted read-only",
    ]) {
        assert!(check.error(address).contains(error), "{}", check.error(address));
    }
    assert_eq!((check.count("would_change"), check.count("ok"), check.executions(host.0)), (1, 1, 1));
    fails(&hosts, resources, &failures);
    host.sh("cd /srv; rm plain; chattr -i fixed closed; umount shut");
    // What stands before it brings the user.
    let user = "    - command: {cmd: useradd netops, unless: id netops}\n";
    let owned = "    - copy: {dest: /srv/owned, content: x, owner: netops}\n";
    let both = play(&format!("{user}{owned}"));
    assert_eq!(Told::by(&apply(&hosts, &both, &["--check"]), 0).count("would_change"), 2);
    assert_eq!(Told::by(&apply(&hosts, &both, &[]), 0).count("changed"), 2);
    let converged = Told::by(&apply(&hosts, &both, &["--check"]), 0);
    assert_eq!((converged.count("ok"), converged.executions(host.0)), (2, 1));
}
