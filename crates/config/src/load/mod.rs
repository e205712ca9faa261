//! From files, variables and overrides to one tree.
//!
//! Order: variables of `--dotenv` and `envfile`; the file; what it includes, which wins over it;
//! `-o`, which wins over both; then variables are put into what is left.

mod include;
mod merge;
mod overrides;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostics, Severity};
use crate::era::Compat;
use crate::expand::{Allowance, Expander};
use crate::node::{Map, Value, same_name};
use crate::place::Place;
use crate::resolve::{Difference, Resolved};
use crate::setting::one_line;
use crate::table::{Section, Table};
use crate::yaml::MAX_FILE_BYTES;
use crate::{dotenv, era, resolve, yaml};

pub use overrides::Preset;

/// Looked for in this order in the working folder when no file is named.
pub const MAIN_FILES: [&str; 2] = ["pronghorn.yaml", ".rr.yaml"];

/// What to load, and from where. Reads nothing of the process, so that tests can say it all.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The working folder; relative paths begin here. Empty is the process's own.
    pub folder: PathBuf,
    /// The file, `-c`; None looks for [`MAIN_FILES`].
    pub file: Option<PathBuf>,
    /// Keys that code sets. Overrides win over them.
    pub presets: Vec<Preset>,
    /// `key.path=value`, each as given to `-o`, in their order.
    pub overrides: Vec<String>,
    /// A file of variables, `--dotenv`.
    pub dotenv: Option<PathBuf>,
    /// The environment that values may refer to.
    pub environment: BTreeMap<String, String>,
    /// Where files are read.
    pub disk: Disk,
}

impl Input {
    /// One file that exists in memory only.
    pub fn from_text(name: &str, text: impl Into<Vec<u8>>) -> Self {
        Self {
            file: Some(name.into()),
            disk: Disk::Memory(BTreeMap::from([(name.into(), text.into())])),
            ..Self::default()
        }
    }

    /// Whether it sets keys beside those of files.
    pub fn sets_keys(&self) -> bool {
        !self.presets.is_empty() || !self.overrides.is_empty()
    }

    /// The file that [`load`] reads, before it is read: the one that was named, which need not
    /// exist, else the first of [`MAIN_FILES`] that is there.
    pub fn main_file(&self) -> Option<PathBuf> {
        self.file.clone().or_else(|| {
            let mut names = MAIN_FILES.iter().map(PathBuf::from);
            names.find(|name| self.disk.exists(&self.folder.join(name)))
        })
    }
}

/// Where files are read.
#[derive(Clone, Debug, Default)]
pub enum Disk {
    /// The machine's files.
    #[default]
    Real,
    /// These and no others, by path as asked for.
    Memory(BTreeMap<PathBuf, Vec<u8>>),
}

impl Disk {
    fn exists(&self, path: &Path) -> bool {
        match self {
            Self::Real => path.exists(),
            Self::Memory(files) => files.contains_key(path),
        }
    }

    /// One byte more than `most` at most, so that the reader can tell.
    pub(crate) fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Real => {
                // One of the shell (`/dev/stdin`, `<(…)`) has a writer, and no path of its own.
                if std::fs::metadata(path)?.file_type().is_fifo() && path.canonicalize().is_ok() {
                    let why = "it is a named pipe, which nobody may ever write to: give a file, or `/dev/stdin`";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                let mut bytes = Vec::new();
                let limit = most as u64 + 1;
                std::fs::File::open(path)?
                    .take(limit)
                    .read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Self::Memory(files) => files
                .get(path)
                .cloned()
                .ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }
}

/// The raw tree, not yet judged by any section, and what was found on the way to it.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) root: Map,
    pub(crate) main: Place,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) differences: Vec<Difference>,
    pub(crate) compat: Compat,
    /// A file could not be read to its end.
    pub(crate) incomplete: bool,
    /// The file that was read, or None when none was named and none of [`MAIN_FILES`] is there:
    /// then there are only overrides.
    pub file: Option<PathBuf>,
    /// Every file that was read, the main one first: what to watch for changes.
    pub files: Vec<PathBuf>,
    /// What `--dotenv` and `envfile` set beyond the environment: workers get it too.
    pub dotenv: BTreeMap<String, String>,
}

impl Loaded {
    /// The tree itself: every section, known or not.
    pub fn root(&self) -> &Map {
        &self.root
    }

    /// Which RoadRunner the file was written for.
    pub fn compat(&self) -> &Compat {
        &self.compat
    }

    /// Whether a file could not be read to its end: keys of it are missing.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Where what stands at this path of names is written; of a default, where the section is that
    /// would have it.
    pub fn place(&self, path: &[&str]) -> &Place {
        let (mut place, mut map) = (&self.main, Some(&self.root));
        for name in path {
            let Some(node) = map.and_then(|map| map.get(name)) else {
                break;
            };
            place = &node.origin.place;
            map = match &node.value {
                Value::Map(map) => Some(map),
                Value::Null | Value::Text(_) | Value::List(_) => None,
            };
        }
        place
    }

    /// Reads the tree through `S`. A key that nobody read is told with the severity `unknown`.
    pub fn resolve<S: Section>(&self, unknown: Severity) -> Resolved<S> {
        self.resolve_with(unknown, S::read)
    }

    /// As [`Loaded::resolve`], for sections that are not known before the program runs.
    pub fn resolve_with<S>(
        &self,
        unknown: Severity,
        read: impl Fn(&mut Table<'_>) -> S,
    ) -> Resolved<S> {
        resolve::resolve(self, Some(unknown), &read)
    }

    /// Reads what `S` needs, and takes all other keys for those of somebody else.
    pub fn resolve_part<S: Section>(&self) -> Resolved<S> {
        resolve::resolve(self, None, &S::read)
    }
}

/// Reads all that `input` names. Mistakes are kept in the result and told by [`Loaded::resolve`],
/// together with those in the values.
pub fn load(input: &Input) -> Loaded {
    let file = input.main_file();
    let mut loader = Loader {
        input,
        variables: Variables::new(input.environment.clone()),
        allowance: Allowance::default(),
        diagnostics: Diagnostics::default(),
        differences: Vec::new(),
        files: Vec::new(),
        sources: 0,
        incomplete: false,
    };
    loader.dotenv();
    let (main, mut root) = loader.main_file(file.as_deref());
    let mut overrides = overrides::of_presets(&input.presets);
    overrides.extend(overrides::parse(&input.overrides, &mut loader.diagnostics));
    overrides::apply_early(&overrides, &mut root, &mut loader.diagnostics);
    loader.envfile(&root, file.as_deref());
    let included = include::resolve(&mut loader, &mut root, file.as_deref());
    loader.note_lost_overrides(&overrides, &included);
    overrides::apply_late(&overrides, &mut root, &mut loader.diagnostics);
    loader.expander().map(&mut root, "");
    let disk = (input.folder.as_path(), &input.disk);
    let compat = era::tell(&root, file.as_deref(), disk, &mut loader.diagnostics);
    Loaded {
        root,
        main,
        diagnostics: loader.diagnostics,
        differences: loader.differences,
        compat,
        incomplete: loader.incomplete,
        file,
        files: loader.files,
        dotenv: loader.variables.into_added(),
    }
}

struct Loader<'a> {
    input: &'a Input,
    variables: Variables,
    allowance: Allowance,
    diagnostics: Diagnostics,
    differences: Vec<Difference>,
    files: Vec<PathBuf>,
    /// How many files were opened: their order in a report.
    sources: u16,
    incomplete: bool,
}

impl Loader<'_> {
    fn expander(&mut self) -> Expander<'_> {
        Expander {
            variables: &self.variables,
            allowance: &mut self.allowance,
            diagnostics: &mut self.diagnostics,
            differences: &mut self.differences,
        }
    }

    fn dotenv(&mut self) {
        if let Some(path) = &self.input.dotenv {
            self.variables_of(path, None);
        }
    }

    fn main_file(&mut self, path: Option<&Path>) -> (Place, Map) {
        let name = path.map_or_else(|| MAIN_FILES.join(" or "), |p| p.display().to_string());
        let place = self.next_source(&name);
        let root = path.map(|path| self.parsed(path, &place, &place));
        (place, root.unwrap_or_default())
    }

    /// The tree of a file, empty when it cannot be read.
    fn parsed(&mut self, path: &Path, file: &Place, named_at: &Place) -> Map {
        let bytes = self.read(path, file, named_at);
        let map = bytes.and_then(|bytes| yaml::parse(&bytes, file, &mut self.diagnostics));
        self.incomplete |= map.is_none();
        map.unwrap_or_default()
    }

    /// `envfile`, beside the file that names it. Read before variables are expanded.
    fn envfile(&mut self, root: &Map, main: Option<&Path>) {
        let Some(node) = root.get("envfile") else {
            return;
        };
        if let Some(text) = node.text() {
            let path = main.map_or_else(|| text.into(), |main| main.with_file_name(text));
            self.variables_of(&path, Some(&node.origin.place));
        }
    }

    fn note_lost_overrides(&mut self, overrides: &[overrides::Override], included: &[String]) {
        for o in overrides {
            let section = o.path.first().map_or("", String::as_str);
            if included.iter().any(|name| same_name(name, section)) {
                self.differences.push(Difference {
                    key: o.path.join("."),
                    here: "`-o` wins".to_owned(),
                    there: "the included section wins".to_owned(),
                    why: "who types a value means it".to_owned(),
                });
            }
        }
    }

    /// `named_at` is where the path was written, if in a file.
    fn variables_of(&mut self, path: &Path, named_at: Option<&Place>) {
        let file = self.next_source(&path.display().to_string());
        let Some(bytes) = self.read(path, &file, named_at.unwrap_or(&file)) else {
            return;
        };
        let diagnostics = &mut self.diagnostics;
        // Editors put a byte order mark there.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_FILE_BYTES => {
                let message = format!("is larger than {MAX_FILE_BYTES} bytes");
                diagnostics.error(&file, message, "is this the right file?");
            }
            Ok(text) if !text.contains('\0') => {
                let (variables, allowance) = (&mut self.variables, &mut self.allowance);
                dotenv::read(text, &file, variables, allowance, diagnostics);
            }
            Ok(_) | Err(_) => {
                diagnostics.error(&file, "is not UTF-8 text", "save the file as UTF-8");
            }
        }
    }

    fn next_source(&mut self, name: &str) -> Place {
        self.sources += 1;
        Place::file(self.sources, name)
    }

    /// The file's bytes, or None and an error at `named_at`.
    fn read(&mut self, path: &Path, file: &Place, named_at: &Place) -> Option<Vec<u8>> {
        match self
            .input
            .disk
            .read(&self.input.folder.join(path), MAX_FILE_BYTES)
        {
            Ok(bytes) => {
                self.files.push(path.to_owned());
                Some(bytes)
            }
            Err(error) => {
                let message = if file == named_at {
                    format!("cannot be read: {error}")
                } else {
                    format!("`{}` cannot be read: {error}", shown(path))
                };
                let hint = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "is the path right? A relative one begins in the working folder"
                    }
                    io::ErrorKind::PermissionDenied => "may this user read it?",
                    _ => "",
                };
                self.diagnostics.error(named_at, message, hint);
                None
            }
        }
    }
}

/// The environment, and what files add to it.
#[derive(Debug)]
pub(crate) struct Variables {
    settled: BTreeMap<String, String>,
    added: BTreeMap<String, String>,
    /// Of the file that is being read: not settled yet.
    current: BTreeMap<String, String>,
}

impl Variables {
    pub(crate) fn new(environment: BTreeMap<String, String>) -> Self {
        Self {
            settled: environment,
            added: BTreeMap::new(),
            current: BTreeMap::new(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = self.settled.get(name).or_else(|| self.current.get(name))?;
        Some(value)
    }

    /// What files before have set stays.
    pub(crate) fn add(&mut self, name: &str, value: String) {
        if !self.settled.contains_key(name) {
            self.current.insert(name.to_owned(), value);
        }
    }

    /// The end of a file.
    pub(crate) fn settle(&mut self) {
        self.added.extend(self.current.clone());
        self.settled.append(&mut self.current);
    }

    pub(crate) fn into_added(self) -> BTreeMap<String, String> {
        self.added
    }
}

/// A path in a message.
fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}
