//! What the readers of JUnit's XML ask of a report: Jenkins' xunit plugin (its schema `junit-10.xsd`) and GitLab, which
//! has no schema and takes what Rails makes of the document.

use std::collections::BTreeMap;

/// Cases by their suite, and what each came to: `passed` or the name of its element, and all its text.
pub(crate) type Suites = BTreeMap<String, BTreeMap<String, (String, String)>>;

/// Reads a report, which keeps to the rules.
///
/// # Panics
/// When it doesn't.
pub(crate) fn read(xml: &str) -> Suites {
    // XML 1.0, "Char"; the reader refuses most of it, but not all.
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
    assert_eq!(xml.chars().find(|c| !allowed(*c)), None);
    let document = roxmltree::Document::parse(xml).unwrap_or_else(|e| panic!("{e}: {xml}"));
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "testsuites");
    document.descendants().filter(|n| n.is_element()).for_each(|n| element(&n));
    let mut suites = BTreeMap::new();
    for suite in root.children().filter(|n| n.is_element()) {
        let mut cases = BTreeMap::new();
        let mut counts = BTreeMap::from([("tests", 0), ("failures", 0), ("errors", 0), ("skipped", 0)]);
        for case in suite.children().filter(|n| n.is_element()) {
            // GitLab takes a case's suite from here.
            assert_eq!(case.attribute("classname"), suite.attribute("name"));
            let parts: Vec<&str> = case.children().filter(|n| n.is_element()).map(|n| n.tag_name().name()).collect();
            assert!(matches!(parts[..], [] | [_] | [_, "system-out"]), "{parts:?}");
            let verdict = parts.iter().copied().find(|part| *part != "system-out").unwrap_or("passed");
            *counts.get_mut("tests").unwrap() += 1;
            match verdict {
                "failure" => *counts.get_mut("failures").unwrap() += 1,
                "error" => *counts.get_mut("errors").unwrap() += 1,
                "skipped" => *counts.get_mut("skipped").unwrap() += 1,
                other => assert_eq!(other, "passed"),
            }
            let text = case.descendants().filter(|n| n.is_text()).filter_map(|n| n.text()).collect::<String>();
            let name = case.attribute("name").unwrap().to_owned();
            // GitLab knows a case by suite, class and name, and shows one of those that share them.
            assert!(cases.insert(name, (verdict.to_owned(), text.trim().to_owned())).is_none(), "{xml}");
        }
        for (count, n) in counts {
            assert_eq!(suite.attribute(count).unwrap(), n.to_string(), "{count} of {:?}", suite.attribute("name"));
        }
        assert!(suites.insert(suite.attribute("name").unwrap().to_owned(), cases).is_none(), "{xml}");
    }
    suites
}

/// One element: what it may hold, and the attributes that the schema wants and allows.
fn element(node: &roxmltree::Node<'_, '_>) {
    let name = node.tag_name().name();
    let (inside, wanted, allowed): (&[&str], &[&str], &[&str]) = match name {
        "testsuites" => (&["testsuite"], &[], &["name", "time", "tests", "failures", "errors"]),
        "testsuite" => (
            &["testsuite", "properties", "testcase", "system-out", "system-err"],
            &["name", "tests", "failures", "errors"],
            &["group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url"],
        ),
        "testcase" => {
            let inside = &["skipped", "error", "failure", "system-out", "system-err"];
            (inside, &["name"], &["time", "classname", "group"])
        }
        "failure" | "error" | "skipped" => (&[], &[], &["type", "message"]),
        "system-out" | "system-err" => (&[], &[], &[]),
        other => panic!("an element `{other}`"),
    };
    assert_eq!(wanted.iter().find(|attribute| node.attribute(**attribute).is_none()), None, "{name}");
    for attribute in node.attributes() {
        let known = wanted.iter().chain(allowed).any(|known| *known == attribute.name());
        assert!(known, "{name} has an attribute {}", attribute.name());
    }
    for child in node.children() {
        let text = child.text().unwrap_or_default();
        match child.is_element() {
            true => assert!(inside.contains(&child.tag_name().name()), "{name} holds {}", child.tag_name().name()),
            false => assert!(inside.is_empty() || text.trim().is_empty(), "{name} has the text {text:?}"),
        }
    }
    for count in ["tests", "failures", "errors", "skipped"] {
        assert!(node.attribute(count).is_none_or(|n| n.parse::<u32>().is_ok()), "{count}");
    }
    if let Some(time) = node.attribute("time") {
        // Digits with a point, and neither a sign nor an exponent.
        let decimal = time.split_once('.').is_some_and(|(whole, part)| !whole.is_empty() && !part.is_empty());
        assert!(
            decimal && time.bytes().all(|b| b.is_ascii_digit() || b == b'.') && time.parse::<f64>().is_ok(),
            "{time}"
        );
    }
    if let Some(time) = node.attribute("timestamp") {
        // ISO 8601 without a zone.
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "9999-99-99T99:99:99");
    }
    if ["failure", "error", "skipped"].contains(&name) {
        // Rails casts what is inside by these types, and refuses the whole report for some of them.
        let cast = "symbol date datetime dateTime duration integer float decimal double boolean string yaml base64Binary hexBinary file array";
        let kind = node.attribute("type").unwrap_or_default();
        assert!(!cast.split(' ').any(|c| c == kind), "{kind}");
        // GitLab shows the text, never the message; without a text Rails makes a mapping of the attributes.
        assert!(node.text().is_some_and(|text| !text.trim().is_empty()), "{name} without a text");
    }
}
