//! Configurations of other servers, taken apart: words, with more of the like inside.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::LazyLock;

/// What has become of a statement. A reader has to say it of each; what it says nothing of is told
/// to the person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Fate {
    #[default]
    Unread,
    /// It is translated, or means nothing here. What is inside has fates of its own.
    Done,
    /// It is left out and told, with all that is inside.
    Told,
}

/// The file and the line of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceLine {
    /// The number of its file, as the draft knows it.
    pub(super) file: usize,
    pub(super) line: usize,
}

/// A statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) fate: Cell<Fate>,
    pub(super) place: SourceLine,
    /// No module that comes with its server has it.
    pub(super) is_foreign: bool,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) inside: Vec<Self>,
}

/// Deeper ones are no configuration that a person wrote.
const DEEPEST: usize = 32;
/// More are generated, and are better generated anew.
const MOST: usize = 20_000;

impl Directive {
    pub(super) fn done(&self) {
        self.fate.set(Fate::Done);
    }

    /// With all that is inside.
    pub(super) fn done_whole(&self) {
        self.done();
        self.inside.iter().for_each(Self::done_whole);
    }

    pub(super) fn argument(&self, at: usize) -> &str {
        self.arguments.get(at).map_or("", String::as_str)
    }

    /// The first one of this name inside.
    pub(super) fn find(&self, name: &str) -> Option<&Self> {
        self.inside.iter().find(|inside| inside.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// As it was written, on one line.
    pub(super) fn shown(&self) -> String {
        let mut words = vec![self.name.as_str()];
        words.extend(self.arguments.iter().map(String::as_str));
        words.join(" ")
    }
}

/// What of a text is looked at next.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    /// `;` in nginx, the end of a line in a Caddyfile.
    End,
}

/// Words, braces and ends, with their lines.
struct Tokens<'a> {
    /// How many statements there may still be.
    left: usize,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    file: usize,
    line: usize,
    /// The end of a line ends a statement.
    by_line: bool,
}

impl Tokens<'_> {
    fn next(&mut self) -> Option<(usize, Token)> {
        loop {
            let line = self.line;
            let letter = self.rest.next()?;
            match letter {
                '\n' => {
                    self.line += 1;
                    if self.by_line {
                        return Some((line, Token::End));
                    }
                }
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                ';' if !self.by_line => return Some((line, Token::End)),
                '{' if !self.by_line || self.ends_word() => return Some((line, Token::Open)),
                '}' if !self.by_line || self.ends_word() => return Some((line, Token::Close)),
                letter if letter.is_whitespace() => {}
                quote @ ('"' | '\'' | '`') => return Some((line, Token::Word(self.quoted(quote)))),
                letter => return Some((line, Token::Word(self.word(letter)))),
            }
        }
    }

    fn ends_word(&mut self) -> bool {
        self.rest.peek().is_none_or(|c| c.is_whitespace())
    }

    fn quoted(&mut self, quote: char) -> String {
        let mut word = String::new();
        while let Some(letter) = self.rest.next() {
            match letter {
                '\\' => match self.rest.next() {
                    Some(escaped) if escaped == quote => word.push(escaped),
                    Some(other) => word.extend(['\\', other]),
                    None => {}
                },
                '\n' => {
                    self.line += 1;
                    word.push('\n');
                }
                letter if letter == quote => break,
                letter => word.push(letter),
            }
        }
        word
    }

    /// Whether the brace that is next counts letters of an expression, as in `[0-9]{4}`.
    fn counts(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next();
        ahead.next().is_some_and(|it| it.is_ascii_digit())
    }

    /// A brace inside is part of it: `${name}`, `[0-9]{4}`.
    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        let mut open = 0_usize;
        while let Some(&letter) = self.rest.peek() {
            let counts = word.ends_with([']', ')']) && self.counts();
            let begins_block = letter == '{' && !word.ends_with('$') && !counts;
            let ends_word = letter == ';' || begins_block || letter == '}' && open == 0;
            let ends = letter.is_whitespace() || !self.by_line && ends_word;
            if ends {
                break;
            }
            match letter {
                '{' => open += 1,
                '}' => open = open.saturating_sub(1),
                _ => {}
            }
            word.push(letter);
            self.rest.next();
        }
        word
    }
}

fn statements(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Directive>, String> {
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut begun = 0;
    let file = tokens.file;
    let mut finish = |words: &mut Vec<String>, line, inside| {
        let mut words = std::mem::take(words).into_iter();
        let name = words.next().unwrap_or_default();
        all.push(Directive {
            place: SourceLine { file, line },
            name,
            arguments: words.collect(),
            inside,
            ..Directive::default()
        });
    };
    while let Some((line, token)) = tokens.next() {
        match token {
            Token::Word(word) => {
                if words.is_empty() {
                    begun = line;
                }
                words.push(word);
            }
            Token::End if words.is_empty() => {}
            Token::End => {
                tokens.left = tokens.left.checked_sub(1).ok_or_else(|| too_many(line))?;
                finish(&mut words, begun, Vec::new());
            }
            Token::Open if depth == DEEPEST => {
                return Err(format!(
                    "line {line}: blocks in blocks, more than {DEEPEST} deep"
                ));
            }
            Token::Open => {
                tokens.left = tokens.left.checked_sub(1).ok_or_else(|| too_many(line))?;
                let inside = statements(tokens, depth + 1)?;
                let line = if words.is_empty() { line } else { begun };
                finish(&mut words, line, inside);
            }
            Token::Close if depth == 0 => {
                return Err(format!("line {line}: a `}}` without its `{{`"));
            }
            Token::Close => {
                if !words.is_empty() {
                    finish(&mut words, begun, Vec::new());
                }
                return Ok(all);
            }
        }
    }
    if depth > 0 {
        return Err(format!("line {}: a `}}` is missing", tokens.line));
    }
    if !words.is_empty() {
        finish(&mut words, begun, Vec::new());
    }
    Ok(all)
}

fn too_many(line: usize) -> String {
    format!("line {line}: it has more than {MOST} statements; give it in parts, a site each")
}

/// nginx's way: `name words;` and `name words { … }`.
pub(super) fn nginx(text: &str, file: usize) -> Result<Vec<Directive>, String> {
    let mut all = braces(text, file, false)?;
    NGINX.mark(&mut all);
    Ok(all)
}

/// Caddy's way: a line each, blocks in braces.
pub(super) fn caddy(text: &str, file: usize) -> Result<Vec<Directive>, String> {
    braces(text, file, true)
}

fn braces(text: &str, file: usize, by_line: bool) -> Result<Vec<Directive>, String> {
    let mut tokens = Tokens {
        left: MOST,
        rest: text.chars().peekable(),
        file,
        line: 1,
        by_line,
    };
    statements(&mut tokens, 0)
}

/// Names of the statements that a server and the modules that come with it have.
struct Known {
    names: HashSet<String>,
    /// Blocks whose lines begin with something else than a name of a statement.
    of_values: &'static [&'static str],
}

impl Known {
    fn new(lists: &[&str], of_values: &'static [&'static str]) -> Self {
        let names = lists.iter().flat_map(|it| it.split_whitespace());
        Self {
            names: names.map(str::to_ascii_lowercase).collect(),
            of_values,
        }
    }

    /// Statements in `<IfModule>` of somebody's module hold only where that is loaded.
    fn mark(&self, all: &mut [Directive]) {
        for it in all {
            let name = it.name.to_ascii_lowercase();
            // Apache takes none of these either.
            let is_wrong = match name.as_str() {
                "files" | "filesmatch" => it.arguments.is_empty(),
                "rewriteengine" => !["on", "off"].contains(&&*it.argument(0).to_ascii_lowercase()),
                _ => false,
            };
            it.is_foreign = is_wrong || !self.names.contains(&name);
            let is_others = name == "ifmodule" && is_of_others(it.argument(0));
            if !it.is_foreign && !is_others && !self.of_values.contains(&name.as_str()) {
                self.mark(&mut it.inside);
            }
        }
    }
}

/// Modules that come with Apache, and PHP's.
const MODULES: &str = "\
    access_compat actions alias allowmethods asis auth_basic auth_digest auth_form \
    authn_anon authn_core authn_dbd authn_dbm authn_file authn_socache authnz_fcgi \
    authnz_ldap authz_core authz_dbd authz_dbm authz_groupfile authz_host authz_owner \
    authz_user autoindex brotli buffer cache cache_disk cgi cgid charset_lite dav dav_fs \
    dav_lock dbd deflate dir env expires ext_filter file_cache filter headers http2 \
    imagemap include info ldap lua macro md mime mime_magic negotiation php php5 php7 \
    php8 proxy proxy_ajp proxy_balancer proxy_connect proxy_fcgi proxy_html proxy_http \
    proxy_http2 proxy_scgi proxy_uwsgi proxy_wstunnel ratelimit remoteip reqtimeout \
    request rewrite sed session session_cookie session_crypto session_dbd setenvif \
    speling ssl status substitute suexec unique_id userdir usertrack vhost_alias xml2enc";

/// Whether a block asks whether a module is loaded that does not come with Apache.
fn is_of_others(module: &str) -> bool {
    let name = module.trim_start_matches("mod_");
    let name = name.trim_end_matches(".c").trim_end_matches("_module");
    !module.starts_with('!') && !MODULES.split_whitespace().any(|it| it == name)
}

/// From `nginx.org/en/docs/dirindex.html`, and those of other modules that only shape replies.
static NGINX: LazyLock<Known> = LazyLock::new(|| {
    Known::new(
        &[
            include_str!("known/nginx.txt"),
            "brotli brotli_buffers brotli_comp_level brotli_min_length brotli_static brotli_types \
             brotli_window zstd zstd_buffers zstd_comp_level zstd_min_length zstd_static zstd_types \
             more_clear_headers more_set_headers vhost_traffic_status_zone",
        ],
        &["charset_map", "geo", "map", "split_clients", "types"],
    )
});

/// From `httpd.apache.org/docs/2.4/mod/directives.html`, with those of 2.2 and of PHP's module.
static APACHE: LazyLock<Known> =
    LazyLock::new(|| Known::new(&[include_str!("known/apache.txt")], &[]));

/// Apache's way: a line each, blocks as `<Name words>` to `</Name>`.
pub(super) fn apache(text: &str, file: usize) -> Result<Vec<Directive>, String> {
    // Apache takes a byte order mark for a wrong statement and answers nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.replace("\r\n", "\n").contains('\r') {
        return Err(
            "its lines end with a carriage return alone, which ends none for Apache".into(),
        );
    }
    let mut open: Vec<Directive> = vec![Directive::default()];
    let mut lines = (1..).zip(text.lines());
    let mut left = MOST;
    while let Some((line, text)) = lines.next() {
        let mut text = text.trim().to_owned();
        while text.ends_with('\\')
            && let Some((_, more)) = lines.next()
        {
            text.pop();
            text.push_str(more.trim());
        }
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(name) = text.strip_prefix("</") {
            let ended = (open.len() > 1).then(|| open.pop()).flatten();
            let ended = ended.ok_or_else(|| format!("line {line}: `</{name}` ends nothing"))?;
            open.last_mut()
                .expect("the outermost stays")
                .inside
                .push(ended);
            continue;
        }
        let section = text
            .strip_prefix('<')
            .map(|text| text.trim_end_matches('>').to_owned());
        let mut words = words(section.as_deref().unwrap_or(&text)).into_iter();
        let directive = Directive {
            place: SourceLine { file, line },
            name: words.next().unwrap_or_default(),
            arguments: words.collect(),
            ..Directive::default()
        };
        left = left.checked_sub(1).ok_or_else(|| too_many(line))?;
        if section.is_none() {
            open.last_mut()
                .expect("the outermost stays")
                .inside
                .push(directive);
        } else if open.len() > DEEPEST {
            return Err(format!(
                "line {line}: blocks in blocks, more than {DEEPEST} deep"
            ));
        } else {
            open.push(directive);
        }
    }
    match &open[..] {
        [whole] => {
            let mut all = whole.inside.clone();
            APACHE.mark(&mut all);
            Ok(all)
        }
        [.., unended] => Err(format!(
            "line {}: `<{}>` has no end",
            unended.place.line, unended.name
        )),
        [] => unreachable!("the outermost stays"),
    }
}

fn words(text: &str) -> Vec<String> {
    let mut tokens = Tokens {
        left: MOST,
        rest: text.chars().peekable(),
        file: 0,
        line: 1,
        by_line: true,
    };
    let mut words = Vec::new();
    // A brace is a word here: `%{HTTP:Host}`. A hash is none: it begins a comment only in a line of
    // its own.
    while let Some(letter) = tokens.rest.next() {
        match letter {
            letter if letter.is_whitespace() => {}
            quote @ ('"' | '\'') => words.push(tokens.quoted(quote)),
            letter => words.push(tokens.word(letter)),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(directives: &[Directive]) -> String {
        let parts = directives.iter().map(|it| {
            let inside = shown(&it.inside);
            if inside.is_empty() {
                format!("{}:{}", it.place.line, it.shown())
            } else {
                format!("{}:{} [{inside}]", it.place.line, it.shown())
            }
        });
        parts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn nginx_is_taken_apart() {
        let text =
            "server {\n  root '/srv/a b'; # why\n  location ~ ^/x[0-9]{2}$ { deny all; }\n}\n";
        let parsed = nginx(text, 0).unwrap();
        assert_eq!(
            shown(&parsed),
            "1:server [2:root /srv/a b; 3:location ~ ^/x[0-9]{2}$ [3:deny all]]"
        );
        let parsed = nginx("if (-f /x/off){ return 503; }", 0).unwrap();
        assert_eq!(shown(&parsed), "1:if (-f /x/off) [1:return 503]");
        assert!(nginx("a {", 0).is_err() && nginx("}", 0).is_err());
        assert!(nginx(&"a {".repeat(100), 0).is_err());
    }

    #[test]
    fn a_caddyfile_is_taken_apart() {
        let parsed = caddy(
            "{\n\tfrankenphp\n}\nexample.com {\n\troot * /srv\n\tphp_server {\n\t\tenv A {$B}\n\t}\n}\n",
            0,
        );
        assert_eq!(
            shown(&parsed.unwrap()),
            "1: [2:frankenphp]; 4:example.com [5:root * /srv; 6:php_server [7:env A {$B}]]"
        );
    }

    #[test]
    fn apache_is_taken_apart() {
        let text = "# why\nListen 80\n<VirtualHost *:80>\n  RewriteCond %{HTTP:Host} \\\n  \"a b\"\n</VirtualHost>\n";
        let parsed = apache(text, 0).unwrap();
        assert_eq!(
            shown(&parsed),
            "2:Listen 80; 3:VirtualHost *:80 [4:RewriteCond %{HTTP:Host} a b]"
        );
        assert!(apache("<A>", 0).is_err() && apache("</A>", 0).is_err());
    }

    #[test]
    fn no_text_makes_it_panic() {
        let parts = [
            "a", " ", "{", "}", ";", "\n", "'", "\"", "<A>", "</A>", "\\", "#", "$",
        ];
        for _ in 0..20_000 {
            let parts = (0..fastrand::usize(..12)).map(|_| parts[fastrand::usize(..parts.len())]);
            let text: String = parts.collect();
            for parse in [nginx, caddy, apache] {
                _ = parse(&text, 0);
            }
        }
    }
}
