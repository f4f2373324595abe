//! Runs `path_mtu`: all pings of a host in one execution, and those of suspects again, with the packets counted where they
//! arrive.

use super::{Lines, Lost, Room};
use crate::verify::blame::{self, Tested};
use crate::verify::fabric::{Node, facing};
use crate::verify::path_mtu::{self, Result as Found, Trial};
use crate::verify::suite::PathMtu;
use crate::verify::{Judged, ping, schedule};
use std::collections::BTreeSet;

/// How many pings a host is sent at once: what they print has to fit into 64 KiB.
const MOST: usize = 128;

impl Room<'_, '_> {
    pub(super) fn path_mtu(&mut self, check: &PathMtu, nodes: &[Node], seats: &[usize], judged: &mut Judged) {
        let small = path_mtu::unfit(nodes, check, judged);
        let rounds = self.exam.pairs.rounds(nodes.len(), self.seed());
        let plan = path_mtu::plan(nodes, check, &rounds, &small);
        path_mtu::alone(nodes, check, &plan, &small, judged);
        let jobs: Vec<(usize, &[Trial])> =
            plan.iter().flat_map(|(at, trials)| trials.chunks(MOST).map(|some| (seats[*at], some))).collect();
        let first: Vec<Found> =
            self.each(&jobs, |lines, job| all(lines, job, true)).into_iter().flatten().flatten().collect();
        let tests: Vec<Tested> = first.iter().filter_map(Found::tested).collect();
        let suspects = blame::suspects(&tests);
        let faces =
            |a: blame::End, b: blame::End| facing(&nodes[a.0], &nodes[b.0]).iter().any(|f| f.nics == (a.1, b.1));
        let again = blame::again(&suspects, &blame::proven(&tests, &suspects), faces);
        let mut second = Vec::new();
        // One interface of a host after the other, so that no host is in two tests at once.
        let rounds = schedule::disjoint(again.iter().map(|(suspect, good)| (suspect.0, good.0)));
        for round in rounds {
            let of_round = |(suspect, good): &&(blame::End, blame::End)| round.contains(&(suspect.0, good.0));
            let mut trials: Vec<Vec<Trial>> = Vec::new();
            for (suspect, good) in again.iter().filter(of_round) {
                let both = path_mtu::between(nodes, check, (suspect.0, good.0), &small);
                let ends = BTreeSet::from([*suspect, *good]);
                let both = both.into_iter().filter(|t| ends.contains(&t.from) && ends.contains(&t.to));
                let both: Vec<Trial> = both.collect();
                match trials.iter_mut().find(|of| of[0].from.0 == suspect.0 || of[0].to.0 == suspect.0) {
                    Some(same) => same.extend(both),
                    None if !both.is_empty() => trials.push(both),
                    None => {}
                }
            }
            let counted = self.each(&trials, |lines, trials| {
                trials.iter().map(|trial| counted(lines, seats, trial)).collect::<Result<Vec<_>, Lost>>()
            });
            second.extend(counted.into_iter().flatten().flatten());
        }
        let retried: Vec<Tested> = second.iter().filter_map(Found::tested).collect();
        path_mtu::judge(nodes, &first, &second, &blame::name(&tests, &retried), judged);
    }

    /// What chooses a sample: another one each run.
    fn seed(&self) -> u64 {
        let id = &self.lines.shared.run;
        id.bytes().fold(17, |all, byte| all.wrapping_mul(31).wrapping_add(byte.into()))
    }
}

/// All pings of a host.
fn all(lines: &Lines<'_, '_>, (at, trials): &(usize, &[Trial]), small: bool) -> Result<Vec<Found>, Lost> {
    let pings: Vec<ping::Ping> = trials.iter().map(|t| t.ping.clone()).collect();
    let output = lines.run(*at, &ping::tries(&pings, small), ping::seconds(pings.len()))?;
    let pongs = ping::read(&output.text(), pings.len());
    let found = |(trial, (whole, small)): (&Trial, _)| Found { trial: trial.clone(), whole, small, arrived: None };
    Ok(trials.iter().zip(pongs).map(found).collect())
}

/// One ping, its packets counted where they arrive.
fn counted(lines: &Lines<'_, '_>, seats: &[usize], trial: &Trial) -> Result<Found, Lost> {
    let (from, to) = (seats[trial.from.0], seats[trial.to.0]);
    let count = |at| lines.run(at, &ping::arrived(), 10).map(|output| ping::count(&output.text(), &trial.ping));
    let before = count(to)?;
    let mut found = all(lines, &(from, std::slice::from_ref(trial)), false)?.remove(0);
    let after = count(to)?;
    found.arrived = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(found)
}
