//! One folder whose files are sent: which of them, and how they are found.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{LogThrottle, lock};
use pronghorn_cgi::path::WELL_KNOWN;
use pronghorn_process::file::{Links, Patience, open_below, open_folder, open_name, open_parent};
use pronghorn_wire::Fields;
use rustix::io::Errno;
use tokio::time::Instant;

use super::cache::Cache;
use super::entry::{Entry, Representation, Style, Tag};
use super::forbidden::Forbidden;
use super::is_servable;
use super::kept_open::KeptOpen;
use super::path::{Named, below, ending, is_php, name};
use super::trusted;
use crate::coding::Coding;
use crate::file::{Identity, Readers, open_for_everybody, open_root};

/// A larger file is opened for each request, which is nothing beside sending it: a file that was
/// removed keeps its place on the disk as long as somebody has it open.
const KEPT_OPEN: u64 = 8 << 20;

/// The settings of a directory whose files are sent.
#[derive(Debug, Clone)]
pub struct RootSettings {
    pub folder: PathBuf,
    /// The paths of requests that it stands for: `/` for all, `/assets` for this and what is below.
    pub prefix: String,
    /// Where files are looked for below the prefix: what paths begin with. Empty is everywhere.
    pub only: Vec<String>,
    /// The only endings that are served, in lower case with their dot; empty serves all.
    pub allow: Vec<String>,
    /// Files that are there and not sent.
    pub forbidden: Forbidden,
    /// Folders, by their paths below this one, in which no link leads to a script.
    pub no_scripts: Vec<String>,
    /// Names without an ending are looked up, too.
    pub without_ending: bool,
    /// What stands for a folder: the first that is there.
    pub index: Vec<String>,
    /// What a browser gets for a page that is not there.
    pub fallback: Option<String>,
    pub links: Links,
    /// Codings that files may lie in beside their plain form, the best first.
    pub precompressed: Vec<Coding>,
    pub tag: Tag,
    pub ranges: bool,
    /// Added to each response.
    pub fields: Fields,
    /// How long what was seen of a file is believed.
    pub cache_duration: Duration,
    /// The users who must be able to read a file before it is sent.
    pub(crate) readers: Readers,
}

impl RootSettings {
    /// A folder for the whole site.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            prefix: "/".to_owned(),
            only: Vec::new(),
            allow: Vec::new(),
            forbidden: Forbidden::default(),
            no_scripts: Vec::new(),
            without_ending: true,
            index: Vec::new(),
            fallback: None,
            links: Links::Inside,
            precompressed: Vec::new(),
            tag: Tag::Strong,
            ranges: true,
            fields: Fields::new(),
            cache_duration: CACHE_DURATION,
            readers: Readers::Server,
        }
    }
}

/// So short that nobody waits for a change to show, so long that under load files cost nothing but
/// their sending.
pub const CACHE_DURATION: Duration = Duration::from_secs(1);

/// The directory as it was found.
#[derive(Debug)]
struct OpenRoot {
    opened: OwnedFd,
    readers: Readers,
}

/// A folder and what is known of its files.
#[derive(Debug)]
pub(super) struct Root {
    settings: RootSettings,
    /// Without the slash at its end.
    prefix: Vec<u8>,
    style: Style,
    /// The folder, opened, and when: a deployment may put another one in its place.
    opened: Mutex<Option<(Arc<OpenRoot>, Instant)>>,
    cache: Cache,
    told_of_link: AtomicBool,
    told_of_old: AtomicBool,
}

/// What a path leads to.
#[derive(Debug)]
pub(super) enum Found {
    File(Arc<Entry>),
    /// One that stands for the path, and its own path below the root.
    Page(Arc<Entry>, Vec<u8>),
    /// A folder with a page of its own, asked for without the slash at its end.
    Folder,
    Nothing,
}

/// What is at a path.
enum Opened {
    File(File, Identity, Readers),
    Folder,
    /// Something that may not be served: it lies elsewhere, the system refuses it, or it is no
    /// regular file.
    Closed,
    /// Something that the system does not let us read.
    Unreadable,
    Nothing,
}

fn is_same(ending: &[u8], known: &str) -> bool {
    ending.eq_ignore_ascii_case(known.as_bytes())
}

impl Root {
    /// # Errors
    ///
    /// When the folder can't be opened, or its pages are nothing that may be sent.
    pub(super) fn open(settings: RootSettings) -> io::Result<Self> {
        let mut pages = settings.index.iter().chain(&settings.fallback);
        if let Some(page) = pages.find(|page| !is_servable(page)) {
            let why = format!("`{page}` can't be a page of it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        open_folder(&settings.folder)?;
        Ok(Self {
            prefix: settings.prefix.trim_end_matches('/').as_bytes().to_vec(),
            style: Style {
                tag: settings.tag,
                ranges: settings.ranges,
                fields: settings.fields.clone(),
                varies: !settings.precompressed.is_empty(),
            },
            opened: Mutex::default(),
            cache: Cache::new(settings.cache_duration, KeptOpen::of_process()),
            told_of_link: AtomicBool::new(false),
            told_of_old: AtomicBool::new(false),
            settings,
        })
    }

    /// Looks at the folder and all files anew.
    pub(super) fn forget(&self) {
        drop(lock(&self.opened).take());
        self.cache.clear();
    }

    /// Without the slash at its end.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    pub(super) fn ranges(&self) -> bool {
        self.settings.ranges
    }

    pub(super) fn precompressed(&self) -> &[Coding] {
        &self.settings.precompressed
    }

    /// Looks for what a path names. `wants_page` when a browser asks for something to show.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when that would take [patience](Patience); what else keeps the system from
    /// telling.
    pub(super) fn find(
        &self,
        named: &Named<'_>,
        wants_page: bool,
        now: Instant,
        patience: Patience,
    ) -> io::Result<Found> {
        if !self.is_below_prefixes(named) {
            return Ok(Found::Nothing);
        }
        let found = match named {
            Named::File(path) => match below(path, &self.prefix) {
                Some(b"") if !self.settings.index.is_empty() => Found::Folder,
                Some(path) => self.file(path, now, patience)?,
                None => return Ok(Found::Nothing),
            },
            Named::Folder(path) => match below(path, &self.prefix) {
                Some(path) => self.page_of(path, now, patience)?,
                None => return Ok(Found::Nothing),
            },
            Named::Climbs | Named::Nothing => return Ok(Found::Nothing),
        };
        match (&found, &self.settings.fallback) {
            (Found::Nothing, Some(fallback)) if wants_page && !has_ending(named) => {
                let path = fallback.as_bytes();
                let page = self.entry(path, now, patience)?;
                Ok(page.map_or(Found::Nothing, |page| Found::Page(page, path.to_vec())))
            }
            _ => Ok(found),
        }
    }

    fn is_below_prefixes(&self, named: &Named<'_>) -> bool {
        let (path, end) = match named {
            Named::File(path) => (path, ""),
            Named::Folder(path) => (path, "/"),
            Named::Climbs | Named::Nothing => return true,
        };
        let begins = |prefix: &String| {
            let prefix = prefix.trim_start_matches('/').as_bytes();
            path.starts_with(prefix) || prefix == [path, end.as_bytes()].concat()
        };
        self.settings.only.is_empty() || self.settings.only.iter().any(begins)
    }

    fn file(&self, path: &[u8], now: Instant, patience: Patience) -> io::Result<Found> {
        if !self.serves(path) {
            return Ok(Found::Nothing);
        }
        if let Some(entry) = self.entry(path, now, patience)? {
            return Ok(Found::File(entry));
        }
        let is_folder = !self.settings.index.is_empty()
            && matches!(self.look(path, now, patience)?, Opened::Folder);
        Ok(if is_folder {
            Found::Folder
        } else {
            Found::Nothing
        })
    }

    fn page_of(&self, folder: &[u8], now: Instant, patience: Patience) -> io::Result<Found> {
        for index in &self.settings.index {
            let path = match folder {
                [] => index.as_bytes().to_vec(),
                folder => [folder, b"/", index.as_bytes()].concat(),
            };
            if let Some(entry) = self.entry(&path, now, patience)? {
                return Ok(Found::Page(entry, path));
            }
        }
        Ok(Found::Nothing)
    }

    /// Whether a file of this name may be sent at all.
    fn serves(&self, path: &[u8]) -> bool {
        let name = name(path);
        if is_php(name) {
            return false;
        }
        let Some(ending) = ending(name) else {
            let settings = &self.settings;
            let looks = settings.without_ending || !settings.index.is_empty();
            return (looks || self.is_well_known(path)) && settings.allow.is_empty();
        };
        let allow = &self.settings.allow;
        allow.is_empty() || allow.iter().any(|allowed| is_same(ending, allowed))
    }

    /// Whether clients look for it at a path of RFC 8615, where names seldom have an ending.
    fn is_well_known(&self, path: &[u8]) -> bool {
        let at = [&self.prefix, &b"/"[..], path].concat();
        at.starts_with(&[b"/", WELL_KNOWN, b"/"].concat())
    }

    /// A file with all its forms: from the cache, or looked at again.
    fn entry(
        &self,
        path: &[u8],
        now: Instant,
        patience: Patience,
    ) -> io::Result<Option<Arc<Entry>>> {
        let known = self.cache.get(path);
        if let Some(entry) = &known
            && self.cache.is_fresh(entry, now)
        {
            return Ok(known);
        }
        let old = known.as_ref().map(|entry| &entry.plain);
        let Some(plain) = self.representation(path, None, old, now, patience)? else {
            if known.is_some() {
                self.cache.remove(path);
            }
            return Ok(None);
        };
        let mut coded = Vec::new();
        for &coding in &self.settings.precompressed {
            let beside = [path, coding.ending().as_bytes()].concat();
            let coding = (coding, path);
            let known = known.as_ref().and_then(|known| {
                let mut coded = known.coded.iter();
                coded.find(|(other, _)| *other == coding.0)
            });
            let old = known.map(|(_, old)| old);
            let form = self.representation(&beside, Some(coding), old, now, patience)?;
            match form {
                // Made of another version of the file.
                Some(form) if form.is_older_than(&plain) => self.tell_of_old(&beside),
                form => coded.extend(form.map(|form| (coding.0, form))),
            }
        }
        let entry = Arc::new(Entry {
            plain,
            coded,
            seen: now,
        });
        let forms = entry.coded.iter().map(|(_, form)| form);
        if forms
            .chain([&entry.plain])
            .all(|form| form.content.len() <= KEPT_OPEN)
        {
            self.cache.put(path, entry.clone());
        }
        Ok(Some(entry))
    }

    /// One form of a file; the `old` one if that is still what is there.
    fn representation(
        &self,
        path: &[u8],
        coding: Option<(Coding, &[u8])>,
        old: Option<&Arc<Representation>>,
        now: Instant,
        patience: Patience,
    ) -> io::Result<Option<Arc<Representation>>> {
        let Opened::File(file, identity, readers) = self.look(path, now, patience)? else {
            return Ok(None);
        };
        let file = match readers {
            Readers::Server => file,
            Readers::Everybody if patience == Patience::None => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Readers::Everybody => match open_for_everybody(&file) {
                Ok(file) => file,
                Err(error) => {
                    tell_of_unreadable(&self.settings.folder.join(as_path(path)), &error);
                    return Ok(None);
                }
            },
        };
        if let Some(old) = old.filter(|old| old.is(&identity)) {
            return Ok(Some(old.clone()));
        }
        let plain = coding.map_or(path, |(_, plain)| plain);
        let coding = coding.map(|(coding, _)| coding);
        let opened = (file, identity);
        let new = Representation::new(as_path(plain), coding, opened, &self.style, patience)?;
        Ok(Some(Arc::new(new)))
    }

    /// What is at a path, whether it may be sent or not.
    pub(super) fn kind(
        &self,
        path: &[u8],
        now: Instant,
        patience: Patience,
    ) -> io::Result<pronghorn_cgi::Found> {
        Ok(match self.look(path, now, patience)? {
            Opened::File(..) => pronghorn_cgi::Found::File,
            Opened::Folder => pronghorn_cgi::Found::Folder,
            Opened::Closed => pronghorn_cgi::Found::Closed,
            Opened::Unreadable => pronghorn_cgi::Found::Unreadable,
            Opened::Nothing => pronghorn_cgi::Found::Nothing,
        })
    }

    fn look(&self, path: &[u8], now: Instant, patience: Patience) -> io::Result<Opened> {
        let path = as_path(path);
        let root = self.folder(now, patience)?;
        // First without links, which is how nearly all are: the name that a link leads to has to be
        // judged as well.
        let mut opened = open_below(&root.opened, path, Links::Never, patience);
        if self.settings.links != Links::Never && opened.as_ref().is_err_and(is_link) {
            if patience == Patience::None {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !self.leads_to_what_is_sent(path) {
                return Ok(Opened::Closed);
            }
            opened = open_below(&root.opened, path, self.settings.links, patience);
        }
        let opened = match opened {
            Err(error) if error.kind() == io::ErrorKind::Unsupported || leads_elsewhere(&error) => {
                if patience == Patience::None {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                self.open_slowly(&root.opened, path)
            }
            opened => opened,
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(Opened::Nothing),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if self.settings.forbidden.has(path.as_os_str().as_bytes()) {
                    return Ok(Opened::Closed);
                }
                tell_of_unreadable(&self.settings.folder.join(path), &error);
                return Ok(Opened::Unreadable);
            }
            Err(error) if is_closed(&error) => {
                if self.settings.links == Links::Never && is_link(&error) {
                    self.tell_of_link(&self.settings.folder.join(path), None);
                }
                return Ok(Opened::Closed);
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        Ok(if metadata.is_file() {
            let identity = Identity::of(&metadata);
            if self.settings.forbidden.has(path.as_os_str().as_bytes()) || identity.is_own(&file) {
                return Ok(Opened::Closed);
            }
            Opened::File(file, identity, root.readers)
        } else if metadata.is_dir() {
            Opened::Folder
        } else {
            Opened::Closed
        })
    }

    /// Whether a link hides nothing that is not sent by its own name: a hidden or forbidden file or
    /// a PHP source, by which no script is meant; and no script where none runs. One that leads
    /// nowhere is not this function's.
    fn leads_to_what_is_sent(&self, link: &Path) -> bool {
        let RootSettings {
            folder,
            no_scripts,
            forbidden,
            ..
        } = &self.settings;
        let (Ok(real), Ok(root)) = (folder.join(link).canonicalize(), folder.canonicalize()) else {
            return true;
        };
        // Above the root there may be whatever names.
        let names = real
            .strip_prefix(&root)
            .unwrap_or_else(|_| Path::new(real.file_name().unwrap_or_default()));
        let is_hidden = |name: Component<'_>| name.as_os_str().as_bytes().starts_with(b".");
        let is_source = |path: &Path| path.file_name().is_some_and(|name| is_php(name.as_bytes()));
        let runs_nowhere = |below: &String| {
            let nowhere = root.join(below).canonicalize();
            nowhere.is_ok_and(|nowhere| real.starts_with(nowhere))
        };
        let may_be_run = !is_source(link) || !no_scripts.iter().any(runs_nowhere);
        !names.components().any(is_hidden)
            && !forbidden.has(names.as_os_str().as_bytes())
            && (is_source(link) || !is_source(names))
            && may_be_run
    }

    /// The folder itself, opened anew from time to time: what is at its path may be another one
    /// now.
    fn folder(&self, now: Instant, patience: Patience) -> io::Result<Arc<OpenRoot>> {
        let mut opened = lock(&self.opened);
        if let Some((root, since)) = &*opened
            && now.saturating_duration_since(*since) < CACHE_DURATION
        {
            return Ok(root.clone());
        }
        if patience == Patience::None {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (opened_now, mut readers) = open_root(&self.settings.folder)?;
        if self.settings.readers == Readers::Everybody {
            readers = Readers::Everybody;
        }
        let root = Arc::new(OpenRoot {
            opened: opened_now,
            readers,
        });
        *opened = Some((root.clone(), now));
        Ok(root)
    }

    /// Without the kernel's guarantee, or for a link that it can't judge: an absolute one may lead
    /// back into the folder. What it leads to is found first, and then opened step by step without
    /// any link.
    fn open_slowly(&self, folder: &OwnedFd, path: &Path) -> io::Result<File> {
        let whole = self.settings.folder.join(path);
        let real = match self.settings.links {
            Links::Never => path.to_owned(),
            Links::Inside => {
                let real = whole.canonicalize()?;
                match real.strip_prefix(self.settings.folder.canonicalize()?) {
                    Ok(real) => real.to_owned(),
                    Err(_) => {
                        let Some(real) = trusted::target(&self.settings.folder, path)? else {
                            self.tell_of_link(&whole, Some(&real));
                            return Err(Errno::XDEV.into());
                        };
                        return Ok(open_name(folder, &real, false)?.into());
                    }
                }
            }
            Links::Anywhere => {
                let file = open_name(folder, &whole.canonicalize()?, false)?;
                return Ok(file.into());
            }
        };
        let name = real.file_name().ok_or(io::ErrorKind::NotFound)?;
        let parent = open_parent(folder.try_clone()?, &real, |_| Ok(()))?;
        Ok(open_name(&parent, Path::new(name), false)?.into())
    }

    fn tell_of_old(&self, path: &[u8]) {
        if !self.told_of_old.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "http",
                "`{}` is older than the file that it is to stand for, and is not served: compress that again (said once)",
                self.settings.folder.join(as_path(path)).display()
            );
        }
    }

    fn tell_of_link(&self, link: &Path, target: Option<&Path>) {
        if self.told_of_link.swap(true, Ordering::Relaxed) {
            return;
        }
        let link = link.display();
        match target {
            Some(target) => tracing::warn!(
                target: "http",
                "`{link}` leads out of its folder, to `{}`, and is not served (said once); hint: for files that \
                 visitors uploaded, a folder of its own in `http.static.serve` sends them and runs nothing; \
                 `symlinks: anywhere` beside the folder follows all links, to scripts as well",
                target.display()
            ),
            None => tracing::warn!(
                target: "http",
                "`{link}` is, or lies behind, a symbolic link, and is not served (said once): `symlinks` is `never`"
            ),
        }
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn has_ending(named: &Named<'_>) -> bool {
    match named {
        Named::File(path) => ending(name(path)).is_some(),
        Named::Folder(_) | Named::Climbs | Named::Nothing => false,
    }
}

fn leads_elsewhere(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::XDEV)
}

/// Whether there is nothing, which is no failure.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || matches!(
        Errno::from_io_error(error),
        Some(Errno::NAMETOOLONG | Errno::INVAL)
    )
}

fn tell_of_unreadable(path: &Path, error: &io::Error) {
    static DENIED: LogThrottle = LogThrottle::new();
    if let Some(requests) = DENIED.should_log() {
        let path = path.display();
        tracing::warn!(
            target: "http", requests,
            "`{path}` is asked for and can't be read: {error}; hint: `chmod a+r {path}`; `namei -l {path}` shows who \
             may enter its directories"
        );
    }
}

/// Whether there is something that can't be sent: a link that is not followed, a socket.
fn is_closed(error: &io::Error) -> bool {
    is_link(error) || matches!(Errno::from_io_error(error), Some(Errno::XDEV | Errno::NXIO))
}

/// Whether a link was in the way that is not followed.
fn is_link(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}
