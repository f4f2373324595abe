//! `template`: a file that is rendered with the host's variables.

use super::managed::{Managed, Origin};
use super::{Key, Spec};
use crate::error::Error;

/// A file that is rendered with the host's variables.
pub type Template = Managed<Rendered>;

/// Content that is rendered.
#[derive(Debug)]
pub struct Rendered;

impl Origin for Rendered {
    const TYPE: &'static str = "template";
    const SUMMARY: &'static str = "A file rendered from a template with the host's variables and facts";
    const TOUCHES: &'static str = "\
        `dest`, replaced in one go (in place if it is a mount point); with `backup`, a copy of what was there. \
        Its SELinux context is kept.";
    const KEYS: &'static [Key] = &[
        Key::required("dest", "absolute path", "The file. A link stays, and what it points to is written."),
        Key::required(
            "src",
            "path",
            "The template (Jinja, `trim_blocks` on, final newline kept): looked for in `templates/` beside the file \
             that names it, then beside that, then the same beside the playbook.",
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
        Key::refused("content", "write it into a file for `src`, or use `copy`, whose `content` is rendered too"),
        Key::refused("remote_src", "`src` is a file beside the playbook"),
        Key::refused("follow", "leave it out: a link is always kept, and what it points to is written"),
        Key::refused("unsafe_writes", "leave it out: a file is replaced in one go, a mount point is written in place"),
        Key::refused("attributes", "run `chattr` by `command` with a guard"),
        Key::refused("attr", "run `chattr` by `command` with a guard"),
        Key::refused(
            "trim_blocks",
            "it is on; write `#jinja2: trim_blocks: False` as the first line of the template to turn it off",
        ),
        Key::refused(
            "lstrip_blocks",
            "it is off; write `#jinja2: lstrip_blocks: True` as the first line of the template to turn it on",
        ),
        Key::refused("newline_sequence", "leave it out: lines end as they do in the template"),
        Key::refused("output_encoding", "leave it out: files are written in UTF-8"),
        Key::refused("variable_start_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("variable_end_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("block_start_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("block_end_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("comment_start_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("comment_end_string", "protect text by `{% raw %}` and `{% endraw %}`"),
        Key::refused("setype", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("seuser", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("serole", "leave it out: the SELinux context of what is replaced is kept"),
        Key::refused("selevel", "leave it out: the SELinux context of what is replaced is kept"),
    ];
    const EXAMPLE: &'static str = "\
- name: NCCL finds the rails of this host
  template:
    dest: /etc/nccl.conf
    src: nccl.conf.j2
    mode: 0644
";

    fn body(spec: &Spec<'_>) -> Result<Vec<u8>, Error> {
        spec.env.template(spec.need("src")?).map(String::into_bytes)
    }
}
