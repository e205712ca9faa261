//! A file's bytes to a tree. Knows YAML, and that a dot in a key separates; no variables, no types.
//!
//! Files come from people, but also from deployment tools and strangers' repositories: size, depth
//! and what aliases may multiply are bounded.

use std::collections::{HashMap, HashSet};

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use crate::diagnostic::Diagnostics;
use crate::node::{Entry, Map, Node, Text, Value};
use crate::place::{Origin, Place};

/// Larger than any configuration a person writes; a larger file is the wrong file.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;

/// Nested lists and maps. The deepest key we know lies at eight.
pub(crate) const MAX_DEPTH: usize = 40;

/// Values in one file after aliases are resolved: nine lines of aliases could make billions.
const MAX_NODES: usize = 10_000;

/// A name. Messages repeat names, and paths are made of them.
const MAX_NAME_BYTES: usize = 128;

/// Text in one file after aliases are resolved.
const MAX_TEXT_BYTES: usize = 4 * MAX_FILE_BYTES;

/// The tree of one file, or None when it could not be read to its end. An empty file is an empty
/// map.
pub(crate) fn parse(bytes: &[u8], file: &Place, diagnostics: &mut Diagnostics) -> Option<Map> {
    let mut found = Diagnostics::default();
    let root = parse_text(bytes, file, &mut found);
    diagnostics.0.append(&mut found.0);
    match root {
        Ok(map) => Some(map),
        Err(refused) => {
            diagnostics.error(&refused.place, refused.message, &refused.hint);
            None
        }
    }
}

fn parse_text(bytes: &[u8], file: &Place, found: &mut Diagnostics) -> Result<Map, Refused> {
    let text = decode(bytes, file)?;
    // A block scalar that ends with the file ends without a line feed, as in libyaml.
    let options = granit_parser::options! { block_scalar_eof_without_line_feed: true };
    let mut builder = Builder {
        parser: Parser::new_from_str_with_options(text, options),
        text,
        file,
        anchors: HashMap::new(),
        nodes_left: MAX_NODES,
        bytes_left: MAX_TEXT_BYTES,
        found,
    };
    builder.document()
}

/// Why the rest of a file cannot be read.
struct Refused {
    place: Place,
    message: String,
    hint: String,
}

impl Refused {
    fn new(place: Place, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

fn decode<'b>(bytes: &'b [u8], file: &Place) -> Result<&'b str, Refused> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(Refused::new(
            file.clone(),
            format!("is larger than a configuration may be ({MAX_FILE_BYTES} bytes)"),
            "is this the right file?",
        ));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (good, _) = bytes.split_at(error.valid_up_to());
        let place = end_of(file, &String::from_utf8_lossy(good));
        Refused::new(place, "is not UTF-8", "save the file as UTF-8")
    })?;
    match text.split_once('\0') {
        None => Ok(text),
        Some((before, _)) => Err(Refused::new(
            end_of(file, before),
            "holds a NUL character",
            "is this the right file?",
        )),
    }
}

/// The position right after `text`.
fn end_of(file: &Place, text: &str) -> Place {
    let last = text.rsplit('\n').next().unwrap_or_default();
    file.at(text.matches('\n').count() + 1, last.chars().count() + 1)
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    file: &'a Place,
    anchors: HashMap<usize, Node>,
    nodes_left: usize,
    bytes_left: usize,
    found: &'a mut Diagnostics,
}

type Spanned<'a> = (Event<'a>, Span);

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Map, Refused> {
        let mut root = Map::default();
        let mut documents = 0;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        // What stands there is not even parsed, as in RoadRunner.
                        self.found.warn(
                            &self.place(span),
                            "a second document begins here: it is not read",
                            "keep one document in a file; `include` joins files",
                        );
                        return Ok(root);
                    }
                }
                Event::StreamStart | Event::DocumentEnd => {}
                content => {
                    let node = self.node((content, span), 0)?;
                    root = match node.value {
                        Value::Map(map) => map,
                        Value::Null => Map::default(),
                        Value::Text(_) | Value::List(_) => {
                            return Err(Refused::new(
                                node.origin.place,
                                "a configuration is a map of sections",
                                "begin with a section, such as `server:`",
                            ));
                        }
                    };
                }
            }
        }
    }

    fn node(&mut self, (event, span): Spanned<'a>, depth: usize) -> Result<Node, Refused> {
        let place = self.place(span);
        if depth > MAX_DEPTH {
            return Err(Refused::new(
                place,
                format!("is nested deeper than {MAX_DEPTH} levels"),
                "",
            ));
        }
        let (value, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                self.spend(1, text.len(), &place)?;
                let forced = self.tag_says_text(tag.as_deref(), span);
                (scalar(&text, style, forced), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.spend(1, 0, &place)?;
                self.tag_says_text(tag.as_deref(), span);
                (Value::List(self.list(depth)?), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.spend(1, 0, &place)?;
                self.tag_says_text(tag.as_deref(), span);
                (Value::Map(self.map(depth)?), anchor)
            }
            _ => return Err(Refused::new(place, "is not valid YAML", "")),
        };
        let node = Node {
            value,
            origin: Origin::new(place),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Refused> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(Refused::new(
                place,
                "this alias stands inside what it refers to",
                "",
            ));
        };
        let (nodes, bytes) = weight(&node);
        self.spend(nodes, bytes, &place)?;
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Refused> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                item => items.push(self.node(item, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Map, Refused> {
        let mut map = Map::default();
        let mut seen = HashSet::new();
        let mut merged = Vec::new();
        // Only a dotted key can meet what another key has put here.
        let mut any_dots = false;
        loop {
            let (name, place) = match self.next()? {
                (Event::MappingEnd, _) => break,
                (Event::Scalar(name, style, _, _), span) => {
                    let place = self.place(span);
                    if name.is_empty() && style == ScalarStyle::Plain {
                        return Err(Refused::new(place, "a key without a name", ""));
                    }
                    if name == "<<" && style == ScalarStyle::Plain {
                        let value = self.next()?;
                        merged.push(self.node(value, depth + 1)?);
                        continue;
                    }
                    if name.contains(char::is_control) {
                        let hint = "is a quote missing?";
                        return Err(Refused::new(place, "a key with control characters", hint));
                    }
                    if name.len() > MAX_NAME_BYTES {
                        let message = format!("a key longer than {MAX_NAME_BYTES} bytes");
                        return Err(Refused::new(place, message, "is a quote missing?"));
                    }
                    (name.into_owned(), place)
                }
                (_, span) => {
                    return Err(Refused::new(
                        self.place(span),
                        "a key must be a plain name",
                        "quote the key if it begins with `[`, `{`, `*` or `&`",
                    ));
                }
            };
            let path = segments(&name);
            let value = self.next()?;
            let mut node = self.node(value, depth + path.len())?;
            if node.value == Value::Null {
                // An absent value has no position of its own.
                node.origin.place = place.clone();
            }
            let new = seen.insert(name.clone());
            any_dots |= path.len() > 1;
            if new && !any_dots {
                map.entries.push(Entry {
                    origin: Origin::new(place),
                    name,
                    node,
                });
            } else if !new || !insert(&mut map, &path, &place, node) {
                self.found.error(
                    &place,
                    format!("`{name}` is written twice in this map"),
                    "keep one of the two",
                );
            }
        }
        for node in merged {
            self.merge(&mut map, node);
        }
        Ok(map)
    }

    /// `<<: *defaults`: what the map has itself wins.
    fn merge(&mut self, map: &mut Map, node: Node) {
        match node.value {
            Value::Map(from) => {
                for entry in from.entries {
                    if map.position(&entry.name).is_none() {
                        map.entries.push(entry);
                    }
                }
            }
            Value::List(nodes) if nodes.iter().all(|n| matches!(n.value, Value::Map(_))) => {
                for node in nodes {
                    self.merge(map, node);
                }
            }
            Value::Null | Value::Text(_) | Value::List(_) => self.found.error(
                &node.origin.place,
                "`<<` takes an alias of a map",
                "write `<<: *name` for a map marked `&name`",
            ),
        }
    }

    /// True for `!!str`. Tags beyond YAML's own have no meaning here.
    fn tag_says_text(&mut self, tag: Option<&Tag>, span: Span) -> bool {
        let Some(tag) = tag else { return false };
        let known = tag.core_suffix();
        if known.is_none() {
            let start = span.tag_start().unwrap_or(span.start);
            self.found.error(
                &self.at(start),
                format!("the tag `{tag}` has no meaning here"),
                "remove it",
            );
        }
        known == Some("str")
    }

    fn spend(&mut self, nodes: usize, bytes: usize, place: &Place) -> Result<(), Refused> {
        let left = (
            self.nodes_left.checked_sub(nodes),
            self.bytes_left.checked_sub(bytes),
        );
        let (Some(nodes), Some(bytes)) = left else {
            return Err(Refused::new(
                place.clone(),
                format!(
                    "the file has more than {MAX_NODES} values or {MAX_TEXT_BYTES} bytes of text, \
                     aliases resolved"
                ),
                "",
            ));
        };
        (self.nodes_left, self.bytes_left) = (nodes, bytes);
        Ok(())
    }

    fn next(&mut self) -> Result<Spanned<'a>, Refused> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(Refused::new(self.file.clone(), "is not valid YAML", "")),
        }
    }

    fn syntax(&self, error: &ScanError) -> Refused {
        let mark = error.marker();
        let line = self.text.lines().nth(mark.line().saturating_sub(1));
        let indented_by_tab = line.is_some_and(|line| {
            let indent = line.len() - line.trim_start().len();
            line.bytes().take(indent).any(|b| b == b'\t')
        });
        let hint = if indented_by_tab {
            "indent with spaces: this line begins with a tab"
        } else {
            "check indentation and quotes; a value with `: ` or ` #` in it needs quotes"
        };
        Refused::new(
            self.at(*mark),
            format!("is not valid YAML: {}", error.info()),
            hint,
        )
    }

    fn place(&self, span: Span) -> Place {
        self.at(span.start)
    }

    fn at(&self, mark: Marker) -> Place {
        self.file.at(mark.line(), mark.col() + 1)
    }
}

fn scalar(text: &str, style: ScalarStyle, forced_text: bool) -> Value {
    let quoted = forced_text || style != ScalarStyle::Plain;
    if !quoted && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    Value::Text(Text {
        text: text.to_owned(),
        quoted,
    })
}

/// `http.pool` is two names; a name with an empty part, such as `.php`, is one.
pub(crate) fn segments(name: &str) -> Vec<&str> {
    let parts: Vec<&str> = name.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        vec![name]
    } else {
        parts
    }
}

/// False when there is a value already. Both `a.b: 1` and `a: {c: 2}` may stand in one map.
fn insert(map: &mut Map, path: &[&str], place: &Place, node: Node) -> bool {
    let Some((&first, rest)) = path.split_first() else {
        return false;
    };
    let at = map.entries.iter().position(|e| e.name == first);
    match (at.and_then(|i| map.entries.get_mut(i)), rest) {
        (None, []) => {
            map.entries.push(Entry {
                name: first.to_owned(),
                origin: Origin::new(place.clone()),
                node,
            });
            true
        }
        (None, rest) => {
            let mut inner = Map::default();
            insert(&mut inner, rest, place, node);
            map.entries.push(Entry {
                name: first.to_owned(),
                origin: Origin::new(place.clone()),
                node: Node {
                    value: Value::Map(inner),
                    origin: Origin::new(place.clone()),
                },
            });
            true
        }
        (Some(entry), rest) => match (&mut entry.node.value, rest, node.value) {
            (Value::Map(there), [], Value::Map(new)) => {
                let mut all_new = true;
                for entry in new.entries {
                    let path = [entry.name.as_str()];
                    all_new &= insert(there, &path, &entry.origin.place, entry.node);
                }
                all_new
            }
            (Value::Map(there), rest @ [_, ..], value) => {
                let origin = node.origin;
                insert(there, rest, place, Node { value, origin })
            }
            _ => false,
        },
    }
}

/// Values and bytes of text in a tree.
fn weight(node: &Node) -> (usize, usize) {
    let inner = |nodes: &mut dyn Iterator<Item = &Node>| {
        nodes
            .map(weight)
            .fold((1, 0), |(n, b), (nodes, bytes)| (n + nodes, b + bytes))
    };
    match &node.value {
        Value::Null => (1, 0),
        Value::Text(text) => (1, text.text.len()),
        Value::List(items) => inner(&mut items.iter()),
        Value::Map(map) => {
            let (nodes, bytes) = inner(&mut map.entries.iter().map(|e| &e.node));
            let names: usize = map.entries.iter().map(|e| e.name.len()).sum();
            (nodes, bytes + names)
        }
    }
}
