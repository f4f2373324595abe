//! A playbook as it is written: checked, not rendered.

use super::template;
use super::vars::Layer;
use super::{Confirm, Item};
use crate::error::Error;
use crate::inventory::{self, Warning};
use crate::resource::AnyType;
use crate::source::Span;
use crate::yaml::Node;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A play as it is written: checked, not rendered.
#[derive(Debug)]
pub struct Play {
    /// Its name, or `hosts: PATTERN`.
    pub name: Arc<str>,
    /// Where it begins.
    pub place: Span,
    /// Whether a failure of a resource keeps the later ones of the file from being done on that host
    /// (`on_error: stop`).
    pub stop_on_error: bool,
    /// How what could cut the session off is confirmed; nothing for `confirm: none`, which has it done unconfirmed.
    pub confirm: Option<Confirm>,
    /// Whether it is carried out in the root of an image, which doesn't run: only what lasts is looked at and done.
    pub image: bool,
    pub(super) hosts: Node,
    pub(super) serial: Option<Node>,
    pub(super) max_fail_percentage: Option<Node>,
    pub(super) reboot: Option<Node>,
    pub(super) become_: Become,
    pub(super) vars: Arc<Layer>,
    pub(super) vars_files: Vec<Node>,
    pub(super) resources: Vec<Entry>,
    pub(super) handlers: Vec<Entry>,
    /// What is checked after each batch, or, in a suite, in place of resources.
    pub(super) checks: Vec<Node>,
    /// Files of variables that have been read.
    pub(super) read: RwLock<HashMap<PathBuf, Arc<Layer>>>,
    /// Files that resources name: where they were found.
    pub(super) found: RwLock<HashMap<Named, Arc<Path>>>,
}

/// A file as a resource names it: the folder of the resource's own file, the folder for files of its kind, the name.
pub(super) type Named = (Arc<Path>, &'static str, String);

/// The `become` keywords, as they are written.
#[derive(Debug, Clone, Default)]
pub(super) struct Become {
    pub(super) enabled: Option<Node>,
    pub(super) user: Option<Node>,
}

impl Become {
    /// What stands nearer to the resource wins.
    pub(super) fn within(self, outer: &Become) -> Become {
        Become {
            enabled: self.enabled.or_else(|| outer.enabled.clone()),
            user: self.user.or_else(|| outer.user.clone()),
        }
    }
}

/// How many hosts a batch has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Batch {
    /// That many.
    Hosts(usize),
    /// That part of the play's hosts, at least one.
    Percent(f64),
}

/// One entry of `resources:` or `handlers:`.
pub(super) struct Entry {
    pub(super) place: Span,
    pub(super) kind: &'static dyn AnyType,
    pub(super) body: Node,
    pub(super) title: Option<Node>,
    /// Its own conditions, after those of what includes it.
    pub(super) when: Vec<Node>,
    pub(super) repeat: Option<Loop>,
    pub(super) vars: Vec<Arc<Layer>>,
    pub(super) tags: BTreeSet<Arc<str>>,
    pub(super) after: Vec<Node>,
    pub(super) before: Vec<Node>,
    pub(super) notify: Vec<Node>,
    pub(super) become_: Become,
    pub(super) ignore_errors: Option<Node>,
    pub(super) timeout: Option<Node>,
    pub(super) no_log: Option<Node>,
    pub(super) handler: bool,
    /// The folder of the file that it stands in.
    pub(super) dir: Arc<Path>,
    /// Whether nothing of it is a template, so that it may be the same on all hosts.
    pub(super) fixed: bool,
    /// It, if it is.
    pub(super) shared: OnceLock<Item>,
}

impl Entry {
    /// Whether a text is written in it as it is, as a key or a value, or is the name of its line.
    pub(super) fn writes(&self, text: &str) -> bool {
        fn within(node: &Node, text: &str) -> bool {
            match (node.as_seq(), node.as_map()) {
                (Some(items), _) => items.iter().any(|n| within(n, text)),
                (_, Some(entries)) => entries.iter().any(|(k, v)| within(k, text) || within(v, text)),
                _ => !template::templated(node) && node.text() == Some(text),
            }
        }
        text == format!("#{}", self.body.span.line)
            || within(&self.body, text)
            || self.title.as_ref().is_some_and(|t| within(t, text))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind.name(), self.place)
    }
}

/// `loop` and `loop_control`.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) over: Node,
    pub(super) var: Arc<str>,
    pub(super) index_var: Option<Arc<str>>,
    /// Whether the conditions use these names: otherwise they hold, or don't, for all rounds.
    pub(super) in_conditions: bool,
}

impl Play {
    /// How many resources it lists; those of a loop count once.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether it lists none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Names among its variables that are nearly one of a variable of the connection (files of variables whose paths are
    /// templates aren't looked at), and an order that leaves hosts of different MTU beside each other for long.
    pub fn warnings(&self) -> Vec<Warning> {
        let files = self.read.read().unwrap_or_else(PoisonError::into_inner);
        let mut warnings = inventory::misspelt(files.values().chain([&self.vars]).flat_map(|layer| layer.iter()));
        let batches = self.serial.as_ref().filter(|_| self.reboots());
        if let Some(mtu) = self.resources.iter().find(|e| e.kind.name() == "mtu" && batches.is_some()) {
            let message = "hosts of later batches have another MTU on the same network while earlier ones are booted";
            let hint = "set MTUs in a play of its own before this one, without `serial`: one host goes first there too";
            warnings.extend(
                batches.map(|serial| Error::playbook(&mtu.place, message).also(&serial.span, "its batches").hint(hint)),
            );
        }
        warnings
    }
}
