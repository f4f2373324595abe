//! ifupdown: stanzas of /etc/network/interfaces and the files that it includes (interfaces(5)).
//!
//! A stanza's `mtu` counts for methods that know it (`static`, `manual`); for the others the interface is set by a
//! command of the stanza. Only that one line is changed. Nothing is ever put beside these files: in a folder that
//! `source` names it would be configuration.

use super::{At, Boot, Owner, Owns, Said, Which};
use crate::resource::keyfile::Edit;
use crate::resource::probes::links::Link;
use crate::resource::{Claim, Need, Trouble};
use std::collections::BTreeMap;

/// The owner.
pub(super) struct Ifupdown;

const MAIN: &str = "/etc/network/interfaces";

/// A stanza `iface NAME FAMILY METHOD`.
#[derive(Debug)]
struct Stanza<'a> {
    path: &'a str,
    /// Its first line as it stands, which one of such lines in its file that is, and the line's number.
    start: &'a str,
    nth: usize,
    number: usize,
    interface: String,
    family: String,
    method: String,
    /// The name of the stanza that it takes options from.
    inherits: Option<String>,
    options: Vec<Line<'a>>,
}

/// A line of a stanza, or one that several were joined to.
#[derive(Debug)]
struct Line<'a> {
    /// As it stands; of several the first.
    raw: &'a str,
    /// What it says.
    text: String,
    number: usize,
    long: bool,
}

/// What all files say.
#[derive(Debug, Default)]
struct Interfaces<'a> {
    stanzas: Vec<Stanza<'a>>,
    /// What is brought up at boot or when the device appears.
    automatic: Vec<String>,
}

impl<'a> Interfaces<'a> {
    fn parse(files: &'a [(&'a str, String)]) -> Interfaces<'a> {
        let mut found = Interfaces::default();
        for (path, text) in files {
            let mut begins = BTreeMap::<&str, usize>::new();
            let mut within = false;
            let mut lines = text.lines().enumerate();
            while let Some((at, raw)) = lines.next() {
                let mut text = raw.trim().to_owned();
                if text.is_empty() || text.starts_with('#') {
                    continue;
                }
                let long = text.ends_with('\\');
                while text.ends_with('\\') {
                    text.pop();
                    let Some((_, next)) = lines.next() else { break };
                    text.push_str(next.trim());
                }
                let line = Line { raw, text, number: at + 1, long };
                let words: Vec<&str> = line.text.split_whitespace().collect();
                match *words {
                    ["iface", interface, ref rest @ ..] => {
                        let nth = begins.entry(raw).or_default();
                        *nth += 1;
                        let inherits = rest.iter().position(|w| *w == "inherits").and_then(|at| rest.get(at + 1));
                        let word = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
                        found.stanzas.push(Stanza {
                            path,
                            start: raw,
                            nth: *nth,
                            number: line.number,
                            interface: interface.to_owned(),
                            family: word(0),
                            method: word(1),
                            inherits: inherits.map(|s| (*s).to_owned()),
                            options: Vec::new(),
                        });
                        within = true;
                    }
                    [word, ref names @ ..] if word == "auto" || word.starts_with("allow-") => {
                        found.automatic.extend(names.iter().map(|n| (*n).to_owned()));
                        within = false;
                    }
                    ["mapping" | "source" | "source-directory" | "no-auto-down" | "no-scripts" | "rename", ..] => {
                        within = false;
                    }
                    _ => {
                        if let Some(stanza) = found.stanzas.last_mut().filter(|_| within) {
                            stanza.options.push(line);
                        }
                    }
                }
            }
        }
        found
    }
}

/// A line of a stanza that sets the MTU of its interface.
struct Sets<'a> {
    stanza: &'a Stanza<'a>,
    line: &'a Line<'a>,
    mtu: u32,
}

impl Stanza<'_> {
    /// Whether its method knows the option `mtu` (ifupdown, inet.defn and inet6.defn).
    fn knows_mtu(&self) -> bool {
        matches!((self.family.as_str(), self.method.as_str()), ("inet" | "inet6", "static" | "manual" | "tunnel"))
    }

    /// The lines that set the MTU, in the order in which they are carried out.
    fn sets(&self) -> Result<Vec<Sets<'_>>, Trouble> {
        let (mut before, mut option, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for line in &self.options {
            let words: Vec<&str> = line.text.split_whitespace().collect();
            let place = || format!("{}:{}", self.path, line.number);
            let (list, value) = match *words {
                ["mtu", value] if self.knows_mtu() => (&mut option, value),
                ["pre-up", ref command @ ..] | ["up" | "post-up", ref command @ ..] => {
                    let Some(at) = command.iter().position(|w| *w == "mtu") else { continue };
                    let plain = |w: &str| w.replace(['"', '\'', '{', '}'], "");
                    if !command.iter().any(|w| plain(w) == self.interface || plain(w) == "$IFACE") {
                        continue;
                    }
                    let list = if words[0] == "pre-up" { &mut before } else { &mut after };
                    (list, command.get(at + 1).copied().unwrap_or_default())
                }
                _ => continue,
            };
            let Ok(mtu) = value.parse() else {
                return Err(Trouble::new(format!(
                    "{}: what this makes of the MTU can't be told: {}",
                    place(),
                    line.text
                )));
            };
            list.push(Sets { stanza: self, line, mtu });
        }
        if let [_, second, ..] = &*option {
            let place = format!("{}:{}", self.path, second.line.number);
            return Err(Trouble::new(format!("{place}: a second `mtu` in the stanza of {}", self.interface))
                .hint("remove one of them: ifup passes both on, and fails"));
        }
        Ok(before.into_iter().chain(option).chain(after).collect())
    }
}

/// The line that counts: the last one that is carried out. An `mtu` of inet6 only raises the link's MTU.
fn wins<'a>(stanzas: &[&'a Stanza<'a>]) -> Result<Option<Sets<'a>>, Trouble> {
    let mut winner: Option<Sets<'a>> = None;
    for stanza in stanzas {
        for sets in stanza.sets()? {
            let only_raises = stanza.family == "inet6" && sets.line.text.starts_with("mtu");
            if !only_raises || winner.as_ref().is_none_or(|w| w.mtu < sets.mtu) {
                winner = Some(sets);
            }
        }
    }
    Ok(winner)
}

impl Ifupdown {
    fn files<'a>(&self, said: &'a Said) -> Result<Vec<(&'a str, String)>, Trouble> {
        // The order is that in which they are included.
        let mut texts = said.files(self.name())?;
        let listed = said.of(self.name()).lines().filter_map(|line| line.strip_prefix("file "));
        Ok(listed.filter_map(|path| Some((path, texts.remove(path)?))).collect())
    }

    /// Whether it is switched on, so that it configures interfaces at boot.
    fn is_on(&self, said: &Said) -> bool {
        !said.of(self.name()).starts_with("off\n")
    }
}

impl Owner for Ifupdown {
    fn name(&self) -> &'static str {
        "ifupdown"
    }

    fn title(&self) -> &'static str {
        "ifupdown"
    }

    fn ask(&self) -> &'static str {
        r#"scan() {
  case $seen in *" $1 "*) return ;; esac
  [ -f "$1" ] || return
  seen="$seen$1 "
  list "$1"
  set -- "$1"
  while read -r w p || [ -n "$w" ]; do
    case $w in source|source-directory) ;; *) continue ;; esac
    case $p in /*) ;; *) p=/etc/network/$p ;; esac
    if [ $w = source ]; then set -- "$@" $p; continue; fi
    for f in $p/*; do case ${f##*/} in *[!a-zA-Z0-9_-]*) ;; *) set -- "$@" "$f" ;; esac; done
  done <"$1"
  shift
  for f do scan "$f"; done
}
if [ -f /etc/network/interfaces ] && { [ -x /sbin/ifup ] || [ -x /usr/sbin/ifup ]; }; then
  if [ -d /run/systemd/system ]; then
    on=
    for f in /etc/systemd/system/*.wants/networking.service; do [ ! -L "$f" ] || on=1; done
    [ ! -L /etc/systemd/system/networking.service ] || on=
    [ -n "$on" ] || echo off
  fi
  seen=' '
  scan /etc/network/interfaces
  grep -asH '' -- $seen
  for f in $seen; do set -- "$@" "$f"; done
fi"#
    }

    fn sources(&self, _: &str) -> Vec<Need> {
        vec![Need::After(Claim::new("path", MAIN)), Need::AfterBelow(format!("{MAIN}.d"))]
    }

    fn owns(&self, said: &Said) -> Result<Vec<Owns>, Trouble> {
        if !self.is_on(said) {
            return Ok(Vec::new());
        }
        let files = self.files(said)?;
        let own = |s: &Stanza<'_>| Owns { link: Which::Name(s.interface.clone()), by: s.path.to_owned(), weak: false };
        Ok(Interfaces::parse(&files).stanzas.iter().map(own).collect())
    }

    fn idle(&self, said: &Said, link: &Link) -> Option<String> {
        let files = self.files(said).ok()?;
        let found = Interfaces::parse(&files);
        let stanza = found.stanzas.iter().find(|s| s.interface == link.name)?;
        (!self.is_on(said)).then(|| {
            format!("{}:{} has a stanza for it, but ifupdown's networking.service is off", stanza.path, stanza.number)
        })
    }

    fn boot(&self, at: &At<'_>) -> Result<Boot, Trouble> {
        let name = &at.link.name;
        let files = self.files(&at.owners.said)?;
        let found = Interfaces::parse(&files);
        let stanzas: Vec<&Stanza<'_>> = found.stanzas.iter().filter(|s| s.interface == *name).collect();
        let Some(first) = stanzas.iter().find(|s| s.family == "inet").or(stanzas.first()) else {
            return Err(Trouble::new(format!("{MAIN} has no stanza for {name}")));
        };
        let place = format!("{}:{}", first.path, first.number);
        // A name that begins with a slash is a pattern.
        if !found.automatic.iter().any(|auto| auto == name || auto.starts_with('/')) {
            return Err(Trouble::new(format!("ifupdown doesn't bring {name} up at boot: there is no `auto {name}`"))
                .hint(format!("put that line above its stanza, {place}")));
        }
        if let Some(parent) = stanzas.iter().find_map(|s| s.inherits.as_ref()) {
            return Err(Trouble::new(format!(
                "{place}: the stanza of {name} inherits from `{parent}`, which wins over it"
            ))
            .hint(format!("write `mtu {}` into the stanza of `{parent}` by hand, and set `persist: false`", at.mtu)));
        }
        let now = wins(&stanzas)?;
        let mut boot = Boot::of(now.as_ref().map(|sets| sets.mtu), at.mtu);
        if boot.right {
            return Ok(boot);
        }
        let (stanza, old, new) = match &now {
            Some(sets) if sets.line.long => {
                return Err(Trouble::new(format!(
                    "{}:{}: this goes on over several lines",
                    sets.stanza.path, sets.line.number
                ))
                .hint("write it on one line there; netplay changes whole lines"));
            }
            Some(sets) => {
                // The number behind the word `mtu`, with what stands between.
                let at_word = sets.line.raw.find("mtu").unwrap_or_default() + "mtu".len();
                let (before, rest) = sets.line.raw.split_at(at_word);
                (
                    sets.stanza,
                    Some(sets.line.raw),
                    before.to_owned() + &rest.replacen(&sets.mtu.to_string(), &at.mtu.to_string(), 1),
                )
            }
            None => {
                let option = first.options.first().map_or("    ", |o| o.raw);
                let indent = &option[..option.len() - option.trim_start().len()];
                let line = match first.knows_mtu() && first.family == "inet" {
                    true => format!("{indent}mtu {}", at.mtu),
                    false => format!("{indent}post-up ip link set dev $IFACE mtu {}", at.mtu),
                };
                (*first, None, line)
            }
        };
        at.owners.refuse_cloud_init(stanza.path)?;
        let edit = Edit::within(stanza.path, stanza.start, stanza.nth, old, &new);
        let before = files.iter().find(|(path, _)| *path == stanza.path).map(|(_, text)| text.as_bytes());
        boot.files.push(edit.preview(before));
        boot.steps.push(edit.step());
        Ok(boot)
    }
}
