//! One execution's script: steps, then a probe, in one brace group.
//!
//! A shell reads a script as it comes, so nothing of it may run before all of it has arrived: the whole batch is one
//! `{ …; exit 0; }` with nothing behind it. Cut anywhere, it is a syntax error and does nothing.

use crate::plan::{Guard, Owed, Piece, Work};
use crate::resource::{Fragment, Put, Step};
use crate::shell::{LED, REPLACE, Script, print_bytes, quote};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Where netplay keeps its state on a host.
#[derive(Debug, Clone)]
pub struct Folders {
    /// What survives a reboot.
    pub state: String,
    /// What doesn't.
    pub run: String,
}

impl Folders {
    /// The note that the handler of this address is owed.
    pub fn owed(&self, address: &str) -> String {
        format!("{}/owed/{}", self.state, file_name(address))
    }
}

impl Default for Folders {
    fn default() -> Folders {
        Folders { state: "/var/lib/netplay".to_owned(), run: "/run/netplay".to_owned() }
    }
}

/// The number of the frame that tells netplay's own state.
pub const STATE: u32 = 0;
/// Frames of a probe's fragments are numbered from here; those of steps are below.
pub const FRAGMENTS: u32 = 1 << 20;
/// Seconds that a change waits for the host's lock.
pub const LOCK_SECONDS: u32 = 60;

/// What one execution is to do.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// A random word that no output can hold by chance; it opens and closes the frames.
    pub nonce: &'a str,
    /// The run's id.
    pub run: &'a str,
    /// Where the state is.
    pub folders: Folders,
    /// Steps to run before the probe.
    pub change: Option<Change<'a>>,
    /// What was armed before is waited for, for so many seconds; and what is done with it.
    pub found: Option<(u32, Verb)>,
    /// Whether it first waits until no change is under way on the host.
    pub calm: bool,
    /// Whether netplay's own state is read.
    pub state: bool,
    /// What is probed.
    pub fragments: &'a [Fragment],
}

/// The steps of a [`Batch`].
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The steps in their order.
    pub pieces: &'a [Piece],
    /// The generation of the host's state that the steps were made for; nothing without root's rights, where no lock
    /// can be taken.
    pub generation: Option<u64>,
    /// Who changes, for others that wait: `run 7f3a of root@head1`.
    pub holder: &'a str,
    /// How the steps are taken back unless a new connection confirms them.
    pub guard: Option<&'a Guard>,
}

/// What is done with what was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Nothing.
    Look,
    /// It stays: it is disarmed.
    Keep,
    /// It is taken back at once.
    Undo,
}

const PROLOGUE: &str = "\
PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin; LC_ALL=C; export PATH LC_ALL
umask 022; unset ENV BASH_ENV CDPATH IFS; cd /
SESSION=${1-} OK=' '
";

/// What is sent of `batch.sh`: paragraphs by the name of their function, the first without one.
static FUNCTIONS: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
    let paragraph = |text: &'static str| {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        let sent = lines.clone().fold(String::new(), |all, l| all + l + "\n");
        let name = lines.clone().next().and_then(|l| l.split_once("()")).map_or("", |(name, _)| name);
        (name, sent)
    };
    include_str!("batch.sh").split("\n\n").map(paragraph).filter(|(_, sent)| !sent.is_empty()).collect()
});

fn functions(out: &mut String, needed: impl Fn(&str) -> bool) {
    for (_, text) in FUNCTIONS.iter().filter(|(name, _)| needed(name)) {
        out.push_str(text);
    }
}

/// The function `standing`, for a script that needs nothing else of it, but L and R.
pub static STANDING: LazyLock<String> = LazyLock::new(|| {
    let mut out = String::new();
    functions(&mut out, |name| matches!(name, "forsaken" | "standing"));
    out
});

impl Batch<'_> {
    /// The script.
    pub fn compose(&self) -> String {
        let Folders { state, run } = &self.folders;
        let mut out = String::with_capacity(8192);
        out.push_str("{\n");
        out.push_str(PROLOGUE);
        let _ = writeln!(out, "N={} RUN={} L={} R={}", self.nonce, quote(self.run), quote(state), quote(run));
        let guarded = self.change.is_some_and(|c| c.guard.is_some());
        let steps = self.change.is_some() || self.fragments.iter().any(|f| f.user.is_some());
        if self.change.is_some() {
            out.push_str(LED);
            out.push_str(REPLACE);
        }
        functions(&mut out, |name| match name {
            "step" | "run" | "ready" | "frame" => steps,
            "put" | "lock" | "nolock" | "changed" => self.change.is_some(),
            "count" => self.change.is_some() || self.found.is_some(),
            "parts" => self.joins(),
            "calm" => self.calm,
            "queue" => self.calm || self.change.is_some(),
            "state" | "standing" => self.state,
            "arm" | "unarmed" | "live" | "below" | "way" | "leads" | "addresses" => guarded,
            "nap" => guarded || self.found.is_some(),
            "forsaken" => self.state || self.found.is_some() || self.change.is_some(),
            "takeback" => self.found.is_some() || self.change.is_some(),
            "found" => self.found.is_some(),
            _ => true,
        });
        out.push_str("printf '\\n%s begin\\n' \"$N\" >&3\n");
        if self.calm {
            let _ = writeln!(out, "calm {LOCK_SECONDS}");
        }
        if let Some(change) = &self.change {
            if let Some(generation) = change.generation {
                let _ = writeln!(out, "lock {generation} {} {LOCK_SECONDS}", quote(change.holder));
            }
            match change.guard {
                Some(guard) => self.arm(&mut out, change, guard),
                None => {
                    for piece in change.pieces {
                        self.piece(&mut out, piece);
                    }
                    if change.generation.is_some() {
                        out.push_str("changed\n");
                    }
                }
            }
        }
        if let Some((seconds, verb)) = self.found {
            let verb = match verb {
                Verb::Look => "look",
                Verb::Keep => "keep",
                Verb::Undo => "undo",
            };
            let _ = writeln!(out, "found {seconds} {verb}");
        }
        if self.state {
            let _ = writeln!(out, "probe {STATE} state");
        }
        for (i, fragment) in self.fragments.iter().enumerate() {
            let index = FRAGMENTS as usize + i;
            let text = quote(fragment.script.as_str());
            let _ = match fragment.user {
                None => writeln!(out, "probe {index} {text}"),
                Some(seconds) => writeln!(out, "step {index} '' '' {seconds} {text}"),
            };
        }
        out.push_str("printf '\\n%s end\\n' \"$N\" >&3; exit 0\n}\n");
        out
    }

    fn joins(&self) -> bool {
        self.change.is_some_and(|c| c.pieces.iter().any(|p| matches!(p.work, Work::Joint(..))))
    }

    /// Has the steps done by a process of its own, with the way back stored.
    fn arm(&self, out: &mut String, change: &Change<'_>, guard: &Guard) {
        let Folders { state, run } = &self.folders;
        let places = format!("N={} RUN={} L={} R={}\n", self.nonce, quote(self.run), quote(state), quote(run));
        let mut steps = format!(
            "{{\n{PROLOGUE}{places}exec 9>>\"$R/guard\"; flock 9\nexec 7<\"$L/armed/back\" || exit\n\
             exec >\"$R/spool\" 2>/dev/null </dev/null\n"
        );
        steps.push_str(LED);
        steps.push_str(REPLACE);
        functions(&mut steps, |name| match name {
            "" | "lim" | "limited" | "step" | "run" | "ready" | "frame" | "put" => true,
            "parts" => self.joins(),
            _ => false,
        });
        // What was stopped half-way by its deadline isn't left so.
        steps.push_str("over() { : >\"$R/ended\"; exec 3>&-; exec /bin/sh \"$L/armed/back\" timer held; }\n");
        for piece in change.pieces {
            steps.push_str("r=0\n");
            self.piece(&mut steps, piece);
            let broken = if guard.handlers.contains(&piece.id) { "0) ;; *" } else { "124 | 137" };
            let _ = writeln!(steps, "case $r in {broken}) over ;; esac");
        }
        let _ = write!(
            steps,
            ": >\"$R/ended\"; i=0\n{{ echo -1000 >/proc/self/oom_score_adj; }} 2>/dev/null\nwhile [ /proc/self/fd/7 -ef \"$L/armed/back\" ] && [ ! -e \"$R/now\" ] && [ $i -lt {} ]; do sleep 1 9>&-; i=$((i + 1)); done\n\
             [ /proc/self/fd/7 -ef \"$L/armed/back\" ] || exit 0\nexec 3>&-; exec /bin/sh \"$L/armed/back\" timer held\n}}\n",
            guard.timeout
        );
        let mut back = format!("{PROLOGUE}{places}steps() {{\n:\n");
        for script in guard.undo.iter().flat_map(|undo| &undo.steps) {
            let _ = writeln!(back, "one {}", quote(script.as_str()));
        }
        back.push_str("}\n");
        functions(&mut back, |name| matches!(name, "way" | "leads" | "addresses"));
        back.push_str(include_str!("guard/back.sh"));
        let seconds: u32 = change.pieces.iter().map(|p| p.seconds).sum();
        let unit = include_str!("guard/netplay-back.service").replace("/var/lib/netplay", state);
        let _ = write!(out, "arm {} {seconds} {} {} {}", guard.timeout, quote(&unit), quote(&steps), quote(&back));
        let _ = write!(out, " {}", quote(change.holder));
        // Nor is a handler owed of what was taken back.
        let notes = change.pieces.iter().filter_map(|piece| match &piece.work {
            Work::Owe(owed) => Some(self.owed_file(owed)),
            _ => None,
        });
        for file in guard.files.iter().cloned().chain(notes) {
            let _ = write!(out, " {}", quote(&file));
        }
        out.push('\n');
    }

    fn piece(&self, out: &mut String, piece: &Piece) {
        let ids = |list: &[u32]| quote(&list.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        let head = format!("{} {} {} {}", piece.id, ids(&piece.all), ids(&piece.any), piece.seconds);
        let step = |out: &mut String, script: &Script| {
            let _ = writeln!(out, "step {head} {}", quote(script.as_str()));
        };
        match &piece.work {
            Work::Step(Step::Run(script)) => step(out, script),
            Work::Step(Step::Put(put)) => {
                let body = print_bytes(&put.body);
                let _ = writeln!(out, "b{}() {{\n{body}}}\nput {head} {} b{}", piece.id, put_words(put), piece.id);
            }
            Work::Step(Step::Share(share)) => debug_assert!(false, "{share:?} is no step of its own"),
            Work::Joint(together, parts) => {
                if let Step::Run(script) = together {
                    step(out, script);
                }
                let _ = writeln!(out, "parts {} {}", piece.id, ids(parts).trim_matches('\''));
            }
            Work::Part => {}
            Work::Owe(owed) => step(out, &self.owe(owed)),
            Work::Settle(owed) => step(out, &Script::new().set("f", &self.owed_file(owed)).line("rm -f -- \"$f\"")),
        }
    }

    fn owed_file(&self, owed: &Owed) -> String {
        self.folders.owed(&owed.address)
    }

    /// Synced before what notifies it is: after a power cut it is there, or that isn't. A dot file is no note.
    fn owe(&self, owed: &Owed) -> Script {
        Script::new()
            .set("L", &self.folders.state)
            .set("f", &self.owed_file(owed))
            .args(owed.lines())
            .line("umask 077; mkdir -p \"$L/owed\" && chmod 700 \"$L\" || exit 1; t=$L/owed/.new")
            .line("e=$( { printf '%s\\n' \"$@\" | dd conv=fsync >\"$t\"; } 2>&1 ) && mv -f -- \"$t\" \"$f\" && exit")
            .line("rm -f -- \"$t\"; printf '%s\\n' \"$e\" | head -n 1; exit 1")
    }
}

/// The words of `put` from PATH to VALIDATE.
fn put_words(put: &Put) -> String {
    let validate = put.validate.as_ref().map_or("", Script::as_str);
    format!(
        "{} {:04o} {} {} {} {} {}",
        quote(&put.path),
        put.mode,
        quote(put.owner.as_deref().unwrap_or_default()),
        put.body.len(),
        if put.in_place { "in-place" } else { "replace" },
        quote(&if put.backup { file_name(&put.path) } else { String::new() }),
        quote(validate),
    )
}

/// A name for a file that stands for this text: what isn't a letter, a digit or one of `._-` as `%` and two digits, a
/// long one ended by its checksum. It never begins with a dot.
fn file_name(text: &str) -> String {
    let mut name = String::new();
    for (i, b) in text.bytes().enumerate() {
        if b.is_ascii_alphanumeric() || b == b'_' || b == b'-' || (b == b'.' && i > 0) {
            name.push(char::from(b));
        } else {
            let _ = write!(name, "%{b:02x}");
        }
    }
    if name.len() > 180 {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(text.as_bytes());
        name.truncate(100);
        name.push('~');
        for b in digest.iter().take(16) {
            let _ = write!(name, "{b:02x}");
        }
    }
    name
}

#[cfg(test)]
pub(super) mod tests;
