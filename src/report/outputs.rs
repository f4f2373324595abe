//! The output of `run -- CMD`: what is identical is shown once, with the hosts that said it.

use super::fold::{Folded, Hosts};
use super::text::{Palette, count, from_bytes, lines, number};
use crate::event::CommandOutput;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Texts of hosts, told in the order of the inventory: each when all hosts before it are done.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    ranks: HashMap<Arc<str>, usize>,
    /// Of hosts that are done and not told, and of those under way.
    texts: BTreeMap<usize, (String, bool)>,
    /// The first host that isn't done.
    next: usize,
}

impl InOrder {
    /// For these hosts, in this order.
    pub(super) fn new<'a>(hosts: impl Iterator<Item = &'a Arc<str>>) -> InOrder {
        let mut order = InOrder::default();
        for host in hosts {
            let rank = order.ranks.len();
            order.ranks.entry(host.clone()).or_insert(rank);
        }
        order
    }

    /// A host's text. Given back where nobody knows when it is its turn.
    pub(super) fn add(&mut self, host: &str, text: String) -> String {
        let Some(rank) = self.ranks.get(host) else { return text };
        self.texts.entry(*rank).or_default().0.push_str(&text);
        String::new()
    }

    /// A host is done: what can be told now.
    pub(super) fn done(&mut self, host: &str) -> String {
        let mut told = String::new();
        let Some(rank) = self.ranks.get(host) else { return told };
        self.texts.entry(*rank).or_default().1 = true;
        while let Some(first) = self.texts.first_entry()
            && *first.key() == self.next
            && first.get().1
        {
            self.next += 1;
            told.push_str(&first.remove().0);
        }
        told
    }
}

/// How many bytes of one output are kept to be shown.
const MOST_BYTES: usize = 32 * 1024;

/// Outputs by what they say.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    folded: Folded<(i32, [u8; 32])>,
    seen: HashMap<[u8; 32], Kept>,
    /// The seconds that each was given.
    limit: u32,
}

/// One output: its beginning, as far as it is shown.
#[derive(Debug)]
struct Kept {
    text: String,
    bytes_left: usize,
}

impl Outputs {
    /// Takes what a host said.
    pub(super) fn add(&mut self, host: u32, said: &CommandOutput) {
        let digest: [u8; 32] = Sha256::digest(&said.output).into();
        self.limit = said.limit;
        self.folded.add((said.code, digest), host);
        self.seen.entry(digest).or_insert_with(|| {
            let output = &said.output;
            // A line is cut only where it alone is too much.
            let end = match output.len() {
                0..=MOST_BYTES => output.len(),
                _ => output[..MOST_BYTES].iter().rposition(|b| *b == b'\n').map_or(MOST_BYTES, |at| at + 1),
            };
            Kept { text: from_bytes(&output[..end]), bytes_left: output.len() - end }
        });
    }

    /// Tells them all, successes first, in it what most hosts say.
    pub(super) fn tell(&mut self, hosts: &mut Hosts, palette: Palette) -> String {
        let mut out = String::new();
        for ((code, digest), on) in self.folded.take(|(code, _)| *code) {
            let list = hosts.list(&on);
            let many = if on.len() > 1 { format!(" ({})", count(on.len(), "host")) } else { String::new() };
            let exit = match code {
                0 => String::new(),
                // What `timeout` exits with; so may the command itself.
                124 | 137 => {
                    let ended = format!("most likely it was ended after {} s, and --timeout allows more", self.limit);
                    format!("  {}: {ended}", palette.bad(&format!("exit code {code}")))
                }
                _ => format!("  {}", palette.bad(&format!("exit code {code}"))),
            };
            let Some(kept) = self.seen.get(&digest) else { continue };
            let silent = if kept.text.is_empty() && code == 0 { "  no output" } else { "" };
            out.push_str(&format!("{}{many}{exit}{silent}\n", palette.place(&list)));
            for line in lines(&kept.text) {
                out.push_str(&format!("  {line}\n"));
            }
            if kept.bytes_left > 0 {
                out.push_str(&format!("  … {} more bytes\n", number(kept.bytes_left)));
            }
        }
        self.seen.clear();
        out
    }
}
