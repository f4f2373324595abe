//! What failed: why, on which hosts, what was skipped because of it, and what to do. Told once, at the end.

use super::fold::{Folded, Hosts};
use super::outcome::{DONE, OPEN, all_named};
use super::text::{Palette, clean, count, wrap};
use crate::event::{HostEvent, HostStatus, Problem, ResourceEvent, Status};
use std::collections::HashMap;
use std::sync::Arc;

/// How many of what was skipped because of one failure are named.
const MOST_NAMED: usize = 12;
/// From how many ways of saying it failures of hosts of one kind are told by one of them.
const MANY_WORDINGS: usize = 4;
/// Stands for the host's name in a message, so that hosts which say the same of themselves are folded.
const SELF: char = '\0';

/// What is wrong, as several hosts can share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Failure {
    play: usize,
    word: &'static str,
    /// The resource; nothing for the host itself.
    address: Option<Arc<str>>,
    title: Option<Arc<str>>,
    kind: &'static str,
    message: String,
    hint: Option<String>,
    changes: Vec<String>,
    done: Vec<String>,
}

impl Failure {
    /// Of a resource that failed or was rolled back.
    pub(super) fn of_resource(play: usize, event: &ResourceEvent) -> Failure {
        let word = if event.status == Status::RolledBack { "rolled back" } else { "failed" };
        let failure = Failure::new(play, word, event.error.as_ref(), &event.host);
        let title = event.title.clone().filter(|t| event.address.split_once(':').is_none_or(|(_, id)| *id != **t));
        // A verification says itself what still differs.
        let left = if failure.kind == "verify" { Vec::new() } else { all_named(&event.changes) };
        let done = all_named(&event.done);
        Failure { address: Some(event.address.clone()), title, changes: left, done, ..failure }
    }

    /// Of a host that there was no session with, or that broke.
    pub(super) fn of_host(play: usize, event: &HostEvent, error: &Problem) -> Failure {
        let word = if event.status == HostStatus::Unreachable { "unreachable" } else { "failed" };
        Failure::new(play, word, Some(error), &event.host)
    }

    fn new(play: usize, word: &'static str, error: Option<&Problem>, host: &str) -> Failure {
        let text = |text: &String| without_name(&super::text::lines(text).collect::<Vec<_>>().join("\n"), host);
        Failure {
            play,
            word,
            address: None,
            title: None,
            kind: error.map_or("", |e| e.kind),
            message: error.map_or(String::new(), |e| text(&e.message)),
            hint: error.and_then(|e| e.hint.as_ref()).map(text),
            changes: Vec::new(),
            done: Vec::new(),
        }
    }

    /// `sysctl:net.core.rmem_max (socket buffers)  failed: MESSAGE`.
    fn headline(&self, name: &str, palette: Palette) -> String {
        let subject = match (&self.address, &self.title) {
            (Some(address), Some(title)) => format!("{} ({})  ", clean(address), clean(title)),
            (Some(address), None) => format!("{}  ", clean(address)),
            (None, _) => String::new(),
        };
        let colon = if self.message.is_empty() { "" } else { ": " };
        format!("{subject}{}{colon}{}", palette.bad(self.word), self.message.replace(SELF, name))
    }

    /// Its first line, for the moment when it happens.
    pub(super) fn at_once(&self, host: &str, palette: Palette) -> String {
        let headline = self.headline(&clean(host), palette);
        let first = headline.lines().next().unwrap_or_default();
        format!("{}  {first}\n", palette.place(&clean(host)))
    }

    /// Whether both would be told by the same line at once.
    pub(super) fn alike(&self) -> (Option<Arc<str>>, String) {
        (self.address.clone(), self.message.clone())
    }
}

/// The text with the host's own name taken out, where it stands as a word.
fn without_name(text: &str, host: &str) -> String {
    let part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = if host.is_empty() { None } else { rest.find(host) } {
        let (before, from) = rest.split_at(at);
        let after = &from[host.len()..];
        let starts =
            !before.chars().next_back().or_else(|| out.chars().next_back()).is_some_and(|c| part(c) || c == '.');
        let mut next = after.chars();
        let ends = match next.next() {
            Some('.') => !next.next().is_some_and(part),
            other => !other.is_some_and(part),
        };
        out.push_str(before);
        if starts && ends {
            out.push(SELF)
        } else {
            out.push_str(host)
        }
        rest = after;
    }
    out + rest
}

/// Whether a text names an address, as a word.
fn names(text: &str, address: &str) -> bool {
    text.match_indices(address).any(|(at, _)| {
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | ':');
        let before = text[..at].chars().next_back();
        let mut after = text[at + address.len()..].chars();
        let ends = match after.next() {
            // A full stop or colon may as well end the sentence.
            Some('.' | ':') => !after.next().is_some_and(part),
            other => !other.is_some_and(part),
        };
        !before.is_some_and(part) && ends
    })
}

/// A failure and what was skipped because of it.
type WithSkipped = (Failure, Vec<Arc<str>>);

/// What one host has said of a play so far that isn't simply done.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// What failed.
    pub(super) failed: Vec<Failure>,
    /// What was skipped, and the reason given.
    pub(super) skipped: Vec<(Arc<str>, String)>,
}

impl Draft {
    /// Gives each failure what was skipped because of it, directly or through others, and returns what was skipped for
    /// another reason.
    fn settle(mut self) -> (Vec<WithSkipped>, Vec<(Arc<str>, String)>) {
        let mut roots: HashMap<Arc<str>, usize> = HashMap::new();
        for (i, failure) in self.failed.iter().enumerate() {
            if let Some(address) = &failure.address {
                roots.entry(address.clone()).or_insert(i);
            }
        }
        let mut failures: Vec<WithSkipped> = self.failed.into_iter().map(|f| (f, Vec::new())).collect();
        loop {
            let before = self.skipped.len();
            self.skipped.retain(|(address, because)| {
                let cause = roots.iter().filter(|(root, _)| names(because, root)).max_by_key(|(root, _)| root.len());
                let Some((_, cause)) = cause.map(|(root, cause)| (root.clone(), *cause)) else { return true };
                failures[cause].1.push(address.clone());
                roots.entry(address.clone()).or_insert(cause);
                false
            });
            if self.skipped.len() == before {
                break;
            }
        }
        // A session that broke leaves the rest undone, whatever words that was told in.
        if let Some((_, dependents)) = failures.iter_mut().find(|(failure, _)| failure.address.is_none()) {
            dependents.extend(self.skipped.drain(..).map(|(address, _)| address));
        }
        (failures, self.skipped)
    }
}

/// All failures of a run.
#[derive(Debug, Default)]
pub(super) struct Failures {
    folded: Folded<WithSkipped>,
    /// Where each resource stands in its play.
    positions: HashMap<(usize, Arc<str>), usize>,
}

impl Failures {
    /// Remembers where a resource stands.
    pub(super) fn place(&mut self, play: usize, address: &Arc<str>, position: usize) {
        self.positions.entry((play, address.clone())).or_insert(position);
    }

    /// Takes what a host said; returns what it skipped for other reasons than a failure.
    pub(super) fn add(&mut self, host: u32, draft: Draft) -> Vec<(Arc<str>, String)> {
        let (failures, skipped) = draft.settle();
        for failure in failures {
            self.folded.add(failure, host);
        }
        skipped
    }

    /// Tells them all.
    pub(super) fn tell(
        &mut self,
        hosts: &mut Hosts,
        plays: &[Arc<str>],
        palette: Palette,
        width: Option<usize>,
    ) -> String {
        let positions = &self.positions;
        let rank = |(failure, _): &WithSkipped| {
            let position = failure.address.clone().and_then(|a| positions.get(&(failure.play, a)).copied());
            (failure.play, failure.word, position.unwrap_or(usize::MAX), failure.clone())
        };
        let mut blocks: Vec<Block> = Vec::new();
        for ((failure, skipped), on) in self.folded.take(rank) {
            match blocks.last_mut().filter(|block| block.failure == failure) {
                Some(block) => block.add(skipped, on),
                None => blocks.push(Block::new(failure, skipped, on)),
            }
        }
        let mut out = String::new();
        let (mut play, mut rest) = (usize::MAX, &blocks[..]);
        while let Some(block) = rest.first() {
            if plays.len() > 1 && block.failure.play != play {
                play = block.failure.play;
                let name = plays.get(play).map(|p| clean(p)).unwrap_or_default();
                out.push_str(&format!("{}\n", palette.bold(&format!("in play {name}:"))));
            }
            let alike = rest.iter().take_while(|other| block.alike(other)).count();
            let (told, others) = rest.split_at(if alike >= MANY_WORDINGS { alike } else { 1 });
            tell(told, &mut out, hosts, palette, width);
            rest = others;
        }
        out
    }
}

/// A failure with all the hosts that share it.
struct Block {
    failure: Failure,
    hosts: Vec<u32>,
    /// What was skipped because of it, on which of them.
    skipped: Vec<(Vec<Arc<str>>, Vec<u32>)>,
}

impl Block {
    fn new(failure: Failure, skipped: Vec<Arc<str>>, hosts: Vec<u32>) -> Block {
        let mut block = Block { failure, hosts: Vec::new(), skipped: Vec::new() };
        block.add(skipped, hosts);
        block
    }

    fn add(&mut self, skipped: Vec<Arc<str>>, hosts: Vec<u32>) {
        self.hosts.extend(&hosts);
        if !skipped.is_empty() {
            self.skipped.push((skipped, hosts));
        }
    }

    /// Whether both are failures of hosts that differ in their words only (addresses, ports, times).
    fn alike(&self, other: &Block) -> bool {
        let (a, b) = (&self.failure, &other.failure);
        a.address.is_none()
            && b.address.is_none()
            && (a.play, a.word, a.kind, &a.hint) == (b.play, b.word, b.kind, &b.hint)
    }
}

/// Tells one failure; several that differ in their words only by the first of them.
fn tell(blocks: &[Block], out: &mut String, hosts: &mut Hosts, palette: Palette, width: Option<usize>) {
    let first = &blocks[0];
    let failure = &first.failure;
    let on: Vec<u32> = blocks.iter().flat_map(|b| b.hosts.iter().copied()).collect();
    let list = hosts.list(&on);
    let name = if on.len() == 1 { &*list } else { "<host>" };
    let mut headline = failure.headline(name, palette);
    if blocks.len() > 1 {
        let example = hosts.list(&first.hosts);
        let said = failure.message.replace(SELF, if first.hosts.len() == 1 { &example } else { "<host>" });
        headline = format!("{}, such as {}: {said}", palette.bad(failure.word), palette.place(&example));
    }
    let mut lines = headline.lines();
    let start = format!("{}  {}", palette.place(&list), lines.next().unwrap_or_default());
    out.push_str(&format!("{}\n", wrap(&start, width, 4)));
    let mut detail = |text: &str| out.push_str(&format!("    {}\n", wrap(text, width.map(|w| w.saturating_sub(4)), 6)));
    lines.for_each(&mut detail);
    failure.done.iter().for_each(|change| detail(&format!("{DONE}{change}")));
    failure.changes.iter().for_each(|change| detail(&format!("{OPEN}{change}")));
    for (i, line) in failure.hint.iter().flat_map(|hint| hint.lines()).enumerate() {
        let line = line.replace(SELF, name);
        detail(&if i == 0 { format!("help: {line}") } else { format!("      {line}") });
    }
    let mut skipped: Folded<&Vec<Arc<str>>> = Folded::default();
    for (addresses, on) in blocks.iter().flat_map(|b| &b.skipped) {
        on.iter().for_each(|host| skipped.add(addresses, *host));
    }
    for (addresses, among) in skipped.take(|_| ()) {
        let place = if among.len() == on.len() { String::new() } else { format!(" on {}", hosts.list(&among)) };
        detail(&format!("skipped because of it{place}: {}", named(addresses)));
    }
}

/// Addresses in a row, the first of many.
pub(super) fn named(addresses: &[Arc<str>]) -> String {
    let shown = if addresses.len() > MOST_NAMED + 1 { MOST_NAMED } else { addresses.len() };
    let mut text = addresses[..shown].iter().map(|a| clean(a)).collect::<Vec<_>>().join(", ");
    if shown < addresses.len() {
        text.push_str(&format!(" and {}", count(addresses.len() - shown, "more resource")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_own_name_is_found_as_a_word_only() {
        for (text, without) in [
            ("gpu1: no route", "\0: no route"),
            ("connect to gpu1", "connect to \0"),
            ("gpu1.", "\0."),
            ("gpu1.example.com gpu10 xgpu1 my.gpu1 gpu1", "gpu1.example.com gpu10 xgpu1 my.gpu1 \0"),
        ] {
            assert_eq!(without_name(text, "gpu1"), without);
        }
        assert_eq!(without_name("text", ""), "text");
    }

    #[test]
    fn an_address_is_found_as_a_word_only() {
        for (text, found) in [
            ("because of copy:/etc/x", true),
            ("copy:/etc/x failed", true),
            ("copy:/etc/x.", true),
            ("copy:/etc/x.conf", false),
            ("copy:/etc/x/y", false),
            ("xcopy:/etc/x", false),
            ("`copy:/etc/x`: failed", true),
        ] {
            assert_eq!(names(text, "copy:/etc/x"), found, "{text}");
        }
    }
}
