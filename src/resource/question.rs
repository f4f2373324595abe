//! What is asked of a host. Questions belong to groups, and the engine asks each group once a host with all its
//! arguments: a process costs the host 0.8 ms, so one process a value would double the time of a converged run.

use super::Trouble;
use crate::shell::Script;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A kind of question: how all of its arguments are asked at once, and how the output is split by argument. A type can
/// bring its own.
pub trait Group: Send + Sync + 'static {
    /// What one argument is answered with.
    type Answer: Send + Sync + 'static;
    /// Its name, unique among groups; groups are asked in the order of their names.
    const NAME: &'static str;
    /// Read-only shell text that asks for these arguments (sorted, each once). Its output goes to [`Group::split`].
    /// Fragments run in a subshell each, without standard input; `lim SECONDS TOOL…` runs a tool that can hang.
    fn compose(args: &[&str]) -> Vec<Fragment>;
    /// The answer to each argument, in their order.
    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Self::Answer, Trouble>>;
}

/// One piece of a probe.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Its text.
    pub script: Script,
    /// Seconds it may take, for text that a user wrote: it is then run apart, and its output is cut to the last
    /// 64 KiB. Nothing for reads of our own, which stream.
    pub user: Option<u32>,
}

impl From<Script> for Fragment {
    fn from(script: Script) -> Fragment {
        Fragment { script, user: None }
    }
}

/// What a fragment or a step gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code; 128 + the signal, as shells count.
    pub code: i32,
    /// Standard output; for steps and users' text what went to standard error is in it too.
    pub stdout: Vec<u8>,
    /// Standard error of a read of our own.
    pub stderr: Vec<u8>,
}

impl Output {
    /// The standard output as text, bytes that aren't UTF-8 replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// What it said that tells why it failed: standard error or else the output, trimmed. Bytes that aren't UTF-8 are
    /// written as `\xff`, and of a line over 500 characters only both its ends are told.
    pub fn complaint(&self) -> String {
        let said = if self.stderr.trim_ascii().is_empty() { &self.stdout } else { &self.stderr };
        let mut text = String::new();
        for chunk in said.trim_ascii().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
        }
        text.lines().map(both_ends).collect::<Vec<_>>().join("\n")
    }
}

/// A line, or what is short of 500 characters of it: both its ends.
pub(super) fn both_ends(line: &str) -> String {
    let left_out = line.chars().count().saturating_sub(500);
    if left_out == 0 {
        return line.to_owned();
    }
    let head: String = line.chars().take(300).collect();
    let tail: String = line.chars().skip(300 + left_out).collect();
    format!("{head} … {left_out} characters … {tail}")
}

/// A question: a group and an argument.
#[derive(Clone)]
pub struct Question {
    group: &'static dyn AnyGroup,
    arg: String,
}

impl Question {
    /// A question of a group.
    pub fn of<G: Group>(arg: impl Into<String>) -> Question {
        Question { group: &Erased::<G>(PhantomData), arg: arg.into() }
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.group.name(), self.arg)
    }
}

type AnyAnswer = Result<Arc<dyn Any + Send + Sync>, Trouble>;

trait AnyGroup: Send + Sync {
    fn name(&self) -> &'static str;
    fn compose(&self, args: &[&str]) -> Vec<Fragment>;
    fn split(&self, args: &[&str], outputs: &[Output]) -> Vec<AnyAnswer>;
}

struct Erased<G>(PhantomData<G>);

impl<G: Group> AnyGroup for Erased<G> {
    fn name(&self) -> &'static str {
        G::NAME
    }
    fn compose(&self, args: &[&str]) -> Vec<Fragment> {
        G::compose(args)
    }
    fn split(&self, args: &[&str], outputs: &[Output]) -> Vec<AnyAnswer> {
        let answers = G::split(args, outputs);
        debug_assert_eq!(answers.len(), args.len(), "{}", G::NAME);
        answers.into_iter().map(|a| a.map(|a| Arc::new(a) as Arc<dyn Any + Send + Sync>)).collect()
    }
}

/// The questions of one execution, grouped: what is asked, and how the outputs become answers.
pub struct Inquiry {
    groups: Vec<(&'static dyn AnyGroup, Vec<String>, usize)>,
    fragments: Vec<Fragment>,
}

impl Inquiry {
    /// Groups these questions; each is asked once.
    pub fn new(questions: impl IntoIterator<Item = Question>) -> Inquiry {
        let mut by_group = std::collections::BTreeMap::<&'static str, (&'static dyn AnyGroup, Vec<String>)>::new();
        for question in questions {
            by_group.entry(question.group.name()).or_insert((question.group, Vec::new())).1.push(question.arg);
        }
        let (mut groups, mut fragments) = (Vec::new(), Vec::new());
        for (group, mut args) in by_group.into_values() {
            args.sort();
            args.dedup();
            let composed = group.compose(&args.iter().map(String::as_str).collect::<Vec<_>>());
            groups.push((group, args, composed.len()));
            fragments.extend(composed);
        }
        Inquiry { groups, fragments }
    }

    /// What is to be run, in this order.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Each group's name, its arguments, and how many of the fragments are its own; in the order of the fragments.
    pub fn groups(&self) -> impl Iterator<Item = (&'static str, &[String], usize)> {
        self.groups.iter().map(|(group, args, count)| (group.name(), args.as_slice(), *count))
    }

    /// The answers, from one outcome for each fragment. A fragment without an output (cut off, too long) is the
    /// trouble of all arguments of its group.
    pub fn answers(&self, outcomes: Vec<Result<Output, Trouble>>) -> Answers {
        let mut map = HashMap::new();
        let mut outcomes = outcomes.into_iter();
        for (group, args, count) in &self.groups {
            let outputs: Result<Vec<Output>, Trouble> = outcomes.by_ref().take(*count).collect();
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            let answers = match outputs {
                Ok(outputs) if outputs.len() == *count => group.split(&words, &outputs),
                Ok(_) => vec![Err(Trouble::new("the host sent no answer")); words.len()],
                Err(trouble) => vec![Err(trouble); words.len()],
            };
            map.extend(args.iter().cloned().zip(answers).map(|(arg, answer)| ((group.name(), arg), answer)));
        }
        Answers { map }
    }
}

/// What a host answered.
#[derive(Default)]
pub struct Answers {
    map: HashMap<(&'static str, String), AnyAnswer>,
}

impl Answers {
    /// The answer to a question.
    ///
    /// # Errors
    /// The probe failed, or the question was not asked.
    pub fn get<G: Group>(&self, arg: &str) -> Result<&G::Answer, Trouble> {
        match self.map.get(&(G::NAME, arg.to_owned())) {
            Some(Ok(answer)) => answer
                .downcast_ref::<G::Answer>()
                .ok_or_else(|| Trouble::new(format!("two groups of questions are called {}", G::NAME))),
            Some(Err(trouble)) => Err(trouble.clone()),
            None => Err(Trouble::new(format!("{}({arg:?}) was not asked", G::NAME))),
        }
    }
}
