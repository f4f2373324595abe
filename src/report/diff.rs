//! Unified diffs of files; the only user of `similar`.

use super::text::{count, number};
use crate::event::FileDiff;
use similar::{Algorithm, ChangeTag, TextDiff};
use std::time::Duration;

/// How many lines of one file's diff are given.
const MOST_LINES: usize = 500;
/// How many characters of one line are given.
const LONGEST_LINE: usize = 400;
/// How long a diff is made shorter; after that it is a correct one that may say more than it must.
const PATIENCE: Duration = Duration::from_millis(300);

/// The unified diff of a file with three lines of context, the final newline included: headers
/// `--- PATH<tab>before` and `+++ PATH<tab>after` (`/dev/null` where there is no file), then hunks, as GNU diff gives
/// them. Bytes that aren't text are told by their number, and of a long diff the number of lines left out.
pub(super) fn unified(file: &FileDiff) -> String {
    let header = |mark: &str, bytes: &Option<Vec<u8>>, word: &str| match bytes {
        Some(_) => format!("{mark} {}\t{word}\n", file.path),
        None => format!("{mark} /dev/null\n"),
    };
    let mut out = header("---", &file.before, "before") + &header("+++", &file.after, "after");
    let (Some(before), Some(after)) = (text(&file.before), text(&file.after)) else {
        let size = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or("no file".to_owned(), |b| count(b.len(), "byte"));
        out.push_str(&format!("\\ not text: {} before, {} after\n", size(&file.before), size(&file.after)));
        return out;
    };
    if before == after {
        out.push_str(match (&file.before, &file.after) {
            (None, Some(_)) => "\\ a new empty file\n",
            (Some(_), None) => "\\ an empty file removed\n",
            _ => "\\ the same text\n",
        });
        return out;
    }
    let before: Vec<&str> = before.split_inclusive('\n').collect();
    let after: Vec<&str> = after.split_inclusive('\n').collect();
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(PATIENCE).diff_slices(&before, &after);
    let (mut given, mut left_out) = (0, 0);
    let mut push = |line: String| {
        if given < MOST_LINES {
            out.push_str(&line);
            out.push('\n');
            given += 1;
        } else {
            left_out += 1;
        }
    };
    for hunk in diff.unified_diff().iter_hunks() {
        push(hunk.header().to_string());
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let line = change.value();
            push(format!("{sign}{}", shortened(line.strip_suffix('\n').unwrap_or(line))));
            if !line.ends_with('\n') {
                push("\\ No newline at end of file".to_owned());
            }
        }
    }
    if left_out > 0 {
        out.push_str(&format!("\\ {} of this diff\n", count(left_out, "more line")));
    }
    out
}

/// The text of a file; one that isn't there has none.
fn text(bytes: &Option<Vec<u8>>) -> Option<&str> {
    let bytes = bytes.as_deref().unwrap_or_default();
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(LONGEST_LINE) {
        Some((at, _)) => format!("{}… ({} characters)", &line[..at], number(line.chars().count())),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(before: Option<&[u8]>, after: Option<&[u8]>) -> String {
        unified(&FileDiff {
            path: "/etc/x".to_owned(),
            before: before.map(<[u8]>::to_vec),
            after: after.map(<[u8]>::to_vec),
            edit: None,
        })
    }

    #[test]
    fn text_gives_hunks() {
        assert_eq!(
            diff(Some(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"), Some(b"1\n2\n3\n4\nfive\n6\n7\n8\n9\n")),
            "--- /etc/x\tbefore\n+++ /etc/x\tafter\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        );
    }

    #[test]
    fn a_missing_final_newline_is_told() {
        assert_eq!(
            diff(Some(b"a\nb"), Some(b"a\nb\n")),
            "--- /etc/x\tbefore\n+++ /etc/x\tafter\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"
        );
        // A carriage return alone ends no line.
        assert_eq!(
            diff(Some(b"a\r"), Some(b"a\n")),
            "--- /etc/x\tbefore\n+++ /etc/x\tafter\n@@ -1 +1 @@\n-a\r\n\\ No newline at end of file\n+a\n"
        );
    }

    #[test]
    fn files_that_come_and_go() {
        assert_eq!(diff(None, Some(b"a\n")), "--- /dev/null\n+++ /etc/x\tafter\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(diff(Some(b"a\n"), None), "--- /etc/x\tbefore\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n");
        assert_eq!(diff(None, Some(b"")), "--- /dev/null\n+++ /etc/x\tafter\n\\ a new empty file\n");
        assert_eq!(diff(Some(b""), None), "--- /etc/x\tbefore\n+++ /dev/null\n\\ an empty file removed\n");
    }

    #[test]
    fn what_is_not_text_is_told_by_its_size() {
        for bytes in [&b"a\0b"[..], b"\xff\xfe\x00"] {
            assert_eq!(
                diff(Some(bytes), Some(b"text\n")),
                "--- /etc/x\tbefore\n+++ /etc/x\tafter\n\\ not text: 3 bytes before, 5 bytes after\n"
            );
        }
        assert!(diff(None, Some(&[0; 2048])).ends_with("\\ not text: no file before, 2,048 bytes after\n"));
    }

    #[test]
    fn a_huge_diff_is_cut_and_counted() {
        let lines: String = (0..20_000).map(|i| format!("{i}\n")).collect();
        let text = diff(None, Some(lines.as_bytes()));
        assert_eq!(text.lines().count(), 2 + MOST_LINES + 1);
        assert!(text.ends_with("+498\n\\ 19,501 more lines of this diff\n"), "{}", &text[text.len() - 60..]);
        let long = diff(None, Some("é".repeat(70_000).as_bytes()));
        assert!(long.ends_with("é… (70,000 characters)\n\\ No newline at end of file\n"));
    }
}
