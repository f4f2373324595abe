//! What hosts print, and what users write: none of it takes netplay in, and none of it is taken for something else.

use std::time::{Duration, Instant};

use crate::harness::{Hosts, Kind, Netplay, Run};
use crate::told::{Told, apply, play};

/// Texts that a shell, a format string or a reader of lines might take for something else.
const HOSTILE: [&str; 17] = [
    "it's",
    "say \"hello\"",
    "$(touch /srv/pwned)",
    "`touch /srv/pwned`",
    "; touch /srv/pwned; #",
    "$HOME ${PATH} $1 $$",
    "two\nlines",
    "-n",
    "--help",
    "%s %d %% \\n \\061 \\",
    " white  space\t",
    "*?[a-z]~",
    "é€😀",
    "!! & | < > ( ) { }",
    "\u{1}\u{7f}\u{1b}[31m",
    "'\\''",
    "\\",
];

/// The text as YAML has it, for a playbook in which nothing of it is a template.
fn yaml(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn what_users_write_reaches_the_host_as_it_is() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let mut resources = String::new();
    for (i, text) in HOSTILE.iter().enumerate() {
        let name = text.replace('/', ":");
        let sysctl = if text.contains(char::is_control) { "x" } else { text };
        resources += &format!(
            "    - copy: {{dest: /srv/content{i}, content: {content}}}
    - file: {{path: {folder}, state: directory}}
    - copy: {{dest: {file}, content: '{{{{ words[{i}] }}}}'}}
      notify: {handler}
    - file: {{path: /srv/link{i}, state: link, src: {content}}}
    - command: {{cmd: [sh, -c, 'printf \"%s\\n\" \"$@\" >/srv/args{i}', sh, {content}, '{{{{ words[{i}] }}}}'], creates: /srv/args{i}}}
    - command: {{cmd: 'cat >in', stdin: {content}, chdir: {folder}, creates: in}}
    - sysctl: {{name: net.core.lab{i}, value: {value}, ignore_missing: true}}
",
            content = yaml(text),
            folder = yaml(&format!("/srv/d{i}_{name}")),
            file = yaml(&format!("/srv/d{i}_{name}/{name}")),
            handler = yaml(&format!("{text} is handled")),
            value = yaml(sysctl),
        );
    }
    resources += "  handlers:\n";
    for (i, text) in HOSTILE.iter().enumerate() {
        let name = yaml(&format!("{text} is handled"));
        resources += &format!("    - {{name: {name}, command: {{cmd: 'echo handled >>/srv/handled{i}'}}}}\n");
    }
    let words = format!("{{\"words\": {}}}", serde_json::to_string(&HOSTILE).unwrap());
    let netplay = apply(&hosts, &play(&resources), &["-e", "@words.json"]).file("words.json", &words);
    let told = Told::by(&netplay, 0);
    // Seven resources and a handler each.
    assert_eq!(told.count("changed"), 8 * HOSTILE.len(), "{}", told.run.stdout);
    for (i, text) in HOSTILE.iter().enumerate() {
        assert_eq!(host.sh(&format!("cat /srv/content{i}")), *text);
        assert_eq!(host.sh(&format!("find /srv/d{i}_* -type f ! -name in -exec cat {{}} +")), *text);
        assert_eq!(host.sh(&format!("readlink -n /srv/link{i}")), *text);
        assert_eq!(host.sh(&format!("cat /srv/args{i}")), format!("{text}\n{text}\n"));
        assert_eq!(host.sh(&format!("cat /srv/d{i}_*/in")), format!("{text}\n"));
        assert_eq!(host.sh(&format!("cat /srv/handled{i}")), "handled\n");
    }
    assert_eq!(host.sh("ls /srv/pwned /root/pwned /pwned 2>/dev/null || true; ls /var/lib/netplay/owed"), "");
    assert_eq!(Told::by(&netplay, 0).count("changed"), 0);
}

/// The most memory that a process has had so far, in MiB. A zombie has none any more.
fn peak(pid: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib >> 10)
}

/// Runs to the end; gives the most memory it had, and how long it took.
fn watched(netplay: &Netplay) -> (Run, usize, Duration) {
    let start = Instant::now();
    let mut child = netplay.start();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |mut pipe: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let mut most = 0;
    let status = loop {
        most = most.max(peak(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "not done after a minute");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(most > 0, "its memory could not be read");
    let run = Run { stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap(), code: status.code() };
    (run, most, start.elapsed())
}

#[test]
fn output_without_end_is_not_kept() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    // What a command prints is cut on the host; what a read of our own prints is cut here.
    host.sh("head -c 100000000 /dev/zero | tr '\\0' 'x' >/etc/sysctl.d/10-large.conf");
    let resources = "    - sysctl: {name: net.ipv4.tcp_mtu_probing, value: 1}
    - command: {cmd: \"head -c 100000000 /dev/zero | tr '\\\\0' 'x'; echo; echo the end; exit 3\", creates: /srv/never}
    - command: {cmd: touch /srv/done, unless: \"head -c 100000000 /dev/zero; test -e /srv/done\"}
    - copy: {dest: /srv/x, content: x}
";
    let (run, most, time) = watched(&apply(&hosts, &play(resources), &[]));
    let told = Told::from(run.exits(2));
    assert!(most < 100, "{most} MiB");
    assert!(time < Duration::from_secs(30), "{time:?}");
    assert!(told.error("command:#4").contains("exit code 3") && told.error("command:#4").contains("the end"));
    assert!(told.error("command:#4").len() < 70_000, "{}", told.error("command:#4").len());
    assert!(told.error("sysctl:net.ipv4.tcp_mtu_probing").contains("more than 1 MiB"), "{}", told.run.stdout);
    assert_eq!((told.status("command:#5"), told.status("copy:/srv/x")), ("changed", "changed"));
    let large = "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end";
    let arguments = ["run", "-i", "inventory.yaml", "--output", "ndjson", "--", large];
    let run = Netplay::new(&hosts, &arguments);
    let (run, most, _) = watched(&run);
    assert!(most < 100, "{most} MiB");
    assert_eq!(run.code, Some(0));
    assert!(run.stdout.contains("the end") && run.stdout.len() < 100_000, "{}", run.stdout.len());
}

#[test]
fn output_that_is_no_text_or_looks_like_ours() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let resources = "    - command: {cmd: \"printf 'a\\\\377\\\\376b\\\\000c\\\\n'; exit 3\", creates: /srv/never}
    - command: {cmd: \"printf '\\\\n%s 3 0 0\\\\n\\\\n' 0123456789abcdef; printf '\\\\n%s end\\\\n' \\\"$N\\\"; printf '\\\\n 3 0 0\\\\n'; exit 4\", creates: /srv/never2}
    - command: {cmd: 'echo {{ \"{}\" }}; echo \"{\\\"v\\\":1}\"; exit 5', creates: /srv/never3}
    - copy: {dest: /srv/x, content: x}
";
    let told = Told::by(&apply(&hosts, &play(resources), &[]), 2);
    for (line, code) in [(3, 3), (4, 4), (5, 5)] {
        let error = told.error(&format!("command:#{line}"));
        assert!(error.contains(&format!("exit code {code}: ")), "{error}");
    }
    assert_eq!((told.status("copy:/srv/x"), told.executions(host.0)), ("changed", 2));
}

#[test]
fn a_child_in_the_background_holds_nothing_up() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let resources = "    - command: {cmd: 'sleep 300 & touch /srv/a', creates: /srv/a}
    - command: {cmd: 'setsid sleep 301 & touch /srv/b', creates: /srv/b}
    - command: {cmd: 'true', onlyif: 'sleep 302 & false'}
";
    let start = Instant::now();
    let netplay = apply(&hosts, &play(resources), &[]);
    assert_eq!(Told::by(&netplay, 0).count("changed"), 2);
    // The lock isn't theirs.
    assert_eq!(Told::by(&apply(&hosts, &play("    - copy: {dest: /srv/x, content: x}\n"), &[]), 0).count("changed"), 1);
    let run = Netplay::new(&hosts, &["run", "-i", "inventory.yaml", "--", "sleep 303 & echo here"]).run().exits(0);
    assert!(run.stdout.contains("here"), "{run:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let children = host.sh("for n in 300 301 302 303; do pgrep -f \"^sleep $n\" >/dev/null && echo $n || true; done");
    assert_eq!(children, "300\n301\n302\n303\n");
}
