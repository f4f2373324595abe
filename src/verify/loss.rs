//! `loss`: a flood of packets, counted where they arrive, so that the direction in which some are lost is known.

use super::measure::{Fault, Measured, Way};
use super::ping::Pong;
use crate::shell::Script;

/// Bytes of data of a packet: large enough for an error of the link to hit it, and small enough for any MTU.
const SIZE: &str = "1400";

/// Sends so many packets, each as soon as the one before was answered, or 10 ms later.
pub fn flood(interface: &str, address: &str, count: u32) -> Script {
    let bound = seconds(count).to_string();
    let words =
        ["ping", "-n", "-q", "-f", "-c", &count.to_string(), "-s", SIZE, "-w", &bound, "-I", interface, address];
    Script::new().line("command -v ping >/dev/null || { echo 'no ping'; exit 0; }").command(words)
}

/// Seconds that [`flood`] takes at most: each packet that isn't answered takes 10 ms, and a tenth of them may be.
pub fn seconds(count: u32) -> u32 {
    5 + count / 1000
}

/// Judges a flood of which so many requests arrived.
pub fn judge(way: &Way, pong: &Pong, arrived: Option<u64>) -> Measured {
    let (sent, received) = match pong {
        Pong::Counted { sent, received } if *sent > 0 => (*sent, *received),
        Pong::Counted { .. } => return Measured::failed(way, Fault::Failed { sender: true }, "ping sent no packet"),
        Pong::NoTool(why) => {
            let missing = Fault::Missing { sender: true, tool: "iputils' ping", package: "iputils-ping" };
            return Measured::failed(way, missing, why);
        }
        Pong::TooLarge(mtu) => {
            return Measured::failed(
                way,
                Fault::Failed { sender: true },
                format!("packets of {SIZE} bytes are too large for an MTU of {mtu}"),
            );
        }
        Pong::Failed(why) | Pong::Untried(why) => {
            let flood = why.contains("flood") || why.contains("not permitted");
            let root = if flood { " (a flood takes root's rights: `become: true`)" } else { "" };
            return Measured::failed(way, Fault::Failed { sender: true }, format!("ping: {why}{root}"));
        }
    };
    // Somebody else's pings arrive as well.
    let there = arrived.unwrap_or(received).clamp(received.min(sent), sent);
    let lost = sent - there;
    let percent = lost as f64 * 100.0 / sent as f64;
    let reason = format!("{lost} of {sent} packets lost ({percent:.2} %)");
    Measured {
        way: way.clone(),
        value: Some(percent),
        wanted: Some(0.0),
        reason,
        fault: match lost {
            0 => None,
            all if all == sent => Some(Fault::Silent),
            _ => Some(Fault::Lossy),
        },
        judged: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_there_counts() {
        let way = Way { from: (0, 0), to: (1, 0), own: String::new(), address: String::new() };
        let judged = |sent, received, arrived| {
            let one = judge(&way, &Pong::Counted { sent, received }, arrived);
            (one.value, one.fault)
        };
        assert_eq!(judged(1000, 990, Some(1000)), (Some(0.0), None), "ten answers were lost, no request");
        assert_eq!(judged(1000, 980, Some(990)), (Some(1.0), Some(Fault::Lossy)));
        assert_eq!(judged(1000, 990, None), (Some(1.0), Some(Fault::Lossy)), "where it can't be counted, both ways do");
        assert_eq!(judged(1000, 1000, Some(1007)), (Some(0.0), None), "others ping too");
        assert_eq!(judged(1000, 0, Some(0)), (Some(100.0), Some(Fault::Silent)), "none passes: that is no loss");
        assert_eq!(judged(0, 0, Some(0)), (None, Some(Fault::Failed { sender: true })));
    }
}
