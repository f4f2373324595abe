//! Which hosts a pattern means: `hosts:` of a play, `--limit`.
//!
//! As with Ansible, what a pattern adds comes first, then what it keeps (`&`), then what it takes away (`!`), whatever
//! their order. Other than there, brackets are ranges and never a choice of characters, a name that the inventory
//! doesn't know is an error, and where commas separate, colons do as well (`a,b:!c`; Ansible finds nothing then).

use super::tree::HostId;
use super::{Inventory, Warning, address, hostlist, read};
use crate::error::{Error, nearest};
use crate::source::Span;
use crate::yaml::Node;
use regex::Regex;
use std::collections::HashSet;
use std::path::Path;

/// The hosts that a pattern means.
#[derive(Debug)]
pub struct Selection {
    /// Each once, in the order in which the pattern names them.
    pub hosts: Vec<HostId>,
    /// What was meant but is empty.
    pub warnings: Vec<Warning>,
}

/// Finds out which hosts `@failed` means; asked only where a pattern has it.
pub type Failed<'f> = dyn Fn() -> Result<Vec<String>, Error> + 'f;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    Add,
    Keep,
    Remove,
}

/// One term of a pattern.
struct Term {
    sign: Sign,
    text: String,
    place: Span,
}

impl Inventory {
    /// The hosts that a pattern means, and that a limit leaves of them.
    ///
    /// A pattern is a string or a list of them: names, globs (`*`, `?`), groups, `a:b` or `a,b`, `a:&b`, `a:!b`,
    /// `~regex` (from the start of a name), `@file` (one pattern a line), `@failed` (the hosts that `failed` gives),
    /// hostlists, and subscripts of a group or glob (`g[0]`, `g[-1]`, `g[0:5]`, `g[1:]`, both ends included).
    ///
    /// # Errors
    /// A name that the inventory doesn't know, a range that isn't one, a regular expression or file that can't be
    /// read, hosts that failed where that isn't known. The place is the term itself.
    pub fn select(
        &self,
        pattern: &Node,
        limit: Option<&Node>,
        failed: Option<&Failed<'_>>,
    ) -> Result<Selection, Error> {
        let mut selector = Selector { inventory: self, failed, warnings: Vec::new() };
        let mut hosts = selector.node(pattern)?;
        if let Some(limit) = limit {
            let kept: HashSet<HostId> = selector.node(limit)?.into_iter().collect();
            hosts.retain(|h| kept.contains(h));
        }
        Ok(Selection { hosts, warnings: selector.warnings })
    }
}

struct Selector<'a> {
    inventory: &'a Inventory,
    failed: Option<&'a Failed<'a>>,
    warnings: Vec<Warning>,
}

impl Selector<'_> {
    fn node(&mut self, pattern: &Node) -> Result<Vec<HostId>, Error> {
        let mut terms = Vec::new();
        let items = pattern.as_seq().unwrap_or_else(|| std::slice::from_ref(pattern));
        for item in items {
            let Some(text) = item.text().filter(|_| !item.is_null()) else {
                let message = format!("a pattern of hosts is a string or a list of them, not {}", item.describe());
                return Err(Error::inventory(&item.span, message));
            };
            terms.extend(split(text, &item.span));
        }
        if terms.is_empty() {
            return Err(Error::inventory(&pattern.span, "an empty pattern of hosts").hint("`all` means every host"));
        }
        self.terms(terms)
    }

    fn terms(&mut self, mut terms: Vec<Term>) -> Result<Vec<HostId>, Error> {
        terms.sort_by_key(|term| term.sign);
        let mut hosts: Vec<HostId> = Vec::new();
        let mut chosen: HashSet<HostId> = HashSet::new();
        if terms.first().is_some_and(|term| term.sign != Sign::Add) {
            hosts.extend(self.inventory.hosts());
            chosen.extend(self.inventory.hosts());
        }
        for term in &terms {
            let meant = self.term(term)?;
            match term.sign {
                Sign::Add => hosts.extend(meant.into_iter().filter(|h| chosen.insert(*h))),
                Sign::Keep => {
                    let meant: HashSet<HostId> = meant.into_iter().collect();
                    hosts.retain(|h| meant.contains(h));
                }
                Sign::Remove => {
                    let meant: HashSet<HostId> = meant.into_iter().collect();
                    hosts.retain(|h| !meant.contains(h));
                }
            }
        }
        Ok(hosts)
    }

    fn term(&mut self, term: &Term) -> Result<Vec<HostId>, Error> {
        let text = &*term.text;
        if let Some(name) = text.strip_prefix('@') {
            return if name == "failed" { self.failed(term) } else { self.file(term, Path::new(name)) };
        }
        if let Some(pattern) = text.strip_prefix('~') {
            return self.regex(term, pattern);
        }
        if let Some(host) = self.inventory.host(text) {
            return Ok(vec![host]);
        }
        if let Some((base, subscript)) = subscript(text) {
            let is_group = self.inventory.tree.find_group(base).is_some();
            if is_group || base.contains(['*', '?']) {
                let hosts = self.name(base, term)?;
                self.warn_of_hosts(term, base, is_group);
                return self.part(term, hosts, subscript);
            }
        }
        if !hostlist::has_range(text) {
            return self.name(text, term);
        }
        let mut hosts = Vec::new();
        for name in hostlist::expand(text, &term.place)? {
            match self.inventory.host(&name) {
                Some(host) => hosts.push(host),
                None => hosts.extend(self.name(&name, term)?),
            }
        }
        Ok(hosts)
    }

    /// Hosts by the name of a group or by a glob.
    fn name(&mut self, text: &str, term: &Term) -> Result<Vec<HostId>, Error> {
        let tree = &self.inventory.tree;
        if text.contains(['*', '?']) {
            return Ok(self.matching(term, |name| glob(text, name)));
        }
        let Some(group) = tree.find_group(text) else { return Err(self.unknown(text, term)) };
        let members = tree.group(group).members.clone();
        if members.is_empty() {
            self.empty(term, format!("the group `{text}` has no hosts"));
        }
        Ok(members)
    }

    fn regex(&mut self, term: &Term, pattern: &str) -> Result<Vec<HostId>, Error> {
        let regex = Regex::new(&format!("^(?:{pattern})")).map_err(|e| {
            let message = format!("`~{pattern}` isn't a regular expression");
            Error::inventory(&term.place, message).hint(e.to_string().replace('\n', "\n        "))
        })?;
        Ok(self.matching(term, |name| regex.is_match(name)))
    }

    /// The hosts of all groups whose name matches, then the hosts whose name does, as they came into the inventory.
    fn matching(&mut self, term: &Term, is_match: impl Fn(&str) -> bool) -> Vec<HostId> {
        let tree = &self.inventory.tree;
        let mut seen = HashSet::new();
        let groups = tree.groups.iter().filter(|g| is_match(&g.name)).flat_map(|g| g.members.iter().copied());
        let hosts = (0..tree.explicit).map(HostId::at).filter(|h| is_match(&tree.host(*h).name));
        let hosts: Vec<HostId> = groups.chain(hosts).filter(|h| seen.insert(*h)).collect();
        if hosts.is_empty() {
            self.empty(term, format!("`{}` matches no host", term.text));
        }
        hosts
    }

    fn empty(&mut self, term: &Term, message: String) {
        // Taking nothing away is nothing to speak of.
        if term.sign != Sign::Remove {
            self.warnings.push(Error::inventory(&term.place, message));
        }
    }

    fn unknown(&self, text: &str, term: &Term) -> Error {
        let tree = &self.inventory.tree;
        let error = Error::inventory(&term.place, format!("no host and no group of the inventory is called `{text}`"));
        let names = tree.groups.iter().map(|g| &*g.name).chain(self.inventory.hosts().map(|h| &*tree.host(h).name));
        if text.contains(char::is_whitespace) {
            return error.hint("names are separated by `:` or `,`");
        }
        if let Some(near) = nearest(text, names) {
            return error.hint(format!("did you mean `{near}`?"));
        }
        let groups: Vec<&str> = tree.groups.iter().map(|g| &*g.name).collect();
        let more = if groups.len() > 20 { ", …" } else { "" };
        error.hint(format!("groups: {}{more}", groups[..groups.len().min(20)].join(", ")))
    }

    fn part(&mut self, term: &Term, hosts: Vec<HostId>, part: Subscript) -> Result<Vec<HostId>, Error> {
        let count = hosts.len();
        let range = match part {
            Subscript::One(n) => {
                let at = if n < 0 { count.checked_sub(n.unsigned_abs()) } else { Some(n.unsigned_abs()) };
                match at.filter(|at| *at < count) {
                    Some(at) => at..at + 1,
                    None if count == 0 => 0..0,
                    None => {
                        let message = format!("`{}` is beyond the {count} hosts", term.text);
                        return Err(Error::inventory(&term.place, message)
                            .hint(format!("the first is [0], the last [{}] or [-1]", count - 1)));
                    }
                }
            }
            Subscript::Range(from, to) => from.min(count)..to.map_or(count, |to| to.saturating_add(1)).min(count),
        };
        let part = hosts.get(range).unwrap_or_default().to_vec();
        if part.is_empty() && count > 0 {
            self.empty(term, format!("`{}` takes none of the {count} hosts", term.text));
        }
        Ok(part)
    }

    /// Where `g[0:5]` is a part of the group and could be a range of hosts as well, both are named.
    fn warn_of_hosts(&mut self, term: &Term, base: &str, is_group: bool) {
        let Some(first) =
            hostlist::expand(&term.text, &term.place).ok().filter(|_| is_group).map(|mut n| n.swap_remove(0))
        else {
            return;
        };
        if self.inventory.host(&first).is_some() {
            let message =
                format!("`{}` is a part of the group `{base}`, not a range of hosts from `{first}`", term.text);
            let hint = "a range of hosts is written with a dash: `n[1-3]`";
            self.warnings.push(Error::inventory(&term.place, message).hint(hint));
        }
    }

    fn failed(&mut self, term: &Term) -> Result<Vec<HostId>, Error> {
        let Some(failed) = self.failed else {
            return Err(Error::inventory(&term.place, "`@failed` isn't known here")
                .hint("name the hosts, or a file of them by @FILE"));
        };
        let names = failed().map_err(|e| e.at(&term.place))?;
        let (mut hosts, mut gone) = (Vec::new(), Vec::new());
        for name in &names {
            match self.inventory.host(name) {
                Some(host) => hosts.push(host),
                None => gone.push(name.as_str()),
            }
        }
        if !gone.is_empty() {
            let message = format!("hosts that failed are no longer in the inventory: {}", hostlist::fold(gone));
            self.warnings.push(Error::inventory(&term.place, message));
        }
        if names.is_empty() {
            self.empty(term, "the last run left no host undone".to_owned());
        }
        Ok(hosts)
    }

    fn file(&mut self, term: &Term, path: &Path) -> Result<Vec<HostId>, Error> {
        let source = read::text(path).map_err(|e| e.at(&term.place))?;
        let mut terms = Vec::new();
        for (at, raw) in source.text.lines().enumerate() {
            let line = raw.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let indent = raw.chars().take_while(|c| c.is_whitespace()).count();
            let place = Span::at(&source, at + 1, indent + 1, line.chars().count());
            if line.starts_with('@') {
                return Err(Error::inventory(&place, "a file of hosts can't name another file"));
            }
            terms.extend(split(line, &place));
        }
        if terms.is_empty() {
            self.empty(term, format!("{} names no host", path.display()));
            return Ok(Vec::new());
        }
        self.terms(terms)
    }
}

#[derive(Clone, Copy)]
enum Subscript {
    One(isize),
    /// First and last, the last included; to the end if there is no last.
    Range(usize, Option<usize>),
}

/// Splits `g[0:5]` into the group and what is wanted of it.
fn subscript(text: &str) -> Option<(&str, Subscript)> {
    let (base, inside) = text.strip_suffix(']')?.rsplit_once('[')?;
    if base.is_empty() {
        return None;
    }
    let subscript = match inside.split_once(':') {
        None => Subscript::One(inside.parse().ok()?),
        Some((from, "")) => Subscript::Range(from.parse().ok()?, None),
        Some((from, to)) => Subscript::Range(from.parse().ok()?, Some(to.parse().ok()?)),
    };
    Some((base, subscript))
}

/// Splits a pattern into its terms, at commas and colons outside of brackets; one within an address or the name of a file
/// is none.
fn split(text: &str, place: &Span) -> Vec<Term> {
    let mut terms = Vec::new();
    let mut add = |from: usize, to: usize| {
        let part = &text[from..to];
        let start = from + part.len() - part.trim_start().len();
        let part = part.trim();
        let (sign, name) = match part.chars().next() {
            Some('!') => (Sign::Remove, part[1..].trim_start()),
            Some('&') => (Sign::Keep, part[1..].trim_start()),
            _ => (Sign::Add, part),
        };
        if !name.is_empty() {
            let place = hostlist::within(place, text, start, start + part.len());
            terms.push(Term { sign, text: name.to_owned(), place });
        }
    };
    for (from, to) in cut(text, 0, text.len(), ',') {
        let part = text[from..to].trim().trim_start_matches(['!', '&']);
        let file = part.starts_with('@') && !part.starts_with("@failed:");
        if file || address::is_one(part) {
            add(from, to);
        } else {
            cut(text, from, to, ':').into_iter().for_each(|(from, to)| add(from, to));
        }
    }
    terms
}

/// Cuts a part of a text at a separator outside of brackets; in a regular expression, of parentheses and braces too.
fn cut(text: &str, from: usize, to: usize, separator: char) -> Vec<(usize, usize)> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, from);
    let (mut regex, mut begin) = (false, true);
    for (at, c) in text[from..to].char_indices().map(|(at, c)| (from + at, c)) {
        if begin && !matches!(c, '!' | '&') && !c.is_whitespace() {
            (begin, regex) = (false, c == '~');
        }
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '(' | '{' if regex => depth += 1,
            ')' | '}' if regex => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                parts.push((start, at));
                (start, begin) = (at + c.len_utf8(), true);
            }
            _ => {}
        }
    }
    parts.push((start, to));
    parts
}

/// Whether a name matches a glob, in which only `*` and `?` are special.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    (p, n) = (at + 1, from + 1);
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// A pattern that was given on the command line.
pub fn argument(option: &str, text: &str) -> Node {
    let source = crate::source::Source::new(option, text);
    let mut span = Span::start(&source);
    span.len = u32::try_from(text.chars().count().max(1)).unwrap_or(u32::MAX);
    Node::string(&span, text)
}
