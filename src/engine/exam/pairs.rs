//! Runs the checks that measure in pairs, round by round, so that no host is in two tests at once.

use super::{Lines, Lost, Room};
use crate::verify::blame::{self, Blamed, End, Tested};
use crate::verify::fabric::{Node, facing};
use crate::verify::iperf::{self, Ran};
use crate::verify::measure::{self, About, Fault, Measured, Way};
use crate::verify::suite::{Loss, Rdma, Tcp};
use crate::verify::{Judged, loss, perftest, ping, schedule, server, tcp};
use std::collections::BTreeSet;

/// How often a test is made whose server served somebody else.
const TRIES: usize = 3;

impl Room<'_, '_> {
    /// Measures between all pairs, tries again what isn't good, and judges it.
    pub(super) fn measure(
        &mut self,
        about: About,
        nodes: &[Node],
        seats: &[usize],
        judged: &mut Judged,
        work: impl Fn(&Lines<'_, '_>, &Way) -> Result<Measured, Lost> + Sync,
    ) {
        let mut all = Vec::new();
        for round in self.schedule(nodes) {
            let jobs = round.into_iter().map(|pair| measure::ways(nodes, pair));
            all.extend(self.round(seats, jobs, &work));
        }
        // What a test says whose other side was lost is about that.
        let lost: BTreeSet<usize> = (0..nodes.len()).filter(|at| self.lost[seats[*at]].is_some()).collect();
        all.retain(|one: &Measured| !lost.contains(&one.way.from.0) && !lost.contains(&one.way.to.0));
        let faces = |a, b| faces(nodes, a, b);
        let mut tests: Vec<Tested> = all.iter().filter_map(Measured::tested).collect();
        let mut suspects = blame::suspects(&tests);
        let mut again = blame::again(&suspects, &blame::proven(&tests, &suspects), faces);
        let joined = blame::joined(&suspects, &again, &tests, faces);
        if !joined.is_empty() {
            for jobs in apart(&joined) {
                let more = self.round(seats, jobs.iter().map(|pairs| between(nodes, pairs)), &work);
                tests.extend(more.iter().filter_map(Measured::tested));
                all.extend(more);
            }
            suspects = blame::suspects(&tests);
            again = blame::again(&suspects, &blame::proven(&tests, &suspects), faces);
        }
        let mut second = Vec::new();
        for jobs in apart(&again) {
            second.extend(self.round(seats, jobs.iter().map(|pairs| between(nodes, pairs)), &work));
        }
        let retried: Vec<Tested> = second.iter().filter_map(Measured::tested).collect();
        let mut blamed = blame::name(&tests, &retried);
        // A pair whose ends are good with others gets a second try: it may have been unlucky.
        let pairs: Vec<(End, End)> = blamed
            .iter()
            .filter_map(|b| match b {
                Blamed::Pair(a, b) | Blamed::PairBothWays(a, b) => Some((*a, *b)),
                _ => None,
            })
            .collect();
        let mut lucky = Vec::new();
        for jobs in apart(&pairs) {
            let failed = |way: &Way| tests.iter().any(|t| !t.good && t.from == way.from && t.to == way.to);
            let ways = jobs.iter().map(|pairs| between(nodes, pairs).into_iter().filter(failed).collect());
            let good = |one: &Measured| one.judged && one.fault.is_none();
            // Packets that were lost are lost, whatever comes later.
            lucky.extend(self.round(seats, ways, &work).into_iter().filter(good).filter(|_| about.check != "loss"));
        }
        for one in lucky {
            if let Some(first) = all.iter_mut().find(|first| first.way == one.way) {
                let reason = format!("{}; at the second try, the first gave: {}", one.reason, first.reason);
                *first = Measured { reason, ..one };
            }
        }
        let bad = |a: End, b: End| {
            all.iter().filter_map(Measured::tested).any(|t| !t.good && [(a, b), (b, a)].contains(&(t.from, t.to)))
        };
        blamed.retain(|b| match b {
            Blamed::Pair(a, b) | Blamed::PairBothWays(a, b) => bad(*a, *b),
            _ => true,
        });
        measure::alone(nodes, about, &all, &lost, judged);
        measure::judge(nodes, about, &all, &second, &blamed, judged);
    }

    /// One round: the ways of a job one after the other, and the jobs at once.
    fn round(
        &mut self,
        seats: &[usize],
        jobs: impl Iterator<Item = Vec<Way>>,
        work: &(impl Fn(&Lines<'_, '_>, &Way) -> Result<Measured, Lost> + Sync),
    ) -> Vec<Measured> {
        if self.stopped() {
            return Vec::new();
        }
        let there = |end: End| self.lost[seats[end.0]].is_none();
        let jobs = jobs.filter(|ways| ways.first().is_some_and(|way| there(way.from) && there(way.to)));
        let jobs: Vec<Vec<Way>> = jobs.collect();
        // What was measured before a host was lost is kept.
        let done = self.each(&jobs, |lines, ways| {
            let mut done = Vec::new();
            for way in ways {
                match work(lines, way) {
                    Ok(measured) => done.push(measured),
                    Err(lost) => return Ok((done, Some(lost))),
                }
            }
            Ok((done, None))
        });
        let mut all = Vec::new();
        for (done, lost) in done.into_iter().flatten() {
            all.extend(done);
            if let Some((host, stop)) = lost {
                self.lost[host].get_or_insert(stop);
            }
        }
        all
    }
}

/// Whether two interfaces face each other.
pub(super) fn faces(nodes: &[Node], a: End, b: End) -> bool {
    facing(&nodes[a.0], &nodes[b.0]).iter().any(|f| f.nics == (a.1, b.1))
}

/// Pairs of interfaces in rounds in which no host is twice; those of the same two hosts are one job.
pub(super) fn apart(pairs: &[(End, End)]) -> Vec<Vec<Vec<(End, End)>>> {
    let mut hosts: Vec<(usize, usize)> = pairs.iter().map(|(a, b)| (a.0, b.0)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let of = |(a, b): (usize, usize)| pairs.iter().copied().filter(|(x, y)| (x.0, y.0) == (a, b)).collect();
    schedule::disjoint(hosts).into_iter().map(|round| round.into_iter().map(of).collect()).collect()
}

/// The ways between these interfaces, both ways.
fn between(nodes: &[Node], pairs: &[(End, End)]) -> Vec<Way> {
    let Some(hosts) = pairs.first().map(|(a, b)| (a.0, b.0)) else { return Vec::new() };
    let meant = |way: &Way| pairs.contains(&(way.from, way.to)) || pairs.contains(&(way.to, way.from));
    measure::ways(nodes, hosts).into_iter().filter(meant).collect()
}

/// A test by iperf3.
pub(super) fn tcp(
    lines: &Lines<'_, '_>,
    nodes: &[Node],
    seats: &[usize],
    check: &Tcp,
    way: &Way,
) -> Result<Measured, Lost> {
    let (from, to) = (seats[way.from.0], seats[way.to.0]);
    let nic = |end: End| &nodes[end.0].nics[end.1];
    let limit = tcp::limit(nic(way.from), nic(way.to));
    let (processes, streams) = tcp::load(check, limit.as_ref());
    let missing = |sender| {
        let fault = Fault::Missing { sender, tool: "iperf3", package: "iperf3" };
        Measured::failed(way, fault, "iperf3 isn't installed")
    };
    let bound = check.seconds + 20;
    for _ in 0..TRIES {
        let command = ["iperf3", "-s", "-1", "-B", &way.address, "-p"];
        let script = server::serve("iperf3", &command, iperf::PORT, processes, bound);
        let served = server::served(&lines.run(to, &script, 60)?.text());
        if served.missing {
            return Ok(missing(false));
        }
        if served.ports.len() < processes {
            lines.run(to, &server::end(&served.pids), 10)?;
            let why = served.complaint.last().map_or("it says nothing", String::as_str);
            return Ok(Measured::failed(
                way,
                Fault::Failed { sender: false },
                format!("the server of iperf3 doesn't come up: {why}"),
            ));
        }
        let client = iperf::client(&way.own, &way.address, &served.ports, check.seconds, streams);
        let output = lines.run(from, &client, bound);
        let ran = output.as_ref().ok().map(|output| iperf::read(&output.text()));
        // A server ends with its test; one that had none is left.
        let all_ran = |all: &Vec<Ran>| all.iter().all(|one| matches!(one, Ran::Rate { .. }));
        if !ran.as_ref().is_some_and(|ran| ran.as_ref().is_some_and(all_ran)) {
            lines.run(to, &server::end(&served.pids), 10)?;
        }
        output?;
        let Some(Some(ran)) = ran else { return Ok(missing(true)) };
        if let Some(measured) = tcp::judge(way, &ran, &served.ports, check.min, limit.as_ref()) {
            return Ok(measured);
        }
    }
    let why = format!("another client took the server of iperf3 on it, or it ended, {TRIES} times");
    Ok(Measured::failed(way, Fault::Failed { sender: false }, why))
}

/// A test by perftest.
pub(super) fn rdma(
    lines: &Lines<'_, '_>,
    nodes: &[Node],
    seats: &[usize],
    check: &Rdma,
    way: &Way,
) -> Result<Measured, Lost> {
    let (from, to) = (seats[way.from.0], seats[way.to.0]);
    let port = |end: End| perftest::port(&nodes[end.0].ports, &nodes[end.0].nics[end.1]);
    let (Some(own), Some(other)) = (port(way.from), port(way.to)) else {
        let sender = port(way.from).is_none();
        let without = if sender { way.from } else { way.to };
        let why = format!("{} has no RDMA device", nodes[without.0].nics[without.1].name);
        return Ok(Measured::failed(way, Fault::NoDevice { sender }, why));
    };
    let limit = perftest::limit(nodes, way);
    let bound = check.seconds + 30;
    let command = perftest::command(check, other);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let script = server::serve(check.test.tool(), &words, perftest::PORT, 1, bound);
    let served = server::served(&lines.run(to, &script, 60)?.text());
    let Some(port) = served.ports.first().copied() else {
        let said = served.complaint.join("\n");
        let measured = perftest::judge(way, check, &said, perftest::PORT, None);
        let fault = match measured.fault {
            _ if served.missing => Some(Fault::Missing { sender: false, tool: "perftest", package: "perftest" }),
            Some(Fault::Failed { .. }) | None => Some(Fault::Failed { sender: false }),
            fault => fault,
        };
        let reason = match served.missing {
            true => format!("{} isn't installed", check.test.tool()),
            false => format!("the server: {}", measured.reason),
        };
        return Ok(Measured { fault, reason, value: None, judged: true, ..measured });
    };
    let client = perftest::client(&perftest::command(check, own), port, &way.address, bound);
    let output = lines.run(from, &client, bound + 10);
    let measured = output.as_ref().ok().map(|o| perftest::judge(way, check, &o.text(), port, limit.as_ref()));
    if measured.as_ref().is_none_or(|measured| measured.value.is_none()) {
        lines.run(to, &server::end(&served.pids), 10)?;
    }
    output?;
    Ok(measured.unwrap_or_else(|| Measured::failed(way, Fault::Failed { sender: true }, "no answer")))
}

/// A flood of packets.
pub(super) fn loss(
    lines: &Lines<'_, '_>,
    nodes: &[Node],
    seats: &[usize],
    check: &Loss,
    way: &Way,
) -> Result<Measured, Lost> {
    let (from, to) = (seats[way.from.0], seats[way.to.0]);
    let interface = &nodes[way.from.0].nics[way.from.1].name;
    let six = way.address.contains(':');
    let count = || lines.run(to, &ping::arrived(), 10).map(|output| ping::count(&output.text(), six));
    let before = count()?;
    let flood = loss::flood(interface, &way.address, check.count);
    let output = lines.run(from, &flood, loss::seconds(check.count) + 20)?;
    let arrived = before.zip(count()?).map(|(before, after)| after.saturating_sub(before));
    Ok(loss::judge(way, &ping::pong(&output.text()), arrived))
}
