//! Which script answers for a path: the rules of a document root. `docs/reference/scripts.md` has
//! them as a table.

use std::path::{Path as FilePath, PathBuf};

use crate::path::{BadPath, Path, is_hidden, segments};

/// What makes a file a script, in this case of letters.
const SCRIPT: &[u8] = b".php";

/// Which scripts of a site answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Answering {
    /// All.
    #[default]
    All,
    /// Scripts that a path names, and that stand for its directory; never the fallback.
    Named,
    /// The fallback alone, for all paths and by its name.
    Front,
    /// None: only files are sent.
    Nothing,
}

/// A document root and its rules.
#[derive(Debug, Clone)]
pub struct Site {
    root: PathBuf,
    index: Vec<String>,
    fallback: Option<Box<[u8]>>,
    /// With a slash at their start and none at their end.
    without_scripts: Vec<Box<[u8]>>,
    prefix: Box<[u8]>,
    answering: Answering,
}

/// What is at a path below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Something that must not be read: it lies outside of the root, for instance.
    Closed,
    /// Something that the system lets nobody of ours read.
    Unreadable,
    /// Nothing.
    Nothing,
}

/// What answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This script runs.
    Script(Script),
    /// A file that stands for a folder, by its path below the root; no script.
    Page(Box<[u8]>),
    /// A folder with a page or script of its own, asked for without the slash at its end: 301.
    Folder,
    /// There is something that is no script, and that may not be sent.
    Closed,
    /// 404.
    NotFound,
    /// 403: the path climbs, or its script can't be read.
    Forbidden,
    /// 400: it can't be a path.
    BadRequest,
}

impl From<BadPath> for Target {
    fn from(bad: BadPath) -> Self {
        match bad {
            BadPath::Climbs => Self::Forbidden,
            BadPath::Malformed => Self::BadRequest,
        }
    }
}

/// A script and what follows it in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    path: Box<[u8]>,
    name_len: usize,
}

impl Script {
    fn new(path: &[u8], name_len: usize) -> Self {
        Self {
            path: path.into(),
            name_len: name_len.min(path.len()),
        }
    }

    /// `SCRIPT_NAME`: the path below the root, with the slash at its start.
    pub fn name(&self) -> &[u8] {
        self.path.get(..self.name_len).unwrap_or_default()
    }

    /// `PATH_INFO`: empty, or with the slash at its start.
    pub fn info(&self) -> &[u8] {
        self.path.get(self.name_len..).unwrap_or_default()
    }

    /// Both.
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Site {
    /// `root` is absolute. `index` are the names that stand for a folder, scripts among them, in
    /// their order. `fallback` is the script, by its path below the root, for paths at which there
    /// is nothing.
    pub fn new(root: PathBuf, index: Vec<String>, fallback: Option<&str>) -> Self {
        let below = |script: &str| [b"/", script.trim_start_matches('/').as_bytes()].concat();
        Self {
            root,
            index,
            fallback: fallback.map(|script| below(script).into()),
            without_scripts: Vec::new(),
            prefix: Box::default(),
            answering: Answering::All,
        }
    }

    /// The same site, in which only these scripts answer. Others are as if they were not there.
    #[must_use]
    pub fn answering(self, answering: Answering) -> Self {
        Self { answering, ..self }
    }

    /// Folders, by their paths below the root, in which nothing runs: their scripts are as if they
    /// were not there.
    #[must_use]
    pub fn without_scripts_in(mut self, folders: &[String]) -> Self {
        let folder = |path: &String| [b"/", path.trim_matches('/').as_bytes()].concat().into();
        self.without_scripts = folders.iter().map(folder).collect();
        self
    }

    /// The same site below a path of its own, `/shop` for instance. What is asked for elsewhere is
    /// not there.
    #[must_use]
    pub fn at(mut self, prefix: &str) -> Self {
        self.prefix = prefix.trim_end_matches('/').as_bytes().into();
        self
    }

    /// What stands before its paths: empty, or with a slash at its start and none at its end.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// `DOCUMENT_ROOT`.
    pub fn root(&self) -> &FilePath {
        &self.root
    }

    /// Names that stand for a folder.
    pub fn index(&self) -> &[String] {
        &self.index
    }

    /// Whether a script is the one for paths at which there is nothing.
    pub fn is_fallback(&self, script: &Script) -> bool {
        self.fallback.as_deref() == Some(script.name())
    }

    /// Whether a path asks for a script by its name: no file in its place is ever sent.
    pub fn names_script(path: &Path<'_>) -> bool {
        segments(path.bytes()).any(is_script)
    }

    /// What answers for a path as it was received, after it turned out to be no file that may be
    /// sent. Where an encoded slash or a backslash begins to make it doubtful, nothing is looked
    /// for: it is the application's, as a page of its own or as what follows a script.
    ///
    /// `look` says what is at a path below the root, which begins with no slash; it must not follow
    /// links out of it.
    ///
    /// # Errors
    ///
    /// Those of `look`.
    pub fn resolve<E>(
        &self,
        received: &[u8],
        mut look: impl FnMut(&[u8]) -> Result<Found, E>,
    ) -> Result<Target, E> {
        let path = match Path::of(received) {
            Ok(path) => path,
            Err(bad) => return Ok(bad.into()),
        };
        let Some((path, certain)) = self.within(&path) else {
            return Ok(Target::NotFound);
        };
        let mut end = 0_usize;
        for (number, segment) in segments(path).enumerate() {
            end = end.saturating_add(1).saturating_add(segment.len());
            if end.min(path.len()) > certain {
                return self.otherwise(&mut look);
            }
            if is_hidden(segment, number == 0) {
                return self.hidden(path, certain, &mut look);
            }
            if !is_script(segment) {
                continue;
            }
            let script = path.get(..end).unwrap_or_default();
            if !self.may_run(script) {
                return Ok(Target::NotFound);
            }
            match look(below(script))? {
                Found::File => return Ok(Target::Script(Script::new(path, end))),
                Found::Unreadable => return Ok(Target::Forbidden),
                Found::Closed | Found::Nothing => return Ok(Target::NotFound),
                // A folder may be called so.
                Found::Folder => {}
            }
        }
        let folder = path.strip_suffix(b"/").unwrap_or(path);
        match look(below(folder))? {
            // The handler of files has not sent it.
            Found::File if folder.len() == path.len() => return Ok(Target::Closed),
            Found::Closed | Found::Unreadable => return Ok(Target::Closed),
            Found::File | Found::Nothing => {}
            Found::Folder => return self.index_of(folder, path, look),
        }
        self.otherwise(&mut look)
    }

    /// What stands for a folder, at a path with or without a slash at its end.
    fn index_of<E>(
        &self,
        folder: &[u8],
        path: &[u8],
        mut look: impl FnMut(&[u8]) -> Result<Found, E>,
    ) -> Result<Target, E> {
        for index in &self.index {
            let page = [folder, b"/", index.as_bytes()].concat();
            if is_script(index.as_bytes()) && !self.may_run(&page) {
                continue;
            }
            match look(below(&page))? {
                Found::File => {}
                Found::Unreadable => return Ok(Target::Forbidden),
                Found::Closed => return Ok(Target::Closed),
                Found::Folder | Found::Nothing => continue,
            }
            return Ok(if folder.len() == path.len() {
                Target::Folder
            } else if is_script(index.as_bytes()) {
                Target::Script(Script::new(&page, page.len()))
            } else {
                Target::Page(page.into())
            });
        }
        self.otherwise(&mut look)
    }

    /// A path with a hidden name in it. What is not there is the business of the front controller.
    fn hidden<E>(
        &self,
        path: &[u8],
        certain: usize,
        look: &mut impl FnMut(&[u8]) -> Result<Found, E>,
    ) -> Result<Target, E> {
        if certain == path.len()
            && !path.ends_with(b"/")
            && matches!(
                look(below(path))?,
                Found::File | Found::Closed | Found::Unreadable
            )
        {
            return Ok(Target::Closed);
        }
        self.otherwise(look)
    }

    /// What answers for a path as it was received in a site of programs: the first file on its way,
    /// whatever it is called. What follows is its `PATH_INFO`.
    ///
    /// # Errors
    ///
    /// Those of `look`, which is as that of [`resolve`](Self::resolve).
    pub fn resolve_program<E>(
        &self,
        received: &[u8],
        mut look: impl FnMut(&[u8]) -> Result<Found, E>,
    ) -> Result<Target, E> {
        let path = match Path::of(received) {
            Ok(path) => path,
            Err(bad) => return Ok(bad.into()),
        };
        let Some((path, certain)) = self.within(&path) else {
            return Ok(Target::NotFound);
        };
        if !matches!(self.answering, Answering::All | Answering::Named) {
            return Ok(Target::NotFound);
        }
        let mut end = 0_usize;
        for (number, segment) in segments(path).enumerate() {
            end = end.saturating_add(1).saturating_add(segment.len());
            if end > certain || segment.is_empty() || is_hidden(segment, number == 0) {
                break;
            }
            match look(below(path.get(..end).unwrap_or_default()))? {
                Found::File => return Ok(Target::Script(Script::new(path, end))),
                Found::Folder => {}
                Found::Unreadable => return Ok(Target::Forbidden),
                Found::Closed | Found::Nothing => break,
            }
        }
        Ok(Target::NotFound)
    }

    /// Whether the script at a path runs when that is asked for.
    fn may_run(&self, path: &[u8]) -> bool {
        let answers = match self.answering {
            Answering::All | Answering::Named => true,
            Answering::Front => self.fallback.as_deref() == Some(path),
            Answering::Nothing => false,
        };
        let is_in = |folder: &[u8]| {
            let rest = path.strip_prefix(folder);
            rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        };
        answers && !self.without_scripts.iter().any(|folder| is_in(folder))
    }

    /// A path without the prefix, which is empty for the prefix itself; and where its certain part
    /// ends.
    fn within<'a>(&self, path: &'a Path<'_>) -> Option<(&'a [u8], usize)> {
        let certain = path.certain().checked_sub(self.prefix.len())?;
        let path = path.bytes().strip_prefix(&*self.prefix)?;
        matches!(path, [] | [b'/', ..]).then_some((path, certain))
    }

    /// Nothing is at the path.
    fn otherwise<E>(&self, look: &mut impl FnMut(&[u8]) -> Result<Found, E>) -> Result<Target, E> {
        let answers = matches!(self.answering, Answering::All | Answering::Front);
        let Some(script) = self.fallback.as_ref().filter(|_| answers) else {
            return Ok(Target::NotFound);
        };
        Ok(match look(below(script))? {
            Found::File => Target::Script(Script::new(script, script.len())),
            Found::Unreadable => Target::Forbidden,
            Found::Folder | Found::Closed | Found::Nothing => Target::NotFound,
        })
    }
}

fn below(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

/// Whether a name is that of a script: the bytes `.php` at its end, and something before them.
pub fn is_script(name: &[u8]) -> bool {
    name.len() > SCRIPT.len() && name.ends_with(SCRIPT)
}

/// For fuzzing: what must hold for any path that a client sends, in a tree in which every path with
/// an even sum of bytes is a file and every third one a folder.
///
/// # Panics
///
/// When something is looked at, or runs, that a path must not lead to.
#[doc(hidden)]
pub fn fuzz_site(received: &[u8]) {
    const CLOSED: &str = "up/load";
    let index = ["index.php".to_owned(), "a.b".to_owned()];
    let site = Site::new("/srv".into(), index.into(), Some("/in/front.php"))
        .without_scripts_in(&[CLOSED.to_owned()]);
    let look = |path: &[u8]| -> Result<Found, std::convert::Infallible> {
        let doubtful = |segment: &[u8]| {
            matches!(segment, b"" | b"." | b"..") || segment.iter().any(|b| b"\0\\".contains(b))
        };
        assert!(
            path.is_empty() || !path.split(|&byte| byte == b'/').any(doubtful),
            "it looks at `{}`",
            path.escape_ascii()
        );
        let sum = path.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        Ok(match (sum % 2, sum % 3) {
            (0, _) => Found::File,
            (_, 0) => Found::Folder,
            _ => Found::Nothing,
        })
    };
    // Segments in front of the first that may be read as two.
    let is_one = |segment: &&[u8]| {
        let lower = segment.to_ascii_lowercase();
        let has = |code: &[u8]| lower.windows(code.len()).any(|it| it == code);
        !(has(b"\\") || has(b"%2f") || has(b"%5c"))
    };
    let certain = segments(received).take_while(is_one).count();
    for prefix in ["", "/shop"] {
        let site = site.clone().at(prefix);
        let Ok(target) = site.resolve(received, look);
        if let Target::Script(script) = &target {
            let name = script.name();
            let shown = name.escape_ascii();
            assert!(is_script(name), "`{shown}` runs");
            assert!(
                !name.starts_with(b"/up/load/"),
                "`{shown}` runs, where nothing does"
            );
            let depth = segments(name).count();
            let mut segments = segments(name).enumerate();
            let is_seen = |(number, it): (usize, &[u8])| !is_hidden(it, number == 0);
            assert!(segments.all(is_seen), "`{shown}` runs, and is hidden");
            assert!(matches!(script.info(), [] | [b'/', ..]), "`{shown}` is cut");
            assert!(
                name == b"/in/front.php" || depth <= certain,
                "`{shown}` is reached through an encoded slash"
            );
        }
        let Ok(target) = site.resolve_program(received, look);
        assert!(
            !matches!(target, Target::Page(_) | Target::Folder | Target::Closed),
            "a program is sent"
        );
    }
}

#[cfg(test)]
mod tests;
