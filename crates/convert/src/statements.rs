//! Helpers that read one statement of Apache, whatever stands around it.

use super::directive::Directive;
use super::draft::as_it_is;

/// Whether a statement says who may come, or may say so.
pub(super) fn is_access(it: &Directive) -> bool {
    let names = [
        "Require",
        "RequireAll",
        "RequireAny",
        "RequireNone",
        "Order",
        "Deny",
        "Allow",
        "Satisfy",
        "Limit",
        "LimitExcept",
        "SSLRequire",
        "SSLRequireSSL",
        "SSLVerifyClient",
    ];
    it.is_foreign || names.iter().any(|name| it.is(name))
}

/// Whether a block limits what it says to some files or paths.
pub(super) fn is_scope(directive: &Directive) -> bool {
    let names = [
        "Directory",
        "Files",
        "FilesMatch",
        "Location",
        "LocationMatch",
    ];
    names.iter().any(|name| directive.is(name))
}

/// Whether a block holds for some requests.
pub(super) fn is_condition(it: &Directive) -> bool {
    ["If", "ElseIf", "Else"].iter().any(|name| it.is(name))
}

pub(super) fn directory_of(scope: &Directive) -> &str {
    match scope.argument(0) {
        "/" => "/",
        path => path.trim_end_matches('/'),
    }
}

/// Whether nobody is kept out.
pub(super) fn is_granted(inside: &[Directive]) -> bool {
    let is = |it: &Directive, words: &str| it.arguments.join(" ").eq_ignore_ascii_case(words);
    let allows = inside.iter().any(|it| it.is("Allow") && is(it, "from all"));
    inside
        .iter()
        .all(|it| match it.name.to_ascii_lowercase().as_str() {
            _ if it.is_foreign => false,
            "require" => is(it, "all granted"),
            "allow" => is(it, "from all"),
            "order" => allows || is(it, "deny,allow") || is(it, "mutual-failure"),
            // One line for all is what all of both need.
            "requireall" | "requireany" if !it.inside.is_empty() => is_granted(&it.inside),
            // A condition may hold for anybody.
            "if" | "elseif" | "else" => is_granted(&it.inside),
            "deny" | "limit" | "limitexcept" | "requireall" | "requireany" | "requirenone"
            | "sslrequire" | "sslrequiressl" | "sslverifyclient" => false,
            _ => true,
        })
}

/// Whether a statement ends that scripts run.
pub(super) fn is_none(it: &Directive) -> bool {
    let first = it.argument(0).to_ascii_lowercase();
    let is_flag = ["php_admin_flag", "php_flag", "php_admin_value", "php_value"]
        .iter()
        .any(|name| it.is(name));
    (is_flag
        && first == "engine"
        && !["on", "1"].contains(&it.argument(1).to_ascii_lowercase().as_str()))
        || it.is("RemoveHandler")
        || it.is("RemoveType")
        || (it.is("SetHandler")
            && (["none", "default-handler", "text/plain"].contains(&first.as_str())
                || is_nobodys(&first)))
        || (it.is("AddType") && first.starts_with("text/") && it.shown().contains("php"))
        || (it.is("AddHandler")
            && ["default-handler", "text/plain", "cgi-script"].contains(&first.as_str())
            && it.shown().contains("php"))
        || it.is("ForceType")
}

/// Whether a handler has a name that no module knows: Apache sends the files as they are. Drupal
/// and Backdrop write such names where visitors put files.
fn is_nobodys(handler: &str) -> bool {
    handler.starts_with("drupal_security_do_not_remove")
}

pub(super) fn first_of(it: &Directive) -> String {
    it.argument(0).to_ascii_lowercase()
}

/// Whether a handler makes files into something else than they are.
pub(super) fn makes_others(it: &Directive) -> bool {
    let plain = [
        "none",
        "default-handler",
        "type-map",
        "send-as-is",
        "text/plain",
    ];
    let is_type = it.is("AddType") && first_of(it).starts_with("application/x-httpd-php");
    let first = first_of(it);
    let is_plain = plain.contains(&&*first) || is_nobodys(&first);
    (it.is("SetHandler") || it.is("AddHandler") || is_type) && !is_plain
}

/// Whether files of such names are hidden ones, which are not sent whatever a route says.
pub(super) fn is_hidden(named: &str, is_match: bool) -> bool {
    if !is_match {
        return named.starts_with('.');
    }
    let rest = named.strip_prefix("^\\.");
    rest.is_some_and(|rest| !rest.starts_with(['?', '*', '{']) && !rest.contains('|'))
}

/// An expression of the paths that `<Files>` and `<FilesMatch>` are about.
pub(super) fn named_by(scope: &Directive) -> String {
    let named = scope.arguments.last().map_or("", String::as_str);
    if scope.is("FilesMatch") || scope.arguments.len() > 1 {
        on_name(named)
    } else {
        format!("/{}$", glob(named, "[^/]*"))
    }
}

/// An expression of a file's name as one of paths that end in such a name.
fn on_name(expression: &str) -> String {
    let mut out = String::new();
    let mut letters = expression.chars().peekable();
    let (mut is_class, mut depth, mut has_parts) = (false, 0_usize, false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                out.push(letter);
                out.extend(letters.next());
                continue;
            }
            '[' if !is_class => {
                is_class = true;
                out.push(letter);
                if let Some(not) = letters.next_if_eq(&'^') {
                    out.extend([not, '/']);
                }
                continue;
            }
            ']' if is_class => is_class = false,
            _ if is_class => {}
            '^' => {
                out.push('/');
                continue;
            }
            '.' => {
                out.push_str("[^/]");
                continue;
            }
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' => has_parts |= depth == 0,
            _ => {}
        }
        out.push(letter);
    }
    if out.ends_with('$') && !has_parts {
        out
    } else {
        format!("(?:{out})[^/]*$")
    }
}

/// A name with `*`, `?` and classes as an expression; `any` is what a star stands for.
pub(super) fn glob(named: &str, any: &str) -> String {
    let mut out = String::new();
    let mut is_class = false;
    let mut letters = named.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '[' if !is_class => {
                is_class = true;
                out.push('[');
                if letters.next_if(|it| ['!', '^'].contains(it)).is_some() {
                    out.push_str("^/");
                }
            }
            ']' => {
                is_class = false;
                out.push(']');
            }
            '-' if is_class => out.push('-'),
            '*' if !is_class => out.push_str(any),
            '?' if !is_class => out.push_str("[^/]"),
            letter => out.push_str(&as_it_is(&letter.to_string())),
        }
    }
    out
}

/// A statement whose paths of directories have no doubled slashes and dot segments: Apache compares
/// them so.
pub(super) fn with_clean_paths(mut it: Directive) -> Directive {
    let at = match it.name.to_ascii_lowercase().as_str() {
        "directory" if it.arguments.len() == 1 => Some(0),
        "documentroot" | "serverroot" => Some(0),
        "alias" => Some(1),
        _ => None,
    };
    let path = at.and_then(|at| it.arguments.get_mut(at));
    if let Some(path) = path.filter(|it| it.starts_with('/')) {
        *path = clean_path(path);
    }
    it.inside = it.inside.into_iter().map(with_clean_paths).collect();
    it
}

/// As a slash at the end says more in `Alias`, it stays.
fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{end}", segments.join("/"))
}
