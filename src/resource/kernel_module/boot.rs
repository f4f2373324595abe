//! What the files of modules-load.d(5) and modprobe.d(5) make of a module at the next boot.

use std::collections::BTreeMap;

/// One line that counts: its file, its number, and its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) path: String,
    pub(super) number: usize,
    pub(super) words: Vec<String>,
}

impl Line {
    /// Its place, for errors: `/etc/modprobe.d/x.conf:3`.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path, self.number)
    }
}

/// The lines of all files, in the order in which they are read; files that another one of the same name hides left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Boot {
    /// Of modules-load.d.
    load: Vec<Line>,
    /// Of modprobe.d.
    probe: Vec<Line>,
    /// The kernel's command line.
    command_line: Vec<String>,
}

/// The kernel takes `-` for `_` in names of modules.
pub(super) fn same_name(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(a, b)| a == b || matches!((a, b), (b'-', b'_') | (b'_', b'-')))
}

impl Boot {
    /// `files` in the order of their folders' weight, `lines` as grep prints them: `PATH:NUMBER:TEXT`.
    pub(super) fn read(files: &[&str], lines: &[&str], command_line: &str) -> Boot {
        let mut boot =
            Boot { command_line: command_line.split_whitespace().map(str::to_owned).collect(), ..Boot::default() };
        for kind in ["modules-load.d", "modprobe.d"] {
            // Of several files of one name the first folder's counts; they are read in the order of their names.
            let mut counted: BTreeMap<&str, &str> = BTreeMap::new();
            for path in files {
                if let Some((folder, name)) = path.rsplit_once('/')
                    && folder.rsplit('/').next() == Some(kind)
                {
                    counted.entry(name).or_insert(path);
                }
            }
            for path in counted.values() {
                for line in lines {
                    let found = line.strip_prefix(path).and_then(|rest| rest.strip_prefix(':')?.split_once(':'));
                    let Some((number, text)) = found else { continue };
                    let Ok(number) = number.parse() else { continue };
                    let words = text.split_whitespace().map(str::to_owned).collect();
                    let line = Line { path: (*path).to_owned(), number, words };
                    if kind == "modules-load.d" { boot.load.push(line) } else { boot.probe.push(line) }
                }
            }
        }
        boot
    }

    /// The lines that load it.
    pub(super) fn loads<'a>(&'a self, module: &'a str) -> impl Iterator<Item = &'a Line> {
        self.load.iter().filter(move |l| l.words.first().is_some_and(|w| same_name(w, module)))
    }

    /// The lines of modprobe.d of this kind (`options`, `blacklist`, `install`) about it.
    pub(super) fn says<'a>(&'a self, kind: &'a str, module: &'a str) -> impl Iterator<Item = &'a Line> {
        let about = move |l: &&Line| {
            l.words.first().is_some_and(|w| w == kind) && l.words.get(1).is_some_and(|w| same_name(w, module))
        };
        self.probe.iter().filter(about)
    }

    /// Which option it has at boot, with its line; the last one wins.
    pub(super) fn option<'a>(&'a self, module: &'a str, parameter: &str) -> Option<(&'a Line, &'a str)> {
        let of = |line: &'_ Line| -> Option<usize> {
            line.words.iter().rposition(|w| w.split('=').next().is_some_and(|key| same_name(key, parameter)))
        };
        let found: Vec<(&Line, usize)> =
            self.says("options", module).filter_map(|l| Some((l, of(l).filter(|i| *i > 1)?))).collect();
        let (line, at) = found.last()?;
        Some((line, line.words[*at].split_once('=').map_or("", |(_, value)| value)))
    }

    /// The words of the kernel's command line that keep it from being loaded by itself.
    pub(super) fn denied(&self, module: &str) -> Option<&str> {
        let keys = ["module_blacklist=", "modprobe.blacklist="];
        let denies = |w: &&String| {
            let list = keys.iter().find_map(|key| w.strip_prefix(key));
            list.is_some_and(|list| list.split(',').any(|name| same_name(name, module)))
        };
        self.command_line.iter().find(denies).map(String::as_str)
    }

    /// What the kernel's command line sets a parameter to.
    pub(super) fn given(&self, module: &str, parameter: &str) -> Option<&str> {
        self.command_line.iter().rev().find_map(|word| {
            let (key, value) = word.split_once('=')?;
            let (of, name) = key.split_once('.')?;
            (same_name(of, module) && same_name(name, parameter)).then_some(value)
        })
    }
}
