//! NVIDIA's cards (ConnectX, BlueField) as their firmware tools see them: which ones a host has and which of them a
//! resource means, and what of their settings waits for a boot.

mod pending;
mod set;

pub(super) use pending::{FOLDER, Loads, Mark, Standing, new_line, standing};
pub(super) use set::{Setting, step};

use crate::error::Error;
use crate::resource::question::both_ends;
use crate::resource::{Change, Fragment, Output, Spec, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// Shell functions: `cards`, `resolve`, `each`, `each_card`, `tool`.
pub(super) const CARDS: &str = include_str!("cards.sh");

/// What a group asks of the cards: this script behind the shell functions. Its answer to all arguments is one [`Found`].
pub(super) fn ask(args: &[&str], script: &'static str) -> Vec<Fragment> {
    vec![Script::new().set("D", FOLDER).args(args).line(CARDS).line(script).into()]
}

/// The answer of such a group, for each argument.
pub(super) fn answers(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
    let read = |output: &Output| match output.code {
        0 => Ok(Found { asked: args.iter().map(|&a| a.to_owned()).collect(), ..Found::read(&output.text()) }),
        code => Err(Trouble::new(format!("the cards can't be asked: exit code {code}: {}", output.complaint()))),
    };
    args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
}

/// Notes that the machine's power was cycled: what waited for that and still isn't current has not been taken over.
pub fn power_was_cycled() -> Script {
    Script::new()
        .set("D", FOLDER)
        .line("for f in \"$D\"/*; do [ ! -f \"$f\" ] || sed -i 's/ power_cycle$/ cycled/' -- \"$f\" || exit 1; done")
}

/// How long a tool is waited for when it is asked, in seconds; it is in the scripts too.
pub(super) const ASK_SECONDS: u32 = 60;

/// Which cards a resource means: its key `device`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device(pub(super) String);

/// A network function of a card, as sysfs shows it. Source: /sys/bus/pci/devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    /// `0000:86:00.0`.
    pub(super) address: String,
    /// The class of pci.ids: `0x020000` Ethernet, `0x020700` InfiniBand.
    pub(super) class: String,
    /// The interfaces on it.
    pub(super) interfaces: Vec<String>,
    /// Its RDMA devices.
    pub(super) rdma: Vec<String>,
}

/// What the shell functions have told.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The tool that is there, if any is.
    pub(super) tool: Option<String>,
    /// This boot's id.
    pub(super) boot: String,
    /// The cards' functions.
    pub(super) functions: Vec<Function>,
    /// The addresses that each word stands for.
    pub(super) targets: BTreeMap<String, Vec<String>>,
    /// What waits for a boot, by the name of the note.
    marks: BTreeMap<String, Vec<Mark>>,
    /// What each address was answered with: exit code and lines.
    pub(super) answers: BTreeMap<String, (i32, String)>,
    /// What all resources asked at once: the arguments of the group.
    pub(super) asked: Vec<String>,
}

impl Device {
    /// What `device` takes, in words.
    pub(super) const TAKES: &'static str = "PCI address | RDMA device | mst path | all";

    /// Reads the key.
    ///
    /// # Errors
    /// It is no name of a card.
    pub(super) fn of(spec: &Spec<'_>) -> Result<Device, Error> {
        let node = spec.need("device")?;
        let text = spec.need_text("device")?;
        let wrong = |message: String| Error::playbook(&node.span, message);
        if text.starts_with('/') {
            let name = text.strip_prefix("/dev/mst/").unwrap_or_default();
            let good = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            return if good {
                Ok(Device(text))
            } else {
                Err(wrong(format!("`{text}` is no device of mst"))
                    .hint("those are called `/dev/mst/mt4129_pciconf0`; a PCI address does as well"))
            };
        }
        if text.contains(':') {
            return address(&text).map(Device).ok_or_else(|| {
                wrong(format!("`{text}` is no PCI address")).hint("they are written like `0000:86:00.0` or `86:00.0`")
            });
        }
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Ok(Device(text));
        }
        Err(wrong(format!("`{text}` is no name of a card"))
            .hint("a PCI address (`0000:86:00.0`), an RDMA device (`mlx5_0`), a device of mst, or `all`"))
    }

    /// Whether it names one card and not whatever there is.
    pub(super) fn one(&self) -> bool {
        self.0 != "all"
    }

    /// The addresses that it stands for on this host.
    ///
    /// # Errors
    /// It stands for none.
    pub(super) fn targets<'a>(&self, found: &'a Found) -> Result<&'a [String], Trouble> {
        let targets = found.targets.get(&self.0).map(Vec::as_slice).unwrap_or_default();
        if !targets.is_empty() {
            return Ok(targets);
        }
        let has = found.has();
        let trouble = match self.0.as_str() {
            "all" => Trouble::new("this host has no card of NVIDIA's (vendor 15b3) that is a network function of its own")
                .hint("`when: facts.interfaces | selectattr('driver', 'eq', 'mlx5_core') | list | length > 0` passes such hosts over; \
                       a card that `lspci -d 15b3:` shows and this doesn't is a virtual function, which has no settings"),
            path if path.starts_with('/') => Trouble::new(format!("there is no {path}"))
                .hint(format!("`mst start` (of MFT) makes it, at each boot anew; a PCI address needs no mst: {has}")),
            name => Trouble::new(format!("no card has the RDMA device {name}")).hint(format!(
                "{has}; a card whose driver isn't loaded has no RDMA device, and a virtual function no settings: give its PCI address"
            )),
        };
        Err(trouble)
    }
}

/// A PCI address as the kernel writes it: `86:00.0` is `0000:86:00.0`.
fn address(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let full = if text.matches(':').count() == 1 { format!("0000:{text}") } else { text };
    let (domain, rest) = full.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |part: &str, len: std::ops::RangeInclusive<usize>| {
        len.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let good =
        hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && matches!(function.as_bytes(), [b'0'..=b'7']);
    good.then_some(full)
}

/// The name of a card's note: the same by whichever of its functions it is named. It stands in set.sh too.
fn note_of(address: &str) -> &str {
    slot(address.rsplit('/').next().unwrap_or(address))
}

/// A PCI address without its function: what the functions of one card share.
pub(super) fn slot(address: &str) -> &str {
    address.rsplit_once('.').map_or(address, |(slot, _)| slot)
}

impl Found {
    /// Reads what the shell functions told.
    pub(super) fn read(text: &str) -> Found {
        let mut found = Found::default();
        let mut of: Option<String> = None;
        let list =
            |text: &str| -> Vec<String> { text.split(',').filter(|name| *name != "-").map(str::to_owned).collect() };
        for line in text.lines() {
            if let Some((address, code)) = line.strip_prefix("== ").and_then(|rest| rest.split_once(' ')) {
                found.answers.insert(address.to_owned(), (code.parse().unwrap_or(255), String::new()));
                of = Some(address.to_owned());
                continue;
            }
            if let Some((_, said)) = of.as_ref().and_then(|of| found.answers.get_mut(of)) {
                said.push_str(line);
                said.push('\n');
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["tool", tool] => found.tool = Some((*tool).to_owned()).filter(|t| !t.is_empty()),
                ["boot", boot] => found.boot = (*boot).to_owned(),
                ["card", address, class, interfaces, rdma] => found.functions.push(Function {
                    address: (*address).to_owned(),
                    class: (*class).to_owned(),
                    interfaces: list(interfaces),
                    rdma: list(rdma),
                }),
                ["is", word, targets @ ..] => {
                    found.targets.insert((*word).to_owned(), targets.iter().map(|t| (*t).to_owned()).collect());
                }
                ["mark", first, ..] => {
                    // `0000:86:00:NUM_OF_VFS 16 0 …`
                    let name = first.rsplit_once(':').map_or("", |(name, _)| name);
                    let line = line.get("mark :".len() + name.len()..).unwrap_or_default();
                    found.marks.entry(slot(name).to_owned()).or_default().extend(Mark::read(line));
                }
                _ => {}
            }
        }
        found
    }

    /// The function of this address, or another one of the same card.
    pub(super) fn function(&self, address: &str) -> Option<&Function> {
        let same = self.functions.iter().find(|f| f.address == address);
        same.or_else(|| self.functions.iter().find(|f| slot(&f.address) == slot(address)))
    }

    /// Whether this interface is one of this card's; nothing where that can't be told, as the card is named by a path.
    pub(super) fn carries(&self, address: &str, interface: &str) -> Option<bool> {
        let of = self.functions.iter().find(|f| f.interfaces.iter().any(|i| i == interface));
        match of {
            Some(_) if address.starts_with('/') => None,
            Some(function) => Some(slot(&function.address) == slot(address)),
            None => Some(false),
        }
    }

    /// The cards of this host, in words.
    pub(super) fn has(&self) -> String {
        let name = |f: &Function| match f.rdma.first() {
            Some(rdma) => format!("{} ({rdma})", f.address),
            None => f.address.clone(),
        };
        match self.functions.iter().map(name).collect::<Vec<_>>() {
            names if names.is_empty() => "this host has no card of NVIDIA's".to_owned(),
            names => format!("this host has {}", names.join(", ")),
        }
    }

    /// What is noted of a card.
    pub(super) fn marks(&self, address: &str) -> &[Mark] {
        self.marks.get(note_of(address)).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Function {
    /// What its port is: `ETH` or `IB`.
    pub(super) fn link_type(&self) -> Option<&'static str> {
        match self.class.get(..6) {
            Some("0x0200") => Some("ETH"),
            Some("0x0207") => Some("IB"),
            _ => None,
        }
    }
}

/// One change for what is the same on several cards; a card is named where it isn't so on all of them.
pub(super) fn folded<'a>(each: impl IntoIterator<Item = (Change, &'a str)>, count: usize) -> Vec<Change> {
    let mut all: Vec<(Change, Vec<&str>)> = Vec::new();
    for (change, card) in each {
        match all.iter_mut().find(|(other, _)| *other == change) {
            Some((_, cards)) => cards.push(card),
            None => all.push((change, vec![card])),
        }
    }
    let name = |(mut change, cards): (Change, Vec<&str>)| {
        if cards.len() < count {
            change.field = format!("{} {}", cards.join(", "), change.field);
        }
        change
    };
    all.into_iter().map(name).collect()
}

/// Whether a tool was ended before it came to its end: by `timeout` (124), or by a signal.
pub(super) fn cut_short(code: i32) -> bool {
    code == 124 || code > 128
}

/// Why a tool told nothing of a card. `said` is all that it printed, `code` its exit code.
pub(super) fn refusal(found: &Found, tool: &str, address: &str, code: i32, said: &str) -> Trouble {
    let has = |text: &str| said.to_ascii_lowercase().contains(text);
    let errors: Vec<&str> =
        said.lines().filter_map(|l| l.strip_prefix("-E- ")).map(str::trim).filter(|l| *l != "not root").collect();
    // The line of names is the probe's own.
    let own: Vec<&str> = said.lines().filter(|l| *l != "names" && !l.starts_with("names ")).collect();
    let words = if errors.is_empty() { own.join("\n").trim().to_owned() } else { errors.join("; ") };
    let words = both_ends(&words);
    let told = |what: &str| Trouble::new(format!("{address}: {what}"));
    let quoted = format!("{tool} ended with {code}: {}", if words.is_empty() { "it said nothing" } else { &words });
    if matches!(code, 124 | 137 | 143) {
        return told(&format!("{tool} didn't answer within {ASK_SECONDS} s")).hint(
            "look for mlx5_core in the host's dmesg, and whether another tool holds the card; a card whose firmware hangs \
             comes back by a power cycle",
        );
    }
    if cut_short(code) {
        let trouble = told(&format!("signal {} ended {tool} before it had told all", code - 128));
        return trouble
            .hint(format!("run `{tool} -d {address} q` on the host; if it dies there too, install another version"));
    }
    if has("livefish") {
        return told(&format!("its firmware doesn't run (livefish mode), so it has no settings: {words}"))
            .hint("burn its firmware anew (flint, mlxfwmanager), then power cycle the machine");
    }
    if has("semaphore") || has("lock") {
        return told(&format!("another tool holds its lock: {quoted}"))
            .hint("let it end (`pgrep -a 'mst|mlx|flint'`), then run it again");
    }
    if has("failed to open") || has("cannot open") || has("failed to identify") || has("permission denied") {
        let trouble = told(&format!("it can't be opened: {quoted}"));
        if said.contains("not root") {
            return trouble.hint("it needs root's rights: `become: true`");
        }
        if found.function(address).is_none() {
            return trouble.hint(found.has());
        }
        return trouble.hint("under kernel lockdown (Secure Boot) only fwctl or the tools of MFT reach a card");
    }
    told(&quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, full) in
            [("86:00.0", "0000:86:00.0"), ("0000:AB:00.1", "0000:ab:00.1"), ("10000:01:00.0", "10000:01:00.0")]
        {
            assert_eq!(address(given).as_deref(), Some(full));
        }
        for given in ["86:00", "86:00.8", "x:86:00.0", "0000:86:0.0", "0:0:0:0.0", "86:00.0; x"] {
            assert_eq!(address(given), None, "{given}");
        }
    }

    /// The words of lspci for a card are those of its class: `lspci -Dnn` prints the class and sysfs has it.
    #[test]
    fn the_kind_of_a_card_is_its_class() {
        let classes = [("Infiniband controller", "0207", "IB"), ("Ethernet controller", "0200", "ETH")];
        let sample = include_str!("samples/lspci.txt");
        for shape in ["0000:8e:00.0 Infiniband controller [0207]", "Ethernet mode is [0200]"] {
            assert!(sample.contains(shape), "{shape}");
        }
        let mut seen = 0;
        for line in sample.lines().filter(|l| !l.starts_with('#')) {
            let (given, kind) = line.split_once(' ').unwrap();
            let (_, class, is) = classes.iter().find(|(word, ..)| kind.starts_with(word)).unwrap();
            let found = Found::read(&format!("card {} 0x{class}00 - -", address(given).unwrap()));
            assert_eq!(found.functions[0].link_type(), Some(*is), "{line}");
            seen += 1;
        }
        assert_eq!(seen, 4);
        let found = Found::read("card 0000:1a:00.0 0x020000 ens1f0np0,ens1f0v0 -\nis all 0000:1a:00.0");
        assert_eq!(found.functions[0].link_type(), Some("ETH"));
        assert_eq!(found.functions[0].interfaces, ["ens1f0np0", "ens1f0v0"]);
        assert_eq!(found.carries("0000:1a:00.1", "ens1f0np0"), Some(true));
        assert_eq!(found.carries("0000:1b:00.0", "ens1f0np0"), Some(false));
        assert_eq!(found.carries("/dev/mst/mt4129_pciconf0", "ens1f0np0"), None);
    }
}
