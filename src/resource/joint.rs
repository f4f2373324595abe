//! What several resources do together: one transaction of a package manager for all packages of a segment.
//!
//! The plan puts the parts of one [`Joint`] that hang on the same things into one script. What came of each part is told
//! by itself, so that what depends on one part isn't kept back by the failure of another.

use super::Output;
use crate::shell::Script;
use std::fmt::{self, Debug};

/// A kind of thing that is done for several resources at once.
pub trait Joint: Sync {
    /// Its name, unique among joints.
    fn name(&self) -> &'static str;
    /// Shell text that does all of these parts within so many seconds. With exit code 0 its output ends with a line
    /// `== parts`, then for each part, counted from 1, a line `== NUMBER CODE` and what is to be told of that part alone.
    /// Another exit code is that of all parts.
    fn script(&self, parts: &[&str], seconds: u32) -> Script;
}

/// A resource's part of a [`Joint`].
#[derive(Clone)]
pub struct Share {
    /// Of what.
    pub of: &'static dyn Joint,
    /// What is to be done, in the joint's own words.
    pub part: String,
}

impl Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.of.name(), self.part)
    }
}

/// What came of each of so many parts; nothing of a part that the output doesn't tell of. A part that failed without words
/// of its own has those of all.
pub fn parts(output: &Output, count: usize) -> Vec<Option<Output>> {
    if output.code != 0 {
        return vec![Some(output.clone()); count];
    }
    let text = output.text();
    let mut all = vec![None; count];
    let (common, told) = match text.rsplit_once("== parts\n") {
        Some((common, told)) if common.is_empty() || common.ends_with('\n') => (common, told),
        _ => return all,
    };
    let mut at: Option<(usize, i32, String)> = None;
    let mut close = |at: Option<(usize, i32, String)>| {
        if let Some((number, code, own)) = at
            && let Some(slot) = number.checked_sub(1).and_then(|i| all.get_mut(i))
        {
            let said = if own.is_empty() { common } else { own.as_str() };
            *slot = Some(Output { code, stdout: said.as_bytes().to_vec(), stderr: Vec::new() });
        }
    };
    for line in told.lines() {
        let mut words = line.strip_prefix("== ").unwrap_or_default().split(' ');
        let head = words.next().and_then(|w| w.parse().ok()).zip(words.next().and_then(|w| w.parse().ok()));
        match head.filter(|_| words.next().is_none()) {
            Some((number, code)) => close(at.replace((number, code, String::new()))),
            None => {
                if let Some((_, _, own)) = &mut at {
                    own.push_str(line);
                    own.push('\n');
                }
            }
        }
    }
    close(at);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: i32, text: &str) -> Vec<Option<(i32, String)>> {
        let output = Output { code, stdout: text.into(), stderr: Vec::new() };
        parts(&output, 2).into_iter().map(|p| p.map(|o| (o.code, o.text().into_owned()))).collect()
    }

    #[test]
    fn each_part_is_told_by_itself() {
        let some = |code, text: &str| Some((code, text.to_owned()));
        let text = "== parts\nE: broken\n== parts\n== 1 0\n== 2 1\nno such\n== x\n";
        assert_eq!(told(0, text), [some(0, "== parts\nE: broken\n"), some(1, "no such\n== x\n")]);
        assert_eq!(told(0, "E: broken\n== parts\n== 1 1\n"), [some(1, "E: broken\n"), None]);
        assert_eq!(told(0, "== parts\n== 2 0\n== 7 0\n== 0 0\n"), [None, some(0, "")]);
        assert_eq!(told(0, "x== parts\n== 1 0\n"), [None, None]);
        assert_eq!(told(100, "E: locked\n"), [some(100, "E: locked\n"), some(100, "E: locked\n")]);
    }
}
