//! RoadRunner's protobuf codec: `http.v1.Request` and `http.v1.Response`, written and read by hand.
//!
//! Two messages of ten and two fields don't need a generator, and this way a request is written
//! once, straight into the frame.

use bytes::Bytes;

use crate::foreign::{Form, cookies, grouped_headers};
use crate::{DecodeError, Fields, ReplyHead, Request};

/// Appends the context of a request. Default values are left out, as proto3 does.
pub fn encode_request(out: &mut Vec<u8>, request: &Request<'_>, form: Form<'_>) {
    put_bytes(out, 1, request.remote.as_bytes());
    put_bytes(out, 2, request.protocol.name().as_bytes());
    put_bytes(out, 3, request.method.as_bytes());
    put_bytes(out, 4, request.uri().as_bytes());
    for group in grouped_headers(request) {
        put_map_entry(out, 5, group.name.as_bytes(), &group.values);
    }
    for (name, value) in cookies(request) {
        put_map_entry(out, 6, String::from_utf8_lossy(name).as_bytes(), &[&value]);
    }
    put_bytes(
        out,
        7,
        String::from_utf8_lossy(request.query.unwrap_or_default()).as_bytes(),
    );
    if form.parsed {
        put_varint(out, key(8, WIRE_VARINT));
        put_varint(out, 1);
    }
    put_bytes(out, 9, form.uploads.unwrap_or_default());
    for (name, value) in request.attributes.iter() {
        put_map_entry(out, 10, String::from_utf8_lossy(name).as_bytes(), &[value]);
    }
}

const WIRE_VARINT: u64 = 0;
const WIRE_64: u64 = 1;
const WIRE_BYTES: u64 = 2;
const WIRE_32: u64 = 5;

const fn key(field: u64, wire: u64) -> u64 {
    (field << 3) | wire
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while let rest @ 1.. = number >> 7 {
        out.push(low_bits(number) | 0x80);
        number = rest;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    u8::try_from(number & 0x7f).expect("seven bits")
}

fn varint_len(number: u64) -> usize {
    let bits = 64_u32.saturating_sub(number.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_present(out, field, bytes);
    }
}

fn put_present(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, key(field, WIRE_BYTES));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn present_len(len: usize) -> usize {
    varint_len(len as u64).saturating_add(len).saturating_add(1)
}

/// An entry of `map<string, HeaderValue>`, where `HeaderValue { repeated bytes value = 1 }`.
fn put_map_entry(out: &mut Vec<u8>, field: u64, name: &[u8], values: &[&[u8]]) {
    let list = values.iter().fold(0_usize, |sum, value| {
        sum.saturating_add(present_len(value.len()))
    });
    let entry = present_len(name.len()).saturating_add(present_len(list));
    put_varint(out, key(field, WIRE_BYTES));
    put_varint(out, entry as u64);
    put_present(out, 1, name);
    put_varint(out, key(2, WIRE_BYTES));
    put_varint(out, list as u64);
    for value in values {
        put_present(out, 1, value);
    }
}

/// Reads the context of a reply, `http.v1.Response`. An empty context means status 200 without
/// headers.
///
/// # Errors
///
/// When it is not such a message. A status that no server may send is not an error here;
/// [`ReplyHead::check`] says so.
pub fn decode_reply(context: &Bytes) -> Result<ReplyHead, DecodeError> {
    let mut head = ReplyHead {
        status: 200,
        headers: Fields::over(context.clone(), 8),
    };
    if context.is_empty() {
        return Ok(head);
    }
    head.status = 0;
    let mut input = Reader {
        all: context,
        at: 0,
        end: context.len(),
    };
    while let Some((field, value)) = input.field()? {
        match (field, value) {
            (1, Value::Number(status)) => head.status = u16::try_from(status).unwrap_or(0),
            (2, Value::Bytes(start, end)) => {
                read_header(
                    &mut head.headers,
                    Reader {
                        all: context,
                        at: start,
                        end,
                    },
                )?;
            }
            _ => {}
        }
    }
    Ok(head)
}

fn read_header(headers: &mut Fields, mut entry: Reader<'_>) -> Result<(), DecodeError> {
    let mut name = (0, 0);
    let mut values = None;
    let all = entry.all;
    while let Some((field, value)) = entry.field()? {
        match (field, value) {
            (1, Value::Bytes(start, end)) => name = (start, end.saturating_sub(start)),
            (2, Value::Bytes(start, end)) => values = Some((start, end)),
            _ => {}
        }
    }
    let Some((at, end)) = values else {
        return Ok(());
    };
    let mut list = Reader { all, at, end };
    while let Some((field, value)) = list.field()? {
        if let (1, Value::Bytes(start, end)) = (field, value)
            && !headers.push_received(name, (start, end.saturating_sub(start)))
        {
            return Err(DecodeError::Proto("a length leads outside"));
        }
    }
    Ok(())
}

/// Fields of one message, by their places in the whole context.
struct Reader<'a> {
    all: &'a [u8],
    at: usize,
    end: usize,
}

enum Value {
    Number(u64),
    Bytes(usize, usize),
    Other,
}

impl Reader<'_> {
    fn field(&mut self) -> Result<Option<(u64, Value)>, DecodeError> {
        if self.at == self.end {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            WIRE_VARINT => Value::Number(self.varint()?),
            WIRE_BYTES => {
                let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let start = self.skip(len)?;
                Value::Bytes(start, self.at)
            }
            WIRE_64 => self.skip(8).map(|_| Value::Other)?,
            WIRE_32 => self.skip(4).map(|_| Value::Other)?,
            _ => return Err(DecodeError::Proto("a wire type that proto3 does not have")),
        };
        Ok(Some((key >> 3, value)))
    }

    fn skip(&mut self, len: usize) -> Result<usize, DecodeError> {
        let start = self.at;
        match start.checked_add(len) {
            Some(end) if end <= self.end => {
                self.at = end;
                Ok(start)
            }
            _ => Err(DecodeError::Proto("a length leads outside")),
        }
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let at = self.skip(1)?;
            let byte = self.all.get(at).copied().unwrap_or_default();
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Proto("a number of more than ten bytes"))
    }
}

/// Fuzz entry.
#[doc(hidden)]
pub fn fuzz_decode_reply(data: &[u8]) {
    crate::foreign::fuzz_reply(data, decode_reply);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::tests::request;

    #[test]
    fn a_request_is_the_message_of_the_packages() {
        let headers: Fields = [("accept", &b"*/*"[..]), ("x", b"\xe9"), ("accept", b"b")]
            .into_iter()
            .collect();
        let none = Fields::new();
        let mut out = Vec::new();
        let form = Form {
            parsed: true,
            uploads: Some(b"{}"),
        };
        encode_request(&mut out, &request(&headers, &none), form);
        let mut want = Vec::new();
        want.extend_from_slice(b"\x0a\x09127.0.0.1\x12\x08HTTP/1.1\x1a\x03GET");
        want.extend_from_slice(b"\x22\x21http://example.org:8080/a%20b?x=1");
        want.extend_from_slice(b"\x2a\x12\x0a\x06Accept\x12\x08\x0a\x03*/*\x0a\x01b");
        want.extend_from_slice(b"\x2a\x08\x0a\x01X\x12\x03\x0a\x01\xe9");
        want.extend_from_slice(b"\x3a\x03x=1\x40\x01\x4a\x02{}");
        assert_eq!(
            out,
            want,
            "\n{}\n{}",
            out.escape_ascii(),
            want.escape_ascii()
        );
    }

    #[test]
    fn a_reply_is_read_field_by_field() {
        let head = |context: &'static [u8]| decode_reply(&Bytes::from_static(context));
        assert_eq!(
            head(b"").unwrap(),
            ReplyHead {
                status: 200,
                headers: Fields::new()
            }
        );
        assert_eq!(head(b"\x08\xc8\x01").unwrap().status, 200);
        let reply =
            head(b"\x08\xc8\x01\x12\x0b\x0a\x01X\x12\x06\x0a\x011\x0a\x012\x1a\x00\x25....")
                .unwrap();
        assert_eq!(
            reply.headers,
            [("X", "1"), ("X", "2")].into_iter().collect()
        );
        // Without a status, or with a negative one, there is nothing that can be sent.
        assert_eq!(head(b"\x12\x00").unwrap().status, 0);
        assert_eq!(
            head(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
                .unwrap()
                .status,
            0
        );
    }

    #[test]
    fn lengths_that_lead_outside_are_refused() {
        for context in [
            &b"\x12\x05\x0a"[..],
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x12\x03\x0a\x05X",
            b"\x12\x05\x0a\x01X\x12\x09",
            b"\x08",
            b"\x0b",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x09....",
        ] {
            let got = decode_reply(&Bytes::copy_from_slice(context));
            assert!(
                matches!(got, Err(DecodeError::Proto(_))),
                "{}",
                context.escape_ascii()
            );
        }
    }
}
