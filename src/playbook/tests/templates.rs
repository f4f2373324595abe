//! What templates yield, and where their errors are.

use super::*;

#[test]
fn numbers_keep_their_text_as_long_as_nothing_is_computed() {
    let vars = "    mode: 0644\n    version: 1.10\n    mac: 11:22:33:44:55:06\n    onboot: yes\n    n: 9000\n    list: [0755, 1.50]\n    text: 'a'";
    let cases = [
        ("'{{ mode }}'", "0644"),
        ("'{{mode}}'", "0644"),
        ("\"{{ mode | default('0600') }}\"", "0644"),
        ("\"{{ nothing | default('0600') }}\"", "'0600'"),
        ("\"{{ nothing | default(mode) }}\"", "0644"),
        ("\"{{ mode if n > 1 else 7 }}\"", "0644"),
        ("'v{{ version }}-{{ mode }}'", "'v1.10-0644'"),
        ("'{{ list[0] }}'", "0755"),
        ("'{{ list | first }}'", "0755"),
        ("'{{ list[1:] }}'", "[1.50]"),
        ("'{{ mac }}'", "11:22:33:44:55:06"),
        ("'hw {{ mac }}'", "'hw 11:22:33:44:55:06'"),
        ("'{{ onboot }}'", "yes"),
        ("'is {{ onboot }}'", "'is True'"),
        ("'{{ not onboot }}'", "FALSE"),
        // Computed with, they are their values.
        ("'{{ mode + 1 }}'", "421"),
        ("'{{ mode == 420 }}'", "TRUE"),
        ("'{{ version > 1.05 }}'", "TRUE"),
        ("'{{ version * 2 }}'", "2.2"),
        ("'{{ n }}'", "9000"),
        ("'{{ n - 18 }}'", "8982"),
        // A number that happens to be the same isn't taken for it.
        ("'{{ mode }} {{ 420 }} {{ range(420, 421) | first }}'", "'0644 420 420'"),
        ("\"{{ {'m': mode} | combine({'n': n}) }}\"", "{m:0644,n:9000}"),
        ("'{{ text }}'", "'a'"),
        ("'{{ none }}'", "null"),
        ("'{{ [n, text, true] }}'", "[9000,'a',TRUE]"),
    ];
    let (values, wanted): (Vec<&str>, Vec<&str>) = cases.into_iter().unzip();
    // A plain string of the play stays plain.
    let wanted: Vec<String> = wanted.iter().map(|w| (*w).to_owned()).collect();
    assert_eq!(shown(vars, &values), wanted);
}

#[test]
fn what_is_undefined_is_named_with_its_place() {
    assert_eq!(
        fails(
            "  - show: {id: x, value: \"mtu {{ fabrik_mtu }}\"}\n  - show: {id: y, value: '{{ inventory_hostnam }}'}\n"
        ),
        "error: the variable `fabrik_mtu` isn't defined\n  --> site.yaml:3:34\n   3 |   - show: {id: x, value: \"mtu {{ fabrik_mtu }}\"}\n     |                                  ^^^^^^^^^^\nerror: the variable `inventory_hostnam` isn't defined\n  --> site.yaml:4:30\n   4 |   - show: {id: y, value: '{{ inventory_hostnam }}'}\n     |                              ^^^^^^^^^^^^^^^^^\n  help: did you mean `inventory_hostname`?"
    );
}

#[test]
fn loops_that_never_end_are_ended() {
    let told = fails(
        "  - show: {id: x, value: '{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}'}\n",
    );
    assert!(told.starts_with("error: it runs too long"), "{told}");
}

#[test]
fn places_are_those_of_the_file_whatever_the_style() {
    let places = |text: &str| -> Vec<String> {
        let told = fails(text);
        told.lines().filter_map(|l| l.trim().strip_prefix("--> site.yaml:")).map(str::to_owned).collect()
    };
    // Line and column of `oops` itself; the file has two lines before these.
    for (text, place) in [
        ("  - show:\n      id: x\n      value: a {{ oops }}\n", "5:19"),
        ("  - show:\n      id: x\n      value: 'it''s {{ oops }}'\n", "5:24"),
        ("  - show:\n      id: x\n      value: \"\\ta\\x41\\\"é {{ oops }}\"\n", "5:29"),
        ("  - show:\n      id: x\n      value: |\n        first\n          deeper {{ oops }}\n", "7:21"),
        (
            "  - show:\n      id: x\n      value: >-\n        first\n        second {{ oops }}\n\n        third\n",
            "7:19",
        ),
        ("  - show:\n      id: x\n      value: a\n        b {{\n        oops }}\n", "7:9"),
        ("  - show:\n      id: x\n      value: \"a\n        b {{ oops }}\"\n", "6:14"),
        ("  - show:\n      id: x\n      value: '{{ 1 + oops }}'\n", "5:22"),
        ("  - show:\n      id: x\n      value: |\n        {{ 1\n           + oops }}\n", "7:14"),
        ("  - show: {id: x}\n    when: 1 == oops\n", "4:16"),
        ("  - show: {id: x}\n    when:\n    - true\n    - oops == 1\n", "6:7"),
        ("  - show: {id: x}\n    loop: '{{ oops }}'\n", "4:15"),
        ("  - show: {id: x}\n    name: '{{ oops }}'\n", "4:15"),
        ("  - show: {id: x}\n    notify: ['{{ oops }}']\n", "4:18"),
    ] {
        assert_eq!(places(text), [place], "{text}\n{}", fails(text));
    }
}

#[test]
fn a_syntax_error_is_found_without_a_host() {
    for (value, part) in [
        ("'{{ a b }}'", "not a valid template"),
        ("'{{ a'", "not a valid template"),
        ("'{% if x %}'", "not a valid template"),
        ("'{% frobnicate %}'", "not a valid template"),
        ("'{{ a + }}'", "not a valid template"),
    ] {
        let told = refused(&format!("- hosts: all\n  resources:\n  - show: {{id: x, value: {value}}}\n"));
        assert!(told.contains(part) && told.contains("site.yaml:3:"), "{value}: {told}");
    }
    for (when, part) in [
        ("\"{{ x }} == 1\"", "without `{{ }}`"),
        ("x ==", "not a valid template"),
        ("''", "the condition is empty"),
        ("{a: 1}", "a condition is an expression, not a mapping"),
    ] {
        let told = refused(&format!("- hosts: all\n  resources:\n  - show: {{id: x}}\n    when: {when}\n"));
        assert!(told.contains(part) && told.contains("site.yaml:4:"), "{when}: {told}");
    }
}

#[test]
fn what_goes_wrong_in_an_expression_is_told_with_a_remedy() {
    for (value, parts) in [
        ("{{ 'a' | frobnicate }}", &["there is no filter `frobnicate`", "known: abs"][..]),
        ("{{ 'a' | regex_replce('a') }}", &["did you mean `regex_replace`?"]),
        ("{{ 'a' is versoin('1') }}", &["there is no test `versoin`", "did you mean `version`?"]),
        ("{{ [1] | select('evn') | list }}", &["there is no test `evn`", "did you mean `even`?"]),
        ("{{ [1] | rejectattr('even', 'definde') | list }}", &["there is no test `definde`", "`defined`?"]),
        ("{{ [1] | map('uppper') | list }}", &["there is no filter `uppper`", "did you mean `upper`?"]),
        ("{{ rnage(3) }}", &["there is no function `rnage`", "did you mean `range`?"]),
        ("{{ lookup('env', 'HOME') }}", &["`lookup` isn't supported", "-e name="]),
        ("{{ inventory_hostname.nope }}", &["`inventory_hostname` is a string and has no `nope`"]),
        ("{{ groups.alll }}", &["`groups` has no `alll`", "did you mean `all`?"]),
        ("{{ groups['all'][7] }}", &["`groups.all` has 2 items and has no item 7"]),
        ("{{ nope.deeper | default(1) }}", &["the variable `nope` isn't defined"]),
        ("{{ hostvars['n3'].x }}", &["no host `n3` in the inventory", "did you mean `n1`?"]),
        ("{{ hostvars['n2'].x }}", &["the host `n2` has no variable `x`"]),
        ("{{ hostvars['n2'].facts.kernel }}", &["`hostvars['n2'].facts` can't be used"]),
        ("{{ hostvars.n2['facts'] | default('') }}", &["`hostvars['n2'].facts` can't be used"]),
        ("{{ hostvars }}", &["`hostvars` needs the name of a host"]),
        ("{{ 'x' if false }}", &["yields nothing", "`else`"]),
        ("{{ ansible_os_family }}", &["`facts.os.family`"]),
        ("{{ 1 + 'a' }}", &["unsupported types number and string"]),
        ("{{ 'a(' | regex_replace('(', '') }}", &["the regular expression `(` can't be used", "unclosed group"]),
        ("{{ '{' | from_json }}", &["not valid JSON"]),
        ("{{ [1] | combine({}) }}", &["`combine` takes mappings, not an integer"]),
        ("{{ nosuch | combine({}) }}", &["the variable `nosuch` isn't defined"]),
        ("a {{ {'b': 1} | combine(groups, nosuch) }}", &["the variable `nosuch` isn't defined"]),
        ("{{ {'b': 1} | combine(groups.nope) }}", &["`groups` has no `nope`"]),
        ("{{ [nosuch] }}", &["the variable `nosuch` isn't defined"]),
        ("{{ (inventory_hostname | length) + nosuch }}", &["the variable `nosuch` isn't defined"]),
        ("{{ x | mandatory('say x') }}", &["say x"]),
        ("a {{ omit }}", &["`omit` leaves out a whole value"]),
        ("{{ range }}", &["a function, not a value"]),
        ("{% for i in 7 %}{% endfor %}", &["number is not iterable"]),
    ] {
        let told = fails(&format!("  - show: {{id: x, value: \"{value}\"}}\n"));
        for part in parts {
            assert!(told.contains(part) && told.contains("site.yaml:3:"), "{value}\n{told}");
        }
    }
}

#[test]
fn filters_are_those_of_ansible() {
    let vars = "    d: {b: 1, a: [x, 0644]}\n    s: eth0.100\n    u: 'ü\"'";
    let cases = [
        ("{{ d | to_json }}", r#"'{"b": 1, "a": ["x", 420]}'"#),
        ("{{ u | to_json }}", r#"'"ü\""'"#),
        ("{{ d | to_yaml }}", "'b: 1\na:\n  - x\n  - 0644\n'"),
        ("{{ [{'a': 1, 'b': [2]}, []] | to_yaml }}", "'- a: 1\n  b:\n    - 2\n- []\n'"),
        ("{{ ['yes', '1', '', 'a: b', '-x'] | to_yaml }}", "'- \"yes\"\n- \"1\"\n- \"\"\n- \"a: b\"\n- \"-x\"\n'"),
        ("{{ {'<<': 1} | to_yaml }}", "'\"<<\": 1\n'"),
        ("{{ ('[1, {\"a\": null}]' | from_json)[1].a is none }}", "TRUE"),
        (r"{{ s | regex_replace('^eth(\\d+)\\.(\\d+)$', 'vlan\\2-\\1') }}", "'vlan100-0'"),
        ("{{ s | regex_search('[0-9]+$') }}", "'100'"),
        (r"{{ s | regex_search('eth(\\d)', '\\1') }}", "['0']"),
        (r"{{ '\\n' }}<{{ 'a\\tb' }}>", r"'\n<a\tb>'"),
        ("{{ s | regex_search('nope') }}", "null"),
        ("{{ d | combine({'b': 2}, {'c': 3}) }}", "{b:2,a:[x,0644],c:3}"),
        ("{{ {'x': {'y': 1}} | combine({'x': {'z': 2}}, recursive=true) }}", "{x:{y:1,z:2}}"),
        ("{{ {'x': {'y': 1}} | combine({'x': {'z': 2}}) }}", "{x:{z:2}}"),
        ("{{ d | dict2items | map(attribute='key') | list }}", "['b','a']"),
        ("{{ (d | dict2items)[1].value[1] }}", "0644"),
        ("{{ d | dict2items | items2dict == d }}", "TRUE"),
        ("{{ '1.10' is version('1.9', '>') }}", "TRUE"),
        ("{{ '5.14.0-427.el9' is version('5.4', '>=') }}", "TRUE"),
        ("{{ 'no' | bool }}", "FALSE"),
        ("{{ 'Yes' | bool }}", "TRUE"),
        ("{{ (1 == 1) | ternary('a', 'b') }}", "'a'"),
        ("{{ '/a/b.c' | basename }}{{ '/a/b.c' | dirname }}", "'b.c/a'"),
        ("{{ \"it's\" | quote }}", r#"''it'"'"'s''"#),
        ("{{ s.split('.')[1] }}", "'100'"),
        ("{{ d.items() | list | length }}", "2"),
        ("{{ d.get('zz', 'none') }}", "'none'"),
        ("{{ s.startswith('eth') and s is defined and zz is not defined }}", "TRUE"),
        ("{{ ['a', 'b'] }} {{ none }} {{ {'k': true} }}", "'['a', 'b']  {'k': True}'"),
        ("{{ groups['all'] }}", "['n1','n2']"),
        ("{{ inventory_hostname_short }}", "'n1'"),
        ("{{ hostvars[groups['all'][1]].inventory_hostname }}", "'n2'"),
        ("{% for h in groups.all %}{{ h }},{% endfor %}", "'n1,n2,'"),
        ("{# nothing #}", "''"),
        ("{{ '{{' }} x }}", "'{{ x }}'"),
    ];
    let (values, wanted): (Vec<&str>, Vec<&str>) = cases.into_iter().unzip();
    let quoted: Vec<String> = values.iter().map(|v| format!("\"{}\"", v.replace('"', "\\\""))).collect();
    let got = shown(vars, &quoted.iter().map(String::as_str).collect::<Vec<_>>());
    for ((value, wanted), got) in values.iter().zip(wanted).zip(got) {
        assert_eq!(got, wanted, "{value}");
    }
}

#[test]
fn variables_are_rendered_when_used() {
    let vars = "    base: eth\n    nics: ['{{ base }}0', '{{ base }}1']\n    broken: '{{ nowhere }}'\n    nested: {deep: ['{{ nics[1] }}']}\n    raw: !unsafe '{{ base }}'\n    text: \"{{ base }}\\n\"";
    assert_eq!(
        shown(
            vars,
            &[
                "'{{ nics }}'",
                "'{{ nested.deep[0] }}'",
                "\"{{ broken | default('fallback') }}\"",
                "'{{ broken is defined }}'",
                "'{{ raw }}'",
                "'<{{ raw }}>'",
                "'{{ text }}'",
                "\"{{ omit }}\"",
                "\"{{ nowhere | default(omit) }}\"",
                "{a: 1, b: '{{ omit }}', c: ['{{ omit }}', 2]}",
            ]
        ),
        [
            "['eth0','eth1']",
            "'eth1'",
            "'fallback'",
            "FALSE",
            "'{{ base }}'",
            "'<{{ base }}>'",
            "'eth\n'",
            "omitted",
            "omitted",
            "{a:1,c:[2]}"
        ]
    );
}

#[test]
fn an_error_in_a_variable_names_where_it_is_set_and_used() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: all\n  vars:\n    a: '{{ b }}'\n    b: 'x {{ c.d }}'\n    c: {e: 1}\n  resources:\n  - show: {id: x, value: '{{ a }}'}\n",
    )]);
    let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
    assert!(told.starts_with("error: `c` has no `d`\n  --> site.yaml:4:"), "{told}");
    assert!(
        told.contains("used here:\n  --> site.yaml:3:") && told.contains("used here:\n  --> site.yaml:7:"),
        "{told}"
    );
}

#[test]
fn a_variable_that_needs_itself_is_told_with_the_chain() {
    let site = Site::new(&[(
        "site.yaml",
        "- hosts: all\n  vars: {a: '{{ b }}', b: 'x{{ c }}', c: '{{ a | upper }}', d: '{{ d }}'}\n  resources:\n  - show: {id: x, value: '{{ a }}'}\n  - show: {id: x, value: '{{ d }}'}\n",
    )]);
    let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
    assert!(told.contains("the variable `a` needs itself: a → b → c → a"), "{told}");
    assert!(told.contains("the variable `d` needs itself: d → d"), "{told}");
}

#[test]
fn a_long_chain_of_variables_is_refused_and_not_a_crash() {
    let mut vars = String::new();
    for i in 0..2000 {
        vars += &format!("    v{i}: 'x{{{{ v{} }}}}'\n", i + 1);
    }
    let text = format!(
        "- hosts: all\n  vars:\n{vars}    v2000: end\n  resources:\n  - show: {{id: x, value: '{{{{ v0 }}}}'}}\n"
    );
    let site = Site::new(&[("site.yaml", &text)]);
    let told = fails_with(&vars.replacen("{{ v36 }}", "{{ nowhere }}", 1), "'{{ v0 }}'");
    assert!(told.contains("the variable `nowhere` isn't defined"), "{told}");
    // On a small stack, as threads have it.
    let told = std::thread::scope(|s| {
        std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn_scoped(s, || site.render("n1", &[], &Tags::default(), None).unwrap_err())
            .unwrap()
            .join()
            .unwrap()
    });
    assert!(told.contains("in more than 40 steps"), "{told}");
}

fn fails_with(vars: &str, value: &str) -> String {
    let text = format!("- hosts: all\n  vars:\n{vars}  resources:\n  - show: {{id: x, value: {value}}}\n");
    Site::new(&[("site.yaml", &text)]).render("n1", &[], &Tags::default(), None).unwrap_err()
}

fn rendered(template: &str) -> Result<String, String> {
    let site = Site::new(&[
        (
            "site.yaml",
            "- hosts: all\n  vars: {n: 3, on: yes, mode: 0644, empty: }\n  resources:\n  - show: {id: f, template: t.j2}\n",
        ),
        ("templates/t.j2", template),
        ("templates/part.j2", "[{{ n }}]\n"),
        ("templates/sub/inner.j2", "{% include 'part.j2' %}"),
        ("templates/macros.j2", "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}"),
        ("templates/bad.j2", "fine\n{{ missing_here }}\n"),
    ]);
    let play = site.render("n1", &[], &Tags::default(), None)?;
    Ok(play.resources[0].address.strip_prefix("show:f=").unwrap().to_owned())
}

#[test]
fn files_are_rendered_as_ansible_renders_them() {
    for (template, wanted) in [
        ("a\n", "a\n"),
        ("a", "a"),
        ("a\n\n", "a\n\n"),
        // A block takes its newline with it; the final one stays.
        ("{% if on %}\nyes\n{% endif %}\n", "yes\n"),
        ("{% for i in range(2) %}\nl{{ i }}\n{% endfor %}\nend\n", "l0\nl1\nend\n"),
        ("  {% if on %}\nx\n  {% endif %}\ny\n", "  x\n  y\n"),
        ("#jinja2: lstrip_blocks: True\n  {% if on %}\nx\n  {% endif %}\ny\n", "x\ny\n"),
        ("#jinja2: trim_blocks: False\n{% if on %}\nx{% endif %}\n", "\nx\n"),
        ("n={{ n }} on={{ on }} mode={{ mode }} empty={{ empty }}.\n", "n=3 on=True mode=0644 empty=.\n"),
        ("<a b=\"&\">{{ '<&>' }}\n", "<a b=\"&\"><&>\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("{% include 'part.j2' %}end\n", "[3]\nend\n"),
        ("{% include 'sub/inner.j2' %}end\n", "[3]\nend\n"),
        ("{% import 'macros.j2' as m %}{{ m.twice(n) }}\n", "33\n"),
        ("{% set x = n + 1 %}\n{{ x }}{# note #}\n", "4"),
    ] {
        assert_eq!(
            rendered(template).unwrap_or_else(|e| panic!("{template}\n{e}")).trim_end_matches('\n'),
            wanted.trim_end_matches('\n'),
            "{template}"
        );
        let newlines = |s: &str| s.len() - s.trim_end_matches('\n').len();
        assert_eq!(newlines(&rendered(template).unwrap()), newlines(template), "{template}");
    }
}

#[test]
fn errors_of_files_are_placed_in_them() {
    for (template, parts) in [
        ("a\n\n  {{ oops }}\n", &["the variable `oops` isn't defined", "templates/t.j2:3:6"][..]),
        ("#jinja2: lstrip_blocks: True\n  {{ oops }}\n", &["templates/t.j2:2:6"]),
        ("{% include 'bad.j2' %}", &["`missing_here` isn't defined", "templates/bad.j2:2:4"]),
        ("a\n{% include 'nope.j2' %}", &["non-existing template 'nope.j2'", "templates/t.j2:2:4"]),
        ("a\n{% if %}\n", &["not a valid template", "templates/t.j2:2:"]),
        ("#jinja2: block_start_string: '[%'\n", &["isn't an option of a template", "t.j2:1:1"]),
        ("x\n{{ n + oops.x }}\n", &["the variable `oops` isn't defined", "templates/t.j2:2:8"]),
        ("{{ n | nope }}", &["there is no filter `nope`", "templates/t.j2:1:"]),
    ] {
        let told = rendered(template).unwrap_err();
        for part in parts {
            assert!(told.contains(part), "{template}\n{part}\n{told}");
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let base = "- hosts: all\n  resources:\n  - show: {id: f, template: t.j2}\n";
    let told = Site::new(&[("site.yaml", base)]).render("n1", &[], &Tags::default(), None).unwrap_err();
    assert!(told.contains("the template `t.j2` doesn't exist\n  --> site.yaml:3:29"), "{told}");
    assert!(told.contains("looked for: templates/t.j2, t.j2"), "{told}");
    let site = Site::new(&[("site.yaml", base)]);
    std::fs::write(site.path("t.j2"), b"a\xff").unwrap();
    let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
    assert!(told.contains("not UTF-8") && told.contains("t.j2:1:2") && told.contains("named here"), "{told}");
    let site = Site::new(&[("site.yaml", base)]);
    std::fs::write(site.path("t.j2"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
    assert!(told.contains("1048577 bytes"), "{told}");
}

#[test]
fn what_needs_facts_waits_for_them() {
    let site = Site::new(&[
        (
            "site.yaml",
            "- hosts: all\n  vars: {family: '{{ facts.os.family }}'}\n  resources:\n  - show: {id: a}\n  - show: {id: b, value: '{{ facts.kernel }}'}\n  - show: {id: c}\n    when: family == 'debian'\n  - show: {id: d, template: t.j2}\n  - show: {id: '{{ i.name }}'}\n    loop: '{{ facts.interfaces }}'\n    loop_control: {loop_var: i}\n  - show: {id: e, that: [facts.cpus.count > 1]}\n  - show: {id: f}\n    when: [false, facts.kernel is defined]\n  - show: {id: g, value: \"{{ facts.nope | default('none') }}\"}\n",
        ),
        ("templates/t.j2", "{% if true %}{{ family }}{% endif %}"),
    ]);
    let before = site.render("n1", &[], &Tags::default(), None).unwrap();
    assert_eq!(addresses(&before), ["show:a"]);
    assert!(before.wants_facts);
    assert_eq!(before.skipped.len(), 1);
    let json = serde_json::json!({
        "os": {"family": "debian"}, "kernel": "6.1 {{ inventory_hostname }}", "cpus": {"count": 2},
        "interfaces": [{"name": "eth0"}, {"name": "ib0"}],
    });
    let facts = Node::from_json(&Span::start(&crate::source::Source::new("facts", "")), &json);
    let after = site.render("n1", &[], &Tags::default(), Some(&facts)).unwrap();
    // What a host says of itself is never taken for a template.
    assert_eq!(
        addresses(&after),
        [
            "show:a",
            "show:b='6.1 {{ inventory_hostname }}'",
            "show:c",
            "show:d=debian",
            "show:eth0",
            "show:ib0",
            "show:e=true",
            "show:g='none'"
        ]
    );
    assert!(!after.wants_facts);
}

#[test]
fn a_condition_on_what_a_command_gave_sees_nothing_else() {
    let node = |text: &str| {
        let source = crate::source::Source::new("t", text);
        crate::yaml::load_one(&source, crate::error::Kind::Playbook).unwrap().unwrap()
    };
    let holds = |text: &str, rc, output| template::predicate(&node(text)).unwrap()(rc, output);
    assert!(holds("rc == 2 and 'new' in output", 2, "a new one").unwrap());
    assert!(!holds("output | trim != ''", 0, " \n").unwrap());
    assert!(holds(r"output | regex_search('^\d+$')  is not none", 0, "12").unwrap());
    assert!(!holds("false", 0, "").unwrap());
    assert!(holds("output", 0, "text").unwrap_err().to_string().contains("yields the string `text`"));
    let told = template::predicate(&node("stdout != ''")).err().unwrap().to_string();
    assert!(told.contains("`stdout` isn't known here\n  --> t:1:1"), "{told}");
    assert!(template::predicate(&node("rc ==")).is_err());
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let text = prop_oneof!["\\PC{0,6}", "[-?:#&*!|>'\"%@` {}\\[\\],yesno0-9.\n\t\u{7f}\u{85}é]{0,5}"];
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<i32>().prop_map(|i| (f64::from(i) / 4.0).into()),
            text.clone().prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 20, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::vec((text.clone(), inner), 0..4)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn yaml_that_is_written_reads_back(value in json()) {
            let context = Site::new(&[]).context(&[]);
            let variables = context.variables(context.inventory.host("n1").unwrap());
            // Facts are never taken for templates, whatever they have in them.
            let facts = Node::from_json(&Span::start(&crate::source::Source::new("facts", "")), &value);
            let scope = Arc::new(variables.0.with_facts(&facts));
            for filter in ["to_yaml", "to_nice_yaml", "to_json", "to_nice_json"] {
                let back = if filter.ends_with("json") { "from_json" } else { "from_yaml" };
                let text = format!("{{{{ facts | {filter} }}}}");
                let node = Node::string(&Span::start(&crate::source::Source::new("t", &*text)), &*text);
                let written = template::render(&node, &scope).unwrap().unwrap();
                let text = format!("{{{{ facts | {filter} | {back} }}}}");
                let node = Node::string(&node.span, &*text);
                let read = template::render(&node, &scope).map_err(|e| format!("{}\n{e}", written.text().unwrap()));
                prop_assert_eq!(read.unwrap().unwrap().to_json(), value.clone(), "{}", written.text().unwrap());
            }
        }

        #[test]
        fn no_text_is_too_odd(text in "[{}%#'\"\\\\ a1\n:é.|()\\[\\]-]{0,24}", folded in any::<bool>()) {
            // As a double-quoted scalar, and as a value whose place has nothing to do with its text.
            let quoted = serde_json::Value::from(&*text).to_string();
            let site = Site::new(&[("site.yaml", &format!("- hosts: all\n  resources:\n  - show: {{id: x, value: {quoted}}}\n"))]);
            let told = site.render("n1", &[], &Tags::default(), None);
            if !["{{", "{%", "{#"].iter().any(|m| text.contains(m)) {
                let play = told.unwrap();
                prop_assert_eq!(addresses(&play), [format!("show:x='{text}'")]);
            }
            let elsewhere = Span::at(&crate::source::Source::new("t", if folded { "x: >\n  \"\\U" } else { "" }), 2, 3, 1);
            let context = site.context(&[]);
            let variables = context.variables(context.inventory.host("n1").unwrap());
            let _ = template::render(&Node::string(&elsewhere, &*text), &variables.0);
            let _ = template::holds(&Node::string(&elsewhere, &*text), &variables.0);
        }
    }
}
