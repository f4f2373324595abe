//! A command line as a question: run as a user's text is, apart, in time, and the last 64 KiB of its output are kept.

use crate::resource::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;

/// The group. An argument is the seconds that it may take, a blank, and the text.
pub struct CommandLine;

impl CommandLine {
    /// Its argument.
    pub fn argument(seconds: u32, text: &str) -> String {
        format!("{seconds} {text}")
    }

    /// The question.
    pub fn ask(argument: &str) -> Question {
        Question::of::<CommandLine>(argument)
    }
}

impl Group for CommandLine {
    type Answer = Output;
    const NAME: &'static str = "command line";
    fn compose(args: &[&str]) -> Vec<Fragment> {
        let fragment = |arg: &&str| {
            let (seconds, text) = arg.split_once(' ').unwrap_or(("", arg));
            Fragment { script: Script::new().user(text), user: Some(seconds.parse().unwrap_or(120)) }
        };
        args.iter().map(fragment).collect()
    }
    fn split(_: &[&str], outputs: &[Output]) -> Vec<Result<Output, Trouble>> {
        outputs.iter().map(|o| Ok(o.clone())).collect()
    }
}
