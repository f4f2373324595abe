//! Playbooks and hosts together: what `apply`, `validate` and `graph` begin with. All hosts of all plays are rendered
//! here, before the first connection.

use super::{Origin, context, extra, load_inventory, look, some_hosts, target, vault, warn};
use crate::cli;
use crate::engine::boot::{self, Way};
use crate::engine::exam::Exam;
use crate::engine::guard::Proof;
use crate::engine::run;
use crate::engine::visit::{Place, Site};
use crate::error::{Error, Errors, suggest};
use crate::facts;
use crate::graph;
use crate::inventory::vault::Vault;
use crate::inventory::{HostId, argument};
use crate::plan::{Confirming, Policy, Rung};
use crate::playbook::{
    Become, Context, Drain, HostPlay, HostReboot, Play, Playbook, Reboot, Settings, Tags, Variables,
};
use crate::report;
use crate::source::{Source, Span};
use crate::transport::{Carrier, Defaults, Identity, Target, become_from_variables};
use crate::verify::{Check, Pairs};
use crate::yaml::Node;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// How many errors are told before the rest is only counted.
const TOLD: usize = 20;

/// A play with its hosts and the context that it is rendered in.
pub(super) struct Cast {
    /// The play.
    pub(super) play: Arc<Play>,
    /// What holds for it as a whole.
    settings: Settings,
    /// Its hosts.
    pub(super) hosts: Vec<HostId>,
    /// Its hosts before `--limit`.
    all: Vec<HostId>,
    /// What it is rendered in.
    pub(super) context: Arc<Context>,
}

/// The playbooks' plays with their hosts, and the tags that were asked for.
pub(super) struct Programme {
    /// The plays, in their order.
    pub(super) casts: Vec<Cast>,
    /// Which resources are wanted.
    pub(super) tags: Arc<Tags>,
}

/// Loads playbooks and inventory and finds the hosts of each play.
/// With `image` only what lasts is looked at and done.
pub(super) fn load(args: &cli::Plays, image: bool) -> Result<Programme, Errors> {
    let vault = vault(&args.hosts)?;
    let books = args.playbooks.iter().map(|path| Playbook::load(path, &vault)).collect();
    cast(args, books, &vault, image)
}

/// The same with playbooks that were read.
pub(super) fn cast(
    args: &cli::Plays,
    read: Vec<Result<Playbook, Errors>>,
    vault: &Arc<Vault>,
    image: bool,
) -> Result<Programme, Errors> {
    let mut errors = Vec::new();
    let mut books = Vec::new();
    for book in read {
        match book {
            Ok(book) => books.push(book),
            Err(found) => errors.extend(found.0),
        }
    }
    let inventory = match load_inventory(&args.hosts, vault) {
        Ok(inventory) if errors.is_empty() => inventory,
        Ok(_) => return Err(told(errors)),
        Err(found) => {
            errors.extend(found.0);
            return Err(told(errors));
        }
    };
    let known: BTreeSet<Arc<str>> = books.iter().flat_map(Playbook::tags).collect();
    for (option, tags) in [("--tags", &args.tags), ("--skip-tags", &args.skip_tags)] {
        errors.extend(tags.iter().filter_map(|tag| unknown_tag(option, tag.trim(), &known)));
    }
    let tags = Arc::new(Tags::new(args.tags.iter().map(String::as_str), args.skip_tags.iter().map(String::as_str)));
    let limit = args.hosts.limit.as_ref().map(|l| argument("--limit", l));
    let origin = Origin::of(&args.hosts, &args.playbooks);
    let failed = || origin.left();
    let extra = extra(&args.hosts, vault)?;
    let mut casts = Vec::new();
    let mut emptied = Vec::new();
    let mut warned = HashSet::new();
    for book in books {
        let context = context(&inventory, &args.hosts, &extra, book.dir())?;
        for mut play in book.plays {
            play.image = image;
            warn(&play.warnings(), &args.hosts);
            let found = play.settings(&context).and_then(|settings| {
                let selection = context.inventory.select(&settings.hosts, limit.as_ref(), Some(&failed))?;
                let all = match &limit {
                    None => selection.hosts.clone(),
                    Some(_) => context.inventory.select(&settings.hosts, None, Some(&failed))?.hosts,
                };
                if limit.is_some() && selection.hosts.is_empty() {
                    emptied.extend(left_out(&play, all.len()));
                }
                Ok((settings, selection, all))
            });
            match found {
                Ok((settings, mut selection, all)) => {
                    // What is said of --limit is the same for each play.
                    selection.warnings.retain(|warning| warned.insert(warning.to_string()));
                    if selection.hosts.is_empty() && limit.is_none() && selection.warnings.is_empty() {
                        let message = format!("the play `{}` has no hosts: its pattern leaves none", play.name);
                        selection.warnings.push(Error::inventory(&settings.hosts.span, message));
                    }
                    warn(&selection.warnings, &args.hosts);
                    let context = context.clone();
                    casts.push(Cast { play: Arc::new(play), settings, hosts: selection.hosts, all, context });
                }
                Err(found) => errors.extend(found.0),
            }
        }
    }
    if !errors.is_empty() {
        return Err(told(errors));
    }
    if casts.iter().all(|c| c.hosts.is_empty()) {
        some_hosts(&inventory, &args.hosts)?;
    }
    // That no host failed is no mistake of whoever asks for those that did: there is nothing to do.
    if !emptied.is_empty() && origin.left.get().is_none() {
        let message = format!("--limit leaves no host of {}", emptied.join(", nor of "));
        if casts.iter().all(|c| c.hosts.is_empty()) {
            return Err(Error::usage(message)
                .hint("netplay inventory --graph shows which hosts are in which group")
                .into());
        }
        report::warning(&message, args.hosts.color(), &args.hosts.secrets);
    }
    Ok(Programme { casts, tags })
}

/// A play that would have hosts but for the limit, as it is told.
fn left_out(play: &Play, n: usize) -> Option<String> {
    (n > 0).then(|| format!("`{}` ({n} host{})", play.name, if n == 1 { "" } else { "s" }))
}

/// A tag that no resource has would leave everything out, or nothing, and say that all is well.
fn unknown_tag(option: &str, tag: &str, known: &BTreeSet<Arc<str>>) -> Option<Error> {
    const SPECIAL: [&str; 5] = ["all", "always", "never", "tagged", "untagged"];
    if tag.is_empty() || known.contains(tag) || SPECIAL.contains(&tag) {
        return None;
    }
    let error = Error::usage(format!("{option}: no resource has the tag `{tag}`"));
    let names: Vec<&str> = known.iter().map(|t| &**t).collect();
    Some(if names.is_empty() { error.hint("the playbooks have no tags") } else { error.hint(suggest(tag, &names)) })
}

/// Each error once, and not more of them than can be read.
fn told(errors: Vec<Error>) -> Errors {
    let mut seen = HashSet::new();
    let mut kept: Vec<Error> = Vec::new();
    for error in errors {
        if seen.insert(error.to_string()) {
            kept.push(error);
        }
    }
    let more = kept.len().saturating_sub(TOLD);
    kept.truncate(TOLD);
    if more > 0 {
        kept.push(Error::usage(format!("and {more} more errors")));
    }
    Errors(kept)
}

/// A play rendered for one of its hosts.
pub(super) struct Part {
    /// The host.
    pub(super) host: HostId,
    /// The host's variables in this play.
    pub(super) variables: Variables,
    /// The play, as far as it can be known without facts.
    pub(super) play: HostPlay,
}

impl Cast {
    /// Renders the play for all of its hosts and checks each host's graph.
    pub(super) fn render(&self, tags: &Tags) -> Result<Vec<Part>, Errors> {
        let one = |host: &HostId| -> Result<Part, Errors> {
            let variables = self.play.variables(&self.context, *host)?;
            let play = self.play.render(&variables, tags, None)?;
            graph::build(&play).map_err(Errors)?;
            Ok(Part { host: *host, variables, play })
        };
        let rendered: Vec<Result<Part, Errors>> = self.hosts.par_iter().map(one).collect();
        let (mut parts, mut errors) = (Vec::with_capacity(rendered.len()), Vec::new());
        for part in rendered {
            match part {
                Ok(part) => parts.push(part),
                Err(found) => errors.extend(found.0),
            }
        }
        if errors.is_empty() { Ok(parts) } else { Err(told(errors)) }
    }
}

/// Where a play's host is: what the engine asks of it.
struct Stage {
    play: Arc<Play>,
    tags: Arc<Tags>,
    host: HostId,
    name: Arc<str>,
    variables: Variables,
    defaults: Arc<Defaults>,
    handlers: Arc<HashMap<HostId, HashSet<Arc<str>>>>,
}

impl Site for Stage {
    fn with_facts(&self, facts: &serde_json::Value) -> Result<HostPlay, String> {
        let span = Span::start(&Source::new(format!("facts of {}", self.name), String::new()));
        let image = self.play.image.then(|| facts::of_image(facts));
        let facts = Node::from_json(&span, image.as_ref().unwrap_or(facts));
        self.play.render(&self.variables, &self.tags, Some(&facts)).map_err(|e| told(e.0).to_string())
    }

    fn identity(&self, keywords: &Become) -> Result<Identity, String> {
        identity(&self.variables, keywords, &self.defaults).map_err(|e| e.to_string())
    }

    fn knows_handler(&self, address: &str) -> bool {
        self.handlers.get(&self.host).is_some_and(|known| known.contains(address))
    }
}

fn identity(variables: &Variables, keywords: &Become, defaults: &Defaults) -> Result<Identity, Error> {
    let lookup = |name: &str| look(variables, name);
    become_from_variables(&lookup, Some(keywords.enabled), keywords.user.as_deref(), defaults)
}

/// Renders everything and finds out how each host is reached: what the engine needs, and nothing is left that could
/// only be found wrong after the first connection, but for what depends on facts.
pub(super) fn stage(
    programme: &Programme,
    defaults: &Arc<Defaults>,
    check: bool,
    when: Option<cli::When>,
) -> Result<Vec<run::Play>, Errors> {
    let mut errors = Vec::new();
    let mut rendered = Vec::new();
    for cast in &programme.casts {
        match cast.render(&programme.tags) {
            Ok(parts) => rendered.push(parts),
            Err(found) => errors.extend(found.0),
        }
    }
    if !errors.is_empty() {
        return Err(told(errors));
    }
    let mut handlers = HashMap::<HostId, HashSet<Arc<str>>>::new();
    for parts in &rendered {
        for part in parts {
            if !part.play.handlers.is_empty() {
                handlers.entry(part.host).or_default().extend(part.play.handlers.iter().map(|h| h.address.clone()));
            }
        }
    }
    let handlers = Arc::new(handlers);
    let mut targets = HashMap::<(usize, HostId), Target>::new();
    let mut plays = Vec::new();
    for (cast, parts) in programme.casts.iter().zip(rendered) {
        let reboots = !cast.play.image && when.map_or(cast.play.reboots(), |when| when == cli::When::Needed);
        let rung = if cast.play.cycles_power() { Rung::PowerCycle } else { Rung::Reboot };
        let policy = Policy {
            check,
            stop_on_error: cast.play.stop_on_error,
            confirm: match &cast.play.confirm {
                None => Confirming::Never,
                Some(confirm) => Confirming::Within { timeout: confirm.timeout, all: confirm.all },
            },
            boots: reboots.then_some(rung),
        };
        let become_ = parts.first().map(|part| part.play.become_.clone()).unwrap_or_default();
        let mut hosts = Vec::with_capacity(parts.len());
        let (mut nodes, mut groups) = (HashMap::new(), HashMap::new());
        for Part { host, variables, play } in parts {
            let name = cast.context.inventory.name(host).clone();
            let key = (Arc::as_ptr(&cast.context) as usize, host);
            let found = match targets.get(&key) {
                Some(known) => Ok(known.clone()),
                None => target(&name, &variables, defaults),
            };
            // Most of a play's resources are of one user.
            let mut users: Vec<&Become> = Vec::new();
            for item in play.resources.iter().chain(&play.handlers) {
                if !users.contains(&&item.become_) {
                    users.push(&item.become_);
                }
            }
            let checked = users.into_iter().map(|k| identity(&variables, k, defaults)).find_map(Result::err);
            match (found, checked) {
                (Err(found), _) => errors.extend(found.0),
                (_, Some(error)) => errors.push(error),
                (Ok(found), None) if cast.play.image && found.carrier != Carrier::Local => {
                    let message = format!("with --root, {name} has to be this machine, and it is reached by SSH");
                    errors.push(Error::usage(message).hint(
                        "give the host that stands for the image `ansible_connection: local`, and name it by --limit",
                    ));
                }
                (Ok(found), None) => {
                    targets.insert(key, found.clone());
                    if !cast.settings.checks.is_empty() {
                        groups.insert(name.to_string(), cast.context.inventory.group_names(host));
                    }
                    if cast.settings.checks.iter().any(Check::is_heavy) {
                        match node(&Drain::Slurm, &name, &variables) {
                            Ok(node) => _ = nodes.insert(name.to_string(), node),
                            Err(found) => errors.extend(found.0),
                        }
                    }
                    let way = match reboots.then(|| way(&cast.play, &name, &variables)).transpose() {
                        Ok(way) => way.unwrap_or_default(),
                        Err(found) => {
                            errors.extend(found.0);
                            continue;
                        }
                    };
                    let site = Stage {
                        play: cast.play.clone(),
                        tags: programme.tags.clone(),
                        host,
                        name: name.clone(),
                        variables,
                        defaults: defaults.clone(),
                        handlers: handlers.clone(),
                    };
                    let (play, site) = (Mutex::new(play), Box::new(site));
                    hosts.push(run::Host { target: found, play, site, way, leads_to: Arc::new([]) });
                }
            }
        }
        let reboot = match reboots.then(|| cast.reboot(become_, defaults)).transpose() {
            Ok(reboot) => reboot,
            Err(found) => {
                errors.extend(found.0);
                None
            }
        };
        plays.push(run::Play {
            reboot,
            confirm: cast.play.confirm.as_ref().map_or_else(Proof::default, |confirm| Proof {
                command: confirm.command.clone(),
                path_mtu: confirm.path_mtu,
                leads_to: Arc::new([]),
            }),
            exam: (!cast.settings.checks.is_empty() && !cast.play.image).then(|| Exam {
                checks: cast.settings.checks.clone(),
                pairs: Pairs::default(),
                busy: false,
                nodes,
                groups,
                keywords: cast.settings.become_.clone(),
            }),
            name: cast.play.name.clone(),
            hosts,
            serial: cast.settings.serial.clone(),
            max_fail_percentage: cast.settings.max_fail_percentage,
            policy,
            resources: cast.play.len(),
        });
    }
    refuse(&mut plays);
    if errors.is_empty() { Ok(plays) } else { Err(told(errors)) }
}

/// What is to be known of a host for its boot.
fn way(play: &Play, name: &str, variables: &Variables) -> Result<Way, Errors> {
    let HostReboot { drain, power_cycle, .. } = play.host_reboot(variables)?;
    Ok(Way { drain: drained(drain, name, variables)?, power_cycle, ..Way::default() })
}

/// How a host of this name is drained.
fn drained(drain: Drain, name: &str, variables: &Variables) -> Result<boot::Drain, Errors> {
    let node = || node(&drain, name, variables);
    Ok(match &drain {
        Drain::None => boot::Drain::None,
        Drain::Slurm => boot::Drain::Slurm(node()?),
        Drain::SlurmReboots => boot::Drain::SlurmReboots(node()?),
        Drain::Kubernetes => boot::Drain::Kubernetes(node()?),
        Drain::Command { drain, undrain } => boot::Drain::Command { drain: drain.clone(), undrain: undrain.clone() },
    })
}

/// A host's name at the scheduler: `slurm_node`, `kubernetes_node`, or else its own.
fn node(drain: &Drain, name: &str, variables: &Variables) -> Result<String, Errors> {
    let variable = if *drain == Drain::Kubernetes { "kubernetes_node" } else { "slurm_node" };
    let value = variables.get(variable)?;
    let text = value.as_ref().and_then(Node::text).unwrap_or(name);
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if text.is_empty() || text.starts_with('-') || !text.bytes().all(good) {
        let error = Error::usage(format!("`{text}` can't be the name of a node"));
        let error = value.as_ref().map_or(error.clone(), |node| error.at(&node.span));
        return Err(error.hint(format!("set `{variable}` of {name} to its name at the scheduler")).into());
    }
    Ok(text.to_owned())
}

/// Which hosts are reached through which others, in their order: by the name of a hop, and by its address and port.
#[derive(Default)]
struct Hops {
    by_name: HashMap<String, Vec<(usize, String)>>,
    by_place: HashMap<(String, u16), Vec<(usize, String)>>,
}

impl Hops {
    fn of<'t>(targets: impl Iterator<Item = &'t Target>) -> Hops {
        let mut hops = Hops::default();
        for (at, target) in targets.enumerate() {
            for hop in &target.jumps {
                hops.by_name.entry(hop.host.clone()).or_default().push((at, target.host.clone()));
                let place = (hop.address.clone(), hop.port);
                hops.by_place.entry(place).or_default().push((at, target.host.clone()));
            }
        }
        hops
    }

    /// The places of the other hosts that are reached through this one.
    fn users_of(&self, target: &Target) -> BTreeSet<usize> {
        let users = [self.by_name.get(&target.host), self.by_place.get(&(target.address.clone(), target.port))];
        let others = users.into_iter().flatten().flatten().filter(|(_, host)| *host != target.host);
        others.map(|(at, _)| *at).collect()
    }
}

/// What others of the run need isn't booted in it: whoever is reached through it would be lost meanwhile. A change that may cut it
/// off is confirmed only if it still leads to one of them.
fn refuse(plays: &mut [run::Play]) {
    let targets = || plays.iter().flat_map(|p| &p.hosts).map(|h| &h.target);
    let hops = Hops::of(targets());
    let all: Vec<&Target> = targets().collect();
    // A few of many are enough.
    let of = |target: &&Target| hops.users_of(target).into_iter().take(8).map(|at| all[at].clone()).collect();
    let users: Vec<Arc<[Target]>> = all.iter().map(of).collect();
    let mut users = users.into_iter();
    for play in plays {
        let desk = play.reboot.as_ref().map(|r| r.desk.target.host.clone());
        for host in &mut play.hosts {
            let of = &host.target;
            host.leads_to = users.next().unwrap_or_else(|| Arc::new([]));
            host.way.refused = match host.leads_to.first() {
                _ if of.carrier == Carrier::Local => {
                    Some("it is the machine that netplay runs on, and wouldn't see the run to its end".to_owned())
                }
                Some(other) => Some(format!("{} is reached through it in this run", other.host)),
                None if desk.as_deref() == Some(of.host.as_str()) => {
                    Some("the commands of `drain` and `power_cycle` run on it (`drain_on`)".to_owned())
                }
                None => None,
            };
        }
    }
}

/// The machine that netplay runs on.
struct Here;

impl Site for Here {
    fn with_facts(&self, _: &serde_json::Value) -> Result<HostPlay, String> {
        Ok(HostPlay::default())
    }

    fn identity(&self, _: &Become) -> Result<Identity, String> {
        Ok(Identity::Login)
    }

    fn knows_handler(&self, _: &str) -> bool {
        true
    }
}

impl Cast {
    /// How the play boots its hosts.
    fn reboot(&self, become_: Become, defaults: &Arc<Defaults>) -> Result<boot::Reboot, Errors> {
        let Reboot { max_unavailable, timeout, drain_timeout, drain_on, firmware_reset } = &self.settings.reboot;
        let inventory = &self.context.inventory;
        let named = drain_on.as_deref().filter(|name| *name != "localhost" || inventory.host("localhost").is_some());
        let desk = match named {
            None => Place {
                target: Target::from_variables(
                    "localhost",
                    &|name| Ok((name == "ansible_connection").then(local)),
                    defaults,
                )?,
                site: Box::new(Here),
                keywords: Become::default(),
            },
            Some(name) => {
                let Some(host) = inventory.host(name) else {
                    let error = Error::usage(format!(
                        "`drain_on` of the play `{}` names {name}, which the inventory doesn't know",
                        self.play.name
                    ));
                    return Err(error.hint("name a host of the inventory, or leave it out for this machine").into());
                };
                let variables = self.context.variables(host);
                let target = target(name, &variables, defaults)?;
                identity(&variables, &become_, defaults)?;
                let site = Stage {
                    play: self.play.clone(),
                    tags: Arc::default(),
                    host,
                    name: name.into(),
                    variables,
                    defaults: defaults.clone(),
                    handlers: Arc::default(),
                };
                Place { target, site: Box::new(site), keywords: become_ }
            }
        };
        let (mut nodes, mut domains) = (HashMap::new(), HashMap::new());
        for &host in &self.all {
            let variables = self.play.variables(&self.context, host)?;
            let name = inventory.name(host).clone();
            let HostReboot { domain, drain, .. } = self.play.host_reboot(&variables)?;
            if let Some(node) = drained(drain, &name, &variables)?.node() {
                nodes.insert(node.to_owned(), name.clone());
            }
            domains.extend(domain.map(|domain| (name, domain)));
        }
        let seconds = |s: &u32| std::time::Duration::from_secs((*s).into());
        Ok(boot::Reboot {
            max_unavailable: *max_unavailable,
            hosts: self.all.len(),
            timeout: seconds(timeout),
            drain_timeout: seconds(drain_timeout),
            desk,
            firmware_reset: *firmware_reset,
            nodes,
            domains,
        })
    }
}

/// The value of `ansible_connection` for this machine.
fn local() -> Node {
    Node::string(&Span::start(&Source::new("netplay", String::new())), "local")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_reached_through_whom() {
        let at = |host: &str, address: &str| Target { address: address.to_owned(), ..Target::for_tests(host) };
        let gate = at("gate", "10.0.0.1");
        let behind = |host: &str, jumps: Vec<Target>| Target { jumps, ..at(host, host) };
        let all = [
            gate.clone(),
            behind("n1", vec![at("10.0.0.1", "10.0.0.1")]),
            behind("n2", vec![at("gate", "gate.example")]),
            behind("n3", vec![at("n1", "n1"), at("n3", "n3")]),
        ];
        let hops = Hops::of(all.iter());
        assert_eq!(hops.users_of(&gate).first(), Some(&1), "by its address, as what comes first");
        assert_eq!(hops.users_of(&Target { port: 2222, ..gate }).first(), Some(&2), "by its name at another port");
        assert_eq!(hops.users_of(&all[1]).first(), Some(&3));
        assert_eq!(
            (hops.users_of(&all[2]).first(), hops.users_of(&all[3]).first()),
            (None, None),
            "nobody is in its own way"
        );
    }
}
