//! Runs probes and steps for real in the shells that hosts have, for the tests of types.

use super::{
    Answers, AnyResource, Assessment, Env, Inquiry, Output, Predicate, Put, Question, Reading, Resource, Spec, Step,
    Weight, spec,
};
use crate::error::Error;
use crate::source::{Source, Span};
use crate::yaml::Node;
use proptest::strategy::Strategy;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};

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

    /// Runs a script as a user who may read what is in this folder, and write nothing.
    pub(crate) fn run_as_nobody(self, folder: &Path, script: &str) -> Output {
        let mode = |mode| std::fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        mode(0o555);
        let root = rustix::process::getuid().is_root();
        let drop = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let output = self.run_by(if root { &drop } else { &[] }, script);
        mode(0o755);
        output
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
                Step::Share(share) => self.run(share.of.script(&[&share.part], 60).as_str()),
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

/// A playbook without files, in which an expression holds for an output that has it as text.
struct Bare;

impl Env for Bare {
    fn file(&self, src: &Node) -> Result<Vec<u8>, Error> {
        Err(Error::playbook(&src.span, "there are no files"))
    }
    fn template(&self, src: &Node) -> Result<String, Error> {
        Err(Error::playbook(&src.span, "there are no templates"))
    }
    fn holds(&self, expression: &Node) -> Result<bool, Error> {
        Ok(expression.as_bool() == Some(true))
    }
    fn predicate(&self, expression: &Node) -> Result<Predicate, Error> {
        let text = expression.text().unwrap_or_default().to_owned();
        Ok(Arc::new(move |_, output| Ok(output.contains(&text))))
    }
}

fn nowhere() -> Span {
    Span::at(&Source::new("trial", ""), 1, 1, 1)
}

/// One string, or a list of several.
pub(crate) fn strings(texts: &[&str]) -> Node {
    let at = nowhere();
    match texts {
        [text] => Node::string(&at, *text),
        texts => Node::seq(&at, texts.iter().map(|text| Node::string(&at, *text)).collect()),
    }
}

/// A resource of these keys; `false` is a truth value, all else a string.
pub(crate) fn parse<R: Resource>(keys: &[(&'static str, &str)]) -> Result<R, Error> {
    let node = |text: &str| if text == "false" { Node::bool(&nowhere(), false) } else { strings(&[text]) };
    parse_nodes(keys.iter().map(|(key, text)| (*key, node(text))).collect())
}

/// A resource of these keys.
pub(crate) fn parse_nodes<R: Resource>(keys: Vec<(&'static str, Node)>) -> Result<R, Error> {
    let at = nowhere();
    let node = Node::map(&at, keys.into_iter().map(|(key, node)| (Node::string(&at, key), node)).collect());
    if let Some(error) = spec::check(R::TYPE, &node, R::KEYS).into_iter().next() {
        return Err(error);
    }
    R::parse(&Spec { node: &node, env: &Bare, title: Some("trial"), handler: false, image: false })
}

/// Makes a resource so on this machine and looks whether it is: what was found before, or why not.
pub(crate) fn settle(shell: Shell, resource: &dyn AnyResource) -> Result<Assessment, String> {
    let assess = || match resource.assess(&ask(shell, resource.probe())) {
        Ok(Reading::State(found)) => match &found.obstacle {
            Some(obstacle) if obstacle.weight != Weight::Foreseen => Err(obstacle.trouble.message.clone()),
            _ => Ok(found),
        },
        Ok(Reading::NotYet(why)) | Err(why) => Err(why.message),
    };
    let before = assess()?;
    shell.steps(&before.steps).map_err(|failed| format!("exit code {}: {}", failed.code, failed.complaint()))?;
    match assess()?.remaining.first() {
        Some(left) => Err(format!("{}: {} is not {}", left.field, left.from, left.to)),
        None => Ok(before),
    }
}

/// Any name that a file can have.
pub(crate) fn name() -> impl Strategy<Value = String> {
    "[^/\u{0}]{1,20}".prop_filter("no name of a file", |name| !name.chars().all(|c| c == '.'))
}

/// An attribute of the user's, and an ACL by which one more user may read: as the kernel keeps them.
const MARKS: [(&str, &[u8]); 2] = [
    ("user.netplay", b"kept"),
    (
        "system.posix_acl_access",
        b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x39\x30\0\0\x04\0\x04\0\xff\xff\xff\xff\
          \x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff",
    ),
];

/// Gives a file extended attributes and an ACL, with mode 0640.
pub(crate) fn mark(path: &str) {
    std::fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    for (name, value) in MARKS {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    }
}

/// Whether a file has all that [`mark`] gives.
pub(crate) fn marked(path: &str) -> bool {
    MARKS.iter().all(|(name, value)| {
        let mut got = [0; 256];
        rustix::fs::getxattr(path, *name, &mut got[..]).is_ok_and(|n| got[..n] == **value)
    })
}
