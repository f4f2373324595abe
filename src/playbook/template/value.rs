//! Values between YAML trees and the engine.
//!
//! Numbers keep the text that they were written in for as long as they are only handed through: `0644`, `1.10`, or a
//! MAC address, which YAML 1.1 takes for a number. The engine sees their value and computes with it; what comes out
//! unchanged is written as it came in.

use super::error::{Fail, carry};
use super::{Scope, watch};
use crate::inventory::vault::{Vault, is_sealed};
use crate::source::Span;
use crate::yaml::{Node, Scalar, Value as Tree};
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use serde::de::{Deserialize, Deserializer, Visitor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes of text that one value may have, all its parts together, and the most parts.
const MAX_TEXT: usize = 16 << 20;
const MAX_PARTS: usize = 1_000_000;
/// How deep a value may be nested, as deep as a file of YAML.
const MAX_DEPTH: usize = 100;
/// How often one template may need other files.
pub(super) const MAX_NEEDED: usize = 50_000;

thread_local! {
    /// The evaluations under way on this thread, outermost first.
    static FRAMES: RefCell<Vec<Evaluation>> = const { RefCell::new(Vec::new()) };
}

/// One evaluation: of what, and the numbers it was handed whose text isn't the plain one.
struct Evaluation {
    place: Span,
    vault: Arc<Vault>,
    spelt: Vec<(Number, Arc<str>)>,
    /// Which template files have asked for which others, and how often any has.
    needed: HashMap<PathBuf, Vec<PathBuf>>,
    times: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Number {
    Int(i128),
    Float(f64),
}

/// An evaluation under way; it ends when this is dropped.
pub(super) struct Frame {
    depth: usize,
}

impl Frame {
    /// Begins one, for the template at a place, which may be a part of a run.
    pub(super) fn enter(place: &Span, vault: &Arc<Vault>, running: bool) -> Option<Frame> {
        watch::begin(place, running);
        FRAMES.with_borrow_mut(|frames| {
            frames.push(Evaluation {
                place: place.clone(),
                vault: vault.clone(),
                spelt: Vec::new(),
                needed: HashMap::new(),
                times: 0,
            });
            Some(Frame { depth: frames.len() })
        })
    }

    /// How many are under way.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        FRAMES.with_borrow_mut(|frames| frames.truncate(self.depth - 1));
        watch::end(self.depth - 1);
    }
}

/// The place of the template that is evaluated.
pub(super) fn place() -> Span {
    FRAMES
        .with_borrow(|frames| frames.last().map(|f| f.place.clone()))
        .unwrap_or_else(|| Span::start(&crate::source::Source::new("template", "")))
}

/// Notes that a template file asks for another one. False when that has been often enough: files that extend each other
/// in a circle do so until they are stopped.
pub(super) fn needs(file: &str, other: &Path) -> bool {
    FRAMES.with_borrow_mut(|frames| {
        let Some(frame) = frames.last_mut() else { return true };
        frame.times += 1;
        match frame.needed.get_mut(Path::new(file)) {
            Some(others) if others.iter().any(|o| o == other) => {}
            Some(others) => others.push(other.to_owned()),
            None => _ = frame.needed.insert(PathBuf::from(file), vec![other.to_owned()]),
        }
        frame.times <= MAX_NEEDED
    })
}

/// Whether files have been asked for too often.
pub(super) fn needs_too_many() -> bool {
    FRAMES.with_borrow(|frames| frames.last().is_some_and(|f| f.times > MAX_NEEDED))
}

/// Template files that need each other in a circle, the first one again at the end. A circle is no fault by itself, as a
/// condition may end it.
pub(super) fn circle() -> Option<Vec<PathBuf>> {
    FRAMES.with_borrow(|frames| {
        let needed = &frames.last()?.needed;
        needed.keys().find_map(|start| {
            // The way back to the start, by the fewest steps.
            let mut ways = vec![vec![start]];
            let mut seen = vec![start];
            let mut at = 0;
            while at < ways.len() {
                for next in needed.get(ways[at][ways[at].len() - 1]).into_iter().flatten() {
                    let way = || ways[at].iter().copied().chain([next]);
                    if next == start {
                        return Some(way().cloned().collect());
                    }
                    if !seen.contains(&next) {
                        seen.push(next);
                        ways.push(way().collect());
                    }
                }
                at += 1;
            }
            None
        })
    })
}

/// What opens encrypted values in the template that is evaluated.
pub(super) fn vault() -> Arc<Vault> {
    FRAMES.with_borrow(|frames| frames.last().map(|f| f.vault.clone())).unwrap_or_default()
}

fn spell(number: Number, text: &Arc<str>) {
    FRAMES.with_borrow_mut(|frames| {
        if let Some(frame) = frames.last_mut().filter(|f| !f.spelt.iter().any(|(n, _)| *n == number)) {
            frame.spelt.push((number, text.clone()));
        }
    });
}

/// The text that a number was written in, if it isn't the plain one and the number was only handed through.
pub(super) fn spelt(value: &Value) -> Option<Arc<str>> {
    if !value.is_number() {
        return None;
    }
    FRAMES.with_borrow(|frames| {
        let known = &frames.last().filter(|f| !f.spelt.is_empty())?.spelt;
        let number = if value.is_integer() {
            Number::Int(Marked::deserialize(value.clone()).ok()?.0)
        } else {
            Number::Float(f64::try_from(value.clone()).ok()?)
        };
        known.iter().find(|(n, _)| *n == number).map(|(_, text)| text.clone())
    })
}

/// An integer that was made by [`mark`]: the engine holds those it computes in 64 bits where they fit, so that one of
/// 128 bits that would fit is one that was handed in.
struct Marked(i128);

fn mark(value: i128) -> Value {
    u128::try_from(value).map_or_else(|_| Value::from(value), Value::from)
}

impl<'de> Deserialize<'de> for Marked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Marked, D::Error> {
        struct Wide;
        impl Visitor<'_> for Wide {
            type Value = Marked;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer of 128 bits")
            }
            fn visit_i128<E>(self, value: i128) -> Result<Marked, E> {
                Ok(Marked(value))
            }
            fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Marked, E> {
                i128::try_from(value).map(Marked).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Wide)
    }
}

/// The value of a node.
pub(super) fn to_value(node: &Node) -> Value {
    let Tree::Scalar { text, .. } = &node.value else {
        return match node.value {
            Tree::Bool(b) => Value::from(b),
            _ => Value::from_object(Container(node.clone())),
        };
    };
    if is_sealed(node) {
        // A value with an error in it fails what uses it.
        return match vault().open(node) {
            Ok(opened) => Value::from(opened.text().unwrap_or_default()),
            Err(e) => Value::from(carry(Fail::error(e))),
        };
    }
    match node.scalar() {
        None | Some(Scalar::Null) => Value::from(()),
        Some(Scalar::Bool(b)) => Value::from(b),
        Some(Scalar::Str(_)) => Value::from(text.clone()),
        Some(Scalar::Int(i)) => match i64::try_from(i) {
            Ok(small) if plain_integer(text) => Value::from(small),
            _ => {
                spell(Number::Int(i), text);
                mark(i)
            }
        },
        Some(Scalar::Float(f)) => {
            let value = Value::from(f);
            if value.to_string() != **text {
                spell(Number::Float(f), text);
            }
            value
        }
    }
}

/// Whether a text is how an integer is written that has no other spelling: no sign `+`, leading zero, base or `_`.
fn plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_digit()) && (!digits.starts_with('0') || text == "0")
}

/// The node of a value; nothing if it is `omit`.
///
/// # Errors
/// A value that is undefined, no value at all, or too large.
pub(super) fn to_node(value: &Value) -> Result<Option<Node>, Error> {
    Converter { place: place(), parts: 0, bytes: 0 }.node(value, 0)
}

/// Refuses a text of so many bytes.
pub(super) fn bounded(bytes: usize) -> Result<(), Error> {
    let message = || format!("its text has more than {} MiB", MAX_TEXT >> 20);
    if bytes > MAX_TEXT { Err(Error::new(ErrorKind::InvalidOperation, message())) } else { Ok(()) }
}

/// The node of a filter's argument, which can't be `omit`, with what is encrypted in it opened.
pub(super) fn argument(value: &Value) -> Result<Node, Error> {
    let omitted = || Error::new(ErrorKind::InvalidOperation, "`omit` can't be computed with");
    let node = to_node(value)?.ok_or_else(omitted)?;
    vault().open_all(&node).map_err(|e| carry(Fail::error(e)))
}

/// Refuses a node that is too large; parts of it that are shared count each time.
pub(super) fn whole(node: &Node) -> Result<(), Error> {
    Converter { place: node.span.clone(), parts: 0, bytes: 0 }.count(node, 0)
}

/// Makes nodes of a value's parts. Parts that are shared count each time: doubled some times over, a list of two is more
/// than any memory.
struct Converter {
    place: Span,
    parts: usize,
    bytes: usize,
}

impl Converter {
    fn string(&mut self, text: impl Into<Arc<str>>) -> Result<Node, Error> {
        let text = text.into();
        self.bytes += text.len();
        bounded(self.bytes)?;
        Ok(Node::string(&self.place, text))
    }

    /// One more part, so deep.
    fn part(&mut self, depth: usize) -> Result<(), Error> {
        self.parts += 1;
        let message = match () {
            () if self.parts > MAX_PARTS => format!("the value has more than {MAX_PARTS} parts"),
            () if depth > MAX_DEPTH => format!("the value is nested deeper than {MAX_DEPTH}"),
            () => return Ok(()),
        };
        Err(Error::new(ErrorKind::InvalidOperation, message))
    }

    /// The parts of a node that is there already.
    fn count(&mut self, node: &Node, depth: usize) -> Result<(), Error> {
        self.part(depth)?;
        match &node.value {
            Tree::Seq(items) => items.iter().try_for_each(|item| self.count(item, depth + 1)),
            Tree::Map(entries) => entries.iter().try_for_each(|(key, item)| {
                self.bytes += key.text().map_or(0, str::len);
                self.count(item, depth + 1)
            }),
            _ => {
                self.bytes += node.text().map_or(0, str::len);
                bounded(self.bytes)
            }
        }
    }

    fn node(&mut self, value: &Value, depth: usize) -> Result<Option<Node>, Error> {
        let wrong = |message: String| Err(Error::new(ErrorKind::InvalidOperation, message));
        if let Some(container) = value.downcast_object_ref::<Container>() {
            self.count(&container.0, depth)?;
            return Ok(Some(container.0.clone()));
        }
        self.part(depth)?;
        if value.downcast_object_ref::<Omit>().is_some() {
            return Ok(None);
        }
        Ok(Some(match value.kind() {
            ValueKind::Undefined => return Err(Error::new(ErrorKind::UndefinedError, "a value in it is undefined")),
            ValueKind::None => Node::plain(&self.place, "null"),
            ValueKind::Bool => Node::bool(&self.place, value.is_true()),
            ValueKind::Number => match spelt(value) {
                Some(text) => Node::plain(&self.place, text),
                None => Node::plain(&self.place, number_text(value)),
            },
            ValueKind::String => self.string(value.to_str().unwrap_or_default())?,
            ValueKind::Bytes => self.string(value.to_string())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let mut items = Vec::new();
                for item in value.try_iter()?.checked() {
                    items.extend(self.node(&item?, depth + 1)?);
                }
                Node::seq(&self.place, items)
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()?.checked() {
                    let key = key?;
                    if let Some(node) = self.node(&value.get_item(&key)?, depth + 1)? {
                        entries.push((self.string(key.to_string())?, node));
                    }
                }
                Node::map(&self.place, entries)
            }
            ValueKind::Invalid => value.clone().try_iter().map(|_| Node::plain(&self.place, "null"))?,
            _ => {
                return wrong(
                    if value.downcast_object_ref::<AllHosts>().is_some() {
                        "`hostvars` can't be a value as a whole: name a host and a variable of it"
                    } else if value.downcast_object_ref::<Scope>().is_some() {
                        "all the variables of a host can't be a value: name one of them"
                    } else {
                        "the expression yields a function, not a value"
                    }
                    .to_owned(),
                );
            }
        }))
    }
}

/// A number as YAML writes it.
fn number_text(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(f) if !value.is_integer() && f.is_nan() => ".nan".to_owned(),
        Ok(f) if !value.is_integer() && f.is_infinite() => if f > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
        _ => value.to_string(),
    }
}

/// Writes a value into the text of a template.
pub(super) fn format(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_none() {
        return Ok(());
    }
    if let Some(text) = spelt(value) {
        return out.write_str(&text).map_err(Error::from);
    }
    if value.downcast_object_ref::<Omit>().is_some() {
        let message = "`omit` leaves out a whole value and can't be a part of a text";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        // The engine prints whatever it is, and a value can be larger than any text. What else is wrong with it, it says.
        if let Err(e) = to_node(value)
            && e.kind() == ErrorKind::InvalidOperation
        {
            return Err(e);
        }
    }
    minijinja::escape_formatter(out, state, value)
}

/// A sequence or mapping as the engine sees it.
#[derive(Debug)]
struct Container(Node);

impl Object for Container {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.0.as_seq().is_some() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match &self.0.value {
            Tree::Seq(items) => items.get(key.as_usize()?).map(to_value),
            _ => match key.as_str() {
                Some(key) => self.0.get(key).map(to_value),
                // A key such as `1:` is found by the number.
                None => self.0.get(&key.to_string()).map(to_value),
            },
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.get(key).map(to_value)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match &self.0.value {
            Tree::Seq(items) => Enumerator::Seq(items.len()),
            _ => self.mapped_enumerator(|this| {
                let entries = this.0.as_map().unwrap_or_default();
                Box::new(entries.iter().map(|(k, _)| Value::from(k.text().unwrap_or_default())))
            }),
        }
    }
}

/// `omit`: what `default(omit)` yields to leave a key out.
#[derive(Debug)]
struct Omit;

impl Object for Omit {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// `hostvars`.
#[derive(Debug)]
struct AllHosts(Arc<Scope>);

impl Object for AllHosts {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.other(key.as_str()?).map(Value::from_dyn_object)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(self.0.all_hosts().into_iter().map(Value::from)))
    }
}

/// The context of an evaluation.
pub(super) fn scope(scope: &Arc<Scope>) -> Value {
    Value::from_dyn_object(scope.clone())
}

impl Object for Scope {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match key {
            "omit" => return Some(Value::from_object(Omit)),
            "hostvars" => return Some(Value::from_object(AllHosts(self.clone()))),
            _ => {}
        }
        match self.node(key) {
            Ok(node) => node.map(|n| to_value(&n)),
            // As with Ansible, a variable that can't be rendered because it uses an undefined one is undefined itself,
            // so that `default()` and `is defined` see it.
            Err(Fail::Undefined(_)) => None,
            Err(fail) => Some(Value::from(carry(fail))),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(self.names().into_iter().map(Value::from)))
    }
}
