//! The steps of a segment, in their order and with what each hangs on.

use super::{Now, Piece, Plan, STEP_SECONDS, Segment, Who, Work};
use crate::resource::{Share, Step};
use std::collections::{BTreeMap, BTreeSet};

/// The pieces of a segment while it is put together.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn push(&mut self, all: Vec<u32>, any: Vec<u32>, work: Work, seconds: u32, owner: Option<usize>) -> u32 {
        let id = self.next();
        self.0.push(Piece { id, all, any, work, seconds, owner });
        id
    }

    fn next(&self) -> u32 {
        self.0.last().map_or(1, |piece| piece.id + 1)
    }
}

impl Plan {
    pub(super) fn segment(&mut self, who: Who, resources: Vec<usize>, handlers: Vec<usize>) -> Segment {
        let n = self.play.resources.len();
        let mut pieces = Pieces::default();
        let mut last: BTreeMap<usize, u32> = BTreeMap::new();
        let mut owing: BTreeMap<usize, u32> = BTreeMap::new();
        let mut previous: Option<u32> = None;
        let alone = handlers.iter().map(|h| vec![n + h]);
        for members in self.together(&resources).into_iter().chain(alone) {
            let mut all: Vec<u32> = Vec::new();
            let mut any: Vec<u32> = Vec::new();
            let seconds = members.iter().map(|&i| self.seconds(i)).max().unwrap_or(STEP_SECONDS);
            for &i in &members {
                for &h in self.graph.notify.get(i).into_iter().flatten() {
                    let noted = self.owed.get(&h).is_some_and(|debt| debt.note == super::Note::There);
                    if !noted && !owing.contains_key(&h) {
                        let at = pieces.push(vec![], vec![], Work::Owe(self.debt(h)), STEP_SECONDS, None);
                        owing.insert(h, at);
                    }
                    all.extend(owing.get(&h));
                }
                if i < n {
                    let needed = self.graph.needed_by(i).filter(|j| !self.item(*j).ignore_errors);
                    all.extend(needed.filter_map(|j| last.get(&j)));
                    if self.policy.stop_on_error && !resources.is_empty() {
                        all.extend(previous);
                    }
                } else if self.called[i - n].is_empty() {
                    any.extend(self.notifiers(i - n).filter(|&j| !self.doomed(j)).filter_map(|j| last.get(&j)));
                }
            }
            all.sort_unstable();
            all.dedup();
            let shares: Vec<(usize, Share)> =
                members.iter().filter_map(|&i| Some((i, self.share(i)?.clone()))).collect();
            if let Some((_, Share { of, .. })) = shares.first() {
                let parts: Vec<&str> = shares.iter().map(|(_, share)| share.part.as_str()).collect();
                let first = pieces.next() + 1;
                let ids: Vec<u32> = (first..).take(parts.len()).collect();
                let work = Work::Joint(Step::Run(of.script(&parts, seconds)), ids.clone());
                pieces.push(all.clone(), any.clone(), work, seconds, None);
                for (&i, id) in members.iter().zip(ids) {
                    let at = pieces.push(all.clone(), any.clone(), Work::Part, seconds, Some(i));
                    debug_assert_eq!(at, id);
                    last.insert(i, id);
                }
            } else {
                for &i in &members {
                    let steps = match &mut self.slots[i].now {
                        Now::Ready(a) => std::mem::take(&mut a.steps),
                        _ => Vec::new(),
                    };
                    for step in steps {
                        let (all_of, any_of) = (std::mem::take(&mut all), std::mem::take(&mut any));
                        let at = pieces.push(all_of, any_of, Work::Step(step), seconds, Some(i));
                        all.push(at);
                        last.insert(i, at);
                    }
                }
            }
            for &i in &members {
                if i < n {
                    if !self.item(i).ignore_errors {
                        previous = last.get(&i).copied();
                    }
                } else if let Some(&done) = last.get(&i)
                    && (owing.contains_key(&(i - n)) || self.owed.get(&(i - n)).is_some_and(|debt| debt.who == who))
                {
                    let work = Work::Settle(self.debt(i - n));
                    pieces.push(vec![done], vec![], work, STEP_SECONDS, None);
                }
            }
        }
        Segment { who, pieces: pieces.0, guard: None, resources, handlers }
    }

    /// Seconds that a step of this resource may take.
    fn seconds(&self, i: usize) -> u32 {
        let item = self.item(i);
        item.timeout.or(item.resource.seconds()).unwrap_or(STEP_SECONDS)
    }

    /// Its part of what several do together, if it has one.
    fn share(&self, i: usize) -> Option<&Share> {
        match &self.slots[i].now {
            Now::Ready(a) => match a.steps.as_slice() {
                [Step::Share(share)] => Some(share),
                _ => None,
            },
            _ => None,
        }
    }

    /// The resources in the order in which they are done, those that are done together as one: parts of the same joint
    /// that come directly after the same resources of the segment, so that they are kept back by the same failures. They
    /// are done where the first of them stands, and what they come after is brought forward.
    fn together(&self, resources: &[usize]) -> Vec<Vec<usize>> {
        let before = |at: usize| -> BTreeSet<usize> {
            let mut found: BTreeSet<usize> =
                self.graph.before(resources[at]).filter(|j| resources.contains(j)).collect();
            // A list in which nothing is done behind a failure keeps its order.
            if self.policy.stop_on_error && at > 0 {
                found.insert(resources[at - 1]);
            }
            found
        };
        // Of those that do nothing together each is a group.
        let mut keys: Vec<Option<(&str, BTreeSet<usize>)>> = Vec::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, &i) in resources.iter().enumerate() {
            let key = self.share(i).map(|share| (share.of.name(), before(at)));
            let found = if key.is_some() { keys.iter().position(|other| *other == key) } else { None };
            let group = found.unwrap_or(groups.len());
            if found.is_none() {
                keys.push(key);
                groups.push(Vec::new());
            }
            groups[group].push(i);
            group_of.insert(i, group);
        }
        let mut done: Vec<usize> = Vec::new();
        let mut todo: Vec<usize> = (0..groups.len()).rev().collect();
        while let Some(&group) = todo.last() {
            let members = groups[group].iter().filter_map(|i| resources.iter().position(|j| j == i));
            let needed: BTreeSet<usize> = members.flat_map(before).map(|j| group_of[&j]).collect();
            let open: Vec<usize> = needed.into_iter().filter(|g| !done.contains(g)).collect();
            if done.contains(&group) {
                todo.pop();
            } else if open.is_empty() {
                done.push(group);
                todo.pop();
            } else {
                todo.extend(open.into_iter().rev());
            }
        }
        done.into_iter().map(|group| groups[group].clone()).collect()
    }
}
