//! What a host itself knows of its boot by netplay: `/var/lib/netplay/reboot`, written before anything is taken away from
//! it and removed when it is given back. By it any later run, from any machine, finishes what one left undone.

use super::super::batch::Folders;
use super::pulse::Pulse;
use crate::plan::{Boot, Rung};
use crate::shell::Script;

/// The note.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// The run.
    pub run: String,
    /// Who runs it, and as which process of which machine, by [`whence`].
    pub by: String,
    /// What boots it.
    pub rung: Rung,
    /// How it was drained, in the words of the drain itself: `slurm n1`.
    pub drain: String,
    /// When, in seconds since 1970 by the host's clock.
    pub since: u64,
    /// Why.
    pub why: Vec<String>,
    /// What it was like before.
    pub(super) before: Pulse,
}

impl Note {
    /// Reads its lines; nothing if it isn't whole.
    pub fn read(text: &str) -> Option<Note> {
        let of = |key: &str| {
            text.lines().filter_map(|l| l.split_once(' ')).find(|(k, _)| *k == key).map(|(_, v)| v.to_owned())
        };
        let why = text.lines().filter_map(|l| l.strip_prefix("why ")).map(str::to_owned).collect();
        let before = Pulse::read(text.lines());
        let rung = if of("rung")? == "power_cycle" { Rung::PowerCycle } else { Rung::Reboot };
        let since = of("since").and_then(|s| s.parse().ok()).unwrap_or_default();
        (!before.boot.is_empty()).then_some(Note {
            run: of("run")?,
            by: of("by").unwrap_or_default(),
            rung,
            drain: of("drain")?,
            since,
            why,
            before,
        })
    }

    /// Whether the run that wrote it goes on: that is known of those of this machine alone. `whence` is this process' own.
    pub fn is_alive(&self, whence: &str) -> bool {
        let (Some(its), Some(own)) = (Process::read(&self.by), Process::read(whence)) else { return false };
        its.world == own.world
            && match started(its.pid) {
                Some(started) => started == its.started,
                // A /proc that hides others' processes: whether there is one of that number is told all the same.
                None => exists(its.pid),
            }
    }

    /// Who runs it, for people: `root@head1 4711`.
    pub fn runner(&self) -> &str {
        self.by.match_indices(' ').nth(1).map_or(&self.by, |(at, _)| &self.by[..at])
    }

    /// The id of the boot that was to end.
    pub fn boot(&self) -> &str {
        &self.before.boot
    }
}

/// A process, so that no later one is taken for it, by another user's eyes as well.
struct Process<'a> {
    pid: u32,
    /// When it was started, in clock ticks since the machine's boot.
    started: u64,
    /// The machine's boot, and what its number is one of.
    world: &'a str,
}

impl Process<'_> {
    fn read(whence: &str) -> Option<Process<'_>> {
        let words: Vec<&str> = whence.rsplitn(4, ' ').collect();
        let [world, started, pid, _] = words.as_slice() else { return None };
        Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()?, world })
    }
}

/// Who runs this process, given as `root@head1`, and which one it is of all processes:
/// `root@head1 PID STARTED BOOT_ID/PID_NAMESPACE`.
pub fn whence(who: &str) -> String {
    let pid = std::process::id();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{who} {pid} {} {}/{}", started(pid).unwrap_or_default(), boot.trim(), numbers.display())
}

/// When a process was started. Source: proc_pid_stat(5), field 22; the second one, its name, may hold spaces and brackets.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Writes the note, and it is synced: after a power cut it is there, or nothing has been done.
pub(super) fn write(folders: &Folders, (run, by): (&str, &str), drain: &str, boot: &Boot, before: &Pulse) -> Script {
    let rung = match boot.rung {
        Rung::Reboot => "reboot",
        Rung::PowerCycle => "power_cycle",
    };
    let line = |text: &str| text.replace(['\n', '\r'], " ");
    let mut lines = vec![format!("run {run}"), format!("by {by}"), format!("rung {rung}"), format!("drain {drain}")];
    lines.extend(boot.reasons.iter().map(|why| line(&format!("why {why}"))));
    lines.extend(before.lines());
    Script::new()
        .set("L", &folders.state)
        .args(lines)
        .line("[ ! -d \"$L/reboot\" ] || { echo \"$L/reboot is a directory: remove it\"; exit 1; }")
        .line("umask 077; mkdir -p \"$L\" && chmod 700 \"$L\" || exit 1; rm -f -- \"$L/firmware_reset\"")
        .line("e=$( { printf '%s\\n' \"$@\" \"since $(date +%s)\" | dd conv=fsync of=\"$L/.reboot\"; } 2>&1 ) && mv -f -- \"$L/.reboot\" \"$L/reboot\" || {")
        .line("rm -f -- \"$L/.reboot\"; echo \"it can't be noted in $L: $(printf '%s\\n' \"$e\" | head -n 1)\"; exit 1; }")
}

/// Removes it.
pub(super) fn remove(folders: &Folders) -> Script {
    Script::new().set("L", &folders.state).line("rm -f -- \"$L/reboot\" \"$L/firmware_reset\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { state: folder.path().join("state").display().to_string(), run: String::new() };
        let boot = Boot { rung: Rung::PowerCycle, reasons: vec!["mlxconfig:all (A, B)".into(), "it's\nso".into()] };
        let before = Pulse::read("boot_id a\nmachine m\nlink p/0 eth0 100\nport q/1 mlx5_0/1 ACTIVE 400\n".lines());
        let run = |script: &Script| std::process::Command::new("sh").arg("-c").arg(script.as_str()).status().unwrap();
        assert!(run(&write(&folders, ("r1", "ops@h 1"), "slurm n1", &boot, &before)).success());
        let path = folder.path().join("state/reboot");
        let note = Note::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(note.since > 1_700_000_000);
        let why = vec!["mlxconfig:all (A, B)".to_owned(), "it's so".to_owned()];
        assert_eq!(
            note,
            Note {
                run: "r1".into(),
                by: "ops@h 1".into(),
                rung: Rung::PowerCycle,
                drain: "slurm n1".into(),
                since: note.since,
                why,
                before
            }
        );
        assert!(run(&remove(&folders)).success() && !path.exists());
        // Why it couldn't be written is told.
        std::fs::create_dir(folder.path().join("state/.reboot")).unwrap();
        let script = write(&folders, ("r1", "ops@h 1"), "none", &boot, &note.before);
        let output = std::process::Command::new("sh").arg("-c").arg(script.as_str()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            !output.status.success() && said.contains("can't be noted in") && said.contains("Is a directory"),
            "{said}"
        );
        assert_eq!(Note::read("run r1\n"), None);
    }

    #[test]
    fn a_run_of_this_machine_is_known_by_its_process() {
        let of = |by: &str| Note {
            run: "r1".into(),
            by: by.into(),
            rung: Rung::Reboot,
            drain: "none".into(),
            since: 0,
            why: Vec::new(),
            before: Pulse::default(),
        };
        let me = std::process::id();
        // Another program of another user: nothing of it is read that only they may read.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (pid, here) = (other.id(), whence("me@h"));
        let world = here.rsplit_once(' ').unwrap().1;
        let theirs = format!("they@h {pid} {} {world}", started(pid).unwrap());
        assert!(of(&theirs).is_alive(&here) && of(&here).is_alive(&here));
        assert_eq!(of(&theirs).runner(), format!("they@h {pid}"));
        assert!(!of(&format!("they@h {pid} 1 {world}")).is_alive(&here), "a later process of that number");
        assert!(!of(&theirs.replace(world, "boot/pid:[1]")).is_alive(&here), "nobody knows");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!of(&theirs).is_alive(&here), "it has ended");
        assert!(!of(&format!("me@h {me}")).is_alive(&here) && !of("").is_alive(&here));
        assert!(exists(me) && exists(1) && !exists(pid));
    }
}
