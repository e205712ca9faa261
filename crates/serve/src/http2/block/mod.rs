//! Blocks of fields as they come (RFC 7541): finds what `h2` would end the whole connection for,
//! where RFC 9113, section 8.1.1, wants the end of one stream.
//!
//! A block passes as it is, unless there is such a field in it. That field is then replaced by one
//! that `h2` takes and that has the same length, because both ends keep a table of the fields they
//! have seen, by length, and it belongs to the whole connection. Of that table no texts are kept
//! here: what each field of it is, and how long.
//!
//! Fields are also counted while they pass, because an octet can stand for one: `h2` keeps each in
//! a map. Those beyond what a block may have are left out, as far as no later field needs them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::field_name::{CRUMBS, Fault, Name, REQUEST};
use crate::prefixed::{Input, Unreadable, append_string};

/// Bytes that the table holds at most: the size that we announce by announcing nothing (RFC 9113,
/// section 6.5.2).
const TABLE: usize = 4096;
/// Bytes that a field takes of it beside its texts (RFC 7541, section 4.1).
const OVERHEAD: usize = 32;
/// Room that the buffer for texts keeps from one block to the next.
const TEXT: usize = 1 << 10;
/// Bytes that may take the place of fields in one block: few octets can name a long field of the
/// table, again and again.
const INSTEAD: usize = 256 << 10;
/// Fields beyond what a block may have that can't be left out, because the table keeps them: more
/// than fit there at a time.
const KEPT: usize = TABLE / OVERHEAD;
/// Buffers that `h2` reads into grow to twice their size.
pub(super) const GROWN: usize = 2;
/// The largest one is for the longest frame.
const BUFFER: usize = GROWN * (16 << 10);
/// The octets of those.
const KEPT_OCTETS: usize = 2 * TABLE;
/// Makes a request's block one that this server refuses: the name of a field behind all others,
/// with a [`Fault`] for a value.
pub(super) const MARK: &str = "~malformed";

/// A field of the table.
#[derive(Debug, Clone, Copy)]
struct TableEntry {
    name: Name,
    name_len: u16,
    value_len: u16,
    /// The fault that it has as a whole.
    fault: Option<Fault>,
    /// Bytes that stay in memory as long as this is kept: 0 until its block has been looked at.
    pinned: u32,
}

impl TableEntry {
    fn size(self) -> usize {
        usize::from(self.name_len) + usize::from(self.value_len) + OVERHEAD
    }
}

/// How a block is to go on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Good,
    /// One that `h2` takes, without a mark.
    Mended(Fault, Vec<u8>),
    /// Not HPACK, which is an error of the connection; or more than can be mended.
    Broken,
    /// So many fields that the connection is to end.
    Flood,
}

/// How many fields a block may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Without those of a request that begin with a colon. Parts of a cookie are one.
    fields: usize,
    crumbs: usize,
}

impl Most {
    pub(super) const fn of_request(fields: usize) -> Self {
        Self {
            fields,
            crumbs: CRUMBS,
        }
    }

    /// Nobody reads them.
    pub(super) const fn of_trailers() -> Self {
        Self {
            fields: 0,
            crumbs: 0,
        }
    }

    const fn are_of_trailers(self) -> bool {
        self.fields == 0 && self.crumbs == 0
    }
}

/// The fields of one block so far.
#[derive(Debug)]
struct Count {
    most: Most,
    fields: usize,
    crumbs: usize,
    /// Beyond what the block may have, and kept by the table.
    kept: usize,
    kept_octets: usize,
}

impl Count {
    const fn new(most: Most) -> Self {
        Self {
            most,
            fields: 0,
            crumbs: 0,
            kept: 0,
            kept_octets: 0,
        }
    }

    /// Counts one more. True when it is beyond what there may be.
    const fn is_over(&mut self, name: Name) -> bool {
        match name {
            Name::Method | Name::Scheme | Name::Path | Name::Authority => return false,
            Name::Cookie => {
                self.fields += (self.crumbs == 0) as usize;
                self.crumbs += 1;
            }
            Name::Te | Name::Plain | Name::Bad(_) => self.fields += 1,
        }
        self.fields > self.most.fields || self.crumbs > self.most.crumbs
    }

    /// Counts one that is beyond that and has to stay.
    fn keep(&mut self, octets: usize) -> Result<(), Broken> {
        self.kept += 1;
        self.kept_octets += octets;
        if self.kept > KEPT || self.kept_octets > KEPT_OCTETS {
            Err(Broken::Flood)
        } else {
            Ok(())
        }
    }
}

/// Something in a block that is to be replaced.
struct Patch {
    place: Range<usize>,
    by: Vec<u8>,
}

/// Why a block is not read to its end.
#[derive(Debug)]
enum Broken {
    NoHpack,
    Flood,
}

impl From<Unreadable> for Broken {
    fn from(Unreadable: Unreadable) -> Self {
        Self::NoHpack
    }
}

/// The state that all blocks of a connection have in common.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The newest one first.
    table: VecDeque<TableEntry>,
    size: usize,
    /// Bytes that the client takes away from the most that the table may have.
    less: usize,
    text: Vec<u8>,
    /// Bytes that the entries of the table keep in memory.
    pinned: usize,
}

impl Blocks {
    /// Judges the next block of a connection, whole.
    pub(super) fn judge(&mut self, block: &[u8], most: Most) -> Judged {
        let mut patches = Vec::new();
        let mut found = None;
        let walked = self.walk(block, most, |fault, patch| {
            // A malformed block is that, however long it is.
            if matches!(found, None | Some(Fault::TooMany)) {
                found = Some(fault);
            }
            patches.extend(patch);
        });
        self.text.clear();
        self.text.shrink_to(TEXT);
        match (walked, found) {
            (Err(Broken::NoHpack), _) => Judged::Broken,
            (Err(Broken::Flood), _) => Judged::Flood,
            (Ok(()), None) => Judged::Good,
            (Ok(()), Some(fault)) => Judged::Mended(fault, spliced(block, patches)),
        }
    }

    /// The last block came with so many bytes since the one before of which the table keeps a
    /// field. `h2` keeps texts as parts of the buffers that it reads into, so that an entry of few
    /// bytes keeps all that was read beside it. As entries go in their order, the newest one of a
    /// block stands for all. False where the table keeps nothing of this block.
    pub(super) fn pin(&mut self, bytes: usize) -> bool {
        // A block before this one has given a number to the newest of its own.
        let newest = self.table.front_mut().filter(|entry| entry.pinned == 0);
        let is_kept = newest.is_some();
        if let Some(entry) = newest {
            let pinned = bytes.saturating_mul(GROWN).min(BUFFER);
            entry.pinned = u32::try_from(pinned).unwrap_or(u32::MAX);
            self.pinned += entry.pinned as usize;
        }
        is_kept
    }

    /// Bytes that `h2` keeps for its table, beyond the table itself.
    pub(super) fn pinned(&self) -> usize {
        self.pinned
    }

    /// Tells what is wrong, and what is to be replaced for it, in the order of the block.
    fn walk(
        &mut self,
        block: &[u8],
        most: Most,
        mut tell: impl FnMut(Fault, Option<Patch>),
    ) -> Result<(), Broken> {
        let mut input = Input::new(block);
        let mut may_resize = true;
        let mut room = INSTEAD;
        let mut count = Count::new(most);
        let mut begins = 0;
        while let Some(first) = input.peek() {
            let start = input.at;
            if first & 0xe0 == 0x20 {
                // A new size of the table (RFC 7541, section 6.3).
                let size = input.integer(5)?;
                if !may_resize || size > TABLE {
                    return Err(Broken::NoHpack);
                }
                self.less = TABLE - size;
                self.evict(0);
                continue;
            }
            may_resize = false;
            if first & 0x80 != 0 {
                let index = input.integer(7)?;
                let (name, _, fault) = self.field(index)?;
                begins |= name.begins();
                if count.is_over(name) {
                    let place = start..input.at;
                    let by = Vec::new();
                    tell(fault.unwrap_or(Fault::TooMany), Some(Patch { place, by }));
                } else if let Some(fault) = fault {
                    // The table of `h2` has what took its place.
                    let patch = (index <= STATIC.len()).then(|| Patch {
                        place: start..input.at,
                        by: Vec::new(),
                    });
                    tell(fault, patch);
                }
                continue;
            }
            let is_kept = first & 0x40 != 0;
            let index = input.integer(if is_kept { 6 } else { 4 })?;
            let (name, name_len) = if index == 0 {
                let name = input.string(7, &mut self.text)?;
                (Name::of(name), name.len())
            } else {
                let (name, length, _) = self.field(index)?;
                (name, length)
            };
            begins |= name.begins();
            let value_at = input.at;
            let value = input.string(7, &mut self.text)?;
            let (fault, value_len) = (name.fault_of(value), value.len());
            let name = match (name, fault) {
                // No value would make them good.
                (Name::Te, Some(fault)) => Name::Bad(fault),
                (Name::Method, Some(fault)) if value_len == 0 => Name::Bad(fault),
                _ => name,
            };
            if is_kept {
                self.keep(name, name_len, value_len, fault);
            }
            if count.is_over(name) {
                if !is_kept {
                    let place = start..input.at;
                    let by = Vec::new();
                    tell(fault.unwrap_or(Fault::TooMany), Some(Patch { place, by }));
                    continue;
                }
                count.keep(name_len + value_len)?;
                tell(Fault::TooMany, None);
            }
            if let Some(fault) = fault {
                let by = replacement(block, start..value_at, name, name_len, value_len, is_kept)?;
                room = room.checked_sub(by.len()).ok_or(Broken::NoHpack)?;
                let place = start..input.at;
                tell(fault, Some(Patch { place, by }));
            }
        }
        // A whole request on a stream that has had one is for `h2` to judge: the stream may be
        // closed, and that is an error of the connection.
        if most.are_of_trailers() && begins != 0 && begins & REQUEST != REQUEST {
            tell(Fault::Pseudo, None);
        }
        Ok(())
    }

    /// The name, its length, and what is wrong with a field that the table has.
    fn field(&self, index: usize) -> Result<(Name, usize, Option<Fault>), Broken> {
        let index = index.checked_sub(1).ok_or(Broken::NoHpack)?;
        if let Some(length) = STATIC.get(index) {
            let name = Name::of_static(index + 1);
            let fault = match name {
                Name::Bad(fault) => Some(fault),
                _ => None,
            };
            return Ok((name, usize::from(*length), fault));
        }
        let entry = self
            .table
            .get(index - STATIC.len())
            .ok_or(Broken::NoHpack)?;
        Ok((entry.name, entry.name_len.into(), entry.fault))
    }

    fn keep(&mut self, name: Name, name_len: usize, value_len: usize, fault: Option<Fault>) {
        let size = name_len.saturating_add(value_len).saturating_add(OVERHEAD);
        self.evict(size);
        // One that does not fit only empties the table (RFC 7541, section 4.4).
        if let (Ok(name_len), Ok(value_len)) = (u16::try_from(name_len), u16::try_from(value_len))
            && size <= TABLE - self.less
        {
            let entry = TableEntry {
                name,
                name_len,
                value_len,
                fault,
                pinned: 0,
            };
            self.table.push_front(entry);
            self.size += size;
        }
    }

    /// Makes room for so much.
    fn evict(&mut self, room: usize) {
        while self.size.saturating_add(room) > TABLE - self.less {
            let Some(oldest) = self.table.pop_back() else {
                return;
            };
            self.size -= oldest.size();
            self.pinned -= oldest.pinned as usize;
        }
    }
}

/// The bytes that `h2` gets instead of a field that it would not take. `name_at` is where the field
/// begins, up to its value.
fn replacement(
    block: &[u8],
    name_at: Range<usize>,
    name: Name,
    name_len: usize,
    value_len: usize,
    is_kept: bool,
) -> Result<Vec<u8>, Broken> {
    let mut by = Vec::new();
    match name {
        Name::Bad(_) if is_kept => {
            // No field of `h2` is without a name.
            let length = (name_len + value_len)
                .checked_sub(1)
                .ok_or(Broken::NoHpack)?;
            by.extend(b"\x40\x01x");
            // More than the table holds empties it, however much it is.
            append_string(&mut by, &vec![b'x'; length.min(2 * TABLE)]);
        }
        Name::Bad(_) => {}
        _ => {
            by.extend_from_slice(&block[name_at]);
            append_string(&mut by, &name.filler(value_len));
        }
    }
    Ok(by)
}

fn spliced(block: &[u8], patches: Vec<Patch>) -> Vec<u8> {
    let mut made = Vec::with_capacity(block.len());
    let mut at = 0;
    for patch in patches {
        made.extend_from_slice(&block[at..patch.place.start]);
        made.extend(patch.by);
        at = patch.place.end;
    }
    made.extend_from_slice(&block[at..]);
    made
}

/// Appends the field that makes a request malformed for this server, and for no one else.
pub(super) fn mark(block: &mut Vec<u8>, fault: Fault) {
    block.push(0);
    append_string(block, MARK.as_bytes());
    append_string(block, &[fault.mark()]);
}

/// Appends a field that makes `h2` end the stream, and the stream alone: one about the connection.
pub(super) fn condemn(block: &mut Vec<u8>) {
    block.push(0);
    append_string(block, b"te");
    append_string(block, b"");
}

/// How long the names of the static table are (RFC 7541, appendix A).
#[rustfmt::skip]
const STATIC: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27,
    3, 5, 13, 13, 19, 16, 16, 14, 16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17,
    13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3,
    16,
];

#[cfg(test)]
mod tests;
