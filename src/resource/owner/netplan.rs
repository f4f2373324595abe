//! netplan: YAML below /etc/netplan, of which it generates files for networkd or NetworkManager at each boot.
//!
//! Its files are merged by their names, the later one's keys winning (netplan(5)). An MTU gets a file of our own that
//! comes late, so that no other one is edited. It is put there after `netplan generate` has taken it in a copy of the
//! configuration: at boot netplan configures nothing at all where one of its files is wrong.

use super::{At, Boot, Owner, Owns, Said, Which, base, networkd, networkmanager, shared};
use crate::error::Kind;
use crate::resource::{FileDiff, Need, Put, Step, Trouble};
use crate::shell::Script;
use crate::source::Source;
use crate::yaml::{self, Node};
use std::collections::BTreeMap;

/// The owner.
pub(super) struct Netplan;

/// Where its files are; a name in a later folder masks the same one in those before.
const FOLDERS: [&str; 3] = ["/lib/netplan", "/etc/netplan", "/run/netplan"];

/// The name of the definition of which netplan has generated this file for networkd or NetworkManager, if it has.
pub(super) fn made(file: &str) -> Option<&str> {
    let networkd = file.strip_prefix("/run/systemd/network/10-netplan-").and_then(|name| name.strip_suffix(".network"));
    let manager = file.strip_prefix("/run/NetworkManager/system-connections/netplan-");
    networkd.or_else(|| manager.map(|name| name.strip_suffix(".nmconnection").unwrap_or(name)))
}

/// What netplan's files say of one definition, merged.
#[derive(Debug, Default)]
struct Definition {
    /// `ethernets`, `bonds`…
    section: String,
    /// The value of `mtu`, and where it stands.
    mtu: Option<(Node, String)>,
    by_address: bool,
    dhcp: bool,
    use_mtu: bool,
}

impl Definition {
    fn merged(files: &BTreeMap<&str, String>, id: &str) -> Result<Option<Definition>, Trouble> {
        let folder = |path: &str| FOLDERS.iter().position(|f| path.strip_prefix(f).is_some_and(|p| p.starts_with('/')));
        let mut by_name = BTreeMap::<&str, &str>::new();
        for path in files.keys() {
            let masks = by_name.get(base(path)).is_none_or(|other| folder(path) > folder(other));
            if masks {
                by_name.insert(base(path), path);
            }
        }
        let mut found: Option<Definition> = None;
        for path in by_name.into_values() {
            let source = Source::new(path, files[path].as_str());
            let document = yaml::load_one(&source, Kind::Usage).map_err(|error| {
                let place = error.place.as_ref().map_or_else(|| path.to_owned(), ToString::to_string);
                Trouble::new(format!("netplan's configuration can't be read: {}: {}", place, error.message)).hint(
                    "mend that file, and try it by `netplan generate`: with it, netplan configures nothing at boot",
                )
            })?;
            let sections = document.as_ref().and_then(|d| d.get("network")).and_then(Node::as_map).unwrap_or_default();
            for (section, definitions) in sections {
                let Some(keys) = definitions.get(id).filter(|keys| keys.as_map().is_some() || keys.is_null()) else {
                    continue;
                };
                let it = found.get_or_insert_with(|| Definition { use_mtu: true, ..Definition::default() });
                it.section = section.text().unwrap_or_default().to_owned();
                if let Some(mtu) = keys.get("mtu") {
                    it.mtu = Some((mtu.clone(), mtu.span.to_string()));
                }
                it.by_address |= keys.get("match").is_some_and(|m| m.get("macaddress").is_some());
                for version in ["dhcp4", "dhcp6"] {
                    it.dhcp |= keys.get(version).and_then(Node::as_bool) == Some(true);
                    let overrides = keys.get(&format!("{version}-overrides"));
                    it.use_mtu &= overrides.and_then(|o| o.get("use-mtu")).and_then(Node::as_bool) != Some(false);
                }
            }
        }
        Ok(found)
    }
}

/// Tries the new file with all others, apart from what is in use. The folder's name is taken out of what netplan says: it
/// would keep hosts that say the same from being told together.
const TRY: &str = r#"t=$(mktemp -d) || exit 1
for d in /lib/netplan /etc/netplan /run/netplan; do
  [ ! -d "$d" ] || { mkdir -p -- "$t$d" && cp -R -- "$d/." "$t$d/"; } || { rm -rf -- "$t"; exit 1; }
done
cp -- "$file" "$t/etc/netplan/$name" && said=$(netplan generate --root-dir "$t" 2>&1)
r=$?
[ $r -eq 0 ] || printf '%s\n' "$said" | sed "s|$t||g" >&2
rm -rf -- "$t"
[ $r -eq 0 ]"#;

impl Owner for Netplan {
    fn name(&self) -> &'static str {
        "netplan"
    }

    fn title(&self) -> &'static str {
        "netplan"
    }

    fn ask_more(&self) -> &'static str {
        r#"n=
for f in /lib/netplan/*.yaml /etc/netplan/*.yaml /run/netplan/*.yaml; do [ ! -e "$f" ] || { list "$f"; n=1; }; done
[ -z "$n" ] || grep -asH '' -- /lib/netplan/*.yaml /etc/netplan/*.yaml /run/netplan/*.yaml"#
    }

    fn sources(&self, _: &str) -> Vec<Need> {
        vec![Need::AfterBelow("/etc/netplan".to_owned())]
    }

    fn owns(&self, said: &Said) -> Result<Vec<Owns>, Trouble> {
        let own = |link: Which, by: &str| Owns { link, by: by.to_owned(), weak: false };
        let files = networkd::applied(said).into_iter().filter(|(_, file)| made(file).is_some());
        let profiles = networkmanager::generated(said)?;
        Ok(files
            .map(|(index, file)| own(Which::Index(index), file))
            .chain(profiles.into_iter().map(|(device, file)| own(Which::Name(device), &file)))
            .collect())
    }

    fn boot(&self, at: &At<'_>) -> Result<Boot, Trouble> {
        let (name, wanted) = (&at.link.name, at.mtu);
        let by = at.owned.map_or("", |owned| owned.by());
        let Some(id) = made(by).filter(|id| !id.contains('/')) else {
            return Err(Trouble::new(format!("netplan has generated nothing for {name}")));
        };
        let files = at.owners.said.files(self.name())?;
        let Some(definition) = Definition::merged(&files, id)? else {
            return Err(Trouble::new(format!(
                "netplan's files have no definition `{id}`, of which {by} was generated"
            ))
            .hint("it was taken out since the last boot: nothing configures the interface after the next one"));
        };
        let now = match &definition.mtu {
            None => None,
            Some((mtu, place)) => match mtu.as_int().and_then(|n| u32::try_from(n).ok()) {
                Some(n) => Some((n, place.as_str())),
                None if mtu.is_null() => None,
                None => return Err(Trouble::new(format!("{place}: `mtu` has to be a number of bytes"))),
            },
        };
        let mut boot = Boot::of(now.map(|(mtu, _)| mtu), wanted);
        if boot.right {
            return Ok(boot);
        }
        if definition.section == "nm-devices" {
            return Err(Trouble::new(format!("`{id}` is a profile of NetworkManager's that netplan only keeps"))
                .hint("set the MTU by `nmcli connection modify`, which writes it to netplan's files"));
        }
        let by_networkd = by.starts_with("/run/systemd/");
        let others: Vec<u32> = match by_networkd {
            true => networkd::sharing(at, by).collect(),
            false => {
                let devices = networkmanager::sharing(&at.owners.said, by)?;
                devices.iter().filter_map(|device| at.links.get(device)).map(|l| l.index).collect()
            }
        };
        let way = format!("give {name} a definition of its own below /etc/netplan");
        shared(&format!("the definition `{id}` of netplan's"), at, others, way)?;
        let file = format!("99-netplay-mtu-{id}.yaml");
        let path = format!("/etc/netplan/{file}");
        if let Some((mtu, place)) = now {
            let winner = place.rsplitn(3, ':').last().unwrap_or(place);
            if winner != path && base(winner) >= file.as_str() {
                return Err(Trouble::new(format!("at boot {mtu} wins: {place}"))
                    .hint(format!("remove the setting there, or name that file so that it comes before {file}")));
            }
        }
        let quoted = serde_json::Value::from(id);
        let section = &definition.section;
        let text = format!(
            "# Written by netplay (mtu:{name}); it is replaced.\nnetwork:\n  version: 2\n  {section}:\n    {quoted}:\n      \
             mtu: {wanted}\n"
        );
        boot.files.push(FileDiff {
            path: path.clone(),
            before: files.get(path.as_str()).map(|t| t.clone().into_bytes()),
            after: Some(text.clone().into_bytes()),
            edit: None,
        });
        boot.steps.push(Step::Put(Put {
            path,
            body: text.into_bytes(),
            mode: 0o600,
            owner: Some("0:0".to_owned()),
            backup: false,
            validate: Some(Script::new().set("name", &file).line(TRY)),
            in_place: false,
        }));
        // What is generated now is what networkd and NetworkManager read if they are restarted before the next boot.
        boot.steps.push(Step::Run(Script::new().command(["netplan", "generate"])));
        boot.undo.steps.push(Script::new().command(["netplan", "generate"]));
        if by_networkd && section == "ethernets" && !definition.by_address {
            boot.warnings.push(format!(
                "netplan matches {name} by its name only, and calls an MTU unreliable then: `match: {{macaddress: …}}` \
                 with `set-name: {name}` in its definition mends that"
            ));
        }
        if by_networkd && definition.dhcp && definition.use_mtu {
            boot.warnings.push(format!(
                "an MTU that the DHCP server sends wins over this one with older versions of networkd: \
                 `dhcp4-overrides: {{use-mtu: false}}` in the definition `{id}` keeps it out"
            ));
        }
        Ok(boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(files: &[(&'static str, &str)]) -> Result<Option<Definition>, Trouble> {
        Definition::merged(&files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect(), "eth1")
    }

    fn mtu(files: &[(&'static str, &str)]) -> String {
        let found = merged(files).unwrap().and_then(|d| d.mtu);
        found.map_or_else(String::new, |(mtu, place)| format!("{} {place}", mtu.text().unwrap()))
    }

    #[test]
    fn files_are_merged_by_name() {
        let one = "network: {ethernets: {eth1: {mtu: 1400}}}\n";
        let two = "network:\n  ethernets:\n    eth1:\n      mtu: 9000\n";
        assert_eq!(
            mtu(&[("/etc/netplan/50-a.yaml", one), ("/lib/netplan/60-b.yaml", two)]),
            "9000 /lib/netplan/60-b.yaml:4:12"
        );
        assert_eq!(
            mtu(&[("/run/netplan/50-a.yaml", one), ("/etc/netplan/50-a.yaml", two)]),
            "1400 /run/netplan/50-a.yaml:1:35"
        );
        assert_eq!(mtu(&[("/lib/netplan/50-a.yaml", one), ("/etc/netplan/50-a.yaml", "")]), "", "masked");
        assert_eq!(
            mtu(&[("/etc/netplan/50-a.yaml", one), ("/etc/netplan/60-b.yaml", "network: {ethernets: {eth1: {}}}")]),
            "1400 /etc/netplan/50-a.yaml:1:35"
        );
        assert!(merged(&[("/etc/netplan/50-a.yaml", "network: {renderer: networkd, version: 2}")]).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_no_yaml_is_named() {
        let trouble =
            merged(&[("/etc/netplan/50-a.yaml", "network:\n  ethernets:\n    eth1:\n   mtu: 1\n")]).unwrap_err();
        let said = &trouble.message;
        assert!(said.starts_with("netplan's configuration can't be read: /etc/netplan/50-a.yaml:4:"), "{said}");
        assert!(trouble.hint.unwrap().contains("netplan generate"));
    }

    #[test]
    fn what_it_has_generated() {
        assert_eq!(made("/run/systemd/network/10-netplan-eth1.network"), Some("eth1"));
        assert_eq!(made("/run/NetworkManager/system-connections/netplan-bond0.10.nmconnection"), Some("bond0.10"));
        assert_eq!(made("/etc/systemd/network/10-netplan-eth1.network"), None);
        assert_eq!(made("/etc/NetworkManager/system-connections/netplan-eth1.nmconnection"), None);
    }
}
