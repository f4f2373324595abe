//! Runs probes and steps for real in the shells that hosts have, for the tests of types.

use super::{Answers, Inquiry, Output, Put, Question, Step};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// A shell with the tools that go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shell {
    Dash,
    Bash,
    /// busybox' shell, with its tools before all others.
    Busybox,
}

static APPLETS: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let list = Command::new("busybox").arg("--list").output().expect("the tests need busybox");
    let busybox = PathBuf::from("/bin/busybox");
    for applet in String::from_utf8(list.stdout).unwrap().lines() {
        symlink(&busybox, dir.path().join(applet)).unwrap();
    }
    dir
});

impl Shell {
    pub(crate) const ALL: [Shell; 3] = [Shell::Dash, Shell::Bash, Shell::Busybox];

    /// Runs a script as a fragment of a batch is run: in an `eval`, after the prologue, without standard input.
    pub(crate) fn run(self, script: &str) -> Output {
        self.run_by(&[], script)
    }

    /// Runs a script in a network namespace of its own, with a /sys that shows it, which this text has set up by the
    /// machine's own tools.
    pub(crate) fn run_in_net(self, setup: &str, script: &str) -> Output {
        let inside = format!(
            "set -e; tools=$PATH; PATH=/usr/sbin:/sbin:/usr/bin:/bin; mount -t sysfs sysfs /sys\n{setup}\nPATH=$tools; exec \"$@\""
        );
        let user = r#"r=; [ "$(id -u)" = 0 ] || r=-r; exec /usr/bin/unshare $r -nm /bin/sh -c "$@""#;
        self.run_by(&["/bin/sh", "-c", user, "sh", &inside, "sh"], script)
    }

    fn run_by(self, wrapper: &[&str], script: &str) -> Output {
        let shell: &[&str] = match self {
            Shell::Dash => &["/bin/dash"],
            Shell::Bash => &["/bin/bash", "--posix"],
            Shell::Busybox => &["/bin/busybox", "sh"],
        };
        let path = match self {
            Shell::Busybox => format!("{}:", APPLETS.path().display()),
            _ => String::new(),
        } + "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
        let prologue = "LC_ALL=C; export LC_ALL; umask 022; lim() { shift; \"$@\"; }; f=$1; set --; eval \"$f\"";
        let words = [wrapper, shell, &["-c", prologue, "sh", script]].concat();
        let output = Command::new(words[0])
            .args(&words[1..])
            .env("PATH", path)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let code = output.status.code().unwrap_or(255);
        Output { code, stdout: output.stdout, stderr: output.stderr }
    }

    /// Runs steps as the engine does, up to the first that fails: all outputs, or that one.
    pub(crate) fn steps(self, steps: &[Step]) -> Result<Vec<Output>, Output> {
        let run = |step: &Step| {
            let output = match step {
                Step::Run(script) => self.run(script.as_str()),
                Step::Put(put) => self.put(put),
            };
            if output.code == 0 { Ok(output) } else { Err(output) }
        };
        steps.iter().map(run).collect()
    }

    /// Writes a file in the plainest way that keeps what [`Put`] promises.
    fn put(self, put: &Put) -> Output {
        let target = std::fs::canonicalize(&put.path).unwrap_or_else(|_| PathBuf::from(&put.path));
        let new = target.with_file_name(format!(".{}.new", target.file_name().unwrap().to_string_lossy()));
        std::fs::write(&new, &put.body).unwrap();
        let mut script = crate::shell::Script::new().set("file", &new.to_string_lossy());
        if let Some(validate) = &put.validate {
            script = script.line("(").user(validate.as_str()).line(") || { rm -f -- \"$file\"; exit 1; }");
        }
        let target = target.to_string_lossy().into_owned();
        script = script.set("target", &target).set("mode", &format!("{:04o}", put.mode));
        script = match &put.owner {
            Some(owner) => script.set("owner", owner).line(r#"chown -- "$owner" "$file" || exit 1"#),
            None => script,
        };
        script = script.line(r#"chmod -- "$mode" "$file" || exit 1"#);
        script = if put.in_place {
            script.line(r#"cat -- "$file" >"$target" && rm -f -- "$file""#)
        } else {
            script.line(r#"mv -f -- "$file" "$target""#)
        };
        self.run(script.as_str())
    }
}

/// Asks these questions of this machine.
pub(crate) fn ask(shell: Shell, questions: impl IntoIterator<Item = Question>) -> Answers {
    let inquiry = Inquiry::new(questions);
    let outcomes = inquiry.fragments().iter().map(|f| Ok(shell.run(f.script.as_str()))).collect();
    inquiry.answers(outcomes)
}
