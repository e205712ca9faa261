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
        if response.status == 304 {
            if let (Some(known), Some(etag)) = (&wish.known, response.fields.get("etag")) {
                let weak = [b"W/", etag].concat();
                if Tags(known).any(|tag| tag == weak) {
                    response.fields.set("ETag", weak);
                    vary(&mut response.fields, "Accept-Encoding");
                }
            }
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

    fn is_worth_it(&self, response: &Response) -> bool {
        let Response {
            status,
            fields,
            body,
            ..
        } = response;
        let bodiless = matches!(status, 100..=199 | 204 | 205 | 206 | 304);
        let is_coded = fields.get("content-encoding").is_some();
        let is_fixed = fields.get("content-range").is_some()
            || fields.all("cache-control").any(|value| {
                value
                    .split(|&byte| byte == b',')
                    .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
            });
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
                .is_some_and(|text| self.types.iter().any(|known| known.matches(text)))
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
