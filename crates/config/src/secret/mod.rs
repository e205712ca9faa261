//! What is never shown.

mod query;
pub(crate) mod request;
mod table;
mod text;
#[cfg(test)]
mod text_tests;

use std::borrow::Cow;

use crate::node::Node;
use crate::setting::Shown;
use table::{INSIDE, KEY_SCHEMES, MASK, Program, SHAPES, WORDS};
use text::without_secrets;

/// As long as a token that stands for a user in a URL, and longer than most names.
const TOKEN: usize = 16;

/// By the words in a key's or variable's name: `DB_PASSWORD`, `app_key`, `apiToken`, `JWT_TTL` too:
/// one masked for nothing does less harm than one shown.
pub(crate) fn is_secret(name: &str) -> bool {
    let lower = lower(name);
    has_secret_word(name, &lower)
}

/// Nearly all names of requests are in lower case as they come.
fn lower(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    }
}

fn has_secret_word(name: &str, lower: &str) -> bool {
    let has_word = |words: &str| {
        let mut words = words.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| WORDS.contains(&word))
    };
    INSIDE.iter().any(|word| has(lower, word))
        || has_word(lower)
        || name != lower && has_word(&words_of_camel_case(name))
}

/// `authKey` and `AUTH_KEY` have the same words.
fn words_of_camel_case(name: &str) -> String {
    let mut words = String::with_capacity(name.len());
    let mut after_lower = false;
    for c in name.chars() {
        if after_lower && c.is_ascii_uppercase() {
            words.push('_');
        }
        after_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// `str::contains`, for names: most are shorter than what is looked for, which costs nothing here.
fn has(name: &str, part: &str) -> bool {
    name.len() >= part.len() && name.contains(part)
}

/// A token by its own looks: a JSON web token, or what begins as those of well-known services.
fn looks_secret(text: &str) -> bool {
    let parts = || text.split('.');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '=');
    let web_token = text.starts_with("eyJ") && parts().count() >= 3 && text.chars().all(plain);
    let begins = |shape: &&str| text.len() > shape.len() && text.starts_with(*shape);
    web_token || SHAPES.iter().any(begins)
}

/// True when `value` under the name `key` is the path of a key and not the key.
pub(crate) fn is_key_file(value: &str) -> bool {
    let ending = value.rsplit('.').next().unwrap_or_default();
    value != ending && ["pem", "key", "crt", "cer"].contains(&ending)
}

/// A value as it may be shown: nothing of a secret, and no password inside a URL, a DSN or a
/// command.
pub(crate) fn masked(value: &str, secret: bool) -> String {
    if (secret || looks_secret(value)) && !value.is_empty() {
        MASK.to_owned()
    } else {
        query::without_parameters(&without_passwords(&without_secrets(value))).into_owned()
    }
}

/// The words of a command as they may be shown: also without what options take that is secret.
pub(crate) fn masked_words<'t>(words: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let (mut taken, mut program) = (Taken::Nothing, None);
    let words = words.into_iter().map(|word| {
        program = table::program(word).or(program);
        let shown = taken.masked(word).or_else(|| masked_option(word, program));
        taken = Taken::by(word, program);
        shown.unwrap_or_else(|| masked(word, false))
    });
    words.collect()
}

/// The items of a list, and the texts among them as they may be shown.
pub(crate) fn masked_items(items: &[Node]) -> impl Iterator<Item = (&Node, Option<String>)> {
    let words = items.iter().map(|item| item.text().unwrap_or_default());
    let shown = items.iter().zip(masked_words(words));
    shown.map(|(item, shown)| (item, item.text().map(|_| shown)))
}

/// The kind of word that comes after an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Nothing that is secret.
    Nothing,
    /// `--password`, `-token`, `-p` of mysql.
    Secret,
    /// A user and a password: `-u` and `--user` of curl and others.
    Login,
}

impl Taken {
    fn by(option: &str, program: Option<&Program>) -> Self {
        let takes = |options: fn(&Program) -> &[&str]| {
            program.is_some_and(|program| options(program).contains(&option))
        };
        match option {
            _ if takes(|program| program.secrets) => Self::Secret,
            _ if takes(|program| program.logins) => Self::Login,
            "-u" | "-U" | "--user" | "--proxy-user" => Self::Login,
            _ if option.starts_with('-') && !option.contains('=') && is_secret(option) => {
                Self::Secret
            }
            _ => Self::Nothing,
        }
    }

    /// The next word, if it must not be shown as it is.
    fn masked(self, word: &str) -> Option<String> {
        let plain = word.trim_matches(is_quote);
        match self {
            Self::Secret if !plain.is_empty() && !is_key_file(plain) => Some(MASK.to_owned()),
            Self::Login => masked_login(word),
            Self::Nothing | Self::Secret => None,
        }
    }
}

/// `user:***`. None where there is no password.
fn masked_login(login: &str) -> Option<String> {
    let (user, password) = login.split_once(':')?;
    (!password.is_empty()).then(|| format!("{user}:{MASK}"))
}

/// An option that has its value in the same word: `--password=SECRET`, `-pSECRET` of mysql,
/// `-uuser:SECRET` and `--user=user:SECRET` of curl.
fn masked_option(word: &str, program: Option<&Program>) -> Option<String> {
    let of_program = program.and_then(|program| {
        let mut options = program.secrets.iter();
        options.find(|option| word.len() > option.len() && word.starts_with(**option))
    });
    if let Some(option) = of_program {
        return Some(format!("{option}{MASK}"));
    }
    if let Some((option, value)) = word.split_once('=').filter(|_| word.starts_with("--"))
        && is_secret(option)
        && !is_key_file(value)
    {
        return (!value.is_empty()).then(|| format!("{option}={MASK}"));
    }
    let option = ["--user=", "--proxy-user=", "-u", "-U"]
        .into_iter()
        .find(|option| word.starts_with(option))?;
    let login = masked_login(word.strip_prefix(option)?)?;
    Some(format!("{option}{login}"))
}

pub(crate) fn masked_shown(shown: Shown, secret: bool) -> Shown {
    match shown {
        Shown::One(text) => Shown::One(masked(&text, secret)),
        Shown::List(texts) if secret => {
            Shown::List(texts.iter().map(|text| masked(text, true)).collect())
        }
        Shown::List(texts) => Shown::List(masked_words(texts.iter().map(String::as_str))),
        Shown::Map(mut pairs) => {
            for pair in &mut pairs {
                pair.value = masked(&pair.value, secret || is_secret(&pair.name));
            }
            Shown::Map(pairs)
        }
    }
}

/// What separates the parts of a DSN, a command, a query or a list.
fn ends_part(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            ',' | ';' | '&' | '?' | '#' | '"' | '\'' | '|' | '<' | '>' | '(' | ')'
        )
}

/// `mysql://user:***@host/db`, `mysql:host=db;password=***`, `worker.php --token *** -d x=y`.
fn without_passwords(value: &str) -> String {
    // Most values are short words.
    if !value.contains(['=', '@', ' ']) && !value.starts_with('-') {
        return value.to_owned();
    }
    let mut shown = String::with_capacity(value.len());
    let mut rest = value;
    let (mut taken, mut program) = (Taken::Nothing, None);
    while !rest.is_empty() {
        if taken != Taken::Nothing {
            let word = rest.get(..word_end(rest)).unwrap_or_default();
            let end = word.trim_end_matches(';').len(); // it ends the command
            let (word, after) = rest.split_at(end);
            let masked = taken.masked(word);
            // `-u` may be a switch that takes nothing.
            program = table::program(word).or(program);
            shown.push_str(&masked.unwrap_or_else(|| without_password(word, program)));
            (taken, rest) = (Taken::Nothing, after);
            continue;
        }
        // An option's value may be in quotes, and hold whatever else separates parts.
        let word = word_end(rest);
        let has_value = rest
            .get(..word)
            .is_some_and(|it| masked_option(it, program).is_some());
        let end = if has_value { word } else { part_end(rest) };
        let (part, after) = rest.split_at(end);
        program = table::program(part).or(program);
        shown.push_str(&without_password(part, program));
        let quoted = if names_secret(part) {
            quoted_end(after)
        } else {
            0
        };
        if quoted > 0 {
            shown.push_str(MASK);
        }
        let after = after.get(quoted..).unwrap_or_default();
        let separator = after.len() - after.trim_start_matches(ends_part).len();
        let spaces = after.len() - after.trim_start().len();
        taken = Taken::by(part, program);
        let next = if taken == Taken::Nothing || spaces == 0 {
            taken = Taken::Nothing;
            separator
        } else {
            spaces
        };
        let (separator, after) = after.split_at(next);
        if separator.contains([';', '|', '&', '\n']) {
            program = None; // another command begins
        }
        shown.push_str(separator);
        rest = after;
    }
    shown
}

const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// The end of a word of a shell, with quotes and the spaces in them. Another quote is of who quotes
/// the command.
fn word_end(text: &str) -> usize {
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(c) = rest.chars().next()
        && !c.is_whitespace()
    {
        match (is_quote(c), quoted_end(rest)) {
            (true, 0) => break,
            (true, end) => at += end,
            (false, _) => at += c.len_utf8(),
        }
    }
    at
}

/// The length of what is in quotes at the start, with them; 0: there is nothing.
fn quoted_end(text: &str) -> usize {
    let Some(quote) = text.chars().next().filter(|c| is_quote(*c)) else {
        return 0;
    };
    let inside = text.get(1..).unwrap_or_default();
    inside.find(quote).map_or(0, |end| end + 2)
}

/// `password=`, with its value still to come.
fn names_secret(part: &str) -> bool {
    let name = part.strip_suffix('=').unwrap_or_default();
    is_secret(name.rsplit(':').next().unwrap_or(name))
}

/// A password in a URL may hold what separates parts elsewhere, all but spaces and quotes.
fn part_end(text: &str) -> usize {
    let end = text.find(ends_part).unwrap_or(text.len());
    let word = text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
    let word = text.get(..word.unwrap_or(text.len())).unwrap_or(text);
    let Some(scheme) = word.find("://") else {
        return login_end(word).unwrap_or(end);
    };
    // Of several URLs in a list, the first.
    let authority = scheme + 3;
    let next = word.get(authority..).and_then(|rest| rest.find("://"));
    let limit = next.map_or(word.len(), |next| authority + next);
    let of_user = word.get(authority..limit).and_then(|rest| rest.rfind('@'));
    let path = word.get(authority..limit).and_then(|rest| rest.find('/'));
    match (of_user, path) {
        // A `@` in a path or query is no user's, unless what stands before it can't be a host.
        (Some(at), Some(path)) if at > path && is_host(word.get(authority..authority + path)) => {
            end
        }
        (Some(at), _) if authority + at >= end => {
            let rest = text.get(authority + at..).unwrap_or_default();
            authority + at + rest.find(ends_part).unwrap_or(rest.len())
        }
        _ => end,
    }
}

/// The end of `user:SECRET@host:1`, whatever is in the secret.
fn login_end(word: &str) -> Option<usize> {
    let at = word.rfind('@')?;
    let host = word.get(at + 1..)?;
    let end = host.find(ends_part).unwrap_or(host.len());
    let user = word.get(..at)?.split_once(':')?.0;
    let name = user.split_once('=').map_or("", |(name, _)| name);
    let is_login = !user.contains(ends_part) && !is_secret(name) && is_host(host.get(..end));
    is_login.then_some(at + 1 + end)
}

/// Whether it is a host, with or without a port.
fn is_host(text: Option<&str>) -> bool {
    let Some(text) = text else { return false };
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    host.chars().all(plain) && port.bytes().all(|b| b.is_ascii_digit())
}

/// A user alone is a key there, as in the DSN of Sentry, or a token.
fn takes_key(scheme: &str) -> bool {
    KEY_SCHEMES.iter().any(|known| scheme.ends_with(known))
}

/// Of a part between separators.
fn without_password(part: &str, program: Option<&Program>) -> String {
    if looks_secret(part) {
        return MASK.to_owned();
    }
    if let Some(shown) = masked_option(part, program) {
        return shown;
    }
    let in_url = part.split_once("://").and_then(|(scheme, rest)| {
        let (user_info, host) = rest.rsplit_once('@')?;
        let until = user_info.find('/').unwrap_or(user_info.len());
        if until < user_info.len() && is_host(user_info.get(..until)) {
            return None; // it stands in a path
        }
        match user_info.split_once(':') {
            Some((user, _)) if takes_key(scheme) && user.len() >= TOKEN => {
                Some(format!("{scheme}://{MASK}:{MASK}@{host}"))
            }
            Some((user, _)) => Some(format!("{scheme}://{user}:{MASK}@{host}")),
            None if user_info.len() >= TOKEN || takes_key(scheme) => {
                Some(format!("{scheme}://{MASK}@{host}"))
            }
            None => None,
        }
    });
    if let Some(shown) = in_url {
        return shown;
    }
    match part.split_once('=') {
        Some((name, value)) if !value.is_empty() && !is_key_file(value) => {
            let name_alone = name.rsplit(':').next().unwrap_or(name);
            if is_secret(name_alone)
                || name_alone.eq_ignore_ascii_case("auth")
                || looks_secret(value)
            {
                format!("{name}={MASK}")
            } else {
                without_login(part)
            }
        }
        _ => without_login(part),
    }
}

/// `user:***@host:1`
fn without_login(part: &str) -> String {
    if !part.contains("://")
        && let Some((login, host)) = part.rsplit_once('@')
        && is_host(Some(host.split('/').next().unwrap_or(host)))
        && let Some(login) = masked_login(login)
    {
        return format!("{login}@{host}");
    }
    part.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Commands and values with a secret in them, the `S`.
    const PLACES: [&str; 17] = [
        "mysql -p S",
        "mysqldump -pS db",
        "sshpass -p 'S' ssh host",
        "mysql -p'S'",
        "curl -u user:S https://host",
        "curl -u 'user:S' https://host",
        "curl -uuser:S https://host",
        "curl --user user:S",
        "curl --proxy-user=user:S",
        "php worker.php --token S -v",
        "php worker.php --token=S -v",
        "sh -c 'mysql -pS' x",
        "API_KEY='S' php",
        "redis://user:S@host:1/0",
        "user:S@host:1",
        ":S@host",
        "https://S@sentry.io/1",
    ];

    proptest! {
        #[test]
        fn no_secret_is_left(
            before in "([a-z./ -]{0,12} )?",
            secret in "[A-Z0-9][A-Z0-9!%*+_.:;,&-]{6,20}[A-Z0-9]",
            after in "( [a-z./ =-]{0,12})?",
            place in 0..PLACES.len(),
        ) {
            let value = format!("{before}{}{after}", PLACES[place].replacen('S', &secret, 1));
            let shown = masked(&value, false);
            prop_assert!(!shown.contains(&secret), "{value}: {shown}");
            let words = value.split(' ').filter(|word| !word.is_empty());
            let shown = masked_words(words).join(" ");
            prop_assert!(!shown.contains(&secret), "{value}: {shown}");
        }
    }

    #[test]
    fn a_program_behind_an_option_is_one() {
        let shown = masked("-u mysql -p 0%_A0_AA", false);
        assert_eq!(shown, "-u mysql -p ***");
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "password",
            "DB_PASSWORD",
            "APP_KEY",
            "secret",
            "apiToken",
            "key",
            "API-KEY",
            "JWT",
            "JWT_SIGNING",
            "STRIPE",
            "STRIPE_SK",
            "PRIVATE",
            "APP_PRIVATE",
            "authKey",
            "MAILGUN_KEY",
            "AWS_ACCESS_KEY_ID",
            "APIKEY",
            "smtpPwd",
            "DB_PW",
            "Authorization",
            "SLACK_WEBHOOK_URL",
            "HMAC",
            "ENCRYPTION",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "address",
            "MONKEY",
            "keyboard",
            "APP_ENV",
            "passenger",
            "compress",
            "AUTHOR",
            "signal",
            "bypass",
            "spawn",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_masked() {
        for (value, shown) in [
            (
                "mysql://root:hush@db:3306/app",
                "mysql://root:***@db:3306/app",
            ),
            ("redis://:hu:s@h@cache", "redis://:***@cache"),
            ("tcp://127.0.0.1:6001", "tcp://127.0.0.1:6001"),
            ("https://host/a@b:c", "https://host/a@b:c"),
            ("plain", "plain"),
            ("redis://user:pass@host", "redis://user:***@host"),
            (
                "redis://u:p@a:1,redis://u:q@b:2",
                "redis://u:***@a:1,redis://u:***@b:2",
            ),
            ("amqp://u:p/w?d#x,y;z@h/v", "amqp://u:***@h/v"),
            (
                "smtp://me%40x.org:p@h:25?a=b",
                "smtp://me%40x.org:***@h:25?a=b",
            ),
            (
                "https://0123456789abcdef@sentry.io/1",
                "https://***@sentry.io/1",
            ),
            ("ssh://git@host/x", "ssh://git@host/x"),
            ("nats://hush@host:4222", "nats://***@host:4222"),
            ("nats://a:1,nats://hush@b:2", "nats://a:1,nats://***@b:2"),
            (
                "https://h/c?sv=1&sig=hush&se=2",
                "https://h/c?sv=1&sig=***&se=2",
            ),
            (
                "a https://h/?sid=hush&ticket=hush#code=hush b",
                "a https://h/?sid=***&ticket=***#code=*** b",
            ),
            ("https://h/?code=404", "https://h/?code=404"),
            (
                "curl 'https://h/?sig=hush' -d pin=1",
                "curl 'https://h/?sig=***' -d pin=1",
            ),
            ("sid=1&code=1234", "sid=1&code=1234"),
            ("http://host:80/a@b", "http://host:80/a@b"),
            ("redis://h/0?auth=hush&db=1", "redis://h/0?auth=***&db=1"),
            (
                "mysql:host=db;dbname=a;password=hush;port=1",
                "mysql:host=db;dbname=a;password=***;port=1",
            ),
            ("pgsql:password=hush", "pgsql:password=***"),
            (
                "host=db user=u password=hush sslmode=on",
                "host=db user=u password=*** sslmode=on",
            ),
            (
                "php worker.php --password=hush -v",
                "php worker.php --password=*** -v",
            ),
            (
                "php worker.php --password hush -v",
                "php worker.php --password *** -v",
            ),
            (
                "sh -c 'API_TOKEN=hush php w.php'",
                "sh -c 'API_TOKEN=*** php w.php'",
            ),
            (
                "serve --tls-key key.pem --port 1",
                "serve --tls-key key.pem --port 1",
            ),
            ("a=b c=d", "a=b c=d"),
            ("me@example.com", "me@example.com"),
            ("u:hush@h:1", "u:***@h:1"),
            (":hu,sh@h:1", ":***@h:1"),
            ("url=u:hush@h", "url=u:***@h"),
            ("password=a:b@h", "password=***"),
            ("image:1@sha256:abc", "image:1@sha256:abc"),
            ("https://key@sentry.io/1", "https://***@sentry.io/1"),
            (
                "https://0123456789abcdef:hush@sentry.io/1",
                "https://***:***@sentry.io/1",
            ),
            (
                "sshpass -p hush ssh git@host",
                "sshpass -p *** ssh git@host",
            ),
            ("mysqldump -pHu;sh db", "mysqldump -p*** db"),
            ("curl -u me:hush -s url", "curl -u me:*** -s url"),
            ("curl -u 'me:hu sh' -s", "curl -u 'me:*** -s"),
            ("curl --user=me:hush -u me", "curl --user=me:*** -u me"),
            ("sh -c 'x --token hush'", "sh -c 'x --token ***'"),
            ("API_KEY='hu sh' php", "API_KEY=*** php"),
            // Without such a program, it means something else.
            ("sh -c 'mkdir -p var'", "sh -c 'mkdir -p var'"),
            (
                "ssh -p 2222 host; php -pages",
                "ssh -p 2222 host; php -pages",
            ),
            ("mkdir -p a && mysql -phush", "mkdir -p a && mysql -p***"),
            (
                "/usr/bin/mariadb-dump -p hush",
                "/usr/bin/mariadb-dump -p ***",
            ),
            ("sk_live_abc", "***"),
            ("x --id=ghp_abc", "x --id=***"),
            ("eyJhbGci.eyJzdWIi.sig-nature_", "***"),
            ("-----BEGIN PRIVATE KEY-----\nx", "***"),
            ("", ""),
            ("ä://ö:ü@é", "ä://ö:***@é"),
        ] {
            assert_eq!(masked(value, false), shown, "{value}");
        }
        assert_eq!(
            masked_words(["php", "--token", "hush", "--key", "a.pem", "x"]),
            ["php", "--token", "***", "--key", "a.pem", "x"]
        );
        assert_eq!(
            masked_words([
                "mysql",
                "-phu sh",
                "-p",
                "hu sh",
                "--token=a b",
                "-u",
                "me:a b",
                "-p"
            ]),
            [
                "mysql",
                "-p***",
                "-p",
                "***",
                "--token=***",
                "-u",
                "me:***",
                "-p"
            ]
        );
        assert_eq!(masked("hush", true), "***");
        assert_eq!(masked("", true), "");
    }
}
