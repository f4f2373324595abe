//! The closing lines of a run: what the hosts came to, as counts and a table.

use super::fold::{Folded, Hosts};
use super::text::{Palette, count, duration, number, pad};
use crate::event::{HostStatus, HostTotal, RunFinished, Status};
use std::collections::BTreeMap;

/// Up to how many hosts each has a row of its own.
const FEW_HOSTS: usize = 8;

/// The columns of the table, in their order; that without a status has the failures that don't count.
const COLUMNS: [(Option<Status>, &str); 8] = [
    (Some(Status::Ok), "ok"),
    (Some(Status::Changed), "changed"),
    (Some(Status::WouldChange), "would change"),
    (Some(Status::RebootPending), "reboot pending"),
    (Some(Status::Failed), "failed"),
    (Some(Status::RolledBack), "rolled back"),
    (None, "ignored"),
    (Some(Status::Skipped), "skipped"),
];

/// How many resources of a host stand in a column.
fn cell(total: &HostTotal, column: Option<Status>) -> usize {
    let of = |status: Status| total.resources.get(&status).copied().unwrap_or(0);
    match column {
        None => total.ignored,
        Some(Status::Failed) => of(Status::Failed).saturating_sub(total.ignored),
        Some(status) => of(status),
    }
}

/// How a host's status is called.
fn word(status: HostStatus, check: bool) -> &'static str {
    match status {
        HostStatus::Ok => "ok",
        HostStatus::Changed if check => "would change",
        HostStatus::Changed => "changed",
        HostStatus::Failed => "failed",
        HostStatus::Unreachable => "unreachable",
        HostStatus::Skipped => "skipped",
    }
}

/// What went wrong comes last, where it is seen.
fn gravity(status: HostStatus) -> u8 {
    match status {
        HostStatus::Ok => 0,
        HostStatus::Skipped => 1,
        HostStatus::Changed => 2,
        HostStatus::Failed => 3,
        HostStatus::Unreachable => 4,
    }
}

fn paint(status: HostStatus, text: &str, palette: Palette) -> String {
    match status {
        HostStatus::Ok => palette.good(text),
        HostStatus::Changed => palette.change(text),
        HostStatus::Failed | HostStatus::Unreachable => palette.bad(text),
        HostStatus::Skipped => text.to_owned(),
    }
}

/// How many hosts came to each status.
pub(super) fn hosts_by_status(finished: &RunFinished) -> BTreeMap<HostStatus, usize> {
    let mut counts = BTreeMap::new();
    for total in finished.hosts.values() {
        *counts.entry(total.status).or_default() += 1;
    }
    counts
}

/// How much failed that was to be ignored.
fn ignored(finished: &RunFinished) -> usize {
    finished.hosts.values().map(|total| total.ignored).sum()
}

/// How many hosts must be booted.
pub(super) fn reboots(finished: &RunFinished) -> usize {
    finished.hosts.values().filter(|total| total.reboot_pending).count()
}

/// That nothing was found to be wrong, on how many hosts.
pub(super) fn proven(finished: &RunFinished, palette: Palette) -> String {
    let skipped = hosts_by_status(finished).get(&HostStatus::Skipped).copied().unwrap_or(0);
    let tested = finished.hosts.len() - skipped;
    let left = if skipped > 0 { format!(", {} skipped", number(skipped)) } else { String::new() };
    let time = duration(finished.time);
    match tested {
        0 => format!("{}{left} ({time})\n", palette.bad("nothing was tested: no play has a host")),
        n => format!("{}{left} ({time})\n", palette.good(&format!("nothing found on {}", count(n, "host")))),
    }
}

/// One line with the counts, and the time: `128 hosts: 126 changed, 1 failed, 1 unreachable (1 min 12 s)`.
pub(super) fn summary(finished: &RunFinished, palette: Palette) -> String {
    let time = duration(finished.time);
    let counts = hosts_by_status(finished);
    let of = |status| counts.get(&status).copied().unwrap_or(0);
    let all = finished.hosts.len();
    let pending = reboots(finished);
    if finished.interrupted {
        let done = all - of(HostStatus::Skipped);
        let text = format!("interrupted after {time}: {} of {} visited\n", number(done), count(all, "host"));
        return palette.bad(&text) + &parts(&counts, pending, finished, palette, "");
    }
    if all == 0 {
        return format!("{} ({time})\n", palette.bad("nothing was done: no play has a host"));
    }
    if finished.exit_code == 0
        && pending == 0
        && ignored(finished) == 0
        && of(HostStatus::Ok) + of(HostStatus::Skipped) == all
    {
        let skipped = match of(HostStatus::Skipped) {
            0 => String::new(),
            n => format!(", {} skipped", number(n)),
        };
        let text = format!("nothing to do: {} as wanted", count(of(HostStatus::Ok), "host"));
        return format!("{}{skipped} ({time})\n", palette.good(&text));
    }
    parts(&counts, pending, finished, palette, &format!(" ({time})"))
}

fn parts(
    counts: &BTreeMap<HostStatus, usize>,
    pending: usize,
    finished: &RunFinished,
    palette: Palette,
    time: &str,
) -> String {
    let mut parts: Vec<String> = counts
        .iter()
        .map(|(status, n)| paint(*status, &format!("{} {}", number(*n), word(*status, finished.check)), palette))
        .collect();
    let ignored = ignored(finished);
    if ignored > 0 {
        parts.push(palette.change(&format!("{} ignored", count(ignored, "failure"))));
    }
    if pending > 0 {
        let verb = if pending == 1 { "needs" } else { "need" };
        parts.push(palette.change(&format!("{} {verb} a reboot", number(pending))));
    }
    format!("{}: {}{time}\n", count(finished.hosts.len(), "host"), parts.join(", "))
}

/// Whether every host is as it was wanted, so that there is nothing to put into a table.
pub(super) fn quiet(finished: &RunFinished) -> bool {
    !finished.interrupted
        && ignored(finished) == 0
        && reboots(finished) == 0
        && finished.hosts.values().all(|t| matches!(t.status, HostStatus::Ok | HostStatus::Skipped))
}

/// The table: a row for each of few hosts; of many, one for those that came to the same; with `verbose` their executions too.
pub(super) fn table(finished: &RunFinished, hosts: &mut Hosts, palette: Palette, verbose: bool) -> String {
    let few = finished.hosts.len() <= FEW_HOSTS;
    let mut rows: Folded<(HostStatus, Vec<usize>, bool, u32, usize)> = Folded::default();
    for (i, (name, total)) in finished.hosts.iter().enumerate() {
        let HostTotal { status, reboot_pending, executions, .. } = total;
        let cells = COLUMNS.iter().map(|(column, _)| cell(total, *column)).collect();
        let times = if verbose { *executions } else { 0 };
        rows.add((*status, cells, *reboot_pending, times, if few { i } else { 0 }), hosts.number(name));
    }
    let rows = rows.take(|row| (row.4, gravity(row.0)));
    let used = |column: usize| rows.iter().any(|(row, _)| row.1[column] > 0);
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(|c| used(*c)).collect();

    let mut grid: Vec<Vec<String>> = vec![vec!["hosts".to_owned(), "status".to_owned()]];
    grid[0].extend(columns.iter().map(|c| COLUMNS[*c].1.to_owned()));
    if verbose {
        grid[0].push("executions".to_owned());
    }
    for ((status, cells, reboot, times, _), on) in &rows {
        let status = word(*status, finished.check);
        let status = if *reboot { format!("{status}, needs a reboot") } else { status.to_owned() };
        let mut line = vec![hosts.list(on).to_string(), status];
        line.extend(columns.iter().map(|c| number(cells[*c])));
        if verbose {
            line.push(number(*times as usize));
        }
        grid.push(line);
    }
    let width = |column: usize| grid.iter().map(|line| console::measure_text_width(&line[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..grid[0].len()).map(width).collect();
    let mut out = String::new();
    for (i, line) in grid.iter().enumerate() {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let padded = match column {
                0 | 1 => pad(cell, widths[column]),
                _ => format!("{}{cell}", " ".repeat(widths[column] - console::measure_text_width(cell))),
            };
            let padded = if columns.is_empty() && column == line.len() - 1 { cell.clone() } else { padded };
            let shown = match column {
                _ if i == 0 => palette.bold(&padded),
                0 => palette.place(&padded),
                1 => paint(rows[i - 1].0.0, &padded, palette),
                _ => padded,
            };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(&shown);
        }
        out.push_str(&text);
        out.push('\n');
    }
    out
}
