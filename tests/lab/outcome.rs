//! What became of each resource of a play, read from the events of a run.

use crate::harness::Hosts;
use crate::told::{self, play};
use serde_json::Value;

/// One resource or handler on one host.
#[derive(Debug)]
#[must_use]
pub(crate) struct Outcome {
    pub(crate) address: String,
    pub(crate) status: String,
    /// Its fields that changed, `FIELD FROM TO` a line.
    pub(crate) changes: String,
    /// One a line.
    pub(crate) warnings: String,
    /// Message and hint.
    pub(crate) error: String,
}

impl Outcome {
    /// Asserts that it came to this.
    #[track_caller]
    pub(crate) fn is(self, status: &str) {
        assert_eq!(self.status, status, "{self:?}");
    }

    /// Asserts that it failed, with a message that has this in it.
    #[track_caller]
    pub(crate) fn fails(self, why: &str) {
        assert!(self.status == "failed" && self.error.contains(why), "not failed by {why:?}: {self:?}");
    }
}

/// Applies a play of these entries of `resources:` and `handlers:`, which are indented by two blanks.
pub(crate) fn apply(hosts: &Hosts, resources: &str, handlers: &str) -> Vec<Outcome> {
    let handlers = if handlers.is_empty() { String::new() } else { format!("  handlers:\n{handlers}") };
    let play = play(&format!("{resources}  confirm: none\n{handlers}"));
    let run = told::apply(hosts, &play, &[]).run();
    assert!(matches!(run.code, Some(0 | 2)), "{run:?}");
    let events = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("a JSON object a line"));
    events.filter(|e| e["event"] == "resource").map(|e| outcome(&e)).collect()
}

fn outcome(event: &Value) -> Outcome {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let lines = |v: &Value, line: &dyn Fn(&Value) -> String| {
        v.as_array().into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
    };
    Outcome {
        address: text(&event["address"]),
        status: text(&event["status"]),
        changes: lines(&event["changes"], &|c| format!("{} {} {}", text(&c["field"]), c["from"], c["to"])),
        warnings: lines(&event["warnings"], &text),
        error: format!("{} {}", text(&event["error"]["message"]), text(&event["error"]["hint"])),
    }
}
