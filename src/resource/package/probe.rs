//! What a host's package manager says: what of the asked is installed, and what it would do about the rest.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// The group. An argument is a part: words of `+name` (wanted) and `-name` (not wanted).
pub(super) struct Packages;

/// What drives a host's packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backend {
    /// dpkg and apt-get.
    Apt,
    /// rpm and this tool: `dnf5`, `dnf` or `yum`.
    Rpm(String),
    /// Neither: the tool that was seen, if any was.
    Other(Option<String>),
}

/// What is known of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Is {
    /// dpkg's word for its state: `installed`, `config-files`, `half-configured`; nothing if it has none.
    pub(super) state: Option<String>,
    /// Whether an administrator holds it at its version.
    pub(super) hold: bool,
    /// Its version; nothing if it isn't there.
    pub(super) version: Option<String>,
    /// Whether a package of this name is there.
    pub(super) there: bool,
    /// A package that is there and provides it.
    pub(super) by: Option<String>,
}

/// What the package manager would do for a part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Foreseen {
    /// Name, version now and then.
    pub(super) installs: Vec<(String, Option<String>, String)>,
    /// What it would remove.
    pub(super) removes: Vec<String>,
    /// Why it would do nothing, in its words.
    pub(super) refusal: Option<String>,
}

/// The answer to one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub(super) backend: Backend,
    /// What is known of its names.
    pub(super) names: BTreeMap<String, Is>,
    /// Packages that dpkg has not finished, with their state.
    pub(super) unfinished: Vec<(String, String)>,
    /// Whether dpkg broke off and left a journal.
    pub(super) journal: bool,
    /// The names that some part of this host doesn't want.
    pub(super) unwanted: Vec<String>,
    /// All names that parts of this host ask about.
    pub(super) asked: Vec<String>,
    /// What would be done, where this part isn't as wanted.
    pub(super) foreseen: Option<Foreseen>,
}

impl Group for Packages {
    type Answer = Found;
    const NAME: &'static str = "packages";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(super::EXACT).line(include_str!("probe.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let output = &outputs[0];
        if output.code != 0 {
            let trouble = Trouble::new(format!("the list of installed packages can't be read: {}", output.complaint()));
            return vec![Err(trouble); args.len()];
        }
        let text = output.text();
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let backend = match first.split_once(' ') {
            None if first == "apt" => Backend::Apt,
            None if first == "other" => Backend::Other(None),
            None => Backend::Rpm(first.to_owned()),
            Some((_, tool)) => Backend::Other(Some(tool.to_owned())),
        };
        let mut all: BTreeMap<String, Is> = BTreeMap::new();
        let (mut unfinished, mut journal) = (Vec::new(), false);
        let mut plans: BTreeMap<usize, Foreseen> = BTreeMap::new();
        let mut lines = rest.lines();
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["journal"] => journal = true,
                ["unfinished", name, state] => unfinished.push(((*name).to_owned(), (*state).to_owned())),
                ["have", name] => all.entry((*name).to_owned()).or_default().there = true,
                ["by", name, provider] => all.entry((*name).to_owned()).or_default().by = Some((*provider).to_owned()),
                ["is", name, want, state, version @ ..] => {
                    let is = all.entry((*name).to_owned()).or_default();
                    is.hold = *want == "hold";
                    is.state = Some((*state).to_owned());
                    is.version = version.first().map(|v| (*v).to_owned());
                }
                ["plan", number] => {
                    let (mut said, mut code) = (Vec::new(), None);
                    for line in lines.by_ref() {
                        code = line.strip_prefix("end ").and_then(|code| code.parse::<i32>().ok());
                        if code.is_some() {
                            break;
                        }
                        said.push(line);
                    }
                    let foreseen = if backend == Backend::Apt { apt(&said, code) } else { rpm(&said, code) };
                    plans.insert(number.parse().unwrap_or_default(), foreseen);
                }
                _ => {}
            }
        }
        let words = || args.iter().flat_map(|part| part.split(' '));
        let unwanted: Vec<String> = words().filter_map(|w| w.strip_prefix('-')).map(str::to_owned).collect();
        let asked: Vec<String> = words().map(|w| w[1..].to_owned()).collect();
        let one = |(i, part): (usize, &&str)| {
            let names = part.split(' ').map(|w| &w[1..]);
            Ok(Found {
                backend: backend.clone(),
                names: names.map(|n| (n.to_owned(), all.get(n).cloned().unwrap_or_default())).collect(),
                unfinished: unfinished.clone(),
                journal,
                unwanted: unwanted.clone(),
                asked: asked.clone(),
                foreseen: plans.get(&(i + 1)).cloned(),
            })
        };
        args.iter().enumerate().map(one).collect()
    }
}

/// What `apt-get -s` says. Its lines are `Inst NAME [OLD] (NEW ARCHIVE [ARCH])` and `Remv NAME [OLD]`, all else is talk.
fn apt(said: &[&str], code: Option<i32>) -> Foreseen {
    let mut foreseen = Foreseen::default();
    for line in said {
        if let Some(rest) = line.strip_prefix("Inst ") {
            let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let old = rest.strip_prefix('[').and_then(|r| r.split_once(']')).map(|(old, _)| old.to_owned());
            let new = rest.split_once('(').map_or("", |(_, r)| r.split([' ', ')']).next().unwrap_or_default());
            foreseen.installs.push((name.to_owned(), old, new.to_owned()));
        } else if let Some(rest) = line.strip_prefix("Remv ") {
            foreseen.removes.push(rest.split(' ').next().unwrap_or_default().to_owned());
        }
    }
    foreseen.refusal = refusal(said, code, |line| {
        ["Inst ", "Conf ", "Remv ", "NOTE:", "Reading ", "Building "].iter().any(|talk| line.starts_with(talk))
    });
    foreseen
}

/// What `rpm -e --test` and `dnf --assumeno` say. The latter prints a table of sections (`Installing:`, `Removing:`) with a
/// package in each line: name, architecture, version, repository, size.
fn rpm(said: &[&str], code: Option<i32>) -> Foreseen {
    let mut foreseen = Foreseen::default();
    let mut section = "";
    let mut table = false;
    for line in said {
        let indented = line.starts_with(' ');
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            _ if line.starts_with("Transaction Summary") => {
                table = true;
                section = "";
            }
            [.., last] if !indented && last.ends_with(':') => section = line,
            [name, _, version, ..] if indented && !section.is_empty() => {
                let name = (*name).to_owned();
                match section.split([' ', ':']).next() {
                    Some("Installing" | "Upgrading" | "Downgrading" | "Reinstalling") => {
                        foreseen.installs.push((name, None, (*version).to_owned()));
                    }
                    Some("Removing") => foreseen.removes.push(name),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    // With `--assumeno` the end is always a refusal, which says `Operation aborted.`
    if !table {
        foreseen.refusal = refusal(said, code, |line| {
            ["Last metadata ", "No match for argument: ", "rpm: ", "Ignoring repositories: "]
                .iter()
                .any(|talk| line.starts_with(talk))
        });
    }
    foreseen
}

/// Why a tool would do nothing, without its talk.
fn refusal(said: &[&str], code: Option<i32>, talk: impl Fn(&str) -> bool) -> Option<String> {
    if code == Some(0) {
        return None;
    }
    let told: Vec<&str> = said.iter().copied().filter(|line| !line.trim().is_empty() && !talk(line)).collect();
    let code = code.map_or_else(|| "its output ended early".to_owned(), |code| format!("exit code {code}"));
    Some(if told.is_empty() { code } else { told.join("\n") })
}
