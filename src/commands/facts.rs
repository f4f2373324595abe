//! `netplay facts`: what is to be known of the hosts.

use super::survey::{self, Judgement};
use crate::cli;
use crate::error::Errors;
use crate::event::Event;
use crate::facts;
use crate::playbook::Become;
use crate::resource::Inquiry;
use std::ffi::OsString;

/// Asks and prints.
///
/// # Errors
/// What is wrong before a host is reached.
pub fn run(args: &cli::Facts, argv: &[OsString]) -> Result<u8, Errors> {
    let inquiry = Inquiry::new(facts::questions());
    survey::ask("facts", argv, &args.hosts, &args.reach, &Become::default(), &inquiry, &|host, answers| {
        let (facts, warnings) = facts::read(answers);
        Judgement { event: Event::Facts { host: host.clone(), facts }, good: true, warnings }
    })
}
