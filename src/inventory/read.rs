//! Reading the files of an inventory.

use crate::error::{Error, Kind};
use crate::source::{self, Source, Span};
use crate::yaml::{self, Node, Scalar, Value};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The error of a file or folder that can't be read.
pub(super) fn failed(path: &Path, error: &io::Error) -> Error {
    let what = match error.kind() {
        io::ErrorKind::NotFound => format!("{} doesn't exist", path.display()),
        _ => format!("{} can't be read: {error}", path.display()),
    };
    let error_kind = error.kind();
    let error = Error::new(Kind::Inventory, what);
    if error_kind == io::ErrorKind::PermissionDenied {
        error.hint("check its owner and mode by `ls -l`")
    } else {
        error
    }
}

/// The bytes of a file.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    source::read(path, source::MAX_TEXT).map_err(|e| failed(path, &e))
}

/// The same of a file that the command line may name.
pub(super) fn given(path: &Path) -> Result<Vec<u8>, Error> {
    source::given(path, source::MAX_TEXT).map_err(|e| failed(path, &e))
}

/// The text of a file that the command line names, called by its path.
pub(super) fn text(path: &Path) -> Result<Arc<Source>, Error> {
    yaml::decode(&path.display().to_string(), given(path)?, Kind::Inventory)
}

/// The document of a text; nothing if it is empty. As with Ansible, what is valid JSON is JSON (there, `1e3` is a
/// number, and an object with the one key `__ansible_vault` an encrypted value), anything else YAML.
///
/// # Errors
/// It is neither; of this kind.
pub fn document(source: &Arc<Source>, kind: Kind) -> Result<Option<Node>, Error> {
    if !source.text.trim_start().starts_with(['{', '[']) {
        return yaml::load_one(source, kind);
    }
    let json = serde_json::from_str::<serde_json::Value>(&source.text);
    match (yaml::load_one(source, kind), json) {
        (Ok(node), Ok(_)) => Ok(node.map(|n| as_json(&n))),
        // JSON that isn't YAML: surrogate pairs, long keys. Its values have no places of their own then.
        (Err(e), Ok(json)) if e.message.starts_with("not valid YAML") => {
            Ok(Some(as_json(&Node::from_json(&Span::start(source), &json))))
        }
        (read, _) => read,
    }
}

/// Gives numbers their meaning in JSON where YAML takes them for text, and makes tags of the objects that stand for
/// them.
fn as_json(node: &Node) -> Node {
    let value = match &node.value {
        Value::Scalar { text, plain: true } if matches!(node.scalar(), Some(Scalar::Str(_))) => {
            match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) => return Node::from_json(&node.span, &serde_json::Value::Number(number)),
                Err(_) => return node.clone(),
            }
        }
        Value::Seq(items) => Value::Seq(Arc::new(items.iter().map(as_json).collect())),
        Value::Map(entries) => {
            if let [(key, value)] = entries.as_slice() {
                let tag = match key.text() {
                    Some("__ansible_vault") => Some("!vault"),
                    Some("__ansible_unsafe") => Some("!unsafe"),
                    _ => None,
                };
                if let Some(tag) = tag.filter(|_| value.as_str().is_some()) {
                    return Node { tag: Some(Arc::from(tag)), ..value.clone() };
                }
            }
            Value::Map(Arc::new(entries.iter().map(|(k, v)| (k.clone(), as_json(v))).collect()))
        }
        other => other.clone(),
    };
    Node { span: node.span.clone(), tag: node.tag.clone(), value }
}
