//! The protocol between an OpenSSH client that holds a connection (a *master*) and those who use it: OpenSSH's
//! `PROTOCOL.mux`, version 4.
//!
//! Spoken here, it spares a process for each execution, and with it what that process would say among the host's words.

use super::super::Deadline;
use super::super::wait::{SLICE, wait};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::io::{Error, ErrorKind, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const HELLO: u32 = 0x0000_0001;
const NEW_SESSION: u32 = 0x1000_0002;
const PERMISSION_DENIED: u32 = 0x8000_0002;
const FAILURE: u32 = 0x8000_0003;
const EXIT_MESSAGE: u32 = 0x8000_0004;
const SESSION_OPENED: u32 = 0x8000_0006;
const VERSION: u32 = 4;
/// No escape character: what is written is data, whatever it is.
const NO_ESCAPE: u32 = 0xffff_ffff;
/// More than a master ever says at once; a length beyond isn't one.
const LONGEST: usize = 64 * 1024;

/// What a master says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// It speaks this version.
    Hello(u32),
    /// The session is open, and its command was sent.
    Opened,
    /// There is no session, for this reason.
    Refused(String),
    /// The command has ended with this code.
    Exit(u32),
    /// Something that is of no concern here.
    Other,
}

/// A connection to a master, for one session.
pub(super) struct Control {
    socket: UnixStream,
    heard: Vec<u8>,
}

impl Control {
    /// Connects to a master's socket and greets it.
    pub(super) fn connect(path: &Path) -> std::io::Result<Control> {
        let socket = UnixStream::connect(path)?;
        // What is written is a few hundred bytes, for which there is room.
        socket.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut control = Control { socket, heard: Vec::new() };
        control.send(&[Field::Number(HELLO), Field::Number(VERSION)])?;
        Ok(control)
    }

    /// Asks for a session in which a command runs, with these as its standard input, output and error.
    pub(super) fn open(&mut self, command: &str, ends: [BorrowedFd<'_>; 3]) -> std::io::Result<()> {
        let (request, no) = (Field::Number(0), Field::Number(0));
        self.send(&[
            Field::Number(NEW_SESSION),
            request,
            // Reserved; then no terminal, no X11, no agent, no subsystem.
            Field::Text(""),
            no,
            no,
            no,
            no,
            Field::Number(NO_ESCAPE),
            Field::Text(""),
            Field::Text(command),
        ])?;
        for end in ends {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            let ends = [end];
            rights.push(SendAncillaryMessage::ScmRights(&ends));
            sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut rights, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    fn send(&mut self, fields: &[Field<'_>]) -> std::io::Result<()> {
        self.socket.write_all(&packet(fields))
    }

    /// The next message that is there; nothing if none is. An error when the master is gone.
    pub(super) fn next(&mut self) -> std::io::Result<Option<Message>> {
        loop {
            if let Some(message) = take(&mut self.heard)? {
                return Ok(Some(message));
            }
            let mut buffer = [0; 4096];
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((n, _)) => self.heard.extend(&buffer[..n]),
                Err(e) if matches!(Error::from(e).kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(None);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for a message, for a moment at most.
    pub(super) fn wait(&self, deadline: &Deadline) {
        wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], deadline.left().min(SLICE));
    }

    pub(super) fn sign(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A field of a message.
#[derive(Clone, Copy)]
enum Field<'t> {
    Number(u32),
    Text(&'t str),
}

fn packet(fields: &[Field<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    for field in fields {
        match field {
            Field::Number(number) => body.extend(number.to_be_bytes()),
            Field::Text(text) => {
                body.extend(length(text.len()));
                body.extend(text.as_bytes());
            }
        }
    }
    let mut packet = length(body.len()).to_vec();
    packet.extend(body);
    packet
}

/// Takes the first message off what was heard, if it is there as a whole.
fn take(heard: &mut Vec<u8>) -> std::io::Result<Option<Message>> {
    let odd = || Error::from(ErrorKind::InvalidData);
    let number = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let Some(length) = number(heard, 0) else { return Ok(None) };
    let length = length as usize;
    if length > LONGEST {
        return Err(odd());
    }
    if heard.len() < 4 + length {
        return Ok(None);
    }
    let body: Vec<u8> = heard.drain(..4 + length).skip(4).collect();
    // Behind the kind stands the request's number, or the session's.
    let message = match number(&body, 0).ok_or_else(odd)? {
        HELLO => Message::Hello(number(&body, 4).ok_or_else(odd)?),
        SESSION_OPENED => Message::Opened,
        PERMISSION_DENIED | FAILURE => {
            let length = number(&body, 8).ok_or_else(odd)? as usize;
            let why = body.get(12..).and_then(|rest| rest.get(..length)).ok_or_else(odd)?;
            Message::Refused(String::from_utf8_lossy(why).into_owned())
        }
        EXIT_MESSAGE => Message::Exit(number(&body, 8).ok_or_else(odd)?),
        _ => Message::Other,
    };
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_as_they_come() {
        let number = |n| Field::Number(n);
        let mut all = Vec::new();
        all.extend(packet(&[number(HELLO), number(4), Field::Text("an extension"), Field::Text("")]));
        all.extend(packet(&[number(SESSION_OPENED), number(0), number(2)]));
        all.extend(packet(&[number(FAILURE), number(0), Field::Text("Session open refused by peer")]));
        all.extend(packet(&[number(EXIT_MESSAGE), number(2), number(255)]));
        all.extend(packet(&[number(0x8000_0008), number(2)]));
        let mut heard = Vec::new();
        let mut messages = Vec::new();
        for byte in all {
            heard.push(byte);
            messages.extend(take(&mut heard).unwrap());
        }
        assert!(heard.is_empty());
        let refused = Message::Refused("Session open refused by peer".into());
        assert_eq!(messages, [Message::Hello(4), Message::Opened, refused, Message::Exit(255), Message::Other]);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for fields in [&[][..], &[Field::Number(EXIT_MESSAGE)], &[Field::Number(FAILURE), Field::Number(0)]] {
            assert!(take(&mut packet(fields)).is_err());
        }
        let long = [Field::Number(FAILURE), Field::Number(0), Field::Number(u32::MAX)];
        assert!(take(&mut packet(&long)).is_err());
        assert!(take(&mut vec![0xff; 8]).is_err());
    }
}
