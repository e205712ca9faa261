//! Heads of later versions.

use crate::{Limits, Parts, Refusal, RequestHead, Version};

fn limits() -> Limits {
    Limits {
        head: 200,
        fields: 5,
        ..Limits::default()
    }
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn take(
    method: &str,
    target: &str,
    authority: Option<&str>,
    fields: Pairs<'_>,
) -> Result<RequestHead, Refusal> {
    let parts = Parts {
        version: Version::Http2,
        method,
        authority: authority.map(str::as_bytes),
        target: target.as_bytes(),
        fields: || {
            fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        },
        ends: true,
    };
    RequestHead::from_parts(&parts, &limits())
}

fn shown(head: &RequestHead) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = head.fields().iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| format!("{}={}", text(name), text(value)))
        .collect();
    fields.join("|")
}

#[test]
fn parts_become_the_head_that_http_1_1_has() {
    let head = take(
        "POST",
        "/a%20b?x=1#no",
        Some("example.org:8443"),
        &[("accept", "*/*"), ("x-a", "")],
    )
    .unwrap();
    assert_eq!(
        (head.method(), head.path(), head.query()),
        ("POST", &b"/a%20b"[..], Some(&b"x=1"[..]))
    );
    assert_eq!(
        (head.authority(), head.version()),
        ("example.org:8443", Version::Http2)
    );
    assert_eq!(shown(&head), "host=example.org:8443|accept=*/*|x-a=");
    assert!(head.keep_alive() && !head.expects_continue());
    assert_eq!(head.body_len(), Some(0));
}

#[test]
fn cookies_are_joined_where_the_first_one_stood() {
    let fields = [
        ("cookie", "a=1"),
        ("accept", "*/*"),
        ("cookie", "b=2"),
        ("cookie", "c=3"),
    ];
    let head = take("GET", "/", Some("h"), &fields).unwrap();
    assert_eq!(shown(&head), "host=h|cookie=a=1; b=2; c=3|accept=*/*");
    let head = take("GET", "/", Some("h"), &[("cookie", "a=1")]).unwrap();
    assert_eq!(shown(&head), "host=h|cookie=a=1");
}

#[test]
fn host_and_authority_are_one() {
    let same = take(
        "GET",
        "/",
        Some("Example.org"),
        &[("x", "1"), ("host", "example.org")],
    )
    .unwrap();
    assert_eq!(shown(&same), "host=Example.org|x=1");
    let only = take("GET", "/", None, &[("host", "h:1")]).unwrap();
    assert_eq!(
        (only.authority(), shown(&only)),
        ("h:1", "host=h:1".to_owned())
    );
    let wrong: [(Option<&str>, Pairs<'_>); 10] = [
        (None, &[]),
        (Some("a"), &[("host", "b")]),
        (Some("a"), &[("host", "a"), ("host", "a")]),
        (Some("user@a"), &[]),
        (Some("a b"), &[]),
        (Some("a,b"), &[]),
        (Some("a.."), &[]),
        (Some(".a"), &[]),
        (Some("[1::2::3]"), &[]),
        (None, &[("host", "a..b")]),
    ];
    for (authority, fields) in wrong {
        let refused = take("GET", "/", authority, fields).unwrap_err();
        assert_eq!(refused.status(), 400, "{authority:?} {fields:?}");
    }
}

#[test]
fn what_is_judged_in_http_1_1_is_judged_here() {
    let cases: [(&str, &str, Pairs<'_>, u16); 16] = [
        ("CONNECT", "/", &[], 501),
        ("CONNECT", "", &[], 501),
        ("CONNECT", "example.org:443", &[], 501),
        ("GET", "", &[], 400),
        ("GET", "*", &[], 400),
        ("GET", "no-slash", &[], 400),
        ("GET", "http://other/", &[], 400),
        ("GET", "/", &[("expect", "a miracle")], 417),
        (
            "GET",
            "/",
            &[("content-length", "1"), ("content-length", "1")],
            400,
        ),
        ("GET", "/", &[("content-length", "+1")], 400),
        (
            "POST",
            "/",
            &[("content-type", "a/b"), ("content-type", "c/d")],
            400,
        ),
        (
            "GET",
            "/",
            &[("authorization", "a"), ("authorization", "a")],
            400,
        ),
        ("GET", "/", &[("x", " padded")], 400),
        ("GET", "/", &[("x", "a\nb")], 400),
        ("GET", "/", &[("cookie", "a"), ("cookie", "b ")], 400),
        (
            "GET",
            "/",
            &[
                ("a", ""),
                ("b", ""),
                ("c", ""),
                ("d", ""),
                ("e", ""),
                ("f", ""),
            ],
            431,
        ),
    ];
    for (method, target, fields, status) in cases {
        let refused = take(method, target, Some("h"), fields).unwrap_err();
        assert_eq!(
            refused.status(),
            status,
            "{method} {target} {fields:?}: {refused}"
        );
    }
    let long = "x".repeat(200);
    let refused = take("GET", "/", Some("h"), &[("a", &long)]).unwrap_err();
    assert_eq!(refused, Refusal::HeadTooLong(200));
    let dropped = take("OPTIONS", "*", Some("h"), &[("x_a", "1"), ("x-a", "2")]).unwrap();
    assert_eq!(
        (dropped.path(), shown(&dropped)),
        (&b"*"[..], "host=h|x-a=2".to_owned())
    );
}

#[test]
fn a_body_has_the_length_that_is_announced_or_none_that_is_known() {
    let with = |fields: Pairs<'_>, ends| {
        let parts = Parts {
            version: Version::Http2,
            method: "POST",
            authority: Some(&b"h"[..]),
            target: b"/",
            fields: || {
                fields
                    .iter()
                    .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            },
            ends,
        };
        let head = RequestHead::from_parts(&parts, &limits()).unwrap();
        (head.body_len(), head.expects_continue())
    };
    assert_eq!(with(&[("content-length", "7")], false), (Some(7), false));
    assert_eq!(with(&[("expect", "100-continue")], false), (None, true));
    assert_eq!(with(&[("content-length", "0")], true), (Some(0), false));
}
