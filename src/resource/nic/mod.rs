//! `nic`: what `ethtool` sets of a network card, and its largest PCI Express read, now and after a boot.

mod settings;

use self::settings::{Answer, Kind, SHORT, Settings, Shown, feature};
pub(super) use self::settings::{Pauses, ask_pauses, pauses, pauses_said};
use super::probes::links::{LinkList, interface};
use super::probes::session::SessionEnds;
use super::reapply::{Kept, Reapply};
use super::spec::{Key, Spec, int, text, truth};
use super::{Answers, Change, Claim, FileDiff, Need, Obstacle, Question, Reading, Resource, Risk, Step, Trouble, Undo};
use super::{package, roce_qos};
use crate::error::{Error, nearest, suggest};
use crate::shell::Script;
use crate::yaml::Node;
use serde_json::Value as Json;

/// Settings of a network card.
#[derive(Debug)]
pub struct Nic {
    interface: String,
    /// In the order in which they are made, names and values as the tool takes them.
    wanted: Vec<(Kind, Vec<(String, String)>)>,
    kept: Reapply,
    image: bool,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    /// As [`Nic::wanted`]; empty in an image.
    live: Vec<(Kind, Answer)>,
    /// The priorities with flow control, where pause frames are wanted: the two exclude each other.
    lossless: Vec<u8>,
    risk: Risk,
    boot: Kept,
}

/// Where files of this type stand among those that are run at boot: first, as they make queues and interrupts anew.
const ORDER: u8 = 20;
const READS: [i64; 6] = [128, 256, 512, 1024, 2048, 4096];

/// How many names a message lists.
const MOST_NAMED: usize = 16;

/// The kind of claim of who has a port send or heed pause frames.
pub(super) const PAUSES: &str = "pause frames on";

impl Nic {
    /// Whether pause frames are to be on.
    fn pauses(&self) -> bool {
        let on = |(kind, values): &(Kind, Vec<(String, String)>)| {
            *kind == Kind::Pause && values.iter().any(|(_, v)| v == "on")
        };
        self.wanted.iter().any(on)
    }

    /// The values of a kind that differ, with what they are.
    fn differing<'a>(
        wanted: &'a [(String, String)],
        shown: &'a Shown,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        wanted.iter().filter_map(|(name, value)| {
            let now = shown.now.get(name)?;
            (now != value).then_some((name.as_str(), now.as_str(), value.as_str()))
        })
    }

    /// The kinds of which something differs.
    fn changes<'a>(&'a self, now: &'a State) -> impl Iterator<Item = (Kind, &'a [(String, String)], &'a Shown)> {
        self.wanted.iter().zip(&now.live).filter_map(|((kind, wanted), (_, answer))| match answer {
            Answer::Shown(shown) if Nic::differing(wanted, shown).next().is_some() => {
                Some((*kind, wanted.as_slice(), shown))
            }
            _ => None,
        })
    }

    /// The script that sets these kinds.
    fn script<'a>(interface: &str, kinds: impl IntoIterator<Item = (Kind, &'a [(String, String)])>) -> Script {
        let mut script = Script::new().line(include_str!("set.sh"));
        for (kind, values) in kinds {
            let pairs = values.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
            script = match kind.option() {
                Some(option) => script.command(["change", option, interface].into_iter().chain(pairs)),
                None => script.command(["max_read_request", interface, &bits(&values[0].1)]),
            };
        }
        script.line("[ -z \"$bad\" ]")
    }

    /// What can't be on this device.
    fn impossible(&self, now: &State) -> Vec<String> {
        let (device, mut found) = (&self.interface, Vec::new());
        for ((kind, wanted), (_, answer)) in self.wanted.iter().zip(&now.live) {
            let (key, by) = (kind.key(), kind.shown_by());
            let shown = match answer {
                Answer::Shown(shown) => shown,
                Answer::Refused(why) => {
                    found.push(format!("{device} has no {key} to set: {by} says `{why}`"));
                    continue;
                }
                Answer::NoTool => continue,
            };
            for (name, value) in wanted {
                let Some(now) = shown.now.get(name) else {
                    let names: Vec<&str> = shown.now.keys().map(String::as_str).collect();
                    let short = SHORT.iter().filter(|_| *kind == Kind::Features).map(|(short, _)| *short);
                    let more = match nearest(name, names.iter().copied().chain(short)) {
                        Some(near) => format!("; is it {near}?"),
                        None if names.len() > MOST_NAMED => format!("; `{by} {device}` lists what it has"),
                        None if kind.option().is_some() && !names.is_empty() => {
                            format!("; it has {}", names.join(", "))
                        }
                        None => String::new(),
                    };
                    found.push(format!("{device} has no {key}.{name}{more}"));
                    continue;
                };
                let number = |text: &str| text.parse::<u64>().ok();
                if let Some(most) = shown.most.get(name).filter(|most| number(most) < number(value)) {
                    found.push(format!(
                        "{key}.{name} of {device} can't be {value}: the most that the device has is {most}"
                    ));
                }
                if now != value && shown.fixed.contains(name) {
                    found.push(format!("{key}.{name} of {device} can't be {value}: its driver has it fixed at {now}"));
                }
            }
        }
        found
    }
}

/// The bits of Device Control that mean these bytes, in hex.
fn bits(bytes: &str) -> String {
    let nth = READS.iter().position(|read| read.to_string() == *bytes).unwrap_or_default();
    format!("{nth}000")
}

/// A value as JSON.
fn json(value: &str) -> Json {
    match value {
        "on" => true.into(),
        "off" => false.into(),
        value => value.parse::<u64>().map_or_else(|_| value.into(), Json::from),
    }
}

impl Resource for Nic {
    type State = State;
    const TYPE: &'static str = "nic";
    const SUMMARY: &'static str =
        "Settings of a network card: rings, channels, coalescing, offloads, now and after a boot";
    const TOUCHES: &'static str = "\
        The card, by `ethtool` and `setpci`, only what differs, and, to set it again after a boot or the reload of a driver, \
        a file in `/etc/netplay/reapply.d`, which `netplay-reapply.service` runs. A change of rings, channels, features, \
        pause or private flags may take the link down for a moment.";
    const LINK: bool = true;
    const KEYS: &'static [Key] = &[
        Key::required("interface", "string", "The interface of a network card: ens1f0np0."),
        Key::optional("rings", "mapping", "Descriptors that its queues hold: `rx`, `tx` (`ethtool -g`)."),
        Key::optional("channels", "mapping", "How many queues it has: `combined`, or `rx` and `tx` (`ethtool -l`)."),
        Key::optional(
            "coalesce",
            "mapping",
            "When it interrupts, by the names of `ethtool -c`: `adaptive-rx: true`, `rx-usecs: 8` (microseconds), \
             `rx-frames: 128`. `_` is taken for `-`.",
        ),
        Key::optional(
            "features",
            "mapping",
            "What it does in the place of the kernel, by the names of `ethtool -k` or the short ones of `ethtool -K`: \
             `large-receive-offload: false`, `gro: true`.",
        ),
        Key::optional(
            "pause",
            "mapping",
            "Global pause frames: `rx`, `tx` (`ethtool -a`). Where RoCE has priority flow control they have to be off.",
        ),
        Key::optional(
            "private_flags",
            "mapping",
            "Flags of its driver, by the names of `ethtool --show-priv-flags`: `rx_striding_rq: true`.",
        ),
        Key::optional(
            "max_read_request",
            "128 | 256 | 512 | 1024 | 2048 | 4096",
            "The most bytes that it reads from memory at once, by `setpci`.",
        ),
        Reapply::PERSIST,
        Key::refused("mtu", "that is a type of its own: `mtu: {interface: …, mtu: 9000}`"),
    ];
    const EXAMPLE: &'static str = "\
- name: large rings and a queue a core on the fabric's card
  nic:
    interface: ens1f0np0
    rings: {rx: 8192, tx: 8192}
    channels: {combined: 32}
    coalesce: {adaptive-rx: true}
    features: {lro: false}
    pause: {rx: false, tx: false}
    max_read_request: 4096
";

    fn parse(spec: &Spec<'_>) -> Result<Nic, Error> {
        let interface = interface(spec, "interface")?;
        let mut wanted = Vec::new();
        for kind in Kind::ALL {
            let values = match kind {
                Kind::ReadRequest => spec.get(kind.key()).map(read_request).transpose()?.into_iter().collect(),
                _ => values(spec, kind)?,
            };
            if !values.is_empty() {
                wanted.push((kind, values));
            }
        }
        if wanted.is_empty() {
            let keys = Kind::ALL.map(Kind::key).join(", ");
            return Err(Error::playbook(&spec.node.span, "`nic` sets nothing").hint(format!("give one of {keys}")));
        }
        let script = Nic::script(&interface, wanted.iter().map(|(kind, values)| (*kind, values.as_slice())));
        let kept = Reapply::of(spec, ORDER, Self::TYPE, &interface, &script)?;
        Ok(Nic { interface, wanted, kept, image: spec.image })
    }

    fn identity(&self) -> String {
        self.interface.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        let pause = self.wanted.iter().any(|(kind, _)| *kind == Kind::Pause);
        let pause = pause.then(|| Claim::new("pause frames of", &self.interface));
        let on = self.pauses().then(|| Claim::new(PAUSES, &self.interface));
        [Claim::new("nic", &self.interface), self.kept.claim()].into_iter().chain(pause).chain(on).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        ["ethtool", "pciutils"].into_iter().flat_map(package::of_name).collect()
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = self.kept.questions();
        if !self.image {
            questions.extend([LinkList::ask(), SessionEnds::ask()]);
            let of = |(kind, _): &(Kind, _)| Question::of::<Settings>(format!("{} {}", kind.key(), self.interface));
            questions.extend(self.wanted.iter().map(of));
            questions.extend(self.pauses().then(|| roce_qos::ask_pfc(&self.interface)));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let boot = self.kept.read(answers)?;
        if self.image {
            return Ok(Reading::State(State { live: Vec::new(), lossless: Vec::new(), risk: Risk::None, boot }));
        }
        let links = answers.get::<LinkList>("")?;
        let Some(link) = links.get(&self.interface) else {
            return Ok(Reading::NotYet(links.missing(&self.interface)));
        };
        let mut live = Vec::new();
        for (kind, _) in &self.wanted {
            let answer = answers.get::<Settings>(&format!("{} {}", kind.key(), self.interface))?.clone();
            if answer == Answer::NoTool {
                let (tool, package) =
                    if kind.option().is_some() { ("ethtool", "ethtool") } else { ("setpci", "pciutils") };
                let trouble = Trouble::new(format!("{tool} isn't on this host"));
                return Ok(Reading::NotYet(trouble.hint(format!("install it before: `package: {{name: {package}}}`"))));
            }
            live.push((*kind, answer));
        }
        let risk = answers.get::<SessionEnds>("")?.risk(links, link);
        let lossless = if self.pauses() { roce_qos::pfc(answers, &self.interface)? } else { Vec::new() };
        Ok(Reading::State(State { live, lossless, risk, boot }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let mut changes = Vec::new();
        for (kind, wanted, shown) in self.changes(now) {
            for (name, from, to) in Nic::differing(wanted, shown) {
                let field = if kind.option().is_some() { format!("{}.{name}", kind.key()) } else { name.to_owned() };
                changes.push(Change::now(field, json(from), json(to)));
            }
        }
        changes.extend(now.boot.change());
        changes
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.changes(now).next().is_some() {
            let kinds = self.changes(now).map(|(kind, wanted, _)| (kind, wanted));
            steps.push(Step::Run(Nic::script(&self.interface, kinds)));
        }
        steps.extend(now.boot.steps(true));
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        now.boot.files()
    }

    fn undo(&self, now: &State) -> Option<Undo> {
        let old = |(kind, wanted, shown): (Kind, &[(String, String)], &Shown)| {
            let pairs = Nic::differing(wanted, shown).map(|(name, now, _)| (name.to_owned(), now.to_owned()));
            (kind, pairs.collect::<Vec<_>>())
        };
        let old: Vec<(Kind, Vec<(String, String)>)> = self.changes(now).map(old).collect();
        let script = Nic::script(&self.interface, old.iter().map(|(kind, pairs)| (*kind, pairs.as_slice())));
        Some(Undo { steps: if old.is_empty() { Vec::new() } else { vec![script] }, ..now.boot.undo() })
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        if !now.lossless.is_empty() {
            let (name, all) = (&self.interface, now.lossless.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
            let message = format!("PFC is on for {name} (priority {all}), and excludes pause frames on one port");
            let hint =
                format!("`roce_qos: {{interface: {name}, pfc: [], pause: true}}` switches from the one to the other");
            return Some(Obstacle::stops(Trouble::new(message).hint(hint)));
        }
        let found = self.impossible(now);
        if found.is_empty() { now.boot.obstacle() } else { Some(Obstacle::stops(Trouble::new(found.join("; ")))) }
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = now.boot.warnings();
        for (kind, wanted, shown) in self.changes(now).filter(|(kind, ..)| *kind == Kind::Rings) {
            for (name, now, wanted) in Nic::differing(wanted, shown) {
                let rounded = wanted.parse::<u64>().ok().and_then(u64::checked_next_power_of_two);
                if rounded.is_some_and(|n| n.to_string() == now) {
                    let key = kind.key();
                    warnings.push(format!(
                        "{key}.{name}: many drivers round {wanted} up to {now}, a power of two; write {now}"
                    ));
                }
            }
        }
        warnings
    }

    fn risk(&self, now: &State) -> Risk {
        if self.changes(now).any(|(kind, ..)| kind.touches_link()) { now.risk.clone() } else { Risk::None }
    }
}

fn read_request(node: &Node) -> Result<(String, String), Error> {
    let key = Kind::ReadRequest.key();
    let bytes = int(key, node, 128..=4096)?;
    if READS.contains(&bytes) {
        return Ok((key.to_owned(), bytes.to_string()));
    }
    Err(Error::playbook(&node.span, format!("`{key}` can't be {bytes}")).hint("it is a power of two from 128 to 4096"))
}

/// The names and values of a kind, as ethtool takes them.
fn values(spec: &Spec<'_>, kind: Kind) -> Result<Vec<(String, String)>, Error> {
    let mut values: Vec<(String, String)> = Vec::new();
    for (key, value) in spec.entries(kind.key())?.unwrap_or_default() {
        let written = text(kind.key(), key)?;
        let name = match kind {
            Kind::Coalesce => written.replace('_', "-"),
            Kind::Features => feature(&written).to_owned(),
            _ => written,
        };
        let known: &[&str] = match kind {
            Kind::Rings | Kind::Pause => &["rx", "tx"],
            Kind::Channels => &["combined", "rx", "tx"],
            _ => &[],
        };
        let error = |message: String| Error::playbook(&key.span, message);
        if kind == Kind::Pause && name == "autoneg" {
            return Err(error("`pause` has no `autoneg`".to_owned())
                .hint("many drivers can't change it (mlx5); `rx` and `tx` say what is to be"));
        }
        if !known.is_empty() && !known.contains(&name.as_str()) {
            return Err(error(format!("unknown name `{name}` in `{}`", kind.key())).hint(suggest(&name, known)));
        }
        if name.is_empty() || name.starts_with('-') || name.contains(char::is_control) {
            return Err(error(format!("`{name}` can't be a name in `{}`", kind.key())));
        }
        if values.iter().any(|(other, _)| *other == name) {
            return Err(error(format!("`{name}` is named twice in `{}`", kind.key())));
        }
        let switch = match kind {
            Kind::Coalesce => name.starts_with("adaptive-") || name.starts_with("cqe-mode-"),
            kind => matches!(kind, Kind::Features | Kind::Pause | Kind::PrivateFlags),
        };
        let value = if switch {
            (if truth(&name, value)? { "on" } else { "off" }).to_owned()
        } else {
            // No ring is without a descriptor.
            int(&name, value, i64::from(kind == Kind::Rings)..=i64::from(u32::MAX))?.to_string()
        };
        values.push((name, value));
    }
    // The kernel wants a queue to receive by and one to send by (net/ethtool/channels.c): `combined` is both.
    let of = |name: &str| values.iter().find(|(n, _)| n == name).map(|(_, v)| v != "0");
    if kind == Kind::Channels && of("combined") == Some(false) && !(of("rx") == Some(true) && of("tx") == Some(true))
        || kind == Kind::Channels && of("combined").is_none() && of("rx") == Some(false) && of("tx") == Some(false)
    {
        let at = &spec.need(kind.key())?.span;
        return Err(Error::playbook(at, "`channels` leaves the card no queue")
            .hint("give `combined`, or else `rx` and `tx`, at least one"));
    }
    Ok(values)
}
