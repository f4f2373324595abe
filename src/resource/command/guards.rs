//! What decides in the probe whether a command runs.

use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;

/// How long a guard may take.
const SECONDS: u32 = 60;
/// What a guard's script ends with if its folder isn't there; `env` and `chroot` use it likewise, for failures of their
/// own before the command runs.
const NO_FOLDER: i32 = 125;

const CD: &str = r#"cd -- "$d" || exit 125"#;

/// The group of guards: an argument is made by [`guard`], and guards are shell text of the user's.
#[derive(Debug)]
pub(super) struct Guard;

/// What a guard said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Exit code 0.
    Yes,
    /// Another exit code.
    No(i32),
    /// The folder that it is to run in isn't there.
    NoFolder,
}

/// The argument of a guard that runs in this folder.
pub(super) fn guard(chdir: Option<&str>, text: &str) -> String {
    let script = match chdir {
        Some(folder) => Script::new().set("d", folder).line(CD),
        None => Script::new(),
    };
    script.user(text).as_str().to_owned()
}

impl Group for Guard {
    type Answer = Said;
    const NAME: &'static str = "guards";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        args.iter().map(|text| Fragment { script: Script::new().user(text), user: Some(SECONDS) }).collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Said, Trouble>> {
        let said = |(arg, output): (&&str, &Output)| match output.code {
            0 => Ok(Said::Yes),
            // `timeout` ends so too where the host has no processes left.
            NO_FOLDER if arg.contains(CD) && !output.text().starts_with("timeout:") => Ok(Said::NoFolder),
            124 | 137 | 143 => Err(Trouble::new(format!(
                "a guard was ended, most likely by its deadline of {SECONDS} s (exit code {})",
                output.code
            ))
            .hint("a guard only looks, and quickly")),
            code @ (NO_FOLDER | 126) => {
                Err(Trouble::new(format!("a guard could not be run (exit code {code}): {}", output.complaint())))
            }
            code => Ok(Said::No(code)),
        };
        args.iter().zip(outputs).map(said).collect()
    }
}

/// The group of `creates` and `removes`: an argument is an absolute path, in which `*`, `?` and `[…]` are a pattern.
#[derive(Debug)]
pub(super) struct Exists;

impl Group for Exists {
    type Answer = bool;
    const NAME: &'static str = "paths";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(EXISTS).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<bool, Trouble>> {
        let output = outputs.first().cloned().unwrap_or_default();
        let text = output.text().into_owned();
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.len() != args.len() {
            return vec![Err(Trouble::new(format!("looking for paths failed: {}", output.complaint()))); args.len()];
        }
        let answer = |(path, word): (&&str, &str)| match word {
            "y" => Ok(true),
            "n" => Ok(false),
            _ => Err(Trouble::new(format!("whether {path} is there can't be told: permission denied"))
                .hint("`become: true` looks as root")),
        };
        args.iter().zip(words).map(answer).collect()
    }
}

// No process at all. Without IFS an unquoted variable is expanded as a pattern and never split. Where nothing is found,
// the nearest folder above that is there must be one that may be looked into.
const EXISTS: &str = r#"IFS=
there() { for q do if [ -e "$q" ] || [ -L "$q" ]; then return 0; fi; done; return 1; }
for f do
  if there "$f" || there $f; then echo y; continue; fi
  p=${f%/*}
  while [ -n "$p" ] && [ ! -e "$p" ]; do p=${p%/*}; done
  if [ ! -d "${p:-/}" ] || [ -x "${p:-/}" ]; then echo n; else echo x; fi
done"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Question;
    use crate::resource::trial::{Shell, ask};

    #[test]
    fn paths_and_patterns() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        for name in ["a b", "-n", "x*y", "new\nline", "$(id)", "[z", "pat-1.txt"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", path("dangling")).unwrap();
        let there = ["a b", "-n", "x*y", "new\nline", "$(id)", "[z", "pat-*.txt", "pat-[0-9].txt", "a*", "dangling"];
        let not = ["a", "b", "x*z", "pat-?.tx", "nope/x", "a b/x", "* *.txt", "pat*/x"];
        for shell in Shell::ALL {
            let names = there.iter().chain(&not);
            let answers = ask(shell, names.clone().map(|n| Question::of::<Exists>(path(n))));
            for name in names {
                let got = *answers.get::<Exists>(&path(name)).unwrap();
                assert_eq!(got, there.contains(name), "{name:?} {shell:?}");
            }
        }
    }

    #[test]
    fn what_guards_say() {
        let dir = tempfile::tempdir().unwrap();
        let folder = format!("{}/it's a $(folder)", dir.path().display());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(format!("{folder}/x"), "").unwrap();
        let args = [
            (guard(Some(&folder), "test -e x"), Said::Yes),
            (guard(None, "exit 7"), Said::No(7)),
            (guard(Some("/nope"), "true"), Said::NoFolder),
            (guard(None, "if true; then echo never"), Said::No(2)),
        ];
        for shell in Shell::ALL {
            let answers = ask(shell, args.iter().map(|(arg, _)| Question::of::<Guard>(arg.as_str())));
            for (arg, said) in &args {
                match (answers.get::<Guard>(arg).unwrap(), said) {
                    // A syntax error is 2 in dash and busybox, 1 in bash.
                    (Said::No(_), Said::No(2)) => {}
                    (got, said) => assert_eq!(got, said, "{arg:?} {shell:?}"),
                }
            }
        }
        let hung = Output { code: 124, ..Output::default() };
        assert!(Guard::split(&["sleep 99"], &[hung])[0].is_err());
    }
}
