//! A file as it is sent: what is in it, or where it is, and the fields that describe it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use pronghorn_process::file::{Patience, read_at};
use pronghorn_serve::{Body, OpenFile, Part};
use pronghorn_wire::Fields;
use tokio::time::Instant;

use super::conditions::{Validators, date};
use super::kept_open::KeptPermit;
use crate::coding::Coding;
use crate::file::{Identity, content_type};

/// Up to this size a file is kept in memory: sent together with its head, it costs one write.
const IN_MEMORY: u64 = 32 << 10;

/// A file, and others that hold it in a coding.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) plain: Arc<Representation>,
    pub(super) coded: Vec<(Coding, Arc<Representation>)>,
    /// When all this was so.
    pub(super) seen: Instant,
}

/// One form of a file.
#[derive(Debug)]
pub(super) struct Representation {
    identity: Identity,
    pub(super) content: Content,
    pub(super) fields: Fields,
    etag: Option<String>,
    modified: u64,
    /// The permit of its descriptor, once a cache has it.
    kept: OnceLock<KeptPermit>,
}

/// What a file holds.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Memory(Bytes),
    File(OpenFile),
}

/// How files tell that they have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    None,
    Strong,
    Weak,
}

/// What all files of a root say of themselves.
#[derive(Debug)]
pub(super) struct Style {
    pub(super) tag: Tag,
    pub(super) ranges: bool,
    /// Of the operator's, at the end.
    pub(super) fields: Fields,
    /// Whether other forms may lie beside a file.
    pub(super) varies: bool,
}

impl Entry {
    fn forms(&self) -> impl Iterator<Item = &Arc<Representation>> {
        let coded = self.coded.iter().map(|(_, form)| form);
        [&self.plain].into_iter().chain(coded)
    }

    /// Whether it holds descriptors.
    pub(super) fn is_open(&self) -> bool {
        self.forms().any(|form| form.is_open())
    }

    /// Whether it may be kept: each of its descriptors needs a permit.
    pub(super) fn is_kept_open(&self, permit: impl Fn() -> Option<KeptPermit>) -> bool {
        let mut open = self.forms().filter(|form| form.is_open());
        open.all(|form| {
            form.kept.get().is_some()
                || permit().is_some_and(|permit| {
                    _ = form.kept.set(permit); // somebody else may have set one
                    true
                })
        })
    }
}

impl Identity {
    /// From time and size, as nginx has it, with all that the clock gives.
    pub(crate) fn tag(&self, tag: Tag) -> Option<String> {
        let weak = match tag {
            Tag::None => return None,
            Tag::Strong => "",
            Tag::Weak => "W/",
        };
        let (seconds, nanos) = self.modified;
        Some(format!("{weak}\"{seconds:x}.{nanos:x}-{:x}\"", self.len))
    }
}

impl Representation {
    /// # Errors
    ///
    /// When the disk fails, or without patience would have to be waited for.
    pub(super) fn new(
        path: &Path,
        coding: Option<Coding>,
        (file, identity): (File, Identity),
        style: &Style,
        patience: Patience,
    ) -> io::Result<Self> {
        let etag = identity.tag(style.tag);
        let modified = identity.modified();
        let mut fields = Fields::new();
        fields.push("Content-Type", type_with_charset(path));
        if let Some(coding) = coding {
            fields.push("Content-Encoding", coding.name());
        }
        fields.push("Last-Modified", date(modified));
        if let Some(etag) = &etag {
            fields.push("ETag", etag);
        }
        if style.ranges {
            fields.push("Accept-Ranges", "bytes");
        }
        for (name, value) in style.fields.iter() {
            // The operator knows better; an empty text removes one.
            fields.remove(name);
            if !value.is_empty() {
                fields.push(name, value);
            }
        }
        if style.varies {
            fields.push("Vary", "Accept-Encoding");
        }
        Ok(Self {
            content: Content::of(file, identity.len, patience)?,
            fields: in_one_buffer(&fields),
            identity,
            etag,
            modified,
            kept: OnceLock::new(),
        })
    }

    fn is_open(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    pub(super) fn is(&self, identity: &Identity) -> bool {
        self.identity == *identity
    }

    /// By whole seconds: an archive keeps no more of a time, and programs that compress take it
    /// over.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.modified < other.modified
    }

    pub(super) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.etag.as_deref().map(str::as_bytes),
            modified: Some(self.modified),
        }
    }
}

impl Content {
    fn of(file: File, len: u64, patience: Patience) -> io::Result<Self> {
        if len > IN_MEMORY {
            return Ok(Self::File(OpenFile::new(file, len)));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        let mut read = 0;
        while read < bytes.len() {
            match read_at(&file, &mut bytes[read..], read as u64, patience)? {
                // It is being written.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        Ok(Self::Memory(bytes.into()))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.size(),
        }
    }

    /// A stretch of it.
    pub(crate) fn part(&self, range: std::ops::Range<u64>) -> Part {
        match self {
            Self::Memory(bytes) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Part::Bytes(bytes.slice(place(range.start)..place(range.end)))
            }
            Self::File(file) => Part::File(file.stretch(range)),
        }
    }
}

impl From<Content> for Body {
    fn from(content: Content) -> Self {
        match content {
            Content::Memory(bytes) if bytes.is_empty() => Self::Empty,
            Content::Memory(bytes) => Self::Whole(bytes),
            Content::File(file) => Self::File(file),
        }
    }
}

/// Text is UTF-8, as RoadRunner has it too: without a word on it, browsers guess. HTML and XML say
/// it themselves, and a charset in the field would count more than that (WHATWG HTML, 13.2.3.2; RFC
/// 7303, section 3).
fn type_with_charset(path: &Path) -> String {
    let content_type = content_type(path);
    let says_itself =
        matches!(content_type, "text/html" | "text/xml") || content_type.ends_with("+xml");
    if content_type.starts_with("text/") && !says_itself {
        format!("{content_type}; charset=utf-8")
    } else {
        content_type.to_owned()
    }
}

/// The same fields so that a copy of them shares the text.
fn in_one_buffer(fields: &Fields) -> Fields {
    let mut buffer = BytesMut::new();
    let mut places = Vec::with_capacity(fields.len());
    for (name, value) in fields.iter() {
        let start = buffer.len();
        buffer.put_slice(name);
        buffer.put_slice(value);
        places.push(((start, name.len()), (start + name.len(), value.len())));
    }
    let mut shared = Fields::over(buffer.freeze(), places.len());
    for (name, value) in places {
        let is_inside = shared.push_received(name, value);
        debug_assert!(is_inside, "both were just written");
    }
    shared
}

#[cfg(test)]
impl Entry {
    pub(super) fn empty(seen: Instant) -> Self {
        let identity = Identity {
            device: 0,
            inode: 0,
            len: 0,
            modified: (0, 0),
            changed: (0, 0),
        };
        let plain = Representation {
            identity,
            content: Content::Memory(Bytes::new()),
            fields: Fields::new(),
            etag: None,
            modified: 0,
            kept: OnceLock::new(),
        };
        Self {
            plain: Arc::new(plain),
            coded: Vec::new(),
            seen,
        }
    }

    /// With a descriptor.
    pub(super) fn open(seen: Instant) -> Self {
        let mut open = Self::empty(seen);
        let plain = Arc::get_mut(&mut open.plain).expect("it is nobody else's");
        let file = File::open("/dev/null").expect("every system has it");
        plain.content = Content::File(OpenFile::new(file, 1 << 20));
        open
    }

    pub(super) fn seen_again(&self, seen: Instant) -> Self {
        Self {
            plain: self.plain.clone(),
            coded: self.coded.clone(),
            seen,
        }
    }
}
