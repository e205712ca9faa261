//! `http.headers`.

use pronghorn_config::{Node, Pair, Pairs, Section, Setting, Shown, Table, Text, Value, Wrong};

use crate::routes::is_token;

/// Fields that the server sets.
#[derive(Clone, Debug, Default)]
pub struct HeadersSettings {
    pub request: FieldRules,
    pub response: FieldRules,
}

/// Fields with the value that each gets; an empty one removes the field.
#[derive(Clone, Debug, Default)]
pub struct FieldRules(Vec<Pair>);

impl FieldRules {
    /// Names and values, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|pair| (pair.name.as_str(), pair.value.as_str()))
    }
}

impl Section for HeadersSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let settings = Self {
            request: t
                .key(
                    "request",
                    "Fields that requests get on their way to PHP, whatever the client sent; an empty text removes one.",
                )
                .differs("added to those of the client", "a client could bring its own")
                .default(FieldRules::default()),
            response: t
                .key(
                    "response",
                    "Fields that responses get, whatever PHP set; an empty text removes one.",
                )
                .differs("a second one where PHP sets it, too", "clients take one of the two")
                .default(FieldRules::default()),
        };
        t.not_yet("cors", "CORS");
        settings
    }
}

/// What frames a message, or names its host, is the server's own business: a wrong value would break the connection.
const OWN: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn wrong(Pair { name, value, .. }: &Pair) -> Option<String> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some(format!("`{name}` is no field's name"));
    }
    if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Some(format!("`{name}` is set by the server itself"));
    }
    // RFC 9110, section 5.5.
    let bad = |byte: u8| byte != b'\t' && byte.is_ascii_control();
    value
        .bytes()
        .any(bad)
        .then(|| format!("the value of `{name}` has a line end or another control character"))
}

/// A pair's text as it stood in the file, so that a mistake is told where it is.
fn text_of(pair: &Pair) -> Node {
    let text = Text {
        text: pair.value.clone(),
        quoted: true,
    };
    Node {
        value: Value::Text(text),
        origin: pair.origin.clone(),
    }
}

impl Setting for FieldRules {
    fn example() -> String {
        "{X-Frame-Options: DENY}".to_owned()
    }
    const EMPTY_IS_VALUE: bool = true;

    fn accepts() -> String {
        "names of fields with their values".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let pairs = Pairs::read(node)?.0;
        let hinted = |pair: &Pair| Some(Wrong::hinted(&text_of(pair), wrong(pair)?));
        let wrong: Vec<Wrong> = pairs.iter().filter_map(hinted).flatten().collect();
        if wrong.is_empty() {
            Ok(Self(pairs))
        } else {
            Err(wrong)
        }
    }

    fn show(&self) -> Shown {
        Shown::Map(self.0.clone())
    }
}
