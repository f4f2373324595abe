//! Runs `path_mtu`: all pings of a host in one execution, and those of suspects again, with the packets counted where they
//! arrive.

use super::pairs::{apart, faces};
use super::{Lines, Lost, Room};
use crate::verify::blame::{self, Tested};
use crate::verify::fabric::Node;
use crate::verify::path_mtu::{self, Result as Found, Trial};
use crate::verify::suite::PathMtu;
use crate::verify::{Judged, ping};

/// How many pings a host is sent at once: what they print has to fit into 64 KiB.
const MOST: usize = 128;

impl Room<'_, '_> {
    pub(super) fn path_mtu(&mut self, check: &PathMtu, nodes: &[Node], seats: &[usize], judged: &mut Judged) {
        let sizes = path_mtu::sizes(nodes, check);
        let small = path_mtu::unfit(nodes, check, &sizes, judged);
        let rounds = self.schedule(nodes);
        let plan = path_mtu::plan(nodes, &sizes, &rounds, &small);
        path_mtu::alone(nodes, check, &plan, &small, judged);
        let jobs: Vec<(usize, &[Trial])> =
            plan.iter().flat_map(|(at, trials)| trials.chunks(MOST).map(|some| (seats[*at], some))).collect();
        let mut first: Vec<Found> =
            self.each(&jobs, |lines, job| all(lines, job, true)).into_iter().flatten().flatten().collect();
        let faces = |a, b| faces(nodes, a, b);
        let trials = |pairs: &Vec<(blame::End, blame::End)>| -> Vec<Trial> {
            let Some(hosts) = pairs.first().map(|(a, b)| (a.0, b.0)) else { return Vec::new() };
            let meant = |t: &Trial| pairs.contains(&(t.from, t.to)) || pairs.contains(&(t.to, t.from));
            path_mtu::between(nodes, &sizes, hosts, &small).into_iter().filter(meant).collect()
        };
        let mut tests: Vec<Tested> = first.iter().filter_map(Found::tested).collect();
        let mut suspects = blame::suspects(&tests);
        let mut again = blame::again(&suspects, &blame::proven(&tests, &suspects), faces);
        let joined = blame::joined(&suspects, &again, &tests, faces);
        if !joined.is_empty() {
            for jobs in apart(&joined) {
                let jobs: Vec<Vec<Trial>> = jobs.iter().map(trials).collect();
                let done = self.each(&jobs, |lines, trials| {
                    let one = |t: &Trial| all(lines, &(seats[t.from.0], std::slice::from_ref(t)), true);
                    trials.iter().map(one).collect::<Result<Vec<_>, Lost>>()
                });
                let more: Vec<Found> = done.into_iter().flatten().flatten().flatten().collect();
                tests.extend(more.iter().filter_map(Found::tested));
                first.extend(more);
            }
            suspects = blame::suspects(&tests);
            again = blame::again(&suspects, &blame::proven(&tests, &suspects), faces);
        }
        let mut second = Vec::new();
        for jobs in apart(&again) {
            let jobs: Vec<Vec<Trial>> = jobs.iter().map(trials).collect();
            let done = self.each(&jobs, |lines, trials| {
                trials.iter().map(|trial| counted(lines, seats, trial)).collect::<Result<Vec<_>, Lost>>()
            });
            second.extend(done.into_iter().flatten().flatten());
        }
        path_mtu::deaf(&mut second);
        let retried: Vec<Tested> = second.iter().filter_map(Found::tested).collect();
        path_mtu::judge(nodes, &first, &second, &blame::name(&tests, &retried), judged);
    }
}

/// All pings of a host.
fn all(lines: &Lines<'_, '_>, (at, trials): &(usize, &[Trial]), small: bool) -> Result<Vec<Found>, Lost> {
    let pings: Vec<ping::Ping> = trials.iter().map(|t| t.ping.clone()).collect();
    let output = lines.run(*at, &ping::tries(&pings, small), ping::seconds(pings.len()))?;
    let pongs = ping::read(&output.text(), pings.len());
    let found = |(trial, (whole, small)): (&Trial, _)| Found {
        trial: trial.clone(),
        whole,
        small,
        arrived: None,
        unanswered: false,
    };
    Ok(trials.iter().zip(pongs).map(found).collect())
}

/// One ping, its packets counted where they arrive.
fn counted(lines: &Lines<'_, '_>, seats: &[usize], trial: &Trial) -> Result<Found, Lost> {
    let (from, to) = (seats[trial.from.0], seats[trial.to.0]);
    let count = |at| {
        lines.run(at, &ping::arrived(), 10).map(|output| ping::count(&output.text(), trial.ping.address.contains(':')))
    };
    let before = count(to)?;
    let mut found = all(lines, &(from, std::slice::from_ref(trial)), false)?.remove(0);
    let after = count(to)?;
    found.arrived = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    Ok(found)
}
