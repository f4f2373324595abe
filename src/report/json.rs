//! One JSON document of the whole run, in the fields of `ndjson`; `docs/output.md` has its shape.
//!
//! It is written as the hosts are done: only what hosts under way have said is kept, so that memory doesn't grow with
//! the number of hosts.

use super::Reporter;
use super::ndjson::{host, output, resource, run_finished, run_started};
use crate::event::{Event, HostEvent, PlayStarted};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Writes the document.
pub(super) struct Json {
    out: Box<dyn Write + Send>,
    now: fn() -> Timestamp,
    diff: bool,
    begun: bool,
    /// The play whose hosts are written, and whether it has one already.
    play: Option<(Arc<str>, bool)>,
    drafts: HashMap<Arc<str>, Draft>,
    warnings: Vec<String>,
    verdicts: Vec<Value>,
    findings: Vec<Value>,
    totals: Value,
}

/// What a host that isn't done has said.
#[derive(Default)]
struct Draft {
    /// The resources as JSON, with commas between them.
    resources: String,
    output: Value,
    facts: Value,
}

#[derive(Serialize)]
struct Host<'a, T> {
    #[serde(flatten)]
    fields: T,
    output: &'a Value,
    facts: &'a Value,
}

impl Json {
    /// Writes to `out`; `now` is the clock.
    pub(super) fn new(out: Box<dyn Write + Send>, now: fn() -> Timestamp) -> Json {
        Json {
            out,
            now,
            diff: false,
            begun: false,
            play: None,
            drafts: HashMap::new(),
            warnings: Vec::new(),
            verdicts: Vec::new(),
            findings: Vec::new(),
            totals: Value::Null,
        }
    }

    fn time(&self) -> String {
        format!("{:.3}", (self.now)())
    }

    fn draft(&mut self, host: &Arc<str>) -> &mut Draft {
        self.drafts.entry(host.clone()).or_default()
    }

    fn begin(&mut self, run: &Value) -> io::Result<()> {
        self.begun = true;
        let time = self.time();
        write!(self.out, "{{\"v\":1,\"started\":\"{time}\",\n\"run\":{run},\n\"plays\":[")
    }

    fn open(&mut self, name: &Arc<str>, started: Option<&PlayStarted>) -> io::Result<()> {
        let comma = if self.play.is_some() { "," } else { "" };
        self.close()?;
        self.play = Some((name.clone(), false));
        let (first, resources) = (started.map(|e| e.first_batch), started.map(|e| e.resources));
        let fields = json!({ "play": &**name, "first_batch": first, "resources": resources }).to_string();
        // The hosts follow inside of it.
        write!(self.out, "{comma}\n{},\"hosts\":[", fields.strip_suffix('}').unwrap_or(&fields))
    }

    fn close(&mut self) -> io::Result<()> {
        if self.play.is_some() { write!(self.out, "]}}") } else { Ok(()) }
    }

    fn host(&mut self, e: &HostEvent) -> io::Result<()> {
        // A play that the run never came to is only named by the hosts that it passes over.
        if self.play.as_ref().is_none_or(|(name, _)| *name != e.play) {
            self.open(&e.play, None)?;
        }
        let comma = match &mut self.play {
            Some((_, true)) => ",",
            Some((_, any)) => {
                *any = true;
                ""
            }
            None => "",
        };
        let draft = self.drafts.remove(&e.host).unwrap_or_default();
        let fields = Host { fields: host(e), output: &draft.output, facts: &draft.facts };
        let fields = serde_json::to_string(&fields)?;
        let fields = fields.strip_suffix('}').unwrap_or(&fields);
        write!(self.out, "{comma}\n{fields},\"resources\":[{}]}}", draft.resources)
    }
}

impl Reporter for Json {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted(e) => {
                self.diff = e.diff;
                self.begin(&run_started(e))
            }
            Event::PlayStarted(e) => self.open(&e.play, Some(e)),
            Event::Resource(e) => {
                let text = serde_json::to_string(&resource(e, self.diff))?;
                let draft = self.draft(&e.host);
                draft.resources.push_str(if draft.resources.is_empty() { "\n  " } else { ",\n  " });
                draft.resources.push_str(&text);
                Ok(())
            }
            Event::Host(e) => self.host(e),
            Event::Output(e) => {
                self.draft(&e.host).output = output(e);
                Ok(())
            }
            Event::Facts { host, facts } => {
                self.draft(host).facts = facts.clone();
                Ok(())
            }
            Event::Verdict { play, verdict } => {
                self.verdicts.push(super::ndjson::verdict(play, verdict));
                Ok(())
            }
            Event::Finding { play, finding } => {
                self.findings.push(super::ndjson::finding(play, finding));
                Ok(())
            }
            Event::Warning(e) => {
                if !self.warnings.contains(&e.message) {
                    self.warnings.push(e.message.clone());
                }
                Ok(())
            }
            Event::RunFinished(e) => {
                self.totals = run_finished(e);
                Ok(())
            }
            Event::BatchStarted { .. }
            | Event::HostStage { .. }
            | Event::Script { .. }
            | Event::BootsPlanned(_)
            | Event::Boot(_) => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if !self.begun {
            self.begin(&Value::Null)?;
        }
        self.close()?;
        let (time, warnings) = (self.time(), serde_json::to_string(&self.warnings)?);
        if !self.verdicts.is_empty() || !self.findings.is_empty() {
            let (verdicts, findings) = (json!(self.verdicts), json!(self.findings));
            write!(self.out, "\n],\n\"verdicts\":{verdicts},\n\"findings\":{findings},\n\"warnings\":{warnings},")?;
        } else {
            write!(self.out, "\n],\n\"warnings\":{warnings},")?;
        }
        write!(self.out, "\n\"totals\":{},\n\"finished\":\"{time}\"}}\n", self.totals)?;
        self.out.flush()
    }
}
