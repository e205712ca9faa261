//! A part's `Content-Disposition`: the name of its field, and of its file.

use super::ErrorKind;

/// What PHP takes from the header; the type (`form-data`) and other parameters count for nothing
/// there. `filename*` is among these others: RFC 7578 forbids it, and PHP has never read it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: Option<Vec<u8>>,
    pub(super) filename: Option<Vec<u8>>,
}

/// Reads a header value. Values that PHP would cut short without a word (an unquoted space, text
/// behind a closing quote, a quote that never closes) and parameters given twice are errors: which
/// part of such a header counts differs from program to program, and that is how filters are passed
/// by.
pub(super) fn parse(mut text: &[u8]) -> Result<Disposition, ErrorKind> {
    let mut found = Disposition::default();
    loop {
        let start = text
            .iter()
            .position(|byte| *byte != b';' && !byte.is_ascii_whitespace());
        let Some(start) = start else { return Ok(found) };
        text = text.split_at(start).1;

        let end = text
            .iter()
            .position(|byte| matches!(byte, b';' | b'='))
            .unwrap_or(text.len());
        let (key, rest) = text.split_at(end);
        // PHP lets a quote start anywhere, others only where a value starts.
        if key.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
            return Err(ErrorKind::Parameter);
        }
        let Some(rest) = rest.strip_prefix(b"=") else {
            text = rest;
            continue;
        };
        // A space in it: `form-data name="a"`, whose semicolon is missing.
        if !key.iter().all(|byte| is_token(*byte)) {
            return Err(ErrorKind::Parameter);
        }
        let (value, rest) = take_value(rest.trim_ascii_start())?;
        text = rest;

        let (place, parameter) = if key.eq_ignore_ascii_case(b"name") {
            (&mut found.name, "name")
        } else if key.eq_ignore_ascii_case(b"filename") {
            (&mut found.filename, "filename")
        } else {
            continue;
        };
        if place.replace(value).is_some() {
            return Err(ErrorKind::ParameterTwice(parameter));
        }
    }
}

/// The value at the start of `text` and what follows it. Quotes may be single, as in PHP.
fn take_value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), ErrorKind> {
    if let Some((quote @ (b'"' | b'\''), quoted)) = text.split_first() {
        let end = end_of_quoted(quoted, *quote).ok_or(ErrorKind::OpenQuote)?;
        let (value, rest) = quoted.split_at(end);
        let rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
        if rest.first().is_some_and(|byte| *byte != b';') {
            return Err(ErrorKind::Parameter);
        }
        Ok((unescape(value, *quote), rest))
    } else {
        let end = text
            .iter()
            .position(|byte| *byte == b';')
            .unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        let value = value.trim_ascii_end();
        // `filename*=UTF-8''a` has a pair of apostrophes, between which PHP sees an empty quoted
        // text.
        let apostrophes = memchr::memchr_iter(b'\'', value).count();
        if value
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || *byte == b'"')
            || apostrophes & 1 == 1
        {
            return Err(ErrorKind::Parameter);
        }
        Ok((unescape(value, b'\\'), rest))
    }
}

/// A backslash is an escape before a quote and before another backslash only: old browsers send
/// `C:\new\file.txt` as it is.
fn end_of_quoted(text: &[u8], quote: u8) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == quote && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

/// Takes out such escapes. `%22`, which is what browsers send for a quote, stays: PHP keeps it too.
fn unescape(text: &[u8], quote: u8) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = bytes.next_if(|next| byte == b'\\' && (*next == b'\\' || *next == quote));
        plain.push(escaped.unwrap_or(byte));
    }
    plain
}

/// RFC 9110's `tchar`.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
