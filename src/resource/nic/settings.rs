//! Kinds of settings of a network card, and what `ethtool` and `setpci` say of them.

use crate::resource::{Answers, Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use std::collections::{BTreeMap, BTreeSet};

/// Seconds that all tools together may take on a host: a card whose firmware is dead doesn't answer.
const SECONDS: u32 = 30;

/// A kind of settings, in the order in which they are made: what may set up the queues anew comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    PrivateFlags,
    Features,
    Channels,
    Rings,
    Coalesce,
    Pause,
    ReadRequest,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::PrivateFlags,
        Kind::Features,
        Kind::Channels,
        Kind::Rings,
        Kind::Coalesce,
        Kind::Pause,
        Kind::ReadRequest,
    ];

    /// Its key in a playbook.
    pub(super) fn key(self) -> &'static str {
        match self {
            Kind::PrivateFlags => "private_flags",
            Kind::Features => "features",
            Kind::Channels => "channels",
            Kind::Rings => "rings",
            Kind::Coalesce => "coalesce",
            Kind::Pause => "pause",
            Kind::ReadRequest => "max_read_request",
        }
    }

    /// What shows it, for errors.
    pub(super) fn shown_by(self) -> &'static str {
        match self {
            Kind::PrivateFlags => "ethtool --show-priv-flags",
            Kind::Features => "ethtool -k",
            Kind::Channels => "ethtool -l",
            Kind::Rings => "ethtool -g",
            Kind::Coalesce => "ethtool -c",
            Kind::Pause => "ethtool -a",
            Kind::ReadRequest => "setpci",
        }
    }

    /// The option of ethtool that sets it.
    pub(super) fn option(self) -> Option<&'static str> {
        Some(match self {
            Kind::PrivateFlags => "--set-priv-flags",
            Kind::Features => "-K",
            Kind::Channels => "-L",
            Kind::Rings => "-G",
            Kind::Coalesce => "-C",
            Kind::Pause => "-A",
            Kind::ReadRequest => return None,
        })
    }

    /// Whether a change of it may take the link down for a moment.
    pub(super) fn touches_link(self) -> bool {
        !matches!(self, Kind::Coalesce | Kind::ReadRequest)
    }
}

/// What a tool says of one kind of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Values by their names as the tool takes them; those that the device lacks (`n/a`) aren't there.
    pub(super) now: BTreeMap<String, String>,
    /// The most that the device has.
    pub(super) most: BTreeMap<String, String>,
    /// What its driver doesn't let be changed.
    pub(super) fixed: BTreeSet<String>,
}

/// The answer to one kind of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The tool isn't on the host.
    NoTool,
    /// It can't show this: why.
    Refused(String),
    Shown(Shown),
}

/// Asks whether an interface sends and heeds pause frames.
pub(in crate::resource) fn ask_pauses(interface: &str) -> Question {
    Question::of::<Settings>(format!("{} {interface}", Kind::Pause.key()))
}

/// Whether an interface receives and sends pause frames, or what the device says that has none; nothing where the tool isn't
/// there. Whether it is negotiated doesn't matter: the driver of ConnectX can't change that.
pub(in crate::resource) type Pauses = Option<Result<(bool, bool), String>>;

/// The answer to [`ask_pauses`].
///
/// # Errors
/// The host didn't answer.
pub(in crate::resource) fn pauses(answers: &Answers, interface: &str) -> Result<Pauses, Trouble> {
    Ok(match answers.get::<Settings>(&format!("{} {interface}", Kind::Pause.key()))? {
        Answer::NoTool => None,
        Answer::Refused(said) => Some(Err(said.clone())),
        Answer::Shown(shown) => Some(both(shown)),
    })
}

/// The same out of what `ethtool -a` printed.
///
/// # Errors
/// The device has none, or the tool failed: what it said.
pub(in crate::resource) fn pauses_said(code: i32, lines: &[&str]) -> Result<(bool, bool), String> {
    let said = || lines.join(" ").trim().to_owned();
    if code == 0 { read(Kind::Pause, lines).map_err(|_| said()).and_then(|shown| both(&shown)) } else { Err(said()) }
}

fn both(shown: &Shown) -> Result<(bool, bool), String> {
    match (shown.now.get("rx"), shown.now.get("tx")) {
        (Some(rx), Some(tx)) => Ok((rx == "on", tx == "on")),
        _ => Err("`ethtool -a` tells of none".to_owned()),
    }
}

/// The group. An argument is the key of a kind and the name of an interface, with a blank between.
pub(super) struct Settings;

impl Group for Settings {
    type Answer = Answer;
    const NAME: &'static str = "ethtool";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let pairs = args.iter().flat_map(|arg| arg.split(' '));
        let script = Script::new().set("ask", include_str!("probe.sh")).set("s", &SECONDS.to_string()).args(pairs);
        vec![script.line(r#"lim "$s" /bin/sh -c "$ask" sh "$@""#).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Answer, Trouble>> {
        let text = outputs[0].text();
        let mut answers: BTreeMap<usize, (&str, Vec<&str>)> = BTreeMap::new();
        let mut at = 0;
        for line in text.lines() {
            match line.strip_prefix("== ").and_then(|head| head.split_once(' ')) {
                Some((n, code)) => {
                    at = n.parse().unwrap_or_default();
                    answers.insert(at, (code, Vec::new()));
                }
                None => _ = answers.get_mut(&at).map(|(_, lines)| lines.push(line)),
            }
        }
        let one = |(i, arg): (usize, &&str)| {
            let (key, interface) = arg.split_once(' ').unwrap_or_default();
            let kind = Kind::ALL.into_iter().find(|kind| kind.key() == key).unwrap_or(Kind::Rings);
            let (code, lines) = answers.get(&(i + 1)).ok_or_else(|| {
                let said = String::from_utf8_lossy(outputs[0].stderr.trim_ascii());
                let why = if said.is_empty() { format!("no answer within {SECONDS} s") } else { said.into_owned() };
                Trouble::new(format!("`{} {interface}` failed: {why}", kind.shown_by()))
                    .hint("a card that doesn't answer is told of in the kernel's log: `dmesg`")
            })?;
            Ok(match *code {
                "none" => Answer::NoTool,
                "0" => Answer::Shown(read(kind, lines)?),
                _ => Answer::Refused(lines.join(" ").trim().to_owned()),
            })
        };
        args.iter().enumerate().map(one).collect()
    }
}

/// Reads what a tool printed.
///
/// # Errors
/// It isn't what the tool prints.
fn read(kind: Kind, lines: &[&str]) -> Result<Shown, Trouble> {
    let mut shown = Shown::default();
    if kind == Kind::ReadRequest {
        // A word in hex: 0x5936 is 4096.
        let word = lines.iter().find_map(|line| u16::from_str_radix(line.trim(), 16).ok());
        let word = word.ok_or_else(|| Trouble::new(format!("setpci printed `{}`", lines.join(" "))))?;
        shown.now.insert(kind.key().to_owned(), (128u32 << ((word >> 12) & 7)).to_string());
        return Ok(shown);
    }
    let mut most = false;
    for line in lines {
        // A private flag may be called anything; all other names have no colon.
        let pair = if kind == Kind::PrivateFlags { line.rsplit_once(':') } else { line.split_once(':') };
        let Some((name, value)) = pair.map(|(name, value)| (name.trim(), value.trim())) else { continue };
        match (kind, name) {
            (_, "Pre-set maximums") => most = true,
            (_, "Current hardware settings") => most = false,
            // Two on a line: `Adaptive RX: on  TX: off`, `CQE mode RX: on  TX: off`.
            (Kind::Coalesce, "Adaptive RX" | "CQE mode RX") => {
                let what = if name.starts_with('A') { "adaptive" } else { "cqe-mode" };
                if let Some((rx, tx)) = value.split_once("TX:") {
                    shown.put(false, &format!("{what}-rx"), rx.trim());
                    shown.put(false, &format!("{what}-tx"), tx.trim());
                }
            }
            // Printed without the `s` that they are set with (ethtool, netlink/coalesce.c).
            (Kind::Coalesce, _) => shown.put(false, &name.replace("-frame-", "-frames-"), value),
            (Kind::Rings | Kind::Channels | Kind::Pause, _) => {
                shown.put(most, &name.to_lowercase().replace(' ', "-"), value);
            }
            (Kind::Features, _) => {
                // `off [fixed]`, `off [requested on]`.
                let (value, more) = value.split_once(' ').unwrap_or((value, ""));
                shown.put(false, name, value);
                if more.contains("fixed") {
                    shown.fixed.insert(name.to_owned());
                }
            }
            _ => shown.put(false, name, value),
        }
    }
    Ok(shown)
}

impl Shown {
    fn put(&mut self, most: bool, name: &str, value: &str) {
        if !value.is_empty() && value != "n/a" {
            let values = if most { &mut self.most } else { &mut self.now };
            values.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Features that have a short name too, with the long one that `ethtool -k` shows (ethtool(8), `-K`).
pub(super) const SHORT: [(&str, &str); 11] = [
    ("rx", "rx-checksumming"),
    ("tx", "tx-checksumming"),
    ("sg", "scatter-gather"),
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
    ("lro", "large-receive-offload"),
    ("rxvlan", "rx-vlan-offload"),
    ("txvlan", "tx-vlan-offload"),
    ("ntuple", "ntuple-filters"),
    ("rxhash", "receive-hashing"),
];

/// The long name of a feature.
pub(super) fn feature(name: &str) -> &str {
    SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, long)| long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Inquiry;

    #[test]
    fn what_a_device_lacks_is_told_in_the_words_of_the_tool() {
        let mut seen = 0;
        for run in include_str!("samples/ethtool_6.1.txt")
            .split("\n")
            .filter(|l| !l.starts_with('#'))
            .collect::<Vec<_>>()
            .chunk_by(|_, l| !l.contains(" ethtool "))
        {
            let [head, said @ ..] = run else { continue };
            let Some((code, command)) = head.split_once(" ethtool ") else { continue };
            // What sets is no question.
            let key = match command.split(' ').next() {
                Some("-a") => "pause",
                Some("-g") => "rings",
                _ => continue,
            };
            let text = format!("== 1 {code}\n{}", said.join("\n"));
            let output = Output { stdout: text.into_bytes(), ..Output::default() };
            let answer = Settings::split(&[&format!("{key} eth0")], &[output]).remove(0).unwrap();
            assert_eq!(answer, Answer::Refused(said.join(" ").trim().to_owned()), "{command}");
            seen += 1;
        }
        assert_eq!(seen, 2);
    }

    #[test]
    fn pause_frames() {
        let of = |said: &str| {
            let inquiry = Inquiry::new([ask_pauses("eth1")]);
            let output = Output { stdout: said.into(), ..Output::default() };
            pauses(&inquiry.answers(vec![Ok(output)]), "eth1").unwrap()
        };
        let shown =
            "== 1 0\nPause parameters for eth1:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\nRX negotiated: off\n";
        assert_eq!(of(shown), Some(Ok((true, false))));
        let refused = "netlink error: Operation not supported";
        assert_eq!(of(&format!("== 1 76\n{refused}\n")), Some(Err(refused.to_owned())));
        assert_eq!(of("== 1 none\n"), None);
    }
}
