//! `netplay graph`: the graph of a host's resources in the DOT language of Graphviz.

use super::plays;
use crate::cli;
use crate::error::{Error, Errors};
use crate::graph::{self, Edge};
use crate::playbook::HostPlay;
use crate::report;
use std::fmt::Write as _;

/// Prints the graph of one host for each play that it is in.
///
/// # Errors
/// What is wrong in inventory and playbooks; a host that is in none of the plays.
pub fn run(args: &cli::Graph) -> Result<u8, Errors> {
    let programme = plays::load(&args.plays, false)?;
    let mut out = String::from("digraph netplay {\n  rankdir=LR;\n  node [shape=box];\n");
    let mut found = false;
    for (number, cast) in programme.casts.iter().enumerate() {
        let inventory = &cast.context.inventory;
        let parts = cast.render(&programme.tags)?;
        let wanted =
            |h: &crate::inventory::HostId| args.host.as_ref().is_none_or(|name| **inventory.name(*h) == **name);
        let Some(at) = cast.hosts.iter().position(wanted) else { continue };
        found = true;
        let title = format!("{} on {}", cast.play.name, inventory.name(cast.hosts[at]));
        draw(&mut out, number, &title, &parts[at].play)?;
    }
    if !found {
        let error = match &args.host {
            Some(host) => Error::usage(format!("no play has the host `{host}`")),
            None => Error::usage("no play has a host"),
        };
        return Err(error.hint("netplay inventory --graph shows all hosts").into());
    }
    out.push_str("}\n");
    report::print(&out, &args.plays.hosts.secrets)?;
    Ok(0)
}

fn draw(out: &mut String, number: usize, title: &str, play: &HostPlay) -> Result<(), Errors> {
    let graph = graph::build(play).map_err(Errors)?;
    let n = play.resources.len();
    let _ = writeln!(out, "  subgraph cluster_{number} {{\n    label={};", string(title));
    for (rank, i) in graph.order().into_iter().enumerate() {
        let item = &play.resources[i];
        let label = match &item.title {
            Some(title) => format!("{}. {}\n{title}", rank + 1, item.address),
            None => format!("{}. {}", rank + 1, item.address),
        };
        let _ = writeln!(out, "    p{number}_{i} [label={}];", string(&label));
    }
    for (h, item) in play.handlers.iter().enumerate() {
        let label = string(item.title.as_deref().unwrap_or(&item.address));
        let _ = writeln!(out, "    p{number}_{} [label={label}, style=rounded];", n + h);
    }
    for (from, to, edge) in graph.edges() {
        let style = if edge != Edge::Written { " [style=dashed]" } else { "" };
        let _ = writeln!(out, "    p{number}_{from} -> p{number}_{to}{style};");
    }
    for (from, handlers) in graph.notify.iter().enumerate() {
        for h in handlers {
            let _ = writeln!(out, "    p{number}_{from} -> p{number}_{} [style=dotted, label=notify];", n + h);
        }
    }
    if play.wants_facts {
        let _ = writeln!(out, "    p{number}_facts [label=\"what depends on facts isn't shown\", shape=note];");
    }
    out.push_str("  }\n");
    Ok(())
}

/// A quoted string of DOT; a newline in it is one in the drawing.
fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
