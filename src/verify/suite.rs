//! The checks of a suite, as they are written: `- path_mtu: {interface: eth1, mtu: 9000}`.

use crate::error::{Error, suggest};
use crate::resource::spec::{self, Key};
use crate::yaml::Node;

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// RDMA ports and links are up, as fast as the card and its peers, with full PCIe.
    Ports,
    /// Packets of full size pass.
    PathMtu(PathMtu),
}

/// `path_mtu`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// The interfaces, or those of the fabric where none is named.
    pub interfaces: Vec<String>,
    /// Bytes; nothing for what most interfaces of the rail have.
    pub mtu: Option<u32>,
}

/// What is known of a check beside its values.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one or two sentences.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    read: fn(&Node) -> Result<Check, Error>,
}

const INTERFACE: Key = Key::optional(
    "interface",
    "string, or a list",
    "Which interfaces, by their names. Not given, those of the fabric: with an RDMA device, or else all with an address but the \
     one that carries the session.",
);

/// All checks, in the order of their names.
pub const CHECKS: &[Kind] = &[
    Kind {
        name: "path_mtu",
        doc: "Packets of full size pass unfragmented between hosts, in both directions, on each rail.",
        keys: &[
            INTERFACE,
            Key::optional(
                "mtu",
                "bytes",
                "The size of a packet with the headers of IP. Not given, the MTU that most interfaces of the rail have.",
            ),
        ],
        read: |body| {
            let mtu = get(body, "mtu").map(|n| spec::int("mtu", n, 576..=65_535)).transpose()?;
            Ok(Check::PathMtu(PathMtu { interfaces: interfaces(body)?, mtu: mtu.and_then(|n| u32::try_from(n).ok()) }))
        },
    },
    Kind {
        name: "ports",
        doc: "RDMA ports are ACTIVE and LINK_UP, interfaces of the fabric have a carrier, link layer and speed are those of the same \
              port on most hosts, and cards have all the PCIe lanes and the speed that they can.",
        keys: &[],
        read: |_| Ok(Check::Ports),
    },
];

impl Check {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Check::Ports => "ports",
            Check::PathMtu(_) => "path_mtu",
        }
    }

    /// The interfaces that it names.
    pub fn interfaces(&self) -> &[String] {
        match self {
            Check::Ports => &[],
            Check::PathMtu(check) => &check.interfaces,
        }
    }
}

fn get<'n>(body: &'n Node, key: &str) -> Option<&'n Node> {
    body.get(key).filter(|n| !n.is_null())
}

fn interfaces(body: &Node) -> Result<Vec<String>, Error> {
    let Some(node) = get(body, "interface") else { return Ok(Vec::new()) };
    let one = |node: &Node| {
        let name = spec::text("interface", node)?;
        match name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace()) || name.starts_with('-') {
            true => Err(Error::playbook(&node.span, format!("`{name}` can't be the name of an interface"))),
            false => Ok(name),
        }
    };
    node.as_seq().map_or_else(|| Ok(vec![one(node)?]), |items| items.iter().map(one).collect())
}

/// The kind and the body of an entry; a body that is null has no keys.
fn entry(node: &Node) -> Result<(&'static Kind, Option<&Node>), Error> {
    let names: Vec<&str> = CHECKS.iter().map(|kind| kind.name).collect();
    let write = format!("write `- path_mtu: {{mtu: 9000}}`; checks: {}", names.join(", "));
    // `- ports`, without a colon, means nothing else.
    let (name, place, body) = match (node.as_map(), node.text().filter(|_| !node.is_null())) {
        (Some([(key, body)]), _) => (key.text().unwrap_or_default(), key, Some(body)),
        (Some([_, (second, _), ..]), _) => {
            let message = "a check has one key, which names it";
            return Err(Error::playbook(&second.span, message).hint("begin the next one with `- `"));
        }
        (None, Some(text)) => (text, node, None),
        _ => {
            return Err(
                Error::playbook(&node.span, format!("a check is a mapping, not {}", node.describe())).hint(write)
            );
        }
    };
    match CHECKS.iter().find(|kind| kind.name == name) {
        Some(kind) => Ok((kind, body.filter(|n| !n.is_null()))),
        None => Err(Error::playbook(&place.span, format!("there is no check `{name}`")).hint(suggest(name, &names))),
    }
}

/// What is wrong in the keys of an entry, before anything is rendered.
pub fn wrong(node: &Node) -> Vec<Error> {
    match entry(node) {
        Ok((kind, Some(body))) => spec::check(&format!("`{}`", kind.name), body, kind.keys),
        Ok((_, None)) => Vec::new(),
        Err(error) => vec![error],
    }
}

/// Reads a rendered entry.
///
/// # Errors
/// What is wrong in it.
pub fn read(node: &Node) -> Result<Check, Error> {
    let (kind, body) = entry(node)?;
    match wrong(node).into_iter().next() {
        Some(error) => Err(error),
        None => (kind.read)(body.unwrap_or(node)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind as ErrorKind;
    use crate::source::Source;

    fn parse(text: &str) -> Result<Check, String> {
        let node = crate::yaml::load_one(&Source::new("t.yaml", text), ErrorKind::Playbook).unwrap().unwrap();
        read(&node).map_err(|e| e.to_string())
    }

    #[test]
    fn names_are_in_order() {
        assert!(CHECKS.is_sorted_by(|a, b| a.name < b.name));
        for kind in CHECKS {
            assert_eq!(parse(kind.name).unwrap().name(), kind.name);
        }
    }

    #[test]
    fn checks_are_read() {
        for text in ["ports", "ports:", "ports: {}"] {
            assert_eq!(parse(text), Ok(Check::Ports), "{text}");
        }
        let check = |interfaces: &[&str], mtu| {
            Ok(Check::PathMtu(PathMtu { interfaces: interfaces.iter().map(|i| (*i).to_owned()).collect(), mtu }))
        };
        assert_eq!(parse("path_mtu: {interface: eth1, mtu: 9000}"), check(&["eth1"], Some(9000)));
        assert_eq!(parse("path_mtu: {interface: [eth1, eth2], mtu: '9000'}"), check(&["eth1", "eth2"], Some(9000)));
        assert_eq!(parse("path_mtu"), check(&[], None));
    }

    #[test]
    fn slips_are_told_with_their_place() {
        for (text, place, told) in [
            ("path_mut: {}", "1:1", "there is no check `path_mut`"),
            ("path_mtu: {mtu: 90}", "1:17", "`mtu` must be from 576 to 65535, not `90`"),
            ("path_mtu: {mtu: big}", "1:17", "`mtu` takes an integer, not `big`"),
            ("path_mtu: {nic: eth1}", "1:12", "unknown key `nic` in `path_mtu`"),
            ("path_mtu: {interface: -I}", "1:23", "`-I` can't be the name of an interface"),
            ("path_mtu: 9000", "1:11", "`path_mtu` takes a mapping of keys, not"),
            ("ports: {}\npath_mtu: {}", "2:1", "a check has one key, which names it"),
            ("[ports]", "1:1", "a check is a mapping, not a list"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(told) && error.contains(&format!("t.yaml:{place}\n")), "{text}: {error}");
        }
        assert!(parse("path_mut: {}").unwrap_err().contains("path_mtu"), "the nearest name");
    }
}
