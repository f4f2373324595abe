//! What keeps a module from being at the next boot as our files say.

use super::boot::Line;
use super::probe::Live;
use super::value::same;
use super::{KernelModule, State, list_of};
use crate::resource::Trouble;

impl KernelModule {
    /// Why it isn't so at the next boot, whatever our files say.
    pub(super) fn loses(&self, now: &State) -> Vec<Trouble> {
        let (boot, ours) = (&now.found.boot, self.options_file());
        let mut found = Vec::new();
        if !self.persist {
            return found;
        }
        if !self.present {
            for line in boot.loads(&self.name).filter(|line| line.path != list_of(&self.name)) {
                found.push(Trouble::new(format!("at boot it is loaded by {}", line.place())).hint("remove that line"));
            }
            return found;
        }
        if now.found.live == Live::BuiltIn {
            for (key, value) in &self.parameters {
                if !boot.given(&self.name, key).is_some_and(|got| same(value, got)) {
                    let word = format!("{}.{key}={value}", self.name);
                    found.push(
                        Trouble::new(format!("at boot {key} isn't set, as {} is built into the kernel", self.name))
                            .hint(format!("add `{word}` to the kernel's command line")),
                    );
                }
            }
            return found;
        }
        if let Some(line) = boot.says("blacklist", &self.name).find(|line| line.path != ours) {
            let message = format!("at boot it isn't loaded, by {}: `{}`", line.place(), line.words.join(" "));
            found.push(Trouble::new(message).hint("remove that line"));
        }
        if let Some(word) = boot.denied(&self.name) {
            let message = format!("at boot it isn't loaded, by the kernel's command line: `{word}`");
            found.push(Trouble::new(message).hint("take it out of the boot loader's configuration"));
        }
        let never = |line: &&Line| line.words.get(2).is_some_and(|w| w.ends_with("/false") || w.ends_with("/true"));
        if let Some(line) = boot.says("install", &self.name).find(never) {
            let message = format!("modprobe never loads it, by {}: `{}`", line.place(), line.words.join(" "));
            found.push(Trouble::new(message).hint("remove that line"));
        }
        for (key, value) in &self.parameters {
            if let Some((line, got)) = boot.option(&self.name, key)
                && line.path.rsplit('/').next() > ours.rsplit('/').next()
                && !same(value, got)
            {
                let message = format!("at boot {key}={got} wins: {}", line.place());
                found.push(Trouble::new(message).hint("remove that option there"));
            }
            if let Some(got) = boot.given(&self.name, key).filter(|got| !same(value, got)) {
                let message = format!("at boot {key}={got} stands on the kernel's command line");
                found.push(Trouble::new(message).hint("take it out of the boot loader's configuration"));
            }
        }
        found
    }
}
