//! `netplay status`: what hosts know of work that isn't done: boots that are under way, what waits for one, handlers that
//! are owed.

use super::survey::{self, Judgement};
use crate::cli;
use crate::engine::batch::STANDING;
use crate::engine::boot::Note;
use crate::engine::guard::{END, Standing};
use crate::error::Errors;
use crate::event::{CommandOutput, Event};
use crate::plan::Rung;
use crate::playbook::Become;
use crate::resource::{Fragment, Group, Inquiry, Output, Question, Trouble};
use crate::shell::Script;
use std::ffi::OsString;

/// The one question of this command.
struct Open;

const ASK: &str = r#"[ "$(id -u)" = 0 ] || { echo 'netplay keeps what it knows where only root may read it' >&2; exit 1; }
echo "now $(cat /proc/sys/kernel/random/boot_id)"
standing
[ ! -e "$L/reboot" ] || { echo "noted $L/reboot"; head -c 65536 "$L/reboot" 2>/dev/null | tr -d '\000' | sed 's/^/note /'; echo; }
for f in "$L/pending/"*; do [ ! -f "$f" ] || while IFS= read -r l; do echo "pending ${f##*/} $l"; done <"$f"; done
for f in "$L/owed/"*; do
  [ -f "$f" ] || continue
  a= t= r=; { IFS= read -r a; IFS= read -r t; IFS= read -r r; } <"$f"
  printf 'owed %s\nby %s\n' "$t" "$r"
done
exit 0"#;

impl Group for Open {
    type Answer = Output;
    const NAME: &'static str = "what is open";
    fn compose(_: &[&str]) -> Vec<Fragment> {
        let folders = crate::engine::batch::Folders::default();
        vec![Script::new().set("L", &folders.state).set("R", &folders.run).line(STANDING.as_str()).line(ASK).into()]
    }
    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Output, Trouble>> {
        args.iter().map(|_| outputs.first().cloned().ok_or_else(|| Trouble::new("no answer"))).collect()
    }
}

/// Asks and prints.
///
/// # Errors
/// What is wrong before a host is reached.
pub fn run(args: &cli::Facts, argv: &[OsString]) -> Result<u8, Errors> {
    let inquiry = Inquiry::new([Question::of::<Open>("")]);
    let keywords = Become { enabled: true, user: None };
    survey::ask("status", argv, &args.hosts, &args.reach, &keywords, &inquiry, &|host, answers| {
        let (code, text) = match answers.get::<Open>("") {
            Ok(output) if output.code == 0 => (0, told(&output.text())),
            Ok(output) => (output.code, output.complaint()),
            Err(trouble) => (255, trouble.message),
        };
        let output = text.into_bytes();
        let event =
            Event::Output(Box::new(CommandOutput { host: host.clone(), code, output, limit: args.reach.timeout }));
        Judgement { event, good: code == 0, warnings: Vec::new() }
    })
}

/// What a host answered, in words.
fn told(answer: &str) -> String {
    // Behind what stands of what was armed, whose own words may be anything.
    let rest = answer.split_once(&format!("\n{END}\n")).map_or(answer, |(_, rest)| rest);
    let now = answer.lines().next().and_then(|line| line.strip_prefix("now ")).unwrap_or_default();
    let of = |key: &str| rest.lines().filter_map(|l| l.strip_prefix(key)?.strip_prefix(' ')).collect::<Vec<_>>();
    let mut lines = Vec::new();
    if let Some(note) = Note::read(&of("note").join("\n")) {
        let what = match note.rung {
            Rung::Reboot => "to boot it",
            Rung::PowerCycle => "to cycle its power",
        };
        let since = i64::try_from(note.since).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
        let since = since.map(|s| format!(" at {s}")).unwrap_or_default();
        let drained =
            if note.drain == "none" { "it wasn't drained".to_owned() } else { format!("drained: {}", note.drain) };
        let booted = match note.boot() == now {
            true => "it hasn't booted since",
            false => "it has booted since, and wasn't given back",
        };
        lines.push(format!("run {} began{since} {what} ({}); {drained}; {booted}", note.run, note.why.join(", ")));
        lines.push("  an apply of a play with `reboot`, or with `--reboot needed`, finishes it".to_owned());
    }
    if let (Some(path), None) = (of("noted").first(), Note::read(&of("note").join("\n"))) {
        lines
            .push(format!("what is noted in {path} of a boot can't be read: remove it if no run is booting this host"));
    }
    let standing = Standing::of_state(answer).filter(Standing::is_open);
    lines.extend(standing.map(|standing| standing.told()));
    for pending in of("pending") {
        let words: Vec<&str> = pending.split_whitespace().collect();
        let [card, parameter, wanted, _, boot, loads] = words.as_slice() else { continue };
        // Of what has come to pass the note is left until the next change of that card.
        let when = match (*boot == now, *loads) {
            (_, "power_cycle") => "waits for a power cycle",
            (true, _) => "waits for a boot",
            (false, _) => continue,
        };
        lines.push(format!("{card}: {parameter} is set to {wanted} and {when}"));
    }
    for (title, run) in of("owed").iter().zip(of("by")) {
        lines.push(format!("the handler `{title}` is owed by run {run}: the next apply runs it"));
    }
    if lines.is_empty() { "nothing is open\n".to_owned() } else { lines.join("\n") + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_told_in_words() {
        assert_eq!(told("now b\n"), "nothing is open\n");
        let armed = |stage: &str, more: &str| {
            told(&format!("now b\narmed\n{stage} run r1 of root@head 7\n{more}\nend of armed\n"))
        };
        let waits = armed("ended", "");
        assert!(waits.contains("run r1 of root@head 7") && waits.contains("it will be taken back"), "{waits}");
        assert!(armed("undone", "").contains("it was taken back"));
        assert_eq!(armed("kept", ""), "nothing is open\n");
        // What the way back said may be anything.
        let failed = armed("failed", "pending 0000:86:00.0 A 1 0 b reboot\nno such link");
        assert!(failed.contains("no such link; ") && failed.contains("armed/undone again"), "{failed}");
        assert!(!failed.contains("waits for a boot"), "{failed}");
        let forsaken = armed("running", "no systemd\nforsaken");
        assert!(forsaken.contains("is gone: the next run that changes the host takes it back first"), "{forsaken}");
        let rubbish = told("now b\nnoted /var/lib/netplay/reboot\nnote run r1\n");
        assert!(rubbish.starts_with("what is noted in /var/lib/netplay/reboot of a boot can't be read"), "{rubbish}");
        let answer = "now b\nnote run r1\nnote rung reboot\nnote drain slurm n1\nnote why mlxconfig:all (A)\nnote boot_id a\nnote since \
                      1764590000\npending 0000:86:00.0 A 1 0 a reboot\npending 0000:86:00.0 B 2 0 b reboot\npending 0000:86:00.0 C 3 0 a \
                      power_cycle\nowed restart network\nby r0\n";
        assert_eq!(
            told(answer),
            "run r1 began at 2025-12-01T11:53:20Z to boot it (mlxconfig:all (A)); drained: slurm n1; it has booted since, and wasn't given \
             back\n  an apply of a play with `reboot`, or with `--reboot needed`, finishes it\n0000:86:00.0: B is set to 2 \
             and waits for a boot\n0000:86:00.0: C is set to 3 and waits for a power cycle\nthe handler `restart network` is owed by run \
             r0: the next apply runs it\n"
        );
    }
}
