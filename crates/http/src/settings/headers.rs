//! `http.headers`.

use std::fmt;

use pronghorn_config::{
    Node, Pair, Pairs, Section, Setting, Shape, Shown, Table, Text, Value, Wrong,
};

use crate::expression::Expression;
use crate::routes::is_token;

/// As RoadRunner's.
const OPTIONS_SUCCESS_STATUS: u16 = 200;
/// What pages may do without asking first, as RoadRunner's.
const METHODS: [&str; 3] = ["GET", "POST", "HEAD"];
const HEADERS: [&str; 3] = ["Accept", "Content-Type", "X-Requested-With"];
/// A day; no browser keeps an answer longer.
const LONGEST_MAX_AGE: u32 = 86_400;

/// Fields that the server sets.
#[derive(Clone, Debug, Default)]
pub struct HeadersSettings {
    pub request: FieldRules,
    pub response: FieldRules,
    /// What pages of other sites may do, when there is a section for it.
    pub cors: Option<CorsSettings>,
}

/// What pages of other sites may do with this one.
#[derive(Clone, Debug)]
pub struct CorsSettings {
    pub allowed_origin: Vec<OriginPattern>,
    /// Counts in place of `allowed_origin`.
    pub allowed_origin_regex: Option<Expression>,
    /// In capitals.
    pub allowed_methods: Vec<String>,
    /// `*` is any.
    pub allowed_headers: Vec<String>,
    pub exposed_headers: Vec<String>,
    pub allow_credentials: bool,
    /// Seconds; 0 leaves it to the browser.
    pub max_age: u32,
    /// The status of the answer to a question, from 200 to 299.
    pub options_success_status: u16,
    /// A record for each decision.
    pub debug: bool,
}

impl CorsSettings {
    /// Pages of every site.
    pub fn allows_any(&self) -> bool {
        self.allowed_origin_regex.is_none() && self.allowed_origin.contains(&OriginPattern::Any)
    }
}

/// Origins of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    Any,
    One(String),
    /// What lies between the two is part of a host or a port.
    Between(String, String),
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(origin) => f.write_str(origin),
            Self::Between(start, end) => write!(f, "{start}*{end}"),
        }
    }
}

impl Setting for OriginPattern {
    fn example() -> String {
        "https://*.example.com".to_owned()
    }

    fn accepts() -> String {
        "an origin such as `https://example.com`, which may have one `*` in it, or `*` for all"
            .to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        if text == "*" {
            return Ok(Self::Any);
        }
        let Some((_, host)) = text.split_once("://").filter(|_| text != "null") else {
            return match text {
                // What sandboxed frames and files have.
                "null" => Ok(Self::One(text.to_owned())),
                _ => Err(Wrong::hinted(
                    node,
                    format!("with its scheme: `https://{text}`"),
                )),
            };
        };
        if host.contains('/') {
            return Err(Wrong::hinted(
                node,
                "an origin has no path, and no `/` at its end",
            ));
        }
        match text.split_once('*') {
            None => Ok(Self::One(text.to_owned())),
            Some((start, end)) if !end.contains('*') => {
                Ok(Self::Between(start.to_owned(), end.to_owned()))
            }
            Some(_) => Err(Wrong::hinted(
                node,
                "one `*` at most; `allowed_origin_regex` can more",
            )),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }
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
        t.live();
        Self {
            request: t
                .key(
                    "request",
                    "Header fields to set in requests for PHP. They replace the client's. An empty \
                     text removes a field.",
                )
                .differs(
                    "adds them to the client's",
                    "a client could send the same field itself",
                )
                .default(FieldRules::default()),
            response: t
                .key(
                    "response",
                    "Header fields to set in responses. They replace PHP's. An empty text removes \
                     a field.",
                )
                .differs(
                    "adds a second one if PHP sets it, too",
                    "clients use only one of two equal fields",
                )
                .default(FieldRules::default()),
            cors: t.optional_section(
                "cors",
                "What pages of other sites may do (CORS). The server answers preflight requests \
                 without PHP.",
            ),
        }
    }
}

impl Section for CorsSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let settings = Self {
            allowed_origin: t
                .key("allowed_origin", "Origins whose pages may read responses.")
                .default(Vec::new()),
            allowed_origin_regex: t
                .key(
                    "allowed_origin_regex",
                    "A regular expression for allowed origins, instead of `allowed_origin`. It may \
                     match any part of the origin.",
                )
                .optional(),
            allowed_headers: t
                .key(
                    "allowed_headers",
                    "Header fields that pages may send; `*` allows any.",
                )
                .default(texts(&HEADERS)),
            allowed_methods: t
                .key("allowed_methods", "Methods that pages may use.")
                .default(texts(&METHODS))
                .iter()
                .map(|method: &String| method.to_ascii_uppercase())
                .collect(),
            allow_credentials: t
                .key(
                    "allow_credentials",
                    "Whether browsers may send cookies and other credentials for these pages.",
                )
                .default(false),
            exposed_headers: t
                .key(
                    "exposed_headers",
                    "Header fields of responses that pages may read.",
                )
                .default(Vec::new()),
            max_age: t
                .key(
                    "max_age",
                    "Seconds for which a browser may cache the answer to a preflight request; 0 \
                     lets the browser decide.",
                )
                .range(0..=LONGEST_MAX_AGE)
                .default(0),
            options_success_status: t
                .key(
                    "options_success_status",
                    "The status of the answer to a preflight request.",
                )
                .zero_is_default()
                .range(200..=299)
                .default(OPTIONS_SUCCESS_STATUS),
            debug: t
                .key("debug", "Whether to log each decision.")
                .default(false),
        };
        settings.check(t);
        settings
    }
}

impl CorsSettings {
    fn check(&self, t: &mut Table<'_>) {
        let lists = [
            ("allowed_headers", &self.allowed_headers),
            ("allowed_methods", &self.allowed_methods),
            ("exposed_headers", &self.exposed_headers),
        ];
        for (key, names) in lists {
            let is_bad = |name: &&String| name.is_empty() || !name.bytes().all(is_token);
            if let Some(name) = names.iter().find(is_bad) {
                let message = format!("has `{name}`, which is no name of one");
                t.error(key, &message, "letters, digits and `-` make a name");
            }
        }
        if self.allows_any() && self.allow_credentials {
            t.warn(
                "allow_credentials",
                "is not used: browsers refuse credentials where any site is allowed",
                "name the sites in `allowed_origin`",
            );
        }
        match &self.allowed_origin_regex {
            Some(expression) if !expression.is_bound() => t.warn(
                "allowed_origin_regex",
                "is found anywhere in an origin, and then also in one that only looks alike",
                r"bind it to both ends: `^https://(.*\.)?example\.com$`",
            ),
            None if self.allowed_origin.is_empty() => t.warn(
                "",
                "allows no site: neither `allowed_origin` nor `allowed_origin_regex` is set",
                "for example `allowed_origin: https://example.com`",
            ),
            _ => {}
        }
    }
}

/// What frames a message, or names its host, is the server's own business: a wrong value would
/// break the connection.
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

    fn shape() -> Shape {
        Shape::Pairs
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
