//! One file a subcommand, and what several of them need.

mod again;
pub mod apply;
pub mod docs;
pub mod facts;
pub mod graph;
pub mod inventory;
mod plays;
pub mod reboot;
pub mod run;
pub mod status;
mod survey;
pub mod validate;
pub mod verify;

use crate::cli::{Hosts, Reach};
use crate::engine;
use crate::engine::batch::Folders;
use crate::engine::boot::{Awaited, Drain};
use crate::engine::visit::{Limits, Shared};
use crate::error::{Error, Errors};
use crate::event::RunStarted;
use crate::inventory::vault::{Identity, PasswordSource, Vault};
use crate::inventory::{HostId, Inventory, Options, Warning, argument};
use crate::logs;
use crate::playbook::{self, Context, Extra, Variables};
use crate::report::{self, Reporters};
use crate::secret::Secret;
use crate::transport::{self, Carriers, Defaults, Gate, Keyring, Password, Target};
use crate::yaml::Node;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many handshakes may be under way at once, over all hosts: at 50 a machine of two cores times out.
const HANDSHAKES: usize = 16;

/// The vault with the passwords that the command line and the environment name; asks for those that are to be typed.
/// Their order is Ansible's.
fn vault(args: &Hosts) -> Result<Arc<Vault>, Errors> {
    let mut vault = Vault::new(args.secrets.clone());
    let file = |path: String| Identity { label: None, source: PasswordSource::File(path) };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let list = variable("ANSIBLE_VAULT_IDENTITY_LIST").unwrap_or_default();
    let listed = list.split(',').map(str::trim).filter(|id| !id.is_empty());
    let ids = listed.chain(args.vault_id.iter().map(String::as_str)).map(Identity::parse);
    let files = args.vault_password_file.iter().cloned();
    let variable = variable("ANSIBLE_VAULT_PASSWORD_FILE");
    let asked = args.ask_vault_pass.then_some(Identity { label: None, source: PasswordSource::Prompt });
    for Identity { label, source } in ids.chain(files.chain(variable).map(file)).chain(asked) {
        let label = label.as_deref();
        match source {
            PasswordSource::Prompt => {
                let of = label.map_or(String::new(), |l| format!(" ({l})"));
                let instead = format!("--vault-id {}@FILE", label.unwrap_or("default"));
                vault.add(label, prompt(&format!("Vault password{of}: "), &instead)?.trim())?;
            }
            PasswordSource::File(path) => vault.add_file(label, &in_home(&path))?,
        }
    }
    Ok(Arc::new(vault))
}

/// A path whose `~/`, which no shell sees behind a label, is the home folder.
fn in_home(path: &str) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}

/// Reads the inventory and tells its warnings.
fn load_inventory(args: &Hosts, vault: &Arc<Vault>) -> Result<Inventory, Errors> {
    // The threads that render have the stack that it needs, so that none has to be made for each host. Where these are
    // refused, rendering makes its own.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(playbook::STACK).build_global();
    let options = Options { vault: vault.clone(), ..Options::default() };
    let (inventory, warnings) = Inventory::load(&args.inventory, &options)?;
    warn(&warnings, args);
    Ok(inventory)
}

fn warn(warnings: &[Warning], args: &Hosts) {
    for warning in warnings {
        report::warning(&warning.to_string(), args.color(), &args.secrets);
    }
}

/// The variables of the command line; tells its warnings.
fn extra(args: &Hosts, vault: &Vault) -> Result<Extra, Errors> {
    let extra = Extra::parse(args.extra_vars.iter().map(String::as_str), vault)?;
    warn(&extra.warnings(), args);
    Ok(extra)
}

/// The inventory with what lies beside a playbook (or in the working folder), and the variables of the command line.
fn context(inventory: &Inventory, args: &Hosts, extra: &Extra, folder: &Path) -> Result<Arc<Context>, Errors> {
    let (inventory, warnings) = inventory.with_playbook_dir(folder)?;
    warn(&warnings, args);
    Ok(Context::new(inventory, extra.clone(), folder))
}

/// The hosts that `--limit` leaves of all.
fn limited(inventory: &Inventory, args: &Hosts) -> Result<Vec<HostId>, Errors> {
    let all = argument("hosts", "all");
    let limit = args.limit.as_ref().map(|l| argument("--limit", l));
    let origin = Origin::of(args, &[]);
    let selection = inventory.select(&all, limit.as_ref(), Some(&|| origin.left())).map_err(usage)?;
    warn(&selection.warnings, args);
    Ok(selection.hosts)
}

/// That there is nothing that could be done is no success.
///
/// # Errors
/// The inventory has no hosts.
fn some_hosts(inventory: &Inventory, args: &Hosts) -> Result<(), Error> {
    match inventory.hosts().next() {
        Some(_) => Ok(()),
        None => Err(Error::usage(format!("the inventory {} has no hosts", args.inventory.join(", ")))
            .hint("an inventory lists hosts below `hosts:` of a group, or one a line; netplay inventory --graph shows what is read")),
    }
}

/// Which inventory and playbooks a command is about, so that runs of the same can be told.
struct Origin {
    inventory: Vec<String>,
    playbooks: Vec<String>,
    /// The hosts that the last run left, once they were asked for.
    left: OnceCell<Vec<String>>,
}

impl Origin {
    fn of(hosts: &Hosts, playbooks: &[PathBuf]) -> Origin {
        // What is no path is a list of hosts.
        let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let absolute = |path: &Path| absolute(path).to_string_lossy().into_owned();
        Origin {
            inventory: hosts.inventory.iter().map(|source| absolute(Path::new(source))).collect(),
            playbooks: playbooks.iter().map(|path| absolute(path)).collect(),
            left: OnceCell::new(),
        }
    }

    /// What the last run left undone.
    fn left(&self) -> Result<Vec<String>, Error> {
        if let Some(left) = self.left.get() {
            return Ok(left.clone());
        }
        let left = logs::left(&state_folder()?, &self.inventory, &self.playbooks)?;
        Ok(self.left.get_or_init(|| left).clone())
    }

    /// Has plays that boot hosts wait for those that earlier runs had boot and may still be on their way.
    fn await_booting(&self, plays: &mut [engine::run::Play]) {
        let timeouts = plays.iter().filter_map(|play| {
            let reboot = play.reboot.as_ref()?;
            // Slurm boots a host when its jobs have ended.
            let slurm = play.hosts.iter().any(|host| matches!(host.way.drain, Drain::SlurmReboots(_)));
            Some(reboot.timeout + if slurm { reboot.drain_timeout } else { Duration::ZERO })
        });
        let (Some(timeout), Ok(folder)) = (timeouts.max(), state_folder()) else { return };
        let booting = logs::booting(&folder, &self.inventory, timeout);
        let found = Instant::now();
        for host in plays.iter_mut().flat_map(|play| &mut play.hosts) {
            let of = booting.get(&host.target.host);
            host.way.awaited = of.map(|(run, ago)| Awaited { run: run.clone(), ago: *ago, timeout, found });
        }
    }

    /// The event that begins a run.
    fn started(self, run: &Arc<str>, command: &'static str, argv: &[OsString]) -> RunStarted {
        RunStarted {
            run: run.clone(),
            command,
            arguments: again::arguments(argv),
            inventory: self.inventory,
            playbooks: self.playbooks,
            ..RunStarted::default()
        }
    }
}

fn state_folder() -> Result<PathBuf, Error> {
    logs::folder(|name| std::env::var_os(name)).ok_or_else(|| {
        Error::usage("there is no folder for logs of runs: neither XDG_STATE_HOME nor HOME is an absolute path")
    })
}

/// Begins the log of a run, and gives its path. Where there can be none, one warning says so.
fn log(reporters: &mut Reporters, run: &str, args: &Hosts) -> Option<String> {
    let opened = state_folder()
        .map_err(|e| e.to_string())
        .and_then(|folder| logs::open(&folder, run).map_err(|e| format!("{} can't be written: {e}", folder.display())));
    match opened {
        Ok((path, file)) => {
            let path = path.display().to_string();
            reporters.log(&path, file);
            Some(path)
        }
        Err(why) => {
            report::warning(&format!("no log of this run is kept: {why}"), args.color(), &args.secrets);
            None
        }
    }
}

fn usage(error: Error) -> Errors {
    error.into()
}

/// The user's own files and what the command line says about connections; asks for passwords.
fn defaults(reach: &Reach) -> Result<Defaults, Errors> {
    let mut defaults = Defaults::load()?;
    defaults.user.clone_from(&reach.user);
    defaults.private_key.clone_from(&reach.private_key);
    defaults.host_key_checking = reach.host_key_checking.map(Into::into);
    if reach.ask_pass {
        defaults.password = Some(Password::typed(Secret::new(prompt("SSH password: ", LOGIN)?)));
    }
    if reach.ask_become_pass {
        let default = if defaults.password.is_some() { " (empty: the SSH password)" } else { "" };
        let typed = prompt(&format!("sudo password{default}: "), LOGIN)?;
        defaults.become_password = match &defaults.password {
            Some(login) if typed.is_empty() => Some(login.clone()),
            _ => Some(Password::typed(Secret::new(typed))),
        };
    }
    Ok(defaults)
}

/// What to do where nobody can be asked for a password of a connection.
const LOGIN: &str = "ansible_password or ansible_become_password in the inventory";

fn prompt(text: &str, instead: &str) -> Result<String, Errors> {
    rpassword::prompt_password(text).map_err(|e| {
        Error::usage(format!("can't ask for a password: {e}")).hint(format!("without a terminal, use {instead}")).into()
    })
}

/// Ends the outputs of a run. One that couldn't be written is a failure of the run, not an error before it: hosts may
/// have been changed.
fn close(reporters: Reporters, code: u8, args: &Hosts) -> u8 {
    match reporters.finish() {
        Ok(()) => code,
        Err(errors) => {
            report::errors(&errors, args.color(), &args.secrets);
            if code == 0 { 2 } else { code }
        }
    }
}

/// How a host is reached.
fn target(name: &str, variables: &Variables, defaults: &Defaults) -> Result<Target, Errors> {
    let lookup = |name: &str| look(variables, name);
    Ok(Target::from_variables(name, &lookup, defaults)?)
}

/// A variable of the connection, rendered.
fn look(variables: &Variables, name: &str) -> Result<Option<Node>, Error> {
    variables.get(name).map_err(|errors| errors.0.into_iter().next().unwrap_or_else(|| Error::usage("unknown error")))
}

/// Asks for the passphrases of keys that may be needed, each once. Without a terminal nobody can be asked, and a host
/// that takes no other key says so.
fn unlock<'t>(targets: impl IntoIterator<Item = &'t Target>, args: &Hosts) -> Keyring {
    const TRIES: usize = 3;
    let keyring = Keyring::default();
    for path in keyring.wanted(targets) {
        for _ in 0..TRIES {
            let Ok(typed) = rpassword::prompt_password(format!("Passphrase of {}: ", path.display())) else {
                return keyring;
            };
            if typed.is_empty() {
                break;
            }
            match keyring.unlock(&path, Secret::new(typed)) {
                Ok(true) => break,
                Ok(false) => report::warning("that isn't its passphrase", args.color(), &args.secrets),
                Err(why) => {
                    report::warning(&format!("{} {why}", path.display()), args.color(), &args.secrets);
                    break;
                }
            }
        }
    }
    keyring
}

/// The transports of a run.
fn carriers(keyring: Keyring) -> Carriers {
    Carriers::new(transport::Limits::default(), keyring, this_program())
}

/// What all visits share.
fn shared(reach: &Reach, defaults: &Defaults, transport: Carriers, show_scripts: bool) -> Result<Shared, Errors> {
    let (interrupted, cut) = catch_signals().map_err(|e| Error::usage(format!("can't catch signals: {e}")))?;
    allow_open_files();
    let run = run_id();
    let execution = Duration::from_secs(reach.timeout.into());
    Ok(Shared {
        transport: Box::new(transport),
        gate: Gate::new(HANDSHAKES),
        limits: Limits { execution, ..Limits::default() },
        folders: Folders::default(),
        holder: format!("run {run} of {}", whence(defaults)),
        whence: crate::engine::boot::whence(&whence(defaults)),
        run,
        show_scripts,
        interrupted,
        cut,
    })
}

/// This program, as others run it: by its process, so that it is the same one after an update as well.
fn this_program() -> PathBuf {
    let exe = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    if exe.exists() { exe } else { std::env::current_exe().unwrap_or(exe) }
}

/// As many open files as this process may have: a connection takes some, and the usual 1,024 are too few for a thousand
/// at once.
fn allow_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it can't be raised, hosts fail that come too late, and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The first signal sets one flag, by which running steps finish; the second sets the other, by which nothing is waited
/// for; a third ends the program on the spot.
fn catch_signals() -> std::io::Result<(Arc<AtomicBool>, Arc<AtomicBool>)> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flags = [Arc::<AtomicBool>::default(), Arc::default()];
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flags[1].clone())?;
    }
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let [interrupted, cut] = flags.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for (flag, _) in flags.iter().zip(signals.forever()) {
            flag.store(true, Ordering::Relaxed);
        }
    })?;
    Ok((interrupted, cut))
}

/// A run's id: the time it began, by which the logs of runs are ordered, and a few random digits that keep two of one
/// moment apart.
fn run_id() -> Arc<str> {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ").to_string();
    let mut random = [0; 2];
    // Without them two runs of one moment share an id, which only names them.
    let _ = getrandom::fill(&mut random);
    format!("{now}-{:02x}{:02x}", random[0], random[1]).into()
}

/// `user@machine` of this process, for others that wait for the lock.
fn whence(defaults: &Defaults) -> String {
    let user = defaults.local_user();
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean = |text: &str| text.trim().replace(|c: char| c.is_control(), "");
    format!("{}@{}", clean(&user), clean(&machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_told_by_the_user_database() {
        let name = std::process::Command::new("id").arg("-un").output().unwrap();
        let name = String::from_utf8(name.stdout).unwrap();
        assert!(whence(&Defaults::load().unwrap()).starts_with(&format!("{}@", name.trim())));
    }
}
