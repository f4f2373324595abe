//! Reads what a batch prints: banners, then frames closed by the nonce.

use super::batch::{FRAGMENTS, STATE};
use crate::plan::Ran;
use crate::resource::{Output, Trouble};
use crate::transport::{Dialogue, Reply};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How much of one frame's output is kept; a read of our own that prints more fails.
pub const MAX_OUTPUT: usize = 1 << 20;
/// How much of all frames together, and how many of them: a host that prints without end fills no memory.
const MAX_KEPT: usize = 1 << 26;
const MAX_FRAMES: usize = 1 << 18;
const MAX_TEXT: usize = 1 << 16;
const MAX_HEADER: usize = 4096;
const MAX_NOISE: usize = 4096;

/// The dialogue of one batch. It is over when the batch says so, whoever still holds its output open.
#[derive(Debug)]
pub struct Reader {
    script: Option<Vec<u8>>,
    marker: Vec<u8>,
    state: State,
    buffer: Vec<u8>,
    data: Vec<u8>,
    overflow: bool,
    /// How many bytes have been kept.
    kept: usize,
    noise: Vec<u8>,
    /// What its shell said on standard error after it had begun, at most 4 KiB.
    said: Vec<u8>,
    frames: BTreeMap<u32, Frame>,
    end: Ending,
    waited_for: Option<String>,
    /// Whether it still waits and may go away, and the flag that says so.
    yields: Option<Arc<AtomicBool>>,
    go: bool,
    /// Set when steps that may cut the session off are about to begin: until when the rest has to have come.
    hastens: Option<Arc<OnceLock<Instant>>>,
}

/// How long after steps that may cut the session off have begun the rest of the answer may take.
const HASTE: Duration = Duration::from_secs(20);

#[derive(Debug, PartialEq)]
enum State {
    Banner,
    Data,
    Text { index: u32, code: Option<i32>, left: usize, text: Vec<u8>, skip: bool },
    Over,
}

#[derive(Debug)]
struct Frame {
    code: Option<i32>,
    skip: bool,
    data: Vec<u8>,
    overflow: bool,
    text: Vec<u8>,
}

/// How a batch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It never began: what the other side said instead.
    Silent,
    /// It began, and its last line is missing.
    Broken,
    /// To its last line.
    Complete,
    /// Somebody else held the lock to the end of our patience: who.
    Locked(String),
    /// The host can't be locked, so nothing was changed: why.
    Unlockable(String),
    /// A change of a run that may cut the session off waits for its confirmation: which run, and whose.
    Armed(String),
    /// The way back of what may cut the session off can't be stored, so nothing was changed: why.
    Unarmed(String),
    /// The host's state isn't the one that was probed, so nothing was changed.
    Moved,
    /// The run was interrupted while it waited for this holder of the lock, so nothing was changed.
    Interrupted(String),
}

impl Reader {
    /// The dialogue of this script, whose frames are closed by this nonce.
    pub fn new(nonce: &str, script: String) -> Reader {
        Reader {
            script: Some(script.into_bytes()),
            marker: format!("\n{nonce} ").into_bytes(),
            state: State::Banner,
            buffer: Vec::new(),
            data: Vec::new(),
            overflow: false,
            kept: 0,
            noise: Vec::new(),
            said: Vec::new(),
            frames: BTreeMap::new(),
            end: Ending::Silent,
            waited_for: None,
            yields: None,
            go: false,
            hastens: None,
        }
    }

    /// The same for steps that may cut the session off: when they begin, this is told until when the rest has to have come.
    #[must_use]
    pub fn hastens(mut self, until: &Arc<OnceLock<Instant>>) -> Reader {
        self.hastens = Some(until.clone());
        self
    }

    /// The same for a change: while it waits for the host's lock, this flag ends it, and it begins only when that isn't
    /// set by then.
    #[must_use]
    pub fn yields_to(mut self, interrupted: &Arc<AtomicBool>) -> Reader {
        self.yields = Some(interrupted.clone());
        self
    }

    /// How it ended.
    pub fn ending(&self) -> &Ending {
        &self.end
    }

    /// Whom it had to wait for, if it had to.
    pub fn waited_for(&self) -> Option<&str> {
        self.waited_for.as_deref()
    }

    /// What the other side printed beside the batch: banners, and errors of its shell. At most 4 KiB.
    pub fn noise(&self) -> String {
        // What may still be the beginning of the batch is no noise before the end.
        let rest: &[u8] = if self.state == State::Banner { &self.buffer } else { &[] };
        let all = [&self.noise, rest].concat();
        String::from_utf8_lossy(all[..all.len().min(MAX_NOISE)].trim_ascii()).into_owned()
    }

    /// What netplay's own state is, as the batch printed it; nothing if it wasn't asked or didn't come.
    pub fn state(&self) -> Option<String> {
        let frame = self.frames.get(&STATE)?;
        (frame.code == Some(0)).then(|| String::from_utf8_lossy(&frame.data).into_owned())
    }

    /// That something was lost, with what the host's shell said to it: that it can't fork, mostly.
    fn lost(&self, what: &str) -> String {
        match String::from_utf8_lossy(&self.said).lines().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{what}; the host's shell said: {}", line.trim()),
            None => what.to_owned(),
        }
    }

    /// What became of the steps that have a frame.
    pub fn steps(&self) -> BTreeMap<u32, Ran> {
        let steps = self.frames.range(STATE + 1..FRAGMENTS);
        steps
            .map(|(&id, frame)| {
                let ran = match (frame.skip, frame.code) {
                    (true, _) => Ran::Skipped,
                    (false, Some(code)) => Ran::Yes(Output { code, stdout: frame.text.clone(), stderr: Vec::new() }),
                    (false, None) => Ran::Unknown(self.lost("how it ended was lost")),
                };
                (id, ran)
            })
            .collect()
    }

    /// What the probe's fragments gave, in their order.
    pub fn outputs(&mut self, fragments: &[crate::resource::Fragment]) -> Vec<Result<Output, Trouble>> {
        let take = |(i, fragment): (usize, &crate::resource::Fragment)| {
            let index = FRAGMENTS + u32::try_from(i).unwrap_or(0);
            let Some(frame) = self.frames.remove(&index) else {
                return Err(Trouble::new("the host sent no answer"));
            };
            let Some(code) = frame.code else { return Err(Trouble::new(self.lost("how the probe ended was lost"))) };
            if frame.overflow {
                let message = match frame.data.len() {
                    MAX_OUTPUT => format!("what it is known by has more than {} MiB on this host", MAX_OUTPUT >> 20),
                    _ => format!("the host sent more than {} MiB in one answer", MAX_KEPT >> 20),
                };
                return Err(Trouble::new(message).hint("look for a large file among those that it depends on"));
            }
            Ok(match fragment.user {
                Some(_) => Output { code, stdout: frame.text, stderr: Vec::new() },
                None => Output { code, stdout: frame.data, stderr: frame.text },
            })
        };
        fragments.iter().enumerate().map(take).collect()
    }

    fn note(&mut self, bytes: &[u8]) {
        let room = MAX_NOISE.saturating_sub(self.noise.len());
        self.noise.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn keep(&mut self, upto: usize) {
        let room = MAX_OUTPUT.saturating_sub(self.data.len()).min(MAX_KEPT.saturating_sub(self.kept));
        self.overflow |= upto > room;
        self.data.extend_from_slice(&self.buffer[..upto.min(room)]);
        self.kept += upto.min(room);
    }

    /// Takes as much of the buffer as can be understood. False when more is needed.
    fn advance(&mut self) -> bool {
        match &mut self.state {
            State::Over => false,
            State::Banner => {
                let mut begin = self.marker.clone();
                begin.extend_from_slice(b"begin\n");
                if let Some(at) = find(&self.buffer, &begin) {
                    let banner: Vec<u8> = self.buffer.drain(..at + begin.len()).take(at).collect();
                    self.note(&banner);
                    self.state = State::Data;
                    self.end = Ending::Broken;
                    return true;
                }
                let keep = self.buffer.len().saturating_sub(begin.len());
                let banner: Vec<u8> = self.buffer.drain(..keep).collect();
                self.note(&banner);
                false
            }
            State::Data => {
                let Some(at) = find(&self.buffer, &self.marker) else {
                    let upto = self.buffer.len().saturating_sub(self.marker.len());
                    self.keep(upto);
                    self.buffer.drain(..upto);
                    return false;
                };
                let header = at + self.marker.len();
                let Some(line) = self.buffer[header..].iter().position(|&b| b == b'\n') else {
                    if self.buffer.len() - header > MAX_HEADER {
                        self.state = State::Over;
                    }
                    return false;
                };
                self.keep(at);
                let words = String::from_utf8_lossy(&self.buffer[header..header + line]).into_owned();
                self.buffer.drain(..header + line + 1);
                self.header(&words);
                true
            }
            State::Text { left, text, .. } => {
                let n = self.buffer.len().min(*left);
                let room = MAX_TEXT.saturating_sub(text.len()).min(MAX_KEPT.saturating_sub(self.kept));
                text.extend_from_slice(&self.buffer[..n.min(room)]);
                self.kept += n.min(room);
                self.buffer.drain(..n);
                *left -= n;
                if *left > 0 {
                    return false;
                }
                let State::Text { index, code, mut text, skip, .. } = std::mem::replace(&mut self.state, State::Data)
                else {
                    return false;
                };
                // A newline follows the text.
                text.pop_if(|b| *b == b'\n');
                let frame = Frame {
                    code,
                    skip,
                    data: std::mem::take(&mut self.data),
                    overflow: std::mem::take(&mut self.overflow),
                    text,
                };
                self.frames.insert(index, frame);
                if self.frames.len() > MAX_FRAMES {
                    self.state = State::Over;
                }
                true
            }
        }
    }

    fn header(&mut self, words: &str) {
        let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
        let over = |end: Ending| (State::Over, end);
        let who = || if rest.is_empty() { "an unknown run".to_owned() } else { rest.to_owned() };
        (self.state, self.end) = match first {
            "end" => over(Ending::Complete),
            "moved" => over(Ending::Moved),
            "locked" => over(Ending::Locked(who())),
            "noflock" => over(Ending::Unlockable("the host has no `flock` (util-linux)".to_owned())),
            "nolock" => over(Ending::Unlockable(rest.to_owned())),
            "armed" => over(Ending::Armed(who())),
            "unarmed" => over(Ending::Unarmed(rest.to_owned())),
            "waiting" | "turn" if self.yields.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) => {
                over(Ending::Interrupted(self.waited_for.clone().unwrap_or_else(who)))
            }
            "waiting" => {
                self.waited_for = Some(who());
                self.data.clear();
                return;
            }
            "arming" => {
                self.hastens.as_ref().map(|until| until.set(Instant::now() + HASTE));
                self.data.clear();
                return;
            }
            "turn" => {
                self.go = true;
                self.data.clear();
                return;
            }
            _ => {
                let mut words = rest.split(' ');
                let (code, length) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                let (Ok(index), Ok(left)) = (first.parse(), length.parse::<usize>()) else {
                    self.state = State::Over;
                    return;
                };
                let skip = code == "skip";
                self.state = State::Text {
                    index,
                    code: code.parse().ok(),
                    left: left.saturating_add(1),
                    text: Vec::new(),
                    skip,
                };
                return;
            }
        };
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // The needle begins with a newline, which is rare in what is searched.
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|&b| b == needle[0]) {
        let at = from + at;
        if haystack.len() - at < needle.len() {
            return None;
        }
        if &haystack[at..at + needle.len()] == needle {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

impl Dialogue for Reader {
    fn begin(&mut self) -> Reply {
        // Who may have to wait for the lock is told to begin later.
        Reply::Write { bytes: self.script.take().unwrap_or_default(), end: self.yields.is_none() }
    }

    fn stdout(&mut self, bytes: &[u8]) -> Reply {
        self.buffer.extend_from_slice(bytes);
        while self.advance() {}
        match self.state {
            State::Over => Reply::Finish,
            _ if std::mem::take(&mut self.go) => Reply::Write { bytes: b"go\n".to_vec(), end: true },
            _ => Reply::More,
        }
    }

    fn stderr(&mut self, bytes: &[u8]) -> Reply {
        if self.end != Ending::Silent {
            let room = MAX_NOISE.saturating_sub(self.said.len());
            self.said.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        self.note(bytes);
        Reply::More
    }
}
