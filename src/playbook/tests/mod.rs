//! Playbooks as text, through loading and rendering, with a type that shows what reached it.

mod limits;
mod loading;
mod rendering;
mod templates;
mod vault;

use super::load::Loader;
use super::*;
use crate::error::Errors;
use crate::inventory::vault::Vault;
use crate::inventory::{self, Inventory};
use crate::resource::{
    Answers, AnyResource, AnyType, Change, Claim, Key, Question, Reading, Resource, Spec, Step, Trouble,
};
use crate::yaml::{Node, Value};
use std::path::PathBuf;

/// Prints its keys as they came.
#[derive(Debug)]
struct Show {
    name: String,
    shown: Vec<String>,
}

impl Resource for Show {
    type State = ();
    const TYPE: &'static str = "show";
    const SUMMARY: &'static str = "shows its keys";
    const TOUCHES: &'static str = "";
    const KEYS: &'static [Key] = &[
        Key::required("id", "string", "what it is called"),
        Key::optional("value", "anything", "what is shown"),
        Key::optional("other", "anything", "shown too"),
        Key::optional("src", "file", "a file"),
        Key::optional("template", "file", "a template"),
        Key::optional("that", "conditions", "what must hold"),
        Key::refused("state", "it has none"),
    ];
    const EXAMPLE: &'static str = "show: {id: x}";

    fn parse(spec: &Spec<'_>) -> Result<Self, crate::error::Error> {
        let mut shown = Vec::new();
        for key in ["value", "other"] {
            shown.extend(spec.node.get(key).map(written));
        }
        if let Some(src) = spec.get("src") {
            shown.push(String::from_utf8_lossy(&spec.env.file(src)?).into_owned());
        }
        if let Some(src) = spec.get("template") {
            shown.push(spec.env.template(src)?);
        }
        for that in spec.get("that").and_then(Node::as_seq).unwrap_or_default() {
            shown.push(spec.env.holds(that)?.to_string());
        }
        Ok(Show { name: spec.need_text("id")?, shown })
    }
    fn identity(&self) -> String {
        match &self.shown[..] {
            [] => self.name.clone(),
            shown => format!("{}={}", self.name, shown.join("|")),
        }
    }
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }
    fn probe(&self) -> Vec<Question> {
        Vec::new()
    }
    fn read(&self, _: &Answers) -> Result<Reading<()>, Trouble> {
        Ok(Reading::State(()))
    }
    fn diff(&self, (): &()) -> Vec<Change> {
        Vec::new()
    }
    fn apply(&self, (): &()) -> Vec<Step> {
        Vec::new()
    }
}

/// A node with its type to be seen: strings in quotes, truth values of expressions in capitals.
fn written(node: &Node) -> String {
    match &node.value {
        Value::Bool(b) => if *b { "TRUE" } else { "FALSE" }.to_owned(),
        Value::Scalar { text, plain: true } => text.to_string(),
        Value::Scalar { text, plain: false } => format!("'{text}'"),
        Value::Seq(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(",")),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(k, v)| format!("{}:{}", k.text().unwrap(), written(v)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
    }
}

struct ShowType;

impl AnyType for ShowType {
    fn name(&self) -> &'static str {
        Show::TYPE
    }
    fn summary(&self) -> &'static str {
        Show::SUMMARY
    }
    fn touches(&self) -> &'static str {
        Show::TOUCHES
    }
    fn keys(&self) -> &'static [Key] {
        Show::KEYS
    }
    fn example(&self) -> &'static str {
        Show::EXAMPLE
    }
    fn parse(&self, spec: &Spec<'_>) -> Result<Box<dyn AnyResource>, crate::error::Error> {
        Ok(Box::new(Show::parse(spec)?))
    }
}

fn find(name: &str) -> Option<&'static dyn AnyType> {
    (name == "show").then_some(&ShowType)
}

/// Files in a folder of their own, and what opens those that are encrypted.
struct Site(tempfile::TempDir, Arc<Vault>);

impl Site {
    fn new(files: &[(&str, &str)]) -> Site {
        let site = Site(tempfile::tempdir().unwrap(), Arc::default());
        for (name, text) in files {
            let path = site.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What is told, without the folder's name.
    fn told(&self, errors: &Errors) -> String {
        errors.to_string().replace(&format!("{}/", self.0.path().display()), "")
    }

    fn load(&self) -> Result<Playbook, String> {
        let mut loader = Loader::new(find, &|| vec!["show"], &self.1);
        loader.playbook(&self.path("site.yaml")).map_err(|e| self.told(&e))
    }

    fn context(&self, extra: &[&str]) -> Arc<Context> {
        let path = self.path("inventory.yaml");
        let ini = self.path("hosts.ini");
        let source = [path, ini].into_iter().find(|p| p.exists());
        let source = source.map_or("n1,n2,".to_owned(), |path| path.display().to_string());
        let options = inventory::Options { ansible_cfg: None, vault: self.1.clone(), ..Default::default() };
        let (inventory, _) = Inventory::load(&[source], &options).unwrap_or_else(|e| panic!("{e}"));
        Context::new(inventory, Extra::parse(extra.iter().copied(), &self.1).unwrap(), self.0.path())
    }

    fn render(&self, host: &str, extra: &[&str], tags: &Tags, facts: Option<&Node>) -> Result<HostPlay, String> {
        let playbook = self.load()?;
        let context = self.context(extra);
        let host = context.inventory.host(host).unwrap();
        let play = &playbook.plays[0];
        let variables = play.variables(&context, host).map_err(|e| self.told(&e))?;
        play.render(&variables, tags, facts).map_err(|e| self.told(&e))
    }
}

fn addresses(play: &HostPlay) -> Vec<&str> {
    play.resources.iter().map(|r| &*r.address).collect()
}

/// What a play of these vars makes of each of these values.
fn shown(vars: &str, values: &[&str]) -> Vec<String> {
    let mut text = format!("- hosts: all\n  vars:\n{vars}\n  resources:\n");
    for value in values {
        text += &format!("  - show: {{id: v, value: {value}}}\n");
    }
    let site = Site::new(&[("site.yaml", &text)]);
    let play = site.render("n1", &[], &Tags::default(), None).unwrap_or_else(|e| panic!("{e}"));
    addresses(&play).iter().map(|a| a.strip_prefix("show:v=").unwrap_or("omitted").to_owned()).collect()
}

fn fails(resources: &str) -> String {
    let site = Site::new(&[("site.yaml", &format!("- hosts: all\n  resources:\n{resources}"))]);
    site.render("n1", &[], &Tags::default(), None).unwrap_err()
}

fn refused(text: &str) -> String {
    Site::new(&[("site.yaml", text)]).load().unwrap_err()
}
