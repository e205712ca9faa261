//! JSON text, written.

/// Writes a JSON string. What is not UTF-8 becomes U+FFFD, once for each sequence that a decoder
/// gives up on.
pub(crate) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for chunk in text.utf8_chunks() {
        escaped(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
    }
    out.push(b'"');
}

fn escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    let needs = |byte: &u8| matches!(byte, 0..=0x1F | b'"' | b'\\');
    while let Some(at) = text.iter().position(needs) {
        let (plain, rest) = text.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, rest)) = rest.split_first() else {
            return;
        };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            _ => {
                out.extend_from_slice(if *byte < 0x10 { b"\\u000" } else { b"\\u001" });
                out.extend(char::from_digit(u32::from(byte & 0x0F), 16).map(|digit| digit as u8));
            }
        }
        text = rest;
    }
    out.extend_from_slice(text);
}

/// Writes a number.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(number.to_string().as_bytes());
}
