//! The order of a host's resources: written edges, edges that types know of, and the file's order where there is none.

use crate::error::{Error, nearest};
use crate::playbook::{HostPlay, Item, Reference};
use crate::resource::{Claim, Need};
use petgraph::algo::has_path_connecting;
use petgraph::graphmap::DiGraphMap;
use petgraph::visit::EdgeFiltered;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Why one resource comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// `after`, `before`.
    Written,
    /// A type knows it.
    Derived,
    /// What is missing on the host may come from there. It orders, and a failure doesn't go along it.
    Perhaps,
}

/// The graph of one host's play. Nodes are positions in [`HostPlay::resources`].
#[derive(Debug, Clone)]
pub struct Graph {
    edges: DiGraphMap<usize, Edge>,
    claims: HashMap<Claim, usize>,
    /// For each resource the handlers that a change of it calls for.
    pub notify: Vec<Vec<usize>>,
    /// Derived edges that were left out because written ones say otherwise.
    pub warnings: Vec<String>,
}

/// Builds the graph of a play: everything that is known offline.
///
/// # Errors
/// References that match nothing, two claims of one thing, cycles of written edges.
pub fn build(play: &HostPlay) -> Result<Graph, Vec<Error>> {
    let mut errors = Vec::new();
    let mut graph = Graph {
        edges: DiGraphMap::with_capacity(play.resources.len(), play.resources.len()),
        claims: HashMap::new(),
        notify: Vec::with_capacity(play.resources.len()),
        warnings: Vec::new(),
    };
    let mut wholes: Vec<BTreeSet<Claim>> = Vec::with_capacity(play.resources.len());
    for (i, item) in play.resources.iter().enumerate() {
        graph.edges.add_node(i);
        let claims = item.resource.claims();
        wholes.push(claims.iter().flat_map(|c| c.within.clone()).collect());
        for claim in claims {
            if let Some(&first) = graph.claims.get(&claim) {
                errors.push(both(&play.resources[first], item, &claim));
            } else {
                graph.claims.insert(claim, i);
            }
        }
    }
    for (i, wholes) in wholes.iter().enumerate() {
        for whole in wholes {
            if let Some(&other) = graph.claims.get(whole).filter(|&&other| other != i) {
                errors.push(both(&play.resources[other.min(i)], &play.resources[other.max(i)], whole));
            }
        }
    }
    let needs: Vec<Vec<Need>> = play.resources.iter().map(|item| item.resource.needs()).collect();
    for (item, needs) in play.resources.iter().zip(&needs) {
        for need in needs {
            let Need::Without(claim) = need else { continue };
            if let Some(&other) = graph.claims.get(claim) {
                errors.push(apart(item, &play.resources[other], claim));
            }
        }
    }
    let names = Names::of(&play.resources);
    let handlers = Names::of(&play.handlers);
    for (i, item) in play.resources.iter().enumerate() {
        for (references, turned) in [(&item.after, false), (&item.before, true)] {
            for reference in references {
                match names.find(reference, play, false) {
                    Ok(found) => {
                        for other in found {
                            let (from, to) = if turned { (i, other) } else { (other, i) };
                            if from == to {
                                let message = format!(
                                    "`{}` is to come {} itself",
                                    item.address,
                                    if turned { "before" } else { "after" }
                                );
                                errors.push(Error::playbook(&reference.place, message));
                            } else {
                                graph.edges.add_edge(from, to, Edge::Written);
                            }
                        }
                    }
                    Err(error) => errors.push(error),
                }
            }
        }
    }
    for item in &play.resources {
        let mut notified = Vec::new();
        for reference in &item.notify {
            match handlers.find(reference, play, true) {
                Ok(found) => notified.extend(found),
                Err(error) => errors.push(error),
            }
        }
        notified.sort_unstable();
        notified.dedup();
        graph.notify.push(notified);
    }
    if let Some(error) = graph.cycle(play) {
        errors.push(error);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    for (i, needs) in needs.iter().enumerate() {
        graph.derive(i, needs, play);
    }
    Ok(graph)
}

/// That two resources set one thing.
fn both(first: &Item, second: &Item, claim: &Claim) -> Error {
    let claim = if first.no_log || second.no_log { format!("same {}", claim.kind) } else { claim.to_string() };
    Error::playbook(&second.place, format!("`{}` and `{}` both set the {claim}", first.address, second.address))
        .also(&first.place, "the other one")
        .hint("leave it to one of them, or keep them apart with `when`")
}

/// That one resource can't be so beside another one.
fn apart(item: &Item, other: &Item, claim: &Claim) -> Error {
    let claim = if item.no_log || other.no_log { claim.kind.to_owned() } else { claim.to_string() };
    Error::playbook(&item.place, format!("`{}` rules out `{}`: the {claim}", item.address, other.address))
        .also(&other.place, "the other one")
        .hint("they undo each other: leave one of them out, or keep them apart with `when`")
}

impl Graph {
    /// Adds the edges that a type knows of. One that would close a cycle is left out, and told in `warnings`.
    pub fn derive(&mut self, item: usize, needs: &[Need], play: &HostPlay) {
        for need in needs {
            let others = self.claimants(need);
            for other in others {
                let (from, to) = if matches!(need, Need::Before(_)) { (item, other) } else { (other, item) };
                if from == to || self.edges.edge_weight(from, to).is_some_and(|edge| *edge != Edge::Perhaps) {
                    continue;
                }
                if has_path_connecting(&self.edges, to, from, None) {
                    // Of two that each would come after the other the playbook says nothing: one order is as good.
                    let derived = EdgeFiltered::from_fn(&self.edges, |(.., edge)| *edge != Edge::Written);
                    if has_path_connecting(&derived, to, from, None) {
                        continue;
                    }
                    let name = |i: usize| &play.resources[i].address;
                    let warning = format!(
                        "`{}` would come before `{}`, but the playbook's own order says otherwise",
                        name(from),
                        name(to)
                    );
                    // A state says it anew each time it is read.
                    if !self.warnings.contains(&warning) {
                        self.warnings.push(warning);
                    }
                } else {
                    self.edges.add_edge(from, to, Edge::Derived);
                }
            }
        }
    }

    /// Adds that what is missing for an item may come from others, where their order is open.
    pub fn follow(&mut self, item: usize, others: impl Iterator<Item = usize>) {
        for other in others {
            if other != item
                && !self.edges.contains_edge(other, item)
                && !has_path_connecting(&self.edges, item, other, None)
            {
                self.edges.add_edge(other, item, Edge::Perhaps);
            }
        }
    }

    /// Who claims what a type needs.
    pub fn claimants(&self, need: &Need) -> Vec<usize> {
        match need {
            Need::After(claim) | Need::Before(claim) => self.claims.get(claim).copied().into_iter().collect(),
            Need::Without(_) => Vec::new(),
            Need::AfterAll(kind) => {
                let mut found: Vec<usize> =
                    self.claims.iter().filter(|(c, _)| c.kind == *kind).map(|(_, &i)| i).collect();
                found.sort_unstable();
                found
            }
            Need::AfterBelow(folder) => {
                let below = |c: &Claim| {
                    c.kind == "path" && c.name.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
                };
                let mut found: Vec<usize> = self.claims.iter().filter(|(c, _)| below(c)).map(|(_, &i)| i).collect();
                found.sort_unstable();
                found
            }
        }
    }

    /// The resources in their order: dependencies first, otherwise as in the file.
    pub fn order(&self) -> Vec<usize> {
        let mut missing: HashMap<usize, usize> = self.edges.nodes().map(|n| (n, 0)).collect();
        for (_, to, _) in self.edges.all_edges() {
            *missing.entry(to).or_default() += 1;
        }
        let mut ready: BinaryHeap<Reverse<usize>> =
            missing.iter().filter(|(_, n)| **n == 0).map(|(i, _)| Reverse(*i)).collect();
        let mut order = Vec::with_capacity(missing.len());
        while let Some(Reverse(i)) = ready.pop() {
            order.push(i);
            for next in self.edges.neighbors(i) {
                if let Some(n) = missing.get_mut(&next) {
                    *n -= 1;
                    if *n == 0 {
                        ready.push(Reverse(next));
                    }
                }
            }
        }
        order
    }

    /// What a resource comes directly after.
    pub fn before(&self, item: usize) -> impl Iterator<Item = usize> + '_ {
        self.edges.neighbors_directed(item, petgraph::Direction::Incoming)
    }

    /// What a resource comes directly after and can't do without.
    pub fn needed_by(&self, item: usize) -> impl Iterator<Item = usize> + '_ {
        self.before(item).filter(move |&other| self.edges.edge_weight(other, item) != Some(&Edge::Perhaps))
    }

    /// All edges, for `netplay graph`.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize, Edge)> + '_ {
        self.edges.all_edges().map(|(from, to, edge)| (from, to, *edge))
    }

    fn cycle(&self, play: &HostPlay) -> Option<Error> {
        let order = self.order();
        if order.len() == play.resources.len() {
            return None;
        }
        // Each node left over has a predecessor that is left over, so walking back must meet itself.
        let left = |i: &usize| !order.contains(i);
        let mut walk = vec![(0..play.resources.len()).find(|i| left(i))?];
        loop {
            let before = self.before(*walk.last()?).filter(|i| left(i)).min()?;
            if let Some(start) = walk.iter().position(|&i| i == before) {
                let mut ring: Vec<usize> = walk[start..].to_vec();
                ring.reverse();
                let least = ring.iter().enumerate().min_by_key(|(_, i)| **i).map_or(0, |(at, _)| at);
                ring.rotate_left(least);
                let names: Vec<String> =
                    ring.iter().chain(ring.first()).map(|&i| format!("`{}`", play.resources[i].address)).collect();
                let mut error =
                    Error::playbook(&play.resources[ring[0]].place, format!("a cycle: {}", names.join(" before ")));
                for &i in &ring[1..] {
                    error = error.also(&play.resources[i].place, "and here");
                }
                return Some(error.hint("remove one of the `after` or `before` that close it"));
            }
            walk.push(before);
        }
    }
}

/// The items by address and by title, those that aren't told apart.
struct Names<'p> {
    told: HashMap<&'p str, Vec<usize>>,
    untold: HashMap<&'p str, Vec<usize>>,
}

impl<'p> Names<'p> {
    fn of(items: &'p [Item]) -> Names<'p> {
        let (mut told, mut untold) = (HashMap::<&str, Vec<usize>>::new(), HashMap::<&str, Vec<usize>>::new());
        for (i, item) in items.iter().enumerate() {
            told.entry(&item.address).or_default().push(i);
            if let Some(title) = item.title.as_deref().filter(|t| **t != *item.address) {
                told.entry(title).or_default().push(i);
            }
            item.untold.iter().for_each(|name| untold.entry(name).or_default().push(i));
        }
        Names { told, untold }
    }

    fn find(&self, reference: &Reference, play: &HostPlay, handlers: bool) -> Result<Vec<usize>, Error> {
        let name = &*reference.name;
        if let Some(found) = self.untold.get(name).or_else(|| self.told.get(name)) {
            return Ok(found.clone());
        }
        let left_out = |s: &crate::playbook::Skipped| s.names().any(|n| n == name);
        if play.wants_facts || play.skipped.iter().any(left_out) {
            return Ok(Vec::new());
        }
        let what = if handlers { "handler" } else { "resource" };
        let error = Error::playbook(&reference.place, format!("no {what} of this play is called `{name}`"));
        let all: Vec<&str> = self.told.keys().copied().collect();
        Err(match nearest(name, all.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None if all.is_empty() => error.hint(format!("the play has no {what}s")),
            None => {
                let mut all = all;
                all.sort_unstable();
                error.hint(format!("known: {}", all.join(", ")))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{Fake, play};
    use crate::resource::copy::Copy;
    use crate::resource::ifcfg::Ifcfg;
    use crate::resource::trial::parse_nodes;
    use crate::yaml::Node;
    use std::sync::Arc;

    fn names(play: &HostPlay, order: &[usize]) -> String {
        order.iter().map(|&i| play.resources[i].resource.identity()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn edges_and_the_order_of_the_file() {
        let p = play(vec![Fake::new("a").after("c"), Fake::new("b"), Fake::new("c"), Fake::new("d").before("b")]);
        let graph = build(&p).unwrap();
        assert_eq!(names(&p, &graph.order()), "c a d b");
    }

    #[test]
    fn what_undoes_each_other_is_refused() {
        use crate::resource::{AnyResource, irq_affinity::IrqAffinity, nic::Nic, roce_qos::RoceQos, service::Service};
        let at = crate::source::Span::at(&crate::source::Source::new("t", ""), 1, 1, 1);
        let (word, no) = (|text: &str| Node::string(&at, text), Node::bool(&at, false));
        let yes = Node::bool(&at, true);
        let with = |first: Arc<dyn AnyResource>, second: Arc<dyn AnyResource>| {
            let mut p = play(vec![Fake::new("a"), Fake::new("b")]);
            for (item, resource) in p.resources.iter_mut().zip([first, second]) {
                item.resource = resource;
            }
            build(&p).err().map(|e| e[0].to_string())
        };
        let irqs = || Arc::new(parse_nodes::<IrqAffinity>(vec![("interface", word("eth1"))]).unwrap());
        let service = |key, value: &Node| {
            Arc::new(parse_nodes::<Service>(vec![("name", word("irqbalance")), (key, value.clone())]).unwrap())
        };
        for (key, value) in [("state", &word("started")), ("enabled", &yes)] {
            let text = with(service(key, value), irqs()).unwrap();
            assert!(text.contains("rules out `fake:a`: the running unit irqbalance.service"), "{text}");
        }
        assert_eq!(with(service("enabled", &no), irqs()), None);
        let nic = |on: &Node| {
            let pause = Node::map(&at, vec![(word("rx"), on.clone())]);
            Arc::new(parse_nodes::<Nic>(vec![("interface", word("eth1")), ("pause", pause)]).unwrap())
        };
        let qos = |pfc: Vec<Node>| {
            let keys = vec![("interface", word("eth1")), ("pfc", Node::seq(&at, pfc))];
            Arc::new(parse_nodes::<RoceQos>(keys).unwrap())
        };
        let text = with(nic(&yes), qos(vec![word("3")])).unwrap();
        assert!(text.contains("rules out `fake:a`: the pause frames on eth1"), "{text}");
        assert_eq!(with(nic(&no), qos(vec![word("3")])), None);
        assert_eq!(with(nic(&yes), qos(Vec::new())), None);
    }

    #[test]
    fn a_cycle_is_printed() {
        let p =
            play(vec![Fake::new("a").after("b"), Fake::new("x"), Fake::new("b").after("c"), Fake::new("c").after("a")]);
        let text = build(&p).unwrap_err()[0].to_string();
        assert!(text.starts_with("a cycle: `fake:a` before `fake:c` before `fake:b` before `fake:a`"), "{text}");
    }

    #[test]
    fn a_derived_edge_gives_way() {
        let p = play(vec![Fake::new("file").after("service"), Fake::new("service").needs("file")]);
        let graph = build(&p).unwrap();
        assert_eq!(names(&p, &graph.order()), "service file");
        assert_eq!(graph.warnings.len(), 1, "{:?}", graph.warnings);
        let p = play(vec![Fake::new("service").needs("file"), Fake::new("file")]);
        assert_eq!(names(&p, &build(&p).unwrap().order()), "file service");
        // Two that each would come after the other: the playbook hasn't said anything.
        let p = play(vec![Fake::new("a").needs("b"), Fake::new("b").needs("a")]);
        assert!(build(&p).unwrap().warnings.is_empty());
    }

    #[test]
    fn one_thing_has_one_owner() {
        let p = play(vec![Fake::new("a"), Fake::new("a")]);
        let text = build(&p).unwrap_err()[0].to_string();
        assert!(
            text.contains("both set the fake a") && text.contains("t.yaml:1:1") && text.contains("t.yaml:2:1"),
            "{text}"
        );
    }

    #[test]
    fn a_whole_file_and_a_part_of_it_exclude_each_other() {
        let at = crate::source::Span::start(&crate::source::Source::new("t", ""));
        let text = |text: &str| Node::string(&at, text);
        let ifcfg = |key: &str| {
            let settings = Node::map(&at, vec![(text(key), text("1"))]);
            parse_nodes::<Ifcfg>(vec![("interface", text("eth0")), ("settings", settings)]).unwrap()
        };
        let dest = "/etc/sysconfig/network-scripts/ifcfg-eth0";
        let copy = parse_nodes::<Copy>(vec![("dest", text(dest)), ("content", text("x"))]).unwrap();
        let mut p = play(vec![Fake::new("a"), Fake::new("b"), Fake::new("c")]);
        p.resources[0].resource = Arc::new(ifcfg("MTU"));
        p.resources[1].resource = Arc::new(ifcfg("ONBOOT"));
        assert!(build(&p).is_ok(), "two parts of one file");
        p.resources[2].resource = Arc::new(copy);
        let errors = build(&p).unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
        let text = errors[0].to_string();
        assert!(text.contains(&format!("`fake:a` and `fake:c` both set the path {dest}")), "{text}");
        assert!(text.contains("t.yaml:3:1"), "{text}");
    }

    #[test]
    fn an_unknown_name_is_told() {
        let text = build(&play(vec![Fake::new("eth0"), Fake::new("b").after("fake:eth1")])).unwrap_err()[0].to_string();
        assert!(text.contains("`fake:eth1`") && text.contains("did you mean `fake:eth0`"), "{text}");
    }
}
