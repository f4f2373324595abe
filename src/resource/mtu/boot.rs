//! The MTU at boot: what the interface's owner will set, and what makes it the wanted one.

use super::Mtu;
use crate::resource::keyfile::Edit;
use crate::resource::owner::assignments::Assignments;
use crate::resource::owner::networkd::{Applied, AppliedFile};
use crate::resource::owner::{Owned, Owner, OwnerList, Owners};
use crate::resource::probes::links::{Link, Links};
use crate::resource::probes::small::SmallFile;
use crate::resource::{Answers, FileDiff, Put, Step, Trouble};
use crate::shell::Script;
use serde_json::Value;

/// The MTU at boot, and what makes it the wanted one.
#[derive(Debug, Default)]
pub(super) struct Boot {
    /// In bytes; text where it is no number, null where none is set.
    pub(super) now: Value,
    pub(super) right: bool,
    pub(super) steps: Vec<Step>,
    pub(super) files: Vec<FileDiff>,
    pub(super) warnings: Vec<String>,
}

impl Mtu {
    /// What is there at boot.
    pub(super) fn boot(&self, answers: &Answers, links: &Links, link: &Link) -> Result<Boot, Trouble> {
        let owners = answers.get::<OwnerList>("")?;
        let owned = owners.of(link);
        let ifcfg = || answers.get::<SmallFile>(&self.ifcfg())?.bytes();
        // NetworkManager may take its profile from an ifcfg file, and then that is a way too.
        let by_ifcfg = self.owner == Some(Owner::Ifcfg) && owners.reader(&self.ifcfg()).is_some();
        if let Some(text) = if by_ifcfg { ifcfg()? } else { None } {
            return self.in_ifcfg(owners, text);
        }
        let Some(owned) = owned else { return Err(self.nobody()) };
        if self.owner.is_some_and(|given| given != owned.owner) {
            let given = self.owner.map(Owner::name).unwrap_or_default();
            return Err(Trouble::new(format!(
                "`owner: {given}` isn't what configures {} at boot: {owned} does",
                link.name
            ))
            .hint("leave `owner` out"));
        }
        match owned.owner {
            Owner::Networkd => match answers.get::<AppliedFile>(&self.interface)? {
                Some(applied) => self.in_networkd(applied, owners, links, link),
                None => Err(self.nobody()),
            },
            Owner::Ifcfg => match ifcfg()? {
                Some(text) => self.in_ifcfg(owners, text),
                None => Err(self.nobody()),
            },
            _ => Err(self.later(&owned, link)),
        }
    }

    fn nobody(&self) -> Trouble {
        let name = &self.interface;
        let given = self.owner.map(|o| format!("`owner: {}` is given, but ", o.name())).unwrap_or_default();
        Trouble::new(format!(
            "{given}nothing was found that configures {name} at boot, so its MTU can't be made to last (looked for a \
             device of NetworkManager, a file of netplan or networkd, a stanza of ifupdown, and {})",
            self.ifcfg()
        ))
        .hint("`persist: false` sets the live value alone; or give the interface a configuration first")
    }

    /// That this owner's turn comes later, and what to do until then.
    fn later(&self, owned: &Owned, link: &Link) -> Trouble {
        let n = self.mtu;
        let by_hand = match owned.owner {
            Owner::NetworkManager => {
                let setting = if link.kind == "infiniband" { "infiniband" } else { "802-3-ethernet" };
                format!("`nmcli connection modify PROFILE {setting}.mtu {n}`")
            }
            Owner::Netplan => format!("`mtu: {n}` in its file below /etc/netplan, then `netplan generate`"),
            _ => format!("`mtu {n}` in its stanza in {}", owned.by),
        };
        Trouble::new(format!(
            "{} belongs to {owned}, and an MTU that lasts through it comes with a later version; the live value is set",
            link.name
        ))
        .hint(format!("`persist: false` says that the live value is enough; by hand it lasts by {by_hand}"))
    }

    fn in_networkd(&self, applied: &Applied, owners: &Owners, links: &Links, link: &Link) -> Result<Boot, Trouble> {
        let now = applied.mtu()?;
        let mut boot = Boot { now: now.as_ref().map_or(Value::Null, |(mtu, _)| (*mtu).into()), ..Boot::default() };
        boot.right = now.as_ref().is_some_and(|(mtu, _)| *mtu == self.mtu);
        if boot.right {
            return Ok(boot);
        }
        let (file, path) = (&applied.file, applied.drop_in());
        let mut others: Vec<&str> = owners
            .sharing(file)
            .filter(|index| *index != link.index)
            .map(|index| links.all.iter().find(|l| l.index == index).map_or("a link that is gone", |l| l.name.as_str()))
            .collect();
        if !others.is_empty() {
            others.sort_unstable();
            return Err(Trouble::new(format!(
                "{file} configures {} and {} alike, so an MTU for it would be that of all of them",
                link.name,
                others.join(", ")
            ))
            .hint(format!(
                "give {} a .network file of its own; or, if all of them are to have this MTU, write `MTUBytes={}` below \
                 `[Link]` in {path} by a `copy`, and set `persist: false` here",
                link.name, self.mtu
            )));
        }
        let late = |place: &str| {
            let name = place.rsplit_once(':').and_then(|(path, _)| path.rsplit_once('/')).map_or("", |(_, name)| name);
            place.contains(".network.d/") && path.rsplit_once('/').is_some_and(|(_, ours)| name > ours)
        };
        if let Some((mtu, place)) = now.filter(|(_, place)| late(place)) {
            return Err(Trouble::new(format!("at boot {mtu} wins: {place}"))
                .hint("remove the setting there; no name of a drop-in of netplay's own comes after it"));
        }
        let text =
            format!("# Written by netplay (mtu:{}); it is replaced.\n[Link]\nMTUBytes={}\n", self.interface, self.mtu);
        boot.files.push(FileDiff {
            path: path.clone(),
            before: applied.drop_in_text().map(|t| t.as_bytes().to_vec()),
            after: Some(text.clone().into_bytes()),
        });
        boot.steps.push(Step::Run(Script::new().command(["mkdir", "-p", "--", &applied.drop_in_folder()])));
        boot.steps.push(Step::Put(Put {
            path,
            body: text.into_bytes(),
            mode: 0o644,
            owner: None,
            backup: false,
            validate: None,
            in_place: false,
        }));
        if self.mtu < 1280 {
            boot.warnings.push("networkd raises an MTU below 1280 to that at boot, where IPv6 is on".to_owned());
        }
        if !applied.matches_one() {
            boot.warnings.push(format!(
                "{file} is for interfaces of a pattern: another one that comes to match it gets this MTU too"
            ));
        }
        Ok(boot)
    }

    fn in_ifcfg(&self, owners: &Owners, bytes: &[u8]) -> Result<Boot, Trouble> {
        let path = self.ifcfg();
        let found = Assignments::parse(bytes);
        let wanted = self.mtu.to_string();
        let shown = found.shown("MTU");
        let number = shown.as_str().and_then(|s| s.parse::<u32>().ok()).map(Value::from);
        let mut boot = Boot { now: number.unwrap_or(shown), right: found.has("MTU", Some(&wanted)), ..Boot::default() };
        if boot.right {
            return Ok(boot);
        }
        if owners.by_cloud_init(&path) {
            return Err(Trouble::new(format!("{path} is made by cloud-init, which may make it again at a boot")).hint(
                "set the MTU in cloud-init's network configuration, or switch that off (`network: {config: \
                       disabled}` in /etc/cloud/cloud.cfg.d) and take its first line out of the file",
            ));
        }
        let edit = found.edit(Edit::of(&path), "MTU", Some(&wanted))?;
        boot.files.push(edit.preview(Some(bytes)));
        boot.steps.push(edit.step());
        Ok(boot)
    }
}
