//! `firewall_rule`: a rule of the host's packet filter, by whatever manages that.

mod chains;
mod cond;
mod firewalld;
mod iptables;
mod keys;
mod netfilter;
mod nftables;
mod probe;
mod ufw;

use self::chains::{MARK, Verdict};
use self::cond::{Cond, Net};
use self::netfilter::Work;
use self::probe::{Filters, Found};
use super::package;
use super::probes::links::{LinkList, Links};
use super::probes::session::{Session, SessionEnds};
use super::reapply::{Kept, Reapply};
use super::spec::{Key, Spec};
use super::{
    Answers, Change, Claim, FileDiff, Need, Obstacle, Question, Reading, Resource, Risk, Stale, Step, Trouble, Undo,
};
use crate::error::Error;

/// A rule of a packet filter.
#[derive(Debug)]
pub struct FirewallRule {
    name: String,
    present: bool,
    verdict: Verdict,
    /// For what goes out, not for what comes in.
    out: bool,
    cond: Cond,
    /// firewalld's.
    zone: Option<String>,
    backend: Option<Backend>,
    /// Whether it is to be there after a boot too.
    persist: bool,
    /// What sets it again at boot, where it is to last and nothing else does.
    kept: Reapply,
}

/// What manages a host's packet filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Firewalld,
    Ufw,
    Nftables,
    Iptables,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    work: Result<Work, Trouble>,
    boot: Option<Kept>,
    risk: Risk,
    /// Whether what manages the filter keeps no names of rules.
    nameless: bool,
}

impl Backend {
    const ALL: [Backend; 4] = [Backend::Firewalld, Backend::Ufw, Backend::Nftables, Backend::Iptables];

    fn word(self) -> &'static str {
        match self {
            Backend::Firewalld => "firewalld",
            Backend::Ufw => "ufw",
            Backend::Nftables => "nftables",
            Backend::Iptables => "iptables",
        }
    }

    /// What manages the filter of this host.
    ///
    /// # Errors
    /// Nothing does, or another one than was asked for.
    fn of(found: &Found, asked: Option<Backend>) -> Result<Backend, Trouble> {
        let manager = match found {
            _ if found.firewalld.is_some() => Some(Backend::Firewalld),
            _ if found.ufw.is_some() => Some(Backend::Ufw),
            _ => None,
        };
        if let Some(manager) = manager {
            return match asked {
                Some(other) if other != manager => {
                    let message = format!("{} manages the packet filter of this host", manager.word());
                    Err(Trouble::new(message)
                        .hint(format!("leave out `backend: {}`: two of them undo each other's rules", other.word())))
                }
                _ => Ok(manager),
            };
        }
        // It would take the rules of others away when it starts.
        if let Some(state) = found.starting("firewalld.service") {
            return Err(Trouble::new(format!("firewalld starts at boot on this host, and is {state} now"))
                .hint("start it, or disable it, before this"));
        }
        let iptables = found.has("iptables") || found.has("ip6tables");
        let service = found.active("nftables.service") || found.enabled("nftables.service");
        match asked {
            Some(Backend::Nftables) if !found.nft => {
                Err(Trouble::new("there is no nft on this host").hint("install nftables"))
            }
            Some(Backend::Iptables) if !iptables => {
                Err(Trouble::new("there is no iptables on this host").hint("install iptables"))
            }
            Some(asked @ (Backend::Nftables | Backend::Iptables)) => Ok(asked),
            Some(asked) => {
                let word = asked.word();
                Err(Trouble::new(format!(
                    "{word} doesn't manage the packet filter of this host: it isn't there or is off"
                ))
                .hint(format!("switch {word} on before this, or leave out `backend`")))
            }
            None if found.nft && (service || !iptables) => Ok(Backend::Nftables),
            None if iptables => Ok(Backend::Iptables),
            None => Err(Trouble::new("this host has neither nft nor iptables")
                .hint("install nftables, or leave the rule out there by `when`")),
        }
    }
}

impl FirewallRule {
    fn comment(&self) -> String {
        format!("{MARK}{}", self.name)
    }

    /// Whether it lets packets in.
    fn lets(&self) -> bool {
        self.present && self.verdict == Verdict::Accept && !self.out
    }

    /// Whether its steps may keep the session from being made again.
    fn endangers(&self, found: &Found, work: &Work, session: &Session, links: &Links) -> Risk {
        let Session::Ssh { address, client, port, .. } = session else { return Risk::None };
        let over = session.interface(links).map(|l| l.name.as_str());
        let (server, client) = (Net::of(*address), client.map(|(address, port)| (Net::of(address), port)));
        if self.out {
            let Some((client, port)) = client else { return Risk::None };
            let mut reply = netfilter::packet(server, client, port, None);
            reply.outputs = over.map(str::to_owned).into_iter().collect();
            let stops = self.present && self.verdict != Verdict::Accept && self.cond.fit(&reply) != cond::Fit::Apart;
            return if stops || work.closes(&found.tables, &reply, "output") {
                Risk::Link(format!("what this host sends to {} would be dropped", client.address))
            } else {
                Risk::None
            };
        }
        let source = client.map_or(server, |(client, _)| client);
        let packet = netfilter::packet(source, server, *port, over);
        let why = format!("tcp port {port} would be closed to {}, which comes in by it", source.address);
        if let Some(firewalld) = &found.firewalld {
            self.firewalld_closes(firewalld, work, &packet, why)
        } else if work.closes(&found.tables, &packet, "input") {
            Risk::Link(why)
        } else if self.is_about(found, work, &packet) {
            Risk::Link(format!("it is about tcp port {port}, by which {} comes in", source.address))
        } else {
            Risk::None
        }
    }

    /// Whether what is to be done takes away something that lets this packet in, or keeps it out. What else does so is no
    /// comfort: another rule of the same play may take that away.
    fn is_about(&self, found: &Found, work: &Work, packet: &cond::Cond) -> bool {
        let comment = self.comment();
        let meets = |cond: &cond::Cond| cond.fit(packet) != cond::Fit::Apart;
        let rules = found.tables.iter().flat_map(|t| t.chains.values()).flat_map(|chain| &chain.rules);
        let rules = rules.chain(found.ufw.iter().flat_map(|ufw| ufw.rules.iter().map(|(.., rule)| rule)));
        let lets = |rule: &chains::Rule| rule.comment.as_ref() == Some(&comment) && rule.verdict == Verdict::Accept;
        let keeps_out = self.present && self.verdict != Verdict::Accept && meets(&self.cond);
        !work.changes.is_empty() && (keeps_out || rules.filter(|r| lets(r)).any(|r| meets(&r.cond)))
    }
}

impl Resource for FirewallRule {
    type State = State;
    const TYPE: &'static str = "firewall_rule";
    const SUMMARY: &'static str = "A rule of the packet filter, by firewalld, ufw, nftables or iptables";
    const TOUCHES: &'static str = "\
        The rule, by what manages the filter of the host, with the comment `netplay:NAME`. With nftables: a table `inet \
        netplay`, and an accept also in each other chain that would drop its packets. With iptables: the chain \
        `NETPLAY-IN` or `NETPLAY-OUT`, `NETPLAY-IN-DROP` or `NETPLAY-OUT-DROP` of what drops or rejects, and a jump to it. With firewalld: a port or a rich rule of the zone, running and \
        permanent; it has no comments, so that a rule which is to be another one leaves what it was, and one that is to be absent \
        goes whoever has put it there. With ufw: a rule of \
        its own. No other rule is changed or saved. What netplay accepts comes before what it drops or rejects, and \
        directly before the rule of others that would drop it: what drops some of its packets by a source, a state or a rate (a \
        ban) is an exception that stays before. With iptables all that netplay lets in has one place, so that a rule which would \
        have a ban passed by fails and says which. Where nft or iptables \
        is what manages the filter, netplay-reapply.service sets the rule again at boot; whatever flushes the filter \
        later (a restart or reload of nftables.service) takes it away until that unit or the next run has put it back.";
    const LINK: bool = true;
    const KEYS: &'static [Key] = &[
        Key::required("name", "string", "Its name: letters, digits, `.`, `_` and `-`. By it the rule is found again."),
        Key::default("state", "present | absent", "present", "Whether it is to be there."),
        Key::default("action", "accept | drop | reject", "accept", "What becomes of the packets."),
        Key::optional("protocol", "tcp | udp | sctp | icmp", "Without one it is about all. `icmp` is ICMPv6, too."),
        Key::optional(
            "port",
            "integer, range or list of these",
            "The port that packets go to: `22`, `18515-18530`, `[5201, 18515-18530]`. Together at most 15, a range counting \
             twice, as iptables takes no more.",
        ),
        Key::optional("source", "address or network", "Where they come from: `10.0.0.0/8`."),
        Key::optional("destination", "address or network", "Where they go to."),
        Key::optional("interface", "string", "The interface by which they come in, or go out."),
        Key::default("direction", "in | out", "in", "Whether it is about what comes in or what goes out."),
        Key::optional(
            "family",
            "ipv4 | ipv6",
            "Only IPv4 or only IPv6. Without it the rule is for both, unless an address says which.",
        ),
        Key::optional(
            "zone",
            "string",
            "firewalld's zone; without it all that are in use. Others have no zones, and pass it over.",
        ),
        Key::default(
            "backend",
            "auto | firewalld | ufw | nftables | iptables",
            "auto",
            "What the rule is made by. Found out: firewalld or ufw where it is on, nft where nftables.service is, or else \
             iptables.",
        ),
        Key::default("persist", "boolean", "true", "Whether it is to be there after a boot too."),
        Key::refused("chain", "the chains are found out; `direction` says which way"),
        Key::refused("jump", "write `action: accept`, `drop` or `reject`"),
        Key::refused("destination_port", "write `port`"),
        Key::refused("proto", "write `protocol`"),
        Key::refused("comment", "the comment is `netplay:` and `name`"),
        Key::refused("permanent", "write `persist`"),
        Key::refused("immediate", "it is always in force at once; leave it out"),
        Key::refused("service", "write `protocol` and `port`"),
    ];
    const EXAMPLE: &'static str = "\
- name: RoCE version 2 (what the hardware of a port sends and receives, the kernel's filter never sees)
  firewall_rule: {name: rocev2, protocol: udp, port: 4791}
";

    fn parse(spec: &Spec<'_>) -> Result<FirewallRule, Error> {
        let name = spec.need_text("name")?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.len() > 64 || !name.bytes().all(plain) {
            let message = format!("`{name}` can't be the name of a rule");
            return Err(Error::playbook(&spec.need("name")?.span, message)
                .hint("it is in the rule's comment: at most 64 letters, digits, `.`, `_` and `-`"));
        }
        let out = spec.choice("direction", &["in", "out"])? == Some("out");
        let verdict = match spec.choice("action", &["accept", "drop", "reject"])? {
            Some("drop") => Verdict::Drop,
            Some("reject") => Verdict::Reject,
            _ => Verdict::Accept,
        };
        let backend = spec.choice("backend", &["auto", "firewalld", "ufw", "nftables", "iptables"])?;
        let persist = spec.bool("persist")?.unwrap_or(true);
        let kept = match persist {
            true => Reapply::late(20, "firewall_rule", &name, spec.image),
            false => Reapply::new(20, "firewall_rule", &name, None, spec.image),
        };
        Ok(FirewallRule {
            present: spec.choice("state", &["present", "absent"])? != Some("absent"),
            cond: keys::condition(spec, out)?,
            zone: spec.text("zone")?,
            backend: Backend::ALL.into_iter().find(|b| Some(b.word()) == backend),
            persist,
            kept,
            name,
            verdict,
            out,
        })
    }

    fn identity(&self) -> String {
        self.name.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        let mut claims = vec![Claim::new("firewall rule", &self.name), self.kept.claim()];
        claims.extend(self.lets().then(|| Claim::new(ACCEPT, &self.name)));
        claims.extend((!self.present).then(|| Claim::new(GOING, &self.name)));
        claims
    }

    fn needs(&self, now: Option<&State>) -> Vec<Need> {
        let packages = Backend::ALL.iter().flat_map(|b| package::of_name(b.word()));
        let mut needs: Vec<Need> = packages.chain(units().map(Need::After)).collect();
        // What the play lets in may be what keeps the session open.
        let risky = now.is_some_and(|now| now.risk != Risk::None);
        needs.extend((risky && !self.lets()).then_some(Need::AfterAll(ACCEPT)));
        // And what the play takes away may be what would close it.
        needs.extend((risky && !self.present).then_some(Need::AfterAll(GOING)));
        needs
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = vec![Filters::ask(), SessionEnds::ask(), LinkList::ask()];
        questions.extend(self.kept.questions());
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found = answers.get::<Filters>("")?;
        let backend = match Backend::of(found, self.backend) {
            Ok(backend) => backend,
            Err(why) => return Ok(Reading::NotYet(why)),
        };
        let work = match (backend, &found.firewalld, &found.ufw) {
            (Backend::Firewalld, Some(firewalld), _) => self.firewalld(found, firewalld),
            (Backend::Ufw, _, Some(ufw)) => self.ufw(found, ufw),
            _ => self.netfilter(found, backend == Backend::Nftables),
        };
        let risk = match &work {
            Ok(work) => self.endangers(found, work, answers.get::<SessionEnds>("")?, answers.get::<LinkList>("")?),
            Err(_) => Risk::None,
        };
        let boot = match &work {
            Ok(work) => Some(self.kept.with(work.boot.as_ref().filter(|_| self.persist)).read(answers)?),
            Err(_) => None,
        };
        Ok(Reading::State(State { work, boot, risk, nameless: backend == Backend::Firewalld }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let live = now.work.iter().flat_map(|w| w.changes.clone());
        live.chain(now.boot.iter().filter_map(Kept::change)).collect()
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let live = now.work.iter().flat_map(|w| w.live.clone()).map(Step::Run);
        live.chain(now.boot.iter().flat_map(|kept| kept.steps(true))).collect()
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        now.boot.iter().flat_map(Kept::files).collect()
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        match &now.work {
            Err(why) => Some(Obstacle::stops(why.clone())),
            Ok(work) => match &work.lacking {
                Some(lacking) => Some(Obstacle::lasts(lacking.clone())),
                None => now.boot.as_ref().and_then(Kept::obstacle),
            },
        }
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings: Vec<String> = now.boot.iter().flat_map(Kept::warnings).collect();
        let goes = now.work.as_ref().is_ok_and(|work| !self.present && !work.changes.is_empty());
        if goes && now.nameless {
            let what = self.described();
            warnings.push(format!("firewalld keeps no names of rules: `{what}` goes, whoever has put it there"));
        }
        warnings
    }

    fn undo(&self, now: &State) -> Option<Undo> {
        let mut undo = now.work.as_ref().ok()?.undo.clone()?;
        for boot in now.boot.iter().map(Kept::undo) {
            undo.files.extend(boot.files);
            undo.steps.extend(boot.steps);
        }
        Some(undo)
    }

    fn risk(&self, now: &State) -> Risk {
        now.risk.clone()
    }

    fn live_only(&self) -> Option<&'static str> {
        Some(match self.backend {
            None => "what manages the packet filter is only known where it runs",
            Some(_) => "which chains would drop its packets is only known where the filter runs",
        })
    }
}

/// The kind of claim of a rule that isn't to be there.
const GOING: &str = "firewall rule that goes";
/// The kind of claim of what lets packets in.
const ACCEPT: &str = "firewall accept";

/// The units that decide what manages the filter, or fill it.
fn units() -> impl Iterator<Item = Claim> {
    let names = ["firewalld", "ufw", "nftables", "iptables", "ip6tables", "netfilter-persistent"];
    names.into_iter().map(|name| Claim::new("unit", format!("{name}.service")))
}

#[cfg(test)]
mod tests;
