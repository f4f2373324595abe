//! INI inventories, by the rules of ansible-core's `ini` plugin.

use super::tree::{GroupId, Tree};
use super::{Meta, address, literal};
use crate::error::{Error, Errors};
use crate::source::{Source, Span};
use crate::yaml::Node;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Hosts,
    Children,
    Vars,
}

/// A group that is named before it is declared.
struct Pending {
    name: String,
    place: Span,
    /// The groups whose children it is; none where only its `:vars` have been seen.
    parents: Vec<(GroupId, Span)>,
    vars_only: bool,
}

/// A part of a line: its text without quotes, and where it is written.
struct Word {
    text: String,
    from: usize,
    to: usize,
}

/// Reads an inventory into the tree.
pub(super) fn load(source: &Arc<Source>, tree: &mut Tree, meta: &Meta) -> Result<(), Errors> {
    let mut reader = Reader { tree, meta, pending: Vec::new(), group: GroupId::UNGROUPED, section: Section::Hosts };
    let mut errors = Vec::new();
    if let Some((at, line)) = source.text.split('\n').enumerate().find(|(_, line)| line.contains('\0')) {
        let column = line.split('\0').next().unwrap_or_default().chars().count() + 1;
        let place = Span::at(source, at + 1, column, 1);
        return Err(Error::inventory(&place, "a NUL is in it, so that this is no text").into());
    }
    for (at, raw) in source.text.split('\n').enumerate() {
        let line = raw.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let indent = raw.len() - raw.trim_start().len();
        let line = Line { source, number: at + 1, raw, indent, text: line };
        errors.extend(reader.line(&line).err());
    }
    for pending in &reader.pending {
        errors.push(undeclared(pending));
    }
    if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
}

fn undeclared(pending: &Pending) -> Error {
    let name = &pending.name;
    let (place, message) = match pending.parents.last() {
        Some((_, place)) if !pending.vars_only => (place, format!("the group `{name}` isn't declared anywhere")),
        _ => (&pending.place, format!("variables for the group `{name}`, which isn't declared anywhere")),
    };
    Error::inventory(place, message).hint(format!("declare it by a section `[{name}]`, which may be empty"))
}

struct Line<'s> {
    source: &'s Arc<Source>,
    number: usize,
    raw: &'s str,
    indent: usize,
    text: &'s str,
}

impl Line<'_> {
    /// The place of some bytes of the trimmed line.
    fn place(&self, from: usize, to: usize) -> Span {
        let column = self.raw[..self.indent + from].chars().count() + 1;
        Span::at(self.source, self.number, column, self.text[from..to].chars().count())
    }

    fn whole(&self) -> Span {
        self.place(0, self.text.len())
    }
}

struct Reader<'a> {
    tree: &'a mut Tree,
    meta: &'a Meta,
    pending: Vec<Pending>,
    group: GroupId,
    section: Section,
}

impl Reader<'_> {
    fn line(&mut self, line: &Line<'_>) -> Result<(), Error> {
        if let Some((name, kind)) = section(line.text) {
            return self.open(line, name, kind);
        }
        if line.text.starts_with('[') && line.text.ends_with(']') {
            let message = format!("`{}` isn't a section", line.text);
            let error = Error::inventory(&line.whole(), message);
            return Err(match address::split(line.text) {
                (host, None) if host != line.text => {
                    error.hint(format!("an IPv6 address stands here without brackets: `{host}`, or `[{host}]:PORT`"))
                }
                _ => error.hint("a section is written `[group]`, `[group:vars]` or `[group:children]`, without blanks"),
            });
        }
        match self.section {
            Section::Hosts => self.host(line),
            Section::Vars => self.var(line),
            Section::Children => self.child(line),
        }
    }

    fn open(&mut self, line: &Line<'_>, name: &str, kind: Option<&str>) -> Result<(), Error> {
        let section = match kind {
            None | Some("hosts") => Section::Hosts,
            Some("children") => Section::Children,
            Some("vars") => Section::Vars,
            Some(other) => {
                let at = 2 + name.len();
                return Err(Error::inventory(
                    &line.place(at, at + other.len()),
                    format!("unknown kind of section `{other}`"),
                )
                .hint(crate::error::suggest(other, &["hosts", "vars", "children"])));
            }
        };
        let new = self.tree.find_group(name).is_none();
        let pending = self.pending.iter().position(|p| p.name == name);
        if new && section == Section::Vars && pending.is_none() {
            let place = line.place(1, 1 + name.len());
            self.pending.push(Pending { name: name.to_owned(), place, parents: Vec::new(), vars_only: true });
        }
        (self.group, self.section) = (self.tree.add_group(name), section);
        match pending {
            Some(at) if section != Section::Vars && self.pending[at].vars_only => {
                self.pending.remove(at);
                Ok(())
            }
            Some(at) if section != Section::Vars => {
                let pending = self.pending.remove(at);
                self.settle(pending)
            }
            _ => Ok(()),
        }
    }

    /// Links a group that is declared at last to the groups that named it.
    fn settle(&mut self, pending: Pending) -> Result<(), Error> {
        let child = self.tree.add_group(&pending.name);
        for (parent, place) in pending.parents {
            self.tree.add_child(parent, child, &place)?;
        }
        Ok(())
    }

    fn child(&mut self, line: &Line<'_>) -> Result<(), Error> {
        let name = line.text.split_once('#').map_or(line.text, |(name, _)| name).trim_end();
        if name.is_empty() || name.contains([':', ']']) || name.contains(char::is_whitespace) {
            return Err(Error::inventory(&line.whole(), "a line of `:children` is the name of one group"));
        }
        let place = line.place(0, name.len());
        if let Some(child) = self.tree.find_group(name) {
            return self.tree.add_child(self.group, child, &place);
        }
        let parent = (self.group, place.clone());
        match self.pending.iter_mut().find(|p| p.name == name) {
            Some(pending) => pending.parents.push(parent),
            None => {
                self.pending.push(Pending { name: name.to_owned(), place, parents: vec![parent], vars_only: false });
            }
        }
        Ok(())
    }

    fn var(&mut self, line: &Line<'_>) -> Result<(), Error> {
        let Some((name, value)) = line.text.split_once('=') else {
            return Err(Error::inventory(&line.whole(), "a line of `:vars` is `name=value`"));
        };
        let from = name.len() + 1 + (value.len() - value.trim_start().len());
        let value = value.trim();
        let node = literal::value(value, &line.place(from, from + value.len()));
        self.tree.set_group_var(self.group, &Arc::from(name.trim()), &node)
    }

    fn host(&mut self, line: &Line<'_>) -> Result<(), Error> {
        let words = split(line)?;
        let Some((host, words)) = words.split_first() else { return Ok(()) };
        let place = line.place(host.from, host.to);
        if host.text.trim() == "---" || host.text.is_empty() {
            return Err(Error::inventory(&place, format!("`{}` isn't a host: this looks like YAML", host.text))
                .hint("give the file a name that ends in .yaml"));
        }
        let (names, port) = address::expand(&host.text, &place)?;
        if host.text.trim_end().ends_with(':') && port.is_none() {
            return Err(Error::inventory(&place, format!("`{}` ends in a colon without a port", host.text)).hint(
                "a port is written `host:2222`; a YAML inventory needs a name that ends in .yaml, or `all:` first",
            ));
        }
        let mut vars = Vec::with_capacity(words.len());
        for word in words {
            let Some((name, value)) = word.text.split_once('=') else {
                let message = format!("`{}` isn't a variable of the form `name=value`", word.text);
                return Err(Error::inventory(&line.place(word.from, word.to), message)
                    .hint("one host stands on each line; a value with blanks is quoted"));
            };
            // What is quoted is shorter than it is written; then the whole word is the place.
            let as_written = word.to - word.from == word.text.len();
            let from = if as_written { word.from + name.len() + 1 } else { word.from };
            vars.push((Arc::from(name), literal::value(value, &line.place(from, word.to))));
        }
        let port = port.map(|p| Node::plain(&place, p.to_string()));
        self.meta.add_hosts(self.tree, &names, (port, &place), self.group, &vars)
    }
}

/// `[name]` or `[name:kind]`, a comment behind it allowed.
fn section(line: &str) -> Option<(&str, Option<&str>)> {
    let (inside, after) = line.strip_prefix('[')?.split_once(']')?;
    let after = after.trim_start();
    if !after.is_empty() && !after.starts_with('#') {
        return None;
    }
    let (name, kind) = inside.split_once(':').map_or((inside, None), |(n, k)| (n, Some(k)));
    let word = |k: &str| !k.is_empty() && k.chars().all(|c| c.is_alphanumeric() || c == '_');
    let good = !name.is_empty() && !name.contains(char::is_whitespace) && kind.is_none_or(word);
    good.then_some((name, kind))
}

/// Cuts a host line into words as Python's `shlex` does: quotes group and vanish, `#` begins a comment even within a
/// word.
fn split(line: &Line<'_>) -> Result<Vec<Word>, Error> {
    let (mut words, mut word): (Vec<Word>, Option<Word>) = (Vec::new(), None);
    let mut chars = line.text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '#' {
            break;
        }
        if c.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let current = word.get_or_insert_with(|| Word { text: String::new(), from: at, to: at });
        current.to = at + c.len_utf8();
        match c {
            '\\' => match chars.next() {
                Some((at, c)) => {
                    current.text.push(c);
                    current.to = at + c.len_utf8();
                }
                None => return Err(Error::inventory(&line.place(at, at + 1), "nothing is behind this backslash")),
            },
            '"' | '\'' => loop {
                let Some((inner, next)) = chars.next() else {
                    return Err(Error::inventory(&line.place(at, line.text.len()), "a quote that isn't closed")
                        .hint(format!("close it by `{c}`, or write `\\{c}` for the character itself")));
                };
                current.to = inner + next.len_utf8();
                if next == c {
                    break;
                }
                match (next, chars.peek()) {
                    ('\\', Some((_, escaped))) if c == '"' && matches!(escaped, '"' | '\\') => {
                        current.text.push(*escaped);
                        chars.next();
                    }
                    _ => current.text.push(next),
                }
            },
            _ => current.text.push(c),
        }
    }
    words.extend(word);
    Ok(words)
}
