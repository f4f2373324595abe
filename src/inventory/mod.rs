//! Inventories: hosts, groups and their variables, read as Ansible reads them.
//!
//! [`Inventory::load`] reads the sources (YAML, INI, JSON, programs, folders of these, lists of hosts) and the
//! `group_vars/` and `host_vars/` beside them; [`Inventory::with_playbook_dir`] lays those beside a playbook over it.
//! Both are cheap per host: what comes from groups is merged once for each set of groups that occurs and shared.
//! Values stay [`Node`]s as they were written, with the place where they were set; nothing is rendered here.
//!
//! The order of precedence is Ansible's, lowest first: variables of `all` in inventory files, of the other groups
//! there (by depth, so parents before children, then `ansible_group_priority`, then name), `group_vars/all` beside the
//! inventory, beside the playbook, the other groups' files beside the inventory, beside the playbook, then the host's
//! own: inventory file, `host_vars` beside the inventory, beside the playbook. A later value replaces an earlier one as
//! a whole. The behaviour is that of ansible-core 2.19, whose output the tests hold as files.
//!
//! Wherever Ansible only warns that a source can't be parsed and goes on without its hosts, this is an error.

mod address;
mod ansible_cfg;
mod connection;
mod ini;
mod literal;
mod pattern;
mod print;
mod read;
mod script;
mod tree;
mod vars;
pub mod vault;
mod yaml_file;

#[cfg(test)]
mod tests;

pub use crate::error::Error as Warning;
pub use connection::misspelt;
pub use pattern::{Failed, Selection, argument};
pub use print::to_text;
pub use read::document;
pub use tree::HostId;
pub use vars::{VarMap, Vars};

use crate::error::{Error, Errors, Kind};
use crate::hostlist;
use crate::source::{Source, Span};
use crate::yaml::Node;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tree::{GroupId, Tree};
use vars::{Beside, Owner};
use vault::Vault;

/// What loading depends on beside the sources.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a program may take for each of its answers.
    pub deadline: Duration,
    /// The `ansible.cfg` that Ansible would read, to warn of what it sets.
    pub ansible_cfg: Option<PathBuf>,
    /// What opens encrypted files and values.
    pub vault: Arc<Vault>,
}

impl Default for Options {
    /// 60 s, the file that `ANSIBLE_CONFIG` names or that lies in the working folder, and no vault password.
    fn default() -> Options {
        let named = std::env::var_os("ANSIBLE_CONFIG").map(PathBuf::from);
        let path = named.unwrap_or_else(|| PathBuf::from("ansible.cfg"));
        let path = if path.is_dir() { path.join("ansible.cfg") } else { path };
        Options { deadline: Duration::from_secs(60), ansible_cfg: Some(path), vault: Arc::default() }
    }
}

/// Hosts, groups and variables. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Inventory {
    tree: Arc<Tree>,
    files: Arc<Files>,
    /// The variables of groups, for each of the tree's sets.
    shared: Arc<[Arc<VarMap>]>,
    /// What lies beside the playbook.
    playbook: Option<Arc<Beside>>,
    vault: Arc<Vault>,
}

/// What is the same for all playbooks.
#[derive(Debug)]
struct Files {
    /// The folders of the sources.
    folders: Vec<PathBuf>,
    /// What lies in each of them, lowest precedence first.
    beside: Vec<Beside>,
    /// Each host's own variables.
    own: Vec<Arc<VarMap>>,
}

impl Inventory {
    /// Reads the sources, each as `-i` takes it: the path of a file, a folder or a program, or a list of hosts with a
    /// comma in it.
    ///
    /// # Errors
    /// Everything that is wrong in any of them. What Ansible would pass over is a warning.
    pub fn load(sources: &[String], options: &Options) -> Result<(Inventory, Vec<Warning>), Errors> {
        let mut loader = Loader { tree: Tree::new(), options, warnings: Vec::new() };
        loader.warnings.extend(options.ansible_cfg.as_deref().and_then(ansible_cfg::warning));
        let (mut folders, mut errors) = (Vec::<PathBuf>::new(), Vec::new());
        for source in sources {
            match loader.source(source) {
                Ok(Some(folder)) => {
                    folders.retain(|f| *f != folder);
                    folders.push(folder);
                }
                Ok(None) => {}
                Err(e) => errors.extend(e.0),
            }
        }
        let Loader { mut tree, mut warnings, .. } = loader;
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        warnings.extend(tree.settle()?);
        let mut beside = Vec::new();
        for folder in &folders {
            match Beside::load(folder, &tree, &options.vault) {
                Ok((read, more)) => {
                    beside.push(read);
                    warnings.extend(more);
                }
                Err(e) => errors.extend(e.0),
            }
        }
        if !errors.is_empty() {
            return Err(Errors(errors));
        }
        let none = Arc::new(VarMap::default());
        let mut own = Vec::with_capacity(tree.hosts.len());
        for (at, host) in tree.hosts.iter_mut().enumerate() {
            let mut vars = std::mem::take(&mut host.vars);
            beside.iter().filter_map(|b| b.hosts.get(&HostId::at(at))).for_each(|more| vars.extend(more));
            own.push(if vars.is_empty() { none.clone() } else { Arc::new(vars) });
        }
        let of_groups = tree.groups.iter().map(|g| &g.vars).chain(of_files(&beside));
        warnings.extend(misspelt(of_groups.chain(own.iter().map(|vars| &**vars)).flat_map(VarMap::iter)));
        let shared = share(&tree, &beside, None);
        let files = Arc::new(Files { folders, beside, own });
        let vault = options.vault.clone();
        Ok((Inventory { tree: Arc::new(tree), files, shared, playbook: None, vault }, warnings))
    }

    /// The same inventory with the `group_vars/` and `host_vars/` of a playbook's folder laid over it, instead of those
    /// of another playbook. Where there is no playbook, `ansible-inventory` and `ansible` take the working folder.
    ///
    /// # Errors
    /// What is wrong in these files.
    pub fn with_playbook_dir(&self, folder: &Path) -> Result<(Inventory, Vec<Warning>), Errors> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let real = |f: &Path| f.canonicalize().ok();
        let (mut playbook, mut warnings) = match self.files.folders.as_slice() {
            // Beside the playbook is beside the inventory: those files have been read.
            [only] if real(only).is_some_and(|f| Some(f) == real(folder)) => (Beside::default(), Vec::new()),
            _ => Beside::load(folder, &self.tree, &self.vault)?,
        };
        warnings.extend(misspelt(of_files(std::slice::from_ref(&playbook)).flat_map(VarMap::iter)));
        for (id, vars) in &mut playbook.hosts {
            let mut all = VarMap::clone(&self.files.own[id.index()]);
            all.extend(vars);
            *vars = Arc::new(all);
        }
        let shared = share(&self.tree, &self.files.beside, Some(&playbook));
        Ok((Inventory { shared, playbook: Some(Arc::new(playbook)), ..self.clone() }, warnings))
    }

    /// All hosts, in Ansible's order: as the groups below `all` list them, level by level. The implicit localhost isn't
    /// one of them.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        self.tree.group(GroupId::ALL).members.iter().copied()
    }

    /// A host by its name. `localhost`, `127.0.0.1` and `::1` are there even if the inventory doesn't name them.
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.tree.find_host(name)
    }

    /// The name of a host (`inventory_hostname`).
    pub fn name(&self, host: HostId) -> &Arc<str> {
        &self.tree.host(host).name
    }

    /// The variables of a host, merged by precedence and not rendered.
    ///
    /// Of what Ansible adds itself, `inventory_file` and `inventory_dir` are among them; `inventory_hostname`,
    /// `group_names` and the like aren't. The implicit localhost has `ansible_connection: local`.
    pub fn vars(&self, host: HostId) -> Vars {
        let over = self.playbook.as_ref().and_then(|p| p.hosts.get(&host));
        let own = over.unwrap_or(&self.files.own[host.index()]).clone();
        Vars { own, shared: self.shared[self.tree.host(host).set].clone() }
    }

    /// The groups that a host is in, sorted, without `all` (`group_names`).
    pub fn group_names(&self, host: HostId) -> Vec<Arc<str>> {
        let set = &self.tree.sets[self.tree.host(host).set];
        let mut names: Vec<Arc<str>> = set.iter().map(|id| self.tree.group(*id).name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// All groups and their hosts, those of the groups below them included (`groups`); `all` and `ungrouped` are always
    /// there.
    pub fn groups(&self) -> impl Iterator<Item = (&Arc<str>, &[HostId])> {
        self.tree.groups.iter().map(|g| (&g.name, g.members.as_slice()))
    }

    /// Opens all encrypted values of these hosts that the passwords fit, so that they are known as secrets.
    pub fn learn_secrets(&self, hosts: &[HostId]) {
        if self.vault.has_passwords() {
            hosts.par_iter().for_each(|host| self.vars(*host).iter().for_each(|(_, value)| self.vault.learn(value)));
        }
    }

    /// What opens encrypted values.
    pub fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Why the files can't be read that set variables of a host and are encrypted: any variable may be in one of them.
    pub fn sealed(&self, host: HostId) -> impl Iterator<Item = &Error> {
        let set = &self.tree.sets[self.tree.host(host).set];
        let concerns = move |owner: &Owner| match owner {
            Owner::Host(id) => *id == host,
            Owner::Group(id) => *id == GroupId::ALL || set.contains(id),
        };
        let layers = self.files.beside.iter().chain(self.playbook.as_deref());
        layers.flat_map(|l| &l.sealed).filter(move |(owner, _)| concerns(owner)).map(|(_, error)| error)
    }
}

/// All variables of files of variables.
fn of_files(beside: &[Beside]) -> impl Iterator<Item = &VarMap> {
    beside.iter().flat_map(|b| b.groups.values().chain(b.hosts.values())).map(|vars| &**vars)
}

/// Merges the variables of groups, for each set of groups that hosts are in.
fn share(tree: &Tree, beside: &[Beside], playbook: Option<&Beside>) -> Arc<[Arc<VarMap>]> {
    let layers = || beside.iter().chain(playbook);
    let of_all = layers().filter_map(|l| l.groups.get(&GroupId::ALL));
    let merged = tree.sets.iter().map(|set| {
        let mut vars = tree.group(GroupId::ALL).vars.clone();
        set.iter().for_each(|id| vars.extend(&tree.group(*id).vars));
        of_all.clone().for_each(|more| vars.extend(more));
        for layer in layers() {
            set.iter().filter_map(|id| layer.groups.get(id)).for_each(|more| vars.extend(more));
        }
        Arc::new(vars)
    });
    merged.collect()
}

/// What Ansible passes over in a folder of inventories: `IGNORED_ALWAYS` and `INVENTORY_IGNORE_EXTS` of ansible-core.
fn is_ignored(name: &str) -> bool {
    const ENDINGS: [&str; 12] =
        [".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry"];
    name.starts_with('.')
        || ["host_vars", "group_vars", "vars_plugins"].contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

struct Loader<'o> {
    tree: Tree,
    options: &'o Options,
    warnings: Vec<Warning>,
}

impl Loader<'_> {
    /// Reads one source; gives the folder that `group_vars` may lie in.
    fn source(&mut self, source: &str) -> Result<Option<PathBuf>, Errors> {
        let path = Path::new(source);
        if path.is_dir() {
            let before = self.tree.hosts.len() + self.tree.groups.len();
            let files = self.folder(path)?;
            if files == 0 && before == self.tree.hosts.len() + self.tree.groups.len() {
                return Err(Error::new(Kind::Inventory, format!("no inventory lies in the folder {source}")).into());
            }
            Ok(Some(path.to_owned()))
        } else if path.exists() {
            self.file(path)?;
            let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
            Ok(Some(folder.unwrap_or(Path::new(".")).to_owned()))
        } else if source.contains(',') {
            self.list(source)?;
            Ok(None)
        } else {
            let error = Error::new(Kind::Inventory, format!("the inventory {source} doesn't exist"));
            let hint = format!("a list of hosts has a comma in it: -i '{source},'");
            Err(if source.contains('/') { error } else { error.hint(hint) }.into())
        }
    }

    /// A list of hosts as an argument.
    fn list(&mut self, text: &str) -> Result<(), Error> {
        let whole = argument("-i", text);
        let meta = Meta::new(&whole.span, text.to_owned(), None);
        for (from, part) in hostlist::split_list(text) {
            let place = hostlist::within(&whole.span, text, from, from + part.len());
            let (names, port) = address::expand(part, &place)?;
            self.tree.make_room(names.len(), &place)?;
            let port = port.map(|p| Node::plain(&place, p.to_string()));
            for name in &names {
                if !self.tree.has_host(name) {
                    meta.add_host(&mut self.tree, name, (port.as_ref(), &place), GroupId::UNGROUPED);
                }
            }
        }
        Ok(())
    }

    /// All inventories of a folder, by name; how many there were.
    fn folder(&mut self, folder: &Path) -> Result<usize, Errors> {
        let entries = std::fs::read_dir(folder).and_then(|all| all.map(|e| e.map(|e| e.file_name())).collect());
        let mut names: Vec<std::ffi::OsString> = entries.map_err(|e| read::failed(folder, &e))?;
        names.sort();
        let (mut count, mut errors) = (0, Vec::new());
        for name in names.iter().filter(|name| !is_ignored(&name.to_string_lossy())) {
            let path = folder.join(name);
            let read = match std::fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => self.folder(&path),
                // Nobody means a pipe there.
                Ok(meta) if !meta.is_file() => {
                    let message = format!("{} is neither a file nor a folder", path.display());
                    Err(Error::new(Kind::Inventory, message).hint("remove it from the inventory's folder").into())
                }
                _ => self.file(&path).map(|()| 1),
            };
            match read {
                Ok(more) => count += more,
                Err(e) => errors.extend(e.0),
            }
        }
        if errors.is_empty() { Ok(count) } else { Err(Errors(errors)) }
    }

    /// One file, by the rules by which Ansible's plugins take it.
    fn file(&mut self, path: &Path) -> Result<(), Errors> {
        let bytes = read::given(path)?;
        let name = path.display().to_string();
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let meta = |place: &Span| {
            let folder = absolute.parent().map(|f| f.display().to_string());
            Meta::new(place, absolute.display().to_string(), folder)
        };
        if script::is_program(path, &bytes) {
            let place = Span::start(&Source::new(name, ""));
            return Ok(script::load(path, &mut self.tree, &meta(&place), self.options.deadline)?);
        }
        let extension = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        let data = matches!(extension.as_str(), "yaml" | "yml" | "json");
        let (bytes, encrypted) = self.options.vault.bytes(&name, bytes).map_err(Error::from)?;
        let bytes = if data { bytes } else { without_comments(bytes) };
        let source = vault::decode(&name, bytes, encrypted, Kind::Inventory)?;
        // What netplay itself says of the file is no secret.
        let start = if encrypted { Span::start(&Source::new(&name, "")) } else { Span::start(&source) };
        if extension == "toml" {
            let error = Error::inventory(&start, "netplay doesn't read inventories in TOML");
            return Err(error.hint(listing_hint(&name)).into());
        }
        let root = if data {
            read::document(&source, Kind::Inventory)?
        } else if extension.is_empty() {
            // Either format is possible: YAML if it is a mapping or if it looks like one.
            match read::document(&source, Kind::Inventory) {
                Ok(Some(root)) if root.as_map().is_some() => Some(root),
                Err(e) if looks_like_yaml(&source.text) => return Err(e.into()),
                _ => None,
            }
        } else {
            None
        };
        let read = match root {
            None if data => {
                Err(Error::inventory(&start, "this inventory is empty").hint("write `all: {hosts: {…}}`").into())
            }
            None => {
                let before = self.tree.hosts.len() + self.tree.groups.len();
                ini::load(&source, &mut self.tree, &meta(&start))?;
                if before == self.tree.hosts.len() + self.tree.groups.len() && source.text.trim().is_empty() {
                    self.warnings.push(Error::inventory(&start, "this inventory is empty"));
                }
                Ok(())
            }
            Some(root) => self.document(&root, &name, &meta(&start)).map_err(Errors::from),
        };
        if encrypted {
            let groups = self.tree.groups.iter().map(|g| &g.vars);
            let vars = groups.chain(self.tree.hosts.iter().map(|h| &h.vars)).flat_map(VarMap::iter);
            vars.for_each(|(_, value)| self.options.vault.conceal(value));
        }
        read
    }

    fn document(&mut self, root: &Node, name: &str, meta: &Meta) -> Result<(), Error> {
        if root.as_map().is_none() {
            let message = format!("an inventory is a mapping of groups, not {}", root.describe());
            let error = Error::inventory(&root.span, message);
            return Err(if root.is_null() || root.as_seq().is_some() {
                error.hint("write `all: {hosts: {…}}`")
            } else {
                error.hint("an INI inventory needs a name that doesn't end in .yaml, .yml or .json")
            });
        }
        if let Some(plugin) = root.get("plugin").filter(|p| !p.is_null() && p.text() != Some("")) {
            let message = format!("netplay doesn't run inventory plugins ({})", plugin.text().unwrap_or("plugin"));
            return Err(Error::inventory(&plugin.span, message).hint(listing_hint(name)));
        }
        if script::is_listing(root) {
            script::groups(root, &mut self.tree, meta)?;
        } else {
            self.warnings.extend(yaml_file::load(root, &mut self.tree, meta)?);
        }
        Ok(())
    }
}

fn listing_hint(name: &str) -> String {
    format!("let Ansible write it out: `ansible-inventory -i {name} --list > inv.json`, then `-i inv.json`")
}

/// Whether the first line that says something is one of YAML rather than of INI: a key, not a section or a host whose
/// value or comment has a colon in it.
fn looks_like_yaml(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with(['#', ';']));
    let key = |l: &str| l.split([' ', '\t']).next().is_some_and(|word| word.ends_with(':'));
    first.is_some_and(|l| l == "---" || l.starts_with('{') || key(l))
}

/// Comments of INI files needn't be UTF-8, as Ansible doesn't look at them: what isn't is replaced.
fn without_comments(bytes: Vec<u8>) -> Vec<u8> {
    if std::str::from_utf8(&bytes).is_ok() {
        return bytes;
    }
    let line = |line: &[u8]| match line.first() {
        Some(b'#' | b';') => String::from_utf8_lossy(line).into_owned().into_bytes(),
        _ => line.to_owned(),
    };
    bytes.split_inclusive(|b| *b == b'\n').flat_map(line).collect()
}

/// What a host keeps of the source that named it first.
struct Meta {
    file: (Arc<str>, Node),
    folder: Option<(Arc<str>, Node)>,
    port: Arc<str>,
}

impl Meta {
    fn new(place: &Span, file: String, folder: Option<String>) -> Meta {
        Meta {
            file: (Arc::from("inventory_file"), Node::string(place, file)),
            folder: folder.map(|f| (Arc::from("inventory_dir"), Node::string(place, f))),
            port: Arc::from("ansible_port"),
        }
    }

    /// Adds a host to a group, which lists it at a place. Only one that is new gets the port, as with Ansible.
    fn add_host(&self, tree: &mut Tree, name: &str, (port, place): (Option<&Node>, &Span), group: GroupId) -> HostId {
        let (id, new) = tree.add_host(name, group, place);
        if new {
            let vars = &mut tree.hosts[id.index()].vars;
            for (name, value) in std::iter::once(&self.file).chain(&self.folder) {
                vars.insert(name.clone(), value.clone());
            }
            if let Some(port) = port {
                vars.insert(self.port.clone(), port.clone());
            }
        }
        id
    }

    /// Adds hosts and sets their variables.
    fn add_hosts(
        &self,
        tree: &mut Tree,
        names: &[String],
        (port, place): (Option<Node>, &Span),
        group: GroupId,
        vars: &[(Arc<str>, Node)],
    ) -> Result<(), Error> {
        tree.make_room(names.len(), place)?;
        for name in names {
            let id = self.add_host(tree, name, (port.as_ref(), place), group);
            vars.iter().try_for_each(|(name, value)| tree.set_host_var(id, name, value))?;
        }
        Ok(())
    }
}
