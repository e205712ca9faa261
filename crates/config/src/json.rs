//! The tree as JSON, for programs that ask a running server what it was told.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map as Object, Value as Json};

use crate::load::Loaded;
use crate::node::{Entry, Map, Node, Value};
use crate::place::Place;
use crate::resolve::{Effective, Record};
use crate::secret;

impl Loaded {
    /// Everything that was written, as RoadRunner hands it out over RPC: files, includes and
    /// overrides merged, variables expanded, no defaults, every name in lower case. Secrets are
    /// `***` (`docs/decisions/0003-rpc-config-without-secrets.md`): `effective` knows which keys
    /// are.
    pub fn to_json(&self, effective: &Effective) -> String {
        let secrets = effective.records.iter().filter_map(|record| match record {
            Record::Key(key) if key.secret => key.origin.as_ref().map(|it| &it.place),
            _ => None,
        });
        let secrets = Secrets(secrets.collect());
        Json::Object(secrets.object(&self.root, Hidden::Nothing)).to_string()
    }
}

/// The places of values whose keys are secret, whatever their names are.
struct Secrets<'e>(HashSet<&'e Place>);

/// The part of a value that is not shown, beside what a text shows to be secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Nothing,
    /// It stands under a name of secrets: all but paths of keys.
    ByName,
    All,
}

impl Secrets<'_> {
    /// All values below a secret's name are secret, too.
    fn object(&self, map: &Map, hidden: Hidden) -> Object<String, Json> {
        let pair = |entry: &Entry| {
            let place = &entry.node.origin.place;
            let hidden = match hidden {
                _ if self.0.contains(place) && place.may_set(&entry.name) => Hidden::All,
                Hidden::Nothing if secret::is_secret(&entry.name) => Hidden::ByName,
                above => above,
            };
            (entry.name.to_lowercase(), self.value(&entry.node, hidden))
        };
        // In order of names, as RoadRunner writes them, whichever kind of map serde_json was built
        // with.
        let sorted: BTreeMap<String, Json> = map.entries.iter().map(pair).collect();
        sorted.into_iter().collect()
    }

    fn value(&self, node: &Node, hidden: Hidden) -> Json {
        match &node.value {
            Value::Null => Json::Null,
            Value::Map(map) => Json::Object(self.object(map, hidden)),
            Value::List(items) if hidden == Hidden::Nothing => {
                let items = secret::masked_items(items).map(|(item, shown)| match shown {
                    Some(shown) => text(item, shown),
                    None => self.value(item, hidden),
                });
                items.collect()
            }
            Value::List(items) => items.iter().map(|item| self.value(item, hidden)).collect(),
            Value::Text(it) => {
                let is_secret = match hidden {
                    Hidden::Nothing => false,
                    Hidden::ByName => !secret::is_key_file(&it.text),
                    Hidden::All => true,
                };
                text(node, secret::masked(&it.text, is_secret))
            }
        }
    }
}

/// A text that is shown like this.
fn text(node: &Node, shown: String) -> Json {
    match &node.value {
        Value::Text(text)
            if !text.quoted && shown == text.text && node.origin.variables.is_empty() =>
        {
            scalar(shown)
        }
        _ => Json::String(shown),
    }
}

/// What a plain scalar is to YAML's core schema, as far as JSON has it too.
fn scalar(text: String) -> Json {
    match text.as_str() {
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        number => match number.parse() {
            Ok(number) => Json::Number(number),
            Err(_) => Json::String(text),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::Effective;
    use crate::load::{Input, load};

    fn json(yaml: &str, overrides: &[&str]) -> String {
        let mut input = Input::from_text(".rr.yaml", yaml);
        input.overrides = overrides.iter().map(|&o| o.to_owned()).collect();
        input.environment = [("PORT".to_owned(), "80".to_owned())].into();
        load(&input).to_json(&Effective::default())
    }

    #[test]
    fn names_are_in_lower_case_and_scalars_keep_their_kind() {
        assert_eq!(
            json(
                "KV: {MemKV: {driver: memory, config: {interval: 60, on: true, off: \"true\", rate: 1.5, none: }}}\n",
                &[]
            ),
            r#"{"kv":{"memkv":{"config":{"interval":60,"none":null,"off":"true","on":true,"rate":1.5},"driver":"memory"}}}"#
        );
        let odd = json("a: [0x10, 007, +1, .5, -3, 1e3, yes, 12:30]\n", &[]);
        assert_eq!(
            odd,
            r#"{"a":["0x10","007","+1",".5",-3,1000.0,"yes","12:30"]}"#
        );
    }

    #[test]
    fn variables_and_overrides_are_in_it_as_texts() {
        assert_eq!(
            json(
                "http: {address: \":${PORT}\", port: $PORT, pool.debug: true}\n",
                &["http.address=:90"]
            ),
            r#"{"http":{"address":":90","pool":{"debug":true},"port":"80"}}"#
        );
    }

    #[test]
    fn secrets_are_not_in_it() {
        let yaml = "server: {env: {APP_KEY: hush, DATABASE_URL: \"mysql://u:hush@db\"}}\n\
            nats: {token: 4711, addr: \"nats://u:hush@127.0.0.1\"}\n\
            kv: {tokens: {config: {addrs: [hush]}}}\n\
            http: {ssl: {key: server.key}}\n";
        let said = json(yaml, &["sqs.secret=hush"]);
        assert!(!said.contains("hush") && !said.contains("4711"), "{said}");
        assert!(
            said.contains("mysql://u:***@db") && said.contains("server.key"),
            "{said}"
        );
    }
}
