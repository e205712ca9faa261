//! Compressing responses, as far as their clients want it.

mod coded;
mod decoder;
mod encoder;
mod types;

use bytes::Bytes;
use pronghorn_serve::{Body, Response, vary};
use pronghorn_wire::Fields;

pub use types::TypePattern;

pub(crate) use decoder::{Decoder, memory};
pub(crate) use encoder::Levels;

use crate::coding::{Coding, choose};
use crate::files::Tags;
use coded::{Coded, INLINE};
use encoder::{Encoder, Then};

/// Compresses what is worth it.
#[derive(Debug, Clone)]
pub(crate) struct Compressor {
    /// The best first.
    pub(crate) codings: Vec<Coding>,
    pub(crate) levels: Levels,
    /// A shorter body stays as it is.
    pub(crate) min_size: u64,
    pub(crate) types: Vec<TypePattern>,
}

/// What a request says about compression; its head is gone when the response comes.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    coding: Option<Coding>,
    /// To HEAD, a body is described and not sent.
    to_head: bool,
    /// `If-None-Match`, which may name a response that was compressed.
    known: Option<Bytes>,
}

impl Compressor {
    pub(crate) fn wish(&self, method: &str, request: &Fields) -> Wish {
        let coding = choose(request, &self.codings);
        let known = coding.and_then(|_| request.get("if-none-match"));
        Wish {
            coding,
            to_head: method == "HEAD",
            known: known.map(Bytes::copy_from_slice),
        }
    }

    /// `has_room` says whether there is memory for an encoder. Without it the response stays as it
    /// is.
    pub(crate) fn apply(
        &self,
        wish: &Wish,
        mut response: Response,
        has_room: impl FnOnce() -> bool,
    ) -> Response {
        if matches!(response.status, 206 | 304) {
            self.apply_to_part(wish, &mut response);
            return response;
        }
        if !self.is_worth_it(&response) {
            return response;
        }
        vary(&mut response.fields, "Accept-Encoding");
        let Some(coding) = wish.coding else {
            return response;
        };
        match self.encode(response.body, coding, wish.to_head, has_room) {
            Ok(body) => {
                response.body = body;
                describe(&mut response.fields, coding);
            }
            Err(body) => response.body = body,
        }
        response
    }

    /// Has a 304 and a 206 say what the 200 would (RFC 9110, sections 15.3.7 and 15.4.5): caches
    /// put their fields into what they keep. Where nothing tells what the whole is, it may vary.
    fn apply_to_part(&self, wish: &Wish, response: &mut Response) {
        let mut varies = self.may_be_worth_it(&response.fields);
        let etag = response.fields.get("etag");
        if let (304, Some(known), Some(etag)) = (response.status, &wish.known, etag) {
            let weak = [b"W/", etag].concat();
            if Tags(known).any(|tag| tag == weak) {
                response.fields.set("ETag", weak);
                varies = true;
            }
        }
        if varies {
            vary(&mut response.fields, "Accept-Encoding");
        }
    }

    /// Whether the whole may have been compressed of which these are the fields of a part.
    fn may_be_worth_it(&self, fields: &Fields) -> bool {
        let has_type = fields
            .get("content-type")
            .is_none_or(|text| text.starts_with(b"multipart/byteranges") || self.has_type(text));
        let len: Option<u64> = fields.get("content-range").and_then(|range| {
            let (_, len) = std::str::from_utf8(range).ok()?.split_once('/')?;
            len.parse().ok()
        });
        has_type
            && len.is_none_or(|len| len >= self.min_size)
            && fields.get("content-encoding").is_none()
            && !is_fixed(fields)
    }

    fn has_type(&self, content_type: &[u8]) -> bool {
        self.types.iter().any(|known| known.matches(content_type))
    }

    fn is_worth_it(&self, response: &Response) -> bool {
        let Response {
            status,
            fields,
            body,
            ..
        } = response;
        let bodiless = matches!(status, 100..=199 | 204 | 205);
        let is_coded = fields.get("content-encoding").is_some();
        let is_fixed = fields.get("content-range").is_some() || is_fixed(fields);
        let announced = || {
            let text = std::str::from_utf8(fields.get("content-length")?).ok()?;
            text.parse().ok()
        };
        let len: Option<u64> = body.known_len().or_else(announced);
        !bodiless
            && !is_coded
            && !is_fixed
            && len.is_none_or(|len| len >= self.min_size)
            && fields
                .get("content-type")
                .is_some_and(|text| self.has_type(text))
    }

    /// The body in this coding; as it was when that is no gain.
    fn encode(
        &self,
        body: Body,
        coding: Coding,
        to_head: bool,
        has_room: impl FnOnce() -> bool,
    ) -> Result<Body, Body> {
        match body {
            Body::Empty => Err(body),
            Body::Lent(loan) => self.encode(Body::Whole(loan.into()), coding, to_head, has_room),
            Body::Whole(bytes) if bytes.len() <= INLINE && !to_head => {
                let encoder = Encoder::new(coding, self.levels);
                match encoder.and_then(|mut encoder| encoder.encode(&bytes, Then::End)) {
                    Ok(out) if out.len() < bytes.len() => Ok(Body::Whole(out.into())),
                    _ => Err(Body::Whole(bytes)),
                }
            }
            // What is only described takes nothing.
            body if !to_head && !has_room() => Err(body),
            body => Ok(Body::Made(Box::new(Coded::new(body, coding, self.levels)))),
        }
    }
}

/// Whether nobody on the way may give it another form.
fn is_fixed(fields: &Fields) -> bool {
    let mut values = fields.all("cache-control");
    values.any(|value| {
        let mut words = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        words.any(|word| word.eq_ignore_ascii_case(b"no-transform"))
    })
}

/// What is sent is another form now: other bytes, of another length, and good only for who takes
/// the coding.
fn describe(fields: &mut Fields, coding: Coding) {
    for name in [
        "content-length",
        "content-md5",
        "content-digest",
        "accept-ranges",
    ] {
        fields.remove(name);
    }
    fields.push("Content-Encoding", coding.name());
    let etag = fields.get("etag").filter(|etag| !etag.starts_with(b"W/"));
    if let Some(etag) = etag {
        let weak = [b"W/", etag].concat();
        fields.set("ETag", weak);
    }
}

#[cfg(test)]
mod tests;
