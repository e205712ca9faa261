//! Blocks of fields in QPACK (RFC 9204) without a dynamic table, on both sides: what a client may
//! make the server keep is nothing, and no stream waits for another one.

use std::ops::Range;

use pronghorn_h1::{Limits, Refusal};

use crate::field_name::{CRUMBS, Fault, Name, REQUEST};
use crate::prefixed::{Input, Unreadable, append_integer, append_string};

/// Bytes that a field counts beside its texts, in the limit that a client is told (RFC 9114,
/// section 4.2.2).
const OVERHEAD: usize = 32;

/// The size of a block, as it is told, that fits where `limits` are kept.
pub(super) fn largest_section(limits: &Limits) -> usize {
    limits.head + OVERHEAD * limits.fields
}

/// The fields of a request, all texts in one buffer.
#[derive(Debug, Default)]
pub(super) struct Section {
    text: Vec<u8>,
    fields: Vec<(Range<usize>, Range<usize>)>,
    method: Range<usize>,
    path: Range<usize>,
    authority: Option<Range<usize>>,
    /// The first thing that is wrong.
    pub(super) fault: Option<Fault>,
}

/// Why a block is not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// An error of the connection: not QPACK, or with a dynamic table, which was not offered.
    NoQpack,
    /// More than a request may have.
    Refused(Refusal),
}

impl From<Unreadable> for Failed {
    fn from(Unreadable: Unreadable) -> Self {
        Self::NoQpack
    }
}

/// A field as a block has it: its texts are in the block, in the static table, or were coded.
enum Text<'a> {
    There(&'a [u8]),
    Static(&'static [u8]),
}

impl Text<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::There(text) => text,
            Self::Static(text) => text,
        }
    }
}

/// Goes through a block. `take` gets each field, and may end it.
fn walk(
    block: &[u8],
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut input = Input::new(block);
    // The insert count that it needs, and the base (RFC 9204, section 4.5.1).
    let needs = input.integer(8)?;
    let is_negative = input.peek().is_none_or(|first| first & 0x80 != 0);
    input.integer(7)?;
    if needs != 0 || is_negative {
        return Err(Failed::NoQpack);
    }
    let (mut coded_name, mut coded_value) = (Vec::new(), Vec::new());
    while let Some(first) = input.peek() {
        let (name, value);
        if first & 0xc0 == 0xc0 {
            let (static_name, static_value) = entry(input.integer(6)?)?;
            (name, value) = (Text::Static(static_name), Text::Static(static_value));
        } else if first & 0xd0 == 0x50 {
            name = Text::Static(entry(input.integer(4)?)?.0);
            value = Text::There(input.string(7, &mut coded_value)?);
        } else if first & 0xe0 == 0x20 {
            name = Text::There(input.string(3, &mut coded_name)?);
            value = Text::There(input.string(7, &mut coded_value)?);
        } else {
            return Err(Failed::NoQpack); // in the dynamic table
        }
        take(name.bytes(), value.bytes())?;
    }
    Ok(())
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), Failed> {
    let (name, value) = STATIC.get(index).ok_or(Failed::NoQpack)?;
    Ok((name.as_bytes(), value.as_bytes()))
}

impl Section {
    /// Reads the block of a request.
    pub(super) fn read(block: &[u8], limits: &Limits) -> Result<Self, Failed> {
        let mut section = Self::default();
        let (mut seen, mut crumbs, mut count) = (0, 0, 0);
        walk(block, |name, value| {
            let kind = Name::of(name);
            if section.text.len() + name.len() + value.len() > limits.head {
                return Err(Failed::Refused(Refusal::HeadTooLong(limits.head)));
            }
            let begins = kind.begins();
            // Names that begin with a colon come first, once each (RFC 9114, section 4.3).
            let is_misplaced = begins != 0 && (seen & begins != 0 || !section.fields.is_empty());
            seen |= begins;
            crumbs += usize::from(kind == Name::Cookie);
            count += usize::from(begins == 0 && (kind != Name::Cookie || crumbs == 1));
            if count > limits.fields || crumbs > CRUMBS {
                return Err(Failed::Refused(Refusal::TooManyFields(limits.fields)));
            }
            let fault = is_misplaced.then_some(Fault::Pseudo);
            if let Some(fault) = fault.or_else(|| kind.fault_of(value)) {
                section.fault.get_or_insert(fault);
            }
            let name = section.append(if begins == 0 { name } else { b"" });
            let value = section.append(value);
            match kind {
                Name::Method => section.method = value,
                Name::Path => section.path = value,
                Name::Authority => section.authority = Some(value),
                Name::Scheme => {}
                Name::Te | Name::Cookie | Name::Plain | Name::Bad(_) => {
                    section.fields.push((name, value));
                }
            }
            Ok(())
        })?;
        // One that connects names an authority alone (RFC 9114, section 4.4).
        let needs = if section.method() == "CONNECT" {
            Name::Method.begins() | Name::Authority.begins()
        } else {
            REQUEST
        };
        if seen & needs != needs {
            section.fault.get_or_insert(Fault::Pseudo);
        }
        Ok(section)
    }

    /// Reads trailers, which nobody uses: whether they are what they may be. None where they are
    /// too long to look.
    pub(super) fn are_trailers(block: &[u8], limits: &Limits) -> Result<Option<bool>, Failed> {
        let (mut bytes, mut is_good) = (0, true);
        let walked = walk(block, |name, value| {
            bytes += name.len() + value.len() + OVERHEAD;
            if bytes > limits.head {
                return Err(Failed::Refused(Refusal::HeadTooLong(limits.head)));
            }
            let kind = Name::of(name);
            is_good &= kind.begins() == 0 && kind.fault_of(value).is_none();
            Ok(())
        });
        match walked {
            Ok(()) => Ok(Some(is_good)),
            Err(Failed::Refused(_)) => Ok(None),
            Err(Failed::NoQpack) => Err(Failed::NoQpack),
        }
    }

    fn append(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        start..self.text.len()
    }

    fn text(&self, place: &Range<usize>) -> &[u8] {
        self.text.get(place.clone()).unwrap_or_default()
    }

    pub(super) fn method(&self) -> &str {
        std::str::from_utf8(self.text(&self.method)).unwrap_or_default()
    }

    pub(super) fn path(&self) -> &[u8] {
        self.text(&self.path)
    }

    pub(super) fn authority(&self) -> Option<&[u8]> {
        self.authority.as_ref().map(|place| self.text(place))
    }

    /// All that do not begin with a colon.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.fields.iter();
        fields.map(|(name, value)| (self.text(name), self.text(value)))
    }

    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields();
        fields
            .find(|(is, _)| *is == name.as_bytes())
            .map(|(_, value)| value)
    }
}

/// Writes a block.
#[derive(Debug)]
pub(super) struct Encoder {
    pub(super) block: Vec<u8>,
    name: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        let mut block = Vec::with_capacity(256);
        block.extend([0, 0]); // it needs nothing of a dynamic table
        Self {
            block,
            name: Vec::new(),
        }
    }

    pub(super) fn status(&mut self, status: u16) {
        let mut text = itoa::Buffer::new();
        self.append(b":status", text.format(status).as_bytes());
    }

    /// Appends a field, with its name in lower case and without blanks around its value. What
    /// can't be sent was refused where the reply came in, and is left out.
    pub(super) fn field(&mut self, name: &[u8], value: &[u8]) {
        let mut lower = std::mem::take(&mut self.name);
        lower.clear();
        lower.extend(name.iter().map(u8::to_ascii_lowercase));
        let value = value.trim_ascii();
        // Where `te` belongs is a request.
        let is_good = match Name::of(&lower) {
            Name::Bad(_) => false,
            Name::Te => true,
            name => name.begins() == 0 && name.fault_of(value).is_none(),
        };
        if is_good {
            self.append(&lower, value);
        }
        self.name = lower;
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        let mut named = None;
        for (index, (known, with)) in STATIC.iter().enumerate() {
            if known.as_bytes() == name {
                if with.as_bytes() == value {
                    return append_integer(&mut self.block, 0xc0, 6, index);
                }
                named.get_or_insert(index);
            }
        }
        match named {
            Some(index) => append_integer(&mut self.block, 0x50, 4, index),
            None => {
                append_integer(&mut self.block, 0x20, 3, name.len());
                self.block.extend_from_slice(name);
            }
        }
        append_string(&mut self.block, value);
    }
}

/// RFC 9204, appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 99] = [
    (":authority", ""), (":path", "/"), ("age", "0"), ("content-disposition", ""),
    ("content-length", "0"), ("cookie", ""), ("date", ""), ("etag", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("referer", ""), ("set-cookie", ""), (":method", "CONNECT"),
    (":method", "DELETE"), (":method", "GET"), (":method", "HEAD"), (":method", "OPTIONS"),
    (":method", "POST"), (":method", "PUT"), (":scheme", "http"), (":scheme", "https"),
    (":status", "103"), (":status", "200"), (":status", "304"), (":status", "404"),
    (":status", "503"), ("accept", "*/*"), ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"), ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"), ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"), ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"), ("cache-control", "no-cache"),
    ("cache-control", "no-store"), ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"), ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"), ("content-type", "application/javascript"),
    ("content-type", "application/json"), ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"), ("content-type", "image/jpeg"), ("content-type", "image/png"),
    ("content-type", "text/css"), ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"), ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"), ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"), ("vary", "origin"), ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"), (":status", "100"), (":status", "204"),
    (":status", "206"), (":status", "302"), (":status", "400"), (":status", "403"),
    (":status", "421"), (":status", "425"), (":status", "500"), ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"), ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"), ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"), ("access-control-request-method", "post"),
    ("alt-svc", "clear"), ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"), ("expect-ct", ""), ("forwarded", ""), ("if-range", ""), ("origin", ""),
    ("purpose", "prefetch"), ("server", ""), ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"), ("user-agent", ""), ("x-forwarded-for", ""),
    ("x-frame-options", "deny"), ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> Limits {
        Limits::default()
    }

    fn all(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        walk(block, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        fields
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // RFC 9204, appendix B.1.
        let block = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(all(block), [(b":path".to_vec(), b"/index.html".to_vec())]);
        // RFC 7541, appendix C.4.1: a value in Huffman's code.
        let block = b"\x00\x00\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let host = (b":authority".to_vec(), b"www.example.com".to_vec());
        assert_eq!(all(block), [host]);
        // With a dynamic table: appendix B.2.
        let failed = walk(b"\x03\x81\x10\x11", |_, _| Ok(()));
        assert_eq!(failed, Err(Failed::NoQpack));
    }

    #[test]
    fn what_is_in_the_static_table_takes_one_octet_or_two() {
        let mut encoder = Encoder::new();
        encoder.status(200);
        encoder.field(b"Content-Type", b"text/html; charset=utf-8");
        encoder.field(b"X-Frame-Options", b"deny");
        encoder.field(b"connection", b"close");
        encoder.field(b"a name", b"x");
        assert_eq!(encoder.block, b"\x00\x00\xd9\xf4\xff\x22");
    }

    #[test]
    fn a_block_of_references_ends_at_the_limits() {
        // `user-agent: ` with an empty value, in two octets each.
        let block = [&[0, 0][..], &[0xff, 0x20].repeat(10_000)].concat();
        let refused = Section::read(&block, &limits()).unwrap_err();
        assert_eq!(
            refused,
            Failed::Refused(Refusal::TooManyFields(limits().fields))
        );
        assert_eq!(Section::are_trailers(&block, &limits()), Ok(None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            fields in prop::collection::vec(("[a-z][a-z0-9-]{0,30}", "[!-~]([ -~]{0,300}[!-~])?"), 0..30)
        ) {
            let mut encoder = Encoder::new();
            encoder.status(207);
            let mut expected = vec![(b":status".to_vec(), b"207".to_vec())];
            for (name, value) in &fields {
                encoder.field(name.as_bytes(), value.as_bytes());
                let is_left_out = !matches!(Name::of(name.as_bytes()), Name::Plain | Name::Cookie | Name::Te);
                if !is_left_out {
                    expected.push((name.clone().into_bytes(), value.clone().into_bytes()));
                }
            }
            prop_assert_eq!(all(&encoder.block), expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(block in prop::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(section) = Section::read(&block, &limits()) {
                let bytes: usize = section.fields().map(|(name, value)| name.len() + value.len()).sum();
                prop_assert!(bytes <= limits().head);
            }
            _ = Section::are_trailers(&block, &limits());
        }
    }
}
