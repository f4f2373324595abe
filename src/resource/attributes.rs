//! Permissions and ownership of files: what `copy`, `template` and `file` have in common.

use super::probes::premise::Premise;
use super::probes::whole::Attributes;
use super::{Change, Spec, Step, spec};
use crate::error::Error;
use crate::shell::{LED, Script};

/// What is wanted; what isn't given stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) mode: Option<u32>,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
}

/// What is put behind a command that may fail because of the immutable flag, which chmod and rm don't name. It expects
/// the path in `$f`.
pub(super) const WHY: &str = r#"r=$?
if [ $r -ne 0 ]; then
  a=$(lsattr -d -- "$f" 2>/dev/null)
  case ${a%% *} in *i*) echo "$f is immutable; chattr -i lifts that" ;; esac
  exit $r
fi"#;

impl Wanted {
    /// Reads `mode`, `owner` and `group`.
    pub(super) fn parse(spec: &Spec<'_>) -> Result<Wanted, Error> {
        let name = |key: &str| {
            let Some(node) = spec.get(key) else { return Ok(None) };
            let name = spec::text(key, node)?;
            // chown reads `a:b` as owner and group.
            if name.is_empty() || name.contains([':', '\n', '/']) {
                return Err(Error::playbook(&node.span, format!("`{key}` can't be `{name}`"))
                    .hint(format!("`{key}` is one name or number; the keys are `owner` and `group`")));
            }
            Ok(Some(name))
        };
        Ok(Wanted { mode: spec.mode("mode")?, owner: name("owner")?, group: name("group")? })
    }

    /// Accounts that must be there. Root is, and a number needs none.
    pub(super) fn premises(&self) -> impl Iterator<Item = Premise> {
        let named = |name: &Option<String>| name.clone().filter(|n| n != "root" && n.parse::<u32>().is_err());
        let owner = named(&self.owner).map(Premise::User);
        owner.into_iter().chain(named(&self.group).map(Premise::Group))
    }

    fn owner_differs(&self, now: Option<&Attributes>) -> bool {
        self.owner.as_ref().is_some_and(|wanted| now.is_none_or(|now| !same(wanted, now.uid, &now.user)))
    }

    fn group_differs(&self, now: Option<&Attributes>) -> bool {
        self.group.as_ref().is_some_and(|wanted| now.is_none_or(|now| !same(wanted, now.gid, &now.group)))
    }

    fn mode_differs(&self, now: Option<&Attributes>) -> bool {
        self.mode.is_some_and(|wanted| now.is_none_or(|now| now.mode != wanted))
    }

    /// What differs; of what isn't there, all that is wanted.
    pub(super) fn diff(&self, now: Option<&Attributes>) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.owner_differs(now) {
            changes.push(Change::now("owner", now.map(|n| shown(n.uid, &n.user)), self.owner.clone()));
        }
        if self.group_differs(now) {
            changes.push(Change::now("group", now.map(|n| shown(n.gid, &n.group)), self.group.clone()));
        }
        if self.mode_differs(now) {
            let octal = |mode: u32| format!("{mode:04o}");
            changes.push(Change::now("mode", now.map(|n| octal(n.mode)), self.mode.map(octal)));
        }
        changes
    }

    /// The steps that mend it for what is there. Ownership comes first, as chown takes setuid and setgid
    /// away: where they are wanted, or were there, they are set again. What was no `link` isn't followed if it has become
    /// one since, as whoever owns the folder could give himself any file by that.
    pub(super) fn steps(&self, path: &str, link: bool, now: &Attributes) -> Vec<Step> {
        let owner = self.owner.as_deref().filter(|_| self.owner_differs(Some(now)));
        let group = self.group.as_deref().filter(|_| self.group_differs(Some(now)));
        // The file of a link is only reached by one that may be followed.
        let script = || {
            let script = Script::new().set("f", path);
            if link { script.line(LED).line("led \"$f\" || exit 1") } else { script }
        };
        let chown = if link { r#"chown -- "$o" "$f""# } else { r#"chown -h -- "$o" "$f""# };
        let mut steps = Vec::new();
        if let Some(owner) = pair(owner, group) {
            steps.push(Step::Run(script().set("o", &owner).line(chown).line(WHY)));
        }
        let mode = self.mode.unwrap_or(now.mode);
        if self.mode_differs(Some(now)) || (!steps.is_empty() && mode & 0o6000 != 0) {
            // GNU chmod leaves setuid and setgid of a folder alone unless it is given five digits.
            let mode = format!("{mode:05o}");
            steps.push(Step::Run(script().set("m", &mode).line(r#"chmod -- "$m" "$f""#).line(WHY)));
        }
        steps
    }

    /// `owner:group` for a file that is written anew: what is wanted, or else what was there.
    pub(super) fn owner_of_new(&self, now: Option<&Attributes>) -> Option<String> {
        let owner = self.owner.clone().or_else(|| now.map(|n| n.uid.to_string()));
        let group = self.group.clone().or_else(|| now.map(|n| n.gid.to_string()));
        pair(owner.as_deref(), group.as_deref())
    }
}

/// As chown takes it.
pub(super) fn pair(owner: Option<&str>, group: Option<&str>) -> Option<String> {
    match (owner, group) {
        (None, None) => None,
        (Some(owner), None) => Some(owner.to_owned()),
        (owner, Some(group)) => Some(format!("{}:{group}", owner.unwrap_or_default())),
    }
}

fn same(wanted: &str, number: u32, name: &str) -> bool {
    wanted == name || wanted.parse() == Ok(number)
}

fn shown(number: u32, name: &str) -> String {
    if name == "UNKNOWN" { number.to_string() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::Shell;

    #[test]
    fn an_immutable_file_is_told() {
        let now = Attributes { mode: 0o644, uid: 0, gid: 0, user: "root".into(), group: "root".into(), size: 0 };
        let wanted = Wanted { mode: Some(0o600), ..Wanted::default() };
        let steps = wanted.steps("/etc/it's", false, &now);
        let [Step::Run(script)] = steps.as_slice() else { panic!("{steps:?}") };
        for shell in Shell::ALL {
            for (flags, told) in [("----i---------e------- /i", true), ("--------------e------- /i", false)] {
                // Functions stand for the tools.
                let tools =
                    Script::new().set("flags", flags).line("lsattr() { echo \"$flags\"; }; chmod() { return 3; }");
                let output = shell.run(&format!("{}{}", tools.as_str(), script.as_str()));
                assert_eq!(output.code, 3);
                assert_eq!(output.text().contains("/etc/it's is immutable; chattr -i lifts that"), told, "{shell:?}");
            }
        }
    }

    #[test]
    fn numbers_and_names_are_one() {
        assert!(same("root", 0, "root") && same("0", 0, "root") && !same("1", 0, "root") && !same("", 0, "root"));
        assert_eq!(shown(7, "UNKNOWN"), "7");
    }
}
