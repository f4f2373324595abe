//! Secrets in events, on their way to all reporters: none gets one that has a secret in it.

use crate::event::{
    BootEvent, BootsPlanned, Change, CommandOutput, Event, FileDiff, Finding, HostEvent, Problem, ResourceEvent,
    RunFinished, RunStarted, Warning,
};
use crate::secret::{MASK, Secrets};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// What stands where a host has another value than the secret that it is to get: it was the secret before, most likely.
const FORMER: &str = "(former secret)";

/// The event with no secret in it. Names of plays and hosts are kept, as nothing can be told without them.
pub(super) fn redacted<'e>(event: &'e Event, secrets: &Secrets) -> Cow<'e, Event> {
    if secrets.is_empty() {
        return Cow::Borrowed(event);
    }
    let mut event = event.clone();
    let all = |texts: &mut Vec<String>| texts.iter_mut().for_each(|t| string(t, secrets));
    // Each field is named, so that a new one is thought of here.
    match &mut event {
        Event::RunStarted(e) => {
            let RunStarted {
                run: _,
                command: _,
                check: _,
                image: _,
                diff: _,
                arguments,
                inventory: _,
                playbooks: _,
                plays: _,
            } = e;
            all(arguments);
        }
        Event::PlayStarted(_) | Event::BatchStarted { .. } | Event::HostStage { .. } => {}
        Event::Resource(e) => {
            let ResourceEvent {
                play: _,
                host: _,
                address,
                title,
                handler: _,
                position: _,
                status: _,
                changes,
                done,
                files,
                warnings,
                error,
                ignored: _,
                because,
                in_vain: _,
            } = &mut **e;
            shared(address, secrets);
            title.iter_mut().for_each(|t| shared(t, secrets));
            changes.iter_mut().chain(&mut *done).for_each(|c| change(c, secrets));
            let told = files.clone();
            files.iter_mut().for_each(|f| file(f, secrets));
            if *files != told {
                changes.iter_mut().chain(done).for_each(digest);
            }
            all(warnings);
            error.iter_mut().for_each(|p| problem(p, secrets));
            because.iter_mut().for_each(|t| string(t, secrets));
        }
        Event::BootsPlanned(BootsPlanned { play: _, hosts, at_once: _, at_most: _ }) => {
            hosts.iter_mut().for_each(|(_, why)| all(why));
        }
        Event::Boot(e) => {
            let BootEvent { play: _, host: _, step: _, time: _, detail } = &mut **e;
            string(detail, secrets);
        }
        Event::Host(e) => {
            let HostEvent { play: _, host: _, status: _, executions: _, time: _, warnings, reboot_pending, error } =
                &mut **e;
            all(warnings);
            all(reboot_pending);
            error.iter_mut().for_each(|p| problem(p, secrets));
        }
        Event::Output(e) => {
            let CommandOutput { host: _, code: _, output, limit: _ } = &mut **e;
            if let Cow::Owned(clean) = secrets.redact_bytes(output) {
                *output = clean;
            }
        }
        Event::Facts { host: _, facts } => json(facts, secrets),
        Event::Script { host: _, text } => shared(text, secrets),
        Event::Verdict { play: _, verdict } => string(&mut verdict.reason, secrets),
        Event::Finding { play: _, finding } => {
            let Finding { name: _, hosts: _, pair: _, evidence, cause, remedy } = &mut **finding;
            [evidence, cause, remedy].into_iter().for_each(|text| string(text, secrets));
        }
        Event::Warning(Warning { message }) => string(message, secrets),
        Event::RunFinished(e) => {
            let RunFinished { check: _, hosts: _, resources: _, time: _, exit_code: _, interrupted: _, again, log: _ } =
                &mut **e;
            again.iter_mut().for_each(|t| string(t, secrets));
        }
    }
    Cow::Owned(event)
}

fn string(text: &mut String, secrets: &Secrets) {
    if let Cow::Owned(clean) = secrets.redact(text) {
        *text = clean;
    }
}

fn shared(text: &mut Arc<str>, secrets: &Secrets) {
    if let Cow::Owned(clean) = secrets.redact(text) {
        *text = clean.into();
    }
}

fn problem(Problem { kind: _, message, hint }: &mut Problem, secrets: &Secrets) {
    string(message, secrets);
    hint.iter_mut().for_each(|t| string(t, secrets));
}

fn json(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            if let Cow::Owned(clean) = secrets.redact(&number.to_string()) {
                *value = clean.into();
            }
        }
        Value::String(text) => string(text, secrets),
        Value::Array(items) => items.iter_mut().for_each(|v| json(v, secrets)),
        Value::Object(entries) => {
            for (key, mut inner) in std::mem::take(entries) {
                json(&mut inner, secrets);
                entries.insert(secrets.redact(&key).into_owned(), inner);
            }
        }
    }
}

fn change(Change { field, from, to, effect: _ }: &mut Change, secrets: &Secrets) {
    string(field, secrets);
    let wanted = to.clone();
    json(to, secrets);
    if *to != wanted && *from != wanted && !from.is_null() {
        *from = FORMER.into();
    } else {
        json(from, secrets);
    }
}

/// The checksum of a file that has a secret in it tells whether a guess is right.
fn digest(Change { field: _, from, to, effect: _ }: &mut Change) {
    for value in [from, to] {
        if value.as_str().is_some_and(|text| text.starts_with("sha256:")) {
            *value = format!("sha256:{MASK}").into();
        }
    }
}

/// Line by line, so that all the other lines can be read.
fn file(FileDiff { path, before, after, edit: _ }: &mut FileDiff, secrets: &Secrets) {
    string(path, secrets);
    let written = after.clone().unwrap_or_default();
    let Cow::Owned(clean) = secrets.redact_bytes(&written) else {
        if let Some(bytes) = before {
            *bytes = secrets.redact_bytes(bytes).into_owned();
        }
        return;
    };
    if let Some(bytes) = before {
        *bytes = former(bytes, &written, &clean, secrets);
    }
    *after = Some(clean);
}

/// What a file was before a secret was written into it, without that and without what stood in its place: lines that
/// are no more, and begin as one does that has a secret.
fn former(before: &[u8], written: &[u8], clean: &[u8], secrets: &Secrets) -> Vec<u8> {
    let lines = |bytes| <[u8]>::split_inclusive(bytes, |b: &u8| *b == b'\n');
    let kept: HashSet<&[u8]> = lines(written).collect();
    let mark = MASK.as_bytes();
    let mut starts: Vec<&[u8]> = Vec::new();
    for (line, clean) in lines(written).zip(lines(clean)) {
        if line != clean {
            starts.extend(clean.windows(mark.len()).position(|w| w == mark).map(|at| clean[..at].trim_ascii_start()));
        }
    }
    let mut out = Vec::with_capacity(before.len());
    for line in lines(before) {
        let text = line.trim_ascii_start();
        let blanks = &line[..line.len() - text.len()];
        let start = starts.iter().filter(|start| text.starts_with(start)).max_by_key(|start| start.len());
        match start {
            Some(start) if !kept.contains(line) && !text.is_empty() => {
                let end: &[u8] = if line.ends_with(b"\n") { b"\n" } else { b"" };
                out.extend([blanks, start, FORMER.as_bytes(), end].concat());
            }
            _ => out.extend_from_slice(&secrets.redact_bytes(line)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let secrets = Secrets::default();
        secrets.add(b"hunter2-hunter2");
        secrets
    }

    fn diff(before: &str, after: &str) -> String {
        let mut diff = FileDiff {
            path: "/etc/x".to_owned(),
            before: Some(before.as_bytes().to_vec()),
            after: Some(after.as_bytes().to_vec()),
            edit: None,
        };
        file(&mut diff, &secrets());
        super::super::diff::unified(&diff)
    }

    #[test]
    fn a_diff_keeps_all_lines_but_secrets() {
        let before = "[server]\nport = 80\n  password = swordfish\nname = a\n";
        let after = "[server]\nport = 443\n  password = hunter2-hunter2 # vault\nname = a\n";
        assert_eq!(
            diff(before, after),
            "--- /etc/x\tbefore\n+++ /etc/x\tafter\n@@ -1,4 +1,4 @@\n [server]\n-port = 80\n-  password = (former secret)\n\
             +port = 443\n+  password = (secret) # vault\n name = a\n"
        );
        // Where nothing stands before the secret, all that is no more may have been one.
        let told = diff("old key\nsame\n", "hunter2-hunter2\nsame\n");
        assert!(told.ends_with("-(former secret)\n+(secret)\n same\n"), "{told}");
        // The secret was there and stays, or goes.
        let told = diff("a hunter2-hunter2\nb\n", "a hunter2-hunter2\nc\n");
        assert!(told.ends_with(" a (secret)\n-b\n+c\n"), "{told}");
        let told = diff("a hunter2-hunter2\n", "a\n");
        assert!(told.ends_with("-a (secret)\n+a\n"), "{told}");
    }

    #[test]
    fn a_change_hides_the_value_and_the_one_before() {
        let hide = |from: Value, to: Value| {
            let mut hidden = Change::now("live", from, to);
            change(&mut hidden, &secrets());
            format!("{} → {}", hidden.from, hidden.to)
        };
        assert_eq!(hide("old".into(), "hunter2-hunter2".into()), r#""(former secret)" → "(secret)""#);
        assert_eq!(hide(Value::Null, "u:hunter2-hunter2".into()), r#"null → "u:(secret)""#);
        assert_eq!(hide("hunter2-hunter2".into(), Value::Null), r#""(secret)" → null"#);
        assert_eq!(
            hide(serde_json::json!({"hunter2-hunter2": ["hunter2-hunter2"]}), 1.into()),
            r#"{"(secret)":["(secret)"]} → 1"#
        );
        assert_eq!(hide(1500.into(), 9000.into()), "1500 → 9000");
    }
}
