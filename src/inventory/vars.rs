//! Variables: maps by name, the files of `group_vars/` and `host_vars/`, and what a host sees of all that.

use super::tree::{GroupId, HostId, Tree};
use super::vault::{Closed, Vault, decode};
use super::{Warning, read};
use crate::error::{Error, Errors, Kind};
use crate::yaml::Node;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Variables by name, sorted by it.
#[derive(Debug, Clone, Default)]
pub struct VarMap(Vec<(Arc<str>, Node)>);

impl VarMap {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|at| &self.0[at].1)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Sets one; an earlier value is replaced as a whole, as with Ansible's default `hash_behaviour`.
    pub(super) fn insert(&mut self, name: Arc<str>, value: Node) {
        match self.0.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    pub(super) fn extend(&mut self, other: &VarMap) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
        } else {
            other.iter().for_each(|(name, value)| self.insert(name.clone(), value.clone()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The variables of one host, merged by precedence: its own over those of its groups. Clones are cheap: what comes
/// from groups is shared by all hosts of the same groups.
#[derive(Debug, Clone)]
pub struct Vars {
    pub(super) own: Arc<VarMap>,
    pub(super) shared: Arc<VarMap>,
}

impl Vars {
    /// The value of a name. It isn't rendered; its span tells where it was set.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.own.get(name).or_else(|| self.shared.get(name))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        let (mut own, mut shared) = (self.own.iter().peekable(), self.shared.iter().peekable());
        std::iter::from_fn(move || match (own.peek(), shared.peek()) {
            (Some((a, _)), Some((b, _))) => {
                if a == b {
                    shared.next();
                    own.next()
                } else if a < b {
                    own.next()
                } else {
                    shared.next()
                }
            }
            (Some(_), None) => own.next(),
            (None, _) => shared.next(),
        })
    }
}

/// The variables that `group_vars/` and `host_vars/` of one folder hold.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) groups: HashMap<GroupId, Arc<VarMap>>,
    pub(super) hosts: HashMap<HostId, Arc<VarMap>>,
    /// Files that can't be decrypted, so that nobody knows what they set, and why: an error as soon as such a host is
    /// used.
    pub(super) sealed: Vec<(Owner, Error)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Group(GroupId),
    Host(HostId),
}

impl Beside {
    /// Reads the files of a folder that belong to the groups and hosts of the inventory.
    pub(super) fn load(folder: &Path, tree: &Tree, vault: &Vault) -> Result<(Beside, Vec<Warning>), Errors> {
        let (mut beside, mut warnings, mut errors) = (Beside::default(), Vec::new(), Vec::new());
        let mut found: Vec<(Owner, PathBuf)> = Vec::new();
        let groups = tree.groups.iter().enumerate().map(|(at, g)| (Owner::Group(GroupId::at(at)), &*g.name));
        let hosts = tree.hosts.iter().enumerate().map(|(at, h)| (Owner::Host(HostId::at(at)), &*h.name));
        let mut look = |kind: &str, owners: &mut dyn Iterator<Item = (Owner, &str)>| {
            let folder = folder.join(kind);
            if !folder.is_dir() {
                return;
            }
            match listing(&folder) {
                Ok(names) => {
                    let names: HashSet<OsString> = names.into_iter().collect();
                    for (owner, name) in owners {
                        match files_of(&folder, &names, name, &mut warnings) {
                            Ok(files) => found.extend(files.into_iter().map(|file| (owner, file))),
                            Err(e) => errors.push(e),
                        }
                    }
                }
                Err(e) => errors.push(e),
            }
        };
        look("group_vars", &mut groups.into_iter());
        look("host_vars", &mut hosts.into_iter());
        let read: Vec<_> = found.into_par_iter().map(|(owner, path)| (owner, file(&path, vault))).collect();
        for (owner, read) in read {
            match read {
                Ok(File::Vars(vars)) => {
                    let slot = match owner {
                        Owner::Group(id) => beside.groups.entry(id).or_default(),
                        Owner::Host(id) => beside.hosts.entry(id).or_default(),
                    };
                    Arc::make_mut(slot).extend(&vars);
                }
                Ok(File::Sealed(error)) => beside.sealed.push((owner, error)),
                Err(e) => errors.push(e),
            }
        }
        if errors.is_empty() { Ok((beside, warnings)) } else { Err(Errors(errors)) }
    }
}

/// What Ansible takes for a file of variables; the first that is there is taken, the others are left.
const EXTENSIONS: [&str; 4] = ["", ".yml", ".yaml", ".json"];

fn listing(folder: &Path) -> Result<Vec<OsString>, Error> {
    let names = std::fs::read_dir(folder).and_then(|entries| entries.map(|e| e.map(|e| e.file_name())).collect());
    let mut names: Vec<OsString> = names.map_err(|e| read::failed(folder, &e))?;
    names.sort();
    Ok(names)
}

fn files_of(
    folder: &Path,
    names: &HashSet<OsString>,
    name: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<PathBuf>, Error> {
    let mut paths = EXTENSIONS
        .iter()
        .map(|ext| format!("{name}{ext}"))
        .filter(|file| names.contains(OsString::from(file).as_os_str()))
        .map(|file| folder.join(file))
        .collect::<Vec<_>>();
    let nowhere = paths.extract_if(.., |path| !path.exists());
    warnings.extend(nowhere.map(|path| leads_nowhere(&path)));
    let mut paths = paths.into_iter();
    let mut files = Vec::new();
    let Some(first) = paths.next() else { return Ok(files) };
    if let Some(other) = paths.next() {
        let (first, other) = (first.display(), other.display());
        let message = format!("{other} isn't read, because {first} is there");
        warnings.push(Error::new(Kind::Inventory, message).hint("Ansible reads only the first, too"));
    }
    if first.is_dir() {
        walk(&first, &mut files, warnings)?
    } else {
        files.push(first)
    }
    Ok(files)
}

/// Of a link to what isn't there, or to itself.
fn leads_nowhere(path: &Path) -> Warning {
    let message = format!("{} is a link that leads nowhere: its variables aren't read", path.display());
    Error::new(Kind::Inventory, message).hint("Ansible passes it over, too; mend the link or remove it")
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    for name in listing(folder)? {
        let path = folder.join(&name);
        let name = name.to_string_lossy();
        if name.starts_with('.') || name.ends_with('~') {
            continue;
        }
        let extension = name.rfind('.').map_or("", |at| &name[at..]);
        if path.is_dir() {
            if extension.is_empty() {
                walk(&path, files, warnings)?;
            }
        } else if EXTENSIONS.contains(&extension) {
            if path.is_file() {
                files.push(path);
            } else if !path.exists() {
                warnings.push(leads_nowhere(&path));
            }
        }
    }
    Ok(())
}

enum File {
    Vars(VarMap),
    Sealed(Error),
}

fn file(path: &Path, vault: &Vault) -> Result<File, Error> {
    let name = path.display().to_string();
    let (bytes, encrypted) = match vault.bytes(&name, read::bytes(path)?) {
        Ok(read) => read,
        Err(Closed::Locked(error)) => return Ok(File::Sealed(error)),
        Err(Closed::Broken(error)) => return Err(error),
    };
    let source = decode(&name, bytes, encrypted, Kind::Inventory)?;
    let mut vars = VarMap::default();
    let Some(node) = read::document(&source, Kind::Inventory)? else { return Ok(File::Vars(vars)) };
    let Some(entries) = node.as_map() else {
        if node.is_null() {
            return Ok(File::Vars(vars));
        }
        let message = format!("a file of variables holds a mapping, not {}", node.describe());
        return Err(Error::inventory(&node.span, message).hint("write `name: value` lines"));
    };
    vault.conceal(&node);
    for (key, value) in entries {
        vars.insert(Arc::from(key.text().unwrap_or_default()), value.clone());
    }
    Ok(File::Vars(vars))
}
