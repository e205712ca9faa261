//! Which scripts a server of nginx gives to php-fpm.

use pronghorn_http::files::is_php_source;

use super::directive::Directive;
use super::draft::{as_it_is, is_found, is_script};
use super::limits::{alternatives_of, endings, limits};

/// Texts before `\.php` in an expression that is found in the path of every script.
const STARTS: [&str; 23] = [
    "", "(", "/.*", "/.+", "/[^/]+", "/[^/]*", ".", ".+", ".*", "^.+", "^.*", "^/.+", "^/.*",
    "[^/]", "(.+", "(.*", "^(.+", "^(.+?", "^(.*", "^(.*?", "^(/.+", "^(/.*", "^/(.+",
];
/// Texts after it where an expression is about scripts, perhaps with a path after their name.
const ENDS: [&str; 11] = [
    "",
    "$",
    "(/|$)",
    "($|/)",
    "(?:/|$)",
    "(?:$|/)",
    "(/.*)?$",
    "(/.+)?$",
    "(?:/.*)?$",
    "(/?.*)$",
    "(.*)$",
];
/// The same, but that there must be a path.
const WITH_PATH: [&str; 3] = ["(/.*)$", "(/.+)$", "(/?.+)$"];

/// The work of php-fpm for a location.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runs {
    Nothing,
    /// The script that the path names, below the site's root.
    Named,
    /// This one, by its path below the site's root.
    Always(String),
    /// Scripts that are not below the site's root.
    Elsewhere,
}

/// A location that all scripts go to which no location before it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum All {
    /// By its number among the server's locations.
    OfServer(usize),
    /// Among those inside `location /`.
    OfRoot(usize),
    /// `location /` itself.
    Root,
}

/// Which scripts a server gives to php-fpm.
pub(super) struct Php<'a> {
    server: &'a Directive,
    /// The directory of the site's files and scripts.
    pub(super) root: Option<String>,
    /// The script that answers for what is no file, with its slash.
    pub(super) front: String,
    all: Option<All>,
}

/// Whether a condition is about the script, and not about who asks for it.
fn asks_for_path(condition: &Directive) -> bool {
    let of_path = [
        "$uri",
        "$document_uri",
        "$request_uri",
        "$request_filename",
        "$fastcgi_script_name",
        "$fastcgi_path_info",
    ];
    let text = condition.arguments.concat();
    of_path.iter().any(|it| text.contains(it))
}

impl<'a> Php<'a> {
    pub(super) fn of(server: &'a Directive) -> Self {
        let mut php = Self {
            server,
            root: None,
            front: "/index.php".to_owned(),
            all: None,
        };
        php.root = php.root();
        if let Some(front) = php.front() {
            php.front = front;
        }
        php.all = php.all();
        php
    }

    /// `location /`.
    pub(super) fn slash(&self) -> Option<&'a Directive> {
        let mut locations = locations(self.server);
        locations.find(|it| matches!(prefix(it), Some((false, "/"))))
    }

    /// The root of the location for all scripts counts first.
    fn root(&self) -> Option<String> {
        let inside = self.slash().into_iter().flat_map(locations);
        let mut all = locations(self.server).chain(inside);
        let of_scripts = all.find(|it| {
            it.has("fastcgi_pass")
                && !it.has("alias")
                && expression(it).is_some_and(takes_every_script)
        });
        let plain = |it: Option<&'a Directive>| {
            let root = it?.find("root")?.argument(0).trim_end_matches('/');
            (!root.contains('$')).then(|| root.to_owned())
        };
        let own = plain(Some(self.server));
        if of_scripts.is_none_or(|it| !it.has("root")) && self.server.has("root") {
            return own;
        }
        plain(of_scripts).or(own).or_else(|| plain(self.slash()))
    }

    fn front(&self) -> Option<String> {
        let slash = self.slash();
        if let Some(slash) = slash
            && let Runs::Always(script) = self.runs(slash, &[])
        {
            return Some(script);
        }
        if let Some(slash) = slash
            && let Some(script) = slash.inside.iter().find_map(leads_all_to)
        {
            return Some(script);
        }
        let mut all = slash.into_iter().chain([self.server]);
        all.find_map(|it| self.led_to(it.find("try_files")?))
    }

    /// The script to which the last word of a `try_files` leads, with its slash.
    pub(super) fn led_to(&self, tries: &Directive) -> Option<String> {
        let last = tries.arguments.last()?;
        if last.starts_with('@') {
            let mut all = locations(self.server);
            let named = all.find(|it| it.arguments == [last.as_str()])?;
            if let Runs::Always(script) = self.runs(named, &[]) {
                return Some(script);
            }
            return named.inside.iter().find_map(leads_all_to);
        }
        let script = last.split(['?', '$']).next().unwrap_or_default();
        (script.starts_with('/') && is_script(script)).then(|| script.to_owned())
    }

    fn all(&self) -> Option<All> {
        let first = |block: &'a Directive, outer: &[&Directive]| {
            let mut all = locations(block).enumerate();
            let first = all.find(|(_, it)| expression(it).is_some_and(takes_every_script));
            let runs = |it: &Directive| !it.has("internal") && self.runs(it, outer) == Runs::Named;
            first.map(|(nth, it)| (nth, runs(it)))
        };
        let slash = self.slash();
        match (first(self.server, &[]), slash.map(|it| first(it, &[it]))) {
            (Some((nth, true)), _) => Some(All::OfServer(nth)),
            (Some((_, false)), _) => None,
            (None, Some(Some((nth, true)))) => Some(All::OfRoot(nth)),
            (None, Some(Some((_, false)))) => None,
            _ => slash
                .is_some_and(|it| self.runs(it, &[]) == Runs::Named)
                .then_some(All::Root),
        }
    }

    /// `outer`: the locations that it stands in, the innermost first.
    pub(super) fn runs(&self, location: &Directive, outer: &[&Directive]) -> Runs {
        if !location.has("fastcgi_pass") || location.has("return") {
            return Runs::Nothing;
        }
        let chain = || std::iter::once(location).chain(outer.iter().copied());
        let root = chain().find_map(|it| it.find("root"));
        let is_other =
            |it: &Directive| Some(it.argument(0).trim_end_matches('/')) != self.root.as_deref();
        // `internal` keeps no front controller from running.
        let is_limited = |it: &Directive| {
            let mut all = it.inside.iter();
            all.any(|it| match &*it.name {
                "internal" | "location" | "return" => false,
                "if" => limits(it) && !asks_for_path(it),
                _ => limits(it),
            })
        };
        if chain().any(|it| it.has("alias") || is_limited(it)) || root.is_some_and(is_other) {
            return Runs::Elsewhere;
        }
        if runs_no_name(location) {
            return Runs::Elsewhere;
        }
        // The server's root counts, where it is not the site's.
        if root.is_none() && self.server.find("root").is_some_and(is_other) {
            return Runs::Elsewhere;
        }
        let script = |it: &Directive| {
            let mut all = it.inside.iter().rev();
            let one =
                all.find(|it| it.name == "fastcgi_param" && it.argument(0) == "SCRIPT_FILENAME");
            one.map(|it| it.argument(1).to_owned())
        };
        let Some(script) = chain().chain([self.server]).find_map(script) else {
            return Runs::Named;
        };
        let roots = ["$document_root", "$realpath_root"];
        let mut below = roots.iter().copied().chain(self.root.as_deref());
        let below = below.find_map(|root| script.strip_prefix(root));
        match below {
            Some(path) if !path.contains('$') && path.starts_with('/') && is_script(path) => {
                Runs::Always(path.to_owned())
            }
            Some(path) if is_name(path.trim_start_matches('/')) => Runs::Named,
            Some(_) => Runs::Elsewhere,
            // In a container of its own, php-fpm may know the same directory by another name.
            None if script.contains("$fastcgi_script_name") || script == "$request_filename" => {
                Runs::Named
            }
            None => Runs::Elsewhere,
        }
    }

    /// Whether the location for all scripts is there.
    pub(super) fn runs_all(&self) -> bool {
        self.all.is_some()
    }

    /// Whether `location /` itself gives the script that a path names to php-fpm.
    pub(super) fn is_root_all(&self) -> bool {
        self.all == Some(All::Root)
    }

    /// Whether an expression's location is asked before that for all scripts, as far as it can be
    /// told.
    pub(super) fn is_before(&self, location: &Directive) -> bool {
        let nth = |block: &Directive| {
            let is_it =
                |it: &Directive| it.place == location.place && it.arguments == location.arguments;
            locations(block).position(is_it)
        };
        match self.all {
            Some(All::OfServer(all)) => nth(self.server).is_none_or(|nth| nth <= all),
            Some(All::OfRoot(all)) => {
                let slash = self.slash().and_then(nth);
                slash.is_none_or(|nth| nth <= all)
            }
            Some(All::Root) | None => true,
        }
    }

    /// Whether the scripts below a plain prefix go to the server's location for all.
    pub(super) fn runs_below(&self) -> bool {
        // A piece of a server may have its scripts elsewhere.
        self.server.name != "server" && !gives_php(self.server)
            || matches!(self.all, Some(All::OfServer(_)))
    }

    /// Whether the front controller runs where a location leads to it.
    pub(super) fn runs_front(&self, front: &str) -> bool {
        // A piece of a server may have its scripts elsewhere.
        if self.server.name != "server" {
            return true;
        }
        let (chain, _) = find(self.server, front);
        let Some((location, outer)) = chain.split_first() else {
            return false;
        };
        match self.runs(location, outer) {
            Runs::Named => true,
            Runs::Always(script) => script == front,
            Runs::Nothing | Runs::Elsewhere => false,
        }
    }

    pub(super) fn server(&self) -> &'a Directive {
        self.server
    }

    /// Whether a script may run here with a path after its name.
    pub(super) fn takes_path_info(&self) -> bool {
        fn takes(block: &Directive) -> bool {
            let is_of_names = |it: &Directive| {
                let end = expression(it).and_then(parts);
                end.is_some_and(|(_, end)| matches!(end, "$" | ")$"))
            };
            locations(block).any(|it| it.has("fastcgi_pass") && !is_of_names(it) || takes(it))
        }
        self.server.has("fastcgi_pass") || takes(self.server)
    }

    /// Whether `/` is led on to a script by `index`, and by nothing else.
    pub(super) fn shows_index(&self, others: &[String]) -> bool {
        let (chain, _) = find(self.server, "/");
        let is_plain = chain.first().is_none_or(|it| {
            it.inside.iter().all(|it| match it.name.as_str() {
                "return" | "rewrite" | "if" | "alias" | "root" | "location" => false,
                "try_files" => it.arguments.iter().any(|it| it == "$uri/"),
                name => !name.ends_with("_pass") && !limits(it),
            })
        });
        is_plain && self.server.has("index") && self.runs_index("/", None, others)
    }

    /// Whether a path is that of `location /` itself, or of none.
    pub(super) fn takes_rest(&self, path: &str) -> bool {
        let (chain, _) = find(self.server, path);
        chain
            .first()
            .is_none_or(|it| matches!(prefix(it), Some((false, "/"))))
    }

    /// Names of files, and not of scripts, that answer for the directories of a location.
    pub(super) fn index_of(&self, location: &Directive, others: &[String]) -> Vec<String> {
        let names = location.find("index").or_else(|| self.server.find("index"));
        let names = names.map_or(others, |it| &it.arguments);
        if names.is_empty() {
            return vec!["index.html".to_owned()];
        }
        let is_name = |it: &&String| !it.contains(['/', '$']) && !is_script(it);
        names.iter().filter(is_name).cloned().collect()
    }

    /// Whether a script answers for a directory, which `index` leads on to. `others`: the names
    /// that stand around the server.
    pub(super) fn runs_index(
        &self,
        directory: &str,
        own: Option<&Directive>,
        others: &[String],
    ) -> bool {
        let names = own.or_else(|| self.server.find("index"));
        let names = names.map_or(others, |it| &it.arguments);
        let mut scripts = names.iter().filter(|it| is_script(it));
        scripts.any(|it| self.runs_front(&format!("{directory}{}", it.trim_start_matches('/'))))
    }

    /// Whether an expression after a location runs scripts.
    pub(super) fn runs_after(&self, location: &Directive) -> bool {
        let mut all = locations(self.server).filter(|it| expression(it).is_some());
        let is_it =
            |it: &Directive| it.place == location.place && it.arguments == location.arguments;
        all.any(is_it) && all.any(gives_php)
    }

    /// Endings of files that expressions take from plain prefixes. `is_own`: no matter which of
    /// them sends the file.
    pub(super) fn taken_endings(&self, is_own: bool) -> Vec<String> {
        let all = locations(self.server).filter(|it| !(is_own && sends_files(it)));
        let mut all: Vec<String> = all
            .filter_map(expression)
            .filter_map(endings)
            .flatten()
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// Whether an expression after a location refuses what is in it, other than all scripts.
    pub(super) fn refuses_after(&self, location: &Directive, is_in: impl Fn(&str) -> bool) -> bool {
        let mut all = locations(self.server);
        let is_it =
            |it: &Directive| it.place == location.place && it.arguments == location.arguments;
        all.any(is_it)
            && all.any(|it| {
                let is = |it: &str| !takes_every_script(it) && is_in(it);
                limits(it) && !it.has("fastcgi_pass") && expression(it).is_some_and(is)
            })
    }

    /// Whether a path is this location's.
    pub(super) fn takes(&self, location: &Directive, path: &str) -> bool {
        let (chain, _) = find(self.server, path);
        chain.first().is_some_and(|it| std::ptr::eq(*it, location))
    }

    /// Locations of longer prefixes below one.
    pub(super) fn longer(&self, path: &str) -> impl Iterator<Item = &'a Directive> {
        let inside = self.slash().into_iter().flat_map(locations);
        locations(self.server).chain(inside).filter(move |it| {
            prefix(it).is_some_and(|(_, it)| it.len() > path.len() && it.starts_with(path))
        })
    }

    /// Whether a longer prefix stands below one, anywhere.
    pub(super) fn has_longer(&self, path: &str) -> bool {
        self.longer(path).next().is_some()
    }

    /// Whether `location /` leads all of its paths to a script, so that it sends no file.
    pub(super) fn leads_all(&self) -> bool {
        let tries = |it: &Directive| it.name == "try_files" && !tries_own(it);
        let leads = |it: &Directive| tries(it) && self.led_to(it).is_some();
        match self.slash() {
            Some(slash) => {
                let mut all = slash.inside.iter();
                all.any(|it| leads_all_to(it).is_some() || leads(it))
            }
            // The server's own holds where no location takes a path.
            None => self.server.inside.iter().any(leads),
        }
    }

    /// Whether the server has plain prefixes beside `/`.
    pub(super) fn has_prefixes(&self) -> bool {
        locations(self.server).any(|it| matches!(prefix(it), Some((false, path)) if path != "/"))
    }
}

/// Whether `try_files` looks for the file of a path itself.
pub(super) fn tries_own(tries: &Directive) -> bool {
    const OWN: [&str; 5] = [
        "$uri",
        "$document_uri",
        "$request_uri",
        "$request_filename",
        "$fastcgi_script_name",
    ];
    let files = tries.arguments.split_last().map_or(&[][..], |it| it.1);
    let plain = |it: &str| {
        let path = it.trim_start_matches("$document_root");
        path.trim_start_matches('/').replace(['{', '}'], "")
    };
    files.iter().any(|it| OWN.contains(&plain(it).as_str()))
}

/// Whether a location of scripts looks for other files than those that its paths name, so that none
/// of these runs. What its expression has found may be the name.
fn runs_no_name(location: &Directive) -> bool {
    let Some(tries) = location.find("try_files").filter(|it| !tries_own(it)) else {
        return false;
    };
    let files = tries.arguments.split_last().map_or(&[][..], |it| it.1);
    let is_itself = |it: &String| location.arguments == ["=", it.as_str()];
    let is_variable = |it: &String| {
        let digits = it.strip_prefix('$').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())
    };
    !files.iter().any(|it| is_itself(it) || is_variable(it))
}

/// The script to which a `rewrite` leads all paths, with its slash.
pub(super) fn leads_all_to(rewrite: &Directive) -> Option<String> {
    let is_inner = !["permanent", "redirect"].contains(&rewrite.argument(2));
    if rewrite.name != "rewrite" || !is_inner || !is_of_all_paths(rewrite.argument(0)) {
        return None;
    }
    let to = rewrite.argument(1).split(['?', '$']).next()?;
    let script = to.trim_end_matches('/');
    (script.starts_with('/') && is_script(script)).then(|| script.to_owned())
}

/// Whether an expression is found in all paths.
pub(super) fn is_of_all_paths(expression: &str) -> bool {
    const ALL: [&str; 10] = [
        "^", ".*", "^.*", "^.*$", "(.*)", "^(.*)", "^(.*)$", "^/(.*)$", "^/", "^/(.*)",
    ];
    ALL.contains(&expression)
}

pub(super) fn gives_php(directive: &Directive) -> bool {
    directive.name == "fastcgi_pass" || directive.inside.iter().any(gives_php)
}

pub(super) fn locations(block: &Directive) -> impl Iterator<Item = &Directive> {
    block.inside.iter().filter(|it| it.name == "location")
}

pub(super) fn expression(location: &Directive) -> Option<&str> {
    match &location.arguments[..] {
        [how, expression] if how.starts_with('~') => Some(expression),
        _ => None,
    }
}

/// Whether it is `^~`, and its path.
fn prefix(location: &Directive) -> Option<(bool, &str)> {
    match &location.arguments[..] {
        [path] if !path.starts_with('@') => Some((false, path)),
        [how, path] if how == "^~" => Some((true, path)),
        _ => None,
    }
}

/// The location that nginx takes for a path with those around it, the innermost first; and whether
/// no expression around it is asked any more.
fn find<'a>(block: &'a Directive, path: &str) -> (Vec<&'a Directive>, bool) {
    let is_exact =
        |it: &&Directive| matches!(&it.arguments[..], [how, it] if how == "=" && it == path);
    if let Some(exact) = locations(block).find(is_exact) {
        return (vec![exact], true);
    }
    let fitting = locations(block).filter_map(|it| Some((prefix(it)?, it)));
    let fitting = fitting.filter(|((_, start), _)| path.starts_with(start));
    let longest = fitting.max_by_key(|((_, start), _)| start.len());
    let mut found = Vec::new();
    if let Some((_, location)) = longest {
        let (inner, is_last) = find(location, path);
        found = inner;
        found.push(location);
        if is_last {
            return (found, true);
        }
    }
    if !matches!(longest, Some(((true, _), _))) {
        let is_it = |it: &&Directive| expression(it).is_some_and(|it| is_found(it, path));
        if let Some(location) = locations(block).find(is_it) {
            let (mut inner, _) = find(location, path);
            inner.push(location);
            return (inner, true);
        }
    }
    (found, false)
}

/// Whether a text in `SCRIPT_FILENAME` is the script's name.
fn is_name(text: &str) -> bool {
    ["$fastcgi_script_name", "$uri", "$document_uri"].contains(&text)
}

/// An expression before its last `\.php`, and after it.
fn parts(expression: &str) -> Option<(&str, &str)> {
    let at = expression.rfind("\\.php")?;
    let (head, end) = expression.split_at(at);
    Some((head, end.strip_prefix("\\.php")?))
}

/// An expression with `\.php` for endings that scripts alone have: `\.(php|phar)`, `\.php5?`.
fn with_one_ending(expression: &str) -> String {
    let mut text = expression.to_owned();
    for number in [
        "5?", "7?", "8?", "[57]?", "[0-9]?", "[0-9]*", "\\d?", "\\d*",
    ] {
        text = text.replace(&format!("\\.php{number}"), "\\.php");
    }
    for open in ["\\.(?:", "\\.("] {
        let group = text
            .rsplit_once(open)
            .and_then(|(_, rest)| rest.split_once(')'));
        let endings = group.map(|(group, _)| group.to_owned());
        let is_script = |it: &str| {
            let is_plain = it.bytes().all(|it| it.is_ascii_alphanumeric());
            is_plain && is_php_source(&format!("/a.{it}"))
        };
        if let Some(endings) = endings
            && endings.split('|').any(|it| it == "php")
            && endings.split('|').all(is_script)
        {
            text = text.replace(&format!("{open}{endings})"), "\\.php");
        }
    }
    text
}

/// Whether an expression is found in the path of every script, and in nothing else.
pub(super) fn takes_every_script(expression: &str) -> bool {
    // A point that is no letter is meant as one there.
    if expression == ".php$" {
        return true;
    }
    let expression = &with_one_ending(expression);
    let all = alternatives_of(expression);
    // `\.php$|^/update.php` takes no more than scripts, one of them by its beginning.
    if all.len() > 1 {
        let is_one = |it: &&str| is_of_scripts(it) || begins_as_script(it);
        return all.iter().all(is_one) && all.iter().any(|it| takes_every_script(it));
    }
    let Some((head, end)) = parts(expression) else {
        return false;
    };
    STARTS.contains(&head) && after_groups(head, end).is_some_and(|end| ENDS.contains(&end))
}

/// The text after `\.php` and the group that is open there: `^(.+` and `)(/.+)$`.
fn after_groups<'a>(head: &str, end: &'a str) -> Option<&'a str> {
    match depth(head)? {
        0 => Some(end),
        1 => end.strip_prefix(')'),
        _ => None,
    }
}

/// The number of groups that are open at the end of a text. None if it has an alternative outside
/// of the closed ones.
fn depth(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    // Alternatives of groups that are still open, by their depth.
    let mut alternatives: Vec<usize> = Vec::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => _ = letters.next(), // the escaped one
            '(' => depth += 1,
            ')' => {
                alternatives.retain(|it| *it != depth);
                depth = depth.checked_sub(1)?;
            }
            '|' => alternatives.push(depth),
            _ => {}
        }
    }
    alternatives.is_empty().then_some(depth)
}

/// Whether a location sends the file that lies there, if there is one.
pub(super) fn sends_files(location: &Directive) -> bool {
    location.inside.iter().all(|it| match it.name.as_str() {
        "try_files" => it.argument(0) == "$uri" && it.argument(1) == "=404",
        "allow" => it.argument(0) == "all",
        "expires" | "add_header" | "access_log" | "log_not_found" | "etag" | "gzip"
        | "gzip_static" | "default_type" => true,
        _ => false,
    })
}

/// Whether an expression is the beginning of the paths of one script: `^/update.php`.
fn begins_as_script(expression: &str) -> bool {
    let name = expression.strip_prefix("^/").map(|it| it.replace('\\', ""));
    name.is_some_and(|name| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        is_script(&name) && name.chars().all(is_plain)
    })
}

/// Whether an expression is only found in paths of scripts.
pub(super) fn is_of_scripts(expression: &str) -> bool {
    let expression = &with_one_ending(expression);
    let end = parts(expression).and_then(|(head, end)| after_groups(head, end));
    end.is_some_and(|end| ENDS.contains(&end) || WITH_PATH.contains(&end))
}

/// The text that all paths begin with in which `^/a/` is found, if it says no more.
pub(super) fn literal(expression: &str) -> Option<String> {
    let rest = expression.strip_prefix('^')?;
    let text = rest
        .replace("\\.", ".")
        .replace("\\/", "/")
        .replace("\\-", "-");
    (rest.starts_with('/') && as_it_is(&text).replace("\\.", ".") == text && {
        // A bare dot is any letter.
        rest.matches('.').count() == rest.matches("\\.").count()
    })
    .then_some(text)
}

/// An expression that is found in paths below a prefix in which another one is: in all, or in less.
pub(super) fn below_prefix(prefix: &str, expression: &str) -> Option<String> {
    let escaped = as_it_is(prefix);
    if !expression.starts_with('^') {
        return Some(format!("^{escaped}.*(?:{expression})"));
    }
    let begins = [escaped, prefix.to_owned()].iter().any(|it| {
        expression
            .get(1..)
            .is_some_and(|rest| rest.starts_with(it.as_str()))
    });
    (begins && depth(expression) == Some(0)).then(|| expression.to_owned())
}

/// An expression that is found where both of these are: in all such paths, or in less.
pub(super) fn both(outer: &str, inner: &str) -> Option<String> {
    if let Some(prefix) = literal(outer) {
        return below_prefix(&prefix, inner);
    }
    if !takes_every_script(outer) || !is_of_scripts(inner) {
        return (outer == inner).then(|| inner.to_owned());
    }
    let ((_, outer), (head, inner_end)) = (parts(outer)?, parts(inner)?);
    let ends = outer.trim_start_matches(')') == "$";
    Some(if ends {
        let closing = if inner_end.starts_with(')') { ")" } else { "" };
        format!("{head}\\.php{closing}$")
    } else {
        inner.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_scripts_are_known() {
        for (expression, every, scripts) in [
            ("\\.php$", true, true),
            ("\\.php", true, true),
            ("[^/]\\.php(/|$)", true, true),
            ("^(.+\\.php)(/.+)$", false, true),
            ("^(.+\\.php)(/.*)?$", true, true),
            ("\\.php(?:$|/)", true, true),
            ("\\.php|^/a", false, false),
            ("\\.(php|phar)(/.*)?$", true, true),
            ("\\.php5?$", true, true),
            ("^.+\\.(php)$", true, true),
            ("\\.(?:php|phtml)$", true, true),
            ("\\.(hh|php)$", false, false),
            ("\\.(php|inc|txt)$", false, false),
            (".php$", true, false),
            ("\\.php$|^/update.php", true, false),
            ("\\.php$|^/a[|]b$", false, false),
            ("^/(a|b)\\.php$", false, true),
            ("^/a|b\\.php$", false, false),
            ("(a|b\\.php)$", false, false),
            ("^/app/", false, false),
            ("\\.(txt|php)$", false, false),
        ] {
            let is = (takes_every_script(expression), is_of_scripts(expression));
            assert_eq!(is, (every, scripts), "{expression}");
        }
        for (outer, inner, expected) in [
            ("^/app/", "\\.php$", Some("^/app/.*(?:\\.php$)")),
            ("^/app/", "^/app/a\\.php$", Some("^/app/a\\.php$")),
            ("^/app/", "^/app/a|b", None),
            ("^/app/", "^/a", None),
            ("\\.php$", "^/(a|b)\\.php(/|$)", Some("^/(a|b)\\.php$")),
            ("\\.php(/|$)", "^/a\\.php(/|$)", Some("^/a\\.php(/|$)")),
            ("\\.php$", "^/app/", None),
            ("^/a.b/", "\\.php$", None),
        ] {
            assert_eq!(both(outer, inner).as_deref(), expected, "{outer} {inner}");
        }
    }
}
