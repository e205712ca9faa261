//! A response that sends a file: all of it, parts of it, or the word that the client has it already.

use std::ops::Range;

use bytes::Bytes;
use pronghorn_wire::Fields;

use super::conditions::{Outcome, Validators, allows_range, judge};
use super::entry::Content;
use super::range::{self, Asked};
use crate::message::{Body, Part, Response};

/// Answers a GET or HEAD with a file that `fields` describe, as far as conditions and ranges in the request ask for it.
pub(crate) fn reply(
    method: &str,
    request: &Fields,
    mut fields: Fields,
    validators: Validators<'_>,
    content: Content,
    ranges: bool,
) -> Response {
    match judge(request, validators) {
        Outcome::Send => {}
        Outcome::NotModified => {
            // Of the fields that describe what is not there, only those that a cache needs (section 15.4.5).
            for name in ["content-type", "content-encoding", "accept-ranges"] {
                fields.remove(name);
            }
            return with(304, fields, Body::Empty);
        }
        Outcome::Failed => return Response::status_only(412),
    }
    let field = request.get("range").filter(|_| ranges && method == "GET");
    let asked = match field {
        Some(field) if allows_range(request, validators) => range::asked(field, content.len()),
        _ => Asked::Whole,
    };
    match asked {
        Asked::Whole => with(200, fields, content.into()),
        Asked::Unsatisfiable => {
            let mut response = Response::status_only(416);
            let range = format!("bytes */{}", content.len());
            response.fields.push("Content-Range", range);
            response
        }
        Asked::Parts(parts) => match parts.as_slice() {
            [part] => {
                fields.push("Content-Range", content_range(part, content.len()));
                let body = match content.part(part.clone()) {
                    Part::Bytes(bytes) => Body::Whole(bytes),
                    Part::File(file) => Body::File(file),
                };
                with(206, fields, body)
            }
            parts => several(fields, parts, &content),
        },
    }
}

fn with(status: u16, fields: Fields, body: Body) -> Response {
    Response {
        fields,
        ..Response::new(status, body)
    }
}

fn content_range(part: &Range<u64>, len: u64) -> String {
    format!("bytes {}-{}/{len}", part.start, part.end - 1)
}

/// Parts in multipart (section 15.3.7.2).
fn several(mut fields: Fields, parts: &[Range<u64>], content: &Content) -> Response {
    let boundary = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let content_type = fields.get("content-type").unwrap_or_default();
    let content_type = String::from_utf8_lossy(content_type).into_owned();
    let mut body = Vec::with_capacity(2 * parts.len() + 1);
    for part in parts {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {}\r\n\r\n",
            content_range(part, content.len())
        );
        body.push(Part::Bytes(head.into()));
        body.push(content.part(part.clone()));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    body.push(Part::Bytes(Bytes::from(end)));
    fields.set(
        "Content-Type",
        format!("multipart/byteranges; boundary={boundary}"),
    );
    with(206, fields, Body::Parts(body))
}
