//! What pages of other sites may do: cross-origin sharing, as the Fetch standard has it.
//!
//! A browser asks first (a preflight) before it sends what no form could send. Such a question is
//! answered here, and PHP never hears of it. Everything else goes on, and the response says whether
//! the page may read it: not to be said is no.

use pronghorn_h1::RequestHead;
use pronghorn_serve::{Body, Response, vary};
use pronghorn_wire::Fields;

use crate::settings::{CorsSettings, OriginPattern};

const ORIGIN: &str = "Access-Control-Allow-Origin";
const CREDENTIALS: &str = "Access-Control-Allow-Credentials";
const EXPOSED: &str = "Access-Control-Expose-Headers";

#[derive(Debug)]
pub(super) struct Cors(pub(super) CorsSettings);

/// What a request is to cross-origin sharing.
#[derive(Debug)]
pub(super) enum Asking {
    /// A question, with its answer.
    First(Box<Response>),
    /// A request, with the value that lets its page read the response.
    Now(Option<String>),
}

impl Cors {
    pub(super) fn ask(&self, head: &RequestHead) -> Asking {
        let fields = head.fields();
        let Some(origin) = only(fields, "origin") else {
            return Asking::Now(None);
        };
        let allowed = self.allow(origin);
        match fields.get("access-control-request-method") {
            Some(method) if head.method() == "OPTIONS" => {
                Asking::First(Box::new(self.answer(fields, method, allowed)))
            }
            _ => {
                self.tell(origin, allowed.is_some(), "a request");
                Asking::Now(allowed)
            }
        }
    }

    /// The value that names this origin as one that may read, if it is one.
    fn allow(&self, origin: &[u8]) -> Option<String> {
        if self.0.allows_any() {
            return Some("*".to_owned());
        }
        let origin = std::str::from_utf8(origin).ok()?;
        let is_allowed = match &self.0.allowed_origin_regex {
            Some(expression) => expression.0.is_match(origin.as_bytes()),
            None => {
                let mut patterns = self.0.allowed_origin.iter();
                patterns.any(|pattern| matches(pattern, origin))
            }
        };
        is_allowed.then(|| origin.to_owned())
    }

    fn answer(&self, fields: &Fields, method: &[u8], allowed: Option<String>) -> Response {
        let mut response = Response::new(self.0.options_success_status, Body::Empty);
        let out = &mut response.fields;
        out.push(
            "Vary",
            "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        );
        let origin = only(fields, "origin").unwrap_or_default();
        let wanted: Vec<&[u8]> = fields.all("access-control-request-headers").collect();
        let Some(allowed) = allowed else {
            self.tell(origin, false, "a question, its origin");
            return response;
        };
        if !self.allows_method(method) {
            self.tell(origin, false, "a question, its method");
            return response;
        }
        if !wanted.iter().all(|names| self.allows_fields(names)) {
            self.tell(origin, false, "a question, its fields");
            return response;
        }
        self.tell(origin, true, "a question");
        out.push(ORIGIN, allowed);
        out.push("Access-Control-Allow-Methods", method);
        if !wanted.is_empty() {
            out.push("Access-Control-Allow-Headers", wanted.join(&b", "[..]));
        }
        if self.shares_credentials() {
            out.push(CREDENTIALS, "true");
        }
        if self.0.max_age > 0 {
            out.push("Access-Control-Max-Age", self.0.max_age.to_string());
        }
        response
    }

    /// Says in a response who may read it. What PHP said of that is replaced: browsers refuse two
    /// answers.
    pub(super) fn mark(&self, fields: &mut Fields, allowed: Option<&str>) {
        for name in [ORIGIN, CREDENTIALS, EXPOSED] {
            fields.remove(name);
        }
        vary(fields, "Origin");
        let Some(allowed) = allowed else {
            return;
        };
        fields.push(ORIGIN, allowed);
        if self.shares_credentials() {
            fields.push(CREDENTIALS, "true");
        }
        if !self.0.exposed_headers.is_empty() {
            fields.push(EXPOSED, self.0.exposed_headers.join(", "));
        }
    }

    fn shares_credentials(&self) -> bool {
        // Any page at all could act in the name of whoever looks at it; browsers refuse that, too.
        self.0.allow_credentials && !self.0.allows_any()
    }

    fn allows_method(&self, method: &[u8]) -> bool {
        let mut allowed = self.0.allowed_methods.iter();
        allowed.any(|allowed| allowed == "*" || allowed.as_bytes() == method)
    }

    fn allows_fields(&self, names: &[u8]) -> bool {
        let allows = |name: &[u8]| {
            let mut allowed = self.0.allowed_headers.iter();
            allowed.any(|allowed| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(name))
        };
        let names = names.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        names.filter(|name| !name.is_empty()).all(allows)
    }

    fn tell(&self, origin: &[u8], allowed: bool, what: &str) {
        if self.0.debug {
            let verdict = if allowed { "allowed" } else { "not allowed" };
            let origin = String::from_utf8_lossy(origin);
            tracing::info!(target: "http", origin = &*origin, "cors: {what}: {verdict}");
        }
    }
}

/// The value of a field that must not be there twice: of two origins, neither counts.
fn only<'a>(fields: &'a Fields, name: &'a str) -> Option<&'a [u8]> {
    let mut values = fields.all(name);
    values.next().filter(|_| values.next().is_none())
}

fn matches(pattern: &OriginPattern, origin: &str) -> bool {
    let eq = |a: &[u8], b: &str| a.eq_ignore_ascii_case(b.as_bytes());
    let bytes = origin.as_bytes();
    match pattern {
        OriginPattern::Any => true,
        OriginPattern::One(one) => eq(bytes, one),
        OriginPattern::Between(start, end) => {
            let Some(rest) = bytes.len().checked_sub(start.len() + end.len()) else {
                return false;
            };
            let (head, tail) = bytes.split_at(start.len());
            let (middle, tail) = tail.split_at(rest);
            let in_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
            eq(head, start) && eq(tail, end) && !middle.is_empty() && middle.iter().all(in_host)
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;
    use crate::middleware::testing::head;

    fn cors(yaml: &str) -> Cors {
        let loaded = load(&Input::from_text("test", yaml));
        let resolved = loaded.resolve::<CorsSettings>(Severity::Error);
        Cors(resolved.into_settings().expect(yaml))
    }

    /// The fields of the answer, one a line, without `Vary`; for a request those that PHP's
    /// response gets.
    fn answer(cors: &Cors, request: &str) -> String {
        let fields = match cors.ask(&head(request)) {
            Asking::First(response) => response.fields,
            Asking::Now(allowed) => {
                let mut fields: Fields = [(ORIGIN, "PHP's")].into_iter().collect();
                cors.mark(&mut fields, allowed.as_deref());
                assert_eq!(fields.get("vary"), Some(&b"Origin"[..]));
                fields
            }
        };
        let shown = fields.iter().filter(|(name, _)| *name != b"Vary");
        let shown = shown.map(|(name, value)| {
            let name = String::from_utf8_lossy(name).replace("Access-Control-", "");
            format!("{name}: {}", String::from_utf8_lossy(value))
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    const QUESTION: &str = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://one.example\r\n\
                            Access-Control-Request-Method: PUT\r\n\
                            Access-Control-Request-Headers: content-type,x-token\r\n\r\n";
    const SITE: &str = "allowed_origin: 'https://one.example, https://*.two.example'\n\
                        allowed_methods: [GET, put]\nallowed_headers: Content-Type, X-Token\n";

    #[test]
    fn a_question_is_answered_with_what_was_asked_for() {
        let cors = cors(&format!("{SITE}allow_credentials: true\nmax_age: 600\n"));
        assert_eq!(
            answer(&cors, QUESTION),
            "Allow-Origin: https://one.example\nAllow-Methods: PUT\nAllow-Headers: content-type,x-token\n\
             Allow-Credentials: true\nMax-Age: 600"
        );
        let Asking::First(response) = cors.ask(&head(QUESTION)) else {
            panic!("it is a question");
        };
        assert_eq!(response.status, 200);
    }

    #[test]
    fn a_question_for_more_than_is_allowed_gets_nothing() {
        let cors = cors(SITE);
        for (from, to) in [
            ("one.example", "other.example"),
            ("PUT", "DELETE"),
            // Methods have a case: a browser that sends `put` does not send `PUT`.
            ("PUT", "put"),
            ("x-token", "x-other"),
            ("Origin:", "Origin: https://one.example\r\nOrigin:"),
        ] {
            let request = QUESTION.replace(from, to);
            let answered = match cors.ask(&head(&request)) {
                Asking::First(response) => response.fields.len() > 1,
                Asking::Now(allowed) => allowed.is_some(),
            };
            assert!(!answered, "{request}");
        }
    }

    #[test]
    fn what_is_no_question_goes_on() {
        let cors = cors(SITE);
        for (from, to) in [
            ("OPTIONS", "GET"),
            ("Access-Control-Request-Method", "X-Other"),
            ("Origin", "X-Other"),
        ] {
            let request = QUESTION.replace(from, to);
            assert!(
                matches!(cors.ask(&head(&request)), Asking::Now(_)),
                "{request}"
            );
        }
    }

    #[test]
    fn origins() {
        let request =
            |origin: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n\r\n");
        let listed = "allowed_origin: [https://one.example, 'https://*.two.example', 'http://localhost:*', 'null']\n";
        let regex = "allowed_origin: '*'\nallowed_origin_regex: ^https://(a|b)\\.example$\n";
        for (yaml, origin, allowed) in [
            (listed, "https://one.example", true),
            (listed, "HTTPS://One.Example", true),
            (listed, "http://one.example", false),
            (listed, "https://one.example:8443", false),
            (listed, "https://one.example.evil.example", false),
            (listed, "https://x.two.example", true),
            (listed, "https://x.y.two.example", true),
            (listed, "https://two.example", false),
            (listed, "https://.two.example", false),
            (listed, "https://evil.example/.two.example", false),
            (listed, "https://evil.example?.two.example", false),
            (listed, "https://evil@.two.example", false),
            (listed, "https://x.two.exampl\u{e9}", false),
            (listed, "http://localhost:3000", true),
            (listed, "http://localhost", false),
            (listed, "null", true),
            (listed, "", false),
            (regex, "https://a.example", true),
            (regex, "https://c.example", false),
            ("allowed_origin: ''\n", "https://one.example", false),
        ] {
            let expected = if allowed {
                format!("Allow-Origin: {origin}")
            } else {
                String::new()
            };
            assert_eq!(
                answer(&cors(yaml), &request(origin)),
                expected,
                "{yaml}{origin}"
            );
        }
    }

    #[test]
    fn any_site_is_allowed_without_credentials() {
        let cors =
            cors("allowed_origin: '*'\nallow_credentials: true\nexposed_headers: [X-A, X-B]\n");
        let request = "GET / HTTP/1.1\r\nHost: a\r\nOrigin: https://one.example\r\n\r\n";
        assert_eq!(
            answer(&cors, request),
            "Allow-Origin: *\nExpose-Headers: X-A, X-B"
        );
    }
}
