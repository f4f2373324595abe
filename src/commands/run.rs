//! `netplay run -- CMD`: one command on the fleet, identical output folded.

use super::survey::{self, Judgement};
use crate::cli;
use crate::error::{Error, Errors};
use crate::event::{CommandOutput, Event};
use crate::playbook::Become;
use crate::resource::{Fragment, Group, Inquiry, Output, Question, Trouble};
use crate::shell::Script;
use std::ffi::OsString;

/// The one question of this command. It is run as a user's text is: apart, in time, and the last 64 KiB of its output
/// are kept.
struct Command;

impl Group for Command {
    type Answer = Output;
    const NAME: &'static str = "command line";
    fn compose(args: &[&str]) -> Vec<Fragment> {
        let fragment = |arg: &&str| {
            let (seconds, text) = arg.split_once(' ').unwrap_or(("", arg));
            Fragment {
                script: Script::new().user(text),
                user: Some(seconds.parse().unwrap_or(crate::plan::STEP_SECONDS)),
            }
        };
        args.iter().map(fragment).collect()
    }
    fn split(_: &[&str], outputs: &[Output]) -> Vec<Result<Output, Trouble>> {
        outputs.iter().map(|o| Ok(o.clone())).collect()
    }
}

/// Runs it.
///
/// # Errors
/// What is wrong before a host is reached.
pub fn run(args: &cli::Run, argv: &[OsString]) -> Result<u8, Errors> {
    if args.command.iter().any(|w| w.contains('\0')) {
        return Err(Error::usage("a command can't have a NUL character in it").into());
    }
    let text = match args.command.as_slice() {
        [text] => text.clone(),
        words => Script::new().command(words).as_str().to_owned(),
    };
    let arg = format!("{} {text}", args.reach.timeout);
    let inquiry = Inquiry::new([Question::of::<Command>(arg.as_str())]);
    let keywords = Become { enabled: args.become_, user: None };
    survey::ask("run", argv, &args.hosts, &args.reach, &keywords, &inquiry, &|host, answers| {
        let (code, output) = match answers.get::<Command>(&arg) {
            Ok(output) => (output.code, output.stdout.clone()),
            Err(trouble) => (255, trouble.message.into_bytes()),
        };
        let output = CommandOutput { host: host.clone(), code, output, limit: args.reach.timeout };
        Judgement { event: Event::Output(Box::new(output)), good: code == 0, warnings: Vec::new() }
    })
}
