//! `netplay validate`: everything that can be known without a host.

use super::plays;
use crate::cli;
use crate::error::Errors;
use crate::report;
use crate::transport::Defaults;
use std::collections::HashSet;
use std::sync::Arc;

/// Checks inventory and playbooks, all hosts of all plays rendered.
///
/// # Errors
/// What is wrong.
pub fn run(args: &cli::Plays) -> Result<u8, Errors> {
    let programme = plays::load(args, false)?;
    let defaults = Arc::new(Defaults::load()?);
    let staged = plays::stage(&programme, &defaults, true, None)?;
    let names = staged.iter().flat_map(|p| &p.hosts).map(|h| &h.target.host);
    let hosts = names.collect::<HashSet<_>>().len();
    let resources: usize = staged.iter().map(|p| p.resources).sum();
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let plays = count(staged.len(), "play");
    let told = format!("valid: {plays}, {}, {} rendered\n", count(resources, "resource"), count(hosts, "host"));
    report::print(&told, &args.hosts.secrets)?;
    Ok(0)
}
