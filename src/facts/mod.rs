//! What a host is: asked in one execution, and given to templates as `facts`.
//!
//! The shape is part of the language: docs/playbook.md lists it. Units are in the names. What isn't there is null; what
//! couldn't be found out is null too, with a warning that says why.

mod host;
mod network;
mod rdma;
mod roce;
mod root;

use crate::resource::owner::OwnerList;
use crate::resource::probes::links::{LinkList, Links};
use crate::resource::probes::session::{Session, SessionEnds};
use crate::resource::{Answers, Group, Question};
use host::Host;
use network::Devices;
use rdma::Rdma;
use root::Root;
use serde_json::{Value, json};

/// All that has to be asked for the facts of a host.
pub fn questions() -> Vec<Question> {
    vec![
        LinkList::ask(),
        SessionEnds::ask(),
        OwnerList::ask(),
        Question::of::<Host>(""),
        root(),
        Question::of::<Devices>(""),
        Question::of::<Rdma>(""),
    ]
}

/// What has to be asked for [`fleeting`].
pub fn root() -> Question {
    Question::of::<Root>("")
}

/// Where something is written that doesn't survive a reboot, and why: the host's root, or what netplay notes there.
pub fn fleeting(answers: &Answers) -> Option<(&'static str, &'static str)> {
    let root = answers.get::<Root>("").ok()?;
    let state = || root.forgetful.map(|why| ("/var/lib/netplay", why));
    root.fleeting.map(|why| ("its root", why)).or_else(state)
}

/// The facts that the answers to [`questions`] give, and what the operator should know.
pub fn read(answers: &Answers) -> (Value, Vec<String>) {
    let mut warnings = Vec::new();
    let host = get::<Host>(answers, &mut warnings);
    let root = get::<Root>(answers, &mut warnings);
    let devices = get::<Devices>(answers, &mut warnings);
    let rdma = get::<Rdma>(answers, &mut warnings);
    let links = get::<LinkList>(answers, &mut warnings);
    let owners = get::<OwnerList>(answers, &mut warnings);
    let session = get::<SessionEnds>(answers, &mut warnings);

    let ports = rdma.map(|rdma| rdma.ports(links, devices));
    let interfaces = links.map(|links| {
        let interface = |link| {
            let device = devices.and_then(|d| d.of(link));
            let port = ports.as_ref().and_then(|ports| rdma::port_of(ports, link, device));
            let owner = owners.and_then(|o| o.of(link)).map(|o| o.owner.name());
            network::interface(link, device, port, owner)
        };
        links.all.iter().map(interface).collect::<Value>()
    });
    warnings.extend(root.and_then(|root| root.fleeting).map(|why| {
        format!(
            "what is written to this host's root doesn't survive a reboot ({why}): make what is to last in its image"
        )
    }));
    if let (Some(owners), Some(links)) = (owners, links) {
        warnings.extend(links.all.iter().filter_map(|link| owners.contradiction(link)));
    }
    let of_host = |key: &str| host.map_or(Value::Null, |h| h[key].clone());
    let mut machine = of_host("host");
    if let Some(machine) = machine.as_object_mut() {
        machine.insert("root_persistent".to_owned(), json!(root.and_then(|root| root.persistent)));
    }
    let facts = json!({
        "host": machine,
        "os": of_host("os"),
        "kernel": of_host("kernel"),
        "cpus": of_host("cpus"),
        "memory_mib": of_host("memory_mib"),
        "interfaces": interfaces,
        "rdma": ports.map(|ports| ports.iter().map(rdma::Port::value).collect::<Value>()),
        "service_manager": of_host("service_manager"),
        "session": over(session, links),
    });
    (facts, warnings)
}

/// What of these facts is those of an image too: all else is of a machine that runs, and of another one.
pub fn of_image(facts: &Value) -> Value {
    let keep = |(key, value): (&String, &Value)| (key.clone(), if key == "os" { value.clone() } else { Value::Null });
    Value::Object(facts.as_object().into_iter().flatten().map(keep).collect())
}

fn get<'a, G: Group>(answers: &'a Answers, warnings: &mut Vec<String>) -> Option<&'a G::Answer> {
    match answers.get::<G>("") {
        Ok(answer) => Some(answer),
        Err(trouble) => {
            warnings.push(format!("a part of the facts is missing: {}", trouble.message));
            None
        }
    }
}

/// The interface and the address of the host that the session goes to; null without SSH.
fn over(session: Option<&Session>, links: Option<&Links>) -> Value {
    let interface = session.and_then(|s| s.interface(links?)).map(|link| &link.name);
    let address = match session {
        Some(Session::Ssh { address, .. }) => Some(address.to_string()),
        Some(Session::Local) | None => None,
    };
    json!({ "interface": interface, "address": address })
}

#[cfg(test)]
mod tests;
