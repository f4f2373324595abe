//! Chains of a packet filter, and what becomes of packets in them.

use super::cond::{Cond, Fit};
use std::collections::{BTreeMap, HashMap};

/// What a rule does with a packet that it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Reject,
    Return,
    Jump(String),
    Goto(String),
    /// It counts, logs or marks: the next rule decides.
    Next,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) cond: Cond,
    pub(super) verdict: Verdict,
    pub(super) comment: Option<String>,
    /// How its manager knows it: its handle in nftables, its line among what iptables saves.
    pub(super) at: String,
}

/// Where the kernel enters a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// `input` or `output`.
    pub(super) hook: String,
    /// Whether it drops what no rule decides.
    pub(super) drops: bool,
}

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) base: Option<Base>,
    pub(super) rules: Vec<Rule>,
}

/// Whose a table is, which says by what it is changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A table of nftables: family and name.
    Nft(String, String),
    /// The table `filter` of this command: `iptables`, `ip6tables-legacy`, …
    Iptables(String),
}

impl Place {
    /// The only family whose packets come through it.
    pub(super) fn v6(&self) -> Option<bool> {
        match self {
            Place::Nft(family, _) if family == "inet" => None,
            Place::Nft(family, _) => Some(family == "ip6"),
            Place::Iptables(command) => Some(command.starts_with("ip6")),
        }
    }

    /// A chain in it, in words.
    pub(super) fn name(&self, chain: &str) -> String {
        match self {
            Place::Nft(family, table) => format!("{family} {table} {chain}"),
            Place::Iptables(command) => format!("{command} {chain}"),
        }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) place: Place,
    pub(super) chains: BTreeMap<String, Chain>,
}

/// What becomes of the first packet of a connection in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The rule with our comment decides.
    Ours,
    Accepted,
    /// By a rule of netplay's, another one than ours.
    AcceptedByNetplay,
    Dropped,
    /// Nothing decides; the caller goes on.
    Through,
}

/// What is looked at: the packets, and which rule is ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    /// Of one family.
    pub(super) cond: &'a Cond,
    pub(super) comment: &'a str,
    /// Whether our rule is there or is thought away.
    pub(super) with: bool,
    /// Whether our rule lets packets in. What takes only some of them the other way is then before it.
    pub(super) accepts: bool,
}

/// The beginning of the comment of each rule that netplay made.
pub(super) const MARK: &str = "netplay:";

/// The chains of netplay's in a table of iptables, of what comes in and of what goes out: what lets packets pass, and what
/// drops them.
pub(super) const CHAINS: [[&str; 2]; 2] = [["NETPLAY-IN", "NETPLAY-IN-DROP"], ["NETPLAY-OUT", "NETPLAY-OUT-DROP"]];

impl Rule {
    /// Whether netplay made it, or it leads to a chain of netplay's.
    pub(super) fn is_netplays(&self) -> bool {
        let to = match &self.verdict {
            Verdict::Jump(to) => to.as_str(),
            _ => "",
        };
        self.comment.as_ref().is_some_and(|c| c.starts_with(MARK)) || CHAINS.iter().flatten().any(|chain| *chain == to)
    }
}

impl Table {
    /// The base chains at a hook.
    pub(super) fn bases<'a>(&'a self, hook: &'a str) -> impl Iterator<Item = (&'a String, &'a Chain)> {
        self.chains.iter().filter(move |(_, c)| c.base.as_ref().is_some_and(|b| b.hook == hook))
    }

    /// The same without the rules of netplay's.
    pub(super) fn of_others(&self) -> Table {
        let foreign = |chain: &Chain| Chain {
            base: chain.base.clone(),
            rules: chain.rules.iter().filter(|rule| !rule.is_netplays()).cloned().collect(),
        };
        let chains = self.chains.iter().map(|(name, chain)| (name.clone(), foreign(chain))).collect();
        Table { place: self.place.clone(), chains }
    }

    /// What becomes of these packets in a base chain.
    pub(super) fn fate(&self, chain: &str, look: Look<'_>) -> Fate {
        match self.enter(chain, look, &mut HashMap::new()) {
            Fate::Through if self.chains[chain].base.as_ref().is_some_and(|b| b.drops) => Fate::Dropped,
            Fate::Through => Fate::Accepted,
            fate => fate,
        }
    }

    fn enter(&self, name: &str, look: Look<'_>, known: &mut HashMap<String, Fate>) -> Fate {
        if let Some(fate) = known.get(name) {
            return *fate;
        }
        // A circle of chains, which the kernel refuses, ends here.
        known.insert(name.to_owned(), Fate::Through);
        let fate = self.run(name, look, known);
        known.insert(name.to_owned(), fate);
        fate
    }

    /// The place, among the rules of others in a base chain, of the one that is the last to be reached by these packets;
    /// nothing where the policy decides.
    pub(super) fn decider<'a>(&'a self, chain: &str, look: Look<'_>) -> Option<(usize, &'a Rule)> {
        let rules = &self.chains.get(chain)?.rules;
        let foreign = |r: &&Rule| !r.is_netplays();
        let others = Chain { base: None, rules: rules.iter().filter(foreign).cloned().collect() };
        let mut table = Table { place: self.place.clone(), chains: self.chains.clone() };
        table.chains.insert(chain.to_owned(), others);
        let (_, at) = table.walk(chain, look, &mut HashMap::new());
        rules.iter().enumerate().filter(|(_, r)| foreign(r)).nth(at?)
    }

    /// Whether a rule drops some of these packets, itself or by a chain that it leads to, `depth` chains down.
    pub(super) fn drops_some(&self, rule: &Rule, cond: &Cond, depth: usize) -> bool {
        // The kernel refuses circles, and more of them than this.
        let below = |to: &String| {
            let chain = self.chains.get(to).filter(|_| depth < 16);
            chain.is_some_and(|chain| chain.rules.iter().any(|rule| self.drops_some(rule, cond, depth + 1)))
        };
        rule.cond.fit(cond) != Fit::Apart
            && match &rule.verdict {
                Verdict::Drop | Verdict::Reject => true,
                Verdict::Jump(to) | Verdict::Goto(to) => below(to),
                _ => false,
            }
    }

    fn run(&self, name: &str, look: Look<'_>, known: &mut HashMap<String, Fate>) -> Fate {
        self.walk(name, look, known).0
    }

    /// What becomes of the packets, and by which rule of the chain.
    fn walk(&self, name: &str, look: Look<'_>, known: &mut HashMap<String, Fate>) -> (Fate, Option<usize>) {
        let rules = self.chains.get(name).map(|c| c.rules.as_slice()).unwrap_or_default();
        // Some packets went back to the caller, so that what comes now isn't about all of them.
        let mut returned = false;
        for (i, rule) in rules.iter().enumerate() {
            let ours = rule.comment.as_deref() == Some(look.comment);
            let fit = rule.cond.fit(look.cond);
            if fit == Fit::Apart || (ours && !look.with) {
                continue;
            }
            let fate = match &rule.verdict {
                _ if ours => Fate::Ours,
                Verdict::Accept if rule.comment.as_ref().is_some_and(|c| c.starts_with(MARK)) => {
                    Fate::AcceptedByNetplay
                }
                Verdict::Accept => Fate::Accepted,
                Verdict::Drop | Verdict::Reject => Fate::Dropped,
                Verdict::Jump(to) | Verdict::Goto(to) => self.enter(to, look, known),
                // What netplay lets in is kept from what it drops.
                Verdict::Return
                    if fit == Fit::All && !look.accepts && CHAINS.iter().any(|[_, drops]| *drops == name) =>
                {
                    return (Fate::AcceptedByNetplay, Some(i));
                }
                Verdict::Return if fit == Fit::All => return (Fate::Through, Some(i)),
                Verdict::Return => {
                    returned = true;
                    continue;
                }
                Verdict::Next => continue,
            };
            let against = if look.accepts { fate == Fate::Dropped } else { fate == Fate::Accepted };
            match fit {
                _ if returned && !ours => {}
                Fit::All if fate != Fate::Through => return (fate, Some(i)),
                Fit::All if matches!(rule.verdict, Verdict::Goto(_)) => return (Fate::Through, Some(i)),
                Fit::Some { exception: false } if against => return (fate, Some(i)),
                _ => {}
            }
        }
        (Fate::Through, None)
    }
}
