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
