//! `ping` of iputils: what is run, and what it says. Source of the messages: iputils 20221126 (Debian 12).

use crate::shell::Script;

/// Packets to one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// The interface that they leave by.
    pub interface: String,
    /// Where to.
    pub address: String,
    /// Bytes of a packet with its headers of IP and ICMP.
    pub size: u32,
}

/// What became of the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pong {
    /// So many were sent, and so many answers came.
    Counted {
        /// Packets that were sent.
        sent: u64,
        /// Answers.
        received: u64,
    },
    /// The host's own interface has this MTU, and doesn't send anything larger.
    TooLarge(u32),
    /// Nothing was sent; why: the host's own routes and addresses don't let it.
    Failed(String),
    /// It couldn't be tried, which says nothing of the network: the user may not send it, or ping isn't understood; why.
    Untried(String),
    /// There is no ping, or one that can't forbid fragments.
    NoTool(String),
}

/// How many pings run at once on a host.
const AT_ONCE: usize = 16;

impl Ping {
    /// The bytes of data that make a packet of this size: the headers of IP and ICMP are part of it.
    fn data(&self) -> u32 {
        self.size.saturating_sub(if self.address.contains(':') { 48 } else { 28 })
    }
}

// Whole and small packets to each; each ping's output is one write, so that none is mixed with another's.
const TRY: &str = r#"command -v ping >/dev/null || { echo 'no ping'; exit 0; }
one() {
  o=$(ping -n -q -c 3 -i 0.2 -W 1 -M do -s "$2" -I "$3" "$4" 2>&1); r=$?
  case $small$o in yes*', 0 received'*) s=$(ping -n -q -c 2 -i 0.2 -W 1 -I "$3" "$4" 2>&1); o="$o
== small $1 $?
$s" ;; esac
  printf '== %s %s\n%s\n' "$1" "$r" "$o"
}
i=0
while [ $# -gt 0 ]; do
  one "$i" "$1" "$2" "$3" &
  i=$((i + 1)); [ $((i % 16)) -ne 0 ] || wait; shift 3
done
wait; exit 0"#;

/// Sends packets that may not be fragmented to each of these, and small ones, if they are wanted, where none is answered.
pub fn tries(pings: &[Ping], small: bool) -> Script {
    let words = pings.iter().flat_map(|p| [p.data().to_string(), p.interface.clone(), p.address.clone()]);
    Script::new().set("small", if small { "yes" } else { "" }).args(words).line(TRY)
}

/// Tells how many requests have come to a host so far.
pub fn arrived() -> Script {
    Script::new().line("cat /proc/net/snmp /proc/net/snmp6 2>/dev/null; exit 0")
}

/// What [`arrived`] printed, for IPv4 or IPv6. Source: linux, net/ipv4/proc.c and net/ipv6/proc.c.
pub fn count(printed: &str, six: bool) -> Option<u64> {
    if six {
        let line = printed.lines().find_map(|line| line.strip_prefix("Icmp6InEchos"));
        return line?.trim().parse().ok();
    }
    let mut rows = printed.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (rows.next()?, rows.next()?);
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(name, _)| *name == "InEchos")?.1.parse().ok()
}

/// Seconds that [`tries`] takes at most: of a ping without any answer some 3, and 2 for the small ones.
pub fn seconds(pings: usize) -> u32 {
    10 + 6 * u32::try_from(pings.div_ceil(AT_ONCE)).unwrap_or(u32::MAX / 8)
}

/// What [`tries`] printed: of each ping what became of it, and of the small packets where they were sent.
pub fn read(printed: &str, pings: usize) -> Vec<(Pong, Option<Pong>)> {
    if printed.trim() == NO_PING {
        return vec![(pong(printed), None); pings];
    }
    let mut all = vec![(Pong::Failed("it said nothing".to_owned()), None); pings];
    for part in printed.split("== ").skip(1) {
        let Some((head, said)) = part.split_once('\n') else { continue };
        let words: Vec<&str> = head.split(' ').collect();
        let place = |word: &str| word.parse::<usize>().ok().filter(|at| *at < pings);
        match words.as_slice() {
            ["small", at, _] => {
                if let Some(at) = place(at) {
                    all[at].1 = Some(pong(said));
                }
            }
            [at, _] => {
                if let Some(at) = place(at) {
                    all[at].0 = pong(said);
                }
            }
            _ => {}
        }
    }
    all
}

/// What is printed where there is no ping.
const NO_PING: &str = "no ping";
/// What one ping said.
pub fn pong(said: &str) -> Pong {
    let number = |text: &str, before: &str| {
        let head = text.split(before).next()?;
        head.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    // `mtu=1500` of a router's answer; `mtu: 1300` of the host's own route, or what it remembers of a router.
    if let Some((_, rest)) = said.split_once("message too long, mtu") {
        let digits: String =
            rest.trim_start_matches(['=', ':', ' ']).chars().take_while(char::is_ascii_digit).collect();
        if let Ok(mtu) = digits.parse() {
            return Pong::TooLarge(mtu);
        }
    }
    let counts = said.lines().find(|line| line.contains(" packets transmitted, "));
    let counted = counts.and_then(|line| {
        let received = line.split(", ").find(|part| part.contains(" received"))?;
        Some(Pong::Counted {
            sent: number(line, " packets transmitted")?,
            received: number(received, if received.contains(" packets received") { " packets" } else { " received" })?,
        })
    });
    if said.trim() == NO_PING {
        return Pong::NoTool("there is no ping".to_owned());
    }
    let complaint = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
    if said.contains("invalid option") || said.contains("unrecognized option") || said.contains("BusyBox") {
        return Pong::NoTool("its ping can't forbid fragments, as busybox' can't".to_owned());
    }
    // Sources: iputils 20221126 and, of a line alone, s20161105.
    let socket = said.lines().find(|line| line.contains("socket: Operation not permitted"));
    if let (None, Some(why)) = (&counted, socket) {
        return Pong::Untried(why.trim().trim_start_matches("ping: ").to_owned());
    }
    // iputils' ping begins its errors so.
    counted.unwrap_or_else(|| match ["ping", "connect:", "From "].iter().any(|word| complaint.starts_with(word)) {
        true => Pong::Failed(complaint.trim_start_matches("ping: ").to_owned()),
        false => Pong::Untried(format!("what it says isn't understood: {complaint}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the calls of ping in the samples said.
    fn samples() -> Vec<Pong> {
        let text = include_str!("samples/ping.txt");
        let said = |call: &str| {
            let lines = call.lines().filter_map(|l| l.strip_prefix("OUT: ").or_else(|| l.strip_prefix("ERR: ")));
            lines.fold(String::new(), |all, line| all + line + "\n")
        };
        text.split("$ ping ").skip(1).map(|call| pong(&said(call))).collect()
    }

    #[test]
    fn what_ping_says() {
        assert_eq!(pong("no ping\n"), Pong::NoTool("there is no ping".to_owned()));
        assert_eq!(pong("ping: local error: message too long, mtu: 1300\n"), Pong::TooLarge(1300));
        let denied = "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\nping: => missing cap_net_raw+p capability or setuid?\n";
        assert_eq!(pong(denied), Pong::Untried("socket: Operation not permitted".to_owned()));
        assert_eq!(pong("ping: socket: Operation not permitted\n"), pong(denied));
        assert_eq!(pong("hello\n"), Pong::Untried("what it says isn't understood: hello".to_owned()));
        let counted = |sent, received| Pong::Counted { sent, received };
        assert_eq!(
            samples(),
            [
                counted(2, 0),
                counted(1, 1),
                Pong::TooLarge(1500),
                counted(200, 200),
                Pong::Failed("nosuchhost.invalid: Temporary failure in name resolution".to_owned()),
            ]
        );
    }

    #[test]
    fn sizes_have_their_headers_taken_off() {
        let ping = |address: &str| Ping { interface: "eth1".into(), address: address.into(), size: 9000 };
        assert_eq!((ping("10.0.0.1").data(), ping("fd00::1").data()), (8972, 8952));
    }

    #[test]
    fn requests_that_came_are_counted() {
        let printed = std::fs::read_to_string("/proc/net/snmp").unwrap();
        assert!(count(&printed, false).is_some(), "this kernel's own");
        let printed =
            "Icmp: InMsgs InErrors InCsumErrors InDestUnreachs InEchos\nIcmp: 9 0 0 2 7\nIcmp6InEchos   \t4\n";
        assert_eq!((count(printed, false), count(printed, true)), (Some(7), Some(4)));
        assert_eq!(count("", false), None);
    }

    #[test]
    fn many_at_once_are_told_apart() {
        let printed = "== 1 0\nPING x\n3 packets transmitted, 3 received, 0% packet loss, time 400ms\n\
                       == 0 1\nPING x\n3 packets transmitted, 0 received, 100% packet loss, time 400ms\n\
                       == small 0 0\n2 packets transmitted, 2 received, 0% packet loss, time 200ms\n";
        let counted = |sent, received| Pong::Counted { sent, received };
        let read = read(printed, 3);
        assert_eq!(read[0], (counted(3, 0), Some(counted(2, 2))));
        assert_eq!(read[1], (counted(3, 3), None));
        assert!(matches!(read[2].0, Pong::Failed(_)), "one of which nothing is known isn't a good one");
        assert!(matches!(super::read("no ping\n", 1)[0].0, Pong::NoTool(_)));
    }
}
