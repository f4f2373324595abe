//! The checks of a suite, as they are written: `- path_mtu: {interface: eth1, mtu: 9000}`.

use crate::error::{Error, suggest};
use crate::resource::spec::{self, Key};
use crate::yaml::Node;

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// What has to be the same on hosts of a kind is.
    Audit,
    /// RDMA ports and links are up, as fast as the card and its peers, with full PCIe.
    Ports,
    /// Packets of full size pass.
    PathMtu(PathMtu),
    /// No packet is lost.
    Loss(Loss),
    /// As much comes through by TCP as the link can carry.
    Tcp(Tcp),
    /// The same by RDMA.
    Rdma(Rdma),
}

/// `path_mtu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// The interfaces, or those of the fabric where none is named.
    pub interfaces: Vec<String>,
    /// Bytes; nothing for what most interfaces of the rail have.
    pub mtu: Option<u32>,
}

/// `loss`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// As of [`PathMtu`].
    pub interfaces: Vec<String>,
    /// How many packets.
    pub count: u32,
}

/// `tcp`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tcp {
    /// As of [`PathMtu`].
    pub interfaces: Vec<String>,
    /// How long a test takes.
    pub seconds: u32,
    /// How many streams, over all processes.
    pub streams: u32,
    /// What has to come through.
    pub min: Least,
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp { interfaces: Vec::new(), seconds: 10, streams: 8, min: Least::Percent(90.0) }
    }
}

/// `rdma`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rdma {
    /// As of [`PathMtu`].
    pub interfaces: Vec<String>,
    /// What is measured.
    pub test: RdmaTest,
    /// Bytes of a message.
    pub size: u32,
    /// How many queue pairs.
    pub qps: u32,
    /// How long a test of bandwidth takes.
    pub seconds: u32,
    /// What has to come through.
    pub min: Least,
    /// The most that a message may take, in µs, of `send_lat`.
    pub max_usec: Option<f64>,
    /// The GPU whose memory is used.
    pub cuda: Option<u32>,
}

/// What `rdma` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RdmaTest {
    /// How much is written into the other host's memory.
    WriteBw,
    /// How much is read from it.
    ReadBw,
    /// How long a message takes.
    SendLat,
}

/// The least that has to come through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Least {
    /// So many percent of what the link can carry.
    Percent(f64),
    /// So many Gb/s.
    Gbps(f64),
}

/// What is known of a check beside its values.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one or two sentences.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    read: fn(&Node) -> Result<Check, Error>,
}

const INTERFACE: Key = Key::optional(
    "interface",
    "string, or a list",
    "Which interfaces, by their names. Not given, those of the fabric: with an RDMA device, or else all with an address but the \
     one that carries the session.",
);

const MIN: Key = Key::default(
    "min",
    "percentage, or Gb/s",
    "90%",
    "The least that has to come through: a part of what the slower link, or PCIe, can carry, or a number of Gb/s.",
);

/// All checks, in the order of their names.
pub const CHECKS: &[Kind] = &[
    Kind {
        name: "audit",
        doc: "What has to be the same is: MTU, link speed, kernel, drivers, firmware and parameters of cards, quality of service and \
              kernel parameters, by rail, by board, and by groups of the inventory that are other machines.",
        keys: &[],
        read: |_| Ok(Check::Audit),
    },
    Kind {
        name: "loss",
        doc: "No packet of a flood is lost on its way, on each rail, in both directions; error counters don't rise meanwhile.",
        keys: &[INTERFACE, Key::default("count", "integer", "10000", "How many packets, from 100 to 10000000.")],
        read: |body| {
            let count = get(body, "count").map(|n| spec::int("count", n, 100..=10_000_000)).transpose()?;
            let count = count.and_then(|n| u32::try_from(n).ok()).unwrap_or(10_000);
            Ok(Check::Loss(Loss { interfaces: interfaces(body)?, count }))
        },
    },
    Kind {
        name: "path_mtu",
        doc: "Packets of full size pass unfragmented between hosts, in both directions, on each rail.",
        keys: &[
            INTERFACE,
            Key::optional(
                "mtu",
                "bytes",
                "The size of a packet with the headers of IP. Not given, the MTU that most interfaces of the rail have.",
            ),
        ],
        read: |body| {
            let mtu = get(body, "mtu").map(|n| spec::int("mtu", n, 576..=65_535)).transpose()?;
            Ok(Check::PathMtu(PathMtu { interfaces: interfaces(body)?, mtu: mtu.and_then(|n| u32::try_from(n).ok()) }))
        },
    },
    Kind {
        name: "ports",
        doc: "RDMA ports are ACTIVE and LINK_UP, interfaces of the fabric have a carrier, link layer and speed are those of the same \
              port on most hosts, and cards have all the PCIe lanes and the speed that they can.",
        keys: &[],
        read: |_| Ok(Check::Ports),
    },
    Kind {
        name: "rdma",
        doc: "As much comes through by RDMA (perftest) as the port can carry, on each rail, in both directions, one pair at a time; \
              or a message takes no longer than it may.",
        keys: &[
            INTERFACE,
            Key::default("test", "write_bw | read_bw | send_lat", "write_bw", "What is measured."),
            Key::optional("size", "bytes", "Of a message. Not given, 1048576, and 8 for `send_lat`."),
            Key::default("qps", "integer", "4", "How many queue pairs; `send_lat` has one."),
            Key::default("seconds", "integer", "10", "How long a test of bandwidth takes."),
            MIN,
            Key::optional("max", "µs", "The most that a message may take, of `send_lat`. Not given, it isn't judged."),
            Key::optional("cuda", "integer", "The GPU whose memory is used, where perftest was built for that."),
        ],
        read: rdma,
    },
    Kind {
        name: "tcp",
        doc: "As much comes through by TCP (iperf3) as the link can carry, on each rail, in both directions, one pair at a time.",
        keys: &[
            INTERFACE,
            Key::default("seconds", "integer", "10", "How long a test takes, after a second that isn't counted."),
            Key::default(
                "streams",
                "integer",
                "8",
                "How many connections at once, over as many processes as it takes.",
            ),
            MIN,
        ],
        read: |body| {
            let usual = Tcp::default();
            let number = |key, most, usual| number(body, key, 1..=most).map(|n| n.unwrap_or(usual));
            Ok(Check::Tcp(Tcp {
                interfaces: interfaces(body)?,
                seconds: number("seconds", 3600, usual.seconds)?,
                streams: number("streams", 128, usual.streams)?,
                min: least(body)?,
            }))
        },
    },
];

impl Check {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Check::Audit => "audit",
            Check::Ports => "ports",
            Check::PathMtu(_) => "path_mtu",
            Check::Loss(_) => "loss",
            Check::Tcp(_) => "tcp",
            Check::Rdma(_) => "rdma",
        }
    }

    /// The interfaces that it names.
    pub fn interfaces(&self) -> &[String] {
        match self {
            Check::Audit | Check::Ports => &[],
            Check::PathMtu(check) => &check.interfaces,
            Check::Loss(check) => &check.interfaces,
            Check::Tcp(check) => &check.interfaces,
            Check::Rdma(check) => &check.interfaces,
        }
    }

    /// Whether it takes the network of a host for itself.
    pub fn is_heavy(&self) -> bool {
        matches!(self, Check::Loss(_) | Check::Tcp(_) | Check::Rdma(_))
    }
}

fn get<'n>(body: &'n Node, key: &str) -> Option<&'n Node> {
    body.get(key).filter(|n| !n.is_null())
}

fn interfaces(body: &Node) -> Result<Vec<String>, Error> {
    let Some(node) = get(body, "interface") else { return Ok(Vec::new()) };
    let one = |node: &Node| {
        let name = spec::text("interface", node)?;
        match name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace()) || name.starts_with('-') {
            true => Err(Error::playbook(&node.span, format!("`{name}` can't be the name of an interface"))),
            false => Ok(name),
        }
    };
    node.as_seq().map_or_else(|| Ok(vec![one(node)?]), |items| items.iter().map(one).collect())
}

fn number(body: &Node, key: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<u32>, Error> {
    let found = get(body, key).map(|n| spec::int(key, n, range)).transpose()?;
    Ok(found.and_then(|n| u32::try_from(n).ok()))
}

fn rdma(body: &Node) -> Result<Check, Error> {
    const TESTS: &[(&str, RdmaTest)] =
        &[("write_bw", RdmaTest::WriteBw), ("read_bw", RdmaTest::ReadBw), ("send_lat", RdmaTest::SendLat)];
    let test = match get(body, "test") {
        None => RdmaTest::WriteBw,
        Some(node) => {
            let text = spec::text("test", node)?;
            let names: Vec<&str> = TESTS.iter().map(|(name, _)| *name).collect();
            let found = TESTS.iter().find(|(name, _)| *name == text).map(|(_, test)| *test);
            found.ok_or_else(|| {
                Error::playbook(&node.span, format!("`test` can't be `{text}`")).hint(suggest(&text, &names))
            })?
        }
    };
    let latency = test == RdmaTest::SendLat;
    let foreign: &[&str] = if latency { &["min", "qps", "seconds"] } else { &["max"] };
    if let Some((key, node)) = foreign.iter().find_map(|key| Some((key, get(body, key)?))) {
        let of = if latency { "`send_lat` is judged by `max`, in µs" } else { "only `send_lat` has it" };
        return Err(Error::playbook(&node.span, format!("`{key}` means nothing for this test")).hint(of));
    }
    let max_usec = match get(body, "max") {
        None => None,
        Some(node) => {
            let text = spec::text("max", node)?;
            let most = text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
            Some(most.ok_or_else(|| Error::playbook(&node.span, format!("`max` takes a number of µs, not `{text}`")))?)
        }
    };
    Ok(Check::Rdma(Rdma {
        interfaces: interfaces(body)?,
        test,
        size: number(body, "size", 1..=1 << 30)?.unwrap_or(if latency { 8 } else { 1 << 20 }),
        qps: number(body, "qps", 1..=1024)?.unwrap_or(4),
        seconds: number(body, "seconds", 1..=3600)?.unwrap_or(10),
        min: least(body)?,
        max_usec,
        cuda: number(body, "cuda", 0..=1023)?,
    }))
}

fn least(body: &Node) -> Result<Least, Error> {
    let Some(node) = get(body, "min") else { return Ok(Least::Percent(90.0)) };
    let text = spec::text("min", node)?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    let found = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent).filter(|p| *p <= 100.0).map(Least::Percent),
        None => number(&text).map(Least::Gbps),
    };
    found.ok_or_else(|| {
        Error::playbook(&node.span, format!("`min` takes a percentage or a number of Gb/s, not `{text}`"))
            .hint("write `min: 90%`, or `min: 45` for 45 Gb/s")
    })
}

/// The kind and the body of an entry; a body that is null has no keys.
fn entry(node: &Node) -> Result<(&'static Kind, Option<&Node>), Error> {
    let names: Vec<&str> = CHECKS.iter().map(|kind| kind.name).collect();
    let write = format!("write `- path_mtu: {{mtu: 9000}}`; checks: {}", names.join(", "));
    // `- ports`, without a colon, means nothing else.
    let (name, place, body) = match (node.as_map(), node.text().filter(|_| !node.is_null())) {
        (Some([(key, body)]), _) => (key.text().unwrap_or_default(), key, Some(body)),
        (Some([_, (second, _), ..]), _) => {
            let message = "a check has one key, which names it";
            return Err(Error::playbook(&second.span, message).hint("begin the next one with `- `"));
        }
        (None, Some(text)) => (text, node, None),
        _ => {
            return Err(
                Error::playbook(&node.span, format!("a check is a mapping, not {}", node.describe())).hint(write)
            );
        }
    };
    match CHECKS.iter().find(|kind| kind.name == name) {
        Some(kind) => Ok((kind, body.filter(|n| !n.is_null()))),
        None => Err(Error::playbook(&place.span, format!("there is no check `{name}`")).hint(suggest(name, &names))),
    }
}

/// What is wrong in the keys of an entry, before anything is rendered.
pub fn wrong(node: &Node) -> Vec<Error> {
    match entry(node) {
        Ok((kind, Some(body))) => spec::check(&format!("`{}`", kind.name), body, kind.keys),
        Ok((_, None)) => Vec::new(),
        Err(error) => vec![error],
    }
}

/// Reads a rendered entry.
///
/// # Errors
/// What is wrong in it.
pub fn read(node: &Node) -> Result<Check, Error> {
    let (kind, body) = entry(node)?;
    match wrong(node).into_iter().next() {
        Some(error) => Err(error),
        None => (kind.read)(body.unwrap_or(node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind as ErrorKind;
    use crate::source::Source;

    fn parse(text: &str) -> Result<Check, String> {
        let node = crate::yaml::load_one(&Source::new("t.yaml", text), ErrorKind::Playbook).unwrap().unwrap();
        read(&node).map_err(|e| e.to_string())
    }

    #[test]
    fn names_are_in_order() {
        assert!(CHECKS.is_sorted_by(|a, b| a.name < b.name));
        for kind in CHECKS {
            assert_eq!(parse(kind.name).unwrap().name(), kind.name);
        }
    }

    #[test]
    fn checks_are_read() {
        for text in ["ports", "ports:", "ports: {}"] {
            assert_eq!(parse(text), Ok(Check::Ports), "{text}");
        }
        let check = |interfaces: &[&str], mtu| {
            Ok(Check::PathMtu(PathMtu { interfaces: interfaces.iter().map(|i| (*i).to_owned()).collect(), mtu }))
        };
        assert_eq!(parse("path_mtu: {interface: eth1, mtu: 9000}"), check(&["eth1"], Some(9000)));
        assert_eq!(parse("path_mtu: {interface: [eth1, eth2], mtu: '9000'}"), check(&["eth1", "eth2"], Some(9000)));
        assert_eq!(parse("path_mtu"), check(&[], None));
        assert_eq!(parse("tcp"), Ok(Check::Tcp(Tcp::default())));
        let tcp = Tcp { interfaces: vec!["eth1".into()], seconds: 30, streams: 4, min: Least::Gbps(4.5) };
        assert_eq!(parse("tcp: {interface: eth1, seconds: 30, streams: 4, min: 4.5}"), Ok(Check::Tcp(tcp)));
        assert_eq!(parse("tcp: {min: 95 %}"), Ok(Check::Tcp(Tcp { min: Least::Percent(95.0), ..Tcp::default() })));
        assert_eq!(parse("loss: {count: 500}"), Ok(Check::Loss(Loss { interfaces: vec![], count: 500 })));
    }

    #[test]
    fn slips_are_told_with_their_place() {
        for (text, place, told) in [
            ("path_mut: {}", "1:1", "there is no check `path_mut`"),
            ("path_mtu: {mtu: 90}", "1:17", "`mtu` must be from 576 to 65535, not `90`"),
            ("path_mtu: {mtu: big}", "1:17", "`mtu` takes an integer, not `big`"),
            ("path_mtu: {nic: eth1}", "1:12", "unknown key `nic` in `path_mtu`"),
            ("path_mtu: {interface: -I}", "1:23", "`-I` can't be the name of an interface"),
            ("tcp: {min: 120%}", "1:12", "`min` takes a percentage or a number of Gb/s, not `120%`"),
            ("rdma: {test: write}", "1:14", "`test` can't be `write`"),
            ("rdma: {max: 3}", "1:13", "`max` means nothing for this test"),
            ("rdma: {test: send_lat, min: 90%}", "1:29", "`min` means nothing for this test"),
            ("tcp: {min: fast}", "1:12", "not `fast`"),
            ("tcp: {seconds: 0}", "1:16", "`seconds` must be from 1 to 3600"),
            ("loss: {count: 1}", "1:15", "`count` must be from 100 to 10000000"),
            ("path_mtu: 9000", "1:11", "`path_mtu` takes a mapping of keys, not"),
            ("ports: {}\npath_mtu: {}", "2:1", "a check has one key, which names it"),
            ("[ports]", "1:1", "a check is a mapping, not a list"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(told) && error.contains(&format!("t.yaml:{place}\n")), "{text}: {error}");
        }
        assert!(parse("path_mut: {}").unwrap_err().contains("path_mtu"), "the nearest name");
    }
}
