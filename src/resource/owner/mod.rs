//! Who owns an interface's configuration: what sets it up at boot. Nothing else is written, and no owner is asked to
//! apply anything: that may drop addresses and routes, or the link.
//!
//! An owner is one file and one line in [`OWNERS`]: what it asks a host, which links it owns by that, the MTU that it
//! will give one of them at boot, and what makes that another. All owners are asked in one fragment.

pub mod assignments;
mod ifcfg;
mod ifupdown;
mod netplan;
mod networkd;
mod networkmanager;
mod renames;

pub use ifcfg::NETWORK_SCRIPTS;

use super::probes::links::{Link, Links};
use super::{Answers, FileDiff, Fragment, Group, Need, Output, Question, Step, Trouble, Undo};
use crate::shell::Script;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// What configures interfaces at boot. All of it is pure.
pub trait Owner: Sync {
    /// Its name in keys and facts.
    fn name(&self) -> &'static str;
    /// Its name as its makers write it.
    fn title(&self) -> &'static str;
    /// Read-only shell text that prints what has to be known to tell which links it owns. Files that cloud-init may have
    /// made are added to `"$@"`. A line never begins with `== `.
    fn ask(&self) -> &'static str {
        ""
    }
    /// What is asked behind that where an MTU is to be kept by it.
    fn ask_more(&self) -> &'static str {
        ""
    }
    /// Further questions about an interface whose MTU is to be kept by it.
    fn questions(&self, _interface: &str) -> Vec<Question> {
        Vec::new()
    }
    /// Whose changes come before what is asked about an interface. Files that are named make the answers worthless.
    fn sources(&self, interface: &str) -> Vec<Need>;
    /// Which links it owns.
    ///
    /// # Errors
    /// That can't be found out, and then nobody's ownership is known.
    fn owns(&self, said: &Said) -> Result<Vec<Owns>, Trouble>;
    /// Why it doesn't own a link, where it seems to be meant to: for when nobody does.
    fn idle(&self, _said: &Said, _link: &Link) -> Option<String> {
        None
    }
    /// Whether it can keep the MTU of a link that another one owns, if the playbook says so.
    fn serves(&self, _at: &At<'_>) -> bool {
        false
    }
    /// The MTU that it will give the link at boot, and what makes that the wanted one.
    ///
    /// # Errors
    /// What keeps it from lasting.
    fn boot(&self, at: &At<'_>) -> Result<Boot, Trouble>;
}

/// All owners, in the order in which they are told.
pub const OWNERS: &[&dyn Owner] = &[
    // One line an owner.
    &networkmanager::NetworkManager,
    &netplan::Netplan,
    &networkd::Networkd,
    &ifupdown::Ifupdown,
    &ifcfg::Ifcfg,
];

/// The owner of this name.
pub fn named(name: &str) -> Option<&'static dyn Owner> {
    OWNERS.iter().copied().find(|owner| owner.name() == name)
}

impl PartialEq for dyn Owner {
    fn eq(&self, other: &dyn Owner) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Owner {}

impl fmt::Debug for dyn Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A link that an owner has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owns {
    /// Which.
    pub link: Which,
    /// The file, or in words the profile, that configures it; empty where there is none.
    pub by: String,
    /// Whether another owner's word counts more: a device that NetworkManager manages and has no profile for.
    pub weak: bool,
}

/// How an owner names a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// By the kernel's index.
    Index(u32),
    /// By its name.
    Name(String),
}

/// The owner of one interface, and where it keeps its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Who.
    pub owner: &'static dyn Owner,
    what: Owns,
}

impl Owned {
    /// The file, or in words the profile, that configures it; empty where there is none.
    pub fn by(&self) -> &str {
        &self.what.by
    }
}

/// `networkd (/etc/systemd/network/10-eth0.network)`
impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.owner.title())?;
        if self.by().is_empty() { Ok(()) } else { write!(f, " ({})", self.by()) }
    }
}

/// What owners said, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said(HashMap<String, String>);

impl Said {
    /// What was printed under this name.
    pub fn of(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The texts of files that were listed under this name, by path. Each line ends with a newline.
    ///
    /// # Errors
    /// One of them can't be read.
    pub fn files(&self, name: &str) -> Result<BTreeMap<&str, String>, Trouble> {
        let mut files = BTreeMap::<&str, String>::new();
        for line in self.of(name).lines() {
            if let Some(path) = line.strip_prefix("file ") {
                files.insert(path, String::new());
            } else if let Some(path) = line.strip_prefix("unreadable ") {
                return Err(Trouble::new(format!("{path} can't be read: permission denied"))
                    .hint("`become: true` reads it as root"));
            } else if let Some((rest, text)) = files
                .iter_mut()
                .rev()
                .find_map(|(path, text)| Some((line.strip_prefix(*path)?.strip_prefix(':')?, text)))
            {
                text.push_str(rest);
                text.push('\n');
            }
        }
        Ok(files)
    }
}

/// The link whose MTU is to last.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// It.
    pub link: &'a Link,
    /// All links of the host.
    pub links: &'a Links,
    /// The wanted MTU in bytes.
    pub mtu: u32,
    /// What is known of the owners.
    pub owners: &'a Owners,
    /// By whom it is owned; nothing where it is another one's, or nobody's.
    pub owned: Option<&'a Owned>,
    /// The answers to [`Owner::questions`].
    pub answers: &'a Answers,
}

/// The MTU at boot, and what makes it the wanted one.
#[derive(Debug, Default)]
pub struct Boot {
    /// In bytes; text where it is no number, null where none is set.
    pub now: Value,
    /// Whether it is the wanted one.
    pub right: bool,
    /// What makes it so.
    pub steps: Vec<Step>,
    /// Files among that.
    pub files: Vec<FileDiff>,
    /// What takes it back beside the files.
    pub undo: Undo,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

impl Boot {
    /// What is there, next to what is wanted.
    pub fn of(now: Option<u32>, wanted: u32) -> Boot {
        Boot { now: now.map_or(Value::Null, Value::from), right: now == Some(wanted), ..Boot::default() }
    }
}

/// The group of questions. Its argument says whether an MTU is to be kept: then what that needs is asked too.
#[derive(Debug)]
pub struct OwnerList;

const MORE: &str = "mtu";

impl OwnerList {
    /// Asks for the owners.
    pub fn ask() -> Question {
        Question::of::<OwnerList>("")
    }

    /// Asks for the owners, and how they keep an MTU.
    pub fn ask_more() -> Question {
        Question::of::<OwnerList>(MORE)
    }

    /// The answer to [`OwnerList::ask`].
    ///
    /// # Errors
    /// The probe failed.
    pub fn of(answers: &Answers) -> Result<&Owners, Trouble> {
        answers.get::<OwnerList>("")
    }

    /// The answer to [`OwnerList::ask_more`].
    ///
    /// # Errors
    /// The probe failed.
    pub fn more(answers: &Answers) -> Result<&Owners, Trouble> {
        answers.get::<OwnerList>(MORE)
    }
}

/// What is known of a host's owners.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// What they said.
    pub said: Said,
    owned: Vec<Owned>,
}

impl Owners {
    /// All that own this link: one, unless the host's configuration contradicts itself.
    pub fn all(&self, link: &Link) -> Vec<&Owned> {
        let is = |owned: &&Owned| match &owned.what.link {
            Which::Index(index) => *index == link.index,
            Which::Name(name) => *name == link.name,
        };
        let mut all: Vec<&Owned> = self.owned.iter().filter(is).collect();
        if all.iter().any(|owned| !owned.what.weak) {
            all.retain(|owned| !owned.what.weak);
        }
        all.dedup_by(|a, b| a.owner == b.owner);
        all
    }

    /// Who owns this link: the first of all of them.
    pub fn of(&self, link: &Link) -> Option<&Owned> {
        self.all(link).first().copied()
    }

    /// That several own this link, where they do.
    pub fn contradiction(&self, link: &Link) -> Option<String> {
        let [one, other, ..] = *self.all(link) else { return None };
        let name = &link.name;
        Some(format!("both {one} and {other} configure {name}, and which of them comes last at boot is open"))
    }

    /// Whether cloud-init has made this file, and may make it again at a boot.
    pub fn by_cloud_init(&self, path: &str) -> bool {
        self.said.of("cloud-init").lines().any(|p| p == path)
    }

    /// That the file of this path is cloud-init's, which netplay never edits.
    pub fn refuse_cloud_init(&self, path: &str) -> Result<(), Trouble> {
        if !self.by_cloud_init(path) {
            return Ok(());
        }
        Err(Trouble::new(format!("{path} is made by cloud-init, which may make it again at a boot")).hint(
            "set the MTU in cloud-init's network configuration, or switch that off (`network: {config: disabled}` in \
             /etc/cloud/cloud.cfg.d) and take its first line out of the file",
        ))
    }

    /// What a link is called after the next boot where that is another name, and the file that says so.
    pub fn renamed(&self, link: &Link) -> Result<Option<(String, String)>, Trouble> {
        Ok(renames::after_boot(&self.said.files("renames")?, link))
    }
}

// `active UNIT` holds for a unit that runs, or where there is no systemd for all: who is there is asked then.
const BEGIN: &str = r#"active() { [ ! -d /run/systemd/units ] || [ -L "/run/systemd/units/invocation:$1.service" ]; }
list() { if [ -r "$1" ]; then printf 'file %s\n' "$1"; elif [ -e "$1" ]; then printf 'unreadable %s\n' "$1"; fi; }
set --"#;

const CLOUD_INIT: &str = r#"echo '== cloud-init'
[ $# -gt 0 ] && [ -d /etc/cloud ] && [ ! -e /etc/cloud/cloud-init.disabled ] &&
  ! grep -qs 'config: *["'\'']*disabled' -- /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg &&
  grep -sl -e 'Created by cloud-init' -e 'Generated by cloud-init' -e 'generated from information provided by' -- "$@"
echo '== renames'"#;

impl Group for OwnerList {
    type Answer = Owners;
    const NAME: &'static str = "owners";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let more = args.contains(&MORE);
        let mut script = Script::new().line(BEGIN);
        for owner in OWNERS.iter().filter(|o| !o.ask().is_empty() || (more && !o.ask_more().is_empty())) {
            script = script.command(["echo", &format!("== {}", owner.name())]);
            for text in [Some(owner.ask()), more.then(|| owner.ask_more())].into_iter().flatten() {
                script = if text.is_empty() { script } else { script.line(text) };
            }
        }
        script = script.line(CLOUD_INIT);
        script = if more { script.line(renames::ASK) } else { script };
        vec![script.line("exit 0").into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Owners, Trouble>> {
        args.iter().map(|_| outputs.first().map_or_else(|| Err(Trouble::new("no answer")), read)).collect()
    }
}

fn read(output: &Output) -> Result<Owners, Trouble> {
    if output.code != 0 {
        return Err(Trouble::new(format!("who owns the interfaces can't be found out: {}", output.complaint())));
    }
    let mut said = Said::default();
    let mut name = "";
    let text = output.text();
    for line in text.lines() {
        match line.strip_prefix("== ") {
            Some(next) => name = next,
            None => {
                let section = said.0.entry(name.to_owned()).or_default();
                section.push_str(line);
                section.push('\n');
            }
        }
    }
    let mut owned = Vec::new();
    for owner in OWNERS.iter().copied() {
        let because = |trouble: Trouble| match output.stderr.trim_ascii() {
            [] => trouble,
            said => Trouble { message: format!("{}: {}", trouble.message, String::from_utf8_lossy(said)), ..trouble },
        };
        owned.extend(owner.owns(&said).map_err(because)?.into_iter().map(|what| Owned { owner, what }));
    }
    Ok(Owners { said, owned })
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// That a file or profile configures other links too, so that it isn't changed for one of them.
fn shared(what: &str, at: &At<'_>, others: impl IntoIterator<Item = u32>, hint: String) -> Result<(), Trouble> {
    let name =
        |index: u32| at.links.all.iter().find(|l| l.index == index).map_or("a link that is gone", |l| l.name.as_str());
    let mut others: Vec<&str> = others.into_iter().filter(|index| *index != at.link.index).map(name).collect();
    if others.is_empty() {
        return Ok(());
    }
    others.sort_unstable();
    Err(Trouble::new(format!(
        "{what} configures {} and {} alike, so an MTU for it would be that of all of them",
        at.link.name,
        others.join(", ")
    ))
    .hint(hint))
}

#[cfg(test)]
mod tests;
