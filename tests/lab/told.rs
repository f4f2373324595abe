//! What a run of `netplay apply --output ndjson` told, as values.

use serde_json::Value;

use crate::harness::{Hosts, Netplay, Run};

/// A playbook to be applied to hosts. `arguments` come after `apply -i inventory.yaml`; the playbook is `site.yaml`.
pub(crate) fn apply(hosts: &Hosts, playbook: &str, arguments: &[&str]) -> Netplay {
    let mut all = vec!["apply", "-i", "inventory.yaml", "--output", "ndjson", "site.yaml"];
    all.extend(arguments);
    Netplay::new(hosts, &all).file("site.yaml", playbook)
}

/// A play over all hosts with these resources (and what stands after them), each line indented as the caller wrote it.
pub(crate) fn play(resources: &str) -> String {
    format!("- hosts: all\n  resources:\n{resources}")
}

/// What a run told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) run: Run,
    lines: Vec<Value>,
}

impl From<Run> for Told {
    fn from(run: Run) -> Self {
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}\n{run:?}"));
        Self { lines: run.stdout.lines().map(line).collect(), run }
    }
}

impl Told {
    /// Runs to the end.
    #[track_caller]
    pub(crate) fn by(netplay: &Netplay, code: i32) -> Self {
        Self::from(netplay.run().exits(code))
    }

    fn events(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter(move |line| line["event"] == kind)
    }

    /// The only line of its kind for which `is` holds.
    #[track_caller]
    fn one(&self, kind: &'static str, is: impl Fn(&Value) -> bool) -> &Value {
        let found: Vec<&Value> = self.events(kind).filter(|line| is(line)).collect();
        assert_eq!(found.len(), 1, "{kind} events\n{}\n{}", self.run.stdout, self.run.stderr);
        found[0]
    }

    /// How the run ended.
    #[track_caller]
    pub(crate) fn finished(&self) -> &Value {
        self.one("run_finished", |_| true)
    }

    /// What became of a resource on a host.
    #[track_caller]
    pub(crate) fn resource(&self, host: &str, address: &str) -> &Value {
        self.one("resource", |line| line["host"] == host && line["address"] == address)
    }

    /// The status of a resource on the run's only host.
    #[track_caller]
    pub(crate) fn status(&self, address: &str) -> &str {
        self.one("resource", |line| line["address"] == address)["status"].as_str().unwrap()
    }

    /// Why a resource failed on the run's only host.
    #[track_caller]
    pub(crate) fn error(&self, address: &str) -> String {
        told(self.one("resource", |line| line["address"] == address && line["status"] == "failed"))
    }

    /// The findings, by their names, with the hosts and what was seen.
    pub(crate) fn findings(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let hosts = |line: &Value| line["hosts"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(",");
        self.events("finding").map(|line| (text(&line["name"]), hosts(line), text(&line["evidence"]))).collect()
    }

    /// How many verdicts of a check were good, and how many bad.
    pub(crate) fn verdicts(&self, check: &str) -> (usize, usize) {
        let count = |ok| self.events("verdict").filter(|line| line["check"] == check && line["ok"] == ok).count();
        (count(true), count(false))
    }

    /// All warnings of resources and hosts, and of the run.
    pub(crate) fn warnings(&self) -> String {
        let of = |line: &Value| line["warnings"].as_array().cloned().unwrap_or_default();
        let lines = self.lines.iter().flat_map(of).chain(self.events("warning").map(|line| line["message"].clone()));
        lines.map(|warning| warning.as_str().unwrap().to_owned() + "\n").collect()
    }

    /// What became of a host in the only play.
    #[track_caller]
    pub(crate) fn host(&self, host: &str) -> &Value {
        self.one("host", |line| line["host"] == host)
    }

    /// How many executions the run says that it made on a host.
    #[track_caller]
    pub(crate) fn executions(&self, host: &str) -> usize {
        self.host(host)["executions"].as_u64().unwrap().try_into().unwrap()
    }

    /// The same of one of several plays.
    #[track_caller]
    pub(crate) fn executions_of(&self, play: &str, host: &str) -> u64 {
        self.one("host", |line| line["host"] == host && line["play"] == play)["executions"].as_u64().unwrap()
    }

    /// How many resources came to something, on all hosts.
    pub(crate) fn count(&self, status: &str) -> usize {
        self.events("resource").filter(|line| line["status"] == status).count()
    }
}

/// Kind, message and hint of the error in an event; empty if there is none.
pub(crate) fn told(event: &Value) -> String {
    let part = |key: &str| event["error"][key].as_str().unwrap_or_default();
    [part("kind"), part("message"), part("hint")].join(": ")
}
