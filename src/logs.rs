//! Logs of runs: one file of `ndjson` lines for each run in the state folder, and what the last run left undone.
//!
//! A log is locked (flock) while its run writes it; one that is locked is neither removed nor read. A run that was
//! killed leaves its log without `run_finished`, and perhaps with a last line that is cut.

use crate::error::Error;
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many logs are kept,
const MOST: usize = 100;
/// and how many bytes of them; the newest is kept in any case.
const MOST_BYTES: u64 = 1 << 30;
const ENDING: &str = "ndjson";

/// The state folder: `netplay` in `XDG_STATE_HOME`, or else in `~/.local/state` (XDG Base Directory Specification).
/// Nothing where there is neither.
pub fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification has relative paths ignored.
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = path("XDG_STATE_HOME").or_else(|| path("HOME").map(|home| home.join(".local/state")));
    base.map(|base| base.join("netplay"))
}

/// Makes the log of a run, for its user alone, and removes the oldest that are too many.
///
/// # Errors
/// The folder or the file can't be made.
pub fn open(folder: &Path, run: &str) -> io::Result<(PathBuf, File)> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let path = folder.join(format!("{run}.{ENDING}"));
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
    // Where there are no locks, no log is removed either.
    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
    prune(folder, MOST, MOST_BYTES);
    Ok((path, file))
}

/// The logs, the newest first: a run's id begins with its time.
fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    paths.sort_by(|a, b| b.cmp(a));
    Ok(paths)
}

/// Removes what is too much. What can't be removed stays, and the next run tries again.
fn prune(folder: &Path, most: usize, most_bytes: u64) {
    let mut bytes = 0;
    for (i, path) in list(folder).unwrap_or_default().iter().enumerate() {
        let size = path.symlink_metadata().map_or(0, |meta| meta.len());
        bytes += size;
        // An empty one may have been made just now, and isn't locked yet.
        if (i >= most || (i > 0 && bytes > most_bytes)) && size > 0 && idle(path).is_some() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A log that no run writes, locked by us.
fn idle(path: &Path) -> Option<File> {
    // NFS locks for writing only what is open for it.
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Whether a run writes this log.
fn under_way(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_err_and(|e| e == rustix::io::Errno::WOULDBLOCK)
}

/// The beginning of a log.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    run: String,
    command: String,
    check: bool,
    #[serde(default)]
    image: bool,
    inventory: Vec<String>,
    playbooks: Vec<String>,
    plays: Vec<Cast>,
}

#[derive(Deserialize)]
struct Cast {
    hosts: Vec<String>,
}

#[derive(Deserialize)]
struct Host {
    host: String,
    status: String,
}

#[derive(Deserialize)]
struct Boot {
    time: String,
    host: String,
    step: String,
    seconds: f64,
}

#[derive(Deserialize)]
struct End {
    left: Vec<String>,
}

/// The hosts that the last `apply` of these playbooks with this inventory left undone: they failed, were unreachable,
/// or a play was never begun on them. Without playbooks, the last of this inventory. A check isn't an `apply`, nor is one of an image, and one
/// that is still under way isn't the last. Of a run that was killed these are the hosts that it hadn't come to the end
/// of.
///
/// # Errors
/// There was no such run, or its log can't be read.
pub fn left(folder: &Path, inventory: &[String], playbooks: &[String]) -> Result<Vec<String>, Error> {
    let unreadable = |path: &Path, e: &io::Error| Error::usage(format!("{} can't be read: {e}", path.display()));
    let logs = match list(folder) {
        Ok(logs) => logs,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(unreadable(folder, &e)),
    };
    for path in logs {
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            // Another run has just removed it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(unreadable(&path, &e)),
        };
        if under_way(&file) {
            continue;
        }
        let found = undone(file, inventory, playbooks).map_err(|e| unreadable(&path, &e))?;
        if let Some(hosts) = found {
            return Ok(hosts);
        }
    }
    let of = match playbooks {
        [] => String::new(),
        books => format!(" of {}", books.join(" ")),
    };
    let message = format!("there is no log of an earlier `apply`{of} with this inventory in {}", folder.display());
    Err(Error::usage(message).hint("name the hosts; runs with --check, --root or another -i don't count"))
}

/// The hosts that earlier runs with this inventory had boot no longer ago than this, and didn't see back: which run, and how long
/// ago. What can't be read tells nothing; a run that is still under way has its hosts for itself.
pub fn booting(folder: &Path, inventory: &[String], at_most: Duration) -> HashMap<String, (String, Duration)> {
    let now = jiff::Timestamp::now();
    let mut last: HashMap<String, Option<(String, Duration)>> = HashMap::new();
    for path in list(folder).unwrap_or_default() {
        let written = path.metadata().and_then(|meta| meta.modified());
        let young = written.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < at_most));
        let Some(file) = young.then(|| File::open(&path).ok()).flatten() else { continue };
        if under_way(&file) {
            continue;
        }
        for (host, boot) in boots(file, inventory, now).unwrap_or_default() {
            last.entry(host).or_insert(boot);
        }
    }
    last.into_iter().filter_map(|(host, boot)| Some((host, boot.filter(|(_, ago)| *ago < at_most)?))).collect()
}

/// What the run of this log had boot last, if it is one with this inventory: which run, how long ago; nothing of what it has seen
/// back.
fn boots(
    file: File,
    inventory: &[String],
    now: jiff::Timestamp,
) -> io::Result<HashMap<String, Option<(String, Duration)>>> {
    let mut found = HashMap::new();
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    lines.read_until(b'\n', &mut line)?;
    let Some(head) = serde_json::from_slice::<Head>(&line).ok().filter(|head| head.inventory == inventory) else {
        return Ok(found);
    };
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        if !line.starts_with(b"{\"v\":1,\"event\":\"boot\",") {
            continue;
        }
        let Ok(Boot { time, host, step, seconds }) = serde_json::from_slice(&line) else { continue };
        let Ok(time) = time.parse::<jiff::Timestamp>() else { continue };
        let passed = Duration::try_from(now.duration_since(time)).unwrap_or_default();
        let ago = match step.as_str() {
            "booting" => Some(passed),
            // What that run has waited for is no later boot.
            "awaited" => Some(passed + Duration::try_from_secs_f64(seconds).unwrap_or_default()),
            _ => None,
        };
        found.insert(host, ago.map(|ago| (head.run.clone(), ago)));
    }
}

/// The hosts that the run of this log left undone, if it is a run of these playbooks.
fn undone(file: File, inventory: &[String], playbooks: &[String]) -> io::Result<Option<Vec<String>>> {
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    lines.read_until(b'\n', &mut line)?;
    // A run that was killed at its very beginning hasn't touched anything.
    let Ok(head) = serde_json::from_slice::<Head>(&line) else { return Ok(None) };
    let same = head.inventory == inventory && (playbooks.is_empty() || head.playbooks == playbooks);
    if head.command != "apply" || head.check || head.image || !same {
        return Ok(None);
    }
    let mut owed: HashMap<String, usize> = HashMap::new();
    let mut order = Vec::new();
    for host in head.plays.into_iter().flat_map(|play| play.hosts) {
        if !owed.contains_key(&host) {
            order.push(host.clone());
        }
        *owed.entry(host).or_default() += 1;
    }
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        // Other lines, of which there are many, needn't be parsed.
        if line.starts_with(b"{\"v\":1,\"event\":\"run_finished\"") {
            if let Ok(end) = serde_json::from_slice::<End>(&line) {
                return Ok(Some(end.left));
            }
        } else if line.starts_with(b"{\"v\":1,\"event\":\"host\"") {
            let Ok(host) = serde_json::from_slice::<Host>(&line) else { continue };
            if let (Some(plays), "ok" | "changed") = (owed.get_mut(&host.host), host.status.as_str()) {
                *plays = plays.saturating_sub(1);
            }
        }
    }
    order.retain(|host| owed.get(host).is_some_and(|plays| *plays > 0));
    Ok(Some(order))
}

/// A value that a run of `verify` measured.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Value {
    /// What was checked.
    pub check: String,
    /// The host.
    pub host: String,
    /// Its interface.
    pub interface: Option<String>,
    /// The other host, where there is one.
    pub peer: Option<Peer>,
    /// What was measured, if something was.
    pub value: Option<f64>,
    /// In what.
    pub unit: String,
}

/// The other end of what was measured.
#[derive(Debug, Deserialize, PartialEq)]
pub struct Peer {
    /// The host.
    pub host: String,
    /// Its interface.
    pub interface: String,
}

/// What a run of `verify` measured.
#[derive(Debug, Default, PartialEq)]
pub struct Measured {
    /// Whether nothing was wrong.
    pub good: bool,
    /// The values, in their order.
    pub values: Vec<Value>,
}

#[derive(Deserialize)]
struct Code {
    exit_code: u8,
}

/// What earlier runs of `verify` with these suites and this inventory measured, the oldest first. Runs that are under way, or were
/// killed, aren't among them.
///
/// # Errors
/// A log can't be read.
pub fn measured(folder: &Path, inventory: &[String], suites: &[String]) -> Result<Vec<Measured>, Error> {
    let mut all = Vec::new();
    for path in list(folder).unwrap_or_default().into_iter().rev() {
        // One may have been removed since the folder was read.
        let Some(file) = File::open(&path).ok().filter(|file| !under_way(file)) else { continue };
        let same = |head: &Head| head.command == "verify" && head.inventory == inventory && head.playbooks == suites;
        all.extend(runs(file, same).map_err(|e| Error::usage(format!("{} can't be read: {e}", path.display())))?);
    }
    Ok(all)
}

/// What the runs measured that were written to this file by `--output ndjson`.
///
/// # Errors
/// It can't be read, or there is no such run in it.
pub fn measured_in(path: &Path) -> Result<Vec<Measured>, Error> {
    let unreadable = |e: io::Error| Error::usage(format!("{} can't be read: {e}", path.display()));
    let all = runs(File::open(path).map_err(unreadable)?, |head| head.command == "verify").map_err(unreadable)?;
    if all.iter().all(|run| run.values.iter().all(|value| value.value.is_none())) {
        return Err(Error::usage(format!("{} has nothing that a run of `verify` measured", path.display()))
            .hint("`netplay verify … --output ndjson=FILE` writes one"));
    }
    Ok(all)
}

/// The runs in these lines that came to their end.
fn runs(file: File, wanted: impl Fn(&Head) -> bool) -> io::Result<Vec<Measured>> {
    let mut lines = BufReader::new(file);
    let (mut line, mut all, mut run) = (Vec::new(), Vec::new(), None);
    while lines.read_until(b'\n', &mut line)? > 0 {
        let is = |kind: &str| line.starts_with(format!("{{\"v\":1,\"event\":\"{kind}\"").as_bytes());
        if is("run_started") {
            let head = serde_json::from_slice::<Head>(&line).ok();
            run = head.filter(&wanted).map(|_| Measured::default());
        } else if is("verdict") {
            if let (Some(run), Ok(value)) = (&mut run, serde_json::from_slice(&line)) {
                run.values.push(value);
            }
        } else if is("run_finished")
            && let (Some(run), Ok(end)) = (run.take(), serde_json::from_slice::<Code>(&line))
        {
            all.push(Measured { good: end.exit_code == 0, ..run });
        }
        line.clear();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let verdict = |value: &str| {
            format!(
                "{{\"v\":1,\"event\":\"verdict\",\"check\":\"tcp\",\"host\":\"n1\",\"interface\":\"eth1\",\
                 \"peer\":{{\"host\":\"n2\",\"interface\":\"eth1\"}},\"ok\":true,\"value\":{value},\"unit\":\"Gb/s\"}}"
            )
        };
        let end = |code: u8| format!("{{\"v\":1,\"event\":\"run_finished\",\"exit_code\":{code}}}");
        let log = |run: &str, command: &str, inventory: &str, value: &str, code: u8| {
            write(dir.path(), run, &[&head(command, false, inventory, "/p"), &verdict(value), &end(code), ""]);
        };
        log("1", "verify", "/i", "94.1", 0);
        log("2", "verify", "/i", "50.0", 2);
        log("3", "verify", "/other", "1.0", 0);
        log("4", "apply", "/i", "2.0", 0);
        write(dir.path(), "5", &[&head("verify", false, "/i", "/p"), &verdict("3.0")]);
        let all = measured(dir.path(), &["/i".to_owned()], &["/p".to_owned()]).unwrap();
        let told: Vec<(bool, Option<f64>)> = all.iter().map(|run| (run.good, run.values[0].value)).collect();
        assert_eq!(told, [(true, Some(94.1)), (false, Some(50.0))]);
        assert_eq!(all[0].values[0].peer, Some(Peer { host: "n2".into(), interface: "eth1".into() }));
        assert_eq!(measured_in(&dir.path().join("1.ndjson")).unwrap().len(), 1);
        log("6", "verify", "/i", "null", 0);
        let told = measured_in(&dir.path().join("6.ndjson")).unwrap_err().to_string();
        assert!(told.contains("has nothing that a run of `verify` measured"), "{told}");
        assert!(measured_in(&dir.path().join("7.ndjson")).is_err());
        assert_eq!(measured(&dir.path().join("none"), &[], &[]).unwrap(), []);
    }

    fn names(folder: &Path) -> Vec<String> {
        list(folder).unwrap().iter().map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    }

    fn write(folder: &Path, run: &str, lines: &[&str]) {
        std::fs::write(folder.join(format!("{run}.ndjson")), lines.join("\n")).unwrap();
    }

    fn head(command: &str, check: bool, inventory: &str, playbook: &str) -> String {
        format!(
            "{{\"v\":1,\"event\":\"run_started\",\"command\":\"{command}\",\"check\":{check},\"inventory\":[\"{inventory}\"],\
             \"playbooks\":[\"{playbook}\"],\"plays\":[{{\"play\":\"a\",\"hosts\":[\"n1\",\"n2\",\"n3\"]}},\
             {{\"play\":\"b\",\"hosts\":[\"n2\"]}}]}}"
        )
    }

    const END: &str = "{\"v\":1,\"event\":\"run_finished\",\"left\":[\"n2\",\"n3\"]}\n";
    const GOOD: &str = "{\"v\":1,\"event\":\"run_finished\",\"left\":[]}\n";

    fn last(folder: &Path) -> Result<Vec<String>, String> {
        left(folder, &["/i".to_owned()], &["/p".to_owned()]).map_err(|e| e.to_string())
    }

    #[test]
    fn the_state_folder_is_where_the_specification_has_it() {
        let of = |state: Option<&str>, home: Option<&str>| {
            folder(|name| if name == "HOME" { home } else { state }.map(OsString::from))
        };
        assert_eq!(of(None, Some("/h")), Some("/h/.local/state/netplay".into()));
        assert_eq!(of(Some("/s"), Some("/h")), Some("/s/netplay".into()));
        assert_eq!(of(Some("s"), Some("/h")), Some("/h/.local/state/netplay".into()));
        assert_eq!(of(Some(""), None), None);
    }

    #[test]
    fn a_log_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state/netplay");
        let (path, _file) = open(&folder, "r1").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&folder), mode(folder.parent().unwrap())), (0o600, 0o700, 0o700));
        // A folder that was open to others isn't any more; a log of that name is never written over.
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(open(&folder, "r1").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(mode(&folder), 0o700);
    }

    #[test]
    fn the_oldest_logs_go_but_none_that_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for run in ["r1", "r2", "r3", "r4", "r5"] {
            write(dir.path(), run, &["0123456789"]);
        }
        std::fs::write(dir.path().join("notes.txt"), "x").unwrap();
        write(dir.path(), "r0", &[]);
        let written = idle(&dir.path().join("r2.ndjson")).unwrap();
        prune(dir.path(), 4, 1000);
        assert_eq!(names(dir.path()), ["r5", "r4", "r3", "r2", "r0"]);
        prune(dir.path(), 2, 1000);
        assert_eq!(names(dir.path()), ["r5", "r4", "r2", "r0"]);
        drop(written);
        prune(dir.path(), 9, 20);
        assert_eq!(names(dir.path()), ["r5", "r4", "r0"]);
        prune(dir.path(), 9, 1);
        assert_eq!(names(dir.path()), ["r5", "r0"]);
        assert!(dir.path().join("notes.txt").exists());
    }

    #[test]
    fn the_last_run_of_these_playbooks_tells_what_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str, head: String, rest: &str| write(dir.path(), name, &[&head, rest]);
        let told = last(dir.path()).unwrap_err();
        assert!(told.contains("there is no log of an earlier `apply` of /p with this inventory"), "{told}");
        assert!(last(&dir.path().join("nowhere")).unwrap_err().contains("no log"));
        run("r1", head("apply", false, "/i", "/p"), END);
        assert_eq!(last(dir.path()).unwrap(), ["n2", "n3"]);
        // None of these is one.
        run("r2", head("apply", true, "/i", "/p"), GOOD);
        run("r3", head("run", false, "/i", "/p"), GOOD);
        run("r4", head("apply", false, "/j", "/p"), GOOD);
        run("r5", head("apply", false, "/i", "/q"), GOOD);
        run("r6", "{\"v\":1,\"event\":\"run_sta".to_owned(), "");
        run("r61", head("apply", false, "/i", "/p").replace("\"check\":", "\"image\":true,\"check\":"), GOOD);
        run("r7", head("apply", false, "/i", "/p"), GOOD);
        let under_way = idle(&dir.path().join("r7.ndjson")).unwrap();
        assert_eq!(last(dir.path()).unwrap(), ["n2", "n3"]);
        drop(under_way);
        assert_eq!(last(dir.path()).unwrap(), [""; 0]);
        // Without playbooks, the last of the inventory.
        assert_eq!(left(dir.path(), &["/j".to_owned()], &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn what_earlier_runs_had_boot_and_did_not_see_back_is_known_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let now = jiff::Timestamp::now();
        let step = |host: &str, step: &str, ago: i64, seconds: f64| {
            let time = now - jiff::SignedDuration::from_secs(ago);
            format!(
                "{{\"v\":1,\"event\":\"boot\",\"time\":\"{time}\",\"play\":\"a\",\"host\":\"{host}\",\"step\":\"{step}\",\
                 \"seconds\":{seconds},\"detail\":\"\"}}"
            )
        };
        let run = |name: &str, inventory: &str, lines: &[String]| {
            let head = head("apply", false, inventory, "/p")
                .replace("\"command\"", &format!("\"run\":\"{name}\",\"command\""));
            write(
                dir.path(),
                name,
                &[&[head][..], lines, &["{\"v\":1,\"event\":\"bo".to_owned()]]
                    .concat()
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>(),
            );
        };
        let known = |at_most: u64| {
            let found = booting(dir.path(), &["/i".to_owned()], Duration::from_secs(at_most));
            let mut found: Vec<String> =
                found.into_iter().map(|(host, (run, ago))| format!("{host} {run} {}", ago.as_secs())).collect();
            found.sort();
            found
        };
        assert_eq!(booting(&dir.path().join("nowhere"), &[], Duration::from_secs(900)), HashMap::new());
        let began = |host: &str, ago: i64| [step(host, "draining", ago + 9, 0.0), step(host, "booting", ago, 9.0)];
        let done = |host: &str| [step(host, "back", 50, 70.0), step(host, "done", 49, 71.0)];
        run("r1", "/i", &[&began("n1", 120)[..], &began("n2", 110), &done("n2"), &began("n3", 100)].concat());
        run("r2", "/j", &began("n9", 20));
        assert_eq!(known(900), ["n1 r1 120", "n3 r1 100"]);
        assert_eq!(known(110), ["n3 r1 100"]);
        // A later run has seen n1 back and has booted it again; for n3 it waits, which doesn't make its boot a later one.
        run("r3", "/i", &[&done("n1")[..], &began("n1", 30), &[step("n3", "awaited", 40, 60.0)]].concat());
        assert_eq!(known(900), ["n1 r3 30", "n3 r3 100"]);
        // What a run that goes on has boot is its own.
        let under_way = idle(&dir.path().join("r3.ndjson")).unwrap();
        assert_eq!(known(900), ["n1 r1 120", "n3 r1 100"]);
        drop(under_way);
        assert_eq!(known(30), [""; 0]);
    }

    #[test]
    fn of_a_run_that_was_killed_what_it_had_not_done_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let host = |name: &str, status: &str| {
            format!("{{\"v\":1,\"event\":\"host\",\"play\":\"a\",\"host\":\"{name}\",\"status\":\"{status}\"}}")
        };
        let head = head("apply", false, "/i", "/p");
        write(
            dir.path(),
            "r1",
            &[&head, &host("n1", "ok"), &host("n2", "changed"), "{\"v\":1,\"event\":\"host\",\"pl"],
        );
        // n2 is in a second play, and n3's line is cut.
        assert_eq!(last(dir.path()).unwrap(), ["n2", "n3"]);
        write(dir.path(), "r2", &[&head]);
        assert_eq!(last(dir.path()).unwrap(), ["n1", "n2", "n3"]);
    }
}
