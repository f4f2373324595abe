//! firewalld: ports and rich rules of its zones, as it runs and as it keeps them.
//!
//! firewalld has no comments: a rule is known by what it says.

use super::FirewallRule;
use super::chains::{Fate, Look, Place, Verdict};
use super::cond::{Cond, Net, joined};
use super::netfilter::Work;
use super::probe::Found;
use crate::error::suggest;
use crate::resource::{Change, Risk, Trouble, Undo};
use crate::shell::Script;
use std::collections::{BTreeMap, BTreeSet};

/// What `--list-all-zones` says.
#[derive(Debug, Clone, Default)]
pub(super) struct Firewalld {
    /// The zone of interfaces that are in no other.
    pub(super) default: String,
    runtime: BTreeMap<String, Zone>,
    permanent: BTreeMap<String, Zone>,
}

#[derive(Debug, Clone, Default)]
struct Zone {
    target: String,
    interfaces: BTreeSet<String>,
    sources: bool,
    services: BTreeSet<String>,
    /// `4791/udp`
    ports: BTreeSet<String>,
    rich: BTreeSet<String>,
}

/// What a rule is in a zone.
struct Element {
    ports: Vec<String>,
    rich: Vec<String>,
}

pub(super) fn read(default: &str, runtime: &str, permanent: &str) -> Firewalld {
    Firewalld { default: default.trim().to_owned(), runtime: zones(runtime), permanent: zones(permanent) }
}

fn zones(text: &str) -> BTreeMap<String, Zone> {
    let mut zones = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        let head = line.split_whitespace().next().filter(|_| line.starts_with(|c: char| !c.is_whitespace()));
        if let Some(head) = head {
            name = head.to_owned();
            zones.insert(name.clone(), Zone::default());
            continue;
        }
        let Some(zone) = zones.get_mut(&name) else { continue };
        if line.starts_with('\t') {
            zone.rich.insert(line.trim().to_owned());
            continue;
        }
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let words = || value.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        match key {
            "target" => zone.target = value.trim().to_owned(),
            "interfaces" => zone.interfaces = words(),
            "sources" => zone.sources = !words().is_empty(),
            "services" => zone.services = words(),
            "ports" => zone.ports = words(),
            _ => {}
        }
    }
    zones
}

impl Zone {
    /// Whether it has all of an element.
    fn has(&self, element: &Element) -> bool {
        let open: Vec<(u16, u16, &str)> = self.ports.iter().filter_map(|p| port(p)).collect();
        let covered = |wanted: &String| {
            let Some((low, high, protocol)) = port(wanted) else { return false };
            let same = open.iter().filter(|(.., p)| *p == protocol).map(|(low, high, _)| (*low, *high)).collect();
            joined(same).iter().any(|(from, to)| *from <= low && high <= *to)
        };
        element.ports.iter().all(covered) && element.rich.iter().all(|r| self.rich.contains(r))
    }

    /// Whether it has some of it.
    fn touches(&self, element: &Element) -> bool {
        let meets = |wanted: &String| {
            let Some((low, high, protocol)) = port(wanted) else { return false };
            self.ports.iter().filter_map(|p| port(p)).any(|(l, h, p)| p == protocol && l <= high && low <= h)
        };
        element.ports.iter().any(meets) || element.rich.iter().any(|r| self.rich.contains(r))
    }
}

fn port(text: &str) -> Option<(u16, u16, &str)> {
    let (ports, protocol) = text.split_once('/')?;
    let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
    Some((low.parse().ok()?, high.parse().ok()?, protocol))
}

impl FirewallRule {
    /// What is to be done so that firewalld has the rule.
    ///
    /// # Errors
    /// Why it can't be.
    pub(super) fn firewalld(&self, found: &Found, firewalld: &Firewalld) -> Result<Work, Trouble> {
        if self.out {
            return Err(Trouble::new("the zones of firewalld have no rules of what goes out")
                .hint("a policy from HOST to a zone has (`firewall-cmd --new-policy`); it is yours to make"));
        }
        let families = self.families(found)?;
        let element = self.element()?;
        let zones = self.zones(firewalld)?;
        let mut work = Work::after(found);
        let mut script = Script::new().line("bad=");
        let mut undo = Undo::default();
        let kinds = [("", "", &firewalld.runtime), (" (permanent)", "--permanent", &firewalld.permanent)];
        for (name, (words, option, all)) in zones
            .iter()
            .flat_map(|z| kinds.iter().map(move |k| (z, *k)))
            .filter(|(_, k)| k.1.is_empty() || self.persist)
        {
            let none = Zone::default();
            let zone = all.get(name).unwrap_or(&none);
            let (from, to) = match self.present {
                true if !zone.has(&element) => (serde_json::Value::Null, self.described().into()),
                false if zone.touches(&element) => (self.described().into(), serde_json::Value::Null),
                _ => continue,
            };
            work.changes.push(Change::now(format!("zone {name}{words}"), from, to));
            let verb = if self.present { "add" } else { "remove" };
            let call = |verb: &str, ports: &[&String], rich: &[&String]| -> Vec<String> {
                let items = ports.iter().map(|p| format!("--{verb}-port={p}"));
                let items = items.chain(rich.iter().map(|r| format!("--{verb}-rich-rule={r}")));
                let call = ["firewall-cmd", option].into_iter().filter(|word| !word.is_empty()).map(str::to_owned);
                call.chain([format!("--zone={name}")]).chain(items).collect()
            };
            let (ports, rich): (Vec<&String>, Vec<&String>) =
                (element.ports.iter().collect(), element.rich.iter().collect());
            script = script.args(call(verb, &ports, &rich)).line("\"$@\" || bad=1");
            // What was there before stays, and what wasn't doesn't come.
            let moved = |there: bool| there != self.present;
            let ports: Vec<&String> = ports.into_iter().filter(|p| moved(zone.ports.contains(*p))).collect();
            let rich: Vec<&String> = rich.into_iter().filter(|r| moved(zone.rich.contains(*r))).collect();
            if !ports.is_empty() || !rich.is_empty() {
                let verb = if self.present { "remove" } else { "add" };
                undo.steps.push(Script::new().command(call(verb, &ports, &rich)));
            }
            if !option.is_empty() {
                // What it was before is kept beside it.
                undo.files.extend(["", ".old"].map(|end| format!("/etc/firewalld/zones/{name}.xml{end}")));
            }
        }
        work.undo = Some(undo);
        work.live = (!work.changes.is_empty()).then(|| script.line("[ -z \"$bad\" ]"));
        if self.present {
            work.lacking = self.others(found, |t| t.place == own(), "firewalld").or_else(|| {
                let settled = work.changes.is_empty() && self.verdict == Verdict::Accept;
                zones.iter().filter(|_| settled).find_map(|zone| self.dropped(found, firewalld, zone, &families))
            });
            if found.disabled("firewalld.service") {
                work.lacking.get_or_insert(
                    Trouble::new("firewalld.service isn't enabled, so that none of its rules are there after a boot")
                        .hint("`service: {name: firewalld, enabled: true}`"),
                );
            }
        }
        Ok(work)
    }

    /// The rule in firewalld's own words: a port of the zone where that says it all, or else rich rules.
    fn element(&self) -> Result<Element, Trouble> {
        let cond = &self.cond;
        let range = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("{low}-{high}") };
        let addressed = !cond.sources.is_empty() || !cond.destinations.is_empty();
        let plain = self.verdict == Verdict::Accept && !addressed && cond.v6.is_none();
        if plain && !cond.ports.is_empty() {
            let pairs = cond.protocols.iter().flat_map(|protocol| cond.ports.iter().map(move |p| (p, protocol)));
            let ports = pairs.map(|(ports, protocol)| format!("{}/{protocol}", range(ports))).collect();
            return Ok(Element { ports, rich: Vec::new() });
        }
        let mut head = "rule".to_owned();
        if let Some(v6) = cond.v6 {
            head += if v6 { " family=\"ipv6\"" } else { " family=\"ipv4\"" };
        }
        for (key, nets) in [("source", &cond.sources), ("destination", &cond.destinations)] {
            nets.iter().for_each(|net: &Net| head += &format!(" {key} address=\"{net}\""));
        }
        let verdict = match self.verdict {
            Verdict::Accept => "accept",
            Verdict::Drop => "drop",
            _ => "reject",
        };
        let mut rich = Vec::new();
        for protocol in &cond.protocols {
            let ports = cond.ports.iter().map(|p| format!("port port=\"{}\" protocol=\"{protocol}\"", range(p)));
            let alone = cond.ports.is_empty().then(|| format!("protocol value=\"{protocol}\""));
            rich.extend(ports.chain(alone).map(|what| format!("{head} {what} {verdict}")));
        }
        if cond.protocols.is_empty() && addressed {
            rich.push(format!("{head} {verdict}"));
        } else if cond.protocols.is_empty() {
            let message = "a rule of firewalld needs a protocol or an address";
            let hint = if self.present {
                "what becomes of all packets of a zone is its target: `firewall-cmd --permanent --set-target`"
            } else {
                "firewalld's rules have no names: say what the rule says, with `state: absent`"
            };
            return Err(Trouble::new(message).hint(hint));
        }
        Ok(Element { ports: Vec::new(), rich })
    }

    /// The zones that the rule belongs to.
    fn zones(&self, firewalld: &Firewalld) -> Result<Vec<String>, Trouble> {
        let all = &firewalld.runtime;
        if let Some(zone) = &self.zone {
            let names: Vec<&str> = all.keys().map(String::as_str).collect();
            return match all.contains_key(zone) {
                true => Ok(vec![zone.clone()]),
                false => Err(Trouble::new(format!("firewalld has no zone {zone}")).hint(suggest(zone, &names))),
            };
        }
        if let Some(interface) = self.cond.inputs.first() {
            let of = all.iter().find(|(_, zone)| zone.interfaces.contains(interface));
            let alone =
                of.filter(|(name, zone)| **name != firewalld.default && zone.interfaces.len() == 1 && !zone.sources);
            return alone.map(|(name, _)| vec![name.clone()]).ok_or_else(|| {
                let zone = of.map_or(&firewalld.default, |(name, _)| name);
                Trouble::new(format!(
                    "zone {zone} isn't {interface}'s alone, and firewalld's rules are those of a zone"
                ))
                .hint(format!("give {interface} a zone of its own, or write `zone: {zone}` in place of `interface`"))
            });
        }
        let used = |(name, zone): &(&String, &Zone)| {
            **name == firewalld.default || !zone.interfaces.is_empty() || zone.sources
        };
        let open = |zone: &Zone| self.present && self.verdict == Verdict::Accept && zone.target == "ACCEPT";
        Ok(all.iter().filter(used).filter(|(_, zone)| !open(zone)).map(|(name, _)| name.clone()).collect())
    }

    /// What would drop the rule's packets in a zone that has it: a rich rule that drops comes first.
    fn dropped(&self, found: &Found, firewalld: &Firewalld, zone: &str, families: &[bool]) -> Option<Trouble> {
        let table = found.tables.iter().find(|t| t.place == own())?;
        let by = firewalld.runtime.get(zone).and_then(|z| z.interfaces.first().cloned());
        // Of the default zone, whose interfaces aren't all named, any other will do.
        let input = by.or_else(|| (zone == firewalld.default).then(|| "-".to_owned()))?;
        // Each range of ports is a rule of its own.
        let each = self.cond.ports.iter().map(|p| vec![*p]).chain(self.cond.ports.is_empty().then(Vec::new));
        let conds = each.map(|ports| Cond { ports, inputs: [input.clone()].into(), ..self.cond.clone() });
        conds.flat_map(|cond| families.iter().map(move |v6| cond.within(*v6))).find_map(|cond| {
            let look = Look { cond: &cond, comment: "", with: true, accepts: true };
            let (base, _) = table.bases("input").find(|(base, _)| table.fate(base, look) == Fate::Dropped)?;
            let message = format!("zone {zone} has the rule, and {} drops its packets before", table.place.name(base));
            Some(
                Trouble::new(message).hint(
                    "a rich rule that drops or rejects comes before those that accept: `firewall-cmd --list-all`",
                ),
            )
        })
    }

    /// Whether the session may be closed by what is to be done: what lets it in elsewhere in its zone isn't looked at, but
    /// for firewalld's service of ssh.
    pub(super) fn firewalld_closes(&self, firewalld: &Firewalld, work: &Work, packet: &Cond, why: String) -> Risk {
        let meets = !work.changes.is_empty() && self.cond.fit(packet) != super::cond::Fit::Apart;
        let zone = packet.inputs.first().and_then(|i| firewalld.runtime.iter().find(|(_, z)| z.interfaces.contains(i)));
        let (name, zone) = match zone {
            Some((name, zone)) => (name, Some(zone)),
            None => (&firewalld.default, firewalld.runtime.get(&firewalld.default)),
        };
        let here = self.zones(firewalld).is_ok_and(|zones| zones.contains(name));
        let by_service = packet.ports == [(22, 22)] && zone.is_some_and(|z| z.services.contains("ssh"));
        let open = by_service || zone.is_some_and(|z| z.target == "ACCEPT");
        let closes = match (self.present, &self.verdict) {
            (true, Verdict::Accept) => false,
            (true, _) => true,
            (false, Verdict::Accept) => !open,
            (false, _) => false,
        };
        if meets && here && closes { Risk::Link(why) } else { Risk::None }
    }
}

fn own() -> Place {
    Place::Nft("inet".to_owned(), "firewalld".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As firewalld 1.3.3 printed it; newer ones write `public (default, active)`.
    const ZONES: &str = "\
internal (active)
  target: default
  interfaces: eth1
  sources: 
  services: dhcpv6-client ssh
  ports: 
  rich rules: 

public (default, active)
  target: ACCEPT
  interfaces: eth0 eth2
  sources: 
  services: 
  ports: 18515-18540/tcp 4791/udp
  rich rules: 
\trule family=\"ipv4\" source address=\"10.0.0.0/8\" drop
\trule priority=\"-100\" protocol value=\"icmp\" accept
";

    #[test]
    fn zones_are_read() {
        let zones = zones(ZONES);
        assert_eq!(zones.keys().collect::<Vec<_>>(), ["internal", "public"]);
        let public = &zones["public"];
        assert_eq!((public.target.as_str(), public.interfaces.len(), public.rich.len()), ("ACCEPT", 2, 2));
        let element = |ports: &[&str], rich: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|t| (*t).to_owned()).collect();
            Element { ports: texts(ports), rich: texts(rich) }
        };
        assert!(public.has(&element(&["18520/tcp", "18515-18530/tcp"], &[])), "a part of a range is open, too");
        assert!(!public.has(&element(&["18520/udp"], &[])) && !public.has(&element(&["18530-18550/tcp"], &[])));
        assert!(public.touches(&element(&["18530-18550/tcp"], &[])) && !public.touches(&element(&["1/tcp"], &[])));
        let rich = "rule family=\"ipv4\" source address=\"10.0.0.0/8\" drop";
        assert!(public.has(&element(&[], &[rich])) && !zones["internal"].touches(&element(&[], &[rich])));
    }

    #[test]
    fn a_rule_is_a_port_where_that_says_it_all() {
        let of = |keys: &[(&'static str, &str)]| {
            let rule: FirewallRule = crate::resource::trial::parse(&[&[("name", "x")], keys].concat()).unwrap();
            rule.element().map(|e| e.ports.into_iter().chain(e.rich).collect::<Vec<_>>()).map_err(|t| t.message)
        };
        assert_eq!(of(&[("protocol", "tcp"), ("port", "18515-18530")]).unwrap(), ["18515-18530/tcp"]);
        assert_eq!(
            of(&[("protocol", "udp"), ("port", "4791"), ("family", "ipv6")]).unwrap(),
            ["rule family=\"ipv6\" port port=\"4791\" protocol=\"udp\" accept"]
        );
        assert_eq!(
            of(&[("action", "drop"), ("source", "10.0.0.0/8"), ("destination", "10.1.0.0/16")]).unwrap(),
            ["rule family=\"ipv4\" source address=\"10.0.0.0/8\" destination address=\"10.1.0.0/16\" drop"]
        );
        assert_eq!(
            of(&[("protocol", "icmp")]).unwrap(),
            ["rule protocol value=\"icmp\" accept", "rule protocol value=\"ipv6-icmp\" accept"]
        );
        assert_eq!(of(&[]), Err("a rule of firewalld needs a protocol or an address".to_owned()));
    }

    /// What was seen of firewall-cmd 1.3.3 and ufw 0.36.2. Their exit codes aren't relied on: both succeed where they
    /// change nothing, so that what they have is read before and after.
    #[test]
    fn what_was_seen_says_why_nothing_is_asked_by_exit_code() {
        let seen = include_str!("samples/firewalld_ufw.txt");
        for line in ["--add-port=4791/udp twice", "--remove-port absent", "ufw status (inactive)"] {
            let line = seen.lines().find(|l| l.starts_with(line)).unwrap();
            assert!(line.contains("rc=0"), "{line}");
        }
        assert!(seen.contains("INVALID_ZONE rc=112"), "an unknown zone is told before anything is asked of it");
        let failed = "Error: DBUS_ERROR: Failed to connect to socket ...";
        let output = crate::resource::Output {
            stdout: format!("== firewalld runtime\nfailed: {failed}\n").into_bytes(),
            ..Default::default()
        };
        let why = <super::super::probe::Filters as crate::resource::Group>::split(&[""], &[output]).remove(0);
        assert!(seen.contains("DBUS_ERROR") && why.unwrap_err().message.contains(failed));
    }
}
