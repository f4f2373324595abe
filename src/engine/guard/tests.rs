//! What is armed, run by real shells of this machine without its systemd: what that adds is tested in the lab.

use crate::engine::batch::tests::{Host, NONCE, codes, feed, piece, put, run, shells};
use crate::engine::batch::{Batch, Change, Verb};
use crate::engine::reader::{Ending, Reader};
use crate::plan::{Guard, Piece};
use crate::resource::{Step, Undo};
use crate::shell::Script;
use std::path::Path;
use std::time::{Duration, Instant};

/// The same shells where no systemd is seen.
fn apart() -> Vec<Vec<&'static str>> {
    let user = r#"r=; [ "$(id -u)" = 0 ] || r=-r; exec /usr/bin/unshare $r -m /bin/sh -c 'mount -t tmpfs tmpfs /run; exec "$@"' sh "$@""#;
    shells().into_iter().map(|shell| [&["/bin/sh", "-c", user, "sh"][..], &shell].concat()).collect()
}

fn arm(host: &Host, pieces: &[Piece], guard: &Guard, generation: u64) -> String {
    let change = Change { pieces, generation: Some(generation), holder: "run r7 of root@h 1", guard: Some(guard) };
    let batch = Batch { nonce: NONCE, run: "r7", folders: host.folders(), change: Some(change), ..Batch::default() };
    Batch { state: true, ..batch }.compose()
}

fn found(host: &Host, verb: Verb) -> String {
    let batch = Batch { nonce: NONCE, run: "r7", folders: host.folders(), ..Batch::default() };
    Batch { found: Some((5, verb)), state: true, ..batch }.compose()
}

fn stage(reader: &Reader) -> String {
    let state = reader.state().unwrap_or_default();
    let mut lines = state.lines().skip_while(|l| *l != "armed").skip(1);
    lines.next().and_then(|l| l.split(' ').next()).unwrap_or_default().to_owned()
}

fn way(host: &Host, timeout: u32, steps: &[&str]) -> Guard {
    let steps = steps.iter().map(|s| Script::new().user(s)).collect();
    Guard {
        timeout,
        files: vec![host.path("old"), host.path("new")],
        undo: vec![Undo { steps, ..Undo::default() }],
        raises: vec![],
        handlers: vec![],
    }
}

/// A file that is replaced, one that is new, and something live.
fn pieces(host: &Host) -> Vec<Piece> {
    std::fs::write(host.path("old"), "before\n").unwrap();
    let live = run(&format!("echo live >>{}; echo did it", host.path("live")));
    let write = |name: &str| Step::Put(put(host.path(name), b"after\n"));
    vec![piece(1, &[], &[], live), piece(2, &[1], &[], write("old")), piece(3, &[2], &[], write("new"))]
}

fn text(host: &Host, name: &str) -> String {
    std::fs::read_to_string(host.path(name)).unwrap_or_default()
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_confirmed_stays() {
    for shell in apart() {
        let host = Host::new();
        let pieces = pieces(&host);
        let reader = feed(&shell, &arm(&host, &pieces, &way(&host, 60, &["false"]), 0));
        assert_eq!((reader.ending(), stage(&reader)), (&Ending::Complete, "ended".to_owned()), "{shell:?}");
        // Nobody else changes anything meanwhile.
        let other = feed(&shell, &arm(&host, &pieces, &way(&host, 60, &[]), 1));
        assert_eq!(*other.ending(), Ending::Armed("run r7 of root@h 1".to_owned()), "{shell:?}");
        assert_eq!((text(&host, "old"), text(&host, "live")), ("after\n".into(), "live\n".into()));
        let reader = feed(&shell, &found(&host, Verb::Look));
        assert_eq!(stage(&reader), "ended", "{shell:?}");
        let reader = feed(&shell, &found(&host, Verb::Keep));
        assert_eq!(stage(&reader), "kept", "{shell:?}");
        assert_eq!(codes(&reader), [1, 2, 3].map(|id| (id, "0".to_owned())), "{shell:?}: what the steps gave is there");
        assert!(!Path::new(&host.path("lib/armed")).exists());
        assert_eq!((text(&host, "old"), text(&host, "new")), ("after\n".into(), "after\n".into()));
        assert_eq!(text(&host, "run/generation"), "2\n", "{shell:?}");
    }
}

#[test]
fn what_nobody_confirms_is_taken_back() {
    for shell in apart() {
        let host = Host::new();
        std::fs::write(host.path("old"), "").unwrap();
        let undo = format!("echo back >>{}; test ! -e {}", host.path("live"), host.path("new"));
        let before = || std::fs::metadata(host.path("old")).unwrap().permissions();
        let pieces = pieces(&host);
        let mode = before();
        let reader = feed(&shell, &arm(&host, &pieces, &way(&host, 1, &[&undo]), 0));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}");
        eventually("it is taken back", || Path::new(&host.path("lib/armed/undone")).exists());
        assert_eq!((text(&host, "old"), before()), ("before\n".into(), mode), "{shell:?}");
        assert!(!Path::new(&host.path("new")).exists(), "{shell:?}");
        assert_eq!(text(&host, "live"), "live\nback\n", "{shell:?}: the files are as they were before it");
        // It is too late for a confirmation then.
        let reader = feed(&shell, &found(&host, Verb::Keep));
        assert_eq!(stage(&reader), "undone", "{shell:?}");
        assert_eq!(text(&host, "old"), "before\n");
    }
}

#[test]
fn it_is_taken_back_at_once_where_a_step_runs_over_its_time_or_a_check_fails() {
    for shell in apart() {
        let host = Host::new();
        let mut hangs = pieces(&host);
        hangs.push(Piece::of_test(4, &[], &[], crate::plan::Work::Step(run("sleep 60")), 1));
        feed(&shell, &arm(&host, &hangs, &way(&host, 60, &[]), 0));
        eventually("a step over its time", || Path::new(&host.path("lib/armed/undone")).exists());
        assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
        let host = Host::new();
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 60, &["echo no; exit 3"]), 0));
        let reader = feed(&shell, &found(&host, Verb::Undo));
        assert_eq!(stage(&reader), "failed", "{shell:?}: what doesn't succeed is told");
        assert!(reader.state().unwrap().contains("exit code 3"), "{:?}", reader.state());
        assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
    }
}

/// Ends the process that runs this file of what is armed.
fn kill(host: &Host, name: &str) {
    let file = format!("{}/armed/{name}", host.path("lib"));
    let end = "for p in /proc/[0-9]*; do { tr '\\0' ' ' <$p/cmdline; } 2>/dev/null | grep -q \"sh $0 \" && kill -9 ${p##*/} && n=1; done; [ -n \"$n\" ]";
    assert!(std::process::Command::new("/bin/sh").args(["-c", end, &file]).status().unwrap().success());
}

#[test]
fn what_is_armed_is_taken_back_though_the_process_that_would_is_killed() {
    for shell in apart() {
        // In the middle of the steps: by the run that waits for it, when the one that runs is over.
        let host = Host::new();
        let mut hangs = pieces(&host);
        let step = run(&format!("until [ -e {} ]; do sleep 0.1 2>/dev/null || sleep 1; done", host.path("go")));
        hangs.push(Piece::of_test(4, &[], &[], crate::plan::Work::Step(step), 60));
        feed(&shell, &arm(&host, &hangs, &way(&host, 60, &["true"]), 0));
        kill(&host, "guard");
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Look))), "running", "{shell:?}");
        std::fs::write(host.path("go"), "").unwrap();
        eventually("what ran is over", || stage(&feed(&shell, &found(&host, Verb::Look))) == "undone");
        assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
        // When they have ended: it can still be confirmed, and otherwise the next change takes it back.
        for keep in [true, false] {
            let host = Host::new();
            feed(&shell, &arm(&host, &pieces(&host), &way(&host, 60, &["true"]), 0));
            kill(&host, "guard");
            let forsaken = |reader: &Reader| reader.state().unwrap().lines().any(|l| l == "forsaken");
            let looked = feed(&shell, &found(&host, Verb::Look));
            assert_eq!((stage(&looked).as_str(), forsaken(&looked)), ("ended", true), "{shell:?}");
            if keep {
                assert_eq!(stage(&feed(&shell, &found(&host, Verb::Keep))), "kept", "{shell:?}");
                assert_eq!(text(&host, "old"), "after\n", "{shell:?}");
            } else {
                let other = [piece(1, &[], &[], run("echo other"))];
                let reader = feed(&shell, &arm(&host, &other, &way(&host, 60, &[]), 1));
                assert_eq!(*reader.ending(), Ending::Moved, "{shell:?}");
                assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
            }
        }
    }
}

#[test]
fn a_way_back_that_was_broken_off_is_taken_to_its_end() {
    for shell in apart() {
        let host = Host::new();
        let undo = format!("echo x >>{0}; [ $(wc -l <{0}) -gt 2 ] || sleep 60", host.path("live"));
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 1, &[&undo]), 0));
        eventually("it is being taken back", || text(&host, "live") == "live\nx\n");
        // Nobody meddles while it goes on.
        let other = [piece(1, &[], &[], run("echo other"))];
        let reader = feed(&shell, &arm(&host, &other, &way(&host, 60, &[]), 1));
        assert_eq!(*reader.ending(), Ending::Armed("run r7 of root@h 1".to_owned()), "{shell:?}");
        kill(&host, "back");
        let reader = feed(&shell, &arm(&host, &other, &way(&host, 60, &[]), 1));
        assert_eq!(*reader.ending(), Ending::Moved, "{shell:?}");
        assert_eq!((text(&host, "old"), text(&host, "live")), ("before\n".into(), "live\nx\nx\n".into()), "{shell:?}");
        let reader = feed(&shell, &found(&host, Verb::Look));
        assert_eq!(stage(&reader), "undone", "{shell:?}");
    }
}

#[test]
fn what_a_boot_without_systemd_has_left_armed_is_taken_back_by_the_next_change() {
    for shell in apart() {
        let host = Host::new();
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 3600, &["true"]), 0));
        assert_eq!(text(&host, "old"), "after\n", "{shell:?}");
        // The boot: what is in memory is gone, and so is the process.
        kill(&host, "guard");
        std::fs::remove_dir_all(host.path("run")).unwrap();
        let other = [piece(1, &[], &[], run("echo other"))];
        let reader = feed(&shell, &arm(&host, &other, &way(&host, 3600, &[]), 0));
        assert_eq!((reader.ending(), codes(&reader)), (&Ending::Moved, vec![]), "{shell:?}: it is probed again");
        assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
        // By the run that waits for it, if that is still there.
        let host = Host::new();
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 3600, &["true"]), 0));
        kill(&host, "guard");
        std::fs::remove_dir_all(host.path("run")).unwrap();
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Look))), "undone", "{shell:?}");
        assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
    }
}

#[test]
fn confirming_and_taking_back_never_both_come_to_be() {
    let shell = &apart()[0];
    for round in 0..300 {
        let host = Host::new();
        let folder = host.path("lib/armed");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(host.path("run")).unwrap();
        for (name, body) in [("about", "run r7 of root@h 1\n"), ("back", ""), ("1.path", ""), ("1", "before\n")] {
            std::fs::write(format!("{folder}/{name}"), body).unwrap();
        }
        std::fs::write(format!("{folder}/1.path"), format!("{}\n", host.path("old"))).unwrap();
        std::fs::write(host.path("run/ended"), "").unwrap();
        std::fs::write(host.path("old"), "after\n").unwrap();
        let back =
            format!("L={} R={}\nsteps() {{ :; }}\n{}", host.path("lib"), host.path("run"), include_str!("back.sh"));
        std::fs::write(format!("{folder}/back"), back).unwrap();
        let mut timer =
            std::process::Command::new("/bin/sh").arg(format!("{folder}/back")).arg("timer").spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 20));
        let reader = feed(shell, &found(&host, Verb::Keep));
        timer.wait().unwrap();
        let kept = stage(&reader) == "kept";
        assert_eq!(text(&host, "old"), if kept { "after\n" } else { "before\n" }, "round {round}: {}", stage(&reader));
    }
}

#[test]
fn what_could_not_be_changed_is_left_alone() {
    use std::os::unix::fs::MetadataExt as _;
    for shell in apart() {
        let host = Host::new();
        let mut pieces = pieces(&host);
        pieces[0] = piece(1, &[], &[], run("false"));
        let inode = || std::fs::metadata(host.path("old")).unwrap().ino();
        let before = inode();
        feed(&shell, &arm(&host, &pieces, &way(&host, 60, &["true"]), 0));
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Undo))), "undone", "{shell:?}");
        assert_eq!((text(&host, "old"), inode()), ("before\n".into(), before), "{shell:?}: it may be immutable");
    }
}

#[test]
fn what_saw_to_one_change_lets_the_next_one_be() {
    for shell in apart() {
        let host = Host::new();
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 3, &["true"]), 0));
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Keep))), "kept", "{shell:?}");
        // At once, while the process of the first one may still be there.
        feed(&shell, &arm(&host, &pieces(&host), &way(&host, 60, &["true"]), 2));
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Look))), "ended", "{shell:?}");
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(stage(&feed(&shell, &found(&host, Verb::Keep))), "kept", "{shell:?}");
        assert_eq!(text(&host, "old"), "after\n", "{shell:?}");
    }
}

/// A host whose session goes over `port0`, a port of `br0`, as the faults of this list leave it and the way back mends it: what
/// its links, addresses and routes are then, and the log of the way back. Runs in a network of its own.
fn in_a_network(shell: &[&str], session: &str, fault: &str) -> (String, String, String) {
    let host = Host::new();
    let look = "cat /sys/class/net/br0/mtu /sys/class/net/port0/mtu /sys/class/net/br0/flags; ip -o address show dev br0 | sed 's/valid_lft.*//; s/ nodad//; s/ flags 02//'; \
                ( ip -4 route; ip -6 route | grep -v '^fe80' ) | sed 's,linkdown *,,'";
    let setup = format!(
        "mount -t tmpfs tmpfs /run; mount -t sysfs sysfs /sys; echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
         case '{shell}' in /bin/busybox*) mount --bind /bin/busybox $(readlink -f $(command -v ip)) ;; esac
         ip link add br0 type bridge; ip link add port0 type veth peer name port1; ip link set port0 master br0
         for l in port0 port1 br0; do ip link set $l up; done
         ip address add 10.0.0.2/16 brd 10.0.255.255 dev br0; ip address add fd00::2/64 dev br0; ip address add 10.1.0.2/24 dev br0
         ip route add default via 10.0.0.254; ip -6 route add default via fd00::fe
         {{ {look}; }} >{before}
         ( until [ -e {armed}/undone ]; do sleep 0.1 2>/dev/null || sleep 1; done; {{ {look}; }} >{after}.new; mv {after}.new {after} ) >/dev/null 2>&1 &
         exec {shell} -s '{session}'",
        shell = shell.join(" "),
        before = host.path("before"),
        after = host.path("after"),
        armed = host.path("lib/armed"),
    );
    let user = r#"r=; [ "$(id -u)" = 0 ] || r=-r; exec /usr/bin/unshare $r -n -m /bin/sh -c "$0""#;
    let shell = ["/bin/sh", "-c", user, &setup];
    let pieces = [piece(1, &[], &[], run(fault))];
    feed(&shell, &arm(&host, &pieces, &way(&host, 1, &[]), 0));
    eventually("it is taken back", || Path::new(&host.path("after")).exists());
    (text(&host, "before"), text(&host, "after"), text(&host, "lib/armed/log"))
}

#[test]
fn what_carried_the_session_is_put_back_and_what_else_stays_is_told() {
    let (v4, v6) = ("10.0.0.1 5 10.0.0.2 22", "fd00::1 5 fd00::2 22");
    // All that a network service leaves live of a file that it has no more.
    let mended = [
        (v4, "ip link set port0 mtu 4000; ip link set br0 arp off; ip link set br0 mtu 1400"),
        (v4, "ip route replace default via 10.0.0.77; ip address del 10.0.0.2/16 dev br0"),
        (v4, "ip route add 10.0.0.0/24 via 10.0.77.77"),
        (
            v4,
            "ip route add 10.0.0.0/24 via 10.0.77.77; ip route del default; ip link set port0 down; ip link set br0 down",
        ),
        (v6, "ip -6 route add fd00::/96 via fd00::77; ip -6 route del default; ip link set br0 mtu 1400"),
        (v6, "ip address del fd00::2/64 dev br0"),
    ];
    for shell in shells() {
        std::thread::scope(|scope| {
            for (session, fault) in mended {
                let shell = &shell;
                scope.spawn(move || {
                    let (before, after, log) = in_a_network(shell, session, fault);
                    assert!(before.contains("10.0.0.2/16") && before.contains("default via fd00::fe"), "{before}");
                    let lost = |line: &&str| !after.contains(*line);
                    let other = |line: &&str| !line.contains(if session == v4 { ':' } else { '.' });
                    let missing: Vec<&str> = before.lines().filter(other).filter(lost).collect();
                    assert!(missing.is_empty(), "{shell:?} {fault}\n{missing:?}\n{after}\n{log}");
                    let more: Vec<&str> = after.lines().filter(other).filter(|line| !before.contains(line)).collect();
                    assert!(more.is_empty(), "{shell:?} {fault}\n{more:?}\n{log}");
                });
            }
        });
        // What is none of the session's is left alone and told.
        let fault = "ip address add 10.55.0.1/24 dev br0; ip address add 10.77.0.1/32 dev br0; ip address del 10.1.0.2/24 dev br0
                     ip route add 10.66.0.0/24 via 10.0.0.9";
        let (_, after, log) = in_a_network(&shell, v4, fault);
        let stays: Vec<&str> = log.lines().filter(|line| line.starts_with("stays: ")).collect();
        assert_eq!(
            stays,
            [
                "stays: br0 hasn't got the address 10.1.0.2/24 that it had",
                "stays: br0 has the address 10.55.0.1/24 that it hadn't",
                "stays: br0 has the address 10.77.0.1/32 that it hadn't"
            ],
            "{shell:?}\n{after}\n{log}"
        );
        assert!(after.contains("10.66.0.0/24 via 10.0.0.9"), "{after}");
        // An address that has moved isn't given to two.
        let fault =
            "ip address del 10.0.0.2/16 dev br0; ip link add other type veth peer name end; ip link set other up
                     ip address add 10.0.0.2/16 dev other";
        let (_, after, log) = in_a_network(&shell, v4, fault);
        assert!(log.contains("stays: br0 hasn't got the address 10.0.0.2/16 that it had"), "{shell:?}\n{after}\n{log}");
        assert!(!after.contains("10.0.0.2/16"), "{after}");
    }
}

#[test]
fn where_a_handler_fails_all_is_taken_back_and_nothing_is_owed() {
    for shell in apart() {
        for handlers in [vec![], vec![5]] {
            let host = Host::new();
            let owed = crate::plan::Owed { address: "service:x".into(), title: "x".into(), run: "r7".into() };
            let mut all = pieces(&host);
            all.insert(0, piece(7, &[], &[], run(&format!("mkdir {}", host.path("x.d")))));
            all.push(piece(6, &[7], &[], Step::Put(put(host.path("x.d/new"), b"after\n"))));
            all.push(Piece::of_test(4, &[], &[], crate::plan::Work::Owe(owed), 5));
            all.push(piece(5, &[4], &[], run("echo its own words; exit 3")));
            let mut guard = Guard { handlers, ..way(&host, 60, &["true"]) };
            guard.files.push(host.path("x.d/new"));
            feed(&shell, &arm(&host, &all, &guard, 0));
            let reader = feed(&shell, &found(&host, Verb::Look));
            assert!(codes(&reader).contains(&(5, "3".to_owned())), "{:?}", codes(&reader));
            if guard.handlers.is_empty() {
                assert_eq!(stage(&reader), "ended", "{shell:?}: another step that fails is told like any other");
                assert_eq!(text(&host, "lib/owed/service%3ax"), "service:x\nx\nr7\n");
                continue;
            }
            assert_eq!(stage(&reader), "undone", "{shell:?}");
            assert_eq!(text(&host, "old"), "before\n", "{shell:?}");
            for gone in ["new", "x.d", "lib/owed"] {
                assert!(!Path::new(&host.path(gone)).exists(), "{shell:?} {gone}");
            }
        }
    }
}

#[test]
fn of_a_host_that_is_lost_is_said_what_is_true_then() {
    let end = Instant::now();
    let at = |seconds: i64| {
        let by = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { end - by } else { end + by }
    };
    let said = |last: &str, now: i64, bare: bool| super::lost(last, end, at(now), bare).message;
    let begin = "a change that may cut off the session isn't confirmed, and";
    assert_eq!(
        said("no answer within 10 s", 60, true),
        format!(
            "{begin} the host can't be reached: no answer within 10 s; the time in which it takes the change back by itself was over 60 s ago"
        )
    );
    assert_eq!(
        said("", -9, false),
        format!(
            "{begin} it hasn't come to an end on the host; it takes the change back by itself within 10 s from now"
        )
    );
    assert!(
        said("", -9, true)
            .ends_with(" from now, unless the process that does so was killed there, as it has no systemd")
    );
}
