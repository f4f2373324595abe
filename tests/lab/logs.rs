//! Logs of runs and what is made of them, on real hosts.

use crate::harness::{Hosts, Kind, Netplay, Run};
use crate::told::{apply, play};
use serde_json::Value;

/// The logs that runs of this folder have left, the oldest first, each as its events.
fn logs(netplay: &Netplay) -> Vec<Vec<Value>> {
    let entries = std::fs::read_dir(netplay.path(".local/state/netplay")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let events = |path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    paths.into_iter().map(events).collect()
}

fn visited(run: &Run) -> Vec<String> {
    let events = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let hosts = events.filter(|e| e["event"] == "host").map(|e| e["host"].as_str().unwrap().to_owned());
    let mut hosts: Vec<String> = hosts.collect();
    hosts.sort();
    hosts
}

#[test]
fn what_was_left_is_done_by_the_next_run() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let names: Vec<&str> = hosts.names().collect();
    let resources = "    - copy: {dest: /srv/made, content: x}\n";
    let netplay = apply(&hosts, &play(resources), &[]);
    hosts.first().sh("mkdir /srv/made");
    let first = netplay.run().exits(2);
    assert_eq!(visited(&first), names);
    let log = &logs(&netplay)[0];
    assert_eq!(log[log.len() - 1]["left"], serde_json::json!([names[0]]));
    assert_eq!(log.len(), first.stdout.lines().count());
    hosts.first().sh("rmdir /srv/made");
    let again = netplay.with(&["--limit", "@failed"]).run().exits(0);
    assert_eq!(visited(&again), names[..1]);
    assert_eq!(hosts.first().sh("cat /srv/made"), "x");
}

#[test]
fn two_runs_at_once_leave_two_logs() {
    let hosts = Hosts::take(Kind::Fleet, 2);
    let netplay = apply(&hosts, &play("    - command: {cmd: 'sleep 1; touch x', chdir: /srv, creates: x}\n"), &[]);
    let children = [netplay.start(), netplay.start()];
    for child in children {
        Run::from(child.wait_with_output().unwrap()).exits(0);
    }
    let logs = logs(&netplay);
    assert_eq!(logs.len(), 2);
    for log in logs {
        assert_eq!((&log[0]["event"], &log[log.len() - 1]["event"]), (&"run_started".into(), &"run_finished".into()));
    }
}

#[test]
fn scripts_that_are_shown_can_be_run_on_the_host() {
    let hosts = Hosts::take(Kind::Fleet, 1);
    let host = hosts.first();
    let content = "content: \"it's\\n\\tfine é\\n\"";
    let netplay = apply(&hosts, &play(&format!("    - copy: {{dest: /srv/made, {content}}}\n")), &["-vv"]);
    let run = netplay.run().exits(0);
    let shown = format!("# {}: script of ", host.0);
    let scripts: Vec<&str> = run.stderr.split(&shown).skip(1).map(|text| text.split_once('\n').unwrap().1).collect();
    assert_eq!(scripts.len(), 2, "{}", run.stderr);
    for script in scripts {
        let script = &script[..script.find("; exit 0\n}\n").unwrap() + 11];
        let word = shlex::try_quote(script).unwrap();
        // The change notices that the host isn't any more as it was when it was made.
        let told = host.sh(&format!("sh -c {word} sh ''"));
        assert!(told.ends_with(" end\n") || told.ends_with(" moved\n"), "{told}");
    }
}
