//! Files under directories, for requests that are not for PHP.
//!
//! [`Files`] looks for what a request's path names and answers with it: conditions, ranges, other
//! codings beside a file, pages of directories. Whatever a client writes, nothing outside of one
//! is served, nothing whose name begins with a dot, and no PHP source. Looking does not wait for a
//! disk on an I/O thread.

mod cache;
mod conditions;
mod entry;
mod forbidden;
mod kept_open;
mod path;
mod range;
mod reply;
mod root;
mod trusted;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use pronghorn_base::{LogThrottle, lock};
use pronghorn_h1::RequestHead;
use pronghorn_process::file::Patience;
use pronghorn_process::open_files::made_room;
use pronghorn_serve::{Body, Request, Response, wanted};
use tokio::time::Instant;

pub use entry::Tag;
pub use forbidden::Forbidden;
pub use pronghorn_process::file::Links;
pub use root::{CACHE_DURATION, RootSettings};

pub(crate) use conditions::Tags;
pub(crate) use reply::Asked;

use crate::coding::choose;
use entry::Entry;
use path::Named;
use reply::reply;
use root::{Found, Root};

/// Whether a file is a PHP source by its name, or a copy of one: such files are never sent.
pub fn is_php_source(path: &str) -> bool {
    path::is_php(path::name(path.as_bytes()))
}

/// Folders whose files are sent.
#[derive(Debug, Default)]
pub struct Files {
    roots: Vec<Root>,
}

/// The files of the chains of middleware that are in use, for `reset static`. A reload makes
/// another chain, and the old one goes with its last request.
#[derive(Debug, Default)]
pub(crate) struct FileCaches(Mutex<Vec<Weak<Files>>>);

impl FileCaches {
    pub(crate) fn add(&self, files: &Arc<Files>) {
        let mut all = lock(&self.0);
        all.retain(|files| files.strong_count() > 0);
        all.push(Arc::downgrade(files));
    }

    pub(crate) fn forget(&self) {
        let all = lock(&self.0).clone();
        for files in all.iter().filter_map(Weak::upgrade) {
            files.forget();
        }
    }
}

/// What there is for a request.
#[derive(Debug)]
pub enum Looked {
    Answer(Answer),
    /// No file: somebody else may know.
    Nothing,
    /// Only a disk can tell: ask [`Files::answer`].
    Later,
}

/// A file, a redirect or a refusal.
#[derive(Debug)]
pub struct Answer {
    pub response: Response,
    /// The path of a page that stands for that of the request, decoded: a route for it counts, too.
    pub page: Option<Vec<u8>>,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self {
            response,
            page: None,
        }
    }
}

/// What a path leads to, and by which root.
enum Place<'a> {
    /// The third is there for a page that stands for another path: its own path below the root.
    File(Arc<Entry>, &'a Root, Option<Vec<u8>>),
    Folder,
    Forbidden,
    Nothing,
}

impl Files {
    /// Looks into these directories, in this order.
    ///
    /// # Errors
    ///
    /// The number of the first folder that can't be opened, and why.
    pub fn open(roots: Vec<RootSettings>) -> Result<Self, (usize, io::Error)> {
        let open = |(number, root)| Root::open(root).map_err(|error| (number, error));
        let roots = roots.into_iter().enumerate().map(open);
        Ok(Self {
            roots: roots.collect::<Result<_, _>>()?,
        })
    }

    /// Looks at everything anew.
    pub(crate) fn forget(&self) {
        self.roots.iter().for_each(Root::forget);
    }

    /// What there is for a request, as far as that is known without waiting for a disk.
    pub fn look(&self, head: &RequestHead, now: Instant) -> Looked {
        self.look_at(head.path(), head, now)
    }

    fn look_at(&self, path: &[u8], head: &RequestHead, now: Instant) -> Looked {
        if !matches!(head.method(), "GET" | "HEAD") {
            return Looked::Nothing;
        }
        let named = Named::by(path);
        match self.find(&named, wants_page(head), now, Patience::None) {
            Ok(place) => answer(place, head).map_or(Looked::Nothing, Looked::Answer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || made_room(&error) => {
                Looked::Later
            }
            Err(error) => Looked::Answer(trouble(head, &error).into()),
        }
    }

    /// What there is for a request; `None` when that is no file.
    pub async fn answer(self: &Arc<Self>, request: &Request) -> Option<Answer> {
        match self.look(&request.head, request.accepted) {
            Looked::Answer(response) => Some(response),
            Looked::Nothing => None,
            Looked::Later => {
                self.answer_slowly(request, request.head.path().to_vec())
                    .await
            }
        }
    }

    /// The same with another path than the request's.
    pub(crate) async fn answer_at(
        self: &Arc<Self>,
        request: &Request,
        path: Vec<u8>,
    ) -> Option<Answer> {
        match self.look_at(&path, &request.head, request.accepted) {
            Looked::Answer(response) => Some(response),
            Looked::Nothing => None,
            Looked::Later => self.answer_slowly(request, path).await,
        }
    }

    async fn answer_slowly(self: &Arc<Self>, request: &Request, path: Vec<u8>) -> Option<Answer> {
        let head = &request.head;
        let (files, page) = (self.clone(), wants_page(head));
        let (now, for_answer) = (request.accepted, head.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let named = Named::by(&path);
            let find = || files.find(&named, page, now, Patience::Waits);
            match find().or_else(|error| {
                if made_room(&error) {
                    find()
                } else {
                    Err(error)
                }
            }) {
                Ok(place) => answer(place, &for_answer),
                Err(error) => Some(trouble(&for_answer, &error).into()),
            }
        });
        looking
            .await
            .unwrap_or_else(|panicked| Some(trouble(head, &io::Error::other(panicked)).into()))
    }

    /// What is at a normal path below one of the folders, whether it may be sent or not.
    pub(crate) fn kind(
        &self,
        path: &[u8],
        now: Instant,
        patience: Patience,
    ) -> io::Result<pronghorn_cgi::Found> {
        for root in &self.roots {
            let kind = root.kind(path, now, patience)?;
            if kind != pronghorn_cgi::Found::Nothing {
                return Ok(kind);
            }
        }
        Ok(pronghorn_cgi::Found::Nothing)
    }

    fn find(
        &self,
        named: &Named<'_>,
        page: bool,
        now: Instant,
        patience: Patience,
    ) -> io::Result<Place<'_>> {
        if *named == Named::Climbs {
            return Ok(Place::Forbidden);
        }
        for root in &self.roots {
            match root.find(named, page, now, patience)? {
                Found::File(entry) => return Ok(Place::File(entry, root, None)),
                Found::Page(entry, path) => return Ok(Place::File(entry, root, Some(path))),
                Found::Folder => return Ok(Place::Folder),
                Found::Nothing => {}
            }
        }
        Ok(Place::Nothing)
    }
}

/// Whether a path below a root may be named in its settings: nothing that a client could not ask
/// for.
pub(crate) fn is_servable(path: &str) -> bool {
    let whole = format!("/{path}");
    matches!(Named::by(whole.as_bytes()), Named::File(named) if *named == *path.as_bytes())
        && !path::is_php(path::name(path.as_bytes()))
}

/// The path below a prefix that a target such as `/files/a%20b.pdf?x` names, if it may name a file.
/// The application wrote it, and Symfony encodes its slashes, too.
pub(crate) fn below_prefix(target: &[u8], prefix: &str) -> Option<PathBuf> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let Named::File(path) = Named::by_application(&target[..end]) else {
        return None;
    };
    let rest = path::below(&path, prefix.trim_end_matches('/').as_bytes())?;
    let is_sent = !rest.is_empty() && !path::is_php(path::name(rest));
    is_sent.then(|| PathBuf::from(OsStr::from_bytes(rest)))
}

/// Whether an application may name a file so: nothing hidden, no PHP source, and nowhere up.
pub(crate) fn may_be_named(path: &Path) -> bool {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && is_public(None, path)
}

/// Whether nothing below a directory is hidden, and the file is no PHP source. Above the directory
/// there may be whatever names; without one, the file's own name is judged.
pub(crate) fn is_public(below: Option<&Path>, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let mut names = below.unwrap_or_else(|| Path::new(name)).components();
    let is_hidden = |name: Component<'_>| name.as_os_str().as_bytes().starts_with(b".");
    !names.any(is_hidden) && !path::is_php(name.as_bytes())
}

fn answer(place: Place<'_>, head: &RequestHead) -> Option<Answer> {
    let (entry, root, page) = match place {
        Place::File(entry, root, page) => (entry, root, page),
        Place::Folder => return Some(to_folder(head).into()),
        Place::Forbidden => return Some(Response::new(403, Body::Empty).into()),
        Place::Nothing => return None,
    };
    let request = head.fields();
    let mut form = &entry.plain;
    if !entry.coded.is_empty() {
        let there = |coding| entry.coded.iter().find(|(known, _)| *known == coding);
        let mut offered = root.precompressed().to_vec();
        offered.retain(|coding| there(*coding).is_some());
        if let Some((_, coded)) = choose(request, &offered).and_then(there) {
            form = coded;
        }
    }
    let response = reply(
        head.method(),
        request,
        form.fields.clone(),
        form.validators(),
        form.content.clone(),
        root.ranges(),
    );
    let page = page.map(|path| [root.prefix(), b"/", &path].concat());
    Some(Answer { response, page })
}

/// Pages of a directory refer to each other relative to it: its own path has to end in a slash.
pub(crate) fn to_folder(head: &RequestHead) -> Response {
    let mut response = Response::status_only(301);
    // A target with two slashes at its start would name another host.
    let path = head.path();
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    let mut location = vec![b'/'];
    location.extend_from_slice(&path[slashes..]);
    location.push(b'/');
    if let Some(query) = head.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    response.fields.push("Location", location);
    response
}

fn wants_page(head: &RequestHead) -> bool {
    wanted(head.fields(), "text/html") > 0
}

/// The system could not tell: out of descriptors, or a disk that fails. Another time it may.
pub(crate) fn trouble(head: &RequestHead, error: &io::Error) -> Response {
    static FAILED: LogThrottle = LogThrottle::new();
    if let Some(requests) = FAILED.should_log() {
        let path = String::from_utf8_lossy(head.path());
        tracing::error!(target: "http", URI = &*path, requests, "a file can't be looked at: {error}");
    }
    let mut response = Response::status_only(503);
    response
        .fields
        .push("Retry-After", crate::error::RETRY_AFTER);
    response
}

#[cfg(test)]
mod tests;
