//! A site's root: which of its files is sent, and which script is asked.

mod releases;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pronghorn_base::{LogThrottle, lock};
use pronghorn_cgi::path::Path;
use pronghorn_cgi::{Answering, Found, Script, Site, Target};
use pronghorn_process::file::Patience;
use pronghorn_serve::{Request, Response};
use pronghorn_workers::settings::{Mode, ResolveRoot, SiteSettings};
use tokio::time::Instant;

use crate::file::Readers;
use crate::files::{
    Answer, CACHE_DURATION, Files, Forbidden, Looked, RootSettings, to_folder, trouble,
};
use releases::Releases;

/// Scripts and folders that are remembered; there are seldom more that are asked for in one second.
const MOST_KNOWN: usize = 256;

/// What was seen at a path, and when.
type Known = HashMap<Box<[u8]>, (Found, Instant)>;

/// `SERVER_SOFTWARE`, where nothing is written.
const SOFTWARE: &str = concat!("pronghorn/", env!("CARGO_PKG_VERSION"));

/// How routes show a root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mount {
    /// The path below which it lies, without a slash at its end; empty for all.
    pub(crate) prefix: String,
    pub(crate) answering: Answering,
}

/// A root with scripts and files.
#[derive(Debug)]
pub struct Scripts {
    /// All its files are programs, and none is sent.
    programs: bool,
    site: Site,
    files: Arc<Files>,
    /// `SERVER_SOFTWARE`.
    software: String,
    known: Mutex<Known>,
    /// What is there instead, when the root is looked at for each request.
    releases: Option<Arc<Releases>>,
}

/// The script that a call runs.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) script: Script,
}

/// What there is for a request.
#[derive(Debug)]
pub(crate) enum Answerer {
    Script(Script),
    /// A file, or the word that there is nothing.
    Server(Answer),
}

impl Scripts {
    /// Whether each call starts a process of its own, which can be ended.
    pub(crate) const fn runs_programs(&self) -> bool {
        self.programs
    }

    /// `root` is absolute.
    ///
    /// # Errors
    ///
    /// When the root can't be opened.
    pub(crate) fn open(
        settings: &SiteSettings,
        mode: Mode,
        root: PathBuf,
        mount: &Mount,
    ) -> io::Result<Self> {
        let releases = match settings.resolve {
            ResolveRoot::Never => None,
            ResolveRoot::EachRequest => {
                let releases = Releases::open(settings, mode, root.clone(), mount)?;
                Some(Arc::new(releases))
            }
        };
        // A link is judged with each look at the files.
        let scripts = Self::at(settings, mode, root, Readers::Server, mount)?;
        Ok(Self {
            releases,
            ..scripts
        })
    }

    /// What is at a root now.
    pub(crate) fn at(
        settings: &SiteSettings,
        mode: Mode,
        root: PathBuf,
        readers: Readers,
        Mount { prefix, answering }: &Mount,
    ) -> io::Result<Self> {
        let files = RootSettings {
            links: settings.links,
            readers,
            prefix: if prefix.is_empty() { "/" } else { prefix }.to_owned(),
            forbidden: Forbidden::new(&settings.forbid),
            no_scripts: settings.no_scripts.clone(),
            ..RootSettings::new(root.clone())
        };
        let files = Files::open(vec![files]).map_err(|(_, error)| error)?;
        let index = settings.index.clone();
        let no_scripts = by_all_paths(&root, &settings.no_scripts);
        let site = Site::new(root, index, settings.fallback.as_deref()).answering(*answering);
        Ok(Self {
            programs: mode == Mode::Cgi,
            site: site.without_scripts_in(&no_scripts).at(prefix),
            files: Arc::new(files),
            software: settings
                .software
                .clone()
                .unwrap_or_else(|| SOFTWARE.to_owned()),
            known: Mutex::default(),
            releases: None,
        })
    }

    /// Those of a root that is looked at for each request.
    pub(crate) fn releases(&self) -> Option<&Arc<Releases>> {
        self.releases.as_ref()
    }

    pub(crate) fn software(&self) -> &str {
        &self.software
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Looks for a file that may be sent, and then for a script.
    pub(crate) async fn find(self: &Arc<Self>, request: &Request) -> Answerer {
        let (head, now) = (&request.head, request.accepted);
        let names_script = Path::of(head.path()).is_ok_and(|path| Site::names_script(&path));
        if !names_script && !self.programs {
            match self.files.look(head, now) {
                Looked::Answer(answer) => return Answerer::Server(answer),
                Looked::Nothing => {}
                Looked::Later => {
                    if let Some(answer) = self.files.answer(request).await {
                        return Answerer::Server(answer);
                    }
                }
            }
        }
        let target = match self.target(head.path(), now, Patience::None) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (scripts, path) = (self.clone(), head.path().to_vec());
                let looking = tokio::task::spawn_blocking(move || {
                    scripts.target(&path, now, Patience::Waits)
                });
                looking.await.map_err(io::Error::other).flatten()
            }
            target => target,
        };
        let status = match target {
            Ok(Target::Script(script)) if self.programs && writes_http(&script) => {
                static REFUSED: LogThrottle = LogThrottle::new();
                if let Some(requests) = REFUSED.should_log() {
                    tracing::warn!(
                        target: "http", URI = request.shown_target(), requests,
                        "program refused: by its name, `nph-…`, it writes HTTP itself, which is not supported"
                    );
                }
                403
            }
            Ok(Target::Script(script)) => return Answerer::Script(script),
            Ok(Target::Page(path)) => {
                let path = [self.site.prefix(), &path].concat();
                let response = match self.files.answer_at(request, path.clone()).await {
                    Some(answer) => answer.response,
                    // It is there and must not be sent, or the method is none for files.
                    None if matches!(head.method(), "GET" | "HEAD") => Response::status_only(404),
                    None => not_for_files(),
                };
                let page = Some(path);
                return Answerer::Server(Answer { response, page });
            }
            Ok(Target::Folder) => return Answerer::Server(to_folder(head).into()),
            // As nginx, which has a file there and does not ask PHP.
            Ok(Target::Closed) if !matches!(head.method(), "GET" | "HEAD") => {
                return Answerer::Server(not_for_files().into());
            }
            Ok(Target::Closed) => 404,
            Ok(Target::NotFound) => 404,
            Ok(Target::Forbidden) => 403,
            Ok(Target::BadRequest) => 400,
            Err(error) => return Answerer::Server(trouble(head, &error).into()),
        };
        Answerer::Server(Response::status_only(status).into())
    }

    /// The decoded path of a script, where routes could not know it from the request's path: the
    /// script stands for a directory, or it is a program, whose name says nothing, and text
    /// follows.
    pub(crate) fn own_path(&self, request: &Request, script: &Script) -> Option<Vec<u8>> {
        if !self.programs && self.site.is_fallback(script) {
            return None;
        }
        let received = Path::of(request.head.path()).ok()?;
        let path = [self.site.prefix(), script.name()].concat();
        let is_known = if self.programs {
            received.bytes() == path
        } else {
            received.bytes().starts_with(&path)
        };
        (!is_known).then_some(path)
    }

    /// What answers for a path, for who may wait for the disk.
    pub(crate) fn look_up(&self, path: &[u8]) -> io::Result<Target> {
        self.target(path, Instant::now(), Patience::Waits)
    }

    fn target(&self, path: &[u8], now: Instant, patience: Patience) -> io::Result<Target> {
        let look = |path: &[u8]| self.look(path, now, patience);
        if self.programs {
            self.site.resolve_program(path, look)
        } else {
            self.site.resolve(path, look)
        }
    }

    /// What is at a path. What was there is believed as long as what was seen of a file.
    fn look(&self, path: &[u8], now: Instant, patience: Patience) -> io::Result<Found> {
        if path.is_empty() {
            return Ok(Found::Folder);
        }
        let fresh = |since: &Instant| now.saturating_duration_since(*since) < CACHE_DURATION;
        if let Some((found, _)) = self
            .with_known(|known| known.get(path).copied())
            .filter(|(_, since)| fresh(since))
        {
            return Ok(found);
        }
        let found = self.files.kind(path, now, patience)?;
        if found != Found::Nothing {
            self.with_known(|known| {
                if known.len() >= MOST_KNOWN {
                    known.retain(|_, (_, since)| fresh(since));
                }
                if known.len() < MOST_KNOWN {
                    known.insert(path.into(), (found, now));
                }
            });
        }
        Ok(found)
    }

    fn with_known<R>(&self, work: impl FnOnce(&mut Known) -> R) -> R {
        work(&mut lock(&self.known))
    }
}

/// Folders below a root, by their names, and where these are links also by what they lead to in the
/// root. What leads there by another link is judged when it is opened.
fn by_all_paths(root: &std::path::Path, folders: &[String]) -> Vec<String> {
    let mut all = folders.to_vec();
    if let Ok(real_root) = root.canonicalize() {
        let real = folders.iter().filter_map(|folder| {
            let real = root.join(folder).canonicalize().ok()?;
            let below = real.strip_prefix(&real_root).ok()?.to_str()?;
            // The root itself would be all scripts.
            (!below.is_empty()).then(|| below.to_owned())
        });
        all.extend(real);
    }
    all.sort();
    all.dedup();
    all
}

/// By its name, a program that writes non-parsed headers.
fn writes_http(script: &Script) -> bool {
    let mut segments = script.name().rsplit(|&byte| byte == b'/');
    segments
        .next()
        .is_some_and(|name| name.starts_with(b"nph-"))
}

fn not_for_files() -> Response {
    let mut response = Response::status_only(405);
    response.fields.push("Allow", "GET, HEAD");
    response
}
