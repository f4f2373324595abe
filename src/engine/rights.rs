//! What to do about a lack of rights.

use crate::event::Problem;
use crate::plan::Who;

/// How tools say that somebody may not do a thing: the kernel's words, systemd's, polkit's and NetworkManager's.
const REFUSALS: [&str; 7] = [
    "permission denied",
    "operation not permitted",
    "access denied",
    "interactive authentication required",
    "insufficient privileges",
    "must be root",
    "are you root",
];

/// Adds to a failure for want of rights as whom it ran, unless that was root or there is another hint; that netplay's own
/// state can't be written mostly is such a failure too.
pub(super) fn explain(problem: &mut Problem, who: &Who, login: &str) {
    let user = match who {
        Who::Login => login,
        Who::User(user) => user,
    };
    let message = problem.message.to_lowercase();
    if user != "root" && REFUSALS.iter().any(|refusal| message.contains(refusal)) {
        let told = remedy(who, login);
        match &mut problem.hint {
            None => problem.hint = Some(told),
            Some(hint) if problem.kind == "state" => *hint = format!("{hint}; {told}"),
            Some(_) => {}
        }
    }
}

/// As whom something runs, and what makes it root's.
pub(super) fn remedy(who: &Who, login: &str) -> String {
    match who {
        Who::Login => format!("it runs as {login}: `become: true` makes it root's"),
        Who::User(user) => format!("it runs as {user}, by `become_user`: leave that out, and it is root's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_not_root_is_told_to_become_root() {
        let explained = |message: &str, who: Who, login: &str, hint: Option<&str>| {
            let mut problem = Problem { kind: "step", message: message.to_owned(), hint: hint.map(str::to_owned) };
            explain(&mut problem, &who, login);
            problem.hint
        };
        let denied = "mkdir: cannot create directory '/x': Permission denied";
        let told = explained(denied, Who::Login, "ops", None);
        assert_eq!(told.as_deref(), Some("it runs as ops: `become: true` makes it root's"));
        let told = explained("Failed to stop x.service: Access denied", Who::User("app".into()), "root", None);
        assert_eq!(told.as_deref(), Some("it runs as app, by `become_user`: leave that out, and it is root's"));
        assert_eq!(explained(denied, Who::Login, "root", None), None);
        assert_eq!(explained(denied, Who::User("root".into()), "ops", None), None);
        assert_eq!(explained("exit code 1: no space left on device", Who::Login, "ops", None), None);
        assert_eq!(explained(denied, Who::Login, "ops", Some("other")).as_deref(), Some("other"));
        let hint = Some("must be writable".to_owned());
        let mut problem = Problem { kind: "state", message: denied.to_owned(), hint };
        explain(&mut problem, &Who::Login, "ops");
        assert_eq!(problem.hint.unwrap(), "must be writable; it runs as ops: `become: true` makes it root's");
    }
}
