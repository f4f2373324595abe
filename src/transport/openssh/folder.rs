//! Where the sockets of a run's connections are, and who ends the connections if the run can't.

use rustix::fs::Mode;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The longest path that a master's socket may have: 108 bytes with a NUL at the end (unix(7)), and ssh itself makes the
/// socket under a name with 17 more first.
const LONGEST: usize = 108 - 1 - 17;

/// What the guard does: it keeps the last whole line it is told, and when its standard input ends (with this process,
/// however that ends), it ends the process groups that stand in it and removes the folder.
const GUARD: &str = "trap '' INT TERM HUP QUIT; last=; while read -r line; do last=$line; done; \
    if [ -n \"$last\" ]; then kill -s TERM -- $last; sleep 1; kill -s KILL -- $last; fi 2>/dev/null; rm -rf -- \"$0\"";

/// A folder of this user alone, for one run.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    next: AtomicU32,
    guard: Mutex<Guard>,
}

#[derive(Debug)]
struct Guard {
    shell: Child,
    told: Option<ChildStdin>,
    groups: BTreeSet<u32>,
}

impl Folder {
    /// Makes the folder in the first of the usual places where it can be, and sets the guard over it.
    pub(super) fn new() -> std::io::Result<Folder> {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let places = [variable("XDG_RUNTIME_DIR"), variable("TMPDIR"), Some("/tmp".into()), Some("/var/tmp".into())];
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for place in places.into_iter().flatten() {
            match Folder::within(&place) {
                Ok(path) => return Folder::guarded(path),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn within(place: &Path) -> std::io::Result<PathBuf> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = place.join(format!("netplay-{name}"));
        // ssh would expand a `%`, and a relative path means another place to it if it changes its folder.
        let text = path.as_os_str().as_bytes();
        if text.len() + "/4294967295".len() > LONGEST || !path.is_absolute() || text.contains(&b'%') {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "its path doesn't suit a socket"));
        }
        rustix::fs::mkdir(&path, Mode::RWXU)?;
        Ok(path)
    }

    fn guarded(path: PathBuf) -> std::io::Result<Folder> {
        let spawned = Command::new("/bin/sh")
            .args(["-c", GUARD])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn();
        match spawned {
            Ok(mut shell) => {
                let guard = Guard { told: shell.stdin.take(), shell, groups: BTreeSet::new() };
                Ok(Folder { path, next: AtomicU32::new(0), guard: Mutex::new(guard) })
            }
            Err(error) => {
                // It is empty, and the error that counts is the first one.
                let _ = std::fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// A path in the folder that nobody else gets.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Tells the guard of a process group that must not outlive this process.
    pub(super) fn watch(&self, group: u32) {
        self.tell(|groups| groups.insert(group));
    }

    /// Tells the guard that a process group has ended.
    pub(super) fn forget(&self, group: u32) {
        self.tell(|groups| groups.remove(&group));
    }

    fn tell(&self, change: impl FnOnce(&mut BTreeSet<u32>) -> bool) {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut guard.groups);
        let line: Vec<String> = guard.groups.iter().map(|group| format!("-{group}")).collect();
        if let Some(told) = &mut guard.told {
            // A guard that was killed can't be told, and nobody needs it unless we are killed as well.
            let _ = told.write_all(format!("{}\n", line.join(" ")).as_bytes());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let guard = self.guard.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(guard.told.take());
        super::super::local::reap(&mut guard.shell, std::time::Duration::from_secs(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_is_private_short_and_gone_at_the_end() {
        let folder = Folder::new().unwrap();
        let (one, two) = (folder.socket(), folder.socket());
        assert!(one != two && one.as_os_str().len() <= LONGEST);
        let path = one.parent().unwrap().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        std::fs::write(&one, "").unwrap();
        drop(folder);
        assert!(!path.exists());
        let deep = tempfile::tempdir().unwrap();
        assert!(Folder::within(&deep.path().join("x".repeat(80))).is_err());
    }

    #[test]
    fn what_is_watched_does_not_outlive_us() {
        let folder = Folder::new().unwrap();
        let sleep = || Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let (mut one, mut two) = (sleep(), sleep());
        folder.watch(one.id());
        folder.watch(two.id());
        folder.forget(two.id());
        // The end of this process, as the guard sees it.
        drop(folder);
        assert!(!one.wait().unwrap().success());
        assert!(two.try_wait().unwrap().is_none());
        two.kill().unwrap();
        two.wait().unwrap();
    }
}
