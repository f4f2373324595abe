//! Reading playbooks: strict keys, all errors at once, a remedy where a hand that knows Ansible goes wrong.

use super::confirm;
use super::keys;
use super::reboot as boots;
use super::remedies::{self, Level};
use super::template;
use super::vars::{self, Layer};
use super::written::{Batch, Become, Entry, Loop, Play};
use crate::error::{Error, Errors, Kind, suggest};
use crate::inventory::{self, vault::Vault};
use crate::resource::spec::{self, Env, Spec};
use crate::resource::{self, AnyType, Predicate};
use crate::source::{self, Source, Span};
use crate::yaml::{self, Node};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, RwLock};

/// How many files a playbook may include, each counted as often as it is.
const MAX_INCLUDED: usize = 10_000;

/// A playbook with all that it includes.
#[derive(Debug)]
pub struct Playbook {
    /// Its path, as it was given.
    pub path: PathBuf,
    /// Its plays, in their order.
    pub plays: Vec<Play>,
}

impl Playbook {
    /// Reads a playbook and all that it includes, and checks it as far as that can be done without a host.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn load(path: &Path, vault: &Vault) -> Result<Playbook, Errors> {
        let known = || resource::TYPES.iter().map(|t| t.name()).collect();
        template::deep(|| Loader::new(resource::find, &known, vault).playbook(path))
    }

    /// The same of a text that no file holds; `name` stands for it in errors.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn of_text(name: &str, text: String, vault: &Vault) -> Result<Playbook, Errors> {
        let known = || resource::TYPES.iter().map(|t| t.name()).collect();
        let source = Source::new(name, text);
        let node = yaml::load_one(&source, Kind::Playbook)?.filter(|n| !n.is_null());
        Loader::new(resource::find, &known, vault).plays(Path::new("."), &source, node.as_ref())
    }

    /// The folder that it lies in.
    pub fn dir(&self) -> &Path {
        folder(&self.path)
    }

    /// All tags that its resources have.
    pub fn tags(&self) -> BTreeSet<Arc<str>> {
        self.plays.iter().flat_map(|p| &p.resources).flat_map(|r| r.tags.iter().cloned()).collect()
    }
}

/// What is wrong in the values of an entry that is the same for all hosts, as far as it can be known without one.
fn wrong_value(entry: &Entry) -> Option<Error> {
    let sound = entry.fixed && entry.when.is_empty() && spec::check("", &entry.body, entry.kind.keys()).is_empty();
    let env = Hostless(Cell::new(false));
    let title = entry.title.as_ref().and_then(Node::text);
    let spec = Spec { node: &entry.body, env: &env, title, handler: entry.handler, image: false };
    let error = sound.then(|| entry.kind.parse(&spec).err())?;
    error.filter(|_| !env.0.get())
}

/// No host: whether something was asked of one.
struct Hostless(Cell<bool>);

impl Hostless {
    fn ask<T>(&self, node: &Node) -> Result<T, Error> {
        self.0.set(true);
        Err(Error::playbook(&node.span, "this needs a host"))
    }
}

impl Env for Hostless {
    fn file(&self, src: &Node) -> Result<Vec<u8>, Error> {
        self.ask(src)
    }

    fn template(&self, src: &Node) -> Result<String, Error> {
        self.ask(src)
    }

    fn holds(&self, expression: &Node) -> Result<bool, Error> {
        self.ask(expression)
    }

    fn predicate(&self, expression: &Node) -> Result<Predicate, Error> {
        template::predicate(expression)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) struct Loader<'l> {
    find: fn(&str) -> Option<&'static dyn AnyType>,
    known: &'l dyn Fn() -> Vec<&'static str>,
    vault: &'l Vault,
    /// The files that are being read, outermost first, each with the place that includes it.
    including: Vec<(PathBuf, Option<Span>)>,
    /// How many files have been included.
    included: usize,
    /// Whether it reads a suite, whose plays have checks in place of resources.
    pub(super) suite: bool,
    pub(super) errors: Vec<Error>,
}

/// What a file's resources take over from what includes it.
#[derive(Clone)]
struct Outer {
    when: Vec<Node>,
    vars: Vec<Arc<Layer>>,
    tags: BTreeSet<Arc<str>>,
    become_: Become,
    dir: Arc<Path>,
    handler: bool,
}

impl<'l> Loader<'l> {
    /// One that knows these types.
    pub(super) fn new(
        find: fn(&str) -> Option<&'static dyn AnyType>,
        known: &'l dyn Fn() -> Vec<&'static str>,
        vault: &'l Vault,
    ) -> Loader<'l> {
        Loader { find, known, vault, including: Vec::new(), included: 0, suite: false, errors: Vec::new() }
    }

    fn error(&mut self, span: &Span, message: impl Into<String>) -> &mut Error {
        self.errors.push(Error::playbook(span, message));
        // It was pushed just now.
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    pub(super) fn hinted(&mut self, span: &Span, message: impl Into<String>, hint: impl Into<String>) {
        self.error(span, message).hints.push(hint.into());
    }

    pub(super) fn playbook(&mut self, path: &Path) -> Result<Playbook, Errors> {
        match self.file(path, None) {
            None => Err(Errors(std::mem::take(&mut self.errors))),
            Some((source, node)) => self.plays(path, &source, node.as_ref()),
        }
    }

    pub(super) fn plays(&mut self, path: &Path, source: &Arc<Source>, node: Option<&Node>) -> Result<Playbook, Errors> {
        let mut plays = Vec::new();
        match node.map(|node| (node, node.as_seq())) {
            None => {
                let hint = "a playbook is a list of plays: `- hosts: all`, then `  resources:` and a list";
                self.hinted(&Span::start(source), "the playbook is empty", hint);
            }
            Some((_, Some(items))) => {
                let dir: Arc<Path> = Arc::from(folder(path));
                plays = items.iter().filter_map(|n| self.play(n, &dir)).collect();
            }
            Some((node, None)) => {
                let message = format!("a playbook is a list of plays, not {}", node.describe());
                self.hinted(&node.span, message, "begin each play with `- `, as in `- hosts: all`");
            }
        }
        if self.errors.is_empty() {
            return Ok(Playbook { path: path.to_owned(), plays });
        }
        // What would be found next, when it is rendered: all that is wrong is told at once.
        let entries = plays.iter().flat_map(|play| play.resources.iter().chain(&play.handlers));
        self.errors.extend(entries.filter_map(wrong_value));
        Err(Errors(std::mem::take(&mut self.errors)))
    }

    /// Reads a file of YAML; an empty one has no node.
    fn file(&mut self, path: &Path, from: Option<&Span>) -> Option<(Arc<Source>, Option<Node>)> {
        let read = if from.is_some() { source::read } else { source::given };
        let read = read(path, source::MAX_TEXT).map_err(|e| {
            let error = Error::new(
                Kind::Playbook,
                match e.kind() {
                    std::io::ErrorKind::NotFound => format!("{} doesn't exist", path.display()),
                    std::io::ErrorKind::IsADirectory => format!("{} is a folder, not a file", path.display()),
                    _ => format!("{} can't be read: {e}", path.display()),
                },
            );
            match from {
                Some(span) => error.at(span).hint("a path is relative to the file that names it"),
                None => error,
            }
        });
        let read = read.and_then(|bytes| self.vault.text(&path.display().to_string(), bytes, Kind::Playbook));
        let read = read.and_then(|source| yaml::load_one(&source, Kind::Playbook).map(|node| (source, node)));
        match read {
            Ok((source, node)) => Some((source, node.filter(|n| !n.is_null()))),
            Err(e) => {
                self.errors.push(e);
                None
            }
        }
    }

    /// Checks that all keys are among those; unknown ones get a remedy or the nearest name.
    fn keys(&mut self, what: &str, node: &Node, known: &[&str], level: Level) -> bool {
        let Some(entries) = node.as_map() else {
            self.error(&node.span, format!("{what} is a mapping, not {}", node.describe()));
            return false;
        };
        for (key, _) in entries {
            let name = key.text().unwrap_or_default();
            if known.contains(&name) {
                continue;
            }
            match remedies::key(level, name) {
                Some(remedy) => self.hinted(&key.span, format!("{what} has no key `{name}`"), remedy),
                None => self.hinted(&key.span, format!("unknown key `{name}` in {what}"), suggest(name, known)),
            }
        }
        true
    }

    fn play(&mut self, node: &Node, dir: &Arc<Path>) -> Option<Play> {
        if let Some((key, _)) = node.as_map().and_then(|m| m.iter().find(|(k, _)| remedies::playbook(k).is_some())) {
            let remedy = remedies::playbook(key).unwrap_or_default();
            self.hinted(&key.span, format!("`{}` isn't supported", key.text().unwrap_or_default()), remedy);
            return None;
        }
        if !self.keys("a play", node, keys::PLAY, Level::Play) {
            return None;
        }
        let get = |key: &str| node.get(key).filter(|n| !n.is_null());
        let hosts = match get("hosts") {
            Some(hosts) => hosts.clone(),
            None => {
                self.hinted(&node.span, "the play names no hosts", "add `hosts:` with a name, a group, or `all`");
                node.clone()
            }
        };
        template::check(&hosts, &mut self.errors);
        let texts = |n: &Node| n.as_seq().map_or(n.text().is_some(), |s| s.iter().all(|n| n.text().is_some()));
        if get("hosts").is_some() && !texts(&hosts) {
            self.error(&hosts.span, format!("`hosts` takes a pattern or a list of them, not {}", hosts.describe()));
        }
        let name = self.string(node, "name").map(Arc::from);
        let name = name.unwrap_or_else(|| {
            let listed = |s: &[Node]| s.iter().filter_map(Node::text).collect::<Vec<_>>().join(",");
            Arc::from(format!(
                "hosts: {}",
                hosts.as_seq().map_or_else(|| hosts.text().unwrap_or_default().to_owned(), listed)
            ))
        });
        let stop_on_error = match self.string(node, "on_error").as_deref() {
            None | Some("continue") => false,
            Some("stop") => true,
            Some(other) => {
                let span = node.get("on_error").map_or(&node.span, |n| &n.span);
                self.hinted(span, format!("`on_error` can't be `{other}`"), "known: stop, continue");
                false
            }
        };
        let reboot = get("reboot");
        self.errors.extend(reboot.into_iter().flat_map(boots::check));
        let confirm = confirm::read(node.get("confirm")).unwrap_or_else(|errors| {
            self.errors.extend(errors.0);
            None
        });
        for (key, read) in [
            ("serial", get("serial").map(|n| serial(n).err())),
            ("max_fail_percentage", get("max_fail_percentage").map(|n| percentage(n).err())),
        ] {
            let Some(value) = get(key) else { continue };
            template::check(value, &mut self.errors);
            if !template::templated(value) {
                self.errors.extend(read.flatten());
            }
        }
        let outer = Outer {
            when: Vec::new(),
            vars: Vec::new(),
            tags: self.tags(node),
            become_: self.become_(node),
            dir: dir.clone(),
            handler: false,
        };
        let vars = self.vars(node).unwrap_or_default();
        let vars_files = self.list(node, "vars_files");
        let mut read = HashMap::new();
        for file in &vars_files {
            if let (Some(path), false) = (file.text(), template::templated(file)) {
                let path = dir.join(path);
                match vars_file(&path, file, self.vault) {
                    Ok(layer) => _ = read.insert(path, layer),
                    Err(e) => self.errors.push(e),
                }
            } else if file.text().is_none() {
                let message = format!("`vars_files` takes paths, not {}", file.describe());
                self.hinted(
                    &file.span,
                    message,
                    "of alternatives, name the one by an expression, such as `vars/{{ site }}.yaml`",
                );
            }
        }
        let mut resources = Vec::new();
        let checks = self.checks(node);
        match get("resources") {
            _ if self.suite => {}
            Some(list) => self.entries(list, "resources", &outer, &mut resources),
            None if ["tasks", "roles", "pre_tasks", "post_tasks"].iter().any(|k| node.get(k).is_some()) => {}
            None => self.hinted(&node.span, "the play has no resources", "add `resources:` and a list"),
        }
        let become_ = outer.become_.clone();
        let mut handlers = Vec::new();
        if let Some(list) = get("handlers") {
            let outer = Outer { handler: true, tags: BTreeSet::new(), ..outer };
            self.entries(list, "handlers", &outer, &mut handlers);
        }
        Some(Play {
            name,
            place: node.span.clone(),
            stop_on_error,
            confirm,
            image: false,
            hosts,
            serial: get("serial").cloned(),
            max_fail_percentage: get("max_fail_percentage").cloned(),
            reboot: reboot.cloned(),
            become_,
            vars,
            vars_files,
            resources,
            handlers,
            checks,
            read: RwLock::new(read),
            found: RwLock::default(),
        })
    }

    fn entries(&mut self, list: &Node, what: &str, outer: &Outer, into: &mut Vec<Entry>) {
        match list.as_seq() {
            Some(items) => items.iter().for_each(|item| self.entry(item, outer, into)),
            None => {
                let message = format!("{what} are a list, not {}", list.describe());
                self.hinted(&list.span, message, "begin each of them with `- `");
            }
        }
    }

    fn entry(&mut self, node: &Node, outer: &Outer, into: &mut Vec<Entry>) {
        let Some(entries) = node.as_map() else {
            let message = format!("a resource is a mapping, not {}", node.describe());
            return self.hinted(&node.span, message, "write its type as a key: `- mtu: {interface: eth0, mtu: 9000}`");
        };
        if entries.iter().any(|(k, _)| k.text() == Some("include")) {
            return self.include(node, outer, into);
        }
        if let Some(error) = remedies::unindented(entries, self.find) {
            return self.errors.push(error);
        }
        let mut types: Vec<(&'static dyn AnyType, &Node, &Node)> = Vec::new();
        let mut unknown = false;
        for (key, value) in entries {
            let name = key.text().unwrap_or_default();
            if keys::COMMON.iter().any(|k| k.name == name) {
                if outer.handler && ["after", "before", "notify", "tags"].contains(&name) {
                    let hint = "handlers run at the end, in their listed order, once, and call for no others";
                    self.hinted(&key.span, format!("a handler has no key `{name}`"), hint);
                }
            } else if let Some(found) = (self.find)(name) {
                types.push((found, key, value));
            } else {
                unknown = true;
                self.unknown(key, name);
            }
        }
        let (kind, key, body) = match &types[..] {
            [one] => *one,
            [] => {
                if !unknown {
                    let hint = format!("known types: {}", (self.known)().join(", "));
                    self.hinted(&node.span, "the resource names no type", hint);
                }
                return;
            }
            [(first, at, _), (second, also, _), ..] => {
                let message = format!("the resource names two types, `{}` and `{}`", first.name(), second.name());
                let error = self.error(&also.span, message);
                *error = error
                    .clone()
                    .also(&at.span, "the first")
                    .hint("begin the second with `- `, as a resource of its own");
                return;
            }
        };
        self.errors.extend(spec::check(&format!("`{}`", kind.name()), body, kind.keys()));
        template::check(body, &mut self.errors);
        self.vault.conceal(body);
        for key in ["ignore_errors", "no_log", "become"] {
            self.check_scalar(node, key, |n| spec::truth(key, n).map(|_| ()));
        }
        self.check_scalar(node, "timeout", |n| timeout(n).map(|_| ()));
        self.check_scalar(node, "name", |n| spec::text("name", n).map(|_| ()));
        let get = |key: &str| node.get(key).filter(|n| !n.is_null()).cloned();
        let when = self.when(node, outer);
        let repeat = self.repeat(node, &when);
        let (after, before, notify) = (self.list(node, "after"), self.list(node, "before"), self.list(node, "notify"));
        for reference in after.iter().chain(&before).chain(&notify) {
            if reference.text().is_none() {
                let message = format!("an address or a title is wanted here, not {}", reference.describe());
                self.error(&reference.span, message);
            }
        }
        let mut vars = outer.vars.clone();
        vars.extend(self.vars(node));
        let become_ = self.become_(node).within(&outer.become_);
        let own = [
            get("name"),
            get("ignore_errors"),
            get("timeout"),
            get("no_log"),
            become_.enabled.clone(),
            become_.user.clone(),
        ];
        let mut all = own.iter().flatten().chain(&after).chain(&before).chain(&notify);
        let fixed = repeat.is_none() && !template::templated(body) && !all.any(template::templated);
        let mut tags = self.tags(node);
        tags.extend(outer.tags.iter().cloned());
        into.push(Entry {
            place: key.span.clone(),
            kind,
            body: body.clone(),
            title: get("name"),
            when,
            repeat,
            vars,
            tags,
            after,
            before,
            notify,
            become_,
            ignore_errors: get("ignore_errors"),
            timeout: get("timeout"),
            no_log: get("no_log"),
            handler: outer.handler,
            dir: outer.dir.clone(),
            fixed,
            shared: OnceLock::new(),
        });
    }

    /// A key that is neither a common one nor a type.
    fn unknown(&mut self, key: &Node, name: &str) {
        let short = name.rsplit('.').next().unwrap_or(name);
        if let Some(remedy) = remedies::key(Level::Resource, name) {
            return self.hinted(&key.span, format!("a resource has no key `{name}`"), remedy);
        }
        if short != name && (self.find)(short).is_some() {
            return self.hinted(&key.span, format!("unknown type `{name}`"), format!("write `{short}`"));
        }
        if let Some(remedy) = remedies::module(short) {
            return self.hinted(&key.span, format!("there is no type `{name}`"), remedy);
        }
        let types = (self.known)();
        let common: Vec<&str> = keys::COMMON.iter().map(|k| k.name).collect();
        let all: Vec<&str> = types.iter().copied().chain(["include"]).chain(common.iter().copied()).collect();
        let near = crate::error::nearest(name, all.iter().copied());
        let hint = format!("types: {}; beside them: {}", types.join(", "), common.join(", "));
        let hint = near.map_or(hint.clone(), |near| format!("did you mean `{near}`? {hint}"));
        self.hinted(&key.span, format!("`{name}` is neither a type nor a key of a resource"), hint);
    }

    fn include(&mut self, node: &Node, outer: &Outer, into: &mut Vec<Entry>) {
        self.keys("an include", node, keys::INCLUDE, Level::Include);
        let Some(named) = node.get("include") else { return };
        let Some(text) = named.text().filter(|t| !t.is_empty() && !named.is_null()) else {
            return self
                .error(&named.span, format!("`include` takes the path of a file, not {}", named.describe()))
                .hints
                .clear();
        };
        if template::templated(named) {
            let hint = "name the files one by one, each with its `when`";
            return self.hinted(
                &named.span,
                "the path of an include can't be a template, as it is read before any host is known",
                hint,
            );
        }
        let path = outer.dir.join(text);
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if let Some(first) = self.including.iter().position(|(p, _)| *p == real) {
            let mut chain: Vec<String> = self.including[first..].iter().map(|(p, _)| short(p)).collect();
            chain.push(short(&real));
            let mut error = Error::playbook(&named.span, format!("the include closes a cycle: {}", chain.join(" → ")));
            for (path, span) in &self.including[first + 1..] {
                if let Some(span) = span {
                    error = error.also(span, format!("{} is included here", short(path)));
                }
            }
            return self.errors.push(error);
        }
        // Each file that includes the next one twice doubles them; the errors would, too.
        self.included += 1;
        if self.included > MAX_INCLUDED {
            if self.included == MAX_INCLUDED + 1 {
                let message = format!("more than {MAX_INCLUDED} files are included, counted each time");
                self.hinted(&named.span, message, "does a file include others that include the same one again?");
            }
            return;
        }
        let mut vars = outer.vars.clone();
        vars.extend(self.vars(node));
        let mut tags = self.tags(node);
        tags.extend(outer.tags.iter().cloned());
        let inner = Outer {
            when: self.when(node, outer),
            vars,
            tags,
            become_: self.become_(node).within(&outer.become_),
            dir: Arc::from(folder(&path)),
            handler: outer.handler,
        };
        self.including.push((real, Some(named.span.clone())));
        match self.file(&path, Some(&named.span)) {
            Some((_, Some(list))) => self.entries(&list, "an included file's resources", &inner, into),
            Some((source, None)) => {
                self.hinted(&Span::start(&source), "the included file is empty", "it holds a list of resources");
            }
            None => {}
        }
        self.including.pop();
    }

    fn when(&mut self, node: &Node, outer: &Outer) -> Vec<Node> {
        let mut when = outer.when.clone();
        if let Some(own) = node.get("when") {
            template::check_condition(own, &mut self.errors);
            when.push(own.clone());
        }
        when
    }

    fn repeat(&mut self, node: &Node, when: &[Node]) -> Option<Loop> {
        let control = node.get("loop_control").filter(|n| !n.is_null());
        if let Some(control) = control {
            self.keys("`loop_control`", control, keys::LOOP, Level::Loop);
            if node.get("loop").is_none() {
                self.error(&control.span, "`loop_control` without a `loop`");
            }
        }
        let over = node.get("loop")?;
        template::check(over, &mut self.errors);
        if over.as_seq().is_none() && !template::templated(over) {
            let message = format!("`loop` takes a list, or an expression that yields one, not {}", over.describe());
            self.hinted(
                &over.span,
                message,
                "write `loop: [a, b]` or `loop: \"{{ list }}\"`; of a mapping, `{{ m | dict2items }}`",
            );
        }
        let mut name = |key: &str| {
            let node = control?.get(key)?;
            let name = node.text().unwrap_or_default();
            match vars::variable_name(name, &node.span) {
                Ok(()) => Some(Arc::from(name)),
                Err(e) => {
                    self.errors.push(e);
                    None
                }
            }
        };
        let (var, index_var): (Option<Arc<str>>, Option<Arc<str>>) = (name("loop_var"), name("index_var"));
        let var = var.unwrap_or_else(|| Arc::from("item"));
        let used: Vec<String> = when.iter().flat_map(template::names_of).collect();
        let in_conditions = used.iter().any(|n| **n == *var || index_var.as_ref().is_some_and(|i| **n == **i));
        Some(Loop { over: over.clone(), var, index_var, in_conditions })
    }

    /// A text that isn't rendered.
    fn string(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = node.get(key).filter(|n| !n.is_null())?;
        match spec::text(key, value) {
            Ok(text) => Some(text),
            Err(e) => {
                self.errors.push(e);
                None
            }
        }
    }

    /// Checks a value that may be a template: its syntax, or by what reads it.
    fn check_scalar(&mut self, node: &Node, key: &str, read: impl Fn(&Node) -> Result<(), Error>) {
        let Some(value) = node.get(key).filter(|n| !n.is_null()) else { return };
        template::check(value, &mut self.errors);
        if !template::templated(value) {
            self.errors.extend(read(value).err());
        }
    }

    fn become_(&mut self, node: &Node) -> Become {
        self.check_scalar(node, "become", |n| spec::truth("become", n).map(|_| ()));
        self.check_scalar(node, "become_user", |n| spec::text("become_user", n).map(|_| ()));
        let get = |key: &str| node.get(key).filter(|n| !n.is_null()).cloned();
        Become { enabled: get("become"), user: get("become_user") }
    }

    fn vars(&mut self, node: &Node) -> Option<Arc<Layer>> {
        let vars = node.get("vars").filter(|n| !n.is_null())?;
        self.vault.conceal(vars);
        template::check(vars, &mut self.errors);
        match vars::layer(vars, "`vars`") {
            Ok(layer) => Some(Arc::new(layer)),
            Err(e) => {
                self.errors.push(e);
                None
            }
        }
    }

    fn list(&mut self, node: &Node, key: &str) -> Vec<Node> {
        let Some(value) = node.get(key).filter(|n| !n.is_null()) else { return Vec::new() };
        template::check(value, &mut self.errors);
        value.as_seq().map_or_else(|| vec![value.clone()], <[Node]>::to_vec)
    }

    fn tags(&mut self, node: &Node) -> BTreeSet<Arc<str>> {
        let mut tags = BTreeSet::new();
        let Some(value) = node.get("tags").filter(|n| !n.is_null()) else { return tags };
        for tag in value.as_seq().unwrap_or(std::slice::from_ref(value)) {
            match tag.text() {
                Some(text) if !template::templated(tag) => {
                    tags.extend(text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(Arc::from));
                }
                _ => _ = self.error(&tag.span, "a tag is a word, neither a template nor a list"),
            }
        }
        tags
    }
}

fn short(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Seconds that a step may take.
///
/// # Errors
/// It is no number of seconds from 1 to a day.
pub(super) fn timeout(node: &Node) -> Result<u32, Error> {
    spec::int("timeout", node, 1..=86_400).map(|s| u32::try_from(s).unwrap_or(u32::MAX))
}

/// The variables of a file.
///
/// # Errors
/// It can't be read, or isn't a mapping of variables.
pub(super) fn vars_file(path: &Path, named: &Node, vault: &Vault) -> Result<Arc<Layer>, Error> {
    let bytes = source::read(path, source::MAX_TEXT).map_err(|e| {
        let what = match e.kind() {
            std::io::ErrorKind::NotFound => format!("{} doesn't exist", path.display()),
            _ => format!("{} can't be read: {e}", path.display()),
        };
        Error::playbook(&named.span, what).hint("a path of `vars_files` is relative to the playbook")
    })?;
    let source = vault.text(&path.display().to_string(), bytes, Kind::Playbook);
    let source = source.map_err(|e| e.named(&named.span))?;
    let node = inventory::document(&source, Kind::Playbook)?.filter(|n| !n.is_null());
    let Some(node) = node else { return Ok(Arc::default()) };
    vault.conceal(&node);
    let mut errors = Vec::new();
    template::check(&node, &mut errors);
    match errors.into_iter().next() {
        Some(e) => Err(e),
        None => vars::layer(&node, "a file of variables").map(Arc::new),
    }
}

/// `serial`: a number, a percentage, or a list of these.
///
/// # Errors
/// It is something else.
pub(super) fn serial(node: &Node) -> Result<Vec<Batch>, Error> {
    match node.as_seq() {
        Some([]) => Err(Error::playbook(&node.span, "`serial` is an empty list")),
        Some(items) => items.iter().map(|n| batch("serial", n)).collect(),
        None => Ok(vec![batch("serial", node)?]),
    }
}

/// A number of hosts, or a percentage.
///
/// # Errors
/// It is something else.
pub(super) fn batch(key: &str, node: &Node) -> Result<Batch, Error> {
    let bad = || {
        let got = node.text().map_or_else(|| node.describe().to_owned(), |t| format!("`{t}`"));
        let list = if key == "serial" { ", or a list of these, whose last is repeated" } else { "" };
        Error::playbook(&node.span, format!("`{key}` takes a number of hosts or a percentage, not {got}"))
            .hint(format!("write `{key}: 10` or `{key}: 10%`{list}"))
    };
    let text = node.text().ok_or_else(bad)?.trim();
    match text.strip_suffix('%') {
        Some(number) => {
            let percent = number.trim().parse::<f64>().ok().filter(|p| *p > 0.0 && *p <= 100.0);
            percent.map(Batch::Percent).ok_or_else(bad)
        }
        None => text.parse::<usize>().ok().filter(|n| *n > 0).map(Batch::Hosts).ok_or_else(bad),
    }
}

/// `max_fail_percentage`.
///
/// # Errors
/// It isn't from 0 to 100.
pub(super) fn percentage(node: &Node) -> Result<f64, Error> {
    let number = node.text().and_then(|t| t.trim().trim_end_matches('%').parse::<f64>().ok());
    number.filter(|p| (0.0..=100.0).contains(p)).ok_or_else(|| {
        let got = node.text().map_or_else(|| node.describe().to_owned(), |t| format!("`{t}`"));
        Error::playbook(&node.span, format!("`max_fail_percentage` must be from 0 to 100, not {got}"))
    })
}
