//! What sets kernel parameters at boot, read as systemd-sysctl reads it (sysctl.d(5), src/sysctl/sysctl.c): files of one
//! name count once, from the first of `/etc`, `/run`, `/usr/local/lib`, `/usr/lib`; they are taken in the order of their
//! names, and the last assignment of a parameter wins. A pattern never wins over a parameter that is named, so patterns
//! don't matter to one that we name. Where systemd-sysctl isn't there, `sysctl --system` of procps or busybox does the
//! same and takes `/etc/sysctl.conf` last (sysctl(8)).

use super::key::normalize;
use super::value::squash;
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;
use std::iter::once;

/// The group. Its only argument is the empty string; a test gives a folder that stands for `/`.
pub(super) struct BootFiles;

/// The files that systemd-sysctl reads are in these folders.
pub(super) const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];

/// The file that hands know from before there were folders.
pub(super) const CLASSIC: &str = "/etc/sysctl.conf";

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Boot {
    /// systemd-sysctl is there.
    systemd: bool,
    /// Its unit is masked.
    masked: bool,
    /// A start script of another init system is there.
    script: bool,
    /// The files of the folders, in the order of the folders.
    files: Vec<File>,
    /// [`CLASSIC`].
    classic: Vec<Assignment>,
    /// What tuned's active profile sets, with its file; what comes first wins.
    tuned: Vec<(String, Assignment)>,
    /// tuned's `reapply_sysctl = 0`: it doesn't take the folders again after its profile.
    tuned_insists: bool,
    /// MLNX_OFED's `RUN_SYSCTL`.
    openibd: bool,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct File {
    path: String,
    /// It is [`CLASSIC`], by a link.
    classic: bool,
    assignments: Vec<Assignment>,
}

/// One line that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Its number, from 1.
    pub(super) line: usize,
    /// The parameter's path below `/proc/sys`.
    pub(super) path: String,
    /// The value, squashed; nothing where the line keeps the parameter from being set (`-net.core.rmem_max`).
    pub(super) value: Option<String>,
}

/// Who has the last word about a parameter at boot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Winner<'a> {
    /// The file that was asked about.
    Own,
    /// This line of another one.
    Other(&'a str, &'a Assignment),
    /// Nothing sets it, as the file that was asked about isn't read: why.
    Unread(String),
}

/// The assignment that a line is, if it is one.
pub(super) fn assignment(line: usize, text: &str) -> Option<Assignment> {
    let text = text.trim();
    if text.is_empty() || text.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.strip_prefix('-').unwrap_or(name), Some(squash(value))),
        None => (text.strip_prefix('-')?, None),
    };
    Some(Assignment { line, path: normalize(name.trim()), value })
}

/// What MLNX_OFED's openibd sets with `RUN_SYSCTL=yes` (mlnx-tools, tsbin/sysctl_perf_tuning).
const OPENIBD: [(&str, &str); 11] = [
    ("net/core/netdev_max_backlog", "250000"),
    ("net/core/optmem_max", "4194304"),
    ("net/core/rmem_default", "4194304"),
    ("net/core/rmem_max", "4194304"),
    ("net/core/wmem_default", "4194304"),
    ("net/core/wmem_max", "4194304"),
    ("net/ipv4/tcp_low_latency", "1"),
    ("net/ipv4/tcp_rmem", "4096 87380 4194304"),
    ("net/ipv4/tcp_sack", "1"),
    ("net/ipv4/tcp_timestamps", "0"),
    ("net/ipv4/tcp_wmem", "4096 65536 4194304"),
];
const OPENIB_CONF: &str = "/etc/infiniband/openib.conf";
const TUNED_MAIN: &str = "/etc/tuned/tuned-main.conf";

impl Boot {
    /// Who has the last word about a parameter if the file `own` sets it.
    pub(super) fn winner(&self, own: &str, path: &str) -> Winner<'_> {
        let new = File { path: own.to_owned(), ..File::default() };
        let classic = own == CLASSIC || self.files.iter().any(|f| f.path == own && f.classic);
        let mine = |f: &File| f.path == own || (classic && f.classic);
        let read = merge(self.files.iter().chain(once(&new).filter(|_| rank(own).is_some())));
        let mut last = None;
        for &file in &read {
            if mine(file) {
                last = Some(Winner::Own);
            } else if let Some(other) = self.files.iter().find(|f| f.path == file.path)
                && let Some(found) = find(&other.assignments, path)
            {
                last = Some(Winner::Other(&other.path, found));
            }
        }
        if !self.systemd {
            if classic {
                last = Some(Winner::Own);
            } else if let Some(found) = find(&self.classic, path) {
                last = Some(Winner::Other(CLASSIC, found));
            }
        }
        last.unwrap_or_else(|| {
            Winner::Unread(match read.iter().find(|f| name(&f.path) == name(own)) {
                Some(hider) => {
                    format!("{own} isn't read at boot, since {} has the same name and goes first", hider.path)
                }
                None => format!("nothing reads {own} at boot"),
            })
        })
    }

    /// What a parameter is set to at boot as things are; nothing where nothing sets it.
    pub(super) fn value(&self, path: &str) -> Option<&str> {
        let files = merge(self.files.iter()).into_iter().map(|f| &f.assignments);
        let last =
            files.chain(once(&self.classic).filter(|_| !self.systemd)).filter_map(|a| find(a, path)).next_back()?;
        last.value.as_deref()
    }

    /// Why nothing would be set at boot whatever the files say.
    pub(super) fn idle(&self) -> Option<&'static str> {
        if self.systemd {
            self.masked.then_some("systemd-sysctl.service is masked, so nothing sets kernel parameters at boot")
        } else {
            (!self.script).then_some(
                "the host has neither systemd-sysctl nor a start script that runs `sysctl --system`, so nothing may set \
                 kernel parameters at boot",
            )
        }
    }

    /// What else sets a parameter, at some time, to another value.
    pub(super) fn rivals(&self, title: &str, path: &str, same: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        let linked = self.files.iter().any(|f| f.classic);
        if self.systemd
            && !linked
            && let Some(Assignment { line, value: Some(value), .. }) = find(&self.classic, path)
            && !same(value)
        {
            found.push(format!(
                "{CLASSIC}:{line} sets {title} to {value}: not at boot, as no link in {} leads there, but whenever \
                 `sysctl -p` or `sysctl --system` is run",
                FOLDERS[0]
            ));
        }
        if let Some((file, Assignment { line, value: Some(value), .. })) =
            self.tuned.iter().find(|(_, a)| a.path == path)
            && !same(value)
        {
            let then = if self.tuned_insists {
                "and keeps it, by reapply_sysctl = 0"
            } else {
                "and then takes /etc/sysctl.d again (reapply_sysctl)"
            };
            found.push(format!("tuned's active profile sets {title} to {value} ({file}:{line}) {then}"));
        }
        if self.openibd
            && let Some((_, value)) = OPENIBD.iter().find(|(p, _)| *p == path)
            && !same(value)
        {
            found.push(format!(
                "{title} is set to {value} whenever the MLNX_OFED driver is loaded, by RUN_SYSCTL=yes in {OPENIB_CONF}"
            ));
        }
        found
    }
}

fn find<'a>(assignments: &'a [Assignment], path: &str) -> Option<&'a Assignment> {
    assignments.iter().rev().find(|a| a.path == path)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Which of [`FOLDERS`] a file is in.
pub(super) fn rank(path: &str) -> Option<usize> {
    FOLDERS.iter().position(|folder| path.strip_prefix(folder).and_then(|r| r.strip_prefix('/')) == Some(name(path)))
}

/// The files that are read, in their order.
fn merge<'a>(files: impl Iterator<Item = &'a File>) -> Vec<&'a File> {
    let mut first: BTreeMap<&str, &File> = BTreeMap::new();
    for file in files {
        let known = first.entry(name(&file.path)).or_insert(file);
        if rank(&file.path) < rank(&known.path) {
            *known = file;
        }
    }
    first.into_values().collect()
}

impl Group for BootFiles {
    type Answer = Boot;
    const NAME: &'static str = "sysctl boot";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let ask = |root: &&str| Script::new().set("root", root).line(include_str!("boot.sh")).into();
        args.iter().map(ask).collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Boot, Trouble>> {
        args.iter().zip(outputs).map(|(root, output)| read(root, output)).collect()
    }
}

fn read(root: &str, output: &Output) -> Result<Boot, Trouble> {
    if !(0..=1).contains(&output.code) {
        return Err(Trouble::new(format!("what is set at boot can't be read: {}", output.complaint())));
    }
    let text = output.text();
    let (head, lines) = match text.strip_prefix('\n') {
        Some(lines) => ("", lines),
        None => text.split_once("\n\n").unwrap_or((&text, "")),
    };
    let mut boot = Boot::default();
    let mut profiles: Vec<String> = Vec::new();
    for line in head.lines() {
        let (kind, path) = line.split_once(' ').unwrap_or((line, ""));
        let path = path.strip_prefix(root).unwrap_or(path).to_owned();
        match kind {
            "systemd" => boot.systemd = true,
            "masked" => boot.masked = true,
            "script" => boot.script = true,
            "tuned" => profiles.push(path),
            _ => boot.files.push(File { path, classic: kind == "link", assignments: Vec::new() }),
        }
    }
    let fixed = [CLASSIC, OPENIB_CONF, TUNED_MAIN].map(str::to_owned);
    let known: Vec<String> = boot.files.iter().map(|f| f.path.clone()).chain(fixed).chain(profiles).collect();
    let mut section = (String::new(), false);
    for line in lines.lines() {
        let line = line.strip_prefix(root).unwrap_or(line);
        let file = known.iter().filter(|k| line.strip_prefix(k.as_str()).is_some_and(|rest| rest.starts_with(':')));
        let Some(file) = file.max_by_key(|k| k.len()) else { continue };
        let Some((number, text)) = line[file.len() + 1..].split_once(':') else { continue };
        let number = number.parse().unwrap_or_default();
        let set = || text.split_once('=').map(|(k, v)| (k.trim(), v.trim().trim_matches('"')));
        match file.as_str() {
            CLASSIC => boot.classic.extend(assignment(number, text)),
            OPENIB_CONF => {
                if let Some(("RUN_SYSCTL", value)) = set() {
                    boot.openibd = value.eq_ignore_ascii_case("yes");
                }
            }
            TUNED_MAIN => {
                if let Some(("reapply_sysctl", value)) = set() {
                    boot.tuned_insists = matches!(value.to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off");
                }
            }
            path => match boot.files.iter_mut().find(|f| f.path == path) {
                Some(file) => file.assignments.extend(assignment(number, text)),
                None => {
                    if section.0 != path {
                        section = (path.to_owned(), false);
                    }
                    let text = text.trim();
                    if let Some(title) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
                        section.1 = title == "sysctl";
                    } else if section.1
                        && let Some((key, value)) = set()
                    {
                        let value = Some(squash(value));
                        boot.tuned.push((path.to_owned(), Assignment { line: number, path: normalize(key), value }));
                    }
                }
            },
        }
    }
    Ok(boot)
}
