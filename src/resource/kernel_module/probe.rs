//! What is asked of a host about kernel modules.

use super::boot::{Boot, same_name};
use crate::resource::{Fragment, Group, Output, Trouble};
use crate::shell::Script;
use std::collections::BTreeMap;

/// The group. An argument is a module's name, with `_` for `-`.
pub(super) struct Modules;

/// The group of what modules take. An argument is a module's name.
pub(super) struct Declared;

impl Group for Declared {
    /// The names of its parameters; nothing where that can't be told.
    type Answer = Option<Vec<String>>;
    const NAME: &'static str = "parameters of modules";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        // modinfo(8): `NAME:DESCRIPTION (TYPE)`; a description may have further lines.
        let ask = "o=$(modinfo -p -- \"$m\" 2>/dev/null) && printf 'declares\\n%s\\n' \"$o\"\nexit 0";
        args.iter().map(|name| Script::new().set("m", name).line(ask).into()).collect()
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Option<Vec<String>>, Trouble>> {
        let read = |output: &Output| {
            let name = |line: &str| line.split_once(':').map(|(name, _)| name.to_owned());
            output.text().strip_prefix("declares\n").map(|rest| rest.lines().filter_map(name).collect())
        };
        (0..args.len()).map(|at| Ok(outputs.get(at).and_then(read))).collect()
    }
}

/// Whether it is in the kernel that runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Live {
    /// Loaded, or on its way in or out.
    Loaded,
    /// A part of the kernel.
    BuiltIn,
    #[default]
    Absent,
}

/// A parameter that `/sys/module` shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Nothing where it can't be read.
    pub(super) value: Option<String>,
    pub(super) writable: bool,
}

/// The answer to one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The running kernel's release.
    pub(super) kernel: String,
    /// Whether the kernel can't load modules at all.
    pub(super) fixed: bool,
    /// Whether there is no folder of modules for it.
    pub(super) bare: bool,
    pub(super) live: Live,
    /// Whether there is a module of this name to load.
    pub(super) known: bool,
    /// How many users it has, modules and others.
    pub(super) users: u32,
    /// The modules among them.
    pub(super) holders: Vec<String>,
    /// The interfaces that go with it, which the kernel doesn't count as its users.
    pub(super) interfaces: Vec<String>,
    pub(super) parameters: BTreeMap<String, Shown>,
    pub(super) boot: Boot,
}

impl Found {
    /// Whether something would break without it.
    pub(super) fn in_use(&self) -> bool {
        self.users > 0 || !self.holders.is_empty() || !self.interfaces.is_empty()
    }
}

impl Group for Modules {
    type Answer = Found;
    const NAME: &'static str = "kernel modules";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        vec![Script::new().args(args).line(include_str!("probe.sh")).into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let output = &outputs[0];
        if output.code != 0 {
            let trouble = Trouble::new(format!("what is said about modules can't be read: {}", output.complaint()));
            return vec![Err(trouble); args.len()];
        }
        let text = output.text();
        let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut title = "";
        for line in text.lines() {
            match line.strip_prefix("== ") {
                Some(next) => title = next,
                None => sections.entry(title).or_default().push(line),
            }
        }
        let section = |title: &str| sections.get(title).map(Vec::as_slice).unwrap_or_default();
        let boot = Boot::read(section("files"), section("lines"), &section("command line").join(" "));
        args.iter().map(|name| Ok(one(name, &section, &boot))).collect()
    }
}

fn one<'a>(name: &str, section: &dyn Fn(&str) -> &'a [&'a str], boot: &Boot) -> Found {
    let mut found = Found { boot: boot.clone(), ..Found::default() };
    for line in section("") {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["kernel", release] => found.kernel = (*release).to_owned(),
            ["fixed"] => found.fixed = true,
            ["bare"] => found.bare = true,
            ["holder", of, holder] if *of == name => found.holders.push((*holder).to_owned()),
            ["carries", of, interface] if *of == name => found.interfaces.push((*interface).to_owned()),
            _ => {}
        }
    }
    let below = format!("/sys/module/{name}/");
    let parameter = |path: &str| path.strip_prefix(&below)?.strip_prefix("parameters/").map(str::to_owned);
    for line in section("modes") {
        let Some((mode, path)) = line.split_once(' ') else { continue };
        if let Some(parameter) = parameter(path) {
            let writable = u32::from_str_radix(mode, 8).is_ok_and(|mode| mode & 0o200 != 0);
            found.parameters.insert(parameter, Shown { value: None, writable });
        }
    }
    for line in section("sys") {
        let Some((path, value)) = line.split_once(':') else { continue };
        if path == format!("{below}initstate") {
            found.live = Live::Loaded;
        } else if path == format!("{below}refcnt") {
            found.users = value.trim().parse().unwrap_or_default();
        } else if let Some(shown) = parameter(path).and_then(|p| found.parameters.get_mut(&p)) {
            shown.value = Some(value.to_owned());
        }
    }
    for line in section("known") {
        // Printed as `/lib/modules/RELEASE/modules.dep:kernel/…/NAME.ko.xz:`, behind the file that has it.
        let Some((list, path)) = line.split_once(':') else { continue };
        let file = path.rsplit('/').next().unwrap_or_default();
        if same_name(file.split(".ko").next().unwrap_or_default(), name) {
            found.known = true;
            if list.ends_with("modules.builtin") && found.live == Live::Absent {
                found.live = Live::BuiltIn;
            }
        }
    }
    // What is built in and has parameters is seen there too, also where no list of modules is.
    if found.live == Live::Absent && !found.parameters.is_empty() {
        found.live = Live::BuiltIn;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Question;
    use crate::resource::trial::{Shell, ask};

    #[test]
    fn interfaces_that_go_with_a_module_are_told() {
        for shell in Shell::ALL {
            let inquiry = crate::resource::Inquiry::new([Question::of::<Modules>("bridge")]);
            let setup = "ip link add br0 type bridge; ip link add v0 type veth peer name v1";
            let run = |f: &Fragment| Ok(shell.run_in_net(setup, f.script.as_str()));
            let answers = inquiry.answers(inquiry.fragments().iter().map(run).collect());
            assert_eq!(answers.get::<Modules>("bridge").unwrap().interfaces, ["br0"], "{shell:?}");
        }
    }

    /// This machine's own kernel, whatever it is: each has `printk` built in, with parameters.
    #[test]
    fn the_kernel_that_runs_is_read_by_all_shells() {
        for shell in Shell::ALL {
            let names = ["printk", "no_such_module"];
            let answers = ask(shell, names.iter().map(|name| Question::of::<Modules>(*name)));
            let found = answers.get::<Modules>("printk").unwrap();
            assert_eq!(found.live, Live::BuiltIn, "{shell:?}: {found:?}");
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            assert_eq!(found.kernel, release.trim());
            assert!(
                found.parameters["time"].value.is_some() && found.parameters["time"].writable,
                "{shell:?}: {found:?}"
            );
            let none = answers.get::<Modules>("no_such_module").unwrap();
            assert_eq!((none.live, none.known, none.parameters.len()), (Live::Absent, false, 0), "{shell:?}");
        }
    }
}
