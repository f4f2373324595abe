//! Proving a fabric: what is tested between which hosts, and what follows from the results. All of it is pure; the engine
//! runs it (`src/engine/exam`).

pub mod blame;
pub mod busy;
pub mod counters;
pub mod fabric;
pub mod iperf;
pub mod loss;
pub mod measure;
pub mod path_mtu;
pub mod perftest;
pub mod ping;
pub mod ports;
pub mod schedule;
pub mod server;
pub mod suite;
pub mod tcp;

pub use crate::event::Verdict;
use crate::finding::Finding;
pub use schedule::Pairs;
use std::sync::Arc;
pub use suite::{CHECKS, Check};

/// What a check came to.
#[derive(Debug, Default)]
pub struct Judged {
    /// Of each host, interface, pair.
    pub verdicts: Vec<Verdict>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Judged {
    /// Takes in what isn't as it should be, and what that is.
    pub fn failed(&mut self, verdict: Verdict, finding: Finding) {
        self.verdicts.push(Verdict { ok: Some(false), ..verdict });
        self.find(finding);
    }

    /// Takes in a finding; the same of several hosts is one.
    pub fn find(&mut self, finding: Finding) {
        let alike = |f: &&mut Finding| {
            let told = |f: &Finding| (f.name, f.evidence.clone(), f.cause.clone(), f.remedy.clone());
            f.pair.is_none() && finding.pair.is_none() && told(f) == told(&finding)
        };
        match self.findings.iter_mut().find(alike) {
            Some(same) => {
                same.hosts.extend(finding.hosts.into_iter().filter(|h| !same.hosts.contains(h)).collect::<Vec<_>>())
            }
            None => self.findings.push(finding),
        }
    }
}

impl Verdict {
    /// That something of a host is as it should be.
    pub fn of(check: &'static str, host: &Arc<str>, interface: Option<&str>, reason: impl Into<String>) -> Verdict {
        Verdict {
            check,
            host: host.clone(),
            interface: interface.map(str::to_owned),
            peer: None,
            ok: Some(true),
            value: None,
            wanted: None,
            unit: "",
            reason: reason.into(),
        }
    }

    /// The same, not judged.
    #[must_use]
    pub fn skipped(self) -> Verdict {
        Verdict { ok: None, ..self }
    }

    /// The same towards another host's interface.
    #[must_use]
    pub fn towards(self, host: &Arc<str>, interface: &str) -> Verdict {
        Verdict { peer: Some((host.clone(), interface.to_owned())), ..self }
    }
}
