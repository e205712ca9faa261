//! The requests, byte by byte.

use std::fmt::Write as _;

/// A request, and where this server may answer otherwise than nginx.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) request: Vec<u8>,
    /// The status of nginx, and ours.
    otherwise: Option<(u16, u16)>,
    /// What is otherwise in the superglobals, by the beginnings of its ways.
    differs: &'static [&'static str],
}

impl Case {
    fn new(name: impl Into<String>, request: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            request: request.into(),
            otherwise: None,
            differs: &[],
        }
    }

    pub(super) fn may_differ(&self, way: &str) -> bool {
        self.differs.iter().any(|known| way.starts_with(known))
    }

    pub(super) fn may_be(&self, nginx: u16, ours: u16) -> bool {
        self.otherwise == Some((nginx, ours))
    }
}

/// Statuses that are not nginx's: the beginning of a name, nginx's, ours, the reason. What is said
/// of malformed requests in `docs/reference/malformed-requests.md` holds here, too.
const OTHERWISE: [(&str, u16, u16, &str); 16] = [
    (
        "path /odd.php/in.php/x",
        404,
        200,
        "a folder may be called so",
    ),
    (
        "path to a hidden file",
        403,
        200,
        "the file is not sent; the path is the front controller's business",
    ),
    (
        "path that climbs and stays",
        200,
        403,
        "it could be read in two ways",
    ),
    ("path that climbs out", 400, 403, "as any other that climbs"),
    ("field X-\u{fc}", 200, 400, "no name"),
    ("raw the target *", 400, 200, "the server's own answer"),
    ("raw two spaces before the target", 200, 400, "malformed"),
    ("raw a space behind the version", 200, 400, "malformed"),
    (
        "raw a method in lower case",
        400,
        200,
        "a method like any other",
    ),
    ("raw no version", 0, 400, "HTTP/0.9"),
    ("raw version 1.2", 200, 505, "there is none"),
    ("raw an empty host", 400, 200, "a client may have none"),
    (
        "raw lone line feeds",
        200,
        400,
        "two servers on one path may disagree about them",
    ),
    ("raw a control character in a value", 200, 400, "malformed"),
    ("raw no colon", 200, 400, "malformed"),
    ("raw an unknown coding", 501, 400, "malformed"),
];

const TWICE: &str = "nginx before 1.23 tells PHP of the last field alone";
/// The same for what scripts see, by the beginnings of its ways.
const DIFFERS: [(&str, &[&str], &str); 7] = [
    (
        "two fields of cookies",
        &[
            ".cookie.",
            ".headers.Cookie",
            ".order.2",
            ".server.HTTP_COOKIE",
        ],
        TWICE,
    ),
    ("field X-A: 1", &[".headers.X-A", ".server.HTTP_X_A"], TWICE),
    (
        "field Accept: */*",
        &[".headers.Accept", ".server.HTTP_ACCEPT"],
        TWICE,
    ),
    (
        "field Proxy:",
        &[".headers.Proxy", ".server.HTTP_PROXY"],
        "programs take it for the address of a proxy",
    ),
    (
        "field X-Spaces:",
        &[".headers.X-Spaces", ".server.HTTP_X_SPACES"],
        "space around a value does not belong to it",
    ),
    (
        "raw an absolute target of another host",
        &[".headers.Host", ".server.HTTP_HOST"],
        "the target's host counts, and routes have asked for it",
    ),
    (
        "raw a fragment",
        &[".server.REQUEST_URI"],
        "a fragment is not the server's",
    ),
];

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    all.extend(queries());
    all.extend(paths());
    all.extend(cookies());
    all.extend(forms());
    all.extend(multipart());
    all.extend(odd_multipart());
    all.extend(fields());
    all.extend(raw());
    for (name, nginx, ours, _) in OTHERWISE {
        each(&mut all, name, |case| case.otherwise = Some((nginx, ours)));
    }
    for (name, ways, _) in DIFFERS {
        each(&mut all, name, |case| case.differs = ways);
    }
    all
}

/// Those whose names begin so; there is one at least.
fn each(cases: &mut [Case], name: &str, change: impl FnMut(&mut Case)) {
    let mut named: Vec<_> = cases
        .iter_mut()
        .filter(|case| case.name.starts_with(name))
        .collect();
    assert!(!named.is_empty(), "no case is called {name}");
    named.drain(..).for_each(change);
}

fn get(target: &str, fields: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n").into_bytes()
}

fn post(target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    send("POST", target, content_type, body)
}

fn send(method: &str, target: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    if !content_type.is_empty() {
        _ = write!(head, "Content-Type: {content_type}\r\n");
    }
    _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Pairs as a query string or a form body has them; what is odd here is odd in both.
fn pairs() -> Vec<(String, String)> {
    let plain = [
        "a=1",
        "a",
        "a=",
        "=1",
        "=",
        "&",
        "&&a=1&&b=2&",
        "a=1&a=2&a=3",
        "a=b=c",
        "a==",
        "a=1&b",
        // Nested names.
        "a[]=1&a[]=2",
        "a[b]=1",
        "a[b]=1&a[b]=2",
        "a[b][c]=1&a[b][d]=2",
        "a[][b]=1&a[][b]=2",
        "a[0]=x&a[2]=y&a[]=z",
        "a[-3]=x&a[]=y",
        "a[08]=x&a[8]=y",
        "a[1.5]=x&a[ 1]=y",
        "a[9223372036854775807]=x&a[]=y",
        "a[9223372036854775808]=x",
        "a=1&a[b]=2",
        "a[b]=2&a=1",
        "a[b]=1&a[b][c]=2",
        "a[=1",
        "a]=1",
        "a[b=1",
        "a[b]c=1",
        "a[b]c[d]=1",
        "a[[b]]=1",
        "a[b[c]]=1",
        "a[]]=1",
        "a[][]=1&a[][]=2",
        "[a]=1",
        "[]=1",
        "[a][b]=1",
        "a[%20b]=1",
        "a[ b ]=1",
        "a[b%5D=1",
        "a%5Bb%5D=1",
        "a%5B%5D=1&a%5B%5D=2",
        "a[b\x01c]=1",
        "a['b']=1",
        "a[\"b\"]=1",
        "a[b.c]=1&a.b[c]=2",
        // What PHP makes of names.
        "a.b=1",
        "a+b=1",
        "a%20b=1",
        "a%2Eb=1",
        ".a=1",
        "%20a=1",
        "+a=1",
        "a-b=1",
        "a:b=1",
        "a/b=1",
        "a\\b=1",
        "0=x&1=y",
        "%61=1",
        "GLOBALS=1",
        "GLOBALS[a]=1",
        "_GET=1",
        "_SERVER[REMOTE_ADDR]=1.1.1.1",
        "this=1",
        "__proto__=1",
        "A=1&a=2",
        // Codes.
        "a=%31%32",
        "a=%",
        "a=%1",
        "a=%zz",
        "a=%u00fc",
        "a=1+2",
        "a=1%2B2",
        "a=%26&b=%3D",
        "a=%00b",
        "a%00b=1",
        "%00a=1",
        "a=%0D%0A",
        "a=%C3%BC",
        "a=%FC",
        "a=%FF%FE%80",
        "%FC=1",
        "a=%C0%AF",
        "a=%ED%A0%80",
        "a=%25%32%35",
        // Other delimiters.
        "a=1;b=2",
        "a=1&amp;b=2",
        "a=1|b=2",
        "a=1,2,3",
        "a=?b=1",
        "?a=1",
        "a=/x/y.php",
    ];
    let mut all: Vec<(String, String)> =
        plain.map(|text| (text.to_owned(), text.to_owned())).into();
    let mut add = |name: &str, text: String| all.push((name.to_owned(), text));
    add("a long value", format!("a={}", "x".repeat(3000)));
    add("a long name", format!("{}=1", "n".repeat(600)));
    add(
        "names as deep as PHP goes",
        format!("a{}=1", "[b]".repeat(63)),
    );
    add(
        "names deeper than PHP goes",
        format!("a{}=1", "[b]".repeat(70)),
    );
    add("as many as max_input_vars", many(1000, "v"));
    add("more than max_input_vars", many(1001, "v"));
    add("more than max_input_vars in a list", many(1001, "v[]"));
    all
}

/// `v0=&v1=…`, or as many items of a list.
fn many(count: usize, name: &str) -> String {
    let one = |number| {
        if name.ends_with("[]") {
            format!("{name}=")
        } else {
            format!("{name}{number}=")
        }
    };
    (0..count).map(one).collect::<Vec<_>>().join("&")
}

fn queries() -> Vec<Case> {
    let is_graphic = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
    let with = |(name, text): (String, String)| {
        Case::new(
            format!("query {name}"),
            get(&format!("/dump.php?{text}"), ""),
        )
    };
    let mut all: Vec<Case> = pairs()
        .into_iter()
        .filter(|(_, text)| is_graphic(text))
        .map(with)
        .collect();
    all.push(Case::new("no query", get("/dump.php", "")));
    all.push(Case::new("an empty query", get("/dump.php?", "")));
    all
}

fn paths() -> Vec<Case> {
    let same = [
        "/",
        "/?a=1",
        "/dump.php/",
        "/dump.php/x/y",
        "/dump.php/x%20y?a=1",
        "/dump.php/%C3%BC",
        "/dump.php/a//b",
        "/dump.php/a/./b",
        "/dump.php/x.php/y",
        "/dump.php/a+b",
        "/dump.php/a%2Bb",
        "/dump.php/a%25b",
        "/dump.php/%FF",
        "/dump.php/a;b=c",
        "/dump.php/a=b&c",
        "/sub/",
        "/sub/?a=1",
        "/sub/index.php",
        "/sub/index.php/x",
        "/front/controller",
        "/front/controller/?a=b&c[]=d",
        "/front/x.html",
        "/front/%C3%BC/x",
        "//dump.php",
        "/./dump.php",
        "/%64ump%2Ephp",
        "/sub//index.php/x",
        "/odd.php/in.php/x",
        "/with%20space.php/x",
        "/dump.php?x=/y.php/z",
        "/DUMP.php",
        "/missing.php",
        "/missing.php/x",
        "/dump.php%20",
        "/page.txt",
    ];
    let mut all: Vec<Case> = same
        .map(|path| Case::new(format!("path {path}"), get(path, "")))
        .into();
    all.push(Case::new(
        "path of a folder without its slash",
        get("/sub", ""),
    ));
    all.push(Case::new("path to a hidden file", get("/.env", "")));
    all.push(Case::new(
        "path that climbs and stays",
        get("/sub/../dump.php", ""),
    ));
    all.push(Case::new("path that climbs out", get("/../dump.php", "")));
    for path in [
        "/dump.php/a%2Fb",
        "/dump.php/x%2F%2Findex",
        "/dump.php/a%5Cb%2f",
        "/files/a%2Fb",
        "/%2Fdump",
        "/any%5Cthing",
    ] {
        all.push(Case::new(
            format!("path with an encoded slash {path}"),
            get(path, ""),
        ));
    }
    all.push(Case::new(
        "path with an encoded NUL",
        get("/dump.php/a%00b", ""),
    ));
    all.push(Case::new(
        "path with a broken code",
        get("/dump.php/%zz", ""),
    ));
    all.push(Case::new(
        "path with a backslash",
        get("/dump.php/a\\b", ""),
    ));
    all
}

fn cookies() -> Vec<Case> {
    let values = [
        "a=1",
        "a=1; b=2",
        "a=1;b=2",
        "a=1;  b=2 ; c=3",
        "a=1; a=2",
        "a",
        "a=",
        "=1",
        "; ;a=1;",
        "a=b=c",
        "a=\"quoted; x\"",
        "a=%41%zz",
        "a=1+2",
        "a[b]=1; a[c]=2",
        "a[]=1; a[]=2",
        "a.b=1",
        "a b=1",
        " a=1",
        "a=1, b=2",
        "a=\u{fc}",
        "PHPSESSID=../../x",
        "__Host-a=1",
        "_SERVER[x]=1",
        "a=1; A=2",
        "a=%00b",
        "%61=1",
        "a=1&b=2",
    ];
    let mut all: Vec<Case> = values
        .map(|value| {
            Case::new(
                format!("cookie {value}"),
                get("/dump.php", &format!("Cookie: {value}\r\n")),
            )
        })
        .into();
    all.push(Case::new(
        "two fields of cookies",
        get("/dump.php", "Cookie: a=1\r\nX: y\r\nCookie: b=2; a=3\r\n"),
    ));
    all.push(Case::new("no cookie", get("/dump.php", "Cookie:\r\n")));
    all.push(Case::new(
        "cookie, query and form of one name",
        [
            b"POST /dump.php?a=get&g=1 HTTP/1.1\r\nHost: test\r\nConnection: close\r\nCookie: a=cookie; c=1\r\n".as_slice(),
            b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\na=post&p=1",
        ]
        .concat(),
    ));
    all
}

const FORM: &str = "application/x-www-form-urlencoded";

fn forms() -> Vec<Case> {
    let with = |(name, text): (String, String)| {
        Case::new(
            format!("form {name}"),
            post("/dump.php", FORM, text.as_bytes()),
        )
    };
    let mut all: Vec<Case> = pairs().into_iter().step_by(3).map(with).collect();
    for content_type in [
        "application/x-www-form-urlencoded; charset=UTF-8",
        "application/x-www-form-urlencoded;charset=ISO-8859-1",
        "APPLICATION/X-WWW-FORM-URLENCODED",
        "application/x-www-form-urlencoded , text/plain",
        "application/x-www-form-urlencoded-not",
        "application/json",
        "text/plain",
        "",
        "nonsense",
        "multipart/form-data",
        "multipart/form-data; boundary=",
    ] {
        all.push(Case::new(
            format!("a body of type `{content_type}`"),
            post("/dump.php", content_type, b"a=1&b[]=2"),
        ));
    }
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "QUERY"] {
        all.push(Case::new(
            format!("a form by {method}"),
            send(method, "/dump.php", FORM, b"a=1&b[]=2"),
        ));
    }
    all.push(Case::new(
        "a form by GET",
        send("GET", "/dump.php?q=1", FORM, b"a=1"),
    ));
    all.push(Case::new(
        "a form of no length",
        post("/dump.php", FORM, b""),
    ));
    all.push(Case::new(
        "a form with raw bytes",
        post("/dump.php", FORM, b"a=\xff\x00\x80&\xfc=1&b=\r\n"),
    ));
    all.push(Case::new(
        "a form with line ends",
        post("/dump.php", FORM, b"a=1\r\nb=2\r\n"),
    ));
    all.push(Case::new(
        "a form beyond post_max_size",
        post("/dump.php", FORM, &b"a=".repeat(5 << 20)),
    ));
    all.push(Case::new(
        "a long form in a file",
        post(
            "/dump.php",
            FORM,
            format!("a={}&b=2", "x".repeat(600_000)).as_bytes(),
        ),
    ));
    all.push(Case::new(
        "long JSON in a file",
        post(
            "/dump.php",
            "application/json",
            format!("[\"{}\"]", "x".repeat(600_000)).as_bytes(),
        ),
    ));
    all.push(Case::new(
        "a form in chunks",
        "POST /dump.php HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n8;x=y\r\n&b[]=2&c\r\n0\r\n\r\n",
    ));
    all.push(Case::new(
        "a form after 100 Continue",
        "POST /dump.php HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Expect: 100-continue\r\nContent-Length: 3\r\n\r\na=1",
    ));
    all
}

/// A body of parts, each its head's lines and its content.
fn body(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, content) in parts {
        body.extend_from_slice(b"--xYz\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xYz--\r\n");
    body
}

fn field(name: &str) -> String {
    format!("Content-Disposition: form-data; name=\"{name}\"")
}

fn file(name: &str, filename: &str) -> String {
    format!(
        "Content-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\nContent-Type: text/plain"
    )
}

const MULTIPART: &str = "multipart/form-data; boundary=xYz";

fn parts(name: &str, body: &[u8]) -> Case {
    Case::new(
        format!("multipart {name}"),
        post("/dump.php", MULTIPART, body),
    )
}

fn multipart() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |name: &str, body: Vec<u8>| all.push(parts(name, &body));
    add("of a field", body(&[(&field("a"), b"1")]));
    add(
        "of nested fields",
        body(&[
            (&field("a[b][]"), b"1"),
            (&field("a[b][]"), b"2"),
            (&field("c.d"), b"3"),
        ]),
    );
    add(
        "of twice the same field",
        body(&[(&field("a"), b"1"), (&field("a"), b"2")]),
    );
    add(
        "of raw bytes",
        body(&[(&field("a"), b"\0\xff\r\n--xY\r\n-")]),
    );
    add("of an empty field", body(&[(&field("a"), b"")]));
    add("of a file", body(&[(&file("f", "a.txt"), b"content")]));
    add(
        "of fields and files",
        body(&[
            (&field("a"), b"1"),
            (&file("f", "a.txt"), b"x"),
            (&field("b"), b"2"),
            (&file("g", "b.txt"), b"y"),
        ]),
    );
    add(
        "of a list of files",
        body(&[
            (&file("f[]", "a.txt"), b"x"),
            (&file("f[]", "b.txt"), b"yy"),
        ]),
    );
    add(
        "of nested files",
        body(&[
            (&file("f[a][b]", "a.txt"), b"x"),
            (&file("f[a][c]", "b.txt"), b"yy"),
            (&file("f[d]", "c.txt"), b"z"),
        ]),
    );
    add(
        "of twice the same file",
        body(&[(&file("f", "a.txt"), b"x"), (&file("f", "b.txt"), b"yy")]),
    );
    add("of no file", body(&[(&file("f", ""), b"")]));
    add(
        "of no file in a list",
        body(&[(&file("f[]", ""), b""), (&file("f[]", "b.txt"), b"y")]),
    );
    add("of an empty file", body(&[(&file("f", "a.txt"), b"")]));
    add(
        "of a file beyond upload_max_filesize",
        body(&[(&file("f", "a.txt"), &vec![b'x'; 3 << 20])]),
    );
    add(
        "of a file beyond MAX_FILE_SIZE",
        body(&[
            (&field("MAX_FILE_SIZE"), b"3"),
            (&file("f", "a.txt"), b"1234"),
        ]),
    );
    add(
        "of a file of MAX_FILE_SIZE",
        body(&[
            (&field("MAX_FILE_SIZE"), b"4"),
            (&file("f", "a.txt"), b"1234"),
        ]),
    );
    add(
        "of a wrong MAX_FILE_SIZE",
        body(&[
            (&field("MAX_FILE_SIZE"), b"x"),
            (&file("f", "a.txt"), b"1234"),
        ]),
    );
    let heads: Vec<String> = (0..22)
        .map(|number| file(&format!("f{number}"), "a.txt"))
        .collect();
    let many: Vec<(&str, &[u8])> = heads
        .iter()
        .map(|head| (head.as_str(), b"x".as_slice()))
        .collect();
    add("of more than max_file_uploads", body(&many));
    let heads: Vec<String> = (0..1002)
        .map(|number| field(&format!("v{number}")))
        .collect();
    let many: Vec<(&str, &[u8])> = heads
        .iter()
        .map(|head| (head.as_str(), b"x".as_slice()))
        .collect();
    add("of more than max_input_vars", body(&many));
    all
}

/// Heads of parts, and bodies that are not as they should be.
fn odd_multipart() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |name: &str, body: Vec<u8>| all.push(parts(name, &body));
    for filename in [
        "../../etc/passwd",
        "C:\\\\dir\\\\a.txt",
        "a b.txt",
        "\u{fc}.txt",
        "a\\\".txt",
        "a%22.txt",
        ".htaccess",
        "x.php",
        "/",
        "a/",
        "a\0b.txt",
    ] {
        add(
            &format!("of a file called {}", filename.escape_debug()),
            body(&[(&file("f", filename), b"x")]),
        );
    }
    for head in [
        "Content-Disposition: form-data; name=a",
        "Content-Disposition: form-data; name='a'",
        "content-disposition: FORM-DATA; NAME=\"a\"",
        "Content-Disposition: form-data",
        "Content-Disposition: attachment; name=\"a\"",
        "Content-Disposition: form-data; name=\"\"",
        "Content-Type: text/plain",
        "X: y\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64",
        "Content-Disposition: form-data; filename=\"f.txt\"",
        "Content-Disposition: form-data; name=\"f\"; filename=f.txt",
        "Content-Disposition: form-data; name=\"f\"; filename*=UTF-8''%C3%BC.txt",
        "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"",
        "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/html; charset=x; a=b",
        "Content-Disposition:form-data;name=\"a\"",
        "Content-Disposition: form-data; name=\"a\"; name=\"b\"",
        "Content-Disposition: form-data;\r\n name=\"a\"",
        "no header at all",
        "Content-Disposition: form-data; name=\"a[\"",
        "Content-Disposition: form-data; name=\"a]b\"",
        "Content-Disposition: form-data; name=\"f[\"; filename=\"x\"",
        "Content-Disposition: form-data; name=\"f]x\"; filename=\"x\"",
        "Content-Disposition: form-data; name=\"f[a]x\"; filename=\"x\"",
    ] {
        add(
            &format!("with the head `{}`", head.escape_debug()),
            body(&[(head, b"Y29udGVudA==")]),
        );
    }
    add(
        "without its end",
        b"--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n".to_vec(),
    );
    add(
        "of a file without its end",
        b"--xYz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\ncut".to_vec(),
    );
    add(
        "with a preamble and an epilogue",
        [b"before\r\n", &body(&[(&field("a"), b"1")])[..], b"after"].concat(),
    );
    add(
        "with lone line feeds",
        b"--xYz\nContent-Disposition: form-data; name=\"a\"\n\n1\n--xYz--\n".to_vec(),
    );
    add("of nothing", b"--xYz--\r\n".to_vec());
    add("that is empty", Vec::new());
    add("that is none", b"a=1&b=2".to_vec());
    for content_type in [
        "multipart/form-data; boundary=\"xYz\"",
        "multipart/form-data; charset=utf-8; boundary=xYz",
        "Multipart/Form-Data; Boundary=xYz",
        "multipart/form-data;boundary=xYz",
        "multipart/form-data; boundary=xYz; a=b",
        "multipart/form-data; boundary=other",
        "multipart/form-data; boundary = xYz",
        "multipart/mixed; boundary=xYz",
        "multipart/form-data; boundary=xYz,b",
    ] {
        all.push(Case::new(
            format!("multipart as `{content_type}`"),
            post(
                "/dump.php",
                content_type,
                &body(&[(&field("a"), b"1"), (&file("f", "a"), b"x")]),
            ),
        ));
    }
    all.push(Case::new(
        "multipart by PUT",
        send("PUT", "/dump.php", MULTIPART, &body(&[(&field("a"), b"1")])),
    ));
    all.push(Case::new(
        "multipart beyond post_max_size",
        post(
            "/dump.php",
            MULTIPART,
            &body(&[(&file("f", "a"), &vec![b'x'; 9 << 20])]),
        ),
    ));
    all
}

fn fields() -> Vec<Case> {
    let same = [
        "Authorization: Basic dXNlcjpwYXNz",
        "Authorization: Basic dXNlcg==",
        "Authorization: Basic dXNlcjpwYTpzcw==",
        "Authorization: Basic !!!",
        "authorization: basic dXNlcjpwYXNz",
        "Authorization: Bearer abc.def",
        "Authorization: Digest username=\"a\", realm=\"b\"",
        "Authorization:",
        "Proxy: http://evil.example/",
        "Proxy-Authorization: Basic x",
        "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil",
        "Forwarded: for=1.1.1.1",
        "X-A: 1\r\nX-A: 2",
        "X-A: 1\r\nx-a: 2\r\nX-B: 3",
        "X-Empty:",
        "X-Spaces:   a  b  \t",
        "X-Comma: a,b;c",
        "X_Underscore: 1",
        "X.Dot: 1",
        "X-1: 2",
        "X-\u{fc}: 1",
        "Content-Type: text/plain",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Length: 0",
        "Content-Encoding: gzip",
        "Content-MD5: abc",
        "Range: bytes=0-3",
        "If-None-Match: \"x\"",
        "If-Modified-Since: Sat, 01 Jan 2000 00:00:00 GMT",
        "Accept-Encoding: gzip, br",
        "Accept: */*\r\nAccept: text/html",
        "User-Agent: Mozilla/5.0 (X; \u{fc})",
        "Referer: http://test/\u{fc}?a=<b>",
        "TE: trailers",
        "Upgrade: h2c",
        "X-HTTP-Method-Override: DELETE",
        "Keep-Alive: 300",
        "Via: 1.1 x",
        "X-Sendfile: /etc/passwd",
        "Status: 404",
        "Script-Name: /x",
        "Remote-User: admin",
        "Https: on",
        "Document-Root: /x",
        "Path-Info: /x",
        "X-Original-URL: /admin",
        "Http-Host: evil",
        "Redirect-Status: 403",
    ];
    let mut all: Vec<Case> = same
        .map(|fields| {
            Case::new(
                format!("field {}", fields.escape_debug()),
                get("/dump.php", &format!("{fields}\r\n")),
            )
        })
        .into();
    all.push(Case::new(
        "a long field",
        get("/dump.php", &format!("X-Long: {}\r\n", "x".repeat(5000))),
    ));
    for host in [
        "TEST",
        "test:8080",
        "test.",
        "127.0.0.1",
        "[::1]:80",
        "xn--4ca.example",
        "a_b",
    ] {
        all.push(Case::new(
            format!("host {host}"),
            format!("GET /dump.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        ));
    }
    all
}

/// What a browser would not send.
fn raw() -> Vec<Case> {
    let case = |name: &str, request: &[u8]| Case::new(format!("raw {name}"), request);
    let line = |name: &str, first: &[u8]| {
        case(
            name,
            &[first, b"\r\nHost: test\r\nConnection: close\r\n\r\n"].concat(),
        )
    };
    let with = |name: &str, fields: &[u8]| {
        case(
            name,
            &[
                b"GET /dump.php HTTP/1.1\r\nHost: test\r\nConnection: close\r\n",
                fields,
                b"\r\n\r\n",
            ]
            .concat(),
        )
    };
    vec![
        line(
            "UTF-8 in the path",
            "GET /dump.php/\u{fc} HTTP/1.1".as_bytes(),
        ),
        line("bytes in the path", b"GET /dump.php/\xff\x80 HTTP/1.1"),
        line(
            "bytes in the query",
            b"GET /dump.php?a=\xff\xfe&\xfc[\xe4]=1 HTTP/1.1",
        ),
        line("a space in the query", b"GET /dump.php?a=b c HTTP/1.1"),
        line("a tab in the query", b"GET /dump.php?a=b\tc HTTP/1.1"),
        line("a NUL in the query", b"GET /dump.php?a=b\0c HTTP/1.1"),
        line(
            "a control character in the query",
            b"GET /dump.php?a=\x01\x1f\x7f HTTP/1.1",
        ),
        line(
            "quotes and brackets in the query",
            b"GET /dump.php?a=\"<>'`{}|^\\ HTTP/1.1",
        ),
        line("a fragment", b"GET /dump.php?a=1#b=2 HTTP/1.1"),
        line("a fragment in the path", b"GET /dump.php#x?a=1 HTTP/1.1"),
        line(
            "an absolute target",
            b"GET http://test/dump.php?a=1 HTTP/1.1",
        ),
        line(
            "an absolute target of another host",
            b"GET http://other.example:81/dump.php?a=1 HTTP/1.1",
        ),
        line(
            "an absolute target without a path",
            b"GET http://test HTTP/1.1",
        ),
        line("a target without a slash", b"GET dump.php HTTP/1.1"),
        line("the target *", b"OPTIONS * HTTP/1.1"),
        line("two spaces before the target", b"GET  /dump.php HTTP/1.1"),
        line("a space behind the version", b"GET /dump.php HTTP/1.1 "),
        line("a method in lower case", b"get /dump.php HTTP/1.1"),
        line("a method of its own", b"FROBNICATE /dump.php HTTP/1.1"),
        line("a method with odd letters", b"M-SEARCH /dump.php HTTP/1.1"),
        line(
            "a method with a control character",
            b"G\x01ET /dump.php HTTP/1.1",
        ),
        line("no version", b"GET /dump.php"),
        line("version 1.2", b"GET /dump.php HTTP/1.2"),
        line("version 2.0", b"GET /dump.php HTTP/2.0"),
        line("version in lower case", b"GET /dump.php http/1.1"),
        case(
            "HTTP/1.0 without a host",
            b"GET /dump.php?a=1 HTTP/1.0\r\n\r\n",
        ),
        case(
            "HTTP/1.0 with a host",
            b"GET /dump.php?a=1 HTTP/1.0\r\nHost: test\r\n\r\n",
        ),
        case(
            "no host",
            b"GET /dump.php HTTP/1.1\r\nConnection: close\r\n\r\n",
        ),
        case(
            "an empty host",
            b"GET /dump.php HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
        ),
        with("a second host", b"Host: other"),
        case(
            "a host with a slash",
            b"GET /dump.php HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n",
        ),
        case(
            "empty lines before the request",
            b"\r\n\r\nGET /dump.php?a=1 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        ),
        case(
            "lone line feeds",
            b"GET /dump.php?a=1 HTTP/1.1\nHost: test\nConnection: close\n\n",
        ),
        with("bytes in a value", b"X-A: \xff\xfe\xfc"),
        with("a NUL in a value", b"X-A: a\0b"),
        with("a control character in a value", b"X-A: a\x01b"),
        with("a lone carriage return in a value", b"X-A: a\rb"),
        with("a folded value", b"X-A: a\r\n b"),
        with("a space before the colon", b"X-A : a"),
        with("no colon", b"X-A"),
        with("no name", b": a"),
        with("odd letters in a name", b"X!#$%&'*+^`|~: 1"),
        with("a control character in a name", b"X\x01: 1"),
        with(
            "two lengths of no body",
            b"Content-Length: 0\r\nContent-Length: 0",
        ),
        with("a length that is none", b"Content-Length: x"),
        with("a negative length", b"Content-Length: -1"),
        with(
            "both lengths",
            b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0",
        ),
        with("an unknown coding", b"Transfer-Encoding: gzip"),
        with(
            "a chunk that is none",
            b"Transfer-Encoding: chunked\r\n\r\nxx",
        ),
    ]
}
