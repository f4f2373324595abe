//! Playbooks: loading and checking them, and rendering a play for a host.
//!
//! [`Playbook::load`] reads a playbook with all that it includes and checks the keys, once and offline. A [`Play`] is
//! then rendered for each of its hosts, by [`Play::variables`] and [`Play::render`]; both can run for many hosts at
//! once. Templates and conditions are compiled once, and a resource without any is read once for all hosts.

mod checks;
mod confirm;
mod keys;
mod load;
mod reboot;
mod remedies;
mod render;
mod template;
mod vars;
mod written;

#[cfg(test)]
mod tests;

pub use confirm::{CONFIRM_KEYS, Confirm};
pub use keys::COMMON as COMMON_KEYS;
pub use load::Playbook;
pub use reboot::{Drain, HostReboot, REBOOT_KEYS, Reboot};
pub use render::{Settings, Tags};
#[cfg(test)]
pub(crate) use template::FACTS;
pub use template::{STACK, endless};
pub use vars::{Context, Extra, Variables};
pub use written::{Batch, Play};

use crate::resource::AnyResource;
use crate::source::Span;
use std::sync::Arc;

/// A play as one host sees it: every expression evaluated, loops written out, what `when` and tags leave out told.
#[derive(Debug, Default)]
pub struct HostPlay {
    /// The resources, in the order of the file.
    pub resources: Vec<Item>,
    /// The handlers, in their listed order.
    pub handlers: Vec<Item>,
    /// The play's own `become`, which holds for its facts. What can't be told without them counts as not given.
    pub become_: Become,
    /// What is left out on this host.
    pub skipped: Vec<Skipped>,
    /// Whether something of it could not be rendered before the host's facts are known: it is missing here, and the
    /// play has to be rendered again with them.
    pub wants_facts: bool,
    /// Why the host is to be booted whatever the resources need, if it is.
    pub boot_for: Option<Arc<str>>,
}

/// One resource or handler of a [`HostPlay`].
#[derive(Debug, Clone)]
pub struct Item {
    /// `type:identity`, as it may be told: without secrets, and of a `no_log` resource `type:#LINE` where the identity
    /// comes from an expression.
    pub address: Arc<str>,
    /// Its `name`, rendered; that of a `no_log` resource is as it is written.
    pub title: Option<Arc<str>>,
    /// The address and the title, where they aren't those above. References go by them too; no output shows them.
    pub untold: Vec<Arc<str>>,
    /// Where it stands.
    pub place: Span,
    /// What it is.
    pub resource: Arc<dyn AnyResource>,
    /// What it comes after, by address or title.
    pub after: Vec<Reference>,
    /// What it comes before.
    pub before: Vec<Reference>,
    /// The handlers that a change of it calls for.
    pub notify: Vec<Reference>,
    /// Whether it runs as another user, as far as the playbook says: its own keyword, or else the play's.
    pub become_: Become,
    /// Whether a failure of it doesn't count.
    pub ignore_errors: bool,
    /// Seconds that each of its steps may take, if it says so.
    pub timeout: Option<u32>,
    /// Whether its values are kept out of every output.
    pub no_log: bool,
}

/// The `become` keywords that hold for an item. Variables of the connection win over them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Become {
    /// `become`.
    pub enabled: bool,
    /// `become_user`.
    pub user: Option<Arc<str>>,
}

/// An address or title that `after`, `before` or `notify` names.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Its text.
    pub name: Arc<str>,
    /// Where it stands.
    pub place: Span,
}

/// A resource or handler that is left out on a host.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// Its address, where it could be found out.
    pub address: Option<Arc<str>>,
    /// Its title.
    pub title: Option<Arc<str>>,
    /// Where it stands.
    pub place: Span,
    /// Why: `when: facts.os.family == 'redhat'`, `tags`.
    pub why: Arc<str>,
    /// As of an [`Item`].
    pub untold: Vec<Arc<str>>,
}

impl Skipped {
    /// All names by which references may mean it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.address.iter().chain(&self.title).chain(&self.untold).map(|name| &**name)
    }
}
