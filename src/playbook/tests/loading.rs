//! What is refused before any host is known.

use super::*;

#[test]
fn unknown_keys_are_told_all_at_once() {
    let told = refused(
        "- host: all\n  tasks: []\n  resources:\n  - shw: {id: x}\n  - show: {idd: x}\n    wen: true\n  - ansible.builtin.copy: {dest: /x}\n",
    );
    for part in [
        "unknown key `host` in a play\n  --> site.yaml:1:3",
        "did you mean `hosts`?",
        "a play has no key `tasks`\n  --> site.yaml:2:3",
        "`shw` is neither a type nor a key of a resource\n  --> site.yaml:4:5",
        "did you mean `show`?",
        "unknown key `idd` in `show`\n  --> site.yaml:5:12",
        "`show` needs the key `id`",
        "did you mean `when`?",
        "the play names no hosts",
    ] {
        assert!(told.contains(part), "{part}\n---\n{told}");
    }
}

fn resource(text: &str) -> String {
    refused(&format!("- hosts: all\n  resources:\n{text}"))
}

#[test]
fn a_hand_that_knows_ansible_is_told_what_to_do() {
    for (play, parts) in [
        ("gather_facts: false", &["a play has no key `gather_facts`", "facts are read where"][..]),
        ("roles: [x]", &["`- include: FILE`"]),
        ("strategy: free", &["remove it"]),
        ("any_errors_fatal: true", &["max_fail_percentage: 0"]),
        ("become_method: su", &["`become` is by sudo"]),
        ("environment: {A: b}", &["set it in the text of a `command`"]),
        ("remote_user: x", &["`ansible_user`"]),
        ("reboot: {max_unavailabel: 1}", &["unknown key `max_unavailabel`", "`max_unavailable`"]),
        ("reboot: {max_unavailable: 0}", &["`max_unavailable` takes a number of hosts or a percentage"]),
        ("reboot: {drain: slrm}", &["`drain` can't be `slrm`", "slurm"]),
        ("reboot: {drain: slurm, via: slurm}", &["`via: slurm` drains by itself"]),
        ("reboot: {drain: {undrain: x}}", &["`drain` needs a `command`"]),
        ("reboot: true", &["reboot takes a mapping of keys"]),
        ("confirm: nothing", &["`confirm` takes a mapping or `none`, not a string", "confirm: {timeout: 60}"]),
        ("confirm: {timeout: 1}", &["must be from 5 to 3600"]),
        ("confirm: {tiemout: 9, all: perhaps}", &["unknown key `tiemout`", "timeout"]),
        ("verify: [ports, {path_mut: {}}]", &["there is no check `path_mut`", "did you mean `path_mtu`?"]),
        ("verify: ports", &["`verify` is a list of checks, not a string"]),
        ("checks: [ports]", &["a play can't have `checks` here", "in a playbook it is called `verify`"]),
        ("on_error: halt", &["`on_error` can't be `halt`", "known: stop, continue"]),
        ("serial: 0", &["`serial` takes a number of hosts or a percentage, not `0`"]),
        ("serial: [1, 110%]", &["not `110%`"]),
        ("serial: []", &["`serial` is an empty list"]),
        ("max_fail_percentage: 120", &["must be from 0 to 100, not `120`"]),
        ("become: maybe", &["`become` takes `true` or `false`, not `maybe`"]),
        ("vars: [a]", &["`vars` must be a mapping"]),
        ("vars: {groups: 1}", &["`groups` has a meaning of its own"]),
        ("vars: {a-b: 1}", &["can't be the name of a variable"]),
        ("vars_files: [none.yaml]", &["none.yaml doesn't exist"]),
        ("vars_files: [[a, b]]", &["`vars_files` takes paths, not a list"]),
        ("tags: ['{{ x }}']", &["a tag is a word"]),
    ] {
        let told = refused(&format!("- hosts: all\n  {play}\n  resources: []\n"));
        for part in parts {
            assert!(told.contains(part) && told.contains("--> site.yaml:2:"), "{play}\n{told}");
        }
    }
    for (entry, parts) in [
        ("register: x", &["a resource has no key `register`", "`notify` a handler"][..]),
        ("with_items: [a]", &["write `loop:` with a list"]),
        ("with_dict: {}", &["dict2items"]),
        ("delegate_to: x", &["write a play for that host"]),
        ("run_once: true", &["hosts: GROUP[0]"]),
        ("changed_when: false", &["a key inside of `command`"]),
        ("become_method: su", &["by sudo"]),
        ("block: []", &["list the resources one by one"]),
        ("timeout: 0", &["`timeout` must be from 1 to 86400"]),
        ("ignore_errors: perhaps", &["`ignore_errors` takes `true` or `false`"]),
        ("loop: nics", &["`loop` takes a list, or an expression"]),
        ("loop_control: {loop_var: x}", &["`loop_control` without a `loop`"]),
        ("after: [{a: b}]", &["an address or a title is wanted here, not a mapping"]),
    ] {
        let told = resource(&format!("  - show: {{id: x}}\n    {entry}\n"));
        for part in parts {
            assert!(told.contains(part) && told.contains("--> site.yaml:4:"), "{entry}\n{told}");
        }
    }
    for (name, part) in [
        ("shell", "use `command`"),
        ("ansible.builtin.lineinfile", "use `copy` or `template`"),
        ("ansible.builtin.systemd", "use `service`"),
        ("community.general.modprobe", "use `kernel_module`"),
        ("netplay.own.show", "write `show`"),
        ("debug", "remove it"),
        ("include_tasks", "write `include: FILE`"),
    ] {
        let told = resource(&format!("  - {name}: x\n"));
        assert!(told.contains(part) && told.contains("--> site.yaml:3:5"), "{name}\n{told}");
    }
    let told = refused("- import_playbook: x.yaml\n");
    assert!(told.contains("name the playbooks on the command line"), "{told}");
}

#[test]
fn a_resource_names_one_type() {
    assert!(resource("  - name: nothing\n").contains("the resource names no type"));
    let told = resource("  - show: {id: a}\n    show : {id: b}\n");
    assert!(told.contains("duplicate key"), "{told}");
    assert!(resource("  - show\n").contains("a resource is a mapping, not a string"));
    let told = resource("  - show: x\n");
    assert!(told.contains("`show` takes a mapping of keys, not a string") && told.contains("write `show: {id: x}`"));
    assert!(resource("  - show: id=x value=3\n").contains("write `show: {id: x, value: 3}`"));
    for (text, line) in [
        ("  - show:\n    id: x\n    value: 3\n", 4),
        ("  - id: x\n    value: 3\n    name: title\n    show:\n    tags: [a]\n", 3),
    ] {
        let told = resource(text);
        assert!(told.contains("`show` is empty, and what belongs into it stands beside it: `id`, `value`"), "{told}");
        assert!(told.contains(&format!("--> site.yaml:{line}:5")) && told.contains("indent these under `show`"));
        assert_eq!(told.matches("error: ").count(), 1, "{told}");
    }
    assert!(resource("  - show:\n    id: x\n    frob: 3\n").contains("`frob` is neither"));
    assert!(resource("  - name: x\n    show:\n").contains("`show` takes a mapping of keys, not nothing"));
    assert!(resource("  - show: {id: x, state: on}\n").contains("it has none"));
    assert!(resource("  - show: {id: x, value: {'{{ k }}': 1}}\n").contains("can't be a template"));
    let told = resource("  - show: {id: x}\n    loop: [a]\n    loop_control: {label: x, loop_var: '1x', lop_var: 1}\n");
    for part in
        ["each round is told by its address", "`1x` can't be the name of a variable", "did you mean `loop_var`?"]
    {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let told = refused("- hosts: all\n  resources: []\n  handlers:\n  - show: {id: x}\n    after: y\n    tags: a\n");
    assert!(told.contains("a handler has no key `after`") && told.contains("a handler has no key `tags`"), "{told}");
}

#[test]
fn files_that_are_no_playbooks_are_refused() {
    assert!(refused("").contains("the playbook is empty\n  --> site.yaml:1:1"));
    assert!(refused("# nothing\n---\n").contains("the playbook is empty"));
    assert!(refused("hosts: all\n").contains("a playbook is a list of plays, not a mapping"));
    assert!(refused("- just text\n").contains("a play is a mapping, not a string"));
    assert!(refused("- hosts: all\n").contains("the play has no resources"));
    assert!(refused("- hosts: {a: b}\n  resources: []\n").contains("`hosts` takes a pattern"));
    assert!(refused("- hosts: all\n  resources: {a: b}\n").contains("resources are a list, not a mapping"));
    assert!(refused("- hosts: all\n  hosts: x\n").contains("duplicate key `hosts`\n  --> site.yaml:2:3"));
    assert!(refused("- hosts: all\n  resources:\n\t- a: b\n").contains("never by tabs"));
    assert!(refused("- hosts: {{ x }}\n").contains("must be quoted"));
    assert!(refused("--- \n- hosts: all\n---\n- hosts: all\n").contains("a second document"));
    assert!(refused("$ANSIBLE_VAULT;1.1;AES256\n6162\n").contains("this encrypted file is broken: it is cut off"));
    let mut bomb = String::from("- hosts: all\n  vars:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..10 {
        bomb += &format!("    a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    assert!(refused(&bomb).contains("the aliases of this file stand for more than"));
    let site = Site::new(&[]);
    assert!(site.load().unwrap_err().contains("site.yaml doesn't exist"));
    std::fs::create_dir(site.path("site.yaml")).unwrap();
    assert!(site.load().unwrap_err().contains("is a folder, not a file"));
    let site = Site::new(&[]);
    std::fs::write(site.path("site.yaml"), b"- hosts: all\n  name: \xe4\n").unwrap();
    assert!(site.load().unwrap_err().contains("not UTF-8\n  --> site.yaml:2:9"));
}

#[test]
fn a_byte_order_mark_and_crlf_are_taken() {
    let site = Site::new(&[(
        "site.yaml",
        "\u{feff}- hosts: all\r\n  resources:\r\n  - show:\r\n      id: x\r\n      value: |\r\n        a\r\n        b\r\n",
    )]);
    let play = site.render("n1", &[], &Tags::default(), None).unwrap();
    assert_eq!(addresses(&play), ["show:x='a\nb\n'"]);
}

#[test]
fn includes_that_double_each_time_are_ended() {
    let names: Vec<String> = (0..40).map(|i| format!("e{i}.yaml")).collect();
    let texts: Vec<String> = (1..41).map(|i| format!("- include: e{i}.yaml\n- include: e{i}.yaml\n")).collect();
    let mut files = vec![("site.yaml", "- hosts: all\n  resources:\n  - include: e0.yaml\n")];
    files.extend(names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)));
    files.push(("e40.yaml", "- show: {id: a}\n"));
    let told = Site::new(&files).load().unwrap_err();
    assert!(told.starts_with("error: more than 10000 files are included"), "{told}");
    assert_eq!(told.matches("error").count(), 1, "{told}");
}

#[test]
fn an_include_that_closes_a_cycle_is_told_with_the_chain() {
    let site = Site::new(&[
        ("site.yaml", "- hosts: all\n  resources:\n  - include: x/a.yaml\n"),
        ("x/a.yaml", "- show: {id: a}\n- include: b.yaml\n"),
        ("x/b.yaml", "- include: ../x/a.yaml\n"),
    ]);
    let told = site.load().unwrap_err();
    assert!(told.contains("the include closes a cycle: a.yaml → b.yaml → a.yaml\n  --> x/b.yaml:1:12"), "{told}");
    assert!(told.contains("b.yaml is included here:\n  --> x/a.yaml:2:12"), "{told}");
}

#[test]
fn includes_are_checked() {
    for (include, part) in [
        ("include: nope.yaml", "nope.yaml doesn't exist\n  --> site.yaml:3:14"),
        ("include: '{{ x }}.yaml'", "can't be a template"),
        ("include: {file: x}", "`include` takes the path of a file, not a mapping"),
        ("{include: e.yaml, loop: [a]}", "put the `loop` on the resources"),
        ("{include: e.yaml, wen: x}", "did you mean `when`?"),
        ("include: e.yaml", "the included file is empty\n  --> e.yaml:1:1"),
        ("include: m.yaml", "an included file's resources are a list, not a mapping"),
        ("include: k.yaml", "unknown key `idd` in `show`\n  --> k.yaml:1:10"),
    ] {
        let site = Site::new(&[
            ("site.yaml", &format!("- hosts: all\n  resources:\n  - {include}\n")),
            ("e.yaml", "# empty\n"),
            ("m.yaml", "a: b\n"),
            ("k.yaml", "- show: {idd: x}\n"),
        ]);
        let told = site.load().unwrap_err();
        assert!(told.contains(part), "{include}\n{told}");
    }
}
