//! `package`: that packages are installed or not, through apt and dpkg or dnf and rpm.
//!
//! All packages of a host that are to change at one time are one transaction of its package manager, though they come
//! from several resources: [`Joint`]. Nothing is removed that the play doesn't name: what would go along is told, and
//! refused.

mod probe;

use self::probe::{Backend, Foreseen, Found, Is, Packages};
use super::joint::{Joint, Share};
use super::spec::{Key, Spec};
use super::{Answers, Change, Claim, Need, Obstacle, Question, Reading, Resource, Step, Trouble};
use crate::error::Error;
use crate::shell::Script;
use serde_json::Value as Json;

/// Packages.
#[derive(Debug)]
pub struct Package {
    names: Vec<String>,
    /// Whether they are to be there.
    present: bool,
}

/// Seconds that a transaction may take: a download of some gigabytes, or another one that is under way.
const SECONDS: u32 = 600;

/// The kind of claim that a package is.
pub const KIND: &str = "package";

/// apt-get and dpkg.
struct Apt;
/// dnf or yum.
struct Dnf;

/// How apt is kept from taking a name for more than a name.
const EXACT: &str = include_str!("exact.sh");

impl Joint for Apt {
    fn name(&self) -> &'static str {
        "apt"
    }
    fn script(&self, parts: &[&str], seconds: u32) -> Script {
        let script = Script::new().set("seconds", &seconds.to_string()).args(parts);
        script.line(include_str!("parts.sh")).line(EXACT).line(include_str!("apt.sh"))
    }
}

impl Joint for Dnf {
    fn name(&self) -> &'static str {
        "dnf"
    }
    fn script(&self, parts: &[&str], seconds: u32) -> Script {
        let script = Script::new().set("seconds", &seconds.to_string()).args(parts);
        script.line(include_str!("parts.sh")).line(include_str!("dnf.sh"))
    }
}

/// That a file comes after the package whose name stands in its path: `/etc/chrony/chrony.conf`, `/etc/default/lldpd`,
/// `/etc/chrony.conf`. Names in other places say nothing.
pub fn of_path(path: &str) -> Vec<Need> {
    let Some(below) = path.strip_prefix("/etc/") else { return Vec::new() };
    let below = ["default/", "sysconfig/"].iter().find_map(|folder| below.strip_prefix(folder)).unwrap_or(below);
    let first = below.split('/').next().unwrap_or_default();
    let stem = first.strip_suffix(".conf").or(first.strip_suffix(".d")).unwrap_or(first);
    // Packages themselves come after the files of their managers.
    if ["apt", "dpkg", "dnf", "yum", "yum.repos"].contains(&stem) {
        return Vec::new();
    }
    let names = if stem == first { vec![first] } else { vec![first, stem] };
    names.into_iter().map(|name| Need::After(Claim::new(KIND, name))).collect()
}

/// That what is called so comes after the package of that name, and a daemon `chronyd` after `chrony`.
pub fn of_name(name: &str) -> Vec<Need> {
    let stem = name.split('@').next().unwrap_or(name);
    let names = [Some(stem), stem.strip_suffix('d').filter(|s| s.len() > 2)];
    names.into_iter().flatten().map(|name| Need::After(Claim::new(KIND, name))).collect()
}

impl Package {
    fn part(&self) -> String {
        let sign = if self.present { '+' } else { '-' };
        self.names.iter().map(|name| format!("{sign}{name}")).collect::<Vec<_>>().join(" ")
    }

    /// Whether a name is as wanted.
    fn done(&self, is: &Is) -> bool {
        if self.present {
            is.there || is.by.is_some()
        } else {
            !is.there && matches!(is.state.as_deref(), None | Some("config-files" | "not-installed"))
        }
    }

    /// The names that aren't as wanted.
    fn open<'a>(&'a self, now: &'a Found) -> impl Iterator<Item = (&'a str, &'a Is)> {
        let known = self.names.iter().filter_map(|name| Some((name.as_str(), now.names.get(name)?)));
        known.filter(|(_, is)| !self.done(is))
    }

    /// What dpkg has not finished and the play doesn't name.
    fn foreign(now: &Found) -> Vec<&(String, String)> {
        let asked = |name: &str| now.asked.iter().any(|a| a.split(':').next() == Some(name));
        now.unfinished.iter().filter(|(name, _)| !asked(name)).collect()
    }

    /// What would be removed though nobody asked for that.
    fn lost(now: &Found) -> Vec<&str> {
        let named = |name: &str| now.unwanted.iter().any(|u| u == name || u.split(':').next() == Some(name));
        let removes = now.foreseen.iter().flat_map(|f| &f.removes);
        removes.map(String::as_str).filter(|name| !named(name)).collect()
    }
}

impl Resource for Package {
    type State = Found;
    const TYPE: &'static str = "package";
    const SUMMARY: &'static str = "Packages that are installed, or aren't, through apt or dnf";
    const TOUCHES: &'static str = "\
        The packages, by one call of `apt-get` or `dnf` for all of a host that are due at once, with what they depend \
        on; the lists of packages, where one isn't in them. Configuration files that were changed by hand stay.";
    const KEYS: &'static [Key] = &[
        Key::required(
            "name",
            "string, or a list",
            "The packages, without a version. `name:arch` (apt) and `name.arch` (dnf) name one for another \
             architecture. A package that provides the name will do.",
        ),
        Key::default(
            "state",
            "present | absent",
            "present",
            "`absent` removes packages and leaves their configuration files. Nothing else is removed: what depends on \
             one, or stands against one that is to be installed, has to be named too.",
        ),
        Key::refused("pkg", "it is called `name` here"),
        Key::refused("package", "it is called `name` here"),
        Key::refused("update_cache", "lists are fetched by themselves when a package isn't found or can't be fetched"),
        Key::refused("update-cache", "lists are fetched by themselves when a package isn't found or can't be fetched"),
        Key::refused("cache_valid_time", "lists are fetched by themselves when a package isn't found"),
        Key::refused("upgrade", "an upgrade is no state to reach: run it by `command`, or in the image of your nodes"),
        Key::refused("install_recommends", "set `APT::Install-Recommends` by a `copy` to /etc/apt/apt.conf.d"),
        Key::refused("install_weak_deps", "set `install_weak_deps` in /etc/dnf/dnf.conf"),
        Key::refused("default_release", "choose releases by a `copy` to /etc/apt/preferences.d"),
        Key::refused("purge", "`state: absent` leaves configuration files; remove them by `file`"),
        Key::refused("autoremove", "name the packages that are to go"),
        Key::refused("clean", "run `apt-get clean` by `command`"),
        Key::refused("autoclean", "run `apt-get autoclean` by `command`"),
        Key::refused("deb", "packages come from the host's sources: put the file into a repository"),
        Key::refused("force", "what the package manager refuses has a reason; mend that"),
        Key::refused("dpkg_options", "configuration files that were changed are kept (confdef, confold); leave it out"),
        Key::refused("lock_timeout", "a lock is waited for up to the resource's `timeout`"),
        Key::refused("allow_unauthenticated", "sign the repository, or mark it `[trusted=yes]` in its source"),
        Key::refused("allow_downgrade", "versions are chosen by the repository; leave it out"),
        Key::refused("allow_change_held_packages", "`apt-mark unhold` lifts a hold"),
        Key::refused("only_upgrade", "an upgrade is no state to reach; leave it out"),
        Key::refused("policy_rc_d", "stop what must not run by a `service`"),
        Key::refused("enablerepo", "enable it in /etc/yum.repos.d"),
        Key::refused("disablerepo", "disable it in /etc/yum.repos.d"),
        Key::refused("disable_gpg_check", "sign the repository, or set `gpgcheck=0` in its file"),
        Key::refused("exclude", "set `excludepkgs` in /etc/dnf/dnf.conf"),
        Key::refused("nobest", "set `best` in /etc/dnf/dnf.conf"),
        Key::refused("allowerasing", "name what is to go by `state: absent`"),
        Key::refused("use", "the host's own package manager is taken; leave it out"),
    ];
    const EXAMPLE: &'static str = "\
- name: what the checks of the fabric need
  package: {name: [ethtool, rdma-core, perftest]}
";

    fn parse(spec: &Spec<'_>) -> Result<Package, Error> {
        let node = spec.need("name")?;
        let mut names: Vec<String> = Vec::new();
        for name in spec.texts("name")? {
            if let Some((why, hint)) = wrong(&name) {
                return Err(Error::playbook(&node.span, format!("`{name}` is no name of a package: {why}")).hint(hint));
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Err(Error::playbook(&node.span, "`name` names no package"));
        }
        if let Some(at) = spec.get("state")
            && let Some(hint) = match at.text() {
                Some("installed") => Some("it is called `present`"),
                Some("removed") => Some("it is called `absent`"),
                Some("latest") => Some(
                    "what is latest changes by itself, so it is no state that can be checked: `present` installs, and \
                     upgrades are made by `command` or in the image of your nodes",
                ),
                _ => None,
            }
        {
            let message = format!("`state` can't be `{}`", at.text().unwrap_or_default());
            return Err(Error::playbook(&at.span, message).hint(hint));
        }
        let present = spec.choice("state", &["present", "absent"])? != Some("absent");
        Ok(Package { names, present })
    }

    fn identity(&self) -> String {
        self.names[0].clone()
    }

    fn claims(&self) -> Vec<Claim> {
        self.names.iter().map(|name| Claim::new(KIND, name)).collect()
    }

    fn needs(&self, _now: Option<&Found>) -> Vec<Need> {
        const SOURCES: [&str; 7] = [
            "/etc/apt",
            "/usr/share/keyrings",
            "/etc/dpkg",
            "/etc/yum.repos.d",
            "/etc/dnf",
            "/etc/pki/rpm-gpg",
            "/etc/yum",
        ];
        let folders = SOURCES.iter().map(|folder| Need::AfterBelow((*folder).to_owned()));
        folders.chain([Need::After(Claim::new("path", "/etc/yum.conf"))]).collect()
    }

    fn probe(&self) -> Vec<Question> {
        vec![Question::of::<Packages>(self.part())]
    }

    fn read(&self, answers: &Answers) -> Result<Reading<Found>, Trouble> {
        let found = answers.get::<Packages>(&self.part())?;
        if let Backend::Other(tool) = &found.backend {
            let message = match tool {
                Some(tool) => format!("packages of this host are managed by {tool}, which `package` doesn't drive"),
                None => "this host has no package manager that is known".to_owned(),
            };
            return Err(Trouble::new(message).hint("it drives apt and dnf (or yum); use a `command` with a guard here"));
        }
        Ok(Reading::State(found.clone()))
    }

    fn diff(&self, now: &Found) -> Vec<Change> {
        let planned = |name: &str| {
            let stem = name.split(':').next().unwrap_or(name);
            let all = now.foreseen.iter().flat_map(|f| &f.installs);
            all.clone().find(|(n, ..)| n == name).or_else(|| all.clone().find(|(n, ..)| n == stem))
        };
        let refusal = now.foreseen.as_ref().and_then(|f| f.refusal.as_ref());
        let mut changes: Vec<Change> = self
            .open(now)
            .map(|(name, is)| {
                let state = is.state.clone().filter(|s| !matches!(s.as_str(), "not-installed" | "config-files"));
                let from = if is.there { is.version.clone() } else { state };
                let to = match (planned(name), refusal) {
                    (Some((_, _, new)), _) => new.clone(),
                    (None, Some(why)) => {
                        const UNKNOWN: [&str; 3] = [
                            "E: Unable to locate package ",
                            "Error: Unable to find a match: ",
                            "Error: Cache-only enabled",
                        ];
                        let known = |line: &&str| UNKNOWN.iter().all(|unknown| !line.starts_with(unknown));
                        let why: Vec<&str> = why.lines().filter(known).map(str::trim).collect();
                        match why.as_slice() {
                            [] => "installed (from package lists that are fetched anew)".to_owned(),
                            why => format!("installed (what comes with it isn't known yet: {})", why.join("; ")),
                        }
                    }
                    (None, None) => "installed".to_owned(),
                };
                Change::now(name, from, if self.present { Json::from(to) } else { Json::Null })
            })
            .collect();
        // What comes along is told, but is nothing that is kept.
        if let Some(Foreseen { installs, refusal: None, .. }) = now.foreseen.as_ref().filter(|_| self.present) {
            let mut along: Vec<String> = Vec::new();
            for (name, old, new) in installs.iter().filter(|(name, ..)| !now.asked.contains(name)) {
                along.push(match old {
                    Some(old) => format!("{name} {old} → {new}"),
                    None => format!("{name} {new}"),
                });
            }
            if !along.is_empty() && !changes.is_empty() {
                changes.push(Change::now("along with it", Json::Null, along.join(", ")));
            }
        }
        changes
    }

    fn verify(&self, now: &Found) -> Vec<Change> {
        let mut left = self.diff(now);
        left.retain(|change| self.names.contains(&change.field));
        left
    }

    fn apply(&self, now: &Found) -> Vec<Step> {
        let sign = if self.present { '+' } else { '-' };
        let mut words: Vec<String> = self.open(now).map(|(name, _)| format!("{sign}{name}")).collect();
        if now.journal || !now.unfinished.is_empty() {
            words.insert(0, "!".to_owned());
        }
        let (of, part): (&'static dyn Joint, _) = match &now.backend {
            Backend::Rpm(tool) => (&Dnf, format!("{tool} {}", words.join(" "))),
            _ => (&Apt, words.join(" ")),
        };
        vec![Step::Share(Share { of, part })]
    }

    fn obstacle(&self, now: &Found) -> Option<Obstacle> {
        self.open(now).next()?;
        let list = |names: &[&str]| names.join(", ");
        let foreign = Package::foreign(now);
        if !foreign.is_empty() {
            let names: Vec<String> = foreign.iter().map(|(name, state)| format!("{name} ({state})")).collect();
            let message = format!("dpkg has begun and not finished {}", names.join(", "));
            return Some(Obstacle::stops(Trouble::new(message).hint(
                "`dpkg --configure -a` on the host goes on with it and may restart services; it is run by itself only if \
                 the play names all of these packages",
            )));
        }
        if !self.present {
            let held: Vec<&str> = self.open(now).filter(|(_, is)| is.hold).map(|(name, _)| name).collect();
            if !held.is_empty() {
                let message = format!("{} is on hold, so it isn't removed", list(&held));
                let hint = format!("`apt-mark unhold {}` on the host lifts that", held.join(" "));
                return Some(Obstacle::stops(Trouble::new(message).hint(hint)));
            }
        }
        let lost = Package::lost(now);
        if !lost.is_empty() {
            let message = format!("it would remove {} too, which the play doesn't name", list(&lost));
            let hint = format!("if they may go, name them: `package: {{name: [{}], state: absent}}`", list(&lost));
            return Some(Obstacle::stops(Trouble::new(message).hint(hint)));
        }
        // Only rpm tells of dependents by a refusal; other refusals may be gone when the lists are fetched anew.
        let refusal = now.foreseen.as_ref().and_then(|f| f.refusal.as_ref());
        if let (Backend::Rpm(_), false, Some(why)) = (&now.backend, self.present, refusal) {
            return Some(Obstacle::stops(
                Trouble::new(format!("it isn't removed, since others need it: {why}"))
                    .hint("if they may go, name them with `state: absent` too"),
            ));
        }
        None
    }

    fn warnings(&self, now: &Found) -> Vec<String> {
        let mut warnings = Vec::new();
        let changes = self.open(now).next().is_some();
        if !changes && (now.journal || !now.unfinished.is_empty()) {
            let names: Vec<&str> = now.unfinished.iter().map(|(name, _)| name.as_str()).collect();
            let what = if names.is_empty() {
                "was interrupted".to_owned()
            } else {
                format!("has begun and not finished {}", names.join(", "))
            };
            warnings.push(format!("dpkg {what}: `dpkg --configure -a` on the host goes on with it"));
        }
        warnings
    }

    fn brings(&self) -> bool {
        self.present
    }

    fn seconds(&self) -> Option<u32> {
        Some(SECONDS)
    }
}

/// Why something is no name of a package, and what to do.
fn wrong(name: &str) -> Option<(&'static str, &'static str)> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"+-._:".contains(&b);
    if name.contains('=') {
        return Some((
            "it has a version in it",
            "versions are chosen by the host's sources: pin them by a `copy` to /etc/apt/preferences.d",
        ));
    }
    if name.contains("://") || name.ends_with(".deb") || name.ends_with(".rpm") || name.starts_with('/') {
        return Some(("it is a file", "packages come from the host's sources: put the file into a repository"));
    }
    if name.starts_with('@') {
        return Some(("it is a group", "a group is nothing that can be checked: list its packages"));
    }
    if name.contains([',', ' ']) {
        return Some(("it has a comma or a blank in it", "write a list: `name: [ethtool, perftest]`"));
    }
    if name.contains(['*', '?', '[']) {
        return Some(("it is a pattern", "what a pattern means changes with the lists: name the packages"));
    }
    if !name.bytes().all(good) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || name.ends_with('-') {
        return Some(("names have letters, digits and `+-._`, and end in no `-`", "check it"));
    }
    None
}
