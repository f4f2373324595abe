//! What an agent holds (draft-miller-ssh-agent): asked for before hosts are visited, and for what libssh2 doesn't tell.

use super::keys::string;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// SSH_AGENTC_REQUEST_IDENTITIES, with its length.
const REQUEST_IDENTITIES: [u8; 5] = [0, 0, 0, 1, 11];
/// SSH_AGENT_IDENTITIES_ANSWER.
const IDENTITIES_ANSWER: u8 = 12;
/// How long it may take for each part of its answer; one behind a connection that is dead takes for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that OpenSSH's client takes (`MAX_AGENT_REPLY_LEN`), in bytes.
const LONGEST: u32 = 256 * 1024;

/// A key that an agent holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) blob: Vec<u8>,
    pub(super) comment: String,
}

impl Key {
    /// Whether it is a certificate; its kind ends so (PROTOCOL.certkeys).
    pub(super) fn is_certificate(&self) -> bool {
        string(&self.blob, 0).is_some_and(|(kind, _)| kind.ends_with(b"-cert-v01@openssh.com"))
    }
}

/// What the agent at this socket holds; nothing where none answers.
pub(super) fn keys(path: &Path) -> Vec<Key> {
    ask(path).ok().and_then(|answer| parse(&answer)).unwrap_or_default()
}

fn ask(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut agent = UnixStream::connect(path)?;
    agent.set_read_timeout(Some(PATIENCE))?;
    agent.set_write_timeout(Some(PATIENCE))?;
    agent.write_all(&REQUEST_IDENTITIES)?;
    let mut length = [0; 4];
    agent.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).min(LONGEST);
    let mut answer = vec![0; length as usize];
    agent.read_exact(&mut answer)?;
    Ok(answer)
}

fn parse(answer: &[u8]) -> Option<Vec<Key>> {
    let (IDENTITIES_ANSWER, rest) = answer.split_first().map(|(kind, rest)| (*kind, rest))? else { return None };
    let count = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
    let mut keys = Vec::new();
    let mut at = 4;
    for _ in 0..count {
        let (blob, end) = string(rest, at)?;
        let (comment, end) = string(rest, end)?;
        keys.push(Key { blob: blob.to_vec(), comment: String::from_utf8_lossy(comment).into_owned() });
        at = end;
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_certificates_are_told_apart() {
        let string = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let (key, certificate) = (string(b"ssh-ed25519"), string(b"ssh-ed25519-cert-v01@openssh.com"));
        let answer = [&[12, 0, 0, 0, 2], &string(&key)[..], &string(b"me"), &string(&certificate), &string(b"signed")];
        let keys = parse(&answer.concat()).unwrap();
        assert_eq!(
            keys.iter().map(|k| (k.comment.as_str(), k.is_certificate())).collect::<Vec<_>>(),
            [("me", false), ("signed", true)]
        );
        assert_eq!(parse(&answer[..4].concat()), None);
        assert_eq!(parse(&[5]), None);
        assert_eq!(parse(&[]), None);
        assert_eq!(super::keys(Path::new("/nowhere")), []);
    }
}
