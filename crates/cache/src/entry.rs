//! One entry: a key with its value, as it lies in a block.

use crate::layout::{
    ENTRY, ENTRY_ENDS, ENTRY_HASH, ENTRY_KEY_LENGTH, ENTRY_KIND, ENTRY_SUM, ENTRY_TOUCHED,
    ENTRY_VALUE_LENGTH, WRITTEN_SHIFT,
};

/// What the sum is over begins here.
const SUMMED: usize = ENTRY_TOUCHED + 4;

/// A private copy of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry(Vec<u8>);

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// One of the kinds of the layout.
    pub kind: u32,
    /// Milliseconds of the segment's clock; 0 for no end.
    pub ends: u64,
}

impl Entry {
    /// Of bytes that begin with its head and are as long as that says.
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|it| it.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    fn key_end(&self) -> usize {
        (ENTRY + self.number(ENTRY_KEY_LENGTH) as usize).min(self.0.len())
    }

    pub fn key(&self) -> &[u8] {
        self.0.get(ENTRY..self.key_end()).unwrap_or_default()
    }

    pub fn value(&self) -> &[u8] {
        self.0.get(self.key_end()..).unwrap_or_default()
    }

    /// The value alone.
    pub fn into_value(mut self) -> Vec<u8> {
        self.0.split_off(self.key_end())
    }

    /// One of the kinds of the layout.
    pub fn kind(&self) -> u32 {
        self.number(ENTRY_KIND) & 0xff
    }

    /// With what stands behind it in the same word.
    pub(crate) fn whole_kind(&self) -> u32 {
        self.number(ENTRY_KIND)
    }

    /// Milliseconds of the segment's clock; 0 for no end.
    pub fn ends(&self) -> u64 {
        u64::from(self.number(ENTRY_ENDS)) | u64::from(self.number(ENTRY_ENDS + 4)) << 32
    }

    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.ends() != 0 && self.ends() <= now
    }

    /// Whether nobody has written over it: lengths and sum fit.
    pub(crate) fn is_whole(&self, hash: impl Fn(&[u8]) -> u64) -> bool {
        let lengths = self.number(ENTRY_KEY_LENGTH) as usize
            + self.number(ENTRY_VALUE_LENGTH) as usize
            + ENTRY;
        lengths == self.0.len() && self.number(ENTRY_SUM) == low(hash(&self.0[SUMMED..]))
    }
}

impl NewEntry<'_> {
    pub(crate) const fn len(&self) -> usize {
        ENTRY + self.key.len() + self.value.len()
    }

    /// `written` is the second in which it was written first.
    pub(crate) fn encode(&self, written: u32, hash: impl Fn(&[u8]) -> u64) -> Vec<u8> {
        let mut out = vec![0; ENTRY];
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let of_key = u32::try_from(hash(self.key) >> 32).expect("its upper half");
        let written = written << WRITTEN_SHIFT;
        put(&mut out, ENTRY_TOUCHED, &written.to_le_bytes());
        put(&mut out, ENTRY_KEY_LENGTH, &length(self.key).to_le_bytes());
        put(
            &mut out,
            ENTRY_VALUE_LENGTH,
            &length(self.value).to_le_bytes(),
        );
        put(&mut out, ENTRY_ENDS, &self.ends.to_le_bytes());
        put(&mut out, ENTRY_KIND, &self.kind.to_le_bytes());
        put(&mut out, ENTRY_HASH, &of_key.to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        let sum = low(hash(&out[SUMMED..]));
        put(&mut out, ENTRY_SUM, &sum.to_le_bytes());
        out
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("32 bits")
}
