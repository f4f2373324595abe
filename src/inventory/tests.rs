//! Tests over whole inventories: what Ansible says of the same files, and what is wrong with broken ones.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

fn quiet() -> Options {
    Options { deadline: Duration::from_secs(20), ansible_cfg: None }
}

/// A folder with these files; those that begin with `#!` are executable.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    dir
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

fn load(dir: &TempDir, name: &str) -> (Inventory, Vec<Warning>) {
    Inventory::load(&[path(dir, name)], &quiet()).unwrap_or_else(|e| panic!("{e}"))
}

/// The inventory of one text.
fn of(name: &str, text: &str) -> Inventory {
    load(&folder(&[(name, text)]), name).0
}

/// The errors of these files, of which the first is the inventory, without the folder's own name.
fn errors(files: &[(&str, &str)]) -> String {
    let dir = folder(files);
    let error = Inventory::load(&[path(&dir, files[0].0)], &quiet()).map(drop).unwrap_err().to_string();
    error.replace(&format!("{}/", dir.path().display()), "")
}

fn warnings(files: &[(&str, &str)]) -> String {
    let dir = folder(files);
    let warnings = load(&dir, files[0].0).1.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    warnings.replace(&format!("{}/", dir.path().display()), "")
}

fn names(inventory: &Inventory, hosts: impl IntoIterator<Item = HostId>) -> String {
    hosts.into_iter().map(|h| inventory.name(h).to_string()).collect::<Vec<_>>().join(" ")
}

fn var(inventory: &Inventory, host: &str, name: &str) -> serde_json::Value {
    let host = inventory.host(host).unwrap();
    inventory.vars(host).get(name).map_or(serde_json::Value::Null, Node::to_json)
}

/// Each folder of `tests/cases/inventory` holds an inventory and what Ansible printed of it.
#[test]
fn ansible_says_the_same() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/inventory");
    let (mut count, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(cases).unwrap() {
        let case = entry.unwrap().path();
        let Ok(arguments) = fs::read_to_string(case.join("args")) else { continue };
        // Without a playbook, the working folder is taken for its folder.
        let (mut sources, mut playbook, mut limit) = (Vec::new(), case.clone(), None);
        let mut lines = arguments.lines();
        while let Some(option) = lines.next() {
            let value = lines.next().unwrap();
            let there = case.join(value);
            match option {
                "-i" if there.exists() => sources.push(there.display().to_string()),
                "-i" => sources.push(value.to_owned()),
                "--playbook-dir" => playbook = there,
                "--limit" => limit = Some(argument("--limit", value)),
                other => panic!("{other}"),
            }
        }
        let (inventory, _) = Inventory::load(&sources, &quiet()).unwrap_or_else(|e| panic!("{}: {e}", case.display()));
        let inventory = inventory.with_playbook_dir(&playbook).unwrap().0;
        let only = limit.map(|limit| inventory.select(&limit, None, None).unwrap().hosts);
        let said = inventory.to_list_json(only.as_deref());
        let expected: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(case.join("expected.json")).unwrap()).unwrap();
        // Compared as text, so that the order of keys counts.
        if to_text(&said) != to_text(&expected) {
            wrong.push(format!(
                "{}:\n{}",
                case.display(),
                similar::TextDiff::from_lines(&to_text(&expected), &to_text(&said)).unified_diff()
            ));
        }
        if let Ok(graph) = fs::read_to_string(case.join("expected.graph")) {
            let said = inventory.to_graph(None).unwrap();
            if said != graph.trim_end() {
                wrong.push(format!("{}:\n{graph}\nnot\n{said}", case.display()));
            }
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} cases were found");
}

#[test]
fn patterns() {
    let inventory = of(
        "hosts",
        "[web]\nweb[1:4]\n[db]\ndb[1:2]\nweb1\n[gpu]\nn[001:012]\n[empty]\n[site:children]\nweb\ndb\n[odd-name]\nx.y\nfe80::1\n",
    );
    let failed = ["web2".to_owned(), "gone7".to_owned()];
    let select = |text: &str| {
        let found = inventory.select(&argument("hosts", text), None, Some(&failed)).unwrap_or_else(|e| panic!("{e}"));
        fold(found.hosts.iter().map(|h| &**inventory.name(*h)))
    };
    for (pattern, hosts) in [
        ("web1", "web1"),
        ("web", "web[1-4]"),
        ("web,db", "web[1-4],db[1-2]"),
        ("web:db", "web[1-4],db[1-2]"),
        ("web : db", "web[1-4],db[1-2]"),
        ("site", "web[1-4],db[1-2]"),
        ("web:&db", "web1"),
        ("web:!db", "web[2-4]"),
        ("!db:web", "web[2-4]"),
        ("!gpu:!odd-name", "web[1-4],db[1-2]"),
        ("&db", "web1,db[1-2]"),
        ("site:&web:!web3", "web[1-2,4]"),
        ("all:!gpu:!odd-name", "web[1-4],db[1-2]"),
        ("*", "n[001-012],x.y,fe80::1,web[1-4],db[1-2]"),
        ("web?", "web[1-4]"),
        ("d*", "db[1-2],web1"),
        ("*.y", "x.y"),
        ("n00[1-3]", "n[001-003]"),
        ("n[002-004,7]".replace("7", "007").as_str(), "n[002-004,007]"),
        ("n[001:003],web1", "n[001-003],web1"),
        ("!n[001-010]:gpu", "n[011-012]"),
        ("web[1-2]", "web[1-2]"),
        ("web[0]", "web1"),
        ("web[-1]", "web4"),
        ("web[1:2]", "web[2-3]"),
        ("web[2:]", "web[3-4]"),
        ("web[0:99]", "web[1-4]"),
        ("w*[1]", "web2"),
        ("~web[13]", "web[1,3]"),
        ("~(web|db)1$", "web1,db1"),
        ("~n\\d{2,3}:!gpu", ""),
        ("~n00[1-2]:&gpu", "n[001-002]"),
        ("fe80::1", "fe80::1"),
        ("web1,fe80::1", "web1,fe80::1"),
        ("empty", ""),
        ("empty:web1", "web1"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("@failed", "web2"),
        ("web:!@failed", "web[1,3-4]"),
        ("odd-name", "x.y,fe80::1"),
    ] {
        assert_eq!(select(pattern), hosts, "{pattern}");
    }
}
