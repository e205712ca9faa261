//! PHP as the oracle: `php-cgi` gets the same bodies, and what it puts into `$_POST` and `$_FILES`
//! must be what our form section becomes by PHP's own rules for names.

use std::io::Write as _;
use std::process::{Command, Stdio};

use memchr::memmem;
use pronghorn_form::{Entry, Form, Limits, native, urlencoded};
use serde_json::Value;

use crate::cases::{self, Case, Expect};
use crate::support::{Refused, hex, parse, summary};
use crate::tree::{Like, ROWS};

const CONTENT_TYPE: &str = "multipart/form-data; boundary=B";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oracle.php");

#[test]
fn php_sees_the_parts_that_we_see() {
    if !php_is_there() {
        return;
    }
    let cases = cases::all();
    let ours: Vec<_> = cases
        .iter()
        .map(|case| parse(case.content_type.as_bytes(), &case.body, Limits::default()))
        .collect();
    let registered = registered(ours.iter().map(|form| form.clone().unwrap_or_default()));

    let mut wrong = Vec::new();
    for ((case, ours), registered) in cases.iter().zip(&ours).zip(&registered) {
        let php: Value = json(&php_cgi(&case.content_type, &case.body));
        if let Err(complaint) = compare(case, ours, registered, &php) {
            wrong.push(format!("{}: {complaint}", case.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    for case in &cases {
        if let Expect::Differs(_, reason) | Expect::Refused(_, reason) = case.expect {
            println!("on purpose not as PHP: {}: {reason}", case.name);
        }
    }
    println!("{} bodies compared with PHP", cases.len());
}

/// Bodies as clients and attackers send them.
const URLENCODED: &[&str] = &[
    "a=1&b=2",
    "a=1+2%203&%61=%3d",
    "a==b&=&==&&c&d=&",
    "%zz=%&a=%4&b=%4g%&c%",
    "a;b=c;d",
    "a%00b=c%00d",
    "a[]=1&a[][k]=2&a.b+c=3&a%5B%5d=4&[x]=5&b[=6&c]=7&d[e]f=8",
    "%ff=%fe&%c3%A9=%C3%a9",
    "a=1\r\n&b\n=2",
    "+a=1&++b=2&c+=3",
];

#[test]
fn php_decodes_urlencoded_pairs_as_we_do() {
    if !php_is_there() {
        return;
    }
    let forms = URLENCODED.iter().map(|body| Form {
        entries: urlencoded::pairs(body.as_bytes())
            .map(|pair| Entry::Field {
                name: urlencoded::decode(pair.name).into_owned(),
                value: urlencoded::decode(pair.value).into_owned(),
            })
            .collect(),
    });
    for (body, ours) in URLENCODED.iter().zip(registered(forms)) {
        let php = json(&php_cgi(
            "application/x-www-form-urlencoded",
            body.as_bytes(),
        ));
        assert_eq!(ours, php, "{body}");
    }
}

#[test]
fn a_tree_is_what_php_makes_of_a_form_where_the_table_says_so() {
    if !php_is_there() {
        return;
    }
    for (body, tree, like) in ROWS {
        let php = json(&php_cgi(
            "application/x-www-form-urlencoded",
            body.as_bytes(),
        ));
        let mut lines = Vec::new();
        flat(&serde_json::from_str(tree).unwrap(), "", &mut lines);
        assert_eq!(
            php["post"] == Value::from(lines),
            *like != Like::RoadRunner,
            "{body}: {php}"
        );
    }
}

/// As the script prints it.
fn flat(tree: &Value, keys: &str, lines: &mut Vec<String>) {
    let hex = |text: &str| hex(text.as_bytes(), "");
    let mut child = |key: &str, value: &Value| match value {
        Value::String(text) => lines.push(format!("{keys}[{}]={}", hex(key), hex(text))),
        value => flat(value, &format!("{keys}[{}]", hex(key)), lines),
    };
    match tree {
        Value::Array(elements) => {
            elements
                .iter()
                .enumerate()
                .for_each(|(index, value)| child(&index.to_string(), value));
        }
        Value::Object(children) => children.iter().for_each(|(key, value)| child(key, value)),
        other => panic!("{other}"),
    }
}

/// What an attacker would try, and what breaks where.
const TOKENS: &[&str] = &[
    "\r\n",
    "\r",
    "\n",
    "--B",
    "--B--",
    "--",
    "B",
    ";",
    "=",
    "\"",
    "'",
    "\\",
    " ",
    "\t",
    ":",
    "a",
    "[",
    "]",
    "-",
    ",",
    "*",
    "/",
    "é",
    "name=",
    "name=\"x\"",
    "; filename=\"y\"",
    "Content-Disposition: form-data; ",
    "Content-Type: a/b",
    "\r\n\r\n",
    "\r\n--B",
];

/// The differences that the cases show; a body with one of these is left out.
const KNOWN: &[&str] = &["--B ", "--B\t", "f]", "f[", "\\\\\""];

/// The same bodies in every run.
#[test]
fn damaged_bodies_are_refused_or_seen_as_php_sees_them() {
    const WANTED: usize = 150;
    if !php_is_there() {
        return;
    }
    let is_known = |body: &[u8]| {
        KNOWN
            .iter()
            .any(|known| memmem::find(body, known.as_bytes()).is_some())
    };
    let cases = cases::all().into_iter();
    let bodies: Vec<Vec<u8>> = cases
        .filter(|case| case.content_type == CONTENT_TYPE && case.body.len() < 1_000)
        .map(|case| case.body)
        .collect();

    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = |end: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % end as u64).unwrap()
    };
    let (mut accepted, mut forms) = (Vec::new(), Vec::new());
    while accepted.len() < WANTED {
        let mut body = bodies[below(bodies.len())].clone();
        for _ in 0..=below(2) {
            let start = below(body.len() + 1);
            let end = if below(2) == 0 {
                start
            } else {
                body.len().min(start + below(12))
            };
            let token = TOKENS[below(TOKENS.len())];
            body.splice(start..end, token.bytes());
        }
        let form = parse(CONTENT_TYPE.as_bytes(), &body, Limits::default());
        if let (Ok(form), false) = (form, is_known(&body)) {
            accepted.push(body);
            forms.push(form);
        }
    }
    for (body, ours) in accepted.iter().zip(registered(forms.into_iter())) {
        let php = json(&php_cgi(CONTENT_TYPE, body));
        assert_eq!(ours, php, "{}", String::from_utf8_lossy(body));
    }
}

fn compare(
    case: &Case,
    ours: &Result<Form, Refused>,
    registered: &Value,
    php: &Value,
) -> Result<(), String> {
    let is_same = registered == php;
    match (&case.expect, ours) {
        (Expect::Same, Ok(_)) if is_same => Ok(()),
        (Expect::Differs(expected, _), Ok(form)) if !is_same && summary(form) == *expected => {
            Ok(())
        }
        (Expect::Refused(expected, _), Err(refused)) if expected == refused => Ok(()),
        (expect, ours) => Err(format!(
            "expected {expect:?}\n  ours {ours:?}\n  as   {registered}\n  PHP  {php}"
        )),
    }
}

/// What PHP makes of our forms, all in one process.
fn registered(forms: impl Iterator<Item = Form>) -> Vec<Value> {
    let mut body = Vec::new();
    for form in forms {
        let mut section = Vec::new();
        native::write(&form, &mut section).unwrap();
        body.extend_from_slice(&u32::try_from(section.len()).unwrap().to_le_bytes());
        body.extend_from_slice(&section);
    }
    match json(&php_cgi("application/octet-stream", &body)) {
        Value::Array(answers) => answers,
        other => panic!("{other}"),
    }
}

/// False, loudly, when there is no `php-cgi` and this is not CI.
fn php_is_there() -> bool {
    let found = Command::new("php-cgi")
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "php-cgi is missing, and CI must compare with PHP: apt install php-cgi"
    );
    // Not by `eprintln!`, which a passing test keeps to itself.
    let message =
        "SKIPPED: php-cgi is missing, nothing was compared with PHP: apt install php-cgi\n";
    std::io::stderr().write_all(message.as_bytes()).unwrap();
    false
}

fn php_cgi(content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut php = Command::new("php-cgi")
        .args(["-n", "-d", "display_errors=0", "-d", "post_max_size=100M"])
        .args(["-d", "max_file_uploads=1000", "-d", "max_input_vars=100000"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("REDIRECT_STATUS", "200")
        .env("REQUEST_METHOD", "POST")
        .env("SCRIPT_FILENAME", SCRIPT)
        .env("CONTENT_TYPE", content_type)
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = php.stdin.take().unwrap();
    let body = body.to_vec();
    let writer = std::thread::spawn(move || {
        // PHP stops reading where it gives up; what it saw until then is the answer.
        _ = stdin.write_all(&body);
    });
    let answer = php.wait_with_output().unwrap().stdout;
    writer.join().unwrap();
    let head = memmem::find(&answer, b"\r\n\r\n").expect("php-cgi answers with headers");
    answer[head + 4..].to_vec()
}

fn json(answer: &[u8]) -> Value {
    serde_json::from_slice(answer)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(answer)))
}
