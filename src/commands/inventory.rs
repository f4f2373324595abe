//! `netplay inventory`: the inventory as it is understood.

use super::{limited, load_inventory, usage, vault, warn};
use crate::cli;
use crate::error::{Error, Errors, nearest};
use crate::inventory::{HostId, to_text};
use crate::report;
use std::path::Path;

/// Prints it.
///
/// # Errors
/// What is wrong in the inventory; a host that it doesn't know.
pub fn run(args: &cli::Inventory) -> Result<u8, Errors> {
    let inventory = load_inventory(&args.hosts, &vault(&args.hosts)?)?;
    // As ansible-inventory does, what lies in the working folder counts as beside the playbook.
    let (inventory, warnings) = inventory.with_playbook_dir(Path::new("."))?;
    warn(&warnings, &args.hosts);
    let whole = |hosts: &[HostId]| {
        let sealed = hosts.iter().flat_map(|h| inventory.sealed(*h)).next();
        sealed.map_or(Ok(()), |e| Err(Errors::from(e.clone())))
    };
    let text = if let Some(name) = &args.host {
        let Some(host) = inventory.host(name) else {
            let known: Vec<&str> = inventory.hosts().map(|h| &**inventory.name(h)).collect();
            let error = Error::usage(format!("the inventory has no host `{name}`"));
            return Err(match nearest(name, known) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("netplay inventory --graph shows all"),
            }
            .into());
        };
        whole(&[host])?;
        to_text(&inventory.to_host_json(host))
    } else if args.graph {
        inventory.to_graph(None).map_err(usage)?
    } else {
        let only = args.hosts.limit.is_some().then(|| limited(&inventory, &args.hosts)).transpose()?;
        let all: Vec<HostId> = inventory.hosts().collect();
        whole(only.as_deref().unwrap_or(&all))?;
        to_text(&inventory.to_list_json(only.as_deref()))
    };
    report::print(&format!("{text}\n"), &args.hosts.secrets)?;
    Ok(0)
}
