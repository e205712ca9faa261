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
                not_methods: t.key("not_method", "").default(Vec::new()),
                headers: t.key("header", "").optional().unwrap_or_default(),
                addresses: t.key("address", "").default(Vec::new()),
                not_addresses: t.key("not_address", "").default(Vec::new()),
                closes: t.key("closes", "").default(false),
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
        address: None,
    }
}

/// Whether a route with this pattern, and no other, gets a path, or it has too many readings.
fn is_matched(written: &str, path: &str) -> bool {
    let conditions = Conditions {
        paths: vec![pattern(written)],
        ..Conditions::default()
    };
    let routes = Routes::new(vec![(conditions, true)], Otherwise::Default(false));
    let routes = routes.with_fronts(["index.php", "in/front.php"]);
    let fields = Fields::new();
    routes.pick(&asked("GET", "", path, &fields)) != Ok(&false)
}

#[test]
fn paths_match_however_they_are_spelled() {
    for (written, path, matches) in [
        ("/about", "/about", true),
        ("/about", "/abou", false),
        ("/about", "/about-us", false),
        ("/about", "/about/us", false),
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
        // A slash at the end and the case of letters do not count.
        ("/about", "/about/", true),
        ("/about", "/about//", true),
        ("/about/", "/about", true),
        ("/about", "/About", true),
        ("/ABOUT", "/about", true),
        ("/admin/*", "/ADMIN/x", true),
        ("/caf%C3%A9", "/caf%c3%89", false),
        // Percent-encoding is undone, by some more than once.
        ("/admin/*", "/%61dmin/x", true),
        ("/admin/*", "/%61%64%6d%69%6E", true),
        ("/admin/*", "/%2561dmin", true),
        ("/admin/*", "/%252561dmin", true),
        ("/%61dmin", "/admin", true),
        ("/a%2561", "/a%2561", true),
        ("/café", "/caf%C3%A9", true),
        ("/caf%c3%a9", "/caf%C3%A9", true),
        ("/caf%C3%A9", "/caf%E9", false),
        ("/a b", "/a%20b", true),
        ("/a b", "/a+b", true),
        ("/a+b", "/a+b", true),
        ("/c++/*", "/c++/x", true),
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
        ("/admin/*", "/../../admin", true),
        ("/admin/*", "//admin", true),
        ("/admin/*", "/.//./admin//x", true),
        ("/admin/*", "/admin/../x", true),
        ("/admin", "/admin/.", true),
        ("/admin/x", "/admin//x", true),
        ("/...", "/...", true),
        ("/.env", "/.env", true),
        ("/.well-known/*", "/.well-known/security.txt", true),
        ("/..x", "/..x", true),
        ("/a/b", "/a//../b", false),
        ("/b", "/a//../b", true),
        // Some programs decode a path before they cut its query off.
        ("/login", "/login%3Fx", true),
        ("/login", "/login%23x", true),
        ("/login", "/login#x", true),
        ("/login", "/login%253Fx/y", true),
        ("/login", "/log%3Fin", false),
        // Blanks around segments, before and after all else.
        ("/login", "/login+", true),
        ("/login", "/login%20;x", true),
        ("/login", "/login%20/", true),
        ("/login", "/login%0B", true),
        ("/login", "/login%00%3Fx", true),
        ("/admin/*", "/admin%20/x", true),
        ("/admin/*", "/%20admin/+x", true),
        ("/a b", "/ab", false),
        // Slashes that are none to some.
        ("/admin/*", "/admin/a%2Fb", true),
        ("/admin/*", "/admin%2Fx", true),
        ("/admin/*", "/admin%2fx", true),
        ("/admin/*", "/%2Fadmin", true),
        ("/admin/*", "/admin%252Fx", true),
        ("/admin/*", "/x/..%2Fadmin", true),
        ("/admin/*", "/x%5C..%5Cadmin", true),
        ("/admin/*", "/admin\\x", true),
        ("/admin/*", "/admin%5Cx", true),
        ("/a%2Fb", "/a%2fb", true),
        ("/a%2Fb", "/a/b", true),
        ("/a%2Fb/*", "/a%2Fb/c", true),
        ("/a%5Cb", "/a\\b", true),
        // Ends and parameters that some cut off.
        ("/admin/*", "/admin;x=1/y", true),
        ("/admin/*", "/admin%3Bx", true),
        ("/admin/*", "/x/..;/admin", true),
        ("/login", "/login%00", true),
        // All but what an expression is found in, and that only by its own name.
        ("!~ ^/open(/|$)", "/open/x", false),
        ("!~ ^/open(/|$)", "/%6Fpen/x", false),
        ("!~ ^/open(/|$)", "/", true),
        ("!~ ^/open(/|$)", "/opened", true),
        ("!~ ^/open(/|$)", "/open/../secret", true),
        ("!~ ^/open(/|$)", "/open%2F..%2Fsecret", true),
        ("!~ ^/open(/|$)", "/secret/../open", true),
        ("!~ ^/open(/|$)", "/index.php/open", true),
        ("!~ ^/open\\.php$", "/open.php", false),
        ("!~ ^/open\\.php$", "/open.php/x", true),
        ("!~ ^/open(/|$)", "*", false),
        ("/login", "/login%00.png", true),
        ("/login", "/login%0A", true),
        ("/login", "/login%20", true),
        ("/login", "/login%0a/", true),
        // Scripts that answer for paths in which they do not stand, and for what follows them.
        ("/login", "/index.php/login", true),
        ("/login", "/INDEX.php/login", true),
        ("/login", "/in/front.php/login", true),
        ("/shop/cart", "/shop/index.php/cart", true),
        ("/admin/index.php", "/admin/", true),
        ("/admin/index.php", "/admin/index.php", true),
        ("/index.php/*", "/index.php/x", true),
        ("/index.php", "/", false),
        ("/login", "/xindex.php/login", false),
        ("/login", "/index.phpx/login", false),
        ("/xmlrpc.php", "/xmlrpc.php/x", true),
        ("/xmlrpc.php", "/xmlrpc.phps", false),
        // Expressions.
        ("~ \\.bak$", "/x/a.bak", true),
        ("~ \\.bak$", "/x/a.BAK/", true),
        ("~ \\.bak$", "/a%2Ebak", true),
        ("~ \\.bak$", "/a.bak%00", true),
        ("~ \\.bak$", "/a.bake", false),
        ("~^/up/.*\\.php$", "/up/x.php/y", true),
        ("~^/up/.*\\.php$", "/up/%0A.php", true),
        ("~^/up/.*\\.php$", "//up//a%2Fb.php", true),
        ("~^/up/.*\\.php$", "/up/x.php.jpg", false),
        ("~^/admin/", "/admin/", true),
        ("~^/admin/", "/admin", false),
        ("~^/admin$", "/index.php/admin", true),
        ("~ ^/100%$", "/100%", true),
        ("~ ^/100%$", "/100%25", true),
        ("~ .", "*", false),
    ] {
        assert_eq!(is_matched(written, path), matches, "{written} {path}");
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
        ("~", "an expression follows"),
        ("~ (", "unclosed group"),
    ] {
        let refused = PathPattern::parse(written).expect_err(written);
        assert!(refused.contains(hint), "{written}: {refused}");
    }
}

/// `parse_url()` takes `//x` for a host.
#[test]
fn a_closed_path_below_a_host_is_closed_and_nothing_else_changes() {
    let closing = Conditions {
        closes: true,
        ..conditions("{path: [/admin/*, /login]}")
    };
    let routes = vec![(closing, "closed"), (conditions("{path: /blog/*}"), "blog")];
    let routes = Routes::new(routes, Otherwise::Route("all"));
    let fields = Fields::new();
    for (path, to) in [
        ("//x/login", "400"),
        ("//x/admin/y", "400"),
        ("//x/admin", "400"),
        ("/%2Fx/login", "400"),
        ("/%252Fx/login", "400"),
        ("/\\x/login", "400"),
        ("//x/%61dmin;y/z", "400"),
        ("//x//login", "400"),
        ("//login", "closed"),
        ("//blog/login", "400"),
        ("//blog/post", "blog"),
        ("//x/blog/post", "all"),
        ("/x//login", "all"),
    ] {
        let picked = routes.pick(&asked("GET", "", path, &fields));
        assert_eq!(picked.copied().unwrap_or("400"), to, "{path}");
    }
}

/// The table of `docs/guide/pools-and-routes.md`: paths, and the route that gets them.
#[test]
fn the_table_of_spellings_in_the_guide_is_true() {
    let page = include_str!("../../../../docs/guide/pools-and-routes.md");
    let routes = ["{path: /admin/*}", "{path: /login}", "{path: '~ \\.sql$'}"].map(conditions);
    let routes = routes
        .into_iter()
        .zip(["`/admin/*`", "`/login`", "`~ \\.sql$`"]);
    let routes = Routes::new(routes.collect(), Otherwise::Default("none"));
    let routes = routes.with_fronts(["index.php"]);
    let fields = Fields::new();
    let (_, table) = page
        .split_once("| the client requests |")
        .expect("the table");
    let mut compared = 0;
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [paths, to, ..] = cells[..] else {
            panic!("{row}")
        };
        for path in paths.split("`, `").map(|path| path.trim_matches('`')) {
            let picked = routes.pick(&asked("GET", "", path, &fields));
            assert_eq!(picked.copied().unwrap_or("400"), to, "{path}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// A page of the front controller ends in a slash as a directory with a script of its own does.
#[test]
fn a_route_that_closes_scripts_gets_a_directory_once_its_script_is_found() {
    let closes = conditions("{path: '~ \\.php$', closes: true}");
    let limits = conditions("{path: '~ \\.php$'}");
    let named = conditions("{path: /blog/index.php, closes: true}");
    let fields = Fields::new();
    let asked = |path| asked("GET", "", path, &fields);
    for (route, page, script) in [
        (&closes, false, true),
        (&limits, true, false),
        (&named, true, false),
    ] {
        let routes = Routes::new(vec![(route.clone(), true)], Otherwise::Default(false));
        let routes = routes.with_fronts(["index.php"]);
        assert_eq!(routes.pick(&asked("/blog/")), Ok(&page), "{route:?}");
        let closing = routes.closing(&asked("/blog/"), b"/blog/index.php");
        assert_eq!(closing.is_some(), script, "{route:?}");
        // The root's own script is known to be there no sooner.
        assert_eq!(routes.pick(&asked("/")), Ok(&false), "{route:?}");
        let closing = routes.closing(&asked("/"), b"/index.php");
        let is_expression = script && !page;
        assert_eq!(closing.is_some(), is_expression, "{route:?}");
    }
    let kept = [
        r"{path: '~ ^/index\.php$'}",
        r"{path: '~ \.php$', closes: true}",
    ];
    let kept = kept.map(conditions).into_iter().zip([0, 1]).collect();
    let kept = Routes::new(kept, Otherwise::Default(2));
    assert_eq!(kept.closing(&asked("/"), b"/index.php"), None);
}

/// The first route in the list wins, and what an expression leaves out stays left out.
#[test]
fn a_route_closes_no_directory_that_an_earlier_one_has() {
    let routes = |all: [&str; 2]| {
        let all = all.into_iter().map(conditions).zip([0, 1]).collect();
        Routes::new(all, Otherwise::Default(2)).with_fronts(["index.php"])
    };
    let fields = Fields::new();
    let asked = asked("GET", "", "/blog/", &fields);
    for (all, to, closing) in [
        (
            ["{path: '~ ^/blog/$'}", r"{path: '~ \.php$', closes: true}"],
            0,
            None,
        ),
        (
            [r"{path: '~ \.php$', closes: true}", "{path: '~ ^/blog/$'}"],
            1,
            Some(0),
        ),
        (
            ["{path: '!~ ^/(blog/)?$', closes: true}", "{path: /x}"],
            2,
            None,
        ),
        (
            [
                r"{path: '~ \.php$', closes: true, method: POST}",
                "{path: /x}",
            ],
            2,
            None,
        ),
        (
            ["{path: /x}", r"{path: '~ \.php$', closes: true}"],
            2,
            Some(1),
        ),
        (
            [
                r"{path: '~ ^/blog/index\.php$'}",
                r"{path: '~ \.php$', closes: true}",
            ],
            0,
            None,
        ),
    ] {
        let routes = routes(all);
        assert_eq!(routes.pick(&asked), Ok(&to), "{all:?}");
        assert_eq!(
            routes.closing(&asked, b"/blog/index.php").copied(),
            closing,
            "{all:?}"
        );
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
        ("[::1]", "[0:0:0:0:0:0:0:1]:80", true),
        ("[0:0:0:0:0:0:0:1]", "[::1]", true),
        ("[2001:db8::a]", "[2001:0DB8::A]", true),
        ("example.com", "ex%61mple%2Ecom", true),
        ("127.0.0.1", "127.0.0.1:80", true),
        ("localhost", "localhost:", true),
    ] {
        let is = host(written).matches(&host_of(authority));
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
    let routes = Routes::new(routes.collect(), Otherwise::Default(9));
    let mut gold = Fields::new();
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
        ("get", "other.org", "/login", &none, 1),
        ("head", "other.org", "/login", &none, 1),
        ("PUT", "other.org", "/login", &none, 9),
        ("PUT", "other.org", "/login", &gold, 2),
        ("PUT", "other.org", "/login", &goldish, 9),
        ("PUT", "a.example.com:81", "/login", &goldish, 3),
        ("PUT", "a.example.com", "/x%2Fy", &none, 3),
        ("OPTIONS", "a.example.com", "*", &none, 3),
        ("GET", "", "/", &none, 9),
    ] {
        let picked = routes.pick(&asked(method, authority, path, fields));
        assert_eq!(picked, Ok(&to), "{method} {authority} {path}");
    }
}

#[test]
fn readings_that_lead_to_different_routes_are_refused() {
    let two = |otherwise| {
        let routes = ["{path: /admin/*}", "{path: /files/*}"].map(conditions);
        Routes::new(routes.into_iter().zip([0, 1]).collect(), otherwise)
    };
    let fields = Fields::new();
    let of = |routes: &Routes<usize>, path: &str| {
        routes.pick(&asked("GET", "", path, &fields)).copied().ok()
    };
    let many = format!("/a%2F{}", "%255C;+%00/./".repeat(40));
    let routes = two(Otherwise::Default(9));
    for (path, to) in [
        ("/files/a%2Fb", Some(1)),
        ("/files/..%2Fadmin", None),
        ("/files/../admin/x", None),
        ("/files%2F..%2Fadmin", None),
        ("/admin%2F..%2Ffiles", None),
        ("/admin%2Fx", Some(0)),
        ("/x%2Fadmin", Some(9)),
        (&many, None),
    ] {
        assert_eq!(of(&routes, path), to, "{path}");
    }
    // A route that takes all others is a route, too.
    let routes = two(Otherwise::Route(9));
    for (path, to) in [
        ("/admin%2Fx", None),
        ("/x%2Fy", Some(9)),
        ("/admin/%2Fx", Some(0)),
    ] {
        assert_eq!(of(&routes, path), to, "{path}");
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
        ("{path: /x/*}", "{path: /x/a%2Fb}", true),
        ("{path: /x/*}", "{path: '~ ^/x/'}", false),
        ("{path: /*}", "{path: '~ ^/x/'}", true),
        ("{path: '~ a'}", "{path: '~ a'}", true),
        ("{path: '~ a'}", "{path: /a}", false),
        ("{path: /X/}", "{path: /x}", true),
        ("{path: /x}", "{path: /x/*}", false),
        ("{path: /x.php}", "{path: /x.php/*}", true),
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
    let slash = prop::sample::select(vec![
        "/",
        "//",
        "/./",
        "/x/../",
        "/%2e/",
        "/%2e/a/%2E./",
        "%2F",
        "%2f",
        "%5C",
        "\\",
        "%252F",
        ";a=b/",
    ]);
    let front = prop::sample::select(vec!["", "", "/index.php"]);
    let part = (segment, slash, any::<u32>(), any::<u32>());
    let end = prop::sample::select(vec![
        "", "/", "//", "%00", "%0A", "%20", ";", "/.", "+", "+;x", "%20/", "%3Fx", "%00/x",
        "%20%23/",
    ]);
    (front, prop::collection::vec(part, 1..4), end).prop_map(|(front, parts, end)| {
        let (mut plain, mut written) = (String::new(), front.to_owned());
        for (segment, slash, encode, upper) in parts {
            plain.extend(["/", segment]);
            // A path begins with a slash, whatever comes then.
            if plain.matches('/').count() == 1 && !slash.starts_with('/') {
                written.push('/');
            }
            written.push_str(slash);
            for (mut byte, at) in segment.bytes().zip(0..) {
                if upper >> at & 1 == 1 {
                    byte.make_ascii_uppercase();
                }
                match encode >> at & 1 {
                    0 => written.push(byte.into()),
                    _ => written.extend(["%", &format!("{byte:02x}")]),
                }
            }
        }
        written.push_str(end);
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
    let kinds = (
        some(paths),
        some(hosts),
        some(methods.clone()),
        some(methods),
        some(headers),
    );
    kinds.prop_map(|(paths, hosts, methods, not_methods, headers)| Conditions {
        paths,
        hosts,
        methods,
        not_methods,
        headers: HeaderPatterns(headers),
        ..Conditions::default()
    })
}

#[test]
fn addresses_are_of_the_client() {
    let routes =
        |yaml: &str| Routes::new(vec![(conditions(yaml), true)], Otherwise::Default(false));
    let fields = Fields::new();
    for (yaml, matched, others) in [
        (
            "{address: [10.0.0.0/8, '::1']}",
            &["10.1.2.3", "::1", "::ffff:10.0.0.1"][..],
            &["11.0.0.1", "::2", ""][..],
        ),
        (
            "{not_address: 10.0.0.0/8}",
            &["11.0.0.1", "::1", ""],
            &["10.0.0.1", "::ffff:10.0.0.1"],
        ),
        (
            "{address: 10.0.0.0/8, not_address: 10.0.0.1}",
            &["10.0.0.2"],
            &["10.0.0.1", "11.0.0.1", ""],
        ),
    ] {
        let routes = routes(yaml);
        for (addresses, matches) in [(matched, true), (others, false)] {
            for address in addresses {
                let asked = Asked {
                    address: address.parse().ok(),
                    ..asked("GET", "", "/", &fields)
                };
                assert_eq!(routes.pick(&asked), Ok(&matches), "{yaml} {address:?}");
            }
        }
    }
    let net = conditions("{address: 10.0.0.0/8}");
    assert!(Conditions::default().cover(&net) && !net.cover(&Conditions::default()));
    assert!(net.cover(&conditions("{address: 10.0.0.0/8, not_address: 10.0.0.1}")));
}

#[test]
fn methods_that_are_left_out_are_so_as_they_are_written() {
    let not = conditions("{not_method: [GET, POST]}");
    let routes = Routes::new(vec![(not, true)], Otherwise::Default(false));
    let fields = Fields::new();
    for (method, matches) in [
        ("GET", false),
        ("POST", false),
        ("HEAD", true),
        ("get", true),
        ("FOO", true),
    ] {
        let picked = routes.pick(&asked(method, "", "/", &fields));
        assert_eq!(picked, Ok(&matches), "{method}");
    }
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
    fn what_a_pattern_says_it_matches(written in near_path(), below in any::<bool>()) {
        let written = if below { format!("{}/*", written.trim_end_matches('/')) } else { written };
        if PathPattern::parse(&written).is_ok() {
            let own = written.strip_suffix("/*").unwrap_or(&written);
            prop_assert!(own.is_empty() || own.contains(';') || is_matched(&written, own), "{}", written);
        }
    }

    #[test]
    fn no_disguise_gets_past_a_route((plain, written) in disguised()) {
        let conditions = |path: &str| Conditions { paths: vec![pattern(path)], ..Conditions::default() };
        for pattern in [plain.clone(), format!("{plain}/*")] {
            let routes = Routes::new(vec![(conditions(&pattern), true)], Otherwise::Route(false));
            let routes = routes.with_fronts(["index.php"]);
            let fields = Fields::new();
            let found = routes.pick(&asked("GET", "", &written, &fields));
            prop_assert!(found != Ok(&false), "{} {}", pattern, written);
        }
    }

    #[test]
    fn a_plain_path_takes_no_memory(segments in prop::collection::vec("[a-zA-Z0-9_~-][a-zA-Z0-9_.~-]{0,5}", 0..5)) {
        let path = format!("/{}", segments.join("/"));
        let readings = Readings::of(path.as_bytes(), &Fronts::new(["index.php"])).expect("one");
        prop_assert_eq!(&readings, &Readings::plain(path.as_bytes()));
    }

    #[test]
    fn any_bytes_have_few_readings(received in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'/'), Just(b'%'), Just(b'.'), Just(b'2'), Just(b';'), Just(b'5')], 0..60)) {
        let received = [b"/", received.as_slice()].concat();
        if let Some(readings) = Readings::of(&received, &Fronts::new(["index.php"])) {
            prop_assert!(readings.iter().count() <= 32);
        }
    }

    #[test]
    fn the_first_in_the_list_wins(all in prop::collection::vec(small_conditions(), 0..6), (method, authority, path, fields) in small_request()) {
        let asked = asked(method, authority, path, &fields);
        let one = |conditions: &Conditions| Routes::new(vec![(conditions.clone(), true)], Otherwise::Default(false)).pick(&asked).copied().expect("one route");
        let want = all.iter().position(one);
        let routes = Routes::new(all.iter().cloned().zip((0..).map(Some)).collect(), Otherwise::Default(None));
        // A path with more than one reading may be of two routes.
        if let Ok(picked) = routes.pick(&asked) {
            prop_assert_eq!(*picked, want);
        }
    }

    #[test]
    fn whoever_is_covered_never_matches_alone(earlier in small_conditions(), later in small_conditions(), (method, authority, path, fields) in small_request()) {
        let asked = asked(method, authority, path, &fields);
        let matches = |conditions: &Conditions| Routes::new(vec![(conditions.clone(), true)], Otherwise::Default(false)).pick(&asked).copied().expect("one route");
        if earlier.cover(&later) && matches(&later) {
            prop_assert!(matches(&earlier), "{:?} {:?} {:?}", earlier, later, asked);
        }
    }
}

#[test]
fn a_route_below_the_name_of_a_front_controller_opens_nothing() {
    let fields = Fields::new();
    let all = ["{path: /a.php}", r"{path: '~ \.php$', closes: true}"];
    let all = all.map(conditions).into_iter().zip([0, 1]).collect();
    let routes = Routes::new(all, Otherwise::Default(2)).with_fronts(["index.php"]);
    for (path, to) in [
        ("/a.php", 0),
        ("/b.php", 1),
        ("/index.php/a.php", 1),
        ("/index.php/b.php", 1),
        ("/index.php/b", 1), // its script is refused
    ] {
        assert_eq!(
            routes.pick(&asked("GET", "", path, &fields)),
            Ok(&to),
            "{path}"
        );
    }
}

#[test]
fn a_field_that_is_not_there_is_empty() {
    for (expression, none, empty, some) in [
        ("^$", true, true, false),
        ("^(|-)$", true, true, false),
        (".", false, false, true),
        ("^x", false, false, true),
    ] {
        let route = conditions(&format!("{{header: {{A: '{expression}'}}}}"));
        let routes = Routes::new(vec![(route, true)], Otherwise::Default(false));
        for (value, matches) in [(None, none), (Some(""), empty), (Some("x"), some)] {
            let mut fields = Fields::new();
            if let Some(value) = value {
                fields.push("a", value);
            }
            let asked = asked("GET", "", "/", &fields);
            assert_eq!(routes.pick(&asked), Ok(&matches), "{expression} {value:?}");
        }
    }
}

#[test]
fn cookies_are_joined_as_php_sees_them() {
    let mut fields = Fields::new();
    fields.push("cookie", "a=1");
    fields.push("cookie", "b=2");
    let mut route = conditions("{header: {Cookie: 'a=1; b=2'}}");
    route.closes = true;
    let routes = Routes::new(vec![(route, true)], Otherwise::Default(false));
    assert_eq!(routes.pick(&asked("GET", "", "/", &fields)), Ok(&true));
}

/// Whoever sends a field beside the one that decides is kept out all the same, and gets in no more.
#[test]
fn several_fields_of_one_name_open_nothing() {
    for (expression, values, closed, opened) in [
        ("^$", &["", "1"][..], true, false),
        ("^$", &["1", ""], true, false),
        ("^gold$", &["gold", "iron"], true, false),
        ("^gold$", &["gold", "gold"], true, false),
        ("gold", &["gold", "gold x"], true, true),
        ("^iron$", &["gold", "gold"], false, false),
        ("d, i", &["gold", "iron"], true, false),
    ] {
        let mut fields = Fields::new();
        for value in values {
            fields.push("a", *value);
        }
        for (closes, matches) in [(true, closed), (false, opened)] {
            let mut route = conditions(&format!("{{header: {{A: '{expression}'}}}}"));
            route.closes = closes;
            let routes = Routes::new(vec![(route, true)], Otherwise::Default(false));
            let asked = asked("GET", "", "/", &fields);
            assert_eq!(
                routes.pick(&asked),
                Ok(&matches),
                "{expression} {values:?} {closes}"
            );
        }
    }
}
