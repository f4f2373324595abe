//! The outputs that are one document: what is in them, and that their readers can read them.

use super::junit_rules::read;
use super::{
    Run, Shared, all_sorts, bad_day, changed, failed, now, problem, resource, ten_thousand_hosts, unreachable,
};
use crate::event::*;
use crate::report::Reporter;
use crate::report::json::Json;
use crate::report::junit::JUnit;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn json_text(run: &Run) -> String {
    run.written(|out| Json::new(out, now))
}

fn json(run: &Run) -> Value {
    let text = json_text(run);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn junit(run: &Run) -> String {
    run.written(|out| JUnit::new(out, now))
}

/// The hosts of the first play.
fn hosts(document: &Value) -> &Vec<Value> {
    document["plays"][0]["hosts"].as_array().unwrap()
}

fn command(host: &str, code: i32, output: &[u8]) -> Event {
    Event::Output(Box::new(CommandOutput { host: host.into(), code, output: output.to_vec(), limit: 120 }))
}

/// Two plays of which the second never began, since too many had failed.
fn stopped() -> Run {
    let never = |play: &str| HostEvent {
        play: play.into(),
        error: Some(problem("skipped", "the run was stopped: 1 of 1 hosts of a batch failed, all of it", None)),
        ..super::host_event(HostStatus::Skipped)
    };
    Run::new()
        .play("Kernel", "n[1-2]", 1)
        .host("n1", HostEvent { play: "Kernel".into(), ..unreachable("no route to host", None) })
        .host("n2", never("Kernel"))
        .host("n[1-2]", never("Fabric"))
}

#[test]
fn json_document() {
    insta::assert_snapshot!(json_text(&all_sorts()));
}

#[test]
fn json_has_the_fields_of_ndjson() {
    for run in [all_sorts(), bad_day()] {
        let document = json(&run);
        let mut lines: Vec<Value> = run.ndjson().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut lines {
            let line = line.as_object_mut().unwrap();
            line.retain(|key, _| key != "v" && key != "time");
        }
        let of = |kind: &str| -> Vec<Value> {
            let mut found: Vec<Value> = lines.iter().filter(|line| line["event"] == kind).cloned().collect();
            found.iter_mut().for_each(|line| drop(line.as_object_mut().unwrap().shift_remove("event")));
            found
        };
        let written: Vec<Value> =
            hosts(&document).iter().flat_map(|h| h["resources"].as_array().unwrap().clone()).collect();
        assert_eq!(written, of("resource"));
        let without = |host: &Value| {
            let mut host = host.clone();
            host.as_object_mut().unwrap().retain(|key, _| !["resources", "output", "facts"].contains(&key.as_str()));
            host
        };
        assert_eq!(hosts(&document).iter().map(without).collect::<Vec<_>>(), of("host"));
        assert_eq!(document["run"], of("run_started")[0]);
        assert_eq!(document["totals"], of("run_finished")[0]);
        assert_eq!(document["v"], 1);
    }
}

#[test]
fn json_of_plays_that_never_began() {
    let document = json(&stopped());
    let plays = document["plays"].as_array().unwrap();
    assert_eq!((&plays[0]["play"], &plays[0]["resources"]), (&json!("Kernel"), &json!(32)));
    assert_eq!((&plays[1]["play"], &plays[1]["resources"]), (&json!("Fabric"), &Value::Null));
    assert_eq!(plays[1]["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(document["totals"]["left"], json!(["n1", "n2"]));
}

#[test]
fn json_of_what_is_asked() {
    let run = Run { command: "run", again: false, ..Run::new() }
        .event(command("n1", 3, b"\xff\n"))
        .host("n1", super::host_event(HostStatus::Failed))
        .event(Event::Facts { host: "n2".into(), facts: json!({"kernel": "6.1"}) })
        .host("n2", super::host_event(HostStatus::Ok));
    let document = json(&run);
    assert_eq!(hosts(&document)[0]["output"], json!({"host": "n1", "code": 3, "output": "\\xff\n", "utf8": false}));
    assert_eq!((&hosts(&document)[0]["facts"], &hosts(&document)[1]["output"]), (&Value::Null, &Value::Null));
    assert_eq!(hosts(&document)[1]["facts"]["kernel"], "6.1");
    // A run that ends before anything happens is a document too.
    let out = Shared::default();
    Json::new(Box::new(out.clone()), now).finish().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&out.text()).unwrap()["plays"], json!([]));
}

#[test]
fn junit_report() {
    let ignored = ResourceEvent { ignored: true, ..failed("command:warm up", "exit code 1", None) };
    let run = all_sorts().on("n4", HostStatus::Ok, &[ignored, resource("file:/etc/x", Status::Ok)]);
    let text = junit(&run);
    read(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn a_message_of_several_lines_keeps_them_in_junit() {
    let run = Run::new().on("n1", HostStatus::Failed, &[failed("command:x", "exit code 1: a\nb\x07\tc", None)]);
    let text = junit(&run);
    let document = roxmltree::Document::parse(&text).unwrap();
    let failure = document.descendants().find(|n| n.has_tag_name("failure")).unwrap();
    assert_eq!(failure.attribute("message").unwrap(), "exit code 1: a\nb\\x07\\tc");
}

#[test]
fn junit_tells_failures_from_errors() {
    let suites = read(&junit(&bad_day()));
    assert_eq!(suites.len(), 129);
    let of = |suite: &str, case: &str| suites[suite].get(case).cloned().unwrap_or_else(|| panic!("{suite} {case}"));
    let (verdict, text) = of("Tune.gpu121", "sysctl:net.core.rmem_max (socket buffers)");
    assert_eq!(verdict, "failure");
    // GitLab shows this text, and not the message.
    assert!(text.contains("at boot 212992 wins: /etc/sysctl.d/zz-x.conf:3\nhelp: remove that line, or set"), "{text}");
    assert_eq!(of("Tune.gpu121", "service:irqbalance").0, "skipped");
    assert_eq!(of("Tune.gpu121", "command:warm up").0, "skipped");
    assert_eq!(of("Tune.gpu121", "host").0, "passed");
    assert_eq!(of("Tune.gpu128", "host").0, "error");
    assert!(of("Tune.gpu128", "host").1.contains("help: if that is right: ssh-keygen -R gpu128"));
    assert_eq!(of("Tune.login1", "host").0, "error");
    assert!(of("Tune.gpu001", "mtu:eth0").1.contains("1500 → 9000"));
    let suites = read(&junit(&stopped()));
    assert_eq!(suites.keys().collect::<Vec<_>>(), ["Fabric.n1", "Fabric.n2", "Kernel.n1", "Kernel.n2"]);
    assert_eq!(suites["Fabric.n1"]["host"].0, "skipped");
    let run = Run { command: "run", again: false, ..Run::new() }
        .event(command("n1", 3, b"bad\n"))
        .host("n1", super::host_event(HostStatus::Failed))
        .event(command("n2", 0, b"<good>\n"))
        .host("n2", super::host_event(HostStatus::Ok));
    let suites = read(&junit(&run));
    assert_eq!(suites[".n1"]["command"], ("failure".to_owned(), "exit code 3\nbad".to_owned()));
    assert_eq!(suites[".n2"]["command"], ("passed".to_owned(), "<good>".to_owned()));
    assert!(read(&junit(&Run { events: Vec::new(), ..Run::new() })).is_empty());
}

/// All that XML has no way to write, or takes for its own.
#[test]
fn hostile_text_leaves_documents_whole() {
    let evil: String = (0..0x20u8).map(char::from).collect::<String>()
        + "]]> <a b='c'> &amp; \" \u{7f}\u{85}\u{9f}\u{2028}\u{202e}\u{feff}\u{fffd}\u{fffe}\u{ffff}\u{10ffff}\r\n\u{1b}[2J";
    let run = Run { diff: true, ..Run::new() }
        .play(&evil, "n[1-2]", 2)
        .event(Event::Warning(Warning { message: evil.clone() }))
        .on(
            "n1",
            HostStatus::Changed,
            &[ResourceEvent {
                title: Some(evil.as_str().into()),
                warnings: vec![evil.clone()],
                files: vec![FileDiff {
                    path: evil.clone(),
                    before: None,
                    after: Some(evil.clone().into_bytes()),
                    edit: None,
                }],
                ..changed(&format!("file:/{evil}"), &[super::change(&evil, evil.as_str(), json!([evil]))])
            }],
        )
        .event(command("n2", 1, evil.as_bytes()))
        .on("n2", HostStatus::Failed, &[failed("file:/x", &evil, Some(&evil)), super::skipped("file:/y", &evil)]);
    assert_eq!(hosts(&json(&run))[0]["resources"][0]["title"], evil.as_str());
    let xml = junit(&run);
    let suites = read(&xml);
    let (_, n2) = suites.iter().find(|(name, _)| name.ends_with(".n2")).unwrap();
    let (verdict, text) = &n2["file:/x"];
    assert_eq!(verdict, "failure");
    assert!(text.contains("]]> <a b='c'> &amp; \""), "{text}");
    assert!(text.contains("\\u{fffe}\\u{ffff}\u{10ffff}"), "{text}");
}

/// Counts what is written.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of 10,000 hosts each is written when it is done, and nothing of it is kept.
#[test]
fn documents_are_written_as_the_hosts_are_done() {
    let events = ten_thousand_hosts();
    let (a, b) = (Count::default(), Count::default());
    let mut json = Json::new(Box::new(a.clone()), now);
    let mut junit = JUnit::new(Box::new(b.clone()), now);
    let (last, most) = (events.len() - 1, |count: &Count| count.0.load(Ordering::Relaxed));
    for event in &events[..last] {
        json.event(event).unwrap();
        junit.event(event).unwrap();
    }
    let (before, written) = ((most(&a), most(&b)), |count: &Count, before: usize| most(count) - before);
    json.event(&events[last]).unwrap();
    json.finish().unwrap();
    junit.event(&events[last]).unwrap();
    junit.finish().unwrap();
    assert!(before.0 > 10_000_000 && before.1 > 10_000_000, "{before:?}");
    assert!(written(&a, before.0) < 1_000 && written(&b, before.1) < 1_000);
}
