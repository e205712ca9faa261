//! A server of nginx in one spelling: statements that may be written in several ways there are
//! written in one, before they are translated.

use super::directive::{Directive, Fate};
use super::php::{expression, gives_php};

/// More constants are generated.
const MOST: usize = 32;

/// The server with values in the place of constants, with `try_files` for answers of 418 that lead
/// to a location, and without scripts of Hack among those of PHP.
pub(super) fn plainly(server: &Directive) -> Directive {
    let mut server = server.clone();
    for (name, value) in constants(&server) {
        put(&mut server, &name, &value);
    }
    respell(&mut server);
    server
}

/// Variables that a server sets to a text once, and nothing else sets.
fn constants(server: &Directive) -> Vec<(String, String)> {
    fn count(block: &Directive, name: &str) -> usize {
        let each = block.inside.iter().map(|it| {
            // `auth_request_set` and `set_by_lua` set some as well.
            let sets = it.name.split('_').any(|word| word == "set") && it.argument(0) == name;
            usize::from(sets) + count(it, name)
        });
        each.sum()
    }
    let mut all: Vec<(String, String)> = Vec::new();
    for set in server.inside.iter().filter(|it| it.name == "set") {
        let (name, mut value) = (set.argument(0), set.argument(1).to_owned());
        for (known, text) in &all {
            value = replaced(&value, known, text);
        }
        let is_fixed = name.starts_with('$') && !value.contains('$');
        if is_fixed && all.len() < MOST && count(server, name) == 1 {
            all.push((name.to_owned(), value));
        }
    }
    all
}

/// Writes a value where a variable stands. Conditions and expressions are left as they are.
fn put(block: &mut Directive, name: &str, value: &str) {
    for inside in &mut block.inside {
        let first = match inside.name.as_str() {
            "set" if inside.argument(0) == name => {
                inside.fate.set(Fate::Done);
                continue;
            }
            "rewrite" => 1,
            "if" | "location" => usize::MAX,
            _ => 0,
        };
        for argument in inside.arguments.iter_mut().skip(first) {
            *argument = replaced(argument, name, value);
        }
        put(inside, name, value);
    }
}

/// A text with a value for `$name` and `${name}`, but not for the beginning of a longer name.
fn replaced(text: &str, name: &str, value: &str) -> String {
    if !text.contains('$') {
        return text.to_owned();
    }
    let braced = format!("${{{}}}", name.trim_start_matches('$'));
    let text = text.replace(&braced, value);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(name) {
        let is_longer = after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        out.push_str(before);
        out.push_str(if is_longer { name } else { value });
        rest = after;
    }
    out + rest
}

fn respell(block: &mut Directive) {
    let mut all = Vec::with_capacity(block.inside.len());
    for mut inside in std::mem::take(&mut block.inside) {
        if inside.name == "location" {
            lead_by_try(&mut inside);
            name_script(&mut inside);
            all.extend(without_hack(&mut inside));
        }
        respell(&mut inside);
        all.push(inside);
    }
    block.inside = all;
}

/// `error_page 418 = @f; return 418;` as a `try_files` that tries nothing.
fn lead_by_try(location: &mut Directive) {
    let status = match location.find("return") {
        Some(it) if it.arguments.len() == 1 && it.argument(0).starts_with('4') => {
            it.argument(0).to_owned()
        }
        _ => return,
    };
    let leads = |it: &Directive| {
        it.name == "error_page"
            && matches!(&it.arguments[..], [of, sign, to]
                if *of == status && sign == "=" && to.starts_with('@'))
    };
    let Some(to) = location.inside.iter().find(|it| leads(it)) else {
        return;
    };
    let to = to.argument(2).to_owned();
    location.inside.retain(|it| !leads(it));
    for it in location.inside.iter_mut().filter(|it| it.name == "return") {
        "try_files".clone_into(&mut it.name);
        it.arguments = vec![to.clone()];
    }
}

/// `set $s /index.php; if (-f $document_root$fastcgi_script_name) { set $s $fastcgi_script_name; }`
/// as the script's name: one that is not there is looked for anyway.
fn name_script(location: &mut Directive) {
    const NAME: &str = "$fastcgi_script_name";
    let is_there = |it: &Directive| {
        let condition = it.arguments.concat();
        it.name == "if" && condition == format!("(-f$document_root{NAME})")
    };
    let mut all = location.inside.iter().filter(|it| is_there(it));
    let (Some(condition), None) = (all.next(), all.next()) else {
        return;
    };
    let [set] = &condition.inside[..] else {
        return;
    };
    let variable = set.argument(0).to_owned();
    let is_default = |it: &Directive| it.name == "set" && it.argument(0) == variable;
    let mut sets = location.inside.iter().filter(|it| is_default(it));
    let is_one = matches!((sets.next(), sets.next()), (Some(it), None)
        if it.argument(1).starts_with('/') && !it.argument(1).contains('$'));
    if is_one && set.name == "set" && set.argument(1) == NAME && variable.starts_with('$') {
        location
            .inside
            .retain(|it| !is_there(it) && !is_default(it));
        put(location, &variable, NAME);
    }
}

/// `~ \.(hh|php)$` as `~ \.(php)$`, where it gives scripts to php-fpm: that runs none of such an
/// ending, unless it is told to. A location that refuses these files, whose sources would be sent,
/// is returned.
fn without_hack(location: &mut Directive) -> Option<Directive> {
    let (php, hack) = parted(expression(location)?)?;
    if !gives_php(location) {
        return None;
    }
    let sign = location.argument(0).to_owned();
    location.arguments = vec![sign.clone(), php];
    let refusal = Directive {
        name: "return".to_owned(),
        arguments: vec!["404".to_owned()],
        ..Directive::default()
    };
    Some(Directive {
        place: location.place,
        name: "location".to_owned(),
        arguments: vec![sign, hack],
        inside: vec![refusal],
        ..Directive::default()
    })
}

/// An expression of scripts that may end in `.hh` in two parts: for other endings, and for that.
fn parted(expression: &str) -> Option<(String, String)> {
    ["\\.(?:", "\\.("].iter().find_map(|open| {
        let (head, rest) = expression.rsplit_once(open)?;
        let (endings, tail) = rest.split_once(')')?;
        let (hack, others): (Vec<_>, Vec<_>) = endings.split('|').partition(|it| *it == "hh");
        let is_php = others.contains(&"php") && !tail.starts_with(['?', '*', '+', '{']);
        (is_php && !hack.is_empty()).then(|| {
            let others = others.join("|");
            (
                format!("{head}{open}{others}){tail}"),
                format!("{head}\\.hh{tail}"),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::directive::nginx;
    use super::*;

    fn shown(all: &[Directive]) -> String {
        let each = all.iter().map(|it| {
            let inside = shown(&it.inside);
            if inside.is_empty() {
                it.shown()
            } else {
                format!("{} [{inside}]", it.shown())
            }
        });
        each.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_server_has_one_spelling() {
        for (written, expected) in [
            (
                "set $r /srv; root $r/a; index ${r}b $rx;",
                "set $r /srv; root /srv/a; index /srvb $rx",
            ),
            (
                "set $a /a; set $b $a/b; root $b;",
                "set $a /a; set $b /a/b; root /a/b",
            ),
            (
                "set $r /a; location / { set $r /b; } root $r;",
                "set $r /a; location / [set $r /b]; root $r",
            ),
            (
                "set $r /a; auth_request_set $r $b; root $r;",
                "set $r /a; auth_request_set $r $b; root $r",
            ),
            (
                "location /d { error_page 418 = @f; return 418; }",
                "location /d [try_files @f]",
            ),
            (
                "location / { set $s /a.php; if (-f $document_root$fastcgi_script_name){ \
                 set $s $fastcgi_script_name; } fastcgi_param A $document_root$s; }",
                "location / [fastcgi_param A $document_root$fastcgi_script_name]",
            ),
            (
                "location /d { error_page 404 = @f; return 418; }",
                "location /d [error_page 404 = @f; return 418]",
            ),
        ] {
            let server = Directive {
                inside: nginx(written, 0).unwrap(),
                ..Directive::default()
            };
            assert_eq!(shown(&plainly(&server).inside), expected);
        }
    }

    #[test]
    fn scripts_of_hack_are_a_location_of_their_own() {
        for (written, php, hack) in [
            ("\\.(hh|php)$", "\\.(php)$", "\\.hh$"),
            (
                "^/a/.*\\.(?:php|hh|phtml)(/|$)",
                "^/a/.*\\.(?:php|phtml)(/|$)",
                "^/a/.*\\.hh(/|$)",
            ),
        ] {
            let expected = Some((php.to_owned(), hack.to_owned()));
            assert_eq!(parted(written), expected, "{written}");
        }
        for written in [
            "\\.php$",
            "\\.(hh|cc)$",
            "\\.(php|sql)$",
            "^/a/",
            "\\.(hh|php)?$",
        ] {
            assert_eq!(parted(written), None, "{written}");
        }
    }
}
