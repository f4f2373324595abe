//! Who owns an interface's configuration: what sets it up at boot. There is one owner, and nothing else is written.
//!
//! The first that answers for an interface, in this order: NetworkManager if it manages it, by `nmcli device`
//! (nmcli(1)), of a profile that netplan generates netplan; networkd if it has applied a `.network` file, by what it
//! keeps in /run/systemd/netif/links, of a file that netplan generates netplan; ifupdown if interfaces(5) has a stanza
//! for it; the network-scripts of Red Hat's if it has an ifcfg file and they are installed.

pub mod assignments;
pub mod networkd;

use super::probes::links::Link;
use super::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use std::collections::HashMap;
use std::fmt;

/// Where the scripts of Red Hat's look for an interface's file.
pub const NETWORK_SCRIPTS: &str = "/etc/sysconfig/network-scripts";
/// Where wicked (SUSE) looks for it.
const WICKED: &str = "/etc/sysconfig/network";

/// What configures interfaces at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// NetworkManager.
    NetworkManager,
    /// netplan, whichever of the two it generates files for.
    Netplan,
    /// systemd-networkd.
    Networkd,
    /// ifupdown (Debian's /etc/network/interfaces).
    Ifupdown,
    /// Red Hat's network-scripts with their ifcfg files.
    Ifcfg,
}

impl Owner {
    /// All of them, as keys and facts name them.
    pub const NAMES: &[&str] = &["networkmanager", "netplan", "networkd", "ifupdown", "ifcfg"];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Owner> {
        use Owner::*;
        [NetworkManager, Netplan, Networkd, Ifupdown, Ifcfg].into_iter().find(|o| o.name() == name)
    }

    /// Its name in keys and facts.
    pub fn name(self) -> &'static str {
        match self {
            Owner::NetworkManager => "networkmanager",
            Owner::Netplan => "netplan",
            Owner::Networkd => "networkd",
            Owner::Ifupdown => "ifupdown",
            Owner::Ifcfg => "ifcfg",
        }
    }
}

/// As its makers write it.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Owner::NetworkManager => "NetworkManager",
            Owner::Ifcfg => "network-scripts",
            other => other.name(),
        })
    }
}

/// The owner of one interface, and where it keeps its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Who.
    pub owner: Owner,
    /// The file or profile, as far as it is known.
    pub by: String,
}

/// `networkd (/etc/systemd/network/10-eth0.network)`
impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by.is_empty() { write!(f, "{}", self.owner) } else { write!(f, "{} ({})", self.owner, self.by) }
    }
}

/// The group of questions. It has one argument, the empty one.
#[derive(Debug)]
pub struct OwnerList;

/// What is known of a host's owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// Devices that NetworkManager manages, and the profile each of them has.
    managed: HashMap<String, String>,
    /// By index of a link: the `.network` file that networkd has applied.
    applied: HashMap<u32, String>,
    /// By name of an interface: the file with its stanza of ifupdown.
    stanzas: HashMap<String, String>,
    ifcfg: Vec<String>,
    /// What reads ifcfg files, with the folder where it does.
    readers: Vec<(&'static str, &'static str)>,
    /// Files that say that cloud-init has made them, where it makes network configuration at boot.
    cloud_init: Vec<String>,
}

impl OwnerList {
    /// Asks for the owners.
    pub fn ask() -> Question {
        Question::of::<OwnerList>("")
    }
}

impl Owners {
    /// Who owns this link.
    pub fn of(&self, link: &Link) -> Option<Owned> {
        if let Some(profile) = self.managed.get(&link.name) {
            let owner = if profile.starts_with("netplan-") { Owner::Netplan } else { Owner::NetworkManager };
            let by = if profile.is_empty() { String::new() } else { format!("profile {profile}") };
            return Some(Owned { owner, by });
        }
        if let Some(file) = self.applied.get(&link.index) {
            let generated = file.rsplit('/').next().is_some_and(|name| name.contains("-netplan-"));
            let owner = if generated { Owner::Netplan } else { Owner::Networkd };
            return Some(Owned { owner, by: file.clone() });
        }
        if let Some(file) = self.stanzas.get(&link.name) {
            return Some(Owned { owner: Owner::Ifupdown, by: file.clone() });
        }
        let path = format!("{NETWORK_SCRIPTS}/ifcfg-{}", link.name);
        (self.ifcfg.contains(&path) && self.reader(&path).is_some()).then_some(Owned { owner: Owner::Ifcfg, by: path })
    }

    /// The indexes of all links to which networkd has applied this `.network` file.
    pub fn sharing<'a>(&'a self, file: &'a str) -> impl Iterator<Item = u32> {
        self.applied.iter().filter(move |(_, f)| *f == file).map(|(index, _)| *index)
    }

    /// What reads the ifcfg file of this path, if anything does.
    pub fn reader(&self, path: &str) -> Option<&'static str> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.readers.iter().find(|(_, of)| *of == folder).map(|(reader, _)| *reader)
    }

    /// Where the readers of ifcfg files look for them: `wicked in /etc/sysconfig/network`; empty without any.
    pub fn readers(&self) -> String {
        let one = |(reader, folder): &(&str, &str)| format!("{reader} in {folder}");
        self.readers.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Whether cloud-init has made this file, and may make it again at a boot.
    pub fn by_cloud_init(&self, path: &str) -> bool {
        self.cloud_init.iter().any(|p| p == path)
    }
}

const ASK: &str = r#"echo '== networkd'
[ -d /run/systemd/netif/links ] && { [ ! -d /run/systemd/units ] || [ -L /run/systemd/units/invocation:systemd-networkd.service ]; } &&
  grep -asH '^NETWORK_FILE=' -- /run/systemd/netif/links/*
echo '== ifupdown'
[ -f /etc/network/interfaces ] && { [ -x /sbin/ifup ] || [ -x /usr/sbin/ifup ]; } &&
  grep -asHE '^[[:blank:]]*iface[[:blank:]]' -- /etc/network/interfaces /etc/network/interfaces.d/*
echo '== ifcfg'
set --
for f in /etc/sysconfig/network-scripts/ifcfg-* /etc/sysconfig/network/ifcfg-*; do [ ! -f "$f" ] || { printf '%s\n' "$f"; set -- "$@" "$f"; }; done
echo '== cloud-init'
[ $# -gt 0 ] && [ -d /etc/cloud ] && [ ! -e /etc/cloud/cloud-init.disabled ] &&
  ! grep -qs 'config: *["'\'']*disabled' -- /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg && grep -sl 'Created by cloud-init' -- "$@"
echo '== readers'
if [ -x /etc/init.d/network ] || [ -x /etc/rc.d/init.d/network ]; then echo network-scripts; fi
[ ! -x /usr/sbin/wicked ] || echo wicked
if [ -d /run/NetworkManager ]; then
  for f in /usr/lib*/NetworkManager/libnm-settings-plugin-ifcfg-rh.so /usr/lib*/NetworkManager/*/libnm-settings-plugin-ifcfg-rh.so; do
    [ -e "$f" ] || continue
    echo NetworkManager; grep -sh '^plugins *=' -- /etc/NetworkManager/NetworkManager.conf /etc/NetworkManager/conf.d/*.conf; break
  done
  echo '== networkmanager'
  ! command -v nmcli >/dev/null || { lim 10 nmcli -t -f DEVICE,STATE,CONNECTION device; echo "rc $?"; }
fi
exit 0"#;

impl Group for OwnerList {
    type Answer = Owners;
    const NAME: &'static str = "owners";

    fn compose(_: &[&str]) -> Vec<Fragment> {
        vec![Script::new().line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Owners, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Owners, Trouble> {
    if output.code != 0 {
        return Err(Trouble::new(format!("who owns the interfaces can't be found out: {}", output.complaint())));
    }
    let text = output.text();
    let mut owners = Owners::default();
    let (mut section, mut devices, mut plugins) = ("", Vec::new(), None);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            section = name;
            continue;
        }
        match section {
            "networkd" => {
                let found = line.split_once(":NETWORK_FILE=");
                let index = found.and_then(|(path, _)| path.rsplit('/').next()?.parse().ok());
                if let (Some((_, file)), Some(index)) = (found, index) {
                    owners.applied.insert(index, file.to_owned());
                }
            }
            "ifupdown" => {
                if let Some((file, stanza)) = line.split_once(':')
                    && let Some(name) = stanza.split_whitespace().nth(1)
                {
                    owners.stanzas.entry(name.to_owned()).or_insert_with(|| file.to_owned());
                }
            }
            "ifcfg" => owners.ifcfg.push(line.to_owned()),
            "cloud-init" => owners.cloud_init.push(line.to_owned()),
            "readers" => match line {
                "network-scripts" => owners.readers.push(("network-scripts", NETWORK_SCRIPTS)),
                "wicked" => owners.readers.push(("wicked", WICKED)),
                "NetworkManager" => owners.readers.push(("NetworkManager", NETWORK_SCRIPTS)),
                // The last file wins, as NetworkManager.conf(5) says.
                other => plugins = other.split_once('=').map(|(_, list)| list.trim().to_owned()),
            },
            "networkmanager" => match line.strip_prefix("rc ") {
                Some("0") => {
                    owners.managed = devices.drain(..).filter_map(managed).collect();
                }
                // It isn't running, says nmcli(1).
                Some("8") => owners.readers.retain(|(reader, _)| *reader != "NetworkManager"),
                Some(code) => {
                    return Err(Trouble::new(format!("nmcli failed with {code}: {}", output.complaint())));
                }
                None => devices.push(line),
            },
            _ => {}
        }
    }
    if plugins.is_some_and(|list: String| !list.split([',', ';', ' ']).any(|p| p == "ifcfg-rh")) {
        owners.readers.retain(|(reader, _)| *reader != "NetworkManager");
    }
    Ok(owners)
}

/// Device and profile of a line `DEVICE:STATE:CONNECTION` of `nmcli -t`, where NetworkManager manages the device.
/// `connected (externally)` is what it only looks at.
fn managed(line: &str) -> Option<(String, String)> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(chars.next()),
            c => fields.last_mut()?.push(c),
        }
    }
    let [device, state, profile] = <[String; 3]>::try_from(fields).ok()?;
    (state != "unmanaged" && !state.ends_with("(externally)")).then_some((device, profile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, ask};

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), ..Link::default() }
    }

    fn owners(text: &str) -> Owners {
        read(&Output { stdout: text.into(), ..Output::default() }).unwrap()
    }

    fn owner(owners: &Owners, index: u32, name: &str) -> String {
        owners.of(&link(index, name)).map_or_else(|| "nobody".to_owned(), |o| o.to_string())
    }

    #[test]
    fn the_first_that_answers_owns_it() {
        let found = owners(
            "== networkd\n/run/systemd/netif/links/2:NETWORK_FILE=/etc/systemd/network/10-eth0.network\n\
             /run/systemd/netif/links/3:NETWORK_FILE=/run/systemd/network/10-netplan-eth1.network\n\
             /run/systemd/netif/links/7:NETWORK_FILE=/etc/systemd/network/10-eth0.network\n\
             == ifupdown\n/etc/network/interfaces:iface lo inet loopback\n\
             /etc/network/interfaces.d/eth2:  iface eth2 inet static\n\
             == ifcfg\n/etc/sysconfig/network-scripts/ifcfg-eth3\n== cloud-init\n\
             /etc/sysconfig/network-scripts/ifcfg-eth3\n== readers\nnetwork-scripts\nNetworkManager\n\
             == networkmanager\nib0:connected:Rail \\: 0\nib1:connected:netplan-ib1\nib2:disconnected:\n\
             docker0:connected (externally):docker0\neth0:unmanaged:\nrc 0\n",
        );
        assert_eq!(owner(&found, 2, "eth0"), "networkd (/etc/systemd/network/10-eth0.network)");
        assert_eq!(owner(&found, 3, "eth1"), "netplan (/run/systemd/network/10-netplan-eth1.network)");
        assert_eq!(owner(&found, 4, "eth2"), "ifupdown (/etc/network/interfaces.d/eth2)");
        assert_eq!(owner(&found, 5, "eth3"), "network-scripts (/etc/sysconfig/network-scripts/ifcfg-eth3)");
        assert_eq!(owner(&found, 6, "ib0"), "NetworkManager (profile Rail : 0)");
        assert_eq!(owner(&found, 8, "ib1"), "netplan (profile netplan-ib1)");
        assert_eq!(owner(&found, 9, "ib2"), "NetworkManager");
        assert_eq!(owner(&found, 10, "docker0"), "nobody");
        let mut sharing: Vec<u32> = found.sharing("/etc/systemd/network/10-eth0.network").collect();
        sharing.sort_unstable();
        assert_eq!(sharing, [2, 7]);
        assert!(found.by_cloud_init("/etc/sysconfig/network-scripts/ifcfg-eth3"));
        assert!(!found.by_cloud_init("/etc/sysconfig/network-scripts/ifcfg-eth0"));
    }

    #[test]
    fn who_reads_ifcfg_files() {
        let reader = |text: &str, path: &str| owners(text).reader(path);
        let red_hat = "/etc/sysconfig/network-scripts/ifcfg-eth0";
        let files = "== ifcfg\n/etc/sysconfig/network-scripts/ifcfg-eth0\n";
        assert_eq!(reader("== readers\nnetwork-scripts\n", red_hat), Some("network-scripts"));
        assert_eq!(reader("== readers\nNetworkManager\n", red_hat), Some("NetworkManager"));
        assert_eq!(reader("== readers\nNetworkManager\nplugins=keyfile,ifcfg-rh\n", red_hat), Some("NetworkManager"));
        assert_eq!(reader("== readers\nNetworkManager\nplugins = keyfile\n", red_hat), None);
        assert_eq!(reader("== readers\nNetworkManager\n== networkmanager\nrc 8\n", red_hat), None);
        assert_eq!(reader("== readers\nwicked\n", red_hat), None);
        assert_eq!(reader("== readers\nwicked\n", "/etc/sysconfig/network/ifcfg-eth0"), Some("wicked"));
        assert_eq!(owner(&owners(files), 2, "eth0"), "nobody", "an ifcfg file that nothing reads has no say");
    }

    #[test]
    fn nmcli_that_fails_is_no_answer() {
        let output = Output {
            stdout: b"== networkmanager\nrc 124\n".to_vec(),
            stderr: b"Error: Timeout 10 sec expired.".to_vec(),
            code: 0,
        };
        assert_eq!(read(&output).unwrap_err().message, "nmcli failed with 124: Error: Timeout 10 sec expired.");
    }

    #[test]
    fn names_are_those_of_the_key() {
        for name in Owner::NAMES {
            assert_eq!(Owner::named(name).map(Owner::name), Some(*name));
        }
    }

    #[test]
    fn the_probe_runs_in_every_shell() {
        for shell in Shell::ALL {
            let answers = ask(shell, [OwnerList::ask()]);
            answers.get::<OwnerList>("").unwrap();
            let output = shell.run(ASK);
            assert_eq!(output.stderr, b"", "{shell:?}: {}", output.complaint());
            assert!(output.text().starts_with("== networkd\n") && output.text().contains("== readers\n"), "{shell:?}");
        }
    }
}
