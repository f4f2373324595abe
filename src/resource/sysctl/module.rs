//! The kernel module that a congestion control is: `tcp_bbr` of `bbr`. The kernel loads it when the value is written;
//! for the next boot a file of modules-load.d(5) names it, which is read before systemd-sysctl runs.

use crate::error::nearest;
use crate::resource::kernel_module;
use crate::resource::keyfile::Edit;
use crate::resource::probes::small::{Small, SmallFile};
use crate::resource::{Answers, Change, Claim, FileDiff, Fragment, Group, Output, Question, Step, Trouble};
use crate::shell::Script;
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
    /// Why the kernel can't have it.
    unknown: Option<Trouble>,
}

/// The group. An argument is a congestion control; the answer is whether the kernel could have it, as far as can be seen:
/// it has, or there is a module of its name, or nobody knows the modules.
struct Controls;

impl Group for Controls {
    type Answer = bool;
    const NAME: &'static str = "congestion controls";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let ask = "grep -qsw -e \"$c\" /proc/sys/net/ipv4/tcp_available_congestion_control && exit 0\n\
                   if [ -e /proc/modules ]; then\n  d=/lib/modules/$(uname -r)\n  [ -e \"$d/modules.dep\" ] || exit 0\n  \
                   grep -qs -e \"/tcp_$c\\.ko\" -e \"^alias tcp_$c \" \"$d/modules.dep\" \"$d/modules.alias\" && exit 0\nfi\n\
                   echo none\nexit 0";
        args.iter().map(|control| Script::new().set("c", control).line(ask).into()).collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<bool, Trouble>> {
        (0..args.len()).map(|at| Ok(outputs.get(at).is_none_or(|output| output.text().trim() != "none"))).collect()
    }
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
        let control = (!image).then(|| Question::of::<Controls>(self.0));
        [self.file()].into_iter().chain(live).map(SmallFile::ask).chain(control)
    }

    pub(super) fn read(&self, answers: &Answers, image: bool) -> Result<Found, Trouble> {
        let small = |path: &str| answers.get::<SmallFile>(path);
        let available = if image { String::new() } else { small(AVAILABLE)?.value()?.unwrap_or_default() };
        let available: Vec<&str> = available.split_whitespace().collect();
        let built_in = available.contains(&self.0) && matches!(small(&self.state())?, Small::Absent);
        let unknown = if image || *answers.get::<Controls>(self.0)? { None } else { Some(self.unknown(&available)) };
        let (name, file) = (format!("tcp_{}", self.0), self.file());
        let text = match small(&file)? {
            Small::Absent => None,
            Small::Text(text) => Some(text.clone()),
            Small::Unreadable(why) => return Err(why.clone()),
        };
        let listed = String::from_utf8_lossy(text.as_deref().unwrap_or_default()).lines().any(|l| l.trim() == name);
        Ok(Found { needed: !built_in && !listed && unknown.is_none(), name, file, text, unknown })
    }

    fn unknown(&self, available: &[&str]) -> Trouble {
        let (name, has) = (self.0, available.join(", "));
        let trouble = Trouble::new(format!(
            "net.ipv4.tcp_congestion_control can't be {name}: the kernel has {has}, and there is no module tcp_{name}"
        ));
        match nearest(name, available.iter().copied().chain(["bbr", "cubic", "dctcp", "reno"])) {
            Some(near) => trouble.hint(format!("is it {near}?")),
            None => trouble.hint("a package of the kernel's further modules may have it; bring that before this"),
        }
    }
}

impl Found {
    fn edit(&self) -> Option<Edit> {
        self.needed.then(|| Edit::of(&self.file).append(&self.name))
    }

    /// Why the kernel can't have it, and whose change could bring it.
    pub(super) fn unknown(&self) -> Option<(&Trouble, Claim)> {
        Some((self.unknown.as_ref()?, Claim::new(kernel_module::KIND, self.name.as_str())))
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
