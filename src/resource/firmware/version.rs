//! Versions of firmware, `28.39.1002`, and what is asked of them.

use crate::error::Error;
use crate::resource::spec::text;
use crate::yaml::Node;
use std::fmt;

/// Numbers between dots, which are compared as such.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(Vec<u32>);

/// Which versions will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    AtLeast(Version),
    OneOf(Vec<Version>),
}

impl Version {
    /// Reads one; nothing if it is none.
    pub(super) fn of(text: &str) -> Option<Version> {
        let parts: Option<Vec<u32>> = text.trim().split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() > 1).map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last part is written with four digits, as the tools do (`20.35.1012`, `2.42.5000`, `28.40.0100`).
        let (last, rest) = self.0.split_last().unwrap_or((&0, &[]));
        rest.iter().try_for_each(|part| write!(f, "{part}."))?;
        if self.0.len() == 3 { write!(f, "{last:04}") } else { write!(f, "{last}") }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::AtLeast(version) => write!(f, "{version} or later"),
            Rule::OneOf(all) => f.write_str(&all.iter().map(Version::to_string).collect::<Vec<_>>().join(" or ")),
        }
    }
}

impl Rule {
    /// Reads what a playbook asks.
    ///
    /// # Errors
    /// It isn't a version, at its place.
    pub(super) fn of(node: &Node) -> Result<Rule, Error> {
        if let Some(items) = node.as_seq() {
            if items.is_empty() {
                return Err(Error::playbook(&node.span, "`version` has none of them").hint("name those that are right"));
            }
            let one = |item| {
                let given = text("version", item)?;
                if given.trim().starts_with(">=") {
                    let message = format!("`{}` isn't one version, which the items of a list are", given.trim());
                    return Err(Error::playbook(&item.span, message)
                        .hint("write it in the place of the list, or list each version that is right"));
                }
                version(item, &given)
            };
            return items.iter().map(one).collect::<Result<_, _>>().map(Rule::OneOf);
        }
        let given = text("version", node)?;
        match given.trim().strip_prefix(">=") {
            Some(least) => version(node, least).map(Rule::AtLeast),
            None => version(node, given.trim().trim_start_matches('=')).map(|exact| Rule::OneOf(vec![exact])),
        }
    }

    pub(super) fn fits(&self, version: &Version) -> bool {
        match self {
            Rule::AtLeast(least) => version >= least,
            Rule::OneOf(all) => all.contains(version),
        }
    }
}

fn version(node: &Node, text: &str) -> Result<Version, Error> {
    Version::of(text).ok_or_else(|| {
        Error::playbook(&node.span, format!("`{}` is no version of a firmware", text.trim().escape_default()))
            .hint("write `16.35.4030`, `\">= 16.35.4030\"`, or a list of versions")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        let of = |text: &str| Version::of(text).unwrap();
        assert!(of("16.35.4030") > of("16.35.999") && of("16.35.4030") > of("9.99.9999"));
        assert_eq!(of(" 28.40.0100 ").to_string(), "28.40.0100");
        assert_eq!(
            [Version::of("16"), Version::of(""), Version::of("a.b"), Version::of("16.35.4030 x")],
            [None, None, None, None]
        );
        assert!(Rule::AtLeast(of("16.35.4030")).fits(&of("16.35.4030")));
        assert!(!Rule::AtLeast(of("16.35.4030")).fits(&of("16.35.4029")));
        assert!(Rule::OneOf(vec![of("1.2.3"), of("1.2.5")]).fits(&of("1.2.0005")));
    }
}
