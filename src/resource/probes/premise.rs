//! What the steps of a resource take for granted: that a file can be written, that an account exists. It is asked so that
//! `--check` can foresee a step that would fail. Of a path only builtins of the shell are asked, of accounts one process
//! for all users and one for all groups; why something can't be written is found out only where it can't.

use crate::resource::{FileDiff, Fragment, Group, Output, Question, Trouble};
use crate::shell::{Script, quote};
use std::collections::HashMap;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Premise {
    /// A file can be made at this absolute path, or the one that is there be replaced or removed.
    Replaced(String),
    /// What is at this absolute path can be given another owner or other permissions.
    Changed(String),
    /// There is a user of this name.
    User(String),
    /// There is a group of this name.
    Group(String),
}

/// That these files can be written.
pub fn of_files(files: Vec<FileDiff>) -> Vec<Premise> {
    files.into_iter().map(|file| Premise::Replaced(file.path)).collect()
}

impl Premise {
    /// Asks for it.
    pub fn ask(&self) -> Question {
        Question::of::<Premises>(self.arg())
    }

    /// The argument of the question.
    pub fn arg(&self) -> String {
        match self {
            Premise::Replaced(path) => format!("r {path}"),
            Premise::Changed(path) => format!("c {path}"),
            Premise::User(name) => format!("u {name}"),
            Premise::Group(name) => format!("g {name}"),
        }
    }
}

/// The group of questions. An answer is what is known to be amiss: nothing where all is well, and also where that can't be
/// told, as of users without `getent`, or in busybox' shell, for which root may write everything.
#[derive(Debug)]
pub struct Premises;

// A line for each: `+`, `-` of an account, `?` where it isn't known; of a path that can't be written `i N` (immutable),
// `r MOUNT` (mounted read-only) or `d N` (no right), of the first N bytes of the path.
const ACCOUNTS: &str = r#"known() {
  b=$1; shift; [ $# -gt 0 ] || return 0
  if ! command -v getent >/dev/null; then for n do echo '?'; done; return; fi
  if lim 10 getent "$b" "$@" >/dev/null 2>&1; then for n do echo +; done; return; fi
  for n do lim 10 getent "$b" "$n" >/dev/null 2>&1; case $? in 0) echo + ;; 2) echo - ;; *) echo '?' ;; esac; done
}"#;
const PATHS: &str = r#"why() { # of $1, which can't be written
  a=$(lsattr -d -- "$1" 2>/dev/null)
  case ${a%% *} in *i*) echo "i ${#1}"; return ;; esac
  m=$(df -P -- "$1" 2>/dev/null | tail -n 1); m=/${m#*% /} o=
  [ ! -r /proc/self/mountinfo ] ||
    while read -r _ _ _ _ p a b; do [ "$p" != "$m" ] || o=$a,${b##* }; done </proc/self/mountinfo
  case ,$o, in *,ro,*) echo "r $m" ;; *) echo "d ${#1}" ;; esac
}
each() { # of the path $2, and whether it is replaced
  f=$2 d=$2
  if [ "$1" = r ] && [ ! -L "$f" ]; then
    d=${f%/*}; while [ -n "$d" ] && [ ! -e "$d" ]; do d=${d%/*}; done; d=${d:-/}
    if [ -d "$d" ] && [ ! -w "$d" ] && ! grep -qsF -- " $f " /proc/self/mountinfo; then why "$d"; return; fi
  fi
  if [ ! -e "$f" ] || [ -w "$f" ]; then echo +; return; fi
  a=$(why "$f"); case $a in d*) echo + ;; *) echo "$a" ;; esac # who may not write may yet replace
}
while [ $# -gt 0 ]; do each "$1" "$2"; shift 2; done"#;

/// The arguments in the order of the lines: groups, users, paths.
fn ordered<'a>(args: &[&'a str]) -> [Vec<(&'a str, &'a str)>; 3] {
    let parts = || args.iter().filter_map(|arg| arg.split_once(' '));
    ["g", "u", "cr"].map(|kinds| parts().filter(|(kind, _)| kinds.contains(kind)).collect())
}

impl Group for Premises {
    type Answer = Option<Trouble>;
    const NAME: &'static str = "premises";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let [groups, users, paths] = ordered(args);
        let mut script = Script::new();
        if !groups.is_empty() || !users.is_empty() {
            script = script.line(ACCOUNTS);
            script = script.args(groups.iter().map(|g| g.1)).line("known group \"$@\"");
            script = script.args(users.iter().map(|u| u.1)).line("known passwd \"$@\"");
        }
        if !paths.is_empty() {
            script = script.args(paths.into_iter().flat_map(|(kind, path)| [kind, path])).line(PATHS);
        }
        vec![script.into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Option<Trouble>, Trouble>> {
        let text = outputs.first().map(Output::text).unwrap_or_default();
        let said: HashMap<_, _> = ordered(args).into_iter().flatten().zip(text.lines()).collect();
        let of = |arg: &&str| {
            let (kind, name) = arg.split_once(' ')?;
            amiss(kind, name, said.get(&(kind, name))?)
        };
        args.iter().map(|arg| Ok(of(arg))).collect()
    }
}

fn amiss(kind: &str, name: &str, said: &str) -> Option<Trouble> {
    let (code, rest) = said.split_once(' ').unwrap_or((said, ""));
    let part = || rest.parse().ok().and_then(|n| name.get(..n)).unwrap_or(name);
    Some(match (kind, code) {
        ("u" | "g", "-") => {
            let what = if kind == "u" { "user" } else { "group" };
            Trouble::new(format!("there is no {what} {name}"))
                .hint("check its name, or bring it before this, by `package` or `command`")
        }
        (_, "i") => {
            let which = if part() == name { "it" } else { part() };
            Trouble::new(format!("{name} can't be written: {which} is immutable"))
                .hint(format!("`chattr -i {}` lifts that", quote(part())))
        }
        (_, "r") => Trouble::new(format!("{name} can't be written: {rest} is mounted read-only"))
            .hint("remount it, or make the change where what is mounted there comes from: `apply --root DIR` does it in an image"),
        (_, "d") => Trouble::new(format!("{name} can't be written: permission denied for {}", part()))
            .hint("`become: true` writes as root"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, ask};

    fn told(answers: &crate::resource::Answers, premise: &Premise) -> Option<String> {
        answers.get::<Premises>(&premise.arg()).unwrap().as_ref().map(|t| t.message.clone())
    }

    #[test]
    fn accounts_are_known_or_not() {
        let user = |name: &str| Premise::User(name.to_owned());
        let group = |name: &str| Premise::Group(name.to_owned());
        let all = [user("root"), user("nosuchuser"), user("-x"), group("daemon"), group("no such group")];
        for shell in Shell::ALL {
            let answers = ask(shell, all.iter().map(Premise::ask));
            let found = all.each_ref().map(|p| told(&answers, p));
            let no = |what: &str| Some(format!("there is no {what}"));
            assert_eq!(found, [None, no("user nosuchuser"), None, None, no("group no such group")], "{shell:?}");
        }
    }

    #[test]
    fn what_is_mounted_read_only_is_told_with_its_mount_point() {
        let setup = "mount -t tmpfs none /tmp; mkdir /tmp/ro /tmp/rw; mount -t tmpfs none /tmp/ro; cd /tmp/ro; mkdir d
            touch d/f own; cd /; mount --bind /tmp/rw /tmp/ro/d; touch /tmp/rw/f /tmp/own; mount --bind /tmp/own /tmp/ro/own
            mount -o remount,ro /tmp/ro";
        let (wrong, right) = (
            ["c /tmp/ro", "r /tmp/ro/new\nline", "r /tmp/ro/x/y"],
            ["c /nowhere/at/all", "r /tmp/ro/d/f", "r /tmp/ro/d/x", "r /tmp/ro/own", "r /tmp/rw/x"],
        );
        for shell in [Shell::Dash, Shell::Bash] {
            let args = [&wrong[..], &right].concat();
            let output = shell.run_in_net(setup, Premises::compose(&args)[0].script.as_str());
            let found: Vec<_> = Premises::split(&args, &[output]).into_iter().map(|t| t.unwrap()).collect();
            for (arg, found) in wrong.iter().zip(&found) {
                let told = format!("{} can't be written: /tmp/ro is mounted read-only", &arg[2..]);
                assert_eq!(found.as_ref().map(|t| &t.message), Some(&told), "{shell:?}");
            }
            assert!(found[wrong.len()..].iter().all(Option::is_none), "{found:?} {shell:?}");
        }
    }

    #[test]
    fn who_has_no_right_is_told_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("é")).unwrap();
        std::fs::write(dir.path().join("mine"), "").unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        let args = [format!("r {}", path("é/x/y")), format!("c {}", path("mine"))];
        let words = args.each_ref().map(String::as_str);
        for shell in Shell::ALL {
            let script = Premises::compose(&words);
            let output = shell.run_as_nobody(dir.path(), script[0].script.as_str());
            let found: Vec<_> = Premises::split(&words, &[output]).into_iter().map(|t| t.unwrap()).collect();
            let told = format!("{} can't be written: permission denied for {}", path("é/x/y"), path("é"));
            assert_eq!(found[0].as_ref().map(|t| &t.message), Some(&told), "{shell:?}");
            assert_eq!(found[1], None, "chmod needs no right to write, {shell:?}");
        }
    }

    #[test]
    fn what_is_immutable_is_told_with_the_way_to_lift_that() {
        let said = Output { stdout: b"i 10\ni 4\n+\n".to_vec(), ..Output::default() };
        let found = Premises::split(&["c /etc/hosts", "r /etc/it's", "r /etc/x"], &[said]);
        let of = |at: usize| found[at].as_ref().unwrap().as_ref().map(|t| (&*t.message, t.hint.as_deref().unwrap()));
        assert_eq!(of(0), Some(("/etc/hosts can't be written: it is immutable", "`chattr -i /etc/hosts` lifts that")));
        assert_eq!(of(1), Some(("/etc/it's can't be written: /etc is immutable", "`chattr -i /etc` lifts that")));
        assert_eq!(of(2), None);
    }
}
