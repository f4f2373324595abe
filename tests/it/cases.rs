//! Runs the cases of tests/cases: see the README there.

mod host;

use netplay::error::{Error, Kind};
use netplay::resource::{
    self, Answers, AnyResource, Change, Effect, Env, FileDiff, Inquiry, Need, Output, Predicate, Put, Reading, Risk,
    Spec, Stale, Step, Trouble, Weight,
};
use netplay::source::Source;
use netplay::yaml::{self, Node};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

#[test]
fn every_type_has_cases() {
    for kind in resource::TYPES {
        assert!(!files_of(kind.name()).is_empty(), "tests/cases/{} has no case", kind.name());
    }
}

#[test]
fn types_are_in_order_and_documented() {
    assert!(resource::TYPES.is_sorted_by(|a, b| a.name() < b.name()), "TYPES is sorted by name");
    for kind in resource::TYPES {
        let name = kind.name();
        assert!(kind.summary().len() > 10 && !kind.summary().ends_with('.'), "{name}: {:?}", kind.summary());
        assert!(kind.touches().len() > 10 && kind.touches().ends_with('.'), "{name}: {:?}", kind.touches());
        for key in kind.keys() {
            assert!(key.doc.len() > 10, "{name}.{} has no documentation", key.name);
            assert!(!key.takes.is_empty() || key.default == resource::spec::Need::Refused, "{name}.{}", key.name);
            assert_eq!(kind.keys().iter().filter(|k| k.name == key.name).count(), 1, "{name}.{}", key.name);
        }
    }
}

#[test]
fn every_example_is_a_resource() {
    for kind in resource::TYPES {
        let source = Source::new(format!("example of {}", kind.name()), kind.example());
        let document = yaml::load_one(&source, Kind::Playbook).unwrap().expect("an example");
        let entry = document.as_seq().map_or(&document, |items| &items[0]);
        let found = Entry::of(entry);
        assert_eq!(found.kind.name(), kind.name());
        let env = Given { files: None, holds: None, always: true };
        let parsed = found.parse(&env, false, false).unwrap_or_else(|e| panic!("{}: {}", kind.name(), e[0]));
        assert!(!parsed.identity().is_empty());
    }
}

#[test]
fn cases() {
    let update = std::env::var_os("UPDATE_CASES").is_some_and(|v| !v.is_empty());
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for file in resource::TYPES.iter().flat_map(|kind| files_of(kind.name())) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(folder()).unwrap().display().to_string();
        let source = Source::new(name.as_str(), text.as_str());
        let documents = yaml::load(&source, Kind::Usage).unwrap_or_else(|e| panic!("{e}"));
        let mut written = Vec::new();
        for case in &documents {
            ran += 1;
            let got = outcome(case);
            let expected = case.get("expect").and_then(Node::text).unwrap_or_default();
            if got.trim_end() != expected.trim_end() {
                let diff = similar::TextDiff::from_lines(expected, got.as_str());
                wrong.push(format!("{}\n{}", case.span, diff.unified_diff().context_radius(3)));
            }
            written.push(got);
        }
        if update {
            std::fs::write(&file, rewrite(&name, &text, &written)).unwrap();
        }
    }
    if update {
        return;
    }
    assert!(
        wrong.is_empty(),
        "{} of {ran} cases differ (-expected +got; UPDATE_CASES=1 takes them over):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn files_of(kind: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder().join(kind)) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    assert!(files.iter().all(|f| f.extension().is_some_and(|e| e == "yaml")), "not a .yaml: {files:?}");
    files.sort();
    files
}

/// The file with what came out in the place of each `expect`, which is the last key of a case.
fn rewrite(name: &str, text: &str, outcomes: &[String]) -> String {
    let cases: Vec<&str> = text.split_inclusive('\n').collect();
    let cases: Vec<&[&str]> = cases.split(|line| line.trim_end() == "---").filter(|c| !c.is_empty()).collect();
    assert_eq!(cases.len(), outcomes.len(), "{name}: cases are divided by lines of `---`");
    let write = |(case, outcome): (&&[&str], &String)| {
        let before = case.iter().take_while(|line| !line.starts_with("expect:")).copied().collect::<String>();
        let indented: String =
            outcome.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }).collect();
        format!("{}\nexpect: |\n{indented}", before.trim_end())
    };
    cases.iter().zip(outcomes).map(write).collect::<Vec<_>>().join("---\n")
}

/// What a case gives as the playbook around the resource.
struct Given<'a> {
    files: Option<&'a Node>,
    holds: Option<&'a Node>,
    /// Whether files and expressions that aren't given are taken to be there and to hold.
    always: bool,
}

impl Given<'_> {
    fn text(&self, src: &Node) -> Result<String, Error> {
        let name = src.text().unwrap_or_default();
        match self.files.and_then(|f| f.get(name)).and_then(Node::text) {
            Some(text) => Ok(text.to_owned()),
            None if self.always => Ok("text\n".to_owned()),
            None => Err(Error::playbook(&src.span, format!("there is no file `{name}`"))),
        }
    }

    fn value(&self, expression: &Node) -> Result<bool, Error> {
        let text = expression.text().unwrap_or_default();
        match self.holds.and_then(|h| h.get(text)).and_then(Node::as_bool) {
            Some(value) => Ok(value),
            None if self.always => Ok(true),
            None => Err(Error::playbook(&expression.span, format!("`{text}` can't be evaluated"))),
        }
    }
}

impl Env for Given<'_> {
    fn file(&self, src: &Node) -> Result<Vec<u8>, Error> {
        self.text(src).map(String::into_bytes)
    }
    fn template(&self, src: &Node) -> Result<String, Error> {
        self.text(src)
    }
    fn holds(&self, expression: &Node) -> Result<bool, Error> {
        self.value(expression)
    }
    fn predicate(&self, expression: &Node) -> Result<Predicate, Error> {
        let value = self.value(expression)?;
        Ok(Arc::new(move |_, _| Ok(value)))
    }
}

/// An entry of `resources:`.
struct Entry<'a> {
    kind: &'static dyn resource::AnyType,
    node: &'a Node,
    title: Option<&'a str>,
}

impl<'a> Entry<'a> {
    fn of(entry: &'a Node) -> Entry<'a> {
        let keys = entry.as_map().unwrap_or_else(|| panic!("{}: an entry is a mapping", entry.span));
        let found = keys.iter().find_map(|(k, node)| Some((resource::find(k.text()?)?, node)));
        let (kind, node) = found.unwrap_or_else(|| panic!("{}: no resource type", entry.span));
        Entry { kind, node, title: entry.get("name").and_then(Node::text) }
    }

    fn parse(&self, env: &dyn Env, handler: bool, image: bool) -> Result<Box<dyn AnyResource>, Vec<Error>> {
        let errors = resource::spec::check(&format!("`{}`", self.kind.name()), self.node, self.kind.keys());
        if !errors.is_empty() {
            return Err(errors);
        }
        self.kind.parse(&Spec { node: self.node, env, title: self.title, handler, image }).map_err(|e| vec![e])
    }
}

/// What comes of a case, in words.
fn outcome(case: &Node) -> String {
    const KEYS: [&str; 9] = ["resource", "handler", "image", "files", "holds", "answers", "host", "graph", "expect"];
    for (key, _) in case.as_map().unwrap_or_else(|| panic!("{}: a case is a mapping", case.span)) {
        assert!(KEYS.contains(&key.text().unwrap()), "{}: a case has no key `{}`", key.span, key.text().unwrap());
    }
    let flag = |key: &str| case.get(key).and_then(Node::as_bool).unwrap_or_default();
    let entry = Entry::of(case.get("resource").unwrap_or_else(|| panic!("{}: no resource", case.span)));
    let env = Given { files: case.get("files"), holds: case.get("holds"), always: false };
    let resource = match entry.parse(&env, flag("handler"), flag("image")) {
        Ok(resource) => resource,
        Err(errors) => {
            assert!(case.get("answers").or(case.get("host")).is_none(), "{}: nothing is asked", case.span);
            return errors.iter().map(error).collect();
        }
    };
    let mut out = format!("{}:{}\n", resource.type_name(), clean(&resource.identity()));
    if resource.action() {
        out.push_str("action\n");
    }
    if resource.gate() {
        out.push_str("gate\n");
    }
    if let Some(why) = resource.live_only().filter(|_| flag("image")) {
        return format!("{out}left out: {why}\n");
    }
    if flag("graph") {
        for claim in resource.claims() {
            let _ = writeln!(out, "claims {claim}");
        }
        needs(&mut out, &resource.needs());
        match resource.stale_after() {
            Stale::Never => {}
            Stale::AnyDependency => out.push_str("stale after any dependency\n"),
            Stale::Claims(claims) => claims.iter().for_each(|c| {
                let _ = writeln!(out, "stale after {c}");
            }),
        }
    }
    match resource.assess(&answers(case, resource.as_ref())) {
        Err(why) => trouble(&mut out, "failed", &why),
        Ok(Reading::NotYet(why)) => trouble(&mut out, "not yet", &why),
        Ok(Reading::State(found)) => {
            found.changes.iter().for_each(|c| change(&mut out, "change", c));
            if found.remaining != found.changes {
                if found.remaining.is_empty() {
                    out.push_str("remaining: nothing\n");
                }
                found.remaining.iter().for_each(|c| change(&mut out, "remaining", c));
            }
            if let Some(obstacle) = &found.obstacle {
                let title = match &obstacle.weight {
                    Weight::Stops => "obstacle".to_owned(),
                    Weight::Lasts => "obstacle, steps all the same".to_owned(),
                    Weight::Foreseen => "obstacle, under --check".to_owned(),
                    Weight::Unless(claims) => {
                        let claims: Vec<String> = claims.iter().map(ToString::to_string).collect();
                        format!("obstacle, unless made before: {}", claims.join(", "))
                    }
                };
                trouble(&mut out, &title, &obstacle.trouble);
            }
            for what in &found.in_vain {
                let _ = writeln!(out, "in vain: {}", clean(what));
            }
            for warning in &found.warnings {
                let _ = writeln!(out, "warning: {}", clean(warning));
            }
            if let Risk::Link(why) = &found.risk {
                let _ = writeln!(out, "risk: {}", clean(why));
            }
            if flag("graph") {
                needs(&mut out, &found.needs);
            }
            found.steps.iter().for_each(|s| step(&mut out, s));
            found.files.iter().for_each(|f| file(&mut out, f));
        }
    }
    out
}

/// The answers that a case gives to what a resource asks.
fn answers(case: &Node, resource: &dyn AnyResource) -> Answers {
    let inquiry = Inquiry::new(resource.probe());
    let given = case.get("answers");
    let mut outcomes = Vec::new();
    let mut fragments = inquiry.fragments().iter();
    let mut used = Vec::new();
    for (group, args, count) in inquiry.groups() {
        let asked: String = fragments.by_ref().take(count).map(|f| f.script.as_str().to_owned()).collect();
        if let Some(answer) = given.and_then(|g| g.get(group)) {
            let answers: Vec<_> =
                answer.as_seq().map_or_else(|| vec![output(answer)], |all| all.iter().map(output).collect());
            assert_eq!(answers.len(), count, "{}: `{group}` asks so many fragments:\n{asked}", answer.span);
            used.push(group);
            outcomes.extend(answers);
        } else if let Some(output) = case.get("host").and_then(|host| host::answer(host, group, args)) {
            assert_eq!(count, 1, "{}: `{group}` needs answers of its own:\n{asked}", case.span);
            outcomes.push(Ok(output));
        } else if group == "premises" {
            outcomes.push(Ok(Output::default()));
        } else {
            panic!("{}: no answer of the group `{group}`, which asks\n{asked}", case.span);
        }
    }
    for (key, _) in given.and_then(Node::as_map).unwrap_or_default() {
        assert!(used.iter().any(|u| Some(*u) == key.text()), "{}: nobody asks `{}`", key.span, key.text().unwrap());
    }
    inquiry.answers(outcomes)
}

fn output(node: &Node) -> Result<Output, Trouble> {
    let bytes = |key: &str| node.get(key).and_then(Node::text).unwrap_or_default().as_bytes().to_vec();
    if let Some(text) = node.text() {
        return Ok(Output { code: 0, stdout: text.as_bytes().to_vec(), stderr: Vec::new() });
    }
    for (key, _) in node.as_map().unwrap_or_else(|| panic!("{}: an answer is a string or a mapping", node.span)) {
        assert!(["stdout", "stderr", "code", "error"].contains(&key.text().unwrap()), "{}: not of an answer", key.span);
    }
    match node.get("error").and_then(Node::text) {
        Some(error) => Err(Trouble::new(error)),
        None => {
            let code = node.get("code").and_then(Node::as_int).unwrap_or_default();
            Ok(Output { code: code.try_into().unwrap(), stdout: bytes("stdout"), stderr: bytes("stderr") })
        }
    }
}

/// A text with its control characters written out, so that it can stand in YAML.
fn clean(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if c.is_control() && c != '\n' {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

fn block(out: &mut String, text: &str) {
    for line in clean(text).lines() {
        let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "  {line}") };
    }
}

fn error(error: &Error) -> String {
    let mut out = format!("error: {}\n", clean(&error.message));
    for (span, note) in error.place.iter().map(|s| (s, None)).chain(error.also.iter().map(|(s, n)| (s, Some(n)))) {
        if let Some(note) = note {
            let _ = writeln!(out, "  {note}:");
        }
        for line in span.excerpt().iter().flat_map(|e| e.lines()) {
            let _ = writeln!(out, "  {}", line.split_once('|').map_or(line, |(_, rest)| rest).trim_end());
        }
    }
    for hint in &error.hints {
        let _ = writeln!(out, "  help: {}", clean(hint));
    }
    out
}

fn trouble(out: &mut String, title: &str, trouble: &Trouble) {
    let _ = writeln!(out, "{title}: {}", clean(&trouble.message));
    if let Some(hint) = &trouble.hint {
        let _ = writeln!(out, "  help: {}", clean(hint));
    }
}

fn change(out: &mut String, title: &str, change: &Change) {
    let effect = match change.effect {
        Effect::Now => "",
        Effect::Reboot => " (reboot)",
        Effect::PowerCycle => " (power cycle)",
    };
    // As they are told: a number and its text are one.
    let told = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    assert_ne!(told(&change.from), told(&change.to), "a change of {} that tells no difference", change.field);
    let _ = writeln!(out, "{title} {}: {} -> {}{effect}", clean(&change.field), change.from, change.to);
}

fn needs(out: &mut String, needs: &[Need]) {
    for need in needs {
        let _ = match need {
            Need::After(claim) => writeln!(out, "after {claim}"),
            Need::AfterBelow(path) => writeln!(out, "after all below {path}"),
            Need::AfterAll(kind) => writeln!(out, "after each {kind}"),
            Need::Without(claim) => writeln!(out, "without {claim}"),
            Need::Before(claim) => writeln!(out, "before {claim}"),
        };
    }
}

fn step(out: &mut String, step: &Step) {
    match step {
        Step::Run(script) => {
            out.push_str("run\n");
            block(out, script.as_str());
        }
        Step::Share(share) => {
            let _ = writeln!(out, "share of {}", share.of.name());
            block(out, &share.part);
        }
        Step::Put(Put { path, body, mode, owner, backup, validate, in_place }) => {
            let owner = owner.as_ref().map(|o| format!(" {}", clean(o))).unwrap_or_default();
            let backup = if *backup { ", backup" } else { "" };
            let in_place = if *in_place { ", in place" } else { "" };
            let _ = writeln!(out, "put {} {mode:04o}{owner}, {} bytes{backup}{in_place}", clean(path), body.len());
            block(out, &String::from_utf8_lossy(body));
            if let Some(validate) = validate {
                out.push_str("  validated by\n");
                validate.as_str().lines().for_each(|line| block(out, &format!("  {line}")));
            }
        }
    }
}

fn file(out: &mut String, file: &FileDiff) {
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
    let (before, after) = (text(&file.before), text(&file.after));
    let state = match (&before, &after) {
        (None, Some(_)) => " (new)",
        (Some(_), None) => " (removed)",
        _ => "",
    };
    let _ = writeln!(out, "diff {}{state}", clean(&file.path));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let diff = similar::TextDiff::from_lines(before.as_str(), after.as_str());
    block(out, &diff.unified_diff().context_radius(1).to_string());
}
