//! What became of a resource, in words.

use super::text::{clean, value};
use crate::event::{Change, Effect, ResourceEvent, Status};

/// How long a line of several changes may be.
const LONGEST_ROW: usize = 64;

/// The lines that tell what became of a resource. Nothing for what was skipped, nor for what is as wanted and stays so.
pub(super) fn outcome(event: &ResourceEvent) -> Vec<String> {
    if event.handler {
        let verb = match event.status {
            Status::Changed => "ran",
            Status::WouldChange => "would run",
            _ => "",
        };
        if !verb.is_empty() {
            let title = clean(event.title.as_deref().unwrap_or(&event.address));
            let because = match event.because.as_deref() {
                None | Some("") => String::new(),
                Some(called) => format!(", {}", clean(called)),
            };
            return std::iter::once(format!("{verb} handler {title}{because}"))
                .chain(changes(event, &event.changes))
                .collect();
        }
    }
    let word = match event.status {
        Status::Changed => "",
        Status::WouldChange => "would change",
        Status::RebootPending => "reboot pending",
        Status::Failed | Status::RolledBack => return failed(event),
        Status::Ok => return event.because.iter().map(|because| clean(because).into_owned()).collect(),
        Status::Skipped => return Vec::new(),
    };
    let mut lines = changes(event, &event.changes);
    match lines.is_empty() {
        true => lines.push(if word.is_empty() { "changed" } else { word }.to_owned()),
        false if !word.is_empty() => lines.iter_mut().for_each(|line| *line = format!("{word}: {line}")),
        false => {}
    }
    if let Some(because) = &event.because {
        lines[0].push_str(&format!(" ({})", clean(because)));
    }
    lines
}

/// A failure that doesn't count (`ignore_errors`), told like an outcome; those that count are told at the end.
fn failed(event: &ResourceEvent) -> Vec<String> {
    let mut lines = vec!["failed, ignored".to_owned()];
    if let Some(error) = &event.error {
        let mut said = error.message.lines().map(|line| clean(line).into_owned());
        lines[0] += &format!(": {}", said.next().unwrap_or_default());
        lines.extend(said);
        lines.extend(error.hint.iter().map(|hint| format!("help: {}", clean(hint))));
    }
    lines.extend(all_named(&event.done).into_iter().map(|change| format!("{DONE}{change}")));
    lines.extend(all_named(&event.changes).into_iter().map(|change| format!("{OPEN}{change}")));
    lines
}

/// How what a failed resource changed is told, and what it didn't.
pub(super) const DONE: &str = "changed all the same: ";
pub(super) const OPEN: &str = "still to change: ";

/// The values that differ, `FIELD FROM → TO`; short ones share a line (`live 1500 → 9000; boot absent → 9000`). Fields
/// with the same values share them. The field isn't named where it is the resource's own name, nor where all there is,
/// what runs and what the next boot finds, says the same.
pub(super) fn changes(event: &ResourceEvent, of: &[Change]) -> Vec<String> {
    rows(event.address.split_once(':').map_or("", |(_, identity)| identity), of)
}

/// The same with the field named also where it is the resource's own name: of several, some have failed.
pub(super) fn all_named(of: &[Change]) -> Vec<String> {
    rows("", of)
}

fn rows(identity: &str, of: &[Change]) -> Vec<String> {
    let mut groups: Vec<(&Change, Vec<&str>)> = Vec::new();
    for change in of {
        let alike = groups
            .iter_mut()
            .find(|(first, _)| first.from == change.from && first.to == change.to && first.effect == change.effect);
        match alike {
            Some((_, fields)) => fields.push(&change.field),
            None => groups.push((change, vec![&change.field])),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for (change, fields) in groups {
        let named = match fields[..] {
            ["live", "boot"] | [""] => false,
            [field] => field != identity,
            _ => true,
        };
        let name = if named { format!("{} ", clean(&fields.join(", "))) } else { String::new() };
        let effect = match change.effect {
            Effect::Now => "",
            Effect::Reboot => " (at next boot)",
            Effect::PowerCycle => " (after a power cycle)",
        };
        let text = format!("{name}{} → {}{effect}", value(&change.from), value(&change.to));
        match lines.last_mut().filter(|line| line.chars().count() + text.chars().count() < LONGEST_ROW) {
            Some(line) => *line += &format!("; {text}"),
            None => lines.push(text),
        }
    }
    lines
}
