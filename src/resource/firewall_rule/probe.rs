//! What is asked of a host about its packet filters.

use super::chains::{Place, Table};
use super::firewalld::{self, Firewalld};
use super::ufw::{self, Ufw};
use super::{iptables, nftables};
use crate::resource::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// The group. It has one argument, the empty one.
#[derive(Debug)]
pub(super) struct Filters;

/// What filters packets on a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// Whether the kernel has IPv6.
    pub(super) v6: bool,
    /// ActiveState and UnitFileState of firewalld.service, nftables.service and ufw.service.
    units: BTreeMap<String, (String, String)>,
    /// What firewalld has, where it runs.
    pub(super) firewalld: Option<Firewalld>,
    /// What ufw has, where it is on.
    pub(super) ufw: Option<Ufw>,
    /// Whether there is an `nft`.
    pub(super) nft: bool,
    /// The tables that have a base chain for what comes in or goes out, of nftables and of each kind of iptables.
    pub(super) tables: Vec<Table>,
    /// Commands of iptables that couldn't read their table, and why.
    pub(super) failed: BTreeMap<String, String>,
}

impl Filters {
    pub(super) fn ask() -> Question {
        Question::of::<Filters>("")
    }
}

impl Found {
    /// Whether a unit runs now.
    pub(super) fn active(&self, unit: &str) -> bool {
        self.units.get(unit).is_some_and(|(active, _)| active == "active")
    }

    /// Whether a unit starts at boot.
    pub(super) fn enabled(&self, unit: &str) -> bool {
        self.units.get(unit).is_some_and(|(_, file)| file == "enabled")
    }

    /// The state of a unit that starts at boot and doesn't run.
    pub(super) fn starting(&self, unit: &str) -> Option<&str> {
        let (active, file) = self.units.get(unit)?;
        (file == "enabled" && active != "active").then_some(active.as_str())
    }

    /// Whether systemd knows of a unit that it doesn't start at boot.
    pub(super) fn disabled(&self, unit: &str) -> bool {
        self.units.get(unit).is_some_and(|(_, file)| !file.starts_with("enabled"))
    }

    /// Whether there is a command of iptables.
    pub(super) fn has(&self, command: &str) -> bool {
        self.failed.contains_key(command) || self.table(command).is_some()
    }

    /// The table `filter` of a command of iptables.
    pub(super) fn table(&self, command: &str) -> Option<&Table> {
        self.tables.iter().find(|t| matches!(&t.place, Place::Iptables(c) if c == command))
    }
}

impl Group for Filters {
    type Answer = Found;
    const NAME: &'static str = "packet filters";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(include_str!("probe.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Found, Trouble> {
    let text = output.text();
    let unread = |why: &str| Trouble::new(format!("the rules of this host can't be read: {why}"));
    if text.trim() == "not root" {
        return Err(unread("only root may read them").hint("`become: true` reads them as root"));
    }
    if output.code != 0 {
        return Err(unread(&output.complaint()));
    }
    let mut found = Found::default();
    let mut zones = BTreeMap::new();
    for section in format!("\n{text}").split("\n== ") {
        let (title, body) = section.split_once('\n').unwrap_or((section, ""));
        let failure = body.lines().find_map(|l| l.strip_prefix("failed: "));
        match title.split(' ').collect::<Vec<_>>().as_slice() {
            ["units"] => found.units = units(body),
            ["ufw"] => found.ufw = Some(ufw::read(body)),
            ["firewalld", part] => {
                if let Some(why) = failure {
                    return Err(unread(&format!("firewalld runs, and `firewall-cmd --list-all-zones` says: {why}"))
                        .hint("`journalctl -u firewalld` may tell why; `systemctl restart firewalld` starts it anew"));
                }
                zones.insert((*part).to_owned(), body.to_owned());
            }
            ["nft"] => {
                found.nft = true;
                match failure {
                    // A kernel without nf_tables has none of its rules.
                    Some(why) if why.contains("not supported") => {}
                    Some(why) => return Err(unread(&format!("nft: {why}"))),
                    None => {
                        for line in body.lines().filter(|l| l.starts_with('{')) {
                            let Some(tables) = nftables::read(line) else {
                                return Err(unread("what `nft -j` prints isn't understood"));
                            };
                            found.tables.extend(tables);
                        }
                    }
                }
            }
            [command, _] => match failure {
                Some(why) => _ = found.failed.insert((*command).to_owned(), why.to_owned()),
                None => found.tables.push(iptables::read(command, body)),
            },
            _ => found.v6 |= title == "ipv6" || body.trim() == "ipv6",
        }
    }
    let part = |name: &str| zones.get(name).map(String::as_str).unwrap_or_default();
    found.firewalld = (!zones.is_empty()).then(|| firewalld::read(part("default"), part("runtime"), part("permanent")));
    Ok(found)
}

fn units(text: &str) -> BTreeMap<String, (String, String)> {
    let mut units = BTreeMap::new();
    for block in text.split("\n\n") {
        let value = |key: &str| {
            block.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default().to_owned()
        };
        units.insert(value("Id"), (value("ActiveState"), value("UnitFileState")));
    }
    units
}
