//! The links of a host and their addresses, in one process: `ip -d -j addr`, which iproute2 prints as JSON since 4.13.
//! Where `ip` is busybox' or older, /sys/class/net says the same but for the limits of the MTU.

use crate::error::Error;
use crate::resource::{Fragment, Group, Output, Question, Spec, Trouble};
use crate::shell::Script;
use serde_json::Value;
use std::collections::BTreeMap;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub struct LinkList;

/// All links of a host, in the kernel's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// The links.
    pub all: Vec<Link>,
}

/// One network interface. Source: `ip -d -j addr`, or sysfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Further names of it (`ip link property`).
    pub altnames: Vec<String>,
    /// `bond`, `vlan`, `bridge`, `veth`…; of a device without a kind of its own what it carries: `ethernet`,
    /// `infiniband`, `loopback`.
    pub kind: String,
    /// The bond, bridge, team or VRF that it is a port of.
    pub master: Option<String>,
    /// The link that it stands on (a VLAN's parent).
    pub lower: Option<String>,
    /// Bytes.
    pub mtu: u32,
    /// The least MTU, in bytes, where it is known.
    pub min_mtu: Option<u32>,
    /// The greatest MTU, in bytes; nothing where there is no limit or it isn't known.
    pub max_mtu: Option<u32>,
    /// The operational state in lower case: `up`, `down`, `unknown`, `lowerlayerdown`.
    pub state: String,
    /// Whether there is a carrier; not known of a link that is switched off.
    pub carrier: Option<bool>,
    /// The hardware address.
    pub mac: Option<String>,
    /// The one that it was made with, where it has another now: that of the bond that it is a port of.
    pub permanent_mac: Option<String>,
    /// Addresses with their prefix lengths: `10.0.0.1/24`, `fe80::1/64`.
    pub addresses: Vec<String>,
}

impl LinkList {
    /// Asks for the links.
    pub fn ask() -> Question {
        Question::of::<LinkList>("")
    }
}

impl Links {
    /// The link of this name.
    pub fn get(&self, name: &str) -> Option<&Link> {
        self.all.iter().find(|l| l.name == name)
    }

    /// That there is no such link, with those that there are.
    pub fn missing(&self, name: &str) -> Trouble {
        let names: Vec<&str> = self.all.iter().map(|l| l.name.as_str()).collect();
        let trouble = Trouble::new(format!("this host has no interface {name}; it has {}", names.join(", ")));
        if let Some(link) = self.all.iter().find(|l| l.altnames.iter().any(|a| a == name)) {
            return trouble.hint(format!("{name} is another name of {}; give that", link.name));
        }
        // A port of another number is another port, and may be the one that carries the session.
        fn letters(name: &str) -> impl Iterator<Item = char> {
            name.chars().filter(|c| !c.is_ascii_digit())
        }
        let others = names.into_iter().filter(|other| !letters(other).eq(letters(name)));
        match crate::error::nearest(name, others) {
            Some(near) => trouble.hint(format!("is it {near}?")),
            None => trouble,
        }
    }

    /// The links right below this one: the ports of a bond or bridge, the parent of a VLAN.
    pub fn below<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = &'a Link> {
        self.all.iter().filter(move |l| {
            let port = l.master.as_ref() == Some(&link.name);
            port || (link.lower.as_ref() == Some(&l.name) && l.name != link.name)
        })
    }

    /// The links right above this one: its bond or bridge, the VLANs on it.
    pub fn above<'a>(&'a self, link: &'a Link) -> impl Iterator<Item = &'a Link> {
        self.all.iter().filter(move |l| {
            let master = link.master.as_ref() == Some(&l.name);
            master || (l.lower.as_ref() == Some(&link.name) && l.name != link.name)
        })
    }

    /// Whether one link carries what goes through another: it is that one, or lies below it at any depth.
    pub fn carries(&self, under: &Link, link: &Link) -> bool {
        let (mut seen, mut todo) = (vec![link.index], vec![link]);
        while let Some(at) = todo.pop() {
            if at.index == under.index {
                return true;
            }
            for next in self.below(at).filter(|l| !seen.contains(&l.index)).collect::<Vec<_>>() {
                seen.push(next.index);
                todo.push(next);
            }
        }
        false
    }
}

/// The name of an interface in a key: what the kernel takes as a name or alternative name.
///
/// # Errors
/// It is missing, or can't be one.
pub fn interface(spec: &Spec<'_>, key: &str) -> Result<String, Error> {
    let name = spec.need_text(key)?;
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.len() > 127 || name == "." || name == ".." || name.starts_with('-') || name.contains(odd) {
        let place = &spec.need(key)?.span;
        return Err(Error::playbook(place, format!("`{name}` can't be the name of an interface")));
    }
    Ok(name)
}

// The kernel's file names are no user's, but names of interfaces may hold anything except `/` and white space.
const ASK: &str = r#"ip -d -j addr 2>/dev/null && exit
cd /sys/class/net 2>/dev/null || { echo 'neither iproute2 nor /sys/class/net is there' >&2; exit 1; }
echo sysfs
grep -asH '' -- */ifindex */mtu */operstate */carrier */address */type */flags */uevent
for f in */lower_*; do [ ! -L "$f" ] || printf '%s\n' "${f%%/*}/lower:${f#*/lower_}"; done
for f in */master; do [ ! -L "$f" ] || { m=$(readlink -- "$f"); printf '%s\n' "${f%%/*}/master:${m##*/}"; }; done
echo addresses
ip -o addr
exit 0"#;

impl Group for LinkList {
    type Answer = Links;
    const NAME: &'static str = "links";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Links, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Links, Trouble> {
    if output.code != 0 {
        return Err(Trouble::new(format!("the links can't be listed: {}", output.complaint()))
            .hint("install iproute2 on the host (the package `iproute2`, or `iproute` of Red Hat's)"));
    }
    let text = output.text();
    match text.find("sysfs\n") {
        Some(at) if !text.starts_with('[') => Ok(from_sysfs(&text[at + 6..])),
        _ => from_json(&text),
    }
}

/// From what `ip -d -j addr` printed. It is read value by value, not into a struct: some versions print a key twice.
fn from_json(text: &str) -> Result<Links, Trouble> {
    let list: Vec<Value> = serde_json::from_str(text)
        .map_err(|e| Trouble::new(format!("`ip -d -j addr` didn't print JSON: {e}")).hint("a newer iproute2 may"))?;
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let number = |value: &Value, key: &str| value[key].as_u64().and_then(|n| u32::try_from(n).ok());
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let mut links = Links::default();
    // Versions before 5.0 print `{}` for what a filter hides.
    for it in list.iter().filter(|it| it["ifname"].is_string()) {
        let flags = texts(&it["flags"]);
        let flag = |name: &str| flags.iter().any(|f| f == name);
        let kind = text(&it["linkinfo"], "info_kind").unwrap_or_else(|| match it["link_type"].as_str() {
            Some("ether") | None => "ethernet".to_owned(),
            Some(other) => other.to_owned(),
        });
        let address = |a: &Value| Some(format!("{}/{}", a["local"].as_str()?, a["prefixlen"].as_u64()?));
        links.all.push(Link {
            index: number(it, "ifindex").unwrap_or_default(),
            name: text(it, "ifname").unwrap_or_default(),
            altnames: texts(&it["altnames"]),
            master: text(it, "master"),
            // A veth's `link` is its peer.
            lower: text(it, "link").filter(|_| kind != "veth"),
            mtu: number(it, "mtu").unwrap_or_default(),
            min_mtu: number(it, "min_mtu"),
            max_mtu: number(it, "max_mtu").filter(|&max| max > 0),
            state: text(it, "operstate").unwrap_or_default().to_lowercase(),
            carrier: flag("UP").then(|| flag("LOWER_UP")),
            mac: text(it, "address").filter(|_| kind != "loopback"),
            permanent_mac: text(it, "permaddr"),
            addresses: it["addr_info"].as_array().into_iter().flatten().filter_map(address).collect(),
            kind,
        });
    }
    Ok(links)
}

fn from_sysfs(text: &str) -> Links {
    let (attributes, addresses) = text.split_once("addresses\n").unwrap_or((text, ""));
    let mut by_name = BTreeMap::<&str, BTreeMap<&str, Vec<&str>>>::new();
    for line in attributes.lines() {
        let Some((name, (attribute, value))) = line.split_once('/').and_then(|(n, r)| Some((n, r.split_once(':')?)))
        else {
            continue;
        };
        by_name.entry(name).or_default().entry(attribute).or_default().push(value);
    }
    let mut links = Links::default();
    for (name, attributes) in &by_name {
        let all = |attribute: &str| attributes.get(attribute).map(Vec::as_slice).unwrap_or_default();
        let one = |attribute: &str| all(attribute).first().copied();
        let number = |attribute: &str| one(attribute).and_then(|v| v.trim().parse().ok());
        let Some(index) = number("ifindex") else { continue };
        let devtype = all("uevent").iter().find_map(|l| l.strip_prefix("DEVTYPE="));
        let kind = devtype.unwrap_or_else(|| match one("type") {
            Some("772") => "loopback",
            Some("32") => "infiniband",
            _ => "ethernet",
        });
        let up = one("flags").and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok());
        let stands_on = matches!(all("lower"), [_]) && !matches!(kind, "bond" | "bridge" | "team");
        links.all.push(Link {
            index,
            name: (*name).to_owned(),
            kind: kind.to_owned(),
            master: one("master").map(str::to_owned),
            lower: one("lower").filter(|_| stands_on).map(str::to_owned),
            mtu: number("mtu").unwrap_or_default(),
            state: one("operstate").unwrap_or_default().to_owned(),
            carrier: up.filter(|flags| flags & 1 == 1).map(|_| one("carrier") == Some("1")),
            mac: one("address").filter(|m| !m.is_empty() && kind != "loopback").map(str::to_owned),
            addresses: addresses_of(name, addresses),
            ..Link::default()
        });
    }
    // A team has no DEVTYPE; its ports say whose they are.
    let masters: Vec<String> = links.all.iter().filter_map(|l| l.master.clone()).collect();
    for link in links.all.iter_mut().filter(|l| masters.contains(&l.name)) {
        link.lower = None;
    }
    links.all.sort_by_key(|l| l.index);
    links
}

/// From lines of `ip -o addr`: `2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\ …`.
fn addresses_of(name: &str, lines: &str) -> Vec<String> {
    let address = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let of = words.next()?.split('@').next()?.trim_end_matches(':');
        let family = words.next()?;
        (of == name && family.starts_with("inet")).then(|| words.next().map(str::to_owned))?
    };
    lines.lines().filter_map(address).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    /// A host with a bond of two ports, a VLAN on it, and an InfiniBand card.
    pub(crate) const FABRIC: &str = r#"[
        {"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"operstate":"UNKNOWN",
         "link_type":"loopback","address":"00:00:00:00:00:00","min_mtu":0,"max_mtu":0,
         "addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
        {},
        {"ifindex":2,"ifname":"eth0","flags":["BROADCAST","SLAVE","UP","LOWER_UP"],"mtu":1500,"master":"bond0",
         "operstate":"UP","link_type":"ether","address":"b8:ce:f6:00:00:01","min_mtu":68,"max_mtu":9978,
         "linkinfo":{"info_slave_kind":"bond"},"altnames":["enp134s0f0np0"],"addr_info":[]},
        {"ifindex":3,"ifname":"eth1","flags":["NO-CARRIER","BROADCAST","SLAVE","UP"],"mtu":1500,"master":"bond0",
         "operstate":"DOWN","link_type":"ether","address":"b8:ce:f6:00:00:02","min_mtu":68,"max_mtu":9978,
         "linkinfo":{"info_slave_kind":"bond"},"addr_info":[]},
        {"ifindex":4,"ifname":"bond0","flags":["BROADCAST","MASTER","UP","LOWER_UP"],"mtu":1500,"operstate":"UP",
         "link_type":"ether","address":"b8:ce:f6:00:00:01","min_mtu":68,"max_mtu":65535,
         "linkinfo":{"info_kind":"bond"},"addr_info":[]},
        {"ifindex":5,"link":"bond0","ifname":"bond0.100","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,
         "operstate":"UP","link_type":"ether","address":"b8:ce:f6:00:00:01","min_mtu":0,"max_mtu":65535,
         "linkinfo":{"info_kind":"vlan"},"addr_info":[
           {"family":"inet","local":"10.0.0.5","prefixlen":16,"scope":"global"},
           {"family":"inet6","local":"fe80::b8ce","prefixlen":64,"scope":"link"}]},
        {"ifindex":6,"ifname":"ib0","flags":["BROADCAST"],"mtu":4092,"operstate":"DOWN","link_type":"infiniband",
         "address":"00:00:10:49","min_mtu":0,"max_mtu":0,"addr_info":[]}]"#;

    /// The links that a text of `ip -d -j addr` lists.
    pub(crate) fn links(json: &str) -> Links {
        from_json(json).unwrap()
    }

    #[test]
    fn json_is_read() {
        let links = links(FABRIC);
        assert_eq!(links.all.len(), 6);
        let get = |name: &str| links.get(name).unwrap();
        assert_eq!((get("eth0").max_mtu, get("lo").max_mtu, get("lo").min_mtu), (Some(9978), None, Some(0)));
        assert_eq!((get("eth0").carrier, get("eth1").carrier, get("ib0").carrier), (Some(true), Some(false), None));
        assert_eq!(get("bond0.100").addresses, ["10.0.0.5/16", "fe80::b8ce/64"]);
        assert_eq!((get("ib0").kind.as_str(), get("eth0").kind.as_str()), ("infiniband", "ethernet"));
        let names = |links: Vec<&Link>| links.iter().map(|l| l.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(links.below(get("bond0")).collect()), ["eth0", "eth1"]);
        assert_eq!(names(links.above(get("bond0")).collect()), ["bond0.100"]);
        assert_eq!(names(links.below(get("bond0.100")).collect()), ["bond0"]);
        assert!(links.carries(get("eth1"), get("bond0.100")) && !links.carries(get("bond0.100"), get("eth1")));
        let missing = links.missing("eth2");
        assert_eq!(missing.message, "this host has no interface eth2; it has lo, eth0, eth1, bond0, bond0.100, ib0");
        assert_eq!(missing.hint, None, "another port isn't a slip");
        assert_eq!(links.missing("bund0.10").hint.as_deref(), Some("is it bond0.100?"));
        let other = links.missing("enp134s0f0np0").hint.unwrap();
        assert_eq!(other, "enp134s0f0np0 is another name of eth0; give that");
    }

    #[test]
    fn what_is_no_json_is_told() {
        let output = Output { stdout: b"[{\"ifname\":\"eth0\",]".to_vec(), ..Output::default() };
        assert!(read(&output).unwrap_err().message.starts_with("`ip -d -j addr` didn't print JSON: "));
        let output = Output { code: 1, stderr: b"neither".to_vec(), ..Output::default() };
        assert!(read(&output).unwrap_err().hint.unwrap().contains("install iproute2"));
    }

    #[test]
    fn a_real_host_says_the_same_in_both_ways() {
        let setup = "ip link add v0 type veth peer name v1
            ip link add br0 type bridge; ip link set v0 master br0
            ip link add mv0 link v1 type macvlan mode bridge
            ip addr add 10.0.0.1/24 dev br0; ip link set v1 mtu 9000; ip link set mv0 mtu 4000
            ip link set v0 up; ip link set v1 up; ip link set br0 up";
        let script = LinkList::compose(&[""]).remove(0).script;
        let ask = |shell: Shell| {
            let output = shell.run_in_net(setup, script.as_str());
            LinkList::split(&[""], &[output]).remove(0).unwrap()
        };
        for shell in Shell::ALL {
            let links = ask(shell);
            let get = |name: &str| links.get(name).unwrap();
            assert_eq!(get("v0").master.as_deref(), Some("br0"), "{shell:?}");
            assert_eq!((get("v1").mtu, get("mv0").mtu, get("br0").mtu), (9000, 4000, 1500), "{shell:?}");
            assert_eq!(get("mv0").lower.as_deref(), Some("v1"), "{shell:?}");
            assert_eq!((&get("v0").lower, &get("v1").lower, &get("br0").lower), (&None, &None, &None), "{shell:?}");
            assert!(get("br0").addresses.contains(&"10.0.0.1/24".to_owned()), "{shell:?}");
            assert_eq!((get("br0").kind.as_str(), get("lo").kind.as_str()), ("bridge", "loopback"), "{shell:?}");
            assert_eq!(
                (get("v1").carrier, get("mv0").carrier, get("lo").carrier),
                (Some(true), None, None),
                "{shell:?}"
            );
            assert!(get("v1").state.chars().all(char::is_lowercase) && !get("v1").state.is_empty(), "{shell:?}");
            assert_eq!(get("v1").max_mtu.is_some(), shell != Shell::Busybox);
            assert_eq!(get("v1").mac.as_deref().map(str::len), Some(17));
        }
    }
}
