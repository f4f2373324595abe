//! From variables to a [`Target`]: Ansible's connection variables, and OpenSSH's configuration where they say nothing.

use super::secret::{Password, Secret};
use super::ssh_config::{Context, Setting, SshConfig, Tokens, first, in_home, line};
use super::{Carrier, HostKeyChecking, Identity, Target, USUAL_KEYS};
use crate::error::{Error, suggest};
use crate::source::Span;
use crate::yaml::{Node, Scalar};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The value of a variable for a host, rendered; nothing where it isn't set.
pub type Lookup<'l> = dyn Fn(&str) -> Result<Option<Node>, Error> + 'l;

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

/// What holds for all hosts unless their variables say otherwise: flags of the command line, the user's files.
#[derive(Debug)]
pub struct Defaults {
    /// `--user`.
    pub user: Option<String>,
    /// `--private-key`.
    pub private_key: Option<PathBuf>,
    /// The login password from `-k`.
    pub password: Option<Password>,
    /// sudo's password from `-K`.
    pub become_password: Option<Password>,
    /// `--host-key-checking`.
    pub host_key_checking: Option<HostKeyChecking>,
    /// The limit for TCP connect, of the command line.
    pub connect_timeout: Option<Duration>,
    home: PathBuf,
    local_user: String,
    agent: Option<PathBuf>,
    usual_keys: Vec<PathBuf>,
    config: Arc<SshConfig>,
    /// Files that hosts named by `-F`.
    other_configs: Mutex<HashMap<PathBuf, Arc<SshConfig>>>,
}

impl Defaults {
    /// Those of the user who runs netplay: `~/.ssh/config`, `/etc/ssh/ssh_config`, keys of usual names, the agent.
    ///
    /// # Errors
    /// A configuration file that can't be read or understood.
    pub fn load() -> Result<Defaults, Error> {
        let (name, home) = whoami();
        let agent = std::env::var_os("SSH_AUTH_SOCK").filter(|s| !s.is_empty()).map(PathBuf::from);
        Defaults::of(name, home, Some(Path::new("/etc/ssh/ssh_config")), agent)
    }

    /// Those of a user of this name and home folder.
    fn of(name: String, home: PathBuf, system: Option<&Path>, agent: Option<PathBuf>) -> Result<Defaults, Error> {
        let config = SshConfig::read(&home.join(".ssh/config"), system, &home)?;
        let usual_keys = USUAL_KEYS.iter().map(|key| home.join(".ssh").join(key)).filter(|p| p.exists()).collect();
        Ok(Defaults {
            user: None,
            private_key: None,
            password: None,
            become_password: None,
            host_key_checking: None,
            connect_timeout: None,
            home,
            local_user: name,
            agent,
            usual_keys,
            config: Arc::new(config),
            other_configs: Mutex::default(),
        })
    }

    fn other_config(&self, path: &Path, span: &Span) -> Result<Arc<SshConfig>, Error> {
        if path == Path::new("none") {
            return Ok(Arc::default());
        }
        let path = in_home(&path.to_string_lossy(), &self.home);
        let mut configs = self.other_configs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(&path) {
            return Ok(config.clone());
        }
        if !path.exists() {
            return Err(Error::inventory(span, format!("there is no file {}", path.display())));
        }
        let config = Arc::new(SshConfig::read(&path, None, &self.home)?);
        configs.insert(path, config.clone());
        Ok(config)
    }
}

/// Name and home folder of the user: by the user database as OpenSSH, or the environment where a directory service
/// keeps the user.
fn whoami() -> (String, PathBuf) {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = passwd.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f.get(2) == Some(&uid.as_str()));
    let field = |i: usize| entry.as_ref().and_then(|f| f.get(i)).filter(|s| !s.is_empty()).map(|s| (*s).to_owned());
    let variable = |name: &str| std::env::var(name).ok().filter(|s| !s.is_empty());
    let name = field(0).or_else(|| variable("USER")).or_else(|| variable("LOGNAME")).unwrap_or_default();
    let home = variable("HOME").or_else(|| field(5)).unwrap_or_else(|| "/".into());
    (name, home.into())
}

impl Target {
    /// How a host is reached, by its variables. They win over flags of the command line, those over OpenSSH's
    /// configuration. As with Ansible, the configuration is asked for `ansible_host` where that is set.
    ///
    /// # Errors
    /// A value that can't be, at its place; an option that only OpenSSH's own client has.
    pub fn from_variables(host: &str, lookup: &Lookup<'_>, defaults: &Defaults) -> Result<Target, Error> {
        if let Some(node) = lookup("netplay_transport")? {
            match text(&node, "netplay_transport")? {
                "ssh2" => {}
                "openssh" => {
                    return Err(Error::inventory(&node.span, "the transport `openssh` comes with a later version")
                        .hint("use `ssh2`, the default"));
                }
                other => {
                    return Err(Error::inventory(&node.span, format!("there is no transport `{other}`"))
                        .hint("known: ssh2, and openssh with a later version"));
                }
            }
        }
        if let Some(node) = lookup("ansible_connection")? {
            match text(&node, "ansible_connection")? {
                "ssh"
                | "smart"
                | "paramiko"
                | "paramiko_ssh"
                | "ansible.builtin.ssh"
                | "ansible.builtin.paramiko_ssh" => {}
                "local" | "ansible.builtin.local" => return Ok(Target::local(host, defaults)),
                other => {
                    return Err(Error::inventory(&node.span, format!("netplay has no connection `{other}`"))
                        .hint(suggest(other, &["ssh", "local"])));
                }
            }
        }
        let find = |names: &[&'static str]| -> Result<Option<(&'static str, Node)>, Error> {
            for name in names {
                if let Some(node) = lookup(name)?.filter(|n| !n.is_null() && n.text() != Some("")) {
                    return Ok(Some((name, node)));
                }
            }
            Ok(None)
        };
        let mut asked = Asked::default();
        for (names, key) in [
            (&["ansible_port", "ansible_ssh_port"][..], "port"),
            (&["ansible_user", "ansible_ssh_user"], "user"),
            (&["ansible_ssh_private_key_file", "ansible_private_key_file"], "identityfile"),
            (&["ansible_ssh_timeout", "ansible_timeout"], "connecttimeout"),
        ] {
            if let Some((name, node)) = find(names)? {
                asked.set(key, text(&node, name)?, &node.span);
            }
        }
        if let Some((name, node)) = find(&["ansible_host_key_checking", "ansible_ssh_host_key_checking"])? {
            asked.set("stricthostkeychecking", if boolean(&node, name)? { "yes" } else { "no" }, &node.span);
        }
        for name in ["ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"] {
            if let Some((name, node)) = find(&[name])? {
                asked.arguments(text(&node, name)?, name, &node.span)?;
            }
        }
        let address = find(&["ansible_host", "ansible_ssh_host"])?;
        let address = match &address {
            Some((name, node)) => text(node, name)?,
            None => host,
        };
        asked.flags(defaults);
        let mut target = asked.resolve(host, address, defaults, 0)?;
        target.password = match find(&["ansible_password", "ansible_ssh_pass", "ansible_ssh_password"])? {
            Some((name, node)) => Some(Password::stored(Secret::new(text(&node, name)?))),
            None => defaults.password.clone(),
        };
        Ok(target)
    }

    /// This machine itself, under a name of the inventory.
    fn local(host: &str, defaults: &Defaults) -> Target {
        Target {
            host: host.to_owned(),
            carrier: Carrier::Local,
            address: "localhost".to_owned(),
            port: 0,
            user: defaults.local_user.clone(),
            password: None,
            identities: Vec::new(),
            identities_only: false,
            agent: None,
            host_key_checking: HostKeyChecking::No,
            known_hosts: Vec::new(),
            host_key_alias: None,
            jumps: Vec::new(),
            proxy_command: None,
            connect_timeout: None,
            keepalive: (0, 0),
        }
    }
}

/// What is asked of a connection before the configuration files are, the strongest first.
#[derive(Debug, Default)]
struct Asked {
    settings: Vec<Setting>,
    /// The file of `-F`.
    config: Option<(PathBuf, Span)>,
}

impl Asked {
    fn set(&mut self, key: &str, value: &str, span: &Span) {
        let words = vec![value.to_owned()];
        self.settings.push(Setting { key: key.to_owned(), words, span: Some(span.clone()) });
    }

    /// Adds the flags of the command line.
    fn flags(&mut self, defaults: &Defaults) {
        let mut add = |key: &str, value: Option<String>| {
            self.settings.extend(value.map(|v| Setting { key: key.to_owned(), words: vec![v], span: None }));
        };
        add("user", defaults.user.clone());
        add("identityfile", defaults.private_key.as_ref().map(|p| p.to_string_lossy().into_owned()));
        add("connecttimeout", defaults.connect_timeout.map(|t| t.as_secs().max(1).to_string()));
        self.checking(defaults);
    }

    fn checking(&mut self, defaults: &Defaults) {
        let word = defaults.host_key_checking.map(|checking| match checking {
            HostKeyChecking::Yes => "yes",
            HostKeyChecking::AcceptNew => "accept-new",
            HostKeyChecking::No => "no",
        });
        let setting =
            |word: &str| Setting { key: "stricthostkeychecking".into(), words: vec![word.into()], span: None };
        self.settings.extend(word.map(setting));
    }

    /// Adds arguments of the ssh client.
    fn arguments(&mut self, text: &str, name: &str, span: &Span) -> Result<(), Error> {
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
                    'C' | 'q' | 'v' | 'T' | 'x' | 'a' | 'A' | 'n' => continue,
                    'o' | 'J' | 'F' | 'i' | 'p' | 'l' => {}
                    _ => return Err(unsupported(&format!("-{flag}"), name, span)),
                }
                let rest = &flags[i + 1..];
                let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
                let value = value.ok_or_else(|| wrong(format!("`-{flag}` in {name} has no value")))?;
                match flag {
                    'o' => self.option(&value, name, span)?,
                    'F' => self.config = Some((value.into(), span.clone())),
                    'J' => self.set("proxyjump", &value, span),
                    'i' => self.set("identityfile", &value, span),
                    'p' => self.set("port", &value, span),
                    _ => self.set("user", &value, span),
                }
                break;
            }
        }
        Ok(())
    }

    fn option(&mut self, text: &str, name: &str, span: &Span) -> Result<(), Error> {
        let Some(setting) = line(text, span).map_err(|e| e.kind(crate::error::Kind::Inventory))? else { return Ok(()) };
        if HONOURED.contains(&setting.key.as_str()) {
            self.settings.push(setting);
        } else if !WITHOUT_EFFECT.contains(&setting.key.as_str()) {
            let key = text.split(['=', ' ']).next().unwrap_or(text);
            return Err(unsupported(&format!("-o {key}"), name, span));
        }
        Ok(())
    }

    /// The target, with what the configuration files add.
    fn resolve(mut self, host: &str, address: &str, defaults: &Defaults, depth: usize) -> Result<Target, Error> {
        let config = match &self.config {
            Some((path, span)) => defaults.other_config(path, span)?,
            None => defaults.config.clone(),
        };
        let context = Context { original: address, local_user: &defaults.local_user, home: &defaults.home };
        config.collect(&context, &mut self.settings);
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
        let host_key_checking = match word("stricthostkeychecking") {
            None => HostKeyChecking::default(),
            Some((text, s)) => match text.to_lowercase().as_str() {
                // Nobody can be asked while hosts are visited.
                "yes" | "true" | "ask" => HostKeyChecking::Yes,
                "accept-new" => HostKeyChecking::AcceptNew,
                "no" | "false" | "off" => HostKeyChecking::No,
                _ => return Err(s.wrong("yes, accept-new or no")),
            },
        };
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
        };
        // The one that is set first wins, as in OpenSSH.
        if let Some(setting) = first(settings, &["proxyjump", "proxycommand"]).filter(|s| s.words[0] != "none") {
            if setting.key == "proxyjump" {
                target.jumps = self.jumps(setting, address, defaults, depth)?;
            } else if let Some((jump, asked)) = as_jump(&setting.words[0], self.config.as_ref()) {
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
            let mut asked = Asked { settings: Vec::new(), config: self.config.clone() };
            asked.settings.extend([("port", port), ("user", user)].into_iter().filter_map(|(key, value)| {
                Some(Setting { key: key.into(), words: vec![value?], span: setting.span.clone() })
            }));
            asked.checking(defaults);
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

/// The bastion of a ProxyCommand `ssh … -W %h:%p HOST`, and what it asks of the connection to it; nothing for another
/// command, or one with options that only OpenSSH's client knows: that is run as it is.
fn as_jump(command: &str, config: Option<&(PathBuf, Span)>) -> Option<(String, Asked)> {
    let words = shlex::split(command)?;
    let (program, words) = words.split_first()?;
    if program.rsplit('/').next() != Some("ssh") {
        return None;
    }
    let mut asked = Asked { settings: Vec::new(), config: config.cloned() };
    let mut host = None;
    let mut forwards = false;
    let span = Span::start(&crate::source::Source::new("ProxyCommand", command));
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
        .hint("take it out; the transport `openssh`, which takes all options, comes with a later version")
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

fn text<'n>(node: &'n Node, name: &str) -> Result<&'n str, Error> {
    node.text().ok_or_else(|| Error::inventory(&node.span, format!("{name} must be a string, not {}", node.describe())))
}

/// A truth value as Ansible understands it, where an INI inventory has only strings.
fn boolean(node: &Node, name: &str) -> Result<bool, Error> {
    let known = match node.scalar() {
        Some(Scalar::Bool(b)) => Some(b),
        Some(Scalar::Int(n)) => Some(n).filter(|n| (0..2).contains(n)).map(|n| n == 1),
        Some(Scalar::Str(s)) => match s.trim().to_lowercase().as_str() {
            "y" | "yes" | "on" | "1" | "true" | "t" => Some(true),
            "n" | "no" | "off" | "0" | "false" | "f" => Some(false),
            _ => None,
        },
        _ => None,
    };
    known.ok_or_else(|| {
        Error::inventory(&node.span, format!("{name} must be true or false, not {}", node.describe()))
            .hint("write true or false")
    })
}

/// Who runs the executions of a resource. Variables of the host win over the keywords `become` and `become_user` of
/// play or resource.
///
/// # Errors
/// A value that can't be, at its place; another way to become somebody than sudo.
pub fn become_from_variables(
    lookup: &Lookup<'_>,
    keyword: Option<bool>,
    user: Option<&str>,
    defaults: &Defaults,
) -> Result<Identity, Error> {
    let wanted = match lookup("ansible_become")? {
        Some(node) => boolean(&node, "ansible_become")?,
        None => keyword.unwrap_or(false),
    };
    if !wanted {
        return Ok(Identity::Login);
    }
    if let Some(node) = lookup("ansible_become_method")?
        && !matches!(text(&node, "ansible_become_method")?, "sudo" | "ansible.builtin.sudo")
    {
        return Err(Error::inventory(&node.span, "netplay becomes another user by sudo only")
            .hint("set ansible_become_method to sudo, or log in as that user: ansible_user"));
    }
    let user = match lookup("ansible_become_user")? {
        Some(node) => {
            let name = text(&node, "ansible_become_user")?;
            super::sudo::check_user(name).map_err(|why| Error::inventory(&node.span, why))?;
            name.to_owned()
        }
        None => user.unwrap_or("root").to_owned(),
    };
    let mut password = None;
    for name in ["ansible_become_password", "ansible_become_pass"] {
        if let Some(node) = lookup(name)?.filter(|n| !n.is_null() && n.text() != Some("")) {
            password = Some(Password::stored(Secret::new(text(&node, name)?)));
            break;
        }
    }
    Ok(Identity::Sudo { user, password: password.or_else(|| defaults.become_password.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::source::Source;
    use std::fs;

    /// A user `me` with a configuration file.
    fn defaults(config: &str) -> (tempfile::TempDir, Defaults) {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ssh")).unwrap();
        fs::write(home.path().join(".ssh/config"), config).unwrap();
        fs::write(home.path().join(".ssh/id_rsa"), "").unwrap();
        let agent = Some(PathBuf::from("/run/agent"));
        let defaults = Defaults::of("me".into(), home.path().to_owned(), None, agent).unwrap();
        (home, defaults)
    }

    fn variables(text: &str) -> Node {
        crate::yaml::load_one(&Source::new("inv.yaml", text), Kind::Inventory).unwrap().unwrap()
    }

    fn target(variables_: &str, defaults: &Defaults) -> Result<Target, Error> {
        let node = variables(variables_);
        Target::from_variables("n1", &|name| Ok(node.get(name).cloned()), defaults)
    }

    #[test]
    fn without_variables_openssh_decides() {
        let (home, defaults) = defaults(
            "Host n1\n HostName 10.0.0.1\n User admin\n Port 2222\n IdentityFile ~/.ssh/%r\n IdentitiesOnly yes\n\
             Host gw\n User jump\n ProxyJump outer\nHost n*\n ProxyJump gw,me2@in:23\n UserKnownHostsFile ~/kh /x\n\
             StrictHostKeyChecking accept-new\n ConnectTimeout 1m\n ServerAliveInterval 7\n IdentityAgent none\n",
        );
        let t = target("{}", &defaults).unwrap();
        assert_eq!((t.address.as_str(), t.port, t.user.as_str()), ("10.0.0.1", 2222, "admin"));
        assert_eq!(t.identities, [home.path().join(".ssh/admin")]);
        assert!(t.identities_only && t.agent.is_none());
        assert_eq!(t.known_hosts[..2], [home.path().join("kh"), PathBuf::from("/x")]);
        assert_eq!(t.known_hosts[2], Path::new("/etc/ssh/ssh_known_hosts"));
        assert_eq!(t.host_key_checking, HostKeyChecking::AcceptNew);
        assert_eq!((t.connect_timeout, t.keepalive), (Some(Duration::from_secs(60)), (7, 3)));
        let jumps: Vec<_> = t.jumps.iter().map(|j| format!("{}@{}:{}", j.user, j.address, j.port)).collect();
        assert_eq!(jumps, ["me@outer:22", "jump@gw:22", "me2@in:23"]);
    }

    #[test]
    fn variables_win_over_flags_and_those_over_the_file() {
        let (home, mut defaults) = defaults("User file\nPort 1\nStrictHostKeyChecking no\n");
        let t = target("{}", &defaults).unwrap();
        assert_eq!((t.user.as_str(), t.port, t.address.as_str()), ("file", 1, "n1"));
        assert_eq!((t.identities, t.agent), (vec![home.path().join(".ssh/id_rsa")], Some("/run/agent".into())));
        assert_eq!((t.host_key_checking, t.keepalive), (HostKeyChecking::No, (15, 3)));
        defaults.user = Some("flag".into());
        defaults.private_key = Some("/flag".into());
        defaults.host_key_checking = Some(HostKeyChecking::AcceptNew);
        let t = target("{}", &defaults).unwrap();
        assert_eq!((t.user.as_str(), t.host_key_checking), ("flag", HostKeyChecking::AcceptNew));
        assert_eq!(t.identities, [Path::new("/flag")]);
        let t = target(
            "{ansible_user: var, ansible_port: 3, ansible_host: h, ansible_ssh_private_key_file: /var, \
             ansible_password: 0123, ansible_ssh_common_args: '-o StrictHostKeyChecking=yes -p 4 -i /args'}",
            &defaults,
        )
        .unwrap();
        assert_eq!((t.user.as_str(), t.port, t.address.as_str()), ("var", 3, "h"));
        assert_eq!(t.identities, ["/var", "/args", "/flag"].map(PathBuf::from));
        assert_eq!(t.host_key_checking, HostKeyChecking::Yes);
        let deadline = super::super::Deadline::after(Duration::ZERO, &Arc::default());
        assert_eq!(t.password.unwrap().attempt(&deadline).unwrap().reveal(), "0123");
    }

    #[test]
    fn arguments_of_ssh_are_understood() {
        let (home, defaults) = defaults("User file\n");
        fs::write(home.path().join("other"), "Host *\n User other\nHost b\n HostName 10.9.9.9\n").unwrap();
        let with = |arguments: &str| target(&format!("ansible_ssh_common_args: {arguments:?}"), &defaults).unwrap();
        let jumps =
            |t: &Target| t.jumps.iter().map(|j| format!("{}@{}:{}", j.user, j.address, j.port)).collect::<Vec<_>>();
        assert_eq!(jumps(&with("-C -q -J a@b:2,c")), ["a@b:2", "file@c:22"]);
        assert_eq!(jumps(&with("-o ProxyJump=none")), Vec::<String>::new());
        let t = with("-F ~/other -oProxyJump=ssh://x@b:7 -oBatchMode=yes -o 'ControlPath=/a b'");
        assert_eq!((t.user.as_str(), jumps(&t)), ("other", vec!["x@10.9.9.9:7".to_owned()]));
        // What Ansible's users write for a bastion.
        for command in [
            "ssh -W %h:%p -q gw@bastion",
            "/usr/bin/ssh -q -o StrictHostKeyChecking=no -p 22 gw@bastion -W %h:%p",
            "ssh -o User=gw -W[%h]:%p bastion",
        ] {
            let t = with(&format!("-o ProxyCommand='{command}'"));
            assert_eq!((jumps(&t), t.proxy_command), (vec!["gw@bastion:22".to_owned()], None), "{command}");
        }
        let t = with("-o ProxyCommand='ssh -W %h:%p -o StrictHostKeyChecking=no -i /k bastion'");
        assert_eq!(
            (t.jumps[0].host_key_checking, &t.jumps[0].identities[..]),
            (HostKeyChecking::No, &[PathBuf::from("/k")][..])
        );
        assert_eq!(t.host_key_checking, HostKeyChecking::Yes);
        for command in ["nc -X 5 %h %p", "ssh -o Compression=yes -W %h:%p b", "ssh b nc %h %p", "sss -W %h:%p b"] {
            let t = with(&format!("-o ProxyCommand='{command}'"));
            assert_eq!((jumps(&t).len(), t.proxy_command), (0, Some(command.replace("%h", "n1").replace("%p", "22"))));
        }
    }

    #[test]
    fn a_bastion_does_not_jump_over_itself() {
        let (_home, defaults) = defaults("Host *\n ProxyJump n1\n");
        assert!(target("{}", &defaults).unwrap().jumps.is_empty());
        let (_home, circle) =
            super::tests::defaults("Host a\n ProxyJump b\nHost b\n ProxyJump a\nHost *\n ProxyJump a\n");
        assert!(target("{}", &circle).unwrap_err().message.contains("circle"));
    }

    #[test]
    fn errors_stand_where_the_value_is_written() {
        let (_home, defaults) = defaults("Host n1\n");
        for (text, expected) in [
            ("ansible_port: 70000", "`70000` isn't a port from 1 to 65535\n  --> inv.yaml:1:15"),
            ("ansible_port: [1]", "ansible_port must be a string, not a list\n  --> inv.yaml:1:15"),
            ("ansible_connection: winrm", "netplay has no connection `winrm`\n  --> inv.yaml:1:21"),
            ("netplay_transport: openssh", "the transport `openssh` comes with a later version\n  --> inv.yaml:1:20"),
            (
                "ansible_ssh_common_args: '-o X11Forwarding=yes'",
                "`-o X11Forwarding` in ansible_ssh_common_args is unknown",
            ),
            ("ansible_ssh_extra_args: -6", "`-6` in ansible_ssh_extra_args is unknown"),
            ("ansible_ssh_extra_args: -o", "`-o` in ansible_ssh_extra_args has no value"),
            ("ansible_ssh_extra_args: host", "`host` in ansible_ssh_extra_args isn't an option"),
            ("ansible_ssh_extra_args: \"-o 'X\"", "a quote isn't closed in ansible_ssh_extra_args"),
            ("ansible_ssh_extra_args: -F /nope", "there is no file /nope"),
            ("ansible_ssh_extra_args: -o StrictHostKeyChecking=maybe", "`maybe` isn't yes, accept-new or no"),
            ("ansible_host_key_checking: maybe", "ansible_host_key_checking must be true or false, not a string"),
        ] {
            let error = target(text, &defaults).unwrap_err().to_string();
            assert!(error.starts_with(expected) && error.contains("inv.yaml:1:"), "{error}");
        }
    }

    #[test]
    fn local_is_this_machine() {
        let (_home, defaults) = defaults("User other\n");
        let t = target("{ansible_connection: local, ansible_host: 10.0.0.1}", &defaults).unwrap();
        assert_eq!((t.carrier, t.user.as_str(), t.host.as_str()), (Carrier::Local, "me", "n1"));
    }

    #[test]
    fn variables_of_becoming_win_over_keywords() {
        let (_home, mut defaults) = defaults("");
        defaults.become_password = Some(Password::stored(Secret::new("flag")));
        let ask = |text: &str, keyword, user| {
            let node = variables(text);
            let identity = become_from_variables(&|name| Ok(node.get(name).cloned()), keyword, user, &defaults)?;
            let deadline = super::super::Deadline::after(Duration::ZERO, &Arc::default());
            Ok::<_, Error>(match identity {
                Identity::Login => None,
                Identity::Sudo { user, password } => {
                    Some((user, password.unwrap().attempt(&deadline).unwrap().reveal().to_owned()))
                }
            })
        };
        let sudo = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(ask("{}", None, None).unwrap(), None);
        assert_eq!(ask("{}", Some(true), None).unwrap(), sudo("root", "flag"));
        assert_eq!(ask("{}", Some(true), Some("www")).unwrap(), sudo("www", "flag"));
        for no in ["no", "'False'", "0", "'0'"] {
            assert_eq!(ask(&format!("ansible_become: {no}"), Some(true), None).unwrap(), None);
        }
        for yes in ["yes", "'True'", "1", "'yes'"] {
            let text = format!("{{ansible_become: {yes}, ansible_become_user: svc, ansible_become_pass: 007}}");
            assert_eq!(ask(&text, Some(false), Some("www")).unwrap(), sudo("svc", "007"));
        }
        for (text, expected) in [
            ("{ansible_become: maybe}", "ansible_become must be true or false"),
            ("{ansible_become: yes, ansible_become_method: su}", "netplay becomes another user by sudo only"),
            ("{ansible_become: yes, ansible_become_user: 'a b'}", "`a b` can't be the name of a user"),
        ] {
            let error = ask(text, None, None).unwrap_err();
            assert!(error.message.starts_with(expected) && error.place.is_some(), "{error}");
        }
    }
}
