//! The command line of a run: as its log keeps it, and the one that does the hosts again that aren't done.

use crate::event::RunFinished;
use crate::hostlist;
use std::ffi::OsString;

/// The options of one letter that take no value, so that another may stand behind them in the same word.
const FLAGS: &str = "bCDkKqv";

/// The words of the command line. Values of variables that look like passwords are left out: logs keep what is told.
pub(super) fn arguments(argv: &[OsString]) -> Vec<String> {
    let words = argv.iter().map(|word| word.to_string_lossy().into_owned());
    edit(words, 'e', "--extra-vars", |vars| {
        let lower = vars.to_lowercase();
        let secret = ["pass", "secret", "token", "cred"].iter().any(|word| lower.contains(word));
        Some(if secret && !vars.starts_with('@') { "(as before)".to_owned() } else { vars.to_owned() })
    })
}

/// The command line that does the hosts again that aren't done, if there are any. Where something was `found` between hosts
/// those of the first run are all in it: a host alone has nobody to be tested with.
pub(super) fn command(finished: &RunFinished, found: bool, argv: &[OsString]) -> Option<String> {
    let left: Vec<&str> = finished.left().map(|name| &**name).collect();
    if left.is_empty() {
        return None;
    }
    if found {
        return Some(shlex::try_join(arguments(argv).iter().map(String::as_str)).unwrap_or_default());
    }
    let mut words = edit(arguments(argv).into_iter(), 'l', "--limit", |_| None);
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(end..end, ["--limit".to_owned(), hostlist::fold(left)]);
    Some(shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default())
}

/// The words with the values of an option changed; where `change` gives nothing the option is left out. What stands
/// behind `--` isn't ours.
fn edit(
    mut words: impl Iterator<Item = String>,
    letter: char,
    long: &str,
    change: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            out.push(word);
            break;
        }
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let (start, value) = match (joined, short(&word, letter)) {
            (Some(value), _) => (format!("{long}="), Some(value.to_owned())),
            (None, Some((start, ""))) => (start.to_owned(), None),
            (None, Some((start, value))) => (start.to_owned(), Some(value.to_owned())),
            (None, None) if word == long => (word, None),
            (None, None) => {
                out.push(word);
                continue;
            }
        };
        let apart = value.is_none();
        match change(&value.or_else(|| words.next()).unwrap_or_default()) {
            Some(value) if apart => out.extend([start, value]),
            Some(value) => out.push(start + &value),
            // `-Dl gpu1` has a flag that stays.
            None => out.extend(start.strip_suffix(letter).filter(|flags| *flags != "-").map(str::to_owned)),
        }
    }
    out.extend(words);
    out
}

/// `-Dlgpu1`, if `l` is asked for: the word up to that letter, and what follows it.
fn short(word: &str, letter: char) -> Option<(&str, &str)> {
    let letters = word.strip_prefix('-')?;
    let at = letters.find(|c| !FLAGS.contains(c)).filter(|at| letters[*at..].starts_with(letter))?;
    Some(word.split_at(1 + at + letter.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{HostStatus, HostTotal};

    fn again(line: &str) -> Option<String> {
        let total = |status, passed_over| HostTotal {
            status,
            resources: Default::default(),
            ignored: 0,
            reboot_pending: false,
            executions: 1,
            passed_over,
        };
        let hosts = [
            ("n1", total(HostStatus::Ok, false)),
            ("n2", total(HostStatus::Failed, false)),
            ("n3", total(HostStatus::Unreachable, false)),
            // Its second play was never begun.
            ("n4", total(HostStatus::Changed, true)),
        ];
        let finished =
            RunFinished { hosts: hosts.map(|(name, total)| (name.into(), total)).into(), ..RunFinished::default() };
        let argv: Vec<OsString> = shlex::split(line).unwrap().into_iter().map(Into::into).collect();
        assert_eq!(command(&RunFinished::default(), false, &argv), None);
        assert_eq!(
            command(&finished, true, &argv),
            Some(shlex::try_join(arguments(&argv).iter().map(String::as_str)).unwrap())
        );
        command(&finished, false, &argv)
    }

    #[test]
    fn the_hosts_that_failed_are_done_again() {
        for (line, expected) in [
            (
                "netplay apply -i 'my inv' --limit n[1-3] -lx site.yaml",
                "netplay apply -i 'my inv' site.yaml --limit 'n[2-4]'",
            ),
            (
                "netplay apply -i x site.yaml --limit=n1 -CDl n1 -l n2",
                "netplay apply -i x site.yaml -CD --limit 'n[2-4]'",
            ),
            ("netplay run -i x -l n1 -- ls -l -- -e pass", "netplay run -i x --limit 'n[2-4]' -- ls -l -- -e pass"),
            ("netplay apply -i l site.yaml --limit", "netplay apply -i l site.yaml --limit 'n[2-4]'"),
        ] {
            assert_eq!(again(line).unwrap(), expected);
        }
    }

    #[test]
    fn passwords_of_the_command_line_are_not_told() {
        assert_eq!(
            again("netplay apply -e ansible_password=p1 -eDB_PASS=p2 -De token=p3 --extra-vars=pass=4 --extra-vars mtu=9 -e @pass.yaml")
                .unwrap(),
            "netplay apply -e '(as before)' '-e(as before)' -De '(as before)' '--extra-vars=(as before)' --extra-vars \
             'mtu=9' -e @pass.yaml --limit 'n[2-4]'"
        );
    }
}
