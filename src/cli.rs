//! The command line: its options and nothing else.

mod settings;

use crate::commands;
use crate::error::{Error, Errors};
use crate::playbook::endless;
use crate::report::{ColorChoice, Output, Verbosity, errors, print};
use crate::secret::Secrets;
use crate::transport::{HostKeyChecking, askpass};
use crate::verify::Pairs;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The stack of the thread that carries out a command, in bytes: what Linux gives a main thread.
const COMMAND_STACK: usize = 8 << 20;

/// Declarative, agentless configuration of the network of AI and HPC clusters.
#[derive(Debug, Parser)]
#[command(name = "netplay", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the hosts to the state that the playbooks describe
    ///
    /// Exit codes: 0 done, or nothing to do; 1 an error of the command line, the inventory or a playbook, and nothing
    /// was touched; 2 a host failed; 4 a host was unreachable; 6 both; 3 with --detailed-exitcode, changes or a reboot
    /// are pending; 130 interrupted.
    Apply(Apply),
    /// Check inventory and playbooks, all that can be known without a host
    Validate(Plays),
    /// Print the graph of a host's resources, for Graphviz
    Graph(Graph),
    /// Print the inventory as it is understood
    Inventory(Inventory),
    /// Print what is to be known of the hosts
    Facts(Facts),
    /// Run a command on the hosts, identical output folded
    Run(Run),
    /// Boot hosts, a few at a time, drained and proven, whatever the playbooks need
    Reboot(Reboot),
    /// Prove the fabric between the hosts: ports, path MTU, as a suite says
    ///
    /// Exit codes: 0 all is as it should be; 1 an error of the command line, the inventory or a suite; 2 a check failed;
    /// 4 a host was unreachable; 6 both; 130 interrupted.
    Verify(Verify),
    /// Compare the hosts: which of them have another MTU, firmware, driver, kernel parameter than the others of their kind
    ///
    /// Exit codes: 0 nothing differs; 1 an error of the command line or the inventory; 2 something differs; 4 a host was
    /// unreachable; 6 both; 130 interrupted.
    Audit(Audit),
    /// Print what is open on the hosts: boots under way, settings that wait for one, handlers that are owed
    Status(Facts),
    /// Print what a type of resource takes, or the types there are, as Markdown
    Docs(Docs),
    /// Print what completes this program's command lines in a shell
    Completions(Completions),
    /// Write the man pages, one for each subcommand
    Man(Man),
}

/// Where the hosts are.
#[derive(Debug, Clone, Args)]
pub struct Hosts {
    /// Inventory: a file, a folder, a program that answers --list, or a list with a comma in it (`n1,`); repeatable
    #[arg(short, long = "inventory", value_name = "INV", required = true, value_hint = ValueHint::AnyPath)]
    pub inventory: Vec<String>,
    /// Only these hosts: names, globs, groups, `a:&b`, `a:!b`, hostlists, `@failed` of the last run
    #[arg(short, long, value_name = "PATTERN")]
    pub limit: Option<String>,
    /// Set a variable; repeatable: `key=value`, `@file`, or a JSON mapping
    #[arg(short, long = "extra-vars", value_name = "K=V")]
    pub extra_vars: Vec<String>,
    /// A file that holds a vault password, or a program that prints it; repeatable
    #[arg(long, alias = "vault-pass-file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub vault_password_file: Vec<String>,
    /// A vault password with a label: `LABEL@FILE`, `LABEL@PROGRAM`, `LABEL@prompt`; repeatable
    #[arg(long, value_name = "LABEL@SOURCE")]
    pub vault_id: Vec<String>,
    /// Ask for the vault password
    #[arg(short = 'J', long, alias = "ask-vault-password", conflicts_with = "vault_password_file")]
    pub ask_vault_pass: bool,
    /// What comes out of the vault, to be kept out of all output.
    #[arg(skip)]
    pub secrets: Secrets,
    /// How much is told: -v also what was left out, -vv also the scripts that run
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
    /// Tell only what failed
    #[arg(short, long)]
    quiet: bool,
    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

/// How hosts are reached.
#[derive(Debug, Args)]
pub struct Reach {
    /// How many hosts are visited at once
    #[arg(short, long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub forks: u16,
    /// Seconds that an execution on a host may take, beside the `timeout` of its resources
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub timeout: u32,
    /// Login name, unless the inventory has one
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Private key, unless the inventory has one
    #[arg(long, value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// Ask for the login password
    #[arg(short = 'k', long)]
    pub ask_pass: bool,
    /// Ask for sudo's password
    #[arg(short = 'K', long)]
    pub ask_become_pass: bool,
    /// How host keys are checked, whatever the inventory and ssh_config say
    #[arg(long, value_name = "HOW")]
    pub host_key_checking: Option<KeyChecking>,
    /// Where events go: human, ndjson, json, junit; repeatable, each with =FILE for a file
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub output: Vec<String>,
}

/// Hosts and playbooks.
#[derive(Debug, Args)]
pub struct Plays {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// Playbooks, done in this order
    #[arg(required = true, value_name = "PLAYBOOK")]
    pub playbooks: Vec<PathBuf>,
    /// Only resources with one of these tags
    #[arg(short, long, value_name = "TAGS", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// All but resources with one of these tags
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub skip_tags: Vec<String>,
}

/// `apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// Hosts and playbooks.
    #[command(flatten)]
    pub plays: Plays,
    /// How hosts are reached.
    #[command(flatten)]
    pub reach: Reach,
    /// Change nothing, tell what would change
    #[arg(short = 'C', long)]
    pub check: bool,
    /// Show how files would change, or change
    #[arg(short = 'D', long)]
    pub diff: bool,
    /// Carry it out in the root folder of an image (`/`: this machine, while it is installed or built): only what
    /// lasts is looked at and done; hosts must have `ansible_connection: local`
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Whether hosts are booted where something takes effect only then: `needed` also where a play has no `reboot`,
    /// `never` not even where it has
    #[arg(long, value_name = "WHEN")]
    pub reboot: Option<When>,
    /// Exit with 3 when changes are pending (with --check), or a reboot
    #[arg(long)]
    pub detailed_exitcode: bool,
}

/// `--reboot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Where something needs it
    Needed,
    /// Not at all
    Never,
}

/// `graph`.
#[derive(Debug, Args)]
pub struct Graph {
    /// Hosts and playbooks.
    #[command(flatten)]
    pub plays: Plays,
    /// Whose graph; the first host's of each play if it isn't given
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
}

/// `inventory`.
#[derive(Debug, Args)]
pub struct Inventory {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// As JSON, as `ansible-inventory --list` prints it (the default)
    #[arg(long, group = "what")]
    pub list: bool,
    /// The groups as a tree
    #[arg(long, group = "what")]
    pub graph: bool,
    /// The variables of one host
    #[arg(long, value_name = "HOST", group = "what")]
    pub host: Option<String>,
}

/// `facts`.
#[derive(Debug, Args)]
pub struct Facts {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// How they are reached.
    #[command(flatten)]
    pub reach: Reach,
}

/// `reboot`.
#[derive(Debug, Args)]
pub struct Reboot {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// How they are reached.
    #[command(flatten)]
    pub reach: Reach,
    /// Why, as it is told, noted on the hosts and given to the scheduler
    #[arg(long, value_name = "TEXT", required = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub reason: String,
    /// A key of a play's `reboot`, such as `max_unavailable=5%`, `drain=slurm`, `drain_on=head1`; repeatable
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Boot nothing, tell which hosts would be booted, in which order, and how long it takes at most
    #[arg(short = 'C', long)]
    pub check: bool,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// How they are reached.
    #[command(flatten)]
    pub reach: Reach,
    /// Suites: lists of plays with `checks`; without one, ports, path_mtu and audit of all hosts
    #[arg(value_name = "SUITE", id = "playbooks")]
    pub suites: Vec<PathBuf>,
    /// Who is tested with whom: `quick` (each host with one other), `ring` (with both neighbours), `full` (with all),
    /// `sample:N` (with N others, chosen anew each run)
    #[arg(long, value_name = "PAIRS", default_value = "quick")]
    pub pairs: Pairs,
    /// What becomes of hosts that work for somebody (jobs of Slurm, processes on GPUs) in checks that take the network for
    /// themselves: they are left out by name, or tested all the same
    #[arg(long, value_name = "HOW", default_value = "skip")]
    pub on_busy: OnBusy,
    /// Tell what got worse than in earlier runs by more than it has varied: `last`, those of these suites with this inventory in
    /// which nothing was wrong; or a file that `--output ndjson=FILE` wrote
    #[arg(long, value_name = "last|FILE")]
    pub compare: Option<PathBuf>,
}

/// `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// How they are reached.
    #[command(flatten)]
    pub reach: Reach,
    /// Ask as root, by sudo: parameters of cards are told to nobody else
    #[arg(short, long = "become")]
    pub become_: bool,
}

/// `--on-busy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnBusy {
    /// They are left out
    Skip,
    /// They are tested
    Run,
}

/// `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Where the hosts are.
    #[command(flatten)]
    pub hosts: Hosts,
    /// How they are reached.
    #[command(flatten)]
    pub reach: Reach,
    /// Run it as root, by sudo
    #[arg(short, long = "become")]
    pub become_: bool,
    /// The command: one word is run by sh, several are a command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// `docs`.
#[derive(Debug, Args)]
pub struct Docs {
    /// The type, or `findings` for what `verify` and `audit` can find; without one, all types and the keys that every resource has
    #[arg(value_name = "TYPE")]
    pub kind: Option<String>,
}

/// `completions`.
#[derive(Debug, Args)]
struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, Args)]
struct Man {
    /// The folder, which must be there, such as /usr/local/share/man/man1
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// `--color`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// `--host-key-checking`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KeyChecking {
    /// Only hosts whose key is in known_hosts
    Yes,
    /// The keys of unknown hosts are stored, changed ones refused
    AcceptNew,
    /// Any key is taken
    No,
}

impl From<KeyChecking> for HostKeyChecking {
    fn from(how: KeyChecking) -> HostKeyChecking {
        match how {
            KeyChecking::Yes => HostKeyChecking::Yes,
            KeyChecking::AcceptNew => HostKeyChecking::AcceptNew,
            KeyChecking::No => HostKeyChecking::No,
        }
    }
}

impl Plays {
    /// No playbooks, for these hosts.
    pub fn of_hosts(hosts: Hosts) -> Plays {
        Plays { hosts, playbooks: Vec::new(), tags: Vec::new(), skip_tags: Vec::new() }
    }
}

impl Hosts {
    /// Colours.
    pub fn color(&self) -> ColorChoice {
        match self.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        }
    }

    /// How much is told.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, 0) => Verbosity::Normal,
            (_, 1) => Verbosity::Verbose,
            _ => Verbosity::Scripts,
        }
    }
}

impl Reach {
    /// The outputs.
    ///
    /// # Errors
    /// A format that isn't there.
    pub fn outputs(&self) -> Result<Vec<Output>, Error> {
        self.output.iter().map(|o| o.parse()).collect()
    }
}

/// Runs the program.
pub fn main(argv: impl IntoIterator<Item = OsString>) -> ExitCode {
    let argv: Vec<OsString> = argv.into_iter().collect();
    if let Some(code) = askpass(argv.get(1).map(OsString::as_os_str)) {
        return code;
    }
    let command = match settings::lay_under(Cli::command(), &argv, |name| std::env::var_os(name)) {
        Ok(command) => command,
        Err(found) => {
            errors(&found, ColorChoice::Auto, &Secrets::default());
            return ExitCode::from(1);
        }
    };
    let cli = match command.try_get_matches_from(&argv).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(found) = of_ansible(&error) {
                errors(&found.into(), ColorChoice::Auto, &Secrets::default());
                return ExitCode::from(1);
            }
            // `--help` and `--version` are no errors; a reader that has gone away is none either.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    let hosts = match &cli.command {
        Command::Apply(Apply { plays, .. }) | Command::Validate(plays) | Command::Graph(Graph { plays, .. }) => {
            Some(&plays.hosts)
        }
        Command::Inventory(args) => Some(&args.hosts),
        Command::Facts(args) => Some(&args.hosts),
        Command::Run(args) => Some(&args.hosts),
        Command::Reboot(args) => Some(&args.hosts),
        Command::Verify(args) => Some(&args.hosts),
        Command::Audit(args) => Some(&args.hosts),
        Command::Status(args) => Some(&args.hosts),
        Command::Docs(_) | Command::Completions(_) | Command::Man(_) => None,
    };
    let (color, secrets) = hosts.map_or_else(Default::default, |h| (h.color(), h.secrets.clone()));
    let failed = |found: &Errors, code: u8| {
        errors(found, color, &secrets);
        ExitCode::from(code)
    };
    let (done, result) = mpsc::channel();
    let command = move || done.send(run(&cli.command, &argv));
    if let Err(e) = std::thread::Builder::new().name("command".into()).stack_size(COMMAND_STACK).spawn(command) {
        return failed(&Error::usage(format!("can't start a thread: {e}")).into(), 1);
    }
    // A template that has no end can only be ended with the process, whatever other threads do.
    loop {
        match result.recv_timeout(Duration::from_secs(1)) {
            Ok(Ok(code)) => return ExitCode::from(code),
            Ok(Err(found)) => return failed(&found, 1),
            // It has panicked and said so.
            Err(RecvTimeoutError::Disconnected) => return ExitCode::from(101),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((error, running)) = endless() {
                    return failed(&error.into(), if running { 2 } else { 1 });
                }
            }
        }
    }
}

fn run(command: &Command, argv: &[OsString]) -> Result<u8, Errors> {
    match command {
        Command::Apply(args) => commands::apply::run(args, argv),
        Command::Validate(args) => commands::validate::run(args),
        Command::Graph(args) => commands::graph::run(args),
        Command::Inventory(args) => commands::inventory::run(args),
        Command::Facts(args) => commands::facts::run(args, argv),
        Command::Run(args) => commands::run::run(args, argv),
        Command::Reboot(args) => commands::reboot::run(args, argv),
        Command::Verify(args) => commands::verify::run(args, argv),
        Command::Audit(args) => commands::verify::audit(args, argv),
        Command::Status(args) => commands::status::run(args, argv),
        Command::Docs(args) => commands::docs::run(args),
        Command::Completions(args) => completions(args),
        Command::Man(args) => man(args),
    }
}

fn completions(args: &Completions) -> Result<u8, Errors> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "netplay", &mut text);
    print(&String::from_utf8_lossy(&text), &Secrets::default())?;
    Ok(0)
}

fn man(args: &Man) -> Result<u8, Errors> {
    let failed = |e| Error::usage(format!("can't write man pages to {}: {e}", args.folder.display()));
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(failed)?;
    Ok(0)
}

/// An option of Ansible's that there isn't, with what to do instead.
fn of_ansible(error: &clap::Error) -> Option<Error> {
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let remedy = match option.as_str() {
        "-b" | "--become" => "write `become: true` in the play, or use -e ansible_become=true",
        "--become-user" => "write `become_user` in the play, or use -e ansible_become_user=NAME",
        "--become-method" => "leave it out: `become` is by sudo",
        "--become-password-file" | "--become-pass-file" => {
            "set ansible_become_password in a file and use -e @FILE, or let -K ask for it"
        }
        "--connection-password-file" | "--conn-pass-file" => {
            "set ansible_password in a file and use -e @FILE, or let -k ask for it"
        }
        "-c" | "--connection" => "use -e ansible_connection=NAME: ssh or local",
        "--ssh-common-args" | "--ssh-extra-args" => "use -e ansible_ssh_common_args='…', or ~/.ssh/config",
        "--scp-extra-args" | "--sftp-extra-args" => "leave it out: files go through the session that is there",
        "--key-file" => "it is called --private-key here",
        "-T" => "use --timeout for an execution; ansible_timeout is the limit to connect",
        "--syntax-check" => "use `netplay validate`, which checks more than the syntax",
        "--list-hosts" => "use `netplay inventory --graph`; --check tells of each play's hosts",
        "--list-tasks" | "--list-tags" => "use `netplay graph`, or --check",
        "--step" => "use --check first; `serial: 1` in the play does one host after the other",
        "--start-at-task" => "leave it out: what is as wanted is left alone; --tags narrows a run",
        "--force-handlers" => "leave it out: handlers run also when other resources failed",
        "--flush-cache" => "leave it out: facts aren't kept",
        "-M" | "--module-path" | "--playbook-dir" => "leave it out: types are built in",
        "-m" | "--module-name" | "-a" | "--args" => "write the command behind --: `netplay run -i INV -- CMD`",
        _ => return None,
    };
    Some(Error::usage(format!("there is no option `{option}` here")).hint(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_ansible_have_a_remedy() {
        for (line, remedy) in [
            ("apply -b -i x p", "use -e ansible_become=true"),
            ("apply -Kb -i x p", "use -e ansible_become=true"),
            ("apply --become-user=root -i x p", "-e ansible_become_user=NAME"),
            ("apply -i x p --syntax-check", "netplay validate"),
            ("apply -i x p --list-hosts", "netplay inventory --graph"),
            ("apply -i x p --step", "serial: 1"),
            ("run -i x -m shell -a id", "netplay run -i INV -- CMD"),
        ] {
            let error = Cli::try_parse_from(["netplay"].into_iter().chain(line.split(' '))).unwrap_err();
            let told = of_ansible(&error).unwrap_or_else(|| panic!("{line}: {error}")).to_string();
            assert!(told.contains(remedy), "{line}: {told}");
        }
        let error = Cli::try_parse_from(["netplay", "apply", "-i", "x", "p", "--chek"]).unwrap_err();
        assert!(of_ansible(&error).is_none());
        assert!(Cli::try_parse_from(["netplay", "run", "-i", "x", "-b", "--private-key", "k", "--", "id"]).is_ok());
    }
}
