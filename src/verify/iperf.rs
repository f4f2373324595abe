//! `iperf3`: what is run on both hosts, and what it prints. Sources: iperf3 3.12 and 3.18, and what is known of others:
//! 3.12 exits with 0 on a failure (esnet/iperf issue 1405) and repeats keys in one object (856), 3.16 may print its document
//! twice (1716), and before 3.16 it is one thread.

use crate::shell::Script;
use serde_json::Value;

/// What one process of a client came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Ran {
    /// What came through.
    Rate {
        /// Gb/s, as the other side counted it.
        gbps: f64,
        /// Segments that were sent again, where the kernel tells.
        retransmits: Option<u64>,
    },
    /// Another client was served before, or the server has ended.
    Taken,
    /// No connection to the server came to be; what it said.
    Blocked(String),
    /// It failed otherwise; what it said.
    Failed(String),
}

const CLIENT: &str = r#"command -v iperf3 >/dev/null || { echo 'no iperf3'; exit 0; }
for p do
  ( o=$(timeout "$bound" iperf3 -c "$address" -B "$own" -p "$p" -t "$seconds" -P "$streams" -O 1 -i 0 -J --connect-timeout 5000 2>&1)
    printf '== %s %s\n%s\n' "$p" "$?" "$o" ) &
done
wait; exit 0"#;

/// The first port that is tried.
pub const PORT: u16 = 5201;

/// A test of so many seconds against these servers, all at once, with so many streams each.
pub fn client(own: &str, address: &str, ports: &[u16], seconds: u32, streams: u32) -> Script {
    Script::new()
        .set("own", own)
        .set("address", address)
        .set("seconds", &seconds.to_string())
        .set("streams", &streams.to_string())
        .set("bound", &(seconds + 15).to_string())
        .args(ports.iter().map(u16::to_string))
        .line(CLIENT)
}

/// What [`client`] printed, a process each; nothing where the tool isn't there.
pub fn read(printed: &str) -> Option<Vec<Ran>> {
    if printed.trim() == "no iperf3" {
        return None;
    }
    let parts = printed.split("== ").skip(1);
    Some(parts.filter_map(|part| part.split_once('\n').map(|(_, said)| ran(said))).collect())
}

/// What one process said.
fn ran(said: &str) -> Ran {
    // Into values: a key that is there twice is no error then. Of two documents the last one is whole.
    let start = said.find('{').unwrap_or(said.len());
    let documents = serde_json::Deserializer::from_str(&said[start..]).into_iter::<Value>();
    let Some(document) = documents.map_while(Result::ok).last() else {
        let line = said.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it said nothing").trim();
        return failed(line.trim_start_matches("iperf3: "));
    };
    if let Some(error) = document["error"].as_str() {
        return failed(error);
    }
    let end = &document["end"];
    match end["sum_received"]["bits_per_second"].as_f64() {
        // No link is that fast: what says so isn't iperf3, or counts wrongly.
        Some(bits) if !(0.0..=1e14).contains(&bits) => Ran::Failed(format!("{bits:e} bits/s can't be")),
        Some(bits) => Ran::Rate { gbps: bits / 1e9, retransmits: end["sum_sent"]["retransmits"].as_u64() },
        None => Ran::Failed("its document has no result".to_owned()),
    }
}

fn failed(said: &str) -> Ran {
    let said = said.strip_prefix("error - ").unwrap_or(said).to_owned();
    let lower = said.to_lowercase();
    // A server serves once: who came first has it, and it ends with them. The last one is what a client says whose server
    // was killed.
    let gone = ["server is busy", "server has terminated", "control socket has closed unexpectedly"];
    if gone.iter().any(|words| lower.contains(words)) {
        Ran::Taken
    } else if lower.contains("unable to connect") || lower.contains("unable to send control message") {
        Ran::Blocked(said)
    } else {
        Ran::Failed(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_both_versions_are_read() {
        let sample = |text: &str| ran(text);
        let rate = |ran: Ran| match ran {
            Ran::Rate { gbps, retransmits } => ((gbps * 100.0).round() / 100.0, retransmits),
            other => panic!("{other:?}"),
        };
        // 3.12 repeats `sock_bufsize` and others in one object.
        let older = include_str!("samples/iperf3_3.12_json_ok.txt");
        assert_eq!(rate(sample(older)), (14.12, Some(0)));
        let newer = include_str!("samples/iperf3_3.18_json_ok.txt");
        assert_eq!(rate(sample(newer)), (7.04, Some(9)));
        // Twice the same document, as 3.16 may print it; and a warning before it.
        let json = &newer[newer.find('{').unwrap()..];
        assert_eq!(rate(sample(&format!("{json}\n{json}"))), (7.04, Some(9)));
        assert_eq!(rate(sample(&format!("warning: UDP block size\n{json}"))), (7.04, Some(9)));
    }

    #[test]
    fn failures_are_told_apart_whatever_the_exit_code() {
        let text = include_str!("samples/iperf3_errors.txt");
        let line = |version: &str| text.lines().find_map(|l| l.strip_prefix(version)).unwrap();
        let document = line("3.12: ").split("   rc=").next().unwrap();
        assert_eq!(ran(document), Ran::Blocked("unable to connect to server: Connection refused".to_owned()));
        let older = r#"{"start": {}, "intervals": [], "end": {}, "error": "error - unable to connect to server: No route to host"}"#;
        assert!(text.contains("error - unable to connect to server: No route to host"));
        assert_eq!(ran(older), Ran::Blocked("unable to connect to server: No route to host".to_owned()));
        // What 3.12 said when its server got SIGTERM and SIGKILL.
        for error in ["the server has terminated", "control socket has closed unexpectedly"] {
            assert_eq!(ran(&format!(r#"{{"start": {{}}, "end": {{}}, "error": "{error}"}}"#)), Ran::Taken);
        }
        assert!(matches!(ran(r#"{"start": {}, "end": {}}"#), Ran::Failed(_)), "no result is no rate of 0");
        for bits in ["1e300", "-5"] {
            let said = format!(r#"{{"end": {{"sum_received": {{"bits_per_second": {bits}}}}}}}"#);
            assert!(matches!(ran(&said), Ran::Failed(why) if why.ends_with("bits/s can't be")), "{bits}");
        }
        assert_eq!(ran(""), Ran::Failed("it said nothing".to_owned()));
        assert!(matches!(ran("iperf3: unrecognized option '--connect-timeout'"), Ran::Failed(_)));
        assert_eq!(read("no iperf3\n"), None);
        let busy = include_str!("samples/iperf3_3.12_busy.txt");
        assert_eq!(read(&format!("== 5201 0\n{busy}")), Some(vec![Ran::Taken]));
    }
}
