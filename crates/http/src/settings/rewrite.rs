//! `http.rewrite`.

use pronghorn_config::{Node, Setting, Shown, Table, Wrong};

use crate::expression::Expression;
use crate::routes::HostPattern;

/// Each request is compared with one after the other; who has more wants a router of his own.
pub const MOST_RULES: usize = 200;

/// What becomes of a request whose path matches.
#[derive(Clone, Debug)]
pub struct RewriteRule {
    /// Any of them; none is any host.
    pub hosts: Vec<HostPattern>,
    /// Searched for in the path as the client sent it, and in each way to read it.
    pub path: Expression,
    pub to: Target,
    /// Of a redirect; None goes on with another target.
    pub status: Option<u16>,
    /// Requests that a route refuses are left to it.
    pub unless_refused: bool,
    /// The file says that they are not.
    pub may_open: bool,
}

/// A target, with numbers in braces for what the groups of the expression have found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    written: String,
    pub pieces: Vec<TargetPiece>,
    /// The client's query is not kept: it ends in `?`.
    pub drops_query: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPiece {
    Text(String),
    Group(usize),
}

/// As a route, but for one that could not be read.
pub(super) fn read(t: &mut Table<'_>) -> Vec<RewriteRule> {
    let rules = t.section_list_with(
        "rewrite",
        "Rules that change the path of a request or redirect it. The first rule that matches \
         applies. Used by the middleware `rewrite`.",
        "One rule.",
        MOST_RULES,
        |t| {
            t.ours();
            t.live();
            read_rule(t)
        },
    );
    rules.into_iter().flatten().collect()
}

fn read_rule(t: &mut Table<'_>) -> Option<RewriteRule> {
    let path: Option<Expression> = t
        .key(
            "path",
            "A case-sensitive regular expression. It may match any part of the path, without the \
             query. It is tried on the path as the client sent it, and on each decoded form that a \
             program may use.",
        )
        .optional();
    let hosts = t
        .key(
            "host",
            "The rule applies only to these hosts. `*.example.com` means all hosts below \
             `example.com`.",
        )
        .optional()
        .unwrap_or_default();
    let to: Option<Target> = t
        .key(
            "to",
            "The new path. For a redirect, it may be a whole URI. `{1}` is the text of the first \
             group. The client's query is kept, unless this text ends in `?`.",
        )
        .optional();
    let status: Option<u16> = t
        .key(
            "status",
            "The status of a redirect: 301, 302, 303, 307 or 308. Without it, the server continues \
             with the new path.",
        )
        .optional();
    let unless_refused = t
        .key(
            "unless_refused",
            "If true, the rule does not apply to requests whose original path a route with \
             `refuse` or `basic_auth` matches. That route answers them. If a rule leads out of \
             such a path, `check` warns, unless you write `false` here.",
        )
        .default(false);
    let may_open = !unless_refused && t.is_written("unless_refused");
    for (key, is_written, hint) in [
        (
            "path",
            t.is_written("path"),
            "for example `path: ^/old/(.*)$`",
        ),
        ("to", t.is_written("to"), "for example `to: /new/{1}`"),
    ] {
        if !is_written {
            t.error(key, "is missing", hint);
        }
    }
    if status.is_some_and(|status| !matches!(status, 301 | 302 | 303 | 307 | 308)) {
        t.error(
            "status",
            "is no status of a redirect",
            "301, 302, 303, 307 or 308",
        );
    }
    let (path, to) = (path?, to?);
    if status.is_none() && !to.written.starts_with('/') {
        t.error(
            "to",
            "names another site, which takes a redirect",
            "add `status: 302`, or begin with a slash",
        );
    }
    let groups = path.0.captures_len();
    let mut numbers = to.pieces.iter().filter_map(|piece| match piece {
        TargetPiece::Text(_) => None,
        TargetPiece::Group(number) => Some(*number),
    });
    if let Some(number) = numbers.find(|number| *number >= groups) {
        let message = format!("has `{{{number}}}`, and `path` has {} groups", groups - 1);
        t.error(
            "to",
            &message,
            "groups stand in parentheses, the first is `{1}`",
        );
    }
    Some(RewriteRule {
        hosts,
        path,
        to,
        status,
        unless_refused,
        may_open,
    })
}

impl Target {
    /// Err is what is wrong with it.
    fn parse(written: &str) -> Result<Self, String> {
        if written.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
            return Err("spaces and letters beyond ASCII are written as `%20`".to_owned());
        }
        // Who comes from another server writes it so, and it would be sent as it stands.
        let mut behind = written
            .split('$')
            .skip(1)
            .filter_map(|it| it.chars().next());
        if let Some(digit) = behind.find(char::is_ascii_digit) {
            return Err(format!(
                "a group is written `{{{digit}}}`, and a dollar sign `%24`"
            ));
        }
        let mut pieces = Vec::new();
        let mut rest = written;
        while let Some((text, from)) = rest.split_once('{') {
            let (number, after) = from.split_once('}').ok_or("a `{` has no `}`")?;
            let number = number
                .parse()
                .map_err(|_| format!("`{{{number}}}` is no group's number"))?;
            pieces.push(TargetPiece::Text(text.to_owned()));
            pieces.push(TargetPiece::Group(number));
            rest = after;
        }
        let drops_query = rest.ends_with('?');
        pieces.push(TargetPiece::Text(
            rest.strip_suffix('?').unwrap_or(rest).to_owned(),
        ));
        let start = match pieces.first() {
            Some(TargetPiece::Text(text)) => text.as_str(),
            _ => "",
        };
        let site = start
            .strip_prefix("https://")
            .or_else(|| start.strip_prefix("http://"));
        match site {
            // What a client sent must not become a part of the host.
            Some(site) if !site.contains('/') && pieces.len() > 1 => {
                return Err("write a slash between the host and what a group found".to_owned());
            }
            None if !start.starts_with('/') => {
                return Err("it begins with a slash, or with `https://`".to_owned());
            }
            _ => {}
        }
        Ok(Self {
            written: written.to_owned(),
            pieces,
            drops_query,
        })
    }
}

impl Setting for Target {
    fn example() -> String {
        "/new/{1}".to_owned()
    }

    fn accepts() -> String {
        "a path or a URI, with `{1}` for what a group found".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node
            .text()
            .map(str::trim)
            .ok_or_else(|| Wrong::value(node))?;
        Self::parse(text).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.written.clone())
    }
}

#[cfg(test)]
pub(crate) fn rule(path: &str, to: &str, status: Option<u16>) -> RewriteRule {
    RewriteRule {
        hosts: Vec::new(),
        path: Expression::parse(path).expect(path),
        to: Target::parse(to).expect(to),
        status,
        unless_refused: false,
        may_open: false,
    }
}
