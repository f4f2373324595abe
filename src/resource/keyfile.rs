//! Edits of files that hold one setting a line and that several resources share (`sysctl.d`, `ifcfg-eth0`).
//!
//! Each resource plans from the same probe, so writing whole files would undo what another one of the same segment
//! wrote a moment before. An [`Edit`] therefore says which lines become what, and the host does it on the file as it is
//! then. Doing it again changes nothing.

use super::{FileDiff, Step};
use crate::shell::{LED, REPLACE, Script};

/// What is to become of some lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    path: String,
    header: Vec<String>,
    edits: Vec<Line>,
    within: Option<(String, usize)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Replace { old: String, new: String },
    Remove(String),
    Append(String),
}

impl Edit {
    /// An edit of the file of this absolute path. Where it isn't there it is made, with mode 0644; its folder must be
    /// there.
    pub fn of(path: impl Into<String>) -> Edit {
        Edit { path: path.into(), header: Vec::new(), edits: Vec::new(), within: None }
    }

    /// An edit of one line of a part of a file, for files in which a line's meaning depends on what stands above it. The
    /// part begins with the `nth` line (from 1) that is `start`: the first line behind it that is `old` is replaced, or,
    /// without one, `new` is put right behind it. Where those lines aren't in the file any more, the edit fails.
    pub fn within(path: impl Into<String>, start: &str, nth: usize, old: Option<&str>, new: &str) -> Edit {
        let line = Line::Replace { old: old.unwrap_or(start).to_owned(), new: new.to_owned() };
        Edit { within: Some((start.to_owned(), nth)), edits: vec![line], ..Edit::of(path) }
    }

    /// The same with a line that a new file begins with.
    #[must_use]
    pub fn header(mut self, line: impl Into<String>) -> Edit {
        self.header.push(line.into());
        self
    }

    /// The same with every line that is `old`, without its newline, replaced. Where neither it nor the new one is in
    /// the file any more, the edit fails.
    #[must_use]
    pub fn replace(mut self, old: impl Into<String>, new: impl Into<String>) -> Edit {
        self.edits.push(Line::Replace { old: old.into(), new: new.into() });
        self
    }

    /// The same with every such line removed.
    #[must_use]
    pub fn remove(mut self, old: impl Into<String>) -> Edit {
        self.edits.push(Line::Remove(old.into()));
        self
    }

    /// The same with a line at the end, unless there is such a line.
    #[must_use]
    pub fn append(mut self, line: impl Into<String>) -> Edit {
        self.edits.push(Line::Append(line.into()));
        self
    }

    /// The step that does it: into a dot file beside it that is then renamed, so that a reader sees the old or the new
    /// file and never half of it. Links stay and their target is written; owner, mode, ACL, extended attributes and
    /// context are kept; a mount point is written in place, as it can't be replaced.
    pub fn step(&self) -> Step {
        Step::Run(self.after(Script::new(), ""))
    }

    /// The same at the end of a script. `between` runs before it, with the file in `$p` and the edits as arguments, by
    /// three: `r`, `d` or `a`, the old and the new line.
    pub fn after(&self, script: Script, between: &'static str) -> Script {
        let lines = self.edits.iter().flat_map(|line| match line {
            Line::Replace { old, new } => ["r", old, new],
            Line::Remove(old) => ["d", old, ""],
            Line::Append(new) => ["a", "", new],
        });
        let mut header = String::new();
        for line in &self.header {
            header.push_str(line);
            header.push('\n');
        }
        let script = script.set("p", &self.path).set("header", &header);
        let (script, each) = match &self.within {
            Some((start, nth)) => (script.set("within", start).set("nth", &nth.to_string()), PART),
            None => (script, LINE),
        };
        let script = script.args(lines);
        let script = if between.is_empty() { script } else { script.line(between) };
        script.line(LED).line(REPLACE).line(BEGIN).line(each).line(END)
    }

    /// What it makes of the file, if nothing else writes it.
    pub fn preview(&self, before: Option<&[u8]>) -> FileDiff {
        let text = before.unwrap_or_default();
        let mut lines: Vec<Vec<u8>> = match before {
            None => self.header.iter().map(|l| l.clone().into_bytes()).collect(),
            Some(_) => text.strip_suffix(b"\n").unwrap_or(text).split(|&b| b == b'\n').map(<[u8]>::to_vec).collect(),
        };
        if text.is_empty() && before.is_some() {
            lines.clear();
        }
        let was = lines.clone();
        if let (Some((start, nth)), Some(Line::Replace { old, new })) = (&self.within, self.edits.first()) {
            let mut begins = lines.iter().enumerate().filter(|(_, l)| l.as_slice() == start.as_bytes());
            if let Some((begin, _)) = begins.nth(nth.saturating_sub(1)) {
                let new = new.clone().into_bytes();
                match lines[begin + 1..].iter().position(|l| l.as_slice() == old.as_bytes()) {
                    _ if old == start => lines.insert(begin + 1, new),
                    Some(at) => lines[begin + 1 + at] = new,
                    None => {}
                }
            }
            return FileDiff {
                path: self.path.clone(),
                before: before.map(<[u8]>::to_vec),
                after: Some(joined(lines)),
                edit: Some(self.clone()),
            };
        }
        let dropped =
            |line: &Vec<u8>| self.edits.iter().any(|e| matches!(e, Line::Remove(old) if old.as_bytes() == line));
        lines.retain(|line| !dropped(line));
        for edit in &self.edits {
            match edit {
                Line::Replace { old, new } => {
                    for line in lines.iter_mut().filter(|l| l.as_slice() == old.as_bytes()) {
                        *line = new.clone().into_bytes();
                    }
                }
                Line::Append(new) if !was.iter().any(|l| l == new.as_bytes()) => lines.push(new.clone().into_bytes()),
                Line::Append(_) | Line::Remove(_) => {}
            }
        }
        FileDiff {
            path: self.path.clone(),
            before: before.map(<[u8]>::to_vec),
            after: Some(joined(lines)),
            edit: Some(self.clone()),
        }
    }
}

fn joined(lines: Vec<Vec<u8>>) -> Vec<u8> {
    lines.into_iter().flat_map(|l| [l, b"\n".to_vec()].concat()).collect()
}

/// `$p`: the file; `$header`: lines of a new one; arguments: triples of what, the old and the new line. With `$within`
/// there is one of them, and its old line is looked for behind the `$nth` such line. The bytes
/// written are counted, as not every shell's `printf` tells that the disk is full. What a tool says of the file beside it is
/// told of the file itself: a process's number in it would keep hosts that say the same from being told together. That
/// file is made by us alone and then known by its descriptor, as others may write to the folder.
const BEGIN: &str = r#"asked=$p t= NL='
'
no() { [ -z "$t" ] || rm -f -- "$t" "$t.old"; printf '%s\n' "$1" >&2; exit 1; }
led "$p" >&2 || exit 1
[ ! -L "$p" ] || { p=$(readlink -f -- "$p") && [ -n "$p" ]; } || no "$asked is a link that leads nowhere"
d=${p%/*} n=0 seen=' ' how=replace
[ -d "$d/" ] || no "$asked can't be written: there is no folder $d"
[ -e /proc/self/fd ] || no "$asked can't be written, since /proc isn't mounted"
[ ! -d "$p" ] || no "$asked is a folder"
grep -qsF -- " $p " /proc/self/mountinfo && how=in-place
rm -f -- "$d/.netplay-"* 2>/dev/null
t=$d/.netplay-$$
put() { printf '%s\n' "$1" && n=$((n + ${#1} + 1)); }"#;

/// What becomes of a line, by all edits.
const LINE: &str = r#"line() {
  l=$1 new=$1 gone= i=0; shift
  while [ $# -gt 0 ]; do
    i=$((i + 1))
    case $1 in
      r) if [ "$l" = "$2" ]; then new=$3 seen="$seen$i "; elif [ "$l" = "$3" ]; then seen="$seen$i "; fi ;;
      d) if [ "$l" = "$2" ]; then gone=1; fi ;;
      a) if [ "$l" = "$3" ]; then seen="$seen$i "; fi ;;
    esac
    shift 3
  done
  [ -n "$gone" ] || put "$new"
}"#;

/// The same by an edit of a part.
const PART: &str = r#"state=
line() {
  l=$1
  case $state in
    '') if [ "$l" = "$within" ] && nth=$((nth - 1)) && [ $nth -eq 0 ]; then
        if [ "$3" = "$within" ]; then state=2 seen=' 1 '; put "$l" && put "$4"; return; fi
        state=1
      fi ;;
    1) if [ "$l" = "$3" ] || [ "$l" = "$4" ]; then l=$4 state=3 seen=' 1 '; fi ;;
    2) state=3; [ "$l" != "$4" ] || return 0 ;;
  esac
  put "$l"
}"#;

const END: &str = r#"all() {
  if [ -e "$p" ]; then
    while IFS= read -r l || [ -n "$l" ]; do line "$l" "$@" || return 1; done <"$p" || return 1
  elif [ -n "$header" ]; then
    printf '%s' "$header" && n=${#header} || return 1
  fi
  i=0
  while [ $# -gt 0 ]; do
    i=$((i + 1))
    case $seen in
      *" $i "*) ;;
      *) case $1 in
        r) echo "$asked was changed by something else meanwhile: it has no line $2 any more" >&2; return 12 ;;
        a) put "$3" || return 1 ;;
      esac ;;
    esac
    shift 3
  done
}
attributes() {
  if [ "$how" = in-place ]; then return; fi
  [ -f "$p" ] || { chmod 0644 /proc/self/fd/8; return; }
  m=$(stat -c '%u:%g %a' -- "$p") && chown -- "${m% *}" /proc/self/fd/8 && chmod -- "${m#* }" /proc/self/fd/8 && keep "${m#* }"
}
w=$( exec 2>&1; set -C; umask 077; exec 8>"$t" || exit 1
  all "$@" >&8; r=$?
  [ $r -ne 12 ] || exit 12
  [ $r -eq 0 ] && [ "$(wc -c </proc/self/fd/8)" -eq $n ] && dd if=/dev/null of=/proc/self/fd/8 conv=notrunc,fsync 2>/dev/null || exit 13
  attributes || exit 14
) || case $? in
  12) no "$w" ;;
  13) no "not all of $asked could be written: is the disk full?" ;;
  14) w=${w%%"$NL"*}; no "the owner, permissions or attributes of $asked could not be kept: ${w##*: }" ;;
  *) w=${w%%"$NL"*}; no "$asked can't be written: ${w##*: }" ;;
esac
place "$how""#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, mark, marked};
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = format!("{}/ifcfg-eth0", dir.path().display());
        (dir, path)
    }

    #[test]
    fn a_part_of_a_file_is_edited_alone() {
        const TEXT: &str = "auto a\niface a\n  mtu 1\niface b\n  mtu 1\niface a\n  up x\niface c";
        for shell in Shell::ALL {
            let (_dir, path) = folder();
            fs::write(&path, TEXT).unwrap();
            let edits = [
                Edit::within(&path, "iface b", 1, Some("  mtu 1"), "  mtu 2"),
                Edit::within(&path, "iface a", 2, None, "  mtu $(id) \\ 3"),
                Edit::within(&path, "iface c", 1, None, "  mtu 4"),
            ];
            let wanted = "auto a\niface a\n  mtu 1\niface b\n  mtu 2\niface a\n  mtu $(id) \\ 3\n  up x\niface c\n  \
                          mtu 4\n";
            let mut previewed = TEXT.as_bytes().to_vec();
            for edit in &edits {
                previewed = edit.preview(Some(&previewed)).after.unwrap();
            }
            assert_eq!(String::from_utf8_lossy(&previewed), wanted);
            for _ in 0..2 {
                shell.steps(&edits.each_ref().map(Edit::step)).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), wanted, "{shell:?}");
            }
            for (gone, missing) in [
                (Edit::within(&path, "iface a", 2, Some("  mtu 7"), "  mtu 8"), "  mtu 7"),
                (Edit::within(&path, "iface a", 3, None, "  mtu 8"), "iface a"),
            ] {
                let said = shell.steps(&[gone.step()]).unwrap_err().complaint();
                let wanted =
                    format!("{path} was changed by something else meanwhile: it has no line {missing} any more");
                assert_eq!(said, wanted, "{shell:?}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), wanted, "{shell:?}");
        }
    }

    #[test]
    fn two_edits_of_one_file_compose() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            fs::write(&path, "# note\nA=1\nB=2\nB=2\nC=3").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            let one =
                Edit::of(&path).header("# new").replace("A=1", "A=$(id) 'x' \"\\\\\"").append("D=4").remove("C=3");
            let two = Edit::of(&path).replace("B=2", "-n %s").append("E=5").append("A=1").append("!");
            shell.steps(&[one.step(), two.step()]).unwrap();
            let wanted = "# note\nA=$(id) 'x' \"\\\\\"\n-n %s\n-n %s\nD=4\nE=5\nA=1\n!\n";
            assert_eq!(fs::read_to_string(&path).unwrap(), wanted, "{shell:?}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing may be left beside it");
            shell.steps(&[two.step()]).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), wanted, "again, {shell:?}");
        }
    }

    #[test]
    fn new_files_links_and_what_is_refused() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            let edit = Edit::of(&path).header("# made").append("A=1");
            shell.steps(&[edit.step()]).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "# made\nA=1\n");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
            let link = format!("{}/link", dir.path().display());
            symlink("ifcfg-eth0", &link).unwrap();
            shell.steps(&[Edit::of(&link).replace("A=1", "A=2").step()]).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&path).unwrap(), "# made\nA=2\n");
            let refused = |edit: Edit| {
                let said = shell.steps(&[edit.step()]).unwrap_err();
                assert_eq!(fs::read_to_string(&path).unwrap(), "# made\nA=2\n", "{shell:?}");
                String::from_utf8(said.stderr).unwrap()
            };
            let said = refused(Edit::of(&path).append("C=1").replace("B=1", "B=2"));
            assert!(said.contains("has no line B=1 any more"), "{said}");
            let said = refused(Edit::of(format!("{path}.d/x")).append("A=1"));
            assert!(said.contains("there is no folder"), "{said}");
            let said = refused(Edit::of(dir.path().to_str().unwrap()).append("A=1"));
            assert!(said.contains("is a folder"), "{said}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn a_folder_that_is_not_ours_is_told_in_the_same_words_everywhere() {
        let (dir, path) = folder();
        fs::write(&path, "A=1\n").unwrap();
        let new = format!("{path}.new");
        for (file, edit) in [(&path, Edit::of(&path).append("B=2")), (&new, Edit::of(&new).append("B=2"))] {
            let Step::Run(script) = edit.step() else { unreachable!() };
            for shell in Shell::ALL {
                let said = shell.run_as_nobody(dir.path(), script.as_str());
                assert_eq!(said.code, 1, "{shell:?}");
                let told = String::from_utf8_lossy(&said.stderr).into_owned();
                assert_eq!(told, format!("{file} can't be written: Permission denied\n"), "{shell:?}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    fn script(edit: &Edit) -> String {
        let Step::Run(script) = edit.step() else { unreachable!() };
        script.as_str().to_owned()
    }

    fn told(output: &crate::resource::Output) -> String {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    #[test]
    fn who_may_write_to_the_folder_gains_nothing_by_links_and_swaps() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            let victim = format!("{}/victim", dir.path().display());
            let aim = |tool: &str| format!("{tool}; ln -sf victim \"$t\"; }}\n");
            let edit = Edit::of(&path).append("B=2");
            for hook in [
                // In the way before the file is made,
                "readlink() { :; }; rm() { command rm \"$@\"; ln -s victim \"$d/.netplay-$$\"; }\n".to_owned(),
                // and in its place when it has been written.
                aim("wc() { command wc \"$@\"; mv \"$t\" \"$d/stolen\""),
            ] {
                fs::write(&path, "A=1\n").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                fs::write(&victim, "old").unwrap();
                fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
                shell.run(&format!("{hook}{}", script(&edit)));
                assert_eq!(fs::read_to_string(&victim).unwrap(), "old", "{shell:?} {hook}");
                assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o7777, 0o600, "{shell:?} {hook}");
                fs::remove_file(&path).unwrap();
            }
            assert_eq!(fs::read_to_string(format!("{}/stolen", dir.path().display())).unwrap(), "A=1\nB=2\n");
        }
    }

    #[test]
    fn a_link_that_another_user_put_into_a_common_folder_is_not_followed() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
            fs::write(format!("{path}.victim"), "old").unwrap();
            symlink("ifcfg-eth0.victim", &path).unwrap();
            let theirs = "stat() { case $1 in -L) echo 77770 ;; *) echo 77771 ;; esac; }\n";
            let said = shell.run(&format!("{theirs}{}", script(&Edit::of(&path).append("A=1"))));
            assert_eq!(said.code, 1, "{shell:?}");
            assert!(told(&said).contains("that the user 77771 made"), "{}", told(&said));
            assert_eq!(fs::read_to_string(&path).unwrap(), "old", "{shell:?}");
        }
    }

    #[test]
    fn acl_and_attributes_are_kept() {
        // busybox' cp can't copy them.
        for shell in [Shell::Dash, Shell::Bash] {
            let (dir, path) = folder();
            fs::write(&path, "A=1\n").unwrap();
            mark(&path);
            shell.steps(&[Edit::of(&path).append("B=2").step()]).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nB=2\n");
            assert!(marked(&path), "{shell:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_mounted_file_that_can_not_be_written_is_put_back() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            fs::write(&path, "A=1\n").unwrap();
            let mounted = "grep() { case $* in *mountinfo*) return 0 ;; *) command grep \"$@\" ;; esac; }\n";
            let edit = script(&Edit::of(&path).append("B=2"));
            let full = "dd() { case $* in *of=/proc/*) command dd \"$@\" ;; *) printf half >|\"$p\"; echo dd: no space; return 1 ;; esac; }\n";
            let said = shell.run(&format!("{mounted}{full}{edit}"));
            assert_eq!(said.code, 1, "{shell:?}");
            assert_eq!(told(&said), "it could not be written in place, and what was there is back: no space\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\n", "{shell:?}");
            assert_eq!(shell.run(&format!("{mounted}{edit}")).code, 0, "{shell:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nB=2\n", "{shell:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{shell:?}");
        }
    }

    #[test]
    fn a_full_disk_leaves_the_old_file() {
        for shell in Shell::ALL {
            let (dir, path) = folder();
            fs::write(&path, "A=1\n").unwrap();
            // The file size limit, which is that of the new file, as a full disk would be.
            let big = Edit::of(&path).append("B".repeat(100_000));
            let said = shell.run(&format!("ulimit -f 8; trap '' XFSZ\n{}", script(&big)));
            assert_eq!(said.code, 1, "{shell:?}");
            assert_eq!(told(&said), format!("not all of {path} could be written: is the disk full?\n"), "{shell:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\n", "{shell:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{shell:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_preview_is_what_the_host_does(
            before in prop::option::of("([A-D]=[12 '$\\\\]{0,2}\n){0,6}(A=1)?"),
            new in prop::collection::vec("[^\n\u{0}]{0,12}", 3),
        ) {
            let first = before.as_deref().and_then(|b| b.lines().next()).map(str::to_owned);
            for shell in Shell::ALL {
                let (_dir, path) = folder();
                let mut edit = Edit::of(&path).header("# new").remove("B=1").append(&new[0]).append(&new[1]);
                if let Some(line) = first.as_ref().filter(|l| *l != "B=1") {
                    edit = edit.replace(line, &new[2]);
                }
                if let Some(text) = &before {
                    fs::write(&path, text).unwrap();
                }
                let preview = edit.preview(before.as_ref().map(String::as_bytes)).after.unwrap();
                let ran = shell.steps(&[edit.step()]);
                prop_assert!(ran.is_ok(), "{:?}", ran);
                prop_assert_eq!(fs::read(&path).unwrap(), preview, "{:?}", shell);
            }
        }
    }
}
