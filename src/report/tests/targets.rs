//! Where events go: `--output`, colours, and what happens when something can't be written.

use super::{Shared, bad_day};
use crate::report::human::{Human, Look};
use crate::report::{ColorChoice, Format, Output, Reporters, Target, Verbosity};
use crate::secret::Secrets;
use std::io::{self, Write};

#[test]
fn outputs_are_parsed() {
    let parse = |text: &str| text.parse::<Output>().map_err(|e| e.to_string());
    assert_eq!(parse("human"), Ok(Output { format: Format::Human, file: None }));
    assert_eq!(parse("ndjson=a=b"), Ok(Output { format: Format::NdJson, file: Some("a=b".into()) }));
    for (text, error) in [
        ("njson", "unknown output format `njson`\n  help: did you mean `ndjson`? known: human, ndjson, json, junit"),
        (
            "ndjson=",
            "no file after `ndjson=`\n  help: `--output ndjson` writes to standard output, `--output ndjson=FILE` to a file",
        ),
    ] {
        assert_eq!(parse(text), Err(error.to_owned()));
    }
}

fn open(outputs: &[&str]) -> Result<Reporters, String> {
    let outputs: Vec<Output> = outputs.iter().map(|o| o.parse().unwrap()).collect();
    Reporters::open(&outputs, ColorChoice::Never, Verbosity::Normal, &Secrets::default()).map_err(|e| e.to_string())
}

#[test]
fn human_output_gives_way_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("ndjson={}", folder.path().join("x").display());
    for (outputs, opened) in [
        (&[][..], &["standard output"][..]),
        (&["human"], &["standard output"]),
        (&["ndjson"], &["standard error", "standard output"]),
        (&["human", &file], &["standard output", &file[7..]]),
        (&[&file], &["standard error", &file[7..]]),
    ] {
        let names: Vec<String> = open(outputs).unwrap().list.into_iter().map(|t| t.name).collect();
        assert_eq!(names, opened);
    }
    let error = open(&["human", "ndjson"]).err().unwrap();
    assert!(error.starts_with("two outputs go to standard output"), "{error}");
    let error = open(&["ndjson=/nowhere/x"]).err().unwrap();
    assert!(error.starts_with("can't write /nowhere/x: No such file"), "{error}");
}

#[test]
fn files_get_what_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.txt");
    let mut reporters = open(&[&format!("human={}", path.display())]).unwrap();
    reporters.list.retain(|target| target.name != "standard error");
    let run = bad_day();
    run.all().iter().for_each(|event| reporters.event(event));
    reporters.finish().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), run.human());
}

#[test]
fn colours_follow_the_environment() {
    let on = |choice: ColorChoice, terminal, variables: &[(&str, &str)]| {
        choice.resolve(terminal, |name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    };
    use ColorChoice::{Always, Auto, Never};
    assert!(on(Auto, true, &[]));
    assert!(!on(Auto, false, &[]));
    assert!(!on(Auto, true, &[("TERM", "dumb")]));
    assert!(!on(Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
    assert!(on(Auto, true, &[("NO_COLOR", "")]));
    assert!(on(Auto, false, &[("CLICOLOR_FORCE", "1")]));
    assert!(!on(Auto, false, &[("CLICOLOR_FORCE", "0")]));
    assert!(on(Always, false, &[("NO_COLOR", "1")]));
    assert!(!on(Never, true, &[("CLICOLOR_FORCE", "1")]));
}

/// Takes some bytes, then none.
struct Short(usize, io::ErrorKind);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(self.1.into());
        }
        let n = bytes.len().min(self.0);
        self.0 -= n;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_breaks_leaves_the_others() {
    for (kind, told) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
        let good = Shared::default();
        let human = |out: Box<dyn Write + Send>| Box::new(Human::new(out, Look::default()));
        let mut reporters = Reporters {
            list: vec![
                Target::new("pipe", human(Box::new(Short(100, kind)))),
                Target::new("good", human(Box::new(good.clone()))),
            ],
            color: ColorChoice::Never,
            secrets: Secrets::default(),
        };
        let run = bad_day();
        run.all().iter().for_each(|event| reporters.event(event));
        let end = reporters.finish();
        assert_eq!(good.text(), run.human());
        assert_eq!(end.is_err(), told);
        if let Err(errors) = end {
            assert!(errors.to_string().starts_with("error: the output to pipe is incomplete: "), "{errors}");
        }
    }
}
