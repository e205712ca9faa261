//! Bodies for the comparison with PHP: first what clients send, then raw bytes that no browser
//! sends.

use pronghorn_form::BoundaryError;
use pronghorn_form::multipart::ErrorKind;

use crate::support::Refused;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    pub(crate) expect: Expect,
}

#[derive(Debug)]
pub(crate) enum Expect {
    /// PHP puts into `$_POST` and `$_FILES` what our parts become there.
    Same,
    /// We see these parts, PHP others, for this reason.
    Differs(&'static str, &'static str),
    /// We answer 400, for this reason; most often because PHP loses something without a word.
    Refused(Refused, &'static str),
}

impl Case {
    fn typed(mut self, content_type: &str) -> Self {
        content_type.clone_into(&mut self.content_type);
        self
    }
}

pub(crate) fn all() -> Vec<Case> {
    [
        clients(),
        names(),
        contents(),
        files(),
        boundaries(),
        line_ends(),
        heads(),
        parameters(),
        broken(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn case(name: &str, body: impl AsRef<[u8]>, expect: Expect) -> Case {
    Case {
        name: name.to_owned(),
        content_type: "multipart/form-data; boundary=B".to_owned(),
        body: body.as_ref().to_vec(),
        expect,
    }
}

fn same(name: &str, body: impl AsRef<[u8]>) -> Case {
    case(name, body, Expect::Same)
}

fn differs(name: &str, body: impl AsRef<[u8]>, ours: &'static str, reason: &'static str) -> Case {
    case(name, body, Expect::Differs(ours, reason))
}

fn refused(name: &str, body: impl AsRef<[u8]>, kind: ErrorKind, reason: &'static str) -> Case {
    case(name, body, Expect::Refused(Refused::Body(kind), reason))
}

/// A body of parts, each given as its headers, in which `@` is as in [`raw`], and its content.
fn form<H: AsRef<[u8]>, C: AsRef<[u8]>>(parts: &[(H, C)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (headers, content) in parts {
        body.extend_from_slice(b"--B\r\n");
        body.extend_from_slice(&raw(headers));
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(content.as_ref());
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--B--\r\n");
    body
}

fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let parts: Vec<_> = fields
        .iter()
        .map(|(name, value)| (disposition(name), *value))
        .collect();
    form(&parts)
}

fn disposition(name: &str) -> String {
    format!("@ name=\"{name}\"")
}

fn file(name: &str, filename: &str) -> String {
    format!("@ name=\"{name}\"; filename=\"{filename}\"\r\nContent-Type: text/plain")
}

/// Bytes in which `@` stands for the beginning of a Content-Disposition.
fn raw(text: impl AsRef<[u8]>) -> Vec<u8> {
    let pieces: Vec<_> = text.as_ref().split(|byte| *byte == b'@').collect();
    pieces.join(b"Content-Disposition: form-data;".as_slice())
}

/// One part with this Content-Disposition behind `form-data`, and a second one that must not be
/// lost.
fn with_parameters(parameters: &str) -> Vec<u8> {
    let headers = format!("Content-Disposition: form-data{parameters}");
    form(&[
        (headers, "1".to_owned()),
        (disposition("z"), "last".to_owned()),
    ])
}

fn clients() -> Vec<Case> {
    let chromium = "------WebKitFormBoundaryx3nHd9sYgBq7LkPw\r\n\
        Content-Disposition: form-data; name=\"title\"\r\n\r\nÜber\r\n\
        ------WebKitFormBoundaryx3nHd9sYgBq7LkPw\r\n\
        Content-Disposition: form-data; name=\"pic\"; filename=\"a %22b%22.png\"\r\n\
        Content-Type: image/png\r\n\r\n\u{89}PNG\r\n\u{1a}\n\r\n\
        ------WebKitFormBoundaryx3nHd9sYgBq7LkPw--\r\n";
    let firefox = "-----------------------------9051914041544843365972754266\r\n\
        Content-Disposition: form-data; name=\"text\"\r\n\r\ntext default\r\n\
        -----------------------------9051914041544843365972754266\r\n\
        Content-Disposition: form-data; name=\"file1\"; filename=\"\"\r\n\
        Content-Type: application/octet-stream\r\n\r\n\r\n\
        -----------------------------9051914041544843365972754266--\r\n";
    let curl = "--------------------------d74496d66958873e\r\n\
        Content-Disposition: form-data; name=\"person\"\r\n\r\nanonymous\r\n\
        --------------------------d74496d66958873e\r\n\
        Content-Disposition: form-data; name=\"secret\"; filename=\"file \\\"q\\\" \\\\.txt\"\r\n\
        Content-Type: text/plain\r\n\r\ncontents of the file\n\r\n\
        --------------------------d74496d66958873e--\r\n";
    let python = "--c7cbfdd911b4e720f1dd8f479c50bc7f\r\n\
        Content-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\
        --c7cbfdd911b4e720f1dd8f479c50bc7f\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"naïve.txt\"\r\n\r\nx\r\n\
        --c7cbfdd911b4e720f1dd8f479c50bc7f--\r\n";
    let java = "------=_Part_0_1330042189.1700000000000\r\n\
        Content-Type: text/plain; charset=UTF-8\r\n\
        Content-Transfer-Encoding: 8bit\r\n\
        Content-Disposition: form-data; name=\"note\";\r\n\tfilename=\"a.txt\"\r\n\r\nhi\r\n\
        --B--\r\n\
        ------=_Part_0_1330042189.1700000000000--\r\n";
    let dart = "--dart-http-boundary-+x_y:z.A'1\r\n\
        content-disposition: form-data; name=\"id\"\r\n\r\n7\r\n\
        --dart-http-boundary-+x_y:z.A'1\r\n\
        content-type: application/octet-stream\r\n\
        content-disposition: form-data; name=\"blob\"; filename=\"blob\"\r\n\r\n\0\u{1}\r\n\
        --dart-http-boundary-+x_y:z.A'1--\r\n";
    vec![
        same("Chromium", chromium)
            .typed("multipart/form-data; boundary=----WebKitFormBoundaryx3nHd9sYgBq7LkPw"),
        same("Firefox, no file chosen", firefox).typed(
            "multipart/form-data; boundary=---------------------------9051914041544843365972754266",
        ),
        same("curl, escapes in a file name", curl)
            .typed("multipart/form-data; boundary=------------------------d74496d66958873e"),
        same("Python, no media type", python)
            .typed("multipart/form-data; boundary=c7cbfdd911b4e720f1dd8f479c50bc7f"),
        same("Java mail library: quoted boundary, folded header", java)
            .typed("multipart/form-data; boundary=\"----=_Part_0_1330042189.1700000000000\""),
        same("Dart, header names in lower case", dart)
            .typed("multipart/form-data; boundary=dart-http-boundary-+x_y:z.A'1"),
        same("an empty FormData", "--B--\r\n"),
        same("the example of RFC 1867", fields(&[("field1", "Joe Blow")]))
            .typed("multipart/form-data, boundary=B"),
    ]
}

fn names() -> Vec<Case> {
    let deepest = format!("a{}", "[k]".repeat(64));
    let too_deep = format!("a{}", "[k]".repeat(65));
    let mut latin1 = form(&[("@ name=\"n?\"", "v?")]);
    for byte in &mut latin1 {
        if *byte == b'?' {
            *byte = 0xE9;
        }
    }
    let many: Vec<(String, String)> = (0..1_000)
        .map(|number| (disposition(&format!("f{number}")), number.to_string()))
        .collect();
    vec![
        same("one field", fields(&[("a", "1")])),
        same(
            "order of the body",
            fields(&[("b", "1"), ("a", "2"), ("c", "3"), ("10", "x"), ("9", "y")]),
        ),
        same(
            "repeated names",
            fields(&[("a", "1"), ("b", "2"), ("a", "3")]),
        ),
        same("a list", fields(&[("a[]", "1"), ("a[]", "2")])),
        same(
            "keys",
            fields(&[("a[x]", "1"), ("a[y][z]", "2"), ("a[y][w]", "3")]),
        ),
        same(
            "a list of objects",
            fields(&[("a[][k]", "1"), ("a[][k]", "2")]),
        ),
        same(
            "a value and keys",
            fields(&[("a", "1"), ("a[b]", "2"), ("c[d]", "3"), ("c", "4")]),
        ),
        same(
            "numbers as keys",
            fields(&[("a[5]", "1"), ("a[]", "2"), ("a[05]", "3"), ("a[-1]", "4")]),
        ),
        same(
            "keys beyond 64 bits",
            fields(&[("a[9223372036854775807]", "1"), ("a[]", "lost")]),
        ),
        same(
            "dots and spaces",
            fields(&[("a.b c", "1"), (" d", "2"), ("e.f[g.h i]", "3")]),
        ),
        same(
            "odd brackets",
            fields(&[
                ("a[b", "1"),
                ("c]d", "2"),
                ("e[f]g", "3"),
                ("h[[i]]", "4"),
                ("[j]", "5"),
            ]),
        ),
        same(
            "names of other languages' hazards",
            fields(&[
                ("__proto__", "1"),
                ("constructor[prototype]", "2"),
                ("this", "3"),
                ("GLOBALS[x]", "4"),
            ]),
        ),
        same("UTF-8", fields(&[("größe[日本]", "€ 𝄞")])),
        same("bytes that are not UTF-8", latin1),
        same("escapes stay", fields(&[("a%22b%0D%0A+c", "%41+&=")])),
        same("control characters", fields(&[("a\u{1}b\u{7f}", "1")])),
        same("an empty name", fields(&[("", "1"), ("z", "2")])),
        same("a thousand fields", form(&many)),
        same("64 levels", fields(&[(deepest.as_str(), "1")])),
        refused(
            "65 levels",
            fields(&[(too_deep.as_str(), "1")]),
            ErrorKind::TooManyLevels(64),
            "PHP drops the whole variable `a`",
        ),
    ]
}

fn contents() -> Vec<Case> {
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut cases = vec![
        same("an empty value", fields(&[("a", ""), ("b", "x")])),
        same(
            "line ends in a value",
            fields(&[
                ("a", "1\r\n2\n3\r4"),
                ("b", "\r\n"),
                ("c", "\n"),
                ("d", "\n\r"),
            ]),
        ),
        same(
            "a value that ends in CR",
            fields(&[("a", "x\r"), ("b", "\r"), ("c", "\r\r")]),
        ),
        same(
            "dashes",
            fields(&[
                ("a", "--"),
                ("b", "\r\n--"),
                ("c", "-\r\n-"),
                ("d", "--A--"),
            ]),
        ),
        same(
            "the boundary within a line",
            fields(&[("a", "x--B"), ("b", "x--B--\r\n"), ("c", "\r\n --B")]),
        ),
        same(
            "almost the boundary",
            fields(&[
                ("a", "\r\n--C"),
                ("b", "\r\n-B"),
                ("c", "\r--B"),
                ("d", "\r\n--b"),
            ]),
        ),
        same(
            "every byte",
            form(&[(b"@ name=\"a\"".as_slice(), every_byte.as_slice())]),
        ),
        same(
            "a value with headers",
            fields(&[("a", "Content-Disposition: form-data; name=\"x\"\r\n\r\n1")]),
        ),
        same(
            "a charset on a field",
            form(&[(
                "@ name=\"a\"\r\nContent-Type: text/plain; charset=ISO-8859-1",
                "é",
            )]),
        ),
        same("_charset_", fields(&[("_charset_", "UTF-8")])),
    ];
    // PHP reads 5,120 bytes at a time: an end of line and a boundary cut there must not be misread,
    // by either.
    for length in [
        5_000, 5_111, 5_112, 5_113, 5_114, 5_115, 5_116, 5_117, 5_118, 5_119, 5_120, 5_121, 10_237,
    ] {
        let text = format!("{}\r\n--A\r", "x".repeat(length));
        cases.push(same(
            &format!("{length} bytes and an almost boundary"),
            form(&[
                (disposition("a"), text.as_str()),
                (file("f", "f.txt"), text.as_str()),
            ]),
        ));
    }
    cases
}

fn files() -> Vec<Case> {
    let big = vec![b'\n'; 200_000];
    let many: Vec<_> = (0..100)
        .map(|number| (file("f[]", &format!("{number}.txt")), number.to_string()))
        .collect();
    let mut too_many = many.clone();
    too_many.push((file("g", "g.txt"), "1".to_owned()));
    vec![
        same("a file", form(&[(file("f", "a.txt"), "hello\0\r\n")])),
        same("an empty file", form(&[(file("f", "a.txt"), "")])),
        same("an input left empty", form(&[(file("f", ""), "")])),
        same(
            "an input left empty, with content",
            form(&[(file("f", ""), "x"), (disposition("z"), "2")]),
        ),
        same(
            "a list of files",
            form(&[
                (file("f[]", "a"), "1"),
                (file("f[]", ""), ""),
                (file("f[]", "b"), "2"),
            ]),
        ),
        same(
            "files with keys",
            form(&[
                (file("f[a][b]", "a"), "1"),
                (file("f[a][c]", "b"), "2"),
                (file("f.g[x]", "c"), "3"),
            ]),
        ),
        same(
            "two files of one name",
            form(&[(file("f", "a"), "1"), (file("f", "b"), "2")]),
        ),
        same(
            "a file and then a field of its name",
            form(&[(file("f", "a"), "1"), (disposition("f"), "2")]),
        ),
        same(
            "a field and then a file of its name",
            form(&[(disposition("f"), "2"), (file("f", "a"), "1")]),
        ),
        same(
            "paths",
            form(&[
                (file("a", "/etc/passwd"), "1"),
                (file("b", "C:\\dir\\x.txt"), "2"),
                (file("c", "a/b\\c"), "3"),
                (file("d", "a\\b/c"), "4"),
                (file("e", "dir/"), "5"),
                (file("g", "../.."), "6"),
            ]),
        ),
        same(
            "media types",
            form(&[
                (
                    "@ name=\"a\"; filename=\"a\"\r\nContent-Type:text/html; charset=utf-8",
                    "1",
                ),
                ("@ name=\"b\"; filename=\"b\"\r\nContent-Type:", "2"),
                (
                    "@ name=\"c\"; filename=\"c\"\r\nContent-Type: no type at all ; x",
                    "3",
                ),
                ("@ name=\"d\"; filename=\"d\"\r\nContent-Type: a/b ", "4"),
            ]),
        ),
        same(
            "200,000 line feeds",
            form(&[(file("f", "a").as_bytes(), big.as_slice())]),
        ),
        same("a hundred files", form(&many)),
        refused(
            "a hundred and one",
            form(&too_many),
            ErrorKind::TooManyFiles(100),
            "PHP drops files beyond its limit",
        ),
        same(
            "MAX_FILE_SIZE",
            form(&[
                (disposition("MAX_FILE_SIZE"), "3"),
                (file("a", "a"), "123"),
                (file("b", "b"), "1234"),
            ]),
        ),
        same(
            "a file without a name",
            form(&[("@ filename=\"a\"", "1"), ("@ filename=\"b\"", "2")]),
        ),
        same(
            "a file with an empty name",
            form(&[(file("", "a"), "1"), (disposition("z"), "2")]),
        ),
        same(
            "a file whose name has odd brackets",
            form(&[(file("f[", "a"), "1")]),
        ),
        same(
            "a transfer encoding",
            form(&[(
                "@ name=\"f\"; filename=\"a\"\r\nContent-Transfer-Encoding: base64",
                "aGk=",
            )]),
        ),
        differs(
            "a file behind one whose name has odd brackets",
            form(&[(file("f]", "a"), "1"), (file("g", "b"), "2")]),
            "f]<a|text/plain|1> g<b|text/plain|2>",
            "PHP forgets to accept files again; losing the second is no rule but a slip",
        ),
    ]
}

fn boundaries() -> Vec<Case> {
    let with = |boundary: &str| {
        raw(format!(
            "--{boundary}\r\n@ name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n"
        ))
    };
    let typed = |boundary: &str| format!("multipart/form-data; boundary={boundary}");
    let at_70 = "b".repeat(70);
    let at_1024 = "b".repeat(1_024);
    let boundary = |name: &str, content_type: &str, error, reason| {
        case(
            name,
            fields(&[("a", "1")]),
            Expect::Refused(Refused::Boundary(error), reason),
        )
        .typed(content_type)
    };
    vec![
        same("70 characters", with(&at_70)).typed(&typed(&at_70)),
        same("1,024 characters", with(&at_1024)).typed(&typed(&at_1024)),
        same("all that RFC 2046 allows", with("'()+_,-./:=? x"))
            .typed(&typed("\"'()+_,-./:=? x\"")),
        same("dashes only", with("----")).typed(&typed("----")),
        same("not ASCII", with("é")).typed(&typed("é")),
        same("upper-case media type and parameter", with("B"))
            .typed("MULTIPART/FORM-DATA; BOUNDARY=B"),
        same("a parameter behind it", with("B"))
            .typed("multipart/form-data; boundary=B; charset=utf-8"),
        same("text behind the quote", with("B")).typed("multipart/form-data; boundary=\"B\"x"),
        differs(
            "a space behind it",
            with("B"),
            "a=1",
            "PHP takes the space for a part of the boundary and finds nothing",
        )
        .typed("multipart/form-data; boundary=B ; charset=utf-8"),
        differs(
            "the word in another parameter",
            with("B"),
            "a=1",
            "PHP looks for the word `boundary`, wherever it stands",
        )
        .typed("multipart/form-data; xboundary=A; boundary=B"),
        boundary(
            "no boundary",
            "multipart/form-data",
            BoundaryError::Missing,
            "PHP sees an empty form",
        ),
        boundary(
            "an empty boundary",
            "multipart/form-data; boundary=",
            BoundaryError::Empty,
            "PHP sees an empty form",
        ),
        boundary(
            "an open quote",
            "multipart/form-data; boundary=\"B",
            BoundaryError::Unterminated,
            "PHP sees an empty form",
        ),
        boundary(
            "two boundaries",
            "multipart/form-data; boundary=B; boundary=C",
            BoundaryError::Twice,
            "PHP takes the first, others the last",
        ),
        refused(
            "a boundary with text behind it in the preamble",
            [b"hello\r\n--BB\r\n".to_vec(), fields(&[("a", "1")])].concat(),
            ErrorKind::BoundaryLine,
            "PHP skips the line; RFC 2046 calls it a boundary",
        ),
        same(
            "a preamble",
            [
                b"This is a multi-part\r\nmessage.\r\n\r\n-\r\n--\r\n".to_vec(),
                fields(&[("a", "1")]),
            ]
            .concat(),
        ),
        same(
            "a line end before the first boundary",
            [b"\r\n".to_vec(), fields(&[("a", "1")])].concat(),
        ),
        same(
            "an epilogue",
            [fields(&[("a", "1")]), b"ignored\r\n--C\r\n".to_vec()].concat(),
        ),
        same(
            "no line end at the end",
            &fields(&[("a", "1")])[..fields(&[("a", "1")]).len() - 2],
        ),
        same(
            "text behind the closing boundary",
            [
                &fields(&[("a", "1")])[..fields(&[("a", "1")]).len() - 2],
                b"-xyz",
            ]
            .concat(),
        ),
        refused(
            "a second form in the epilogue",
            [fields(&[("a", "1")]), fields(&[("b", "2")])].concat(),
            ErrorKind::AfterEnd,
            "for PHP the closing boundary closes nothing, for others the form ends there",
        ),
        differs(
            "spaces behind a boundary",
            raw("--B \t\r\n@ name=\"a\"\r\n\r\n1\r\n--B--\r\n"),
            "a=1",
            "RFC 2046 expects them; PHP skips the part",
        ),
        refused(
            "an empty part without its line end",
            raw("--B\r\n@ name=\"a\"\r\n\r\n--B\r\n@ name=\"b\"\r\n\r\n2\r\n--B--\r\n"),
            ErrorKind::BoundaryAtStart,
            "RFC 2046 allows it; PHP makes the next part the value",
        ),
        refused(
            "the boundary as a value",
            fields(&[("a", "--B--"), ("b", "1")]),
            ErrorKind::BoundaryAtStart,
            "a value for PHP, the end for others",
        ),
        refused(
            "a longer line that starts with the boundary",
            fields(&[("a", "1\r\n--Bx\r\n2"), ("b", "3")]),
            ErrorKind::BoundaryLine,
            "PHP ends the value there and loses the rest of it",
        ),
        refused(
            "one dash behind a boundary",
            raw("--B\r\n@ name=\"a\"\r\n\r\n1\r\n--B-\r\n"),
            ErrorKind::BoundaryLine,
            "neither a boundary nor the end",
        ),
        refused(
            "CR without LF behind a boundary",
            raw("--B\r@ name=\"a\"\r\n\r\n1\r\n--B--\r\n"),
            ErrorKind::BoundaryLine,
            "PHP skips the part",
        ),
    ]
}

fn line_ends() -> Vec<Case> {
    let crlf = form(&[(disposition("a"), "1"), (file("f", "x.txt"), "2")]);
    let lf: Vec<u8> = crlf.iter().copied().filter(|byte| *byte != b'\r').collect();
    vec![
        same("LF everywhere", lf),
        same(
            "LF behind a boundary",
            raw("--B\n@ name=\"a\"\r\n\r\n1\r\n--B--\r\n"),
        ),
        same(
            "LF before a boundary",
            raw("--B\r\n@ name=\"a\"\r\n\r\n1\n--B\r\n@ name=\"b\"\r\n\r\n2\n--B--\r\n"),
        ),
        same(
            "LF in the headers",
            raw("--B\r\n@ name=\"a\"\nX: y\n\n1\r\n--B--\r\n"),
        ),
        same(
            "CR as content before LF and a boundary",
            raw("--B\r\n@ name=\"a\"\r\n\r\n1\r\r\n--B--\r\n"),
        ),
        refused(
            "CR alone as line end",
            raw("--B\r\n@ name=\"a\"\rX: y\r\n\r\n1\r\n--B--\r\n"),
            ErrorKind::ControlByte,
            "one header for PHP, two for others",
        ),
        refused(
            "CR CR LF",
            raw("--B\r\n@ name=\"a\"\r\r\n\r\n1\r\n--B--\r\n"),
            ErrorKind::ControlByte,
            "no line end that all read alike",
        ),
    ]
}

fn heads() -> Vec<Case> {
    let head = |headers: &str| form(&[(headers, "1"), (&disposition("z"), "last")]);
    let long = |length: usize| format!("{}\r\nX-Long: {}", disposition("a"), "x".repeat(length));
    let many = |count: usize| format!("{}{}", disposition("a"), "\r\nX: y".repeat(count));
    vec![
        same(
            "other headers",
            head("X-A: b\r\n@ name=\"a\"\r\nContent-Length: 1\r\nX-B:"),
        ),
        same(
            "case of names",
            head(
                "CONTENT-disposition: FORM-DATA; NAME=\"a\"; FileName=\"b\"\r\nCONTENT-TYPE: text/plain",
            ),
        ),
        same(
            "no space behind the colon",
            head("Content-Disposition:form-data;name=\"a\";filename=\"b\""),
        ),
        same(
            "much space behind it",
            head("Content-Disposition: \t  form-data; \t name=\"a\"  ;   filename=\"b\"  "),
        ),
        same(
            "a folded header",
            head("@\r\n name=\"a\"\r\n\t; filename=\"b\""),
        ),
        same("a fold within quotes", head("@ name=\"a\r\n b\"")),
        same("a line of spaces", head("@ name=\"a\"\r\n \r\nX: y")),
        same("5,000 bytes of headers", head(&long(5_000))),
        same("16 KB of headers", head(&long(16_000))),
        same("32 headers", head(&many(31))),
        same(
            "a name of 6,000 bytes",
            head(&disposition(&"n".repeat(6_000))),
        ),
        refused(
            "more than 16 KB of headers",
            head(&long(16_384)),
            ErrorKind::HeadTooLong,
            "memory: a head is held whole",
        ),
        refused(
            "33 headers",
            head(&many(32)),
            ErrorKind::TooManyHeaders,
            "no client sends them",
        ),
        refused(
            "NUL in a name",
            head("@ name=\"a\0b\""),
            ErrorKind::ControlByte,
            "PHP cuts the header there",
        ),
        refused(
            "NUL in a file name",
            head("@ name=\"a\"; filename=\"b.php\0.jpg\""),
            ErrorKind::ControlByte,
            "PHP cuts the name there",
        ),
        refused(
            "NUL in another header",
            head("X: \0\r\n@ name=\"a\""),
            ErrorKind::ControlByte,
            "as elsewhere",
        ),
        refused(
            "no Content-Disposition",
            head("Content-Type: text/plain"),
            ErrorKind::NoDisposition,
            "PHP skips the part",
        ),
        refused(
            "no headers at all",
            b"--B\r\n\r\n1\r\n--B--\r\n",
            ErrorKind::NoDisposition,
            "PHP skips the part",
        ),
        refused(
            "two Content-Dispositions",
            head("@ name=\"a\"\r\n@ name=\"b\""),
            ErrorKind::HeaderTwice("Content-Disposition"),
            "PHP takes the first, others the last",
        ),
        refused(
            "two Content-Types",
            head("@ name=\"a\"; filename=\"b\"\r\nContent-Type: a/b\r\nContent-Type: c/d"),
            ErrorKind::HeaderTwice("Content-Type"),
            "PHP takes the first, others the last",
        ),
        refused(
            "space before the colon",
            head("Content-Disposition : form-data; name=\"a\""),
            ErrorKind::HeaderLine,
            "PHP skips the part",
        ),
        refused(
            "a line without colon",
            head("@ name=\"a\"\r\nnonsense"),
            ErrorKind::HeaderLine,
            "PHP joins it with the header before",
        ),
        refused(
            "a first line that is folded",
            head(" @ name=\"a\""),
            ErrorKind::HeaderLine,
            "PHP skips the part",
        ),
        refused(
            "a header without name",
            head(": x\r\n@ name=\"a\""),
            ErrorKind::HeaderLine,
            "not of the form `Name: value`",
        ),
        refused(
            "a header name that is not ASCII",
            head("Ä: x\r\n@ name=\"a\""),
            ErrorKind::HeaderLine,
            "not of the form `Name: value`",
        ),
        refused(
            "a boundary among the headers",
            raw("--B\r\n@ name=\"a\"\r\n--B\r\n@ name=\"b\"\r\n\r\n2\r\n--B--\r\n"),
            ErrorKind::HeaderLine,
            "PHP joins it with the header before",
        ),
    ]
}

fn parameters() -> Vec<Case> {
    let parameters = |name: &str, text: &str| same(name, with_parameters(text));
    let refused =
        |name: &str, text: &str, kind, reason| refused(name, with_parameters(text), kind, reason);
    vec![
        parameters("file name first", "; filename=\"b\"; name=\"a\""),
        parameters("not quoted", "; name=a; filename=b.txt"),
        parameters("single quotes", "; name='a b'; filename='c;d=\"e\".txt'"),
        parameters("escapes in single quotes", "; name='a\\'b\\\\c\\\"d'"),
        parameters(
            "escapes",
            "; name=\"a\\\"b\\\\c\\d\"; filename=\"\\\\\\\"\"",
        ),
        parameters("escapes without quotes", "; name=a\\\\b\\c"),
        parameters(
            "semicolons and equals in quotes",
            "; name=\"a;b=c\"; filename=\"d;name=e\"",
        ),
        parameters("spaces behind equals", "; name= \"a\"; filename=\t\"b\""),
        parameters("spare semicolons", ";; name=\"a\"; ;"),
        parameters("a parameter without value", "; flag; name=\"a\""),
        parameters("unknown parameters", "; size=1; name=\"a\"; x=\"; name=b\""),
        parameters(
            "the extended file name beside a plain one",
            "; name=\"a\"; filename=\"b\"; filename*=UTF-8''c",
        ),
        parameters(
            "the extended file name alone is no file name",
            "; name=\"a\"; filename*=UTF-8''c.txt",
        ),
        parameters("the extended name", "; name*=UTF-8''b; name=\"a\""),
        parameters("an empty value", "; name=a; filename="),
        same(
            "another disposition",
            form(&[(
                "Content-Disposition: attachment; name=\"a\"; filename=\"b\"",
                "1",
            )]),
        ),
        same(
            "no disposition type",
            form(&[("Content-Disposition: name=\"a\"", "1")]),
        ),
        differs(
            "an escaped backslash at the end of a value",
            with_parameters("; name=\"a\\\\\"; filename=\"b\""),
            "a\\<b||1> z=last",
            "PHP takes the backslash for an escape once more, and loses the file name",
        ),
        refused(
            "no name",
            "",
            ErrorKind::NoName,
            "PHP drops the part and all that follow",
        ),
        refused(
            "two names",
            "; name=\"a\"; name=\"b\"",
            ErrorKind::ParameterTwice("name"),
            "PHP takes the last, others the first",
        ),
        refused(
            "two file names",
            "; name=\"a\"; filename=\"b.jpg\"; FileName=\"b.php\"",
            ErrorKind::ParameterTwice("filename"),
            "PHP takes the last, others the first",
        ),
        refused(
            "an open quote",
            "; name=\"a",
            ErrorKind::OpenQuote,
            "PHP takes the rest of the line",
        ),
        refused(
            "an open quote behind a path",
            "; name=\"a\"; filename=\"C:\\dir\\\"",
            ErrorKind::OpenQuote,
            "PHP takes the quote into the name",
        ),
        refused(
            "text behind a quote",
            "; name=\"a\"b",
            ErrorKind::Parameter,
            "PHP drops it",
        ),
        refused(
            "a quote in quotes",
            "; name=\"a\"; filename=\"b\"c\".txt\"",
            ErrorKind::Parameter,
            "PHP cuts the name",
        ),
        refused(
            "a space in a value without quotes",
            "; name=a; filename=b c.txt",
            ErrorKind::Parameter,
            "PHP cuts the name",
        ),
        refused(
            "a quote in a value without quotes",
            "; name=a\"b",
            ErrorKind::Parameter,
            "PHP takes the rest of the line",
        ),
        refused(
            "an apostrophe in a value without quotes",
            "; name=it's; filename=b",
            ErrorKind::Parameter,
            "for PHP it opens a quote, for others it is a letter",
        ),
        refused(
            "a quote outside of a value",
            "\"; name=\"a\"; x=\"; name=b\"",
            ErrorKind::Parameter,
            "for PHP it opens a quote, for others nothing",
        ),
        refused(
            "two equals",
            "; name==\"a\"",
            ErrorKind::Parameter,
            "PHP skips the second",
        ),
        refused(
            "space before equals",
            "; name =\"a\"",
            ErrorKind::Parameter,
            "PHP does not see the name",
        ),
        refused(
            "no semicolon behind the type",
            " name=\"a\"",
            ErrorKind::Parameter,
            "PHP does not see the name",
        ),
        refused(
            "no semicolon between parameters",
            "; name=\"a\" filename=\"b\"",
            ErrorKind::Parameter,
            "PHP does not see the file name",
        ),
    ]
}

fn broken() -> Vec<Case> {
    let whole = form(&[(disposition("a"), "1"), (file("f", "x.txt"), "2")]);
    let up_to = |text: &[u8]| whole[..memchr::memmem::find(&whole, text).unwrap()].to_vec();
    vec![
        same("nothing", ""),
        refused(
            "no boundary in the body",
            "a=1&b=2",
            ErrorKind::NoBoundary,
            "PHP sees an empty form",
        ),
        refused(
            "a boundary that does not start a line",
            " --B\r\n",
            ErrorKind::NoBoundary,
            "PHP sees an empty form",
        ),
        case(
            "another boundary",
            &whole,
            Expect::Refused(
                Refused::Body(ErrorKind::NoBoundary),
                "PHP sees an empty form",
            ),
        )
        .typed("multipart/form-data; boundary=C"),
        refused(
            "cut in a boundary",
            &whole[..3],
            ErrorKind::Truncated,
            "PHP sees an empty form",
        ),
        refused(
            "cut in the headers",
            up_to(b"form-data"),
            ErrorKind::Truncated,
            "PHP sees an empty form",
        ),
        refused(
            "cut in a field",
            up_to(b"\r\n--B\r\nContent-Disposition: form-data; name=\"f\""),
            ErrorKind::Truncated,
            "PHP takes what there is",
        ),
        refused(
            "cut in a file",
            up_to(b"\r\n--B--"),
            ErrorKind::Truncated,
            "PHP reports UPLOAD_ERR_PARTIAL, which few applications look at",
        ),
        refused(
            "cut in the closing boundary",
            [up_to(b"--B--"), b"--B-".to_vec()].concat(),
            ErrorKind::Truncated,
            "what would follow is not known",
        ),
        refused(
            "no closing boundary",
            [up_to(b"--B--"), b"--B\r\n".to_vec()].concat(),
            ErrorKind::Truncated,
            "PHP takes it for the end",
        ),
    ]
}
