//! What clients ask for, in names that are few enough to count by: `/user/{id}` for `/user/7`.
//!
//! The application may give a name. Else it is a pattern that is learned from the paths of answered
//! requests: what looks like a number is `{id}` from the start, and what has too many values turns
//! into it. Names are counted up to a limit, the others together: clients choose paths. So do
//! applications that answer whatever is asked for, and a visitor could take all names for ever.
//! Where there are as many as there may be, those that nobody asked for in a while go.
//!
//! To look a name up takes no lock and no memory. To learn one does, which ends: patterns, and what
//! is kept to find them, have limits.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::lock;
use pronghorn_metrics::{Family, Histogram, Registry};
use tokio::time::Instant;

/// Names of one pool. With the buckets of each, a scrape stays below 4,500 lines for a pool.
pub(crate) const MOST_ROUTES: usize = 200;
/// What all that can't have a name of its own is counted by.
const OTHER: &str = "other";
/// Values of one segment that are told apart. More, and they are values of a parameter.
const MOST_VALUES: usize = 50;
/// Places in the tree of segments. Each takes some 100 bytes.
const MOST_NODES: usize = 2_000;
/// Segments that are told apart; the rest of a longer path is `{rest}`.
const DEEPEST: usize = 8;
/// A longer segment is a value.
const LONGEST_SEGMENT: usize = 40;
/// When names are scarce, one that was not asked for between two looks goes. A scrape comes each
/// minute or more often, so what was counted by it was read.
const BETWEEN_LOOKS: Duration = Duration::from_mins(10);
/// Of a name that the application gives.
pub(crate) const LONGEST_NAME: usize = 100;

const PARAMETER: &str = "{id}";
const REST: &str = "{rest}";

/// A name, and what is counted of it.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) name: Box<str>,
    pub(crate) duration: Histogram,
    /// Since the last look at what can go.
    was_asked: AtomicBool,
}

impl Route {
    fn new(name: &str, family: &Family<Histogram, 1>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            duration: family.with([name]),
            was_asked: AtomicBool::new(true),
        })
    }

    fn asked(self: &Arc<Self>) -> Arc<Self> {
        if !self.was_asked.load(Relaxed) {
            self.was_asked.store(true, Relaxed);
        }
        self.clone()
    }

    /// Whether it was asked for since the last look.
    fn is_kept(&self) -> bool {
        self.was_asked.swap(false, Relaxed)
    }
}

/// The names of one pool.
#[derive(Debug)]
pub struct RouteNames {
    family: Family<Histogram, 1>,
    other: Arc<Route>,
    learned: ArcSwap<Node>,
    given: ArcSwap<HashMap<Box<str>, Arc<Route>>>,
    learning: Mutex<Counts>,
    /// Nothing more is learned, before names have gone.
    is_full: AtomicBool,
    started: Instant,
    /// When names may go next, in seconds from the start.
    next_look: AtomicU64,
}

/// How much was learned.
#[derive(Debug, Default)]
struct Counts {
    routes: usize,
    nodes: usize,
}

/// A place in the tree of segments. Never changed: another one takes its place.
#[derive(Debug, Clone, Default)]
struct Node {
    /// By segment, sorted.
    values: Vec<(Box<[u8]>, Arc<Self>)>,
    parameter: Option<Arc<Self>>,
    /// Had too many values: all that are not among them are the parameter's.
    is_merged: bool,
    /// Of paths that end here.
    route: Option<Arc<Route>>,
}

impl RouteNames {
    /// `metrics` are those of HTTP for this pool.
    pub(crate) fn new(metrics: &Registry) -> Self {
        let family = metrics.family(
            "route_duration_seconds",
            "From the end of a request's head to the end of its response, by pool and route.",
            ["route"],
            MOST_ROUTES,
        );
        let other = Route::new(OTHER, &family);
        Self {
            family,
            other,
            learned: ArcSwap::default(),
            given: ArcSwap::default(),
            learning: Mutex::default(),
            is_full: AtomicBool::new(false),
            started: Instant::now(),
            next_look: AtomicU64::new(BETWEEN_LOOKS.as_secs()),
        }
    }

    /// The name of a request. A pattern that is not known is learned from requests that were
    /// answered well: a scanner asks for what is not there.
    pub(crate) fn find(&self, given: Option<&str>, path: &[u8], is_good: bool) -> Arc<Route> {
        if let Some(name) = given {
            let known = self.given.load();
            return match known.get(name) {
                Some(route) => route.asked(),
                None if self.has_room() => self.name(name),
                None => self.other.clone(),
            };
        }
        let learned = self.learned.load();
        match learned.find(segments(path)) {
            Some(route) => route.asked(),
            None if is_good && self.has_room() => self.learn(path),
            None => self.other.clone(),
        }
    }

    /// Whether another name can be learned; names may go for it.
    fn has_room(&self) -> bool {
        if !self.is_full.load(Relaxed) {
            return true;
        }
        let now = self.started.elapsed().as_secs();
        if now < self.next_look.load(Relaxed) {
            return false;
        }
        let mut counts = lock(&self.learning);
        self.next_look.store(now + BETWEEN_LOOKS.as_secs(), Relaxed);
        let learned = self.learned.load().kept();
        let given = HashMap::clone(&self.given.load());
        let given: HashMap<_, _> = given
            .into_iter()
            .filter(|(_, route)| route.is_kept())
            .collect();
        let mut names: HashSet<&str> = given.keys().map(|name| &**name).collect();
        learned.names(&mut names);
        self.family.retain(|[name]| names.contains(name));
        *counts = Counts {
            routes: names.len(),
            nodes: learned.size(),
        };
        let is_full = counts.routes + 1 >= MOST_ROUTES || counts.nodes + DEEPEST > MOST_NODES;
        drop(names);
        self.learned.store(Arc::new(learned));
        self.given.store(Arc::new(given));
        self.is_full.store(is_full, Relaxed);
        !is_full
    }

    fn name(&self, name: &str) -> Arc<Route> {
        let mut counts = lock(&self.learning);
        let known = self.given.load_full();
        if let Some(route) = known.get(name) {
            return route.clone(); // by another thread, a moment ago
        }
        let Some(route) = self.new_route(name, &mut counts) else {
            self.is_full.store(true, Relaxed);
            return self.other.clone();
        };
        let mut more = HashMap::clone(&known);
        more.insert(name.into(), route.clone());
        self.given.store(Arc::new(more));
        route
    }

    fn learn(&self, path: &[u8]) -> Arc<Route> {
        let mut counts = lock(&self.learning);
        let learned = self.learned.load_full();
        let segments: Vec<&[u8]> = segments(path).collect();
        if let Some(route) = learned.find(segments.iter().copied()) {
            return route.clone(); // by another thread, a moment ago
        }
        if counts.nodes + segments.len() > MOST_NODES {
            self.is_full.store(true, Relaxed);
            return self.other.clone();
        }
        let mut found = None;
        let mut pattern = String::new();
        let root = learned.with(&segments, &mut pattern, &mut |name| {
            let route = self.new_route(name, &mut counts)?;
            found = Some(route.clone());
            Some(route)
        });
        let Some(found) = found else {
            self.is_full.store(true, Relaxed);
            return self.other.clone();
        };
        counts.nodes = root.size();
        self.learned.store(Arc::new(root));
        found
    }

    /// None when there are as many as there may be.
    fn new_route(&self, name: &str, counts: &mut Counts) -> Option<Arc<Route>> {
        if counts.routes + 1 >= MOST_ROUTES {
            return None;
        }
        counts.routes += 1;
        Some(Route::new(name, &self.family))
    }
}

impl Node {
    fn find<'a>(&self, mut path: impl Iterator<Item = &'a [u8]>) -> Option<&Arc<Route>> {
        let mut node = self;
        let mut depth = 0;
        for segment in path.by_ref().take(DEEPEST) {
            node = node.next(segment)?;
            depth += 1;
        }
        if depth == DEEPEST && path.next().is_some() {
            node = node.parameter.as_deref()?;
        }
        node.route.as_ref()
    }

    fn next(&self, segment: &[u8]) -> Option<&Self> {
        let value = self.place_of(segment).ok();
        let value = value.and_then(|at| self.values.get(at));
        match value {
            Some((_, node)) => Some(node),
            None if self.is_merged || is_value(segment) => self.parameter.as_deref(),
            None => None,
        }
    }

    fn place_of(&self, segment: &[u8]) -> Result<usize, usize> {
        self.values
            .binary_search_by(|(known, _)| (**known).cmp(segment))
    }

    /// This node with a path below it, whose pattern up to here is given. Where there are too many
    /// values they become those of a parameter.
    fn with(
        &self,
        path: &[&[u8]],
        pattern: &mut String,
        new_route: &mut dyn FnMut(&str) -> Option<Arc<Route>>,
    ) -> Self {
        let mut node = self.clone();
        let Some((segment, rest)) = path.split_first() else {
            if node.route.is_none() {
                let name = if pattern.is_empty() { "/" } else { pattern };
                node.route = new_route(name);
            }
            return node;
        };
        let is_rest = pattern.matches('/').count() == DEEPEST;
        let place = node.place_of(segment);
        let is_parameter = is_rest || place.is_err() && (node.is_merged || is_value(segment));
        if !is_parameter && place.is_err() && !node.has_room() {
            node.merge_values();
            return node.with(path, pattern, new_route);
        }
        pattern.push('/');
        if is_parameter {
            pattern.push_str(if is_rest { REST } else { PARAMETER });
            let rest = if is_rest { &[][..] } else { rest };
            let below = node.parameter.take().unwrap_or_default();
            node.parameter = Some(Arc::new(below.with(rest, pattern, new_route)));
            return node;
        }
        pattern.extend(segment.iter().copied().map(char::from));
        match place {
            Ok(at) => {
                if let Some((_, below)) = node.values.get_mut(at) {
                    *below = Arc::new(below.with(rest, pattern, new_route));
                }
            }
            Err(at) => {
                let below = Self::default().with(rest, pattern, new_route);
                node.values.insert(at, ((*segment).into(), Arc::new(below)));
            }
        }
        node
    }

    fn has_room(&self) -> bool {
        self.values.len() < MOST_VALUES
    }

    /// Values behind which nothing comes are those of a parameter; if that makes too little room,
    /// all are. Their own names go, and what was counted by them stays.
    fn merge_values(&mut self) {
        let is_end = |node: &Self| node.values.is_empty() && node.parameter.is_none();
        let ends = self.values.iter().filter(|(_, node)| is_end(node)).count();
        if 2 * ends >= self.values.len() {
            self.values.retain(|(_, node)| !is_end(node));
        } else {
            self.values.clear();
        }
        self.is_merged = true;
    }

    /// What is left of it when the names go that nobody asked for.
    fn kept(&self) -> Self {
        let values = self.values.iter();
        let values = values.map(|(segment, node)| (segment.clone(), node.kept()));
        let parameter = self.parameter.as_ref().map(|node| node.kept());
        let parameter = parameter.filter(|node| !node.is_empty());
        Self {
            values: values
                .filter(|(_, node)| !node.is_empty())
                .map(|(segment, node)| (segment, Arc::new(node)))
                .collect(),
            // Where nobody asks for values any more, words are told apart again.
            is_merged: self.is_merged && parameter.is_some(),
            parameter: parameter.map(Arc::new),
            route: self.route.clone().filter(|route| route.is_kept()),
        }
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.parameter.is_none() && self.route.is_none()
    }

    fn names<'a>(&'a self, to: &mut HashSet<&'a str>) {
        to.extend(self.route.as_ref().map(|route| &*route.name));
        let below = self.values.iter().map(|(_, node)| node);
        for node in below.chain(&self.parameter) {
            node.names(to);
        }
    }

    fn size(&self) -> usize {
        let below = self.values.iter().map(|(_, node)| node);
        let below = below.chain(&self.parameter).map(|node| node.size());
        1 + below.sum::<usize>()
    }
}

/// What stands between the slashes of a path, but for nothing at its end.
fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.split(|byte| *byte == b'/')
        .filter(move |_| !path.is_empty())
}

/// Whether a segment looks like a value from the start: a number, a UUID or another long one with
/// digits in it, or something that is no word.
fn is_value(segment: &[u8]) -> bool {
    /// `2024-11`, a hash and most tokens have so many.
    const MANY_DIGITS: usize = 4;
    let digits = segment.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    segment.is_empty()
        || digits >= MANY_DIGITS
        || digits > 0 && digits == segment.len()
        || segment.len() > LONGEST_SEGMENT
        || !segment.iter().all(is_word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names() -> RouteNames {
        RouteNames::new(&Registry::default())
    }

    fn good(names: &RouteNames, path: &str) -> String {
        names.find(None, path.as_bytes(), true).name.to_string()
    }

    #[test]
    fn what_looks_like_a_value_is_one() {
        let names = names();
        for (path, name) in [
            ("/", "/"),
            ("", "/"),
            ("/user/7", "/user/{id}"),
            ("/user/8/", "/user/{id}"),
            ("/user/me", "/user/me"),
            ("/user/7/orders/2024-11", "/user/{id}/orders/{id}"),
            ("/f/01890a5d-ac96-774b-bcce-b302099a8057", "/f/{id}"),
            ("/v2/items", "/v2/items"),
            ("/mail/a@b.example", "/mail/{id}"),
            ("/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/{rest}"),
            ("/a/b/c/d/e/f/g/h/x", "/a/b/c/d/e/f/g/h/{rest}"),
            ("//", "/"),
            ("/a//b", "/a/{id}/b"),
        ] {
            assert_eq!(good(&names, path), name, "{path}");
            assert_eq!(good(&names, path), name, "{path} again");
        }
    }

    #[test]
    fn what_has_too_many_values_turns_into_a_parameter() {
        let names = names();
        good(&names, "/post/list/all");
        let word = |number: usize| {
            let letter = |digit: usize| char::from(b'a' + u8::try_from(digit % 26).unwrap());
            format!("/post/w{}{}", letter(number / 26), letter(number))
        };
        for number in 0..MOST_VALUES - 1 {
            assert_eq!(good(&names, &word(number)), word(number));
        }
        for number in MOST_VALUES..100 {
            assert_eq!(good(&names, &word(number)), "/post/{id}");
        }
        assert_eq!(good(&names, &word(0)), "/post/{id}");
        assert_eq!(good(&names, "/post/list/all"), "/post/list/all");
    }

    #[test]
    fn nothing_is_learned_from_what_is_not_there() {
        let names = names();
        let bad = names.find(None, b"/wp-admin", false);
        assert_eq!(&*bad.name, OTHER);
        good(&names, "/wp-admin");
        assert_eq!(&*names.find(None, b"/wp-admin", false).name, "/wp-admin");
    }

    #[test]
    fn the_application_names_what_it_likes() {
        let names = names();
        let found = names.find(Some("users.show"), b"/user/7", false);
        assert_eq!(&*found.name, "users.show");
        assert!(Arc::ptr_eq(
            &found,
            &names.find(Some("users.show"), b"/", true)
        ));
        for number in 0..1000 {
            names.find(Some(&number.to_string()), b"/", true);
        }
        assert_eq!(&*names.find(Some("1001"), b"/", true).name, OTHER);
        assert_eq!(names.given.load().len(), MOST_ROUTES - 1);
    }

    #[test]
    fn many_distinct_paths_leave_few_names_and_little_memory() {
        let metrics = Registry::default();
        let names = RouteNames::new(&metrics);
        for number in 0..10_000_u32 {
            let hash = format!("{:08x}", number.wrapping_mul(2_654_435_761));
            let letters: String = hash
                .bytes()
                .map(|byte| char::from(b'g' + byte % 16))
                .collect();
            let (first, second) = letters.split_at(4);
            for path in [
                format!("/{letters}"),
                format!("/{first}/{second}"),
                format!("/{second}/a/{first}/b/{letters}"),
            ] {
                names
                    .find(None, path.as_bytes(), true)
                    .duration
                    .observe(Duration::ZERO);
            }
        }
        let families = metrics.families();
        assert!(families[0].series.len() <= MOST_ROUTES);
        assert!(names.learned.load().size() <= MOST_NODES);
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_nobody_asks_for_make_room_for_others() {
        let metrics = Registry::default();
        let names = RouteNames::new(&metrics);
        let word = |number: usize| {
            let letter = |digit: usize| char::from(b'a' + u8::try_from(digit % 26).unwrap());
            format!("{}{}", letter(number / 26), letter(number))
        };
        good(&names, "/shop");
        // An application that answers whatever is asked for.
        for number in 0..600 {
            let (first, second) = (word(number % 40), word(number / 40));
            good(&names, &format!("/{first}/{second}"));
        }
        // All of them were asked for before the first look; nothing that was counted goes unread.
        for _ in 0..2 {
            assert_eq!(good(&names, "/cart"), OTHER);
            good(&names, "/shop");
            tokio::time::advance(BETWEEN_LOOKS).await;
        }
        assert_eq!(good(&names, "/cart"), "/cart");
        assert_eq!(good(&names, "/shop"), "/shop");
        let series = &metrics.families()[0].series;
        let mut left: Vec<&str> = series.iter().map(|series| &*series.labels[0].1).collect();
        left.sort_unstable();
        assert_eq!(left, ["/cart", "/shop", OTHER]);
    }

    proptest! {
        #[test]
        fn a_name_is_short_and_plain(paths: Vec<Vec<u8>>) {
            let names = names();
            for path in paths {
                let name = names.find(None, &path, true).name.to_string();
                prop_assert!(name.len() <= (DEEPEST + 1) * (LONGEST_SEGMENT + 1), "{}", name);
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'), "{}", name);
                prop_assert_eq!(&*names.find(None, &path, true).name, &*name);
            }
        }
    }
}
