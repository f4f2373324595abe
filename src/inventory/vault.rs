//! Ansible Vault: values and files that are encrypted, opened when they are used.
//!
//! The format is that of ansible-core's `parsing/vault`: a header `$ANSIBLE_VAULT;1.1;AES256`, or `1.2` and the label of
//! the password; then hexadecimal text of three lines, again in hexadecimal: salt, HMAC-SHA256 and ciphertext. The keys
//! come from the password by PBKDF2 with 10,000 rounds, the cipher is AES-256 in counter mode, padded as PKCS#7 has it.
//!
//! Deriving the keys takes milliseconds, so what is encrypted is opened once, whatever the number of hosts that use it.
//! What was opened is a [secret](Secrets) from then on.

use super::script::is_executable;
use crate::error::{Error, Kind};
use crate::secret::{Secret, Secrets};
use crate::source::{self, Source, Span};
use crate::yaml::{self, Node, Value};
use aes::Aes256;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::collections::HashMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What every encrypted text begins with.
const HEADER: &str = "$ANSIBLE_VAULT";
/// What an editor may have put before it.
const BOM: &str = "\u{feff}";
/// The rounds of key derivation, as ansible-core has them.
const ROUNDS: u32 = 10_000;
/// The most bytes of a password's file or program.
const LONGEST_PASSWORD: u64 = 1 << 20;
/// The label of what has none.
const DEFAULT: &str = "default";

/// Where a password comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// Somebody is asked.
    Prompt,
    /// A file, or a program that prints it.
    File(String),
}

/// One `--vault-id LABEL@SOURCE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The label; nothing where none is given.
    pub label: Option<String>,
    /// Where its password comes from.
    pub source: PasswordSource,
}

impl Identity {
    /// Reads `LABEL@SOURCE` or `SOURCE`.
    pub fn parse(text: &str) -> Identity {
        let (label, source) = match text.split_once('@') {
            Some((label, source)) => (Some(label).filter(|l| !l.is_empty()), source),
            None => (None, text),
        };
        let source = match source {
            "prompt" | "prompt_ask_vault_pass" => PasswordSource::Prompt,
            path => PasswordSource::File(path.to_owned()),
        };
        Identity { label: label.map(str::to_owned), source }
    }
}

/// The passwords that there are, and what was opened by them.
#[derive(Default)]
pub struct Vault {
    passwords: Vec<(String, Secret)>,
    opened: Mutex<HashMap<Arc<str>, Arc<OnceLock<Opened>>>>,
    secrets: Secrets,
}

type Opened = Result<Arc<[u8]>, Trouble>;

/// Passwords and opened values are in no output.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<vault of {} passwords>", self.passwords.len())
    }
}

/// A file that can't be opened.
pub enum Closed {
    /// For want of the right password.
    Locked(Error),
    /// With any password.
    Broken(Error),
}

impl From<Closed> for Error {
    fn from(closed: Closed) -> Error {
        match closed {
            Closed::Locked(error) | Closed::Broken(error) => error,
        }
    }
}

/// Why something can't be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    /// No password was given.
    NoPassword,
    /// None of them fits.
    Refused,
    /// It isn't what `ansible-vault` writes.
    Broken(String),
}

impl Vault {
    /// One without passwords.
    pub fn new(secrets: Secrets) -> Vault {
        Vault { secrets, ..Vault::default() }
    }

    /// What was opened so far, to be kept out of all output.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Adds a password.
    ///
    /// # Errors
    /// It is empty.
    pub fn add(&mut self, label: Option<&str>, password: &str) -> Result<(), Error> {
        if password.is_empty() {
            return Err(Error::usage("the vault password is empty"));
        }
        self.passwords.push((label.unwrap_or(DEFAULT).to_owned(), Secret::new(password)));
        Ok(())
    }

    /// Adds the password that a file holds (the blanks around it are none of it; the file may be encrypted by a
    /// password that was added before) or that a program prints. One whose name ends in `-client`, but for an
    /// extension, is called with `--vault-id LABEL`.
    ///
    /// # Errors
    /// It can't be read or run, fails, or has no password.
    pub fn add_file(&mut self, label: Option<&str>, path: &str) -> Result<(), Error> {
        let wrong = |what: String| Error::usage(format!("the vault password file {path} {what}"));
        let file = Path::new(path);
        let meta = std::fs::metadata(file).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => wrong("doesn't exist".to_owned()),
            _ => wrong(format!("can't be read: {e}")),
        })?;
        if meta.is_dir() {
            return Err(wrong("is a folder".to_owned()));
        }
        let bytes = if meta.is_file() && is_executable(file) {
            run(file, label)?
        } else {
            let bytes = source::given(file, LONGEST_PASSWORD).map_err(|e| wrong(format!("can't be read: {e}")))?;
            self.bytes(path, bytes.trim_ascii().to_vec())?.0
        };
        // A password that isn't text would work with Ansible; nobody types one.
        let text = String::from_utf8(bytes).map_err(|_| wrong("isn't UTF-8".to_owned()))?;
        self.add(label, text.trim_matches(['\r', '\n'])).map_err(|_| wrong("has no password".to_owned()))
    }

    /// Opens a value that is tagged `!vault`.
    ///
    /// # Errors
    /// At its place: no password was given, none fits, or it is broken.
    pub fn open(&self, value: &Node) -> Result<Node, Error> {
        let Value::Scalar { text, .. } = &value.value else {
            return Err(Error::inventory(&value.span, format!("`!vault` stands before {}", value.describe()))
                .hint("it goes with the text that `ansible-vault encrypt_string` prints"));
        };
        let bytes = self.decrypt(text).map_err(|t| self.error(&t, "value", text, &value.span))?;
        match std::str::from_utf8(&bytes) {
            Ok(opened) => Ok(Node::string(&value.span, opened)),
            Err(_) => Err(Error::inventory(&value.span, "what this value is, decrypted, isn't UTF-8")),
        }
    }

    /// A tree with all of its values opened.
    ///
    /// # Errors
    /// As for [`Vault::open`].
    pub fn open_all(&self, node: &Node) -> Result<Node, Error> {
        if !any_sealed(node) {
            return Ok(node.clone());
        }
        // What can't be encrypted, a mapping under this tag, is told and not passed on.
        if is_sealed(node) {
            return self.open(node);
        }
        let value = match &node.value {
            Value::Seq(items) => {
                Value::Seq(Arc::new(items.iter().map(|n| self.open_all(n)).collect::<Result<_, _>>()?))
            }
            Value::Map(entries) => {
                let opened = entries.iter().map(|(k, v)| Ok((k.clone(), self.open_all(v)?)));
                Value::Map(Arc::new(opened.collect::<Result<_, Error>>()?))
            }
            _ => return Ok(node.clone()),
        };
        Ok(Node { value, ..node.clone() })
    }

    /// Opens what can be opened of a tree, so that it is known as a secret.
    pub fn learn(&self, node: &Node) {
        match &node.value {
            Value::Seq(items) => items.iter().for_each(|n| self.learn(n)),
            Value::Map(entries) => entries.iter().for_each(|(_, v)| self.learn(v)),
            // One that can't be opened is told where it is used.
            _ if is_sealed(node) => drop(self.open(node)),
            _ => {}
        }
    }

    /// The bytes of a file, decrypted if it is encrypted, and whether it is.
    ///
    /// # Errors
    /// As for [`Vault::open`].
    pub fn bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(Vec<u8>, bool), Closed> {
        if !is_encrypted(&bytes) {
            return Ok((bytes, false));
        }
        let text = String::from_utf8_lossy(&bytes);
        let opened = self.decrypt(&Arc::from(&*text)).map_err(|trouble| {
            let error = self.error(&trouble, "file", &text, &Span::start(&Source::new(name, &*text)));
            if matches!(trouble, Trouble::Broken(_)) { Closed::Broken(error) } else { Closed::Locked(error) }
        })?;
        Ok((opened.to_vec(), true))
    }

    /// The text of a file, decrypted if it is encrypted: then no error shows a line of it, and
    /// [`Vault::conceal`] has to be told what it holds.
    ///
    /// # Errors
    /// As for [`Vault::open`], and as for [`yaml::decode`].
    pub fn text(&self, name: &str, bytes: Vec<u8>, kind: Kind) -> Result<Arc<Source>, Error> {
        let (bytes, encrypted) = self.bytes(name, bytes).map_err(|e| Error::from(e).kind(kind))?;
        decode(name, bytes, encrypted, kind)
    }

    /// Keeps the values of what was read from an encrypted file out of all output. Keys are no secret.
    pub fn conceal(&self, node: &Node) {
        match &node.value {
            Value::Seq(items) => items.iter().for_each(|n| self.conceal(n)),
            Value::Map(entries) => entries.iter().for_each(|(_, v)| self.conceal(v)),
            Value::Scalar { text, .. } if node.span.source.decrypted && !is_sealed(node) => self.conceal_template(text),
            _ => {}
        }
    }

    /// Keeps the text of a template out of all output: what stands around its expressions.
    pub fn conceal_template(&self, text: &str) {
        let opening = |text: &str| ["{{", "{%", "{#"].iter().filter_map(|o| text.find(o)).min();
        let mut rest = text;
        while let Some(at) = opening(rest) {
            self.secrets.add(&rest.as_bytes()[..at]);
            let close = match rest.as_bytes()[at + 1] {
                b'{' => "}}",
                b'%' => "%}",
                _ => "#}",
            };
            rest = rest[at..].find(close).map_or("", |end| &rest[at + end + 2..]);
        }
        self.secrets.add(rest.as_bytes());
    }

    /// Whether there are passwords.
    pub fn has_passwords(&self) -> bool {
        !self.passwords.is_empty()
    }

    fn decrypt(&self, text: &Arc<str>) -> Opened {
        let slot = {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.entry(text.clone()).or_default().clone()
        };
        // Others that want the same wait for it, and those that want something else don't.
        let open = || {
            let bytes = self.decrypt_anew(text)?;
            self.secrets.add(&bytes);
            Ok(bytes.into())
        };
        slot.get_or_init(open).clone()
    }

    fn decrypt_anew(&self, text: &str) -> Result<Vec<u8>, Trouble> {
        let sealed = Envelope::parse(text).map_err(Trouble::Broken)?;
        if self.passwords.is_empty() {
            return Err(Trouble::NoPassword);
        }
        // The one of its label is the likeliest. As with Ansible, a label isn't a promise.
        let fits = |(label, _): &&(String, Secret)| sealed.label.is_some_and(|l| l == label);
        let (first, others): (Vec<_>, Vec<_>) = self.passwords.iter().partition(fits);
        for (_, password) in first.into_iter().chain(others) {
            if let Some(opened) = sealed.open(password.reveal()) {
                return opened.map_err(Trouble::Broken);
            }
        }
        Err(Trouble::Refused)
    }

    fn error(&self, trouble: &Trouble, what: &str, text: &str, place: &Span) -> Error {
        let label = Envelope::header(text).ok().and_then(|h| h.2);
        match trouble {
            Trouble::NoPassword => {
                let of = label.map_or(String::new(), |l| format!(" by the password `{l}`"));
                let label = label.unwrap_or(DEFAULT);
                Error::inventory(place, format!("this {what} is encrypted{of}, and no vault password is given")).hint(
                    format!(
                        "give it: --vault-password-file FILE, --vault-id {label}@FILE, or --ask-vault-pass to be asked; \
                         the environment variables ANSIBLE_VAULT_PASSWORD_FILE and ANSIBLE_VAULT_IDENTITY_LIST are \
                         read, too"
                    ),
                )
            }
            Trouble::Refused => {
                let mut labels: Vec<&str> = self.passwords.iter().map(|(l, _)| &**l).collect();
                labels.dedup();
                let given = match labels.as_slice() {
                    [_] if self.passwords.len() == 1 => format!("the vault password (`{}`) doesn't open", labels[0]),
                    _ => format!("none of the vault passwords ({}) opens", labels.join(", ")),
                };
                let wanted = label.map_or(String::new(), |l| format!("; it was encrypted by the one called `{l}`"));
                Error::inventory(place, format!("{given} this {what}{wanted}"))
                    .hint("the password is another one, or what is here was changed since it was encrypted")
            }
            Trouble::Broken(why) => Error::inventory(place, format!("this encrypted {what} is broken: {why}"))
                .hint("encrypt it again by `ansible-vault`, or take it from a copy"),
        }
    }
}

/// [Decodes](yaml::decode) a text that was encrypted, or not. Of one that was, no error shows a line.
///
/// # Errors
/// As for [`yaml::decode`].
pub fn decode(name: &str, bytes: Vec<u8>, encrypted: bool, kind: Kind) -> Result<Arc<Source>, Error> {
    match yaml::decode(name, bytes, kind) {
        Ok(source) if encrypted => Ok(Source::decrypted(name, source.text.clone())),
        Err(e) if encrypted => Err(e.at(&Span::start(&Source::decrypted(name, "")))),
        decoded => decoded,
    }
}

/// Whether bytes are encrypted by `ansible-vault`.
pub fn is_encrypted(bytes: &[u8]) -> bool {
    bytes.strip_prefix(BOM.as_bytes()).unwrap_or(bytes).starts_with(HEADER.as_bytes())
}

/// Whether a value is encrypted by `ansible-vault`.
pub fn is_sealed(node: &Node) -> bool {
    matches!(node.tag.as_deref(), Some("!vault" | "!vault-encrypted"))
}

/// Whether there is an encrypted value anywhere in a tree.
pub fn any_sealed(node: &Node) -> bool {
    match &node.value {
        _ if is_sealed(node) => true,
        Value::Seq(items) => items.iter().any(any_sealed),
        Value::Map(entries) => entries.iter().any(|(_, v)| any_sealed(v)),
        _ => false,
    }
}

/// What a program prints that gives a password. Its standard error and input are ours: it may ask for something.
fn run(path: &Path, label: Option<&str>) -> Result<Vec<u8>, Error> {
    let name = path.display();
    let wrong = |what: String| Error::usage(format!("the vault password program {name} {what}"));
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut command = Command::new(absolute);
    let client = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("-client"));
    if let (true, Some(label)) = (client, label) {
        command.args(["--vault-id", label]);
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).stdin(Stdio::inherit()).spawn();
    let mut child = child.map_err(|e| {
        wrong(format!("can't be run: {e}"))
            .hint("it is run because it is executable; if it holds the password, `chmod -x` it")
    })?;
    let mut printed = Vec::new();
    let long = |printed: &Vec<u8>| printed.len() as u64 > LONGEST_PASSWORD;
    let read = child.stdout.take().map(|pipe| pipe.take(LONGEST_PASSWORD + 1).read_to_end(&mut printed));
    if long(&printed) {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|e| wrong(format!("can't be waited for: {e}")))?;
    if long(&printed) {
        return Err(wrong(format!("prints more than {LONGEST_PASSWORD} bytes, which is no password")));
    }
    read.transpose().map_err(|e| wrong(format!("can't be read: {e}")))?;
    match status.code() {
        Some(0) => Ok(printed),
        Some(2) if client => Err(wrong(format!("knows no password `{}` (exit code 2)", label.unwrap_or(DEFAULT)))),
        _ => Err(wrong(format!("failed: {status}"))),
    }
}

/// What `ansible-vault` writes, taken apart.
struct Envelope<'t> {
    label: Option<&'t str>,
    salt: Vec<u8>,
    mac: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl<'t> Envelope<'t> {
    /// Version, cipher and label of the header.
    fn header(text: &'t str) -> Result<(&'t str, &'t str, Option<&'t str>), String> {
        let mut parts =
            text.trim_start_matches(BOM).trim_start().lines().next().unwrap_or_default().split(';').map(str::trim);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(HEADER), Some(version), Some(cipher)) => {
                Ok((version, cipher, parts.next().filter(|l| !l.is_empty() && *l != DEFAULT)))
            }
            _ => Err(format!("it doesn't begin with a line such as `{HEADER};1.1;AES256`")),
        }
    }

    fn parse(text: &'t str) -> Result<Envelope<'t>, String> {
        let (version, cipher, label) = Envelope::header(text)?;
        if !matches!(version, "1.1" | "1.2") {
            return Err(format!("its format has the version `{version}`; known: 1.1, 1.2"));
        }
        if cipher != "AES256" {
            return Err(format!("its cipher `{cipher}` isn't known; known: AES256"));
        }
        let body: String = text.trim_start().lines().skip(1).map(str::trim).collect();
        if body.is_empty() {
            return Err("nothing follows its first line".to_owned());
        }
        let inner = unhex(body.as_bytes()).map_err(|e| format!("behind its first line, {e}"))?;
        let mut parts = inner.splitn(3, |b| *b == b'\n');
        let (Some(salt), Some(mac), Some(ciphertext)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("it is cut off: salt, HMAC and ciphertext are not all there".to_owned());
        };
        let within = |part: &[u8]| unhex(part).map_err(|e| format!("in what its digits stand for, {e}"));
        let (salt, mac, ciphertext) = (within(salt)?, within(mac)?, within(ciphertext)?);
        if mac.len() != 32 {
            return Err(format!("its HMAC has {} bytes and not 32", mac.len()));
        }
        if ciphertext.is_empty() || !ciphertext.len().is_multiple_of(16) {
            return Err(format!("it is cut off: {} bytes of ciphertext aren't whole blocks of 16", ciphertext.len()));
        }
        Ok(Envelope { label, salt, mac, ciphertext })
    }

    /// The plaintext; nothing where the password is another one or the ciphertext isn't the one that was written.
    fn open(&self, password: &str) -> Option<Result<Vec<u8>, String>> {
        let mut keys = [0; 80];
        pbkdf2::pbkdf2::<Hmac<Sha256>>(password.as_bytes(), &self.salt, ROUNDS, &mut keys).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&keys[32..64]).ok()?;
        mac.update(&self.ciphertext);
        mac.verify_slice(&self.mac).ok()?;
        let mut cipher = ctr::Ctr128BE::<Aes256>::new_from_slices(&keys[..32], &keys[64..]).ok()?;
        let mut plain = self.ciphertext.clone();
        cipher.apply_keystream(&mut plain);
        let padding = usize::from(plain.last().copied().unwrap_or_default());
        let whole = plain.len().checked_sub(padding).filter(|_| (1..=16).contains(&padding));
        let Some(length) = whole.filter(|at| plain[*at..].iter().all(|b| usize::from(*b) == padding)) else {
            return Some(Err("its padding is wrong".to_owned()));
        };
        plain.truncate(length);
        Some(Ok(plain))
    }
}

fn unhex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    if let Some(at) = text.iter().position(|b| digit(b).is_none()) {
        let shown = char::from(text[at]).escape_default();
        return Err(format!("character {} is `{shown}` and no hexadecimal digit", at + 1));
    }
    if !text.len().is_multiple_of(2) {
        return Err("the number of hexadecimal digits is odd: it is cut off".to_owned());
    }
    Ok(text.chunks(2).filter_map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?)).collect())
}

#[cfg(test)]
mod tests;
