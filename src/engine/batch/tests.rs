//! Batches run by real shells: dash, bash as sh, and busybox where it is installed.

use super::*;
use crate::engine::reader::{Ending, MAX_OUTPUT, Reader};
use crate::plan::Ran;
use crate::resource::Output;
use crate::transport::{Dialogue, Reply};
use proptest::prelude::*;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(in crate::engine) const NONCE: &str = "0f3c9a51d2e84b67";

pub(in crate::engine) fn shells() -> Vec<Vec<&'static str>> {
    let all: [&[&str]; 3] = [&["/bin/dash"], &["/bin/bash", "--posix"], &["/bin/busybox", "sh"]];
    let found: Vec<Vec<&str>> = all.iter().filter(|s| Path::new(s[0]).exists()).map(|s| s.to_vec()).collect();
    assert!(found.len() >= 2, "dash and bash are needed");
    found
}

/// Feeds a script to a shell and its output to the reader in small pieces, until the reader has enough.
pub(in crate::engine) fn feed(shell: &[&str], script: &str) -> Reader {
    converse(shell, Reader::new(NONCE, script.to_owned()))
}

/// The same with what a reader says.
fn converse(shell: &[&str], mut reader: Reader) -> Reader {
    let mut child = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-s", "10.0.0.1 5 10.0.0.2 22"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (sender, said) = std::sync::mpsc::channel::<Vec<u8>>();
    let writer = std::thread::spawn(move || said.iter().for_each(|bytes| drop(stdin.write_all(&bytes))));
    let mut sender = Some(sender);
    let mut more = |reply: Reply| match reply {
        Reply::More => true,
        Reply::Finish => false,
        Reply::Write { bytes, end } => {
            sender.as_ref().unwrap().send(bytes).unwrap();
            sender.take_if(|_| end);
            true
        }
    };
    assert!(more(reader.begin()));
    let mut out = child.stdout.take().unwrap();
    let mut piece = [0; 777];
    loop {
        let n = out.read(&mut piece).unwrap();
        if n == 0 || !more(reader.stdout(&piece[..n])) {
            break;
        }
    }
    drop(sender);
    writer.join().unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    reader
}

pub(in crate::engine) struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    pub(in crate::engine) fn new() -> Host {
        Host { folder: tempfile::tempdir().unwrap() }
    }
    pub(in crate::engine) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder.path().display())
    }
    pub(in crate::engine) fn folders(&self) -> Folders {
        Folders { state: self.path("lib"), run: self.path("run") }
    }
    fn batch<'a>(&self, pieces: &'a [Piece], fragments: &'a [Fragment]) -> String {
        let change = Change { pieces, generation: None, holder: "run r of me", guard: None };
        Batch { nonce: NONCE, run: "r7", folders: self.folders(), change: Some(change), fragments, ..Batch::default() }
            .compose()
    }
}

pub(in crate::engine) fn piece(id: u32, all: &[u32], any: &[u32], step: Step) -> Piece {
    Piece::of_test(id, all, any, Work::Step(step), 5)
}

pub(in crate::engine) fn run(text: &str) -> Step {
    Step::Run(Script::new().user(text))
}

pub(in crate::engine) fn put(path: String, body: &[u8]) -> Put {
    Put { path, body: body.to_vec(), mode: 0o640, owner: None, backup: false, validate: None, in_place: false }
}

fn read(text: &str) -> Fragment {
    Script::new().user(text).into()
}

fn guard(text: &str) -> Fragment {
    Fragment { script: Script::new().user(text), user: Some(2) }
}

pub(in crate::engine) fn codes(reader: &Reader) -> Vec<(u32, String)> {
    let show = |ran: &Ran| match ran {
        Ran::Yes(o) => o.code.to_string(),
        Ran::Skipped => "skip".to_owned(),
        Ran::Unknown(_) => "?".to_owned(),
    };
    reader.steps().iter().map(|(id, ran)| (*id, show(ran))).collect()
}

fn out(reader: &Reader, id: u32) -> String {
    match &reader.steps()[&id] {
        Ran::Yes(o) => o.text().into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_probe_gives_each_fragment_its_own_outcome() {
    for shell in shells() {
        let fragments = [
            read("printf '%s|' \"$SESSION\"; echo 0f3c9a51d2e84b6 6 0 0; printf '\\303\\244' >&2"),
            read("if true; then echo never"),
            read("echo out; echo 'err\nor' >&2; exit 3"),
            read("printf 'a\\000b\\nno newline at the end'"),
            read("head -c 5000000 /dev/zero"),
            read(":"),
            guard("cat; echo seen; echo too >&2; exit 7"),
            guard("sleep 60 & echo started"),
            guard("head -c 300000 /dev/zero | tr '\\000' x; echo tail"),
            read("cat"),
        ];
        let started = Instant::now();
        let mut reader = feed(&shell, &Host::new().batch(&[], &fragments));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}: {}", reader.noise());
        assert!(started.elapsed() < Duration::from_secs(10), "{shell:?} waited for a child");
        let outputs = reader.outputs(&fragments);
        let ok = |i: usize| outputs[i].as_ref().unwrap_or_else(|e| panic!("{shell:?} {i}: {e:?}"));
        let text =
            |i: usize| (ok(i).code, ok(i).text().into_owned(), String::from_utf8_lossy(&ok(i).stderr).into_owned());
        assert_eq!(text(0), (0, "10.0.0.1 5 10.0.0.2 22|0f3c9a51d2e84b6 6 0 0\n".into(), "ä".into()), "{shell:?}");
        assert_ne!(ok(1).code, 0);
        assert_eq!((&ok(1).stdout, ok(1).stderr.is_empty()), (&vec![], false), "{shell:?}");
        assert_eq!(text(2), (3, "out\n".into(), "err\nor".into()));
        assert_eq!(ok(3).stdout, b"a\0b\nno newline at the end");
        assert!(outputs[4].as_ref().is_err_and(|t| t.message.contains("more than 1 MiB")), "{:?}", outputs[4]);
        assert_eq!(text(5), (0, String::new(), String::new()));
        assert_eq!(text(6), (7, "seen\ntoo\n".into(), String::new()), "{shell:?}");
        assert_eq!(text(7).1, "started\n");
        assert!(ok(8).stdout.len() <= 65536 && ok(8).text().ends_with("xtail\n"), "{}", ok(8).stdout.len());
        assert_eq!(text(9), (0, String::new(), String::new()));
    }
}

#[test]
fn a_tool_that_prints_without_end_is_cut_off() {
    for shell in shells() {
        let fragments = [
            read("o=$(lim 60 yes 2>&1); echo $? ${#o}"),
            read("o=$(lim 60 sh -c 'yes >&2' 2>&1); echo $? ${#o}"),
            read("lim 5 sh -c 'echo a; echo b >&2; exit 7'"),
            read("o=$(lim 5 sh -c 'echo a; echo b >&2; echo c; exit 7' 2>&1); echo $? $o"),
            read("lim 1 sleep 60; echo $?"),
            read("lim 60 yes"),
        ];
        let started = Instant::now();
        let mut reader = feed(&shell, &Host::new().batch(&[], &fragments));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}: {}", reader.noise());
        assert!(started.elapsed() < Duration::from_secs(15), "{shell:?}");
        let outputs = reader.outputs(&fragments);
        let text =
            |i: usize| outputs[i].as_ref().unwrap_or_else(|e| panic!("{shell:?} {i}: {e:?}")).text().into_owned();
        for cut in [text(0), text(1)] {
            let (code, length) = cut.trim().split_once(' ').unwrap();
            assert!(code != "0" && length.parse::<usize>().unwrap() <= MAX_OUTPUT + 1, "{shell:?}: {cut}");
        }
        let both = outputs[2].as_ref().unwrap();
        assert_eq!((both.code, &*both.text(), both.stderr.as_slice()), (7, "a\n", &b"b"[..]), "{shell:?}");
        assert_eq!(text(3), "7 a b c\n", "{shell:?}");
        assert!(["124\n", "143\n"].contains(&text(4).as_str()), "{shell:?}: {}", text(4));
        assert!(outputs[5].as_ref().is_err_and(|t| t.message.contains("more than 1 MiB")), "{shell:?}");
    }
}

#[test]
fn what_is_said_in_place_of_a_batch_is_kept() {
    let mut reader = Reader::new(NONCE, String::new());
    reader.stdout(b"This account runs ");
    reader.stderr(b"(says sshd) ");
    reader.stdout(b"one command.\n");
    assert_eq!(
        (reader.ending(), reader.noise().as_str()),
        (&Ending::Silent, "(says sshd) This account runs one command.")
    );
}

#[test]
fn a_host_without_processes_says_so() {
    let mut reader = Reader::new(NONCE, String::new());
    reader.stderr(b"Welcome to n1\n");
    reader.stdout(format!("\n{NONCE} begin\n\n{NONCE} 1 lost 0\n\n\n{NONCE} {FRAGMENTS} lost 0\n\n").as_bytes());
    reader.stderr(b"\n/bin/sh: 14: Cannot fork\n/bin/sh: 14: Cannot fork\n");
    reader.stdout(format!("\n{NONCE} end\n").as_bytes());
    let said = "; the host's shell said: /bin/sh: 14: Cannot fork";
    let Ran::Unknown(why) = &reader.steps()[&1] else { panic!("{:?}", reader.steps()) };
    assert_eq!(*why, format!("how it ended was lost{said}"));
    let outputs = reader.outputs(&[read("")]);
    assert_eq!(outputs[0].as_ref().unwrap_err().message, format!("how the probe ended was lost{said}"));
}

#[test]
fn steps_hang_on_others_and_never_on_their_children() {
    for shell in shells() {
        let host = Host::new();
        let ran = host.path("ran");
        let note = |what: &str| run(&format!("echo {what} >>{ran}"));
        let pieces = [
            piece(1, &[], &[], note("one")),
            piece(2, &[1], &[], run("if true; then echo never")),
            piece(3, &[2], &[], note("three")),
            piece(4, &[3], &[], note("four")),
            piece(5, &[1], &[], run("echo said; exit 3")),
            piece(6, &[], &[5, 2], note("six")),
            piece(7, &[], &[5, 1], note("seven")),
            piece(8, &[], &[], run("sleep 60 & echo started")),
            Piece::of_test(9, &[], &[], Work::Step(run("sleep 60")), 1),
            piece(10, &[], &[], run("kill -9 $$")),
            piece(11, &[], &[], run("cat; echo end")),
        ];
        let started = Instant::now();
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{shell:?}");
        let codes = codes(&reader);
        let code = |id: u32| codes.iter().find(|(i, _)| *i == id).unwrap().1.as_str();
        assert_eq!(
            (code(1), code(3), code(4), code(5), code(6), code(7), code(8)),
            ("0", "skip", "skip", "3", "skip", "0", "0")
        );
        assert!(!["0", "skip"].contains(&code(2)), "{shell:?}: {}", code(2));
        assert!(["124", "137", "143"].contains(&code(9)), "{shell:?}: {}", code(9));
        assert!(["137", "?"].contains(&code(10)), "{shell:?}: {}", code(10));
        assert_eq!(out(&reader, 5), "said\n");
        assert_eq!(out(&reader, 11), "end\n");
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "one\nseven\n");
    }
}

#[test]
fn an_upload_cut_at_any_byte_does_nothing() {
    let host = Host::new();
    let done = host.path("done");
    let pieces = [
        piece(1, &[], &[], run(&format!("echo x >>{done}"))),
        piece(2, &[], &[], Step::Put(put(host.path("file"), b"it's \\ % \0\xff\n"))),
    ];
    let whole = host.batch(&pieces, &[read("echo x")]);
    let shell = ["/bin/sh"];
    for cut in (0..whole.len() - 2).filter(|c| whole.is_char_boundary(*c)) {
        let mut child = Command::new(shell[0])
            .args(["-s", ""])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let _ = stdin.write_all(&whole.as_bytes()[..cut]);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.stdout.is_empty(), "cut at {cut}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(!Path::new(&done).exists() && !Path::new(&host.path("file")).exists(), "cut at {cut}");
    }
    assert_eq!(*feed(&shell, &whole).ending(), Ending::Complete);
    assert!(Path::new(&done).exists());
}

#[test]
fn a_download_cut_at_any_byte_is_unknown() {
    let host = Host::new();
    let pieces = [piece(1, &[], &[], run("echo a")), piece(2, &[1], &[], run("exit 2")), piece(3, &[2], &[], run(":"))];
    let script = host.batch(&pieces, &[read("echo x; echo y >&2")]);
    let out = Command::new("/bin/sh").args(["-c", &script]).output().unwrap().stdout;
    for cut in 0..out.len() {
        let mut reader = Reader::new(NONCE, String::new());
        let reply = reader.stdout(&out[..cut]);
        assert_eq!(reply, Reply::More, "cut at {cut}");
        let begun = cut > NONCE.len() + 7;
        assert_eq!(*reader.ending(), if begun { Ending::Broken } else { Ending::Silent }, "cut at {cut}");
    }
    let mut reader = Reader::new(NONCE, String::new());
    assert_eq!(out.iter().map(|b| reader.stdout(&[*b])).last(), Some(Reply::Finish));
    assert_eq!(codes(&reader), [(1, "0".into()), (2, "2".into()), (3, "skip".into())]);
}

#[test]
fn files_are_replaced_in_one_go() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let body: Vec<u8> = (0..=255).chain(b"it's \"b\" $HOME `x` %s \\n -n\n".iter().copied()).collect();
    for shell in shells() {
        let host = Host::new();
        std::fs::write(host.path("old"), "old").unwrap();
        symlink("old", host.path("link")).unwrap();
        symlink("later", host.path("dangling")).unwrap();
        symlink("none/x", host.path("lost")).unwrap();
        std::fs::create_dir(host.path("dir")).unwrap();
        std::fs::write(host.path(".netplay-r0-3"), "left over").unwrap();
        std::fs::write(host.path("place"), "old").unwrap();
        std::fs::write(host.path("place2"), "old").unwrap();
        let validate = |text: &str| Some(Script::new().user(text));
        let pieces = [
            piece(1, &[], &[], Step::Put(put(host.path("new 'x' -"), &body))),
            piece(2, &[], &[], Step::Put(put(host.path("link"), b"through the link"))),
            piece(3, &[], &[], Step::Put(put(host.path("dangling"), b"through"))),
            piece(4, &[], &[], Step::Put(put(host.path("lost"), b""))),
            piece(5, &[], &[], Step::Put(put(host.path("dir"), b""))),
            piece(6, &[], &[], Step::Put(put(host.path("nodir/x"), b""))),
            piece(
                7,
                &[],
                &[],
                Step::Put(Put { validate: validate("grep -q good \"$file\""), ..put(host.path("bad"), b"bad") }),
            ),
            piece(
                8,
                &[],
                &[],
                Step::Put(Put { validate: validate("grep -q good \"$file\""), ..put(host.path("good"), b"good") }),
            ),
            piece(9, &[], &[], Step::Put(Put { in_place: true, ..put(host.path("place"), b"in place") })),
            piece(10, &[], &[], Step::Put(put(host.path("empty"), b""))),
            piece(11, &[10], &[], Step::Put(put("/proc/none".into(), b"x"))),
            piece(
                12,
                &[],
                &[],
                Step::Put(Put {
                    in_place: true,
                    validate: validate("grep -q good \"$file\""),
                    ..put(host.path("place2"), b"bad")
                }),
            ),
        ];
        let before = std::fs::metadata(host.path("place")).unwrap();
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}");
        let good: Vec<u32> = codes(&reader).iter().filter(|(_, c)| c == "0").map(|(i, _)| *i).collect();
        assert_eq!(good, [1, 2, 3, 8, 9, 10], "{shell:?} {:?}", (1..13).map(|i| out(&reader, i)).collect::<Vec<_>>());
        let file = |name: &str| std::fs::read(host.path(name)).unwrap();
        assert_eq!(file("new 'x' -"), body);
        assert_eq!(std::fs::metadata(host.path("new 'x' -")).unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!((file("old"), file("later")), (b"through the link".to_vec(), b"through".to_vec()));
        assert!(std::fs::symlink_metadata(host.path("link")).unwrap().is_symlink());
        assert_eq!((file("good"), file("place"), file("empty")), (b"good".to_vec(), b"in place".to_vec(), vec![]));
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(before.ino(), std::fs::metadata(host.path("place")).unwrap().ino());
        assert!(!Path::new(&host.path("bad")).exists());
        assert_eq!(file("place2"), b"old");
        assert!(out(&reader, 11).contains("could be written to /proc/"), "{}", out(&reader, 11));
        assert!(out(&reader, 4).contains("leads to a folder that isn't there"), "{}", out(&reader, 4));
        assert!(out(&reader, 5).contains("is a directory"));
        assert!(out(&reader, 6).contains("there is no folder"));
        assert!(out(&reader, 7).contains("refused by its validate command (exit code 1)"), "{}", out(&reader, 7));
        let left: Vec<String> = std::fs::read_dir(host.folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| n.starts_with('.'))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A script whose tools are replaced by these functions.
fn with(functions: &str, script: &str) -> String {
    script.replacen("{\n", &format!("{{\n{functions}\n"), 1)
}

#[test]
fn the_owner_of_a_folder_gains_nothing_by_swapping_files_in_it() {
    use std::os::unix::fs::PermissionsExt as _;
    for shell in shells() {
        let host = Host::new();
        std::fs::write(host.path("victim"), "same").unwrap();
        std::fs::set_permissions(host.path("victim"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let swap = format!(
            "dd() {{ command dd \"$@\"; for x in '{0}'/.netplay-*; do mv \"$x\" '{0}/stolen'; ln -s victim \"$x\"; done; }}",
            host.folder.path().display()
        );
        let pieces = [piece(1, &[], &[], Step::Put(put(host.path("new"), b"body")))];
        feed(&shell, &with(&swap, &host.batch(&pieces, &[])));
        assert_eq!(std::fs::read(host.path("stolen")).unwrap(), b"body", "{shell:?}");
        let mode = |name: &str| std::fs::metadata(host.path(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("stolen"), mode("victim")), (0o640, 0o600), "{shell:?}");
    }
}

#[test]
fn links_that_others_put_into_a_common_folder_are_not_followed() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    for shell in shells() {
        let host = Host::new();
        for (folder, mode) in [("tmp", 0o1777), ("own", 0o755)] {
            std::fs::create_dir(host.path(folder)).unwrap();
            std::fs::set_permissions(host.path(folder), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::write(host.path("victim"), "old").unwrap();
        symlink("../victim", host.path("tmp/link")).unwrap();
        symlink("../own/link", host.path("tmp/two")).unwrap();
        symlink("../tmp/link", host.path("own/two")).unwrap();
        symlink("../victim", host.path("own/link")).unwrap();
        let pieces = |names: &[&str]| -> Vec<Piece> {
            (1..).zip(names).map(|(i, name)| piece(i, &[], &[], Step::Put(put(host.path(name), b"new")))).collect()
        };
        // The tool stands for links of another user, as making some takes root's rights.
        let theirs = "stat() { case $1 in -L) echo 77770 ;; *) echo 77771 ;; esac; }";
        let refused = feed(&shell, &with(theirs, &host.batch(&pieces(&["tmp/link", "tmp/two", "own/two"]), &[])));
        for (id, code) in codes(&refused) {
            assert_eq!(code, "1", "{shell:?}");
            assert!(out(&refused, id).contains("that the user 77771 made"), "{}", out(&refused, id));
        }
        assert_eq!((refused.steps().len(), std::fs::read(host.path("victim")).unwrap()), (3, b"old".to_vec()));
        feed(&shell, &with(theirs, &host.batch(&pieces(&["own/link"]), &[])));
        assert_eq!(std::fs::read(host.path("victim")).unwrap(), b"new");
        std::fs::write(host.path("victim"), "old").unwrap();
        feed(&shell, &host.batch(&pieces(&["own/two"]), &[]));
        assert_eq!(std::fs::read(host.path("victim")).unwrap(), b"new", "one's own: {shell:?}");
    }
}

#[test]
fn acl_and_attributes_of_a_replaced_file_are_kept() {
    use crate::resource::trial::{mark, marked};
    use std::os::unix::fs::PermissionsExt as _;
    for shell in shells() {
        let host = Host::new();
        for name in ["f", "tight"] {
            std::fs::write(host.path(name), "old").unwrap();
            mark(&host.path(name));
        }
        let pieces = [
            piece(1, &[], &[], Step::Put(put(host.path("f"), b"new"))),
            piece(2, &[], &[], Step::Put(Put { mode: 0o600, ..put(host.path("tight"), b"new") })),
            piece(3, &[], &[], Step::Put(put(host.path("none"), b"new"))),
        ];
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(codes(&reader), [(1, "0".into()), (2, "0".into()), (3, "0".into())], "{}", out(&reader, 1));
        assert_eq!(std::fs::read(host.path("f")).unwrap(), b"new");
        assert!(marked(&host.path("f")), "{shell:?}");
        // The mode that is asked for bounds what the ACL gives.
        let mode = std::fs::metadata(host.path("tight")).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode, marked(&host.path("none"))), (0o600, false), "{shell:?}");
        assert_eq!(std::fs::read_dir(host.folder.path()).unwrap().count(), 3, "{shell:?}");
    }
}

#[test]
fn the_last_five_versions_are_kept_elsewhere() {
    for shell in shells() {
        let host = Host::new();
        std::fs::write(host.path("f"), "first").unwrap();
        std::fs::create_dir_all(host.path("lib/backup")).unwrap();
        let name = file_name(&host.path("f"));
        for i in 0..7 {
            std::fs::write(host.path(&format!("lib/backup/{name}~2020010{i}T000000")), "x").unwrap();
        }
        std::fs::write(host.path("lib/backup/other~20200101T000000"), "x").unwrap();
        let pieces = [piece(1, &[], &[], Step::Put(Put { backup: true, ..put(host.path("f"), b"second") }))];
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(codes(&reader), [(1, "0".into())], "{}", out(&reader, 1));
        let mut kept: Vec<String> = std::fs::read_dir(host.path("lib/backup"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept.len(), 6, "{kept:?}");
        let last = kept.iter().rfind(|n| n.starts_with(&name)).unwrap();
        assert_eq!(std::fs::read_to_string(host.path(&format!("lib/backup/{last}"))).unwrap(), "first");
        assert_eq!(std::fs::read_to_string(host.path("f")).unwrap(), "second");
    }
}

fn locked(host: &Host, generation: u64, pieces: &[Piece]) -> String {
    let change = Change { pieces, generation: Some(generation), holder: "run r of me", guard: None };
    let batch = Batch {
        nonce: NONCE,
        run: "r",
        folders: host.folders(),
        change: Some(change),
        state: true,
        ..Batch::default()
    };
    batch.compose().replace(&format!(" {LOCK_SECONDS}\n"), " 2\n")
}

#[test]
fn a_change_takes_the_lock_and_counts() {
    for shell in shells() {
        let host = Host::new();
        let pieces = [piece(1, &[], &[], run("sleep 30 & :"))];
        let reader = feed(&shell, &locked(&host, 0, &pieces));
        assert_eq!(*reader.ending(), Ending::Complete, "{shell:?}");
        assert_eq!(std::fs::read_to_string(host.path("run/generation")).unwrap(), "2\n");
        // The child of the step doesn't hold the lock; a state that has moved on is left alone.
        let reader = feed(&shell, &locked(&host, 0, &pieces));
        assert_eq!((reader.ending(), codes(&reader)), (&Ending::Moved, vec![]), "{shell:?}");
        let holder = Command::new("flock").args(["--no-fork", &host.path("run/lock"), "sleep", "20"]).spawn();
        std::thread::sleep(Duration::from_millis(300));
        let reader = feed(&shell, &locked(&host, 2, &pieces));
        assert_eq!((reader.ending(), codes(&reader)), (&Ending::Locked("run r of me".into()), vec![]), "{shell:?}");
        assert_eq!(reader.waited_for(), Some("run r of me"));
        let calm = Batch { nonce: NONCE, run: "r", folders: host.folders(), calm: true, ..Batch::default() }.compose();
        let reader = feed(&shell, &calm.replace(&format!("calm {LOCK_SECONDS}"), "calm 2"));
        assert_eq!(*reader.ending(), Ending::Locked("run r of me".into()), "{shell:?}");
        let mut holder = holder.unwrap();
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(*feed(&shell, &calm).ending(), Ending::Complete, "{shell:?}");
        // A change that never came to its end makes what was probed in the middle of it worthless.
        std::fs::write(host.path("run/generation"), "5\n").unwrap();
        let reader = feed(&shell, &locked(&host, 5, &pieces));
        assert_eq!((reader.ending(), codes(&reader)), (&Ending::Moved, vec![]), "{shell:?}");
        assert_eq!(std::fs::read_to_string(host.path("run/generation")).unwrap(), "6\n");
    }
}

#[test]
fn who_waits_for_the_lock_may_go_away() {
    for shell in shells() {
        let host = Host::new();
        let pieces = [piece(1, &[], &[], run(&format!("echo x >>{}", host.path("ran"))))];
        feed(&shell, &locked(&host, 0, &[]));
        let held = |seconds: &str| {
            let holder = Command::new("flock").args(["--no-fork", &host.path("run/lock"), "sleep", seconds]).spawn();
            std::thread::sleep(Duration::from_millis(300));
            holder.unwrap()
        };
        let script = locked(&host, 2, &pieces).replace(" 2\n", " 60\n");
        let flag = Arc::new(AtomicBool::new(false));
        let change = || converse(&shell, Reader::new(NONCE, script.clone()).yields_to(&flag));
        let mut holder = held("60");
        std::thread::scope(|scope| {
            let started = Instant::now();
            let waiting = scope.spawn(change);
            std::thread::sleep(Duration::from_millis(1500));
            flag.store(true, Ordering::Relaxed);
            assert_eq!(*waiting.join().unwrap().ending(), Ending::Interrupted("run r of me".into()), "{shell:?}");
            assert!(started.elapsed() < Duration::from_secs(4), "{shell:?} {:?}", started.elapsed());
        });
        holder.kill().unwrap();
        holder.wait().unwrap();
        flag.store(false, Ordering::Relaxed);
        let mut holder = held("1.5");
        assert!(!Path::new(&host.path("ran")).exists(), "{shell:?}");
        let reader = change();
        assert_eq!((reader.ending(), codes(&reader)), (&Ending::Complete, vec![(1, "0".into())]), "{shell:?}");
        assert_eq!(reader.waited_for(), Some("run r of me"));
        assert_eq!(std::fs::read_to_string(host.path("ran")).unwrap(), "x\n");
        holder.wait().unwrap();
    }
    // Interrupted between the last wait and its turn.
    for (interrupted, wanted) in [(true, Reply::Finish), (false, Reply::Write { bytes: b"go\n".to_vec(), end: true })] {
        let flag = Arc::new(AtomicBool::new(false));
        let mut reader = Reader::new(NONCE, String::new()).yields_to(&flag);
        assert_eq!(reader.begin(), Reply::Write { bytes: Vec::new(), end: false });
        assert_eq!(reader.stdout(format!("\n{NONCE} begin\n\n{NONCE} waiting run x\n").as_bytes()), Reply::More);
        flag.store(interrupted, Ordering::Relaxed);
        assert_eq!(reader.stdout(format!("\n{NONCE} turn\n").as_bytes()), wanted);
    }
}

/// The generation that a probe reads.
fn generation(shell: &[&str], host: &Host) -> u64 {
    let batch = Batch { nonce: NONCE, run: "r", folders: host.folders(), state: true, ..Batch::default() };
    let state = feed(shell, &batch.compose()).state().unwrap();
    state.lines().next().unwrap().strip_prefix("root ").unwrap().parse().unwrap()
}

#[test]
fn what_is_probed_during_a_change_is_too_old_to_change_anything() {
    for shell in shells() {
        let host = Host::new();
        let pieces = [piece(1, &[], &[], run("sleep 0.7"))];
        std::thread::scope(|scope| {
            let change = scope.spawn(|| feed(&shell, &locked(&host, 0, &pieces)));
            std::thread::sleep(Duration::from_millis(350));
            let during = generation(&shell, &host);
            change.join().unwrap();
            assert_eq!((during, generation(&shell, &host)), (1, 2), "{shell:?}");
            assert_eq!(*feed(&shell, &locked(&host, during, &[])).ending(), Ending::Moved, "{shell:?}");
        });
        // Nor is it known how far one came that was broken off.
        std::fs::write(host.path("run/generation"), "3\n").unwrap();
        assert_eq!(*feed(&shell, &locked(&host, 3, &[])).ending(), Ending::Moved, "{shell:?}");
        assert_eq!(*feed(&shell, &locked(&host, 4, &[])).ending(), Ending::Complete, "{shell:?}");
        assert_eq!(generation(&shell, &host), 6, "{shell:?}");
        // What no run has written is no number: octal to a shell, or too large for one.
        for odd in ["08\n", "99999999999999999999999\n", "-1\n", "x\n", "\n", ""] {
            std::fs::write(host.path("run/generation"), odd).unwrap();
            assert_eq!(generation(&shell, &host), 0, "{shell:?} {odd:?}");
            assert_eq!(*feed(&shell, &locked(&host, 0, &[])).ending(), Ending::Complete, "{shell:?} {odd:?}");
            assert_eq!(generation(&shell, &host), 2, "{shell:?} {odd:?}");
        }
    }
}

#[test]
fn a_host_that_can_not_be_locked_is_not_changed() {
    let host = Host::new();
    std::fs::write(host.path("run"), "a file").unwrap();
    let done = host.path("done");
    let reader = feed(&["/bin/sh"], &locked(&host, 0, &[piece(1, &[], &[], run(&format!("touch {done}")))]));
    assert_eq!(*reader.ending(), Ending::Unlockable(format!("{} can't be written: File exists", host.path("run"))));
    assert!(!Path::new(&done).exists());
}

#[test]
fn what_is_owed_is_noted_and_settled() {
    let owed = |run: &str| Owed { address: "service:x/'\n$(y)".into(), title: "restart\n it".into(), run: run.into() };
    for shell in shells() {
        let host = Host::new();
        let pieces = [Piece::of_test(1, &[], &[], Work::Owe(owed("r1")), 5)];
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(codes(&reader), [(1, "0".into())], "{}", out(&reader, 1));
        let batch = |pieces| Batch {
            nonce: NONCE,
            run: "r",
            folders: host.folders(),
            change: Some(Change { pieces, generation: None, holder: "", guard: None }),
            state: true,
            ..Batch::default()
        };
        let reader = feed(&shell, &batch(&[]).compose());
        if rustix_is_root() {
            assert_eq!(reader.state().unwrap(), "root 0\nservice:x/' $(y)\nrestart  it\nr1\n", "{shell:?}");
        } else {
            assert_eq!(reader.state().unwrap(), "");
        }
        let settle = [Piece::of_test(1, &[], &[], Work::Settle(owed("r2")), 5)];
        feed(&shell, &batch(&settle).compose());
        assert_eq!(std::fs::read_dir(host.path("lib/owed")).unwrap().count(), 0);
    }
}

fn rustix_is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout == b"0\n"
}

#[test]
fn output_without_end_costs_no_memory() {
    let mut reader = Reader::new(NONCE, String::new());
    reader.stdout(format!("\n{NONCE} begin\n").as_bytes());
    let chunk = vec![b'\n'; 1 << 20];
    for _ in 0..100 {
        assert_eq!(reader.stdout(&chunk), Reply::More);
    }
    reader.stdout(format!("\n{NONCE} {FRAGMENTS} 0 0\n\n\n{NONCE} end\n").as_bytes());
    assert_eq!(*reader.ending(), Ending::Complete);
    let outputs = reader.outputs(&[read("")]);
    assert!(outputs[0].as_ref().is_err_and(|t| t.message.contains("more than 1 MiB")), "{outputs:?}");
    let mut reader = Reader::new(NONCE, String::new());
    reader.stdout(&vec![b'x'; MAX_OUTPUT * 8]);
    assert_eq!((reader.ending(), reader.noise().len()), (&Ending::Silent, 4096));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_bytes_reach_the_file(body in prop::collection::vec(any::<u8>(), 0..9000), name in "[^/\u{0}]{1,40}") {
        prop_assume!(name != "." && name != "..");
        for shell in shells() {
            let host = Host::new();
            let pieces = [piece(1, &[], &[], Step::Put(put(host.path(&name), &body)))];
            let reader = feed(&shell, &host.batch(&pieces, &[]));
            prop_assert_eq!(codes(&reader), vec![(1, "0".to_owned())], "{}", out(&reader, 1));
            prop_assert_eq!(&std::fs::read(host.path(&name)).unwrap(), &body);
        }
    }

    #[test]
    fn any_output_comes_through(data in prop::collection::vec(any::<u8>(), 0..3000), cut in 1usize..50) {
        let mut stream = format!("noise\n\n{NONCE} begin\n").into_bytes();
        stream.extend_from_slice(&data);
        stream.extend_from_slice(format!("\n{NONCE} {FRAGMENTS} 3 4\nerr\n\n\n{NONCE} end\n").as_bytes());
        let mut reader = Reader::new(NONCE, String::new());
        for piece in stream.chunks(cut) {
            reader.stdout(piece);
        }
        prop_assert_eq!(reader.ending(), &Ending::Complete);
        let expected = Output { code: 3, stdout: data, stderr: b"err\n".to_vec() };
        prop_assert_eq!(reader.outputs(&[read("")]), vec![Ok(expected)]);
        prop_assert_eq!(reader.noise(), "noise");
    }
}

#[test]
fn what_validate_refuses_costs_no_backup_and_may_be_loud() {
    for shell in shells() {
        let host = Host::new();
        std::fs::write(host.path("f"), "first").unwrap();
        let with = |text: &str| Put {
            backup: true,
            validate: Some(Script::new().user(text)),
            ..put(host.path("f"), b"second")
        };
        let pieces = [
            piece(1, &[], &[], Step::Put(with("exit 3"))),
            piece(2, &[], &[], Step::Put(with("sleep 60 & head -c 300000 /dev/zero | tr '\\000' x; exit 4"))),
        ];
        let started = Instant::now();
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert!(started.elapsed() < Duration::from_secs(10), "{shell:?} waited for a child");
        assert_eq!(codes(&reader), [(1, "1".into()), (2, "1".into())], "{shell:?}");
        assert!(out(&reader, 2).len() <= 65536 && out(&reader, 2).contains("(exit code 4)"), "{shell:?}");
        assert!(!Path::new(&host.path("lib")).exists(), "{shell:?}");
        assert_eq!(std::fs::read_to_string(host.path("f")).unwrap(), "first");
    }
}

#[test]
fn an_old_timeout_is_used_as_it_can_be() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    // What older versions of busybox have: without -k, and before that with the seconds behind -t only.
    for (said, code) in [("[ \"$1\" != -k ] || exit 1; exec /usr/bin/timeout \"$@\"", "124"), ("[ \"$1\" = -t ]", "0")]
    {
        let host = Host::new();
        std::fs::create_dir(host.path("bin")).unwrap();
        std::fs::write(host.path("bin/old"), format!("#!/bin/sh\n{said}\n")).unwrap();
        std::fs::set_permissions(host.path("bin/old"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("old", host.path("bin/timeout")).unwrap();
        let pieces =
            [piece(1, &[], &[], run("echo ran; exit 7")), Piece::of_test(2, &[], &[], Work::Step(run("sleep 3")), 1)];
        for shell in shells() {
            let script = host.batch(&pieces, &[]).replacen("PATH=", &format!("PATH={}:", host.path("bin")), 1);
            let reader = feed(&shell, &script);
            assert_eq!(codes(&reader), [(1, "7".into()), (2, code.into())], "{shell:?} {said}");
        }
    }
}

#[test]
fn a_host_that_prints_without_end_fills_no_memory() {
    let mut reader = Reader::new(NONCE, String::new());
    reader.stdout(format!("\n{NONCE} begin\n").as_bytes());
    let megabyte = vec![b'x'; 1 << 20];
    for index in 0..70 {
        reader.stdout(&megabyte);
        reader.stdout(format!("\n{NONCE} {} 0 0\n\n", FRAGMENTS + index).as_bytes());
    }
    reader.stdout(format!("\n{NONCE} end\n").as_bytes());
    assert_eq!(reader.ending(), &Ending::Complete);
    let outputs = reader.outputs(&vec![Fragment::from(Script::new()); 70]);
    assert!(outputs[..63].iter().all(|o| o.as_ref().is_ok_and(|o| o.stdout.len() == 1 << 20)));
    assert!(outputs[64..].iter().all(|o| o.as_ref().is_err_and(|t| t.message.contains("more than 64 MiB"))));

    let mut reader = Reader::new(NONCE, String::new());
    reader.stdout(format!("\n{NONCE} begin\n").as_bytes());
    let frames: String = (0..300_000).map(|i| format!("\n{NONCE} {i} 0 0\n\n")).collect();
    assert!(frames.as_bytes().chunks(1 << 16).any(|c| reader.stdout(c) == Reply::Finish));
    assert_eq!(reader.ending(), &Ending::Broken);
}

#[test]
fn what_depends_on_a_part_runs_if_that_part_succeeded() {
    let text = "echo common; echo '== 1 0'; echo '== parts'; echo '== 1 1'; echo 'no such'; echo '== 2 0'";
    let joint = |text: &str, parts| Piece::of_test(1, &[], &[], Work::Joint(run(text), parts), 5);
    let part = |id, all: &[u32]| Piece::of_test(id, all, &[], Work::Part, 5);
    for shell in shells() {
        let host = Host::new();
        let after = |id, all: &[u32]| piece(id, all, &[], run("echo ran"));
        let pieces = [joint(text, vec![2, 3]), part(2, &[]), part(3, &[]), after(4, &[2]), after(5, &[3])];
        let reader = feed(&shell, &host.batch(&pieces, &[]));
        assert_eq!(codes(&reader), [(1, "0".into()), (4, "skip".into()), (5, "0".into())], "{shell:?}");
        assert!(out(&reader, 1).starts_with("common\n") && out(&reader, 1).ends_with("== 2 0\n"));
        // One that failed as a whole, and one that was skipped while the output of another is still there.
        for first in [run("echo '== parts'; echo '== 1 0'; exit 1"), run("exit 1")] {
            let skipped = Piece::of_test(9, &[8], &[], Work::Joint(run(text), vec![3]), 5);
            let pieces = [piece(8, &[], &[], first), skipped, part(3, &[8]), after(5, &[3])];
            let reader = feed(&shell, &host.batch(&pieces, &[]));
            assert_eq!(codes(&reader), [(5, "skip".into()), (8, "1".into()), (9, "skip".into())], "{shell:?}");
        }
        let pieces = [joint("echo '== parts'; echo '== 1 0'; exit 3", vec![2]), part(2, &[]), after(5, &[2])];
        assert_eq!(codes(&feed(&shell, &host.batch(&pieces, &[]))), [(1, "3".into()), (5, "skip".into())]);
    }
}
