//! All keys as a JSON Schema, for editors: names and words to complete, what each key does.
//!
//! It takes what the server takes, which reads a number also from a text and takes a variable in
//! every place, but for names and words in other case and for names with dots.

use std::collections::BTreeMap;

use serde_json::{Map as Object, Value as Json, json};

use crate::era::Era;
use crate::resolve::{DefaultShown, KeyRecord, Record, described};
use crate::setting::{Choice, Shape, Shown};
use crate::table::Table;

/// A text with a variable in it.
const VARIABLE: &str = r"\$\{?[A-Za-z_]";
/// Stands for the names that the operator chooses, in the path of a section.
const ANY: &str = "<name>";

/// A section: what is known of it, and what stands in it.
#[derive(Debug, Default)]
struct Section {
    sentence: &'static str,
    /// It is a list of such sections.
    is_list: bool,
    /// Another program reads further keys.
    is_open: bool,
    keys: BTreeMap<String, Vec<Json>>,
    sections: BTreeMap<String, Self>,
}

/// A JSON Schema of draft 7, which is the one that editors know, of what the statements of `read`
/// take in files of both releases of RoadRunner.
pub fn schema<S>(read: impl Fn(&mut Table<'_>) -> S) -> String {
    let mut root = Section::default();
    for (_, era) in Era::CHOICES {
        for record in described(&read, *era) {
            root.add(&record);
        }
    }
    let mut schema = root.object();
    let draft = "http://json-schema.org/draft-07/schema#";
    schema.insert("$schema".to_owned(), draft.into());
    schema.insert("title".to_owned(), "Configuration of Pronghorn".into());
    format!("{:#}\n", Json::Object(schema))
}

impl Section {
    fn add(&mut self, record: &Record) {
        let (section, name) = record
            .path()
            .rsplit_once('.')
            .unwrap_or_else(|| ("", record.path()));
        let key = match record {
            Record::Section { path, sentence } => {
                let section = self.below(path);
                if section.sentence.is_empty() {
                    section.sentence = sentence;
                }
                return;
            }
            Record::PassedOn { section, .. } => {
                self.below(section).is_open = true;
                return;
            }
            Record::Key(key) => of_key(key),
            Record::Loading { sentence, .. } => json!({ "description": sentence }),
            Record::Unused { state, why, .. } => {
                json!({ "description": format!("Is {state}: {why}.") })
            }
        };
        let keys = &mut self.below(section).keys;
        keys.entry(name.to_owned()).or_default().push(key);
    }

    /// The section of this path.
    fn below(&mut self, path: &str) -> &mut Self {
        let mut section = self;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let (name, is_item) = match name.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (name, false),
            };
            section = section.sections.entry(name.to_owned()).or_default();
            section.is_list |= is_item;
        }
        section
    }

    fn schema(&self) -> Json {
        let mut object = self.object();
        if !self.is_list {
            object.insert("type".to_owned(), json!(["object", "null"]));
            return Json::Object(object);
        }
        let sentence = object.remove("description");
        json!({ "type": ["array", "null"], "description": sentence, "items": object })
    }

    fn object(&self) -> Object<String, Json> {
        let mut object = Object::new();
        object.insert("type".to_owned(), "object".into());
        if !self.sentence.is_empty() {
            object.insert("description".to_owned(), self.sentence.into());
        }
        if self.keys.is_empty() && self.sections.is_empty() {
            return object; // its keys are those of another section
        }
        let mut properties: BTreeMap<&String, Vec<Json>> = BTreeMap::new();
        for (name, kinds) in &self.keys {
            properties.entry(name).or_default().extend(kinds.clone());
        }
        for (name, section) in self.sections.iter().filter(|(name, _)| *name != ANY) {
            properties.entry(name).or_default().push(section.schema());
        }
        let properties: Object<String, Json> = properties
            .into_iter()
            .map(|(name, kinds)| (name.clone(), one_of(kinds)))
            .collect();
        object.insert("properties".to_owned(), Json::Object(properties));
        object.insert("patternProperties".to_owned(), json!({ "^x-": {} }));
        let others = self.sections.get(ANY).map(Self::schema);
        let others = others.unwrap_or_else(|| self.is_open.into());
        object.insert("additionalProperties".to_owned(), others);
        object
    }
}

/// A key that is read in several ways is written in one of them.
fn one_of(mut kinds: Vec<Json>) -> Json {
    for at in (1..kinds.len()).rev() {
        if kinds[..at].contains(&kinds[at]) {
            kinds.remove(at);
        }
    }
    match kinds.len() {
        1 => kinds.remove(0),
        _ => json!({ "anyOf": kinds }),
    }
}

fn of_key(key: &KeyRecord) -> Json {
    let mut schema = match shape(&key.shape) {
        Json::Object(schema) => schema,
        other => return other,
    };
    let description = format!("{} Accepted: {}.", key.sentence, key.accepts);
    schema.insert("description".to_owned(), description.into());
    if let DefaultShown::Value(Shown::One(value)) = &key.default {
        schema.insert("default".to_owned(), value.clone().into());
    }
    Json::Object(schema)
}

fn shape(shape: &Shape) -> Json {
    match shape {
        Shape::Text => json!({ "type": ["string", "number", "boolean", "null"] }),
        Shape::Number => {
            let pattern = format!(r"^\s*[0-9]+\s*$|{VARIABLE}");
            json!({ "type": ["integer", "string", "null"], "pattern": pattern })
        }
        Shape::Bool => json!({ "type": ["boolean", "string", "integer", "null"] }),
        Shape::Words(words) => {
            // YAML reads some words as something else: `true`, `1.3`.
            let read = words
                .iter()
                .filter_map(|word| serde_json::from_str(word).ok());
            let words = words.iter().map(|word| Json::from(*word)).chain(read);
            let words: Vec<Json> = words.collect();
            let variable = json!({ "type": "string", "pattern": VARIABLE });
            json!({ "anyOf": [{ "enum": words }, variable, { "type": "null" }] })
        }
        Shape::List(each) => {
            let each = self::shape(each);
            let joined = json!({ "type": "string", "pattern": "," });
            json!({ "anyOf": [{ "type": "array", "items": each }, each, joined] })
        }
        Shape::Pairs => {
            let names = json!({ "type": "object" });
            json!({ "anyOf": [names, { "type": "array", "items": names }, { "type": "null" }] })
        }
    }
}
