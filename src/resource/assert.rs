//! `assert`: what must hold before anything of the play is done on a host.

use super::{Answers, Change, Key, Obstacle, Question, Reading, Resource, Spec, Step, Trouble};
use crate::error::Error;

/// Expressions that must hold; judged when the play is rendered for the host.
#[derive(Debug)]
pub struct Assert {
    identity: String,
    /// The first expression that doesn't hold.
    failed: Option<String>,
    message: Option<String>,
}

impl Resource for Assert {
    type State = ();
    const TYPE: &'static str = "assert";
    const SUMMARY: &'static str = "Expressions that must hold, or else nothing of the play is done on the host";
    const TOUCHES: &'static str = "Nothing is read and nothing is written.";
    const KEYS: &'static [Key] = &[
        Key::required("that", "expression, or a list", "What must hold; without `{{ }}`, over variables and `facts`."),
        Key::optional("msg", "string", "What to say if it doesn't."),
        Key::refused("fail_msg", "it is called `msg` here"),
        Key::refused("success_msg", "leave it out: an assertion that holds says nothing"),
        Key::refused("quiet", "leave it out: an assertion that holds says nothing"),
    ];
    const EXAMPLE: &'static str = "\
- name: the fabric carries jumbo frames
  assert:
    that:
      - fabric_mtu >= 4200
      - facts.os.family in ['debian', 'redhat']
    msg: this playbook is for RoCE fabrics with jumbo frames
";

    fn parse(spec: &Spec<'_>) -> Result<Assert, Error> {
        let node = spec.need("that")?;
        let all = node.as_seq().unwrap_or(std::slice::from_ref(node));
        if all.is_empty() {
            return Err(Error::playbook(&node.span, "`that` is empty"));
        }
        // The first that fails ends it, so that `x is defined` protects what comes after it.
        let mut failed = None;
        for expression in all {
            let Some(text) = expression.text() else {
                let message = format!("`that` takes expressions, not {}", expression.describe());
                return Err(Error::playbook(&expression.span, message));
            };
            if !spec.env.holds(expression)? {
                failed = Some(text.trim().to_owned());
                break;
            }
        }
        Ok(Assert { identity: spec.title_or_line(), failed, message: spec.text("msg")? })
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn claims(&self) -> Vec<super::Claim> {
        Vec::new()
    }

    fn probe(&self) -> Vec<Question> {
        Vec::new()
    }

    fn read(&self, _answers: &Answers) -> Result<Reading<()>, Trouble> {
        Ok(Reading::State(()))
    }

    fn diff(&self, (): &()) -> Vec<Change> {
        Vec::new()
    }

    fn apply(&self, (): &()) -> Vec<Step> {
        Vec::new()
    }

    fn obstacle(&self, (): &()) -> Option<Obstacle> {
        let failed = self.failed.as_ref()?;
        let message = match &self.message {
            Some(message) => format!("{}: `{failed}` doesn't hold", message.trim_end().trim_end_matches('.')),
            None => format!("`{failed}` doesn't hold"),
        };
        Some(Obstacle::stops(Trouble::new(message)))
    }

    fn gate(&self) -> bool {
        true
    }
}
