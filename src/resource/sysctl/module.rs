//! The kernel module that a congestion control is: `tcp_bbr` of `bbr`. The kernel loads it when the value is written;
//! for the next boot a file of modules-load.d(5) names it, which is read before systemd-sysctl runs.

use crate::resource::kernel_module;
use crate::resource::keyfile::Edit;
use crate::resource::probes::small::{Small, SmallFile};
use crate::resource::{Answers, Change, FileDiff, Question, Step, Trouble};
use serde_json::Value as Json;

/// The parameter that brings it.
pub(super) const PARAMETER: &str = "net/ipv4/tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A module, by its congestion control.
#[derive(Debug)]
pub(super) struct Module<'a>(&'a str);

/// What was found of it.
#[derive(Debug)]
pub(super) struct Found {
    name: String,
    file: String,
    text: Option<Vec<u8>>,
    needed: bool,
}

impl<'a> Module<'a> {
    /// The module of a congestion control, if its name can be that of one.
    pub(super) fn of(control: &'a str) -> Option<Module<'a>> {
        let good = !control.is_empty() && control.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        good.then_some(Module(control))
    }

    fn file(&self) -> String {
        kernel_module::list_of(&format!("tcp_{}", self.0))
    }

    /// Modules have this file, what is built in hasn't.
    fn state(&self) -> String {
        format!("/sys/module/tcp_{}/initstate", self.0)
    }

    /// In an image only its file is asked for.
    pub(super) fn probe(&self, image: bool) -> impl Iterator<Item = Question> + use<> {
        let live = [self.state(), AVAILABLE.to_owned()].into_iter().filter(move |_| !image);
        [self.file()].into_iter().chain(live).map(SmallFile::ask)
    }

    pub(super) fn read(&self, answers: &Answers, image: bool) -> Result<Found, Trouble> {
        let small = |path: &str| answers.get::<SmallFile>(path);
        let built_in = !image && {
            let available = small(AVAILABLE)?.value()?.unwrap_or_default();
            let loaded = !matches!(small(&self.state())?, Small::Absent);
            available.split_whitespace().any(|word| word == self.0) && !loaded
        };
        let (name, file) = (format!("tcp_{}", self.0), self.file());
        let text = match small(&file)? {
            Small::Absent => None,
            Small::Text(text) => Some(text.clone()),
            Small::Unreadable(why) => return Err(why.clone()),
        };
        let listed = String::from_utf8_lossy(text.as_deref().unwrap_or_default()).lines().any(|l| l.trim() == name);
        Ok(Found { needed: !built_in && !listed, name, file, text })
    }
}

impl Found {
    fn edit(&self) -> Option<Edit> {
        self.needed.then(|| Edit::of(&self.file).append(&self.name))
    }

    pub(super) fn change(&self) -> Option<Change> {
        self.needed.then(|| Change::now(format!("module {} at boot", self.name), Json::Null, "loaded"))
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.edit().as_ref().map_or_else(Vec::new, kernel_module::list_steps)
    }

    pub(super) fn preview(&self) -> Option<FileDiff> {
        self.edit().map(|edit| edit.preview(self.text.as_deref()))
    }
}
