//! `mtu`: the largest packet that an interface sends, now and at the next boot.
//!
//! What runs is set by `ip link set`. What is there at boot is changed in the files of the interface's owner, which is
//! never asked to apply them: that may drop addresses and routes, or the link.

mod boot;

use super::owner::{self, Boot, OWNERS, Owner, OwnerList};
use super::probes::links::{Link, LinkList, interface};
use super::probes::session::SessionEnds;
use super::{
    Answers, Change, Claim, FileDiff, Key, Need, Obstacle, Question, Reading, Resource, Risk, Spec, Stale, Step,
    Trouble, Undo,
};
use crate::error::Error;
use crate::shell::Script;

/// The resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Mtu {
    interface: String,
    mtu: u32,
    persist: bool,
    owner: Option<&'static dyn Owner>,
}

/// What is known of the interface.
#[derive(Debug)]
pub struct State {
    link: Link,
    below: Vec<Link>,
    above: Vec<Link>,
    /// The bond that it is a port of, which carries its own MTU down to it (linux, bond_change_mtu).
    bond: Option<String>,
    risk: Risk,
    /// What is there at boot; nothing where that is no matter of this resource.
    boot: Option<Result<Boot, Trouble>>,
}

impl Resource for Mtu {
    type State = State;
    const TYPE: &'static str = "mtu";
    const SUMMARY: &'static str = "The MTU of an interface, now and at boot";
    const TOUCHES: &'static str = "\
        The live value, by `ip link set`; for the next boot the one place where the interface's owner has it: \
        NetworkManager's profile, a file of netplay's own for netplan, a drop-in for networkd, a stanza of ifupdown, an \
        ifcfg file. Nothing is restarted or told to read it.";
    const LINK: bool = true;
    const KEYS: &'static [Key] = &[
        Key::required("interface", "string", "The interface: eth0, bond0, eth0.100."),
        Key::required("mtu", "integer", "Bytes of the largest packet, without the Ethernet header: 9000."),
        Key::default("persist", "boolean", "true", "Whether it is to be there after a boot too."),
        Key::default(
            "owner",
            "auto | networkmanager | netplan | networkd | ifupdown | ifcfg",
            "auto",
            "What configures the interface at boot, and is told the MTU. It is found out; given, it has to be that one, \
             or says which of two that both do.",
        ),
        Key::refused("state", "an interface always has an MTU; give the one it is to have"),
    ];
    const EXAMPLE: &'static str = "- name: jumbo frames\n  mtu: {interface: eth0, mtu: 9000}\n";

    fn parse(spec: &Spec<'_>) -> Result<Mtu, Error> {
        spec.need("mtu")?;
        let words: Vec<&'static str> = std::iter::once("auto").chain(OWNERS.iter().map(|o| o.name())).collect();
        Ok(Mtu {
            interface: interface(spec, "interface")?,
            // 68 is the least of IPv4 (RFC 791); no device of Linux takes more than loopback's 65536.
            mtu: spec.int("mtu", 68..=65536)?.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            persist: spec.bool("persist")?.unwrap_or(true),
            owner: spec.choice("owner", &words)?.and_then(owner::named),
        })
    }

    fn identity(&self) -> String {
        self.interface.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![claim(&self.interface)]
    }

    fn needs(&self, now: Option<&State>) -> Vec<Need> {
        let mut needs = Vec::new();
        if self.persist {
            needs.extend(self.sources());
        }
        let Some(now) = now else { return needs };
        let mut after = |links: &[Link]| needs.extend(links.iter().map(|l| Need::After(claim(&l.name))));
        if let Some(bond) = &now.bond {
            needs.push(Need::After(claim(bond)));
        } else if now.link.mtu < self.mtu && now.link.kind != "bond" {
            after(&now.below);
        } else if now.link.mtu > self.mtu {
            after(&now.above);
        }
        needs
    }

    fn stale_after(&self) -> Stale {
        if !self.persist {
            return Stale::Never;
        }
        let file = |need| match need {
            Need::After(claim) if claim.kind == "path" => Some(claim),
            _ => None,
        };
        Stale::Claims(self.sources().filter_map(file).collect())
    }

    fn probe(&self) -> Vec<Question> {
        let mut questions = vec![LinkList::ask(), SessionEnds::ask()];
        if self.persist {
            questions.push(OwnerList::ask_more());
            questions.extend(OWNERS.iter().flat_map(|o| o.questions(&self.interface)));
        }
        questions
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let links = answers.get::<LinkList>("")?;
        let Some(link) = links.get(&self.interface) else {
            return Ok(Reading::NotYet(links.missing(&self.interface)));
        };
        let bond = links.above(link).find(|l| l.kind == "bond" && link.master.as_ref() == Some(&l.name));
        let boot = match bond {
            None if self.persist => Some(self.boot(answers, links, link)),
            _ => None,
        };
        Ok(Reading::State(State {
            below: links.below(link).cloned().collect(),
            above: links.above(link).cloned().collect(),
            bond: bond.map(|b| b.name.clone()),
            risk: answers.get::<SessionEnds>("")?.risk(links, link),
            link: link.clone(),
            boot,
        }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let mut changes = Vec::new();
        if now.link.mtu != self.mtu {
            changes.push(Change::now("live", now.link.mtu, self.mtu));
        }
        if let Some(Ok(boot)) = &now.boot
            && !boot.right
        {
            changes.push(Change::now("boot", boot.now.clone(), self.mtu));
        }
        changes
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        if now.link.mtu != self.mtu {
            steps.push(Step::Run(self.live(now)));
        }
        if let Some(Ok(boot)) = &now.boot {
            steps.extend(boot.steps.iter().cloned());
        }
        steps
    }

    fn files(&self, now: &State) -> Vec<FileDiff> {
        now.boot.iter().flatten().flat_map(|boot| boot.files.clone()).collect()
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        let wanted = self.mtu;
        // A bond hands its MTU to its ports, so that it fails where one of them does.
        let ports = now.below.iter().filter(|_| now.link.kind == "bond");
        for link in std::iter::once(&now.link).chain(ports) {
            let limit = match (link.min_mtu, link.max_mtu) {
                (Some(min), _) if wanted < min => format!("the least that its driver takes is {min}"),
                (_, Some(max)) if wanted > max => format!("the most that its driver takes is {max}"),
                _ => continue,
            };
            let port =
                if link.name == now.link.name { String::new() } else { format!(", a port of {},", now.link.name) };
            let trouble = Trouble::new(format!("{}{port} can't have an MTU of {wanted}: {limit}", link.name));
            return Some(Obstacle::stops(trouble));
        }
        match &now.boot {
            // The session isn't put at risk for what will fail.
            Some(Err(trouble)) if matches!(self.risk(now), Risk::Link(_)) => Some(Obstacle::stops(trouble.clone())),
            Some(Err(trouble)) => Some(Obstacle::lasts(trouble.clone())),
            _ => None,
        }
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = Vec::new();
        let name = &now.link.name;
        if self.mtu < 1280 {
            warnings.push(format!(
                "below an MTU of 1280 the kernel switches IPv6 off on {name}, and its addresses don't come back with a larger one"
            ));
        }
        let differs = now.link.mtu != self.mtu;
        if let Some(bond) = now.bond.as_ref().filter(|_| differs) {
            warnings
                .push(format!("{name} is a port of {bond}, which carries its own MTU down to it: it isn't set here"));
        }
        let dragged = now.above.iter().filter(|l| l.lower.as_ref() == Some(name) && l.mtu > self.mtu);
        let dragged: Vec<&str> = dragged.map(|l| l.name.as_str()).collect();
        if differs && now.bond.is_none() && !dragged.is_empty() {
            let what = dragged.join(", ");
            warnings.push(format!("what stands on {name} can't be larger: the kernel lowers {what} with it"));
        }
        warnings.extend(now.boot.iter().flatten().flat_map(|b| b.warnings.clone()));
        warnings
    }

    fn live_only(&self) -> Option<&'static str> {
        Some("what configures an interface is only known where it runs")
    }

    fn undo(&self, now: &State) -> Option<Undo> {
        let boot = now.boot.iter().flatten();
        let mut undo = boot.fold(Undo::default(), |mut all, boot| {
            all.files.extend(boot.undo.files.iter().cloned());
            all.steps.extend(boot.undo.steps.iter().cloned());
            all
        });
        if now.link.mtu != self.mtu && now.bond.is_none() {
            // The kernel takes IPv6 away from what is too small for it, and doesn't give its addresses back.
            let lowered = std::iter::once(&now.link).chain(&now.above).filter(|l| l.mtu > self.mtu);
            if self.mtu < 1280 && lowered.flat_map(|l| &l.addresses).any(|a| a.contains(':') && !a.starts_with("fe80:"))
            {
                return None;
            }
            // What stands on it may have been lowered with it.
            for link in std::iter::once(&now.link).chain(&now.above) {
                let script = Script::new().set("i", &link.name).set("n", &link.mtu.to_string());
                undo.steps.push(script.line(r#"ip link set dev "$i" mtu "$n""#));
            }
        }
        Some(undo)
    }

    fn raises(&self, now: &State) -> Option<(String, u32)> {
        (now.link.mtu < self.mtu && now.bond.is_none()).then(|| (self.interface.clone(), self.mtu))
    }

    fn risk(&self, now: &State) -> Risk {
        if now.link.mtu == self.mtu || now.bond.is_some() { Risk::None } else { now.risk.clone() }
    }
}

fn claim(interface: &str) -> Claim {
    Claim::new("mtu", interface)
}

impl Mtu {
    /// What comes before it because its owner's configuration is in it.
    fn sources(&self) -> impl Iterator<Item = Need> {
        OWNERS.iter().flat_map(|owner| owner.sources(&self.interface))
    }

    /// The step that sets the live value.
    fn live(&self, now: &State) -> Script {
        let script = Script::new().set("i", &self.interface).set("n", &self.mtu.to_string());
        if let Some(bond) = &now.bond {
            return script.set("b", bond).line(
                r#"read -r m <"/sys/class/net/$i/mtu" && [ "$m" -eq "$n" ] ||
  { echo "$i is a port of $b, which carries its own MTU down to it: set the MTU of $b" >&2; exit 1; }"#,
            );
        }
        let small = now.below.iter().find(|l| now.link.lower.as_ref() == Some(&l.name) && l.mtu < self.mtu);
        let script = match small {
            Some(parent) => script.set("p", &parent.name).line(
                r#"read -r m <"/sys/class/net/$p/mtu" && [ "$m" -ge "$n" ] ||
  { echo "$i can't have a larger MTU than $p, on which it stands and which has $m: raise that too" >&2; exit 1; }"#,
            ),
            None => script,
        };
        script.line(r#"ip link set dev "$i" mtu "$n""#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Inquiry;
    use crate::resource::trial::Shell;

    const SETUP: &str = "ip link add v0 type veth peer name v1; ip link add mv0 link v1 type macvlan mode bridge
        ip link add br0 type bridge; ip link set v0 master br0\n";

    fn mtu(interface: &str, mtu: u32) -> Mtu {
        Mtu { interface: interface.to_owned(), mtu, persist: false, owner: None }
    }

    /// The state of an interface in a namespace that this text has set up.
    fn state(shell: Shell, setup: &str, resource: &Mtu) -> State {
        let inquiry = Inquiry::new(resource.probe());
        let ask = |f: &super::super::Fragment| Ok(shell.run_in_net(&(SETUP.to_owned() + setup), f.script.as_str()));
        let answers = inquiry.answers(inquiry.fragments().iter().map(ask).collect());
        match resource.read(&answers) {
            Ok(Reading::State(state)) => state,
            other => panic!("{shell:?}: {other:?}"),
        }
    }

    /// The live step, and what comes after it, run where this text has set up a namespace.
    fn apply(shell: Shell, setup: &str, resource: &Mtu, then: &str) -> super::super::Output {
        let now = state(shell, setup, resource);
        assert!(!resource.diff(&now).is_empty());
        let script = format!("( {} ) && {then}", resource.live(&now).as_str());
        shell.run_in_net(&(SETUP.to_owned() + setup), &script)
    }

    #[test]
    fn the_kernel_takes_it_or_says_why() {
        for shell in Shell::ALL {
            let show = "cat /sys/class/net/v1/mtu /sys/class/net/mv0/mtu";
            let done = apply(shell, "", &mtu("v1", 9000), show);
            assert_eq!((done.code, done.text().trim()), (0, "9000\n1500"), "{shell:?}: {}", done.complaint());
            // What stands on another one can't be larger than that is by then.
            let refused = apply(shell, "", &mtu("mv0", 9000), show);
            assert_eq!(refused.code, 1, "{shell:?}");
            assert!(refused.complaint().starts_with("mv0 can't have a larger MTU than v1"), "{}", refused.complaint());
            let now = state(shell, "", &mtu("mv0", 9000));
            let raised = format!("{}ip link set v1 mtu 9000", SETUP);
            let done = shell.run_in_net(&raised, &format!("{}{show}", mtu("mv0", 9000).live(&now).as_str()));
            assert_eq!((done.code, done.text().trim()), (0, "9000\n9000"), "{shell:?}: {}", done.complaint());
            // Lowered, it takes along what stands on it.
            let high = "ip link set v1 mtu 9000; ip link set mv0 mtu 9000";
            let done = apply(shell, high, &mtu("v1", 1500), show);
            assert_eq!(done.text().trim(), "1500\n1500", "{shell:?}");
            let refused = apply(shell, "", &mtu("v1", 70_000), "true");
            assert_ne!(refused.code, 0, "{shell:?}: the kernel's word is passed on");
            assert!(!refused.complaint().is_empty());
        }
    }

    #[test]
    fn any_name_that_the_kernel_takes() {
        for name in ["a$(id)`b`", "it's\"x\"", "back\\slash\\n", ";&|*?<x>!{}", "é=[x]"] {
            let setup = format!("ip link add {} type veth peer name peer", crate::shell::quote(name));
            for shell in Shell::ALL {
                let at = crate::source::Span::start(&crate::source::Source::new("t", ""));
                let keys = vec![
                    ("interface", crate::yaml::Node::string(&at, name)),
                    ("mtu", crate::yaml::Node::plain(&at, "9000")),
                ];
                let resource: Mtu = crate::resource::trial::parse_nodes(keys).unwrap();
                let now = state(shell, &setup, &resource);
                assert_eq!((now.link.name.as_str(), now.link.mtu), (name, 1500), "{shell:?}");
                let read = crate::shell::quote(&format!("/sys/class/net/{name}/mtu"));
                let done = apply(shell, &setup, &resource, &format!("cat {read}"));
                assert_eq!(done.text(), "9000\n", "{name} {shell:?}: {}", done.complaint());
            }
        }
    }

    #[test]
    fn limits_are_the_drivers() {
        let resource = mtu("v1", 70_000);
        let obstacle = resource.obstacle(&state(Shell::Dash, "", &resource)).unwrap();
        assert_eq!(obstacle.trouble.message, "v1 can't have an MTU of 70000: the most that its driver takes is 65535");
        assert_eq!(obstacle.weight, crate::resource::Weight::Stops, "nothing may be touched");
        // busybox' ip doesn't tell them.
        assert_eq!(resource.obstacle(&state(Shell::Busybox, "", &resource)), None);
    }

    #[test]
    fn a_port_of_a_bond_is_only_looked_at() {
        let now = |mtu: u32| State {
            link: Link { name: "v1".to_owned(), mtu, ..Link::default() },
            below: Vec::new(),
            above: Vec::new(),
            bond: Some("bond0".to_owned()),
            risk: Risk::Link("it carries it".to_owned()),
            boot: None,
        };
        let resource = mtu("v1", 9000);
        assert_eq!(resource.risk(&now(1500)), Risk::None);
        assert!(resource.diff(&now(9000)).is_empty());
        for shell in Shell::ALL {
            let script = resource.live(&now(1500));
            assert_eq!(shell.run_in_net(&format!("{SETUP}ip link set v1 mtu 9000"), script.as_str()).code, 0);
            let said = shell.run_in_net(SETUP, script.as_str());
            assert_eq!(said.code, 1);
            let wanted = "v1 is a port of bond0, which carries its own MTU down to it: set the MTU of bond0";
            assert_eq!(said.complaint(), wanted, "{shell:?}");
        }
    }
}
