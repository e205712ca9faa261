//! A configuration of ours on its way: what the readers of other configurations have in common.

use super::directive::Directive;
use super::tree::{Tree, Value};

/// The first is the innermost, next to PHP.
const MIDDLEWARE: [&str; 6] = [
    "sendfile",
    "static",
    "headers",
    "rewrite",
    "error_pages",
    "compress",
];

/// What a configuration becomes.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) tree: Tree,
    middleware: Vec<&'static str>,
    pub(super) sites: Vec<Site>,
    /// Applications below paths of others, by the names of their pools.
    below: Vec<(String, Tree)>,
    routes: Vec<Tree>,
    /// What has no counterpart, or was not understood.
    pub(super) left_out: Vec<String>,
    /// What is the server's own way, and should be known.
    pub(super) notes: Vec<String>,
}

/// A site: a root with the names that lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) names: Vec<String>,
    pub(super) root: Option<String>,
    /// More keys of its pool.
    pub(super) pool: Tree,
}

impl Draft {
    pub(super) fn leave_out(&mut self, directive: &Directive) {
        let text = directive.shown();
        self.leave_out_text(directive.line, &text);
    }

    pub(super) fn leave_out_text(&mut self, line: usize, text: &str) {
        self.left_out.push(format!("line {line}: `{text}`"));
    }

    pub(super) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|known| known == text) {
            self.notes.push(text.to_owned());
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

    /// The first address of its kind counts.
    pub(super) fn listen(&mut self, address: &str) {
        if self.http().get("address").is_none() {
            self.http().set("address", address);
        }
    }

    pub(super) fn listen_tls(&mut self, address: &str) {
        if self.section("ssl").get("address").is_none() {
            self.section("ssl").set("address", address);
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

    pub(super) fn error_page(&mut self, status: &str, file: &str) {
        self.uses("error_pages");
        let pages = self.tree.map(&["http", "error_pages", "pages"]);
        pages.set(status, file);
    }

    pub(super) fn rewrite(&mut self, rule: Tree) {
        self.uses("rewrite");
        self.http().push("rewrite", Value::Map(rule));
    }

    pub(super) fn send_files_of(&mut self, prefix: &str, root: &str) {
        self.uses("sendfile");
        let mut location = Tree::default();
        location.set("prefix", prefix).set("root", root);
        self.section("sendfile")
            .push("locations", Value::Map(location));
    }

    pub(super) fn serve_files(&mut self, folder: Tree) {
        self.uses("static");
        self.section("static").push("serve", Value::Map(folder));
    }

    pub(super) fn route(&mut self, route: Tree) {
        self.routes.push(route);
    }

    /// Another application below a path.
    pub(super) fn application_below(&mut self, path: &str, mut pool: Tree) {
        let path = path.trim_end_matches('/');
        let name = name_of(path, self.below.len());
        if pool.get("num_workers").is_none() {
            pool.set("num_workers", 2);
        }
        self.below.push((name.clone(), pool));
        let mut route = Tree::default();
        route
            .set("path", format!("{path}/*"))
            .set("pool", name)
            .set("strip_prefix", path);
        self.routes.push(route);
    }

    /// A time limit for applications below paths; false where there are none.
    pub(super) fn limit_below(&mut self, limit: &str) -> bool {
        for (_, pool) in &mut self.below {
            pool.map(&["supervisor"]).set("exec_ttl", limit);
        }
        !self.below.is_empty()
    }

    /// The whole, with pools and routes for its sites.
    pub(super) fn finish(mut self) -> (Tree, Vec<String>, Vec<String>) {
        if !self.middleware.is_empty() {
            let used = MIDDLEWARE
                .iter()
                .filter(|name| self.middleware.contains(name));
            let used: Vec<String> = used.map(|name| (*name).to_owned()).collect();
            self.http().set("middleware", used);
        }
        self.sites
            .retain(|site| site.root.is_some() || !site.pool.is_empty());
        let many = self.sites.len() > 1;
        let (mut by_host, mut first) = (Vec::new(), None);
        for (nth, site) in std::mem::take(&mut self.sites).into_iter().enumerate() {
            let name = match site.names.first() {
                Some(host) => name_of(
                    host.trim_start_matches("*.").trim_start_matches("www."),
                    nth,
                ),
                None => name_of("", nth),
            };
            let path: &[&str] = if many {
                &["http", "pools", &name]
            } else {
                &["http", "pool"]
            };
            let pool = self.tree.map(path);
            if pool.get("mode").is_none() {
                pool.set("mode", "classic");
            }
            if let Some(root) = site.root {
                pool.set("root", root);
            }
            pool.merge(site.pool);
            if many {
                if nth > 0 && pool.get("num_workers").is_none() {
                    pool.set("num_workers", 2);
                }
                if nth == 0 {
                    // The first one answers for hosts that nobody names.
                    let mut route = Tree::default();
                    route.set("pool", name.as_str());
                    first = Some(route);
                } else {
                    for host in &site.names {
                        let mut route = Tree::default();
                        route.set("host", host.as_str()).set("pool", name.as_str());
                        by_host.push(route);
                    }
                }
            }
        }
        by_host.extend(first);
        for (name, pool) in std::mem::take(&mut self.below) {
            self.tree
                .map(&["http", "pools", &name])
                .set("mode", "classic")
                .merge(pool);
        }
        for route in std::mem::take(&mut self.routes).into_iter().chain(by_host) {
            self.http().push("routes", Value::Map(route));
        }
        if self.http().get("address").is_none() && self.tree.map(&["http"]).get("ssl").is_none() {
            self.http().set("address", ":80");
        }
        (self.tree, self.left_out, self.notes)
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
    let count: u64 = digits.parse().ok()?;
    let is_even = |of: u64| count > 0 && count.is_multiple_of(of);
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
