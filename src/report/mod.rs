//! What the operator and his scripts see: consumers of [events](crate::event). Nothing else prints.

mod boots;
mod checks;
mod closing;
mod diff;
mod failures;
mod fold;
mod human;
mod json;
mod junit;
mod ndjson;
mod outcome;
mod outputs;
mod progress;
mod redact;
#[cfg(test)]
mod tests;
mod text;

use crate::error::{Error, Errors, suggest};
use crate::event::Event;
use crate::secret::Secrets;
use indicatif::ProgressDrawTarget;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;

/// A consumer of events.
pub trait Reporter {
    /// Takes the next event.
    ///
    /// # Errors
    /// What it writes to can't be written.
    fn event(&mut self, event: &Event) -> io::Result<()>;
    /// No event follows.
    ///
    /// # Errors
    /// As for [`Reporter::event`].
    fn finish(&mut self) -> io::Result<()>;
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Human,
    /// One JSON object a line.
    NdJson,
    /// One JSON document.
    Json,
    /// JUnit's XML.
    JUnit,
}

const FORMATS: &[(&str, Format)] =
    &[("human", Format::Human), ("ndjson", Format::NdJson), ("json", Format::Json), ("junit", Format::JUnit)];

/// One `--output FORMAT[=FILE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How.
    pub format: Format,
    /// Where to; nothing is standard output.
    pub file: Option<PathBuf>,
}

impl FromStr for Output {
    type Err = Error;

    fn from_str(text: &str) -> Result<Output, Error> {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) => (name, Some(file)),
            None => (text, None),
        };
        let Some((_, format)) = FORMATS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = FORMATS.iter().map(|(known, _)| *known).collect();
            return Err(Error::usage(format!("unknown output format `{name}`")).hint(suggest(name, &known)));
        };
        if file == Some("") {
            return Err(Error::usage(format!("no file after `{name}=`"))
                .hint(format!("`--output {name}` writes to standard output, `--output {name}=FILE` to a file")));
        }
        Ok(Output { format: *format, file: file.map(PathBuf::from) })
    }
}

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorChoice {
    /// On a terminal, unless the environment says otherwise (`NO_COLOR`, `CLICOLOR_FORCE`, `TERM=dumb`).
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Whether there are colours on something that is a terminal or not. Of the environment `NO_COLOR` wins, as
    /// no-color.org has it; empty variables count as unset.
    fn resolve(self, terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match self {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if set("NO_COLOR").is_some() => false,
            ColorChoice::Auto if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
            ColorChoice::Auto => terminal && variable("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    fn on(self, terminal: bool) -> bool {
        self.resolve(terminal, |name| std::env::var(name).ok())
    }
}

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Verbosity {
    /// Only what failed (`-q`).
    Quiet,
    /// What changed and what failed.
    #[default]
    Normal,
    /// What was left out by `when` and tags too, and executions (`-v`).
    Verbose,
    /// The scripts that run as well (`-vv`).
    Scripts,
}

/// All outputs of a run. One that can't be written any more is given up, and the run goes on.
pub struct Reporters {
    list: Vec<Target>,
    color: ColorChoice,
    secrets: Secrets,
}

struct Target {
    name: String,
    reporter: Box<dyn Reporter + Send>,
    broken: Option<io::Error>,
    /// Whether it is the run's log, without which the run is as good.
    log: bool,
}

impl Reporters {
    /// Opens the outputs, in none of which a secret occurs. If none that goes to standard output is for people, people are told on standard error.
    ///
    /// # Errors
    /// Two outputs have one destination, or a file can't be made.
    pub fn open(
        outputs: &[Output],
        color: ColorChoice,
        verbosity: Verbosity,
        secrets: &Secrets,
    ) -> Result<Reporters, Error> {
        for (i, output) in outputs.iter().enumerate() {
            if outputs[..i].iter().any(|other| other.file == output.file) {
                let name = destination(output);
                return Err(Error::usage(format!("two outputs go to {name}"))
                    .hint("give each `--output` a file of its own, and at most one of them none"));
            }
        }
        let mut list = Vec::new();
        if outputs.is_empty() {
            list.push(Target::new("standard output", console(Stream::Out, color, verbosity)));
        } else if !outputs.iter().any(|o| o.format == Format::Human && o.file.is_none()) {
            list.push(Target::new("standard error", console(Stream::Err, color, verbosity)));
        }
        for output in outputs {
            let out: Box<dyn Write + Send> = match &output.file {
                Some(path) => {
                    let file = File::create(path).map_err(|e| {
                        Error::usage(format!("can't write {}: {e}", path.display()))
                            .hint("`--output FORMAT=FILE` needs a folder that is there and may be written")
                    })?;
                    Box::new(BufWriter::new(file))
                }
                None => Box::new(io::stdout()),
            };
            let reporter: Box<dyn Reporter + Send> = match (output.format, &output.file) {
                (Format::NdJson, _) => Box::new(ndjson::NdJson::new(out, jiff::Timestamp::now)),
                (Format::Json, _) => Box::new(json::Json::new(out, jiff::Timestamp::now)),
                (Format::JUnit, _) => Box::new(junit::JUnit::new(out, jiff::Timestamp::now)),
                (Format::Human, None) => console(Stream::Out, color, verbosity),
                (Format::Human, Some(_)) => Box::new(human::Human::new(
                    out,
                    human::Look { color: color == ColorChoice::Always, verbosity, ..human::Look::default() },
                )),
            };
            list.push(Target::new(&destination(output), reporter));
        }
        Ok(Reporters { list, color, secrets: secrets.clone() })
    }

    /// Writes all that happens to the log of the run too, as `ndjson`.
    pub fn log(&mut self, name: &str, file: File) {
        // A line is one write, so that one that is there is whole.
        let reporter = Box::new(ndjson::NdJson::new(Box::new(file), jiff::Timestamp::now));
        self.list.push(Target { log: true, ..Target::new(name, reporter) });
    }

    /// Gives an event to all of them.
    pub fn event(&mut self, event: &Event) {
        let event = redact::redacted(event, &self.secrets);
        self.each(|reporter| reporter.event(&event));
    }

    /// No event follows.
    ///
    /// # Errors
    /// Names the outputs that couldn't be written. A reader of standard output or standard error that has gone away
    /// (`| head`) is none of them, and of the log it is only told.
    pub fn finish(mut self) -> Result<(), Errors> {
        self.each(|reporter| reporter.finish());
        let mut errors = Vec::new();
        for target in &self.list {
            match &target.broken {
                Some(e) if target.log => {
                    warning(&format!("the log {} is incomplete: {e}", target.name), self.color, &self.secrets);
                }
                Some(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    errors.push(Error::usage(format!("the output to {} is incomplete: {e}", target.name)));
                }
                _ => {}
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
    }

    fn each(&mut self, mut call: impl FnMut(&mut dyn Reporter) -> io::Result<()>) {
        for target in &mut self.list {
            if target.broken.is_none() {
                target.broken = call(&mut *target.reporter).err();
            }
        }
    }
}

impl Target {
    fn new(name: &str, reporter: Box<dyn Reporter + Send>) -> Target {
        Target { name: name.to_owned(), reporter, broken: None, log: false }
    }
}

fn destination(output: &Output) -> String {
    output.file.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string())
}

/// One of the two streams of the process.
#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// The reporter for people on a stream.
fn console(stream: Stream, color: ColorChoice, verbosity: Verbosity) -> Box<dyn Reporter + Send> {
    let (out, terminal, screen): (Box<dyn Write + Send>, bool, _) = match stream {
        Stream::Out => (Box::new(io::stdout()), io::stdout().is_terminal(), console::Term::stdout()),
        Stream::Err => (Box::new(io::stderr()), io::stderr().is_terminal(), console::Term::stderr()),
    };
    let target = match stream {
        Stream::Out => ProgressDrawTarget::stdout_with_hz(10),
        Stream::Err => ProgressDrawTarget::stderr_with_hz(10),
    };
    let look = human::Look {
        color: color.on(terminal),
        width: screen.size_checked().filter(|_| terminal).map(|(_, columns)| columns.into()),
        verbosity,
        progress: (terminal && verbosity > Verbosity::Quiet).then(|| progress::Progress::new(target)),
        side: matches!(stream, Stream::Out).then(|| Box::new(io::stderr()) as Box<dyn Write + Send>),
    };
    Box::new(human::Human::new(out, look))
}

/// Writes the result of a command that isn't a run (`inventory`, `graph`, `docs`) to standard output. A reader that
/// has gone away isn't an error.
///
/// # Errors
/// Standard output can't be written.
pub fn print(text: &str, secrets: &Secrets) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(secrets.redact(text).as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::usage(format!("can't write standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// Tells on standard error what is wrong. Nothing can be done if that can't be written.
pub fn errors(errors: &Errors, color: ColorChoice, secrets: &Secrets) {
    let palette = text::Palette { on: color.on(io::stderr().is_terminal()) };
    let told = errors.to_string();
    let shown: String = secrets.redact(&told).lines().map(|line| error_line(line, palette) + "\n").collect();
    let _ = io::stderr().write_all(shown.as_bytes());
}

fn error_line(line: &str, palette: text::Palette) -> String {
    let line = text::lines(line).next().unwrap_or_default();
    match line.strip_prefix("error: ") {
        Some(rest) => format!("{} {rest}", palette.bad("error:")),
        None => line,
    }
}

/// Tells on standard error what should be known though nothing is wrong, of a command that isn't a run.
pub fn warning(message: &str, color: ColorChoice, secrets: &Secrets) {
    let palette = text::Palette { on: color.on(io::stderr().is_terminal()) };
    let _ = io::stderr().write_all(human::warning(&secrets.redact(message), palette).as_bytes());
}
