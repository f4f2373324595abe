//! A module's parameters: those that it takes, those that it has, and those that can be written while it is loaded.

use super::boot::same_name;
use super::probe::Live;
use super::value::{same, value_of};
use super::{KernelModule, State};
use crate::error::{Error, nearest};
use crate::resource::spec::{Spec, text};
use crate::resource::{Step, Trouble};
use crate::shell::Script;

/// Whether a text can be the name of a module or of a parameter.
pub(super) fn is_name(text: &str) -> bool {
    // One that begins with a dash would be an option of modprobe's.
    !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Reads `params`.
pub(super) fn parse(spec: &Spec<'_>) -> Result<Vec<(String, String)>, Error> {
    if let (Some(node), true) = (spec.get("params"), spec.get("params").is_some_and(|n| n.as_map().is_none())) {
        return Err(Error::playbook(&node.span, format!("`params` takes a mapping, not {}", node.describe()))
            .hint("write `params: {hashsize: 262144}`"));
    }
    let mut parameters: Vec<(String, String)> = Vec::new();
    for (key, value) in spec.entries("params")?.unwrap_or_default() {
        let name = text("params", key)?;
        if !is_name(&name) || name.is_empty() {
            return Err(Error::playbook(&key.span, format!("`{name}` is no name of a parameter")));
        }
        if parameters.iter().any(|(other, _)| same_name(other, &name)) {
            return Err(Error::playbook(&key.span, format!("`{name}` is named twice")));
        }
        parameters.push((name.clone(), value_of(&name, value)?));
    }
    Ok(parameters)
}

impl KernelModule {
    /// The parameters that the module doesn't seem to take, with what may be meant: the kernel would ignore them.
    /// modinfo lists those that were declared with a type or a description, which `module_param_call` doesn't do
    /// (`hashsize` of nf_conntrack); such a one is seen when the module is loaded.
    pub(super) fn unknown<'a>(&'a self, now: &'a State) -> Vec<(&'a str, Option<&'a str>)> {
        // Those the kernel itself takes, of each module (Documentation/admin-guide/kernel-parameters.txt).
        const OF_ALL: [&str; 2] = ["dyndbg", "async_probe"];
        let Some(declared) = &now.declared else { return Vec::new() };
        let all = || declared.iter().chain(now.found.parameters.keys()).map(String::as_str);
        let unknown = self.parameters.iter().filter(|(key, _)| !all().chain(OF_ALL).any(|name| same_name(name, key)));
        unknown.map(|(key, _)| (key.as_str(), nearest(key, all()))).collect()
    }

    /// The parameters that the loaded module has otherwise, with what it has and whether that can be written.
    pub(super) fn live<'a>(&'a self, now: &'a State) -> impl Iterator<Item = (&'a str, &'a str, &'a str, bool)> {
        self.parameters.iter().filter_map(|(key, value)| {
            let (_, shown) = now.found.parameters.iter().find(|(name, _)| same_name(name, key))?;
            let got = shown.value.as_deref()?;
            (now.found.live != Live::Absent && !same(value, got)).then_some((
                key.as_str(),
                value.as_str(),
                got,
                shown.writable,
            ))
        })
    }

    /// The steps that write those that can be written.
    pub(super) fn writes(&self, now: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (key, value, _, _) in self.live(now).filter(|(.., writable)| *writable) {
            let shown = now.found.parameters.keys().find(|name| same_name(name, key)).map_or(key, String::as_str);
            let file = format!("/sys/module/{}/parameters/{shown}", self.name);
            steps.push(Step::Run(Script::new().set("f", &file).set("v", value).line(WRITE)));
        }
        steps
    }

    /// What is wrong with those that the module doesn't take.
    pub(super) fn unknown_troubles(&self, now: &State) -> Vec<Trouble> {
        let name = &self.name;
        let trouble = |(key, near): (&str, Option<&str>)| {
            Trouble::new(format!("{name} has no parameter {key}")).hint(match near {
                Some(near) => format!("is it {near}?"),
                None => {
                    format!("`ls /sys/module/{name}/parameters` and `modinfo -p {name}` list those that it has")
                }
            })
        };
        self.unknown(now).into_iter().map(trouble).collect()
    }

    /// What can't be known of some.
    pub(super) fn parameter_warnings(&self, now: &State) -> Vec<String> {
        let mut warnings = Vec::new();
        let (name, found) = (&self.name, &now.found);
        let shown =
            |key: &str| found.parameters.iter().find(|(n, _)| same_name(n, key)).and_then(|(_, s)| s.value.as_ref());
        let unknown = self.unknown(now);
        let hidden = |key: &str| shown(key).is_none() && !unknown.iter().any(|(name, _)| *name == key);
        for (key, _) in self.parameters.iter().filter(|(key, _)| found.live != Live::Absent && hidden(key)) {
            warnings.push(format!(
                "{name} doesn't show {key}, so what it has can't be told: `modinfo -p {name}` lists its parameters"
            ));
        }
        for (key, near) in unknown.iter().filter(|_| found.live == Live::Absent) {
            let meant = near.map(|near| format!(" (is it {near}?)")).unwrap_or_default();
            warnings.push(format!(
                "`modinfo -p {name}` doesn't list {key}{meant}: whether {name} has it shows when it is loaded"
            ));
        }
        warnings
    }
}

/// `$f`: a parameter's file; `$v`: its value. dash doesn't tell why a write failed, dd does.
const WRITE: &str = r#"e=$(printf '%s\n' "$v" | dd of="$f" conv=notrunc 2>&1) && exit
e=${e%%'
'*}
echo "$f = $v: ${e##*: }"
exit 1"#;
