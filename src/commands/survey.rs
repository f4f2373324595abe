//! Asking all hosts the same, without a play: what `facts` and `run` do.

use super::{
    Origin, again, carriers, context, defaults, extra, limited, load_inventory, look, shared, some_hosts, target,
    unlock, vault,
};
use crate::cli::{Hosts, Reach};
use crate::engine::run::survey;
use crate::engine::visit::{Site, Visit};
use crate::error::{Error, Errors};
use crate::event::{Event, RunStarted};
use crate::plan::Policy;
use crate::playbook::{Become, HostPlay, Variables};
use crate::report::{self, Reporters};
use crate::resource::{Answers, Inquiry};
use crate::transport::{Defaults, Identity, Target, become_from_variables};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

struct Place<'d> {
    target: Target,
    variables: Variables,
    defaults: &'d Defaults,
}

impl Place<'_> {
    fn who(&self, keywords: &Become) -> Result<Identity, Error> {
        let lookup = |name: &str| look(&self.variables, name);
        become_from_variables(&lookup, Some(keywords.enabled), keywords.user.as_deref(), self.defaults)
    }
}

impl Site for Place<'_> {
    fn with_facts(&self, _: &serde_json::Value) -> Result<HostPlay, String> {
        Ok(HostPlay::default())
    }

    fn identity(&self, keywords: &Become) -> Result<Identity, String> {
        self.who(keywords).map_err(|e| e.to_string())
    }

    fn knows_handler(&self, _: &str) -> bool {
        true
    }
}

/// What a host's answers mean.
pub(super) struct Judgement {
    /// What is told of them.
    pub(super) event: Event,
    /// Whether that is good.
    pub(super) good: bool,
    /// What the operator should know.
    pub(super) warnings: Vec<String>,
}

/// Judges what a host answered.
type Judge<'j> = dyn Fn(&Arc<str>, &Answers) -> Judgement + Sync + 'j;

/// Asks the hosts and tells what `judge` makes of the answers. Gives the exit code; an event of a host that says that
/// it failed counts.
pub(super) fn ask(
    command: &'static str,
    argv: &[OsString],
    hosts: &Hosts,
    reach: &Reach,
    keywords: &Become,
    inquiry: &Inquiry,
    judge: &Judge<'_>,
) -> Result<u8, Errors> {
    let inventory = load_inventory(hosts, &vault(hosts)?)?;
    let outputs = reach.outputs()?;
    let defaults = defaults(reach)?;
    let context = context(&inventory, hosts, &extra(hosts, inventory.vault())?, Path::new("."))?;
    // What a host prints may be any secret that it has.
    let hosts_of = limited(&context.inventory, hosts)?;
    if hosts_of.is_empty() {
        some_hosts(&inventory, hosts)?;
        report::warning("--limit leaves no host", hosts.color(), &hosts.secrets);
    }
    context.inventory.learn_secrets(&hosts_of);
    let mut places = Vec::new();
    for id in hosts_of {
        let variables = context.variables(id);
        let target = target(context.inventory.name(id), &variables, &defaults)?;
        let place = Place { target, variables, defaults: &defaults };
        place.who(keywords)?;
        places.push(place);
    }
    let keyring = unlock(places.iter().map(|place| &place.target), hosts);
    let scripts = hosts.verbosity() >= crate::report::Verbosity::Scripts;
    let shared = shared(reach, &defaults, carriers(keyring), scripts)?;
    let mut reporters = Reporters::open(&outputs, hosts.color(), hosts.verbosity(), &hosts.secrets)?;
    // Facts are only looked at.
    let log = if command == "run" { super::log(&mut reporters, &shared.run, hosts) } else { None };
    let name = |place: &Place<'_>| -> Arc<str> { place.target.host.as_str().into() };
    let mut sink = |event: Event| reporters.event(&event);
    sink(Event::RunStarted(RunStarted {
        plays: vec![(command.into(), places.iter().map(name).collect())],
        ..Origin::of(hosts, &[]).started(&shared.run, command, argv)
    }));
    let visit = |place: &Place<'_>, send: &(dyn Fn(Event) + Sync)| {
        let visit = Visit {
            shared: &shared,
            target: &place.target,
            site: place,
            play: command.into(),
            policy: Policy::default(),
            events: send,
            patient: false,
            confirm: crate::engine::guard::Proof::default(),
            canary: None,
        };
        let (mut told, answers) = visit.ask(inquiry, keywords);
        let host: Arc<str> = place.target.host.as_str().into();
        if let Some(answers) = answers {
            let judgement = judge(&host, &answers);
            send(judgement.event);
            told.warnings.extend(judgement.warnings);
            if !judgement.good {
                told.status = crate::event::HostStatus::Failed;
            }
        }
        told
    };
    let mut finished = survey(&shared, reach.forks.into(), &places, name, visit, &mut sink);
    finished.again = again::command(&finished, false, argv);
    finished.log = log;
    let code = finished.exit_code;
    sink(Event::RunFinished(Box::new(finished)));
    Ok(super::close(reporters, code, hosts))
}
