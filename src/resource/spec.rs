//! Reading a resource's keys: strict, with a place for every error, and the text where a key wants text.

use crate::error::{Error, suggest};
use crate::yaml::{Node, Scalar};
use std::sync::Arc;

/// One key of a type, for its check and its documentation.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes, in words: `integer`, `string`, `started | stopped`.
    pub takes: &'static str,
    /// What it is if it isn't given.
    pub default: Need,
    /// What it does: one or two sentences.
    pub doc: &'static str,
}

/// Whether a [`Key`] has to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It has to.
    Required,
    /// It may be left out, with nothing in its place.
    Optional,
    /// Left out, it is this.
    Default(&'static str),
    /// It is an error with this remedy: a key that hands know from elsewhere and that doesn't exist here.
    Refused,
}

impl Key {
    /// A key that has to be given.
    pub const fn required(name: &'static str, takes: &'static str, doc: &'static str) -> Key {
        Key { name, takes, default: Need::Required, doc }
    }
    /// A key that may be left out.
    pub const fn optional(name: &'static str, takes: &'static str, doc: &'static str) -> Key {
        Key { name, takes, default: Need::Optional, doc }
    }
    /// A key with a default.
    pub const fn default(name: &'static str, takes: &'static str, default: &'static str, doc: &'static str) -> Key {
        Key { name, takes, default: Need::Default(default), doc }
    }
    /// A key that is refused with this remedy.
    pub const fn refused(name: &'static str, remedy: &'static str) -> Key {
        Key { name, takes: "", default: Need::Refused, doc: remedy }
    }
}

/// Checks a resource's keys offline: that it is a mapping, unknown and refused keys, required ones that are missing.
pub fn check(what: &str, node: &Node, keys: &[Key]) -> Vec<Error> {
    let Some(entries) = node.as_map() else {
        let error = Error::playbook(&node.span, format!("{what} takes a mapping of keys, not {}", node.describe()));
        return vec![error.hint(as_mapping(what, node, keys))];
    };
    let known: Vec<&str> = keys.iter().filter(|k| k.default != Need::Refused).map(|k| k.name).collect();
    let mut errors = Vec::new();
    for (key, _) in entries {
        let name = key.text().unwrap_or_default();
        match keys.iter().find(|k| k.name == name) {
            Some(Key { default: Need::Refused, doc, .. }) => {
                errors.push(Error::playbook(&key.span, format!("{what} has no key `{name}`")).hint(*doc));
            }
            Some(_) => {}
            None => {
                let hint = if known.is_empty() { "it takes no keys".to_owned() } else { suggest(name, &known) };
                errors.push(Error::playbook(&key.span, format!("unknown key `{name}` in {what}")).hint(hint));
            }
        }
    }
    for key in keys.iter().filter(|k| k.default == Need::Required && node.get(k.name).is_none()) {
        errors.push(
            Error::playbook(&node.span, format!("{what} needs the key `{}`", key.name))
                .hint(format!("{}: {}", key.name, key.doc)),
        );
    }
    errors
}

/// How to write what isn't a mapping as one: Ansible's `key=value`, or the value of the first key, which says what a
/// resource is about. `what` is the type in backticks.
fn as_mapping(what: &str, node: &Node, keys: &[Key]) -> String {
    let kind = what.trim_matches('`');
    let known = |name: &&str| keys.iter().any(|k| k.name == *name);
    let plain = |text: &&str| !text.is_empty() && !text.contains(|c: char| ",:#{}[]\"'\n".contains(c));
    let text = node.text().filter(|_| !node.is_null()).filter(plain).unwrap_or("…");
    let pair =
        |word: &str| word.split_once('=').filter(|(name, _)| known(name)).map(|(n, v)| (n.to_owned(), v.to_owned()));
    let first = keys.first().map_or("…", |key| key.name);
    let mut inside: Vec<(String, String)> = text
        .split_whitespace()
        .map(pair)
        .collect::<Option<_>>()
        .unwrap_or_else(|| vec![(first.to_owned(), text.to_owned())]);
    for key in keys.iter().filter(|k| k.default == Need::Required) {
        if inside.iter().all(|(name, _)| name != key.name) {
            inside.push((key.name.to_owned(), "…".to_owned()));
        }
    }
    let inside = inside.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ");
    let guard = if known(&"creates") { " with a guard such as `creates`" } else { "" };
    format!("write `{kind}: {{{inside}}}`{guard}; `netplay docs {kind}` shows all keys and an example")
}

/// A condition over what a command gave, compiled once: `rc` (an integer) and `output` (its text).
pub type Predicate = Arc<dyn Fn(i32, &str) -> Result<bool, Error> + Send + Sync>;

/// What a resource may ask of the playbook that it stands in. Everything it gives is of this host.
pub trait Env {
    /// The bytes of a file that `copy` names, at most 1 MiB.
    ///
    /// # Errors
    /// It isn't there (with the places that were looked at), can't be read, or is too large.
    fn file(&self, src: &Node) -> Result<Vec<u8>, Error>;
    /// A template file, rendered with this host's variables.
    ///
    /// # Errors
    /// As [`Env::file`], and what is wrong in the template, at its place in it.
    fn template(&self, src: &Node) -> Result<String, Error>;
    /// Whether a bare expression holds.
    ///
    /// # Errors
    /// What is wrong in it.
    fn holds(&self, expression: &Node) -> Result<bool, Error>;
    /// A bare expression over `rc` and `output`, for later.
    ///
    /// # Errors
    /// What is wrong in its syntax.
    fn predicate(&self, expression: &Node) -> Result<Predicate, Error>;
}

/// A resource as it stands in the playbook, rendered for one host.
pub struct Spec<'a> {
    /// The value of the key that names the type: a mapping.
    pub node: &'a Node,
    /// The playbook around it.
    pub env: &'a dyn Env,
    /// Its `name`, if it has one.
    pub title: Option<&'a str>,
    /// Whether it is a handler.
    pub handler: bool,
    /// Whether it is for the root of an image, which doesn't run (`--root`): what runs is neither asked for nor changed.
    pub image: bool,
}

impl<'a> Spec<'a> {
    /// The value of a key; nothing if it isn't given or null.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.node.get(key).filter(|n| !n.is_null())
    }

    /// The value of a key that has to be given.
    ///
    /// # Errors
    /// It isn't given.
    pub fn need(&self, key: &str) -> Result<&'a Node, Error> {
        self.get(key).ok_or_else(|| match self.node.get(key) {
            Some(node) => Error::playbook(&node.span, format!("`{key}` is empty")),
            None => Error::playbook(&self.node.span, format!("the key `{key}` is missing")),
        })
    }

    /// The identity of what has no name of its own: its title, or else `#` and its line.
    pub fn title_or_line(&self) -> String {
        self.title.map_or_else(|| format!("#{}", self.node.span.line), str::to_owned)
    }

    /// The text of a key, as it was written.
    ///
    /// # Errors
    /// It is a list or a mapping, or has a NUL in it.
    pub fn text(&self, key: &str) -> Result<Option<String>, Error> {
        self.get(key).map(|n| text(key, n)).transpose()
    }

    /// The text of a key that has to be given, not empty.
    ///
    /// # Errors
    /// As [`Spec::text`], and that it is missing or empty.
    pub fn need_text(&self, key: &str) -> Result<String, Error> {
        let node = self.need(key)?;
        let found = text(key, node)?;
        if found.is_empty() { Err(Error::playbook(&node.span, format!("`{key}` is empty"))) } else { Ok(found) }
    }

    /// The truth value of a key. A string that an INI file or an extra variable makes of one (`"yes"`) is understood.
    ///
    /// # Errors
    /// It is none.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.get(key).map(|n| truth(key, n)).transpose()
    }

    /// The integer of a key; a string of digits, as an expression yields it, is understood.
    ///
    /// # Errors
    /// It is none, or outside the range.
    pub fn int(&self, key: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>, Error> {
        self.get(key).map(|n| int(key, n, range)).transpose()
    }

    /// One of several words.
    ///
    /// # Errors
    /// Another word, with the nearest of these.
    pub fn choice(&self, key: &str, words: &[&'static str]) -> Result<Option<&'static str>, Error> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let found = text(key, node)?;
        match words.iter().find(|w| **w == found) {
            Some(word) => Ok(Some(word)),
            None => {
                Err(Error::playbook(&node.span, format!("`{key}` can't be `{found}`")).hint(suggest(&found, words)))
            }
        }
    }

    /// The texts of a key that takes one or a list.
    ///
    /// # Errors
    /// One of them is no scalar, or has a NUL in it.
    pub fn texts(&self, key: &str) -> Result<Vec<String>, Error> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(node) => match node.as_seq() {
                Some(items) => items.iter().map(|n| text(key, n)).collect(),
                None => Ok(vec![text(key, node)?]),
            },
        }
    }

    /// An absolute path, without `.`, `..`, repeated or final slashes.
    ///
    /// # Errors
    /// It is relative, climbs by `..`, or is the root.
    pub fn path(&self, key: &str) -> Result<Option<String>, Error> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let found = text(key, node)?;
        if !found.starts_with('/') {
            return Err(Error::playbook(&node.span, format!("`{key}` must be an absolute path, not `{found}`")));
        }
        let parts: Vec<&str> = found.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        if parts.is_empty() {
            return Err(Error::playbook(&node.span, format!("`{key}` can't be the root folder")));
        }
        if parts.contains(&"..") {
            return Err(
                Error::playbook(&node.span, format!("`{key}` can't be `{found}`")).hint("write the path without `..`")
            );
        }
        Ok(Some(format!("/{}", parts.join("/"))))
    }

    /// The permission bits of a key such as `mode`, as four octal digits.
    ///
    /// # Errors
    /// It isn't octal with a leading zero. `644` without one is refused, since YAML would make decimal of it elsewhere.
    pub fn mode(&self, key: &str) -> Result<Option<u32>, Error> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let found = text(key, node)?;
        let digits = found.strip_prefix("0o").or_else(|| found.strip_prefix('0'));
        let octal = |d: &str| (1..=4).contains(&d.len()) && d.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match digits {
            Some(d) if octal(d) => Ok(u32::from_str_radix(d, 8).ok()),
            None if octal(&found) => {
                Err(Error::playbook(&node.span, format!("`{key}: {found}` lacks its leading zero"))
                    .hint(format!("write `{key}: 0{found}`")))
            }
            _ => Err(Error::playbook(&node.span, format!("`{key}` must be octal permissions, not `{found}`")).hint(
                "write it like `0644`; symbolic modes (`u+x`) aren't supported, as they depend on what is there",
            )),
        }
    }

    /// The entries of a key that takes a mapping, their names as text.
    ///
    /// # Errors
    /// It is no mapping.
    pub fn entries(&self, key: &str) -> Result<Option<&'a [(Node, Node)]>, Error> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match node.as_map() {
            Some(entries) => Ok(Some(entries)),
            None => Err(Error::playbook(&node.span, format!("`{key}` takes a mapping, not {}", node.describe()))),
        }
    }
}

/// The text of a value, as it was written.
///
/// # Errors
/// It is a list or a mapping, or has a NUL in it.
pub fn text(key: &str, node: &Node) -> Result<String, Error> {
    match node.text() {
        Some(t) if t.contains('\0') => {
            Err(Error::playbook(&node.span, format!("`{key}` can't have a NUL character in it")))
        }
        Some(t) => Ok(t.to_owned()),
        None => Err(Error::playbook(&node.span, format!("`{key}` takes a string, not {}", node.describe()))),
    }
}

/// The truth value of a value.
///
/// # Errors
/// It is none.
pub fn truth(key: &str, node: &Node) -> Result<bool, Error> {
    node.as_bool()
        .or_else(|| match node.as_str().map(crate::yaml::resolve) {
            Some(Scalar::Bool(b)) => Some(b),
            _ => None,
        })
        .ok_or_else(|| {
            let got = node.text().map_or_else(|| node.describe().to_owned(), |t| format!("`{t}`"));
            Error::playbook(&node.span, format!("`{key}` takes `true` or `false`, not {got}"))
        })
}

/// The integer of a value.
///
/// # Errors
/// It is none, or outside the range.
pub fn int(key: &str, node: &Node, range: std::ops::RangeInclusive<i64>) -> Result<i64, Error> {
    let found = node.as_int().or_else(|| node.as_str().and_then(|s| s.trim().parse().ok()));
    let got = || node.text().map_or_else(|| node.describe().to_owned(), |t| format!("`{t}`"));
    match found {
        None => Err(Error::playbook(&node.span, format!("`{key}` takes an integer, not {}", got()))),
        Some(i) => i64::try_from(i).ok().filter(|i| range.contains(i)).ok_or_else(|| {
            Error::playbook(
                &node.span,
                format!("`{key}` must be from {} to {}, not {}", range.start(), range.end(), got()),
            )
        }),
    }
}
