//! The least that any program can need for a visit to each host: connect, log in, run one script,
//! read its output.
//!
//! ```text
//! floor --hosts FILE --key FILE --script FILE [--user NAME] [--known-hosts FILE] [--threads N]
//! ```
//!
//! `FILE` of `--hosts` has an address a line; with `--known-hosts` each host's key is compared with
//! what that file has for its address. The script goes to `/bin/sh -s` in one execution. What is
//! measured is the wall time from before the first connection to after the last answer; netplay's
//! converged run is compared with it (see `docs/lab.md`).

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Parser;
use ssh2::{HostKeyType, MethodType, Session};

const DEADLINE: Duration = Duration::from_secs(30);

/// Runs one script on each host over bare libssh2.
#[derive(Parser)]
struct Arguments {
    /// File with one address a line
    #[arg(long)]
    hosts: PathBuf,
    /// Private key, without a passphrase
    #[arg(long)]
    key: PathBuf,
    /// The script that each host runs
    #[arg(long)]
    script: PathBuf,
    /// Who logs in
    #[arg(long, default_value = "root")]
    user: String,
    /// File in OpenSSH's form; without it host keys aren't checked
    #[arg(long)]
    known_hosts: Option<PathBuf>,
    /// Connections at a time
    #[arg(long, default_value_t = 32)]
    threads: usize,
}

/// What all visits share.
struct Job {
    user: String,
    key: String,
    script: Vec<u8>,
    /// Base64 of the Ed25519 key of each address; `None` where keys aren't checked.
    host_keys: Option<HashMap<String, String>>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let hosts = std::fs::read_to_string(&arguments.hosts)?;
    let hosts: Vec<Ipv4Addr> = hosts.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let job = Job {
        user: arguments.user.clone(),
        key: std::fs::read_to_string(&arguments.key)?,
        script: std::fs::read(&arguments.script)?,
        host_keys: arguments
            .known_hosts
            .as_deref()
            .map(std::fs::read_to_string)
            .transpose()?
            .map(|text| host_keys(&text)),
    };
    let start = Instant::now();
    let (ok, bytes) = visit_all(&hosts, &job, arguments.threads);
    let seconds = start.elapsed().as_secs_f64();
    println!("seconds {seconds:.3} hosts {} ok {ok} bytes {bytes}", hosts.len());
    Ok(ok == hosts.len())
}

/// The Ed25519 keys of a known_hosts file by host.
fn host_keys(text: &str) -> HashMap<String, String> {
    let mut keys = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(names), Some("ssh-ed25519"), Some(key)) = (words.next(), words.next(), words.next()) {
            keys.extend(names.split(',').map(|name| (name.to_owned(), key.to_owned())));
        }
    }
    keys
}

/// Visits each host once; returns how many answered well, and how many bytes they said.
fn visit_all(hosts: &[Ipv4Addr], job: &Job, threads: usize) -> (usize, usize) {
    let waiting = Mutex::new(hosts.iter());
    let next = || waiting.lock().ok().and_then(|mut left| left.next());
    let work = || {
        let mut done = (0, 0);
        while let Some(host) = next() {
            match visit(*host, job) {
                Ok(bytes) => done = (done.0 + 1, done.1 + bytes),
                Err(error) => eprintln!("{host}: {error}"),
            }
        }
        done
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(hosts.len())).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    })
}

/// One connection and one execution; returns the length of the output.
fn visit(host: Ipv4Addr, job: &Job) -> Result<usize, Box<dyn Error>> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((host, 22)), DEADLINE)?;
    stream.set_nodelay(true)?;
    let mut session = Session::new()?;
    session.set_timeout(DEADLINE.as_millis().try_into()?);
    session.set_tcp_stream(stream);
    session.method_pref(MethodType::Kex, "curve25519-sha256")?;
    session.method_pref(MethodType::HostKey, "ssh-ed25519")?;
    session.handshake()?;
    if let Some(known) = &job.host_keys {
        let (key, kind) = session.host_key().ok_or("no host key")?;
        let wanted = known.get(&host.to_string()).ok_or("unknown host key")?;
        if !matches!(kind, HostKeyType::Ed25519) || base64(key) != *wanted {
            return Err("changed host key".into());
        }
    }
    session.userauth_pubkey_memory(&job.user, None, &job.key, None)?;
    let mut channel = session.channel_session()?;
    channel.exec("exec /bin/sh -s")?;
    channel.write_all(&job.script)?;
    channel.send_eof()?;
    let mut output = Vec::new();
    channel.read_to_end(&mut output)?;
    channel.wait_close()?;
    match channel.exit_status()? {
        0 => Ok(output.len()),
        status => Err(format!("the script ended with {status}").into()),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | usize::from(*group.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * i) & 63]);
            text.push(if i <= group.len() { digit } else { '=' });
        }
    }
    text
}
