//! One statement per key: what sections are written with.

use crate::diagnostic::Severity;
use crate::era::Era;
use crate::expand::join;
use crate::key::Key;
use crate::node::{Entry, Map, Node, Value, same_name};
use crate::place::Place;
use crate::resolve::{Difference, Record, Run, Unknown};
use crate::setting::{Setting, Wrong};

/// The state of what another program acts on.
const PASSED_ON: &str = "passed on";
/// The state of what RoadRunner has and nothing acts on.
const NOT_YET: &str = "not used yet";
/// Begins the names at the top that hold what aliases refer to, as in other programs' YAML. They
/// mean nothing.
const EXTENSION: &str = "x-";

/// A part of the configuration with keys of its own.
pub trait Section: Sized {
    /// Reads every key the section has, whether written or not: the same statements describe it.
    fn read(t: &mut Table<'_>) -> Self;
}

/// The keys of one section while [`Section::read`] runs.
#[derive(Debug)]
pub struct Table<'a> {
    run: &'a mut Run,
    /// None when the section is not written.
    map: Option<&'a Map>,
    place: Place,
    path: String,
    /// Names that statements have named, in their order.
    known: Vec<String>,
    /// Those of them that do nothing: no suggestion.
    unused: Vec<String>,
    /// RoadRunner has nothing like this section, so nothing in it is compared.
    ours: bool,
    /// A reload applies each key of this section.
    live: bool,
    /// An unknown key of this section is an error, whatever it is elsewhere.
    strict: bool,
    /// A text or a list stands in the place of this section, which was told: what it lacks is not.
    misplaced: bool,
}

impl<'a> Table<'a> {
    pub(crate) fn root(run: &'a mut Run, map: Option<&'a Map>, place: Place) -> Self {
        Self {
            run,
            map,
            place,
            path: String::new(),
            known: Vec::new(),
            unused: Vec::new(),
            ours: false,
            live: false,
            strict: false,
            misplaced: false,
        }
    }

    /// A key. `sentence` says what it does, for the reference. The statement ends with
    /// [`Key::default`], [`Key::optional`] or one of their kind, which decides the type.
    pub fn key<T: Setting>(
        &mut self,
        name: &'static str,
        sentence: &'static str,
    ) -> Key<'_, 'a, T> {
        let entry = self.take(name);
        Key::new(self, name, sentence, entry.map(|entry| &entry.node))
    }

    /// A section that is always there; one that is not written has its defaults.
    pub fn section<S: Section>(&mut self, name: &str, sentence: &'static str) -> S {
        self.section_with(name, sentence, S::read)
    }

    /// A section that counts only when it is written.
    pub fn optional_section<S: Section>(
        &mut self,
        name: &str,
        sentence: &'static str,
    ) -> Option<S> {
        self.optional_section_with(name, sentence, S::read)
    }

    /// As [`Table::optional_section`], for a section that needs something from its parent.
    pub fn optional_section_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        read: impl FnOnce(&mut Table<'_>) -> R,
    ) -> Option<R> {
        if self.is_section(name) || self.run.describing {
            return Some(self.section_with(name, sentence, read));
        }
        if let Some(entry) = self.take(name) {
            self.section_map(entry);
        }
        None
    }

    /// As [`Table::section`], for a section that needs something from its parent.
    pub fn section_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        read: impl FnOnce(&mut Table<'_>) -> R,
    ) -> R {
        let entry = self.take(name);
        let before = self.run.diagnostics.0.len();
        let map = entry.and_then(|entry| self.section_map(entry));
        let path = join(&self.path, name);
        let place = entry
            .map_or(&self.place, |entry| &entry.origin.place)
            .clone();
        let misplaced = self.misplaced;
        let value = entry.map(|entry| &entry.node.value);
        self.misplaced |= matches!(value, Some(Value::Text(_) | Value::List(_)));
        let is_null = matches!(value, Some(Value::Null));
        let read = self.below((map, place), path, sentence, read);
        self.misplaced = misplaced;
        // A mistake of an empty section is that something is missing in it: it is told once.
        let said = &mut self.run.diagnostics.0;
        let mut after = said.iter().skip(before + 1);
        if is_null && after.any(|it| it.severity == Severity::Error) {
            said.remove(before);
        }
        read
    }

    /// A map whose keys are names that people choose, each with a section of the same kind. `each`
    /// is the sentence of such a section.
    pub fn sections_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        each: &'static str,
        mut read: impl FnMut(&mut Table<'_>) -> R,
    ) -> Vec<(String, R)> {
        const ANY: &str = "<name>";
        let describing = self.run.describing;
        self.section_with(name, sentence, |t| {
            let names: Vec<String> = match t.map {
                Some(map) => map.entries.iter().map(|e| e.name.clone()).collect(),
                None if describing => vec![ANY.to_owned()],
                None => Vec::new(),
            };
            let named = names.into_iter().map(|name| {
                let value = t.section_with(&name, each, &mut read);
                (name, value)
            });
            named.collect()
        })
    }

    /// The same for a map that counts only when it is written.
    pub fn optional_sections_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        each: &'static str,
        read: impl FnMut(&mut Table<'_>) -> R,
    ) -> Option<Vec<(String, R)>> {
        if self.is_section(name) || self.run.describing {
            return Some(self.sections_with(name, sentence, each, read));
        }
        if let Some(entry) = self.take(name) {
            self.section_map(entry);
        }
        None
    }

    /// As [`Table::sections_with`], for sections of a kind that the reference describes elsewhere;
    /// `each` says where. More than `most` are an error.
    pub fn sections_like<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        each: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Table<'_>) -> R,
    ) -> Vec<(String, R)> {
        let written = self.names_in(name).len();
        if written > most {
            let message = format!("has {written} sections; accepted: at most {most}");
            self.error(name, &message, "remove some of them");
            self.take(name);
            return Vec::new();
        }
        let described = self.run.describing;
        let sections = self.sections_with(name, sentence, each, |t| (!described).then(|| read(t)));
        sections
            .into_iter()
            .filter_map(|(name, section)| Some((name, section?)))
            .collect()
    }

    /// Says that RoadRunner has nothing like this section: nothing in it is compared with what
    /// RoadRunner does.
    pub fn ours(&mut self) {
        self.ours = true;
    }

    /// Says that a reload applies each key of this section, and of those below it.
    pub fn live(&mut self) {
        self.live = true;
    }

    /// Says that an unknown key of this section, and of those below it, is an error: misspelled, it
    /// may be a limit that does not hold.
    pub fn strict(&mut self) {
        self.strict = true;
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.ours
    }

    /// Which RoadRunner the file was written for.
    pub fn era(&self) -> Era {
        self.run.era
    }

    /// The section's own name; of a list's item, that of the list with its number in brackets.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// A list whose items are sections of the same kind. `each` is the sentence of an item. More
    /// than `most` are an error, and those beyond are not read.
    pub fn section_list_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
        each: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Table<'_>) -> R,
    ) -> Vec<R> {
        let path = join(&self.path, name);
        let entry = self.take(name);
        self.run.records.push(Record::Section {
            path: path.clone(),
            sentence,
        });
        if self.run.describing {
            let nothing = (None, self.place.clone());
            return vec![self.below(nothing, format!("{path}[]"), each, &mut read)];
        }
        let nodes = entry.map_or(&[][..], |entry| self.section_items(entry));
        if let Some(first) = nodes.get(most) {
            let message = format!(
                "`{path}` has {} items; accepted: at most {most}",
                nodes.len()
            );
            self.run
                .diagnostics
                .error(&first.origin.place, message, "join some of them");
        }
        let items = nodes
            .iter()
            .take(most)
            .enumerate()
            .filter_map(|(at, node)| {
                let path = format!("{path}[{at}]");
                match &node.value {
                    Value::Map(map) => {
                        let found = (Some(map), node.origin.place.clone());
                        Some(self.below(found, path, each, &mut read))
                    }
                    Value::Null | Value::Text(_) | Value::List(_) => {
                        for Wrong { place, given, .. } in Wrong::value(node) {
                            let message = format!("`{path}` is {given}; accepted: a section");
                            let hint = "write its keys in braces: `- {key: value}`";
                            self.run.diagnostics.error(&place, message, hint);
                        }
                        None
                    }
                }
            });
        items.collect()
    }

    /// The keys of a section, read.
    fn below<R>(
        &mut self,
        (map, place): (Option<&Map>, Place),
        path: String,
        sentence: &'static str,
        read: impl FnOnce(&mut Table<'_>) -> R,
    ) -> R {
        self.run.records.push(Record::Section {
            path: path.clone(),
            sentence,
        });
        let mut table = Table {
            ours: self.ours,
            live: self.live,
            strict: self.strict,
            misplaced: self.misplaced,
            run: &mut *self.run,
            map,
            place,
            path,
            known: Vec::new(),
            unused: Vec::new(),
        };
        let read = read(&mut table);
        table.finish();
        read
    }

    /// A key or section that RoadRunner has and we do not act on yet. `what` names the feature.
    pub fn not_yet(&mut self, name: &str, what: &'static str) {
        self.unused(name, NOT_YET, what);
    }

    /// A key that is accepted and will never do anything. `why` is a sentence without its full
    /// stop.
    pub fn no_effect(&mut self, name: &str, why: &'static str) {
        self.unused(name, "without effect", why);
    }

    /// Takes the keys of this section that have no statement so far as those of another program:
    /// none is unknown. `sentence` says in the reference who reads them. Returns all that is
    /// written in the section, for that program.
    pub fn pass_on(&mut self, sentence: &'static str) -> Map {
        self.run.records.push(Record::PassedOn {
            section: self.path.clone(),
            sentence,
        });
        let Some(map) = self.map else {
            return Map::default();
        };
        for entry in &map.entries {
            if self.is_known(&entry.name) {
                continue;
            }
            self.known.push(entry.name.clone());
            self.run.records.push(Record::Unused {
                path: join(&self.path, &entry.name),
                state: PASSED_ON,
                why: "",
                node: Some(entry.node.clone()),
            });
        }
        map.clone()
    }

    fn unused(&mut self, name: &str, state: &'static str, why: &'static str) {
        self.unused.push(name.to_owned());
        let entry = self
            .take(name)
            .filter(|entry| entry.node.value != Value::Null);
        let path = join(&self.path, name);
        if let Some(entry) = entry {
            let message = format!("`{path}` is {state}: {why}");
            if state == NOT_YET {
                self.run.tell_not_yet(&entry.origin.place, message);
            } else {
                self.run.diagnostics.warn(&entry.origin.place, message, "");
            }
        }
        self.run.records.push(Record::Unused {
            path,
            state,
            why,
            node: entry.map(|entry| entry.node.clone()),
        });
    }

    /// For a section that has its statements already: says that nothing acts on it yet.
    pub fn section_not_yet(&mut self, name: &str, what: &'static str) {
        if self.is_written(name) {
            let message = format!("is not used yet: {what}");
            let (severity, hint) = self.run.not_yet();
            self.say(severity, &[name], &message, hint);
        }
    }

    /// The same of a part of a key's value. `message` goes on after the key.
    pub fn value_not_yet(&mut self, name: &str, message: &str) {
        let (severity, hint) = self.run.not_yet();
        self.say(severity, &[name], message, hint);
    }

    /// A key that the loader acts on.
    pub(crate) fn loading_key(&mut self, name: &'static str, sentence: &'static str) {
        self.take(name);
        self.run.records.push(Record::Loading {
            path: name,
            sentence,
        });
    }

    /// True when the key stands in the file or in an override, with or without a value.
    pub fn is_written(&self, name: &str) -> bool {
        self.written(name).is_some()
    }

    /// True when the key is written and is not blank. A reader that needs the key tells of a
    /// missing value only if this is false: a wrong value was told when it was read.
    pub fn has_value(&self, name: &str) -> bool {
        self.written(name)
            .is_some_and(|node| node.value != Value::Null && !node.is_blank())
    }

    /// True when the key is written, and has keys of its own.
    pub fn is_section(&self, name: &str) -> bool {
        self.written(name)
            .is_some_and(|node| matches!(node.value, Value::Map(_)))
    }

    /// True when the key is written, and nothing stands there: no text, no item, no name.
    pub fn is_empty(&self, name: &str) -> bool {
        self.written(name).is_some_and(|node| match &node.value {
            Value::Null | Value::Text(_) => node.is_blank(),
            Value::List(items) => items.is_empty(),
            Value::Map(map) => map.entries.is_empty(),
        })
    }

    /// The names below a section or map, as written.
    pub fn names_in(&self, name: &str) -> Vec<String> {
        match self.written(name).map(|node| &node.value) {
            Some(Value::Map(map)) => map.entries.iter().map(|e| e.name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// Keys that mean something only where `holds`, read by `read`. Elsewhere they are refused.
    pub fn keys_where<R>(
        &mut self,
        holds: bool,
        message: &str,
        hint: &str,
        read: impl FnOnce(&mut Self) -> R,
    ) -> Option<R> {
        if holds || self.run.describing {
            return Some(read(self));
        }
        self.refuse_keys(message, hint, read);
        None
    }

    /// Keys that `read` reads elsewhere and that are not there in this section: each that is
    /// written is an error.
    pub fn refuse_keys<R>(&mut self, message: &str, hint: &str, read: impl FnOnce(&mut Self) -> R) {
        let known = self.known.len();
        // The statements only name their keys: nothing that they find or say counts.
        let mut nobody = Run::new(self.run.unknown_severity, self.run.era);
        std::mem::swap(self.run, &mut nobody);
        read(self);
        std::mem::swap(self.run, &mut nobody);
        for name in self.known.split_off(known) {
            if !self.is_known(&name) && self.take(&name).is_some() {
                self.error(&name, message, hint);
            }
        }
    }

    /// True when a statement has named this key already.
    pub fn is_known(&self, name: &str) -> bool {
        self.known.iter().any(|known| same_name(known, name))
    }

    /// A mistake that shows only when several keys are compared. Placed at `name`, or at the
    /// section when that is not written; an empty name is the section itself.
    pub fn error(&mut self, name: &str, message: &str, hint: &str) {
        self.say(Severity::Error, &[name], message, hint);
    }

    /// As [`Table::error`], of a key in sections below this one: the last name of a path. Names of
    /// lists may have an item's number in brackets.
    pub fn error_below(&mut self, path: &[&str], message: &str, hint: &str) {
        self.say(Severity::Error, path, message, hint);
    }

    /// As [`Table::error`], for what can be used all the same.
    pub fn warn(&mut self, name: &str, message: &str, hint: &str) {
        self.say(Severity::Warning, &[name], message, hint);
    }

    /// As [`Table::error_below`], for what can be used all the same.
    pub fn warn_below(&mut self, path: &[&str], message: &str, hint: &str) {
        self.say(Severity::Warning, path, message, hint);
    }

    /// As [`Table::error`], with the severity that unknown keys have: for unknown names in values.
    pub fn unknown(&mut self, name: &str, message: &str, hint: &str) {
        self.say(self.run.unknown_severity, &[name], message, hint);
    }

    /// Something that this file makes RoadRunner do differently.
    pub fn differs(&mut self, name: &str, here: &str, there: &str, why: &str) {
        if self.ours {
            return;
        }
        self.run.differences.push(Difference {
            key: join(&self.path, name),
            here: here.to_owned(),
            there: there.to_owned(),
            why: why.to_owned(),
        });
    }

    fn say(&mut self, severity: Severity, names: &[&str], message: &str, hint: &str) {
        if self.misplaced {
            return;
        }
        let (mut map, mut place, mut path) = (self.map, &self.place, self.path.clone());
        for name in names.iter().filter(|name| !name.is_empty()) {
            path = join(&path, name);
            let (list, number) = numbered(name);
            let mut entries = map.into_iter().flat_map(|map| &map.entries);
            let found = entries.find(|e| same_name(&e.name, list));
            // What is not written is told at what is written of its path.
            map = found.and_then(|entry| {
                let item = number.and_then(|number| entry.node.item(number));
                let (node, above) = match item {
                    Some(item) => (item, &item.origin.place),
                    None => (&entry.node, &entry.origin.place),
                };
                match &node.value {
                    Value::Map(map) => {
                        place = above;
                        Some(map)
                    }
                    Value::Null | Value::Text(_) | Value::List(_) => {
                        place = &node.origin.place;
                        None
                    }
                }
            });
        }
        let message = format!("`{path}` {message}");
        self.run.diagnostics.push(severity, place, message, hint);
    }

    /// Marks a name as known, and finds what is written there.
    fn take(&mut self, name: &str) -> Option<&'a Entry> {
        self.known.push(name.to_owned());
        let entries = self.map?.entries.iter();
        let mut written = entries.filter(|e| same_name(&e.name, name));
        let first = written.next()?;
        for again in written {
            let (path, first) = (join(&self.path, &again.name), &first.name);
            let message =
                format!("`{path}` is `{first}` again: names match without regard to case");
            self.run
                .diagnostics
                .error(&again.origin.place, message, "keep one of the two");
        }
        Some(first)
    }

    fn section_map(&mut self, entry: &'a Entry) -> Option<&'a Map> {
        let Entry { name, node, .. } = entry;
        let path = join(&self.path, name);
        match &node.value {
            Value::Map(map) => return Some(map),
            Value::Null => {
                let message = format!("`{path}` is empty and counts as not written");
                let hint = format!(
                    "write its keys below it, or `{name}: {{}}` if its defaults are enough"
                );
                self.run
                    .diagnostics
                    .warn(&node.origin.place, message, &hint);
            }
            Value::Text(_) | Value::List(_) => {
                let hint = if node.origin.place.is_override() {
                    format!("write `-o {path}.key=value`")
                } else {
                    format!("write the section's keys below `{name}:`, indented")
                };
                for Wrong { place, given, .. } in Wrong::value(node) {
                    let message = format!("`{path}` is {given}; accepted: a section");
                    self.run.diagnostics.error(&place, message, &hint);
                }
            }
        }
        None
    }

    fn section_items(&mut self, entry: &'a Entry) -> &'a [Node] {
        let Entry { name, node, .. } = entry;
        let path = join(&self.path, name);
        match &node.value {
            Value::List(items) => return items,
            Value::Null => {
                let message = format!("`{path}` is empty and counts as not written");
                let hint = "remove it, or write its items below it: `- key: value`";
                self.run.diagnostics.warn(&node.origin.place, message, hint);
            }
            Value::Text(_) | Value::Map(_) => {
                for Wrong { place, given, .. } in Wrong::value(node) {
                    let message = format!("`{path}` is {given}; accepted: a list of sections");
                    let hint = format!("write its items below `{name}:`, each as `- key: value`");
                    self.run.diagnostics.error(&place, message, &hint);
                }
            }
        }
        &[]
    }

    pub(crate) fn written(&self, name: &str) -> Option<&'a Node> {
        self.map.and_then(|map| map.get(name))
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    pub(crate) fn run(&mut self) -> &mut Run {
        self.run
    }

    /// What is left in the map has been read by nobody.
    pub(crate) fn finish(self) {
        let useful = |name: &&String| !self.unused.contains(name);
        let at_top = self.path.is_empty();
        for entry in self.map.iter().flat_map(|map| &map.entries) {
            let holder = at_top && entry.name.starts_with(EXTENSION);
            if !holder && !self.is_known(&entry.name) {
                self.run.unknown.push(Unknown {
                    place: entry.origin.place.clone(),
                    section: self.path.clone(),
                    name: entry.name.clone(),
                    is_error: self.strict,
                    siblings: self.known.iter().filter(useful).cloned().collect(),
                });
            }
        }
    }
}

/// The name of a list, and the number of an item of it.
fn numbered(name: &str) -> (&str, Option<usize>) {
    let parts = name.strip_suffix(']').and_then(|it| it.split_once('['));
    let number = parts.and_then(|(list, number)| Some((list, Some(number.parse().ok()?))));
    number.unwrap_or((name, None))
}
