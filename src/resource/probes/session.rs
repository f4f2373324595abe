//! Which interface carries the SSH session: the batch's `$SESSION` holds sshd's `SSH_CONNECTION`, the client's address
//! and port and the server's (sshd(8)), and is empty where there is no SSH.

use super::links::{Link, Links};
use crate::resource::{Fragment, Group, Output, Question, Risk, Trouble};
use crate::shell::Script;
use std::net::IpAddr;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub struct SessionEnds;

/// How the host is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Session {
    /// Without SSH.
    Local,
    /// To this address of the host, a zone (`%eth0`) apart.
    Ssh {
        /// The address, an IPv4 one not in its IPv6 form.
        address: IpAddr,
        /// The name or index of the interface of a link-local address.
        zone: Option<String>,
        /// The port that it comes to.
        port: u16,
        /// Address and port of the other end, as the host sees it.
        client: Option<(IpAddr, u16)>,
    },
}

impl SessionEnds {
    /// Asks for the session.
    pub fn ask() -> Question {
        Question::of::<SessionEnds>("")
    }
}

impl Session {
    /// The interface that has the address of the session.
    pub fn interface<'a>(&self, links: &'a Links) -> Option<&'a Link> {
        let Session::Ssh { address, zone, .. } = self else { return None };
        let zoned =
            zone.as_ref().and_then(|z| links.get(z).or_else(|| links.all.iter().find(|l| l.index.to_string() == *z)));
        let has = |link: &&Link| {
            let of = |a: &String| a.split('/').next().and_then(plain).is_some_and(|(a, _)| a == *address);
            link.addresses.iter().any(of)
        };
        zoned.or_else(|| links.all.iter().find(has))
    }

    /// Whether a change of this link may cut the session off: it carries the session, or what carries it can't be told.
    pub fn risk(&self, links: &Links, link: &Link) -> Risk {
        let Session::Ssh { address, .. } = self else { return Risk::None };
        match self.interface(links) {
            Some(_) if address.is_loopback() => {
                Risk::Link(format!("it comes to {address} by a relay on the host, which may go through {}", link.name))
            }
            Some(over) if over.index == link.index => Risk::Link(format!("{} carries it", link.name)),
            Some(over) if links.carries(link, over) => {
                Risk::Link(format!("{} carries {}, which carries it", link.name, over.name))
            }
            Some(_) => Risk::None,
            None => Risk::Link(format!("no interface has its address {address}, so {} may carry it", link.name)),
        }
    }
}

/// An address without its zone, an IPv4 one in IPv6 form (`::ffff:10.0.0.1`) as what it is.
fn plain(text: &str) -> Option<(IpAddr, Option<String>)> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.to_owned())),
        None => (text, None),
    };
    Some((address.parse::<IpAddr>().ok()?.to_canonical(), zone))
}

impl Group for SessionEnds {
    type Answer = Session;
    const NAME: &'static str = "session";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(r#"printf '%s\n' "$SESSION""#).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Session, Trouble>> {
        let read = |output: &Output| match *output.text().split_whitespace().collect::<Vec<_>>() {
            [] => Ok(Session::Local),
            [client, from, server, to] if plain(server).is_some() => {
                let client = plain(client).and_then(|(address, _)| Some((address, from.parse().ok()?)));
                let port = to.parse().unwrap_or(22);
                Ok(plain(server).map_or(Session::Local, |(address, zone)| Session::Ssh { address, zone, port, client }))
            }
            _ => Err(Trouble::new(format!("sshd's SSH_CONNECTION can't be understood: {}", output.text().trim()))),
        };
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::probes::links::tests::{FABRIC, links};

    fn session(connection: &str) -> Result<Session, Trouble> {
        SessionEnds::split(&[""], &[Output { stdout: connection.into(), ..Output::default() }]).remove(0)
    }

    #[test]
    fn what_carries_the_session_is_found() {
        let links = links(FABRIC);
        let over = |connection: &str| session(connection).unwrap().interface(&links).map(|l| l.name.clone());
        assert_eq!(over("\n"), None);
        assert_eq!(over("10.0.0.1 50412 10.0.0.5 22\n").as_deref(), Some("bond0.100"));
        assert_eq!(over("::ffff:10.0.0.1 50412 ::ffff:10.0.0.5 22").as_deref(), Some("bond0.100"));
        assert_eq!(over("fe80::1%eth1 50412 fe80::9%eth1 22").as_deref(), Some("eth1"));
        assert_eq!(over("fe80::1%2 50412 fe80::9%2 22").as_deref(), Some("eth0"));
        assert_eq!(over("192.0.2.1 50412 192.0.2.2 22"), None);
        assert!(session("what is this").unwrap_err().message.contains("SSH_CONNECTION"));
    }

    #[test]
    fn what_lies_under_it_is_at_risk() {
        let links = links(FABRIC);
        let risk =
            |connection: &str, name: &str| match session(connection).unwrap().risk(&links, links.get(name).unwrap()) {
                Risk::None | Risk::Beside => String::new(),
                Risk::Link(why) => why,
            };
        let vlan = "10.0.0.1 50412 10.0.0.5 22";
        assert_eq!(risk("", "bond0.100"), "");
        assert_eq!(risk(vlan, "ib0"), "");
        assert_eq!(risk(vlan, "bond0.100"), "bond0.100 carries it");
        assert_eq!(risk(vlan, "eth1"), "eth1 carries bond0.100, which carries it");
        assert!(risk("10.9.9.9 1 10.9.9.8 22", "ib0").starts_with("no interface has its address 10.9.9.8"));
        assert!(risk("127.0.0.1 1 127.0.0.1 22", "ib0").contains("relay on the host"));
    }
}
