//! Files of shell assignments, which Red Hat's network-scripts read, and NetworkManager and SUSE's wicked where they are
//! told to. Only network-scripts own an interface by such a file: the others are asked themselves.

use super::assignments::Assignments;
use super::{At, Boot, Owner, Owners, Owns, Said, Which, networkmanager};
use crate::resource::keyfile::Edit;
use crate::resource::probes::small::SmallFile;
use crate::resource::{Claim, Need, Question, Trouble};

/// Where the scripts of Red Hat's look for an interface's file.
pub const NETWORK_SCRIPTS: &str = "/etc/sysconfig/network-scripts";
/// Where wicked (SUSE) looks for it.
const WICKED: &str = "/etc/sysconfig/network";

/// The owner.
pub(super) struct Ifcfg;

/// What reads ifcfg files, with the folder where it does.
fn readers(said: &Said) -> Vec<(&'static str, &'static str)> {
    let (mut readers, mut plugins) = (Vec::new(), None);
    for line in said.of("ifcfg").lines() {
        match line {
            "network-scripts" => readers.push(("network-scripts", NETWORK_SCRIPTS)),
            "wicked" => readers.push(("wicked", WICKED)),
            "NetworkManager" if networkmanager::runs(said) => readers.push(("NetworkManager", NETWORK_SCRIPTS)),
            // The last file wins, as NetworkManager.conf(5) says.
            other if other.starts_with("plugins") => plugins = other.split_once('=').map(|(_, list)| list.trim()),
            _ => {}
        }
    }
    if plugins.is_some_and(|list| !list.split([',', ';', ' ']).any(|p| p == "ifcfg-rh")) {
        readers.retain(|(reader, _)| *reader != "NetworkManager");
    }
    readers
}

impl Owners {
    /// What reads the ifcfg file of this path, if anything does.
    pub fn reader(&self, path: &str) -> Option<&'static str> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        readers(&self.said).into_iter().find(|(_, of)| *of == folder).map(|(reader, _)| reader)
    }

    /// Where the readers of ifcfg files look for them: `wicked in /etc/sysconfig/network`; empty without any.
    pub fn readers(&self) -> String {
        let one = |(reader, folder)| format!("{reader} in {folder}");
        readers(&self.said).into_iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn path(interface: &str) -> String {
    format!("{NETWORK_SCRIPTS}/ifcfg-{interface}")
}

impl Owner for Ifcfg {
    fn name(&self) -> &'static str {
        "ifcfg"
    }

    fn title(&self) -> &'static str {
        "network-scripts"
    }

    fn ask(&self) -> &'static str {
        r#"for f in /etc/sysconfig/network-scripts/ifcfg-* /etc/sysconfig/network/ifcfg-*; do
  [ ! -f "$f" ] || { printf '%s\n' "$f"; set -- "$@" "$f"; }
done
if [ -x /etc/init.d/network ] || [ -x /etc/rc.d/init.d/network ]; then echo network-scripts; fi
[ ! -x /usr/sbin/wicked ] || echo wicked
if [ -d /run/NetworkManager ]; then
  for f in /usr/lib*/NetworkManager/libnm-settings-plugin-ifcfg-rh.so /usr/lib*/NetworkManager/*/libnm-settings-plugin-ifcfg-rh.so; do
    [ -e "$f" ] || continue
    echo NetworkManager; grep -sh '^plugins *=' -- /etc/NetworkManager/NetworkManager.conf /etc/NetworkManager/conf.d/*.conf; break
  done
fi"#
    }

    fn questions(&self, interface: &str) -> Vec<Question> {
        vec![SmallFile::ask(path(interface))]
    }

    fn sources(&self, interface: &str) -> Vec<Need> {
        let path = path(interface);
        vec![Need::After(Claim::new("path", &path)), Need::After(Claim::part("ifcfg", &path, "MTU"))]
    }

    fn owns(&self, said: &Said) -> Result<Vec<Owns>, Trouble> {
        if !readers(said).iter().any(|(reader, _)| *reader == "network-scripts") {
            return Ok(Vec::new());
        }
        // Where NetworkManager runs, the scripts leave its devices to it.
        let managed: Vec<String> = networkmanager::devices(said)?.into_iter().map(|device| device.name).collect();
        let own = |line: &str| {
            let name = line.strip_prefix(NETWORK_SCRIPTS)?.strip_prefix("/ifcfg-")?;
            let link = Which::Name(name.to_owned());
            (!managed.iter().any(|m| m == name)).then(|| Owns { link, by: line.to_owned(), weak: false })
        };
        Ok(said.of(self.name()).lines().filter_map(own).collect())
    }

    fn serves(&self, at: &At<'_>) -> bool {
        let path = path(&at.link.name);
        at.owners.reader(&path).is_some() && at.owners.said.of(self.name()).lines().any(|line| line == path)
    }

    fn boot(&self, at: &At<'_>) -> Result<Boot, Trouble> {
        let path = path(&at.link.name);
        let Some(bytes) = at.answers.get::<SmallFile>(&path)?.bytes()? else {
            return Err(Trouble::new(format!("there is no {path}")));
        };
        let found = Assignments::parse(bytes);
        let wanted = at.mtu.to_string();
        let shown = found.shown("MTU");
        let number = shown.as_str().and_then(|s| s.parse::<u32>().ok());
        let mut boot = Boot { right: found.has("MTU", Some(&wanted)), ..Boot::of(number, at.mtu) };
        if number.is_none() {
            boot.now = shown;
        }
        if !boot.right {
            at.owners.refuse_cloud_init(&path)?;
            let edit = found.edit(Edit::of(&path), "MTU", Some(&wanted))?;
            boot.files.push(edit.preview(Some(bytes)));
            boot.steps.push(edit.step());
        }
        Ok(boot)
    }
}
