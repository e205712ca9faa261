//! A configuration of ours on its way: what the readers of other configurations have in common.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use pronghorn_config::{Input, Severity, load};
use pronghorn_http::files::is_php_source;
use pronghorn_http::routes::PathPattern;
use pronghorn_http::settings::HttpSettings;
use pronghorn_server::Services;
use pronghorn_server::settings::Settings;

use super::directive::{Directive, Fate, SourceLine};
use super::limits::{
    advice, directories_of_scripts, endings, leads_away, limits, names_hidden,
    without_looking_around,
};
use super::tree::{Tree, Value, path_value};

/// The first is the innermost, next to PHP.
const MIDDLEWARE: [&str; 6] = [
    "sendfile",
    "static",
    "headers",
    "rewrite",
    "error_pages",
    "compress",
];

/// More sites are generated, and are better generated anew.
const MOST_SITES: usize = 1000;
/// The status of paths whose limit is not understood.
pub(super) const NOT_FOUND: &str = "404";

/// What a configuration becomes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Names of the files that were read, and the number of the one that is.
    files: Vec<String>,
    pub(super) file: usize,
    pub(super) tree: Tree,
    middleware: Vec<&'static str>,
    /// Names of variables that a site gives to its scripts.
    variables: Vec<String>,
    /// Its routes can refuse all clients alone, and not some by their addresses.
    pub(super) closes_for_all: bool,
    /// There is more than one site.
    pub(super) has_many: bool,
    /// Options of a Caddyfile move rewrites, or what refuses, from their usual places.
    pub(super) moves_rewrites: bool,
    /// A site of the file has TLS.
    pub(super) has_tls: bool,
    pub(super) sites: Vec<Site>,
    /// `http.static` has directories of one site.
    serves_of_one: bool,
    /// Redirects to TLS, until it is known whether a site has any.
    to_tls: Vec<ToTls>,
    /// What limited who gets what, and is not in the configuration.
    pub(super) limits: Vec<String>,
    /// What else has no counterpart, or was not understood.
    pub(super) left_out: Vec<String>,
    /// What is the server's own way, and should be known.
    pub(super) notes: Vec<String>,
}

/// A redirect of a host to itself with TLS.
#[derive(Debug)]
struct ToTls {
    /// Its place and what is written there.
    shown: String,
    /// The address at which it is asked without TLS.
    address: Option<String>,
    /// Files for certificates stand beside it.
    has_files: bool,
}

/// A site: a root with the names that lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) place: SourceLine,
    pub(super) names: Vec<String>,
    /// It is said to answer for hosts that nobody names.
    pub(super) is_default: bool,
    pub(super) root: Option<String>,
    /// More keys of its pool.
    pub(super) pool: Tree,
    /// Where it listens, and whether with TLS.
    pub(super) listens: Vec<(String, bool)>,
    pub(super) certificate: (Option<String>, Option<String>),
    /// Sockets of php-fpm.
    pub(super) backends: Vec<String>,
    pub(super) rules: Vec<Rule>,
    /// Keys of the route for all that no rule is about.
    pub(super) whole: Tree,
    /// The status that all of it is answered with. Once set, no other statement may take it away:
    /// it stands apart from `whole`, which they set.
    pub(super) closed: Option<String>,
    /// The status of what no rule is about: all that something else answers has one.
    pub(super) rest: Option<String>,
    /// Applications below its paths, with their sockets of php-fpm.
    pub(super) below: Vec<(String, Tree, Vec<String>)>,
    /// Directories whose files are sent below its paths, instead of those of the root.
    pub(super) files: Vec<Files>,
    /// Directories in which `.htaccess` files count, and in those below them, after the places
    /// that say so.
    pub(super) overridden: Vec<(String, String)>,
    /// Rules of the `.htaccess` of its root.
    pub(super) rewrites: Vec<Rewriting>,
    /// Scripts ran for it.
    pub(super) gives_php: bool,
    /// Paths that a script answered.
    pub(super) answered: Vec<String>,
    /// The script to which the `.htaccess` of its root leads, by its path below the root.
    pub(super) leads_to: Option<String>,
    /// Statements of Apache about files by their names. The last one holds.
    pub(super) named: Vec<NamedFiles>,
    /// `basic_auth` of all of its routes.
    pub(super) guard: Option<Tree>,
}

/// A statement that keeps clients from files by their names, or lets them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedFiles {
    pub(super) place: SourceLine,
    /// It is found in their paths.
    pub(super) expression: String,
    pub(super) shuts: bool,
    /// Its place and its text.
    pub(super) statement: String,
}

/// A rule that leads paths to another script or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rewriting {
    pub(super) rule: Tree,
    /// Its paths.
    pub(super) at: At,
    /// Its place and its text.
    pub(super) shown: String,
}

/// A directory whose files are sent below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) prefix: String,
    pub(super) root: String,
    /// Names of the files that answer for a directory in it.
    pub(super) index: Vec<String>,
}

/// The paths that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum At {
    Path(String),
    /// A path and all below it; the empty one is the root.
    Below(String),
    /// All paths that begin with this text: `/up` is `/uploads` and `/up.php`, too.
    Start(String),
    /// A regular expression of paths.
    Expression(String),
    /// All paths but those of a regular expression.
    Without(String),
}

/// In which order rules are asked: as nginx asks its locations, but that what is closed comes
/// before all that is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// `location =`.
    Exact,
    /// `location ^~`.
    Strong,
    /// Scripts that an expression names before another one refuses them.
    Named,
    Refusal,
    /// Hidden names, and those that are open beside them.
    Hidden,
    /// Expressions inside a plain location.
    Inner,
    Expression,
    Plain,
}

/// A route of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) at: At,
    pub(super) rank: Rank,
    pub(super) keys: Tree,
    /// It is not about what `http.static` serves.
    pub(super) after_files: bool,
    /// The length of the prefix before whose own rule an expression stands.
    within: usize,
}

impl At {
    /// As a site's rules have it.
    pub(super) fn normal(self) -> Self {
        match self {
            Self::Below(path) => Self::Below(path.trim_end_matches('/').to_owned()),
            Self::Expression(expression) => Self::Expression(expression.replace('\n', "\\n")),
            Self::Without(expression) => Self::Without(expression.replace('\n', "\\n")),
            Self::Start(path) if path.ends_with('/') => {
                Self::Below(path.trim_end_matches('/').to_owned())
            }
            path @ (Self::Path(_) | Self::Start(_)) => path,
        }
    }

    /// As `path` of a route.
    fn written(&self) -> String {
        let escaped = |path: &str| {
            let mut out = String::new();
            for letter in path.chars() {
                match letter {
                    '%' | '*' | '?' | '#' => {
                        _ = write!(out, "%{:02X}", u32::from(letter)); // a String takes it
                    }
                    letter => out.push(letter),
                }
            }
            out
        };
        match self {
            Self::Path(path) => escaped(path),
            Self::Below(path) => format!("{}/*", escaped(path)),
            Self::Start(path) => format!("~ ^{}", as_it_is(path)),
            Self::Expression(expression) => format!("~ {expression}"),
            Self::Without(expression) => format!("!~ {expression}"),
        }
    }

    /// Whether files below a prefix may be among its paths, other than by their endings.
    pub(super) fn meets(&self, prefix: &str) -> bool {
        match self {
            Self::Path(path) | Self::Below(path) => is_in(path, prefix) || is_in(prefix, path),
            Self::Start(path) => path.starts_with(prefix) || prefix.starts_with(path),
            Self::Without(_) => true,
            Self::Expression(expression) if names_hidden(expression) => false,
            Self::Expression(_) if !self.endings().is_empty() => false,
            // Sources of PHP are no files that are sent.
            Self::Expression(expression)
                if expression.trim_end_matches(['$', ')']).ends_with("php") =>
            {
                false
            }
            Self::Expression(expression) => match expression.strip_prefix('^') {
                // The text before the first sign that is no letter.
                Some(rest) => {
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
                    let end = rest.find(|c: char| !is_plain(c)).unwrap_or(rest.len());
                    let start = rest.get(..end.saturating_sub(1)).unwrap_or_default();
                    start.starts_with(prefix) || prefix.starts_with(start)
                }
                None => true,
            },
        }
    }

    /// Whether all of its paths begin with this one.
    pub(super) fn is_below(&self, path: &str) -> bool {
        match self {
            Self::Path(it) | Self::Start(it) => it.starts_with(path),
            Self::Below(it) => it.starts_with(path.trim_end_matches('/')) && !it.is_empty(),
            Self::Expression(it) => it.starts_with(&format!("^{}", as_it_is(path))),
            Self::Without(_) => false,
        }
    }

    /// Endings of files that are all that it is about.
    pub(super) fn endings(&self) -> Vec<String> {
        match self {
            Self::Expression(expression) => endings(expression).unwrap_or_default(),
            Self::Path(_) | Self::Below(_) | Self::Start(_) | Self::Without(_) => Vec::new(),
        }
    }

    /// The same path in one form.
    fn key(&self) -> (u8, String) {
        match self {
            Self::Path(path) => (0, path.trim_end_matches('/').to_ascii_lowercase()),
            Self::Below(path) => (1, path.trim_end_matches('/').to_ascii_lowercase()),
            Self::Expression(expression) => (2, expression.clone()),
            Self::Start(path) => (3, path.to_ascii_lowercase()),
            Self::Without(expression) => (4, expression.clone()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Path(path)
            | Self::Below(path)
            | Self::Start(path)
            | Self::Expression(path)
            | Self::Without(path) => path.len(),
        }
    }
}

impl Rule {
    fn new(at: At, rank: Rank, keys: Tree) -> Self {
        Self {
            at,
            rank,
            keys,
            after_files: false,
            within: 0,
        }
    }

    pub(super) fn refuses(&self) -> bool {
        self.keys.get("refuse").is_some()
    }

    /// Whether it refuses its paths for all.
    fn closes(&self) -> bool {
        self.refuses() && self.is_for_all()
    }

    /// Whether it leads to a pool that sends no files.
    pub(super) fn sends_none(&self) -> bool {
        self.keys.get("pool") == Some(&Value::from(FRONT))
    }

    /// Without conditions on anything but the path.
    fn is_for_all(&self) -> bool {
        ["header", "method", "not_method", "address", "not_address"]
            .iter()
            .all(|it| self.keys.get(it).is_none())
    }
}

/// An expression for names of files, in a directory by its path and all below it; the empty path is
/// the root.
pub(super) fn names_in(below: &str, name: &str) -> String {
    match below {
        "" => name.to_owned(),
        below => format!("^{}(?:/.*)?{name}", as_it_is(below)),
    }
}

/// The keys of a route that refuses.
pub(super) fn refusal(status: &str) -> Tree {
    let mut keys = Tree::default();
    keys.set("refuse", Value::Bare(status.to_owned()));
    keys
}

/// In the keys of a rule, the pool of a site's front controller that sends no files.
const FRONT: &str = "front, without files";

/// A key of rules to which the password of their site does not belong; it ends with the draft.
pub(super) const OPEN: &str = "without basic_auth";

/// Begins, in the keys of a rule, the pool of the same root with another front controller.
const LED_TO: &str = "front controller ";

/// The keys of a route on which paths without a file are led to another script of the same root.
pub(super) fn led_to(script: &str) -> Tree {
    let mut keys = Tree::default();
    keys.set(
        "pool",
        format!("{LED_TO}{}", script.trim_start_matches('/')),
    );
    keys
}

/// The keys of a route on which the front controller alone answers, and no file is sent.
pub(super) fn front_alone() -> Tree {
    let mut keys = scripts("front");
    keys.set("pool", FRONT);
    keys
}

/// The keys of a route on which only these scripts answer.
pub(super) fn scripts(which: &str) -> Tree {
    let mut keys = Tree::default();
    keys.set("scripts", which);
    keys
}

impl Site {
    /// The script that answers for paths without a file.
    pub(super) fn front(&self) -> String {
        match self.pool.get("fallback") {
            Some(Value::Text(script)) => format!("/{script}"),
            _ => "/index.php".to_owned(),
        }
    }

    /// Lets no script answer for others that clients are kept from: Apache asks for leave when it
    /// leads a path there. What is said to a person.
    pub(super) fn close_with_front(&mut self) -> Vec<String> {
        let (front, mut said) = (self.front(), Vec::new());
        let mut scripts = vec![front.clone()];
        match self.pool.get("index") {
            Some(Value::List(index)) => scripts.extend(index.iter().filter_map(|it| match it {
                Value::Text(name) if is_script(name) => Some(format!("/{name}")),
                _ => None,
            })),
            _ => scripts.push("/index.php".to_owned()),
        }
        scripts.dedup();
        let has_front = self.pool.get("fallback") != Some(&Value::from("none"));
        let mut which = if has_front { "front" } else { "none" };
        for script in scripts {
            let named = self.named.iter();
            let of_script = named.filter(|it| is_found(&it.expression, &script));
            let Some(last) = of_script.max_by_key(|it| it.place).filter(|it| it.shuts) else {
                continue;
            };
            said.push(format!(
                "{}: `{script}` does not answer for other paths, either",
                last.statement
            ));
            if script == front {
                self.pool.set("fallback", "none");
                which = "none";
            }
            let keys = self.without(which);
            self.rule(At::Path("/".to_owned()), Rank::Refusal, keys);
        }
        let mut named = std::mem::take(&mut self.named);
        named.sort_by_key(|it| it.place);
        for (at, open) in named.iter().enumerate().filter(|(_, it)| !it.shuts) {
            let mut before = named.iter().take(at).filter(|it| it.shuts);
            if let Some(shut) = before.next_back() {
                said.push(format!(
                    "{}: files that `{}` refuses stay refused",
                    open.statement, shut.expression
                ));
            }
        }
        said
    }

    /// Answers 404 for a path and all below it; the empty path is the whole site.
    pub(super) fn close(&mut self, path: &str) {
        self.refuse(At::Below(path.to_owned()), NOT_FOUND);
    }

    /// Answers with a status.
    pub(super) fn refuse(&mut self, at: At, status: &str) {
        if at == At::Below(String::new()) || at == At::Below("/".to_owned()) {
            self.closed.get_or_insert_with(|| status.to_owned());
        } else {
            self.rule(at, Rank::Refusal, refusal(status));
        }
    }

    /// False where the server would not take it.
    pub(super) fn rule(&mut self, at: At, rank: Rank, keys: Tree) -> bool {
        let at = at.normal();
        let is_taken = PathPattern::parse(&at.written()).is_ok();
        if is_taken {
            self.rules.push(Rule::new(at, rank, keys));
        }
        is_taken
    }

    /// A rule for what an expression is found in below a prefix, before the prefix's own.
    pub(super) fn rule_within(
        &mut self,
        expression: String,
        rank: Rank,
        keys: Tree,
        prefix: &str,
    ) -> bool {
        let is_taken = self.rule(At::Expression(expression), rank, keys);
        if is_taken && let Some(rule) = self.rules.last_mut() {
            rule.within = prefix.len();
        }
        is_taken
    }

    /// Answers 404 for names that begin as a prefix without a slash at its end, and are not below
    /// it.
    pub(super) fn close_longer(&mut self, prefix: &str, rank: Rank) {
        let longer = format!("^{}[^/]", as_it_is(prefix));
        if !prefix.ends_with('/')
            && self.rule_within(longer, rank, refusal(NOT_FOUND), prefix)
            && let Some(rule) = self.rules.last_mut()
        {
            rule.after_files = true;
        }
    }

    /// The keys of a route that keeps scripts from running. It opens nothing where the rest is
    /// refused.
    pub(super) fn without(&self, otherwise: &str) -> Tree {
        let rest = self.rest.as_deref().map(refusal);
        rest.unwrap_or_else(|| scripts(otherwise))
    }

    /// Sends none of the files below a path of the root; scripts run.
    pub(super) fn send_none(&mut self, path: &str) {
        let path = match path.trim_matches('/') {
            "" => "*".to_owned(),
            path => format!("{path}/*"),
        };
        let path = Value::from(path);
        if !matches!(self.pool.get("forbid"), Some(Value::List(all)) if all.contains(&path)) {
            self.pool.push("forbid", path);
        }
    }

    /// Answers 404 for what is no file of `http.static` at a path; a route that refuses would close
    /// these files, too.
    pub(super) fn rest_of_files(&mut self, at: At, rank: Rank) {
        let (At::Path(path) | At::Below(path) | At::Start(path)) = &at else {
            return;
        };
        let path = path.clone();
        self.send_none(&path);
        if matches!(at, At::Start(_)) {
            self.close_longer(&path, rank);
        }
        self.rule(at, rank, scripts("none"));
    }

    /// A rule for all paths, with conditions of other kinds.
    pub(super) fn condition(&mut self, keys: Tree) -> bool {
        let is_taken = accepts_route(&keys);
        if is_taken {
            self.rule(At::Below(String::new()), Rank::Exact, keys);
        }
        is_taken
    }

    /// Refuses what an expression is found in, or more, where ours cannot say the same: then what
    /// holds instead is returned.
    pub(super) fn refuse_expression(&mut self, expression: &str, status: &str) -> Option<String> {
        let refuse = |site: &mut Self, expression: &str, rank| {
            site.rule(At::Expression(expression.to_owned()), rank, refusal(status))
        };
        if names_hidden(expression) {
            let open = At::Below("/.well-known".to_owned());
            self.rule(open, Rank::Hidden, Tree::default());
            refuse(self, "/\\.", Rank::Hidden);
            return None;
        }
        if refuse(self, expression, Rank::Refusal) {
            return None;
        }
        let wider = without_looking_around(expression);
        let is_wide = |wider: &String| is_found(wider, "/") && is_found(wider, "/a/b");
        match wider.filter(|wider| !is_wide(wider)) {
            Some(wider) if refuse(self, &wider, Rank::Refusal) => Some(format!(
                "all paths with `{wider}` in them are answered {status}: these are more, because \
                 look-around is not supported"
            )),
            _ => {
                self.close("");
                Some(ALL_CLOSED.to_owned())
            }
        }
    }

    /// Patterns of what is refused for all, each with its status; and how many there are beyond
    /// `most`.
    pub(super) fn closing_routes(&mut self, most: usize) -> (Vec<(String, String)>, usize) {
        _ = self.order_routes(); // none of them is about anything but refusals
        let mut all: Vec<_> = self
            .rules
            .iter()
            .filter_map(|rule| match rule.keys.get("refuse") {
                Some(Value::Bare(status)) if rule.is_for_all() => {
                    Some((rule.at.written(), status.clone()))
                }
                _ => None,
            })
            .collect();
        let left = all.len().saturating_sub(most);
        all.truncate(most);
        // The last one: who takes it out has the others.
        all.extend(self.closed.iter().map(|it| ("/*".to_owned(), it.clone())));
        (all, left)
    }

    /// The front controller alone answers, if anything does.
    pub(super) fn send_nothing(&mut self) {
        self.whole = front_alone();
    }

    /// Patterns of what the front controller alone answers, which sends no file there; of all paths
    /// where there are more than `most`.
    pub(super) fn front_routes(&self, most: usize) -> Vec<String> {
        let rules = self.rules.iter().filter(|it| it.sends_none());
        let all: Vec<String> = rules.map(|it| it.at.written()).collect();
        if self.is_closed() {
            Vec::new()
        } else if self.whole == front_alone() || all.len() > most {
            vec!["/*".to_owned()]
        } else {
            all
        }
    }

    /// Paths of which no file is sent to anybody.
    pub(super) fn closed_paths(&self) -> Vec<At> {
        let closes = |it: &&Rule| it.closes() || it.sends_none() && it.is_for_all();
        let rules = self.rules.iter().filter(closes);
        let is_whole = self.is_closed() || self.whole == front_alone();
        let whole = is_whole.then(|| At::Below(String::new()));
        rules.map(|it| it.at.clone()).chain(whole).collect()
    }

    /// Expressions of what is refused, whatever else a request says.
    pub(super) fn refused_expressions(&self) -> Vec<&str> {
        let rules = self.rules.iter().filter(|it| it.refuses());
        let all = rules.filter_map(|it| match &it.at {
            At::Expression(expression) => Some(expression.as_str()),
            _ => None,
        });
        all.collect()
    }

    /// Directories in which no script runs.
    pub(super) fn without_scripts(&self) -> Vec<String> {
        match self.pool.get("no_scripts") {
            Some(Value::List(all)) => all
                .iter()
                .filter_map(|it| match it {
                    Value::Text(path) => Some(path.clone()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Another application below a path.
    pub(super) fn application_below(&mut self, path: &str, pool: Tree, backends: Vec<String>) {
        let path = path.trim_end_matches('/').to_owned();
        self.below.push((path, pool, backends));
    }

    /// A time limit for applications below paths; false where there are none.
    pub(super) fn limit_below(&mut self, limit: &str) -> bool {
        for (_, pool, _) in &mut self.below {
            pool.map(&["supervisor"]).set("exec_ttl", limit);
        }
        !self.below.is_empty()
    }

    /// Whether it may only be reached at some of the machine's addresses.
    fn is_inner(&self) -> bool {
        !self.listens.is_empty()
            && self
                .listens
                .iter()
                .all(|(address, _)| !address.starts_with(':'))
    }

    /// Whether it is reached at an address of another one.
    fn meets(&self, other: &Self) -> bool {
        let of = |site: &Self| match &site.listens[..] {
            [] => vec![":80".to_owned()],
            all => all.iter().map(|(address, _)| address.clone()).collect(),
        };
        let others = of(other);
        of(self).iter().any(|it| others.contains(it))
    }

    fn has_rules(&self) -> bool {
        !self.rules.is_empty() || !self.whole.is_empty() || self.is_closed() || self.rest.is_some()
    }

    /// Whether a path is closed by what holds for one around it.
    pub(super) fn is_refused(&self, path: &str) -> bool {
        self.rules.iter().any(|rule| match &rule.at {
            At::Below(closed) => rule.refuses() && is_in(path, closed),
            _ => false,
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Routes in an order in which each can match: the longest path first, as in nginx. What can't
    /// is returned, for a person.
    fn order_routes(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        let (mut above, mut first) = (Vec::<String>::new(), Vec::<String>::new());
        let mut known: Vec<(u8, String)> = Vec::new();
        // Paths in other letters or with a slash at their ends count as one here, so that only one
        // route can have them: that which refuses, wherever it stood.
        let refused = self.rules.iter().filter(|it| it.closes());
        let refused: Vec<_> = refused.map(|it| it.at.key()).collect();
        self.rules.retain(|it| {
            let is_path = matches!(it.at, At::Path(_) | At::Below(_) | At::Start(_));
            let is_other = is_path && it.is_for_all() && !it.refuses();
            let stays = !(is_other && refused.contains(&it.at.key()));
            if !stays && !it.keys.is_empty() {
                out.push(taken(&it.at));
            }
            stays
        });
        // Expressions keep their order among themselves.
        self.rules.sort_by_key(|rule| {
            let is_expression = matches!(rule.at, At::Expression(_) | At::Without(_));
            let longest = match rule.within {
                0 if is_expression => 0,
                0 => usize::MAX - rule.at.len(),
                // A slash at its end is not among its letters.
                within => usize::MAX - within,
            };
            let is_last = is_expression && rule.within == 0;
            // The longest prefix is asked, whether it refuses or keeps expressions out.
            let rank = match rule.rank {
                Rank::Refusal if !is_expression => Rank::Strong,
                rank => rank,
            };
            let is_exact = matches!(rule.at, At::Path(_));
            // Some clients are refused before the others are answered.
            (
                rank,
                is_last,
                longest,
                !is_expression,
                !is_exact,
                rule.is_for_all(),
            )
        });
        self.rules.retain(|rule| {
            let key = rule.at.key();
            if !rule.is_for_all() {
                return !refused.contains(&key);
            }
            let is_taken = |path: &str| above.iter().any(|it| is_in(path, it));
            let is_covered = known.contains(&key)
                || match rule.at {
                    At::Path(_) | At::Below(_) => is_taken(&key.1),
                    // A path that is taken is not all that begins with it.
                    At::Start(_) => is_taken(&key.1) && !above.contains(&key.1),
                    At::Expression(_) | At::Without(_) => false,
                };
            if is_covered {
                if !rule.refuses() && !rule.keys.is_empty() {
                    out.push(taken(&rule.at));
                }
                return false;
            }
            if let At::Below(_) = rule.at {
                above.push(key.1.clone());
                // Applications come before what is ranked lower.
                if rule.rank <= Rank::Hidden {
                    first.push(key.1.clone());
                }
            }
            known.push(key);
            true
        });
        self.below
            .sort_by_key(|(path, ..)| std::cmp::Reverse(path.len()));
        self.below.retain(|(path, ..)| {
            let path = path.to_ascii_lowercase();
            let is_new = !first.iter().any(|it| is_in(&path, it));
            if is_new {
                first.push(path);
            } else {
                out.push(format!(
                    "the application below `{path}`, a path that is closed or taken"
                ));
            }
            is_new
        });
        out
    }

    pub(super) fn shown(&self) -> String {
        match self.names.first() {
            Some(name) => format!("the site `{name}`"),
            None => "the site without a name".to_owned(),
        }
    }
}

impl Draft {
    pub(super) fn of(file: &str) -> Self {
        Self {
            files: vec![file.to_owned()],
            ..Self::default()
        }
    }

    /// A file is read from now on.
    pub(super) fn begin(&mut self, path: &Path) -> usize {
        let name = path.file_name().unwrap_or_default();
        self.files.push(name.to_string_lossy().into_owned());
        self.files.len() - 1
    }

    /// The name of the file that is read.
    pub(super) fn file(&self) -> &str {
        self.name_of(self.file)
    }

    /// The name of a file by its number.
    pub(super) fn name_of(&self, file: usize) -> &str {
        self.files.get(file).map_or("", String::as_str)
    }

    /// A line of the file that is read.
    pub(super) const fn line(&self, line: usize) -> SourceLine {
        SourceLine {
            file: self.file,
            line,
        }
    }

    pub(super) fn place(&self, place: SourceLine) -> String {
        let file = self.name_of(place.file);
        format!("{file}:{}", place.line)
    }

    pub(super) fn leave_out(&mut self, directive: &Directive) {
        if limits(directive) {
            return self.leave_out_limit(directive, "it holds nowhere here");
        }
        directive.fate.set(Fate::Told);
        // The values of variables are passwords too often.
        let text = match directive.name.as_str() {
            "fastcgi_param" | "SetEnv" => {
                format!("{} {} …", directive.name, directive.argument(0))
            }
            _ => directive.shown(),
        };
        let place = self.place(directive.place);
        self.left_out.push(format!("{place}: `{text}`"));
    }

    /// As [`Self::leave_out`], for a line of the file that is read.
    pub(super) fn leave_out_text(&mut self, line: usize, text: &str) {
        let place = self.place(self.line(line));
        self.left_out.push(format!("{place}: `{text}`"));
    }

    /// `outcome` is what holds now.
    pub(super) fn leave_out_limit(&mut self, directive: &Directive, outcome: &str) {
        directive.fate.set(Fate::Told);
        let mut innermost = directive;
        while let Some(inside) = (innermost.inside.iter().find(|it| limits(it)))
            .or_else(|| innermost.inside.iter().find(|it| leads_away(it)))
        {
            innermost = inside;
        }
        let shown = if std::ptr::eq(innermost, directive) {
            String::new()
        } else {
            format!(" with `{}`", innermost.shown())
        };
        let (place, what) = (self.place(directive.place), directive.shown());
        let advice = advice(innermost);
        let outcome = match outcome {
            "" => "nothing is in its place",
            outcome => outcome,
        };
        self.limits
            .push(format!("{place}: `{what}`{shown}: {outcome}; {advice}"));
    }

    /// Statements that nobody has said anything of. Whether a limit was among them, or what leads
    /// requests away from files: the caller closes what they held for.
    pub(super) fn leave_out_unread(&mut self, all: &[Directive], outcome: &str) -> bool {
        let mut has_limit = false;
        for directive in all {
            match directive.fate.get() {
                Fate::Unread if limits(directive) || leads_away(directive) => {
                    self.leave_out_limit(directive, outcome);
                    has_limit = true;
                }
                Fate::Unread => self.leave_out(directive),
                Fate::Done => has_limit |= self.leave_out_unread(&directive.inside, outcome),
                Fate::Told => {}
            }
        }
        has_limit
    }

    /// A regular expression of paths that are refused. Scripts in directories are also kept from
    /// running by any other path that leads there.
    pub(super) fn refuse(
        &mut self,
        directive: &Directive,
        expression: &str,
        status: &str,
        site: &mut Site,
    ) {
        if let Some(folders) = directories_of_scripts(expression) {
            for folder in &folders {
                no_scripts(&mut site.pool, folder);
            }
        }
        match site.refuse_expression(expression, status) {
            None => directive.done_whole(),
            Some(outcome) => self.leave_out_limit(directive, &outcome),
        }
    }

    /// A redirect of a site's hosts to themselves with TLS.
    pub(super) fn lead_to_tls(&mut self, redirect: &Directive, site: &Site, has_files: bool) {
        let plain = site.listens.first().filter(|(_, is_tls)| !is_tls);
        self.to_tls.push(ToTls {
            shown: format!("{}: `{}`", self.place(redirect.place), redirect.shown()),
            address: plain.map(|(address, _)| address.clone()),
            has_files,
        });
    }

    /// A redirect of a host to itself, at another address or without TLS.
    pub(super) fn leave_out_loop(&mut self, redirect: &Directive) {
        let (place, shown) = (self.place(redirect.place), redirect.shown());
        self.left_out.push(format!(
            "{place}: `{shown}`: all sites answer at all addresses here, so it would lead to itself"
        ));
    }

    /// A variable of scripts' environment; false where another site has another value.
    pub(super) fn variable(&mut self, name: &str, value: &str) -> bool {
        let value = Value::from(value);
        let env = self.tree.map(&["server", "env"]);
        let is_new = env.get(name).is_none_or(|known| *known == value);
        if is_new {
            env.set(name, value);
            self.variables.push(format!("`{name}`"));
        }
        is_new
    }

    pub(super) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|known| known == text) {
            self.notes.push(text.to_owned());
        }
    }

    /// A statement about the files that an expression names; see [`Site::named`].
    pub(super) fn named_files(
        &self,
        statement: &Directive,
        expression: String,
        shuts: bool,
    ) -> NamedFiles {
        NamedFiles {
            place: statement.place,
            expression,
            shuts,
            statement: format!("{}: `{}`", self.place(statement.place), statement.shown()),
        }
    }

    /// Notes statements that give the front controller its path as a parameter: here it gets none.
    pub(super) fn note_parameters(&mut self, all: &[Directive]) {
        const ALL: [&str; 11] = [
            ".", "^", ".*", "^.*", "^.*$", "(.*)", "^(.*)", "^(.*)$", "^(.+)$", "^/(.*)$", "^/(.*)",
        ];
        for it in all {
            self.note_parameters(&it.inside);
            let to = match it.name.to_ascii_lowercase().as_str() {
                "try_files" => it.arguments.last().map_or("", String::as_str),
                "rewrite" | "rewriterule" if ALL.contains(&it.argument(0)) => it.argument(1),
                _ => continue,
            };
            let Some((script, query)) = to.split_once(".php?") else {
                continue;
            };
            let is_path = |value: &str| {
                ["$1", "$0", "$uri", "$request_uri", "/$1"].contains(&value)
                    && !script.contains('$')
            };
            for (name, value) in query.split('&').filter_map(|it| it.split_once('=')) {
                if is_path(value) {
                    let place = self.place(it.place);
                    let shown = it.shown();
                    self.note(&format!(
                        "{place}: `{shown}`: the script finds the path in `REQUEST_URI`; `{name}` is not set"
                    ));
                }
            }
        }
    }

    pub(super) fn http(&mut self) -> &mut Tree {
        self.tree.map(&["http"])
    }

    pub(super) fn section(&mut self, name: &str) -> &mut Tree {
        self.tree.map(&["http", name])
    }

    pub(super) fn uses(&mut self, middleware: &'static str) {
        if !self.middleware.contains(&middleware) {
            self.middleware.push(middleware);
        }
    }

    pub(super) fn compress(&mut self, types: Vec<String>) {
        self.uses("compress");
        if !types.is_empty() {
            self.section("compress").set("types", types);
        }
    }

    pub(super) fn response_field(&mut self, name: &str, value: &str) {
        self.uses("headers");
        self.tree
            .map(&["http", "headers", "response"])
            .set(name, value);
    }

    /// `max-age` in seconds, as a whole number of hours where it is one.
    pub(super) fn hsts(&mut self, value: &str) {
        let words = value.split(';').map(str::trim);
        for word in words {
            let age = word.strip_prefix("max-age=").map(str::parse::<u64>);
            if let Some(Ok(seconds)) = age {
                let age = if seconds % 3600 == 0 {
                    format!("{}h", seconds / 3600)
                } else {
                    format!("{seconds}s")
                };
                self.tree.map(&["http", "ssl", "hsts"]).set("max_age", age);
            }
        }
    }

    /// A page for a status. False for a script: its source would be sent.
    pub(super) fn error_page(&mut self, status: &str, file: &str) -> bool {
        if is_php_source(file) || file.contains('?') {
            return false;
        }
        self.uses("error_pages");
        let pages = self.tree.map(&["http", "error_pages", "pages"]);
        pages.set(status, file);
        true
    }

    /// Limits a rule to the hosts of its site, if there are others: one alone answers for all.
    pub(super) fn for_hosts(&self, rule: &mut Tree, site: &Site) {
        if self.has_many {
            set_hosts(rule, &site.names);
        }
    }

    pub(super) fn rewrite(&mut self, rule: Tree) {
        self.uses("rewrite");
        self.http().push("rewrite", Value::Map(rule));
    }

    /// A rule that stands behind what routes refuse: it must not carry that away from them.
    pub(super) fn rewrite_unless_refused(&mut self, mut rule: Tree) {
        rule.set("unless_refused", true);
        self.rewrite(rule);
    }

    /// Takes `unless_refused` away if no route closes anything.
    fn simplify_rewrites(&mut self) {
        let http = self.http();
        let closes = |it: &Value| {
            let keys = ["refuse", "basic_auth"];
            matches!(it, Value::Map(route) if keys.iter().any(|key| route.get(key).is_some()))
        };
        if matches!(http.get("routes"), Some(Value::List(all)) if all.iter().any(closes)) {
            return;
        }
        if let Some(Value::List(rules)) = http.get_mut("rewrite") {
            for rule in rules {
                if let Value::Map(rule) = rule {
                    rule.remove("unless_refused");
                }
            }
        }
    }

    /// nginx applies the rewrites of a server before it looks for a location. So they may lead out
    /// of paths that a location closes: that is as it was there, and few know it.
    fn tell_opened(&mut self) {
        let Some(settings) = http_settings(&self.tree.to_yaml()) else {
            return;
        };
        for opened in settings.opened_paths() {
            let Some(Value::List(rules)) = self.http().get_mut("rewrite") else {
                return;
            };
            if let Some(Value::Map(rule)) = rules.get_mut(opened.rule) {
                rule.set("unless_refused", false);
            }
            self.limits.push(format!(
                "`http.rewrite[{}]` leads `{}` to `{}` before `http.routes[{}]` can close it, as \
                 the converted file did: nobody is refused there, or asked for a password; write \
                 `unless_refused: true` in the rule to let the route answer",
                opened.rule, opened.path, opened.target, opened.route
            ));
        }
    }

    pub(super) fn send_files_of(&mut self, prefix: &str, root: &str) {
        self.uses("sendfile");
        let mut location = Tree::default();
        location.set("prefix", prefix).set("root", root);
        self.section("sendfile")
            .push("locations", Value::Map(location));
    }

    /// Sends files of a directory of one site.
    pub(super) fn serve_files(&mut self, files: Tree) {
        self.serves_of_one = true;
        self.serve(files);
    }

    fn serve(&mut self, files: Tree) {
        self.uses("static");
        let (settings, files) = (self.section("static"), Value::Map(files));
        if !matches!(settings.get("serve"), Some(Value::List(all)) if all.contains(&files)) {
            settings.push("serve", files);
        }
    }

    /// The whole, with pools and routes for its sites.
    ///
    /// # Errors
    ///
    /// For a person: there are too many sites.
    pub(super) fn finish(mut self) -> Result<Self, String> {
        self.sites
            .retain(|site| site.root.is_some() || !site.pool.is_empty() || site.has_rules());
        if self.sites.len() > MOST_SITES {
            return Err(format!(
                "there are more than {MOST_SITES} sites: give them in parts"
            ));
        }
        let closed = self.sites.iter_mut().flat_map(Site::close_with_front);
        self.limits.extend(closed);
        self.merge_sites();
        self.place_files();
        self.redirect_to_tls();
        self.addresses();
        self.certificates();
        self.guard_static();
        self.warn_of_variables();
        self.use_middleware();
        // A site without a root has no pool; as the default one, it closes what has no name.
        let mut sites = std::mem::take(&mut self.sites);
        self.leave_out_unreachable(&mut sites);
        let closes_rest = sites
            .iter()
            .any(|it| it.root.is_none() && it.names.is_empty() && it.is_closed());
        self.leave_out_rootless(&mut sites);
        self.order(&mut sites);
        self.pools_and_routes(sites, closes_rest);
        self.simplify_rewrites();
        self.tell_opened();
        if self.http().get("address").is_none() && self.tree.map(&["http"]).get("ssl").is_none() {
            self.http().set("address", ":80");
        }
        Ok(self)
    }

    /// The environment is one for all sites.
    fn warn_of_variables(&mut self) {
        if self.sites.len() > 1 && !self.variables.is_empty() {
            self.variables.dedup();
            let names = self.variables.join(", ");
            self.limits.push(format!(
                "{}: {names} of one site: `server.env` is for the scripts of all sites",
                self.file()
            ));
        }
    }

    fn use_middleware(&mut self) {
        if !self.middleware.is_empty() {
            let used = MIDDLEWARE
                .iter()
                .filter(|name| self.middleware.contains(name));
            let used: Vec<String> = used.map(|name| (*name).to_owned()).collect();
            self.http().set("middleware", used);
        }
    }

    /// A site without a root stays only if none has one.
    fn leave_out_rootless(&mut self, sites: &mut Vec<Site>) {
        let has_root = sites.iter().any(|site| site.root.is_some());
        for site in sites.iter().filter(|it| has_root && it.root.is_none()) {
            let place = self.place(site.place);
            let text = format!("{place}: {}, which has no root", site.shown());
            if site.rules.iter().any(Rule::refuses) {
                let text = format!(
                    "{text}: paths that it refuses are open; pass the file that has its root, too"
                );
                self.limits.push(text);
            } else {
                self.left_out.push(text);
            }
        }
        sites.retain(|site| {
            let says_more = !site.pool.is_empty() || site.has_rules();
            site.root.is_some() || (!has_root && says_more)
        });
    }

    /// A site without a name is never asked at an address at which another one is the default.
    fn leave_out_unreachable(&mut self, sites: &mut Vec<Site>) {
        let Some(default) = sites
            .iter()
            .find(|it| it.is_default && it.root.is_some() && !it.names.is_empty())
            .cloned()
        else {
            return;
        };
        sites.retain(|site| {
            let stays = !site.names.is_empty() || site.is_default || !site.meets(&default);
            if !stays {
                let place = self.place(site.place);
                self.left_out.push(format!(
                    "{place}: {}: {} is the default at its address",
                    site.shown(),
                    default.shown()
                ));
            }
            stays
        });
    }

    /// Puts the site for hosts that nobody names first, and routes in the order in which they hold.
    fn order(&mut self, sites: &mut [Site]) {
        let nameless = sites.iter().position(|it| it.names.is_empty());
        if let Some(first) = nameless.or_else(|| sites.iter().position(|it| it.is_default)) {
            sites[..=first].rotate_right(1);
        }
        // The first site that names a host has it: those that name one come before those below it.
        if let Some((_, others)) = sites.split_first_mut() {
            others.sort_by_key(|site| site.names.iter().map(|it| turn(it)).max().unwrap_or(0));
        }
        for site in sites {
            let shown = site.shown();
            let out = site.order_routes();
            self.left_out
                .extend(out.iter().map(|it| format!("{shown}: {it}")));
        }
    }

    /// A pool and routes for each site, and a pool for each application below one.
    fn pools_and_routes(&mut self, sites: Vec<Site>, closes_rest: bool) {
        let mut taken = std::collections::HashSet::from(["default".to_owned()]);
        let many = sites.len() > 1;
        // The first one answers for hosts that nobody names: its routes come last.
        let mut last = Vec::new();
        let (mut routes, mut applications) = (Vec::<(usize, Vec<Tree>)>::new(), Vec::new());
        let names: Vec<Vec<String>> = sites.iter().map(|site| site.names.clone()).collect();
        for (nth, site) in sites.into_iter().enumerate() {
            let name = if many {
                let first = site.names.first().map_or("", String::as_str);
                pool_name(first, nth, &mut taken)
            } else {
                "default".to_owned()
            };
            self.pool_of(&site, nth, many.then_some(&*name));
            let is_below = |it: &String| {
                let others = names.iter().enumerate().filter(|(other, _)| *other != nth);
                others.flat_map(|(_, it)| it).any(|wild| covers(wild, it))
            };
            let is_below = site.names.iter().any(is_below);
            let is_default = nth == 0 && !closes_rest;
            let hosts: &[String] = if is_default && !is_below {
                &[]
            } else {
                &site.names
            };
            let mut own = Vec::new();
            site_routes(&site, hosts, &name, many, &mut own, |path, pool| {
                let name = pool_name(path, 0, &mut taken);
                applications.push((name.clone(), pool));
                name
            });
            if is_below {
                // Each of its names comes before those of others that are found in it.
                let mut turns: Vec<usize> = hosts.iter().map(|it| turn(it)).collect();
                turns.sort_unstable();
                turns.dedup();
                for at in turns {
                    let of_turn = hosts.iter().filter(|it| turn(it) == at).cloned();
                    let of_turn: Vec<_> = of_turn.collect();
                    routes.push((at, for_hosts(own.clone(), &of_turn)));
                }
            }
            if nth == 0 && (is_default || !is_below) {
                last = for_hosts(own, if is_default { &[] } else { hosts });
            } else if !is_below {
                let at = hosts.iter().map(|it| turn(it)).max().unwrap_or(0);
                routes.push((at, own));
            }
            if closes_rest && nth == 0 && !hosts.is_empty() {
                let mut route = Tree::default();
                route.set("pool", name.as_str()).merge(refusal(NOT_FOUND));
                last.push(route);
            }
        }
        for (name, pool) in applications {
            let into = self.tree.map(&["http", "pools", &name]);
            into.set("mode", "classic").merge(pool);
        }
        routes.sort_by_key(|(turn, _)| *turn);
        let routes = routes.into_iter().flat_map(|(_, routes)| routes);
        for route in routes.chain(last) {
            self.http().push("routes", Value::Map(route));
        }
    }

    /// The pool of a site, by its name where there are several.
    fn pool_of(&mut self, site: &Site, nth: usize, name: Option<&str>) {
        let pool = match name {
            Some(name) => self.tree.map(&["http", "pools", name]),
            None => self.tree.map(&["http", "pool"]),
        };
        if pool.get("mode").is_none() {
            pool.set("mode", "classic");
        }
        if let Some(root) = &site.root {
            pool.set("root", root.as_str());
        }
        pool.merge(site.pool.clone());
        if nth > 0 && pool.get("num_workers").is_none() && pool.get("max_workers").is_none() {
            pool.set("num_workers", 2);
        }
    }

    /// Sites of the same names: with TLS and without it, mostly.
    fn merge_sites(&mut self) {
        let mut first: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        let mut sites: Vec<Site> = Vec::new();
        // A server that has scripts and files keeps its names.
        self.sites.sort_by_key(|site| site.root.is_none());
        for mut site in std::mem::take(&mut self.sites) {
            let known = if site.names.is_empty() {
                sites.iter().position(|it| it.names.is_empty())
            } else {
                site.names.iter().find_map(|name| first.get(name)).copied()
            };
            let Some(known) = known.and_then(|at| sites.get_mut(at)) else {
                for name in &site.names {
                    first.insert(name.clone(), sites.len());
                }
                sites.push(site);
                continue;
            };
            if known.root != site.root {
                let place = self.place(site.place);
                self.left_out.push(format!(
                    "{place}: {}, which another site has: here, a host leads to one site at all \
                     addresses",
                    site.shown()
                ));
            }
            let is_same = known.root == site.root;
            let rules = site.rules.iter().filter(|it| is_same || it.refuses());
            known.rules.extend(rules.cloned());
            known.closed = known.closed.take().or(site.closed);
            known.rest = known.rest.take().or(site.rest);
            if known.whole.is_empty() && is_same {
                known.whole = site.whole.clone();
            }
            known.listens.append(&mut site.listens);
            known.is_default |= site.is_default;
            if known.certificate == (None, None) {
                known.certificate = site.certificate;
            }
            if known.root == site.root {
                site.pool.merge(std::mem::take(&mut known.pool));
                known.pool = site.pool;
                for one in site.below {
                    if !known.below.contains(&one) {
                        known.below.push(one);
                    }
                }
                for files in site.files {
                    if !known.files.contains(&files) {
                        known.files.push(files);
                    }
                }
                known.backends.extend(site.backends);
            }
        }
        self.sites = sites;
    }

    /// Directories of files: those of all sites are sent before routes are asked. One of some sites
    /// has a pool, which is asked for their hosts alone.
    fn place_files(&mut self) {
        let has_root = self.sites.iter().any(|site| site.root.is_some());
        let is_site = |site: &&Site| site.root.is_some() || !has_root;
        let of_sites: Vec<_> = self
            .sites
            .iter()
            .filter(is_site)
            .map(|it| &it.files)
            .collect();
        let Some((first, others)) = of_sites.split_first() else {
            return;
        };
        // A file that the inner one lacks would be sent from the one around it.
        let is_nested = |it: &Files| {
            let mut others = first.iter().filter(|other| other.prefix != it.prefix);
            others.any(|other| is_in(&it.prefix, &other.prefix) || is_in(&other.prefix, &it.prefix))
        };
        let is_of_all =
            |it: &&Files| !is_nested(it) && others.iter().all(|files| files.contains(it));
        let of_all: Vec<Files> = first.iter().filter(is_of_all).cloned().collect();
        for files in &of_all {
            let mut entry = Tree::default();
            entry
                .set("prefix", files.prefix.as_str())
                .set("root", files.root.as_str());
            if !files.index.is_empty() {
                entry.set("index", files.index.clone());
            }
            self.serve(entry);
        }
        for site in &mut self.sites {
            site.files.retain(|it| !of_all.contains(it));
            let paths = of_all.iter().map(|it| it.prefix.clone());
            let paths: Vec<_> = paths.filter(|_| site.root.is_some()).collect();
            for path in paths {
                site.rest_of_files(At::Below(path), Rank::Inner);
            }
        }
    }

    /// Leads all hosts to TLS, if a site has it: else a redirect would lead to itself.
    fn redirect_to_tls(&mut self) {
        let has_tls = self.sites.iter().any(|site| {
            site.certificate != (None, None) || site.listens.iter().any(|(_, is_tls)| *is_tls)
        });
        for redirect in std::mem::take(&mut self.to_tls) {
            if !has_tls {
                let shown = redirect.shown;
                self.left_out.push(format!(
                    "{shown}: no site has TLS, so it would lead to itself; with a \
                     certificate in `http.ssl`, `redirect: true` leads there"
                ));
                continue;
            }
            self.section("ssl").set("redirect", true);
            if let Some(address) = redirect.address
                && self.http().get("address").is_none()
            {
                self.http().set("address", address);
            }
            if redirect.has_files {
                self.note("files below `/.well-known` are sent with TLS, to which clients are led");
            }
        }
    }

    /// All sites answer at all addresses here.
    fn addresses(&mut self) {
        let mut sites = std::mem::take(&mut self.sites);
        let is_open = sites
            .iter()
            .any(|site| !site.is_inner() && site.root.is_some());
        for is_tls in [false, true] {
            let of = |site: &Site| -> Vec<String> {
                let all = site.listens.iter().filter(|(_, tls)| *tls == is_tls);
                all.map(|(address, _)| address.clone()).collect()
            };
            let open = sites.iter().filter(|site| !(is_open && site.is_inner()));
            let mut all: Vec<String> = open.flat_map(of).collect();
            // The first address of all counts.
            all.dedup();
            let Some(address) = all.first().cloned() else {
                continue;
            };
            if is_tls {
                self.section("ssl").set("address", address.as_str());
            } else {
                self.http().set("address", address.as_str());
            }
            for site in &mut sites {
                let own = of(site);
                if own.is_empty() || own.contains(&address) {
                    let others: Vec<_> = own.into_iter().filter(|it| *it != address).collect();
                    if !others.is_empty() {
                        let place = self.place(site.place);
                        self.left_out.push(format!(
                            "{place}: the address `{}`: `http.listen` takes more addresses, for \
                             all sites",
                            others.join("`, `")
                        ));
                    }
                    continue;
                }
                let place = self.place(site.place);
                let shown = site.shown();
                if site.is_inner() {
                    site.close("");
                    self.limits.push(format!(
                        "{place}: {shown} only listened at `{}`, and all sites answer at all \
                         addresses here: {ALL_CLOSED}; give it a server of its own",
                        own.join("`, `")
                    ));
                } else {
                    self.left_out.push(format!(
                        "{place}: {shown} at `{}`: all sites answer at `{address}`",
                        own.join("`, `")
                    ));
                }
            }
        }
        self.sites = sites;
    }

    /// The first certificate, and others by the host names in them.
    fn certificates(&mut self) {
        let mut all: Vec<(Option<String>, Option<String>)> = Vec::new();
        for site in &self.sites {
            if site.certificate != (None, None) && !all.contains(&site.certificate) {
                all.push(site.certificate.clone());
            }
        }
        for (nth, (cert, key)) in all.into_iter().enumerate() {
            let mut entry = Tree::default();
            if let Some(cert) = cert {
                entry.set("cert", cert);
            }
            if let Some(key) = key {
                entry.set("key", key);
            }
            if nth == 0 {
                self.section("ssl").merge(entry);
            } else {
                self.section("ssl").push("certificates", Value::Map(entry));
            }
        }
    }

    /// Files are sent before routes are looked at: none below paths that are closed.
    fn guard_static(&mut self) {
        if self.http().get("static").is_none() {
            return;
        }
        if self.sites.len() > 1 {
            // A folder of one site would be sent for the hosts of all.
            let files = self.section("static");
            if files.get("dir").is_some() {
                files.remove("dir");
                files.remove("max_age");
                let text = "`max_age` of one site's files: `http.static` is for all sites";
                self.left_out.push(text.to_owned());
            }
            if self.serves_of_one {
                let text = "`http.static.serve`: its folders are sent for the hosts of all sites";
                self.limits.push(text.to_owned());
            }
        }
        if self.sites.iter().any(Site::is_closed) {
            self.http().remove("static");
            self.middleware.retain(|it| *it != "static");
            let text = "`http.static`, which would send files of a site that is closed";
            return self.left_out.push(text.to_owned());
        }
        let closes_rest = self.sites.iter().any(|it| it.rest.is_some());
        let rules = self.sites.iter().flat_map(|it| &it.rules);
        let closes = |it: &&Rule| it.refuses() || it.sends_none();
        let refusals = rules.filter(|it| closes(it) && it.is_for_all() && !it.after_files);
        let refusals: Vec<At> = refusals.map(|it| it.at.clone()).collect();
        let meets = |prefix: &str| refusals.iter().any(|at| at.meets(prefix));
        let mut endings: Vec<String> = refusals.iter().flat_map(At::endings).collect();
        endings.sort();
        endings.dedup();
        let mut out = Vec::new();
        let files = self.section("static");
        if matches!(files.get("serve"), Some(Value::List(all)) if all.is_empty()) {
            files.remove("serve");
        }
        if files.get("dir").is_some() {
            if meets("") || closes_rest {
                files.remove("dir");
                files.remove("max_age");
                let text = "`max_age`, as it would send files below paths that are closed";
                out.push(text.to_owned());
            } else if !endings.is_empty() {
                files.set("forbid", endings.clone());
            }
        }
        if let Some(Value::List(all)) = files.get_mut("serve") {
            all.retain_mut(|it| {
                let Value::Map(files) = it else {
                    return true;
                };
                let Some(Value::Text(prefix)) = files.get("prefix").cloned() else {
                    return true;
                };
                let stays = !meets(&prefix);
                if stays {
                    for ending in &endings {
                        files.push("forbid", ending.as_str());
                    }
                } else {
                    out.push(format!(
                        "the files of `{prefix}`, a path that is closed in part"
                    ));
                }
                stays
            });
            if all.is_empty() {
                files.remove("serve");
            }
        }
        if files.is_empty() {
            self.http().remove("static");
            self.middleware.retain(|it| *it != "static");
        }
        self.left_out.extend(out);
    }
}

fn taken(at: &At) -> String {
    let path = at.written();
    format!("what holds for `{path}`, a path that is closed or taken")
}

/// What holds for a site that could not be limited.
pub(super) const ALL_CLOSED: &str =
    "the whole site is answered 404; take `refuse: 404` out of its route to open it";

/// Whether the server takes a rule: its expressions are not those of others.
pub(super) fn accepts_rule(rule: &Tree) -> bool {
    let mut tree = Tree::default();
    let http = tree.map(&["http"]);
    http.set("address", ":80");
    http.map(&["pool"]).set("mode", "classic").set("root", ".");
    http.push("rewrite", Value::Map(rule.clone()));
    mistake(&tree.to_yaml()).is_none()
}

/// Whether the server takes the keys of a route.
fn accepts_route(keys: &Tree) -> bool {
    let mut tree = Tree::default();
    let http = tree.map(&["http"]);
    http.set("address", ":80");
    http.map(&["pool"]).set("mode", "classic").set("root", ".");
    http.push("routes", Value::Map(keys.clone()));
    mistake(&tree.to_yaml()).is_none()
}

/// Whether an expression is found in a path; so it is where that cannot be told. One that looks
/// around is found in no more than without that.
pub(super) fn is_found(expression: &str, path: &str) -> bool {
    match PathPattern::parse(&format!("~ {expression}")) {
        Ok(pattern) => pattern.gets(path),
        Err(_) => without_looking_around(expression).is_none_or(|wider| is_found(&wider, path)),
    }
}

/// The section `http` of a configuration, if it can be read.
pub(super) fn http_settings(yaml: &str) -> Option<HttpSettings> {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let resolved = loaded.resolve_with(Severity::Warning, |t| {
        t.optional_section::<HttpSettings>("http", "")
    });
    resolved.into_settings().ok().flatten()
}

/// What the server would refuse of a configuration.
pub(super) fn mistake(yaml: &str) -> Option<String> {
    let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
    let services = Services::default();
    let resolved = loaded.resolve_with(Severity::Warning, |t| Settings::read_with(t, &services));
    let report = resolved.report();
    let wrong = report.iter().find(|it| it.severity == Severity::Error);
    wrong.map(|it| format!("{}: {}", it.place, it.message))
}

fn site_routes(
    site: &Site,
    hosts: &[String],
    pool: &str,
    many: bool,
    routes: &mut Vec<Tree>,
    mut application: impl FnMut(&str, Tree) -> String,
) {
    let known = routes.len();
    let with_hosts = || {
        let mut route = Tree::default();
        set_hosts(&mut route, hosts);
        route
    };
    let is_front = |keys: &Tree| keys.get("pool") == Some(&Value::from(FRONT));
    let front = if site.rules.iter().any(Rule::sends_none) || is_front(&site.whole) {
        let mut alone = Tree::default();
        if let Some(root) = &site.root {
            alone.set("root", root.as_str());
        }
        alone.merge(site.pool.clone());
        alone.set("forbid", vec!["*".to_owned()]);
        application("front", alone)
    } else {
        String::new()
    };
    let mut led: BTreeMap<&str, String> = BTreeMap::new();
    for rule in &site.rules {
        let Some(Value::Text(pool)) = rule.keys.get("pool") else {
            continue;
        };
        if let Some(script) = pool.strip_prefix(LED_TO)
            && !led.contains_key(pool.as_str())
        {
            let mut own = Tree::default();
            if let Some(root) = &site.root {
                own.set("root", root.as_str());
            }
            own.merge(site.pool.clone());
            own.set("fallback", script);
            let directory = script.rsplit_once('/').map_or(script, |(it, _)| it);
            led.insert(pool, application(directory, own));
        }
    }
    // An open path among hidden names is no more open than the rest.
    let open_hidden = |rule: &Rule| rule.rank == Rank::Hidden && rule.keys.is_empty();
    let of_rules = |(paths, keys): (Vec<String>, Tree)| {
        let mut route = with_hosts();
        match &paths[..] {
            [path] => _ = route.set("path", path_value(path)),
            _ => _ = route.set("path", paths),
        }
        if many && keys.get("refuse").is_none() {
            route.set("pool", pool);
        }
        route.merge(keys);
        if is_front(&route) {
            route.set("pool", front.as_str());
        }
        if let Some(Value::Text(pool)) = route.get("pool")
            && let Some(name) = led.get(pool.as_str())
        {
            let name = name.clone();
            route.set("pool", name);
        }
        route
    };
    let whole = || {
        let mut route = with_hosts();
        if many {
            route.set("pool", pool);
        }
        route.merge(match &site.closed {
            Some(status) => refusal(status),
            None => site
                .rest
                .as_deref()
                .map_or_else(|| site.whole.clone(), refusal),
        });
        if is_front(&route) {
            route.set("pool", front.as_str());
        }
        route
    };
    if site.is_closed() {
        return routes.push(whole());
    }
    let is_first = |rule: &&Rule| rule.rank <= Rank::Hidden;
    let first = site.rules.iter().filter(is_first).cloned().map(|mut rule| {
        if open_hidden(&rule) {
            let rest = site.rest.as_deref().map(refusal);
            rule.keys = rest.unwrap_or_else(|| site.whole.clone());
        }
        rule
    });
    let first: Vec<Rule> = first.collect();
    routes.extend(joined(first.iter()).map(of_rules));
    for (path, below, _) in &site.below {
        let mut below = below.clone();
        if below.get("num_workers").is_none() && below.get("max_workers").is_none() {
            below.set("num_workers", 2);
        }
        let name = application(path, below);
        let mut route = with_hosts();
        route
            .set("path", path_value(&At::Below(path.clone()).written()))
            .set("pool", name)
            .set("strip_prefix", path.as_str());
        routes.push(route);
    }
    let mut files: Vec<&Files> = site.files.iter().collect();
    files.sort_by_key(|it| std::cmp::Reverse(it.prefix.len()));
    for it in files {
        let mut alone = Tree::default();
        alone.set("root", it.root.as_str()).set("num_workers", 1);
        if !it.index.is_empty() {
            alone.set("index", it.index.clone());
        }
        let name = application(&it.prefix, alone);
        let mut route = with_hosts();
        route
            .set("path", path_value(&At::Below(it.prefix.clone()).written()))
            .set("pool", name)
            .set("strip_prefix", it.prefix.as_str())
            .merge(scripts("none"));
        routes.push(route);
    }
    routes.extend(joined(site.rules.iter().filter(|it| !is_first(it))).map(of_rules));
    let is_guarded = site.guard.is_some();
    if many || !hosts.is_empty() || !site.whole.is_empty() || site.rest.is_some() || is_guarded {
        routes.push(whole());
    }
    for route in routes.iter_mut().skip(known) {
        let own = [OPEN, "refuse", "basic_auth"];
        let is_open = own.iter().any(|key| route.get(key).is_some());
        route.remove(OPEN);
        if let Some(guard) = site.guard.as_ref().filter(|_| !is_open) {
            route.set("basic_auth", guard.clone());
        }
    }
}

/// The turn of a host among others: its own name first, then the longest of those with a star.
fn turn(host: &str) -> usize {
    if host.starts_with("*.") {
        usize::MAX - host.len()
    } else {
        0
    }
}

/// Whether a name with a star is about another host or name.
fn covers(wild: &str, host: &str) -> bool {
    let (wild, host) = (wild.to_ascii_lowercase(), host.to_ascii_lowercase());
    let end = wild.strip_prefix('*').filter(|it| it.starts_with('.'));
    wild != host && end.is_some_and(|end| host.ends_with(end))
}

/// Limits a rule or a route to hosts; none are all of them.
fn set_hosts(rule: &mut Tree, hosts: &[String]) {
    match hosts {
        [] => rule.remove("host"),
        [host] => _ = rule.set("host", host.as_str()),
        _ => _ = rule.set("host", hosts.to_vec()),
    }
}

/// Routes of a site for these of its hosts.
fn for_hosts(mut routes: Vec<Tree>, hosts: &[String]) -> Vec<Tree> {
    for route in &mut routes {
        set_hosts(route, hosts);
    }
    routes
}

/// Rules that follow one another and say the same, as one: their paths, and their keys.
fn joined<'a>(rules: impl Iterator<Item = &'a Rule>) -> impl Iterator<Item = (Vec<String>, Tree)> {
    let mut all: Vec<(Vec<String>, Tree)> = Vec::new();
    for rule in rules {
        let path = rule.at.written();
        match all.last_mut() {
            Some((paths, keys)) if *keys == rule.keys => paths.push(path),
            _ => all.push((vec![path], rule.keys.clone())),
        }
    }
    all.into_iter()
}

/// Whether a path is another one, or below it.
pub(super) fn is_in(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'/', ..]))
}

/// A folder, or a script, below a root.
pub(super) fn no_scripts(pool: &mut Tree, path: &str) {
    let path = Value::from(path.trim_matches('/'));
    let is_known = matches!(pool.get("no_scripts"), Some(Value::List(all)) if all.contains(&path));
    if !is_known {
        pool.push("no_scripts", path);
    }
}

/// A name for a pool that no other one has: the first word of a host, or the whole of it.
fn pool_name(text: &str, nth: usize, taken: &mut std::collections::HashSet<String>) -> String {
    let short = text.trim_start_matches("*.").trim_start_matches("www.");
    let whole: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let whole = whole.trim_matches('-').to_owned();
    let mut names = vec![name_of(short, nth)];
    if whole.starts_with(|c: char| c.is_ascii_alphabetic()) {
        names.push(whole);
    }
    let numbered = names.last().cloned().unwrap_or_default();
    let mut names = names
        .into_iter()
        .chain((2..).map(|n: u32| format!("{numbered}-{n}")));
    loop {
        let name = names.next().unwrap_or_default();
        if taken.insert(name.clone()) {
            return name;
        }
    }
}

/// A name for a pool: the first word that is one.
fn name_of(text: &str, nth: usize) -> String {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    word.map_or_else(|| format!("site{}", nth + 1), str::to_ascii_lowercase)
}

/// Seconds of `30d`, `12h`, `5m`, `60s` or `60`.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let count: u64 = digits.parse().ok()?;
    let unit = match text.get(digits.len()..)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "M" => 30 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    count.checked_mul(unit)
}

/// `1m` or `64k` as a size of ours, and bytes too.
pub(super) fn size(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    // 0 is no limit there, and the default here.
    let count: u64 = digits.parse().ok().filter(|count| *count > 0)?;
    let is_even = |of: u64| count.is_multiple_of(of);
    Some(match lower.get(digits.len()..)? {
        "k" | "kb" => format!("{count}KB"),
        "m" | "mb" => format!("{count}MB"),
        "g" | "gb" => format!("{}MB", count.checked_mul(1024)?),
        "" if is_even(1 << 20) => format!("{}MB", count >> 20),
        "" if is_even(1 << 10) => format!("{}KB", count >> 10),
        "" => format!("{}KB", count.div_ceil(1 << 10)),
        _ => return None,
    })
}

/// A pattern as ours are written: `\d` takes digits of all scripts.
pub(super) fn pattern(text: &str) -> String {
    text.replace("\\d", "[0-9]").replace("\\/", "/")
}

/// `$1` as `{1}`.
pub(super) fn target(text: &str) -> String {
    let mut out = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letters.next_if(|next| letter == '$' && next.is_ascii_digit()) {
            Some(digit) => out.extend(['{', digit, '}']),
            None => out.push(letter),
        }
    }
    out
}

/// Whether a name is that of a script: servers look at its letters' case.
pub(super) fn is_script(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, ending)| ending == "php")
}

/// A pattern that fits this text alone.
pub(super) fn as_it_is(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| {
        let is_plain = c.is_ascii_alphanumeric() || "/_-".contains(c);
        (!is_plain).then_some('\\').into_iter().chain([c])
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    /// Hosts of the routes for all paths, each with its pool.
    fn hosts(text: &str) -> Vec<(String, String)> {
        let directory = Directory::with(&[("site.conf", text)]);
        let made = crate::convert(&[directory.join("site.conf")]).unwrap();
        let yaml = made.yaml;
        let input = pronghorn_config::Input::from_text("pronghorn.yaml", yaml);
        let json = pronghorn_config::load(&input).to_json(&pronghorn_config::Effective::default());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let routes = json["http"]["routes"].as_array().cloned();
        let whole = routes.unwrap_or_default().into_iter();
        let whole = whole.filter(|it| it["path"].is_null());
        whole
            .map(|it| {
                let host = match &it["host"] {
                    serde_json::Value::Array(all) => {
                        let all = all.iter().filter_map(|it| it.as_str());
                        all.collect::<Vec<_>>().join(" ")
                    }
                    one => one.as_str().unwrap_or("*").to_owned(),
                };
                let pool = it["pool"].as_str().unwrap_or_default();
                let root = &json["http"]["pools"][pool]["root"];
                (host, root.as_str().unwrap_or_default().to_owned())
            })
            .collect()
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(host, root): &(&str, &str)| ((*host).to_owned(), (*root).to_owned());
        of.iter().map(owned).collect()
    }

    fn server(listen: &str, names: &str, root: &str) -> String {
        format!(
            "server {{ listen {listen}; server_name {names}; root {root}; location ~ \\.php$ \
             {{ fastcgi_pass unix:/x; }} }}\n"
        )
    }

    #[test]
    fn a_name_of_the_default_site_comes_before_a_star_of_another() {
        let wild = server("80", "*.example", "/b");
        let made = hosts(&(server("80", "a.example", "/a") + &wild));
        let expected = [("a.example", "/a"), ("*.example", "/b"), ("*", "/a")];
        assert_eq!(made, pairs(&expected));
        // One of its names alone is below the other's.
        let made = hosts(
            &(server("80", "d.test", "/d")
                + &server("80", "x.example *.test", "/a")
                + &server("80", "*.example", "/b")),
        );
        let expected = [
            ("d.test", "/d"),
            ("x.example", "/a"),
            ("*.example", "/b"),
            ("*.test", "/a"),
            ("*", "/d"),
        ];
        assert_eq!(made, pairs(&expected));
        // Nothing of it is below another name.
        let made = hosts(&(server("80", "a.test", "/a") + &wild));
        assert_eq!(made, pairs(&[("*.example", "/b"), ("*", "/a")]));
    }

    #[test]
    fn the_server_that_is_said_to_be_the_default_is() {
        let made =
            hosts(&(server("80", "a.test", "/a") + &server("80 default_server", "b.test", "/b")));
        assert_eq!(made, pairs(&[("a.test", "/a"), ("*", "/b")]));
        // No host leads to one without a name there.
        let made = hosts(
            &(server("80", "a.test", "/a")
                + &server("80", "_", "/c")
                + &server("80 default_server", "b.test", "/b")),
        );
        assert_eq!(made, pairs(&[("a.test", "/a"), ("*", "/b")]));
    }

    fn yaml(file: &str, text: &str) -> String {
        let directory = Directory::with(&[(file, text)]);
        crate::convert(&[directory.join(file)]).unwrap().yaml
    }

    fn of_nginx(locations: &str) -> String {
        let text = format!(
            "server {{ root /site; location / {{ try_files $uri /index.php; }} {locations} }}"
        );
        yaml("site.conf", &text)
    }

    const EVERY: &str = "location ~ \\.php$ { fastcgi_pass unix:/x; }";

    #[test]
    fn an_expression_that_looks_around_is_found_in_no_more_than_without_that() {
        use super::is_found;
        assert!(!is_found("/\\.(?!well-known)", "/index.php"));
        assert!(is_found("/\\.(?!well-known)", "/.env"));
        assert!(is_found("(a)\\1", "/index.php"), "it can't be told");
        let hidden = "location ~ /\\.(?!well-known).* { deny all; }";
        let made = of_nginx(&format!("{hidden} {EVERY}"));
        assert!(
            !made.contains("fallback") && !made.contains("scripts"),
            "{made}"
        );
    }

    #[test]
    fn scripts_that_an_expression_names_run_where_a_later_one_refuses_the_others() {
        let named = "location ~ ^/(index|a)\\.php$ { fastcgi_pass unix:/x; }";
        let refused = "location ~* \\.(php|cfg)$ { deny all; }";
        let place = |made: &str, text: &str| made.find(text);
        let made = of_nginx(&format!("{named} {refused}"));
        let (run, closed) = (place(&made, "(?-i)^/(index|a)"), place(&made, "cfg"));
        assert!(run.is_some() && run < closed, "{made}");
        // One before it holds first.
        let before = "location ~ ^/a { deny all; }";
        for made in [
            of_nginx(&format!("{refused} {named}")),
            of_nginx(&format!("{before} {named} {refused}")),
        ] {
            assert!(!made.contains("(?-i)"), "{made}");
        }
    }

    #[test]
    fn an_expression_takes_no_path_that_it_is_not_about() {
        let made = of_nginx(&format!("location ~* ^/(?:a|b)\\b {{ deny all; }} {EVERY}"));
        assert!(!made.contains("/.*/$"), "{made}");
        let alias = "location /media/ { alias /site/media/; }";
        let taken = "location ~* \\.(sql)$ { error_page 404 =200 /index.php; }";
        let made = of_nginx(&format!("{alias} {taken} {EVERY}"));
        assert!(made.contains("forbid: [.sql]"), "{made}");
        let sent = "location ~* \\.(css)$ { expires 30d; }";
        for (alias, is_sent) in [
            (alias, true),
            ("location /m/ { alias /site/media/; }", false),
        ] {
            let made = of_nginx(&format!("{alias} {sent} {EVERY}"));
            assert_eq!(made.contains("forbid: [.css]"), !is_sent, "{made}");
        }
        let made = of_nginx(&format!(
            "{} {taken} {EVERY}",
            alias.replace("/media/ {", "^~ /media/ {")
        ));
        assert!(!made.contains("forbid: [.sql]"), "{made}");
    }

    #[test]
    fn what_caddy_hides_below_a_path_is_refused_there() {
        let site = |files: &str| {
            let text = format!(
                "http://a.test:80 {{\n\troot * /site\n\tphp_fastcgi :9000\n\t{files}\n\tfile_server\n}}\n"
            );
            yaml("Caddyfile", &text)
        };
        let made = site("file_server /tmp/* {\n\t\thide *.txt\n\t}");
        assert!(made.contains("^/tmp/(?:.*/)?[^/]*"), "{made}");
        // Wider where it is not about a path alone.
        let made = site("@tmp path /tmp/*.txt\n\tfile_server @tmp {\n\t\thide *.txt\n\t}");
        assert!(
            made.contains("/[^/]*") && made.contains("refuse: 404"),
            "{made}"
        );
    }
}
