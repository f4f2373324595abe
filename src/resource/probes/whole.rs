//! Whole files and folders: what they are, whose, and whether they hold what is wanted, by one `stat` and one
//! `sha256sum` for all of them. The bytes of a file come along only where they are asked for or differ from what is
//! wanted, so that a converged host sends none.

use super::small::unreadable;
use crate::resource::{Fragment, Group, Output, Question, Trouble};
use crate::shell::Script;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The group. An argument is made by [`WholeFile::compare`], [`WholeFile::bytes`] or [`WholeFile::attributes`], with an
/// absolute path.
#[derive(Debug)]
pub struct WholeFile;

/// What there is at a path, links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the path itself points to, as written, if it is a link.
    pub link: Option<String>,
    /// What is there, behind a link if it is one.
    pub kind: Kind,
    /// Whether a file is mounted on it, so that it can't be replaced. Only known where the bytes differ or were asked
    /// for.
    pub mounted: bool,
    /// Mount points below a folder, known as `mounted` is.
    pub mounts_below: Vec<String>,
}

/// What is at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Nothing; the folder that would hold it is there.
    Absent,
    /// Nothing, and the folder that would hold it isn't there either.
    NoParent,
    /// Nothing, and there can't be: something above it isn't a folder, or a link leads in a circle.
    Blocked,
    /// A file.
    File(Attributes, Content),
    /// A folder.
    Directory(Attributes),
    /// A device, a socket, a pipe.
    Other(Attributes),
}

/// Whose something is, and its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// The owner's name; `UNKNOWN` where the number has none.
    pub user: String,
    /// The group's name, likewise.
    pub group: String,
    /// Bytes.
    pub size: u64,
}

/// What is known of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// They weren't asked for.
    Unasked,
    /// They are what is wanted.
    Same,
    /// They are these.
    Bytes(Vec<u8>),
    /// They aren't what is wanted, or were asked for, and are too many to be sent: more than 900,000 bytes, together
    /// with those of the other files of one execution.
    TooLarge,
    /// They can't be read: why.
    Unreadable(Trouble),
}

impl WholeFile {
    /// The argument that asks whether a file holds these bytes, and for its bytes where it doesn't.
    pub fn compare(path: &str, wanted: &[u8]) -> String {
        let sum = Sha256::digest(wanted).iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        format!("{sum} {path}")
    }

    /// The argument that asks for a file's bytes.
    pub fn bytes(path: &str) -> String {
        format!("* {path}")
    }

    /// The argument that doesn't ask for bytes.
    pub fn attributes(path: &str) -> String {
        format!("- {path}")
    }

    /// Asks for an argument.
    pub fn ask(arg: String) -> Question {
        Question::of::<WholeFile>(arg)
    }
}

fn parts(arg: &str) -> (&str, &str) {
    arg.split_once(' ').unwrap_or(("-", arg))
}

// Of each file, in the order of the arguments, the host prints a line
//
//     KIND LINK REAL SUM BYTES
//
// with KIND `f d o` or, where nothing is there, `a` (it could be), `p` (no folder to hold it), `b` (it can't be), `x`
// (the folder can't be looked into); LINK and REAL the lengths of what the link points to and of the path without
// links, both printed after it with a newline each (so that any name passes); SUM `=`, `!`, `u` (no right to read it),
// `e` (an error of the tool) or `-`; BYTES how many of its bytes follow, with a newline, or `-`. Before all of them
// stand the lines of `stat`, of what is there, and an empty one; after them those of /proc/self/mountinfo that have to
// do with a file whose bytes differ or were asked for.
const SUMS: &str = r#"NL='
'
odd() { case $1 in *[!\ -~]*|*\\*|*'  '*) return 0 ;; esac; return 1; } # coreutils writes such names otherwise
for f do shift; [ -f "$f" ] && [ -r "$f" ] && ! odd "$f" && set -- "$@" "$f"; done
s=; [ $# -eq 0 ] || s=$NL$(sha256sum -- "$@")$NL"#;
const STAT: &str = r#"for f do shift; [ -e "$f" ] && set -- "$@" "$f"; done
[ $# -eq 0 ] || stat -L -c '%f %u %g %s %U:%G' -- "$@"
echo"#;
const EACH: &str = r#"kind() { # sets k for $f, whose path without links is $r
  if [ -f "$f" ]; then k=f; elif [ -d "$f" ]; then k=d; elif [ -e "$f" ]; then k=o
  elif [ -z "$r" ]; then k=b
  else
    p=${r%/*}; k=a
    while [ -n "$p" ] && [ ! -e "$p" ] && [ ! -L "$p" ]; do p=${p%/*}; k=p; done
    if [ ! -d "${p:-/}" ]; then k=b; elif [ ! -x "${p:-/}" ]; then k=x; fi
  fi
}
real() { # sets r to $f without links, and l to what $f itself points to
  r=$f l= p=$f
  while [ -n "$p" ] && [ ! -L "$p" ]; do p=${p%/*}; done
  [ -n "$p" ] || return 0
  r=$(readlink -f -- "$f" && echo x); r=${r%"${NL}x"}
  if [ -L "$f" ]; then l=$(readlink -- "$f" && echo x); l=${l%"${NL}x"}; fi
}
sum() { # sets c to `=`, `!`, `u` or `e` for $f, of which $w is wanted
  if [ ! -r "$f" ]; then c=u; return; fi
  if [ "$w" = '*' ]; then c='!'; return; fi
  if odd "$f"; then h=$(sha256sum <"$f"); h=${h%% *}
  else case $s in *"  $f$NL"*) h=${s%%"  $f$NL"*}; h=${h##*"$NL"} ;; *) h= ;; esac; fi
  case $h in "$w") c='=' ;; '') c=e ;; *) c='!' ;; esac
}
left=900000 m=
while [ $# -gt 0 ]; do
  f=$1 w=$2 c=- n=-; shift 2
  real; kind
  [ $k = f ] && [ "$w" != - ] && sum
  if [ "$c" = '!' ]; then
    n=$(wc -c <"$f"); n=$((n))
    if [ $n -gt $left ]; then n=-; else left=$((left - n)); fi
  fi
  if [ "$c" = '!' ] || { [ "$w" = '*' ] && [ $k = d ]; }; then
    case $r in *[[:space:]\\]*) m=' ' ;; *) m="${m:+$m$NL} $r $NL $r/" ;; esac
  fi
  printf '%s %s %s %s %s\n%s\n%s\n' $k ${#l} ${#r} "$c" $n "$l" "$r"
  [ $n = - ] || { head -c $n -- "$f"; echo; }
done
[ -z "$m" ] || grep -F -- "$m" /proc/self/mountinfo
:"#;

impl Group for WholeFile {
    type Answer = Found;
    const NAME: &'static str = "whole files";

    fn compose(args: &[&str]) -> Vec<Fragment> {
        let compared = args.iter().map(|a| parts(a)).filter(|(want, _)| want.len() == 64).map(|(_, path)| path);
        let script = Script::new()
            .args(compared)
            .line(SUMS)
            .args(args.iter().map(|a| parts(a).1))
            .line(STAT)
            .args(args.iter().flat_map(|a| [parts(a).1, parts(a).0]))
            .line(EACH);
        vec![script.into()]
    }

    fn split(args: &[&str], outputs: &[Output]) -> Vec<Result<Found, Trouble>> {
        let output = outputs.first().cloned().unwrap_or_default();
        parse(args, &output).unwrap_or_else(|| {
            let said = output.complaint();
            let why = if said.is_empty() { "one of them changed meanwhile".to_owned() } else { said };
            vec![Err(Trouble::new(format!("reading whole files failed: {why}"))); args.len()]
        })
    }
}

fn parse(args: &[&str], output: &Output) -> Option<Vec<Result<Found, Trouble>>> {
    let mut rest = output.stdout.as_slice();
    let mut attributes = Vec::new();
    loop {
        let line = take_line(&mut rest)?;
        if line.is_empty() {
            break;
        }
        attributes.push(attributes_of(&String::from_utf8_lossy(line))?);
    }
    let mut attributes = attributes.into_iter();
    let mut found = Vec::new();
    for arg in args {
        let (want, path) = parts(arg);
        let line = String::from_utf8_lossy(take_line(&mut rest)?).into_owned();
        let mut words = line.split(' ');
        let (kind, link, real) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (sum, count) = (words.next()?, words.next()?);
        let link = String::from_utf8_lossy(take(&mut rest, link)?).into_owned();
        let real = String::from_utf8_lossy(take(&mut rest, real)?).into_owned();
        let bytes = match count {
            "-" => None,
            count => Some(take(&mut rest, count.parse().ok()?)?.to_vec()),
        };
        let content = match (sum, bytes) {
            ("-", _) => Content::Unasked,
            ("=", _) => Content::Same,
            ("u", _) => Content::Unreadable(unreadable(path, "permission denied")),
            ("e", _) => {
                let said = String::from_utf8_lossy(output.stderr.trim_ascii());
                let why = if said.is_empty() { "sha256sum gave no checksum".into() } else { said };
                Content::Unreadable(unreadable(path, &why))
            }
            (_, Some(bytes)) => Content::Bytes(bytes),
            (_, None) => Content::TooLarge,
        };
        let kind = match kind {
            "f" => Ok(Kind::File(attributes.next()?, content)),
            "d" => Ok(Kind::Directory(attributes.next()?)),
            "o" => Ok(Kind::Other(attributes.next()?)),
            "a" => Ok(Kind::Absent),
            "p" => Ok(Kind::NoParent),
            "b" => Ok(Kind::Blocked),
            _ => Err(unreadable(path, "permission denied")),
        };
        found.push((
            want,
            real,
            kind.map(|kind| Found {
                link: (!link.is_empty()).then_some(link),
                kind,
                mounted: false,
                mounts_below: Vec::new(),
            }),
        ));
    }
    if attributes.next().is_some() {
        return None;
    }
    let mounts: Vec<String> = String::from_utf8_lossy(rest).lines().filter_map(mount_point).collect();
    let with_mounts = |(want, real, found): (&str, String, Result<Found, Trouble>)| {
        let mut found = found?;
        if want != "-" {
            let below = format!("{real}/");
            found.mounted = mounts.contains(&real);
            found.mounts_below = mounts.iter().filter(|m| m.starts_with(&below)).cloned().collect();
        }
        Ok(found)
    };
    Some(found.into_iter().map(with_mounts).collect())
}

/// The bytes up to the next newline, which is dropped.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|&b| b == b'\n')?;
    take(rest, end)
}

/// So many bytes, and the newline behind them.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after.strip_prefix(b"\n")?;
    Some(taken)
}

/// A line of `stat`: raw mode in hex, numbers of owner and group, size, their names.
fn attributes_of(line: &str) -> Option<Attributes> {
    let mut words = line.splitn(5, ' ');
    let mode = u32::from_str_radix(words.next()?, 16).ok()? & 0o7777;
    let (uid, gid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let size = words.next()?.parse().ok()?;
    let (user, group) = words.next()?.split_once(':')?;
    Some(Attributes { mode, uid, gid, user: user.to_owned(), group: group.to_owned(), size })
}

/// The mount point of a line of /proc/self/mountinfo: its fifth word, with octal escapes (proc_pid_mountinfo(5)).
fn mount_point(line: &str) -> Option<String> {
    let escaped = line.split(' ').nth(4)?;
    let mut pieces = escaped.split('\\');
    let mut path = pieces.next()?.to_owned();
    for piece in pieces {
        let (code, rest) = piece.split_at_checked(3)?;
        path.push(char::from(u8::from_str_radix(code, 8).ok()?));
        path.push_str(rest);
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Answers;
    use crate::resource::trial::{Shell, ask};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const NASTY: [&str; 12] = [
        "plain",
        "-n",
        "sp  ace",
        "new\nline",
        "*",
        "$(id)",
        "'q\"",
        "back\\slash",
        "é",
        "trailing\n",
        "a\rb",
        "x\n81a4 0 0 1 root:root",
    ];

    fn get<'a>(answers: &'a Answers, arg: &str) -> &'a Found {
        answers.get::<WholeFile>(arg).unwrap()
    }

    #[test]
    fn any_name_in_any_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        for name in NASTY {
            fs::write(path(name), format!("{name}\0\u{1}")).unwrap();
            fs::set_permissions(path(name), Permissions::from_mode(0o4640)).unwrap();
        }
        for shell in Shell::ALL {
            let args = NASTY.iter().flat_map(|name| {
                let wanted = format!("{name}\0\u{1}");
                [
                    WholeFile::compare(&path(name), wanted.as_bytes()),
                    WholeFile::compare(&path(name), b"other"),
                    WholeFile::bytes(&path(name)),
                    WholeFile::attributes(&path(name)),
                ]
            });
            let args: Vec<String> = args.collect();
            let answers = ask(shell, args.iter().cloned().map(WholeFile::ask));
            for (i, arg) in args.iter().enumerate() {
                let name = NASTY[i / 4];
                let bytes = Content::Bytes(format!("{name}\0\u{1}").into_bytes());
                let expected = [Content::Same, bytes.clone(), bytes, Content::Unasked][i % 4].clone();
                let Kind::File(attributes, content) = &get(&answers, arg).kind else { panic!("{arg}") };
                assert_eq!(*content, expected, "{arg:?} {shell:?}");
                assert_eq!((attributes.mode, attributes.size), (0o4640, name.len() as u64 + 2));
                assert_eq!(attributes.uid, fs::metadata(path(name)).unwrap().uid());
            }
        }
    }

    #[test]
    fn kinds_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |name: &str| format!("{}/{name}", root.display());
        fs::write(path("file"), "x").unwrap();
        fs::create_dir(path("folder")).unwrap();
        for (target, name) in [
            ("file", "link"),
            ("-n new\nline\n", "strange"),
            ("gone/x", "dangling"),
            ("round", "round"),
            ("folder", "to_folder"),
            ("file/x", "through_file"),
        ] {
            symlink(target, path(name)).unwrap();
        }
        let names = [
            "file",
            "folder",
            "link",
            "strange",
            "dangling",
            "round",
            "to_folder",
            "through_file",
            "nope",
            "folder/nope",
            "to_folder/nope",
            "nope/nope",
            "a/b/c",
            "file/below",
            "link/below",
            "round/x",
        ];
        for shell in Shell::ALL {
            let answers = ask(shell, names.iter().map(|n| WholeFile::ask(WholeFile::attributes(&path(n)))));
            let of = |name: &str| get(&answers, &WholeFile::attributes(&path(name)));
            let kind = |name: &str| match of(name).kind {
                Kind::File(..) => "file",
                Kind::Directory(_) => "folder",
                Kind::Other(_) => "other",
                Kind::Absent => "absent",
                Kind::NoParent => "no parent",
                Kind::Blocked => "blocked",
            };
            for (name, expected) in [
                ("file", "file"),
                ("folder", "folder"),
                ("link", "file"),
                ("strange", "absent"),
                ("round", "blocked"),
                ("to_folder", "folder"),
                ("nope", "absent"),
                ("folder/nope", "absent"),
                ("to_folder/nope", "absent"),
                ("nope/nope", "no parent"),
                ("a/b/c", "no parent"),
                ("file/below", "blocked"),
                ("link/below", "blocked"),
                ("round/x", "blocked"),
            ] {
                assert_eq!(kind(name), expected, "{name} {shell:?}");
            }
            // readlink -f of coreutils gives up on a missing folder, that of busybox on a file used as one.
            for name in ["dangling", "through_file"] {
                assert!(matches!(of(name).kind, Kind::NoParent | Kind::Blocked), "{name} {shell:?}");
            }
            assert_eq!(of("link").link.as_deref(), Some("file"));
            assert_eq!(of("strange").link.as_deref(), Some("-n new\nline\n"), "{shell:?}");
            assert_eq!(of("dangling").link.as_deref(), Some("gone/x"));
            assert_eq!(of("file").link, None);
        }
    }

    #[test]
    fn bytes_that_are_too_many_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", dir.path().display());
        fs::write(path("a"), vec![b'x'; 600_000]).unwrap();
        fs::write(path("b"), vec![b'y'; 600_000]).unwrap();
        let args = [WholeFile::compare(&path("a"), b""), WholeFile::compare(&path("b"), b"")];
        let answers = ask(Shell::Dash, args.iter().cloned().map(WholeFile::ask));
        let left_out = args.iter().filter(|arg| matches!(&get(&answers, arg).kind, Kind::File(_, Content::TooLarge)));
        assert_eq!(left_out.count(), 1);
    }

    #[test]
    fn a_mounted_file_is_found_behind_links() {
        let rows = "29 1 8:1 / / rw - ext4 /dev/x rw\n30 29 8:1 /h /etc/host\\040s rw - ext4 /dev/x rw\n31 29 0:5 / /etc/d/m rw - tmpfs t rw\n";
        let stdout = format!(
            "81a4 0 0 1 root:root\n41ed 0 0 1 root:root\n\nd 0 6 - -\n\n/etc/d\nf 5 11 ! 1\nhosts\n/etc/host s\nx\n{rows}"
        );
        let output = Output { code: 0, stdout: stdout.into_bytes(), stderr: Vec::new() };
        let answers = WholeFile::split(&["* /etc/d", "* /x"], &[output]);
        let file = answers[1].as_ref().unwrap();
        assert!(file.mounted && file.mounts_below.is_empty());
        assert_eq!(file.link.as_deref(), Some("hosts"));
        let folder = answers[0].as_ref().unwrap();
        assert!(!folder.mounted);
        assert_eq!(folder.mounts_below, ["/etc/d/m"]);
    }

    #[test]
    fn an_answer_cut_off_is_no_answer() {
        let whole = b"81a4 0 0 1 root:root\n\nf 0 2 ! 3\n\n/x\nabc\n";
        for cut in 0..whole.len() {
            let output = Output { code: 0, stdout: whole[..cut].to_vec(), stderr: Vec::new() };
            assert!(WholeFile::split(&["* /x"], &[output])[0].is_err(), "{cut}");
        }
        let output = Output { code: 0, stdout: whole.to_vec(), stderr: Vec::new() };
        assert!(WholeFile::split(&["* /x"], &[output])[0].is_ok());
    }
}
