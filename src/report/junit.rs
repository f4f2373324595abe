//! JUnit's XML, for CI systems: a test suite for each play and host, a test case for each resource and one for the
//! host itself. `docs/output.md` tells what becomes what.
//!
//! There is no standard. Written is what the readers of GitLab (`lib/gitlab/ci/parsers/test/junit.rb`) and Jenkins
//! (`org.jenkinsci.plugins.xunit`, `junit-10.xsd`) have in common, which `tests/junit_rules.rs` has as rules: GitLab takes
//! a case's suite from `classname` and shows an element's text, not its `message`, so that the text has all of it. The counts stand in the suites only:
//! those of all would have to be known before the first is written.

use super::outcome::{changes, outcome};
use super::text::{clean, from_bytes, lines};
use super::{Reporter, diff};
use crate::event::{CommandOutput, Event, HostEvent, HostStatus, Problem, ResourceEvent, Status};
use jiff::Timestamp;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

/// Writes the report, each suite when its host is done.
pub(super) struct JUnit {
    out: Box<dyn Write + Send>,
    now: fn() -> Timestamp,
    diff: bool,
    begun: bool,
    drafts: HashMap<Arc<str>, Vec<Case>>,
}

/// What a test case came to.
enum Verdict {
    Passed,
    Skipped(String),
    /// What is to be tested isn't as wanted: type, message, and text.
    Failure(&'static str, String, String),
    /// It couldn't be tested.
    Error(&'static str, String, String),
}

struct Case {
    name: String,
    verdict: Verdict,
    /// What is told though it didn't fail.
    output: String,
    seconds: f64,
}

impl JUnit {
    /// Writes to `out`; `now` is the clock.
    pub(super) fn new(out: Box<dyn Write + Send>, now: fn() -> Timestamp) -> JUnit {
        JUnit { out, now, diff: false, begun: false, drafts: HashMap::new() }
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.out.write_all(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"netplay\">\n")
    }

    fn case(&mut self, host: &Arc<str>, case: Case) {
        self.drafts.entry(host.clone()).or_default().push(case);
    }

    fn suite(&mut self, e: &HostEvent) -> io::Result<()> {
        self.begin()?;
        let mut cases = self.drafts.remove(&e.host).unwrap_or_default();
        cases.push(of_host(e));
        let count = |wanted: fn(&Verdict) -> bool| cases.iter().filter(|case| wanted(&case.verdict)).count();
        let name = attribute(&format!("{}.{}", e.play, e.host));
        let mut text = String::new();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{name}\" hostname=\"{}\" timestamp=\"{}\" time=\"{:.3}\" tests=\"{}\" failures=\"{}\" \
             errors=\"{}\" skipped=\"{}\">",
            attribute(&e.host),
            ((self.now)() - e.time).strftime("%Y-%m-%dT%H:%M:%S"),
            e.time.as_secs_f64(),
            cases.len(),
            count(|v| matches!(v, Verdict::Failure(..))),
            count(|v| matches!(v, Verdict::Error(..))),
            count(|v| matches!(v, Verdict::Skipped(_))),
        );
        cases.iter().for_each(|case| case.write(&mut text, &name));
        text.push_str("  </testsuite>\n");
        self.out.write_all(text.as_bytes())
    }

    fn resource(&self, e: &ResourceEvent) -> Case {
        let title = e.title.as_ref().map(|title| format!(" ({title})")).unwrap_or_default();
        let mut output: Vec<String> = e.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
        let verdict = match (e.status, &e.error) {
            (Status::Failed | Status::RolledBack, error) if e.ignored => {
                let why = error.as_ref().map(|e| format!(": {}", e.message)).unwrap_or_default();
                Verdict::Skipped(format!("failed, ignored{why}"))
            }
            (Status::Failed | Status::RolledBack, Some(error)) => {
                Verdict::Failure(error.kind, error.message.clone(), told(error, &changes(e, &e.changes)))
            }
            (Status::Failed | Status::RolledBack, None) => {
                Verdict::Failure("failed", "failed".to_owned(), changes(e, &e.changes).join("\n"))
            }
            (Status::Skipped, _) => Verdict::Skipped(e.because.clone().unwrap_or_default()),
            (Status::Ok | Status::Changed | Status::WouldChange | Status::RebootPending, _) => {
                output.extend(outcome(e));
                Verdict::Passed
            }
        };
        if self.diff {
            output.extend(e.files.iter().map(diff::unified));
        }
        Case { name: format!("{}{title}", e.address), verdict, output: output.join("\n"), seconds: 0.0 }
    }
}

/// What an error says: its message, what to do, and what else there is to tell.
fn told(error: &Problem, more: &[String]) -> String {
    let hint = error.hint.iter().map(|hint| format!("help: {hint}"));
    std::iter::once(error.message.clone()).chain(hint).chain(more.iter().cloned()).collect::<Vec<_>>().join("\n")
}

/// The case of the host itself: whether it was reached, and visited to the end.
fn of_host(e: &HostEvent) -> Case {
    let verdict = match (&e.error, e.status) {
        (Some(why), HostStatus::Skipped) => Verdict::Skipped(why.message.clone()),
        (None, HostStatus::Skipped) => Verdict::Skipped(String::new()),
        (Some(error), _) => Verdict::Error(error.kind, error.message.clone(), told(error, &[])),
        // What failed is a case of its own.
        (None, _) => Verdict::Passed,
    };
    let mut output: Vec<String> = e.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    output.extend(e.reboot_pending.iter().map(|why| format!("reboot pending: {why}")));
    Case { name: "host".to_owned(), verdict, output: output.join("\n"), seconds: e.time.as_secs_f64() }
}

/// The case of a command that was run.
fn of_command(e: &CommandOutput) -> Case {
    let output = from_bytes(&e.output);
    let verdict = match e.code {
        0 => Verdict::Passed,
        code => Verdict::Failure("exit_code", format!("exit code {code}"), format!("exit code {code}\n{output}")),
    };
    let output = if e.code == 0 { output } else { String::new() };
    Case { name: "command".to_owned(), verdict, output, seconds: 0.0 }
}

impl Case {
    fn write(&self, out: &mut String, class: &str) {
        let failed = |out: &mut String, element: &str, kind: &str, message: &str, body: &str| {
            let body = if body.trim().is_empty() { "failed" } else { body };
            let (message, body) = (attribute(message), text(body));
            let _ = writeln!(out, "      <{element} type=\"{kind}\" message=\"{message}\">{body}</{element}>");
        };
        let (name, seconds) = (attribute(&self.name), self.seconds);
        let _ = write!(out, "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\"");
        if matches!(self.verdict, Verdict::Passed) && self.output.is_empty() {
            out.push_str("/>\n");
            return;
        }
        out.push_str(">\n");
        match &self.verdict {
            Verdict::Passed => {}
            Verdict::Skipped(why) => {
                // GitLab takes an element without a text for the mapping of its attributes.
                let why = if why.is_empty() { "skipped" } else { why };
                let _ = writeln!(out, "      <skipped message=\"{}\">{}</skipped>", attribute(why), text(why));
            }
            Verdict::Failure(kind, message, body) => failed(out, "failure", kind, message, body),
            Verdict::Error(kind, message, body) => failed(out, "error", kind, message, body),
        }
        if !self.output.is_empty() {
            let _ = writeln!(out, "      <system-out>{}</system-out>", text(&self.output));
        }
        out.push_str("    </testcase>\n");
    }
}

/// Text between tags: lines stay, and what XML 1.0 has no way to write (control characters, U+FFFE, U+FFFF) is
/// written as for people, `\x1b`.
fn text(text: &str) -> String {
    xml(&lines(text).collect::<Vec<_>>().join("\n"))
}

/// The value of an attribute; readers take the end of a line for a blank unless it is written as a number.
fn attribute(text: &str) -> String {
    text.lines().map(|line| xml(&clean(line))).collect::<Vec<_>>().join("&#10;")
}

fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

impl Reporter for JUnit {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted(e) => {
                self.diff = e.diff;
                self.begin()
            }
            Event::Resource(e) => {
                let case = self.resource(e);
                self.case(&e.host, case);
                Ok(())
            }
            Event::Output(e) => {
                self.case(&e.host, of_command(e));
                Ok(())
            }
            Event::Host(e) => self.suite(e),
            Event::PlayStarted(_)
            | Event::BatchStarted { .. }
            | Event::HostStage { .. }
            | Event::BootsPlanned(_)
            | Event::Boot(_)
            | Event::Facts { .. }
            | Event::Script { .. }
            | Event::Verdict { .. }
            | Event::Finding { .. }
            | Event::Warning(_)
            | Event::RunFinished(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.begin()?;
        self.out.write_all(b"</testsuites>\n")?;
        self.out.flush()
    }
}
