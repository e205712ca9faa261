//! Header fields and attributes: an ordered list of names and values over one buffer.

use std::fmt;

use bytes::Bytes;

/// Names and values in their order; a name may occur more than once.
///
/// What was received stays in the buffer it came in; what is added later goes to a second one. So
/// decoding copies nothing and a middleware can still add, replace and remove.
#[derive(Clone, Default)]
pub struct Fields {
    received: Bytes,
    added: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    name: Span,
    value: Span,
}

/// A place in `received`, or behind its end in `added`.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Fields {
    /// No fields, nothing allocated.
    pub const fn new() -> Self {
        Self {
            received: Bytes::new(),
            added: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// No fields yet; [`push_received`](Self::push_received) will name places in `received`, in
    /// most cases not more than `capacity`.
    pub fn over(received: Bytes, capacity: usize) -> Self {
        Self {
            received,
            added: Vec::new(),
            entries: Vec::with_capacity(capacity),
        }
    }

    /// Adds a field that lies in the received buffer: two pairs of start and length.
    ///
    /// Returns false, and adds nothing, when one of them leaves the buffer.
    pub fn push_received(&mut self, name: (usize, usize), value: (usize, usize)) -> bool {
        match (self.received_span(name), self.received_span(value)) {
            (Some(name), Some(value)) => {
                self.entries.push(Entry { name, value });
                true
            }
            _ => false,
        }
    }

    fn received_span(&self, (start, len): (usize, usize)) -> Option<Span> {
        (start.checked_add(len)? <= self.received.len()).then_some(Span {
            start: u32::try_from(start).ok()?,
            len: u32::try_from(len).ok()?,
        })
    }

    /// Adds a field at the end.
    ///
    /// # Panics
    ///
    /// When all fields together pass 4 GiB, which every caller's own limit excludes.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        let more = name.len().saturating_add(value.len());
        if self.added.capacity() == 0 {
            // Mostly it stays the only one; to make room takes twice as long.
            self.added = Vec::with_capacity(more);
        } else {
            self.added.reserve(more);
        }
        let entry = Entry {
            name: self.append(name),
            value: self.append(value),
        };
        self.entries.push(entry);
    }

    fn append(&mut self, text: &[u8]) -> Span {
        let start = self.received.len().saturating_add(self.added.len());
        self.added.extend_from_slice(text);
        Span {
            start: u32::try_from(start).expect("fields stay far below 4 GiB"),
            len: u32::try_from(text.len()).expect("fields stay far below 4 GiB"),
        }
    }

    /// Replaces every field of this name by one at the end.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.remove(name.as_ref());
        self.push(name, value);
    }

    /// Removes every field of this name; true when there was one.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let before = self.entries.len();
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| !self.text(entry.name).eq_ignore_ascii_case(name.as_ref()));
        self.entries = entries;
        self.entries.len() != before
    }

    /// Keeps the fields of which that is true, by name and value.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| keep(self.text(entry.name), self.text(entry.value)));
        self.entries = entries;
    }

    /// The value of the first field of this name, compared without case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        // Most names are told apart by their length, without a look at their text.
        let is_named = move |entry: &&Entry| {
            entry.name.len as usize == name.len()
                && self.text(entry.name).eq_ignore_ascii_case(name.as_bytes())
        };
        self.entries
            .iter()
            .filter(is_named)
            .map(|entry| self.text(entry.value))
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        self.entries
            .iter()
            .map(|entry| (self.text(entry.name), self.text(entry.value)))
    }

    fn text(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        let (buffer, start) = match start.checked_sub(self.received.len()) {
            Some(start) => (self.added.as_slice(), start),
            None => (self.received.as_ref(), start),
        };
        buffer
            .get(start..start.saturating_add(span.len as usize))
            .unwrap_or_default()
    }

    /// The buffer that the received fields lie in.
    pub fn received(&self) -> &Bytes {
        &self.received
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        f.debug_list()
            .entries(self.iter().map(|(n, v)| (text(n), text(v))))
            .finish()
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut all = Self::new();
        for (name, value) in fields {
            all.push(name, value);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_and_added_fields_keep_their_order() {
        let mut fields = Fields::over(Bytes::from_static(b"hostexample.org"), 1);
        assert!(fields.push_received((0, 4), (4, 11)));
        fields.push("accept", "*/*");
        fields.push("accept", "text/html");
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(
            all,
            [
                (&b"host"[..], &b"example.org"[..]),
                (b"accept", b"*/*"),
                (b"accept", b"text/html")
            ]
        );
        assert_eq!(fields.get("Host"), Some(&b"example.org"[..]));
        assert_eq!(fields.all("ACCEPT").count(), 2);
    }

    #[test]
    fn set_leaves_one_field_and_remove_none() {
        let mut fields: Fields = [("A", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        fields.set("a", "4");
        assert_eq!(fields, [("b", "2"), ("a", "4")].into_iter().collect());
        assert!(fields.remove("A"));
        assert!(!fields.remove("A"));
        assert_eq!(fields.len(), 1);
    }

    #[test]
    fn a_place_outside_the_buffer_is_refused() {
        let mut fields = Fields::over(Bytes::from_static(b"abc"), 0);
        assert!(!fields.push_received((0, 4), (0, 1)));
        assert!(!fields.push_received((0, 1), (usize::MAX, 1)));
        assert!(fields.is_empty());
    }
}
