//! The mask for addresses, and for headers, of requests. An address may hold others, forms and
//! JSON, escaped as often as they were passed on: each spelling is looked through as a whole.

use std::borrow::Cow;

use super::query::is_secret_of_query;
use super::table::{LONG, MASK, OF_REQUESTS};
use super::{has, has_secret_word, looks_secret, lower, masked};

/// So often may a part of an address be escaped. Nobody reads more; it goes as a whole.
const DEEPEST: usize = 4;

/// Names before which a login or a token stands.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// Whether a field or a parameter of a request has a value that nobody but its owner may know.
fn is_secret_of_request(name: &str) -> bool {
    let lower = lower(name);
    OF_REQUESTS.iter().any(|part| has(&lower, part)) || has_secret_word(name, &lower)
}

/// The one mask for all that is shown of requests, in records, reports and on pages.
#[derive(Clone, Debug, Default)]
pub struct RequestMask {
    /// More parts of names, in lower case.
    more: Vec<String>,
}

impl RequestMask {
    /// With more parts of names, in lower case.
    pub fn new(more: Vec<String>) -> Self {
        Self { more }
    }

    /// Whether an address may have a secret at all: most paths have none of these.
    pub fn may_hide(target: &[u8]) -> bool {
        let marks =
            |byte: &u8| matches!(byte, b'%' | b'=' | b'?' | b'#' | b'@' | b'"' | b'{' | b'\\');
        target.iter().any(marks)
    }

    /// A field of a head.
    pub fn header(&self, name: &str, value: &str) -> String {
        if !self.is_secret(name) {
            // A `Referer`, for instance.
            return masked(&self.target(value), false);
        }
        if !name.eq_ignore_ascii_case("cookie") {
            return MASK.to_owned();
        }
        // Which cookies there are is worth knowing.
        let cookies = value.split(';').map(|cookie| {
            let name = cookie.split('=').next().unwrap_or_default().trim();
            format!("{name}={MASK}")
        });
        cookies.collect::<Vec<_>>().join("; ")
    }

    /// A text that may have a query or a fragment: the values of secret parameters go, and those
    /// that are addresses, forms or JSON with such a parameter. Of a path, the parts do.
    pub fn target(&self, text: &str) -> String {
        if !Self::may_hide(text.as_bytes()) || !self.has_secret(text) {
            return text.to_owned();
        }
        let end = text.find(['?', '#']).unwrap_or(text.len());
        let (path, query) = text.split_at(end);
        let mut shown = String::with_capacity(text.len());
        self.push_path(&mut shown, path);
        for (at, parameter) in query.split('&').enumerate() {
            if at > 0 {
                shown.push('&');
            }
            // The mark that begins a query or a fragment.
            let (mark, parameter) = parameter.split_at(usize::from(at == 0 && !query.is_empty()));
            shown.push_str(mark);
            self.push_parameter(&mut shown, parameter);
        }
        if self.has_secret(&shown) {
            // It reaches over what separates parts.
            let mark = query.get(..1).unwrap_or_default();
            let parts = if mark.is_empty() {
                ["/", MASK, "", ""]
            } else {
                ["/", MASK, mark, MASK]
            };
            return parts.concat();
        }
        shown
    }

    /// A path in which each part may be an address, with a query of its own, and have parameters.
    fn push_path(&self, shown: &mut String, path: &str) {
        let mut has_host = false;
        for (at, part) in path.split('/').enumerate() {
            if at > 0 {
                shown.push('/');
            }
            let login = part.rsplit_once('@').filter(|_| has_host);
            let part = login.map_or(part, |(_, host)| host);
            if login.is_some() {
                shown.extend([MASK, "@"]);
            }
            has_host = at > 0 && part.is_empty();
            for (at, parameter) in part.split(';').enumerate() {
                if at > 0 {
                    shown.push(';');
                }
                self.push_parameter(shown, parameter);
            }
        }
    }

    /// Without the value if that goes, and without the name if it hides something, too.
    fn push_parameter(&self, shown: &mut String, parameter: &str) {
        if !self.has_secret(parameter) {
            return shown.push_str(parameter);
        }
        let named = parameter.split_once('=').filter(|(name, value)| {
            let is_named = |name: &str| self.is_secret(name) || is_secret_of_query(name, value);
            !self.has_secret(name)
                && (is_at_any_depth(name, |name, _| is_named(name))
                    || looks_secret(value)
                    || self.has_secret(value))
        });
        match named {
            Some((name, _)) => shown.extend([name, "=", MASK]),
            None => shown.push_str(MASK),
        }
    }

    /// Whether a text has a secret, however it is escaped.
    fn has_secret(&self, text: &str) -> bool {
        is_at_any_depth(text, |text, is_escaped| self.shows_secret(text, is_escaped))
    }

    /// Whether a text has a secret as it reads: in one pass, by what stands around it.
    fn shows_secret(&self, text: &str, is_escaped: bool) -> bool {
        // Where the word begins that ends here, and what stands before it.
        let (mut start, mut mark) = (0, b' ');
        // The last word that stands in quotes.
        let mut quoted = 0..0;
        for (at, byte) in text.bytes().enumerate() {
            if !is_mark(byte) {
                continue;
            }
            let word = text.get(start..at).unwrap_or_default();
            let rest = text.get(at + 1..).unwrap_or_default();
            let is_it = match byte {
                b'=' => self.is_pair(word, rest),
                // JSON, or a header.
                b':' => {
                    let is_blank = word.trim_matches([' ', '+']).is_empty();
                    let name = if is_blank {
                        text.get(quoted.clone()).unwrap_or_default()
                    } else {
                        word
                    };
                    let is_header = rest.starts_with('+') || is_escaped && rest.starts_with(' ');
                    (is_blank || is_header || matches!(mark, b'{' | b','))
                        && self.is_pair(name, rest)
                }
                b'/' if rest.starts_with('/') => has_login(rest.get(1..).unwrap_or_default()),
                _ => false,
            };
            if is_it || begins_login(rest) || is_quote(byte) && looks_secret(word) {
                return true;
            }
            if is_quote(byte) {
                quoted = start..at;
            }
            (start, mark) = (at + 1, byte);
        }
        begins_login(text)
    }

    /// Whether a name and what comes after it are those of a secret.
    fn is_pair(&self, name: &str, rest: &str) -> bool {
        let name = name.trim_matches([' ', '+']);
        let is_masked = rest
            .strip_prefix(MASK)
            .is_some_and(|after| after.is_empty() || after.starts_with(['&', '/', ';', '#']));
        if rest.is_empty() || rest.starts_with('&') || is_masked {
            return false;
        }
        let value = rest
            .split(|c: char| c.is_ascii() && is_mark(c as u8))
            .next()
            .unwrap_or_default();
        looks_secret(value)
            || !name.is_empty() && (self.is_secret(name) || is_secret_of_query(name, value))
    }

    fn is_secret(&self, name: &str) -> bool {
        let is_more = !self.more.is_empty() && {
            let lower = name.to_lowercase();
            self.more.iter().any(|part| lower.contains(part.as_str()))
        };
        is_more || is_secret_of_request(name)
    }
}

/// Bytes that end a word of an address, of a form or of JSON.
/// A table, since each byte of an address is looked up.
const MARKS: [bool; 256] = {
    let marks = *b"?#&;/=:,{}()<>|\n\r\"'`";
    let mut table = [false; 256];
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
};

const fn is_mark(byte: u8) -> bool {
    MARKS[byte as usize]
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// After `//`: `user:password@host`, or `token@host`.
fn has_login(text: &str) -> bool {
    let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>');
    let login = text.split(ends).next().unwrap_or_default();
    login
        .rsplit_once('@')
        .is_some_and(|(user, _)| !user.is_empty() && user != MASK)
}

/// `Bearer TOKEN`, `Basic bWU6cHc=`. A word in small letters is none.
fn begins_login(text: &str) -> bool {
    if !text.starts_with([' ', '+', 'b', 'B']) {
        return false; // as nearly all; it is asked at each mark
    }
    let text = text.trim_start_matches([' ', '+']);
    let after = SCHEMES.iter().find_map(|scheme| {
        let begins = text.get(..scheme.len())?.eq_ignore_ascii_case(scheme);
        begins.then(|| text.get(scheme.len()..))?
    });
    let Some(after) = after.filter(|after| after.starts_with([' ', '+'])) else {
        return false;
    };
    let after = after.trim_start_matches([' ', '+']).bytes();
    let token = after.take_while(|byte| byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(byte));
    let token: Vec<u8> = token.take(4 * LONG).collect();
    token.len() >= LONG
        || token
            .iter()
            .any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'=')
}

/// Whether it is so of a text, or of what one escapes, each as a whole. What is escaped too often
/// counts as if it were.
fn is_at_any_depth(text: &str, is_so: impl Fn(&str, bool) -> bool) -> bool {
    let mut text = Cow::Borrowed(text);
    for depth in 0..=DEEPEST {
        if is_so(&text, depth > 0) {
            return true;
        }
        match unescaped(&text) {
            Some(plain) => text = plain.into(),
            None => return false,
        }
    }
    true
}

/// Without one layer of `%74`, of `%u0074`, and of JSON's `\u0074` and `\"`. None where there is
/// nothing of the kind.
fn unescaped(text: &str) -> Option<String> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'\\')) {
        return None;
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let mut has_changed = false;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((letter, left)) = escaped(byte, after) else {
            plain.push(byte);
            continue;
        };
        match letter {
            Letter::Byte(byte) => plain.push(byte),
            Letter::Unicode(letter) => {
                plain.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        (rest, has_changed) = (left, true);
    }
    has_changed.then(|| String::from_utf8_lossy(&plain).into_owned())
}

enum Letter {
    Byte(u8),
    Unicode(char),
}

/// The letter that this byte and those after it escape, and the rest of them.
fn escaped(byte: u8, after: &[u8]) -> Option<(Letter, &[u8])> {
    let number = |digits: &[u8]| {
        let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
        digits.try_fold(0, |number, digit| Some(number * 16 + digit?))
    };
    match (byte, after) {
        (b'%' | b'\\', [b'u' | b'U', rest @ ..]) => {
            let (digits, left) = rest.split_at_checked(4)?;
            let letter = char::from_u32(number(digits)?).unwrap_or(char::REPLACEMENT_CHARACTER);
            Some((Letter::Unicode(letter), left))
        }
        (b'%', _) => {
            let (digits, left) = after.split_at_checked(2)?;
            let byte = u8::try_from(number(digits)?).ok()?;
            Some((Letter::Byte(byte), left))
        }
        (b'\\', [quoted @ (b'"' | b'\'' | b'/' | b'\\'), left @ ..]) => {
            Some((Letter::Byte(*quoted), left))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_of_requests_go_and_names_stay() {
        let mask = RequestMask::new(vec!["vip".to_owned()]);
        assert_eq!(mask.header("Authorization", "Bearer abc"), "***");
        assert_eq!(
            mask.header("cookie", "id=abc; theme=dark"),
            "id=***; theme=***"
        );
        assert_eq!(mask.header("Accept", "*/*"), "*/*");
        assert_eq!(mask.header("X-Api-Key", "abc"), "***");
        assert_eq!(mask.header("X-VIP", "abc"), "***");
        assert_eq!(
            mask.header("Referer", "https://a/?X_TOKEN=abc&b=1#end"),
            "https://a/?X_TOKEN=***&b=1#end"
        );
        for (target, shown) in [
            ("/a?%74oken=abc&c&to%6Ben", "/a?%74oken=***&c&to%6Ben"),
            ("/token=abc", "/token=***"),
            (
                "/a?id=7&app_key=abc&signature=x",
                "/a?id=7&app_key=***&signature=***",
            ),
            ("/a?x=sk_live_abc", "/a?x=***"),
            ("/a?session=1&q=a", "/a?session=***&q=a"),
            (
                "/a?code=4f1c&sig=x&OTP=1&PHPSESSID=y&pin=1",
                "/a?code=***&sig=***&OTP=***&PHPSESSID=***&pin=***",
            ),
            (
                "/a?code=404&zip_code=12345&sigma=1",
                "/a?code=404&zip_code=12345&sigma=1",
            ),
            (
                "/a?next=https%3A%2F%2Fx%2F%3Fa%3D1%26token%3Dabc&b=1",
                "/a?next=***&b=1",
            ),
            ("/a?next=/b?token=abc", "/a?next=***"),
            ("/a?next=%2Fb%23access_token%3Dabc", "/a?next=***"),
            ("/a?form=a%3D1%26pass%77ord%3Dabc", "/a?form=***"),
            (
                "/a?next=%2Fb%3Fnext%3D%252Fc%253Ftoken%253Dabc",
                "/a?next=***",
            ),
            (
                "/a?next=%2Fb%3Fpage%3D2%26q%3Dx",
                "/a?next=%2Fb%3Fpage%3D2%26q%3Dx",
            ),
            ("/a?q=100%25&b=YWJj==", "/a?q=100%25&b=YWJj=="),
            (
                "/go/https%3A%2F%2Fx%3Ftoken%3Dabc/end?b=1",
                "/go/***/end?b=1",
            ),
            ("/go/a%20b%3Fpage%3D1", "/go/a%20b%3Fpage%3D1"),
        ] {
            assert_eq!(mask.target(target), shown);
        }
    }

    fn escaped(text: &str) -> String {
        let bytes = text.bytes().map(|byte| format!("%{byte:02x}"));
        bytes.collect::<Vec<_>>().concat()
    }

    proptest! {
        #[test]
        fn no_value_of_a_secret_parameter_is_left(before: String, name in "[a-z%0-9]{0,4}", value in "[A-Z]{8,12}") {
            let text = format!("/?{}&{name}token={value}", before.replace(['&', '='], ""));
            prop_assert!(!RequestMask::default().target(&text).contains(&value));
        }

        #[test]
        fn no_value_of_a_secret_parameter_is_left_in_an_address_inside(
            before in "[a-z0-9=&#/?]{0,12}", value in "[A-Z]{8,12}", depth in 1..6usize,
        ) {
            let mut text = format!("/{before}?token={value}");
            for _ in 0..depth {
                text = format!("/?next={}", escaped(&text));
            }
            let shown = RequestMask::default().target(&text);
            prop_assert_eq!(shown, "/?next=***");
        }
    }

    /// Addresses with a secret in them, the `S`.
    const PLACES: [&str; 32] = [
        "/a?token=S",
        "/a?b=1&ToKeN=S&c=2",
        "/a?auth+token=S",
        "/a?user[pass]=S",
        "/a;token=S;b=1/c?d=1",
        "/a?b=1;token=S",
        "/go/token=S",
        "/go/token=S/end",
        "/a#access_token=S",
        "/a?b=1#access_token=S&c=1",
        "/go/https://user:S@host/x?y=1",
        "/go/https://S@host",
        "https://user:S@host/",
        "/a?next=https://user:S@host/",
        "/a?next=//user:S@host",
        "/a?next=/b?c=1&token=S",
        "/a?x={\"token\":\"S\"}",
        "/a?x={\"a\":1,+\"token\":+\"S\"}",
        "/a?x={\"a\":{\"api_key\":[\"S\"]}}",
        "/a?x={'token':'S'}",
        "/a?x={token:S}",
        "/x/{\"token\":\"S\"}",
        "/a?x={\\\"token\\\":\\\"S\\\"}",
        "/a?x={\"t\\u006fken\":\"S\"}",
        "/a?h=Bearer+S",
        "/a?h=bEaReR++S&b=1",
        "/a?h=Basic+S",
        "/a?h=Authorization:+Bearer+S",
        "/a?h=X-Api-Key:+S",
        "/a?h=Bearer%20S",
        "/a?%u0074oken=S",
        "/a?token==S",
    ];

    /// A character as it may be written.
    fn written(letter: char, spelling: u32) -> String {
        match spelling {
            0 => letter.to_string(),
            1 => format!("%{:02x}", u32::from(letter)),
            2 => format!("%{:02X}", u32::from(letter)),
            _ => format!("%u{:04x}", u32::from(letter)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn no_form_of_an_address_has_the_secret(
            place in 0..PLACES.len(),
            secret in "[A-Z]{8,12}",
            // For each layer: how a letter is written, by its number.
            layers in prop::collection::vec(prop::collection::vec(0..4_u32, 1..7), 0..9),
            around in 0..3_usize,
        ) {
            let mut address = PLACES[place].replace('S', &secret);
            for (at, layer) in layers.iter().enumerate() {
                if address.len() > 4 << 10 {
                    break;
                }
                let letters = address.chars().enumerate();
                let inner = letters.map(|(number, letter)| match layer[number % layer.len()] {
                    // As they are, they read as another thing in the next layer.
                    0 if "%&+#".contains(letter) => written(letter, 1),
                    spelling => written(letter, spelling),
                });
                let inner: String = inner.collect();
                address = match (around + at) % 3 {
                    0 => format!("/b?c=1&next={inner}&d=2"),
                    1 => format!("/b?{inner}"),
                    _ => format!("/go/{inner}/end"),
                };
            }
            let mut shown = RequestMask::default().target(&address);
            let first = shown.clone();
            prop_assert!(shown.contains(MASK));
            loop {
                prop_assert!(!shown.contains(&secret), "{address}: {first}");
                match unescaped(&shown) {
                    Some(plain) => shown = plain,
                    None => break,
                }
            }
        }

        #[test]
        fn no_address_makes_it_panic(target in "([%\\\\/?&#=:;@\"'{}a-fu+é0-9]|token|//|Bearer ){0,40}") {
            let shown = RequestMask::default().target(&target);
            prop_assert!(shown.len() <= target.len() + 3 * target.len() + 8);
        }
    }

    #[test]
    fn ordinary_addresses_stay_readable() {
        for target in [
            "/a/b.html",
            "/@user/post",
            "/.well-known/webfinger?resource=acct:me@host",
            "/a?time=12:30&d=2026-01-01T00:00:00+02:00",
            "/wiki/Token:Foo",
            "/a?q=basic+training&b=bearer+of+news",
            "/a?q=100%25&b=YWJj==",
            "/go/https://host/a?b=1",
            "/a?url=http%3A%2F%2Fhost%3A8080%2Fx%3Fy%3D1",
            "/a?filter[name]=x&sort=-id",
            "/a?x={\"a\":1,\"b\":[\"c\"]}",
            "/a;v=1/b",
            "/a?token=",
        ] {
            assert_eq!(RequestMask::default().target(target), target);
        }
    }

    #[test]
    fn it_takes_no_longer_for_each_layer_of_a_long_address() {
        for part in [
            "//a@", "/Basic+", "=token", "\"a\":", "%25", "{a:", "%u00", "?a#", "\\\\",
        ] {
            let target = format!("/a?b={}", part.repeat((64 << 10) / part.len()));
            let begun = std::time::Duration::from_secs(2);
            let (shown, took) = pronghorn_testkit::time(|| RequestMask::default().target(&target));
            assert!(took < begun, "{part}: {took:?}");
            assert!(shown.len() <= 2 * target.len());
        }
    }
}
