//! Boots, as people read of them.

use super::fold::Hosts;
use super::text::{Palette, clean, count, duration};
use crate::event::{BootEvent, BootStep, BootsPlanned};
use std::sync::Arc;

/// Which hosts would be booted, in their order; neighbours with the same reasons as one.
pub(super) fn planned(e: &BootsPlanned, hosts: &mut Hosts, palette: Palette) -> String {
    let mut groups: Vec<(&Vec<String>, Vec<&Arc<str>>)> = Vec::new();
    for (host, why) in &e.hosts {
        match groups.last_mut() {
            Some((same, members)) if *same == why => members.push(host),
            _ => groups.push((why, vec![host])),
        }
    }
    let n = count(e.hosts.len(), "host");
    let head = format!(
        "would boot {n}, at most {} at once, in this order; it takes at most {}",
        e.at_once,
        duration(e.at_most)
    );
    let mut text = format!("{}:\n", palette.change(&head));
    for (why, members) in groups {
        let numbers: Vec<u32> = members.iter().map(|host| hosts.number(host)).collect();
        let why: Vec<_> = why.iter().map(|w| clean(w)).collect();
        text.push_str(&format!("  {}  {}\n", palette.place(&hosts.list(&numbers)), why.join(", ")));
    }
    text
}

/// How far a host's boot is.
pub(super) fn step(e: &BootEvent, palette: Palette) -> String {
    let step = match e.step {
        BootStep::Draining => "is being drained",
        BootStep::Drained => "is drained",
        BootStep::Booting => "is told to boot",
        BootStep::Awaited => "is waited for",
        BootStep::Back => "is back",
        BootStep::Done => "is done and in service",
    };
    let detail = if e.detail.is_empty() { String::new() } else { format!(" ({})", clean(&e.detail)) };
    let time = if e.time.as_secs() == 0 || e.step == BootStep::Awaited {
        String::new()
    } else {
        format!(" after {}", duration(e.time))
    };
    format!("{}  {step}{time}{detail}\n", palette.place(&clean(&e.host)))
}
