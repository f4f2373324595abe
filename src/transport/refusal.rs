//! What a host says in place of running a script.

use super::{Exit, Failure, FailureKind, Target};

/// Why a request was taken and its script gave no sign of having begun, by what was said on both outputs and by how it
/// ended.
pub fn never_began(target: &Target, said: &str, exit: &Exit) -> Failure {
    let has = |part: &str| said.contains(part);
    let user = &target.user;
    // sshd and PAM: pam_unix, session.c.
    if has("Password change required") || has("password has expired") || has("must change your password") {
        return expired(user);
    }
    if has("account has expired") {
        return Failure::new(FailureKind::Login, format!("the account {user} has expired"))
            .hint("extend it by chage -E");
    }
    // nologin(8).
    if has("account is currently not available") {
        return Failure::new(FailureKind::Refused, format!("the account {user} has no login shell"))
            .hint("give it one by chsh, or log in as another user: ansible_user");
    }
    // OpenSSH's session.c, where the session's part of PAM failed; what was said is the message of the day.
    if *exit == Exit::Code(254) {
        return Failure::new(
            FailureKind::Refused,
            format!("the host let {user} in and then, most likely, PAM opened no session (exit code 254)"),
        )
        .hint("the log of its sshd names the module that failed: limits, a home directory, a full disk");
    }
    // A banner comes first, what matters last.
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing at all");
    let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    let how = match exit {
        Exit::Finished => String::new(),
        Exit::Code(code) => format!(", exit code {code}"),
        Exit::Signal(name) => format!(", ended by signal {name}"),
    };
    Failure::new(FailureKind::Refused, format!("the host doesn't run what is asked of it; it says: {line}{how}")).hint(
        "the account needs a login shell and no forced command (ForceCommand in sshd_config, command= in \
             authorized_keys), and the host a /bin/sh",
    )
}

/// The failure of a password that has to be changed first.
pub(super) fn expired(user: &str) -> Failure {
    Failure::new(FailureKind::Login, format!("the password of {user} has expired and has to be changed"))
        .hint("log in once by ssh and change it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_says_is_told() {
        let target = Target::for_tests("a");
        let tell = |said: &str, exit| {
            let failure = never_began(&target, said, &exit);
            (failure.kind, failure.message)
        };
        assert_eq!(
            tell(
                "WARNING: Your password has expired.\nPassword change required but no TTY available.\n",
                Exit::Code(1)
            ),
            (FailureKind::Login, "the password of ops has expired and has to be changed".to_owned())
        );
        assert_eq!(
            tell("This account is currently not available.\n", Exit::Code(1)),
            (FailureKind::Refused, "the account ops has no login shell".to_owned())
        );
        assert_eq!(
            tell("Welcome\nonly\u{7} backups\n\n", Exit::Code(0)),
            (
                FailureKind::Refused,
                "the host doesn't run what is asked of it; it says: only backups, exit code 0".to_owned()
            )
        );
        let (kind, message) = tell("Debian GNU/Linux comes with ABSOLUTELY NO WARRANTY,\n", Exit::Code(254));
        assert_eq!(kind, FailureKind::Refused);
        assert!(message.contains("PAM opened no session") && !message.contains("WARRANTY"), "{message}");
        assert!(tell("", Exit::Signal("KILL".into())).1.ends_with("it says: nothing at all, ended by signal KILL"));
    }
}
