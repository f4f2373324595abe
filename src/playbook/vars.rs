//! Variables: those of the command line, and what one host sees of all of them.

use super::template::{self, Fail, Lookup, Step};
use crate::error::{Error, Errors, Kind};
use crate::inventory::vault::Vault;
use crate::inventory::{self, HostId, Inventory, Vars, Warning};
use crate::source::{self, Source, Span};
use crate::yaml::Node;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// Variables by name, as they were written.
pub(crate) type Layer = BTreeMap<Arc<str>, Node>;

/// Names that netplay itself gives a meaning to; nothing in a playbook can set them.
pub(crate) const RESERVED: &[&str] = &[
    "facts",
    "group_names",
    "groups",
    "hostvars",
    "inventory_hostname",
    "inventory_hostname_short",
    "omit",
    "playbook_dir",
];

/// Variables of the command line (`-e`). They win over all others.
#[derive(Debug, Clone, Default)]
pub struct Extra(pub(super) Arc<Layer>);

impl Extra {
    /// Reads the arguments of `-e`, later ones winning: `key=value …` (values are strings, blanks in them quoted as in
    /// a shell), `@FILE` (YAML or JSON), or a mapping as YAML or JSON.
    ///
    /// # Errors
    /// What is wrong in each of them.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>, vault: &Vault) -> Result<Extra, Errors> {
        let (mut layer, mut errors) = (Layer::new(), Vec::new());
        for argument in arguments {
            match extra(argument, vault) {
                Ok(found) => layer.extend(found),
                Err(e) => errors.push(e.kind(Kind::Usage)),
            }
        }
        if errors.is_empty() { Ok(Extra(Arc::new(layer))) } else { Err(Errors(errors)) }
    }

    /// Names among them that are nearly one of a variable of the connection.
    pub fn warnings(&self) -> Vec<Warning> {
        inventory::misspelt(&*self.0)
    }
}

fn extra(argument: &str, vault: &Vault) -> Result<Layer, Error> {
    let trimmed = argument.trim_start();
    if let Some(path) = trimmed.strip_prefix('@') {
        let bytes = source::given(Path::new(path), source::MAX_TEXT)
            .map_err(|e| Error::usage(format!("-e @{path} can't be read: {e}")))?;
        return mapping(&vault.text(path, bytes, Kind::Usage)?, vault);
    }
    let source = Source::new("-e", argument);
    if trimmed.starts_with(['{', '[']) {
        return mapping(&source, vault);
    }
    let words = shlex::split(argument).ok_or_else(|| {
        Error::usage("a quote isn't closed").at(&Span::start(&source)).hint("write -e key=\"a value\"")
    })?;
    words
        .into_iter()
        .map(|word| {
            let at = argument.find(&word).map_or(1, |at| argument[..at].chars().count() + 1);
            let span = Span::at(&source, 1, at, word.chars().count());
            match word.split_once('=') {
                Some((key, value)) => {
                    variable_name(key, &span)?;
                    Ok((Arc::from(key), Node::string(&span, value)))
                }
                None => Err(Error::usage(format!("`{word}` sets no variable"))
                    .at(&span)
                    .hint("write -e key=value, -e @FILE, or -e '{\"key\": …}'; a value with blanks is quoted")),
            }
        })
        .collect()
}

fn mapping(source: &Arc<Source>, vault: &Vault) -> Result<Layer, Error> {
    match inventory::document(source, Kind::Usage)? {
        None => Ok(Layer::new()),
        Some(node) if node.is_null() => Ok(Layer::new()),
        Some(node) => {
            vault.conceal(&node);
            layer(&node, "variables")
        }
    }
}

/// The variables of a mapping.
///
/// # Errors
/// It is none, or a name can't be one of a variable.
pub(super) fn layer(node: &Node, what: &str) -> Result<Layer, Error> {
    let Some(entries) = node.as_map() else {
        let message = format!("{what} must be a mapping of names to values, not {}", node.describe());
        return Err(Error::playbook(&node.span, message));
    };
    entries
        .iter()
        .map(|(key, value)| {
            let name = key.text().unwrap_or_default();
            variable_name(name, &key.span)?;
            Ok((Arc::from(name), value.clone()))
        })
        .collect()
}

/// Whether a name can be one of a variable.
///
/// # Errors
/// It has characters that a template couldn't name, or is one that netplay gives a meaning to.
pub(super) fn variable_name(name: &str, span: &Span) -> Result<(), Error> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(word) {
        return Err(Error::playbook(span, format!("`{name}` can't be the name of a variable"))
            .hint("a name has letters, digits and `_`, and begins with no digit"));
    }
    if RESERVED.contains(&name) {
        return Err(Error::playbook(span, format!("`{name}` has a meaning of its own and can't be set"))
            .hint(format!("choose another name; reserved: {}", RESERVED.join(", "))));
    }
    Ok(())
}

/// What all hosts of a playbook share: the inventory with what lies beside the playbook, and the command line.
#[derive(Debug)]
pub struct Context {
    /// Hosts, groups and their variables.
    pub inventory: Inventory,
    extra: Extra,
    playbook_dir: PathBuf,
    groups: OnceLock<Node>,
}

impl Context {
    /// For a playbook in this folder; for a command without one, the working folder.
    pub fn new(inventory: Inventory, extra: Extra, playbook_dir: &Path) -> Arc<Context> {
        Arc::new(Context { inventory, extra, playbook_dir: playbook_dir.to_owned(), groups: OnceLock::new() })
    }

    /// The variables of a host outside of any play: those of the inventory and of the command line.
    pub fn variables(self: &Arc<Context>, host: HostId) -> Variables {
        Variables(Arc::new(Scope::new(self.clone(), Some(host))))
    }

    fn groups(&self) -> &Node {
        self.groups.get_or_init(|| {
            let span = magic();
            let names = |hosts: &[HostId]| {
                Node::seq(&span, hosts.iter().map(|h| Node::string(&span, self.inventory.name(*h).clone())).collect())
            };
            let groups = self.inventory.groups();
            Node::map(&span, groups.map(|(name, hosts)| (Node::string(&span, name.clone()), names(hosts))).collect())
        })
    }
}

/// The place of a value that no file holds.
fn magic() -> Span {
    static SOURCE: OnceLock<Arc<Source>> = OnceLock::new();
    Span::start(SOURCE.get_or_init(|| Source::new("netplay", "")))
}

/// The variables of one host, rendered when they are asked for. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Variables(pub(super) Arc<Scope>);

impl Variables {
    /// A variable, rendered; nothing where it isn't set. This is where the connection's variables (`ansible_host`,
    /// `ansible_become_password`) come from.
    ///
    /// # Errors
    /// What is wrong in its templates. It can't depend on facts.
    pub fn get(&self, name: &str) -> Result<Option<Node>, Errors> {
        let raw = match self.0.find(name, true) {
            Ok(raw) => raw,
            Err(fail) => return Err(self.told(name, fail, None)),
        };
        let Some(raw) = raw else { return Ok(None) };
        let (Raw::Written(node) | Raw::Value(node)) = &raw;
        let place = node.span.clone();
        let told = |fail| self.told(name, fail, Some(&place));
        let value = self.0.value(name, raw).map_err(told)?;
        let open = |node: Node| self.0.vault().open_all(&node).map_err(|e| told(Fail::error(e)));
        value.map(open).transpose()
    }

    fn told(&self, name: &str, fail: Fail, place: Option<&Span>) -> Errors {
        let host = self.0.hostname();
        let error = match fail {
            Fail::Facts => {
                let message = format!("`{name}` can't depend on facts, which need a connection");
                place.iter().fold(Error::new(Kind::Inventory, message), |error, place| error.at(place))
            }
            Fail::Undefined(e) | Fail::Error(e) => *e,
        };
        Errors::from(error.hint(format!("this is `{name}` of the host {host}")))
    }
}

/// What is known of a host's facts.
#[derive(Debug, Clone)]
pub(crate) enum Facts {
    /// All of them.
    Known(Node),
    /// They have to be asked for.
    Unknown,
    /// They are those of another host, which can't be used.
    Foreign,
}

/// The names that templates of one host, or of one resource of it, see.
#[derive(Debug)]
pub(crate) struct Scope {
    context: Arc<Context>,
    /// The host; none for what holds for a whole play.
    host: Option<HostId>,
    inventory: Option<Vars>,
    /// Of the play and its resource, lowest precedence first.
    layers: Vec<Arc<Layer>>,
    /// Whether some of `vars_files` depend on facts, so that a variable that isn't found may be in them.
    pending: bool,
    /// Values of a loop.
    bound: Vec<(Arc<str>, Node)>,
    facts: Facts,
    /// What has been rendered. That something in it is undefined is kept, too: it is asked for again to be explained.
    rendered: Mutex<HashMap<Arc<str>, Result<Node, Fail>>>,
}

thread_local! {
    /// Variables that are being rendered on this thread, each with its scope.
    static BUSY: RefCell<Vec<(usize, Arc<str>, Span)>> = const { RefCell::new(Vec::new()) };
}

/// A value that was found: as written, or one that isn't a template.
pub(super) enum Raw {
    Written(Node),
    Value(Node),
}

impl Scope {
    pub(super) fn new(context: Arc<Context>, host: Option<HostId>) -> Scope {
        Scope {
            inventory: host.map(|h| context.inventory.vars(h)),
            context,
            host,
            layers: Vec::new(),
            pending: false,
            bound: Vec::new(),
            facts: Facts::Unknown,
            rendered: Mutex::default(),
        }
    }

    /// The same host with the variables of a play.
    pub(super) fn play(&self, layers: Vec<Arc<Layer>>, pending: bool) -> Scope {
        Scope { layers, pending, facts: self.facts.clone(), ..Scope::new(self.context.clone(), self.host) }
    }

    /// The same host with its facts.
    pub(super) fn with_facts(&self, facts: &Node) -> Scope {
        Scope { facts: Facts::Known(facts.clone()), ..self.with(&[], Vec::new()) }
    }

    /// The same with further variables, and values of a loop.
    pub(super) fn with(&self, layers: &[Arc<Layer>], bound: Vec<(Arc<str>, Node)>) -> Scope {
        Scope {
            context: self.context.clone(),
            host: self.host,
            inventory: self.inventory.clone(),
            layers: self.layers.iter().chain(layers).cloned().collect(),
            pending: self.pending,
            bound,
            facts: self.facts.clone(),
            rendered: Mutex::default(),
        }
    }

    fn hostname(&self) -> &str {
        self.host.map_or("", |h| self.context.inventory.name(h))
    }

    /// Whether variables are missing whose file depends on facts.
    pub(super) fn pending(&self) -> bool {
        self.pending
    }

    /// Whether it is a part of a run, which is where facts are known.
    pub(super) fn in_run(&self) -> bool {
        matches!(self.facts, Facts::Known(_))
    }

    /// The folder of the playbook.
    pub(super) fn playbook_dir(&self) -> &Path {
        &self.context.playbook_dir
    }

    /// Another host of the inventory, without its facts; plays don't matter for it.
    pub(crate) fn other(&self, host: &str) -> Option<Arc<Scope>> {
        let host = self.context.inventory.host(host)?;
        Some(Arc::new(Scope { facts: Facts::Foreign, ..Scope::new(self.context.clone(), Some(host)) }))
    }

    /// The names of all hosts of the inventory.
    pub(crate) fn all_hosts(&self) -> Vec<Arc<str>> {
        self.context.inventory.hosts().map(|h| self.context.inventory.name(h).clone()).collect()
    }

    /// The names of all variables, for a misspelt one.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        names.extend(self.inventory.iter().flat_map(|v| v.iter().map(|(name, _)| name.clone())));
        names.extend(self.layers.iter().flat_map(|l| l.keys()).chain(self.context.extra.0.keys()).cloned());
        names.extend(self.bound.iter().map(|(name, _)| name.clone()));
        names.extend(RESERVED.iter().map(|n| Arc::from(*n)));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What opens encrypted values.
    pub(crate) fn vault(&self) -> &Arc<Vault> {
        self.context.inventory.vault()
    }

    /// A variable, rendered; nothing where it isn't defined.
    pub(crate) fn node(self: &Arc<Scope>, name: &str) -> Result<Option<Node>, Fail> {
        match self.find(name, false)? {
            Some(raw) => self.value(name, raw),
            None => Ok(None),
        }
    }

    /// What a lookup leads to.
    pub(crate) fn walk(self: &Arc<Scope>, lookup: &Lookup) -> Result<Node, Fail> {
        let absent = || Fail::undefined(Error::new(Kind::Playbook, format!("`{}` isn't defined", lookup.root)));
        let (mut node, steps) = match (&*lookup.root, &lookup.steps[..]) {
            ("hostvars", [Step::Key(host), Step::Key(name), steps @ ..]) => {
                let other = self.other(host).ok_or_else(absent)?;
                (other.node(name)?.ok_or_else(absent)?, steps)
            }
            (root, steps) => (self.node(root)?.ok_or_else(absent)?, steps),
        };
        for step in steps {
            let next = match step {
                Step::Key(key) => node.get(key).cloned(),
                Step::Index(at) => node.as_seq().and_then(|s| s.get(*at)).cloned(),
            };
            node = next.ok_or_else(absent)?;
        }
        Ok(node)
    }

    /// A variable by its precedence. Those of the connection don't wait for files that depend on facts.
    fn find(&self, name: &str, connection: bool) -> Result<Option<Raw>, Fail> {
        if let Some(value) = self.own(name)? {
            return Ok(Some(Raw::Value(value)));
        }
        if let Some(node) = self.context.extra.0.get(name) {
            return Ok(Some(Raw::Written(node.clone())));
        }
        if let Some((_, node)) = self.bound.iter().rev().find(|(n, _)| **n == *name) {
            return Ok(Some(Raw::Value(node.clone())));
        }
        if let Some(node) = self.layers.iter().rev().find_map(|l| l.get(name)) {
            return Ok(Some(Raw::Written(node.clone())));
        }
        if self.pending && !connection {
            return Err(Fail::Facts);
        }
        // A file that isn't read may have set just this variable.
        if let Some(host) = self.host
            && let Some(error) = self.context.inventory.sealed(host).next()
        {
            return Err(Fail::error(error.clone()));
        }
        Ok(self.inventory.as_ref().and_then(|v| v.get(name)).map(|n| Raw::Written(n.clone())))
    }

    /// The names that netplay itself gives a meaning to.
    fn own(&self, name: &str) -> Result<Option<Node>, Fail> {
        let string = |text: &str| Some(Node::string(&magic(), text));
        Ok(match name {
            "facts" => match &self.facts {
                Facts::Known(facts) => Some(facts.clone()),
                Facts::Unknown => return Err(Fail::Facts),
                Facts::Foreign => {
                    let host = self.hostname();
                    let error = Error::new(Kind::Playbook, format!("`hostvars['{host}'].facts` can't be used"))
                        .hint("a host sees only its own facts; put what others need into their variables");
                    return Err(Fail::error(error));
                }
            },
            "inventory_hostname" if self.host.is_some() => string(self.hostname()),
            "inventory_hostname_short" if self.host.is_some() => {
                string(self.hostname().split('.').next().unwrap_or_default())
            }
            "group_names" => {
                let span = magic();
                let names = self.host.map(|h| self.context.inventory.group_names(h)).unwrap_or_default();
                Some(Node::seq(&span, names.into_iter().map(|n| Node::string(&span, n)).collect()))
            }
            "groups" => Some(self.context.groups().clone()),
            "playbook_dir" => string(&self.context.playbook_dir.display().to_string()),
            _ => None,
        })
    }

    /// Renders what was found under a name.
    fn value(self: &Arc<Scope>, name: &str, raw: Raw) -> Result<Option<Node>, Fail> {
        let node = match raw {
            Raw::Value(node) => return Ok(Some(node)),
            Raw::Written(node) => node,
        };
        let large = node.as_map().is_some() || node.as_seq().is_some();
        if !large && !template::templated(&node) {
            return Ok(Some(node));
        }
        let rendered = || self.rendered.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(found) = rendered().get(name) {
            return found.clone().map(Some);
        }
        let scope = Arc::as_ptr(self) as usize;
        BUSY.with_borrow_mut(|busy| {
            let cycle = busy.iter().position(|(s, n, _)| *s == scope && **n == *name);
            let Some(first) = cycle else {
                busy.push((scope, Arc::from(name), node.span.clone()));
                return Ok(());
            };
            let mut chain: Vec<&str> = busy[first..].iter().map(|(_, n, _)| &**n).collect();
            chain.push(name);
            let error =
                Error::playbook(&node.span, format!("the variable `{name}` needs itself: {}", chain.join(" → ")));
            let others = busy[first + 1..].iter();
            Err(Fail::error(others.fold(error, |e, (_, n, span)| e.also(span, format!("`{n}` is set here")))))
        })?;
        let result = template::variable(&node, self);
        BUSY.with_borrow_mut(|busy| busy.pop());
        match &result {
            Ok(Some(node)) => _ = rendered().insert(Arc::from(name), Ok(node.clone())),
            Err(fail @ Fail::Undefined(_)) => _ = rendered().insert(Arc::from(name), Err(fail.clone())),
            _ => {}
        }
        result
    }
}
