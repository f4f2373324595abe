//! Hosts that say the same, found and named together.

use crate::hostlist;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The hosts of a run by number, in the order in which the plays name them.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// Lists already written: in a large run most lines are of the same hosts.
    written: HashMap<Vec<u32>, Arc<str>>,
}

impl Hosts {
    /// The number of a host.
    pub(super) fn number(&mut self, name: &Arc<str>) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    /// The hosts of this list as short as they can be told: `gpu[001-126],login1`.
    pub(super) fn list(&mut self, numbers: &[u32]) -> Arc<str> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if let Some(text) = self.written.get(&sorted) {
            return text.clone();
        }
        let names = sorted.iter().map(|n| &*self.names[*n as usize]);
        let text: Arc<str> = super::text::clean(&hostlist::fold(names)).into();
        self.written.insert(sorted, text.clone());
        text
    }
}

/// What hosts say, and which of them say it.
#[derive(Debug)]
pub(super) struct Folded<K>(HashMap<K, Vec<u32>>);

impl<K> Default for Folded<K> {
    fn default() -> Folded<K> {
        Folded(HashMap::new())
    }
}

impl<K: Hash + Ord> Folded<K> {
    /// This host says this.
    pub(super) fn add(&mut self, key: K, host: u32) {
        self.0.entry(key).or_default().push(host);
    }

    /// Whether nobody says anything.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All that was said, and forgets it: ordered by `rank`, in it what most hosts say first, then by the hosts.
    pub(super) fn take<R: Ord>(&mut self, rank: impl Fn(&K) -> R) -> Vec<(K, Vec<u32>)> {
        let mut all: Vec<(K, Vec<u32>)> = self.0.drain().collect();
        for (_, hosts) in &mut all {
            hosts.sort_unstable();
        }
        all.sort_by(|(a, x), (b, y)| {
            rank(a).cmp(&rank(b)).then(y.len().cmp(&x.len())).then_with(|| x.cmp(y)).then_with(|| a.cmp(b))
        });
        all
    }
}
