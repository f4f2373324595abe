//! What is to be done with each parameter on each card.

use super::set::{ADVANCED, LINK_TYPE, ROCE_CONTROL, ROCE_ENABLE, Setting};
use super::table::{Row, Table};
use super::value::Value;
use super::{Mlxconfig, State};
use crate::error::nearest;
use crate::resource::cards::{Found, Loads, Mark, Standing, standing};
use crate::resource::{Effect, Risk, Trouble};

/// A parameter of a card.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// The card's address.
    pub(super) card: &'a str,
    pub(super) name: String,
    pub(super) wanted: Value,
    /// Nothing where the card doesn't tell it.
    pub(super) current: Option<Value>,
    /// Nothing where the card doesn't show the parameter yet.
    pub(super) next: Option<Value>,
    pub(super) is: Is,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Is {
    /// As wanted.
    Fits,
    /// It has to be set for the next boot.
    Set,
    /// It is set and takes effect later; whether that is noted.
    Waits { effect: Effect, noted: bool },
    /// It is set, there was a boot, and the card doesn't show it.
    NotApplied(Loads),
    /// It is revealed by another one, at the next boot.
    Hidden,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Judged<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) warnings: Vec<String>,
    /// What keeps all from being set.
    pub(super) stops: Vec<Trouble>,
    /// Of cards that don't answer: the others are set all the same.
    pub(super) silent: Vec<Trouble>,
}

impl Item<'_> {
    /// Whether the current value is as wanted already.
    pub(super) fn current_fits(&self) -> bool {
        self.current.as_ref().is_some_and(|c| c.same(&self.wanted) == Some(true))
    }
}

/// A card under judgement.
struct Bench<'a> {
    found: &'a Found,
    address: &'a str,
    table: &'a Table,
    marks: &'a [Mark],
    /// What begins a message about it.
    at: String,
}

impl Mlxconfig {
    pub(super) fn judge<'a>(&self, now: &'a State) -> Judged<'a> {
        let mut judged = Judged::default();
        for card in &now.cards {
            let table = match &card.table {
                Ok(table) => table,
                Err(trouble) => {
                    judged.silent.push(trouble.clone());
                    continue;
                }
            };
            let at = if self.device.one() { String::new() } else { format!("{}: ", card.address) };
            let marks = now.found.marks(&card.address);
            let bench = Bench { found: &now.found, address: &card.address, table, marks, at };
            self.card(&bench, &mut judged);
        }
        self.session(now, &mut judged);
        judged
    }

    fn card<'a>(&self, bench: &Bench<'a>, judged: &mut Judged<'a>) {
        let (table, at) = (bench.table, &bench.at);
        if let Some(complaint) = &table.complaint {
            judged.warnings.push(format!("{at}the tool complains beside its answer: {complaint}"));
        }
        // What reveals others comes first.
        let (gates, others): (Vec<&Setting>, Vec<_>) = self.set.iter().partition(|s| s.name.starts_with(ADVANCED));
        let mut revealed_later = None;
        for setting in gates {
            let row = table.get(&setting.name);
            bench.setting(&setting.name, setting.value.clone(), row, None, judged);
            if let Some(Item { name, is: Is::Set | Is::Waits { .. }, .. }) =
                judged.items.last().filter(|i| i.name == setting.name)
            {
                revealed_later = Some(name.clone());
            }
        }
        let mut named: Vec<String> = self.set.iter().map(|s| s.name.clone()).collect();
        for setting in others {
            let (mut name, mut value) = (setting.name.as_str(), setting.value.clone());
            if name == ROCE_ENABLE && !table.knows(ROCE_ENABLE) && table.knows(ROCE_CONTROL) {
                let on = value.same(&Value::of("False(0)")) != Some(true);
                name = ROCE_CONTROL;
                value = Value::of(if on { "ROCE_ENABLE(2)" } else { "ROCE_DISABLE(1)" });
                named.push(name.to_owned());
                let warning =
                    format!("this firmware has no {ROCE_ENABLE}: it is understood as {ROCE_CONTROL}={}", value.text);
                if !judged.warnings.contains(&warning) {
                    judged.warnings.push(warning);
                }
            }
            bench.setting(name, value, table.get(name), revealed_later.as_deref(), judged);
        }
        if self.reset && !table.default {
            let trouble =
                Trouble::new(format!("{at}this tool doesn't tell the defaults, so nothing can go back to them"));
            judged.stops.push(trouble.hint("install a newer mstflint or MFT, which knows `mlxconfig -e`"));
        } else if self.reset {
            for (name, row) in table.rows().filter(|(name, row)| !row.read_only && !named.iter().any(|n| n == name)) {
                if let Some(default) = row.default.as_ref().filter(|d| !d.unknown()) {
                    bench.setting(name, default.clone(), Some(row), None, judged);
                }
            }
        }
    }

    /// A port that becomes another kind of network gets another interface: not under the session.
    fn session(&self, now: &State, judged: &mut Judged<'_>) {
        let Some((session, links)) = &now.over else { return };
        // What only takes back a change that was to come keeps what runs.
        let changes = |i: &&Item<'_>| i.is == Is::Set && i.name.starts_with(LINK_TYPE) && !i.current_fits();
        let changed = judged.items.iter().filter(changes);
        let mut refused = Vec::new();
        for item in changed {
            let on_card = |name: &str| now.found.carries(item.card, name) != Some(false);
            let risk =
                links.all.iter().filter(|link| on_card(&link.name)).find_map(|link| match session.risk(links, link) {
                    Risk::Link(why) => Some(why),
                    Risk::None | Risk::Beside => None,
                });
            if let Some(why) = risk {
                let message = format!("{} of {} would take the session's interface away: {why}", item.name, item.card);
                refused.push(Trouble::new(message).hint(
                    "reach the host by another card, or, if this is meant, write `accept_session_loss: true`; the \
                     interface has another name after the boot, and needs its configuration under that",
                ));
            }
        }
        judged.stops.extend(refused);
    }
}

impl<'a> Bench<'a> {
    /// Judges one parameter. `later`: what reveals others at the next boot, if something does.
    fn setting(&self, name: &str, mut wanted: Value, row: Option<&Row>, later: Option<&str>, judged: &mut Judged<'a>) {
        let Some(row) = row else {
            return self.missing(name, wanted, later, judged);
        };
        let seen: Vec<&Value> =
            [row.default.as_ref(), row.current.as_ref(), Some(&row.next)].into_iter().flatten().collect();
        if let Some(range) = row.next.array() {
            let message = format!("{}{name} is an array, of which the elements are set", self.at);
            judged
                .stops
                .push(Trouble::new(message).hint(format!("write `{name}[{range}]`, or those of them that matter")));
            return;
        }
        let listed = self.table.values(name);
        if let Some(trouble) = wanted.unfit(name, &seen, listed) {
            judged.stops.push(Trouble { message: format!("{}{}", self.at, trouble.message), ..trouble });
            return;
        }
        seen.into_iter().chain(listed).for_each(|known| wanted.learn(known));
        // `N/A` at the next boot is the default (docs.nvidia.com, MFT, examples of mlxconfig usage).
        let default = row.default.as_ref().filter(|d| !d.unknown());
        let known = |value: &Value| Some(value.or_default(default).clone()).filter(|v| !v.unknown());
        let next = known(&row.next).or_else(|| default.cloned());
        let current = row.current.as_ref().and_then(known);
        let fits = next.as_ref().map_or(Some(false), |next| next.same(wanted.or_default(default)));
        let current_fits = current.as_ref().map(|c| c.same(wanted.or_default(default)) == Some(true));
        let at = &self.at;
        let is = match fits {
            None => {
                let message = format!(
                    "{at}this tool shows {name} as {} and has no name for it, so `{}` can't be compared",
                    row.next.text, wanted.text
                );
                judged.stops.push(Trouble::new(message).hint("write the number"));
                return;
            }
            Some(false) if row.read_only => {
                let message =
                    format!("{at}{name} is read-only on this card: it is {}, not {}", row.next.text, wanted.text);
                judged.stops.push(Trouble::new(message).hint("take it out of `set`"));
                return;
            }
            Some(false) => Is::Set,
            Some(true) if current_fits == Some(true) => Is::Fits,
            Some(true) => {
                let was = current.as_ref().map(Value::plain);
                let is = |noted: &str| Value::of(noted).same(&wanted) == Some(true);
                match standing(self.marks, &self.found.boot, name, is, was.as_deref()) {
                    Standing::Waits { noted: false, .. } | Standing::NotApplied(_) if current.is_none() => Is::Fits,
                    Standing::Waits { effect, noted } => Is::Waits { effect, noted },
                    Standing::NotApplied(loads) => Is::NotApplied(loads),
                }
            }
        };
        if let (Is::NotApplied(loads), Some(current)) = (is, &current) {
            let then = match loads {
                Loads::Reboot => "it may need a power cycle, or the firmware doesn't show it",
                Loads::PowerCycle | Loads::Cycled => {
                    "the power was cycled since, so the firmware doesn't take it or doesn't show it"
                }
            };
            judged.warnings.push(format!(
                "{at}{name} is not reported as applied: it is still {} after a boot, and {} is set; {then}; no reboot is \
                 asked for again",
                current.text, wanted.text
            ));
        }
        judged.items.push(Item { card: self.address, name: name.to_owned(), wanted, current, next, is });
    }

    /// A parameter that the card doesn't show.
    fn missing(&self, name: &str, wanted: Value, later: Option<&str>, judged: &mut Judged<'a>) {
        let (table, at) = (self.table, &self.at);
        let (stem, port) = match name.rsplit_once("_P") {
            Some((stem, port)) if port.parse::<u8>().is_ok() => (stem, port.parse().unwrap_or(1)),
            _ => (name, 1_u8),
        };
        if port > 1 && table.knows(&format!("{stem}_P1")) {
            judged.warnings.push(format!("{at}{name} is left out: this card has no port {port}"));
            return;
        }
        let base = name.split('[').next().unwrap_or(name);
        if let (true, None, Some(is)) =
            (name.starts_with(LINK_TYPE), later, self.found.function(self.address).and_then(|f| f.link_type()))
        {
            let fits = Value::of(if is == "ETH" { "ETH(2)" } else { "IB(1)" }).same(&wanted) == Some(true);
            if !fits {
                let message = format!("{at}this card is {is} only: it has no {name}, so it can't be {}", wanted.text);
                judged.stops.push(Trouble::new(message).hint("take it out of `set` for this card"));
            }
            return;
        }
        if let Some(gate) = later {
            judged
                .warnings
                .push(format!("{at}{name} isn't there yet: {gate} reveals it at the next boot, and it is set then"));
            let (card, name) = (self.address, name.to_owned());
            judged.items.push(Item { card, name, wanted, current: None, next: None, is: Is::Hidden });
            return;
        }
        if let (Some(complaint), false) = (&table.complaint, table.knows(base)) {
            let message = format!("{at}{name} isn't among what the tool could read: {complaint}");
            judged.stops.push(Trouble::new(message).hint(
                "run it again; if it stays so, the card's firmware is too old for this tool, or the other way round",
            ));
            return;
        }
        if table.knows(base) {
            let elements = base != name;
            let message = if elements {
                format!("{at}{name} can't be read: the tool told {base} as a whole only")
            } else {
                format!("{at}{name} is an array")
            };
            judged
                .stops
                .push(Trouble::new(message).hint(format!("write its elements, as far as it has them: `{base}[0..3]`")));
            return;
        }
        let trouble = Trouble::new(format!("{at}this card has no parameter {name}"));
        let advanced = "ADVANCED_PCI_SETTINGS";
        let hides = table.get(advanced).is_some_and(|row| row.next.same(&Value::of("True(1)")) != Some(true));
        judged.stops.push(match nearest(name, table.names.iter().map(String::as_str)) {
            Some(near) => trouble.hint(format!("is it {near}?")),
            None if hides => trouble.hint(format!(
                "if it is one of those that {advanced} reveals, add `{advanced}: 1` to `set`: it is set after the next boot"
            )),
            None => {
                let tool = self.found.tool.as_deref().unwrap_or("mlxconfig");
                trouble.hint(format!("`{tool} -d {} q` lists what it has", self.address))
            }
        });
    }
}
