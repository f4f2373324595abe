//! What would fill the memory, the stack or the day is an error that says so.

use super::*;

/// The error of a value that is one template.
fn told(value: &str) -> String {
    fails(&format!("  - show: {{id: x, value: \"{value}\"}}\n"))
}

#[test]
fn texts_have_an_end() {
    for (value, message) in [
        ("{{ 'a' | indent(4000000000, true) }}", "makes too much text"),
        ("{{ 'a' * 4000000000 }}", "makes too much text"),
        ("{{ 'a' * 20000000 }}", "more than 16 MiB"),
        ("a{{ 'a' * 20000000 }}", "more than 16 MiB"),
        ("{{ ['a' * 10000000] * 2 }}", "more than 16 MiB"),
        ("{{ range(4000000000) }}", "too many elements"),
        ("{{ '%4000000000d' | format(1) }}", "makes too much text"),
        ("{{ '{:>4000000000}'.format(1) }}", "more than 16 MiB"),
        ("{{ '{0:>9000000}{0:>9000000}'.format(1) }}", "more than 16 MiB"),
        ("{{ ('a' * 10000) | regex_replace('a', 'b' * 10000) }}", "more than 16 MiB"),
        ("{{ [1] | to_nice_json(indent=4000000000) }}", "`indent` is at most 100"),
        (
            "{% set n = namespace(a='a') %}{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}{{ n.a }}",
            "makes too much text",
        ),
        (
            "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
            "parts",
        ),
        (
            "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a | to_json }}",
            "more than 1000000 parts",
        ),
        (
            "{% set n = namespace(a=[]) %}{% for i in range(200) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a | to_yaml }}",
            "nested deeper than 100",
        ),
    ] {
        let told = told(value);
        assert!(told.contains(message), "{value}\n{told}");
    }
    assert_eq!(shown("    v: 1", &["\"{{ '{:>5}|{:.1f}'.format(1, 2.5) }}\""]), ["'    1|2.5'"]);
    assert_eq!(shown("    v: 1", &["\"{{ (['a' * 1000] * 3) | join }}\""]).len(), 1);
}

#[test]
fn what_holds_itself_many_times_over_has_an_end() {
    let doubled = |first: &str, next: &dyn Fn(usize) -> String| {
        let vars: String = (1..40).map(|i| format!("    v{i}: {}\n", next(i - 1))).collect();
        format!(
            "- hosts: all\n  vars:\n    v0: {first}\n{vars}  resources:\n  - show: {{id: x, value: \"{{{{ v39 | to_json }}}}\"}}\n"
        )
    };
    for next in [
        |i| format!("\"{{{{ [v{i}, v{i}] }}}}\""),
        |i| format!("[\"{{{{ v{i} }}}}\", \"{{{{ v{i} }}}}\"]"),
        |i| format!("{{a: \"{{{{ v{i} }}}}\", b: \"{{{{ v{i} }}}}\"}}"),
    ] {
        let site = Site::new(&[("site.yaml", &doubled("[1]", &next))]);
        let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
        assert!(told.contains("the value has more than 1000000 parts\n  --> site.yaml:"), "{told}");
    }
    let long = "\"{{ 'a' * 1000000 }}\"";
    let site = Site::new(&[("site.yaml", &doubled(long, &|i| format!("[\"{{{{ v{i} }}}}\", \"{{{{ v{i} }}}}\"]")))]);
    assert!(site.render("n1", &[], &Tags::default(), None).unwrap_err().contains("more than 16 MiB"));
}

#[test]
fn stacks_have_an_end() {
    let chain = |n: usize| format!("{{{{ {}1 }}}}", "1 + ".repeat(n));
    assert_eq!(shown("    v: 1", &[&format!("'{}'", chain(5000))]), ["5001"]);
    for text in ["1 + ", "not ", "- ", "1 | abs + "] {
        let told = told(&format!("{{{{ {}1 }}}}", text.repeat(50_000)));
        assert!(told.contains("chains more than 10000 operators"), "{told}");
        let site = format!("- hosts: all\n  resources:\n  - show: {{id: x}}\n    when: '{}1'\n", text.repeat(50_000));
        assert!(refused(&site).contains("chains more than 10000 operators"));
    }
    // What is nested by a loop and dropped again: as deep as instructions reach.
    let nested = "{% set n = namespace(a=[]) %}{% for i in range(90000) %}{% set n.a = [n.a] %}{% endfor %}ok";
    assert_eq!(shown("    v: 1", &[&format!("'{nested}'")]), ["'ok'"]);
}

#[test]
fn deep_documents_are_errors() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000)] {
        let told = refused(&text);
        assert!(told.contains("nested deeper than 100"), "{}\n{told}", &text[..4]);
    }
    assert!(told(&format!("{{{{ '{}' | from_json }}}}", "[".repeat(100_000))).contains("not valid JSON"));
    assert!(told(&format!("{{{{ '{}' | from_yaml }}}}", "[".repeat(100_000))).contains("nested deeper than 100"));
}

#[test]
fn files_that_need_each_other_are_named() {
    let play = "- hosts: all\n  resources:\n  - show: {id: f, template: a.j2}\n";
    let alone = ["templates/a.j2 → templates/a.j2"; 2];
    let both = ["templates/a.j2 → templates/b.j2 → templates/a.j2", "templates/b.j2 → templates/a.j2 → templates/b.j2"];
    for (a, b, circle) in [
        ("{% extends 'a.j2' %}", "", alone),
        ("x\n{% include 'a.j2' %}", "", alone),
        ("{% extends 'b.j2' %}", "{% extends 'a.j2' %}", both),
        ("{% include 'b.j2' %}", "{% import 'a.j2' as a %}", both),
    ] {
        let site = Site::new(&[("site.yaml", play), ("templates/a.j2", a), ("templates/b.j2", b)]);
        let told = site.render("n1", &[], &Tags::default(), None).unwrap_err();
        let known = circle.iter().any(|c| told.contains(&format!("template files need each other in a circle: {c}")));
        assert!(known, "{a}\n{told}");
    }
    let (mut a, b) = ("{% for i in range(50001) %}{% include 'b.j2' %}{% endfor %}", "");
    for told in ["other template files are needed more than 50000 times", ""] {
        let site = Site::new(&[("site.yaml", play), ("templates/a.j2", a), ("templates/b.j2", b)]);
        let result = site.render("n1", &[], &Tags::default(), None).map(drop);
        assert_eq!(result.is_err(), !told.is_empty());
        assert!(result.err().unwrap_or_default().contains(told));
        a = "{% for i in range(50000) %}{% include 'b.j2' %}{% endfor %}";
    }
}

#[test]
fn facts_that_there_are_not_are_found_without_a_host() {
    let site = |when: &str, value: &str| {
        format!("- hosts: all\n  resources:\n  - show: {{id: x, value: \"{value}\"}}\n    when: {when}\n")
    };
    let told = refused(&site("facts.os.famly == 'redhat'", "{{ facts.kernl }}"));
    assert_eq!(
        told,
        "error: `facts` has no `kernl`\n  --> site.yaml:3:30\n   3 |   - show: {id: x, value: \"{{ facts.kernl }}\"}\n     |                              ^^^^^^^^^^^\n  help: did you mean `kernel`? known: host, os, kernel, cpus, memory_mib, interfaces, rdma, service_manager, session\nerror: `facts.os` has no `famly`\n  --> site.yaml:4:11\n   4 |     when: facts.os.famly == 'redhat'\n     |           ^^^^^^^^^^^^^^\n  help: did you mean `family`? known: family, id, version"
    );
    assert!(refused(&site("true", "a {{ facts.host.nam }} b")).contains("did you mean `name`?"));
    for fine in [
        "facts.os.family == 'redhat' and facts['os'].version is version('9', '>=')",
        "facts.interfaces | selectattr('name', 'eq', 'eth0') | list | length > 0",
        "facts.interfaces[0].nmae == 'eth0'",
        "facts.get('new') or facts.os.get('famly') or facts.host.items() | list",
        "facts.new is defined and facts.os.new is not defined",
        "facts.new | default(false)",
        "facts.kernel.split('.')[0] == '6'",
        "true and 'facts.os.famly' != 'x'",
        "facts.os.family in ['a.facts.b']",
        "facts.cpus.numa | length > facts.session.interface | length",
    ] {
        let site = Site::new(&[("site.yaml", &site(fine, "x"))]);
        assert!(site.load().is_ok(), "{fine}\n{}", site.load().unwrap_err());
    }
}
