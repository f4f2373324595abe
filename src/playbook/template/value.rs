//! Values between YAML trees and the engine.
//!
//! Numbers keep the text that they were written in for as long as they are only handed through: `0644`, `1.10`, or a
//! MAC address, which YAML 1.1 takes for a number. The engine sees their value and computes with it; what comes out
//! unchanged is written as it came in.

use super::Scope;
use super::error::{Fail, carry};
use crate::source::Span;
use crate::yaml::{Node, Scalar, Value as Tree};
use minijinja::value::{Enumerator, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use serde::de::{Deserialize, Deserializer, Visitor};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

thread_local! {
    /// The evaluations under way on this thread, outermost first.
    static FRAMES: RefCell<Vec<Evaluation>> = const { RefCell::new(Vec::new()) };
}

/// One evaluation: of what, and the numbers it was handed whose text isn't the plain one.
struct Evaluation {
    place: Span,
    spelt: Vec<(Number, Arc<str>)>,
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
    /// Begins one, for the template at a place.
    pub(super) fn enter(place: &Span) -> Option<Frame> {
        FRAMES.with_borrow_mut(|frames| {
            frames.push(Evaluation { place: place.clone(), spelt: Vec::new() });
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
    }
}

/// The place of the template that is evaluated.
pub(super) fn place() -> Span {
    FRAMES
        .with_borrow(|frames| frames.last().map(|f| f.place.clone()))
        .unwrap_or_else(|| Span::start(&crate::source::Source::new("template", "")))
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
pub(super) fn to_node(value: &Value) -> Result<Option<Node>, Error> {
    node_at(value, &place())
}

/// The node of a filter's argument, which can't be `omit`.
pub(super) fn argument(value: &Value) -> Result<Node, Error> {
    to_node(value)?.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "`omit` can't be computed with"))
}

fn node_at(value: &Value, place: &Span) -> Result<Option<Node>, Error> {
    if let Some(container) = value.downcast_object_ref::<Container>() {
        return Ok(Some(container.0.clone()));
    }
    if value.downcast_object_ref::<Omit>().is_some() {
        return Ok(None);
    }
    let kept = |v: &Value| node_at(v, place);
    Ok(Some(match value.kind() {
        ValueKind::Undefined => return Err(Error::new(ErrorKind::UndefinedError, "a value in it is undefined")),
        ValueKind::None => Node::plain(place, "null"),
        ValueKind::Bool => Node::bool(place, value.is_true()),
        ValueKind::Number => match spelt(value) {
            Some(text) => Node::plain(place, text),
            None => Node::plain(place, number_text(value)),
        },
        ValueKind::String => Node::string(place, value.to_str().unwrap_or_default()),
        ValueKind::Bytes => Node::string(place, value.to_string()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.checked().map(|v| kept(&v?)).collect::<Result<Vec<_>, _>>()?;
            Node::seq(place, items.into_iter().flatten().collect())
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                if let Some(node) = kept(&value.get_item(&key)?)? {
                    entries.push((Node::string(place, key.to_string()), node));
                }
            }
            Node::map(place, entries)
        }
        ValueKind::Invalid => value.clone().try_iter().map(|_| Node::plain(place, "null"))?,
        _ => {
            let message = if value.downcast_object_ref::<AllHosts>().is_some() {
                "`hostvars` can't be a value as a whole: name a host and a variable of it"
            } else if value.downcast_object_ref::<Scope>().is_some() {
                "all the variables of a host can't be a value: name one of them"
            } else {
                "the expression yields a function, not a value"
            };
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }))
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
