//! `http.static`, and the folders of `fileserver`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_config::{Key, Node, Section, Setting, Shown, Table, Wrong};
use pronghorn_wire::Fields;
use pronghorn_workers::settings::Symlinks;

use super::headers::FieldRules;
use crate::coding::Coding;
use crate::files::{CACHE_DURATION, Forbidden, Links, RootSettings, Tag, is_servable};

/// More folders than anybody keeps an overview of; each has a cache of its own.
pub const MOST_ROOTS: usize = 64;
/// As of `cache_duration`.
const LONGEST_CACHE: Duration = Duration::from_hours(1);
/// A year, the longest that caches are told (RFC 9111 knows no longer one either).
const MOST_SECONDS: u64 = 31_536_000;

/// Files without PHP.
#[derive(Clone, Debug)]
pub struct StaticSettings {
    /// In the order in which they are looked into.
    pub roots: Vec<RootKeys>,
    /// Fields that all requests get on their way to PHP.
    pub request: FieldRules,
    pub tag: Tag,
}

/// One folder.
#[derive(Clone, Debug)]
pub struct RootKeys {
    pub folder: PathBuf,
    pub prefix: String,
    pub only: Vec<String>,
    pub allow: Vec<String>,
    pub forbid: Vec<String>,
    pub without_ending: bool,
    pub index: Vec<Page>,
    pub fallback: Option<Page>,
    pub links: Links,
    pub precompressed: Vec<Coding>,
    pub ranges: bool,
    pub response: FieldRules,
    /// In seconds.
    pub max_age: Option<u64>,
    pub cache_duration: Duration,
    /// What is not compressed yet is, on its way.
    pub compress: bool,
}

impl RootKeys {
    /// For the files themselves; relative folders begin at `base`.
    pub fn settings(&self, base: &Path, tag: Tag) -> RootSettings {
        let mut fields = Fields::new();
        if let Some(seconds) = self.max_age {
            fields.push("Cache-Control", format!("public, max-age={seconds}"));
        }
        for (name, value) in self.response.iter() {
            fields.set(name, value);
        }
        let page = |page: &Page| page.0.clone();
        RootSettings {
            prefix: self.prefix.clone(),
            only: self.only.clone(),
            allow: self.allow.clone(),
            forbidden: Forbidden::new(&self.forbid),
            without_ending: self.without_ending,
            index: self.index.iter().map(page).collect(),
            fallback: self.fallback.as_ref().map(page),
            links: self.links,
            precompressed: self.precompressed.clone(),
            tag,
            ranges: self.ranges,
            fields,
            cache_duration: self.cache_duration,
            ..RootSettings::new(base.join(&self.folder))
        }
    }
}

/// A file in a root, by its path below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page(String);

/// An extension of files: with its dot, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension(pub String);

impl Extension {
    fn of(text: &str) -> Self {
        Self(format!(
            ".{}",
            text.trim_start_matches('.').to_ascii_lowercase()
        ))
    }
}

impl Setting for Extension {
    fn example() -> String {
        ".pdf".to_owned()
    }

    fn accepts() -> String {
        "an extension".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        let extension = Self::of(text);
        // RoadRunner takes any text. One that no file has would open what it is to close.
        if matches!(extension.0.as_bytes(), [_, rest @ ..] if rest.is_empty() || rest.iter().any(|it| b"./*".contains(it)))
        {
            return Err(Wrong::hinted(
                node,
                "what comes after the last dot of a name",
            ));
        }
        Ok(extension)
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.clone())
    }
}

impl Setting for Page {
    fn example() -> String {
        "index.html".to_owned()
    }

    fn accepts() -> String {
        "a file's path below the directory".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        if is_servable(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Wrong::hinted(
                node,
                "no path outside of it, nothing that begins with a dot, and no PHP source",
            ))
        }
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.clone())
    }
}

impl Section for StaticSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.live();
        let dir: Option<PathBuf> = t
            .key("dir", "The directory that contains the files.")
            .optional();
        let tag = read_tag(t);
        let request = t
            .key(
                "request",
                "Header fields to set in all requests for PHP. They replace the client's.",
            )
            .default(FieldRules::default());
        let own = RootKeys {
            only: read_prefixes(t),
            ..read_rules(t, Kind::Static)
        };
        let own = RootKeys {
            cache_duration: t
                .key(
                    "cache_ttl",
                    "RoadRunner 3's key for `cache_duration`, with a unit.",
                )
                .range(Duration::ZERO..=LONGEST_CACHE)
                .default_as(own.cache_duration, "as `cache_duration`"),
            ..own
        };
        t.no_effect("cache_miss_ttl", "missing files are looked up each time");
        t.no_effect(
            "cache_max_entries",
            "each directory caches at most 512 files",
        );
        let mut roots = read_roots(t, Kind::Static);
        match dir {
            Some(folder) => roots.push(RootKeys { folder, ..own }),
            None if roots.is_empty() => t.error(
                "dir",
                "is not set: there is no folder to serve",
                "for example `dir: public`",
            ),
            None => {}
        }
        Self {
            roots,
            request,
            tag,
        }
    }
}

/// Where files are looked for in `dir`, so that other paths cost no look.
fn read_prefixes(t: &mut Table<'_>) -> Vec<String> {
    let prefixes: Vec<String> = t
        .key(
            "prefixes",
            "Only paths with one of these prefixes, such as `/assets/`, are looked up in `dir`; \
             other paths go directly to PHP. An empty list looks up all paths. This is a key of \
             RoadRunner 3.",
        )
        .default(Vec::new());
    if let Some(prefix) = prefixes.iter().find(|prefix| !prefix.starts_with('/')) {
        t.error(
            "prefixes",
            &format!("has `{prefix}`, which does not begin with a slash"),
            &format!("write `/{prefix}`"),
        );
    }
    prefixes
}

/// What a folder is for, which decides its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Before PHP, which gets what is no file.
    Static,
    /// Nothing comes after it.
    Server,
}

/// `calculate_etag` and `weak`.
pub fn read_tag(t: &mut Table<'_>) -> Tag {
    let is_sent = t
        .key(
            "calculate_etag",
            "Whether responses have an `ETag`, made from the file's time and size.",
        )
        .roadrunner(
            "false",
            "clients use the `ETag` to ask whether their copy is current",
        )
        .default(true);
    let is_weak = t
        .key("weak", "Whether the `ETag` is weak.")
        .differs(
            "made only from the name",
            "an `ETag` made from the name would not change with the file",
        )
        .default(false);
    match (is_sent, is_weak) {
        (false, _) => Tag::None,
        (true, false) => Tag::Strong,
        (true, true) => Tag::Weak,
    }
}

/// `serve`: folders with the paths that each stands for.
pub fn read_roots(t: &mut Table<'_>, kind: Kind) -> Vec<RootKeys> {
    let sentence = match kind {
        Kind::Static => {
            "More directories. They are searched before `dir`, in the order of the list. \
             RoadRunner has the same list in `fileserver`."
        }
        Kind::Server => "Directories with files. They are searched in the order of the list.",
    };
    t.section_list_with("serve", sentence, "One directory.", MOST_ROOTS, |t| {
        if kind == Kind::Static {
            t.ours();
        }
        let prefix: String = t
            .key(
                "prefix",
                "The prefix of the paths for this directory: `/assets` means `/assets/…`.",
            )
            .default("/".to_owned());
        if !prefix.starts_with('/') {
            t.error(
                "prefix",
                "does not begin with a slash",
                &format!("write `/{prefix}`"),
            );
        }
        let folder = t
            .key("root", "The directory that contains the files.")
            .default(PathBuf::from("."));
        let mut root = RootKeys {
            folder,
            prefix,
            ..read_rules(t, kind)
        };
        if kind == Kind::Server {
            let sentence = "Whether to compress files while they are sent, with the defaults of \
                            `http.compress`.";
            root.compress = t.key("compress", sentence).default(false);
        }
        root.ranges = t
            .key(
                "bytes_range",
                "Whether clients may request parts of files (range requests).",
            )
            .roadrunner("false", "resuming a download or a video needs it")
            .default(true);
        root
    })
}

/// Of RoadRunner, only folders of `fileserver` have such keys.
fn seconds<'t, 'a>(
    t: &'t mut Table<'a>,
    name: &'static str,
    sentence: &'static str,
    most: u64,
    kind: Kind,
) -> Key<'t, 'a, u64> {
    let key = t.key(name, sentence).range(0..=most);
    match kind {
        Kind::Static => key.ours(),
        Kind::Server => key,
    }
}

/// RoadRunner's users write extensions without their dots, too.
fn extension_and_name(pattern: String) -> Vec<String> {
    if pattern.contains(['.', '/', '*']) {
        vec![pattern]
    } else {
        vec![Extension::of(&pattern).0, pattern]
    }
}

/// What `http.static` and the items of `serve` have in common.
fn read_rules(t: &mut Table<'_>, kind: Kind) -> RootKeys {
    let forbid: Vec<String> = t
        .key(
            "forbid",
            "Files that are not served. A pattern matches by extension (`.map`), by the end of a \
             name (`*~`), by name (`composer.json`) or, if it contains a slash, by path \
             (`storage/logs/`). A word such as `map` is an extension and a name. Upper and lower \
             case are equal. Compressed copies of these files are not served. PHP sources and \
             names that begin with a dot are never served.",
        )
        .default(Vec::new());
    let forbid = forbid.into_iter().flat_map(extension_and_name).collect();
    let allow: Vec<Extension> = t
        .key(
            "allow",
            "Only files with these extensions are served. An empty list serves all.",
        )
        .default(Vec::new());
    let index = match kind {
        Kind::Static => Vec::new(),
        Kind::Server => vec![Page("index.html".to_owned())],
    };
    RootKeys {
        folder: PathBuf::new(),
        prefix: "/".to_owned(),
        only: Vec::new(),
        allow: allow.into_iter().map(|it| it.0).collect(),
        forbid,
        without_ending: kind == Kind::Server,
        index: t
            .key(
                "index",
                "Files to serve for a directory. The first one that exists is served.",
            )
            .ours()
            .default(index),
        fallback: t
            .key(
                "fallback",
                "The file that a browser gets if the requested one does not exist and the path has \
                 no extension.",
            )
            .ours()
            .optional(),
        links: t
            .key::<Symlinks>(
                "symlinks",
                "Which symbolic links are followed: `never` none, `inside` those that stay in the \
                 directory, `anywhere` all.",
            )
            .ours()
            .default(Symlinks(Links::Inside))
            .0,
        precompressed: t
            .key(
                "precompressed",
                "Formats of precompressed copies beside the original (`a.css.br`, `a.css.zst`, \
                 `a.css.gz`), the preferred one first.",
            )
            .ours()
            .default(Vec::new()),
        ranges: true,
        response: t
            .key("response", "Header fields to set in responses with files.")
            .default(FieldRules::default()),
        max_age: seconds(
            t,
            "max_age",
            "Seconds for which caches may keep a file (`Cache-Control: max-age`); 0 omits the \
             limit.",
            MOST_SECONDS,
            kind,
        )
        .optional()
        .filter(|seconds| *seconds > 0),
        cache_duration: Duration::from_secs(
            seconds(
                t,
                "cache_duration",
                "Seconds for which the server keeps what it knows about a file; 0 checks the file \
                 for each request.",
                3600,
                kind,
            )
            .default(CACHE_DURATION.as_secs()),
        ),
        compress: false,
    }
}
