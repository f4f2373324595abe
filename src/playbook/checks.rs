//! Checks of the fabric, as they are written: `checks` of a suite's plays, `verify` of a playbook's.

use super::load::{Loader, Playbook};
use super::template;
use crate::error::{Errors, Kind};
use crate::inventory::vault::Vault;
use crate::source::Source;
use crate::verify::suite;
use crate::yaml::{self, Node};
use std::path::Path;

impl Playbook {
    /// Reads a suite of checks, as [`Playbook::load`] does a playbook.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn load_suite(path: &Path, vault: &Vault) -> Result<Playbook, Errors> {
        template::deep(|| Loader::of_suite(vault).playbook(path))
    }

    /// The same of a text that no file holds; `name` stands for it in errors.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn suite_of_text(name: &str, text: String, vault: &Vault) -> Result<Playbook, Errors> {
        let source = Source::new(name, text);
        let node = yaml::load_one(&source, Kind::Playbook)?.filter(|n| !n.is_null());
        Loader::of_suite(vault).plays(Path::new("."), &source, node.as_ref())
    }
}

impl<'l> Loader<'l> {
    /// One whose plays have checks and no resources.
    fn of_suite(vault: &'l Vault) -> Loader<'l> {
        let mut loader = Loader::new(|_| None, &Vec::new, vault);
        loader.suite = true;
        loader
    }

    /// The checks of a play: `checks` of a suite, `verify` of a playbook.
    pub(super) fn checks(&mut self, node: &Node) -> Vec<Node> {
        let key = if self.suite { "checks" } else { "verify" };
        let others: &[(&str, &str)] = if self.suite {
            const APPLY: &str = "a suite only looks: what changes hosts stands in a playbook, for netplay apply";
            &[
                ("resources", APPLY),
                ("handlers", APPLY),
                ("reboot", APPLY),
                ("confirm", APPLY),
                ("serial", APPLY),
                ("max_fail_percentage", APPLY),
                ("on_error", APPLY),
                ("tags", APPLY),
                ("verify", "in a suite it is called `checks`"),
            ]
        } else {
            &[("checks", "a play of a suite has it, for netplay verify; in a playbook it is called `verify`")]
        };
        for (other, hint) in others {
            if let Some((name, _)) = node.as_map().and_then(|m| m.iter().find(|(k, _)| k.text() == Some(other))) {
                self.hinted(&name.span, format!("a play can't have `{other}` here"), *hint);
            }
        }
        let Some(list) = node.get(key).filter(|n| !n.is_null()) else {
            if self.suite {
                self.hinted(&node.span, "the play has no checks", "add `checks:` and a list, such as `- ports: {}`");
            }
            return Vec::new();
        };
        let Some(items) = list.as_seq() else {
            let message = format!("`{key}` is a list of checks, not {}", list.describe());
            self.hinted(&list.span, message, "begin each of them with `- `");
            return Vec::new();
        };
        if items.is_empty() && self.suite {
            self.hinted(&list.span, "the play has no checks", "add one, such as `- ports: {}`");
        }
        for item in items {
            template::check(item, &mut self.errors);
            let wrong = suite::wrong(item);
            let sound = wrong.is_empty() && !template::templated(item);
            self.errors.extend(wrong);
            self.errors.extend(sound.then(|| suite::read(item).err()).flatten());
        }
        items.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let suite = Playbook::suite_of_text("suite.yaml", text.to_owned(), &Vault::default());
        suite.map_or_else(|errors| errors.to_string(), |_| "good".to_owned())
    }

    #[test]
    fn what_a_suite_lacks_is_told() {
        assert_eq!(told("- hosts: all\n  checks: [ports]\n"), "good");
        for none in ["- hosts: all\n", "- hosts: all\n  checks: []\n"] {
            assert!(told(none).contains("the play has no checks"), "{none}");
        }
        let keys = told("- hosts: all\n  checks: [{ports: {x: 1}}]\n");
        assert!(keys.contains("unknown key `x` in `ports`") && keys.contains("it takes no keys"), "{keys}");
    }
}
