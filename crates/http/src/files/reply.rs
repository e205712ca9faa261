//! A response that sends a file: all of it, parts of it, or the word that the client has it
//! already.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use pronghorn_h1::RequestHead;
use pronghorn_serve::{Body, OpenFile, Part, Response};
use pronghorn_wire::Fields;

use super::conditions::{Outcome, Validators, allows_range, date, judge, seconds};
use super::entry::{Content, Tag};
use super::range::{self, Wanted};
use crate::file::{Identity, content_type};

/// Answers a GET or HEAD with a file that `fields` describe, as far as conditions and ranges in the
/// request ask for it.
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
            // Of the fields that describe what is not there, only those that a cache needs (section
            // 15.4.5).
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
        _ => Wanted::Whole,
    };
    match asked {
        Wanted::Whole => with(200, fields, content.into()),
        Wanted::Unsatisfiable => {
            let mut response = Response::status_only(416);
            let range = format!("bytes */{}", content.len());
            response.fields.push("Content-Range", range);
            response
        }
        Wanted::Parts(parts) => match parts.as_slice() {
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

/// What a response for a file that an application has named needs of its request, whose head is
/// gone by then.
#[derive(Debug)]
pub(crate) struct Asked {
    method: &'static str,
    fields: Fields,
}

impl Asked {
    pub(crate) fn by(head: &RequestHead) -> Self {
        let decides = |(name, _): &(&[u8], &[u8])| name.starts_with(b"if-") || *name == b"range";
        Self {
            method: match head.method() {
                "GET" => "GET",
                "HEAD" => "HEAD",
                _ => "",
            },
            fields: head.fields().iter().filter(decides).collect(),
        }
    }

    /// Answers with a file, as the application described it. What it did not say, the file tells.
    pub(crate) fn answer(
        &self,
        status: u16,
        mut fields: Fields,
        path: &Path,
        (file, identity): (OpenFile, Identity),
    ) -> Response {
        fields.remove("content-length");
        if fields.get("content-type").is_none() {
            fields.push("Content-Type", content_type(path));
        }
        let content = Content::File(file);
        if status != 200 || self.method.is_empty() {
            return with(status, fields, content.into());
        }
        let said = fields.get("last-modified").map(seconds);
        let modified = said.unwrap_or_else(|| Some(identity.modified()));
        if said.is_none() {
            fields.push("Last-Modified", date(identity.modified()));
        }
        let etag = match fields.get("etag") {
            Some(etag) => Some(etag.to_vec()),
            None => identity.tag(Tag::Strong).map(String::into_bytes),
        };
        if let Some(etag) = &etag {
            fields.set("ETag", etag);
        }
        fields.set("Accept-Ranges", "bytes");
        let validators = Validators {
            etag: etag.as_deref(),
            modified,
        };
        reply(self.method, &self.fields, fields, validators, content, true)
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
