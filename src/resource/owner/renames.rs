//! What a link is called after the next boot: systemd's `.link` files, which udev applies to a device as it appears. The
//! first file that matches counts (systemd.link(5)); netplan's `set-name` becomes such a file.

use super::base;
use crate::resource::probes::links::Link;
use std::collections::BTreeMap;

pub(super) const ASK: &str = r#"set --
for f in /etc/systemd/network/*.link /run/systemd/network/*.link; do [ ! -e "$f" ] || { list "$f"; set -- "$@" "$f"; }; done
[ $# -eq 0 ] || grep -asH '' -- "$@""#;

/// The name, and the file that gives it, where it isn't the one that the link has.
pub(super) fn after_boot(files: &BTreeMap<&str, String>, link: &Link) -> Option<(String, String)> {
    // What has no device of its own isn't renamed by its hardware address, which is that of the device below it.
    if link.lower.is_some() || !matches!(link.kind.as_str(), "ethernet" | "infiniband" | "veth") {
        return None;
    }
    let mut by_name = BTreeMap::new();
    for (path, text) in files {
        // A name in /etc masks the same one in /run.
        if !by_name.contains_key(base(path)) || path.starts_with("/etc/") {
            by_name.insert(base(path), (*path, text));
        }
    }
    let (path, name) = by_name.into_values().find_map(|(path, text)| Some((path, matched(text, link)?)))?;
    name.filter(|name| *name != link.name).map(|name| (name, path.to_owned()))
}

/// The name that the text of a `.link` file gives a link, if it gives one; nothing where it doesn't match, or by
/// something that isn't known of links.
fn matched(text: &str, link: &Link) -> Option<Option<String>> {
    let address = link.permanent_mac.as_ref().or(link.mac.as_ref()).map(|m| m.to_lowercase());
    let (mut within, mut any, mut name) = ("", false, None);
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            within = section;
            continue;
        }
        let Some((key, value)) = line.split_once('=').map(|(key, value)| (key.trim_end(), value.trim())) else {
            continue;
        };
        match (within, key) {
            ("Match", "MACAddress" | "PermanentMACAddress") => {
                any = true;
                let mut words = value.split_whitespace().map(|w| w.to_lowercase().replace('-', ":"));
                if !words.any(|word| Some(word) == address) {
                    return None;
                }
            }
            ("Match", "OriginalName") => {
                any = true;
                if !value.split_whitespace().any(|word| word == link.name) {
                    return None;
                }
            }
            ("Match", _) => return None,
            ("Link", "Name") => name = Some(value.to_owned()).filter(|v| !v.is_empty()),
            _ => {}
        }
    }
    any.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_matches_counts() {
        let link = |name: &str, kind: &str| Link {
            name: name.to_owned(),
            kind: kind.to_owned(),
            mac: Some("b8:ce:f6:00:00:01".to_owned()),
            ..Link::default()
        };
        let (by_mac, off) = ("[Match]\nMACAddress=B8:CE:F6:00:00:01\n[Link]\nName=rail0\n", "[Match]\n");
        let after = |files: &[(&'static str, &str)], name: &str| {
            let files = files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
            after_boot(&files, &link(name, "ethernet")).map(|(name, _)| name)
        };
        let (etc, run) = ("/etc/systemd/network/50-a.link", "/run/systemd/network/50-a.link");
        assert_eq!(after(&[(etc, by_mac)], "eth0").as_deref(), Some("rail0"));
        assert_eq!(after(&[(etc, by_mac)], "rail0"), None, "it has that name");
        assert_eq!(after(&[(etc, off), (run, by_mac)], "eth0"), None, "masked");
        let first = "[Match]\nOriginalName=eth0\n[Link]\nMTUBytes=9000\n";
        assert_eq!(after(&[("/run/systemd/network/10-a.link", first), (etc, by_mac)], "eth0"), None);
        assert_eq!(
            after(&[("/run/systemd/network/10-a.link", first), (etc, by_mac)], "eth1").as_deref(),
            Some("rail0")
        );
        assert_eq!(after(&[(etc, "[Match]\nDriver=mlx5_core\n[Link]\nName=rail0\n")], "eth0"), None, "not known");
        assert_eq!(after(&[(etc, "[Link]\nName=rail0\n")], "eth0"), None, "matches nothing");
        let files = BTreeMap::from([(etc, by_mac.to_owned())]);
        assert_eq!(after_boot(&files, &link("eth0.100", "vlan")), None);
        assert_eq!(after_boot(&files, &link("eth0", "veth")), Some(("rail0".to_owned(), etc.to_owned())));
        let port = Link { permanent_mac: Some("b8:ce:f6:00:00:02".to_owned()), ..link("eth1", "ethernet") };
        assert_eq!(after_boot(&files, &port), None, "the address of its bond isn't its own");
    }
}
