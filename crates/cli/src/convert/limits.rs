//! Statements that limit who gets what. Each is translated, or told at the top of what is made; and
//! where it can't be translated, what it guards is closed.

use super::directive::Directive;

/// In small letters: some servers do not tell the case of letters apart.
const NAMES: &[&str] = &[
    // nginx
    "deny",
    "allow",
    "satisfy",
    "internal",
    "limit_except",
    "valid_referers",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
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
    "allowoverride",
    "allowoverridelist",
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
        "rewriterule" => forbids(directive),
        "redirect" => directive.arguments.len() == 2 && directive.argument(0).starts_with('4'),
        "php_admin_flag" | "php_flag" => directive.argument(0) == "engine",
        name => name.starts_with('@') || NAMES.contains(&name),
    };
    says_so || directive.inside.iter().any(limits)
}

/// A `RewriteRule` that refuses.
pub(super) fn forbids(rule: &Directive) -> bool {
    let flags = rule.argument(2).trim_matches(['[', ']']);
    flags.split(',').map(str::trim).any(|flag| {
        let flag = flag.to_ascii_uppercase();
        ["F", "G", "FORBIDDEN", "GONE"].contains(&flag.as_str()) || flag.starts_with("R=4")
    })
}

/// What to write instead.
pub(super) fn advice(directive: &Directive) -> &'static str {
    let name = directive.name.to_ascii_lowercase();
    match name.as_str() {
        "allowoverride" | "allowoverridelist" => {
            "`.htaccess` files are not read here, also not those that close folders: give each to \
             `--from`"
        }
        name if name.contains("auth") => {
            "passwords are not checked here: let the application do it, or a proxy in front"
        }
        name if name.contains("ssl") => {
            "certificates of clients are not asked for: let a proxy in front do it"
        }
        "return" | "respond" | "abort" | "error" => {
            "write `no_scripts` for scripts, a route for paths, or let a proxy in front refuse it"
        }
        _ => {
            "neither clients nor files are told apart so: keep such files outside of the root, or \
             put a proxy in front"
        }
    }
}

/// What a regular expression that is refused stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Hidden names, which are never sent.
    Hidden,
    /// Scripts in these folders below the root.
    Scripts {
        folders: Vec<String>,
        is_all: bool,
    },
    /// These paths and all below them.
    Paths {
        paths: Vec<String>,
        is_all: bool,
    },
    /// Files by their endings, no scripts among them.
    Files,
    Unknown,
}

/// More are no list that a person wrote.
const MOST: usize = 64;

/// `is_plain` is whether the case of letters counts.
pub(super) fn refused(pattern: &str, is_plain: bool) -> Refused {
    if is_hidden(pattern) {
        return Refused::Hidden;
    }
    let anchored = pattern.strip_prefix('^');
    let text = anchored.unwrap_or(pattern);
    let is_exact = anchored.is_some() && is_plain;
    let any = text.rfind(".*\\.").or_else(|| text.rfind(".+\\."));
    if let Some((head, tail)) = any.and_then(|at| Some((text.get(..at)?, text.get(at + 4..)?)))
        && tail.contains("php")
        && let Some(folders) = expand(head)
        && folders.iter().all(|it| it.ends_with('/') && is_path(it))
    {
        let tails = ["php", "php$", "php(/|$)", "(php)$", "(?:php)$"];
        return Refused::Scripts {
            folders: everywhere(folders, anchored.is_some()),
            is_all: is_exact && tails.contains(&tail),
        };
    }
    let tails = ["/.*$", "/.*", "(/.*)?$", "(/|$)", "(?:/|$)", "/", "$", ""];
    let end = tails
        .iter()
        .find(|tail| text.ends_with(**tail))
        .unwrap_or(&"");
    let Some(all) = expand(text.strip_suffix(end).unwrap_or(text)) else {
        return match text.strip_suffix('$').and_then(|it| it.rsplit_once("\\.")) {
            Some((_, endings)) if expand(endings).is_some_and(|all| is_no_script(&all)) => {
                Refused::Files
            }
            _ => Refused::Unknown,
        };
    };
    let is_ending = |it: &String| it.starts_with('.');
    if all.iter().all(is_ending) && anchored.is_none() {
        return if is_no_script(&all) && *end == "$" {
            Refused::Files
        } else {
            Refused::Unknown
        };
    }
    if !all.iter().all(|it| is_path(it)) {
        return Refused::Unknown;
    }
    // Without an end, it is the beginning of longer names too.
    let is_all = is_exact && !end.is_empty() && all.iter().all(|it| it.starts_with('/'));
    Refused::Paths {
        paths: everywhere(all, anchored.is_some()),
        is_all,
    }
}

fn is_no_script(endings: &[String]) -> bool {
    endings
        .iter()
        .all(|it| !it.contains("php") || !it.ends_with("php"))
}

fn is_hidden(pattern: &str) -> bool {
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
    let mut depth = 0_i32;
    rest.chars().all(|letter| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        (letter != '|' || depth > 0) && letter != '?'
    }) && !rest.contains("well-known")
        && !rest.contains("(w")
        && !rest.contains("|w")
}

fn is_path(text: &str) -> bool {
    let text = text.trim_matches('/');
    !text.is_empty()
        && text
            .split('/')
            .all(|it| !it.is_empty() && !it.starts_with('.'))
}

/// An expression that may be found anywhere: at the root, and where `WordPress` has its folders.
fn everywhere(paths: Vec<String>, is_anchored: bool) -> Vec<String> {
    let mut all: Vec<String> = paths
        .iter()
        .map(|it| it.trim_matches('/').to_owned())
        .collect();
    if !is_anchored {
        for path in paths {
            all.push(format!("wp-content/{}", path.trim_matches('/')));
        }
    }
    all.dedup();
    all
}

/// All texts that an expression matches, if they are few.
fn expand(pattern: &str) -> Option<Vec<String>> {
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

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn patterns_that_are_refused_are_read_exactly_or_not_at_all() {
        let scripts = |folders: &[&str], is_all| Refused::Scripts {
            folders: texts(folders),
            is_all,
        };
        let paths = |paths: &[&str], is_all| Refused::Paths {
            paths: texts(paths),
            is_all,
        };
        for (pattern, expected) in [
            (
                "^/(uploads|a/b)/.*\\.php",
                scripts(&["uploads", "a/b"], true),
            ),
            (
                "/(?:uploads|files)/.*\\.php$",
                scripts(
                    &["uploads", "files", "wp-content/uploads", "wp-content/files"],
                    false,
                ),
            ),
            (
                "(composer\\.json|wp-config\\.php|vendor)",
                paths(
                    &[
                        "composer.json",
                        "wp-config.php",
                        "vendor",
                        "wp-content/composer.json",
                        "wp-content/wp-config.php",
                        "wp-content/vendor",
                    ],
                    false,
                ),
            ),
            ("^/(vendor|storage)/", paths(&["vendor", "storage"], true)),
            ("^/a", paths(&["a"], false)),
            ("\\.(php|phtml)\\.bak$", Refused::Files),
            ("\\.(sql|bak)$", Refused::Files),
            ("\\.php$", Refused::Unknown),
            ("x[0-9]+\\.php", Refused::Unknown),
            ("/\\.ht", Refused::Hidden),
            ("/\\.(?!well-known).*", Refused::Hidden),
            ("/\\.git|/private", Refused::Unknown),
            ("/\\.well-known", Refused::Unknown),
        ] {
            assert_eq!(refused(pattern, true), expected, "{pattern}");
        }
    }
}
