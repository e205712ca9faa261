//! One statement per key: what sections are written with.

use std::ops::RangeInclusive;

use crate::diagnostic::Severity;
use crate::expand::join;
use crate::node::{Map, Node, Value, same_name};
use crate::place::{Origin, Place};
use crate::resolve::{DefaultShown, Difference, KeyRecord, Record, Run, Unknown};
use crate::secret;
use crate::setting::{Setting, Shown, Wrong};

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
    known: Vec<String>,
}

impl<'a> Table<'a> {
    pub(crate) fn root(run: &'a mut Run, map: Option<&'a Map>, place: Place) -> Self {
        Self {
            run,
            map,
            place,
            path: String::new(),
            known: Vec::new(),
        }
    }

    /// A key. `sentence` says what it does, for the reference. The statement ends with
    /// [`Key::default`], [`Key::optional`] or one of their kind, which decides the type.
    pub fn key<T: Setting>(
        &mut self,
        name: &'static str,
        sentence: &'static str,
    ) -> Key<'_, 'a, T> {
        let node = self
            .take(name)
            .filter(|node| self.has_value::<T>(name, node));
        Key {
            name,
            sentence,
            given: node.map(|node| (T::read(node), node)),
            within: None,
            accepts: T::accepts(),
            zero: Zero::Value,
            fallback: None,
            by_fallback: false,
            secret: secret::is_secret(name),
            ours: false,
            roadrunner: None,
            differs: None,
            not_yet: None,
            table: self,
        }
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
        let written = self.map.and_then(|map| map.get(name));
        let is_map = written.is_some_and(|node| matches!(node.value, Value::Map(_)));
        if is_map || self.run.describing {
            return Some(self.section_with(name, sentence, read));
        }
        if let Some(node) = self.take(name) {
            self.section_map(name, node);
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
        let node = self.take(name);
        let map = node.and_then(|node| self.section_map(name, node));
        let path = join(&self.path, name);
        self.run.records.push(Record::Section {
            path: path.clone(),
            sentence,
        });
        let mut table = Table {
            place: map
                .and(node)
                .map_or_else(|| self.place.clone(), |n| n.origin.place.clone()),
            run: &mut *self.run,
            map,
            path,
            known: Vec::new(),
        };
        let read = read(&mut table);
        table.finish();
        read
    }

    /// A map whose keys are names that people choose, each with a section of the same kind.
    pub fn sections_with<R>(
        &mut self,
        name: &str,
        sentence: &'static str,
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
                let value = t.section_with(&name, "Each by its name.", &mut read);
                (name, value)
            });
            named.collect()
        })
    }

    /// A key or section that RoadRunner has and we do not act on yet. `what` names the feature.
    pub fn not_yet(&mut self, name: &str, what: &'static str) {
        let node = self.take(name).filter(|node| node.value != Value::Null);
        let path = join(&self.path, name);
        if let Some(node) = node {
            let message = format!("`{path}` is not used yet: {what}");
            self.run.diagnostics.warn(&node.origin.place, message, "");
        }
        self.run.records.push(Record::Unused {
            path,
            why: format!("Not used yet: {what}."),
            short: "not used yet",
            node: node.cloned(),
        });
    }

    /// For a section that has its statements already: says that nothing acts on it yet.
    pub fn section_not_yet(&mut self, name: &str, what: &'static str) {
        if self.is_written(name) {
            self.warn(name, &format!("is not used yet: {what}"), "");
        }
    }

    /// A key that is accepted and will never do anything. `why` is a sentence without its full stop.
    pub fn no_effect(&mut self, name: &str, why: &'static str) {
        let node = self.take(name).filter(|node| node.value != Value::Null);
        let path = join(&self.path, name);
        if let Some(node) = node {
            let message = format!("`{path}` has no effect: {why}");
            self.run
                .diagnostics
                .warn(&node.origin.place, message, "remove it");
        }
        self.run.records.push(Record::Unused {
            path,
            why: format!("No effect: {why}."),
            short: "no effect",
            node: node.cloned(),
        });
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
        self.map.is_some_and(|map| map.get(name).is_some())
    }

    /// The names below a section or map, as written.
    pub fn names_in(&self, name: &str) -> Vec<String> {
        match self
            .map
            .and_then(|map| map.get(name))
            .map(|node| &node.value)
        {
            Some(Value::Map(map)) => map.entries.iter().map(|e| e.name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// True when a statement has named this key already.
    pub fn is_known(&self, name: &str) -> bool {
        self.known.iter().any(|known| same_name(known, name))
    }

    /// A mistake that shows only when several keys are compared. Placed at `name`, or at the section
    /// when that is not written.
    pub fn error(&mut self, name: &str, message: &str, hint: &str) {
        self.say(Severity::Error, name, message, hint);
    }

    /// As [`Table::error`], for what can be used all the same.
    pub fn warn(&mut self, name: &str, message: &str, hint: &str) {
        self.say(Severity::Warning, name, message, hint);
    }

    /// As [`Table::error`], with the severity that unknown keys have: for unknown names in values.
    pub fn unknown(&mut self, name: &str, message: &str, hint: &str) {
        self.say(self.run.unknown_severity, name, message, hint);
    }

    /// Something that this file makes RoadRunner do differently.
    pub fn differs(&mut self, name: &str, here: &str, there: &str, why: &str) {
        self.run.differences.push(Difference {
            key: join(&self.path, name),
            here: here.to_owned(),
            there: there.to_owned(),
            why: why.to_owned(),
        });
    }

    fn say(&mut self, severity: Severity, name: &str, message: &str, hint: &str) {
        let node = self.map.and_then(|map| map.get(name));
        let place = node.map_or(&self.place, |node| &node.origin.place);
        let message = format!("`{}` {message}", join(&self.path, name));
        self.run.diagnostics.push(severity, place, message, hint);
    }

    /// Marks a name as known, and finds what is written there.
    fn take(&mut self, name: &str) -> Option<&'a Node> {
        self.known.push(name.to_owned());
        let mut written = self
            .map?
            .entries
            .iter()
            .filter(|e| same_name(&e.name, name));
        let first = written.next()?;
        for again in written {
            let message = format!(
                "`{}` and `{}` are the same key: names match without regard to case",
                join(&self.path, &again.name),
                first.name,
            );
            self.run
                .diagnostics
                .error(&again.origin.place, message, "keep one of the two");
        }
        Some(&first.node)
    }

    /// False, with a warning, for what is written but empty.
    fn has_value<T: Setting>(&mut self, name: &str, node: &Node) -> bool {
        let empty = match &node.value {
            Value::Null => true,
            _ => node.is_blank() && !T::EMPTY_IS_VALUE,
        };
        // An empty variable is meant as "not set"; an unset one was warned about.
        if empty && node.origin.variables.is_empty() {
            let message = format!(
                "`{}` has no value and counts as not written",
                join(&self.path, name)
            );
            self.run
                .diagnostics
                .warn(&node.origin.place, message, "remove it, or give it a value");
        }
        !empty
    }

    fn section_map(&mut self, name: &str, node: &'a Node) -> Option<&'a Map> {
        let path = join(&self.path, name);
        match &node.value {
            Value::Map(map) => Some(map),
            Value::Null => {
                let message = format!("`{path}` is empty and counts as not written");
                let hint = format!("write `{name}: {{}}` for the section with its defaults");
                self.run
                    .diagnostics
                    .warn(&node.origin.place, message, &hint);
                None
            }
            Value::Text(_) | Value::List(_) => {
                let wrong = Wrong::value(node);
                let hint = format!("write the section's keys below `{name}:`, indented");
                for Wrong { place, given, .. } in wrong {
                    let message = format!("`{path}` is {given}; accepted: a section");
                    self.run.diagnostics.error(&place, message, &hint);
                }
                None
            }
        }
    }

    /// What is left in the map has been read by nobody.
    pub(crate) fn finish(self) {
        for entry in self.map.iter().flat_map(|map| &map.entries) {
            if !self.is_known(&entry.name) {
                self.run.unknown.push(Unknown {
                    place: entry.origin.place.clone(),
                    section: self.path.clone(),
                    name: entry.name.clone(),
                    siblings: self.known.clone(),
                });
            }
        }
    }
}

/// What a written 0 means.
#[derive(Debug)]
enum Zero<T> {
    Value,
    Default,
    Off { warning: Option<&'static str> },
    Means(T, &'static str),
}

/// A range, and how to tell whether a value lies in it: the type may have no order otherwise.
type Within<T> = (RangeInclusive<T>, fn(&RangeInclusive<T>, &T) -> bool);

/// A key whose statement has not ended yet.
#[derive(Debug)]
#[must_use = "the key is read by `default`, `optional`, `limit` or their kind"]
pub struct Key<'t, 'a, T> {
    table: &'t mut Table<'a>,
    name: &'static str,
    sentence: &'static str,
    given: Option<(Result<T, Vec<Wrong>>, &'a Node)>,
    within: Option<Within<T>>,
    accepts: String,
    zero: Zero<T>,
    fallback: Option<&'static str>,
    by_fallback: bool,
    secret: bool,
    ours: bool,
    roadrunner: Option<(&'static str, &'static str)>,
    differs: Option<(&'static str, &'static str)>,
    not_yet: Option<&'static str>,
}

impl<T: Setting> Key<'_, '_, T> {
    /// Only these values, both ends included.
    pub fn range(mut self, range: RangeInclusive<T>) -> Self
    where
        T: PartialOrd,
    {
        let shown = |value: &T| match value.show() {
            Shown::One(text) => text,
            Shown::List(_) | Shown::Map(_) => String::new(),
        };
        self.accepts = format!(
            "{}, from {} to {}",
            T::accepts(),
            shown(range.start()),
            shown(range.end())
        );
        self.within = Some((range, |range, value| range.contains(value)));
        self
    }

    /// A written 0 counts as not written, as in RoadRunner.
    pub fn zero_is_default(mut self) -> Self {
        self.zero = Zero::Default;
        self
    }

    /// A written 0 becomes `value`, with a warning that says `why`.
    pub fn zero_means(mut self, value: T, why: &'static str) -> Self {
        self.zero = Zero::Means(value, why);
        self
    }

    /// Switching it off by 0 is warned about. For [`Key::limit_of`].
    pub fn zero_warns(mut self, warning: &'static str) -> Self {
        self.zero = Zero::Off {
            warning: Some(warning),
        };
        self
    }

    /// While this key is not written, `other` of the same section counts, unless it is 0. `other`
    /// needs a statement of its own, which tells its mistakes.
    pub fn or_key(mut self, other: &'static str) -> Self {
        self.fallback = Some(other);
        if self.given.is_none()
            && let Some(node) = self.table.map.and_then(|map| map.get(other))
            && !node.is_blank()
            && let Ok(value) = T::read(node)
            && !value.is_zero()
        {
            self.given = Some((Ok(value), node));
            self.by_fallback = true;
        }
        self
    }

    /// Never shown. Names such as `password` are known as secrets without this.
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// RoadRunner has no such key.
    pub fn ours(mut self) -> Self {
        self.ours = true;
        self
    }

    /// What RoadRunner does by default where that is something else, and why ours is not that.
    pub fn roadrunner(mut self, default: &'static str, why: &'static str) -> Self {
        self.roadrunner = Some((default, why));
        self
    }

    /// What a written value does in RoadRunner, and why it is not that here.
    pub fn differs(mut self, there: &'static str, why: &'static str) -> Self {
        self.differs = Some((there, why));
        self
    }

    /// Read and checked, but nothing acts on it yet. `what` names the feature.
    pub fn not_yet(mut self, what: &'static str) -> Self {
        self.not_yet = Some(what);
        self
    }

    /// The value, or None when it is not written.
    pub fn optional(self) -> Option<T> {
        self.settle(None, DefaultShown::None)
    }

    /// The value, or this one.
    pub fn default(self, value: T) -> T {
        let shown = DefaultShown::Value(value.show());
        self.settle(Some(value), shown)
            .expect("settled to the default at least")
    }

    /// As [`Key::default`], for one that depends on the machine: `words` stand in the reference.
    pub fn default_as(self, value: T, words: &'static str) -> T {
        let shown = DefaultShown::Words(value.show(), words);
        self.settle(Some(value), shown)
            .expect("settled to the default at least")
    }

    /// A limit that is off by default; a written 0 is off.
    pub fn limit(mut self) -> Option<T> {
        self.zero_is_off();
        self.settle(None, DefaultShown::Off)
    }

    /// A limit that is on by default; a written 0 is off.
    pub fn limit_of(mut self, value: T) -> Option<T> {
        self.zero_is_off();
        let shown = DefaultShown::Value(value.show());
        self.settle(Some(value), shown)
    }

    fn zero_is_off(&mut self) {
        if matches!(self.zero, Zero::Value | Zero::Default) {
            self.zero = Zero::Off { warning: None };
        }
    }

    /// The one place where a value is taken, its mistake told and the key recorded.
    fn settle(mut self, default: Option<T>, default_shown: DefaultShown) -> Option<T> {
        let path = join(&self.table.path, self.name);
        let written = self.given.take();
        let node = written.as_ref().map(|(_, node)| *node);
        let (value, origin) = match written {
            None => (default, None),
            Some((Ok(value), node)) if value.is_zero() && !matches!(self.zero, Zero::Value) => {
                self.settle_zero(&path, node, default)
            }
            Some((Ok(value), node)) if self.is_within(&value) => {
                (Some(value), Some(node.origin.clone()))
            }
            Some((Ok(_), node)) => {
                self.tell(&path, Wrong::value(node), &default_shown);
                (default, None)
            }
            Some((Err(wrong), _)) => {
                self.tell(&path, wrong, &default_shown);
                (default, None)
            }
        };
        let shown = match (&value, &origin) {
            (Some(value), _) => Some(secret::masked_shown(value.show(), self.secret)),
            (None, Some(_)) => Some(Shown::One("0".to_owned())),
            (None, None) => None,
        };
        self.compare(&path, node, shown.as_ref(), &default_shown);
        self.record(path, default_shown, shown, origin);
        value
    }

    fn settle_zero(
        &mut self,
        path: &str,
        node: &Node,
        default: Option<T>,
    ) -> (Option<T>, Option<Origin>) {
        let origin = Some(node.origin.clone());
        match std::mem::replace(&mut self.zero, Zero::Default) {
            Zero::Value | Zero::Default => (default, None),
            Zero::Off { warning } => {
                if let Some(warning) = warning {
                    let message = format!("`{path}` is off: {warning}");
                    self.table
                        .run
                        .diagnostics
                        .warn(&node.origin.place, message, "");
                }
                (None, origin)
            }
            Zero::Means(value, why) => {
                let Shown::One(shown) = value.show() else {
                    return (Some(value), origin);
                };
                let message = format!("`{path}` is {shown} where 0 is written: {why}");
                let hint = format!("write `{}: {shown}`, or fewer", self.name);
                self.table
                    .run
                    .diagnostics
                    .warn(&node.origin.place, message, &hint);
                (Some(value), origin)
            }
        }
    }

    fn is_within(&self, value: &T) -> bool {
        self.within
            .as_ref()
            .is_none_or(|(range, contains)| contains(range, value))
    }

    fn tell(&mut self, path: &str, wrong: Vec<Wrong>, default: &DefaultShown) {
        let example = match default {
            DefaultShown::Value(Shown::One(text)) | DefaultShown::Words(Shown::One(text), _) => {
                text
            }
            _ => T::EXAMPLE,
        };
        for Wrong { place, given, hint } in wrong {
            let given = if self.secret { "`***`" } else { &given };
            let message = format!("`{path}` is {given}; accepted: {}", self.accepts);
            let hint = if hint.is_empty() {
                format!("for example `{}: {example}`", self.name)
            } else {
                hint
            };
            self.table.run.diagnostics.error(&place, message, &hint);
        }
    }

    /// What RoadRunner would do with what is written, or with what is not.
    fn compare(
        &mut self,
        path: &str,
        node: Option<&Node>,
        shown: Option<&Shown>,
        default: &DefaultShown,
    ) {
        if self.by_fallback {
            return;
        }
        if let (Some(what), Some(node)) = (self.not_yet, node) {
            let message = format!("`{path}` is not used yet: {what}");
            self.table
                .run
                .diagnostics
                .warn(&node.origin.place, message, "");
        }
        let here = shown.map_or_else(|| "off".to_owned(), ToString::to_string);
        let difference = match node {
            None => self.roadrunner,
            Some(_) if self.ours => Some(("ignored", "RoadRunner has no such key")),
            Some(_) => self.differs,
        };
        if let Some((there, why)) = difference {
            let here = match (node, default) {
                (None, DefaultShown::Words(_, words)) => format!("{here} ({words})"),
                _ => here,
            };
            self.table.differs(self.name, &here, there, why);
        }
    }

    fn record(
        self,
        path: String,
        default: DefaultShown,
        shown: Option<Shown>,
        origin: Option<Origin>,
    ) {
        let zero = match self.zero {
            Zero::Value | Zero::Means(..) => "",
            Zero::Default => "; 0 is the default",
            Zero::Off { .. } => "; 0 is off",
        };
        self.table.run.records.push(Record::Key(KeyRecord {
            path,
            sentence: self.sentence,
            accepts: format!("{}{zero}", self.accepts),
            default,
            fallback: self.fallback,
            ours: self.ours,
            roadrunner: self.roadrunner,
            differs: self.differs,
            not_yet: self.not_yet,
            shown,
            origin,
        }));
    }
}
