//! `rdma`: perftest's tools, what is run on both hosts, and what they print. Sources: perftest 4.5 and 6.x. The table is read by
//! its heading, since warnings may stand inside it; with a duration the peak is 0.00.

use super::fabric::{Nic, Node, Port};
use super::measure::{Fault, Measured, Way};
use super::suite::{Rdma, RdmaTest};
use super::tcp::{Limit, rate, wanted};
use crate::shell::Script;

/// The first port that is tried for the connection by which the two sides find each other, which is TCP.
pub const PORT: u16 = 18515;

impl RdmaTest {
    /// Its program.
    pub fn tool(self) -> &'static str {
        match self {
            RdmaTest::WriteBw => "ib_write_bw",
            RdmaTest::ReadBw => "ib_read_bw",
            RdmaTest::SendLat => "ib_send_lat",
        }
    }

    /// Whether it measures how long a message takes, and not how many pass.
    pub fn is_latency(self) -> bool {
        self == RdmaTest::SendLat
    }
}

/// The port of the device behind an interface.
pub fn port<'p>(ports: &'p [Port], nic: &Nic) -> Option<&'p Port> {
    let device = nic.rdma.as_ref()?;
    let own = |p: &&Port| p.device == *device;
    ports.iter().find(|p| own(p) && p.netdev.as_ref() == Some(&nic.name)).or_else(|| ports.iter().find(own))
}

/// What can pass: the slower port's rate, or its interface's, or what PCIe lets through.
pub fn limit(nodes: &[Node], way: &Way) -> Option<Limit> {
    let end = |(host, nic): super::blame::End| {
        let nic = &nodes[host].nics[nic];
        let rate = port(&nodes[host].ports, nic).and_then(|p| p.rate_gbps).map(|gbps| (gbps * 1000.0) as u64);
        Nic { speed_mbps: rate.or(nic.speed_mbps), ..nic.clone() }
    };
    super::tcp::limit(&end(way.from), &end(way.to))
}

/// The command of one side, up to the number of its port. Each side has its own GID index: they differ between hosts.
pub fn command(check: &Rdma, port: &Port) -> Vec<String> {
    let mut words: Vec<String> =
        [check.test.tool(), "-d", &port.device, "-i", &port.port.to_string(), "-F"].map(str::to_owned).into();
    let mut put = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if let Some(gid) = port.gid.filter(|_| port.link_layer.as_deref() == Some("Ethernet")) {
        put("-x", gid.to_string());
    }
    put("-s", check.size.to_string());
    if check.test.is_latency() {
        // Only with a number of messages it tells more than the average.
        put("-n", "10000".to_owned());
    } else {
        put("-q", check.qps.to_string());
        put("-D", check.seconds.to_string());
        words.push("--report_gbits".to_owned());
    }
    words.extend(check.cuda.map(|gpu| format!("--use_cuda={gpu}")));
    words.push("-p".to_owned());
    words
}

const CLIENT: &str = r#"command -v "$1" >/dev/null || { echo "no $1"; exit 0; }
timeout "$bound" "$@" 2>&1; echo "== $?"; exit 0"#;

/// The other side, which makes the test with the server of that port.
pub fn client(command: &[String], port: u16, address: &str, bound: u32) -> Script {
    let words = command.iter().cloned().chain([port.to_string(), address.to_owned()]);
    Script::new().set("bound", &bound.to_string()).args(words).line(CLIENT)
}

/// The value of the last row of the table below this heading, such as `BW average`.
fn column(printed: &str, heading: &str) -> Option<f64> {
    let mut lines = printed.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let head = lines.next()?;
    // `BW average[Gb/sec]` has a blank in it, and the values none: the heading's place among the brackets and words is counted.
    let names = head.replace("BW ", "BW_").replace('#', " ");
    let at = names.split_whitespace().position(|name| name.starts_with(&heading.replace(' ', "_")))?;
    let row = |line: &str| {
        let values: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        values.filter(|values| values.len() >= 4).and_then(|values| values.get(at).copied())
    };
    // Gb/s or µs: what is below 0, or above what any link or time can be, is no result.
    lines.filter_map(row).last().filter(|value| (0.0..=1e9).contains(value))
}

/// Judges what the client printed, or the server where it didn't come up.
pub fn judge(way: &Way, check: &Rdma, printed: &str, port: u16, limit: Option<&Limit>) -> Measured {
    let tool = check.test.tool();
    if printed.trim() == format!("no {tool}") {
        let missing = Fault::Missing { sender: true, tool: "perftest", package: "perftest" };
        return Measured::failed(way, missing, format!("{tool} isn't installed"));
    }
    let heading = if check.test.is_latency() { "t_typical" } else { "BW average" };
    let Some(value) = column(printed, heading) else {
        let (fault, why) = trouble(printed, port);
        return Measured::failed(way, fault, format!("{tool}: {why}"));
    };
    if check.test.is_latency() {
        let most = check.max_usec;
        let told = most.map_or(", not judged: give `max` in µs".to_owned(), |most| format!(" of at most {most} µs"));
        return Measured {
            way: way.clone(),
            value: Some(value),
            wanted: most,
            reason: format!("{value} µs{told}"),
            fault: most.is_some_and(|most| value > most).then_some(Fault::Slow),
            judged: most.is_some(),
        };
    }
    let wanted = wanted(check.min, limit);
    let reason = match &wanted {
        Some((least, why)) => format!("{} of at least {} ({why})", rate(value), rate(*least)),
        None => format!("{}, not judged, as nothing tells the port's rate: give `min` in Gb/s", rate(value)),
    };
    let slow = wanted.as_ref().is_some_and(|(least, _)| value < *least) || value <= 0.0;
    Measured {
        way: way.clone(),
        value: Some(value),
        judged: wanted.is_some() || slow,
        wanted: wanted.map(|(least, _)| least),
        reason,
        fault: slow.then_some(Fault::Slow),
    }
}

/// What kept a tool from giving a result. The strings are those of perftest's source.
fn trouble(printed: &str, port: u16) -> (Fault, String) {
    let has = |words: &[&str]| words.iter().any(|word| printed.contains(word));
    let said = |words: &[&str]| {
        let line = printed.lines().find(|line| words.iter().any(|word| line.contains(word)));
        line.unwrap_or_default().trim().to_owned()
    };
    const DEVICE: &[&str] = &[
        "Did not detect devices",
        "Unable to find the Infiniband/RoCE device",
        "IB device",
        "Failed to get context",
        "Couldn't get context",
        "Couldn't allocate PD",
        "Couldn't allocate MR",
        "Couldn't create CQ",
        "Unable to create QP",
        "Cannot allocate memory",
        "Permission denied",
    ];
    const BLOCKED: &[&str] = &["Couldn't connect to", "Unable to open file descriptor for socket connection"];
    const LOST: &[&str] =
        &["Completion with error", "Failed status", "Failed to modify QP", "Unable to Connect the HCA's"];
    if has(BLOCKED) {
        return (Fault::Blocked { port }, said(BLOCKED));
    }
    if has(LOST) {
        return (Fault::Timeout, said(LOST));
    }
    if has(DEVICE) {
        return (Fault::Device, said(DEVICE));
    }
    let last = printed.lines().rfind(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("==") && !line.starts_with("---")
    });
    let why = match last {
        _ if printed.contains("== 124") => "it didn't end in time",
        Some(line) => line.trim(),
        None => "it said nothing",
    };
    (Fault::Failed { sender: true }, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::suite::Least;
    use super::*;

    fn check(test: RdmaTest) -> Rdma {
        Rdma {
            interfaces: Vec::new(),
            test,
            size: 65536,
            qps: 2,
            seconds: 3,
            min: Least::Percent(90.0),
            max_usec: None,
            cuda: None,
        }
    }

    /// What the calls of a sample printed.
    fn calls(text: &'static str) -> Vec<(&'static str, &'static str)> {
        text.split("\n$ ").skip(1).filter_map(|call| call.split_once('\n')).collect()
    }

    fn way() -> Way {
        Way { from: (0, 0), to: (1, 0), own: "10.1.0.1".into(), address: "10.1.0.2".into() }
    }

    #[test]
    fn tables_are_read_by_their_heading() {
        let text = include_str!("samples/ib_write_bw.txt");
        let parts: Vec<&str> = text.split("# SOURCE: ").collect();
        assert_eq!(column(parts[1], "BW average"), Some(98.02), "a warning inside the table, and a peak of 0.00");
        assert_eq!(column(parts[2], "BW average"), Some(0.17), "the last size, of those of -a");
        assert_eq!(column(parts[3], "BW average"), Some(394.61), "without a rate of messages");
        let calls = calls(include_str!("samples/perftest_rxe.txt"));
        assert_eq!(column(calls[0].1, "BW average"), Some(0.064_116));
        assert_eq!(column(calls[1].1, "BW average"), Some(0.11));
        assert_eq!((column(calls[2].1, "t_typical"), column(calls[2].1, "t_avg")), (Some(35.01), Some(1444.89)));
        assert_eq!(column(calls[3].1, "BW average"), None);
    }

    #[test]
    fn what_goes_wrong_is_told_apart() {
        let calls = calls(include_str!("samples/perftest_rxe.txt"));
        let judged = |said: &str| {
            let one = judge(&way(), &check(RdmaTest::WriteBw), said, 18600, None);
            (one.fault.unwrap(), one.reason)
        };
        assert_eq!(
            judged(calls[3].1),
            (Fault::Blocked { port: 18600 }, "ib_write_bw: Couldn't connect to 10.101.210.1:18600".to_owned())
        );
        assert_eq!(judged(calls[4].1), (Fault::Device, "ib_write_bw: IB device nope not found".to_owned()));
        let none = include_str!("samples/ib_write_bw.txt").split("stderr; rc=1\n").nth(1).unwrap();
        assert_eq!(judged(none.split("# SOURCE").next().unwrap()).0, Fault::Device);
        assert_eq!(
            judged("no ib_write_bw\n").0,
            Fault::Missing { sender: true, tool: "perftest", package: "perftest" }
        );
        assert_eq!(
            judged("== 124\n"),
            (Fault::Failed { sender: true }, "ib_write_bw: it didn't end in time".to_owned())
        );
        assert_eq!(judged("").0, Fault::Failed { sender: true });
    }

    #[test]
    fn each_verdict_has_its_reason() {
        let calls = calls(include_str!("samples/perftest_rxe.txt"));
        let limit = Limit { gbps: 0.1, by: "the link's rate" };
        let one = judge(&way(), &check(RdmaTest::WriteBw), calls[0].1, 18515, Some(&limit));
        assert_eq!(one.reason, "0.06 Gb/s of at least 0.09 Gb/s (90% of 0.10 Gb/s, the link's rate)");
        assert_eq!((one.fault, one.value), (Some(Fault::Slow), Some(0.064_116)));
        let one = judge(&way(), &check(RdmaTest::ReadBw), calls[1].1, 18515, Some(&limit));
        assert_eq!(one.fault, None, "{}", one.reason);
        let latency = |max_usec| judge(&way(), &Rdma { max_usec, ..check(RdmaTest::SendLat) }, calls[2].1, 18515, None);
        assert!(!latency(None).judged);
        assert_eq!((latency(Some(40.0)).fault, latency(Some(30.0)).fault), (None, Some(Fault::Slow)));
        assert_eq!(latency(Some(30.0)).reason, "35.01 µs of at most 30 µs");
    }

    #[test]
    fn both_sides_have_their_own_gid() {
        let port = |gid, layer: &str| Port {
            device: "mlx5_0".into(),
            port: 1,
            gid,
            link_layer: Some(layer.into()),
            ..Port::default()
        };
        let words = |port: &Port| command(&check(RdmaTest::WriteBw), port).join(" ");
        let rest = "-s 65536 -q 2 -D 3 --report_gbits -p";
        assert_eq!(words(&port(Some(3), "Ethernet")), format!("ib_write_bw -d mlx5_0 -i 1 -F -x 3 {rest}"));
        assert_eq!(words(&port(Some(0), "InfiniBand")), format!("ib_write_bw -d mlx5_0 -i 1 -F {rest}"));
        let gpu = Rdma { cuda: Some(2), ..check(RdmaTest::SendLat) };
        assert_eq!(
            command(&gpu, &port(Some(3), "Ethernet")).join(" "),
            "ib_send_lat -d mlx5_0 -i 1 -F -x 3 -s 65536 -n 10000 --use_cuda=2 -p"
        );
    }
}
