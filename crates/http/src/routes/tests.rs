use std::borrow::Cow;

use pronghorn_config::{Input, Section, Severity, Table, load};
use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> PathPattern {
    PathPattern::parse(text).expect(text)
}

fn host(text: &str) -> HostPattern {
    HostPattern::parse(text).expect(text)
}

/// Conditions as they are written.
fn conditions(yaml: &str) -> Conditions {
    struct Route(Conditions);
    impl Section for Route {
        fn read(t: &mut Table<'_>) -> Self {
            Self(Conditions {
                paths: t.key("path", "").default(Vec::new()),
                hosts: t.key("host", "").default(Vec::new()),
                methods: t.key("method", "").default(Vec::new()),
                headers: t.key("header", "").optional().unwrap_or_default(),
            })
        }
    }
    let loaded = load(&Input::from_text("route", yaml));
    let route = loaded.resolve::<Route>(Severity::Error).into_settings();
    route.map_err(|report| report.to_string()).expect(yaml).0
}

fn asked<'a>(method: &'a str, authority: &'a str, path: &'a str, fields: &'a Fields) -> Asked<'a> {
    Asked {
        method,
        authority,
        path: path.as_bytes(),
        fields,
    }
}

#[test]
fn paths_match_as_php_reads_them() {
    for (written, path, matches) in [
        ("/about", "/about", true),
        ("/about", "/about/", false),
        ("/about", "/About", false),
        ("/about", "/abou", false),
        ("/about", "/about-us", false),
        ("/about/", "/about/", true),
        ("/about/", "/about", false),
        ("/", "/", true),
        ("/", "/x", false),
        ("/", "/.", true),
        ("/", "/x/..", true),
        ("/admin/*", "/admin", true),
        ("/admin/*", "/admin/", true),
        ("/admin/*", "/admin/x", true),
        ("/admin/*", "/admin/x/y", true),
        ("/admin/*", "/administrator", false),
        ("/admin/*", "/x/admin/y", false),
        ("/admin/*", "/", false),
        ("/a/b/*", "/a/b/c", true),
        ("/a/b/*", "/a", false),
        ("/*", "/", true),
        ("/*", "/x", true),
        ("/*", "*", false),
        // Percent-encoding is undone once.
        ("/admin/*", "/%61dmin/x", true),
        ("/admin/*", "/%61%64%6d%69%6E", true),
        ("/admin/*", "/%2561dmin", false),
        ("/%61dmin", "/admin", true),
        ("/a%2561", "/a%2561", true),
        ("/a%2561", "/a%61", false),
        ("/café", "/caf%C3%A9", true),
        ("/caf%c3%a9", "/caf%C3%A9", true),
        ("/caf%C3%A9", "/caf%E9", false),
        ("/a b", "/a%20b", true),
        ("/a+b", "/a%20b", false),
        ("/a+b", "/a+b", true),
        ("/%3F", "/%3f", true),
        ("/100%", "/100%", true),
        ("/100%", "/100%25", true),
        ("/100%25", "/100%", true),
        ("/100%zz", "/100%zz", true),
        ("/%2A", "/*", true),
        ("/%2A", "*", false),
        ("/x%", "/x%2", false),
        ("/x%2", "/x%2", true),
        // Dot segments and empty ones.
        ("/admin/*", "/x/../admin", true),
        ("/admin/*", "/x/%2e%2e/admin", true),
        ("/admin/*", "/x/.%2E/admin", true),
        ("/admin/*", "/../../admin", true),
        ("/admin/*", "//admin", true),
        ("/admin/*", "/.//./admin//x", true),
        ("/admin/*", "/admin/..", false),
        ("/admin/*", "/admin/../x", false),
        ("/admin/*", "/admin/x/../..", false),
        ("/admin/*", "/admin/.", true),
        ("/admin", "/admin/.", false),
        ("/admin/", "/admin/x/..", true),
        ("/...", "/...", true),
        ("/.env", "/.env", true),
        ("/.well-known/*", "/.well-known/security.txt", true),
        ("/..x", "/..x", true),
        ("/a/b", "/a//../b", false),
        ("/b", "/a//../b", true),
        // What could pass for another path.
        ("/admin/*", "/admin/a%2Fb", false),
        ("/admin/*", "/admin%2Fx", false),
        ("/admin/*", "/admin%2fx", false),
        ("/admin/*", "/x/..%2Fadmin", false),
        ("/admin/*", "/admin/%00", false),
        ("/admin/*", "/admin/x%5Cy", false),
        ("/admin/*", "/admin\\x", false),
        ("/admin/*", "/admin/x\\..\\y", false),
        ("/*", "/a%2Fb", false),
        ("/*", "/%5c", false),
        ("/a/b", "/a%2Fb", false),
        ("/a%2Fb", "/a/b", false),
        ("/a%2Fb", "/a%2fb", true),
        ("/a%2fb", "/%61%2Fb", true),
        ("/a%252Fb", "/a%2Fb", false),
        ("/a%252Fb", "/a%252Fb", true),
        ("/a%5Cb", "/a\\b", true),
        ("/a\\b", "/a%5cb", true),
        ("/a%00", "/a%00", true),
        ("/a%00", "/a", false),
        ("/a%2Fb", "/x/../a%2Fb", true),
        ("/*", "/a%2Fb/..", false),
        ("/", "/a%2Fb/..", false),
    ] {
        let is = pattern(written).matches(&Path::of(path.as_bytes()));
        assert_eq!(is, matches, "{written} {path}");
    }
}

#[test]
fn patterns_that_could_not_match_are_refused_with_what_to_write() {
    for (written, hint) in [
        ("admin", "`/admin`"),
        ("", "a path begins with a slash"),
        ("*", "a path begins with a slash"),
        ("/admin*", "`*` stands only at the end, behind a slash"),
        ("/*/x", "`*` stands only at the end"),
        ("/a/*/*", "`*` stands only at the end"),
        ("/a?b", "leave out `?`"),
        ("/a#b", "leave out `?` or `#`"),
        ("//admin", "write `/admin`"),
        ("/a/./b/*", "write `/a/b/*`"),
        ("/a/../b", "write `/b`"),
        ("/a/%2e%2E/b", "write `/b`"),
        ("/a/.", "write `/a/`"),
        ("/a//*", "write `/a/*`"),
        ("/../*", "write `/*`"),
        ("/a%2Fb/*", "only matched literally"),
        ("/a\\/*", "only matched literally"),
        ("/%00/*", "only matched literally"),
    ] {
        let refused = PathPattern::parse(written).expect_err(written);
        assert!(refused.contains(hint), "{written}: {refused}");
    }
}

#[test]
fn hosts_match_without_port_and_case() {
    for (written, authority, matches) in [
        ("example.com", "example.com", true),
        ("Example.COM", "eXample.com:8080", true),
        ("example.com.", "example.com", true),
        ("example.com", "example.com.:80", true),
        ("example.com", "www.example.com", false),
        ("example.com", "", false),
        ("*.example.com", "www.example.com", true),
        ("*.Example.com", "a.b.EXAMPLE.com:1", true),
        ("*.example.com", "example.com", false),
        ("*.example.com", ".example.com", false),
        ("*.example.com", "badexample.com", false),
        ("*.example.com", "www.example.com.evil", false),
        ("[::1]", "[::1]:8080", true),
        ("[::1]", "[::1]", true),
        ("[::1]", "[::2]", false),
        ("127.0.0.1", "127.0.0.1:80", true),
        ("localhost", "localhost:", true),
    ] {
        let is = host(written).matches(without_port(authority));
        assert_eq!(is, matches, "{written} {authority}");
    }
    for (written, hint) in [
        ("example.com:80", "ports are not compared: `example.com`"),
        ("*.example.com:80", "`*.example.com`"),
        ("http://example.com/", "`example.com`"),
        ("example.com/x", "`path`"),
        ("exa*mple.com", "only at the start"),
        ("*", "only at the start"),
        ("*.*.com", "only at the start"),
        ("bücher.example", "`xn--`"),
        ("::1", "`[::1]`"),
        ("", ""),
        ("*.", ""),
        (".example.com", ""),
        ("a b", ""),
    ] {
        let refused = HostPattern::parse(written).expect_err(written);
        assert!(refused.contains(hint), "{written}: {refused}");
    }
}

#[test]
fn the_first_route_that_matches_wins() {
    let written = [
        "{path: /admin/*, host: admin.example.com}",
        "{path: [/admin/*, /login], method: [get, POST]}",
        "{header: {X-Tier: ^gold$, Accept: json}}",
        "{host: '*.example.com'}",
    ];
    let routes = written.iter().map(|text| conditions(text)).zip(0..);
    let routes = Routes::new(routes.collect(), 9);
    let mut gold = Fields::new();
    gold.push("x-tier", "silver");
    gold.push("x-tier", "gold");
    gold.push("accept", "application/json");
    let mut goldish = Fields::new();
    goldish.push("x-tier", "goldish");
    goldish.push("accept", "application/json");
    let none = Fields::new();
    for (method, authority, path, fields, to) in [
        ("GET", "admin.example.com", "/admin/x", &none, 0),
        ("GET", "other.org", "/admin/x", &none, 1),
        ("HEAD", "other.org", "/login", &none, 1),
        ("POST", "other.org", "/login", &none, 1),
        ("get", "other.org", "/login", &none, 9),
        ("PUT", "other.org", "/login", &none, 9),
        ("PUT", "other.org", "/login", &gold, 2),
        ("PUT", "other.org", "/login", &goldish, 9),
        ("PUT", "a.example.com:81", "/login", &goldish, 3),
        // A path that matches no pattern with a star still has a host.
        ("PUT", "a.example.com", "/x%2Fy", &none, 3),
        ("OPTIONS", "a.example.com", "*", &none, 3),
        ("GET", "", "/", &none, 9),
    ] {
        let picked = routes.pick(&asked(method, authority, path, fields));
        assert_eq!(*picked, to, "{method} {authority} {path}");
    }
}

#[test]
fn what_is_covered_is_found_out() {
    for (earlier, later, covers) in [
        ("{}", "{path: /x}", true),
        ("{}", "{}", true),
        ("{path: /x}", "{}", false),
        ("{path: /x/*}", "{path: /x}", true),
        ("{path: /x/*}", "{path: /x/y/*}", true),
        ("{path: /x/*}", "{path: /xy}", false),
        ("{path: /x/*}", "{path: /x/a%2Fb}", false),
        ("{path: /x}", "{path: /%78}", true),
        ("{path: /*}", "{path: [/x, /y/*]}", true),
        ("{path: /*}", "{host: a}", false),
        ("{path: [/x, /y]}", "{path: [/y, /x]}", true),
        ("{path: [/x, /y]}", "{path: [/y, /z]}", false),
        ("{host: a}", "{host: A, path: /x}", true),
        ("{host: '*.a'}", "{host: [b.a, '*.b.a']}", true),
        ("{host: '*.a'}", "{host: a}", false),
        ("{host: b.a}", "{host: '*.a'}", false),
        ("{method: GET}", "{method: [GET, HEAD]}", true),
        ("{method: HEAD}", "{method: GET}", false),
        ("{header: {A: x}}", "{header: {a: x, B: y}}", true),
        ("{header: {A: x}}", "{header: {A: xy}}", false),
    ] {
        let is = conditions(earlier).cover(&conditions(later));
        assert_eq!(is, covers, "{earlier} {later}");
    }
}

/// The obvious way: a path is a list of segments, a segment a list of what it says.
mod naive {
    #[derive(Clone, Copy, PartialEq)]
    enum Letter {
        Byte(u8),
        EncodedSlash,
    }

    const HOSTILE: [Letter; 3] = [Letter::EncodedSlash, Letter::Byte(b'\\'), Letter::Byte(0)];

    #[derive(PartialEq)]
    struct Path {
        segments: Vec<Vec<Letter>>,
        ends_in_slash: bool,
        hostile: bool,
    }

    fn path(received: &str) -> Path {
        let mut segments = Vec::new();
        let (mut ends_in_slash, mut hostile) = (false, false);
        for text in received.split('/').skip(1) {
            let segment = letters(text);
            hostile |= segment.iter().any(|letter| HOSTILE.contains(letter));
            let dots = segment.iter().all(|letter| *letter == Letter::Byte(b'.'));
            ends_in_slash = dots && segment.len() < 3;
            match (dots, segment.len()) {
                (true, 0 | 1) => {}
                (true, 2) => _ = segments.pop(),
                _ => segments.push(segment),
            }
        }
        Path {
            segments,
            ends_in_slash,
            hostile,
        }
    }

    fn letters(text: &str) -> Vec<Letter> {
        let mut letters = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            let code = after
                .get(..2)
                .filter(|code| code.iter().all(u8::is_ascii_hexdigit));
            let code = code
                .filter(|_| *first == b'%')
                .map(|code| std::str::from_utf8(code).unwrap());
            match code.map(|code| u8::from_str_radix(code, 16).unwrap()) {
                Some(b'/') => letters.push(Letter::EncodedSlash),
                decoded => letters.push(Letter::Byte(decoded.unwrap_or(*first))),
            }
            rest = &after[code.map_or(0, str::len)..];
        }
        letters
    }

    pub(super) fn matches(pattern: &str, received: &str) -> bool {
        let is = path(received);
        if let Some(above) = pattern.strip_suffix("/*") {
            return !is.hostile && is.segments.starts_with(&path(above).segments);
        }
        path(pattern) == is
    }
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/", "/", "/", "a", "b", "ab", ".", "..", "%", "%2", "%2e", "%2E", "%2F", "%2f", "%25",
        "%5C", "\\", "%00", "%61", "%zz", "+", "%+1", "%C3%A9", "é", " ", "*", "%2A", "/../",
        "/./", "//", "/a", "/b", "2F", "25",
    ])
}

fn near_path() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// One path, written as somebody might who wants to get past a route.
fn disguised() -> impl Strategy<Value = (String, String)> {
    let segment = prop::sample::select(vec!["admin", "a", "x.y", "..."]);
    let disguise = prop::sample::select(vec!["", "/", "/.", "/x/..", "/%2e", "/%2e/a/%2E."]);
    let part = (segment, disguise, any::<u32>());
    prop::collection::vec(part, 0..5).prop_map(|parts| {
        let (mut plain, mut written) = (String::new(), String::new());
        for (segment, disguise, encode) in parts {
            plain.extend(["/", segment]);
            written.extend([disguise, "/"]);
            for (byte, at) in segment.bytes().zip(0..) {
                match encode >> at & 1 {
                    0 => written.push(byte.into()),
                    _ => written.extend(["%", &format!("{byte:02x}")]),
                }
            }
        }
        if plain.is_empty() {
            (plain, written) = ("/".into(), "/".into());
        }
        (plain, written)
    })
}

/// Few patterns and few requests, so that they often meet.
fn small_conditions() -> impl Strategy<Value = Conditions> {
    fn some<T: Clone + std::fmt::Debug + 'static>(all: Vec<T>) -> impl Strategy<Value = Vec<T>> {
        let most = all.len().min(2);
        prop::sample::subsequence(all, 0..=most)
    }
    let paths = ["/*", "/a/*", "/a", "/a/", "/a/b/*", "/a%2Fb", "/b"]
        .map(pattern)
        .to_vec();
    let hosts = ["x", "y.x", "*.x", "*.y.x"].map(host).to_vec();
    let methods = conditions("{method: [GET, HEAD, POST]}").methods;
    let headers = conditions("{header: {A: '1', B: ''}}").headers.0;
    (some(paths), some(hosts), some(methods), some(headers)).prop_map(
        |(paths, hosts, methods, headers)| Conditions {
            paths,
            hosts,
            methods,
            headers: HeaderPatterns(headers),
        },
    )
}

fn small_request() -> impl Strategy<Value = (&'static str, &'static str, &'static str, Fields)> {
    let method = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT"]);
    let authority = prop::sample::select(vec!["", "x", "y.x:1", "z.y.x", "X."]);
    let path = prop::sample::select(vec![
        "/", "/a", "/a/", "/a/b", "/a/b/c", "/a%2Fb", "/b", "/c", "*", "//a",
    ]);
    (method, authority, path, any::<[bool; 2]>()).prop_map(|(method, authority, path, [a, b])| {
        let mut fields = Fields::new();
        for (name, value) in [(a, ("a", "1")), (b, ("b", "2"))]
            .into_iter()
            .filter_map(|(is, field)| is.then_some(field))
        {
            fields.push(name, value);
        }
        (method, authority, path, fields)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pattern_matches_as_the_obvious_way_does(written in near_path(), below in any::<bool>(), received in near_path()) {
        let written = if below { format!("{}/*", written.trim_end_matches('/')) } else { written };
        if let Ok(pattern) = PathPattern::parse(&written) {
            let is = pattern.matches(&Path::of(received.as_bytes()));
            prop_assert_eq!(is, naive::matches(&written, &received), "{} {}", written, received);
            // What it refuses of its own would have to be written otherwise.
            let own = written.strip_suffix("/*").unwrap_or(&written);
            prop_assert!(own.is_empty() || pattern.matches(&Path::of(own.as_bytes())), "{}", own);
        }
    }

    #[test]
    fn no_disguise_gets_past_a_route((plain, written) in disguised()) {
        let path = Path::of(plain.as_bytes());
        prop_assert_eq!(&path, &Path::of(written.as_bytes()));
        let borrows = matches!(path.text, Cow::Borrowed(_));
        prop_assert!(borrows || plain.contains("/."), "a plain path takes no memory");
    }

    #[test]
    fn any_bytes_have_a_form(received in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'/'), Just(b'%'), Just(b'.'), Just(b'2')], 0..60)) {
        let received = [b"/", received.as_slice()].concat();
        let path = Path::of(&received);
        prop_assert!(path.text.starts_with(b"/"));
        prop_assert!(path.text.len() <= 3 * received.len());
        prop_assert!(!path.text.windows(2).any(|pair| pair == b"//"));
        let segments: Vec<&[u8]> = path.text.split(|byte| *byte == b'/').collect();
        prop_assert!(!segments.contains(&&b"."[..]) && !segments.contains(&&b".."[..]));
        // The form of what is in its form is the same: nothing is decoded twice.
        let again = Path::of(&path.text);
        prop_assert_eq!(&again.text, &path.text);
        prop_assert!(path.hostile || !pattern("/x/*").matches(&path) || path.text.starts_with(b"/x"));
    }

    #[test]
    fn the_first_in_the_list_wins(all in prop::collection::vec(small_conditions(), 0..6), (method, authority, path, fields) in small_request()) {
        let asked = asked(method, authority, path, &fields);
        let one = |conditions: &Conditions| *Routes::new(vec![(conditions.clone(), true)], false).pick(&asked);
        let want = all.iter().position(one);
        let routes = Routes::new(all.iter().cloned().zip((0..).map(Some)).collect(), None);
        prop_assert_eq!(*routes.pick(&asked), want);
    }

    #[test]
    fn whoever_is_covered_never_matches_alone(earlier in small_conditions(), later in small_conditions(), (method, authority, path, fields) in small_request()) {
        let asked = asked(method, authority, path, &fields);
        let matches = |conditions: &Conditions| *Routes::new(vec![(conditions.clone(), true)], false).pick(&asked);
        if earlier.cover(&later) && matches(&later) {
            prop_assert!(matches(&earlier), "{:?} {:?} {:?}", earlier, later, asked);
        }
    }
}
