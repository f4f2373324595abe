//! `netplay.toml`: defaults for the options of the command line, by their long names. A flag wins over the file beside
//! the playbook, and that over the user's.
//!
//! There is no list of keys: they are the options that clap knows, and clap checks their values. They become its
//! default values, so that it also decides what wins.

use crate::error::{Error, Errors, Kind, suggest};
use crate::source::{Source, Span};
use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use rustix::fs::OFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

const NAME: &str = "netplay.toml";
/// Nobody means a larger one.
const MOST: u64 = 1 << 20;

/// A key of a file, its value as words of the command line.
struct Setting {
    values: Vec<String>,
    place: Span,
    folder: PathBuf,
}

/// Gives the options of the subcommand that is called the defaults of the files.
///
/// # Errors
/// What is wrong in the files, or that one isn't to be trusted.
pub(super) fn lay_under(
    command: Command,
    argv: &[OsString],
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, Errors> {
    // What is wrong on the command line, and --help, is told when it is read in earnest.
    let Ok(matches) = relaxed(command.clone()).try_get_matches_from(argv) else { return Ok(command) };
    let Some((name, matches)) = matches.subcommand() else { return Ok(command) };
    let known = |arg: &Arg| !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version);
    let longs: BTreeSet<String> = command
        .get_subcommands()
        .flat_map(Command::get_arguments)
        .filter(|arg| known(arg))
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect();
    let Some(sub) = command.find_subcommand(name).filter(|sub| sub.get_arguments().any(|a| a.get_id() == "inventory"))
    else {
        return Ok(command);
    };
    let home = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = home("XDG_CONFIG_HOME").or_else(|| home("HOME").map(|home| home.join(".config")));
    let playbook = first_playbook(matches);
    let beside = playbook.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let mut files = vec![(beside.join(NAME), playbook.as_deref())];
    files.extend(of_user.map(|folder| (folder.join("netplay").join(NAME), None)));
    let mut settings = BTreeMap::new();
    for (path, playbook) in files.iter().rev() {
        if let Some(source) = read(path, *playbook)? {
            settings.extend(parse(&source, path.parent().unwrap_or(Path::new("")), &longs)?);
        }
    }
    let mut sub = sub.clone();
    for (key, setting) in settings {
        let Some(arg) = sub.get_arguments().find(|arg| arg.get_long() == Some(&key)).cloned() else { continue };
        // What excludes it was given, and a flag wins.
        let given = |arg: &Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let excludes =
            |a: &Arg, b: &Arg| sub.get_arg_conflicts_with(a).iter().any(|other| other.get_id() == b.get_id());
        if sub.get_arguments().any(|other| given(other) && (excludes(other, &arg) || excludes(&arg, other))) {
            continue;
        }
        sub = under(sub, &arg, &setting, variable("HOME").as_deref().map(Path::new))?;
    }
    let name = name.to_owned();
    Ok(command.mut_subcommand(name, |_| sub))
}

/// The command with nothing required.
fn relaxed(command: Command) -> Command {
    command.mut_subcommands(|sub| sub.mut_args(|arg| arg.required(false)))
}

fn first_playbook(matches: &ArgMatches) -> Option<PathBuf> {
    matches.try_get_many::<PathBuf>("playbooks").ok().flatten().and_then(|mut all| all.next().cloned())
}

/// The subcommand with this default for one of its options.
fn under(sub: Command, arg: &Arg, setting: &Setting, home: Option<&Path>) -> Result<Command, Error> {
    let long = arg.get_long().unwrap_or_default();
    let wrong = |message: String| Error::new(Kind::Usage, message).at(&setting.place);
    let values: Vec<OsString> = match arg.get_action() {
        ArgAction::SetTrue => match setting.values.as_slice() {
            [word] if word == "true" => vec!["true".into()],
            [word] if word == "false" => return Ok(sub),
            _ => return Err(wrong(format!("`{long}` is true or false"))),
        },
        ArgAction::Count => match setting.values.as_slice() {
            [word] if word.parse::<u8>().is_ok() => vec![word.into()],
            _ => return Err(wrong(format!("`{long}` is a number, of how often it is given"))),
        },
        action => {
            if !matches!(action, ArgAction::Append) && setting.values.len() != 1 {
                return Err(wrong(format!("`{long}` takes one value, not a list")));
            }
            let path = is_path(arg);
            let value = |word: &String| if path { absolute(word, &setting.folder, home) } else { word.into() };
            setting.values.iter().map(value).collect()
        }
    };
    if !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count) {
        for value in &values {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            let checked = relaxed_one(&sub).try_get_matches_from([OsString::from(sub.get_name()), word]);
            if let Err(error) = checked {
                let told = error.to_string();
                let lines = told.lines().take_while(|line| !line.is_empty()).map(str::trim);
                let told = lines.collect::<Vec<_>>().join(" ");
                return Err(wrong(told.trim_start_matches("error: ").to_owned()));
            }
        }
    }
    let id = arg.get_id().clone();
    Ok(sub.mut_arg(id, |arg| arg.required(false).default_values(values)))
}

fn relaxed_one(sub: &Command) -> Command {
    sub.clone().mut_args(|arg| arg.required(false))
}

/// Whether its value is a path, or may be one.
fn is_path(arg: &Arg) -> bool {
    arg.get_value_parser().type_id() == ValueParser::path_buf().type_id() || arg.get_value_hint() == ValueHint::AnyPath
}

/// A path of a file of settings: relative to it. A list of hosts has a comma in it.
fn absolute(word: &str, folder: &Path, home: Option<&Path>) -> OsString {
    match (word.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest).into(),
        _ if word.contains(',') => word.into(),
        _ => folder.join(word).into(),
    }
}

/// The text of a file, if it is there. Who can write it could have the user run any program, by an inventory that is
/// one; so it has to be the user's own, root's, or of whoever owns the playbook beside it, which is trusted as much.
fn read(path: &Path, playbook: Option<&Path>) -> Result<Option<Arc<Source>>, Error> {
    let unreadable = |e: io::Error| Error::usage(format!("{} can't be read: {e}", path.display()));
    // Not to be held up by a pipe.
    let open = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = match open {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(e)),
    };
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it isn't a file")));
    }
    let me = rustix::process::geteuid().as_raw();
    let author = playbook.and_then(|playbook| playbook.metadata().ok()).map(|meta| meta.uid());
    if let Some(why) = doubt(meta.uid(), meta.mode(), me, author) {
        return Err(Error::usage(format!("{} isn't to be trusted: {why}", path.display())).hint(
            "make it yours and take others' right to write from it, remove it, or work in another folder; it could have \
             any program run as you",
        ));
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(unreadable)?;
    Ok(Some(Source::new(path.display().to_string(), text)))
}

/// Why a file of this owner and mode isn't to be trusted by this user.
fn doubt(owner: u32, mode: u32, me: u32, author: Option<u32>) -> Option<&'static str> {
    if ![Some(me), Some(0), author].contains(&Some(owner)) {
        return Some("it belongs to another user");
    }
    (mode & 0o002 != 0).then_some("anybody can write it")
}

/// The settings of a file.
fn parse(source: &Arc<Source>, folder: &Path, longs: &BTreeSet<String>) -> Result<BTreeMap<String, Setting>, Errors> {
    let text = source.text.as_str();
    let place = |range: std::ops::Range<usize>| {
        let before = &text[..range.start.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Span::at(
            source,
            line,
            column,
            text.get(range).unwrap_or_default().lines().next().unwrap_or_default().chars().count(),
        )
    };
    let table = DeTable::parse(text).map_err(|e| {
        Error::usage(format!("it isn't TOML: {}", e.message())).at(&place(e.span().unwrap_or_default()))
    })?;
    let known: Vec<&str> = longs.iter().map(String::as_str).collect();
    let (mut settings, mut errors) = (BTreeMap::new(), Vec::new());
    for (key, value) in table.into_inner() {
        let at = place(key.span());
        let key = key.into_inner().into_owned();
        if !longs.contains(&key) {
            errors.push(
                Error::usage(format!("there is no option `{key}`"))
                    .at(&at)
                    .hint(format!("keys are the long options; {}", suggest(&key, &known))),
            );
            continue;
        }
        let place = place(value.span());
        let values = match value.into_inner() {
            DeValue::Array(items) => items.into_iter().map(|item| word(item.get_ref())).collect(),
            value => word(&value).map(|word| vec![word]),
        };
        match values {
            Some(values) => drop(settings.insert(key, Setting { values, place, folder: folder.to_owned() })),
            None => errors.push(
                Error::usage(format!("the value of `{key}` is a string, a number, true, false, or a list of them"))
                    .at(&place),
            ),
        }
    }
    if errors.is_empty() { Ok(settings) } else { Err(Errors(errors)) }
}

fn word(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command as Chosen};
    use super::*;
    use clap::{CommandFactory as _, FromArgMatches as _};
    use std::os::unix::fs::PermissionsExt as _;

    /// A home folder with a file of settings, and a folder with a playbook and another.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new(user: &str, playbook: &str) -> Place {
            let dir = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = dir.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            };
            write("home/.config/netplay/netplay.toml", user);
            write("site/netplay.toml", playbook);
            write("site/site.yaml", "");
            Place(dir)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn cli(&self, line: &str) -> Result<Cli, String> {
            let line = line.replace("SITE", self.path("site/site.yaml").to_str().unwrap());
            let argv: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let home = self.path("home");
            let command = lay_under(Cli::command(), &argv, |name| (name == "HOME").then(|| home.clone().into()));
            let command = command.map_err(|e| e.to_string().replace(self.0.path().to_str().unwrap(), ""))?;
            command.debug_assert_and_parse(&argv)
        }

        fn apply(&self, line: &str) -> super::super::Apply {
            match self.cli(line).unwrap_or_else(|e| panic!("{e}")).command {
                Chosen::Apply(apply) => apply,
                other => panic!("{other:?}"),
            }
        }
    }

    trait Checked {
        fn debug_assert_and_parse(self, argv: &[OsString]) -> Result<Cli, String>;
    }

    impl Checked for Command {
        fn debug_assert_and_parse(self, argv: &[OsString]) -> Result<Cli, String> {
            self.clone().debug_assert();
            let matches = self.try_get_matches_from(argv).map_err(|e| e.to_string())?;
            Cli::from_arg_matches(&matches).map_err(|e| e.to_string())
        }
    }

    #[test]
    fn a_flag_wins_over_the_playbooks_file_and_that_over_the_users() {
        let user = "inventory = \"hosts\"\nforks = 8\ntimeout = 30\nuser = \"ops\"\ndiff = true\noutput = [\"human\", \"ndjson=x\"]\n";
        let place = Place::new(
            user,
            "inventory = [\"a.yaml\", \"n1,n2\", \"~/b\"]\ntimeout = 40\ndiff = false\nprivate-key = \"key\"\n",
        );
        let apply = place.apply("netplay apply SITE");
        let (site, home) = (place.path("site"), place.path("home"));
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(apply.plays.hosts.inventory, [text(site.join("a.yaml")), "n1,n2".to_owned(), text(home.join("b"))]);
        assert_eq!(apply.reach.private_key, Some(site.join("key")));
        assert_eq!((apply.reach.forks, apply.reach.timeout, apply.diff), (8, 40, false));
        assert_eq!((apply.reach.user.as_deref(), apply.reach.output.len()), (Some("ops"), 2));
        let apply = place.apply("netplay apply SITE -i x -f 3 --timeout=5 --output json -D");
        assert_eq!((apply.plays.hosts.inventory, apply.reach.output), (vec!["x".to_owned()], vec!["json".to_owned()]));
        assert_eq!((apply.reach.forks, apply.reach.timeout, apply.diff), (3, 5, true));
        // A subcommand passes over what it doesn't take; one without hosts needs no file at all.
        assert!(place.cli("netplay validate SITE").is_ok());
        std::fs::write(place.path("home/.config/netplay/netplay.toml"), "[[").unwrap();
        assert!(place.cli("netplay docs mtu").is_ok());
        assert!(place.cli("netplay apply SITE").is_err());
    }

    #[test]
    fn a_flag_wins_over_what_excludes_it() {
        let place = Place::new("inventory = \"x\"\nquiet = true\n", "");
        assert_eq!(place.apply("netplay apply SITE").plays.hosts.verbosity(), super::super::Verbosity::Quiet);
        assert_eq!(place.apply("netplay apply SITE -v").plays.hosts.verbosity(), super::super::Verbosity::Verbose);
        let place = Place::new("inventory = \"x\"\nverbose = 2\n", "");
        assert_eq!(place.apply("netplay apply SITE").plays.hosts.verbosity(), super::super::Verbosity::Scripts);
        assert_eq!(place.apply("netplay apply SITE -q").plays.hosts.verbosity(), super::super::Verbosity::Quiet);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            (
                "forks = 4\nfork = 8\n",
                "there is no option `fork`\n  --> /site/netplay.toml:2:1\n   2 | fork = 8\n     | ^^^^\n  help: keys are the \
                 long options; did you mean `forks`? known: ask-become-pass, ask-pass, ",
            ),
            ("[defaults]\nforks = 4\n", "there is no option `defaults`\n  --> /site/netplay.toml:1:2\n"),
            (
                "forks = 9999\n",
                "invalid value '9999' for '--forks <N>': 9999 is not in 1..=4096\n  --> /site/netplay.toml:1:9\n",
            ),
            (
                "color = \"blue\"\n",
                "invalid value 'blue' for '--color <WHEN>' [possible values: auto, always, never]\n  --> ",
            ),
            ("forks = [1, 2]\n", "`forks` takes one value, not a list\n  --> /site/netplay.toml:1:9\n"),
            ("check = 1\n", "`check` is true or false\n"),
            ("verbose = true\n", "`verbose` is a number"),
            ("user = {a = 1}\n", "the value of `user` is a string, a number, true, false, or a list of them\n"),
            ("\n\nforks =\n", "it isn't TOML: "),
            ("version = true\n", "there is no option `version`"),
        ] {
            let error = Place::new("", text).cli("netplay apply SITE -i x").unwrap_err();
            assert!(error.starts_with(&format!("error: {told}")), "{text:?}: {error}");
            assert!(error.contains("/site/netplay.toml:"), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let place = Place::new("", "");
        std::fs::remove_file(place.path("site/netplay.toml")).unwrap();
        let path = place.path("site/netplay.toml");
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let error = place.cli("netplay apply SITE -i x").unwrap_err();
        assert!(error.starts_with("error: /site/netplay.toml can't be read: it isn't a file"), "{error}");
    }

    #[test]
    fn a_file_that_others_can_write_is_not_trusted() {
        let place = Place::new("", "forks = 4\n");
        std::fs::set_permissions(place.path("site/netplay.toml"), std::fs::Permissions::from_mode(0o666)).unwrap();
        let error = place.cli("netplay apply SITE -i x").unwrap_err();
        assert!(
            error.starts_with("error: /site/netplay.toml isn't to be trusted: anybody can write it\n  help: "),
            "{error}"
        );
        let other = Some("it belongs to another user");
        assert_eq!(doubt(7, 0o644, 7, None), None);
        assert_eq!(doubt(0, 0o664, 7, None), None);
        assert_eq!(doubt(8, 0o644, 7, None), other);
        assert_eq!(doubt(8, 0o644, 7, Some(8)), None);
        assert_eq!(doubt(8, 0o644, 7, Some(9)), other);
        assert_eq!(doubt(8, 0o644, 0, None), other);
        assert_eq!(doubt(7, 0o646, 7, Some(7)), Some("anybody can write it"));
    }
}
