//! Errors found before anything is touched: a kind, a place, a cause and what to do.
//!
//! What goes wrong on a host while it is visited isn't an [`Error`]: it is an outcome of the run, told as an event.

use crate::source::Span;
use std::fmt;

/// What an error is about. All of them end the command with exit code 1, nothing touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command line, or the machine that netplay runs on.
    Usage,
    /// The inventory and its variables.
    Inventory,
    /// A playbook, or a file that it names.
    Playbook,
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub struct Error {
    /// What it is about.
    pub kind: Kind,
    /// What is wrong: lower case, one sentence, no full stop.
    pub message: String,
    /// Where.
    pub place: Option<Span>,
    /// Further places that take part in it, with a word about each.
    pub also: Vec<(Span, String)>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl Error {
    /// An error without a place.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), place: None, also: Vec::new(), hints: Vec::new() }
    }

    /// An error of the command line.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::new(Kind::Usage, message)
    }

    /// An error of an inventory, at a place.
    pub fn inventory(span: &Span, message: impl Into<String>) -> Error {
        Error::new(Kind::Inventory, message).at(span)
    }

    /// An error of a playbook, at a place.
    pub fn playbook(span: &Span, message: impl Into<String>) -> Error {
        Error::new(Kind::Playbook, message).at(span)
    }

    /// The same error at this place.
    #[must_use]
    pub fn at(mut self, span: &Span) -> Error {
        self.place = Some(span.clone());
        self
    }

    /// The same error with one more place.
    #[must_use]
    pub fn also(mut self, span: &Span, note: impl Into<String>) -> Error {
        self.also.push((span.clone(), note.into()));
        self
    }

    /// All of these as one, the first with the places of the others; nothing if there are none.
    pub fn all(errors: Vec<Error>) -> Option<Error> {
        errors.into_iter().reduce(|mut first, other| {
            first.also.extend(other.place.map(|place| (place, other.message)));
            first.hints.extend(other.hints);
            first
        })
    }

    /// The same error with the place that names the file it is in, which is its own place if it has none.
    #[must_use]
    pub fn named(self, span: &Span) -> Error {
        if self.place.is_some() { self.also(span, "named here") } else { self.at(span) }
    }

    /// The same error with one more hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hints.push(hint.into());
        self
    }

    /// The same error as one of another kind.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Error {
        self.kind = kind;
        self
    }
}

/// As it is shown: message, place with the line underlined, hints; several lines, no final newline.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |f: &mut fmt::Formatter<'_>, span: &Span| -> fmt::Result {
            write!(f, "\n  --> {span}")?;
            if span.source.decrypted {
                write!(f, " (as `ansible-vault view` shows it)")?;
            }
            for line in span.excerpt().iter().flat_map(|e| e.lines().map(str::to_owned).collect::<Vec<_>>()) {
                write!(f, "\n   {line}")?;
            }
            Ok(())
        };
        write!(f, "{}", self.message)?;
        if let Some(span) = &self.place {
            place(f, span)?;
        }
        for (span, note) in &self.also {
            write!(f, "\n  {note}:")?;
            place(f, span)?;
        }
        for hint in &self.hints {
            write!(f, "\n  help: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// All the errors of one command, in the order in which they were found; never empty.
#[derive(Debug, Clone)]
pub struct Errors(pub Vec<Error>);

impl From<Error> for Errors {
    fn from(error: Error) -> Errors {
        Errors(vec![error])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}error: {error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// The known name that is nearest to a misspelt one, if one is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&folded, &k.to_lowercase()), k))
        .filter(|(distance, k)| *distance <= 1 + k.chars().count().max(folded.chars().count()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// The hint that goes with an unknown name: the nearest known one, then all of them.
pub fn suggest(name: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? known: {all}"),
        None => format!("known: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn an_error_names_place_and_remedy() {
        let source = Source::new("site.yaml", "- hosts: all\n  resorces: []\n");
        let error = Error::playbook(&Span::at(&source, 2, 3, 8), "unknown key `resorces` in a play")
            .hint(suggest("resorces", &["hosts", "resources"]));
        assert_eq!(
            Errors::from(error).to_string(),
            "error: unknown key `resorces` in a play\n  --> site.yaml:2:3\n   2 |   resorces: []\n     |   ^^^^^^^^\n  \
             help: did you mean `resources`? known: hosts, resources"
        );
    }

    #[test]
    fn a_far_name_is_not_suggested() {
        assert_eq!(nearest("xyz", ["interface", "mtu"]), None);
        assert_eq!(nearest("inteface", ["interface", "mtu"]), Some("interface"));
    }
}
