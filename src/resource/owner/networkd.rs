//! The MTU that networkd gives an interface at boot, and a drop-in that says otherwise.
//!
//! networkd applies the first `.network` file that matches, and then its drop-ins in the order of their names; a name
//! in /etc masks the same one in /run, that one the same in /usr (systemd.network(5)). Which file it has applied is
//! what it wrote to /run/systemd/netif/links (`NETWORK_FILE=`, which `networkctl status` shows).

use super::{At, Boot, Owner, Owns, Said, Which, base, shared};
use crate::resource::{FileDiff, Fragment, Group, Need, Output, Put, Question, Step, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// Where drop-ins are, the first masking the later ones.
const FOLDERS: [&str; 5] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
    "/lib/systemd/network",
];

/// The owner.
pub(super) struct Networkd;

/// The group. An argument is the name of an interface.
#[derive(Debug)]
struct AppliedFile;

/// The configuration that networkd has applied to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Applied {
    /// The `.network` file.
    file: String,
    /// It and its drop-ins in the order in which they are read, with their texts.
    parts: Vec<(String, String)>,
}

/// A setting of one of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    /// Its value.
    value: String,
    /// Where it stands: `/etc/systemd/network/10-eth0.network:7`.
    place: String,
}

/// By index of a link: the `.network` file that networkd has applied to it.
pub(super) fn applied(said: &Said) -> BTreeMap<u32, &str> {
    let one = |line| {
        let (path, file) = str::split_once(line, ":NETWORK_FILE=")?;
        Some((base(path).parse().ok()?, file))
    };
    said.of("networkd").lines().filter_map(one).collect()
}

/// The links that share the `.network` file of this one.
pub(super) fn sharing<'a>(at: &'a At<'_>, file: &'a str) -> impl Iterator<Item = u32> {
    applied(&at.owners.said).into_iter().filter(move |(_, f)| *f == file).map(|(index, _)| index)
}

impl Owner for Networkd {
    fn name(&self) -> &'static str {
        "networkd"
    }

    fn title(&self) -> &'static str {
        "networkd"
    }

    fn ask(&self) -> &'static str {
        "[ -d /run/systemd/netif/links ] && active systemd-networkd && grep -asH '^NETWORK_FILE=' -- /run/systemd/netif/links/*"
    }

    fn questions(&self, interface: &str) -> Vec<Question> {
        vec![Question::of::<AppliedFile>(interface)]
    }

    fn sources(&self, _: &str) -> Vec<Need> {
        vec![Need::AfterBelow("/etc/systemd/network".to_owned())]
    }

    fn owns(&self, said: &Said) -> Result<Vec<Owns>, Trouble> {
        let own = applied(said).into_iter().filter(|(_, file)| super::netplan::made(file).is_none());
        Ok(own.map(|(index, file)| Owns { link: Which::Index(index), by: file.to_owned(), weak: false }).collect())
    }

    fn boot(&self, at: &At<'_>) -> Result<Boot, Trouble> {
        let (name, wanted) = (&at.link.name, at.mtu);
        let Some(applied) = at.answers.get::<AppliedFile>(name)? else {
            return Err(Trouble::new(format!("networkd has applied no file to {name}")));
        };
        let now = applied.mtu()?;
        let mut boot = Boot::of(now.as_ref().map(|(mtu, _)| *mtu), wanted);
        if boot.right {
            return Ok(boot);
        }
        let (file, path) = (&applied.file, applied.drop_in());
        let way = format!(
            "give {name} a .network file of its own; or, if all of them are to have this MTU, write `MTUBytes={wanted}` \
             below `[Link]` in {path} by a `copy`, and set `persist: false` here"
        );
        shared(file, at, sharing(at, file), way)?;
        let late = |place: &str| {
            let name = place.rsplit_once(':').and_then(|(path, _)| path.rsplit_once('/')).map_or("", |(_, name)| name);
            place.contains(".network.d/") && name > base(&path)
        };
        if let Some((mtu, place)) = now.filter(|(_, place)| late(place)) {
            return Err(Trouble::new(format!("at boot {mtu} wins: {place}"))
                .hint("remove the setting there; no name of a drop-in of netplay's own comes after it"));
        }
        let text = format!("# Written by netplay (mtu:{name}); it is replaced.\n[Link]\nMTUBytes={wanted}\n");
        boot.files.push(FileDiff {
            path: path.clone(),
            before: applied.drop_in_text().map(|t| t.as_bytes().to_vec()),
            after: Some(text.clone().into_bytes()),
            edit: None,
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
        if wanted < 1280 {
            boot.warnings.push("networkd raises an MTU below 1280 to that at boot, where IPv6 is on".to_owned());
        }
        if !applied.matches_one() {
            boot.warnings.push(format!(
                "{file} is for interfaces of a pattern: another one that comes to match it gets this MTU too"
            ));
        }
        Ok(boot)
    }
}

impl Applied {
    /// The MTU that wins, in bytes, and where it is set; nothing where none of the files sets one.
    ///
    /// # Errors
    /// The value that wins is no size.
    fn mtu(&self) -> Result<Option<(u32, String)>, Trouble> {
        let Some(Setting { value, place }) = self.settings("Link", "MTUBytes").pop() else { return Ok(None) };
        match size(&value) {
            Some(bytes) => Ok(Some((bytes, place))),
            None => Err(Trouble::new(format!("MTUBytes={value} is no size ({place})"))),
        }
    }

    /// The path of our own drop-in for this file. Its name comes late, so that it wins over others.
    fn drop_in(&self) -> String {
        format!("{}/zz-netplay-mtu.conf", self.drop_in_folder())
    }

    /// The folder of our own drop-in.
    fn drop_in_folder(&self) -> String {
        format!("{}/{}.d", FOLDERS[0], base(&self.file))
    }

    /// The text of our own drop-in as it is now.
    fn drop_in_text(&self) -> Option<&str> {
        let path = self.drop_in();
        self.parts.iter().find(|(p, _)| *p == path).map(|(_, text)| text.as_str())
    }

    /// Whether the file is for one interface alone: `[Match]` has a literal name or one hardware address or path.
    fn matches_one(&self) -> bool {
        let single = |key: &str| {
            let values: Vec<Setting> = self.settings("Match", key);
            let words: Vec<&str> = values.iter().flat_map(|s| s.value.split_whitespace()).collect();
            matches!(*words, [word] if !word.contains(['*', '?', '[', '!']))
        };
        ["Name", "MACAddress", "PermanentMACAddress", "Path"].into_iter().any(single)
    }

    /// All values of a key, in the order in which they are read; an empty one drops those before it.
    fn settings(&self, section: &str, key: &str) -> Vec<Setting> {
        let mut found = Vec::new();
        for (path, text) in &self.parts {
            let mut within = false;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                    within = name == section;
                } else if let Some((k, value)) = line.split_once('=')
                    && within
                    && !line.starts_with(['#', ';'])
                    && k.trim_end() == key
                {
                    let value = value.trim();
                    if value.is_empty() {
                        found.clear();
                    } else {
                        found.push(Setting { value: value.to_owned(), place: format!("{path}:{}", number + 1) });
                    }
                }
            }
        }
        found
    }
}

/// A size as systemd writes it: bytes, or with a suffix of base 1024 (`9K` is 9216).
fn size(text: &str) -> Option<u32> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'B') => (&text[..at], 1),
        _ => (text, 1),
    };
    digits.trim().parse::<u32>().ok()?.checked_mul(factor)
}

// `link NAME FILE` for each interface that has a file, `file PATH` for each file that is there, then their lines.
const ASK: &str = r#"seen=:
for x do shift
  i= f=
  [ ! -e "/sys/class/net/$x/ifindex" ] || read -r i <"/sys/class/net/$x/ifindex"
  [ -n "$i" ] && [ -r "/run/systemd/netif/links/$i" ] || continue
  while IFS= read -r l; do case $l in NETWORK_FILE=*) f=${l#NETWORK_FILE=} ;; esac; done <"/run/systemd/netif/links/$i"
  [ -n "$f" ] || continue
  printf 'link %s %s\n' "$x" "$f"
  case $seen in *":$f:"*) continue ;; esac
  seen=$seen$f:
  d=${f##*/}.d
  for g in "$f" /etc/systemd/network/"$d"/*.conf /run/systemd/network/"$d"/*.conf /usr/local/lib/systemd/network/"$d"/*.conf \
    /usr/lib/systemd/network/"$d"/*.conf /lib/systemd/network/"$d"/*.conf; do
    [ ! -e "$g" ] || { printf 'file %s\n' "$g"; set -- "$@" "$g"; }
  done
done
[ $# -eq 0 ] || grep -aH '' -- "$@""#;

impl Group for AppliedFile {
    type Answer = Option<Applied>;
    const NAME: &'static str = "networkd";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(ASK).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Option<Applied>, Trouble>> {
        let Some(output) = outputs.first() else { return vec![Err(Trouble::new("no answer")); args.len()] };
        // grep ends with 1 where all files are empty.
        if output.code > 1 {
            let trouble = format!("the files of networkd can't be read: {}", output.complaint());
            return vec![Err(Trouble::new(trouble)); args.len()];
        }
        let text = output.text();
        let (mut links, mut files) = (BTreeMap::new(), BTreeMap::<&str, String>::new());
        for line in text.lines() {
            if let Some((name, file)) = line.strip_prefix("link ").and_then(|l| l.split_once(' ')) {
                links.insert(name, file);
            } else if let Some(path) = line.strip_prefix("file ") {
                files.insert(path, String::new());
            } else if let Some(path) =
                files.keys().copied().find(|p| line.strip_prefix(p).is_some_and(|l| l.starts_with(':')))
            {
                let content = files.entry(path).or_default();
                content.push_str(&line[path.len() + 1..]);
                content.push('\n');
            }
        }
        let applied = |file: &&str| {
            let drop_ins = format!("/{}.d/", base(file));
            let mut by_name = BTreeMap::<&str, &str>::new();
            for folder in FOLDERS {
                let below = format!("{folder}{drop_ins}");
                for path in files.keys().filter(|p| p.starts_with(&below)) {
                    by_name.entry(base(path)).or_insert(path);
                }
            }
            let paths = std::iter::once(*file).chain(by_name.into_values());
            let parts = paths.filter_map(|p| Some((p.to_owned(), files.get(p)?.clone()))).collect();
            Applied { file: (*file).to_owned(), parts }
        };
        args.iter().map(|arg| Ok(links.get(arg).map(applied))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, ask};

    fn applied(text: &str) -> Applied {
        let output = Output { stdout: text.into(), ..Output::default() };
        AppliedFile::split(&["eth0"], &[output]).remove(0).unwrap().unwrap()
    }

    #[test]
    fn the_last_drop_in_wins() {
        let found = applied(
            "link eth0 /usr/lib/systemd/network/10-eth.network\n\
             file /usr/lib/systemd/network/10-eth.network\n\
             file /etc/systemd/network/10-eth.network.d/20-b.conf\n\
             file /run/systemd/network/10-eth.network.d/20-b.conf\n\
             file /run/systemd/network/10-eth.network.d/10-a.conf\n\
             /usr/lib/systemd/network/10-eth.network:[Match]\n\
             /usr/lib/systemd/network/10-eth.network:Name = eth0\n\
             /usr/lib/systemd/network/10-eth.network:[Link]\n\
             /usr/lib/systemd/network/10-eth.network:MTUBytes=1500\n\
             /etc/systemd/network/10-eth.network.d/20-b.conf:[Link]\n\
             /etc/systemd/network/10-eth.network.d/20-b.conf:# MTUBytes=1\n\
             /etc/systemd/network/10-eth.network.d/20-b.conf: MTUBytes = 9K\n\
             /etc/systemd/network/10-eth.network.d/20-b.conf:[Route]\n\
             /etc/systemd/network/10-eth.network.d/20-b.conf:MTUBytes=1400\n\
             /run/systemd/network/10-eth.network.d/20-b.conf:[Link]\n\
             /run/systemd/network/10-eth.network.d/20-b.conf:MTUBytes=4000\n\
             /run/systemd/network/10-eth.network.d/10-a.conf:[Link]\n\
             /run/systemd/network/10-eth.network.d/10-a.conf:MTUBytes=\n",
        );
        let place = "/etc/systemd/network/10-eth.network.d/20-b.conf:3".to_owned();
        assert_eq!(found.mtu(), Ok(Some((9216, place))));
        assert_eq!(found.drop_in(), "/etc/systemd/network/10-eth.network.d/zz-netplay-mtu.conf");
        assert!(found.matches_one() && found.drop_in_text().is_none());
    }

    #[test]
    fn what_a_file_is_for() {
        let one = |matching: &str| {
            let line = |l: &str| format!("/etc/systemd/network/a.network:{l}\n");
            let text = "link eth0 /etc/systemd/network/a.network\nfile /etc/systemd/network/a.network\n".to_owned()
                + &line("[Match]")
                + &line(matching);
            applied(&text).matches_one()
        };
        assert!(one("Name=eth0") && one("MACAddress=b8:ce:f6:00:00:01"));
        assert!(!one("Name=eth*") && !one("Name=eth0 eth1") && !one("Type=ether") && !one("Name=!eth1"));
    }

    #[test]
    fn sizes() {
        assert_eq!(
            ["9000", "9K", "1M", "9000B", "x", "-1", "", "9k"].map(size),
            [Some(9000), Some(9216), Some(1 << 20), Some(9000), None, None, None, None]
        );
        let wrong = applied(
            "link eth0 /etc/a.network\nfile /etc/a.network\n/etc/a.network:[Link]\n/etc/a.network:MTUBytes=big\n",
        );
        assert_eq!(wrong.mtu().unwrap_err().message, "MTUBytes=big is no size (/etc/a.network:2)");
    }

    #[test]
    fn files_are_found_in_every_shell() {
        let setup = "ip link add eth9 type dummy 2>/dev/null || ip link add eth9 type veth peer name eth8
            mount -t tmpfs t /run; mount -t tmpfs t /etc
            mkdir -p /run/systemd/netif/links /run/systemd/network/10-x.network.d /etc/systemd/network/10-x.network.d
            for x in eth8 eth9; do
              read -r i </sys/class/net/$x/ifindex
              printf 'ADMIN_STATE=configured\\nNETWORK_FILE=/etc/systemd/network/10-x.network\\n' >/run/systemd/netif/links/$i
            done
            printf '[Match]\\nName=eth*' >/etc/systemd/network/10-x.network
            printf '[Link]\\nMTUBytes=4000\\n' >/run/systemd/network/10-x.network.d/a:b.conf
            ln -s /dev/null /etc/systemd/network/10-x.network.d/a:b.conf
            printf '[Link]\\nMTUBytes=9000\\n' >/run/systemd/network/10-x.network.d/c.conf";
        for shell in Shell::ALL {
            let args = ["eth8", "eth9", "lo", "nope"];
            let script = AppliedFile::compose(&args).remove(0).script;
            let output = shell.run_in_net(setup, script.as_str());
            let answers = AppliedFile::split(&args, &[output]);
            let found = answers[1].as_ref().unwrap().as_ref().unwrap();
            let place = "/run/systemd/network/10-x.network.d/c.conf:2".to_owned();
            assert_eq!(found.mtu(), Ok(Some((9000, place))), "{shell:?}");
            assert_eq!(answers[0].as_ref().unwrap().as_ref(), Some(found));
            assert!(answers[2].as_ref().unwrap().is_none() && answers[3].as_ref().unwrap().is_none());
        }
        assert!(ask(Shell::Dash, [Question::of::<AppliedFile>("lo")]).get::<AppliedFile>("lo").unwrap().is_none());
    }
}
