//! Tests over whole inventories: what Ansible says of the same files, and what is wrong with broken ones.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

fn quiet() -> Options {
    Options { deadline: Duration::from_secs(20), ansible_cfg: None, vault: Arc::default() }
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

#[test]
fn addresses_in_brackets_are_hosts() {
    let inventory = of("hosts.yaml", "all: {hosts: {'[2001:db8::1]': , '[fe80::1%eth0]:22': }}");
    assert_eq!(names(&inventory, inventory.hosts()), "2001:db8::1 fe80::1%eth0");
    let (inventory, _) = Inventory::load(&["[2001:db8::1],[fe80::1%eth0]:22".to_owned()], &quiet()).unwrap();
    assert_eq!(names(&inventory, inventory.hosts()), "2001:db8::1 fe80::1%eth0");
    let told = errors(&[("hosts", "[g]\n[2001:db8::1]\n")]);
    assert!(told.contains("without brackets: `2001:db8::1`, or `[2001:db8::1]:PORT`"), "{told}");
}

#[test]
fn what_has_a_nul_is_no_inventory() {
    let told = errors(&[("hosts.ini", "n1\nn2 x=\0\n")]);
    assert!(told.contains("a NUL is in it") && told.contains("--> hosts.ini:2:6"), "{told}");
}

#[test]
fn what_is_too_much_is_an_error() {
    let told = errors(&[("hosts", &"n[1:99999]\n".repeat(12))]);
    assert!(told.contains("lists more than 1000000 hosts\n  --> hosts:11:1"), "{told}");
    let mut deep = String::new();
    (0..2000).for_each(|i| deep += &format!("[g{i}:children]\ng{}\n", i + 1));
    let told = errors(&[("hosts", &format!("{deep}[g2000]\nn1\n"))]);
    assert!(told.contains("is nested deeper than 1000 groups\n  --> hosts:"), "{told}");
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "a: &a\n".repeat(100_000), "- ".repeat(100_000)] {
        assert!(errors(&[("hosts.yaml", &text)]).len() > 20, "{}", &text[..4]);
        assert!(errors(&[("hosts.sh", &format!("#!/bin/sh\ncat <<'E'\n{text}\nE\n"))]).len() > 20, "{}", &text[..4]);
    }
    // Long lines and deep values of INI are texts.
    let text = format!("n1 a={} b={}\n", "[".repeat(100_000), "x".repeat(1_000_000));
    assert_eq!(of("hosts", &text).hosts().count(), 1);
}

#[test]
fn what_is_no_file_is_not_read() {
    let dir = folder(&[("inv/hosts", "n1\n")]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("inv/pipe")).unwrap();
    let told = Inventory::load(&[path(&dir, "inv")], &quiet()).unwrap_err().to_string();
    assert!(told.contains("inv/pipe is neither a file nor a folder"), "{told}");
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
                similar::TextDiff::from_lines(to_text(&expected).as_str(), to_text(&said).as_str()).unified_diff()
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
fn patterns_of_ansible() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/inventory/patterns");
    let inventory = Inventory::load(&[case.join("hosts.ini").display().to_string()], &quiet()).unwrap().0;
    let expected = fs::read_to_string(case.join("expected")).unwrap();
    for line in expected.lines() {
        let (pattern, hosts) = line.split_once('\t').unwrap();
        let selected = inventory.select(&argument("hosts", pattern), None, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(names(&inventory, selected.hosts), hosts, "{pattern}");
    }
    assert!(expected.lines().count() > 40);
}

#[test]
fn patterns() {
    let inventory = of(
        "hosts",
        "[web]\nweb[1:4]\n[db]\ndb[1:2]\nweb1\n[gpu]\nn[001:012]\n[empty]\n[site:children]\nweb\ndb\n[odd-name]\nx.y\nfe80::1\n",
    );
    let failed = || Ok(vec!["web2".to_owned(), "gone7".to_owned()]);
    let select = |text: &str| {
        let found = inventory.select(&argument("hosts", text), None, Some(&failed)).unwrap_or_else(|e| panic!("{e}"));
        hostlist::fold(found.hosts.iter().map(|h| &**inventory.name(*h)))
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
        ("db2,web:!web1", "db2,web[2-4]"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("@failed", "web2"),
        ("web:!@failed", "web[1,3-4]"),
        ("@failed:!web2", ""),
        ("@failed:web1", "web[1-2]"),
        ("odd-name", "x.y,fe80::1"),
    ] {
        assert_eq!(select(pattern), hosts, "{pattern}");
    }
}

#[test]
fn a_limit_leaves_what_it_names_in_the_order_of_the_pattern() {
    let inventory = of("hosts", "[g]\nb\na\nc\n");
    let selected = inventory.select(&argument("hosts", "g"), Some(&argument("--limit", "c,b")), None).unwrap();
    assert_eq!(names(&inventory, selected.hosts), "b c");
    let hosts = crate::yaml::load_one(&Source::new("site.yaml", "[b, '!a', g]"), Kind::Playbook).unwrap().unwrap();
    assert_eq!(names(&inventory, inventory.select(&hosts, None, None).unwrap().hosts), "b c");
}

#[test]
fn a_file_of_hosts() {
    let inventory = of("hosts", "[g]\na\nb\nc\nd\n");
    let dir = folder(&[("list", "# those that failed\na\n\n  b:c\n!c\n"), ("bad", "a\n  nobody\n"), ("none", "#\n")]);
    let select = |name: &str| inventory.select(&argument("--limit", &format!("@{}", path(&dir, name))), None, None);
    assert_eq!(names(&inventory, select("list").unwrap().hosts), "a b");
    assert!(select("none").unwrap().warnings[0].message.ends_with("names no host"));
    let error = select("bad").unwrap_err().to_string();
    assert!(error.contains("called `nobody`") && error.contains("bad:2:3"), "{error}");
    let error = select("missing").unwrap_err().to_string();
    assert!(error.contains("doesn't exist\n  --> --limit:1:1"), "{error}");
}

#[test]
fn patterns_that_mean_nothing_are_told() {
    let inventory = of("hosts", "[web]\nweb[1:3]\n[empty]\n[n]\nn1\nn2\n");
    let select = |text: &str| inventory.select(&argument("hosts", text), None, None);
    for (pattern, message, place) in [
        ("web9", "no host and no group of the inventory is called `web9`", "hosts:1:1\n   1 | web9\n     | ^^^^"),
        ("web:!wbe", "called `wbe`", "hosts:1:5\n   1 | web:!wbe\n     |     ^^^^\n  help: did you mean `web`?"),
        ("web,n[1-3]", "called `n3`", "hosts:1:5\n"),
        ("web1 web2", "called `web1 web2`", "help: names are separated by `:` or `,`"),
        ("web[7]", "`web[7]` is beyond the 3 hosts", "help: the first is [0], the last [2] or [-1]"),
        ("web[-4]", "beyond the 3 hosts", "hosts:1:1"),
        ("web[1", "`[` without `]`", "hosts:1:4"),
        ("web[ab]", "brackets are never a choice of characters", "hosts:1:5"),
        ("~web(", "isn't a regular expression", "unclosed group"),
        ("@failed", "`@failed` isn't known here", "help: name the hosts"),
        ("", "an empty pattern of hosts", "help: `all` means every host"),
        ("nothing", "called `nothing`", "help: groups: all, ungrouped, web, empty, n"),
    ] {
        let error = select(pattern).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(place), "{pattern}: {error}");
    }
    let warning = |text: &str| {
        let selected = select(text).unwrap();
        (selected.hosts.len(), selected.warnings.iter().map(|w| w.message.clone()).collect::<Vec<_>>().join("; "))
    };
    assert_eq!(warning("empty"), (0, "the group `empty` has no hosts".to_owned()));
    assert_eq!(warning("web:!empty"), (3, String::new()));
    assert_eq!(warning("x*"), (0, "`x*` matches no host".to_owned()));
    assert_eq!(warning("web[5:9]"), (0, "`web[5:9]` takes none of the 3 hosts".to_owned()));
    let (count, text) = warning("n[1:2]");
    assert_eq!(count, 1);
    assert!(text.contains("a part of the group `n`, not a range of hosts from `n1`"), "{text}");
    assert_eq!(warning("n[1-2]"), (2, String::new()));
    let null = crate::yaml::load_one(&Source::new("site.yaml", "hosts: "), Kind::Playbook).unwrap().unwrap();
    let error = inventory.select(null.get("hosts").unwrap(), None, None).unwrap_err().to_string();
    assert!(error.contains("a string or a list of them, not nothing"), "{error}");
}

#[test]
fn a_host_has_variables_groups_and_places() {
    let dir = folder(&[
        ("inv/hosts.ini", "[web]\nw1 a=1 b='x'\nw2\n[web:vars]\na=0\nc=[1, 2]\n[all:vars]\nd=1.10\n"),
        ("inv/group_vars/web.yml", "e: 0644\n"),
        ("play/group_vars/all.yml", "d: over\n"),
        ("play/host_vars/w1.yml", "b: over\n"),
        ("other/host_vars/w2.yml", "b: other\n"),
    ]);
    let (inventory, warnings) = load(&dir, "inv/hosts.ini");
    assert!(warnings.is_empty());
    let vars = inventory.vars(inventory.host("w1").unwrap());
    let seen: Vec<String> =
        vars.iter().map(|(name, value)| format!("{name}={}", value.text().unwrap_or("…"))).collect();
    let (file, folder) = (path(&dir, "inv/hosts.ini"), path(&dir, "inv"));
    assert_eq!(seen.join(" "), format!("a=1 b=x c=… d=1.10 e=0644 inventory_dir={folder} inventory_file={file}"));
    let place =
        |name: &str| vars.get(name).unwrap().span.to_string().replace(&format!("{}/", dir.path().display()), "");
    assert_eq!(place("a"), "inv/hosts.ini:2:6");
    assert_eq!(place("b"), "inv/hosts.ini:2:8");
    assert_eq!(place("c"), "inv/hosts.ini:6:3");
    assert_eq!(place("e"), "inv/group_vars/web.yml:1:4");
    assert!(vars.get("z").is_none());
    let (w1, w2) = (inventory.host("w1").unwrap(), inventory.host("w2").unwrap());
    assert!(Arc::ptr_eq(&inventory.vars(w1).shared, &inventory.vars(w2).shared), "group variables are shared");
    let with = inventory.with_playbook_dir(&dir.path().join("play")).unwrap().0;
    assert_eq!((var(&with, "w1", "b"), var(&with, "w1", "a")), ("over".into(), 1.into()));
    assert_eq!((var(&with, "w2", "d"), var(&inventory, "w2", "d")), ("over".into(), 1.1.into()));
    // Another playbook replaces the first.
    let with = with.with_playbook_dir(&dir.path().join("other")).unwrap().0;
    assert_eq!(
        (var(&with, "w1", "b"), var(&with, "w2", "b"), var(&with, "w1", "d")),
        ("x".into(), "other".into(), 1.1.into())
    );
}

#[test]
fn groups_are_what_templates_see() {
    let inventory = of("hosts", "u\n[b]\nh1\n[a:children]\nb\n[a]\nh2\n");
    let groups: Vec<String> = inventory
        .groups()
        .map(|(name, hosts)| format!("{name}: {}", names(&inventory, hosts.iter().copied())))
        .collect();
    assert_eq!(groups.join("; "), "all: u h2 h1; ungrouped: u; b: h1; a: h2 h1");
    let of_host = |host: &str| inventory.group_names(inventory.host(host).unwrap()).join(" ");
    assert_eq!((of_host("h1"), of_host("u"), of_host("localhost")), ("a b".into(), "ungrouped".into(), String::new()));
    assert_eq!(names(&inventory, inventory.hosts()), "u h2 h1");
}

#[test]
fn localhost_is_there_without_being_named() {
    let inventory = of("hosts", "h\n[all:vars]\nx=1\n");
    assert_eq!(var(&inventory, "localhost", "ansible_connection"), "local");
    assert_eq!(var(&inventory, "::1", "x"), 1);
    assert!(inventory.to_list_json(None)["_meta"]["hostvars"].get("localhost").is_none());
    assert_eq!(inventory.select(&argument("hosts", "local*"), None, None).unwrap().hosts, []);
    // One that is named stands for all its names and isn't made local.
    let inventory = of("hosts", "127.0.0.1\n");
    assert_eq!(inventory.host("localhost"), inventory.host("127.0.0.1"));
    assert_eq!(var(&inventory, "localhost", "ansible_connection"), serde_json::Value::Null);
}

fn sealed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault/sealed").join(path)
}

/// The passwords of these files of `tests/cases/vault`.
fn passwords(files: &[&str]) -> Options {
    let mut vault = Vault::default();
    for file in files {
        vault.add_file(None, sealed(&format!("../{file}")).to_str().unwrap()).unwrap();
    }
    Options { vault: Arc::new(vault), ..quiet() }
}

#[test]
fn encrypted_files_are_read() {
    let options = passwords(&["password", "password-dev"]);
    let sources = [sealed("site/hosts.ini").display().to_string()];
    let (inventory, warnings) = Inventory::load(&sources, &options).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    for (host, name, value) in [
        ("n1", "ansible_host", "10.81.0.1"),
        ("n1", "rail_secret", "inventory-in-ini-1"),
        ("n1", "host_token", "token-of-n1-only"),
        ("n2", "site_token", "token-of-all-hosts"),
    ] {
        assert_eq!(var(&inventory, host, name), value);
        assert_eq!(options.vault.secrets().redact(value), "(secret)");
    }
    // Names of hosts and files are none, nor is what is too short to be one; but where the values themselves are
    // printed, none is.
    assert_eq!(options.vault.secrets().redact("n1 hosts.ini gpu 1"), "n1 hosts.ini gpu 1");
    let listed = inventory.to_host_json(inventory.host("n1").unwrap());
    let file = listed["inventory_file"].as_str().unwrap_or("");
    assert!(file.is_empty() || file.ends_with("hosts.ini"));
    assert_eq!((listed["rail_secret"].as_str(), listed["short"].as_str()), (Some("(secret)"), Some("(secret)")));
}

#[test]
fn a_file_that_the_passwords_do_not_open_is_no_empty_one() {
    let sources = [sealed("site/hosts.ini").display().to_string()];
    let (inventory, warnings) = Inventory::load(&sources, &passwords(&["password"])).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let errors = |host: &str| inventory.sealed(inventory.host(host).unwrap()).map(Error::to_string).collect::<Vec<_>>();
    assert!(errors("n2").is_empty());
    let told = errors("n1").pop().unwrap();
    assert!(
        told.contains("encrypted by the one called `dev`\n  --> ") && told.contains("host_vars/n1.yml:1:1"),
        "{told}"
    );
}

#[test]
fn an_error_in_an_encrypted_file_shows_no_line_of_it() {
    let plain = "a: 1\nb: swordfish: x\n";
    let decoded = vault::decode("v.yml", plain.as_bytes().to_vec(), true, Kind::Inventory).unwrap();
    let told = read::document(&decoded, Kind::Inventory).unwrap_err().to_string();
    assert!(told.contains("--> v.yml:2:") && told.contains("ansible-vault view"), "{told}");
    assert!(!told.contains("swordfish"), "{told}");
    let told = vault::decode("v.yml", b"b: sword\xfffish".to_vec(), true, Kind::Inventory).unwrap_err().to_string();
    assert!(told.starts_with("not UTF-8\n  --> v.yml") && !told.contains("sword"), "{told}");
}

#[test]
fn what_is_encrypted_is_refused_when_it_is_used() {
    let vault = fs::read_to_string(sealed("texts/short")).unwrap();
    let dir = folder(&[
        ("hosts.yaml", "g: {hosts: {h: {p: !vault \"$ANSIBLE_VAULT;1.1;AES256\\n3132\"}, i: }}\n"),
        ("group_vars/g/vault.yml", &vault),
        ("group_vars/g/vars.yml", "a: 1\n"),
        ("host_vars/i", &vault),
    ]);
    let (inventory, warnings) = load(&dir, "hosts.yaml");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(var(&inventory, "h", "a"), 1);
    let host = |name: &str| inventory.host(name).unwrap();
    let told = inventory.sealed(host("h")).next().unwrap().to_string();
    assert!(told.contains("group_vars/g/vault.yml:1:1"), "{told}");
    let sealed = |name: &str| inventory.sealed(host(name)).count();
    assert_eq!((sealed("h"), sealed("i"), sealed("localhost")), (1, 2, 0));
    let error = errors(&[("hosts.yaml", &vault)]);
    assert!(
        error.starts_with("error: this file is encrypted, and no vault password is given\n  --> hosts.yaml:1:1"),
        "{error}"
    );
}

#[test]
fn files_of_variables_in_json_have_ansible_s_tags() {
    let dir = folder(&[
        ("hosts", "h\n"),
        ("group_vars/all.json", r#"{"v": {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}, "u": {"__ansible_unsafe": "{{"}}"#),
        (
            "host_vars/h.yml",
            r#"{"w": [{"__ansible_vault": "$ANSIBLE_VAULT;1.1"}], "m": {"__ansible_vault": "", "b": 1}}"#,
        ),
    ]);
    let (inventory, _) = load(&dir, "hosts");
    let vars = inventory.vars(inventory.host("h").unwrap());
    let sealed = |name: &str| vault::any_sealed(vars.get(name).unwrap());
    assert_eq!(["v", "w", "u", "m"].map(sealed), [true, true, false, false]);
    assert_eq!(vars.get("u").unwrap().tag.as_deref(), Some("!unsafe"));
}

#[test]
fn a_misspelt_connection_variable_is_told_wherever_it_stands() {
    let dir = folder(&[
        ("hosts", "n1 ansible_hots=10.0.0.1\n[g]\nn1\n[g:vars]\nansible_usr=ops\n"),
        ("group_vars/g.yml", "ansible_prot: 22\n"),
        ("book/host_vars/n1.yml", "ansible_becme: true\nansible_user_id: 3\nansible_users: [a]\n"),
    ]);
    let (inventory, warnings) = load(&dir, "hosts");
    let told = |warnings: &[Warning]| -> Vec<String> {
        let line = |w: &Warning| format!("{} {}", w.message, w.place.as_ref().unwrap().line);
        warnings.iter().map(line).collect()
    };
    assert_eq!(
        told(&warnings),
        [
            "nothing reads the variable `ansible_usr` 5",
            "nothing reads the variable `ansible_prot` 1",
            "nothing reads the variable `ansible_hots` 1",
        ]
    );
    let (_, warnings) = inventory.with_playbook_dir(&dir.path().join("book")).unwrap();
    assert_eq!(told(&warnings), ["nothing reads the variable `ansible_becme` 1"]);
}

#[test]
fn what_ansible_inventory_lists_can_be_read_back() {
    let list = r#"{"_meta": {"hostvars": {"a": {"v": {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}, "n": 1e5}}},
        "all": {"children": ["ungrouped", "g"]}, "g": {"hosts": ["a", "b"]}}"#;
    let inventory = of("inv.json", list);
    assert_eq!(names(&inventory, inventory.hosts()), "a b");
    assert_eq!(var(&inventory, "a", "n"), 1e5);
    assert!(vault::is_sealed(inventory.vars(inventory.host("a").unwrap()).get("v").unwrap()));
    let again = of("inv.json", &to_text(&inventory.to_list_json(None)));
    assert_eq!(again.to_list_json(None), inventory.to_list_json(None));
}

#[test]
fn marks_and_line_ends_of_other_systems() {
    for (name, text) in [
        ("hosts.yaml", "\u{feff}all:\r\n  hosts:\r\n    h: {x: 1}\r\n"),
        ("hosts.ini", "\u{feff}h x=1\r\n[g]\r\n"),
        ("inv.json", "\u{feff}{\"all\": {\"hosts\": {\"h\": {\r\n\t\"x\": 1}}}}"),
    ] {
        assert_eq!(var(&of(name, text), "h", "x"), 1, "{name}");
    }
    // Ansible doesn't look at the bytes of a comment.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hosts"), b"# M\xfcller\nh x=1\n").unwrap();
    assert_eq!(var(&load(&dir, "hosts").0, "h", "x"), 1);
    fs::write(dir.path().join("hosts"), b"h x=M\xfcller\n").unwrap();
    let error = Inventory::load(&[path(&dir, "hosts")], &quiet()).map(drop).unwrap_err().to_string();
    assert!(error.contains("not UTF-8") && error.contains("hosts:1:6"), "{error}");
}

/// File name, its text, the message, the place or remedy.
#[test]
fn broken_files_are_told_with_place_and_remedy() {
    for (name, text, message, rest) in [
        ("h.yaml", "", "this inventory is empty", "h.yaml:1:1"),
        ("h.yaml", "# nothing\n---\n", "not nothing", "write `all: {hosts: {…}}`"),
        ("h.yaml", "all:\n  hosts: {a: }\n  hosts: {b: }\n", "duplicate key `hosts`", "h.yaml:3:3"),
        ("h.yaml", "all:\n\thosts: a\n", "not valid YAML", "never by tabs"),
        ("h.yaml", "- a\n- b\n", "an inventory is a mapping of groups, not a list", "h.yaml:1:1"),
        ("h.yaml", "[web]\nh1\n", "not valid YAML", "h.yaml:2:1"),
        ("h.yaml", "h1 x=1\n", "not a string", "an INI inventory needs a name that doesn't end in .yaml"),
        (
            "h.yaml",
            "all:\n  hosts: [a, b]\n",
            "`hosts` of the group `all` is a mapping, not a list",
            "write `name:` instead of `- name`",
        ),
        ("h.yaml", "all: {vars: [x]}", "`vars` of the group `all` is a mapping", "h.yaml:1:13"),
        ("h.yaml", "all: {children: 5}", "`children` of the group `all` is a mapping, not an integer", "h.yaml:1:17"),
        (
            "h.yaml",
            "all: {hosts: {a: 1}}",
            "the variables of `a` are a mapping, not an integer",
            "write `a: {name: value}`",
        ),
        ("h.yaml", "all: {hosts: {1: }}", "the name of a host must be text, and `1` is an integer", "quote it: \"1\""),
        ("h.yaml", "all: {hosts: {yes: }}", "`yes` is a boolean", "quote it"),
        ("h.yaml", "1: {hosts: a}", "the name of a group must be text", "h.yaml:1:1"),
        ("h.yaml", "all: {hosts: {'n[3:1]': }}", "the range `3:1` runs backwards", "h.yaml:1:18"),
        ("h.yaml", "all: {hosts: {'n:99999': }}", "a port is at most 65535", "h.yaml:1:18"),
        ("h.yaml", "all: {hosts: {'n[1-2': }}", "`[` without `]`", "h.yaml:1:17"),
        (
            "h.yaml",
            "a: {children: {b: {children: {c: {children: {a: }}}}}}",
            "go round in a circle: b → c → a → b",
            "h.yaml:1:16",
        ),
        ("h.yaml", "a: {children: {a: }}", "the group `a` is its own child", "h.yaml:1:16"),
        ("h.yaml", "a: {children: {all: }}", "`all` is a child of the group `a`", "take `all` out"),
        ("h.yaml", "a: {children: {all: }}", "`all` is a child of the group `a`", "h.yaml:1:16"),
        ("h.ini", "[b:children]\na\n[a:children]\nall\n", "`all` is a child of the group `a`", "h.ini:4:1"),
        ("h.yaml", "a: {vars: {ansible_group_priority: high}}", "is an integer, not a string", "h.yaml:1:36"),
        (
            "h.yaml",
            "plugin: aws_ec2\nregions: [x]\n",
            "doesn't run inventory plugins (aws_ec2)",
            "ansible-inventory -i ",
        ),
        ("h.yaml", "plugin: aws_ec2\n", "inventory plugins", "--list > inv.json"),
        ("h.toml", "[all]\n", "doesn't read inventories in TOML", "--list > inv.json"),
        ("h", "[web\nx y\n", "`[` without `]` in `[web`", "h:1:1"),
        ("h", "[web db]\n", "`[web db]` isn't a section", "`[group]`, `[group:vars]`"),
        (
            "h",
            "[web:hoste]\n",
            "unknown kind of section `hoste`",
            "h:1:6\n   1 | [web:hoste]\n     |      ^^^^^\n  help: did you mean `hosts`?",
        ),
        ("h", "[a:children]\nb\n", "the group `b` isn't declared anywhere", "h:2:1"),
        ("h", "[a:vars]\nx=1\n", "variables for the group `a`, which isn't declared anywhere", "h:1:2"),
        ("h", "[a]\n[a:vars]\nx 1\n", "a line of `:vars` is `name=value`", "h:3:1"),
        ("h", "[a]\n[a:children]\nx y\n", "is the name of one group", "h:3:1"),
        ("h", "[a]\n[b:children]\na\n[a:children]\nb\n", "go round in a circle: b → a → b", "h:5:1"),
        ("h", "h1 x\n", "`x` isn't a variable of the form `name=value`", "h:1:4"),
        ("h", "h1 h2\n", "one host stands on each line", "h:1:4"),
        ("h", "h x='a\n", "a quote that isn't closed", "h:1:5"),
        ("h", "h x=a\\", "nothing is behind this backslash", "h:1:6"),
        ("h.ini", "h:\n", "`h:` ends in a colon without a port", "h.ini:1:1"),
        ("h.ini", "---\n", "this looks like YAML", "ends in .yaml"),
        ("h", "n[1:99999999]\n", "more than 100000 names", "h:1:3"),
        ("h.json", "{\"_meta\": {\"hostvars\": []}}", "`hostvars` is an object, not a list", "h.json:1:24"),
        (
            "h.json",
            "{\"_meta\": {}, \"g\": {\"hosts\": \"a\"}}",
            "`hosts` of the group `g` is a list of names",
            "h.json:1:30",
        ),
        (
            "h.json",
            "{\"_meta\": {}, \"g\": {\"hosts\": [1]}}",
            "a name must be a string, not an integer",
            "h.json:1:31",
        ),
        ("h.json", "{\"_meta\": {}, \"g\": {\"vars\": 1}}", "variables are an object, not an integer", "h.json:1:29"),
        ("h.json", "{\"all\": ", "not valid YAML", "h.json:"),
    ] {
        let error = errors(&[(name, text)]);
        assert!(error.contains(message) && error.contains(rest), "{name} {text:?}:\n{error}");
    }
}

#[test]
fn files_of_variables_are_checked() {
    let hosts = ("hosts", "[g]\nh\n");
    for (name, text, message, place) in [
        ("group_vars/g.yml", "- a\n", "a file of variables holds a mapping, not a list", "group_vars/g.yml:1:1"),
        ("group_vars/all/x", "a: 1\na: 2\n", "duplicate key `a`", "group_vars/all/x:2:1"),
        ("host_vars/h.json", "{\"a\": }}", "not valid YAML", "host_vars/h.json:1:8"),
        ("host_vars/h", "a: 1\n---\nb: 1\n", "a second document in one file", "host_vars/h:3:1"),
    ] {
        let error = errors(&[hosts, (name, text)]);
        assert!(error.contains(message) && error.contains(place), "{error}");
    }
    // All of them at once.
    let error = errors(&[hosts, ("group_vars/g.yml", "- a\n"), ("host_vars/h.yml", "text\n")]);
    assert_eq!(error.matches("error: ").count(), 2, "{error}");
    let told = warnings(&[hosts, ("host_vars/h.yml", "a: 1\n"), ("host_vars/h.json", "{}")]);
    assert!(told.starts_with("host_vars/h.json isn't read, because host_vars/h.yml is there"), "{told}");
}

#[test]
fn what_ansible_passes_over_is_a_warning() {
    for (name, text, message, place) in [
        ("h.yaml", "all: {host: {a: }}", "unknown key `host` in the group `all` is skipped", "did you mean `hosts`?"),
        ("h.yaml", "a: 5\nb: {hosts: h}", "`a` is skipped: a group is a mapping, not an integer", "h.yaml:1:4"),
        ("h.ini", "[web]\nweb\n", "`web` is the name of a group and of a host", "give one of them another name"),
        ("h.ini", "[web]\nweb\n", "`web` is the name of a group and of a host", "h.ini:2:1"),
        ("h.yaml", "a: {children: {ungrouped: }}", "`ungrouped` is the child of another group", "h.yaml:1:16"),
        ("h.ini", "  \n", "this inventory is empty", "h.ini:1:1"),
    ] {
        let told = warnings(&[(name, text)]);
        assert!(told.contains(message) && told.contains(place), "{told}");
    }
}

#[test]
fn sources_that_cannot_be_read() {
    let fails = |source: &str| Inventory::load(&[source.to_owned()], &quiet()).map(drop).unwrap_err().to_string();
    assert_eq!(fails("/nowhere/hosts"), "error: the inventory /nowhere/hosts doesn't exist");
    assert_eq!(
        fails("node1"),
        "error: the inventory node1 doesn't exist\n  help: a list of hosts has a comma in it: -i 'node1,'"
    );
    // A file that is there and that even root can't read from its start.
    let error = fails("/proc/self/mem");
    assert!(error.starts_with("error: /proc/self/mem can't be read: "), "{error}");
    assert!(fails("n[1-2,xy],").contains("-i:1:7"), "{}", fails("n[1-2,xy],"));
    let dir = folder(&[("inv/notes.md", "x"), ("inv/group_vars/all.yml", "x: 1")]);
    assert!(fails(&path(&dir, "inv")).contains("no inventory lies in the folder"));
    // All sources are read, and all that is wrong is told.
    let dir = folder(&[("inv/a.yaml", "- a"), ("inv/b.ini", "[a b]")]);
    assert_eq!(fails(&path(&dir, "inv")).matches("error: ").count(), 2);
}

#[test]
fn lists_of_hosts_take_ranges() {
    let inventory = Inventory::load(&["n[01-03,7]:2222, r[a:b],".to_owned()], &quiet()).unwrap().0;
    assert_eq!(names(&inventory, inventory.hosts()), "n01 n02 n03 n7 ra rb");
    assert_eq!(var(&inventory, "n02", "ansible_port"), 2222);
}

#[test]
fn programs_that_fail_say_why() {
    for (text, message, rest) in [
        ("#!/bin/sh\necho to no avail >&2\nexit 3\n", "--list failed: exit status: 3", "it said: to no avail"),
        ("#!/bin/sh\nkill -9 $$\n", "--list failed: signal: 9", ""),
        ("#!/bin/sh\necho hello\n", "not valid JSON", "chmod -x"),
        ("#!/bin/sh\necho '[1]'\n", "printed no JSON object", ""),
        ("#!/bin/sh\n", "printed no JSON object", ""),
        ("#!/nowhere/interpreter\n", "can't be run", "chmod -x"),
        ("#!/bin/sh\nprintf '{\"a\": \"\\377\"}'\n", "not UTF-8", "output of"),
        (
            "#!/bin/sh\necho '{\"a\": {\"hosts\": 1}}'\n",
            "is a list of names, not an integer",
            "output of inv --list:1:17",
        ),
    ] {
        let error = errors(&[("inv", text)]);
        assert!(error.contains(message) && error.contains(rest), "{error}");
    }
}

#[test]
fn programs_that_hang_are_given_up() {
    for text in
        ["#!/bin/sh\nexec sleep 60\n", "#!/bin/sh\nsleep 60 &\necho '{}'\n", "#!/bin/sh\nexec >&-\nexec sleep 60\n"]
    {
        let dir = folder(&[("inv", text)]);
        let start = std::time::Instant::now();
        let options = Options { deadline: Duration::from_millis(300), ansible_cfg: None, vault: Arc::default() };
        let error = Inventory::load(&[path(&dir, "inv")], &options).map(drop).unwrap_err().to_string();
        assert!(error.contains("--list didn't end within 0.3 s"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn ansible_cfg_is_named_where_it_matters() {
    let dir = folder(&[
        ("hosts", "h\n"),
        (
            "ansible.cfg",
            "[defaults]\n# remote_user = x\nremote_user = root\nnocows = 1\n[ssh_connection]\nssh_args: -C\n",
        ),
        ("harmless.cfg", "[defaults]\nnocows = 1\n"),
    ]);
    let warn = |name: &str| {
        let options = Options { ansible_cfg: Some(dir.path().join(name)), ..quiet() };
        Inventory::load(&[path(&dir, "hosts")], &options).unwrap().1
    };
    let warnings = warn("ansible.cfg");
    assert_eq!(warnings.len(), 1);
    let told = warnings[0].to_string();
    let expected = "ansible.cfg isn't read; it sets remote_user (netplay: the variable ansible_user), \
                    ssh_args (netplay: the variable ansible_ssh_common_args)";
    assert!(told.ends_with(expected), "{told}");
    assert!(warn("harmless.cfg").is_empty() && warn("missing.cfg").is_empty());
}

#[test]
fn graph_and_host_as_text() {
    let inventory = of("hosts.yaml", "g: {hosts: {h: {b: 1, a: [x]}}}\n");
    assert_eq!(inventory.to_graph(Some("g")).unwrap(), "@g:\n  |--h");
    let error = inventory.to_graph(Some("gg")).unwrap_err().to_string();
    assert_eq!(error, "no group is called `gg`\n  help: did you mean `g`?");
    let host = inventory.to_host_json(inventory.host("h").unwrap());
    assert_eq!(to_text(&host), "{\n    \"a\": [\n        \"x\"\n    ],\n    \"b\": 1\n}");
}

#[test]
fn ten_thousand_hosts_are_quick_and_share_their_groups() {
    use std::fmt::Write;
    let mut text = String::from("all:\n  vars: {");
    (0..100).for_each(|n| write!(text, "v{n}: {n}, ").unwrap());
    text += "}\n  children:\n";
    for rack in 0..100 {
        write!(text, "    rack{rack}:\n      vars: {{rack: {rack}}}\n      hosts:\n").unwrap();
        for n in 0..100 {
            writeln!(text, "        n{rack:02}{n:02}: {{ansible_host: 10.0.{rack}.{n}, slot: {n}}}").unwrap();
        }
    }
    let dir = folder(&[("hosts.yaml", &text), ("group_vars/rack7.yml", "slot: 0\nx: 1\n")]);
    let start = std::time::Instant::now();
    let inventory = load(&dir, "hosts.yaml").0;
    let all = inventory.select(&argument("hosts", "all:!rack3"), None, None).unwrap().hosts;
    let took = start.elapsed();
    assert_eq!(all.len(), 9900);
    assert_eq!(var(&inventory, "n0705", "slot"), 5);
    assert_eq!(inventory.vars(inventory.host("n0705").unwrap()).iter().count(), 106);
    assert_eq!(inventory.shared.len(), 101, "one map for each rack, and one for the implicit localhost");
    assert!(took < Duration::from_secs(10), "{took:?} (a tenth of that when it is optimised)");
}

#[test]
fn a_link_to_nowhere_is_told() {
    let dir = folder(&[("hosts", "h\n"), ("group_vars/all/a.yml", "x: 1\n")]);
    for (link, to) in [("host_vars/h.yml", "h.yml"), ("group_vars/all/b.yml", "/nowhere")] {
        let link = dir.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, link).unwrap();
    }
    let (inventory, warnings) = load(&dir, "hosts");
    assert!(inventory.vars(inventory.host("h").unwrap()).get("x").is_some());
    let told: Vec<&str> = warnings.iter().map(|w| w.message.rsplit('/').next().unwrap()).collect();
    assert_eq!(
        told,
        [
            "b.yml is a link that leads nowhere: its variables aren't read",
            "h.yml is a link that leads nowhere: its variables aren't read"
        ]
    );
}
