//! A play as one host sees it.

use super::load;
use super::template::{self, Fail};
use super::vars::{Context, Layer, Scope, Variables};
use super::written::{Batch, Become as Keywords, Entry, Loop, Play};
use super::{Become, HostPlay, Item, Reference, Skipped};
use crate::error::{Error, Errors};
use crate::inventory::HostId;
use crate::inventory::vault::{self, Vault};
use crate::resource::{AnyResource, Env, Predicate, Spec, spec};
use crate::source::Span;
use crate::verify::{Check, suite};
use crate::yaml::Node;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which resources are wanted by their tags (`--tags`, `--skip-tags`), as Ansible reads them: `always`, `never`, `all`,
/// `tagged` and `untagged` have their meaning.
#[derive(Debug, Clone, Default)]
pub struct Tags {
    only: BTreeSet<String>,
    skip: BTreeSet<String>,
}

impl Tags {
    /// From the arguments, each a tag or several with commas between them.
    pub fn new<'a>(only: impl IntoIterator<Item = &'a str>, skip: impl IntoIterator<Item = &'a str>) -> Tags {
        fn split<'a>(tags: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
            let words = tags.into_iter().flat_map(|t| t.split(','));
            words.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect()
        }
        Tags { only: split(only), skip: split(skip) }
    }

    fn want(&self, tags: &BTreeSet<Arc<str>>) -> bool {
        let tagged = !tags.is_empty();
        let has = |tag: &str| tags.contains(tag) || (!tagged && tag == "untagged");
        let only = |tag: &str| self.only.contains(tag) || (self.only.is_empty() && tag == "all");
        let wanted = has("always")
            || (only("all") && !has("never"))
            || self.only.iter().any(|t| has(t))
            || (only("tagged") && tagged && !has("never"));
        let skipped = (self.skip.contains("all") && (!has("always") || self.skip.contains("always")))
            || self.skip.iter().any(|t| has(t))
            || (self.skip.contains("tagged") && tagged);
        wanted && !skipped
    }
}

/// What holds for a play as a whole.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which hosts: a pattern or a list of them.
    pub hosts: Node,
    /// The sizes of its batches (`serial`), the last one repeated; empty for all hosts at once.
    pub serial: Vec<Batch>,
    /// How many percent of a batch may fail; nothing if it isn't said.
    pub max_fail_percentage: Option<f64>,
    /// How it boots its hosts.
    pub reboot: super::Reboot,
    /// What is checked after each batch, or in place of resources.
    pub checks: Vec<Check>,
    /// Whether checks are made as another user.
    pub become_: Become,
}

impl Play {
    /// What holds for the play as a whole, rendered without any host: by the play's own variables and those of the
    /// command line.
    ///
    /// # Errors
    /// What is wrong in it.
    pub fn settings(&self, context: &Arc<Context>) -> Result<Settings, Errors> {
        let scope = Arc::new(Scope::new(context.clone(), None).play(vec![self.vars.clone()], false));
        let value = |node: &Node| match template::render(node, &scope) {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Err(Errors::from(Error::playbook(&node.span, "it can't be left out by `omit`"))),
            Err(Fail::Facts) => Err(Errors::from(Error::playbook(&node.span, "it can't depend on facts"))),
            Err(Fail::Undefined(e) | Fail::Error(e)) => Err(Errors::from(
                e.hint("this holds for the whole play: it sees the play's `vars` and -e, no host's variables"),
            )),
        };
        let rendered = |node: &Option<Node>| node.as_ref().map(value).transpose();
        Ok(Settings {
            hosts: value(&self.hosts)?,
            serial: rendered(&self.serial)?.map_or(Ok(Vec::new()), |n| load::serial(&n))?,
            max_fail_percentage: rendered(&self.max_fail_percentage)?.map(|n| load::percentage(&n)).transpose()?,
            reboot: self.reboot(&scope)?,
            checks: self
                .checks
                .iter()
                .map(|n| suite::read(&value(n)?).map_err(Errors::from))
                .collect::<Result<_, _>>()?,
            become_: become_(&self.become_, &scope).unwrap_or_default(),
        })
    }

    /// The variables of a host in this play.
    ///
    /// # Errors
    /// A file of `vars_files` is missing or wrong, or its path can't be rendered. One whose path depends on facts is
    /// read when they are known.
    pub fn variables(&self, context: &Arc<Context>, host: HostId) -> Result<Variables, Errors> {
        let base = Scope::new(context.clone(), Some(host));
        Ok(Variables(Arc::new(self.scope(&base).map_err(|f| told(f, &self.hosts))?)))
    }

    fn scope(&self, base: &Scope) -> Result<Scope, Fail> {
        let mut layers = vec![self.vars.clone()];
        for file in &self.vars_files {
            let path = if template::templated(file) {
                match template::render(file, &Arc::new(base.play(layers.clone(), false))) {
                    Ok(path) => path,
                    Err(Fail::Facts) => return Ok(base.play(layers, true)),
                    Err(fail) => return Err(fail),
                }
            } else {
                Some(file.clone())
            };
            if let Some(path) = path.as_ref().and_then(Node::text) {
                layers.push(self.vars_file(&base.playbook_dir().join(path), file, base.vault()).map_err(Fail::error)?);
            }
        }
        Ok(base.play(layers, false))
    }

    fn vars_file(&self, path: &Path, named: &Node, vault: &Vault) -> Result<Arc<Layer>, Error> {
        if let Some(layer) = self.read.read().unwrap_or_else(|e| e.into_inner()).get(path) {
            return Ok(layer.clone());
        }
        let layer = load::vars_file(path, named, vault)?;
        self.read.write().unwrap_or_else(|e| e.into_inner()).insert(path.to_owned(), layer.clone());
        Ok(layer)
    }

    /// Renders the play for a host. Without its facts, what needs them is left out, and the result says so.
    ///
    /// # Errors
    /// Everything that is wrong in it on this host.
    pub fn render(&self, variables: &Variables, tags: &Tags, facts: Option<&Node>) -> Result<HostPlay, Errors> {
        let scope = match facts {
            None => variables.0.clone(),
            Some(facts) => {
                let scope = variables.0.with_facts(facts);
                // Files of variables whose paths depend on facts are found only now.
                let scope = if scope.pending() { self.scope(&scope).map_err(|f| told(f, &self.hosts))? } else { scope };
                Arc::new(scope)
            }
        };
        let become_ = become_(&self.become_, &scope).unwrap_or_default();
        let out = HostPlay { become_, ..HostPlay::default() };
        let mut renderer = Renderer { play: self, tags, out, errors: Vec::new() };
        template::deep(|| self.resources.iter().chain(&self.handlers).for_each(|entry| renderer.entry(entry, &scope)));
        if renderer.errors.is_empty() {
            return Ok(renderer.out);
        }
        let of_image = |error: Error| {
            match self.image && names_facts(&error) {
            true => error.hint(
                "in the root of an image only `facts.os` is known: all other facts are of a machine that runs, and null",
            ),
            false => error,
        }
        };
        Err(Errors(renderer.errors.into_iter().map(of_image).collect()))
    }
}

/// Whether an error is about an expression with facts.
fn names_facts(error: &Error) -> bool {
    let line = error.place.as_ref().and_then(Span::excerpt);
    error.message.contains("facts") || line.is_some_and(|line| line.contains("facts"))
}

fn told(fail: Fail, at: &Node) -> Errors {
    Errors::from(match fail {
        Fail::Facts => Error::playbook(&at.span, "this can't depend on facts"),
        Fail::Undefined(e) | Fail::Error(e) => *e,
    })
}

struct Renderer<'p> {
    play: &'p Play,
    tags: &'p Tags,
    out: HostPlay,
    errors: Vec<Error>,
}

impl Renderer<'_> {
    fn entry(&mut self, entry: &Entry, base: &Arc<Scope>) {
        let scope = if entry.vars.is_empty() { base.clone() } else { Arc::new(base.with(&entry.vars, Vec::new())) };
        if !entry.handler && !self.tags.want(&entry.tags) {
            return self.leave_out(entry, &scope, Arc::from("tags"));
        }
        let Some(repeat) = &entry.repeat else { return self.once(entry, &scope) };
        // A condition that is the same for all rounds comes first: the list may be one that isn't there otherwise.
        if !repeat.in_conditions {
            match self.failing(entry, &scope) {
                Ok(None) => {}
                Ok(Some(why)) => return self.leave_out(entry, &scope, why),
                Err(fail) => return self.fail(fail),
            }
        }
        match rounds(repeat, &scope) {
            Ok(rounds) => rounds.iter().for_each(|scope| self.once(entry, scope)),
            Err(fail) => self.fail(fail),
        }
    }

    fn fail(&mut self, fail: Fail) {
        match fail {
            Fail::Facts => self.out.wants_facts = true,
            Fail::Undefined(e) | Fail::Error(e) => self.errors.push(*e),
        }
    }

    /// The first condition that doesn't hold, in words.
    fn failing(&self, entry: &Entry, scope: &Arc<Scope>) -> Result<Option<Arc<str>>, Fail> {
        for condition in &entry.when {
            for one in condition.as_seq().unwrap_or(std::slice::from_ref(condition)) {
                if !template::holds(one, scope)? {
                    return Ok(Some(Arc::from(format!("when: {}", one.text().unwrap_or_default().trim()))));
                }
            }
        }
        Ok(None)
    }

    fn once(&mut self, entry: &Entry, scope: &Arc<Scope>) {
        match self.failing(entry, scope) {
            Ok(None) => {}
            Ok(Some(why)) => return self.skip(entry, scope, why),
            Err(fail) => return self.fail(fail),
        }
        match self.item(entry, scope) {
            Ok(item) => match item.resource.live_only().filter(|_| self.play.image) {
                Some(why) => self.skip(entry, scope, Arc::from(why)),
                None if entry.handler => self.out.handlers.push(item),
                None => self.out.resources.push(item),
            },
            Err(fail) => self.fail(fail),
        }
    }

    /// Leaves an entry out, each round of a loop on its own as far as they can be known.
    fn leave_out(&mut self, entry: &Entry, scope: &Arc<Scope>, why: Arc<str>) {
        match entry.repeat.as_ref().map(|r| rounds(r, scope)) {
            Some(Ok(rounds)) => rounds.iter().for_each(|scope| self.skip(entry, scope, why.clone())),
            _ => self.skip(entry, scope, why),
        }
    }

    fn skip(&mut self, entry: &Entry, scope: &Arc<Scope>, why: Arc<str>) {
        // What is left out needn't be renderable here; its address is told if it is.
        let item = self.item(entry, scope).ok();
        let place = entry.place.clone();
        self.out.skipped.push(match item {
            Some(Item { address, title, untold, .. }) => Skipped { address: Some(address), title, place, why, untold },
            None => {
                let title = entry.title.as_ref().and_then(|t| title(t, scope).ok());
                let no_log = entry.no_log.as_ref().is_some_and(|n| self.hides(n, scope));
                let (title, untold) = told_title(entry, title, no_log, scope);
                Skipped { address: None, title, place, why, untold: untold.into_iter().collect() }
            }
        });
    }

    fn item(&self, entry: &Entry, scope: &Arc<Scope>) -> Result<Item, Fail> {
        let item = self.read(entry, scope);
        // An error says what the value is, and its place may be where that is written. What has no expression is no
        // secret, and was checked when it was loaded.
        match (item, &entry.no_log) {
            (Err(Fail::Error(_)), Some(no_log)) if !entry.fixed && self.hides(no_log, scope) => Err(Fail::error(
                Error::playbook(
                    &entry.place,
                    "a value of this resource can't be used, and the reason is hidden by no_log",
                )
                .hint("take `no_log` away where its values may be seen, and run `netplay validate`"),
            )),
            (item, _) => item,
        }
    }

    /// Whether `no_log` holds; one that can't be known does.
    fn hides(&self, no_log: &Node, scope: &Arc<Scope>) -> bool {
        let flag = template::render(no_log, scope).ok().flatten();
        !flag.is_some_and(|n| n.is_null() || spec::truth("no_log", &n).is_ok_and(|hidden| !hidden))
    }

    fn read(&self, entry: &Entry, scope: &Arc<Scope>) -> Result<Item, Fail> {
        if let Some(item) = entry.shared.get() {
            return Ok(item.clone());
        }
        let whole = |node: &Node| {
            template::render(node, scope)?.ok_or_else(|| {
                Fail::error(Error::playbook(&node.span, "`omit` can't leave out the whole of a resource"))
            })
        };
        let body = if entry.fixed { entry.body.clone() } else { whole(&entry.body)? };
        let title = entry.title.as_ref().map(|t| title(t, scope)).transpose()?;
        let env = HostEnv { play: self.play, entry, scope, facts: Cell::new(false), host: Cell::new(false) };
        let spec =
            Spec { node: &body, env: &env, title: title.as_deref(), handler: entry.handler, image: self.play.image };
        let resource: Arc<dyn AnyResource> = match entry.kind.parse(&spec) {
            Ok(resource) => Arc::from(resource),
            Err(_) if env.facts.get() => return Err(Fail::Facts),
            Err(e) => return Err(Fail::error(e)),
        };
        let optional = |node: &Option<Node>| match node {
            Some(node) => template::render(node, scope).map(|n| n.filter(|n| !n.is_null())),
            None => Ok(None),
        };
        let flag = |key: &str, node: &Option<Node>| match optional(node)? {
            Some(node) => spec::truth(key, &node).map_err(Fail::error),
            None => Ok(false),
        };
        let no_log = flag("no_log", &entry.no_log)?;
        let (title, untold) = told_title(entry, title, no_log, scope);
        let mut untold: Vec<Arc<str>> = untold.into_iter().collect();
        let identity = resource.identity();
        let address: Arc<str> = Arc::from(format!("{}:{identity}", resource.type_name()));
        let told = match no_log && !entry.fixed && !entry.writes(&identity) {
            true => Arc::from(format!("{}:#{}", resource.type_name(), entry.body.span.line)),
            false => scope.vault().secrets().redact(&address).into(),
        };
        if told != address {
            untold.push(address);
        }
        let item = Item {
            address: told,
            title,
            untold,
            place: entry.place.clone(),
            resource,
            after: references(&entry.after, scope)?,
            before: references(&entry.before, scope)?,
            notify: references(&entry.notify, scope)?,
            become_: become_(&entry.become_, scope)?,
            ignore_errors: flag("ignore_errors", &entry.ignore_errors)?,
            timeout: optional(&entry.timeout)?.map(|n| load::timeout(&n)).transpose().map_err(Fail::error)?,
            no_log,
        };
        // Another thread may have made the same one.
        if entry.fixed && !env.host.get() {
            return Ok(entry.shared.get_or_init(|| item).clone());
        }
        Ok(item)
    }
}

/// The title as it may be told, and the true one where that is another: of a `no_log` resource, expressions stay as
/// they are written.
fn told_title(
    entry: &Entry,
    title: Option<Arc<str>>,
    no_log: bool,
    scope: &Arc<Scope>,
) -> (Option<Arc<str>>, Option<Arc<str>>) {
    let Some(title) = title else { return (None, None) };
    let written = entry.title.as_ref().filter(|t| no_log && template::templated(t));
    let told = match written {
        Some(node) if vault::is_sealed(node) => None,
        Some(node) => node.text().map(Arc::from),
        None => Some(scope.vault().secrets().redact(&title).into()),
    };
    let untold = (told.as_ref() != Some(&title)).then_some(title);
    (told, untold)
}

fn title(node: &Node, scope: &Arc<Scope>) -> Result<Arc<str>, Fail> {
    let rendered = template::render(node, scope)?;
    let text = rendered.as_ref().map_or(Ok(String::new()), |n| spec::text("name", n));
    text.map(Arc::from).map_err(Fail::error)
}

fn references(nodes: &[Node], scope: &Arc<Scope>) -> Result<Vec<Reference>, Fail> {
    let mut out = Vec::new();
    for node in nodes {
        let Some(rendered) = template::render(node, scope)? else { continue };
        // An expression may yield several.
        for one in rendered.as_seq().unwrap_or(std::slice::from_ref(&rendered)) {
            let name = spec::text("an address or a title", one).map_err(Fail::error)?;
            out.push(Reference { name: Arc::from(name), place: node.span.clone() });
        }
    }
    Ok(out)
}

fn become_(keywords: &Keywords, scope: &Arc<Scope>) -> Result<Become, Fail> {
    let value = |node: &Option<Node>| match node {
        Some(node) => template::render(node, scope).map(|n| n.filter(|n| !n.is_null())),
        None => Ok(None),
    };
    let enabled = value(&keywords.enabled)?.map(|n| spec::truth("become", &n)).transpose().map_err(Fail::error)?;
    let user = value(&keywords.user)?.map(|n| spec::text("become_user", &n)).transpose().map_err(Fail::error)?;
    Ok(Become { enabled: enabled.unwrap_or(false), user: user.map(Arc::from) })
}

/// The scopes of a loop's rounds.
fn rounds(repeat: &Loop, scope: &Arc<Scope>) -> Result<Vec<Arc<Scope>>, Fail> {
    let Some(over) = template::variable(&repeat.over, scope)? else { return Ok(Vec::new()) };
    let Some(items) = over.as_seq() else {
        let error = Error::playbook(&repeat.over.span, format!("`loop` needs a list, not {}", over.describe()));
        return Err(Fail::error(match over.as_map() {
            Some(_) => error.hint("make a list of the mapping by `| dict2items`"),
            None => error,
        }));
    };
    let scopes = items.iter().enumerate().map(|(at, item)| {
        let mut bound = vec![(repeat.var.clone(), item.clone())];
        if let Some(index) = &repeat.index_var {
            bound.push((index.clone(), Node::plain(&repeat.over.span, at.to_string())));
        }
        Arc::new(scope.with(&[], bound))
    });
    Ok(scopes.collect())
}

/// What a resource may ask for while it is read.
struct HostEnv<'e> {
    play: &'e Play,
    entry: &'e Entry,
    scope: &'e Arc<Scope>,
    /// Whether something failed for want of facts.
    facts: Cell<bool>,
    /// Whether something was asked that may differ from host to host.
    host: Cell<bool>,
}

impl HostEnv<'_> {
    fn told<T>(&self, result: Result<T, Fail>, at: &Node) -> Result<T, Error> {
        result.map_err(|fail| match fail {
            Fail::Facts => {
                self.facts.set(true);
                Error::playbook(&at.span, "this needs facts")
            }
            Fail::Undefined(e) | Fail::Error(e) => *e,
        })
    }

    /// Finds a file that the playbook names.
    fn find(&self, src: &Node, folder: &'static str) -> Result<Arc<Path>, Error> {
        let name = spec::text("src", src)?;
        let key = (self.entry.dir.clone(), folder, name);
        if let Some(path) = self.play.found.read().unwrap_or_else(|e| e.into_inner()).get(&key) {
            return Ok(path.clone());
        }
        let name = &key.2;
        let mut places: Vec<PathBuf> = Vec::new();
        for dir in [&*self.entry.dir, self.scope.playbook_dir()] {
            for place in [dir.join(folder).join(name), dir.join(name)] {
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        let Some(found) = places.iter().find(|p| p.exists()) else {
            let what = if folder == "templates" { "template" } else { "file" };
            let listed: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
            return Err(Error::playbook(&src.span, format!("the {what} `{name}` doesn't exist"))
                .hint(format!("looked for: {}", listed.join(", "))));
        };
        if found.is_dir() {
            return Err(Error::playbook(&src.span, format!("{} is a folder; one file is wanted", found.display())));
        }
        let found: Arc<Path> = Arc::from(found.as_path());
        self.play.found.write().unwrap_or_else(|e| e.into_inner()).insert(key, found.clone());
        Ok(found)
    }
}

impl Env for HostEnv<'_> {
    fn file(&self, src: &Node) -> Result<Vec<u8>, Error> {
        let path = self.find(src, "files")?;
        let read = template::content(&path, "copy", self.scope.vault());
        read.map(|(bytes, _)| bytes).map_err(|e| e.named(&src.span))
    }

    fn template(&self, src: &Node) -> Result<String, Error> {
        self.host.set(true);
        let path = self.find(src, "templates")?;
        self.told(template::file(&path, src, self.scope), src)
    }

    fn holds(&self, expression: &Node) -> Result<bool, Error> {
        self.host.set(true);
        self.told(template::holds(expression, self.scope), expression)
    }

    fn predicate(&self, expression: &Node) -> Result<Predicate, Error> {
        template::predicate(expression)
    }
}
