//! Encrypted values at the command line: where passwords come from, and that what they open isn't shown.

use crate::command_line::netplay_with;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A folder with the inventory `values.yaml` of hosts that are this machine, and a playbook that writes secrets.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault");
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    put("hosts.yaml", &fs::read_to_string(case.join("sealed/values/values.yaml")).unwrap());
    put("password", &fs::read_to_string(case.join("password")).unwrap());
    put("program", "#!/bin/sh\necho correct horse\n");
    fs::set_permissions(dir.path().join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    put(
        "site.yaml",
        "- hosts: h1\n  vars: {ansible_connection: local}\n  resources:\n  - copy: {dest: '/srv/none/{{ direct }}', content: 'port 80\n\n      token {{ nested.sealed }}\n\n      '}\n    name: of {{ direct }}\n",
    );
    dir
}

const PLAIN: [&str; 3] = ["hunter2-hunter2", "deep-sealed-value", "of-the-first-item"];

#[test]
fn a_password_comes_from_a_file_a_program_or_the_environment() {
    let site = site();
    let validate = |options: &[&str], variable: Option<&str>| {
        let mut all = vec!["validate", "-i", "hosts.yaml", "site.yaml"];
        all.extend(options);
        netplay_with(site.path(), &all, variable.map(|v| ("ANSIBLE_VAULT_PASSWORD_FILE", v)))
    };
    for options in [
        &["--vault-password-file", "password"][..],
        &["--vault-pass-file=program"],
        &["--vault-id", "password"],
        &["--vault-id", "any@program"],
        &["--vault-id", "wrong@hosts.yaml", "--vault-password-file", "password"],
    ] {
        let (code, out, err) = validate(options, None);
        assert_eq!((code, out.as_str()), (0, "valid: 1 play, 1 resource, 1 host rendered\n"), "{options:?}: {err}");
    }
    assert_eq!(validate(&[], Some("password")).0, 0);
    let listed = |list| {
        let all = ["validate", "-i", "hosts.yaml", "site.yaml"];
        netplay_with(site.path(), &all, Some(("ANSIBLE_VAULT_IDENTITY_LIST", list)))
    };
    assert_eq!(listed("wrong@hosts.yaml, any@program").0, 0);
    let (code, _, err) = listed("nowhere@none");
    assert!(code == 1 && err.starts_with("error: the vault password file none doesn't exist"), "{err}");
    let endless = site.path().join("endless");
    fs::write(&endless, "#!/bin/sh\nexec yes\n").unwrap();
    fs::set_permissions(&endless, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, _, err) = validate(&["--vault-password-file", "endless"], None);
    assert!(code == 1 && err.contains("the vault password program endless prints more than 1048576 bytes"), "{err}");
    let (code, _, err) = validate(&[], None);
    assert_eq!(code, 1);
    assert!(
        err.starts_with("error: this value is encrypted, and no vault password is given\n  --> hosts.yaml:4:"),
        "{err}"
    );
    assert!(err.contains("used here:\n  --> site.yaml:4:"), "{err}");
    let (code, _, err) = validate(&["--vault-password-file", "hosts.yaml"], None);
    assert!(code == 1 && err.starts_with("error: the vault password (`default`) doesn't open this value"), "{err}");
    let (code, _, err) = validate(&["--vault-password-file", "none"], None);
    assert!(code == 1 && err.starts_with("error: the vault password file none doesn't exist"), "{err}");
}

#[test]
fn a_sealed_file_of_variables_is_an_error_of_the_hosts_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/vault/sealed/texts/short");
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    fs::create_dir(dir.path().join("host_vars")).unwrap();
    put("host_vars/h1.yml", &fs::read_to_string(case).unwrap());
    put("hosts", "h1\nh2\n[all:vars]\nansible_connection=local\nmtu=1500\n");
    put("site.yaml", "- hosts: all\n  resources:\n  - file: {path: '/srv/{{ mtu }}', state: absent}\n");
    let run = |arguments: &[&str]| netplay_with(dir.path(), arguments, None);
    for command in [&["validate", "-i", "hosts", "site.yaml"][..], &["inventory", "-i", "hosts", "--list"]] {
        let (code, _, err) = run(command);
        let told = "error: this file is encrypted, and no vault password is given\n  --> ";
        assert!(code == 1 && err.starts_with(told) && err.contains("host_vars/h1.yml:1:1"), "{err}");
    }
    let (code, out, err) = run(&["validate", "-i", "hosts", "site.yaml", "-l", "h2"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(run(&["inventory", "-i", "hosts", "--host", "h2"]).0, 0);
}

#[test]
fn what_is_opened_is_not_shown() {
    let site = site();
    let run = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "-i", "hosts.yaml", "--vault-password-file", "password"];
        all.extend(&arguments[1..]);
        let (code, out, err) = netplay_with(site.path(), &all, None);
        for secret in PLAIN {
            assert!(!out.contains(secret) && !err.contains(secret), "{arguments:?}: {out}{err}");
        }
        (code, out)
    };
    let (code, out) = run(&["apply", "site.yaml", "--check", "--diff", "-vv", "--output", "ndjson"]);
    assert_eq!(code, 2, "{out}");
    assert!(out.contains(r#""address":"copy:/srv/none/(secret)","title":"of (secret)""#), "{out}");
    assert!(run(&["graph", "site.yaml"]).1.contains("1. copy:/srv/none/(secret)\\nof (secret)"));
    let (_, out) =
        run(&["run", "-e", "ansible_connection=local", "--", "echo hunter2-hunter2, deep-sealed-value and all"]);
    assert!(out.contains("(secret), (secret) and all"), "{out}");
    assert!(run(&["inventory", "--list"]).1.contains("\"__ansible_vault\": \"$ANSIBLE_VAULT;1.1;AES256\\n"));
    let wrong = "- hosts: h1\n  resources:\n  - copy: {dest: '{{ direct }}', content: x}\n  - '{{ direct | nope }}'\n";
    fs::write(site.path().join("site.yaml"), wrong).unwrap();
    run(&["validate", "site.yaml"]);
    let wrong = "- hosts: h1\n  resources:\n  - copy: {dest: '{{ direct }}', content: x}\n";
    fs::write(site.path().join("site.yaml"), wrong).unwrap();
    let (code, out) = run(&["validate", "site.yaml"]);
    assert_eq!((code, out.as_str()), (1, ""));
}
