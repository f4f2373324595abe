//! `copy`: a file whose content the playbook has.

use super::managed::{Managed, Origin};
use super::{Key, Spec};
use crate::error::Error;

/// A file whose content is written in the playbook or lies beside it.
pub type Copy = Managed<Given>;

/// Content that the playbook has.
#[derive(Debug)]
pub struct Given;

impl Origin for Given {
    const TYPE: &'static str = "copy";
    const SUMMARY: &'static str = "A file with the content given in the playbook or in a file beside it";
    const TOUCHES: &'static str = "\
        `dest`, replaced in one go (in place if it is a mount point); with `backup`, a copy of what was there. \
        Its SELinux context is kept.";
    const KEYS: &'static [Key] = &[
        Key::required("dest", "absolute path", "The file. A link stays, and what it points to is written."),
        Key::optional("content", "string", "What is in the file. Its final newline is yours to write."),
        Key::optional(
            "src",
            "path",
            "A file of which it is a copy, at most 1 MiB: looked for in `files/` beside the file that names it, then \
             beside that, then the same beside the playbook.",
        ),
        Key::optional(
            "mode",
            "octal, like `0644`",
            "Permissions. Not given, those of the file that is replaced stay; of a new file they are 0644.",
        ),
        Key::optional("owner", "name or number", "Who owns it. Not given, it stays as it is."),
        Key::optional("group", "name or number", "Its group. Not given, it stays as it is."),
        Key::default(
            "backup",
            "boolean",
            "false",
            "Whether the file that is replaced is kept in `/var/lib/netplay/backup` on the host; the last 5 are.",
        ),
        Key::optional(
            "validate",
            "command with `%s`",
            "Must succeed before the file is replaced; `%s` is the path of the new one. It isn't run by a shell.",
        ),
        Key::refused(
            "force",
            "a file that differs is always replaced; to write it only once, use `command` with `creates`",
        ),
        Key::refused(
            "remote_src",
            "`src` is a file beside the playbook; copy on the host itself by `command` with a guard",
        ),
        Key::refused("directory_mode", "`copy` writes one file; make folders by `file` with `state: directory`"),
        Key::refused("follow", "leave it out: a link is always kept, and what it points to is written"),
        Key::refused("local_follow", "leave it out: a link beside the playbook is followed"),
        Key::refused("unsafe_writes", "leave it out: a file is replaced in one go, a mount point is written in place"),
        Key::refused("attributes", "run `chattr` by `command` with a guard"),
        Key::refused("attr", "run `chattr` by `command` with a guard"),
        Key::refused("checksum", "leave it out: the content is always compared"),
        Key::refused("decrypt", "leave it out: a file that is encrypted by ansible-vault is copied decrypted"),
        Key::refused("setype", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("seuser", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("serole", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("selevel", "leave it out: the SELinux context of what is replaced is kept"),
    ];
    const EXAMPLE: &'static str = "\
- name: log in to the fabric manager as its own user
  copy:
    dest: /etc/ssh/ssh_config.d/fabric.conf
    content: |
      Host fabric-manager
        User netops
    mode: 0644
    owner: root
    group: root
";

    fn body(spec: &Spec<'_>) -> Result<Vec<u8>, Error> {
        match (spec.text("content")?, spec.get("src")) {
            (Some(_), Some(src)) => {
                Err(Error::playbook(&src.span, "`content` and `src` exclude each other").hint("give one of them"))
            }
            (Some(content), None) => Ok(content.into_bytes()),
            (None, Some(src)) => spec.env.file(src),
            (None, None) => Err(Error::playbook(&spec.node.span, "`copy` needs `content` or `src`")
                .hint("for an empty file write `content: \"\"`")),
        }
    }
}
