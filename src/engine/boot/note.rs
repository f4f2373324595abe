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
    /// Who runs it, and as which process of which machine: `root@head1 4711`.
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
        let (Some((at, pid)), Some((here, _))) = (self.by.rsplit_once(' '), whence.rsplit_once(' ')) else {
            return false;
        };
        let exe = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let machine = |whence: &str| whence.rsplit_once('@').map(|(_, machine)| machine.to_owned());
        // Another process may have the number by now.
        machine(at) == machine(here) && pid.parse::<u32>().is_ok() && exe(pid).is_some() && exe(pid) == exe("self")
    }

    /// The id of the boot that was to end.
    pub fn boot(&self) -> &str {
        &self.before.boot
    }
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
        .line("rm -f -- \"$L/.reboot\"; echo \"it can't be noted in $L: ${e%%\"$NL\"*}\"; exit 1; }")
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
        let run = |script: &Script| {
            std::process::Command::new("sh").arg("-c").arg(format!("NL='\n'\n{}", script.as_str())).status().unwrap()
        };
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
        assert_eq!(Note::read("run r1\n"), None);
        let of = |by: String| Note { by, ..note.clone() };
        let me = std::process::id();
        assert!(of(format!("other@h {me}")).is_alive("ops@h 1"), "this process runs");
        assert!(!of(format!("ops@other {me}")).is_alive("ops@h 1"), "nobody knows");
        assert!(!of("ops@h 1".into()).is_alive("ops@h 2"), "that is no netplay");
        assert!(!of(String::new()).is_alive("ops@h 2"));
    }
}
