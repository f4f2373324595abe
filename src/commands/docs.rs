//! `netplay docs`: the types of resources and their keys, and what can be found, as Markdown that reads well in a terminal.

use crate::cli;
use crate::error::{Error, Errors, suggest};
use crate::finding::FINDINGS;
use crate::playbook::COMMON_KEYS;
use crate::report;
use crate::resource::spec::Need;
use crate::resource::{self, AnyType, Key, TYPES};
use crate::secret::Secrets;

/// Columns of a line.
const WIDTH: usize = 100;

/// Prints the page of a type, or the list of them.
///
/// # Errors
/// There is no such type.
pub fn run(args: &cli::Docs) -> Result<u8, Errors> {
    let text = match &args.kind {
        None => overview(),
        Some(name) if name == FINDINGS_PAGE => findings(),
        Some(name) => page(resource::find(name).ok_or_else(|| {
            let known: Vec<&str> = TYPES.iter().map(|t| t.name()).chain([FINDINGS_PAGE]).collect();
            Error::usage(format!("there is no type `{name}`")).hint(suggest(name, &known))
        })?),
    };
    report::print(&text, &Secrets::default())?;
    Ok(0)
}

fn overview() -> String {
    let mut out = "# Resources\n\n".to_owned();
    for kind in TYPES {
        entry(&mut out, &format!("- `{}`: {}.", kind.name(), kind.summary()));
    }
    out += "\n`netplay docs TYPE` tells the keys of one.\n\n## Keys of every resource\n\n";
    entry(&mut out, "Beside the one key that names its type, an entry of `resources` or `handlers` takes:");
    out.push('\n');
    keys(&mut out, COMMON_KEYS);
    out
}

fn page(kind: &dyn AnyType) -> String {
    let mut out = format!("## {}\n\n", kind.name());
    entry(&mut out, &format!("{}.", kind.summary()));
    out.push('\n');
    keys(&mut out, kind.keys());
    out.push('\n');
    entry(&mut out, &format!("What it touches on the host: {}", kind.touches()));
    out += &format!("\nExample:\n\n```yaml\n{}```\n", kind.example());
    // Keys that share a remedy are told together, at the place of the first.
    let mut refused: Vec<(&str, Vec<String>)> = Vec::new();
    for key in kind.keys().iter().filter(|k| k.default == Need::Refused) {
        let name = format!("`{}`", key.name);
        match refused.iter_mut().find(|(remedy, _)| *remedy == key.doc) {
            Some((_, names)) => names.push(name),
            None => refused.push((key.doc, vec![name])),
        }
    }
    if !refused.is_empty() {
        out += "\nKeys known from elsewhere, and what to do instead:\n\n";
    }
    for (remedy, names) in refused {
        entry(&mut out, &format!("- {}: {remedy}.", names.join(", ")));
    }
    out
}

/// What names the page of findings.
const FINDINGS_PAGE: &str = "findings";

/// What `verify` and `audit` can find.
fn findings() -> String {
    let mut out = "# Findings\n\n".to_owned();
    entry(
        &mut out,
        "What `netplay verify` and `netplay audit` can find to be wrong, by the names that they give it. A finding tells its hosts \
         and what was seen; `{word}` below stands for what is known in the case at hand. Lines of a playbook are entries of \
         `resources`; capitals stand for what only the operator knows.",
    );
    for known in FINDINGS {
        out += &format!("\n## {}\n\n", known.name);
        entry(&mut out, known.seen);
        out.push('\n');
        entry(&mut out, &format!("- cause: {}.", known.cause));
        entry(&mut out, &format!("- remedy: {}.", known.remedy));
    }
    out
}

/// The keys that can be given.
fn keys(out: &mut String, keys: &[Key]) {
    for key in keys {
        let takes = match key.default {
            Need::Refused => continue,
            Need::Required => format!("{}; required", key.takes),
            Need::Optional => key.takes.to_owned(),
            Need::Default(value) => format!("{}; default `{value}`", key.takes),
        };
        entry(out, &format!("- `{}` ({takes}): {}", key.name, key.doc));
    }
}

/// A paragraph, or an item of a list, in lines; what is code isn't broken.
fn entry(out: &mut String, text: &str) {
    let indent = if text.starts_with("- ") { "\n  " } else { "\n" };
    let mut column = 0;
    let mut word = String::new();
    for part in text.split(' ') {
        word += part;
        if word.matches('`').count() % 2 == 1 {
            word.push(' ');
            continue;
        }
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            *out += indent;
            column = indent.len() - 1;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        *out += &word;
        column += length;
        word.clear();
    }
    out.push('\n');
}
