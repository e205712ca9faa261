//! Paths: the ways in which programs read them, and the patterns.
//!
//! A client can write one path in many ways, and each program undoes other ones of them. What all
//! undo is undone here: percent signs are decoded, empty segments removed, and neither the case of
//! letters, a slash at the end nor the name of a front controller counts. Where programs differ, as
//! in what an encoded slash is, a path has a reading for each of them, and routes are asked for
//! each reading.

use std::borrow::Cow;

use pronghorn_config::{Node, Setting, Shown, Wrong};
use regex::bytes::Regex;

use crate::expression;
use crate::samples::samples;

/// A path that more than four things of [`STEPS`] are in was written to be misread.
const MOST_READINGS: usize = 16;

/// A change that some programs make to a path and others do not; `None` where it changes nothing.
type Step = fn(&[u8]) -> Option<Vec<u8>>;

const STEPS: [Step; 9] = [
    slashes_decoded,
    decoded_again,
    backslashes_as_slashes,
    pluses_as_spaces,
    without_parameters,
    without_query,
    without_end,
    without_blanks,
    without_dots,
];

/// Steps that leave nothing out. A pattern is one for each spelling that they make of it.
const SPELLINGS: [Step; 4] = [
    slashes_decoded,
    decoded_again,
    backslashes_as_slashes,
    pluses_as_spaces,
];

/// Scripts that answer for paths in which their names do not stand: front controllers, and those
/// that stand for a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Fronts(Vec<Box<[u8]>>);

impl Fronts {
    /// By their paths below a root.
    pub(super) fn new<'a>(scripts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<Box<[u8]>> = Vec::new();
        for script in scripts {
            let below = [b"/", script.trim_matches('/').as_bytes()].concat().into();
            if !all.contains(&below) {
                all.push(below);
            }
        }
        Self(all)
    }

    /// Whether one of them may have to do with a path.
    fn concern(&self, path: &[u8]) -> bool {
        let is_directory = path.len() > 1 && path.ends_with(b"/");
        let is_in = |front: &[u8]| is_directory || find_segments(path, front).is_some();
        self.0.iter().any(|front| is_in(front))
    }

    /// The path without the name of such a script: the application takes both for one.
    fn without_names(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let fronts = self.0.iter();
        let forms = fronts.filter_map(|front| {
            let (above, rest) = path.split_at(find_segments(path, front)?);
            let below = rest.get(front.len()..).unwrap_or_default();
            let whole = [above, below].concat();
            Some(if whole.is_empty() { b"/".into() } else { whole })
        });
        forms.collect()
    }

    /// The scripts that may stand for a directory.
    fn indexes(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let directory = path.strip_suffix(b"/").filter(|it| !it.is_empty());
        let of = |directory: &[u8]| self.0.iter().map(|it| [directory, it].concat()).collect();
        directory.map(of).unwrap_or_default()
    }
}

/// Where segments such as `/index.php` stand in a path, as whole ones.
fn find_segments(path: &[u8], wanted: &[u8]) -> Option<usize> {
    let ends = |at: usize| matches!(path.get(at + wanted.len()), None | Some(b'/'));
    let slashes = memchr::memchr_iter(b'/', path);
    slashes
        .filter(|at| starts_with(path.get(*at..).unwrap_or_default(), wanted).is_some())
        .find(|at| ends(*at))
}

/// One way to read a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reading<'a> {
    /// Decoded, but for `%` and an encoded slash, which stay `%25` and `%2F`; without empty
    /// segments.
    text: Cow<'a, [u8]>,
    /// The same without the names of front controllers.
    others: Vec<Vec<u8>>,
    /// The scripts of the directory.
    indexes: Vec<Vec<u8>>,
    /// Only for who takes the first segment for a host. Links with a doubled slash are common, so
    /// such a reading opens nothing and is in nobody's way.
    below_host: bool,
}

impl Reading<'_> {
    /// Whether only a route that closes may take it.
    pub(super) fn is_below_host(&self) -> bool {
        self.below_host
    }

    /// Whether a front controller is named in it.
    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// The same as it was written.
    pub(super) fn without_others(&self) -> Reading<'_> {
        Reading {
            text: Cow::Borrowed(&self.text),
            others: Vec::new(),
            indexes: self.indexes.clone(),
            below_host: self.below_host,
        }
    }

    fn forms(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.text).chain(self.others.iter().map(Vec::as_slice))
    }

    fn indexes(&self) -> impl Iterator<Item = &[u8]> {
        self.indexes.iter().map(Vec::as_slice)
    }
}

/// All ways to read a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Readings<'a> {
    first: Reading<'a>,
    others: Vec<Reading<'a>>,
}

impl<'a> Readings<'a> {
    /// `None` when there are more than anybody can mean.
    pub(super) fn of(received: &'a [u8], fronts: &Fronts) -> Option<Self> {
        // The `*` of OPTIONS is no path: no pattern says this.
        let is_path = received.first() == Some(&b'/');
        if !is_path || (is_plain(received) && !fronts.concern(received)) {
            return Some(Self::plain(received));
        }
        let reading = |text: Vec<u8>, below_host| Reading {
            others: fronts.without_names(&text),
            indexes: fronts.indexes(&text),
            text: text.into(),
            below_host,
        };
        let plain = texts(received, &STEPS)?;
        let mut below = texts_below_host(received)?;
        below.retain(|text| !plain.contains(text));
        let plain = plain.into_iter().map(|text| reading(text, false));
        let mut all = plain.chain(below.into_iter().map(|text| reading(text, true)));
        let first = all.next()?;
        Some(Self {
            first,
            others: all.collect(),
        })
    }

    /// The path as it is.
    pub(super) fn plain(received: &'a [u8]) -> Self {
        Self {
            first: Reading {
                text: received.into(),
                others: Vec::new(),
                indexes: Vec::new(),
                below_host: false,
            },
            others: Vec::new(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Reading<'a>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// The ways to read a path, for who compares it by other means; none for one that has one reading,
/// in which it is as it was sent. `None` when there are more than anybody can mean.
pub(crate) fn other_readings(received: &[u8]) -> Option<Vec<Vec<u8>>> {
    if received.first() != Some(&b'/') || is_plain(received) {
        return Some(Vec::new());
    }
    texts(received, &STEPS)
}

/// The texts of a path with each of these steps taken or not, in any order, the most literal one
/// first. `None` when there are too many.
fn texts(path: &[u8], steps: &[Step]) -> Option<Vec<Vec<u8>>> {
    spread(vec![merged(&decoded(path))], steps)
}

/// The rest of a path for programs that take the text after two slashes for a host, as
/// `parse_url()` does.
fn texts_below_host(path: &[u8]) -> Option<Vec<Vec<u8>>> {
    // Empty segments are merged later.
    let mut whole = vec![decoded(path)];
    for step in [
        slashes_decoded,
        decoded_again,
        slashes_decoded,
        backslashes_as_slashes,
    ] {
        let more: Vec<_> = whole.iter().filter_map(|text| step(text)).collect();
        whole.extend(more);
    }
    let below = whole.iter().filter_map(|text| without_host(text));
    spread(below.map(|text| merged(&text)).collect(), &STEPS)
}

fn spread(first: Vec<Vec<u8>>, steps: &[Step]) -> Option<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut next = first;
    while !next.is_empty() {
        let start = all.len();
        for text in next {
            if !all.contains(&text) {
                all.push(text);
            }
        }
        if all.len() > MOST_READINGS {
            return None;
        }
        let new = all.get(start..).unwrap_or_default();
        let more = new
            .iter()
            .flat_map(|text| steps.iter().filter_map(|step| step(text)));
        next = more.map(|text| merged(&text)).collect();
    }
    Some(all)
}

/// Whether a path has one reading, in which it is as it was sent, as almost all are.
fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    path.iter().all(|&byte| {
        let plain = match byte {
            b'%' | b'\\' | b';' | b'+' | b'#' | 0..=b' ' => false,
            b'/' | b'.' => !after_slash,
            _ => true,
        };
        after_slash = byte == b'/';
        plain
    })
}

/// Undoes percent-encoding once.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        let encoded = (*byte == b'%').then(|| code(after)).flatten();
        rest = encoded.map_or(after, |(_, after)| after);
        match encoded.map_or(*byte, |(byte, _)| byte) {
            b'/' if encoded.is_some() => decoded.extend_from_slice(b"%2F"),
            // Encoded, or one that begins no code: PHP takes both for a percent sign.
            b'%' => decoded.extend_from_slice(b"%25"),
            byte => decoded.push(byte),
        }
    }
    decoded
}

/// The byte of two hexadecimal digits, and what follows them.
fn code(text: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    Some((byte, rest))
}

/// Symfony's, Laravel's and Slim's routers decode a slash.
fn slashes_decoded(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b"%2F", b"/")
}

/// `PATH_INFO` is decoded, and some decode it once more.
fn decoded_again(text: &[u8]) -> Option<Vec<u8>> {
    let mut again = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        match rest.strip_prefix(b"%25").and_then(code) {
            Some((b'%', after)) => {
                again.extend_from_slice(b"%25");
                rest = after;
            }
            Some((byte, after)) => {
                again.push(byte);
                rest = after;
            }
            None => {
                again.push(*byte);
                rest = after;
            }
        }
    }
    (again != text).then_some(again)
}

fn backslashes_as_slashes(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b"\\", b"/")
}

/// PHP's `urldecode()`.
fn pluses_as_spaces(text: &[u8]) -> Option<Vec<u8>> {
    replaced(text, b"+", b" ")
}

/// Java's `;name=value` at the end of segments.
fn without_parameters(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b';', text)?;
    let segments = text.split(|&byte| byte == b'/');
    let segments: Vec<&[u8]> = segments
        .map(|segment| segment.split(|&byte| byte == b';').next())
        .map(Option::unwrap_or_default)
        .collect();
    Some(segments.join(&b'/'))
}

fn without_host(text: &[u8]) -> Option<Vec<u8>> {
    let after = text.strip_prefix(b"//")?;
    let path = memchr::memchr(b'/', after).and_then(|at| after.get(at..));
    Some(path.unwrap_or(b"/").to_vec())
}

/// Some decode a path before they look for its query.
fn without_query(text: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr2(b'?', b'#', text)?;
    text.get(..end).map(<[u8]>::to_vec)
}

/// RFC 3986, section 5.2.4; a path that ends in a dot segment ends in a slash.
fn without_dots(text: &[u8]) -> Option<Vec<u8>> {
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    if !text.split(|&byte| byte == b'/').any(is_dots) {
        return None;
    }
    let mut clean: Vec<u8> = Vec::with_capacity(text.len());
    let mut ends_in_slash = false;
    for segment in text.split(|&byte| byte == b'/').skip(1) {
        ends_in_slash = is_dots(segment);
        match segment {
            b"." => {}
            b".." => {
                let parent = memchr::memrchr(b'/', &clean).unwrap_or(0);
                clean.truncate(parent);
            }
            segment => {
                clean.push(b'/');
                clean.extend_from_slice(segment);
            }
        }
    }
    if ends_in_slash {
        clean.push(b'/');
    }
    Some(clean)
}

/// NUL ends a text of C; expressions and `trim()` pass over blanks after a path.
fn without_end(text: &[u8]) -> Option<Vec<u8>> {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    let shorter = trimmed_end(text.get(..end).unwrap_or_default());
    (shorter.len() < text.len()).then(|| shorter.to_vec())
}

/// Some trim each segment.
fn without_blanks(text: &[u8]) -> Option<Vec<u8>> {
    if !text.iter().any(|it| is_blank(*it)) {
        return None;
    }
    let segments = text.split(|&byte| byte == b'/').map(|segment| {
        let start = segment.iter().position(|it| !is_blank(*it));
        trimmed_end(start.and_then(|at| segment.get(at..)).unwrap_or_default())
    });
    let trimmed = segments.collect::<Vec<_>>().join(&b'/');
    (trimmed != text).then_some(trimmed)
}

fn trimmed_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|it| !is_blank(*it));
    text.get(..end.map_or(0, |at| at + 1)).unwrap_or_default()
}

/// The bytes that PHP's `trim()` takes away, and a form feed.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, 0 | b'\t'..=b'\r' | b' ')
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let mut places = memchr::memmem::find_iter(text, from).peekable();
    places.peek()?;
    let (mut out, mut end) = (Vec::with_capacity(text.len()), 0);
    for place in places {
        out.extend_from_slice(text.get(end..place).unwrap_or_default());
        out.extend_from_slice(to);
        end = place + from.len();
    }
    out.extend_from_slice(text.get(end..).unwrap_or_default());
    Some(out)
}

/// Without empty segments, but for a slash at the end.
fn merged(text: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(text.len().max(1));
    for &byte in text {
        if byte != b'/' || merged.last() != Some(&b'/') {
            merged.push(byte);
        }
    }
    if merged.is_empty() {
        merged.push(b'/');
    }
    merged
}

/// The text behind a prefix, whatever the case of letters.
fn starts_with<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn without_slash(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"/").unwrap_or(text)
}

/// More directories in one another that are called like scripts are not told from these.
const MOST_SCRIPTS: usize = 8;

/// The path up to each segment that is called like a script: what follows is no part of its path,
/// unless a directory is called so.
fn scripts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'/', path).skip(1);
    let all = ends.filter_map(|end| path.get(..end));
    all.filter(|it| is_script(it)).take(MOST_SCRIPTS)
}

fn is_script(path: &[u8]) -> bool {
    path.len() > 4
        && path
            .get(path.len() - 4..)
            .is_some_and(|end| end.eq_ignore_ascii_case(b".php"))
}

/// `/about`, just this path, `/admin/*`, this path and all below it, `~ \.bak$`, all paths in which
/// an expression is found, or `!~ ^/open/`, all in which it is not.
#[derive(Debug, Clone)]
pub struct PathPattern {
    written: String,
    says: Says,
}

#[derive(Debug, Clone)]
enum Says {
    /// A path in each of its readings, without a slash at its end.
    Path {
        texts: Vec<Vec<u8>>,
        below: bool,
    },
    Expression(Regex),
    /// Paths in which it is not found.
    Without(Regex),
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        match (&self.says, &other.says) {
            (Says::Expression(_), Says::Expression(_)) | (Says::Without(_), Says::Without(_)) => {
                self.written == other.written
            }
            (
                Says::Path { texts, below },
                Says::Path {
                    texts: others,
                    below: is_below,
                },
            ) => (texts, below) == (others, is_below),
            (Says::Path { .. } | Says::Expression(_) | Says::Without(_), _) => false,
        }
    }
}

impl PathPattern {
    /// # Errors
    ///
    /// What has to be written instead.
    pub fn parse(written: &str) -> Result<Self, String> {
        let written = written.to_owned();
        let negated = written.strip_prefix("!~");
        if let Some(expression) = negated.or_else(|| written.strip_prefix('~')) {
            let expression = expression.trim_start();
            if expression.is_empty() {
                return Err("an expression follows `~`: `~ \\.bak$`".into());
            }
            let says = match negated {
                // Only the very paths that it names are left out.
                Some(_) => Says::Without(expression::compile(expression)?),
                None => Says::Expression(expression::compile_for_paths(expression)?),
            };
            return Ok(Self { written, says });
        }
        if !written.starts_with('/') {
            return Err(format!("a path begins with a slash: `/{written}`"));
        }
        if written.contains(['?', '#']) {
            return Err("routes look at the path alone: leave out `?` or `#` and what follows, or write `%3F` or `%23`".into());
        }
        let (path, below) = match written.strip_suffix("/*") {
            Some(above) => (above, true),
            None => (written.as_str(), false),
        };
        if path.contains('*') {
            return Err("`*` stands only at the end, behind a slash: `/admin/*` is `/admin` and all below it; `%2A` is a star itself, and `~ EXPRESSION` says more".into());
        }
        let text = decoded(path.as_bytes());
        let whole = merged(&text);
        let clean = without_dots(&whole).unwrap_or(whole);
        let is_clean = *clean == *text && !(below && text.ends_with(b"/"));
        if !(is_clean || below && text.is_empty()) {
            let star = if below { "/*" } else { "" };
            let clean = String::from_utf8_lossy(&clean);
            let clean = if below {
                clean.trim_end_matches('/')
            } else {
                &clean
            };
            return Err(format!(
                "empty and dot segments are no part of a pattern: write `{clean}{star}`"
            ));
        }
        let texts = texts(path.as_bytes(), &SPELLINGS).ok_or("it can be read in too many ways")?;
        let mut texts: Vec<_> = texts.iter().map(|it| without_slash(it).to_vec()).collect();
        texts.dedup();
        // A path behind a script's name is told to the same script.
        let below = below || texts.iter().all(|it| is_script(it));
        Ok(Self {
            written,
            says: Says::Path { texts, below },
        })
    }

    /// Whether it is `/*`.
    pub fn is_everything(&self) -> bool {
        matches!(&self.says, Says::Path { texts, below: true } if texts.iter().all(Vec::is_empty))
    }

    /// Texts that are likely in paths which it names; none of one that names what it leaves out, or
    /// is `/*`.
    pub(crate) fn samples(&self) -> Vec<Vec<u8>> {
        match &self.says {
            Says::Path { .. } if self.is_everything() => Vec::new(),
            Says::Path { texts, .. } => texts.iter().take(1).cloned().collect(),
            Says::Expression(expression) => samples(expression.as_str()),
            Says::Without(_) => Vec::new(),
        }
    }

    /// Whether a route with this pattern alone gets a path.
    pub fn gets(&self, path: &str) -> bool {
        let readings = Readings::of(path.as_bytes(), &Fronts::default());
        readings.is_none_or(|readings| readings.iter().any(|reading| self.matches(reading, false)))
    }

    /// `closes`: for a route that keeps scripts from running. By an expression it gets a directory
    /// for its own path alone: whether a script of that name is there is known later.
    pub(super) fn matches(&self, reading: &Reading<'_>, closes: bool) -> bool {
        match &self.says {
            Says::Path { texts, below } => {
                let mut forms = reading.forms().chain(reading.indexes()).map(without_slash);
                forms.any(|form| texts.iter().any(|text| is_at(form, text, *below)))
            }
            Says::Expression(expression) => {
                let is_in = |form: &[u8]| is_in(expression, form);
                reading.text.starts_with(b"/")
                    && (reading.forms().any(is_in) || !closes && reading.indexes().any(is_in))
            }
            // No other way to write a path makes it one of those that are left out.
            Says::Without(expression) => {
                let plain = replaced(&reading.text, b"%25", b"%");
                reading.text.starts_with(b"/")
                    && !expression.is_match(plain.as_deref().unwrap_or(&reading.text))
            }
        }
    }

    /// Whether a path is one that it names, rather than one that it leaves out.
    pub(super) fn finds(&self, reading: &Reading<'_>) -> bool {
        !matches!(self.says, Says::Without(_)) && self.matches(reading, true)
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        match (&self.says, &other.says) {
            (
                Says::Path { texts, below },
                Says::Path {
                    texts: others,
                    below: is_below,
                },
            ) => others.iter().all(|other| {
                let covers = |text: &Vec<u8>| (*below || !is_below) && is_at(other, text, *below);
                texts.iter().any(covers)
            }),
            (Says::Path { texts, below }, Says::Expression(_) | Says::Without(_)) => {
                *below && texts.iter().any(Vec::is_empty)
            }
            (Says::Expression(_) | Says::Without(_), _) => self == other,
        }
    }
}

/// Whether a path without a slash at its end is this one, or lies below it.
fn is_at(path: &[u8], text: &[u8], below: bool) -> bool {
    starts_with(path, text).is_some_and(|rest| match rest {
        [] => true,
        [b'/', ..] => below,
        _ => false,
    })
}

/// Whether an expression is found in a path, written in any of the ways that mean the same: with a
/// slash at the end and without it, with what follows a script's name and without it.
fn is_in(expression: &Regex, path: &[u8]) -> bool {
    let plain = replaced(path, b"%25", b"%");
    let path = plain.as_deref().unwrap_or(path);
    let bare = Some(without_slash(path)).filter(|it| !it.is_empty() && it.len() < path.len());
    let mut forms = [Some(path), bare]
        .into_iter()
        .flatten()
        .chain(scripts(path));
    forms.any(|form| expression.is_match(form))
}

impl Setting for PathPattern {
    fn example() -> String {
        "/admin/*".to_owned()
    }

    fn accepts() -> String {
        "a path such as `/about`, `/admin/*` for it and all below it, or `~` or `!~` and a regular \
         expression"
            .to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        Self::parse(text).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.written.clone())
    }
}
