//! What the fuzzer calls with whatever it makes up, and the test that calls it with the corpora in `fuzz/corpus`, so
//! that neither grows stale. None of it may panic, run for seconds or need much memory; what else must hold is asserted.

#![expect(clippy::unwrap_used, reason = "only what is being tested must not panic")]

use netplay::engine::reader::Reader;
use netplay::error::Kind;
use netplay::graph;
use netplay::hostlist;
use netplay::inventory::vault::Vault;
use netplay::inventory::{Inventory, Options, argument};
use netplay::playbook::{Context, Extra, Playbook, Tags};
use netplay::resource::Fragment;
use netplay::shell::Script;
use netplay::source::{Source, Span};
use netplay::transport::{Dialogue, Reply};
use netplay::yaml;
use std::collections::HashSet;

/// A YAML inventory.
pub(crate) fn inventory_yaml(data: &[u8]) {
    inventory("hosts.yaml", data);
}

/// An INI inventory. One without an ending may be YAML as well, so that this is both.
pub(crate) fn inventory_ini(data: &[u8]) {
    inventory("hosts", data);
}

fn options() -> Options {
    Options { ansible_cfg: None, ..Options::default() }
}

fn inventory(name: &str, data: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, data).unwrap();
    let (read, _) = match Inventory::load(&[path.display().to_string()], &options()) {
        Ok(read) => read,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let all: Vec<_> = read.hosts().collect();
    assert_eq!(all.len(), all.iter().collect::<HashSet<_>>().len(), "a host is listed twice");
    for host in all.iter().take(100) {
        assert_eq!(read.host(read.name(*host)), Some(*host));
        read.group_names(*host);
    }
    read.to_list_json(Some(&all[..all.len().min(100)]));
    // Groups with several parents are drawn below each of them, so that a few can make a tree without end.
    if read.groups().count() < 10 && all.len() < 1000 {
        read.to_graph(None).unwrap();
    }
}

/// A pattern of hosts in the first line, and lists of hosts in the others.
pub(crate) fn pattern(data: &[u8]) {
    thread_local! {
        static INVENTORY: Inventory = small();
    }
    let text = String::from_utf8_lossy(data);
    for line in text.lines().take(10) {
        INVENTORY.with(|inventory| {
            let all: HashSet<_> = inventory.hosts().collect();
            if let Ok(found) = inventory.select(&argument("--limit", line), None, None) {
                let hosts: HashSet<_> = found.hosts.iter().copied().collect();
                assert_eq!(hosts.len(), found.hosts.len(), "a host is chosen twice");
                let implicit = |h: &_| matches!(&**inventory.name(*h), "localhost" | "127.0.0.1" | "::1");
                assert!(hosts.iter().all(|h| all.contains(h) || implicit(h)));
            }
        });
        let place = Span::start(&Source::new("hosts", line));
        let names = hostlist::split_list(line).into_iter().map(|(_, part)| hostlist::expand(part, &place));
        let Ok(names) = names.collect::<Result<Vec<_>, _>>() else { continue };
        let names: Vec<String> = names.into_iter().flatten().collect();
        // What is printed can be given again. A name with a bracket or comma in it can't be meant.
        if names.len() < 2000 && names.iter().all(|n| !n.contains(['[', ']', ',']) && n.trim() == n && !n.is_empty()) {
            let folded = hostlist::fold(names.iter().map(String::as_str));
            let place = Span::start(&Source::new("hosts", &*folded));
            let again = hostlist::split_list(&folded);
            let again = again.into_iter().flat_map(|(_, part)| hostlist::expand(part, &place).unwrap());
            assert_eq!(again.collect::<HashSet<_>>(), names.into_iter().collect::<HashSet<_>>(), "{folded}");
        }
    }
}

const HOSTS: &str = "
all:
  vars: {fabric_mtu: 9000, nics: [eth0, eth1], mode: 0644, deep: {a: [1, {b: 'x'}]}}
  children:
    gpu:
      hosts:
        gpu[01:03]: {rack: r1}
      vars: {template: '{{ inventory_hostname }}-{{ rack }}'}
    login:
      hosts: {login1: {rack: r2, ansible_host: 10.0.0.9}}
    fabric: {children: {gpu: {}, login: {}}}
    empty: {}
";

fn small() -> Inventory {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts.yaml");
    std::fs::write(&path, HOSTS).unwrap();
    Inventory::load(&[path.display().to_string()], &options()).unwrap().0
}

const FACTS: &str = "
host: {name: gpu01, fqdn: gpu01.example.com, boot_id: x, virtual: null, root_persistent: true}
os: {family: debian, id: debian, version: '12'}
kernel: 6.1.0
cpus: {count: 8, online: 0-7, isolated: '', numa: [{node: 0, cpus: 0-7}]}
memory_mib: 16000
interfaces: [{name: eth0, kind: null, mtu: 1500, driver: mlx5_core, rdma: mlx5_0}]
rdma: [{name: mlx5_0, netdev: eth0, port: 1, state: ACTIVE}]
service_manager: systemd
session: {interface: eth0, address: 10.0.0.1}
";

/// A playbook, loaded and rendered for a small inventory without facts and with them. Further files, each begun by a
/// line `%% NAME`, lie beside it: what it includes, templates, variables.
pub(crate) fn playbook(data: &[u8]) {
    thread_local! {
        static INVENTORY: Inventory = small();
    }
    let text = String::from_utf8_lossy(data);
    let folder = tempfile::tempdir().unwrap();
    let (mut name, mut body) = ("site.yaml", String::new());
    let put = |name: &str, body: &str| {
        let known = ["site.yaml", "more.yaml", "vars.yaml", "a.j2", "templates/b.j2", "files/c"];
        if known.contains(&name) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, body).unwrap();
        }
    };
    for line in text.split_inclusive('\n') {
        match line.strip_prefix("%% ") {
            Some(next) => {
                put(name, &body);
                (name, body) = (next.trim_end(), String::new());
            }
            None => body += line,
        }
    }
    put(name, &body);
    let book = match Playbook::load(&folder.path().join("site.yaml"), &Vault::default()) {
        Ok(book) => book,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let inventory = INVENTORY.with(Inventory::clone);
    let context = Context::new(inventory, Extra::default(), folder.path());
    let facts = yaml::load_one(&Source::new("facts", FACTS), Kind::Playbook).unwrap().unwrap();
    for play in &book.plays {
        if let Ok(settings) = play.settings(&context) {
            let _ = context.inventory.select(&settings.hosts, None, None);
        }
        for host in ["gpu01", "login1"].into_iter().filter_map(|name| context.inventory.host(name)) {
            let Ok(variables) = play.variables(&context, host) else { continue };
            for facts in [None, Some(&facts)] {
                match play.render(&variables, &Tags::default(), facts) {
                    Ok(rendered) => {
                        assert!(facts.is_none() || !rendered.wants_facts, "facts are known and yet asked for");
                        if let Ok(graph) = graph::build(&rendered) {
                            assert_eq!(graph.order().len(), rendered.resources.len());
                        }
                        rendered.resources.iter().for_each(|item| _ = (item.resource.probe(), item.resource.claims()));
                    }
                    Err(errors) => assert!(!errors.to_string().is_empty()),
                }
            }
        }
    }
}

/// What a host prints while a batch runs. The first byte tells how it is cut into pieces, which must not matter.
pub(crate) fn reader(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let feed = |chunk: usize| {
        let mut reader = Reader::new("N0NCE", "true".to_owned());
        assert!(matches!(reader.begin(), Reply::Write { end: true, .. }));
        for bytes in bytes.chunks(chunk) {
            if matches!(reader.stdout(bytes), Reply::Finish) {
                break;
            }
        }
        let fragments = vec![Fragment::from(Script::default()); 3];
        let noise = reader.noise();
        assert!(noise.len() <= 3 * 4096, "noise is kept without end");
        let waited_for = reader.waited_for().map(str::to_owned);
        let steps = format!("{:?}", reader.steps());
        (reader.ending().clone(), noise, waited_for, reader.state(), steps, reader.outputs(&fragments))
    };
    let whole = feed(bytes.len().max(1));
    assert_eq!(whole, feed(usize::from(cut % 32) + 1));
}

/// A file that may be encrypted as a whole, or have encrypted values.
pub(crate) fn vault(data: &[u8]) {
    let mut vault = Vault::default();
    vault.add(None, "secret").unwrap();
    vault.add(Some("lab"), "another").unwrap();
    let Ok(source) = vault.text("secrets.yaml", data.to_vec(), Kind::Inventory) else { return };
    let Ok(Some(node)) = yaml::load_one(&source, Kind::Inventory) else { return };
    vault.conceal(&node);
    vault.learn(&node);
    if let Ok(opened) = vault.open_all(&node) {
        assert!(!netplay::inventory::vault::any_sealed(&opened), "a value is still encrypted");
    }
}

/// A target of the fuzzer and its name.
#[cfg(test)]
type Target = (&'static str, fn(&[u8]));

#[cfg(test)]
const TARGETS: &[Target] = &[
    ("inventory_ini", inventory_ini),
    ("inventory_yaml", inventory_yaml),
    ("pattern", pattern),
    ("playbook", playbook),
    ("reader", reader),
    ("vault", vault),
];

#[test]
fn what_the_fuzzer_found_is_handled() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for entry in std::fs::read_dir(fuzz.join("corpus").join(name)).unwrap() {
            target(&std::fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 10, "{name} has no corpus");
        assert!(fuzz.join("targets").join(format!("{name}.rs")).exists(), "the fuzzer has no target {name}");
    }
}
