//! Hosts, groups and who belongs to whom, built up by the readers of each format and then settled once.

use super::vars::VarMap;
use crate::error::{Error, Kind};
use crate::source::{Source, Span};
use crate::yaml::{Node, Scalar};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A host of one inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(u32);

/// A group of one inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupId(u32);

impl HostId {
    pub(super) fn at(index: usize) -> HostId {
        HostId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Its place in tables over all hosts.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl GroupId {
    pub(super) const ALL: GroupId = GroupId(0);
    pub(super) const UNGROUPED: GroupId = GroupId(1);

    pub(super) fn at(index: usize) -> GroupId {
        GroupId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: Arc<str>,
    /// Where it is listed first.
    place: Span,
    /// The groups that list it, in the order in which they did.
    pub(super) direct: Vec<GroupId>,
    pub(super) vars: VarMap,
    /// Which of [`Tree::sets`] it belongs to.
    pub(super) set: usize,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Arc<str>,
    /// The hosts that it lists itself.
    pub(super) hosts: Vec<HostId>,
    pub(super) children: Vec<GroupId>,
    /// Where a group other than `all` lists it first.
    place: Option<Span>,
    pub(super) parents: Vec<GroupId>,
    pub(super) vars: VarMap,
    /// `ansible_group_priority`.
    pub(super) priority: i128,
    /// The length of the longest way from `all`.
    depth: usize,
    /// Its hosts and those of the groups below it.
    pub(super) members: Vec<HostId>,
}

/// An inventory's hosts and groups. `all` and `ungrouped` are always there, as the first two groups.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) hosts: Vec<Host>,
    pub(super) groups: Vec<Group>,
    host_ids: HashMap<Arc<str>, HostId>,
    group_ids: HashMap<Arc<str>, GroupId>,
    /// How many hosts are the inventory's own; those behind them are the implicit localhosts.
    pub(super) explicit: usize,
    /// The different sets of groups that hosts are in, without `all`, in order of precedence, lowest first.
    pub(super) sets: Vec<Arc<[GroupId]>>,
    /// The first host that is this machine by its name.
    localhost: Option<HostId>,
    /// How many hosts have been listed.
    listed: usize,
}

/// How many hosts the ranges of an inventory may stand for, each counted as often as it is listed.
const MAX_LISTED: usize = 1_000_000;
/// How deep groups may be nested.
const MAX_DEPTH: usize = 1000;

/// The names that stand for this machine even where the inventory doesn't know them.
const LOCALHOST: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

impl Tree {
    pub(super) fn new() -> Tree {
        let mut tree = Tree {
            hosts: Vec::new(),
            groups: Vec::new(),
            host_ids: HashMap::new(),
            group_ids: HashMap::new(),
            explicit: 0,
            sets: Vec::new(),
            localhost: None,
            listed: 0,
        };
        tree.add_group("all");
        tree.add_group("ungrouped");
        tree.link(GroupId::ALL, GroupId::UNGROUPED);
        tree
    }

    pub(super) fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.index()]
    }

    pub(super) fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.index()]
    }

    pub(super) fn find_group(&self, name: &str) -> Option<GroupId> {
        self.group_ids.get(name).copied()
    }

    pub(super) fn has_host(&self, name: &str) -> bool {
        self.host_ids.contains_key(name)
    }

    /// A host by its name; one that stands for this machine is found even if the inventory has none.
    pub(super) fn find_host(&self, name: &str) -> Option<HostId> {
        let known = self.host_ids.get(name).copied();
        known.or_else(|| self.localhost.filter(|_| LOCALHOST.contains(&name)))
    }

    pub(super) fn add_group(&mut self, name: &str) -> GroupId {
        if let Some(id) = self.find_group(name) {
            return id;
        }
        let (id, name) = (GroupId::at(self.groups.len()), Arc::<str>::from(name));
        self.group_ids.insert(name.clone(), id);
        self.groups.push(Group {
            name,
            hosts: Vec::new(),
            children: Vec::new(),
            place: None,
            parents: Vec::new(),
            vars: VarMap::default(),
            priority: 1,
            depth: 0,
            members: Vec::new(),
        });
        id
    }

    /// Adds a host to a group, which lists it at a place; whether the host is new.
    pub(super) fn add_host(&mut self, name: &str, group: GroupId, place: &Span) -> (HostId, bool) {
        let known = self.host_ids.get(name).copied();
        let id = known.unwrap_or_else(|| self.new_host(name, place));
        self.enlist(id, group);
        (id, known.is_none())
    }

    /// Makes sure that so many more hosts can be listed.
    pub(super) fn make_room(&mut self, hosts: usize, place: &Span) -> Result<(), Error> {
        self.listed += hosts;
        if self.listed > MAX_LISTED {
            let message = format!("the inventory lists more than {MAX_LISTED} hosts");
            return Err(Error::inventory(place, message).hint("is there a digit too many in a range?"));
        }
        Ok(())
    }

    fn new_host(&mut self, name: &str, place: &Span) -> HostId {
        let (id, name) = (HostId::at(self.hosts.len()), Arc::<str>::from(name));
        if self.localhost.is_none() && LOCALHOST.contains(&&*name) {
            self.localhost = Some(id);
        }
        self.host_ids.insert(name.clone(), id);
        self.hosts.push(Host { name, place: place.clone(), direct: Vec::new(), vars: VarMap::default(), set: 0 });
        id
    }

    fn enlist(&mut self, host: HostId, group: GroupId) {
        let direct = &mut self.hosts[host.index()].direct;
        if !direct.contains(&group) {
            direct.push(group);
            self.groups[group.index()].hosts.push(host);
        }
    }

    /// Makes one group the child of another.
    pub(super) fn add_child(&mut self, parent: GroupId, child: GroupId, place: &Span) -> Result<(), Error> {
        if parent != GroupId::ALL {
            self.groups[child.index()].place.get_or_insert_with(|| place.clone());
        }
        // What has no children isn't above anything.
        if parent != child && self.group(child).children.is_empty() {
            self.link(parent, child);
            return Ok(());
        }
        if let Some(way) = self.way_up(parent, child) {
            let names: Vec<&str> = way.iter().rev().map(|id| &*self.group(*id).name).collect();
            let name = &self.group(child).name;
            let message = match names.len() {
                1 => format!("the group `{name}` is its own child"),
                _ => format!("the groups go round in a circle: {} → {name}", names.join(" → ")),
            };
            return Err(Error::inventory(place, message).hint("take one of them out of the other's `children`"));
        }
        self.link(parent, child);
        Ok(())
    }

    fn link(&mut self, parent: GroupId, child: GroupId) {
        if !self.group(parent).children.contains(&child) {
            self.groups[parent.index()].children.push(child);
            self.groups[child.index()].parents.push(parent);
        }
    }

    /// The groups from one up to an ancestor, both included, if it is one.
    fn way_up(&self, from: GroupId, to: GroupId) -> Option<Vec<GroupId>> {
        let mut came: HashMap<GroupId, Option<GroupId>> = HashMap::from([(from, None)]);
        let mut queue = VecDeque::from([from]);
        while let Some(id) = queue.pop_front() {
            if id == to {
                return Some(
                    std::iter::successors(Some(id), |at| came[at]).collect::<Vec<_>>().into_iter().rev().collect(),
                );
            }
            for parent in &self.group(id).parents {
                if !came.contains_key(parent) {
                    came.insert(*parent, Some(id));
                    queue.push_back(*parent);
                }
            }
        }
        None
    }

    /// Sets a variable of what has this name. Where a host and a group share it, Ansible gives it to the group.
    pub(super) fn set_host_var(&mut self, host: HostId, name: &Arc<str>, value: &Node) -> Result<(), Error> {
        match self.group_ids.get(&self.hosts[host.index()].name) {
            Some(group) => self.set_group_var(*group, name, value),
            None => {
                self.hosts[host.index()].vars.insert(name.clone(), value.clone());
                Ok(())
            }
        }
    }

    pub(super) fn set_group_var(&mut self, group: GroupId, name: &Arc<str>, value: &Node) -> Result<(), Error> {
        let group = &mut self.groups[group.index()];
        if &**name != "ansible_group_priority" {
            group.vars.insert(name.clone(), value.clone());
            return Ok(());
        }
        group.priority = match value.scalar() {
            Some(Scalar::Int(n)) => n,
            Some(Scalar::Str(s)) if s.trim().parse::<i128>().is_ok() => s.trim().parse().unwrap_or_default(),
            _ => {
                let message = format!("`ansible_group_priority` is an integer, not {}", value.describe());
                return Err(Error::inventory(&value.span, message));
            }
        };
        Ok(())
    }

    /// What holds of the whole: each group is below `all`, a host without a group is in `ungrouped`. The warnings name
    /// what is both a host and a group.
    pub(super) fn settle(&mut self) -> Result<Vec<Error>, Error> {
        for id in (1..self.groups.len()).map(GroupId::at) {
            if self.group(id).parents.is_empty() {
                if self.way_up(GroupId::ALL, id).is_some() {
                    let name = &self.group(self.group(GroupId::ALL).parents[0]).name;
                    let message = format!("`all` is a child of the group `{name}`, though every group is below `all`");
                    return Err(self.listed(GroupId::ALL, message).hint("take `all` out of its `children`"));
                }
                self.link(GroupId::ALL, id);
            }
        }
        self.sort_out_ungrouped();
        let explicit = self.hosts.len();
        if self.localhost.is_none() {
            let place = Span::start(&Source::new("the implicit localhost", ""));
            for name in LOCALHOST {
                let id = self.new_host(name, &place);
                let local = Node::string(&place, "local");
                self.hosts[id.index()].vars.insert(Arc::from("ansible_connection"), local);
            }
        }
        self.explicit = explicit;
        self.measure();
        if let Some(deep) = self.groups.iter().position(|g| g.depth > MAX_DEPTH) {
            let message = format!("the group `{}` is nested deeper than {MAX_DEPTH} groups", self.groups[deep].name);
            return Err(self.listed(GroupId::at(deep), message).hint("take some of the groups above it out"));
        }
        self.number_sets();
        self.list_members();
        let both = self.groups.iter().filter_map(|g| self.host_ids.get(&g.name)).map(|id| {
            let host = self.host(*id);
            Error::inventory(&host.place, format!("`{}` is the name of a group and of a host", host.name))
                .hint("give one of them another name: the host's variables have gone to the group, as with Ansible")
        });
        let mut warnings: Vec<Error> = both.collect();
        if self.group(GroupId::UNGROUPED).parents.len() > 1 {
            warnings.push(
                self.listed(GroupId::UNGROUPED, "`ungrouped` is the child of another group").hint(
                    "Ansible loses the hosts of such an inventory that are in no other group; netplay keeps them",
                ),
            );
        }
        Ok(warnings)
    }

    /// An error about a group that stands below another one, where it is listed there.
    fn listed(&self, group: GroupId, message: impl Into<String>) -> Error {
        let error = Error::new(Kind::Inventory, message);
        match &self.group(group).place {
            Some(place) => error.at(place),
            None => error,
        }
    }

    fn sort_out_ungrouped(&mut self) {
        let (all, ungrouped) = (GroupId::ALL, GroupId::UNGROUPED);
        for at in 0..self.hosts.len() {
            let direct = &mut self.hosts[at].direct;
            if direct.iter().all(|g| *g == all || *g == ungrouped) {
                self.enlist(HostId::at(at), ungrouped);
            } else {
                direct.retain(|g| *g != ungrouped);
            }
        }
        let hosts = std::mem::take(&mut self.groups[ungrouped.index()].hosts);
        let kept = hosts.into_iter().filter(|h| self.host(*h).direct.contains(&ungrouped)).collect();
        self.groups[ungrouped.index()].hosts = kept;
    }

    /// The depth of each group, by taking groups once all their parents are known.
    fn measure(&mut self) {
        let mut open: Vec<usize> = self.groups.iter().map(|g| g.parents.len()).collect();
        let mut ready = vec![GroupId::ALL];
        while let Some(id) = ready.pop() {
            let (below, children) = (self.group(id).depth + 1, self.group(id).children.clone());
            for child in children {
                let group = &mut self.groups[child.index()];
                group.depth = group.depth.max(below);
                open[child.index()] -= 1;
                if open[child.index()] == 0 {
                    ready.push(child);
                }
            }
        }
    }

    fn number_sets(&mut self) {
        let mut known: HashMap<Vec<GroupId>, usize> = HashMap::new();
        for at in 0..self.hosts.len() {
            let mut direct = self.hosts[at].direct.clone();
            direct.sort_unstable();
            let set = match known.get(&direct) {
                Some(set) => *set,
                None => {
                    let mut groups: Vec<GroupId> = self.walk(direct.clone(), |g| &g.parents);
                    groups.retain(|id| *id != GroupId::ALL);
                    let key = |id: &GroupId| {
                        let group = self.group(*id);
                        (group.depth, group.priority, group.name.clone())
                    };
                    groups.sort_by_cached_key(key);
                    self.sets.push(groups.into());
                    known.insert(direct, self.sets.len() - 1);
                    self.sets.len() - 1
                }
            };
            self.hosts[at].set = set;
        }
    }

    /// Groups and all that can be reached from them, level by level, each once.
    fn walk(&self, from: Vec<GroupId>, next: impl Fn(&Group) -> &Vec<GroupId>) -> Vec<GroupId> {
        let mut seen: HashSet<GroupId> = from.iter().copied().collect();
        let mut order = from;
        let mut at = 0;
        while at < order.len() {
            for id in next(self.group(order[at])) {
                if seen.insert(*id) {
                    order.push(*id);
                }
            }
            at += 1;
        }
        order
    }

    fn list_members(&mut self) {
        for id in (0..self.groups.len()).map(GroupId::at) {
            let mut seen = HashSet::new();
            let below = self.walk(vec![id], |g| &g.children);
            let hosts = below.iter().flat_map(|g| &self.group(*g).hosts).copied();
            let members = hosts.filter(|h| seen.insert(*h)).collect();
            self.groups[id.index()].members = members;
        }
    }
}
