//! `tcp`: how much iperf3 brings through, judged by what the link, the card's PCIe or the operator says.

use super::fabric::Nic;
use super::iperf::Ran;
use super::measure::{Fault, Measured, Way};
use super::suite::{Least, Tcp};

/// What one process brings through, in Gb/s: with jumbo frames a core of today is good for this, and more of them are run for
/// faster links (iperf3 before 3.16 is one thread).
const OF_A_PROCESS: f64 = 25.0;

/// What a link can carry, and by what that is limited.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// Gb/s.
    pub gbps: f64,
    /// In words.
    pub by: &'static str,
}

/// What can pass between two interfaces: the slower link, or what PCIe lets through. Nothing where no driver tells.
pub fn limit(a: &Nic, b: &Nic) -> Option<Limit> {
    let speed = [a, b].into_iter().filter_map(|nic| nic.speed_mbps).min()? as f64 / 1000.0;
    let pcie = [a, b].into_iter().filter_map(|nic| nic.lanes).map(|l| l.gbps()).min_by(f64::total_cmp);
    Some(match pcie {
        Some(gbps) if gbps < speed => Limit { gbps, by: "what PCIe lets through" },
        _ => Limit { gbps: speed, by: "the link's rate" },
    })
}

/// The least that is wanted, in Gb/s, and why that; nothing where the link's rate isn't known.
pub fn wanted(least: Least, limit: Option<&Limit>) -> Option<(f64, String)> {
    match (least, limit) {
        (Least::Gbps(gbps), _) => Some((gbps, "as `min` says".to_owned())),
        (Least::Percent(percent), Some(limit)) => {
            Some((limit.gbps * percent / 100.0, format!("{percent}% of {}, {}", rate(limit.gbps), limit.by)))
        }
        (Least::Percent(_), None) => None,
    }
}

/// How many processes, and how many streams each.
pub fn load(check: &Tcp, limit: Option<&Limit>) -> (usize, u32) {
    let wanted = match check.min {
        Least::Gbps(gbps) => gbps,
        Least::Percent(_) => limit.map_or(0.0, |l| l.gbps),
    };
    let processes = (wanted / OF_A_PROCESS).ceil().clamp(1.0, 16.0) as u32;
    (processes as usize, (check.streams / processes).max(1))
}

/// A rate as it is told.
pub fn rate(gbps: f64) -> String {
    match gbps {
        g if g >= 100.0 => format!("{g:.0} Gb/s"),
        g if g >= 10.0 => format!("{g:.1} Gb/s"),
        g => format!("{g:.2} Gb/s"),
    }
}

/// Judges what the processes of one test came to. Nothing where its server was taken, and it is to be tried again.
pub fn judge(way: &Way, ran: &[Ran], ports: &[u16], least: Least, limit: Option<&Limit>) -> Option<Measured> {
    let (mut gbps, mut again) = (0.0, 0);
    for (i, one) in ran.iter().enumerate() {
        match one {
            Ran::Taken => return None,
            Ran::Blocked(said) => {
                let port = ports.get(i).copied().unwrap_or(super::iperf::PORT);
                return Some(Measured::failed(way, Fault::Blocked { port }, format!("port {port}: {said}")));
            }
            Ran::Failed(said) => {
                return Some(Measured::failed(way, Fault::Failed { sender: true }, format!("iperf3: {said}")));
            }
            Ran::Rate { gbps: part, retransmits } => {
                gbps += part;
                again += retransmits.unwrap_or(0);
            }
        }
    }
    if ran.is_empty() {
        return Some(Measured::failed(way, Fault::Failed { sender: true }, "iperf3 told nothing"));
    }
    let resent = if again > 0 { format!(", {again} segments sent again") } else { String::new() };
    let wanted = wanted(least, limit);
    let reason = match &wanted {
        Some((least, why)) => format!("{} of at least {} ({why}){resent}", rate(gbps), rate(*least)),
        None => format!("{}, not judged, as no driver tells the link's rate: give `min` in Gb/s{resent}", rate(gbps)),
    };
    let slow = wanted.as_ref().is_some_and(|(least, _)| gbps < *least) || gbps <= 0.0;
    Some(Measured {
        way: way.clone(),
        value: Some(gbps),
        judged: wanted.is_some() || slow,
        wanted: wanted.map(|(least, _)| least),
        reason,
        fault: slow.then_some(Fault::Slow),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fabric::Lanes;
    use super::*;

    fn nic(speed: Option<u64>, width: Option<u64>) -> Nic {
        let lanes = |width| Lanes { speed_gts: 16.0, width, max_speed_gts: None, max_width: None };
        Nic { speed_mbps: speed, lanes: width.map(lanes), ..Nic::default() }
    }

    fn way() -> Way {
        Way { from: (0, 0), to: (1, 0), own: "10.1.0.1".into(), address: "10.1.0.2".into() }
    }

    fn rates(gbps: &[f64]) -> Vec<Ran> {
        gbps.iter().map(|g| Ran::Rate { gbps: *g, retransmits: Some(2) }).collect()
    }

    #[test]
    fn what_limits_a_link() {
        let by = |a: Nic, b: Nic| limit(&a, &b).map(|l| (l.gbps.round(), l.by));
        assert_eq!(by(nic(Some(200_000), Some(16)), nic(Some(100_000), None)), Some((100.0, "the link's rate")));
        assert_eq!(by(nic(Some(200_000), Some(8)), nic(Some(200_000), None)), Some((115.0, "what PCIe lets through")));
        assert_eq!(by(nic(None, Some(8)), nic(None, None)), None);
    }

    #[test]
    fn each_verdict_has_its_reason() {
        let check = |gbps: &[f64], least, speed| {
            let limit = limit(&nic(speed, None), &nic(speed, None));
            let one = judge(&way(), &rates(gbps), &[5201], least, limit.as_ref()).unwrap();
            (one.judged, one.fault, one.reason)
        };
        let (percent, given) = (Least::Percent(90.0), Least::Gbps(50.0));
        assert_eq!(
            check(&[48.0, 47.0], percent, Some(100_000)),
            (
                true,
                None,
                "95.0 Gb/s of at least 90.0 Gb/s (90% of 100 Gb/s, the link's rate), 4 segments sent again".into()
            )
        );
        assert_eq!(
            check(&[45.0], given, Some(100_000)),
            (true, Some(Fault::Slow), "45.0 Gb/s of at least 50.0 Gb/s (as `min` says), 2 segments sent again".into())
        );
        let (judged, fault, reason) = check(&[45.0], percent, None);
        assert_eq!((judged, fault), (false, None));
        assert!(reason.contains("no driver tells the link's rate"), "{reason}");
        assert_eq!(check(&[0.0], percent, None).1, Some(Fault::Slow), "nothing at all is no result to be proud of");
    }

    #[test]
    fn what_failed_is_no_rate() {
        let judge =
            |ran: Ran| judge(&way(), &[rates(&[50.0]).remove(0), ran], &[5201, 5202], Least::Percent(90.0), None);
        assert_eq!(judge(Ran::Taken), None, "to be tried again");
        assert_eq!(judge(Ran::Blocked("no".into())).unwrap().fault, Some(Fault::Blocked { port: 5202 }));
        assert_eq!(judge(Ran::Failed("odd".into())).unwrap().reason, "iperf3: odd");
    }

    #[test]
    fn as_many_processes_as_it_takes() {
        let load = |gbps| {
            let check = Tcp { streams: 8, ..Tcp::default() };
            load(&check, Some(&Limit { gbps, by: "" }))
        };
        assert_eq!((load(10.0), load(100.0), load(400.0), load(800.0)), ((1, 8), (4, 2), (16, 1), (16, 1)));
    }
}
