//! A key's statement: what is said about it, and how it ends.

use std::ops::RangeInclusive;

use crate::node::{Node, Text, Value};
use crate::place::Origin;
use crate::resolve::{DefaultShown, KeyRecord, Record};
use crate::secret;
use crate::setting::{Pair, Pairs, Setting, Shown, Wrong};
use crate::table::Table;

/// What a written 0 means.
#[derive(Debug)]
enum Zero<T> {
    Value,
    Default,
    Off { warning: Option<&'static str> },
    Means(T, &'static str),
}

/// A range, and how to tell where a value lies: the type may have no order otherwise.
type Within<T> = (RangeInclusive<T>, fn(&RangeInclusive<T>, &T) -> Side);

/// Of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Below,
    Inside,
    Above,
}

/// A key whose statement has not ended yet.
#[derive(Debug)]
#[must_use = "the key is read by `default`, `optional`, `limit` or their kind"]
pub struct Key<'t, 'a, T> {
    table: &'t mut Table<'a>,
    name: &'static str,
    sentence: &'static str,
    given: Option<(Result<T, Vec<Wrong>>, &'a Node)>,
    /// Written, without a value.
    empty: Option<&'a Node>,
    guards: bool,
    within: Option<Within<T>>,
    guess: Option<T>,
    accepts: String,
    zero: Zero<T>,
    fallback: Option<&'static str>,
    by_fallback: bool,
    secret: bool,
    ours: bool,
    /// None is as the section says.
    live: Option<bool>,
    roadrunner: Option<(&'static str, &'static str)>,
    differs: Option<(&'static str, &'static str)>,
    not_yet: Option<&'static str>,
    no_effect: Option<String>,
    refused: Option<(&'static str, &'static str)>,
}

impl Key<'_, '_, Pairs> {
    /// What is written, and those of these that are not: both are shown as the value. `words` stand
    /// in the reference.
    pub fn over(mut self, these: &[(&str, &str)], words: &'static str) -> (Pairs, Pairs) {
        let written = match &self.given {
            Some((Ok(written), _)) => written.clone(),
            _ => Pairs::default(),
        };
        let missing = |(name, _): &&(&str, &str)| !written.iter().any(|(given, _)| given == *name);
        let added = these.iter().filter(missing).map(|(name, value)| Pair {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            quoted: false,
            origin: Origin::of_default(),
        });
        let by_name = |a: &Pair, b: &Pair| a.name.cmp(&b.name);
        let mut added = Pairs(added.collect());
        added.0.sort_by(by_name);
        if let Some((Ok(given), _)) = &mut self.given {
            given.0.extend(added.0.iter().cloned());
            // Read again, parts of one name would come together: `show` prints them as they would
            // then stand.
            given.0.sort_by(by_name);
        }
        self.default_as(added.clone(), words);
        (written, added)
    }
}

impl<'t, 'a, T: Setting> Key<'t, 'a, T> {
    pub(crate) fn new(
        table: &'t mut Table<'a>,
        name: &'static str,
        sentence: &'static str,
        node: Option<&'a Node>,
    ) -> Self {
        let is_empty = |node: &&Node| match node.value {
            Value::Null => true,
            _ => node.is_blank() && !T::EMPTY_IS_VALUE,
        };
        let empty = node.filter(is_empty);
        let given = node.filter(|_| empty.is_none());
        Self {
            table,
            name,
            sentence,
            given: given.map(|node| (T::read(node), node)),
            empty,
            guards: false,
            within: None,
            guess: None,
            accepts: T::accepts(),
            zero: Zero::Value,
            fallback: None,
            by_fallback: false,
            secret: secret::is_secret(name),
            ours: false,
            live: None,
            roadrunner: None,
            differs: None,
            not_yet: None,
            no_effect: None,
            refused: None,
        }
    }

    /// Only these values, both ends included.
    pub fn range(mut self, range: RangeInclusive<T>) -> Self
    where
        T: PartialOrd,
    {
        let (least, most) = (range.start().show(), range.end().show());
        self.accepts = format!("{}, from {least} to {most}", T::accepts());
        self.within = Some((range, |range, value| {
            if value < range.start() {
                Side::Below
            } else if range.contains(value) {
                Side::Inside
            } else {
                Side::Above
            }
        }));
        self
    }

    /// What a wrong value was probably meant to be, instead of the default: one mistake is not to
    /// make others.
    pub fn guess(mut self, value: T) -> Self {
        self.guess = Some(value);
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
            && let Some(node) = self.table.written(other)
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

    /// A secret that others must know: written without a value it is an error, for what it guards
    /// would stand open.
    pub fn guards(mut self) -> Self {
        self.secret = true;
        self.guards = true;
        self
    }

    /// It has the name of a secret, and is none.
    pub fn public(mut self) -> Self {
        self.secret = false;
        self
    }

    /// It says where something secret lies, and is shown although its name is that of a secret:
    /// unless what was written is the secret itself.
    pub fn is_path(mut self) -> Self {
        let text = self.given.as_ref().map(|(_, node)| &node.value);
        self.secret = matches!(text, Some(Value::Text(text)) if text.text.contains("-----"));
        self
    }

    /// RoadRunner has no such key.
    pub fn ours(mut self) -> Self {
        self.ours = true;
        self
    }

    /// A reload applies it.
    pub fn live(mut self) -> Self {
        self.live = Some(true);
        self
    }

    /// A reload leaves it as it is, although it applies the rest of the section.
    pub fn not_live(mut self) -> Self {
        self.live = Some(false);
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

    /// With a message: the key does nothing in this section, and one that is written is warned
    /// about.
    pub fn no_effect(mut self, message: Option<String>) -> Self {
        self.no_effect = message;
        self
    }

    /// With a message and a hint: the key is not for this section, and any value but the default is
    /// an error.
    pub fn refused(mut self, message: Option<(&'static str, &'static str)>) -> Self {
        self.refused = message;
        self
    }

    /// The value, or None when it is not written.
    pub fn optional(self) -> Option<T> {
        self.settle(None, DefaultShown::None)
    }

    /// The value, or this one.
    pub fn default(self, value: T) -> T {
        let shown = DefaultShown::Value(value.show());
        self.settle_to(value, shown)
    }

    /// As [`Key::default`], for one that depends on the machine: `words` stand in the reference.
    pub fn default_as(self, value: T, words: &'static str) -> T {
        self.settle_to(value, DefaultShown::Words(words))
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

    fn settle_to(mut self, default: T, shown: DefaultShown) -> T {
        if matches!(self.zero, Zero::Off { .. }) {
            // Only a limit can be off.
            self.zero = Zero::Default;
        }
        self.settle(Some(default), shown)
            .expect("nothing is off, and there is a default")
    }

    /// The one place where a value is taken, its mistake told and the key recorded.
    fn settle(mut self, default: Option<T>, default_shown: DefaultShown) -> Option<T> {
        let path = self.table.path_of(self.name);
        self.tell_empty(&path);
        let taken = self.take(&path, &default_shown);
        let is_refused = self.is_refused(&taken, default.as_ref());
        let shown = match &taken {
            Taken::Value(value, _) => Some(value.show()),
            Taken::Off(_) => Some(Shown::One("0".to_owned())),
            Taken::Nothing | Taken::Wrong => default.as_ref().map(Setting::show),
        };
        let shown = shown.map(|shown| secret::masked_shown(shown, self.secret));
        self.compare(&path, &taken, shown.as_ref(), &default_shown);
        let (value, origin) = match taken {
            Taken::Value(_, origin) if is_refused => (default, Some(origin)),
            Taken::Value(value, origin) => (Some(value), Some(origin)),
            Taken::Off(origin) => (None, Some(origin)),
            Taken::Nothing => (default, None),
            Taken::Wrong => (self.guess.take().or(default), None),
        };
        self.record(path, default_shown, shown, origin);
        value
    }

    /// What has no value counts as not written. A password that others ask for is none then: files
    /// of RoadRunner that run without one in development go on to do so.
    fn tell_empty(&mut self, path: &str) {
        let Some(Node { origin, .. }) = self.empty else {
            return;
        };
        let name = self.name;
        let diagnostics = &mut self.table.run().diagnostics;
        let unset = origin.unset.first();
        match unset.or_else(|| origin.variables.first()) {
            Some(variable) if self.guards => {
                let message = format!(
                    "`{path}` is empty, so access would be open: `{variable}` has no value"
                );
                let hint = format!("set `{variable}`, or remove `{name}`");
                diagnostics.error(&origin.place, message, &hint);
            }
            None if self.guards => {
                let message = format!("`{path}` is empty, so access would be open");
                let hint = format!("write a value, or remove `{name}`");
                diagnostics.error(&origin.place, message, &hint);
            }
            // An empty variable is meant as "not set"; an unset one was warned about.
            Some(_) => {}
            None => {
                let message = format!("`{path}` has no value and counts as not written");
                diagnostics.warn(&origin.place, message, "remove it, or give it a value");
            }
        }
    }

    fn take(&mut self, path: &str, default: &DefaultShown) -> Taken<T> {
        let Some((read, node)) = self.given.take() else {
            return Taken::Nothing;
        };
        let (wrong, end) = match read {
            Ok(value) if value.is_zero() && !matches!(self.zero, Zero::Value) => {
                return self.take_zero(path, node);
            }
            Ok(value) => match self.end_near(&value) {
                None => {
                    self.tell_doubt(path, node);
                    return Taken::Value(value, node.origin.clone());
                }
                end => (Wrong::value(node), end),
            },
            Err(wrong) => (wrong, None),
        };
        let example = self.example(default, end);
        self.tell(path, wrong, &example);
        self.table.run().stand_ins.push(path.to_owned());
        Taken::Wrong
    }

    /// A value that can be used, and is probably a mistake.
    fn tell_doubt(&mut self, path: &str, node: &Node) {
        if self.by_fallback || self.secret {
            return;
        }
        let has_variables = !node.origin.variables.is_empty();
        let doubt = node.text().and_then(|text| T::doubt(text, has_variables));
        if let Some((message, hint)) = doubt {
            let message = format!("`{path}` {message}");
            let diagnostics = &mut self.table.run().diagnostics;
            diagnostics.warn(&node.origin.place, message, &hint);
        }
    }

    /// Whether what is written can't stand in this section.
    fn is_refused(&mut self, taken: &Taken<T>, default: Option<&T>) -> bool {
        if let Some(message) = &self.no_effect
            && self.table.is_written(self.name)
        {
            self.table.warn(self.name, message, "remove it");
        }
        let (Taken::Value(value, _), Some((message, hint))) = (taken, self.refused) else {
            return false;
        };
        if default.map(Setting::show) == Some(value.show()) {
            return false;
        }
        self.table.error(self.name, message, hint);
        true
    }

    /// For a value outside of the range: the end of it that lies nearer.
    fn end_near(&self, value: &T) -> Option<String> {
        let (range, side) = self.within.as_ref()?;
        let end = match side(range, value) {
            Side::Inside => return None,
            Side::Below => range.start(),
            Side::Above => range.end(),
        };
        as_written(end.show())
    }

    /// What could be written: the default, else the type's example; if that does not lie in the
    /// range, the end of it that was meant.
    fn example(&self, default: &DefaultShown, end: Option<String>) -> String {
        if let DefaultShown::Value(shown @ Shown::One(_)) = default {
            return shown.to_string();
        }
        let example = T::example();
        let node = Node {
            value: Value::Text(Text {
                text: example.clone(),
                quoted: false,
            }),
            origin: Origin::of_default(),
        };
        let outside = T::read(&node).ok().and_then(|value| self.end_near(&value));
        match outside {
            Some(other) => end.unwrap_or(other),
            None => example,
        }
    }

    fn take_zero(&mut self, path: &str, node: &Node) -> Taken<T> {
        let diagnostics = &mut self.table.run().diagnostics;
        let origin = node.origin.clone();
        match std::mem::replace(&mut self.zero, Zero::Value) {
            Zero::Value | Zero::Default => Taken::Nothing,
            Zero::Off { warning } => {
                if let Some(warning) = warning {
                    diagnostics.warn(&origin.place, format!("`{path}` is off: {warning}"), "");
                }
                Taken::Off(origin)
            }
            Zero::Means(value, why) => {
                let message = format!("`{path}` is {} where 0 is written: {why}", value.show());
                let hint = format!("write `{}: {}`, or fewer", self.name, value.show());
                diagnostics.warn(&origin.place, message, &hint);
                Taken::Value(value, origin)
            }
        }
    }

    fn tell(&mut self, path: &str, wrong: Vec<Wrong>, example: &str) {
        for Wrong { place, given, hint } in wrong {
            let given = if self.secret { "`***`" } else { &given };
            let message = format!("`{path}` is {given}; accepted: {}", self.accepts);
            let hint = if hint.is_empty() {
                format!("for example `{}: {example}`", self.name)
            } else {
                hint
            };
            self.table.run().diagnostics.error(&place, message, &hint);
        }
    }

    /// What RoadRunner would do with what is written, or with what is not.
    fn compare(
        &mut self,
        path: &str,
        taken: &Taken<T>,
        shown: Option<&Shown>,
        default: &DefaultShown,
    ) {
        if self.by_fallback {
            return;
        }
        if let (Some(what), Taken::Value(_, origin)) = (self.not_yet, taken) {
            let message = format!("`{path}` is not used yet: {what}");
            self.table.run().tell_not_yet(&origin.place, message);
        }
        let difference = match taken {
            Taken::Wrong => None,
            Taken::Nothing => self.roadrunner,
            Taken::Value(..) | Taken::Off(_) if self.ours => {
                Some(("ignored", "RoadRunner has no such key"))
            }
            Taken::Value(..) | Taken::Off(_) => {
                let text = self.table.written(self.name).and_then(Node::text);
                self.differs.or_else(|| text.and_then(T::roadrunner))
            }
        };
        if let Some((there, why)) = difference {
            let here = shown.map_or_else(|| "off".to_owned(), ToString::to_string);
            let here = match (taken, default) {
                (Taken::Nothing, DefaultShown::Words(words)) => format!("{here} ({words})"),
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
        let in_ours = self.table.is_ours();
        let live = self.live.unwrap_or_else(|| self.table.is_live());
        let zero = match self.zero {
            Zero::Value | Zero::Means(..) => "",
            Zero::Default => "; 0 is the default",
            Zero::Off { .. } => "; 0 is off",
        };
        self.table.run().records.push(Record::Key(KeyRecord {
            path,
            sentence: self.sentence,
            shape: T::shape(),
            accepts: format!("{}{zero}", self.accepts),
            default,
            fallback: self.fallback,
            ours: self.ours && !in_ours,
            live,
            roadrunner: self.roadrunner.filter(|_| !in_ours),
            differs: self.differs.filter(|_| !in_ours),
            not_yet: self.not_yet,
            secret: self.secret,
            shown,
            origin,
        }));
    }
}

fn as_written(shown: Shown) -> Option<String> {
    match shown {
        Shown::One(text) => Some(text),
        Shown::List(_) | Shown::Map(_) => None,
    }
}

/// What a file says about a key.
enum Taken<T> {
    Nothing,
    Value(T, Origin),
    /// A written 0 that means so.
    Off(Origin),
    /// Told already; the default stands in.
    Wrong,
}
