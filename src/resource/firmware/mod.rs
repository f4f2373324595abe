//! `firmware`: which firmware NVIDIA's network cards have to run, by their board identity (PSID). It burns nothing.

mod version;

use self::version::{Rule, Version};
use super::cards::{self, Device, Found, Loads, Standing, new_line, standing};
use super::spec::{Key, Spec, text};
use super::{
    Answers, Change, Claim, Fragment, Group, Need, Obstacle, Output, Question, Reading, Resource, Stale, Step, Trouble,
};
use crate::error::Error;
use std::collections::BTreeMap;

/// The name under which a burnt image is noted as waiting for a boot.
const NOTE: &str = "firmware";

/// The firmware of a card, or of all cards of a host.
#[derive(Debug)]
pub struct Firmware {
    device: Device,
    version: Vec<(String, Rule)>,
}

/// What a probe found.
#[derive(Debug)]
pub struct State {
    found: Found,
    cards: Vec<Card>,
}

/// One card.
#[derive(Debug)]
struct Card {
    address: String,
    is: Result<Is, Trouble>,
}

/// What is known of its firmware.
#[derive(Debug)]
struct Is {
    psid: String,
    running: Version,
    /// What is burnt; nothing where no tool tells.
    image: Option<Version>,
}

/// The group. An argument is a device.
struct Firmwares;

impl Group for Firmwares {
    type Answer = Found;
    const NAME: &'static str = "card firmware";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        cards::ask(args, include_str!("probe.sh"))
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        cards::answers(args, outputs)
    }
}

/// What was told of one card: the driver knows what runs, flint what is burnt.
fn read(found: &Found, address: &str) -> Result<Is, Trouble> {
    let (code, said) = found.answers.get(address).cloned().unwrap_or((255, String::new()));
    let line = |key: &str| said.lines().find_map(|l| l.strip_prefix(key)).map(str::trim).filter(|v| !v.is_empty());
    let version = |key: &str| line(key).and_then(Version::of);
    let image = version("FW Version:");
    let running = version("driver running ").or_else(|| version("FW Version(Running):")).or_else(|| image.clone());
    let psid = line("driver psid ").or_else(|| line("PSID:"));
    match (psid, running) {
        (Some(psid), Some(running)) => Ok(Is { psid: psid.to_owned(), running, image }),
        _ => Err(match &found.tool {
            Some(tool) => cards::refusal(found, tool, address, code, &said),
            None => Trouble::new(format!(
                "{address}: its driver doesn't tell its firmware, and neither flint nor mstflint is here"
            ))
            .hint("install mstflint (`package: {name: mstflint}`) or NVIDIA's MFT, before this"),
        }),
    }
}

/// What follows from what a card is.
#[derive(Debug, Default)]
struct Judged<'a> {
    changes: Vec<Change>,
    notes: BTreeMap<String, cards::Setting>,
    warnings: Vec<String>,
    troubles: Vec<Trouble>,
    /// The cards of the changes.
    of: Vec<&'a str>,
}

impl Firmware {
    fn judge<'a>(&self, now: &'a State) -> Judged<'a> {
        let mut judged = Judged::default();
        for Card { address, is } in &now.cards {
            match is {
                Ok(is) => self.card(now, address, is, &mut judged),
                Err(trouble) => judged.troubles.push(trouble.clone()),
            }
        }
        judged
    }

    fn card<'a>(&self, now: &State, address: &'a str, is: &Is, judged: &mut Judged<'a>) {
        let Is { psid, running, image } = is;
        let Some((_, rule)) = self.version.iter().find(|(known, _)| known.eq_ignore_ascii_case(psid)) else {
            judged.warnings.push(format!(
                "{address} is a {psid}, which `version` doesn't name, so nothing is asserted of it: it runs {running}. The cards of \
                 a server's maker have board identities and images of their own"
            ));
            return;
        };
        let burn = "burn it by flint, mlxfwmanager or the tool of the server's maker, which has to be the image of that board \
                    identity; netplay burns nothing";
        let image = image.as_ref().filter(|image| *image != running);
        let Some(image) = image else {
            if !rule.fits(running) {
                let message = format!("{address} ({psid}) runs {running}, and has to run {rule}");
                judged.troubles.push(Trouble::new(message).hint(burn));
            }
            return;
        };
        if !rule.fits(image) {
            let then =
                format!("{address} ({psid}) has {image} burnt, which runs from the next boot, and has to run {rule}");
            judged.troubles.push(Trouble::new(format!("{then}; now it runs {running}")).hint(burn));
            return;
        }
        let (wanted, was) = (image.to_string(), running.to_string());
        let marks = now.found.marks(address);
        match standing(marks, &now.found.boot, NOTE, |noted| noted == wanted, Some(&was)) {
            Standing::Waits { effect, noted } => {
                judged.changes.push(Change { effect, ..Change::now("version", was.as_str(), wanted.as_str()) });
                judged.of.push(address);
                if !noted {
                    let notes = vec![new_line(NOTE, &wanted, Some(&was))];
                    judged.notes.insert(address.to_owned(), cards::Setting { notes, ..cards::Setting::default() });
                }
            }
            Standing::NotApplied(Loads::Reboot | Loads::PowerCycle | Loads::Cycled) => {
                let message = format!("{address} ({psid}) still runs {running} after a boot, and {image} is burnt");
                let hint = "it may need a power cycle, or `mlxfwreset -d DEVICE reset`";
                if rule.fits(running) {
                    judged.warnings.push(format!("{message}: {hint}; no reboot is asked for again"));
                } else {
                    judged.troubles.push(Trouble::new(format!("{message}: it has to run {rule}")).hint(hint));
                }
            }
        }
    }
}

impl Resource for Firmware {
    type State = State;
    const TYPE: &'static str = "firmware";
    const SUMMARY: &'static str = "Which firmware NVIDIA's network cards have to run, by board identity";
    const TOUCHES: &'static str = "\
        Nothing on the card: it never burns. What runs is read from sysfs, and what is burnt by `flint` or `mstflint`, one query \
        for each card, all cards at once. A burnt image that waits for a boot is noted in `/var/lib/netplay/pending`.";
    const KEYS: &'static [Key] = &[
        Key::required("device", Device::TAKES, "Which card. `all`: each card that is no virtual function."),
        Key::required(
            "version",
            "mapping",
            "Board identities (PSID, `board_id` of the facts) and the version that each has to run: `16.35.4030`, one of a list, or \
             `>= 16.35.4030`. A card with another identity is told and passes, and so is an \
             identity that no card of any host has. An image that is burnt and doesn't run yet is a \
             pending reboot.",
        ),
    ];
    const EXAMPLE: &'static str = "\
- name: firmware that goes with the driver
  firmware:
    device: all
    version:
      MT_0000000838: \">= 28.39.1002\"
      DEL0000000027: [16.35.4030, 16.35.3502]
";

    fn parse(spec: &Spec<'_>) -> Result<Firmware, Error> {
        let device = Device::of(spec)?;
        let mut version: Vec<(String, Rule)> = Vec::new();
        let node = spec.need("version")?;
        for (key, node) in spec.entries("version")?.unwrap_or_default() {
            let psid = text("version", key)?;
            if psid.is_empty() || !psid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(Error::playbook(&key.span, format!("`{psid}` is no board identity"))
                    .hint("they look like `MT_0000000838` or `DEL0000000027`: `board_id` of `netplay facts`"));
            }
            if version.iter().any(|(other, _)| other.eq_ignore_ascii_case(&psid)) {
                return Err(Error::playbook(&key.span, format!("`{psid}` is named twice")));
            }
            version.push((psid, Rule::of(node)?));
        }
        if version.is_empty() {
            return Err(Error::playbook(&node.span, "`version` names no board identity")
                .hint("write `version: {MT_0000000838: \">= 28.39.1002\"}`"));
        }
        Ok(Firmware { device, version })
    }

    fn identity(&self) -> String {
        self.device.0.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::new("firmware of a card", &self.device.0)]
    }

    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        ["mstflint", "mft"].map(|package| Need::After(Claim::new("package", package))).into()
    }

    fn stale_after(&self) -> Stale {
        Stale::AnyDependency
    }

    fn probe(&self) -> Vec<Question> {
        vec![Question::of::<Firmwares>(&self.device.0)]
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let found = answers.get::<Firmwares>(&self.device.0)?.clone();
        let targets = match self.device.targets(&found) {
            Ok(targets) => targets,
            Err(trouble) => return Ok(Reading::NotYet(trouble)),
        };
        let cards: Vec<Card> =
            targets.iter().map(|address| Card { address: address.clone(), is: read(&found, address) }).collect();
        match cards.iter().find_map(|card| card.is.as_ref().err()) {
            Some(trouble) if found.tool.is_none() => Ok(Reading::NotYet(trouble.clone())),
            _ => Ok(Reading::State(State { found, cards })),
        }
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        let Judged { changes, of, .. } = self.judge(now);
        cards::folded(changes.into_iter().zip(of), now.cards.len())
    }

    fn apply(&self, now: &State) -> Vec<Step> {
        let notes = self.judge(now).notes;
        if notes.is_empty() { Vec::new() } else { vec![cards::step(&notes)] }
    }

    fn obstacle(&self, now: &State) -> Option<Obstacle> {
        Trouble::all(self.judge(now).troubles).map(Obstacle::stops)
    }

    fn warnings(&self, now: &State) -> Vec<String> {
        self.judge(now).warnings
    }

    fn in_vain(&self, now: &State) -> Vec<String> {
        if now.cards.iter().any(|card| card.is.is_err()) {
            return Vec::new();
        }
        let psids: Vec<&str> = now.cards.iter().filter_map(|c| c.is.as_ref().ok()).map(|is| is.psid.as_str()).collect();
        let vain = self.version.iter().filter(|(known, _)| !psids.iter().any(|psid| known.eq_ignore_ascii_case(psid)));
        vain.map(|(psid, _)| format!("no card is a {psid}, which `version` names: is it misspelt?")).collect()
    }

    fn live_only(&self) -> Option<&'static str> {
        Some("it is in the card, and an image has none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What flint prints: of an image that doesn't run yet two versions.
    #[test]
    fn what_runs_and_what_is_burnt() {
        let flint = "Image type:            FS4\nFW Version:            20.35.1012\nFW Version(Running):   20.34.1002\n\
                     FW Release Date:       28.10.2022\nProduct Version:       20.35.1012\nPSID:                  MT_0000000228\n";
        let of = |code: i32, told: &str| {
            let found =
                Found::read(&format!("tool mstflint\ncard 0000:86:00.0 0x020000 - -\n== 0000:86:00.0 {code}\n{told}"));
            let show = |v: Version| v.to_string();
            read(&found, "0000:86:00.0").map(|is| (is.psid, show(is.running), is.image.map(show)))
        };
        let is = |psid: &str, running: &str, image: Option<&str>| {
            (psid.to_owned(), running.to_owned(), image.map(str::to_owned))
        };
        assert_eq!(of(0, flint), Ok(is("MT_0000000228", "20.34.1002", Some("20.35.1012"))));
        let driver = "driver running 28.39.1002\ndriver psid DEL0000000027\n";
        assert_eq!(of(0, driver), Ok(is("DEL0000000027", "28.39.1002", None)));
        assert_eq!(of(1, &(driver.to_owned() + "-E- Cannot open Device")), Ok(is("DEL0000000027", "28.39.1002", None)));
        let refused =
            of(1, "-E- Cannot open Device: 0000:86:00.0. No such file or directory. MFE_CR_ERROR").unwrap_err();
        assert!(
            refused.message.contains("it can't be opened: mstflint ended with 1: Cannot open Device"),
            "{refused:?}"
        );
    }
}
