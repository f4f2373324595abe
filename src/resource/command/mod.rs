//! `command`: what no type covers, with a guard that says whether it is still to be done.

mod guards;

use super::{
    Answers, Change, Claim, Key, Need, Output, Predicate, Question, Reading, Resource, Spec, Stale, Step, Trouble,
    package, spec,
};
use crate::error::Error;
use crate::shell::Script;
use guards::{Exists, Guard, Said, guard};
use std::fmt;

/// A command.
#[derive(Debug)]
pub struct Command {
    identity: String,
    cmd: Cmd,
    chdir: Option<String>,
    stdin: Option<String>,
    guards: Vec<Condition>,
    /// What counts as a change; nothing where guards decide, and in a handler everything.
    changed_when: Option<ChangedWhen>,
}

#[derive(Debug)]
enum Cmd {
    /// Shell text.
    Shell(String),
    /// A program and its arguments.
    Words(Vec<String>),
}

/// A guard: the command runs only if all of them say so.
#[derive(Debug, Clone)]
enum Condition {
    /// Runs if this path isn't there.
    Creates(String),
    /// Runs if this path is there.
    Removes(String),
    /// Runs if this shell text fails.
    Unless(String),
    /// Runs if this shell text succeeds.
    Onlyif(String),
}

enum ChangedWhen {
    Never,
    If(Predicate),
}

impl fmt::Debug for ChangedWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChangedWhen::Never => "Never",
            ChangedWhen::If(_) => "If(..)",
        })
    }
}

/// What the guards say.
#[derive(Debug)]
pub struct State {
    /// Whether each guard says that the command is to run, and with which exit code if it is a command.
    verdicts: Vec<(bool, Option<i32>)>,
}

impl Resource for Command {
    type State = State;
    const TYPE: &'static str = "command";
    const SUMMARY: &'static str = "A command, run where its guard says that it is still to be done";
    const TOUCHES: &'static str = "What the command does; nothing else is written.";
    const KEYS: &'static [Key] = &[
        Key::required(
            "cmd",
            "list of words, or string",
            "A list is a program with its arguments, no shell; a string is run by sh. An exit code other than 0 is a \
             failure.",
        ),
        Key::optional("creates", "path or pattern", "It runs only if this isn't there, and must have made it then."),
        Key::optional("removes", "path or pattern", "It runs only if this is there, and must have removed it then."),
        Key::optional(
            "unless",
            "string",
            "It runs only if this, run by sh, fails; afterwards it must succeed. Guards run under `--check` too and \
             must only look, for at most 60 s.",
        ),
        Key::optional("onlyif", "string", "It runs only if this, run by sh, succeeds; afterwards it must fail."),
        Key::optional("chdir", "absolute path", "The folder in which it and its guards run; otherwise `/`."),
        Key::optional("stdin", "string", "What it reads on its standard input, which is empty otherwise."),
        Key::optional(
            "changed_when",
            "false, or an expression over `rc` and `output`",
            "For a command without guards: it runs in every apply, never under `--check`, and this says whether that \
             was a change.",
        ),
        Key::refused("argv", "give `cmd` a list"),
        Key::refused("_raw_params", "it is called `cmd` here"),
        Key::refused("free_form", "it is called `cmd` here"),
        Key::refused("executable", "a string is run by sh; for another one write `cmd: [bash, -c, …]`"),
        Key::refused("warn", "leave it out"),
        Key::refused("strip_empty_ends", "leave it out"),
        Key::refused("stdin_add_newline", "leave it out: `stdin` ends with a newline"),
        Key::refused("expand_argument_vars", "a list is never expanded; in a string sh does that"),
        Key::refused("register", "what a command prints can't be used by others; put what it finds out into its guard"),
        Key::refused(
            "failed_when",
            "an exit code other than 0 is a failure; write `cmd` so that it says what it means",
        ),
    ];
    const EXAMPLE: &'static str = "\
- name: rebuild the initramfs with the new driver options
  command:
    cmd: [dracut, --force]
    unless: lsinitrd -f etc/modprobe.d/mlx5.conf | cmp - /etc/modprobe.d/mlx5.conf
";

    fn parse(spec: &Spec<'_>) -> Result<Command, Error> {
        let chdir = spec.path("chdir")?;
        let cmd = cmd(spec)?;
        let mut guards = Vec::new();
        if let Some(path) = target(spec, "creates", chdir.as_deref())? {
            guards.push(Condition::Creates(path));
        }
        if let Some(path) = target(spec, "removes", chdir.as_deref())? {
            guards.push(Condition::Removes(path));
        }
        if spec.get("unless").is_some() {
            guards.push(Condition::Unless(spec.need_text("unless")?));
        }
        if spec.get("onlyif").is_some() {
            guards.push(Condition::Onlyif(spec.need_text("onlyif")?));
        }
        let changed_when = match spec.get("changed_when") {
            None => None,
            Some(node) if !guards.is_empty() => {
                return Err(Error::playbook(&node.span, "`changed_when` and guards exclude each other")
                    .hint("with a guard, to have run is to have changed something"));
            }
            Some(node) => match node.as_bool() {
                Some(false) => Some(ChangedWhen::Never),
                Some(true) if spec.handler => None,
                Some(true) => {
                    return Err(Error::playbook(
                        &node.span,
                        "`changed_when: true` would change something in every run",
                    )
                    .hint("give a guard (`creates`, `removes`, `unless`, `onlyif`) that says when it is done"));
                }
                None => Some(ChangedWhen::If(spec.env.predicate(node)?)),
            },
        };
        if guards.is_empty() && changed_when.is_none() && !spec.handler {
            return Err(Error::playbook(&spec.node.span, "nothing says when this command is done")
                .hint("give it a guard: `creates`, `removes`, `unless` or `onlyif`")
                .hint("a command that only looks may have `changed_when: false`"));
        }
        let stdin = spec.text("stdin")?;
        Ok(Command { identity: spec.title_or_line(), cmd, chdir, stdin, guards, changed_when })
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }

    /// The package that its program has its name from.
    fn needs(&self, _now: Option<&State>) -> Vec<Need> {
        let program = match &self.cmd {
            Cmd::Words(words) => words.first().map(String::as_str),
            Cmd::Shell(text) => text.split_whitespace().next(),
        };
        let name = program.and_then(|p| p.rsplit('/').next()).unwrap_or_default();
        vec![Need::After(Claim::new(package::KIND, name))]
    }

    fn stale_after(&self) -> Stale {
        if self.guards.is_empty() { Stale::Never } else { Stale::AnyDependency }
    }

    fn probe(&self) -> Vec<Question> {
        self.guards.iter().map(|condition| condition.ask(self.chdir.as_deref())).collect()
    }

    fn read(&self, answers: &Answers) -> Result<Reading<State>, Trouble> {
        let mut verdicts = Vec::new();
        for condition in &self.guards {
            verdicts.push(match condition {
                Condition::Creates(path) => (!answers.get::<Exists>(path)?, None),
                Condition::Removes(path) => (*answers.get::<Exists>(path)?, None),
                Condition::Unless(text) | Condition::Onlyif(text) => {
                    let unless = matches!(condition, Condition::Unless(_));
                    match answers.get::<Guard>(&guard(self.chdir.as_deref(), text))? {
                        Said::Yes => (!unless, Some(0)),
                        // "Not found" is no `no`: what isn't installed can't say that nothing is to be done.
                        Said::No(127) if !unless => {
                            return Err(Trouble::new(format!("`onlyif: {text}` could not be run: command not found")));
                        }
                        Said::No(code) => (unless, Some(*code)),
                        Said::NoFolder => {
                            let folder = self.chdir.as_deref().unwrap_or_default();
                            let why = Trouble::new(format!("the folder {folder} isn't there"))
                                .hint("`chdir` names the folder in which the command and its guards run");
                            return Ok(Reading::NotYet(why));
                        }
                    }
                }
            });
        }
        Ok(Reading::State(State { verdicts }))
    }

    fn diff(&self, now: &State) -> Vec<Change> {
        if now.verdicts.is_empty() || !now.verdicts.iter().all(|(run, _)| *run) {
            return Vec::new();
        }
        let change = |(condition, (_, code)): (&Condition, &(bool, Option<i32>))| {
            let exit = |code: Option<i32>| code.map(|code| format!("exit code {code}"));
            match condition {
                Condition::Creates(path) => Change::now(format!("creates {path}"), None::<&str>, "there"),
                Condition::Removes(path) => Change::now(format!("removes {path}"), "there", None::<&str>),
                Condition::Unless(text) => Change::now(format!("unless `{}`", text.trim()), exit(*code), exit(Some(0))),
                Condition::Onlyif(text) => {
                    Change::now(format!("onlyif `{}`", text.trim()), exit(*code), "an exit code other than 0")
                }
            }
        };
        self.guards.iter().zip(&now.verdicts).map(change).collect()
    }

    fn apply(&self, _now: &State) -> Vec<Step> {
        let mut script = Script::new();
        if let Some(folder) = &self.chdir {
            script = script.set("d", folder).line(r#"cd -- "$d" || exit 1"#);
        }
        // A variable of the shell, not of the environment: what runs doesn't see it.
        if let Some(stdin) = &self.stdin {
            script = script.set("stdin", stdin.strip_suffix('\n').unwrap_or(stdin));
        }
        vec![Step::Run(match (&self.cmd, &self.stdin) {
            (Cmd::Shell(text), None) => script.user(text),
            (Cmd::Shell(text), Some(_)) => script.set("cmd", text).line(r#"printf '%s\n' "$stdin" | eval "$cmd""#),
            (Cmd::Words(words), None) => script.args(words).line(r#""$@""#),
            (Cmd::Words(words), Some(_)) => script.args(words).line(r#"printf '%s\n' "$stdin" | "$@""#),
        })]
    }

    fn action(&self) -> bool {
        self.guards.is_empty()
    }

    fn changed(&self, outputs: &[Output]) -> Result<bool, Error> {
        match (&self.changed_when, outputs.last()) {
            (None, _) => Ok(true),
            (Some(ChangedWhen::If(holds)), Some(output)) => holds(output.code, &output.text()),
            (Some(_), _) => Ok(false),
        }
    }
}

impl Condition {
    fn ask(&self, chdir: Option<&str>) -> Question {
        match self {
            Condition::Creates(path) | Condition::Removes(path) => Question::of::<Exists>(path.as_str()),
            Condition::Unless(text) | Condition::Onlyif(text) => Question::of::<Guard>(guard(chdir, text)),
        }
    }
}

/// `cmd`: words, or text for sh.
fn cmd(spec: &Spec<'_>) -> Result<Cmd, Error> {
    let node = spec.need("cmd")?;
    if node.as_seq().is_none() {
        let text = spec.need_text("cmd")?;
        return if text.trim().is_empty() {
            Err(Error::playbook(&node.span, "`cmd` is empty"))
        } else {
            Ok(Cmd::Shell(text))
        };
    }
    let words = spec.texts("cmd")?;
    if words.first().is_none_or(String::is_empty) {
        return Err(Error::playbook(&node.span, "`cmd` names no program"));
    }
    Ok(Cmd::Words(words))
}

/// The path of `creates` or `removes`; relative to the folder in which the command runs, as in Ansible.
fn target(spec: &Spec<'_>, key: &str, chdir: Option<&str>) -> Result<Option<String>, Error> {
    let Some(node) = spec.get(key) else { return Ok(None) };
    let path = spec::text(key, node)?;
    match chdir {
        _ if path.is_empty() => Err(Error::playbook(&node.span, format!("`{key}` is empty"))),
        _ if path.starts_with('/') => Ok(Some(path)),
        Some(folder) => Ok(Some(format!("{folder}/{path}"))),
        None => Err(Error::playbook(&node.span, format!("`{key}` must be an absolute path, not `{path}`"))
            .hint("a relative one is looked for in `chdir`, which isn't given")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::trial::{Shell, name, parse, parse_nodes, settle, strings};
    use crate::shell::quote;
    use proptest::prelude::*;
    use std::fs;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn words_folder_and_input(
            words in prop::collection::vec("[^\u{0}]{0,12}", 0..4), folder in name(), stdin in "[^\u{0}]{0,20}",
        ) {
            let dir = tempfile::tempdir().unwrap();
            let chdir = format!("{}/{folder}", dir.path().display());
            fs::create_dir(&chdir).unwrap();
            let mut all = vec!["sh", "-c", r#"cat >in; for w do printf '%s\001' "$w"; done >out"#, "sh"];
            all.extend(words.iter().map(String::as_str));
            for shell in Shell::ALL {
                let command: Command = parse_nodes(vec![
                    ("cmd", strings(&all)),
                    ("chdir", strings(&[&chdir])),
                    ("creates", strings(&["out"])),
                    ("unless", strings(&["test -e in"])),
                    ("stdin", strings(&[&stdin])),
                ]).unwrap();
                settle(shell, &command).unwrap();
                let expected: String = words.iter().map(|word| format!("{word}\u{1}")).collect();
                prop_assert_eq!(fs::read_to_string(format!("{chdir}/out")).unwrap(), expected);
                let read = fs::read_to_string(format!("{chdir}/in")).unwrap();
                prop_assert_eq!(read, format!("{}\n", stdin.strip_suffix('\n').unwrap_or(&stdin)));
                prop_assert!(settle(shell, &command).unwrap().changes.is_empty());
                fs::remove_file(format!("{chdir}/out")).unwrap();
                fs::remove_file(format!("{chdir}/in")).unwrap();
            }
        }

        #[test]
        fn text_for_sh(word in "[^\u{0}]{0,20}", with_input in any::<bool>()) {
            let dir = tempfile::tempdir().unwrap();
            let out = format!("{}/out", dir.path().display());
            let text = format!("{{ printf %s {}; cat; }} >{out} # {{ a comment", quote(&word));
            let mut keys = vec![("cmd", text.as_str()), ("creates", out.as_str())];
            if with_input {
                keys.push(("stdin", "x"));
            }
            for shell in Shell::ALL {
                settle(shell, &parse::<Command>(&keys).unwrap()).unwrap();
                prop_assert_eq!(fs::read_to_string(&out).unwrap(), format!("{word}{}", if with_input { "x\n" } else { "" }));
                fs::remove_file(&out).unwrap();
            }
        }
    }

    #[test]
    fn failures_are_told() {
        for shell in Shell::ALL {
            let failing: Command = parse(&[("cmd", "echo said; exit 3"), ("unless", "exit 1")]).unwrap();
            assert_eq!(settle(shell, &failing).unwrap_err(), "exit code 3: said");
            let useless: Command = parse(&[("cmd", "true"), ("unless", "exit 1")]).unwrap();
            assert_eq!(settle(shell, &useless).unwrap_err(), "unless `exit 1`: \"exit code 1\" is not \"exit code 0\"");
            let nowhere: Command = parse(&[("cmd", "true"), ("creates", "x"), ("chdir", "/no/where")]).unwrap();
            assert!(settle(shell, &nowhere).unwrap_err().contains("/no/where"));
        }
    }

    #[test]
    fn what_counts_as_a_change() {
        let never: Command = parse(&[("cmd", "true"), ("changed_when", "false")]).unwrap();
        assert!(Resource::action(&never) && !Resource::changed(&never, &[Output::default()]).unwrap());
        let updated: Command = parse(&[("cmd", "true"), ("changed_when", "updated")]).unwrap();
        let said = |text: &str| Output { stdout: text.into(), ..Output::default() };
        assert!(Resource::changed(&updated, &[said("it was updated")]).unwrap());
        assert!(!Resource::changed(&updated, &[said("nothing")]).unwrap());
    }
}
