//! Encrypted values and files in playbooks, and what is told of them. They are made by `ansible-vault`: see
//! `tests/cases/vault`.

use super::*;
use std::path::Path;

fn case(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault").join(path)
}

fn vault(passwords: &[&str]) -> Arc<Vault> {
    let mut vault = Vault::default();
    passwords.iter().for_each(|name| vault.add_file(None, case(name).to_str().unwrap()).unwrap());
    Arc::new(vault)
}

/// A playbook for the hosts of `values.yaml`.
fn values(resources: &str, passwords: &[&str]) -> Site {
    let inventory = std::fs::read_to_string(case("sealed/values/values.yaml")).unwrap();
    let playbook = format!("- hosts: all\n  resources:\n{resources}");
    let mut site = Site::new(&[("inventory.yaml", &inventory), ("site.yaml", &playbook)]);
    site.1 = vault(passwords);
    site
}

/// What the values are, beyond what may be told: each of a resource of its own.
fn shown(values_of: &[&str], passwords: &[&str]) -> Result<Vec<String>, String> {
    let resources: String = values_of.iter().map(|v| format!("  - show: {{id: v, value: {v}}}\n")).collect();
    let play = values(&resources, passwords).render("h1", &[], &Tags::default(), None)?;
    let name = |item: &Item| item.untold.first().unwrap_or(&item.address).replacen("show:v=", "", 1);
    Ok(play.resources.iter().map(name).collect())
}

#[test]
fn values_are_opened_where_they_are_used() {
    let seen = shown(
        &[
            "'{{ direct }}'",
            "'{{ alias }}'",
            "'{{ joined }}'",
            "'{{ nested.sealed }}'",
            "'{{ nested }}'",
            "'{{ list | map(attribute=\"sealed\") | join }}'",
            "'{{ nested | to_json }}'",
            "'{{ hostvars.h2.direct }}'",
            "'{{ direct | upper }} {{ direct | length }}'",
            "'{{ direct == \"hunter2-hunter2\" }}'",
        ],
        &["password"],
    );
    assert_eq!(
        seen.unwrap(),
        [
            "'hunter2-hunter2'",
            "'hunter2-hunter2'",
            "'user:hunter2-hunter2@host'",
            "'deep-sealed-value'",
            "{open:in the clear,sealed:'deep-sealed-value'}",
            "'of-the-first-item'",
            r#"'{"open": "in the clear", "sealed": "deep-sealed-value"}'"#,
            "'hunter2-hunter2'",
            "'HUNTER2-HUNTER2 15'",
            "TRUE",
        ]
    );
}

#[test]
fn without_a_password_only_what_uses_it_fails() {
    let open = ["'{{ nested.open }}'", "'{{ list[0].name }}'"];
    assert_eq!(shown(&open, &[]).unwrap(), ["in the clear", "first"]);
    let site = values("  - show: {id: '{{ item.name }}'}\n    loop: '{{ list }}'\n", &[]);
    assert_eq!(addresses(&site.render("h1", &[], &Tags::default(), None).unwrap()), ["show:first"]);
    for (value, line) in [
        ("'{{ direct }}'", "inventory.yaml:4:"),
        ("'{{ alias }}'", "inventory.yaml:4:"),
        ("'{{ joined }}'", "inventory.yaml:4:"),
        ("'{{ nested }}'", "inventory.yaml:13:"),
        ("'{{ nested | to_json }}'", "inventory.yaml:13:"),
        ("'{{ \"a\" if direct == \"b\" else \"c\" }}'", "inventory.yaml:4:"),
        ("'{{ nested.sealed | upper }}'", "inventory.yaml:13:"),
    ] {
        let told = shown(&[value], &[]).unwrap_err();
        assert!(told.starts_with("error: this value is encrypted, and no vault password is given"), "{value}: {told}");
        assert!(told.contains(line) && told.contains("--vault-password-file FILE"), "{value}: {told}");
        assert!(told.contains("site.yaml:3:"), "where it is used: {value}: {told}");
    }
    let told = shown(&["'{{ direct }}'"], &["password-dev"]).unwrap_err();
    assert!(told.contains("the vault password (`default`) doesn't open this value\n  --> "), "{told}");
}

#[test]
fn variables_of_the_connection_are_opened() {
    let site = values("  - show: {id: x}\n", &["password"]);
    let context = site.context(&[]);
    let h1 = context.variables(context.inventory.host("h1").unwrap());
    assert_eq!(h1.get("direct").unwrap().unwrap().as_str(), Some("hunter2-hunter2"));
    assert_eq!(h1.get("joined").unwrap().unwrap().as_str(), Some("user:hunter2-hunter2@host"));
    let site = values("  - show: {id: x}\n", &[]);
    let context = site.context(&[]);
    let h1 = context.variables(context.inventory.host("h1").unwrap());
    let told = h1.get("direct").unwrap_err().to_string();
    assert!(told.contains("no vault password is given") && told.contains("`direct` of the host h1"), "{told}");
}

#[test]
fn files_of_all_kinds_are_opened() {
    let mut site = Site::new(&[]);
    site.1 = vault(&["password", "password-dev"]);
    for file in [
        "site.yaml",
        "included.yaml",
        "hosts.ini",
        "vars/more.yaml",
        "group_vars/all.yml",
        "host_vars/n1.yml",
        "files/blob",
        "templates/page.j2",
        "templates/part.j2",
        "extra.yaml",
    ] {
        let to = site.path(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(case("sealed/site").join(file), to).unwrap();
    }
    let extra = format!("@{}", site.path("extra.yaml").display());
    let play = site.render("n1", &[&extra], &Tags::default(), None).unwrap();
    let untold: Vec<&str> = play.resources.iter().map(|i| &*i.untold[0]).collect();
    assert_eq!(
        untold,
        [
            "show:a=['inventory-in-ini-1','https://token-of-all-hosts.example/path-of-vault','value-of-vars-file',\
             'value-of-play-vars','value-of-extra-file']",
            "show:b=file of copy\n|# rendered by an encrypted template\ntoken = token-of-all-hosts\na part that is \
             encrypted\n",
            "show:c=literal-of-included",
        ]
    );
    let told: Vec<&str> = play.resources.iter().map(|i| &*i.address).collect();
    assert_eq!(
        told,
        [
            "show:a=['(secret)','(secret)','(secret)','(secret)','(secret)']",
            "show:b=(secret)\n|(secret)\n(secret) (secret)\n(secret)\n",
            "show:c=(secret)",
        ]
    );
    // Names and titles tell what it is about.
    assert_eq!(play.resources[0].title.as_deref(), Some("all of it"));
    site.1 = Arc::default();
    let told = site.load().unwrap_err();
    assert!(
        told.starts_with("error: this file is encrypted, and no vault password is given\n  --> site.yaml:1:1"),
        "{told}"
    );
}

#[test]
fn an_address_shows_no_secret_and_is_still_found() {
    let site = values(
        "  - show: {id: '/srv/{{ direct }}/x'}\n    name: of {{ direct }}\n  - show: {id: y, value: 1}\n    after: ['show:/srv/{{ direct }}/x', 'of {{ direct }}']\n  - show: {id: '{{ direct }}'}\n    when: false\n  - show: {id: z}\n    after: 'show:{{ direct }}'\n",
        &["password"],
    );
    let play = site.render("h1", &[], &Tags::default(), None).unwrap();
    assert_eq!(addresses(&play), ["show:/srv/(secret)/x", "show:y=1", "show:z"]);
    assert_eq!(play.resources[0].title.as_deref(), Some("of (secret)"));
    assert_eq!(play.skipped[0].address.as_deref(), Some("show:(secret)"));
    assert_eq!(crate::graph::build(&play).unwrap().edges().count(), 1);
}

#[test]
fn what_is_hidden_by_no_log_has_the_line_for_a_name() {
    let text = "- hosts: all\n  vars: {token: swordfish, key: k}\n  resources:\n  - show: {id: '/srv/{{ token }}/x'}\n    name: of {{ token }}\n    no_log: true\n  - show: {id: plain}\n    name: plain name\n    no_log: '{{ true }}'\n    after: show:/srv/{{ token }}/x\n  - show: {id: '/srv/{{ token }}/y'}\n    name: of {{ token }}\n    no_log: false\n  - show: {id: '{{ token }}'}\n    name: skipped {{ token }}\n    no_log: true\n    when: false\n";
    let site = Site::new(&[("site.yaml", text)]);
    let play = site.render("n1", &[], &Tags::default(), None).unwrap();
    assert_eq!(addresses(&play), ["show:#4", "show:plain", "show:/srv/swordfish/y"]);
    let titles: Vec<_> = play.resources.iter().map(|i| i.title.as_deref().unwrap()).collect();
    assert_eq!(titles, ["of {{ token }}", "plain name", "of swordfish"]);
    let skipped = &play.skipped[0];
    assert_eq!((skipped.address.as_deref(), skipped.title.as_deref()), (Some("show:#14"), Some("skipped {{ token }}")));
    assert_eq!(crate::graph::build(&play).unwrap().edges().count(), 1);
}
