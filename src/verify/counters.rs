//! Counters of errors, whose differences around the tests tell what the tests don't. Sources: the kernel's
//! Documentation/ABI/stable/sysfs-class-infiniband and sysfs-class-net-statistics; mlx5's names of `ethtool -S`.

use super::Judged;
use super::fabric::Node;
use crate::finding::{self, Finding};
use crate::shell::Script;
use std::collections::BTreeMap;

/// What counts as an error, by the last part of its name, and how it is told. Pause frames, CNPs and marked packets are how a
/// lossless fabric works.
const ERRORS: &[&str] = &[
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_xmit_discards",
    "excessive_buffer_overrun_errors",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rx_icrc_encapsulated",
    "roce_adp_retrans_to",
    "out_of_buffer",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "rx_discards_phy",
    "rx_symbol_err_phy",
    "rx_crc_errors_phy",
    "link_down_events_phy",
    "rx_out_of_buffer",
];

const ASK: &str = r#"cd /sys/class/infiniband 2>/dev/null && grep -asH '' -- */ports/*/counters/* */ports/*/hw_counters/*
cd /sys/class/net || exit 0
for i do
  grep -asH '' -- "$i"/statistics/rx_*_errors "$i"/statistics/tx_*_errors
  ! command -v ethtool >/dev/null || timeout 10 ethtool -S "$i" 2>/dev/null | sed -n "s|^ *\([a-z0-9_]*\): \([0-9]*\)$|$i/ethtool/\1:\2|p"
done
exit 0"#;

/// Those of them that say that rings or queues of the host itself were full.
const RINGS: &[&str] = &["out_of_buffer", "rx_fifo_errors", "rx_missed_errors", "rx_out_of_buffer"];

/// Asks for all counters of these interfaces, and of all RDMA devices.
pub fn ask(interfaces: &[String]) -> Script {
    Script::new().args(interfaces).line(ASK)
}

/// The counters of errors, by where they are and their name.
pub type Counters = BTreeMap<(String, String), u64>;

/// What [`ask`] printed.
pub fn read(printed: &str) -> Counters {
    let line = |line: &str| {
        let (path, value) = line.rsplit_once(':')?;
        let mut parts = path.split('/');
        let (place, name) = (parts.next()?, parts.next_back()?);
        let prio = name.starts_with("rx_prio") && (name.ends_with("_buf_discard") || name.ends_with("_cong_discard"));
        (ERRORS.contains(&name) || prio).then_some(((place.to_owned(), name.to_owned()), value.trim().parse().ok()?))
    };
    printed.lines().filter_map(line).collect()
}

/// What rose on a host, folded over hosts by where and what.
pub fn judge(node: &Node, before: &Counters, after: &Counters, judged: &mut Judged) {
    let mut rose = BTreeMap::<(&str, bool), Vec<String>>::new();
    for ((place, name), now) in after {
        // One that is new, or smaller, was reset meanwhile.
        let Some(then) = before.get(&(place.clone(), name.clone())) else { continue };
        if now > then {
            rose.entry((place, RINGS.contains(&name.as_str()))).or_default().push(format!("{name} +{}", now - then));
        }
    }
    for ((place, rings), what) in rose {
        let known = if rings { &finding::RING_DROPS } else { &finding::ERROR_COUNTERS };
        let evidence = format!("{place}: {} during the tests", what.join(", "));
        judged.find(Finding::new(known, [node.host.clone()], evidence, &[("place", place)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    #[test]
    fn a_real_host_tells_its_counters() {
        for shell in Shell::ALL {
            let output = shell.run_in_net("ip link add v0 type veth peer name v1", ask(&["v0".to_owned()]).as_str());
            let counters = read(&output.text());
            assert_eq!(counters.get(&("v0".to_owned(), "rx_crc_errors".to_owned())), Some(&0), "{shell:?}: {output:?}");
        }
    }

    #[test]
    fn errors_that_rose_are_told_and_pauses_are_not() {
        // As `ethtool -S` of mlx5 prints it, by what the script makes of a line.
        let sample = include_str!("samples/ethtool_mlx5.txt");
        let printed = |discards: &str| -> String {
            let lines = sample.lines().filter_map(|l| l.trim().split_once(": "));
            let text: String = lines.map(|(name, value)| format!("eth1/ethtool/{name}:{value}\n")).collect();
            text.replace("rx_prio3_buf_discard:0", &format!("rx_prio3_buf_discard:{discards}"))
                .replace("rx_prio3_pause:1523", &format!("rx_prio3_pause:152{discards}"))
        };
        let judged = |before: &str, after: &str| {
            let mut judged = Judged::default();
            let node = Node { host: "n1".into(), ..Node::default() };
            judge(&node, &read(&printed(before)), &read(&printed(after)), &mut judged);
            judged.findings
        };
        assert_eq!(judged("0", "0"), []);
        let found = judged("0", "7");
        assert_eq!(found[0].evidence, "eth1: rx_prio3_buf_discard +7 during the tests");
        assert_eq!(judged("7", "0"), [], "it was reset");
        let mut rings = Judged::default();
        let node = Node { host: "n1".into(), ..Node::default() };
        let of = |n: u32| read(&format!("eth1/statistics/rx_missed_errors:{n}\neth1/statistics/rx_crc_errors:{n}\n"));
        super::judge(&node, &of(3), &of(8), &mut rings);
        let told: Vec<(&str, &str)> = rings.findings.iter().map(|f| (f.name, &*f.evidence)).collect();
        let seen = [
            ("error_counters", "eth1: rx_crc_errors +5 during the tests"),
            ("ring_drops", "eth1: rx_missed_errors +5 during the tests"),
        ];
        assert_eq!(told, seen);
        let text = "mlx5_0/ports/1/counters/symbol_error:3\nmlx5_0/ports/1/hw_counters/out_of_sequence:9\n\
                    mlx5_0/ports/1/hw_counters/np_cnp_sent:5\neth1/statistics/rx_crc_errors:0\n";
        let names: Vec<String> = read(text).into_keys().map(|(place, name)| format!("{place} {name}")).collect();
        assert_eq!(names, ["eth1 rx_crc_errors", "mlx5_0 out_of_sequence", "mlx5_0 symbol_error"]);
    }
}
