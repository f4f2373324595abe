//! For people: what will be touched, what changed, folded by hosts that say the same, what failed and what to do.
//!
//! A batch is told when all its hosts are done, so that they can be folded. A failure is told in one line when it
//! happens, and once in full, with its remedy, at the very end: there it is still on the screen when someone looks.

use super::boots;
use super::checks::Checks;
use super::closing;
use super::failures::{Draft, Failure, Failures, named};
use super::fold::{Folded, Hosts};
use super::outcome::outcome;
use super::outputs::{InOrder, Outputs};
use super::progress::Progress;
use super::text::{Palette, clean, count, lines, number, pad};
use super::{Reporter, Verbosity, diff};
use crate::event::{
    Event, FileDiff, HostEvent, HostStatus, PlayStarted, ResourceEvent, RunFinished, RunStarted, Status,
};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

/// How many failures of one batch are told when they happen. A rack without power isn't told host by host.
const MOST_AT_ONCE: usize = 5;
/// How long the list of hosts in a play's header may be.
const LONGEST_LIST: usize = 160;
/// Up to where the columns of hosts and addresses are aligned.
const WIDEST_HOSTS: usize = 32;
const WIDEST_ADDRESS: usize = 40;

/// How it looks.
#[derive(Default)]
pub(super) struct Look {
    /// Whether there are colours.
    pub(super) color: bool,
    /// Columns of the terminal; nothing breaks no lines.
    pub(super) width: Option<usize>,
    /// How much is told.
    pub(super) verbosity: Verbosity,
    /// The line that moves, on a terminal.
    pub(super) progress: Option<Progress>,
    /// Where messages go while the output itself is data (`facts`), so that it can be piped into something.
    pub(super) side: Option<Box<dyn Write + Send>>,
}

/// Writes events for people.
pub(super) struct Human {
    out: Box<dyn Write + Send>,
    look: Look,
    palette: Palette,
    run: RunStarted,
    hosts: Hosts,
    plays: Vec<Arc<str>>,
    /// How many hosts the play has.
    play_hosts: usize,
    /// Hosts of the batch that aren't done.
    waiting: HashSet<u32>,
    /// What is told of the batch at its end.
    section: Folded<Line>,
    /// Where the resources of the play stand.
    positions: HashMap<Arc<str>, usize>,
    drafts: HashMap<u32, Draft>,
    failures: Failures,
    /// Failures of the batch told so far, by what they say.
    told: HashSet<(Option<Arc<str>>, String)>,
    reboots: Folded<Vec<String>>,
    outputs: Outputs,
    checks: Checks,
    /// Facts of hosts that come after one that isn't done.
    answers: InOrder,
    warned: HashSet<String>,
    diffs: HashMap<[u8; 32], Arc<str>>,
}

/// What several hosts can say.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Line {
    /// The resource; nothing for the host itself.
    address: Option<Arc<str>>,
    tone: Tone,
    text: Vec<String>,
    diff: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Tone {
    Change,
    Plain,
    Warning,
}

impl Human {
    /// Writes to `out`.
    pub(super) fn new(out: Box<dyn Write + Send>, look: Look) -> Human {
        Human {
            out,
            palette: Palette { on: look.color },
            look,
            run: RunStarted { command: "apply", ..RunStarted::default() },
            hosts: Hosts::default(),
            plays: Vec::new(),
            play_hosts: 0,
            waiting: HashSet::new(),
            section: Folded::default(),
            positions: HashMap::new(),
            drafts: HashMap::new(),
            failures: Failures::default(),
            told: HashSet::new(),
            reboots: Folded::default(),
            outputs: Outputs::default(),
            checks: Checks::default(),
            answers: InOrder::default(),
            warned: HashSet::new(),
            diffs: HashMap::new(),
        }
    }

    /// Whether the output itself is data, so that messages go beside it.
    fn is_data(&self) -> bool {
        self.run.command == "facts"
    }

    /// Whether no more than failures is to be told.
    fn quiet(&self) -> bool {
        self.look.verbosity == Verbosity::Quiet
    }

    /// Writes a message.
    fn say(&mut self, text: &str) -> io::Result<()> {
        let data = self.is_data();
        let out = match &mut self.look.side {
            Some(side) if data => side,
            _ => &mut self.out,
        };
        write(out, self.look.progress.as_ref(), text)
    }

    fn play_started(&mut self, e: &PlayStarted) -> io::Result<()> {
        self.flush()?;
        self.plays.push(e.play.clone());
        self.positions.clear();
        self.play_hosts = e.hosts.len();
        self.waiting = e.hosts.iter().map(|host| self.hosts.number(host)).collect();
        if let Some(progress) = &mut self.look.progress {
            progress.play(e.hosts.len());
        }
        if self.quiet() || self.is_data() {
            return Ok(());
        }
        let mut text = String::new();
        if self.run.command == "apply" || (self.run.command == "verify" && self.run.plays.len() > 1) {
            let gap = if self.plays.len() > 1 { "\n" } else { "" };
            let check = if self.run.check { " (check: nothing is changed)" } else { "" };
            text = format!("{gap}{}{check}\n", self.palette.bold(&format!("play {}", clean(&e.play))));
        }
        let first = e.first_batch.min(e.hosts.len());
        let list = self.header_list(&e.hosts[..first]);
        text.push_str(&count(e.hosts.len(), "host"));
        if first < e.hosts.len() {
            text.push_str(&format!(", first batch {}: {list}", number(first)));
        } else if first > 0 {
            text.push_str(&format!(": {list}"));
        }
        text.push('\n');
        self.say(&text)
    }

    /// Hosts for a header: cut where that is too long, as nothing depends on it.
    fn header_list(&mut self, hosts: &[Arc<str>]) -> String {
        let numbers: Vec<u32> = hosts.iter().map(|host| self.hosts.number(host)).collect();
        let list = self.hosts.list(&numbers);
        let cut = list.char_indices().nth(LONGEST_LIST).map(|(at, _)| at);
        let list = match cut {
            Some(at) => format!("{}…", &list[..list[..at].rfind(',').map_or(at, |comma| comma + 1)]),
            None => list.to_string(),
        };
        self.palette.place(&list)
    }

    fn batch_started(&mut self, (n, of): (usize, usize), hosts: &[Arc<str>]) -> io::Result<()> {
        self.flush()?;
        self.waiting = hosts.iter().map(|host| self.hosts.number(host)).collect();
        // The first batch is in the play's header.
        if self.quiet() || self.is_data() || n == 1 {
            return Ok(());
        }
        let list = self.header_list(hosts);
        let text = format!("batch {} of {}, {}: {list}\n", number(n), number(of), count(hosts.len(), "host"));
        self.say(&text)
    }

    fn resource(&mut self, e: &ResourceEvent) -> io::Result<()> {
        if e.status == Status::Ok && e.warnings.is_empty() && e.because.is_none() {
            return Ok(());
        }
        let host = self.hosts.number(&e.host);
        self.positions.entry(e.address.clone()).or_insert(e.position);
        for warning in &e.warnings {
            self.add(host, Some(&e.address), Tone::Warning, lines(warning).collect());
        }
        match e.status {
            Status::Failed | Status::RolledBack if !e.ignored => {
                let play = self.plays.len().saturating_sub(1);
                self.failures.place(play, &e.address, e.position);
                self.failed(host, &e.host, Failure::of_resource(play, e))
            }
            Status::Skipped => {
                let because = e.because.clone().unwrap_or_default();
                let left_out = because.starts_with("when:") || because.starts_with("tags");
                if !left_out || self.look.verbosity >= Verbosity::Verbose {
                    self.drafts.entry(host).or_default().skipped.push((e.address.clone(), because));
                }
                Ok(())
            }
            Status::Ok => {
                let text = outcome(e);
                if !text.is_empty() {
                    self.add(host, Some(&e.address), Tone::Plain, text);
                }
                Ok(())
            }
            _ => {
                if !self.quiet() {
                    let diff = self.diff(&e.files);
                    let line = Line { address: Some(e.address.clone()), tone: Tone::Change, text: outcome(e), diff };
                    self.section.add(line, host);
                }
                Ok(())
            }
        }
    }

    /// The diff of a resource's files, made once for all hosts that have the same.
    fn diff(&mut self, files: &[FileDiff]) -> Option<Arc<str>> {
        if !self.run.diff || files.is_empty() {
            return None;
        }
        let mut digest = Sha256::new();
        for file in files {
            for part in [Some(file.path.as_bytes()), file.before.as_deref(), file.after.as_deref()] {
                // The length stands before the bytes, and tells no file from an empty one.
                digest.update(part.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
                digest.update(part.unwrap_or_default());
            }
        }
        let make = || files.iter().map(diff::unified).collect::<String>().into();
        Some(self.diffs.entry(digest.finalize().into()).or_insert_with(make).clone())
    }

    /// A line of the section.
    fn add(&mut self, host: u32, address: Option<&Arc<str>>, tone: Tone, text: Vec<String>) {
        if !self.quiet() {
            self.section.add(Line { address: address.cloned(), tone, text, diff: None }, host);
        }
    }

    /// Keeps a failure for the end, and tells its first line now, unless the end follows (a play's only host) or
    /// nobody looks on.
    fn failed(&mut self, host: u32, name: &str, failure: Failure) -> io::Result<()> {
        let wanted = self.play_hosts != 1 && !self.quiet() && self.told.len() <= MOST_AT_ONCE;
        let new = wanted && self.told.insert(failure.alike());
        let line = match self.told.len() {
            0..=MOST_AT_ONCE => failure.at_once(name, self.palette),
            _ => "more failures are told at the end\n".to_owned(),
        };
        self.drafts.entry(host).or_default().failed.push(failure);
        if new { self.say(&line) } else { Ok(()) }
    }

    fn host(&mut self, e: &HostEvent) -> io::Result<()> {
        let answers = self.answers.done(&e.host);
        write(&mut self.out, self.look.progress.as_ref(), &answers)?;
        let host = self.hosts.number(&e.host);
        for warning in &e.warnings {
            self.add(host, None, Tone::Warning, lines(warning).collect());
        }
        if !e.reboot_pending.is_empty() {
            self.reboots.add(e.reboot_pending.clone(), host);
        }
        if let Some(error) = &e.error {
            if e.status == HostStatus::Skipped {
                self.add(host, None, Tone::Plain, vec![format!("skipped: {}", clean(&error.message))]);
            } else if error.kind != "verify" {
                // Those are told as findings.
                let play = self.plays.len().saturating_sub(1);
                self.failed(host, &e.host, Failure::of_host(play, e, error))?;
            }
        }
        self.settle(host);
        if let Some(progress) = &mut self.look.progress {
            progress.done(&e.host);
        }
        if self.waiting.remove(&host) && self.waiting.is_empty() { self.flush() } else { Ok(()) }
    }

    /// A host says nothing more in this play: what it skipped finds its cause.
    fn settle(&mut self, host: u32) {
        let Some(draft) = self.drafts.remove(&host) else { return };
        let mut by_reason: Vec<(String, Vec<Arc<str>>)> = Vec::new();
        for (address, because) in self.failures.add(host, draft) {
            match by_reason.iter_mut().find(|(reason, _)| *reason == because) {
                Some((_, addresses)) => addresses.push(address),
                None => by_reason.push((because, vec![address])),
            }
        }
        for (reason, addresses) in by_reason {
            let because = if reason.is_empty() { String::new() } else { format!(" ({})", clean(&reason)) };
            self.add(host, None, Tone::Plain, vec![format!("skipped{because}: {}", named(&addresses))]);
        }
    }

    /// Tells what is known of the batch.
    fn flush(&mut self) -> io::Result<()> {
        let mut left: Vec<u32> = self.drafts.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|host| self.settle(host));
        self.told.clear();
        let quiet = self.quiet();
        let checks = self.checks.take(&mut self.hosts, self.palette, quiet);
        self.say(&checks)?;
        if self.section.is_empty() {
            return Ok(());
        }
        let positions = &self.positions;
        let rank = |line: &Line| match &line.address {
            Some(address) => (positions.get(address).copied().unwrap_or(usize::MAX), line.tone),
            None => (usize::MAX, line.tone),
        };
        let told: Vec<(Arc<str>, Line)> =
            self.section.take(rank).into_iter().map(|(line, on)| (self.hosts.list(&on), line)).collect();
        let text = section(&told, self.palette);
        self.diffs.clear();
        self.say(&text)
    }

    fn finished(&mut self, e: &RunFinished) -> io::Result<()> {
        self.flush()?;
        if let Some(progress) = self.look.progress.take() {
            progress.clear();
        }
        let palette = self.palette;
        let outputs = self.outputs.tell(&mut self.hosts, palette);
        self.say(&outputs)?;
        let mut text = String::new();
        // Of a command that only asks, answers are all that is wanted where nothing went wrong.
        let asked = !["apply", "reboot"].contains(&self.run.command);
        let only_answers = asked && e.exit_code == 0;
        if self.run.command == "verify" && only_answers && !self.quiet() {
            text.push_str(&closing::proven(e, palette));
        }
        if !self.quiet() && !only_answers {
            if !asked && !closing::quiet(e) {
                let verbose = self.look.verbosity >= Verbosity::Verbose;
                text.push_str(&format!("\n{}", closing::table(e, &mut self.hosts, palette, verbose)));
            }
            text.push_str(&format!("\n{}", closing::summary(e, palette)));
            for (reasons, on) in self.reboots.take(|_| ()) {
                let reasons = reasons.iter().map(|r| clean(r)).collect::<Vec<_>>().join("; ");
                text.push_str(&format!("{}  reboot pending: {reasons}\n", palette.place(&self.hosts.list(&on))));
            }
        }
        let failures = self.failures.tell(&mut self.hosts, &self.plays, palette, self.look.width);
        if !failures.is_empty() {
            text.push_str(&format!("\n{failures}"));
        }
        let failed = !matches!(e.exit_code, 0 | 3);
        if let Some(again) = e.again.as_ref().filter(|_| failed || e.interrupted) {
            text.push_str(&format!("\nto run the hosts again that aren't done:\n  {}\n", palette.bold(&clean(again))));
        }
        if let Some(log) = e.log.as_ref().filter(|_| failed || self.look.verbosity >= Verbosity::Verbose) {
            text.push_str(&format!("log of this run: {}\n", clean(log)));
        }
        // Nothing stands above it that it has to be set off from.
        let text = if self.quiet() { text.trim_start_matches('\n') } else { &text };
        self.say(text)
    }
}

impl Reporter for Human {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted(e) => {
                self.run = e.clone();
                if e.command == "facts" {
                    self.answers = InOrder::new(e.plays.iter().flat_map(|(_, hosts)| hosts));
                }
                Ok(())
            }
            Event::PlayStarted(e) => self.play_started(e),
            Event::BatchStarted { number, hosts, .. } => self.batch_started(*number, hosts),
            Event::HostStage { host, stage } => {
                if let Some(progress) = &mut self.look.progress {
                    progress.stage(host, *stage);
                }
                Ok(())
            }
            Event::BootsPlanned(e) => {
                let text = if self.quiet() { String::new() } else { boots::planned(e, &mut self.hosts, self.palette) };
                self.say(&text)
            }
            Event::Boot(e) => {
                let text = if self.quiet() { String::new() } else { boots::step(e, self.palette) };
                self.say(&text)
            }
            Event::Resource(e) => self.resource(e),
            Event::Host(e) => self.host(e),
            Event::Output(e) => {
                let host = self.hosts.number(&e.host);
                self.outputs.add(host, e);
                Ok(())
            }
            Event::Facts { host, facts } => {
                let text = serde_json::to_string_pretty(&serde_json::json!({ &**host: facts }))? + "\n";
                let text = self.answers.add(host, text);
                write(&mut self.out, self.look.progress.as_ref(), &text)
            }
            Event::Script { host, text } => {
                if self.look.verbosity < Verbosity::Scripts {
                    return Ok(());
                }
                // Not indented: it can be taken and run as it stands.
                let shown: String = lines(text).map(|line| line + "\n").collect();
                let escaped = if shown == **text { "" } else { ", control characters in it escaped" };
                let about = format!("{}: script of {}{escaped}", clean(host), count(text.len(), "byte"));
                let shown = format!("{}\n{shown}", self.palette.place(&format!("# {about}")));
                self.say(&shown)
            }
            Event::Verdict { verdict, .. } => {
                self.checks.verdict(verdict);
                Ok(())
            }
            Event::Finding { finding, .. } => {
                self.checks.finding(finding);
                Ok(())
            }
            Event::Warning(e) => {
                if self.quiet() || !self.warned.insert(e.message.clone()) {
                    return Ok(());
                }
                let text = warning(&e.message, self.palette);
                self.say(&text)
            }
            Event::RunFinished(e) => self.finished(e),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.look.progress = None;
        self.flush()?;
        self.out.flush()
    }
}

fn write(out: &mut Box<dyn Write + Send>, progress: Option<&Progress>, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut write = || out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match progress {
        Some(progress) => progress.suspend(write),
        None => write(),
    }
}

/// A warning; its further lines are indented.
pub(super) fn warning(message: &str, palette: Palette) -> String {
    let mut text = palette.change("warning:");
    for (i, line) in lines(message).enumerate() {
        text.push_str(&format!("{}{line}\n", if i == 0 { " " } else { "  " }));
    }
    text
}

/// What a batch said: hosts, resource and what became of it in columns, further lines below it, diffs below that.
fn section(told: &[(Arc<str>, Line)], palette: Palette) -> String {
    let width = console::measure_text_width;
    let widest =
        |widths: &mut dyn Iterator<Item = usize>, most: usize| widths.filter(|w| *w <= most).max().unwrap_or(0);
    let first = widest(&mut told.iter().map(|(hosts, _)| width(hosts)), WIDEST_HOSTS);
    let addresses = told.iter().filter_map(|(_, line)| line.address.as_deref()).map(|a| width(&clean(a)));
    let second = widest(&mut { addresses }, WIDEST_ADDRESS);
    let mut out = String::new();
    for (hosts, line) in told {
        let mut start = format!("{}  ", palette.place(&pad(hosts, first)));
        let mut indent = first + 2;
        if let Some(address) = &line.address {
            start.push_str(&format!("{}  ", pad(&clean(address), second)));
            indent += second + 2;
        }
        if line.tone == Tone::Warning {
            start.push_str(&format!("{} ", palette.change("warning:")));
        }
        for (i, text) in line.text.iter().enumerate() {
            let text = if line.tone == Tone::Change { palette.change(text) } else { text.clone() };
            match i {
                0 => out.push_str(&start),
                _ => out.extend(std::iter::repeat_n(' ', indent)),
            }
            out.push_str(&text);
            out.push('\n');
        }
        for text in line.diff.iter().flat_map(|diff| lines(diff)) {
            let text = match text.as_bytes().first() {
                Some(b'-') if !text.starts_with("--- ") => palette.removed(&text),
                Some(b'+') if !text.starts_with("+++ ") => palette.good(&text),
                Some(b'@') => palette.place(&text),
                _ => text,
            };
            out.push_str(&format!("    {text}\n"));
        }
    }
    out
}
