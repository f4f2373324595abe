//! OpenSSH's client configuration (ssh_config(5)), as far as it decides how a host is reached.
//!
//! Of a keyword's values the first one counts, so what is stronger is asked first: variables, then the command line,
//! then the files. `Host`, `Match` and `Include` are understood wherever they stand.

use crate::error::{Error, Kind};
use crate::source::{self, Source, Span};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// How deep files may include each other; as OpenSSH.
const MAX_DEPTH: usize = 16;

/// One value of one keyword.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// The keyword, lower case.
    pub(super) key: String,
    /// Its arguments; a command is one.
    pub(super) words: Vec<String>,
    /// Where it was written; nothing for a flag of the command line.
    pub(super) span: Option<Span>,
}

/// The files of a configuration, read once for all hosts.
#[derive(Debug, Default)]
pub(super) struct SshConfig {
    settings: Vec<(Option<usize>, Setting)>,
    /// What `Host` and `Match` lines ask, and the condition that they stand under (of the line that includes them).
    conditions: Vec<(Option<usize>, Condition)>,
    has_final: bool,
    /// What commands of `Match exec` said.
    exec: Mutex<HashMap<String, bool>>,
}

#[derive(Debug)]
enum Condition {
    Host(Vec<String>),
    Match(Vec<Criterion>),
}

#[derive(Debug)]
struct Criterion {
    negated: bool,
    name: String,
    argument: String,
    /// Why it can't be judged here.
    unknown: Option<Error>,
}

/// Who asks: what tokens stand for and what `Match` compares.
#[derive(Debug, Clone)]
pub(super) struct Context<'a> {
    /// The host as it was asked for (`%n`).
    pub(super) original: &'a str,
    /// The user of this machine (`%u`).
    pub(super) local_user: &'a str,
    /// This user's home folder (`%d`).
    pub(super) home: &'a Path,
    /// Whether OpenSSH's client reads the files too: what only it understands is then left to it.
    pub(super) openssh: bool,
}

impl SshConfig {
    /// Reads a user's file, then the system's; those that don't exist are empty.
    pub(super) fn read(user: &Path, system: Option<&Path>, home: &Path) -> Result<SshConfig, Error> {
        let mut config = SshConfig::default();
        let folder = home.join(".ssh");
        config.file(user, &folder, home, None, 0)?;
        if let Some(system) = system {
            config.file(system, system.parent().unwrap_or(Path::new("/")), home, None, 0)?;
        }
        Ok(config)
    }

    fn file(
        &mut self,
        path: &Path,
        folder: &Path,
        home: &Path,
        outer: Option<usize>,
        depth: usize,
    ) -> Result<(), Error> {
        let bytes = match source::read(path, source::MAX_TEXT) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Error::usage(format!("{} can't be read: {e}", path.display()))),
        };
        let source = Source::new(path.display().to_string(), String::from_utf8_lossy(&bytes));
        let mut under = outer;
        for (i, text) in source.text.lines().enumerate() {
            let indent = text.chars().take_while(|c| c.is_whitespace()).count();
            let span = Span::at(&source, i + 1, indent + 1, text.trim().chars().count());
            let Some(setting) = line(text, &span)? else { continue };
            match setting.key.as_str() {
                "host" => under = Some(self.condition(outer, Condition::Host(setting.words))),
                "match" => {
                    let criteria = criteria(&setting, &span)?;
                    self.has_final |= criteria.iter().any(|c| c.name == "final");
                    under = Some(self.condition(outer, Condition::Match(criteria)));
                }
                "include" => {
                    if depth == MAX_DEPTH {
                        return Err(Error::usage("files include each other too deeply").at(&span));
                    }
                    for pattern in &setting.words {
                        let pattern = folder.join(in_home(pattern, home));
                        let files = glob::glob(&pattern.to_string_lossy())
                            .map_err(|e| Error::usage(format!("not a pattern of file names: {e}")).at(&span))?;
                        for file in files.flatten() {
                            self.file(&file, folder, home, under, depth + 1)?;
                        }
                    }
                }
                _ => self.settings.push((under, setting)),
            }
        }
        Ok(())
    }

    fn condition(&mut self, outer: Option<usize>, condition: Condition) -> usize {
        self.conditions.push((outer, condition));
        self.conditions.len() - 1
    }

    /// Adds what the configuration says of a host behind what is said already.
    ///
    /// # Errors
    /// It depends on a criterion of `Match` that only OpenSSH knows.
    pub(super) fn collect(&self, context: &Context<'_>, settings: &mut Vec<Setting>) -> Result<(), Error> {
        for is_final in [false, true] {
            if is_final && !self.has_final {
                break;
            }
            let mut known = vec![None; self.conditions.len()];
            for (under, setting) in &self.settings {
                let holds = match under {
                    None => true,
                    Some(i) => self.holds(*i, context, settings, is_final, &mut known)?,
                };
                if holds {
                    settings.push(setting.clone());
                }
            }
        }
        Ok(())
    }

    fn holds(
        &self,
        index: usize,
        context: &Context<'_>,
        settings: &[Setting],
        is_final: bool,
        known: &mut [Option<bool>],
    ) -> Result<bool, Error> {
        if let Some(known) = known[index] {
            return Ok(known);
        }
        let (outer, condition) = &self.conditions[index];
        let mut holds = match outer {
            None => true,
            Some(i) => self.holds(*i, context, settings, is_final, known)?,
        };
        match condition {
            Condition::Host(patterns) => {
                holds &= matches_list(patterns.iter().map(String::as_str), context.original);
            }
            // One that doesn't hold makes it no matter what the others are.
            Condition::Match(criteria) => {
                for c in criteria {
                    holds = holds
                        && match &c.unknown {
                            None => c.negated != self.meets(&c.name, &c.argument, context, settings, is_final),
                            Some(_) if context.openssh => false,
                            Some(why) => return Err(why.clone()),
                        };
                }
            }
        }
        known[index] = Some(holds);
        Ok(holds)
    }

    fn meets(&self, name: &str, argument: &str, context: &Context<'_>, settings: &[Setting], is_final: bool) -> bool {
        let tokens = Tokens::so_far(context, settings);
        let list = |text: &str| matches_list(argument.split(','), text);
        match name {
            "host" => list(&tokens.host),
            "originalhost" => list(context.original),
            "user" => list(&tokens.user),
            "localuser" => list(context.local_user),
            "final" => is_final,
            "exec" => self.succeeds(&tokens.expand(argument)),
            "all" => true,
            // Names aren't canonicalised here.
            _ => false,
        }
    }

    fn succeeds(&self, command: &str) -> bool {
        let mut exec = self.exec.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = exec.get(command) {
            return *known;
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let success = shell.status().is_ok_and(|status| status.success());
        exec.insert(command.to_owned(), success);
        success
    }
}

/// Reads one line, `Keyword value …` or `Keyword=value`; nothing for an empty one or a comment.
pub(super) fn line(text: &str, span: &Span) -> Result<Option<Setting>, Error> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let wrong = |message: &str| Error::new(Kind::Usage, message).at(span);
    let end = text.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(text.len());
    let key = text[..end].trim_matches('"').to_lowercase();
    let rest = text[end..].trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim();
    // A command is for a shell, quotes and all.
    let words = if matches!(key.as_str(), "proxycommand" | "remotecommand" | "localcommand" | "knownhostscommand") {
        vec![rest.to_owned()]
    } else {
        shlex::split(rest).ok_or_else(|| wrong("a quote isn't closed"))?
    };
    if words.first().is_none_or(String::is_empty) {
        return Err(wrong(&format!("`{key}` has no value")));
    }
    Ok(Some(Setting { key, words, span: Some(span.clone()) }))
}

fn criteria(setting: &Setting, span: &Span) -> Result<Vec<Criterion>, Error> {
    const WITHOUT_ARGUMENT: [&str; 3] = ["all", "canonical", "final"];
    const WITH_ARGUMENT: [&str; 5] = ["host", "originalhost", "user", "localuser", "exec"];
    let mut criteria = Vec::new();
    let mut words = setting.words.iter();
    while let Some(word) = words.next() {
        let (negated, word) = word.strip_prefix('!').map_or((false, word.as_str()), |word| (true, word));
        let (name, mut argument) = match word.split_once('=') {
            Some((name, argument)) => (name.to_lowercase(), Some(argument.to_owned())),
            None => (word.to_lowercase(), None),
        };
        if WITH_ARGUMENT.contains(&name.as_str()) {
            argument = argument.or_else(|| words.next().cloned());
            if argument.is_none() {
                return Err(Error::usage(format!("`Match {name}` needs a value")).at(span));
            }
        } else if !WITHOUT_ARGUMENT.contains(&name.as_str()) {
            // Nobody knows whether the next word is its value. Whether it matters depends on the host.
            let why = Error::usage(format!("netplay doesn't understand `Match {name}`"))
                .at(span)
                .hint(format!("understood: {}, {}", WITHOUT_ARGUMENT.join(", "), WITH_ARGUMENT.join(", ")))
                .hint(
                    "for such hosts use the system's ssh, which understands it: netplay_transport: openssh; or name \
                     another file: ansible_ssh_common_args: -F FILE",
                );
            criteria.push(Criterion { negated, name, argument: String::new(), unknown: Some(why) });
            break;
        }
        criteria.push(Criterion { negated, name, argument: argument.unwrap_or_default(), unknown: None });
    }
    Ok(criteria)
}

/// The first value of the first of these keywords that is set.
pub(super) fn first<'s>(settings: &'s [Setting], keys: &[&str]) -> Option<&'s Setting> {
    settings.iter().find(|s| keys.contains(&s.key.as_str()))
}

/// What tokens stand for (ssh_config(5), "TOKENS").
#[derive(Debug, Clone)]
pub(super) struct Tokens<'a> {
    /// `%n`, `%u`, `%d`.
    pub(super) context: &'a Context<'a>,
    /// `%h`.
    pub(super) host: String,
    /// `%p`.
    pub(super) port: String,
    /// `%r`.
    pub(super) user: String,
}

impl<'a> Tokens<'a> {
    /// By what has been settled so far.
    pub(super) fn so_far(context: &'a Context<'a>, settings: &[Setting]) -> Tokens<'a> {
        let word = |key: &str| first(settings, &[key]).map(|s| s.words[0].clone());
        let mut tokens = Tokens {
            context,
            host: context.original.to_owned(),
            port: word("port").unwrap_or_else(|| "22".into()),
            user: word("user").unwrap_or_else(|| context.local_user.to_owned()),
        };
        if let Some(name) = word("hostname") {
            // Only these two: what else follows a `%` there is the zone of an IPv6 address, as in `fe80::1%eth0`.
            let parts: Vec<String> = name.split("%%").map(|part| part.replace("%h", context.original)).collect();
            tokens.host = parts.join("%");
        }
        tokens
    }

    /// A text with its tokens and `${VARIABLES}` replaced; unknown ones stay.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '$']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some((name, after)) = rest.strip_prefix("${").and_then(|r| r.split_once('}')) {
                out.push_str(&std::env::var(name).unwrap_or_default());
                rest = after;
                continue;
            }
            let token = if rest.starts_with('%') { rest.chars().nth(1) } else { None };
            match token {
                Some('%') => out.push('%'),
                Some('h') => out.push_str(&self.host),
                Some('n') => out.push_str(self.context.original),
                Some('p') => out.push_str(&self.port),
                Some('r') => out.push_str(&self.user),
                Some('u') => out.push_str(self.context.local_user),
                Some('d') => out.push_str(&self.context.home.to_string_lossy()),
                _ => {
                    out.push_str(&rest[..1]);
                    rest = &rest[1..];
                    continue;
                }
            }
            rest = &rest[2..];
        }
        out + rest
    }

    /// A file name with tokens and `~` replaced.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        in_home(&self.expand(text), self.context.home)
    }
}

/// A path with a leading `~` replaced.
pub(super) fn in_home(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => PathBuf::from(text),
    }
}

/// Whether a list of patterns matches (ssh_config(5), "PATTERNS"): one does, and none that is negated.
pub(super) fn matches_list<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    let mut matched = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches(pattern, text) => return false,
            Some(_) => {}
            None => matched |= matches(pattern, text),
        }
    }
    matched
}

/// Whether a pattern of `*` and `?` matches a whole text, case aside.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and what it has been taken to cover.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == b'?' || c.eq_ignore_ascii_case(&text[t])) {
            p += 1;
            t += 1;
        } else if let Some((at, covered)) = star {
            star = Some((at, covered + 1));
            p = at + 1;
            t = covered + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn patterns_are_those_of_openssh() {
        for (list, text, expected) in [
            ("*", "", true),
            ("node*", "Node01", true),
            ("node?", "node01", false),
            ("*.a.*.b", "x.a.y.a.z.b", true),
            ("*.a", "x.a.y", false),
            ("!gw,*", "gw", false),
            ("!gw,*", "n1", true),
            ("!gw", "n1", false),
        ] {
            assert_eq!(matches_list(list.split(','), text), expected, "{list} {text}");
        }
    }

    /// What the files say of a host, `key=value` each, and the first value of each key alone.
    fn ask(config: &SshConfig, host: &str, before: &[(&str, &str)]) -> Vec<String> {
        let context = Context { original: host, local_user: "me", home: Path::new("/home/me"), openssh: false };
        let setting = |(key, value): &(&str, &str)| Setting {
            key: (*key).to_owned(),
            words: vec![(*value).to_owned()],
            span: None,
        };
        let mut settings: Vec<Setting> = before.iter().map(setting).collect();
        config.collect(&context, &mut settings).unwrap();
        let mut said: Vec<String> = Vec::new();
        for s in &settings {
            if !said.iter().any(|t| t.starts_with(&format!("{}=", s.key))) {
                said.push(format!("{}={}", s.key, s.words.join(" ")));
            }
        }
        said
    }

    #[test]
    fn blocks_hold_where_openssh_says() {
        let home = tempfile::tempdir().unwrap();
        let ssh = home.path().join(".ssh");
        fs::create_dir_all(ssh.join("conf.d")).unwrap();
        fs::write(
            ssh.join("config"),
            "# first\nServerAliveInterval=5\nHost gw \"gate way\" # a comment\n  User admin\n  User second\n  Include conf.d/*\n\
             \tPort 2200\nHost n* !n9\n ProxyCommand ssh -W %h:%p 'g w' # kept\nMatch host 10.* user ops\n HostKeyAlias ten\n\
             Match !exec \"test %n = n1\" originalhost n?\n LogLevel QUIET\nMatch final host gw.example\n Port 1\n\
             Host *\n  HostName %n.example\n",
        )
        .unwrap();
        fs::write(ssh.join("conf.d/a"), "IdentityFile ~/a\nHost n1\n  User never\nHost gw\n IdentityFile b\n").unwrap();
        let config = SshConfig::read(&ssh.join("config"), None, home.path()).unwrap();
        assert_eq!(
            ask(&config, "gw", &[]),
            ["serveraliveinterval=5", "user=admin", "identityfile=~/a", "port=2200", "hostname=%n.example"]
        );
        assert_eq!(
            ask(&config, "n1", &[]),
            ["serveraliveinterval=5", "proxycommand=ssh -W %h:%p 'g w' # kept", "hostname=%n.example"]
        );
        assert_eq!(ask(&config, "n9", &[]), ["serveraliveinterval=5", "loglevel=QUIET", "hostname=%n.example"]);
        assert_eq!(
            ask(&config, "x", &[("hostname", "10.1.1.1"), ("user", "ops")]),
            ["hostname=10.1.1.1", "user=ops", "serveraliveinterval=5", "hostkeyalias=ten"]
        );
    }

    #[test]
    fn errors_name_the_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        for (text, expected) in [
            ("Host a\n  User \"x\n", "a quote isn't closed\n  --> PATH:2:3"),
            ("Port\n", "`port` has no value"),
            ("Match host\n", "`Match host` needs a value"),
            ("Include config\n", "files include each other too deeply"),
        ] {
            fs::write(&path, text.replace("Include config", &format!("Include {}", path.display()))).unwrap();
            let error = SshConfig::read(&path, None, home.path()).unwrap_err().to_string();
            let expected = expected.replace("PATH", &path.display().to_string());
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_criterion_that_only_openssh_knows_concerns_only_hosts_that_depend_on_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        let text = "Match host gw* tagged x\n  Port 1\nHost n1\n  Port 2\nHost m*\n  Match localnetwork 10.0.0.0/8\n    Port 3\n";
        fs::write(&path, text).unwrap();
        let config = SshConfig::read(&path, None, home.path()).unwrap();
        let ask = |original: &str, openssh: bool| {
            let context = Context { original, local_user: "me", home: home.path(), openssh };
            let mut settings = Vec::new();
            let read = config.collect(&context, &mut settings);
            read.map(|()| settings.iter().map(|s| s.words.join(" ")).collect::<Vec<_>>()).map_err(|e| e.to_string())
        };
        // A `Match` line ends the `Host` block before it.
        for host in ["gw", "n1"] {
            let told = ask(host, false).unwrap_err();
            let line = if host == "gw" { "tagged`\n  --> PATH:1:1" } else { "localnetwork`\n  --> PATH:6:3" };
            let line = line.replace("PATH", &path.display().to_string());
            assert!(told.starts_with(&format!("netplay doesn't understand `Match {line}")), "{told}");
            assert!(told.contains("netplay_transport: openssh"), "{told}");
        }
        assert_eq!(ask("gw", true).unwrap(), [""; 0]);
        assert_eq!(ask("n1", true).unwrap(), ["2"]);
        fs::write(&path, "Match host gw tagged x\n  Port 1\nHost n1\n  Port 2\n").unwrap();
        let config = SshConfig::read(&path, None, home.path()).unwrap();
        let context = Context { original: "n1", local_user: "me", home: home.path(), openssh: false };
        let mut settings = Vec::new();
        config.collect(&context, &mut settings).unwrap();
        assert_eq!(settings[0].words, ["2"]);
    }

    #[test]
    fn tokens_are_replaced() {
        let context = Context { original: "n1", local_user: "me", home: Path::new("/home/me"), openssh: false };
        let tokens = Tokens { context: &context, host: "10.0.0.1".into(), port: "22".into(), user: "ops".into() };
        assert_eq!(tokens.expand("%h:%p %r@%n %u %d 100%% %z $x ü%"), "10.0.0.1:22 ops@n1 me /home/me 100% %z $x ü%");
        assert_eq!(tokens.path("~/.ssh/%r"), Path::new("/home/me/.ssh/ops"));
        let host = |name: &str| {
            let words = vec![name.to_owned()];
            Tokens::so_far(&context, &[Setting { key: "hostname".into(), words, span: None }]).host
        };
        assert_eq!([host("%h.example"), host("fe80::1%p1"), host("a%%h")], ["n1.example", "fe80::1%p1", "a%h"]);
    }
}
