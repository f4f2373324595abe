//! Jinja in values, conditions and template files: the only user of minijinja.
//!
//! A text is compiled once, whatever the number of hosts, and evaluated in a host's [`Scope`]. A value that is one
//! plain lookup (`{{ a.b[0] }}`) yields the very node that the variable holds; one that is another single expression
//! keeps the type that it yields; anything else is a string. Three things are as Ansible has them and Jinja hasn't:
//! `trim_blocks` is on, final newlines stay, and null prints nothing.

mod backslashes;
mod error;
mod facts;
mod filters;
mod steps;
mod value;
mod watch;

pub(crate) use error::Fail;
#[cfg(test)]
pub(crate) use facts::SHAPE as FACTS;
pub use watch::endless;

use super::vars::Scope;
use crate::error::{Error, Kind};
use crate::inventory::vault::{self, Vault, is_sealed};
use crate::resource::Predicate;
use crate::source::{self, Source};
use crate::yaml::{self, Node, Scalar, Value as Tree};
use error::{Code, Origin};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Expression, Template, UndefinedBehavior, Value, context};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, RwLock};
use value::Frame;

/// How deep templates may call for each other, by way of variables.
const MAX_DEPTH: usize = 40;
/// How many instructions one template may run; the engine counts 64 bytes of text that it makes as one. A loop of loops
/// ends within seconds, and a text that doubles itself at some hundred MiB.
const FUEL: u64 = 3_000_000;
/// The largest file that is read for a template or a copy, and the longest text of a template.
pub(crate) const MAX_FILE: u64 = 1 << 20;
/// The largest it may be where it is encrypted.
const SEALED_FILE: u64 = 5 * MAX_FILE;
/// The stack that templates have, in bytes. The engine goes down a step for each operator of an expression when it compiles it, some
/// 1 KiB each, and for each level when it drops or compares a value, which a loop can nest as often as it has fuel.
/// What isn't used costs nothing but addresses.
pub const STACK: usize = 64 << 20;
/// What the names of template files begin with among the templates of the engine; all others are named by their text.
const FILE: char = '\u{1}';

/// The engine with Ansible's defaults (`trim_blocks` on, `lstrip_blocks` off) and its three variations for files that
/// ask for another one in their first line. It holds what it has compiled for as long as the process lives.
static ENGINES: [LazyLock<Environment<'static>>; 4] = [
    LazyLock::new(|| environment(true, false)),
    LazyLock::new(|| environment(true, true)),
    LazyLock::new(|| environment(false, false)),
    LazyLock::new(|| environment(false, true)),
];

/// Texts of values and conditions, compiled.
static COMPILED: LazyLock<Cache<Compiled>> = LazyLock::new(RwLock::default);
static CONDITIONS: LazyLock<Cache<Condition>> = LazyLock::new(RwLock::default);

/// Which of the engines the first line of a template file asks for.
static HEADERS: LazyLock<Cache<Result<usize, Error>>> = LazyLock::new(RwLock::default);

type Condition = Result<Expression<'static, 'static>, minijinja::Error>;

/// Does work that may compile or render templates, with stack enough for it. Who does it many times calls this outside of
/// all of them, as a new stack costs some 20 µs.
pub(crate) fn deep<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK / 2, STACK, work)
}

fn engine() -> &'static Environment<'static> {
    &ENGINES[0]
}

/// The engine that says which part of an expression is undefined. It does so at the price of evaluating what stands
/// around an error, whose errors evaluate what stands around them: it only has to explain what another one found.
static EXPLAINING: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut env = environment(true, false);
    env.set_debug(true);
    env
});

fn environment(trim: bool, lstrip: bool) -> Environment<'static> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(trim).lstrip_blocks(lstrip).keep_trailing_newline(true);
    if let Ok(syntax) = syntax.build() {
        env.set_syntax(syntax);
    }
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_debug(false);
    env.set_fuel(Some(FUEL));
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(filters::method);
    env.set_formatter(value::format);
    env.set_path_join_callback(join);
    env.set_loader(load);
    filters::add(&mut env);
    env
}

/// What a text is compiled to.
struct Compiled {
    /// Newlines at its end, which stay where the value is a string.
    newlines: usize,
    form: Form,
}

enum Form {
    /// A plain lookup.
    Lookup(Lookup),
    /// One expression, its text, and the byte that it begins at.
    Expression(Expression<'static, 'static>, String, usize),
    /// Text with expressions in it.
    Text(Template<'static, 'static>),
    /// It can't be compiled.
    Broken(minijinja::Error),
}

/// A variable, and a way into it.
#[derive(Debug, PartialEq)]
pub(crate) struct Lookup {
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

/// One step of a [`Lookup`].
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// `.name`, `['name']`
    Key(String),
    /// `[0]`
    Index(usize),
}

impl std::fmt::Display for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root)?;
        self.steps.iter().try_for_each(|step| match step {
            Step::Key(key) => write!(f, ".{key}"),
            Step::Index(at) => write!(f, ".{at}"),
        })
    }
}

impl Lookup {
    /// Reads `a.b[0]['c']`; nothing for what is more than that.
    pub(crate) fn parse(text: &str) -> Option<Lookup> {
        let name_len = |s: &str| {
            let first = s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let len = s.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(s.len());
            if first { len } else { 0 }
        };
        let len = name_len(text);
        let (root, mut rest) = text.split_at_checked(len).filter(|_| len > 0)?;
        let special = ["true", "false", "none", "True", "False", "None", "not", "omit", "loop", "range", "dict"];
        if special.contains(&root) {
            return None;
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(name) = rest.strip_prefix('.') {
                let len = name_len(name);
                if len == 0 {
                    return None;
                }
                steps.push(Step::Key(name[..len].to_owned()));
                rest = &name[len..];
            } else {
                let (key, after) = rest.strip_prefix('[')?.split_once(']')?;
                let key = key.trim();
                let quoted = ['\'', '"'].iter().find_map(|q| key.strip_prefix(*q)?.strip_suffix(*q));
                steps.push(match quoted {
                    Some(name) if !name.contains(['\\', '\'', '"']) => Step::Key(name.to_owned()),
                    _ => Step::Index(key.parse().ok()?),
                });
                rest = after;
            }
        }
        Some(Lookup { root: root.to_owned(), steps })
    }
}

/// Whether a text has anything of a template in it.
fn marked(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

/// Whether a scalar is one: Ansible's `!unsafe` keeps a text from being taken for a template.
fn template_text(node: &Node) -> Option<&Arc<str>> {
    match &node.value {
        Tree::Scalar { text, .. } if marked(text) && node.tag.as_deref() != Some("!unsafe") => Some(text),
        _ => None,
    }
}

/// Whether there is a template anywhere in a tree.
pub(crate) fn templated(node: &Node) -> bool {
    match &node.value {
        Tree::Seq(items) => items.iter().any(templated),
        Tree::Map(entries) => entries.iter().any(|(_, v)| templated(v)),
        _ => template_text(node).is_some() || node.tag.is_some(),
    }
}

fn compiled(text: &Arc<str>) -> Arc<Compiled> {
    cached(&COMPILED, text, || compile(text))
}

/// What was made once of each text.
type Cache<T> = RwLock<HashMap<Arc<str>, Arc<T>>>;

fn cached<T>(cache: &Cache<T>, text: &Arc<str>, make: impl FnOnce() -> T) -> Arc<T> {
    // A panic elsewhere leaves a map that is whole: entries are only ever added.
    if let Some(found) = cache.read().unwrap_or_else(|e| e.into_inner()).get(text) {
        return found.clone();
    }
    let made = Arc::new(make());
    cache.write().unwrap_or_else(|e| e.into_inner()).entry(text.clone()).or_insert(made).clone()
}

fn compile(text: &str) -> Compiled {
    let body = text.trim_end_matches('\n');
    let newlines = text.len() - body.len();
    if let Err(e) = steps::bounded(text, false) {
        return Compiled { newlines, form: Form::Broken(e) };
    }
    if let Some(inner) = body.strip_prefix("{{").and_then(|b| b.strip_suffix("}}")) {
        let expression = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        let shift = 2 + inner.len() - expression.len();
        let expression = expression.strip_suffix(['-', '+']).unwrap_or(expression);
        if let Some(lookup) = Lookup::parse(expression.trim()) {
            return Compiled { newlines, form: Form::Lookup(lookup) };
        }
        let expression = backslashes::doubled(expression, true);
        // Several expressions (`{{ a }}-{{ b }}`) don't compile as one, and are a text.
        if let Ok(compiled) = engine().compile_expression_owned(expression.clone()) {
            return Compiled { newlines, form: Form::Expression(compiled, expression, shift) };
        }
    }
    let form = match engine().get_template(&backslashes::doubled(text, false)) {
        Ok(template) => Form::Text(template),
        Err(e) => Form::Broken(e),
    };
    Compiled { newlines, form }
}

/// What is wrong in the syntax of the templates of a tree; and keys, which can't be templates.
pub(crate) fn check(node: &Node, errors: &mut Vec<Error>) {
    match &node.value {
        Tree::Seq(items) => items.iter().for_each(|n| check(n, errors)),
        Tree::Map(entries) => entries.iter().for_each(|(key, value)| {
            if let Some(text) = template_text(key) {
                errors.push(Error::playbook(&key.span, format!("the key `{text}` can't be a template")).hint(
                    "only values are rendered; build the mapping by an expression, such as `{{ {name: value} }}`",
                ));
            }
            check(value, errors);
        }),
        _ => {
            let Some(text) = template_text(node) else { return };
            deep(|| match &compiled(text).form {
                Form::Broken(e) => errors.push(error::syntax(e, &Origin::Node(node, Code::Text))),
                Form::Lookup(lookup) => errors.extend(facts::misspelt(node, text, [lookup.to_string()])),
                Form::Expression(expression, ..) if facts::named(text) => {
                    errors.extend(facts::misspelt(node, text, expression.undeclared_variables(true)));
                }
                Form::Text(template) if facts::named(text) => {
                    errors.extend(facts::misspelt(node, text, template.undeclared_variables(true)));
                }
                _ => {}
            });
        }
    }
}

/// A value rendered for a host; nothing where it is left out by `omit`.
///
/// # Errors
/// What is wrong in a template of it, what is encrypted and can't be opened, or that facts are needed that aren't known
/// yet.
pub(crate) fn render(node: &Node, scope: &Arc<Scope>) -> Result<Option<Node>, Fail> {
    rendered(node, scope, Seals::Opened)
}

/// A variable rendered for a host: what is encrypted in it stays so until just that is used.
///
/// # Errors
/// As for [`render`].
pub(crate) fn variable(node: &Node, scope: &Arc<Scope>) -> Result<Option<Node>, Fail> {
    rendered(node, scope, Seals::Kept)
}

fn rendered(node: &Node, scope: &Arc<Scope>, seals: Seals) -> Result<Option<Node>, Fail> {
    Ok(match deep(|| walk(node, scope, seals))? {
        Walk::Same => Some(node.clone()),
        Walk::New(new) => {
            let told = |e: minijinja::Error| Error::playbook(&node.span, e.detail().unwrap_or_default());
            value::whole(&new).map_err(|e| Fail::error(told(e)))?;
            Some(new)
        }
        Walk::Omitted => None,
    })
}

/// What becomes of encrypted values.
#[derive(Clone, Copy, PartialEq)]
enum Seals {
    Kept,
    Opened,
}

enum Walk {
    Same,
    New(Node),
    Omitted,
}

fn walk(node: &Node, scope: &Arc<Scope>, seals: Seals) -> Result<Walk, Fail> {
    match &node.value {
        Tree::Seq(items) => {
            let new = children(items, |n| walk(n, scope, seals), |_, n| n)?;
            Ok(new.map_or(Walk::Same, |items| Walk::New(Node::seq(&node.span, items))))
        }
        Tree::Map(entries) => {
            let new = children(entries, |(_, v)| walk(v, scope, seals), |(k, _), v| (k.clone(), v))?;
            Ok(new.map_or(Walk::Same, |entries| Walk::New(Node::map(&node.span, entries))))
        }
        _ => match template_text(node) {
            Some(text) => Ok(evaluate(node, text, scope, seals)?.map_or(Walk::Omitted, Walk::New)),
            None if seals == Seals::Opened && is_sealed(node) => {
                scope.vault().open(node).map(Walk::New).map_err(Fail::error)
            }
            None => Ok(Walk::Same),
        },
    }
}

/// The rendered children; nothing if none of them differs, so that what has no template is shared and not copied.
fn children<T: Clone>(
    old: &[T],
    walk: impl Fn(&T) -> Result<Walk, Fail>,
    with: impl Fn(&T, Node) -> T,
) -> Result<Option<Vec<T>>, Fail> {
    let mut new: Option<Vec<T>> = None;
    for (at, item) in old.iter().enumerate() {
        match walk(item)? {
            Walk::Same => {
                if let Some(new) = &mut new {
                    new.push(item.clone());
                }
            }
            Walk::New(node) => new.get_or_insert_with(|| old[..at].to_vec()).push(with(item, node)),
            Walk::Omitted => {
                new.get_or_insert_with(|| old[..at].to_vec());
            }
        }
    }
    Ok(new)
}

fn evaluate(node: &Node, text: &Arc<str>, scope: &Arc<Scope>, seals: Seals) -> Result<Option<Node>, Fail> {
    let compiled = compiled(text);
    // The newlines behind it are joined to what it is.
    let keep = seals == Seals::Kept && compiled.newlines == 0;
    let found = match &compiled.form {
        Form::Broken(e) => return Err(Fail::error(error::syntax(e, &Origin::Node(node, Code::Text)))),
        Form::Lookup(lookup) => {
            let at = |fail| error::at(fail, lookup, &Origin::Node(node, Code::Text), scope);
            let found = scope.walk(lookup).map_err(at)?;
            if keep { found } else { scope.vault().open_all(&found).map_err(|e| at(Fail::error(e)))? }
        }
        Form::Expression(expression, written, shift) => {
            let _frame = enter(node, scope)?;
            let origin = Origin::Node(node, Code::From(*shift));
            let value = eval(expression, written, &origin, scope)?;
            let found = value::to_node(&value).map_err(|e| error::convert(&e, &origin, scope, None))?;
            let Some(found) = found else { return Ok(None) };
            if keep { found } else { scope.vault().open_all(&found).map_err(Fail::error)? }
        }
        Form::Text(template) => {
            let _frame = enter(node, scope)?;
            let found = run(template, template.name(), &Origin::Node(node, Code::Text), scope)?;
            return Ok(Some(Node::string(&node.span, keep_newlines(found, text))));
        }
    };
    // A value stands where it is used; one that is still encrypted stands where it is written.
    let result = match is_sealed(&found) {
        true => found,
        false => Node { span: node.span.clone(), tag: None, value: found.value },
    };
    match result.as_str() {
        Some(string) if compiled.newlines > 0 => {
            Ok(Some(Node::string(&node.span, format!("{string}{}", "\n".repeat(compiled.newlines)))))
        }
        _ => Ok(Some(result)),
    }
}

/// Evaluates an expression of this text. What it yields is defined.
fn eval(
    expression: &Expression<'static, 'static>,
    text: &str,
    origin: &Origin<'_>,
    scope: &Arc<Scope>,
) -> Result<Value, Fail> {
    let again = || EXPLAINING.compile_expression(text).ok()?.eval(value::scope(scope)).err();
    match expression.eval(value::scope(scope)) {
        Ok(value) if value.is_undefined() => Err(error::undefined_result(origin, scope)),
        result => result.map_err(|e| error::convert(&e, origin, scope, Some(&again))),
    }
}

/// Renders a template of this name.
fn run(template: &Template<'_, '_>, name: &str, origin: &Origin<'_>, scope: &Arc<Scope>) -> Result<String, Fail> {
    let again = || EXPLAINING.get_template(name).ok()?.render(value::scope(scope)).err();
    let rendered = template.render(value::scope(scope)).and_then(|text| value::bounded(text.len()).map(|()| text));
    rendered.map_err(|e| error::convert(&e, origin, scope, Some(&again)))
}

fn enter(node: &Node, scope: &Arc<Scope>) -> Result<Frame, Fail> {
    Frame::enter(&node.span, scope.vault(), scope.in_run()).filter(|f| f.depth() <= MAX_DEPTH).ok_or_else(|| {
        let message = format!("variables call for each other in more than {MAX_DEPTH} steps");
        Fail::error(Error::playbook(&node.span, message))
    })
}

/// A block at the very end takes the final newline with it (`trim_blocks`); Ansible puts back what is missing.
fn keep_newlines(mut rendered: String, template: &str) -> String {
    let count = |s: &str| s.len() - s.trim_end_matches('\n').len();
    for _ in count(&rendered)..count(template) {
        rendered.push('\n');
    }
    rendered
}

fn condition(text: &Arc<str>) -> Arc<Condition> {
    cached(&CONDITIONS, text, || {
        steps::bounded(text, true)?;
        engine().compile_expression_owned(backslashes::doubled(text, true))
    })
}

/// What is wrong in the syntax of a condition: one expression, a list of them, or a truth value.
pub(crate) fn check_condition(node: &Node, errors: &mut Vec<Error>) {
    if let Some(items) = node.as_seq() {
        return items.iter().for_each(|n| check_condition(n, errors));
    }
    if node.as_bool().is_some() {
        return;
    }
    let Tree::Scalar { text, .. } = &node.value else {
        return errors
            .push(Error::playbook(&node.span, format!("a condition is an expression, not {}", node.describe())));
    };
    if text.trim().is_empty() || node.is_null() {
        errors.push(Error::playbook(&node.span, "the condition is empty"));
    } else if marked(text) {
        errors.push(
            Error::playbook(&node.span, "a condition is an expression already, without `{{ }}`")
                .hint("write `a == b`, not `{{ a }} == b`; text is joined by `~`"),
        );
    } else {
        deep(|| match &*condition(text) {
            Err(e) => errors.push(error::syntax(e, &Origin::Node(node, Code::From(0)))),
            Ok(expression) if facts::named(text) => {
                errors.extend(facts::misspelt(node, text, expression.undeclared_variables(true)));
            }
            Ok(_) => {}
        });
    }
}

/// Whether a condition holds; all of a list must.
///
/// # Errors
/// What is wrong in it, or that facts are needed that aren't known yet.
pub(crate) fn holds(node: &Node, scope: &Arc<Scope>) -> Result<bool, Fail> {
    if let Some(items) = node.as_seq() {
        for item in items {
            if !holds(item, scope)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if let Some(truth) = node.as_bool() {
        return Ok(truth);
    }
    let mut errors = Vec::new();
    check_condition(node, &mut errors);
    if let Some(e) = errors.pop() {
        return Err(Fail::error(e));
    }
    let Tree::Scalar { text, .. } = &node.value else { return Ok(false) };
    let origin = Origin::Node(node, Code::From(0));
    match &*condition(text) {
        Err(e) => Err(Fail::error(error::syntax(e, &origin))),
        Ok(expression) => {
            let _frame = enter(node, scope)?;
            deep(|| {
                truth(node, &eval(expression, &backslashes::doubled(text, true), &origin, scope)?).map_err(Fail::error)
            })
        }
    }
}

/// The truth of what a condition yields. A string is none, unless it spells one, as variables of INI files do: by
/// Jinja's rule `"false"` would be true.
fn truth(node: &Node, value: &Value) -> Result<bool, Error> {
    let Some(text) = value.as_str() else { return Ok(value.is_true()) };
    match yaml::resolve(text) {
        Scalar::Bool(b) => Ok(b),
        _ => Err(Error::playbook(
            &node.span,
            format!("the condition yields the string `{text}`, neither true nor false"),
        )
        .hint("compare it (`x == 'y'`), or ask for its length (`x | length > 0`)")),
    }
}

/// Names that a condition uses and doesn't define itself.
pub(crate) fn names_of(node: &Node) -> Vec<String> {
    match &node.value {
        Tree::Seq(items) => items.iter().flat_map(names_of).collect(),
        Tree::Scalar { text, .. } => match &*condition(text) {
            Ok(expression) => deep(|| expression.undeclared_variables(false)).into_iter().collect(),
            Err(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// A condition over `rc` and `output`, compiled once.
///
/// # Errors
/// What is wrong in its syntax.
pub(crate) fn predicate(node: &Node) -> Result<Predicate, Error> {
    if let Some(truth) = node.as_bool() {
        return Ok(Arc::new(move |_, _| Ok(truth)));
    }
    let mut errors = Vec::new();
    check_condition(node, &mut errors);
    if let Some(e) = errors.pop() {
        return Err(e);
    }
    let Some(text) = node.text() else {
        return Err(Error::playbook(&node.span, format!("a condition is an expression, not {}", node.describe())));
    };
    let expression = condition(&Arc::from(text));
    let known = ["rc", "output", "range", "dict", "namespace"];
    if let Some(name) = names_of(node).iter().find(|n| !known.contains(&n.as_str())) {
        return Err(Error::playbook(&node.span, format!("`{name}` isn't known here"))
            .hint("the expression sees `rc` and `output`; another value is put into it by `{{ }}`"));
    }
    let node = node.clone();
    Ok(Arc::new(move |rc, output| match &*expression {
        Ok(expression) => deep(|| {
            let _frame = Frame::enter(&node.span, &Arc::default(), true);
            expression.eval(context! { rc, output })
        })
        .map_err(|e| error::plain(&e, &Origin::Node(&node, Code::From(0))))
        .and_then(|value| truth(&node, &value)),
        Err(e) => Err(error::syntax(e, &Origin::Node(&node, Code::From(0)))),
    }))
}

/// A template file, rendered. Its path is one that exists.
///
/// # Errors
/// What is wrong in it, at its place in it, or that facts are needed that aren't known yet.
pub(crate) fn file(path: &Path, from: &Node, scope: &Arc<Scope>) -> Result<String, Fail> {
    let name: Arc<str> = Arc::from(format!("{FILE}{}", path.display()));
    let _frame = enter(from, scope)?;
    let engine = cached(&HEADERS, &name, || {
        let source = read(path)?;
        header(&source).map(|(engine, _)| engine)
    });
    let engine: &'static Environment<'static> = match &*engine {
        Ok(engine) => &ENGINES[*engine],
        Err(e) => return Err(Fail::error(e.clone().also(&from.span, "named here"))),
    };
    let origin = Origin::File(path);
    deep(|| {
        let template = engine.get_template(&name).map_err(|e| error::convert(&e, &origin, scope, None))?;
        let rendered = run(&template, &name, &origin, scope)?;
        Ok(keep_newlines(rendered, template.source()))
    })
}

/// Reads a file that is a template.
fn read(path: &Path) -> Result<Arc<Source>, Error> {
    let vault = value::vault();
    let (bytes, encrypted) = content(path, "template", &vault)?;
    let source = vault::decode(&path.display().to_string(), bytes, encrypted, Kind::Playbook)
        .map_err(|e| e.hint("a file that isn't text is copied by `copy`"))?;
    if encrypted {
        vault.conceal_template(&source.text);
    }
    Ok(source)
}

/// The bytes of a file that a resource names, decrypted if it was encrypted, and whether it was.
///
/// # Errors
/// It can't be read, has more than [`MAX_FILE`] bytes, or can't be decrypted.
pub(crate) fn content(path: &Path, what: &str, vault: &Vault) -> Result<(Vec<u8>, bool), Error> {
    let failed = |what: String| Error::new(Kind::Playbook, format!("{} {what}", path.display()));
    // Encrypted, it is hexadecimal twice over, with newlines.
    let size = std::fs::metadata(path).map_err(|e| failed(format!("can't be read: {e}")))?.len();
    let bytes = match size {
        0..=SEALED_FILE => source::read(path, SEALED_FILE).map_err(|e| failed(format!("can't be read: {e}")))?,
        _ => Vec::new(),
    };
    let (bytes, encrypted) =
        vault.bytes(&path.display().to_string(), bytes).map_err(|e| Error::from(e).kind(Kind::Playbook))?;
    let size = if encrypted { bytes.len() as u64 } else { size.max(bytes.len() as u64) };
    if size > MAX_FILE {
        return Err(failed(format!("has {size} bytes; a {what} may have {MAX_FILE}")));
    }
    Ok((bytes, encrypted))
}

/// The first line `#jinja2: trim_blocks: False, lstrip_blocks: True`: which engine, and how many bytes the line has.
fn header(source: &Arc<Source>) -> Result<(usize, usize), Error> {
    let Some(rest) = source.text.strip_prefix("#jinja2:") else { return Ok((0, 0)) };
    let line = rest.lines().next().unwrap_or_default();
    let (mut trim, mut lstrip) = (true, false);
    for pair in line.split(',').filter(|p| !p.trim().is_empty()) {
        match pair.split_once(':').map(|(k, v)| (k.trim(), yaml::resolve(v.trim()))) {
            Some(("trim_blocks", Scalar::Bool(b))) => trim = b,
            Some(("lstrip_blocks", Scalar::Bool(b))) => lstrip = b,
            _ => {
                let span = crate::source::Span::at(source, 1, 1, "#jinja2:".len() + line.chars().count());
                return Err(Error::playbook(&span, format!("`{}` isn't an option of a template", pair.trim()))
                    .hint("known: trim_blocks, lstrip_blocks, with True or False"));
            }
        }
    }
    let used = "#jinja2:".len() + line.len() + usize::from(rest.len() > line.len());
    Ok((usize::from(!trim) * 2 + usize::from(lstrip), used))
}

/// The engine's loader: a template file by its path, any other template by its own text.
fn load(name: &str) -> Result<Option<minijinja::TemplateSource>, minijinja::Error> {
    match name.strip_prefix(FILE) {
        None if marked(name) => Ok(Some(name.into())),
        None => Ok(None),
        Some(path) if !Path::new(path).exists() => Ok(None),
        Some(path) => {
            let read = read(Path::new(path)).and_then(|source| {
                let (_, used) = header(&source)?;
                Ok(source.text[used..].to_owned())
            });
            let text = read.map_err(|e| error::carry(Fail::error(e)))?;
            steps::bounded(&text, false)?;
            Ok(Some(text.into()))
        }
    }
}

/// Where `{% include 'name' %}` finds its file: beside the one that names it, or in the `templates/` above it.
fn join<'s>(name: &'s str, parent: &'s str) -> Cow<'s, str> {
    let Some(parent) = parent.strip_prefix(FILE) else { return Cow::Borrowed(name) };
    let beside = Path::new(parent).parent().unwrap_or(Path::new("")).join(name);
    let above = Path::new(parent).ancestors().skip(1).find(|a| a.ends_with("templates")).map(|a| a.join(name));
    let found: PathBuf = above.filter(|a| !beside.exists() && a.exists()).unwrap_or(beside);
    match value::needs(parent, &found) {
        true => Cow::Owned(format!("{FILE}{}", found.display())),
        // There is no such template, which ends it; the error says why.
        false => Cow::Borrowed(""),
    }
}
