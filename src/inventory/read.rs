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

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    source::read(path, source::MAX_TEXT).map_err(|e| failed(path, &e))
}

/// The text of a file, called by its path.
pub(super) fn text(path: &Path) -> Result<Arc<Source>, Error> {
    yaml::decode(&path.display().to_string(), bytes(path)?, Kind::Inventory)
}

/// The document of a text; nothing if it is empty. As with Ansible, what is valid JSON is JSON (there, `1e3` is a
/// number), anything else YAML.
pub(super) fn document(source: &Arc<Source>) -> Result<Option<Node>, Error> {
    if !source.text.trim_start().starts_with(['{', '[']) {
        return yaml::load_one(source, Kind::Inventory);
    }
    let json = serde_json::from_str::<serde_json::Value>(&source.text);
    match (yaml::load_one(source, Kind::Inventory), json) {
        (Ok(node), Ok(_)) => Ok(node.map(|n| json_numbers(&n))),
        // JSON that isn't YAML: surrogate pairs, long keys. Its values have no places of their own then.
        (Err(e), Ok(json)) if e.message.starts_with("not valid YAML") => {
            Ok(Some(Node::from_json(&Span::start(source), &json)))
        }
        (read, _) => read,
    }
}

/// Gives numbers their meaning in JSON where YAML takes them for text.
fn json_numbers(node: &Node) -> Node {
    let value = match &node.value {
        Value::Scalar { text, plain: true } if matches!(node.scalar(), Some(Scalar::Str(_))) => {
            match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) => return Node::from_json(&node.span, &serde_json::Value::Number(number)),
                Err(_) => return node.clone(),
            }
        }
        Value::Seq(items) => Value::Seq(Arc::new(items.iter().map(json_numbers).collect())),
        Value::Map(entries) => {
            Value::Map(Arc::new(entries.iter().map(|(k, v)| (k.clone(), json_numbers(v))).collect()))
        }
        other => other.clone(),
    };
    Node { span: node.span.clone(), tag: node.tag.clone(), value }
}
