//! What goes wrong in a template, at its place in the file that it stands in.

use super::{FILE, Lookup, Scope, Step, backslashes, engine, filters, header, read, value};
use crate::error::{Error, nearest};
use crate::source::{Source, Span};
use crate::yaml::{Node, Value as Tree};
use minijinja::ErrorKind;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Why something can't be rendered for a host.
#[derive(Debug, Clone)]
pub(crate) enum Fail {
    /// It needs the host's facts, which aren't known yet.
    Facts,
    /// A variable is undefined: what `default()` sees.
    Undefined(Box<Error>),
    /// Anything else.
    Error(Box<Error>),
}

impl Fail {
    pub(crate) fn error(error: Error) -> Fail {
        Fail::Error(Box::new(error))
    }

    pub(crate) fn undefined(error: Error) -> Fail {
        Fail::Undefined(Box::new(error))
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fail::Facts => f.write_str("the facts aren't known yet"),
            Fail::Undefined(e) | Fail::Error(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Fail {}

/// Takes a failure through the engine; [`convert`] gets it back.
pub(super) fn carry(fail: Fail) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::InvalidOperation, "a variable can't be rendered").with_source(fail)
}

/// Where the text of a template comes from.
pub(super) enum Origin<'a> {
    /// A scalar.
    Node(&'a Node, Code),
    /// A file.
    File(&'a Path),
}

/// How much of a scalar's text is code.
#[derive(Clone, Copy)]
pub(super) enum Code {
    /// What stands in braces.
    Text,
    /// One expression, which begins at this byte.
    From(usize),
}

impl Code {
    /// The range of bytes of a scalar's text that a range of the template is.
    fn range(self, text: &str, range: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        let (start, code) = match self {
            Code::Text => (0, false),
            Code::From(start) => (start, true),
        };
        let text = text.get(start..).unwrap_or_default();
        let of = |at: usize| start + backslashes::origin(text, code, at);
        of(range.start)..of(range.end)
    }
}

/// The place of a range of bytes of a text.
fn span_of(source: &Arc<Source>, range: std::ops::Range<usize>) -> Span {
    let text = &source.text;
    let cut = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (start, end) = (cut(range.start), cut(range.end.max(range.start)));
    let line = text[..start].matches('\n').count() + 1;
    let column = text[..start].chars().rev().take_while(|c| *c != '\n').count() + 1;
    let len = text[start..end].lines().next().map_or(1, |l| l.chars().count());
    Span::at(source, line, column, len)
}

/// The place of a range of bytes of a scalar's text: exact where the file has that text, with the escapes, folds and
/// indentation of its style; the scalar itself otherwise.
pub(super) fn within(node: &Node, range: std::ops::Range<usize>) -> Span {
    let Tree::Scalar { text, .. } = &node.value else { return node.span.clone() };
    let Some(at) = locate(node, text, range.start) else { return node.span.clone() };
    let shown = text.get(range.clone()).unwrap_or_default();
    let len = shown.lines().next().map_or(1, |l| l.chars().count());
    Span { len: u32::try_from(len.max(1)).unwrap_or(1), ..at }
}

fn locate(node: &Node, text: &str, offset: usize) -> Option<Span> {
    let source = &node.span.source;
    let first = node.span.line.checked_sub(1)? as usize;
    let mut chars: Vec<char> = Vec::new();
    for (i, line) in source.text.lines().skip(first).enumerate() {
        chars.extend(line.chars().skip(if i == 0 { node.span.column as usize - 1 } else { 0 }));
        chars.push('\n');
        // The written form is longer than the text by its escapes and indentation.
        if chars.len() > 10 * text.len() + 1000 {
            break;
        }
    }
    let block = block_style(node);
    let style = block.unwrap_or(*chars.first()?);
    // Of a block, its indentation is taken off; of anything else, all blanks.
    let indent = if block.is_some() { node.span.column as usize - 1 } else { usize::MAX };
    let mut at = usize::from(block.is_none() && matches!(style, '"' | '\''));
    let skip_indent = |at: &mut usize| {
        *at += chars.get(*at..).unwrap_or_default().iter().take_while(|c| **c == ' ').count().min(indent);
    };
    for (pos, c) in text.char_indices() {
        if style != '|' && !c.is_whitespace() {
            at += chars.get(at..).unwrap_or_default().iter().take_while(|s| s.is_whitespace()).count();
        }
        if pos >= offset {
            break;
        }
        let written = *chars.get(at)?;
        if style == '"' && written == '\\' {
            at += match chars.get(at + 1)? {
                'x' => 4,
                'u' => 6,
                'U' => 10,
                _ => 2,
            };
        } else if style == '\'' && written == '\'' && chars.get(at + 1) == Some(&'\'') {
            at += 2;
        } else if written == c || (written.is_whitespace() && c.is_whitespace()) {
            at += 1;
            if written == '\n' {
                skip_indent(&mut at);
            }
        } else {
            return None;
        }
    }
    let before = &chars[..at.min(chars.len())];
    let lines = before.iter().filter(|c| **c == '\n').count();
    let column = match before.iter().rposition(|c| *c == '\n') {
        Some(newline) => at - newline,
        None => node.span.column as usize + at,
    };
    Some(Span::at(source, first + 1 + lines, column, 1))
}

/// `|` or `>`, for a scalar that is a block: it begins on a line of its own, behind one that ends in this.
fn block_style(node: &Node) -> Option<char> {
    let (line, column) = (node.span.line as usize, node.span.column as usize);
    let lines: Vec<&str> = node.span.source.text.lines().take(line).collect();
    let (own, above) = lines.split_last()?;
    if !own.chars().take(column - 1).all(|c| c == ' ') {
        return None;
    }
    let header = above.iter().rfind(|l| !l.trim().is_empty())?;
    let header =
        header.split(" #").next()?.trim_end().trim_end_matches(|c: char| c.is_ascii_digit() || "+-".contains(c));
    header.chars().next_back().filter(|c| matches!(c, '|' | '>'))
}

/// The innermost error of the engine, which knows the place best.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    let mut found = error;
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(inner) = cause.downcast_ref::<minijinja::Error>() {
            found = inner;
        }
        next = cause.source();
    }
    found
}

fn carried(error: &minijinja::Error) -> Option<Fail> {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(fail) = cause.downcast_ref::<Fail>() {
            return Some(fail.clone());
        }
        next = cause.source();
    }
    None
}

/// What an error is about: bytes of a text as it was written.
struct Found<'n> {
    text: Written<'n>,
    range: std::ops::Range<usize>,
}

enum Written<'n> {
    Node(&'n Node),
    File(Arc<Source>),
}

impl<'n> Found<'n> {
    fn new(error: &minijinja::Error, origin: &Origin<'n>) -> Option<Found<'n>> {
        // The engine knows only the line of some errors, such as an operator that spans several.
        let range = error.range();
        let included = error.name().and_then(|n| n.strip_prefix(FILE)).map(Path::new);
        let path = match (included, origin) {
            (Some(path), _) => path,
            (None, Origin::File(path)) => *path,
            (None, Origin::Node(node, code)) => {
                let text = node.text()?;
                let range = range.map_or(0..text.len(), |r| code.range(text, &r));
                return Some(Found { text: Written::Node(node), range });
            }
        };
        let source = read(path).ok()?;
        let (_, used) = header(&source).ok()?;
        let line = || {
            let before = source.text.split_inclusive('\n').take(error.line().unwrap_or(1) - 1).map(str::len).sum();
            before..source.text[before..].find('\n').map_or(source.text.len(), |len| before + len)
        };
        let range = range.map_or_else(line, |r| r.start + used..r.end + used);
        Some(Found { text: Written::File(source), range })
    }

    fn text(&self) -> &str {
        self.whole().get(self.range.clone()).unwrap_or_default()
    }

    fn whole(&self) -> &str {
        match &self.text {
            Written::Node(node) => node.text().unwrap_or_default(),
            Written::File(source) => &source.text,
        }
    }

    /// Makes of a part of an expression the whole, with its braces where it has some.
    fn widen(&mut self) {
        let whole = self.whole();
        let (Some(before), Some(after)) = (whole.get(..self.range.start), whole.get(self.range.end..)) else { return };
        let opening = ["{{", "{%"].iter().filter_map(|b| before.rfind(b)).max();
        let closing = ["}}", "%}"].iter().filter_map(|b| after.find(b)).min();
        self.range = opening.unwrap_or(0)..closing.map_or(whole.len(), |at| self.range.end + at + 2);
    }

    fn span(&self) -> Span {
        self.at(self.range.clone())
    }

    /// The place of a part of it.
    fn part(&self, part: &str) -> Span {
        match self.text().find(part) {
            Some(at) if !part.is_empty() => self.at(self.range.start + at..self.range.start + at + part.len()),
            _ => self.span(),
        }
    }

    fn at(&self, range: std::ops::Range<usize>) -> Span {
        match &self.text {
            Written::Node(node) if range.len() == node.text().map_or(0, str::len) => node.span.clone(),
            Written::Node(node) => within(node, range),
            Written::File(source) => span_of(source, range),
        }
    }
}

fn at_place(mut error: Error, found: Option<&Found<'_>>) -> Error {
    if let Some(found) = found {
        error.place = Some(found.span());
    }
    error
}

fn playbook(message: impl Into<String>) -> Error {
    Error::new(crate::error::Kind::Playbook, message)
}

/// A template that can't be compiled.
pub(super) fn syntax(error: &minijinja::Error, origin: &Origin<'_>) -> Error {
    let error = innermost(error);
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    at_place(playbook(format!("not a valid template: {detail}")), Found::new(error, origin).as_ref())
}

/// An error of an expression that sees no variables of a host.
pub(super) fn plain(error: &minijinja::Error, origin: &Origin<'_>) -> Error {
    let inner = innermost(error);
    let too_many = value::needs_too_many();
    let endless =
        too_many || inner.kind() == ErrorKind::OutOfFuel || inner.detail() == Some("recursion limit exceeded");
    let detail = match (value::circle().filter(|_| endless), inner.kind()) {
        (Some(circle), _) => {
            let names: Vec<String> = circle.iter().map(|path| path.display().to_string()).collect();
            format!("template files need each other in a circle: {}", names.join(" → "))
        }
        (None, _) if too_many => format!("other template files are needed more than {} times", value::MAX_NEEDED),
        (None, ErrorKind::OutOfFuel) => {
            "it runs too long or makes too much text: is there a loop that has no end, a loop within a loop, or a text that \
             is repeated?"
                .to_owned()
        }
        (None, kind) => inner.detail().map_or_else(|| kind.to_string(), str::to_owned),
    };
    let found = Found::new(inner, origin);
    let functions: Vec<&str> = engine().globals().map(|(name, _)| name).collect();
    match filters::unknown(inner.kind(), &detail, found.as_ref().map_or("", Found::text), &functions) {
        Some((message, known)) => at_place(playbook(message), found.as_ref()).hint(known),
        None => at_place(playbook(detail), found.as_ref()),
    }
}

/// An error of the engine, as ours. What is undefined is found out by evaluating it again, with an engine that tells.
pub(super) fn convert(
    error: &minijinja::Error,
    origin: &Origin<'_>,
    scope: &Arc<Scope>,
    again: Option<&dyn Fn() -> Option<minijinja::Error>>,
) -> Fail {
    if let (ErrorKind::UndefinedError, Some(again)) = (innermost(error).kind(), again)
        && let Some(told) = again()
    {
        return convert(&told, origin, scope, None);
    }
    let inner = innermost(error);
    let found = Found::new(inner, origin);
    let place = found.as_ref().map(Found::span);
    match carried(error) {
        Some(Fail::Facts) => return Fail::Facts,
        Some(Fail::Undefined(e)) => return Fail::Undefined(Box::new(used(*e, place))),
        Some(Fail::Error(e)) => return Fail::Error(Box::new(used(*e, place))),
        None => {}
    }
    match inner.kind() {
        ErrorKind::UndefinedError => {
            // The engine's words end in: (`a.b` is undefined). A part of it that stands elsewhere has a `from`.
            let detail = inner.detail().unwrap_or_default();
            let expression = detail.split('`').nth(1).unwrap_or_default();
            let place = found.map(|f| f.part(expression));
            match Lookup::parse(expression) {
                Some(lookup) => missing(&lookup, place, scope),
                None => match culprit(error, origin, scope) {
                    Some((place, lookup)) => missing(&lookup, Some(place), scope),
                    None => {
                        let told = if expression.is_empty() {
                            detail.to_owned()
                        } else {
                            format!("`{expression}` is undefined")
                        };
                        let error = playbook(told);
                        Fail::undefined(match place {
                            Some(place) => error.at(&place),
                            None => error,
                        })
                    }
                },
            }
        }
        ErrorKind::SyntaxError => Fail::error(syntax(error, origin)),
        _ => {
            // An operator says of what kind its operands are, not that one of them isn't there.
            let operand = inner.detail().is_some_and(|d| d.contains("undefined"));
            match operand.then(|| culprit(error, origin, scope)).flatten() {
                Some((place, lookup)) => missing(&lookup, Some(place), scope),
                None => Fail::error(plain(error, origin)),
            }
        }
    }
}

/// The first undefined variable of the expression that an error is in, and its place.
fn culprit(error: &minijinja::Error, origin: &Origin<'_>, scope: &Arc<Scope>) -> Option<(Span, Lookup)> {
    let mut found = Found::new(innermost(error), origin)?;
    found.widen();
    let text = found.text();
    // The engine knows names of variables from those of filters and arguments. A block is none without its end.
    let names = match engine().compile_expression(text) {
        Ok(expression) => expression.undeclared_variables(true),
        Err(_) => ["", "{% endif %}", "{% endfor %}"].iter().find_map(|end| {
            Some(engine().template_from_str(&format!("{text}{end}")).ok()?.undeclared_variables(true))
        })?,
    };
    let undefined = |name: &String| {
        let lookup = Lookup::parse(name).filter(|l| engine().globals().all(|(global, _)| global != l.root))?;
        matches!(scope.walk(&lookup), Err(Fail::Undefined(_))).then_some((text.find(name)?, name.len(), lookup))
    };
    let (at, len, lookup) = names.iter().filter_map(undefined).min_by_key(|(at, ..)| *at)?;
    Some((found.part(&text[at..at + len]), lookup))
}

/// An error in a variable that is used at a place.
fn used(error: Error, place: Option<Span>) -> Error {
    match place {
        Some(span) if error.place.is_none() => error.at(&span),
        Some(span) if error.also.len() < 3 => error.also(&span, "used here"),
        _ => error,
    }
}

/// The failure of a plain lookup, at its place.
pub(super) fn at(fail: Fail, lookup: &Lookup, origin: &Origin<'_>, scope: &Arc<Scope>) -> Fail {
    let place = || match origin {
        Origin::Node(node, _) => node.text().and_then(|t| {
            let start = t.find(&lookup.root)?;
            let end = t.trim_end_matches(['}', ' ', '-', '\n']).len();
            Some(within(node, start..end))
        }),
        Origin::File(_) => None,
    };
    match fail {
        Fail::Facts => Fail::Facts,
        // Nothing is known of it but that it isn't there.
        Fail::Undefined(e) if e.place.is_none() => missing(lookup, place(), scope),
        Fail::Undefined(e) => Fail::Undefined(Box::new(used(*e, place()))),
        Fail::Error(e) => Fail::Error(Box::new(used(*e, place()))),
    }
}

/// Says which part of a lookup isn't there, and what is near it.
fn missing(lookup: &Lookup, place: Option<Span>, scope: &Arc<Scope>) -> Fail {
    let with = |error: Error| match &place {
        Some(place) => error.at(place),
        None => error,
    };
    if lookup.root == "hostvars" {
        return Fail::undefined(with(match &lookup.steps[..] {
            [Step::Key(host), ..] if scope.other(host).is_none() => {
                let hosts = scope.all_hosts();
                let error = playbook(format!("no host `{host}` in the inventory"));
                match nearest(host, hosts.iter().map(|h| &**h)) {
                    Some(near) => error.hint(format!("did you mean `{near}`?")),
                    None => error,
                }
            }
            [Step::Key(host), Step::Key(name), ..] => playbook(format!("the host `{host}` has no variable `{name}`")),
            _ => playbook("`hostvars` needs the name of a host").hint("write `hostvars['n1'].variable`"),
        }));
    }
    let mut node = match scope.node(&lookup.root) {
        Ok(Some(node)) => node,
        Ok(None) => {
            let names = scope.names();
            let error = with(playbook(format!("the variable `{}` isn't defined", lookup.root)));
            let near = nearest(&lookup.root, names.iter().map(|n| &**n));
            let error = match near {
                // It is one of a host, and no host is there.
                Some(near) if near == lookup.root => {
                    error.hint("it differs from host to host, and what stands here is the same for the whole play")
                }
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            };
            return Fail::undefined(known_elsewhere(&lookup.root).map(|h| error.clone().hint(h)).unwrap_or(error));
        }
        Err(Fail::Facts) => return Fail::Facts,
        Err(Fail::Undefined(e)) => return Fail::Undefined(Box::new(used(*e, place))),
        Err(Fail::Error(e)) => return Fail::Error(Box::new(used(*e, place))),
    };
    let mut so_far = lookup.root.clone();
    for step in &lookup.steps {
        let (next, name) = match step {
            Step::Key(key) => (node.get(key).cloned(), format!("`{key}`")),
            Step::Index(at) => (node.as_seq().and_then(|s| s.get(*at)).cloned(), format!("item {at}")),
        };
        match next {
            Some(next) => node = next,
            None => {
                let what = match (&node.value, step) {
                    (Tree::Map(_), Step::Key(_)) => String::new(),
                    (Tree::Seq(items), Step::Index(_)) => format!(" has {} items and", items.len()),
                    _ => format!(" is {} and", node.describe()),
                };
                let error = with(playbook(format!("`{so_far}`{what} has no {name}")));
                let keys: Vec<&str> = node.as_map().unwrap_or_default().iter().filter_map(|(k, _)| k.text()).collect();
                return Fail::undefined(match step {
                    Step::Key(key) if (1..=30).contains(&keys.len()) => error.hint(crate::error::suggest(key, &keys)),
                    _ => error,
                });
            }
        }
        match step {
            Step::Key(key) => so_far += &format!(".{key}"),
            Step::Index(at) => so_far += &format!("[{at}]"),
        }
    }
    // All of it is there: the undefined thing has the name of something else, as a loop's variable may.
    Fail::undefined(with(playbook(format!("`{so_far}` is undefined here"))))
}

/// Where Ansible's names have another place.
fn known_elsewhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "item" => "only a resource with `loop` has it, under the name of its `loop_var`",
        "ansible_facts" => "facts are under `facts`, without gathering: `netplay facts` shows them",
        "ansible_hostname" | "ansible_nodename" => "the fact is `facts.host.name`",
        "ansible_fqdn" => "the fact is `facts.host.fqdn`",
        "ansible_os_family" => "the fact is `facts.os.family`, in lower case: debian, redhat, suse",
        "ansible_distribution" => "the fact is `facts.os.id`, in lower case",
        "ansible_distribution_version" | "ansible_distribution_major_version" => "the fact is `facts.os.version`",
        "ansible_kernel" => "the fact is `facts.kernel`",
        "ansible_interfaces" => "the facts are `facts.interfaces`, a list with `name`, `mtu`, `driver` and more",
        "ansible_memtotal_mb" => "the fact is `facts.memory_mib`",
        "ansible_processor_vcpus" | "ansible_processor_nproc" => "the fact is `facts.cpus.count`",
        "ansible_service_mgr" => "the fact is `facts.service_manager`",
        "ansible_check_mode" => "a check renders what an apply renders; there is no such variable",
        _ => return None,
    })
}

/// An expression that yields nothing: `'x' if false`, or an undefined variable that no operator met.
pub(super) fn undefined_result(origin: &Origin<'_>, scope: &Arc<Scope>) -> Fail {
    let Origin::Node(node, _) = origin else { return Fail::undefined(playbook("the template yields nothing")) };
    let text = node.text().unwrap_or_default();
    let expression = text.trim().trim_start_matches(['{', '-']).trim_end_matches(['}', '-']).trim();
    if let Some(lookup) = Lookup::parse(expression) {
        let start = text.find(expression).unwrap_or(0);
        return missing(&lookup, Some(within(node, start..start + expression.len())), scope);
    }
    let error = playbook("the expression yields nothing that is defined").at(&node.span);
    let hint = if text.contains(" if ") { "give its `if` an `else`" } else { "give it a `default()`" };
    Fail::undefined(error.hint(hint))
}
