//! Options of OpenSSH's client: from arguments and configuration files to a [`Target`].

use super::super::ssh_config::{Context, Setting, Tokens, first, line};
use super::super::{Carrier, HostKeyChecking, Target};
use super::Defaults;
use crate::error::{Error, Kind};
use crate::source::{Source, Span};
use std::path::PathBuf;
use std::time::Duration;

/// Keywords of `-o` that are honoured.
const HONOURED: [&str; 15] = [
    "hostname",
    "user",
    "port",
    "identityfile",
    "identitiesonly",
    "identityagent",
    "proxyjump",
    "proxycommand",
    "userknownhostsfile",
    "globalknownhostsfile",
    "stricthostkeychecking",
    "hostkeyalias",
    "connecttimeout",
    "serveraliveinterval",
    "serveralivecountmax",
];

/// Keywords of `-o` that change nothing here: there is no master connection, no terminal and no forwarding.
const WITHOUT_EFFECT: [&str; 8] = [
    "controlmaster",
    "controlpath",
    "controlpersist",
    "batchmode",
    "loglevel",
    "updatehostkeys",
    "preferredauthentications",
    "forwardagent",
];

/// How many hosts may name each other by ProxyJump.
const MAX_JUMPS: usize = 8;

/// Flags of ssh that have a value, and those that have none, as far as they suit a connection that netplay holds: it
/// runs in the foreground, without a command and without a terminal, and says on standard error what it does.
const WITH_VALUE: &str = "BbceFIiJLDRlmopPw";
const WITHOUT_VALUE: &str = "1246aACgkKnqTvxXY";

/// What is asked of a connection before the configuration files are, the strongest first.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Whether OpenSSH's client is to be told: what is unknown here may be known to it.
    openssh: bool,
    /// Whether it is a bastion on the way of OpenSSH's client.
    behind_openssh: bool,
    /// What it is told.
    arguments: Vec<String>,
    settings: Vec<Setting>,
    /// The file of `-F`.
    config: Option<(PathBuf, Span)>,
}

impl Asked {
    /// For the transport `openssh`, or for `ssh2`.
    pub(super) fn new(openssh: bool) -> Asked {
        Asked { openssh, ..Asked::default() }
    }

    pub(super) fn set(&mut self, key: &str, value: &str, span: &Span) {
        self.add(key, value, Some(span));
    }

    fn add(&mut self, key: &str, value: &str, span: Option<&Span>) {
        let option = match key {
            "port" => "-p",
            "user" => "-l",
            "identityfile" => "-i",
            "proxyjump" => "-J",
            // How long connecting takes and how keys are checked is told apart from the user's options.
            _ => "",
        };
        if !option.is_empty() {
            self.arguments.extend([option.to_owned(), value.to_owned()]);
        }
        self.settings.push(Setting { key: key.to_owned(), words: vec![value.to_owned()], span: span.cloned() });
    }

    /// Adds the flags of the command line.
    pub(super) fn flags(&mut self, defaults: &Defaults) {
        for (key, value) in [
            ("user", defaults.user.clone()),
            ("identityfile", defaults.private_key.as_ref().map(|p| p.to_string_lossy().into_owned())),
            ("connecttimeout", defaults.connect_timeout.map(|t| t.as_secs().max(1).to_string())),
        ] {
            if let Some(value) = value {
                self.add(key, &value, None);
            }
        }
    }

    /// Adds arguments of the ssh client.
    pub(super) fn arguments(&mut self, text: &str, name: &str, span: &Span) -> Result<(), Error> {
        let wrong = |message: String| Error::inventory(span, message);
        let words = shlex::split(text).ok_or_else(|| wrong(format!("a quote isn't closed in {name}")))?;
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(flags) = word.strip_prefix('-').filter(|f| !f.is_empty()) else {
                return Err(wrong(format!("`{word}` in {name} isn't an option"))
                    .hint("the host and its command don't belong there; quote values with spaces"));
            };
            for (i, flag) in flags.char_indices() {
                match flag {
                    // Compression, quietness, no terminal, no X11 and no agent forwarding: nothing here depends on them.
                    'q' | 'v' => continue,
                    'C' | 'T' | 'x' | 'a' | 'A' | 'n' if !self.openssh => continue,
                    'o' | 'J' | 'F' | 'i' | 'p' | 'l' => {}
                    _ if self.openssh && WITHOUT_VALUE.contains(flag) => {
                        self.arguments.push(format!("-{flag}"));
                        continue;
                    }
                    _ if self.openssh && WITH_VALUE.contains(flag) => {}
                    _ if self.openssh => {
                        return Err(wrong(format!("`-{flag}` in {name} is no option for a connection of netplay"))
                            .hint("take it out: netplay runs ssh in the foreground, without a command of yours"));
                    }
                    _ => return Err(unsupported(&format!("-{flag}"), name, span)),
                }
                let rest = &flags[i + 1..];
                let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
                let value = value.ok_or_else(|| wrong(format!("`-{flag}` in {name} has no value")))?;
                match flag {
                    'o' => self.option(&value, name, span)?,
                    'F' => {
                        self.arguments.extend(["-F".to_owned(), value.clone()]);
                        self.config = Some((value.into(), span.clone()));
                    }
                    'J' => self.set("proxyjump", &value, span),
                    'i' => self.set("identityfile", &value, span),
                    'p' => self.set("port", &value, span),
                    'l' => self.set("user", &value, span),
                    _ => self.arguments.extend([format!("-{flag}"), value]),
                }
                break;
            }
        }
        Ok(())
    }

    fn option(&mut self, text: &str, name: &str, span: &Span) -> Result<(), Error> {
        let Some(setting) = line(text, span).map_err(|e| e.kind(Kind::Inventory))? else { return Ok(()) };
        self.arguments.extend(["-o".to_owned(), text.to_owned()]);
        if HONOURED.contains(&setting.key.as_str()) {
            self.settings.push(setting);
        } else if !self.openssh && !WITHOUT_EFFECT.contains(&setting.key.as_str()) {
            let key = text.split(['=', ' ']).next().unwrap_or(text);
            return Err(unsupported(&format!("-o {key}"), name, span));
        }
        Ok(())
    }

    /// The target, with what the configuration files add.
    pub(super) fn resolve(
        mut self,
        host: &str,
        address: &str,
        defaults: &Defaults,
        depth: usize,
    ) -> Result<Target, Error> {
        let config = match &self.config {
            Some((path, span)) => defaults.other_config(path, span)?,
            None => defaults.config.clone(),
        };
        // Before the configuration is asked: its `Match exec` and ProxyCommand give names to a shell.
        check_address(address, host)?;
        let context = Context {
            original: address,
            local_user: &defaults.local_user,
            home: &defaults.home,
            openssh: self.openssh || self.behind_openssh,
        };
        config.collect(&context, &mut self.settings)?;
        let tokens = Tokens::so_far(&context, &self.settings);
        let settings = &self.settings;
        let word = |key: &str| first(settings, &[key]).map(|s| (s.words[0].as_str(), s));
        let number = |key: &str| word(key).map(|(text, s)| whole(text).ok_or_else(|| s.wrong("a number"))).transpose();
        let port = match word("port") {
            None => 22,
            Some((text, s)) => {
                text.parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(|| s.wrong("a port from 1 to 65535"))?
            }
        };
        let user = tokens.expand(&tokens.user);
        if user.is_empty() {
            return Err(Error::usage(format!("nobody knows whom to log in as on {host}")).hint("set ansible_user"));
        }
        if tokens.host.is_empty() {
            return Err(Error::usage(format!("the host {host} has an empty address")).hint("set ansible_host"));
        }
        check_address(&tokens.host, host)?;
        check_user(&user, host)?;
        let mut identities = Vec::new();
        for file in settings.iter().filter(|s| s.key == "identityfile" && s.words[0] != "none") {
            let path = tokens.path(&file.words[0]);
            if !identities.contains(&path) {
                identities.push(path);
            }
        }
        if identities.is_empty() {
            identities.clone_from(&defaults.usual_keys);
        }
        let agent = match word("identityagent") {
            None | Some(("SSH_AUTH_SOCK", _)) => defaults.agent.clone(),
            Some(("none", _)) => None,
            Some((text, _)) => match text.strip_prefix('$').filter(|name| !name.starts_with('{')) {
                Some(name) => std::env::var_os(name).map(PathBuf::from),
                None => Some(tokens.path(text)),
            },
        };
        let written = match word("stricthostkeychecking") {
            None => HostKeyChecking::default(),
            Some((text, s)) => match text.to_lowercase().as_str() {
                // Nobody can be asked while hosts are visited.
                "yes" | "true" | "ask" => HostKeyChecking::Yes,
                "accept-new" => HostKeyChecking::AcceptNew,
                "no" | "false" | "off" => HostKeyChecking::No,
                _ => return Err(s.wrong("yes, accept-new or no")),
            },
        };
        // What is typed is meant for this run, of a bastion too: a file must not quietly make less, or more, of it.
        let host_key_checking = defaults.host_key_checking.unwrap_or(written);
        let identities_only = match word("identitiesonly") {
            None => false,
            Some((text, s)) => match text.to_lowercase().as_str() {
                "yes" | "true" => true,
                "no" | "false" => false,
                _ => return Err(s.wrong("yes or no")),
            },
        };
        let connect_timeout = match word("connecttimeout") {
            None | Some(("none", _)) => None,
            Some((text, s)) => Some(Duration::from_secs(
                seconds(text).filter(|n| *n > 0).ok_or_else(|| s.wrong("a number of seconds"))?.into(),
            )),
        };
        let interval = match word("serveraliveinterval") {
            None => 15,
            Some((text, s)) => seconds(text).ok_or_else(|| s.wrong("a number of seconds"))?,
        };
        let files = |key: &str, usual: [&str; 2]| -> Vec<PathBuf> {
            match first(settings, &[key]) {
                Some(s) => s.words.iter().filter(|w| *w != "none").map(|w| tokens.path(w)).collect(),
                None => usual.iter().map(|w| tokens.path(w)).collect(),
            }
        };
        let mut known_hosts = files("userknownhostsfile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]);
        known_hosts.extend(files("globalknownhostsfile", ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]));
        let mut target = Target {
            host: host.to_owned(),
            carrier: Carrier::Ssh2,
            address: tokens.host.clone(),
            port,
            user,
            password: None,
            identities,
            identities_only,
            agent,
            host_key_checking,
            known_hosts,
            host_key_alias: word("hostkeyalias").map(|(text, _)| tokens.expand(text)),
            jumps: Vec::new(),
            proxy_command: None,
            connect_timeout,
            keepalive: (interval, number("serveralivecountmax")?.unwrap_or(3)),
            arguments: Vec::new(),
        };
        if self.openssh {
            target.carrier = Carrier::OpenSsh;
            target.arguments = std::mem::take(&mut self.arguments);
            target.arguments.extend(["--".to_owned(), address.to_owned()]);
        }
        // The one that is set first wins, as in OpenSSH.
        if let Some(setting) = first(settings, &["proxyjump", "proxycommand"]).filter(|s| s.words[0] != "none") {
            if setting.key == "proxyjump" {
                target.jumps = self.jumps(setting, address, defaults, depth)?;
            } else if let Some((jump, asked)) = as_jump(&setting.words[0], self.config.as_ref()) {
                let asked = Asked { behind_openssh: context.openssh, ..asked };
                let bastion = asked.resolve(&jump, &jump, defaults, self.deeper(setting, depth)?)?;
                target.jumps = with_own_jumps(bastion);
            } else {
                target.proxy_command = Some(tokens.expand(&setting.words[0]));
            }
        }
        Ok(target)
    }

    fn deeper(&self, setting: &Setting, depth: usize) -> Result<usize, Error> {
        if depth < MAX_JUMPS {
            Ok(depth + 1)
        } else {
            Err(setting.error("ProxyJump leads through too many hosts, or in a circle"))
        }
    }

    /// The hosts of `[user@]host[:port],…`.
    fn jumps(&self, setting: &Setting, address: &str, defaults: &Defaults, depth: usize) -> Result<Vec<Target>, Error> {
        let depth = self.deeper(setting, depth)?;
        let mut jumps = Vec::new();
        for text in setting.words[0].split(',') {
            let (user, host, port) =
                destination(text).ok_or_else(|| setting.wrong("[user@]host[:port], or several with commas"))?;
            // `Host *` with a ProxyJump is meant for all but the bastion itself.
            if host == address {
                continue;
            }
            let behind_openssh = self.openssh || self.behind_openssh;
            let mut asked = Asked { config: self.config.clone(), behind_openssh, ..Asked::default() };
            asked.settings.extend([("port", port), ("user", user)].into_iter().filter_map(|(key, value)| {
                Some(Setting { key: key.into(), words: vec![value?], span: setting.span.clone() })
            }));
            let bastion = asked.resolve(&host, &host, defaults, depth)?;
            if jumps.is_empty() {
                jumps = with_own_jumps(bastion);
            } else {
                jumps.push(bastion);
            }
        }
        Ok(jumps)
    }
}

/// A bastion behind those that lead to it.
fn with_own_jumps(mut bastion: Target) -> Vec<Target> {
    let mut jumps = std::mem::take(&mut bastion.jumps);
    jumps.push(bastion);
    jumps
}

/// The parts of `[user@]host[:port]` or `ssh://[user@]host[:port]`.
fn destination(text: &str) -> Option<(Option<String>, String, Option<String>)> {
    let text = text.trim();
    let text = text.strip_prefix("ssh://").map_or(text, |rest| rest.trim_end_matches('/'));
    let (user, rest) = text.rsplit_once('@').map_or((None, text), |(user, rest)| (Some(user.to_owned()), rest));
    let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match rest.split_once(':') {
            // More than one colon is an IPv6 address.
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (rest, None),
        },
    };
    (!host.is_empty() && user.as_deref() != Some("")).then(|| (user, host.to_owned(), port.map(str::to_owned)))
}

/// What every name has that OpenSSH's client gives to nobody (ssh.c, `valid_hostname` and `valid_ruser`): a shell would act
/// on it, or ssh take the name for an option.
fn unfit(name: &str) -> Option<String> {
    let bad = |c: char| c.is_control() || "'`\"$;&<>|(){}".contains(c);
    let dash = name.starts_with('-').then(|| "begins with `-`".to_owned());
    dash.or_else(|| name.chars().find(|c| bad(*c)).map(|c| format!("has {c:?} in it")))
}

/// # Errors
/// The address of this host is one that OpenSSH refuses.
fn check_address(address: &str, host: &str) -> Result<(), Error> {
    let bad = |c: char| c == '\\' || c.is_whitespace();
    let why = unfit(address).or_else(|| address.chars().find(|c| bad(*c)).map(|c| format!("has {c:?} in it")));
    why.map_or(Ok(()), |why| Err(refused("address", address, host, &why)))
}

/// # Errors
/// The user of this host is one that OpenSSH refuses.
fn check_user(user: &str, host: &str) -> Result<(), Error> {
    // A backslash stands behind the domain of a user alone.
    let why = unfit(user).or_else(|| match user {
        _ if user.ends_with('\\') => Some("ends in a backslash".to_owned()),
        _ if user.contains(" -") => Some("has a blank before a `-`".to_owned()),
        _ => None,
    });
    why.map_or(Ok(()), |why| Err(refused("user", user, host, &why)))
}

fn refused(what: &str, name: &str, host: &str, why: &str) -> Error {
    Error::usage(format!("the {what} of {host}, {name:?}, {why}, which no such name may have"))
        .hint("a shell could run it, in a ProxyCommand or `Match exec` of OpenSSH's configuration; mend the variable")
}

/// The bastion of a ProxyCommand `ssh … -W %h:%p HOST`, and what it asks of the connection to it; nothing for another
/// command, or one with options that only OpenSSH's client knows: that is run as it is.
fn as_jump(command: &str, config: Option<&(PathBuf, Span)>) -> Option<(String, Asked)> {
    let words = shlex::split(command)?;
    let (program, words) = words.split_first()?;
    if program.rsplit('/').next() != Some("ssh") {
        return None;
    }
    let mut asked = Asked { config: config.cloned(), ..Asked::default() };
    let mut host = None;
    let mut forwards = false;
    let span = Span::start(&Source::new("ProxyCommand", command));
    let mut words = words.iter().cloned().peekable();
    while let Some(word) = words.next() {
        if let Some(forward) = word.strip_prefix("-W") {
            let forward = if forward.is_empty() { words.next()? } else { forward.to_owned() };
            if !matches!(forward.as_str(), "%h:%p" | "[%h]:%p") {
                return None;
            }
            forwards = true;
        } else if word.starts_with('-') {
            // Options whose value is a word of its own.
            let value =
                if matches!(word.as_str(), "-o" | "-J" | "-F" | "-i" | "-p" | "-l") { words.next() } else { None };
            let value = value.iter().map(String::as_str);
            let option = shlex::try_join([word.as_str()].into_iter().chain(value)).ok()?;
            asked.arguments(&option, "ProxyCommand", &span).ok()?;
        } else if host.is_none() {
            host = Some(word);
        } else {
            return None;
        }
    }
    let (user, host, port) = destination(&host?)?;
    for (key, value) in [("user", user), ("port", port)] {
        if let Some(value) = value {
            asked.set(key, &value, &span);
        }
    }
    forwards.then_some((host, asked))
}

impl Setting {
    fn error(&self, message: impl Into<String>) -> Error {
        match &self.span {
            Some(span) => Error::inventory(span, message),
            None => Error::usage(message),
        }
    }

    fn wrong(&self, wanted: &str) -> Error {
        self.error(format!("`{}` isn't {wanted}", self.words[0]))
    }
}

fn unsupported(what: &str, name: &str, span: &Span) -> Error {
    Error::inventory(span, format!("`{what}` in {name} is unknown to the transport ssh2"))
        .hint("take it out, or use the system's ssh, which knows it: netplay_transport: openssh")
}

fn whole(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// A time as OpenSSH writes it: `90`, `90s`, `1m30s`, `1h`.
fn seconds(text: &str) -> Option<u32> {
    let mut total = 0u32;
    let mut digits = String::new();
    for c in text.chars() {
        let unit = match c.to_ascii_lowercase() {
            '0'..='9' => {
                digits.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u32>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    if digits.is_empty() { (!text.is_empty()).then_some(total) } else { total.checked_add(digits.parse().ok()?) }
}
