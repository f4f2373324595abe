//! `netplay run -- CMD`: one command on the fleet, identical output folded.

use super::survey::{self, Judgement};
use crate::cli;
use crate::error::{Error, Errors};
use crate::event::{CommandOutput, Event};
use crate::playbook::Become;
use crate::resource::Inquiry;
use crate::resource::probes::line::CommandLine;
use crate::shell::Script;
use std::ffi::OsString;

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
    let arg = CommandLine::argument(args.reach.timeout, &text);
    let inquiry = Inquiry::new([CommandLine::ask(&arg)]);
    let keywords = Become { enabled: args.become_, user: None };
    survey::ask("run", argv, &args.hosts, &args.reach, &keywords, &inquiry, &|host, answers| {
        let (code, output) = match answers.get::<CommandLine>(&arg) {
            Ok(output) => (output.code, output.stdout.clone()),
            Err(trouble) => (255, trouble.message.into_bytes()),
        };
        let output = CommandOutput { host: host.clone(), code, output, limit: args.reach.timeout };
        Judgement { event: Event::Output(Box::new(output)), good: code == 0, warnings: Vec::new() }
    })
}
