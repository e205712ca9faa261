//! Numbers and texts as HPACK and QPACK write them (RFC 7541, section 5; RFC 9204, section 4.1).

use crate::huffman::{self, NoCode};

/// A block of fields, and how far it is read.
pub(crate) struct Input<'a> {
    block: &'a [u8],
    pub(crate) at: usize,
}

/// It is not what it should be, or ends too early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl From<NoCode> for Unreadable {
    fn from(NoCode: NoCode) -> Self {
        Self
    }
}

impl<'a> Input<'a> {
    pub(crate) const fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.block.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Unreadable> {
        let byte = self.peek().ok_or(Unreadable)?;
        self.at += 1;
        Ok(byte)
    }

    /// A number whose first octet has so many bits for it.
    pub(crate) fn integer(&mut self, prefix: u32) -> Result<usize, Unreadable> {
        /// Octets behind the first one: 28 bits are more than any length here.
        const MORE: u32 = 4;
        let mask = (1_usize << prefix) - 1;
        let mut number = usize::from(self.next()?) & mask;
        if number < mask {
            return Ok(number);
        }
        for nth in 0..MORE {
            let byte = self.next()?;
            number += usize::from(byte & 0x7f) << (7 * nth);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unreadable)
    }

    /// A text whose length has so many bits of its first octet, below the one that says that it is
    /// coded. Then it is decoded into `text`, in place of what was there.
    pub(crate) fn string<'t>(
        &mut self,
        prefix: u32,
        text: &'t mut Vec<u8>,
    ) -> Result<&'t [u8], Unreadable>
    where
        'a: 't,
    {
        let is_coded = self.peek().ok_or(Unreadable)? & (1 << prefix) != 0;
        let length = self.integer(prefix)?;
        let end = self.at.checked_add(length).ok_or(Unreadable)?;
        let bytes = self.block.get(self.at..end).ok_or(Unreadable)?;
        self.at = end;
        if !is_coded {
            return Ok(bytes);
        }
        text.clear();
        huffman::decode(bytes, text)?;
        Ok(text)
    }
}

/// Appends a number whose first octet has so many bits for it, below `first`.
pub(crate) fn append_integer(to: &mut Vec<u8>, first: u8, prefix: u32, number: usize) {
    let low = |number: usize| number.to_le_bytes()[0];
    let mask = (1_usize << prefix) - 1;
    to.push(first | low(number.min(mask)));
    if let Some(mut rest) = number.checked_sub(mask) {
        while rest >= 0x80 {
            to.push(low(rest) | 0x80);
            rest >>= 7;
        }
        to.push(low(rest));
    }
}

/// Appends a text as it is, behind its length.
pub(crate) fn append_string(to: &mut Vec<u8>, text: &[u8]) {
    append_integer(to, 0, 7, text.len());
    to.extend_from_slice(text);
}
