//! Private keys: which are encrypted, which public key each has, and those that were unlocked for this run.

use super::agent;
use super::refusal::ENCRYPTED;
use super::{Secret, Target};
use crate::source;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ssh_key::{LineEnding, PrivateKey};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The keys of a run whose passphrases are known.
#[derive(Debug, Default)]
pub struct Keyring(Mutex<HashMap<PathBuf, Unlocked>>);

/// A key that was unlocked.
#[derive(Debug, Clone)]
struct Unlocked {
    passphrase: Secret,
    /// The key without its encryption. That of OpenSSH's format takes a tenth of a second of computing to lift, which
    /// a thousand hosts needn't each pay; the key of another format is as it was.
    text: Secret,
    /// Whether `text` is still encrypted.
    encrypted: bool,
}

impl Keyring {
    /// The encrypted keys without which some of these hosts, or the bastions before them, may not let us in: those that
    /// were named, unless an agent holds them; and those of usual names where there is nothing else to log in with.
    pub fn wanted<'t>(&self, targets: impl IntoIterator<Item = &'t Target>) -> Vec<PathBuf> {
        let mut wanted = Vec::new();
        let mut seen = HashSet::new();
        let mut agents = HashMap::new();
        for target in targets {
            for target in target.jumps.iter().chain([target]) {
                let known = (&target.identities, target.identities_only, &target.agent, target.password.is_some());
                if target.identities.is_empty() || !seen.insert(known) {
                    continue;
                }
                let held = match &target.agent {
                    Some(path) => agents.entry(path).or_insert_with(|| agent::keys(path)).as_slice(),
                    None => &[],
                };
                let is_held = |path: &Path| public_blob(path).is_some_and(|blob| held.iter().any(|k| k.blob == blob));
                let locked = |path: &&PathBuf| is_encrypted(path) && !is_held(path);
                let named = target.identities.iter().filter(|p| !is_usual(p)).filter(locked);
                let mut keys: Vec<&PathBuf> = named.collect();
                let others = target.identities.iter().any(|path| path.exists() && !locked(&path));
                let agents = !target.identities_only && !held.is_empty();
                if keys.is_empty() && !others && !agents && target.password.is_none() {
                    keys = target.identities.iter().filter(locked).collect();
                }
                for key in keys {
                    if !wanted.contains(key) {
                        wanted.push(key.clone());
                    }
                }
            }
        }
        wanted
    }

    /// Unlocks a key; false if that isn't its passphrase. Of a key in another format than OpenSSH's that shows only when
    /// it is used.
    ///
    /// # Errors
    /// Why the key can't be read.
    pub fn unlock(&self, path: &Path, passphrase: Secret) -> Result<bool, String> {
        let text = text_of(path).map_err(|e| format!("can't be read: {e}"))?;
        let unlocked = if openssh_key(&text).is_some() {
            let key = PrivateKey::from_openssh(&text).map_err(|e| format!("can't be read: {e}"))?;
            let Ok(key) = key.decrypt(passphrase.reveal()) else { return Ok(false) };
            let text = key.to_openssh(LineEnding::LF).map_err(|e| format!("can't be used: {e}"))?;
            Unlocked { passphrase, text: Secret::new(text.as_str()), encrypted: false }
        } else {
            Unlocked { passphrase, text: Secret::new(text), encrypted: true }
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), unlocked);
        Ok(true)
    }

    fn unlocked(&self, path: &Path) -> Option<Unlocked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// The passphrase of a key that was unlocked.
    pub(super) fn passphrase(&self, path: &Path) -> Option<Secret> {
        self.unlocked(path).map(|key| key.passphrase)
    }

    /// The text of a private key, and the passphrase where the text is encrypted; or why it can't be used.
    pub(super) fn read(&self, path: &Path) -> Result<(Secret, Option<Secret>), String> {
        if let Some(key) = self.unlocked(path) {
            return Ok((key.text, key.encrypted.then_some(key.passphrase)));
        }
        let text = text_of(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "doesn't exist".to_owned(),
            _ => format!("can't be read ({e})"),
        })?;
        if encrypted(&text) { Err(ENCRYPTED.to_owned()) } else { Ok((Secret::new(text), None)) }
    }
}

/// Certificates that there are beside a target's keys and in its agent, as they are called there.
pub(super) fn certificates(target: &Target) -> Vec<String> {
    let beside = target.identities.iter().map(|path| format!("{}-cert.pub", path.display()));
    let mut found: Vec<String> = beside.filter(|path| Path::new(path).exists()).collect();
    let held = target.agent.as_deref().map(agent::keys).unwrap_or_default();
    found.extend(held.iter().filter(|k| k.is_certificate()).map(|k| format!("the agent's {}", k.comment)));
    found
}

/// The text of a file of a key, which is read more than once and so can't be a pipe.
fn text_of(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = source::read(path.as_ref(), LARGEST)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it isn't UTF-8"))
}

fn is_encrypted(path: &Path) -> bool {
    text_of(path).is_ok_and(|text| encrypted(&text))
}

/// Whether a private key's text is encrypted.
fn encrypted(text: &str) -> bool {
    match openssh_key(text) {
        Some(blob) => string(&blob, MAGIC.len()).is_some_and(|(cipher, _)| cipher != b"none"),
        None => text.contains("ENCRYPTED"),
    }
}

/// Whether a file is one that is tried without being named.
pub(super) fn is_usual(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str());
    let folder = path.parent().and_then(Path::file_name);
    name.is_some_and(|n| super::USUAL_KEYS.contains(&n)) && folder.is_some_and(|f| f == ".ssh")
}

/// The most bytes of a file of a key.
const LARGEST: u64 = 1 << 20;
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// The bytes of a private key in OpenSSH's format (PROTOCOL.key).
fn openssh_key(text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END")?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok().filter(|blob| blob.starts_with(MAGIC))
}

/// An SSH string at an offset, and where it ends.
pub(super) fn string(blob: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = u32::from_be_bytes(blob.get(at..at + 4)?.try_into().ok()?) as usize;
    let end = (at + 4).checked_add(len)?;
    Some((blob.get(at + 4..end)?, end))
}

/// The public key of a key file: from the `.pub` beside it, or out of the file itself, which holds it unencrypted.
pub(super) fn public_blob(path: &Path) -> Option<Vec<u8>> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    let of_line = |text: String| STANDARD.decode(text.split_whitespace().nth(1)?).ok();
    if let Some(blob) = text_of(beside).ok().and_then(of_line) {
        return Some(blob);
    }
    let text = text_of(path).ok()?;
    let Some(blob) = openssh_key(&text) else { return of_line(text) };
    let (_, at) = string(&blob, MAGIC.len())?;
    let (_, at) = string(&blob, at)?;
    let (_, at) = string(&blob, at)?;
    // The number of keys, always one, stands before the key.
    string(&blob, at + 4).map(|(key, _)| key.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// A private key file in OpenSSH's format, as far as it is looked at.
    fn key_file(cipher: &str, public: &[u8]) -> String {
        let string = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let blob = [MAGIC, &string(cipher.as_bytes()), &string(b"none"), &string(b""), &[0, 0, 0, 1], &string(public)]
            .concat();
        let text = STANDARD.encode(blob);
        let (first, second) = text.split_at(40);
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{first}\n{second}\n-----END OPENSSH PRIVATE KEY-----\n")
    }

    #[test]
    fn a_private_key_shows_its_public_one_and_whether_it_is_encrypted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("plain"), key_file("none", b"the public key")).unwrap();
        fs::write(path("locked"), key_file("aes256-ctr", b"another")).unwrap();
        fs::write(path("pem"), "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n").unwrap();
        fs::write(path("pem.pub"), format!("ssh-rsa {} me@here\n", STANDARD.encode(b"rsa"))).unwrap();
        let read = |name: &str| Keyring::default().read(&path(name)).map(|_| ());
        assert_eq!(read("plain"), Ok(()));
        assert_eq!(read("locked").unwrap_err(), "is encrypted and not in the agent");
        assert_eq!(read("pem").unwrap_err(), "is encrypted and not in the agent");
        assert_eq!(read("none").unwrap_err(), "doesn't exist");
        assert_eq!(public_blob(&path("plain")).unwrap(), b"the public key");
        assert_eq!(public_blob(&path("locked")).unwrap(), b"another");
        assert_eq!(public_blob(&path("pem")).unwrap(), b"rsa");
        assert_eq!(public_blob(&path("none")), None);
        fs::write(path("cut"), "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END").unwrap();
        assert_eq!(public_blob(&path("cut")), None);
    }

    #[test]
    fn a_key_is_unlocked_by_its_passphrase() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, format) in [("ed25519", "RFC4716"), ("rsa", "RFC4716"), ("ecdsa", "RFC4716"), ("rsa", "PEM")] {
            let path = folder.path().join(format!("{kind}-{format}"));
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", kind, "-a", "1", "-N", "secret", "-m", format, "-f"]).arg(&path);
            assert!(keygen.status().unwrap().success());
            let keyring = Keyring::default();
            assert_eq!(keyring.unlock(&path, Secret::new("wrong")), Ok(format == "PEM"), "{kind} {format}");
            assert_eq!(keyring.unlock(&path, Secret::new("secret")), Ok(true));
            let (text, passphrase) = keyring.read(&path).unwrap();
            assert_eq!((encrypted(text.reveal()), passphrase.is_some()), (format == "PEM", format == "PEM"));
            assert_eq!(keyring.passphrase(&path).unwrap().reveal(), "secret");
        }
        assert!(Keyring::default().unlock(&folder.path().join("none"), Secret::new("x")).is_err());
    }

    #[test]
    fn only_keys_that_may_be_needed_are_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let ssh = folder.path().join(".ssh");
        fs::create_dir(&ssh).unwrap();
        let [named, usual, plain] = ["cluster", "id_rsa", "plain"].map(|name| ssh.join(name));
        for path in [&named, &usual] {
            fs::write(path, key_file("aes256-ctr", b"x")).unwrap();
        }
        fs::write(&plain, key_file("none", b"y")).unwrap();
        let with = |identities: &[&PathBuf]| Target {
            identities: identities.iter().map(|p| (*p).clone()).collect(),
            ..Target::for_tests("a")
        };
        let wanted = |target: Target| Keyring::default().wanted([&target, &target.clone()]);
        assert_eq!(wanted(with(&[&named, &usual])), std::slice::from_ref(&named));
        assert_eq!(wanted(with(&[&usual])), std::slice::from_ref(&usual));
        assert_eq!(wanted(with(&[&usual, &plain])), [] as [PathBuf; 0]);
        let password = Some(super::super::Password::stored(Secret::new("x")));
        assert_eq!(wanted(Target { password, ..with(&[&usual]) }), [] as [PathBuf; 0]);
        assert_eq!(wanted(Target { jumps: vec![with(&[&named])], ..with(&[&plain]) }), [named]);
    }

    #[test]
    fn keys_of_usual_names_are_those_in_the_ssh_folder() {
        assert!(is_usual(Path::new("/home/x/.ssh/id_rsa")));
        assert!(!is_usual(Path::new("/home/x/.ssh/cluster")));
        assert!(!is_usual(Path::new("/srv/keys/id_rsa")));
    }
}
