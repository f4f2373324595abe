//! The MTU at boot: whose matter it is.

use super::Mtu;
use crate::resource::owner::{At, Boot, OWNERS, OwnerList};
use crate::resource::probes::links::{Link, Links};
use crate::resource::{Answers, Trouble};

impl Mtu {
    /// What is there at boot.
    pub(super) fn boot(&self, answers: &Answers, links: &Links, link: &Link) -> Result<Boot, Trouble> {
        let (name, owners) = (&link.name, OwnerList::more(answers)?);
        let all = owners.all(link);
        let mut at = At { link, links, mtu: self.mtu, owners, owned: None, answers };
        let owner = match (self.owner, &*all) {
            (Some(given), _) if all.iter().any(|owned| owned.owner == given) || given.serves(&at) => given,
            (Some(given), [owned, ..]) => {
                return Err(Trouble::new(format!(
                    "`owner: {}` isn't what configures {name} at boot: {owned} does",
                    given.name()
                ))
                .hint("leave `owner` out"));
            }
            (None, [owned]) => owned.owner,
            (None, [one, other, ..]) => {
                return Err(Trouble::new(owners.contradiction(link).unwrap_or_default()).hint(format!(
                    "take {name} away from one of them; or say which one is to have the MTU: `owner: {}` or `owner: {}`",
                    one.owner.name(),
                    other.owner.name()
                )));
            }
            (_, []) => {
                let given = self.owner.map(|o| format!("`owner: {}` is given, but ", o.name())).unwrap_or_default();
                let looked = "a device of NetworkManager, a file of netplan or networkd, a stanza of ifupdown";
                let idle: String =
                    OWNERS.iter().filter_map(|o| o.idle(&owners.said, link)).map(|why| format!("; {why}")).collect();
                return Err(Trouble::new(format!(
                    "{given}nothing was found that configures {name} at boot, so its MTU can't be made to last (looked \
                     for {looked}, an ifcfg file of network-scripts){idle}"
                ))
                .hint("`persist: false` sets the live value alone; or give the interface a configuration first"));
            }
        };
        if let Some((new, file)) = owners.renamed(link)? {
            return Err(Trouble::new(format!("{file} renames {name} to {new} at the next boot"))
                .hint(format!("reboot, and then set the MTU of {new}; or take the name out of that file")));
        }
        at.owned = all.iter().copied().find(|owned| owned.owner == owner);
        let mut boot = owner.boot(&at)?;
        if let Some(other) = all.iter().find(|owned| owned.owner != owner && at.owned.is_some()) {
            boot.warnings.push(format!("{other} configures {name} too, and may win at boot"));
        }
        Ok(boot)
    }
}
