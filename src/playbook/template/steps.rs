//! How deep an expression is: the engine goes down a step for each operator, whatever the stack holds.

use super::MAX_FILE;
use minijinja::{Error, ErrorKind};

/// How many operators may be chained, those of the brackets around them included.
const MAX_STEPS: usize = 10_000;

/// Refuses a template, or with `code` an expression, that the engine can't compile: too long, or with too many steps.
pub(super) fn bounded(text: &str, code: bool) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(ErrorKind::SyntaxError, message));
    if text.len() as u64 > MAX_FILE {
        return wrong(format!("it has {} bytes; a template may have {MAX_FILE}", text.len()));
    }
    if text.len() > MAX_STEPS && steps(text, code) > MAX_STEPS {
        return wrong(format!(
            "an expression chains more than {MAX_STEPS} operators; compare with a list by `in`, or compute it in parts"
        ));
    }
    Ok(())
}

/// The most steps of any expression of a text; an `elif` is one below the `if` before it.
fn steps(text: &str, code: bool) -> usize {
    let bytes = text.as_bytes();
    let pair = |at: usize, pairs: [&[u8; 2]; 2]| pairs.iter().any(|pair| bytes[at..].starts_with(*pair));
    let (mut most, mut branches, mut inside, mut at) = (0, 0, code, 0);
    // For each open bracket, the operators since its last comma.
    let mut chains = vec![0];
    while at < bytes.len() {
        match bytes[at] {
            _ if !inside && pair(at, [b"{{", b"{%"]) => {
                (inside, chains) = (true, vec![0]);
                let word = text[at + 2..].trim_start_matches(['-', '+']).trim_start();
                branches += usize::from(word.starts_with("elif"));
                at += 1;
            }
            _ if !inside => {}
            quote @ (b'\'' | b'"') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
            }
            b'%' | b'}' if !code && (chains.len() == 1 || bytes[at] == b'%') && pair(at, [b"%}", b"}}"]) => {
                inside = false;
                at += 1;
            }
            b'(' | b'[' | b'{' => chains.push(1),
            b')' | b']' | b'}' if chains.len() > 1 => _ = chains.pop(),
            b',' => _ = chains.last_mut().map(|chain| *chain = 1),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'|' | b'.' | b'=' | b'<' | b'>' | b'!' => step(&mut chains),
            letter if letter.is_ascii_alphabetic() => {
                let word =
                    text[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
                if ["and", "or", "not", "in", "is", "if", "else"].contains(&word) {
                    step(&mut chains);
                }
                at += word.len().saturating_sub(1);
            }
            _ => {}
        }
        // Summed up only where it can have grown beyond what is known.
        if inside && at % 64 == 0 {
            most = most.max(chains.iter().sum::<usize>());
        }
        at += 1;
        if !inside || at >= bytes.len() {
            most = most.max(chains.iter().sum::<usize>());
        }
    }
    most.max(branches)
}

fn step(chains: &mut [usize]) {
    if let Some(chain) = chains.last_mut() {
        *chain += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_counted_where_they_chain() {
        for (text, counted) in [
            ("a", 0),
            ("1 + 2 + 3", 2),
            ("a.b.c | d", 3),
            ("not a and b.c is defined", 4),
            ("'a + b' ~ \"c\\\"+\"", 1),
            ("android + origin", 1),
            ("é + é", 1),
        ] {
            assert_eq!(steps(text, true), counted, "{text}");
            assert_eq!(steps(&format!("x + y {{{{ {text} }}}} - z"), false), counted, "{text}");
        }
        assert_eq!(steps("{% if a %}{% elif b %}{%- elif c %}{% endif %}", false), 2);
        let long = "1, -1.5, ".repeat(5000);
        assert!(steps(&format!("[{long}]"), true) < 10, "a list isn't a chain");
        assert!(bounded(&format!("{{{{ {} }}}}", ["a == b"; 1000].join(" or ")), false).is_ok());
        for text in ["+1", ".a", "|abs", "(", "-", " in [1, 2] or a", " if 1 else 1"] {
            assert!(bounded(&format!("{{{{ 1{} }}}}", text.repeat(MAX_STEPS + 99)), false).is_err(), "{text}");
        }
        assert!(bounded(&format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(MAX_STEPS + 1)), false).is_err());
        assert!(bounded(&" ".repeat((1 << 20) + 1), true).is_err());
    }
}
