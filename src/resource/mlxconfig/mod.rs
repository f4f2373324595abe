//! `mlxconfig`: parameters of NVIDIA's network cards, which the firmware takes over at the next boot.
//!
//! A parameter has three values: the current one, the one of the next boot and the default. What is wanted is set for the
//! next boot and read back; as long as the current value is another one, a reboot is pending. That is judged by what the
//! card reports, never by the tool's line "Please reboot machine", which it prints after each set.

mod judge;
mod set;
mod table;
mod value;

use self::judge::{Is, Item};
use self::set::Setting;
use self::table::Table;
use super::cards::{self, Device, Found, new_line};
use super::probes::links::{LinkList, Links};
use super::probes::session::{Session, SessionEnds};
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, Effect, Fragment, Group, Need, Obstacle, Output, Question, Reading, Resource, Stale, Step,
    Trouble,
};
use crate::error::Error;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Parameters of a card, or of all cards of a host.
#[derive(Debug)]
pub struct Mlxconfig {
    device: Device,
    set: Vec<Setting>,
    reset: bool,
    accept_session_loss: bool,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    found: Found,
    cards: Vec<Card>,
    /// How the host is talked to and over which links, where that matters.
    over: Option<(Session, Links)>,
}

/// One card, and what its tool told.
#[derive(Debug)]
struct Card {
    address: String,
    table: Result<Table, Trouble>,
}

/// The group. An argument is a device and the parameters that are wanted of it, `*` for all that aren't at their default.
struct Settings;

impl Group for Settings {
    type Answer = Found;
    const NAME: &'static str = "card settings";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        cards::ask(args, include_str!("probe.sh"))
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        cards::answers(args, outputs)
    }
}

/// What stands for all parameters among those that are asked for and claimed.
const RESET: &str = "*";
/// How all cards are named where one is.
const ALL: &str = "all cards";

/// Whether the firmware disables RoCE, as the table of a card says; nothing if it doesn't say.
pub fn disables_roce(said: &str, address: &str) -> Option<bool> {
    let table = Table::read(said, address);
    let row = table.get(set::ROCE_CONTROL)?;
    let now = row.current.as_ref().unwrap_or(&row.next);
    now.or_default(row.default.as_ref()).same(&value::Value::of("ROCE_DISABLE(1)"))
}

/// A card as it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    /// Its PCI address.
    pub address: String,
    /// Its RDMA devices.
    pub rdma: Vec<String>,
    /// The parameters that aren't at their default, but for arrays: the current value, where the tool tells it, and the one of
    /// the next boot. Nothing stands for the default.
    pub parameters: BTreeMap<String, (Option<String>, Option<String>)>,
}

/// Asks all cards what isn't at its default.
pub fn survey() -> Question {
    Question::of::<Settings>(SURVEY)
}

const SURVEY: &str = "all *";

/// The cards of a host, each or why it tells nothing.
///
/// # Errors
/// The host didn't say, or has cards and no tool for them.
pub fn surveyed(answers: &Answers) -> Result<Vec<Result<Surveyed, Trouble>>, Trouble> {
    let found = answers.get::<Settings>(SURVEY)?;
    let Some(tool) = found.tool.as_deref() else {
        return match found.functions.is_empty() {
            true => Ok(Vec::new()),
            false => Err(Trouble::new("neither mlxconfig nor mstconfig is on this host")),
        };
    };
    let card = |address: &String| {
        let (code, said) = found.answers.get(address).cloned().unwrap_or((255, String::new()));
        let table = Table::read(&said, address);
        // What isn't in the table is at its default: it has to be whole, and of a tool that tells defaults.
        if !table.seen || code != 0 {
            return Err(cards::refusal(found, tool, address, code, &said));
        }
        if !table.default {
            return Err(Trouble::new(format!("{address}: this tool doesn't tell what differs from the defaults")));
        }
        let parameter = |(name, row): (&str, &table::Row)| {
            let default = row.default.as_ref().filter(|d| !d.unknown());
            let told = |value: &value::Value| {
                let value = value.or_default(default);
                let usual = value.unknown() || default.is_some_and(|d| d.same(value) == Some(true));
                (!usual).then(|| value.text.clone())
            };
            (name.to_owned(), (row.current.as_ref().and_then(told), told(&row.next)))
        };
        let of_card = found.functions.iter().filter(|f| cards::slot(&f.address) == cards::slot(address));
        Ok(Surveyed {
            address: address.clone(),
            rdma: of_card.flat_map(|f| f.rdma.clone()).collect(),
            parameters: table.rows().filter(|(_, row)| !row.read_only).map(parameter).collect(),
        })
    };
    Ok(found.targets.get("all").into_iter().flatten().map(card).collect())
}

/// How many functions of cards a host has on its bus, with a driver or without.
///
/// # Errors
/// The host didn't say.
pub fn count(answers: &Answers) -> Result<usize, Trouble> {
    Ok(answers.get::<Settings>(SURVEY)?.functions.len())
}

/// The functions of cards that no driver makes usable: without an interface, or of InfiniBand without an RDMA device.
///
/// # Errors
/// The host didn't say.
pub fn undriven(answers: &Answers) -> Result<Vec<String>, Trouble> {
    let found = answers.get::<Settings>(SURVEY)?;
    let idle = |f: &&cards::Function| f.rdma.is_empty() && (f.interfaces.is_empty() || f.link_type() == Some("IB"));
    Ok(found.functions.iter().filter(idle).map(|f| f.address.clone()).collect())
}

impl Mlxconfig {
    fn question(&self) -> String {
        let mut words = vec![self.device.0.as_str()];
        let asked: Vec<String> = self.set.iter().map(|s| format!("{}:{}", s.name, s.value.key())).collect();
        words.extend(asked.iter().map(String::as_str));
        words.extend(self.set.iter().any(|s| s.name == set::ROCE_ENABLE).then_some(set::ROCE_CONTROL));
        words.extend(self.reset.then_some(RESET));
        words.join(" ")
    }

    /// What this resource and another one of the play set on one card of this host, which they call by other names.
    fn clash(&self, now: &State) -> Option<Trouble> {
        fn named(words: &str) -> impl Iterator<Item = &str> {
            words.split(' ').map(|word| word.split(':').next().unwrap_or(word))
        }
        let own = self.question();
        let all = now.found.asked.iter().filter(|other| **other != own).filter_map(|other| other.split_once(' '));
        let mut troubles = Vec::new();
        for (device, names) in all {
            let targets = now.found.targets.get(device).map(Vec::as_slice).unwrap_or_default();
            let Some(card) = now.cards.iter().find(|card| targets.contains(&card.address)) else { continue };
            let both = |name: &&str| named(names).any(|other| other == *name || other == RESET || *name == RESET);
            if let Some(name) = own.split_once(' ').and_then(|(_, own)| named(own).find(both)) {
                let what = if name == RESET { "parameters" } else { name };
                let (address, this) = (&card.address, &self.device.0);
                troubles.push(Trouble::new(format!(
                    "`mlxconfig:{this}` and `mlxconfig:{device}` both set {what} of the card {address}"
                )));
            }
        }
        Some(Trouble::all(troubles)?.hint("leave it to one of them, or keep them apart with `when`"))
    }

    /// Whether it may change what kind of network a port is, which changes the name of its interface.
    fn changes_links(&self) -> bool {
        self.reset || self.set.iter().any(|s| s.name.starts_with(set::LINK_TYPE))
    }
}

/// What of a parameter differs: its value of the next boot, which is set now, and the current one, which follows then.
fn changes(item: &Item<'_>) -> Vec<Change> {
    // A card that doesn't show a parameter has none; of one that it shows it may not tell each value.
    let none = if item.is == Is::Hidden { Json::Null } else { "not told".into() };
    let json = |value: Option<&value::Value>| value.map_or(none.clone(), value::Value::json);
    let to = item.wanted.json();
    let later = |effect: Effect| Change {
        field: item.name.clone(),
        from: json(item.current.as_ref()),
        to: item.wanted.json(),
        effect,
    };
    match item.is {
        Is::Fits | Is::NotApplied(_) => Vec::new(),
        Is::Set => {
            let mut changes = vec![Change::now(format!("{} next boot", item.name), json(item.next.as_ref()), to)];
            changes.extend((!item.current_fits()).then(|| later(Effect::Reboot)));
            changes
        }
        Is::Waits { effect, .. } => vec![later(effect)],
        Is::Hidden => vec![Change { field: format!("{} next boot", item.name), ..later(Effect::Reboot) }],
    }
}

impl Resource for Mlxconfig {
    type State = State;
    const TYPE: &'static str = "mlxconfig";
    const SUMMARY: &'static str = "Firmware parameters of NVIDIA's network cards (ConnectX, BlueField)";
    const TOUCHES: &'static str = "\
        The card's values of the next boot, by `mlxconfig` of MFT or else `mstconfig` of mstflint: one query for each card \
        and look, all cards at once, and one set. A card is asked once more for elements of arrays where a parameter of a \
        further port (`_P2`) is wanted too, and (`show_confs`) for what a parameter can be where a value is wanted that the \
        query doesn't show. What waits for a boot is noted in `/var/lib/netplay/pending`. The tools \
        make lock files of their own below `/tmp`. Nothing is reset and no machine rebooted.";
    const KEYS: &'static [Key] = &[
        Key::required(
            "device",
            Device::TAKES,
            "Which card. Its functions are one device. `all`: each card that is no virtual function.",
        ),
        Key::optional(
            "set",
            "mapping",
            "Parameters and their values: a name or a number as `mlxconfig show_confs` has them, in any case (`ETH`, `2`, \
             `ETH(2)`). `P[3]` and `P[0..3]` are elements of an array, of which the latter takes a value for all or a list. \
             A parameter of a port that the card doesn't have (`_P2`) is left out and told. `ADVANCED_PCI_SETTINGS: 1` \
             reveals others at the next boot: those are set when they are there. `ROCE_ENABLE`, which guides name and no \
             firmware has, is understood as `ROCE_CONTROL`.",
        ),
        Key::default(
            "reset",
            "boolean",
            "false",
            "Whether all other parameters go back to their defaults; arrays and read-only ones stay.",
        ),
        Key::default(
            "accept_session_loss",
            "boolean",
            "false",
            "Whether LINK_TYPE may change on the card that carries the session. Its interfaces have other names after the \
             boot, and the host may not be reached by them.",
        ),
    ];
    const EXAMPLE: &'static str = "\
- name: RoCE and GPUDirect on all rails
  mlxconfig:
    device: all
    set:
      LINK_TYPE_P1: ETH
      ROCE_CONTROL: ROCE_ENABLE
      CNP_DSCP_P1: 48
      ADVANCED_PCI_SETTINGS: 1
      MAX_ACC_OUT_READ: 44
";

    fn parse(spec: &Spec<'_>) -> Result<Mlxconfig, Error> {
        let device = Device::of(spec)?;
        let set = set::settings(spec)?;
        let reset = spec.bool("reset")?.unwrap_or(false);
        if set.is_empty() && !reset {
            return Err(Error::playbook(&spec.node.span, "`mlxconfig` sets nothing")
                .hint("write `set: {PARAMETER: value}`, or `reset: true`"));
        }
        let accept_session_loss = spec.bool("accept_session_loss")?.unwrap_or(false);
        Ok(Mlxconfig { device, set, reset, accept_session_loss })
    }

    fn identity(&self) -> String {
        self.device.0.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        // What two names of one card have in common is only known on the host; see `clash`.
        let of = |device: &str, name: &str| Claim::new("card parameter", format!("{name} of {device}"));
        let one = self.device.one();
        let device = if one { cards::slot(&self.device.0) } else { ALL };
        let claim = |name: &str| {
            let wholes = [name, RESET].map(|name| of(ALL, name));
            Claim { within: if one { wholes.into() } else { Vec::new() }, ..of(device, name) }
        };
        let names = self.set.iter().map(Setting::own_name).chain(self.reset.then_some(RESET));
        names.map(claim).collect()
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        ["mstflint", "mft"].map(|package| Need::After(Claim::new("package", package))).into()
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = vec![Question::of::<Settings>(self.question())];
        if self.changes_links() && !self.accept_session_loss {
            questions.extend([LinkList::ask(), SessionEnds::ask()]);
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found = answers.get::<Settings>(&self.question())?.clone();
        let Some(tool) = found.tool.clone() else {
            let trouble = Trouble::new("neither mlxconfig nor mstconfig is on this host");
            return Ok(Reading::NotYet(trouble.hint(
                "install mstflint (`package: {name: mstflint}`, Debian and Red Hat have it) or NVIDIA's MFT, before this",
            )));
        };
        let targets = match self.device.targets(&found) {
            Ok(targets) => targets,
            Err(trouble) => return Ok(Reading::NotYet(trouble)),
        };
        let card = |address: &String| {
            let (code, said) = found.answers.get(address).cloned().unwrap_or((255, String::new()));
            let mut table = Table::read(&said, address);
            if table.complaint.is_none() && code != 0 {
                table.complaint = Some(format!("{tool} ended with {code}"));
            }
            // What was cut short may have been about to tell more.
            let whole = table.seen && !cards::cut_short(code);
            let table = if whole { Ok(table) } else { Err(cards::refusal(&found, &tool, address, code, &said)) };
            Card { address: address.clone(), table }
        };
        let cards: Vec<Card> = targets.iter().map(card).collect();
        // With what none of them answers nothing can be said.
        if let (false, Some(trouble)) =
            (cards.iter().any(|c| c.table.is_ok()), cards.iter().find_map(|c| c.table.as_ref().err()))
        {
            return Err(trouble.clone());
        }
        let over = match self.changes_links() && !self.accept_session_loss {
            true => Some((answers.get::<SessionEnds>("")?.clone(), answers.get::<LinkList>("")?.clone())),
            false => None,
        };
        Ok(Reading::State(State { found, cards, over }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let judged = self.judge(now);
        let each = judged.items.iter().flat_map(|item| changes(item).into_iter().map(|change| (change, item.card)));
        cards::folded(each, now.cards.len())
    }

    fn unapplied(&self, now: &State) -> Vec<Change> {
        let judged = self.judge(now);
        let refused = judged.items.iter().filter(|item| matches!(item.is, Is::NotApplied(_)));
        let change = |item: &Item<'_>| Change {
            from: item.current.as_ref().map_or(Json::Null, value::Value::json),
            ..Change::now(&item.name, Json::Null, item.wanted.json())
        };
        cards::folded(refused.map(|item| (change(item), item.card)), now.cards.len())
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let judged = self.judge(now);
        let mut cards: BTreeMap<String, cards::Setting> = BTreeMap::new();
        for item in &judged.items {
            let noted = now.found.marks(item.card).iter().any(|m| m.parameter == item.name);
            let (set, note, forget) = match item.is {
                Is::Set => (true, !item.current_fits(), item.current_fits() && noted),
                Is::Waits { noted, .. } => (false, !noted, false),
                // Of what has come to pass the note is left for the next change: forgetting it alone is none.
                Is::Fits | Is::NotApplied(_) | Is::Hidden => (false, false, false),
            };
            if !set && !note {
                continue;
            }
            let card = cards.entry(item.card.to_owned()).or_default();
            card.assignments.extend(set.then(|| format!("{}={}", item.name, item.wanted.plain())));
            card.notes.extend(note.then(|| item.note()));
            card.dropped.extend(forget.then(|| item.name.clone()));
        }
        if cards.is_empty() { Vec::new() } else { vec![cards::step(&cards)] }
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let mut judged = self.judge(now);
        judged.stops.extend(self.clash(now));
        let stops = !judged.stops.is_empty();
        let troubles = if stops { judged.stops } else { judged.silent };
        let trouble = Trouble::all(troubles)?;
        Some(if stops { Obstacle::stops(trouble) } else { Obstacle::lasts(trouble) })
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        self.judge(now).warnings
    }

    fn live_only(&self) -> Option<&'static str> {
        Some("its parameters are in the card, and an image has none")
    }

    fn seconds(&self) -> Option<u32> {
        // A set may take 100 s, and which reset loads it is asked after it.
        Some(150)
    }
}

impl Item<'_> {
    /// The line of its note.
    fn note(&self) -> String {
        new_line(&self.name, &self.wanted.plain(), self.current.as_ref().map(value::Value::plain).as_deref())
    }
}

#[cfg(test)]
mod tests;
