//! RoadRunner's JSON trees of a form, which the `json` and `proto` codecs send: the fields as the
//! call's body, the files as its uploads.
//!
//! Names are taken apart as RoadRunner does it, since applications saw the result. In two things
//! the trees follow PHP: keys keep the order of the body, and an empty key in the middle of a name
//! is the next element of a list. Where one field would hide what another one says, the form is
//! refused. `docs/reference/forms.md` has the rules in a table.

mod name;

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use thiserror::Error;

use crate::{Entry, File, Form, Limits, UploadError, json, urlencoded};

/// Writes the fields of a form as a JSON object, `{}` when there are none. A file input left empty
/// is a field with an empty value, as RoadRunner has it.
///
/// # Errors
///
/// The client's; answer 400. `out` is as it was.
pub fn write_fields(form: &Form, limits: &Limits, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut tree = Tree::new(limits);
    for entry in &form.entries {
        match entry {
            Entry::Field { name, value } => tree.insert(name, Leaf::Text(Cow::Borrowed(value)))?,
            Entry::File(file) if file.is_empty_input() => {
                tree.insert(&file.name, Leaf::Text(Cow::Borrowed(b"")))?;
            }
            Entry::File(_) => {}
        }
    }
    tree.root.write(true, out);
    Ok(())
}

/// Writes the files of a form as a JSON object, `{}` when there are none. Each is an object of
/// `name` (without a path), `mime`, `size`, `error` and `tmpName`. Of several files under one plain
/// name the first counts.
///
/// # Errors
///
/// The client's; answer 400. `out` is as it was.
pub fn write_uploads(form: &Form, limits: &Limits, out: &mut Vec<u8>) -> Result<(), Error> {
    let mut tree = Tree::new(limits);
    for entry in &form.entries {
        if let Entry::File(file) = entry
            && !file.is_empty_input()
        {
            tree.insert(&file.name, Leaf::Upload(file))?;
        }
    }
    tree.root.write(true, out);
    Ok(())
}

/// Writes the fields of a urlencoded body as a JSON object, `{}` when there are none.
///
/// # Errors
///
/// The client's; answer 400. `out` is as it was.
pub fn write_urlencoded(
    body: &[u8],
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<(), UrlencodedError> {
    urlencoded::check(body, urlencoded::Rules::Strict, limits)?;
    let names: Vec<_> = urlencoded::pairs(body)
        .map(|pair| urlencoded::decode(pair.name))
        .collect();
    let mut tree = Tree::new(limits);
    for (name, pair) in names.iter().zip(urlencoded::pairs(body)) {
        tree.insert(name, Leaf::Text(urlencoded::decode(pair.value)))?;
    }
    tree.root.write(true, out);
    Ok(())
}

/// What stands at the end of a name.
enum Leaf<'a> {
    Text(Cow<'a, [u8]>),
    Upload(&'a File),
}

impl Leaf<'_> {
    /// An empty value gives way to any other thing of its name: browsers send it for an input that
    /// is there to announce the ones that may follow. It also stands where nothing is yet.
    fn gives_way(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    fn is_upload(&self) -> bool {
        matches!(self, Self::Upload(_))
    }
}

enum Value<'a> {
    Leaf(Leaf<'a>),
    Branch(Branch<'a>),
}

struct Branch<'a> {
    children: Vec<Child<'a>>,
    /// The next element's index by PHP's rule: one above the highest so far; none above the highest
    /// possible.
    next: Option<i64>,
    /// Every key was given as `[]`: it is written as a JSON array.
    is_list: bool,
}

struct Child<'a> {
    /// Of the key. Compared first, so that a thousand long keys cost no comparison of each with
    /// each; random for each tree, so that a client can't choose keys that collide.
    hash: u64,
    key: Cow<'a, str>,
    value: Value<'a>,
}

struct Tree<'a> {
    root: Branch<'a>,
    hasher: RandomState,
    levels: u8,
}

/// One name is used as a value and with keys.
struct Conflict;

impl<'a> Tree<'a> {
    fn new(limits: &Limits) -> Self {
        Self {
            root: Branch::new(),
            hasher: RandomState::new(),
            levels: limits.levels,
        }
    }

    fn insert(&mut self, name: &'a [u8], leaf: Leaf<'a>) -> Result<(), Error> {
        let keys = name::keys(name, self.levels).ok_or_else(|| Error::TooManyLevels {
            name: shown(name),
            limit: self.levels,
        })?;
        let last = keys.len().saturating_sub(1);
        let makes_list = keys.last().is_some_and(|key| key.is_empty());
        let conflict = |Conflict| Error::Conflict { name: shown(name) };

        let mut branch = &mut self.root;
        for (level, key) in keys.into_iter().enumerate() {
            let value = if level > 0 && key.is_empty() {
                branch.element(&self.hasher).map_err(conflict)?
            } else {
                branch.child(&self.hasher, key)
            };
            if level == last {
                return value.set(leaf).map_err(conflict);
            }
            let is_list = makes_list && level.saturating_add(1) == last;
            match value.open(&leaf, is_list).map_err(conflict)? {
                Some(opened) => branch = opened,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

impl<'a> Value<'a> {
    /// Puts a leaf where a name ends. A later value replaces an earlier one, and a list of values,
    /// as in PHP; a later file does not replace an earlier one, as in RoadRunner.
    fn set(&mut self, leaf: Leaf<'a>) -> Result<(), Conflict> {
        match self {
            Self::Leaf(Leaf::Upload(_)) => return Ok(()),
            Self::Leaf(_) => {}
            Self::Branch(_) if leaf.gives_way() => return Ok(()),
            Self::Branch(branch) if branch.is_list_of_values() && !leaf.is_upload() => {}
            Self::Branch(_) => return Err(Conflict),
        }
        *self = Self::Leaf(leaf);
        Ok(())
    }

    /// The branch where a name goes on to `leaf`; none when `leaf` gives way to the value that is
    /// here.
    fn open(
        &mut self,
        leaf: &Leaf<'a>,
        is_list: bool,
    ) -> Result<Option<&mut Branch<'a>>, Conflict> {
        if let Self::Leaf(old) = self {
            if !old.gives_way() {
                if leaf.gives_way() {
                    return Ok(None);
                }
                if !is_list || leaf.is_upload() {
                    return Err(Conflict);
                }
            }
            *self = Self::Branch(Branch::new());
        }
        match self {
            Self::Branch(branch) => Ok(Some(branch)),
            Self::Leaf(_) => Ok(None),
        }
    }
}

impl<'a> Branch<'a> {
    fn new() -> Self {
        Self {
            children: Vec::new(),
            next: Some(0),
            is_list: true,
        }
    }

    fn is_list_of_values(&self) -> bool {
        self.is_list
            && self
                .children
                .iter()
                .all(|child| matches!(child.value, Value::Leaf(_)))
    }

    fn child(&mut self, hasher: &RandomState, key: Cow<'a, str>) -> &mut Value<'a> {
        let hash = hasher.hash_one(&*key);
        if let Some(at) = self
            .children
            .iter()
            .position(|child| child.hash == hash && child.key == key)
        {
            &mut self.children.get_mut(at).expect("it was found there").value
        } else {
            self.is_list = false;
            self.add(hash, key)
        }
    }

    /// A new child behind the highest index.
    fn element(&mut self, hasher: &RandomState) -> Result<&mut Value<'a>, Conflict> {
        let key = self.next.ok_or(Conflict)?.to_string();
        Ok(self.add(hasher.hash_one(&*key), Cow::Owned(key)))
    }

    fn add(&mut self, hash: u64, key: Cow<'a, str>) -> &mut Value<'a> {
        if let (Some(index), Some(next)) = (name::index(&key), self.next)
            && index >= next
        {
            self.next = index.checked_add(1);
        }
        let value = Value::Leaf(Leaf::Text(Cow::Borrowed(b"")));
        self.children.push(Child { hash, key, value });
        &mut self
            .children
            .last_mut()
            .expect("it was added just now")
            .value
    }

    /// By recursion: a `u8` bounds the levels.
    fn write(&self, is_root: bool, out: &mut Vec<u8>) {
        let is_list = self.is_list && !is_root;
        out.push(if is_list { b'[' } else { b'{' });
        for (position, child) in self.children.iter().enumerate() {
            if position > 0 {
                out.push(b',');
            }
            if !is_list {
                json::string(out, child.key.as_bytes());
                out.push(b':');
            }
            match &child.value {
                Value::Branch(branch) => branch.write(false, out),
                Value::Leaf(Leaf::Text(text)) => json::string(out, text),
                Value::Leaf(Leaf::Upload(file)) => write_upload(file, out),
            }
        }
        out.push(if is_list { b']' } else { b'}' });
    }
}

fn write_upload(file: &File, out: &mut Vec<u8>) {
    let stored = file.error == UploadError::Ok;
    out.extend_from_slice(b"{\"name\":");
    json::string(out, file.base_name());
    out.extend_from_slice(b",\"mime\":");
    json::string(out, &file.media_type);
    out.extend_from_slice(b",\"size\":");
    json::number(out, if stored { file.size } else { 0 });
    out.extend_from_slice(b",\"error\":");
    json::number(out, u64::from(file.error.number()));
    out.extend_from_slice(b",\"tmpName\":");
    json::string(
        out,
        if stored {
            file.path.as_os_str().as_encoded_bytes()
        } else {
            b""
        },
    );
    out.push(b'}');
}

/// Why a form has no tree. Always the client's fault: answer 400. Names are shortened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// One of the fields would hide the other. RoadRunner says `invalid multiple values to key`.
    #[error(
        "field `{name}` contradicts an earlier one: a name is either a value or has keys in brackets; rename one"
    )]
    Conflict {
        /// The later one of the two.
        name: String,
    },
    /// Beyond [`Limits::levels`].
    #[error("field `{name}` has more than {limit} levels of brackets")]
    TooManyLevels {
        /// Of this field.
        name: String,
        /// What is accepted.
        limit: u8,
    },
}

fn shown(name: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(name.get(..SHOWN).unwrap_or(name));
    if name.len() > SHOWN {
        format!("{text}…")
    } else {
        text.into_owned()
    }
}

/// Why a urlencoded body has no tree. Always the client's fault: answer 400.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlencodedError {
    /// It is malformed, or beyond a limit.
    #[error(transparent)]
    Body(#[from] urlencoded::Error),
    /// Its fields contradict each other.
    #[error(transparent)]
    Tree(#[from] Error),
}
