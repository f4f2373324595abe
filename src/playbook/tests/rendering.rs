//! A play as one host sees it.

use super::*;

const INVENTORY: &str = "all:\n  vars: {level: inventory, mtu: 1500}\n  children:\n    gpu:\n      hosts: {n1: {own: '{{ inventory_hostname }}-{{ mtu }}'}, n2: }\n      vars: {ansible_host: '10.0.0.{{ id }}', id: 7}\n";

fn all(site: &Site, extra: &[&str]) -> HostPlay {
    site.render("n1", extra, &Tags::default(), None).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn the_nearer_variable_wins() {
    let resources = "  resources:\n  - show: {id: a, value: '{{ level }}'}\n  - show: {id: b, value: '{{ level }}'}\n    vars: {level: resource}\n  - show: {id: c, value: '{{ level }}'}\n    loop: [looped]\n    loop_control: {loop_var: level}\n";
    let site = |head: &str| {
        let text = format!("- hosts: all\n{head}{resources}");
        Site::new(&[("site.yaml", &text), ("inventory.yaml", INVENTORY), ("vars/f.yaml", "level: file\n")])
    };
    let levels = |site: &Site, extra: &[&str]| addresses(&all(site, extra)).join(" ");
    assert_eq!(levels(&site(""), &[]), "show:a=inventory show:b=resource show:c=looped");
    let play = site("  vars: {level: play}\n");
    assert_eq!(levels(&play, &[]), "show:a=play show:b=resource show:c=looped");
    let file = site("  vars: {level: play}\n  vars_files: [vars/f.yaml]\n");
    assert_eq!(levels(&file, &[]), "show:a=file show:b=resource show:c=looped");
    assert_eq!(levels(&file, &["level=extra"]), "show:a='extra' show:b='extra' show:c='extra'");
}

#[test]
fn a_variable_sees_the_names_of_where_it_is_used() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: all\n  vars: {path: '/sys/{{ nic }}', nic: none}\n  resources:\n  - show: {id: '{{ path }}'}\n  - show: {id: '{{ path }}'}\n    loop: [eth0, eth1]\n    loop_control: {loop_var: nic}\n  - show: {id: '{{ path }}'}\n    vars: {nic: ib0}\n",
    )]);
    assert_eq!(addresses(&all(&site, &[])), ["show:/sys/none", "show:/sys/eth0", "show:/sys/eth1", "show:/sys/ib0"]);
}

#[test]
fn an_error_of_a_hidden_resource_hides_its_value() {
    let told = |no_log: &str| {
        let text = format!(
            "- hosts: all\n  vars: {{password: SECRET}}\n  resources:\n  - show: {{id: x, src: '{{{{ password }}}}'}}\n    no_log: {no_log}\n"
        );
        Site::new(&[("site.yaml", &text)]).render("n1", &[], &Tags::default(), None).unwrap_err()
    };
    for no_log in ["true", "'{{ password is defined }}'"] {
        let told = told(no_log);
        assert!(told.contains("hidden by no_log\n  --> site.yaml:4:") && !told.contains("SECRET"), "{told}");
    }
    assert!(told("false").contains("SECRET"));
}

#[test]
fn loops_are_written_out() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: all\n  vars: {nics: [{name: eth0, mtu: 9000}, {name: eth1, mtu: 1500}], none_: []}\n  resources:\n  - show: {id: '{{ nic.name }}', value: '{{ at }}'}\n    name: nic {{ nic.name }}\n    loop: '{{ nics }}'\n    loop_control: {loop_var: nic, index_var: at}\n    when: nic.mtu > 2000 and inventory_hostname == 'n1'\n  - show: {id: x}\n    loop: '{{ none_ }}'\n  - show: {id: '{{ item.key }}-{{ item.value }}'}\n    loop: \"{{ {'a': 1} | dict2items }}\"\n  - show: {id: '{{ item }}'}\n    loop: ['{{ undefined_here }}']\n    when: inventory_hostname == 'n9'\n",
    )]);
    let play = all(&site, &[]);
    assert_eq!(addresses(&play), ["show:eth0=0", "show:a-1"]);
    assert_eq!(play.resources[0].title.as_deref(), Some("nic eth0"));
    let skipped: Vec<_> = play.skipped.iter().map(|s| (s.address.as_deref(), s.title.as_deref(), &*s.why)).collect();
    assert_eq!(
        skipped,
        [
            (Some("show:eth1=1"), Some("nic eth1"), "when: nic.mtu > 2000 and inventory_hostname == 'n1'"),
            (None, None, "when: inventory_hostname == 'n9'"),
        ]
    );
    let told = fails("  - show: {id: x}\n    loop: '{{ groups }}'\n");
    assert!(told.contains("`loop` needs a list, not a mapping") && told.contains("dict2items"), "{told}");
}

#[test]
fn conditions_are_all_to_hold() {
    let holds = |when: &str| {
        let site = Site::new(&[(
            "site.yaml",
            &format!(
                "- hosts: all\n  vars: {{ini: 'false', list: [], s: text, on: yes}}\n  resources:\n  - show: {{id: x}}\n    when: {when}\n"
            ),
        )]);
        site.render("n1", &[], &Tags::default(), None).map(|p| p.resources.len() == 1)
    };
    for (when, held) in [
        ("true", true),
        ("no", false),
        ("[true, 1 == 1]", true),
        ("[true, 1 == 2]", false),
        ("ini", false),
        ("not list", true),
        ("on and s == 'text'", true),
        ("\"'n1' in groups['all'] and zz is not defined\"", true),
        ("inventory_hostname is startingwith 'n'", true),
    ] {
        assert_eq!(holds(when), Ok(held), "{when}");
    }
    let told = holds("s").unwrap_err();
    assert!(
        told.contains("yields the string `text`, neither true nor false") && told.contains("site.yaml:5:11"),
        "{told}"
    );
    assert!(holds("zz").unwrap_err().contains("the variable `zz` isn't defined\n  --> site.yaml:5:11"));
}

#[test]
fn included_resources_take_over_what_the_include_says() {
    let site = Site::new(&[
        (
            "site.yaml",
            "- hosts: all\n  become: true\n  resources:\n  - show: {id: first}\n  - include: more/a.yaml\n    when: inventory_hostname == 'n1'\n    vars: {x: 1, y: 1}\n    tags: [net]\n    become_user: adm\n  - show: {id: last}\n    become: false\n",
        ),
        (
            "more/a.yaml",
            "- show: {id: a, value: '{{ x }}', other: '{{ y }}', src: f.txt}\n  vars: {y: 2}\n  tags: mtu, rail\n- include: b.yaml\n  when: y == 1\n  tags: deep\n",
        ),
        ("more/b.yaml", "- show: {id: b, value: '{{ x + y }}', template: t.j2}\n  when: x == 1\n  become_user: root\n"),
        ("more/files/f.txt", "F"),
        ("templates/t.j2", "T{{ y }}"),
    ]);
    let play = all(&site, &[]);
    assert_eq!(addresses(&play), ["show:first", "show:a=1|2|F", "show:b=2|T1", "show:last"]);
    let become_: Vec<_> = play.resources.iter().map(|r| (r.become_.enabled, r.become_.user.as_deref())).collect();
    assert_eq!(become_, [(true, None), (true, Some("adm")), (true, Some("root")), (false, None)]);
    let other = site.render("n2", &[], &Tags::default(), None).unwrap();
    assert_eq!(addresses(&other), ["show:first", "show:last"]);
    let skipped: Vec<_> = other.skipped.iter().map(|s| (s.address.as_deref(), &*s.why)).collect();
    assert_eq!(
        skipped,
        [
            (Some("show:a=1|2|F"), "when: inventory_hostname == 'n1'"),
            (Some("show:b=2|T1"), "when: inventory_hostname == 'n1'")
        ]
    );
    let tagged = site.render("n1", &[], &Tags::new(["rail"], []), None).unwrap();
    assert_eq!(addresses(&tagged), ["show:a=1|2|F"]);
    let tagged = site.render("n1", &[], &Tags::new(["net"], ["deep"]), None).unwrap();
    assert_eq!(addresses(&tagged), ["show:a=1|2|F"]);
    assert_eq!(site.load().unwrap().tags().iter().map(|t| &**t).collect::<Vec<_>>(), ["deep", "mtu", "net", "rail"]);
}

#[test]
fn tags_have_the_meaning_that_ansible_gives_them() {
    let text = "- hosts: all\n  resources:\n  - show: {id: plain}\n  - show: {id: a}\n    tags: a\n  - show: {id: always}\n    tags: [always]\n  - show: {id: never}\n    tags: [never, b]\n  handlers:\n  - show: {id: h}\n";
    let site = Site::new(&[("site.yaml", text)]);
    for (only, skip, wanted) in [
        (&[][..], &[][..], "plain a always"),
        (&["a"], &[], "a always"),
        (&["a,b"], &[], "a always never"),
        (&["never"], &[], "always never"),
        (&["tagged"], &[], "a always"),
        (&["untagged"], &[], "plain always"),
        (&["all"], &["a"], "plain always"),
        (&[], &["tagged"], "plain"),
        (&[], &["untagged"], "a always"),
        (&[], &["always"], "plain a"),
        (&[], &["all"], "always"),
    ] {
        let tags = Tags::new(only.iter().copied(), skip.iter().copied());
        let play = site.render("n1", &[], &tags, None).unwrap();
        assert_eq!(addresses(&play).join(" ").replace("show:", ""), wanted, "{only:?} {skip:?}");
        assert_eq!(play.handlers.len(), 1);
        assert!(play.skipped.iter().all(|s| &*s.why == "tags" && s.address.is_some()));
    }
}

#[test]
fn the_keys_beside_the_type_reach_the_item() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: all\n  vars: {t: '30', hs: [h1, h2], who: adm}\n  resources:\n  - show: {id: a}\n    name: the {{ t }}\n    after: show:b\n    before: [show:c, '{{ t }}']\n    notify: '{{ hs }}'\n    become: '{{ t == \"30\" }}'\n    become_user: '{{ who }}'\n    ignore_errors: yes\n    timeout: '{{ t }}'\n    no_log: 'true'\n  handlers:\n  - show: {id: h}\n    name: h1\n",
    )]);
    let play = all(&site, &[]);
    let item = &play.resources[0];
    let names = |r: &[Reference]| r.iter().map(|r| r.name.to_string()).collect::<Vec<_>>();
    // Of what is hidden by `no_log`, expressions aren't shown evaluated.
    assert_eq!(item.title.as_deref(), Some("the {{ t }}"));
    assert_eq!(
        (names(&item.after), names(&item.before), names(&item.notify)),
        (vec!["show:b".into()], vec!["show:c".into(), "30".into()], vec!["h1".into(), "h2".into()])
    );
    assert_eq!(item.become_, Become { enabled: true, user: Some("adm".into()) });
    assert_eq!((item.ignore_errors, item.timeout, item.no_log), (true, Some(30), true));
    assert_eq!(item.place.to_string().rsplit(':').nth(1), Some("4"));
    assert_eq!(item.before[1].place.line, 7);
    assert_eq!(play.handlers[0].title.as_deref(), Some("h1"));
}

#[test]
fn what_is_the_same_on_all_hosts_is_read_once() {
    let text = "- hosts: all\n  resources:\n  - show: {id: same}\n    when: inventory_hostname != 'n9'\n  - show: {id: '{{ inventory_hostname }}'}\n  - show: {id: asks, that: [\"inventory_hostname == 'n1'\"]}\n";
    let site = Site::new(&[("site.yaml", text)]);
    let playbook = site.load().unwrap();
    let context = site.context(&[]);
    let play = |host| {
        let variables = playbook.plays[0].variables(&context, context.inventory.host(host).unwrap()).unwrap();
        playbook.plays[0].render(&variables, &Tags::default(), None).unwrap()
    };
    let (one, two) = (play("n1"), play("n2"));
    assert!(Arc::ptr_eq(&one.resources[0].resource, &two.resources[0].resource));
    assert_eq!(addresses(&one), ["show:same", "show:n1", "show:asks=true"]);
    assert_eq!(addresses(&two), ["show:same", "show:n2", "show:asks=false"]);
}

#[test]
fn files_of_variables_may_depend_on_the_host_and_its_facts() {
    let site = Site::new(&[
        (
            "site.yaml",
            "- hosts: all\n  vars_files: ['vars/{{ inventory_hostname }}.yaml', 'vars/{{ facts.os.family }}.yaml']\n  resources:\n  - show: {id: a, value: '{{ x }}'}\n  - show: {id: b, value: '{{ y }}'}\n",
        ),
        ("vars/n1.yaml", "x: '{{ inventory_hostname }}'\n"),
        ("vars/debian.yaml", "y: deb\n"),
    ]);
    let before = all(&site, &[]);
    assert!(before.wants_facts);
    assert_eq!(addresses(&before), ["show:a='n1'"]);
    let facts = Node::from_json(
        &Span::start(&crate::source::Source::new("facts", "")),
        &serde_json::json!({"os": {"family": "debian"}}),
    );
    let after = site.render("n1", &[], &Tags::default(), Some(&facts)).unwrap();
    assert_eq!(addresses(&after), ["show:a='n1'", "show:b=deb"]);
    let told = site.render("n2", &[], &Tags::default(), None).unwrap_err();
    assert!(told.contains("vars/n2.yaml doesn't exist\n  --> site.yaml:2:16"), "{told}");
}

#[test]
fn connection_variables_are_rendered_for_their_host() {
    let site = Site::new(&[
        (
            "site.yaml",
            "- hosts: all\n  vars: {ansible_user: 'u-{{ mtu }}', bad: '{{ facts.kernel }}', worse: '{{ nope }}'}\n  resources: []\n",
        ),
        ("inventory.yaml", INVENTORY),
    ]);
    let context = site.context(&["id=9"]);
    let host = context.inventory.host("n1").unwrap();
    let outside = context.variables(host);
    let text = |v: &Variables, name: &str| v.get(name).unwrap().and_then(|n| n.text().map(str::to_owned));
    assert_eq!(text(&outside, "ansible_host").as_deref(), Some("10.0.0.9"));
    assert_eq!(text(&outside, "ansible_user"), None);
    let inside = site.load().unwrap().plays[0].variables(&context, host).unwrap();
    assert_eq!(text(&inside, "ansible_user").as_deref(), Some("u-1500"));
    assert_eq!(text(&inside, "own").as_deref(), Some("n1-1500"));
    assert!(inside.get("bad").unwrap_err().to_string().contains("can't depend on facts"));
    assert!(inside.get("worse").unwrap_err().to_string().contains("`nope` isn't defined"));
}

#[test]
fn a_play_as_a_whole_is_set_by_its_own_variables() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: '{{ target | default(\"gpu\") }}:!bad'\n  vars: {first: 1}\n  serial: ['{{ first }}', 10%, 50 %]\n  max_fail_percentage: 5.5\n  resources: []\n- hosts: '{{ nope }}'\n  resources: []\n",
    )]);
    let playbook = site.load().unwrap();
    let settings = playbook.plays[0].settings(&site.context(&[])).unwrap();
    assert_eq!(settings.hosts.text(), Some("gpu:!bad"));
    assert_eq!(settings.serial, [Batch::Hosts(1), Batch::Percent(10.0), Batch::Percent(50.0)]);
    assert_eq!(settings.max_fail_percentage, Some(5.5));
    let settings = playbook.plays[0].settings(&site.context(&["target=n1 first=3"])).unwrap();
    assert_eq!((settings.hosts.text(), settings.serial[0]), (Some("n1:!bad"), Batch::Hosts(3)));
    let told = playbook.plays[1].settings(&site.context(&[])).unwrap_err().to_string();
    assert!(told.contains("`nope` isn't defined") && told.contains("no host's variables"), "{told}");
}

#[test]
fn extra_variables_are_read_in_all_forms() {
    let site = Site::new(&[("v.yaml", "b: [1, 0644]\nc: 1\n")]);
    let file = format!("@{}", site.path("v.yaml").display());
    let extra = Extra::parse(["a=1 'd=x y' e=", &file, "{\"c\": true, f: {g: 1}}"], &Vault::default()).unwrap();
    let seen: Vec<String> = extra.0.iter().map(|(k, v)| format!("{k}={}", written(v))).collect();
    assert_eq!(seen, ["a='1'", "b=[1,0644]", "c=true", "d='x y'", "e=''", "f={g:1}"]);
    for (argument, part) in [
        ("novalue", "`novalue` sets no variable"),
        ("a='x", "a quote isn't closed"),
        ("@/nowhere/x.yaml", "can't be read"),
        ("{a: [}", "not valid YAML"),
        ("[1]", "must be a mapping"),
        ("facts=1", "has a meaning of its own"),
        ("a-b=1", "can't be the name of a variable"),
    ] {
        let told = Extra::parse([argument], &Vault::default()).unwrap_err().to_string();
        assert!(told.contains(part), "{argument}: {told}");
    }
}

#[test]
fn the_errors_of_a_host_come_all_at_once() {
    let told = fails(
        "  - show: {id: a, value: '{{ one }}'}\n  - show: {id: b}\n    when: two\n  - show: {id: ''}\n  - show: {id: c, src: none.txt}\n",
    );
    for part in ["`one` isn't defined", "`two` isn't defined", "`id` is empty", "the file `none.txt` doesn't exist"] {
        assert!(told.contains(part), "{part}\n{told}");
    }
}
