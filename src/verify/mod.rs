//! Proving a fabric: what is tested between which hosts, and what follows from the results. All of it is pure; the engine
//! runs it (`src/engine/exam`).

pub mod audit;
pub mod blame;
pub mod busy;
pub mod compare;
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

#[cfg(test)]
mod tests {
    use super::fabric::{Nic, Node};
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn ten_thousand_hosts_are_judged_in_seconds() {
        let node = |i: usize| {
            let nic = |rail: usize| Nic {
                name: format!("eth{rail}"),
                mtu: if i % 1000 == 7 { 1500 } else { 9000 },
                speed_mbps: Some(400_000),
                carrier: Some(true),
                addresses: vec![format!("10.{rail}.{}.{}/16", i / 250, i % 250 + 1)],
                ..Nic::default()
            };
            Node { host: format!("gpu{i:05}").into(), nics: (1..=8).map(nic).collect(), ..Node::default() }
        };
        let nodes: Vec<Node> = (0..10_000).map(node).collect();
        let start = Instant::now();
        let mut judged = Judged::default();
        ports::judge(&nodes, &mut judged);
        assert_eq!((judged.verdicts.len(), judged.findings.len()), (80_000, 0));
        let check = suite::PathMtu::default();
        let sizes = path_mtu::sizes(&nodes, &check);
        let unfit = path_mtu::unfit(&nodes, &check, &sizes, &mut judged);
        let hosts: Vec<usize> = judged.findings.iter().map(|f| f.hosts.len()).collect();
        assert_eq!((unfit.len(), hosts), (80, vec![10; 8]));
        assert_eq!(fabric::parts(&nodes).len(), 1);
        let plan = path_mtu::plan(&nodes, &sizes, &Pairs::Quick.rounds(nodes.len(), 0), &unfit);
        // Both ways on eight rails, but for five pairs of which neither is fit.
        assert_eq!(plan.values().map(Vec::len).sum::<usize>(), (5_000 - 5) * 16);
        let bad = |at: usize| at % 500 == 3;
        let test = |t: &path_mtu::Trial| blame::Tested { from: t.from, to: t.to, good: !bad(t.from.0) && !bad(t.to.0) };
        let tests: Vec<blame::Tested> = plan.values().flatten().map(test).collect();
        let suspects = blame::suspects(&tests);
        let again = blame::again(&suspects, &blame::proven(&tests, &suspects), |a, b| a.1 == b.1);
        let both = |(a, b): (blame::End, blame::End)| {
            let good = !bad(a.0) && !bad(b.0);
            [blame::Tested { from: a, to: b, good }, blame::Tested { from: b, to: a, good }]
        };
        let named = blame::name(&tests, &again.into_iter().flat_map(both).collect::<Vec<_>>());
        assert_eq!(named.len(), 20 * 8);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}
