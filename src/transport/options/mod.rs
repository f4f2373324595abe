//! From variables to a [`Target`]: Ansible's connection variables, and OpenSSH's configuration where they say nothing.

mod asked;

use super::secret::Password;
use super::ssh_config::{SshConfig, in_home};
use super::{Carrier, HostKeyChecking, Identity, Target, USUAL_KEYS};
use crate::error::{Error, suggest};
use crate::secret::Secret;
use crate::source::Span;
use crate::yaml::{Node, Scalar};
use asked::Asked;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The value of a variable for a host, rendered; nothing where it isn't set.
pub type Lookup<'l> = dyn Fn(&str) -> Result<Option<Node>, Error> + 'l;

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

    /// The name of the user who runs netplay, by the user database; their number where nothing has a name for it.
    pub fn local_user(&self) -> String {
        match self.local_user.as_str() {
            "" => rustix::process::getuid().as_raw().to_string(),
            name => name.to_owned(),
        }
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
    /// configuration; but how keys are checked is as the command line says, if it does. As with Ansible, the
    /// configuration is asked for `ansible_host` where that is set.
    ///
    /// # Errors
    /// A value that can't be, at its place; an option that only OpenSSH's own client has.
    pub fn from_variables(host: &str, lookup: &Lookup<'_>, defaults: &Defaults) -> Result<Target, Error> {
        let openssh = match lookup("netplay_transport")? {
            None => false,
            Some(node) => match text(&node, "netplay_transport")? {
                "ssh2" => false,
                "openssh" => true,
                other => {
                    return Err(Error::inventory(&node.span, format!("there is no transport `{other}`"))
                        .hint(suggest(other, &["ssh2", "openssh"])));
                }
            },
        };
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
        let mut asked = Asked::new(openssh);
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
            arguments: Vec::new(),
        }
    }
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
mod tests;
