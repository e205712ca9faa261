//! Statements that limit who gets what. Each is translated, or told at the top of what is made; and
//! where it can't be translated, what it guards is closed.

use super::directive::Directive;
use super::tree::Tree;

/// In small letters: some servers do not tell the case of letters apart.
pub(super) const NAMES: &[&str] = &[
    // nginx
    "deny",
    "allow",
    "satisfy",
    "internal",
    "limit_except",
    "valid_referers",
    "auth_basic",
    "auth_request",
    "auth_jwt",
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "auth_pam",
    "auth_ldap",
    "auth_jwt",
    "secure_link",
    "secure_link_md5",
    "ssl_verify_client",
    "ssl_client_certificate",
    "disable_symlinks",
    // Apache
    "require",
    "requireall",
    "requireany",
    "requirenone",
    "order",
    "authtype",
    "authname",
    "authuserfile",
    "authgroupfile",
    "authbasicprovider",
    "authmerging",
    "limit",
    "limitexcept",
    "sslverifyclient",
    "sslrequire",
    "sslrequiressl",
    "sslcacertificatefile",
    "allowmethods",
    "secrule",
    "secaction",
    "luahookaccesschecker",
    "luahookauthchecker",
    "luahookfixups",
    "removehandler",
    // Caddy
    "respond",
    "abort",
    "error",
    "basic_auth",
    "basicauth",
    "forward_auth",
    "remote_ip",
    "client_auth",
];

/// Whether a statement limits who gets what, or one inside it does.
pub(super) fn limits(directive: &Directive) -> bool {
    let name = directive.name.to_ascii_lowercase();
    let is_off = directive.argument(0).eq_ignore_ascii_case("off");
    let says_so = match name.as_str() {
        "return" => !directive.argument(0).starts_with(['2', '3', '/', 'h', '$']),
        "auth_basic" | "auth_request" | "ssl_verify_client" | "disable_symlinks" => !is_off,
        "allow" => !matches!(
            directive.arguments.join(" ").to_ascii_lowercase().as_str(),
            "all" | "from all"
        ),
        "rewriterule" => forbids(directive),
        "rewriteoptions" => directive.shown().to_ascii_lowercase().contains("inherit"),
        // Files of another name say who may come.
        "accessfilename" => directive.arguments != [".htaccess"],
        "redirect" | "redirectmatch" => refusing_status(directive).is_some(),
        "proxypass" | "proxypassmatch" => leads_to_proxy(directive),
        "php_admin_flag" | "php_flag" => directive.argument(0) == "engine",
        name => name.starts_with('@') || NAMES.contains(&name),
    };
    // It may do anything.
    directive.is_foreign || says_so || directive.inside.iter().any(limits)
}

/// Statements that give requests to something else than the file that lies there: a reader that
/// does not translate one must not send that file. In small letters.
const LEADING_AWAY: &[&str] = &[
    // nginx and Caddy
    "rewrite",
    "try_files",
    // Apache
    "aliasmatch",
    "scriptaliasmatch",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    // Caddy
    "redir",
    "uri",
    "reverse_proxy",
    "import",
];

/// Whether a statement leads requests away from the files at their paths, or one inside it does.
pub(super) fn leads_away(directive: &Directive) -> bool {
    let name = directive.name.to_ascii_lowercase();
    let does_so = match name.as_str() {
        "rewriterule" => {
            let flags = directive.argument(2).to_ascii_uppercase();
            let is_handler = ["H=", "T=", "HANDLER=", "TYPE="];
            directive.argument(1) != "-" || is_handler.iter().any(|it| flags.contains(it))
        }
        // A proxy of PHP's own, and what is not passed on.
        "proxypass" | "proxypassmatch" => leads_to_proxy(directive),
        name => LEADING_AWAY.contains(&name),
    };
    does_so || directive.inside.iter().any(leads_away)
}

/// A `RewriteRule` that refuses.
pub(super) fn forbids(rule: &Directive) -> bool {
    flags(rule).any(|flag| is_refusing_flag(&flag))
}

/// Apache knows no other flags, and answers 500 to all below a file with another one.
const FLAGS: [&str; 42] = [
    "",
    "B",
    "BACKREFESCAPING",
    "BNP",
    "BACKREFNOPLUS",
    "BNE",
    "BCTLS",
    "C",
    "CHAIN",
    "CO",
    "COOKIE",
    "DPI",
    "DISCARDPATH",
    "E",
    "ENV",
    "END",
    "H",
    "HANDLER",
    "L",
    "LAST",
    "N",
    "NEXT",
    "NC",
    "NOCASE",
    "NE",
    "NOESCAPE",
    "NS",
    "NOSUBREQ",
    "P",
    "PROXY",
    "PT",
    "PASSTHROUGH",
    "QSA",
    "QSAPPEND",
    "QSD",
    "QSDISCARD",
    "QSL",
    "QSLAST",
    "S",
    "SKIP",
    "T",
    "TYPE",
];

/// Whether a flag, in capital letters, ends a request with an error.
fn is_refusing_flag(flag: &str) -> bool {
    let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
    match name {
        "R" | "REDIRECT" => {
            let is_named = ["", "PERMANENT", "TEMP", "SEEOTHER"].contains(&value);
            !is_named && !value.starts_with('3')
        }
        // Sources are sent to nobody.
        "H" | "HANDLER" | "T" | "TYPE" => !value.contains("PHP") && !value.contains("FCGI"),
        name => !FLAGS.contains(&name) && !name.starts_with("UNSAFE"),
    }
}

/// The flags of a `RewriteRule` or `RewriteCond`, in capital letters.
pub(super) fn flags(of: &Directive) -> impl Iterator<Item = String> {
    let all = of.argument(2).trim_matches(['[', ']']).split(',');
    all.map(|flag| flag.trim().to_ascii_uppercase())
}

/// The status of a `Redirect` or `RedirectMatch` that leads nowhere.
pub(super) fn refusing_status(redirect: &Directive) -> Option<&str> {
    let status = redirect.argument(0);
    if status.eq_ignore_ascii_case("gone") {
        return Some("410");
    }
    let is_status = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    (is_status && !status.starts_with('3')).then_some(status)
}

/// Whether a `ProxyPass` leads to another server than PHP's own.
pub(super) fn leads_to_proxy(directive: &Directive) -> bool {
    let mut all = directive.arguments.iter();
    all.any(|it| it.contains("://") && !it.contains("fcgi://"))
}

/// `^(GET|POST)$` as the keys of a route for these methods or, after `!`, for all others: what
/// stands here is no less than what it says.
pub(super) fn methods(how: &str, expression: &str) -> Option<Tree> {
    const KNOWN: [&str; 16] = [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "TRACK",
        "CONNECT",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
    ];
    let is_text = how.ends_with('=');
    let inner = if is_text {
        expression
    } else {
        let inner = expression.trim_start_matches('^').trim_end_matches('$');
        inner
            .strip_prefix('(')
            .and_then(|it| it.strip_suffix(')'))
            .map_or(inner, |it| it.strip_prefix("?:").unwrap_or(it))
    };
    let names: Vec<&str> = inner.split('|').collect();
    let is_name = |it: &&str| !it.is_empty() && it.bytes().all(|b| b.is_ascii_alphabetic());
    if !names.iter().all(is_name) {
        return None;
    }
    let mut keys = Tree::default();
    if how.starts_with('!') {
        // `get` is no method of anybody's list.
        if names
            .iter()
            .any(|it| it.bytes().any(|b| b.is_ascii_lowercase()))
        {
            return None;
        }
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        keys.set("not_method", names);
        return Some(keys);
    }
    let mut all: Vec<String> = names.iter().map(|it| it.to_ascii_uppercase()).collect();
    if !is_text {
        // Without signs at its ends it is found in longer names, too.
        let (starts, ends) = (expression.starts_with('^'), expression.ends_with('$'));
        let is_found = |method: &str, name: &str| match (starts, ends) {
            (true, true) => method == name,
            (true, false) => method.starts_with(name),
            (false, true) => method.ends_with(name),
            (false, false) => method.contains(name),
        };
        for method in KNOWN {
            let is_in = all.iter().any(|name| is_found(method, name));
            if is_in && !all.iter().any(|name| name == method) {
                all.push(method.to_owned());
            }
        }
    }
    keys.set("method", all);
    Some(keys)
}

/// What to write instead.
pub(super) fn advice(directive: &Directive) -> &'static str {
    let name = directive.name.to_ascii_lowercase();
    match name.as_str() {
        _ if directive.is_foreign => {
            "this directive is unknown and may restrict access: if it is misspelled, correct it; \
             if it restricts nothing, remove it from a copy of the file"
        }
        name if name.starts_with("auth_basic") => {
            "write a route with `basic_auth` for these paths, and one for the paths of the \
             scripts that answer for them"
        }
        name if name.contains("auth") => {
            "write a route with `basic_auth`, or let the application or a proxy in front check it"
        }
        name if name.contains("ssl") => {
            "the converted file does not ask for client certificates: let a proxy in front ask \
             for them"
        }
        "import" => "paste what it says in its place",
        name if name.ends_with("_pass")
            || name.starts_with("proxypass")
            || name == "reverse_proxy" =>
        {
            "requests are not passed to other servers: let a proxy in front do it"
        }
        "rewrite" | "redirect" | "redirectmatch" | "redirectpermanent" | "redirecttemp"
        | "redir" | "uri" | "try_files" | "aliasmatch" | "scriptaliasmatch" => {
            "if files there may be sent, write a rule in `http.rewrite` and remove the route"
        }
        "rewriterule" if !forbids(directive) => {
            "write a rule of `http.rewrite`, and keep what may not be sent outside of the root"
        }
        "return" | "respond" | "abort" | "error" => {
            "use `no_scripts` for scripts or a route for paths, or let a proxy in front refuse \
             these requests"
        }
        _ => {
            "this server has no such condition for clients or files: move the files out of the \
             root, or put a proxy in front"
        }
    }
}

/// More are no list that a person wrote.
const MOST: usize = 64;

/// Whether an expression is about all hidden names, perhaps but for those of RFC 8615.
pub(super) fn names_hidden(pattern: &str) -> bool {
    let starts = ["^/\\.", "/\\.", "(^|/)\\.", "(?:^|/)\\."];
    let rest = starts.iter().find_map(|start| pattern.strip_prefix(start));
    let Some(rest) = rest else {
        return false;
    };
    let rest = match rest.strip_prefix("(?!well-known") {
        Some(rest) => rest.trim_start_matches(['\\', '/', ')', '.', '*', '$', '(']),
        None if rest.starts_with(['.', '*', '+', '$', '[', 'w', 'W']) => return false,
        None => rest,
    };
    !has_parts(rest)
        && !rest.contains('?')
        && !rest.contains("well-known")
        && !rest.contains("(w")
        && !rest.contains("|w")
}

/// Whether an expression has alternatives outside of groups.
pub(super) fn has_parts(expression: &str) -> bool {
    let mut depth = 0_i32;
    expression.chars().any(|letter| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        letter == '|' && depth <= 0
    })
}

/// The alternatives of an expression outside of groups: the whole where there is but one.
pub(super) fn alternatives_of(expression: &str) -> Vec<&str> {
    let (mut depth, mut is_class, mut is_escaped) = (0_usize, false, false);
    let mut ends = Vec::new();
    for (at, letter) in expression.char_indices() {
        match letter {
            _ if is_escaped => {}
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class => depth += 1,
            ')' if !is_class => depth = depth.saturating_sub(1),
            '|' if !is_class && depth == 0 => ends.push(at),
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    ends.push(expression.len());
    let mut start = 0;
    let mut all = Vec::new();
    for end in ends {
        all.push(expression.get(start..end).unwrap_or_default());
        start = end + 1;
    }
    all
}

/// The directories at a root in which an expression keeps scripts from running.
pub(super) fn directories_of_scripts(expression: &str) -> Option<Vec<String>> {
    let text = expression
        .strip_prefix("^/")
        .or_else(|| expression.strip_prefix('/'))?;
    let at = text.find("/.*\\.").or_else(|| text.find("/.+\\."))?;
    let (head, tail) = (text.get(..at)?, text.get(at..)?);
    let is_path = |path: &String| !path.is_empty() && !path.contains(['.', '*']);
    let all = expand(head).filter(|all| all.iter().all(is_path));
    all.filter(|_| tail.contains("php"))
}

/// The endings of files, if an expression is about these alone and none of scripts is among them.
pub(super) fn endings(expression: &str) -> Option<Vec<String>> {
    let text = expression.strip_suffix('$')?;
    let text = text.strip_suffix("[^/]*").unwrap_or(text);
    let all = expand(text)?;
    let is_ending = |it: &String| {
        let rest = it.strip_prefix('.').unwrap_or_default();
        !rest.is_empty() && !rest.contains(['.', '/']) && !rest.contains("php")
    };
    all.iter().all(is_ending).then_some(all)
}

/// An expression without `(?=…)`, `(?!…)`, `(?<=…)` and `(?<!…)`: it is found where the other one
/// is, and in more. `None` where there are none of these.
pub(super) fn without_looking_around(expression: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = expression;
    while let Some(at) = ["(?=", "(?!", "(?<=", "(?<!"]
        .iter()
        .filter_map(|it| rest.find(it))
        .min()
    {
        let (before, group) = rest.split_at(at);
        out.push_str(before);
        let mut depth = 0_usize;
        let mut is_escaped = false;
        let end = group.char_indices().find(|(_, letter)| {
            match letter {
                _ if is_escaped => {}
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            is_escaped = *letter == '\\' && !is_escaped;
            depth == 0
        });
        rest = group.get(end?.0 + 1..).unwrap_or_default();
    }
    (rest.len() < expression.len()).then(|| out + rest)
}

/// All texts that an expression matches, if they are few.
pub(super) fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut letters = pattern.chars().peekable();
    let all = alternatives(&mut letters, 0)?;
    letters.next().is_none().then_some(all)
}

fn alternatives(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    depth: usize,
) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut all = vec![String::new()];
    while let Some(&letter) = letters.peek() {
        let next = match letter {
            ')' => break,
            '|' => {
                letters.next();
                done.append(&mut all);
                all.push(String::new());
                continue;
            }
            '(' if depth < 4 => {
                letters.next();
                if letters.next_if_eq(&'?').is_some() && letters.next() != Some(':') {
                    return None;
                }
                let inner = alternatives(letters, depth + 1)?;
                letters.next_if_eq(&')')?;
                inner
            }
            '\\' => {
                letters.next();
                vec![letters.next().filter(|c| ".-/_".contains(*c))?.to_string()]
            }
            letter if letter.is_ascii_alphanumeric() || "-_/".contains(letter) => {
                letters.next();
                vec![letter.to_string()]
            }
            _ => return None,
        };
        if all.len().saturating_mul(next.len()) > MOST {
            return None;
        }
        let joined = all
            .iter()
            .flat_map(|it| next.iter().map(move |more| format!("{it}{more}")));
        all = joined.collect();
    }
    done.append(&mut all);
    (done.len() <= MOST).then_some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_exactly_or_not_at_all() {
        let list = |all: &[&str]| Some(all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        for (expression, expected) in [
            ("^/(uploads|a/b)/.*\\.php", list(&["uploads", "a/b"])),
            ("/(?:uploads|files)/.*\\.php$", list(&["uploads", "files"])),
            ("^/uploads/.*\\.(php|phtml)$", list(&["uploads"])),
            ("^/(vendor|storage)/", None),
            ("\\.php$", None),
        ] {
            assert_eq!(directories_of_scripts(expression), expected, "{expression}");
        }
        for (expression, expected) in [
            ("\\.(sql|bak)$", list(&[".sql", ".bak"])),
            ("(?:\\.bak|\\.sql)[^/]*$", list(&[".bak", ".sql"])),
            ("\\.(php|bak)$", None),
            ("\\.bak", None),
            ("^composer\\.json$", None),
        ] {
            assert_eq!(endings(expression), expected, "{expression}");
        }
        for (expression, is_hidden) in [
            ("/\\.ht", true),
            ("/\\.(?!well-known).*", true),
            ("/\\.git|/private", false),
            ("/\\.well-known", false),
        ] {
            assert_eq!(names_hidden(expression), is_hidden, "{expression}");
        }
        for (expression, expected) in [
            ("^/a/(?!b(c)/).*\\.php$", Some("^/a/.*\\.php$")),
            ("(?<!x)y(?=\\))z", Some("yz")),
            ("^/a", None),
            ("(?!", None),
        ] {
            assert_eq!(
                without_looking_around(expression).as_deref(),
                expected,
                "{expression}"
            );
        }
    }
}
