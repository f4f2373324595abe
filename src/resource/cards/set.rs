//! What is set on cards, and noted of them: one joint of all resources of a segment, so that each card is set once.

use super::CARDS;
use super::pending::FOLDER;
use crate::resource::{Joint, Share, Step};
use crate::shell::Script;
use std::collections::BTreeMap;

/// What is to be set on one card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::resource) struct Setting {
    /// `PARAMETER=value`.
    pub(in crate::resource) assignments: Vec<String>,
    /// Lines for its note, by [`super::new_line`].
    pub(in crate::resource) notes: Vec<String>,
    /// Parameters of which the note is of no use any more.
    pub(in crate::resource) dropped: Vec<String>,
}

#[derive(Debug)]
struct Cards;

/// The step that makes these settings, by the cards' addresses.
pub(in crate::resource) fn step(cards: &BTreeMap<String, Setting>) -> Step {
    let mut lines = Vec::new();
    for (address, setting) in cards {
        lines.push(format!("card {address}"));
        lines.extend(setting.assignments.iter().map(|a| format!("set {a}")));
        lines.extend(setting.notes.iter().map(|n| format!("note {n}")));
        lines.extend(setting.dropped.iter().map(|n| format!("forget {n}")));
    }
    Step::Share(Share { of: &Cards, part: lines.join("\n") })
}

impl Joint for Cards {
    fn name(&self) -> &'static str {
        "cards"
    }

    fn script(&self, parts: &[&str], _seconds: u32) -> Script {
        let mut cards: BTreeMap<&str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
        let mut lists: Vec<String> = Vec::new();
        for part in parts {
            let mut list: Vec<&str> = Vec::new();
            for (word, rest) in part.lines().filter_map(|line| line.split_once(' ')) {
                if word == "card" {
                    list.push(rest);
                }
                let (assignments, notes) = cards.entry(list.last().copied().unwrap_or_default()).or_default();
                match word {
                    "set" => assignments.push(rest),
                    "note" | "forget" => notes.push(rest),
                    _ => {}
                }
            }
            lists.push(list.join(" "));
        }
        let words =
            cards.iter().flat_map(|(address, (set, notes))| [(*address).to_owned(), set.join(" "), notes.join("\n")]);
        let script = Script::new().set("D", FOLDER).set("parts", &lists.join("\n")).args(words);
        script.line(CARDS).line(include_str!("set.sh"))
    }
}
