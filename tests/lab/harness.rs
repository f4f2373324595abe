//! What the tests on real hosts are written with: hosts of the lab, and runs of netplay against them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A run of netplay or of a tool that takes longer than this is killed, and its test fails.
const DEADLINE_SECONDS: u32 = 300;

/// Where commands are looked for, here and on a host.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The lab's command.
pub(crate) const LAB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lab");

/// What `lab env` says: files, users and hosts of the lab that is up.
static ENV: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let output = Command::new(LAB).arg("env").output().expect("tests/lab/lab runs");
    assert!(
        output.status.success(),
        "the tests on real hosts need a lab: run tests/run, or start one with `tests/lab/lab up`\n{}",
        text(&output.stderr)
    );
    let pairs = text(&output.stdout);
    pairs
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('\'').to_owned()))
        .collect()
});

/// The hosts that no test has at the moment, by kind.
static FREE: LazyLock<Mutex<BTreeMap<Kind, Vec<String>>>> = LazyLock::new(|| {
    Mutex::new([Kind::Fleet, Kind::Hidden, Kind::Sysd, Kind::Vm].map(|kind| (kind, all(kind))).into())
});
static RETURNED: Condvar = Condvar::new();

/// What kind of host a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Cheap: namespaces with sshd as the first process, no systemd.
    Fleet,
    /// As `Fleet`, and reached through [`bastion`] only.
    Hidden,
    /// A real systemd that really reboots.
    Sysd,
    /// A whole machine with a kernel of its own. It takes long to boot: unlike the others it isn't renewed for each test,
    /// and a test leaves it as it was.
    Vm,
}

/// The host that is the controller of the Slurm cluster, if there is one. No test gets it as a host of its own.
pub(crate) fn slurm_controller() -> Option<&'static str> {
    ENV.get("LAB_SLURM").map(String::as_str)
}

/// One value of `lab env`, such as `LAB_PASSWORD`.
pub(crate) fn env(key: &str) -> &'static str {
    ENV.get(key).unwrap_or_else(|| panic!("`lab env` has no {key}"))
}

/// The host through which the hidden ones are reached. No test gets it as a host of its own.
pub(crate) fn bastion() -> &'static str {
    "np0001"
}

/// The names of all hosts of a kind that tests can get.
pub(crate) fn all(kind: Kind) -> Vec<String> {
    let key = match kind {
        Kind::Fleet => "LAB_FLEET",
        Kind::Hidden => "LAB_HIDDEN",
        Kind::Sysd => "LAB_SYSD",
        Kind::Vm => "LAB_VM",
    };
    let own = |name: &&str| *name != bastion() && Some(*name) != slurm_controller();
    env(key).split_whitespace().filter(own).map(str::to_owned).collect()
}

/// Hosts that belong to one test until they are dropped, each as new.
#[derive(Debug)]
#[must_use]
pub(crate) struct Hosts {
    kind: Kind,
    names: Vec<String>,
}

impl Hosts {
    /// Waits until so many hosts are free, and renews them, unless they are [`Kind::Vm`].
    ///
    /// # Panics
    /// When the lab has fewer: such a test can't run, and mustn't pass.
    pub(crate) fn take(kind: Kind, count: usize) -> Self {
        let have = all(kind).len();
        assert!(have >= count, "this test needs {count} hosts of kind {kind:?}, and the lab has {have} for tests");
        let mut free = FREE.lock().unwrap();
        while free[&kind].len() < count {
            free = RETURNED.wait(free).unwrap();
        }
        let names: Vec<String> = free.get_mut(&kind).unwrap().drain(..count).collect();
        drop(free);
        let hosts = Self { kind, names };
        if kind != Kind::Vm {
            lab(["renew"].into_iter().chain(hosts.names()));
        }
        hosts
    }

    /// The names, in the inventory's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The first host, or the only one.
    pub(crate) fn first(&self) -> Host<'_> {
        Host(&self.names[0])
    }

    /// Each host.
    pub(crate) fn each(&self) -> impl Iterator<Item = Host<'_>> {
        self.names.iter().map(|name| Host(name))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if self.kind == Kind::Vm && std::thread::panicking() {
            // A test that failed hasn't put it back as it was. What comes of this the next test sees.
            let _ = Command::new(LAB).arg("renew").args(&self.names).status();
        }
        if let Ok(mut free) = FREE.lock() {
            let names = free.entry(self.kind).or_default();
            names.append(&mut self.names);
            names.sort();
        }
        RETURNED.notify_all();
    }
}

/// One host of the lab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'a>(pub(crate) &'a str);

impl Host<'_> {
    /// Runs a script as root in the host, without ssh, and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) fn sh(self, script: &str) -> String {
        let Some(host) = self.process() else { return lab(["exec", self.0, "sh", "-ec", script]) };
        // As `lab exec` does, which takes 20 times as long to start as this does, a third of all the time of these tests.
        let mut command = timed("nsenter");
        let spaces =
            [("mount", "mnt"), ("uts", "uts"), ("ipc", "ipc"), ("net", "net"), ("pid", "pid"), ("cgroup", "cgroup")];
        command.args(spaces.map(|(option, file)| format!("--{option}={host}/ns/{file}")));
        command.args([format!("--root={host}/root"), format!("--wd={host}/root")]).args(["--", "sh", "-ec", script]);
        let variables = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root"), ("SHELL", "/bin/bash")];
        command.env_clear().envs(variables).envs([("PATH", PATH), ("LC_ALL", "C.UTF-8")]);
        succeeds(command)
    }

    /// Where the kernel tells of the host's first process, if it has one on this machine.
    fn process(self) -> Option<String> {
        let entry = self.entry();
        if entry["state"] == "off" || entry["kind"] == "vm" {
            return None;
        }
        // As the lab's own processes see it: its numbers of processes are others.
        let proc = format!("/proc/{}/root/proc", env("LAB_PID"));
        let mut pid = entry["pid"].to_string();
        if entry["kind"] == "sysd" {
            // That of systemd-nspawn, of which systemd is a child.
            let children = std::fs::read_to_string(format!("{proc}/{pid}/task/{pid}/children")).ok()?;
            pid = children.split_whitespace().last()?.to_owned();
        }
        Some(format!("{proc}/{pid}"))
    }

    /// What the lab knows of the host, as it wrote it down last.
    fn entry(self) -> serde_json::Value {
        let path = Path::new(env("LAB_INVENTORY")).with_file_name("state.json");
        let known: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        known[self.0].clone()
    }

    /// How many executions the host's sshd has started since the host is new.
    pub(crate) fn sessions(self) -> usize {
        lab(["sessions", self.0]).split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Puts a simulated card on the host, or does something else with it: the words of `simulated-card` (docs/lab.md).
    pub(crate) fn card(self, words: &str) -> String {
        self.sh(&format!("simulated-card {words}"))
    }

    /// Switches a fault on, or all off with `none`: the words of `lab fault HOST` (docs/lab.md).
    pub(crate) fn fault(self, words: &str) {
        lab(["fault", self.0].into_iter().chain(words.split(' ')));
    }

    /// Stops every process of the host; its kernel still accepts connections.
    pub(crate) fn freeze(self) {
        lab(["freeze", self.0]);
    }

    /// Lets a frozen host go on.
    pub(crate) fn thaw(self) {
        lab(["thaw", self.0]);
    }

    /// Ends the host at once and waits until it has booted again; its files stay.
    pub(crate) fn reset(self) {
        lab(["reset", self.0]);
    }

    /// Has the host reboot as an operator does, and waits until it is up again.
    pub(crate) fn reboot(self) {
        let boots = self.boots();
        ssh(self.0, "systemctl reboot");
        self.wait_for_boot(boots + 1);
    }

    /// How often the host has booted since the lab is up.
    pub(crate) fn boots(self) -> u32 {
        self.status().1
    }

    /// Waits until the host is up and has booted so often.
    ///
    /// # Panics
    /// When that takes more than a minute, or five where a kernel boots under software emulation.
    pub(crate) fn wait_for_boot(self, boots: u32) {
        let start = Instant::now();
        let limit = if self.0.starts_with("vm") { 300 } else { 60 };
        while self.status() != ("up".to_owned(), boots) {
            assert!(start.elapsed().as_secs() < limit, "{} not up after {limit} s: {:?}", self.0, self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// State, such as `up` or `off`, and number of boots.
    pub(crate) fn status(self) -> (String, u32) {
        let entry = self.entry();
        (entry["state"].as_str().unwrap().to_owned(), entry["boots"].as_u64().unwrap().try_into().unwrap())
    }

    /// The address on the management network.
    pub(crate) fn address(self) -> String {
        self.sh("ip -4 -o addr show dev eth0").split_whitespace().nth(3).unwrap().replace("/16", "")
    }

    /// What identifies this boot.
    pub(crate) fn boot_id(self) -> String {
        self.sh("cat /proc/sys/kernel/random/boot_id").trim().to_owned()
    }
}

/// What the lab has seen of some hosts' availability since a moment. A host is unavailable from the beginning of its
/// shutdown, or from its sudden end, until its sshd listens again.
#[derive(Debug)]
pub(crate) struct Trace {
    names: Vec<String>,
    earlier: usize,
}

impl Trace {
    /// Begins now, with all hosts available.
    pub(crate) fn begin(hosts: &Hosts) -> Self {
        let mut trace = Self { names: hosts.names().map(str::to_owned).collect(), earlier: 0 };
        trace.earlier = trace.events().len();
        trace
    }

    /// Seconds of the machine's uptime, the host, and whether it became available.
    pub(crate) fn events(&self) -> Vec<(f64, String, bool)> {
        let told = lab(["trace"].into_iter().chain(self.names.iter().map(String::as_str)));
        let event = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            (words[0].parse().unwrap(), words[1].to_owned(), words[2] == "up")
        };
        told.lines().skip(self.earlier).map(event).collect()
    }

    /// How many hosts were unavailable at once, at most.
    pub(crate) fn most_down(&self) -> usize {
        let mut down = BTreeSet::new();
        let after = |(_, name, up): (f64, String, bool)| {
            if up {
                down.remove(&name)
            } else {
                down.insert(name)
            };
            down.len()
        };
        self.events().into_iter().map(after).max().unwrap_or_default()
    }
}

/// Runs the lab's command and returns what it printed.
///
/// # Panics
/// When it fails.
pub(crate) fn lab<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = timed(LAB);
    command.args(arguments);
    succeeds(command)
}

/// A command that is killed at the deadline.
fn timed(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &DEADLINE_SECONDS.to_string(), program]).stdin(Stdio::null());
    command
}

/// What has a command run where the hosts can be reached, as `lab ctl` does, but starts at once.
fn ctl() -> [String; 3] {
    ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", env("LAB_PID")), "--".to_owned()]
}

/// What a command printed.
///
/// # Panics
/// When it fails.
fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The system's ssh client, run where the hosts can be reached, with the lab's configuration.
pub(crate) fn ssh(target: &str, command: &str) -> Output {
    Command::new("timeout")
        .args(["--kill-after=5", &DEADLINE_SECONDS.to_string()])
        .args(ctl())
        .args(["ssh", "-F", env("LAB_SSH_CONFIG")])
        // OpenSSH's usual key exchange costs both sides together a fifth of a second.
        .args([
            "-o",
            "KexAlgorithms=curve25519-sha256",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=10",
            target,
            command,
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A run of netplay in the controller's namespace, with a folder of its own as its working and home folder.
#[derive(Debug)]
#[must_use]
pub(crate) struct Netplay {
    folder: TempDir,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    stdin: Vec<u8>,
}

impl Netplay {
    /// A run with these arguments. The folder has `inventory.yaml`: the lab's connection variables
    /// and, in a group of their kind's name, these hosts alone.
    pub(crate) fn new(hosts: &Hosts, arguments: &[&str]) -> Self {
        let whole = std::fs::read_to_string(env("LAB_INVENTORY")).unwrap();
        // The lab writes a host a line, `        np0002: {ansible_host: …}`.
        let ours = |line: &str| {
            let host = line.strip_prefix("        ").and_then(|line| line.split_once(": {")).map(|(name, _)| name);
            host.is_none_or(|name| hosts.names().any(|ours| ours == name))
        };
        let mut lines: Vec<&str> = whole.lines().filter(|line| ours(line)).collect();
        for i in 0..lines.len() {
            if lines[i] == "      hosts:" && !lines.get(i + 1).is_some_and(|next| next.starts_with("        ")) {
                lines[i] = "      hosts: {}";
            }
        }
        Self::bare(arguments).file("inventory.yaml", &(lines.join("\n") + "\n"))
    }

    /// A run with these arguments, and an empty folder.
    pub(crate) fn bare(arguments: &[&str]) -> Self {
        Self {
            folder: TempDir::with_prefix("netplay-lab-test-").unwrap(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            variables: Vec::new(),
            stdin: Vec::new(),
        }
    }

    /// Writes a file into the folder.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// The same with more arguments, in the same folder.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Other arguments in the same folder.
    pub(crate) fn instead(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    /// Sets an environment variable.
    pub(crate) fn variable(mut self, key: &str, value: &str) -> Self {
        self.variables.push((key.to_owned(), value.to_owned()));
        self
    }

    /// What the run reads from standard input; nothing unless this is called.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// A path in the folder.
    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Runs to the end. Can be called again: the folder stays.
    ///
    /// # Panics
    /// When the run takes longer than five minutes.
    pub(crate) fn run(&self) -> Run {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &DEADLINE_SECONDS.to_string()]).args(ctl());
        let run = Run::from(self.spawn(command).wait_with_output().unwrap());
        assert!(run.code != Some(137) && run.code.is_some(), "killed, or not done in {DEADLINE_SECONDS} s: {run:?}");
        run
    }

    /// Starts it, to be killed or watched. The child's pid is netplay's own.
    pub(crate) fn start(&self) -> Child {
        let [program, arguments @ ..] = ctl();
        let mut command = Command::new(program);
        command.args(arguments);
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Child {
        let netplay = std::env::var("NETPLAY_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_netplay").to_owned());
        let home = self.folder.path();
        command.arg(netplay).args(&self.arguments).current_dir(home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The environment is a new user's, apart from where this lab is.
        let lab = env("NETPLAY_LAB");
        command.env_clear().envs([("PATH", PATH), ("HOME", home.to_str().unwrap()), ("NETPLAY_LAB", lab)]);
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        let mut child = command.spawn().unwrap();
        // A run that doesn't read its input, or ends before, is none of our business.
        let _ = child.stdin.take().unwrap().write_all(&self.stdin);
        child
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
    }
}

impl Run {
    /// Asserts the exit code, and shows both outputs when it is another.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert!(
            self.code == Some(code),
            "exit code {:?} instead of {code}\n--- standard output\n{}\n--- standard error\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        self
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
