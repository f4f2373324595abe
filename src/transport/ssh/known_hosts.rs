//! known_hosts files (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"): which keys are known of a host, and where.

use super::super::refusal::known_as;
use super::super::{Failure, FailureKind, HostKeyChecking, Target};
use crate::source;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The signature algorithms by which a host key of each type is asked for, the better types first.
const ALGORITHMS: [(&str, &str); 5] = [
    ("ssh-ed25519", "ssh-ed25519"),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"),
    ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"),
    ("ecdsa-sha2-nistp521", "ecdsa-sha2-nistp521"),
    ("ssh-rsa", "rsa-sha2-512,rsa-sha2-256,ssh-rsa"),
];

/// All known_hosts files of a run. Each is read once.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    files: Mutex<HashMap<PathBuf, Arc<File>>>,
    /// Held while a new key is looked up again and appended.
    appending: Mutex<()>,
}

#[derive(Debug, Default, Clone)]
struct File {
    entries: Vec<Arc<Entry>>,
    /// Entries by each plain name in them, lower case.
    plain: HashMap<String, Vec<usize>>,
    /// Entries whose names are patterns or hashed, which have to be compared one by one.
    other: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Entry {
    line: usize,
    marker: Marker,
    names: String,
    kind: String,
    key: String,
}

/// What stands before an entry's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// Nothing: it is the host's own key.
    None,
    /// `@revoked`.
    Revoked,
    /// `@cert-authority`: the key signs those of hosts. libssh2 knows no certificates.
    Authority,
}

/// An entry that matches a host: its file and itself.
pub(super) type Found = (PathBuf, Arc<Entry>);

impl KnownHosts {
    /// Judges the key that a host showed, by what [`KnownHosts::find`] found; stores it where that is wished.
    pub(super) fn check(&self, target: &Target, key: &[u8], known: &[Found]) -> Result<(), Failure> {
        let shown = STANDARD.encode(key);
        if judge(target, key, &shown, known)? {
            return Ok(());
        }
        let _alone = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        // Another visit may have stored a key for the same name meanwhile.
        if judge(target, key, &shown, &self.find(target)?)? { Ok(()) } else { self.append(target, key, &shown) }
    }

    /// The entries for a target, in the order of the files.
    pub(super) fn find(&self, target: &Target) -> Result<Vec<Found>, Failure> {
        let mut found = Vec::new();
        let name = known_as(target);
        for path in &target.known_hosts {
            let file = match self.file(path) {
                Err(_) if target.host_key_checking == HostKeyChecking::No => continue,
                file => file?,
            };
            found.extend(file.find(&name).map(|e| (path.clone(), e)));
        }
        // As OpenSSH: a key that is stored without the port is good for each port.
        let is_known = found.iter().any(|(_, e)| e.marker == Marker::None);
        if !is_known && target.host_key_alias.is_none() && target.port != 22 {
            found.extend(self.find(&Target { host_key_alias: Some(target.address.clone()), ..target.clone() })?);
        }
        Ok(found)
    }

    fn file(&self, path: &Path) -> Result<Arc<File>, Failure> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path) {
            return Ok(file.clone());
        }
        let text = match source::read(path, source::MAX_TEXT) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                String::new()
            }
            Err(e) => {
                return Err(Failure::new(FailureKind::HostKey, format!("{} can't be read: {e}", path.display())));
            }
        };
        let file = Arc::new(File::parse(&text));
        files.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    fn append(&self, target: &Target, key: &[u8], shown: &str) -> Result<(), Failure> {
        let Some(path) = target.known_hosts.first() else { return Ok(()) };
        let line = format!("{} {} {shown}\n", known_as(target), key_kind(key));
        let write = || -> std::io::Result<()> {
            if let Some(folder) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
            // A last line without its end is closed first; all in one write, as other programs append as well.
            let mut last = [b'\n'];
            if file.seek(SeekFrom::End(-1)).is_ok() {
                file.read_exact(&mut last)?;
            }
            let start = if last == [b'\n'] { "" } else { "\n" };
            file.write_all(format!("{start}{line}").as_bytes())
        };
        write().map_err(|e| {
            Failure::new(FailureKind::HostKey, format!("the new host key can't be stored in {}: {e}", path.display()))
                .hint("name another file by UserKnownHostsFile, or use --host-key-checking no")
        })?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let file = files.entry(path.clone()).or_default();
        let number = file.entries.last().map_or(1, |e| e.line + 1);
        Arc::make_mut(file).add(&line, number);
        Ok(())
    }
}

/// The host key algorithms to ask for, those of known keys first: otherwise a host of which one type is known would
/// show another one, and look changed.
pub(super) fn algorithms(known: &[Found]) -> String {
    let is_known = |kind: &str| known.iter().any(|(_, e)| e.marker == Marker::None && e.kind == kind);
    let (mut order, rest): (Vec<_>, Vec<_>) = ALGORITHMS.iter().partition(|(kind, _)| is_known(kind));
    order.extend(rest);
    order.iter().map(|(_, algorithms)| *algorithms).collect::<Vec<_>>().join(",")
}

/// True if the key is to be taken, false if it is to be stored first.
fn judge(target: &Target, key: &[u8], shown: &str, known: &[Found]) -> Result<bool, Failure> {
    let kind = key_kind(key);
    let print = fingerprint(key);
    if let Some((path, entry)) = known.iter().find(|(_, e)| e.marker == Marker::Revoked && e.key == shown) {
        return Err(Failure::revoked_key(&format!("{}:{}", path.display(), entry.line)));
    }
    if target.host_key_checking == HostKeyChecking::No {
        return Ok(true);
    }
    let authority = known.iter().find(|(_, e)| e.marker == Marker::Authority);
    let mut known = known.iter().filter(|(_, e)| e.marker == Marker::None).peekable();
    let Some((first_path, first)) = known.peek().map(|(p, e)| (p, e.clone())) else {
        return match target.host_key_checking {
            HostKeyChecking::AcceptNew => Ok(false),
            _ => {
                let unknown = Failure::unknown_key(target, &kind, &print);
                Err(authority.map_or_else(|| unknown.clone(), |(path, entry)| unchecked(&unknown, path, entry)))
            }
        };
    };
    if known.any(|(_, e)| e.key == shown) {
        return Ok(true);
    }
    let old = STANDARD.decode(&first.key).map_or_else(|_| "an unreadable key".into(), |k| fingerprint(&k));
    let old = format!("{} {old}", first.kind);
    Err(Failure::changed_key(target, &format!("{kind} {print}"), first_path, first.line, &old))
}

/// The failure of a host that is known by who signs its key, out of that of one that isn't known.
fn unchecked(unknown: &Failure, path: &Path, entry: &Entry) -> Failure {
    let (message, path, line) = (&unknown.message, path.display(), entry.line);
    let by = "vouches for it by a certificate (@cert-authority), which the transport ssh2 can't check";
    Failure::new(FailureKind::HostKey, format!("{message}; {path}:{line} {by}"))
        .hint("set netplay_transport: openssh for this host, or add its bare key to known_hosts")
}

impl File {
    fn parse(text: &str) -> File {
        let mut file = File::default();
        for (i, line) in text.lines().enumerate() {
            file.add(line, i + 1);
        }
        file
    }

    fn add(&mut self, line: &str, number: usize) {
        let mut words = line.split_whitespace();
        let mut first = words.next().unwrap_or_default();
        let marker = match first {
            "@revoked" => Marker::Revoked,
            "@cert-authority" => Marker::Authority,
            _ => Marker::None,
        };
        if marker != Marker::None {
            first = words.next().unwrap_or_default();
        }
        if first.is_empty() || first.starts_with(['#', '@']) {
            return;
        }
        let (Some(kind), Some(key)) = (words.next(), words.next()) else { return };
        let index = self.entries.len();
        let names = first.to_lowercase();
        if first.contains(['|', '*', '?', '!']) {
            self.other.push(index);
        } else {
            for name in names.split(',') {
                self.plain.entry(name.to_owned()).or_default().push(index);
            }
        }
        // The base64 of a hash is case-sensitive.
        let names = if first.starts_with('|') { first.to_owned() } else { names };
        self.entries.push(Arc::new(Entry { line: number, marker, names, kind: kind.to_owned(), key: key.to_owned() }));
    }

    fn find(&self, name: &str) -> impl Iterator<Item = Arc<Entry>> {
        let other = self.other.iter().copied().filter(|i| self.entries[*i].matches(name));
        let mut found: Vec<usize> = self.plain.get(name).into_iter().flatten().copied().chain(other).collect();
        found.sort_unstable();
        found.into_iter().map(|i| self.entries[i].clone())
    }
}

impl Entry {
    /// Whether an entry with patterns or a hash is for this name.
    fn matches(&self, name: &str) -> bool {
        if let Some(hashed) = self.names.strip_prefix("|1|") {
            let Some((salt, hash)) = hashed.split_once('|') else { return false };
            let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else { return false };
            let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(&salt) else { return false };
            mac.update(name.as_bytes());
            return mac.verify_slice(&hash).is_ok();
        }
        super::super::ssh_config::matches_list(self.names.split(','), name)
    }
}

/// The type of a key: the first string of its blob (RFC 4253, 6.6).
fn key_kind(key: &[u8]) -> String {
    let text = key.get(..4).and_then(|len| {
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
        key.get(4..4 + len as usize)
    });
    text.map_or_else(|| "a key of unknown type".into(), |t| String::from_utf8_lossy(t).into_owned())
}

/// A fingerprint as OpenSSH shows it.
fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A key blob of a type.
    fn key(kind: &str, rest: &str) -> Vec<u8> {
        [&u32::try_from(kind.len()).unwrap().to_be_bytes(), kind.as_bytes(), rest.as_bytes()].concat()
    }

    fn check(known: &KnownHosts, target: &Target, key: &[u8]) -> Result<(), Failure> {
        known.check(target, key, &known.find(target)?)
    }

    fn entry(kind: &str, rest: &str) -> String {
        format!("{kind} {}", STANDARD.encode(key(kind, rest)))
    }

    fn target(address: &str, path: &Path) -> Target {
        Target { known_hosts: vec![path.to_owned()], ..Target::for_tests(address) }
    }

    /// A file with a line for each case; the hashed one is what `ssh-keygen -H` makes of `hashed.example`.
    fn file(folder: &Path) -> PathBuf {
        let path = folder.join("known_hosts");
        let ed = |rest| entry("ssh-ed25519", rest);
        let text = format!(
            "# comment\n\nplain,10.0.0.1,UPPER {}\n[ported]:2222 {}\n*.wild.example,!not.wild.example {}\n\
             |1|nxR2g8p055ylyCx/SIU9SAtSnKc=|BjX7VCS6IasFxVNHoecPAOUhI5k= {}\n@revoked plain {}\n\
             @cert-authority * {}\nbroken line\nplain {}\nwithout-port {}\n",
            ed("plain"),
            ed("ported"),
            ed("wild"),
            ed("hashed"),
            ed("revoked"),
            ed("authority"),
            entry("ssh-rsa", "plain"),
            ed("without"),
        );
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn names_are_found_in_each_form() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let known = KnownHosts::default();
        let verdict = |address: &str, port: u16, rest: &str| {
            check(&known, &Target { port, ..target(address, &path) }, &key("ssh-ed25519", rest)).map_err(|f| f.message)
        };
        for (address, port, rest) in [
            ("plain", 22, "plain"),
            ("Plain", 22, "plain"),
            ("upper", 22, "plain"),
            ("10.0.0.1", 22, "plain"),
            ("ported", 2222, "ported"),
            ("a.wild.example", 22, "wild"),
            ("hashed.example", 22, "hashed"),
            ("without-port", 2022, "without"),
        ] {
            assert_eq!(verdict(address, port, rest), Ok(()), "{address}");
        }
        for (address, port, rest) in [
            ("ported", 22, "ported"),
            ("not.wild.example", 22, "wild"),
            ("other", 22, "authority"),
            ("broken", 22, "x"),
        ] {
            assert!(verdict(address, port, rest).unwrap_err().contains("isn't in known_hosts"), "{address}");
        }
    }

    #[test]
    fn the_way_to_add_a_key_is_one_that_reaches_the_host() {
        let own = Path::new("/home/ops/.ssh/known_hosts");
        let plain = target("n1", own);
        let jump = |address: &str, port| Target { port, ..target(address, own) };
        for (target, way) in [
            (plain.clone(), "add it: ssh-keyscan n1 >> /home/ops/.ssh/known_hosts"),
            (Target { port: 2222, ..plain.clone() }, "add it: ssh-keyscan -p 2222 n1 >> /home/ops/.ssh/known_hosts"),
            (
                Target { port: 24, jumps: vec![jump("gw", 22), jump("fd00::1", 23)], ..plain.clone() },
                "ssh -J ops@gw,ops@[fd00::1]:23 -p 24 ops@n1",
            ),
            (
                Target { proxy_command: Some("nc n1 22".into()), ..plain.clone() },
                "ssh -o 'ProxyCommand=nc n1 22' ops@n1",
            ),
            (
                Target { host_key_alias: Some("node".into()), ..target("n1", Path::new("/kh")) },
                "ssh -o 'HostKeyAlias=node' -o 'UserKnownHostsFile=/kh' ops@n1",
            ),
            (
                target("n1", Path::new("/dev/null")),
                "take out UserKnownHostsFile=/dev/null, which keeps no key, and log in once by hand",
            ),
        ] {
            let hint = check(&KnownHosts::default(), &target, &key("ssh-ed25519", "new")).unwrap_err().hint.unwrap();
            assert!(hint.contains(&format!("{way}; or take")), "{hint}");
            assert_eq!(hint.contains("keyscan"), way.contains("keyscan"), "{hint}");
        }
    }

    #[test]
    fn a_changed_key_names_the_line_and_a_revoked_one_is_never_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let known = KnownHosts::default();
        let mut target = target("plain", &path);
        let changed = check(&known, &target, &key("ssh-ed25519", "other")).unwrap_err();
        assert_eq!(changed.kind, FailureKind::HostKey);
        let name = path.display();
        assert!(changed.message.contains(&format!("{name}:3 has ssh-ed25519 SHA256:")), "{}", changed.message);
        assert!(changed.hint.unwrap().contains(&format!("ssh-keygen -f {name} -R 'plain'")));
        for checking in [HostKeyChecking::Yes, HostKeyChecking::AcceptNew, HostKeyChecking::No] {
            target.host_key_checking = checking;
            let revoked = check(&known, &target, &key("ssh-ed25519", "revoked")).unwrap_err();
            assert!(revoked.message.ends_with(&format!("{name}:7")), "{}", revoked.message);
            let changed = check(&known, &target, &key("ssh-ed25519", "other"));
            assert_eq!(changed.is_ok(), checking == HostKeyChecking::No);
        }
    }

    #[test]
    fn who_is_known_by_an_authority_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorities");
        let ca = entry("ssh-ed25519", "ca");
        fs::write(&path, format!("# one\n@cert-authority *.example,[::1]:2222 {ca}\n@revoked * {ca}\n")).unwrap();
        let known = KnownHosts::default();
        let mut target = Target { address: "::1".into(), port: 2222, ..target("a", &path) };
        let told = check(&known, &target, &key("ssh-ed25519", "x")).unwrap_err();
        let by = format!("; {}:2 vouches for it by a certificate", path.display());
        assert!(
            told.message.starts_with("the host key of [::1]:2222 isn't in") && told.message.contains(&by),
            "{told}"
        );
        assert!(told.hint.unwrap().contains("netplay_transport: openssh"));
        // A bare key that is known as well is good enough.
        fs::write(&path, format!("@cert-authority * {ca}\n[::1]:2222 {}\n", entry("ssh-ed25519", "x"))).unwrap();
        assert_eq!(check(&KnownHosts::default(), &target, &key("ssh-ed25519", "x")), Ok(()));
        target.host_key_checking = HostKeyChecking::AcceptNew;
        assert!(check(&KnownHosts::default(), &target, &key("ssh-ed25519", "y")).is_err());
    }

    #[test]
    fn known_types_are_asked_for_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let known = KnownHosts::default();
        let order = |address: &str| algorithms(&known.find(&target(address, &path)).unwrap());
        assert!(order("hashed.example").starts_with("ssh-ed25519,"));
        assert!(order("plain").starts_with("ssh-ed25519,rsa-sha2-512,rsa-sha2-256,ssh-rsa,ecdsa-sha2-nistp256,"));
        fs::write(folder.path().join("rsa"), format!("old {}\n", entry("ssh-rsa", "x"))).unwrap();
        let order = algorithms(&known.find(&target("old", &folder.path().join("rsa"))).unwrap());
        assert!(order.starts_with("rsa-sha2-512,rsa-sha2-256,ssh-rsa,ssh-ed25519"));
    }

    #[test]
    fn new_keys_are_stored_once_by_many_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/known_hosts");
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(&path, format!("# no end of line here, so {}", "x".repeat(10))).unwrap();
        let known = KnownHosts::default();
        std::thread::scope(|scope| {
            for i in 0..64 {
                let (known, path) = (&known, &path);
                scope.spawn(move || {
                    let accepting = Target {
                        host_key_checking: HostKeyChecking::AcceptNew,
                        ..target(&format!("host{}", i / 4), path)
                    };
                    check(known, &accepting, &key("ssh-ed25519", &format!("key {}", i / 4))).unwrap();
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1 + 16, "{text}");
        // A run of its own finds all of them, and nothing else.
        let fresh = KnownHosts::default();
        for i in 0..16 {
            let target = target(&format!("host{i}"), &path);
            assert_eq!(check(&fresh, &target, &key("ssh-ed25519", &format!("key {i}"))), Ok(()));
            assert!(check(&fresh, &target, &key("ssh-ed25519", "other")).is_err());
        }
    }
}
