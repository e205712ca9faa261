//! `sendfile`: PHP names a file, and the server sends it.
//!
//! `X-Sendfile` has a path, as RoadRunner takes it; `X-Accel-Redirect` a target in one of the
//! operator's locations, as nginx does. The worker is free as soon as it has said so.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::Budget;
use pronghorn_process::Credentials;
use pronghorn_serve::{Exchange, Handled, Handler, OpenFile, Request, Response};
use pronghorn_wire::Fields;

use super::parts::Parts;
use crate::file::{self, Identity};
use crate::files::{Asked, below_prefix, is_public, may_be_named};

/// Records in a second, of files that are not sent.
const MOST_RECORDS: u32 = 10;

struct Sendfile {
    next: Arc<dyn Handler>,
    /// Relative paths begin here.
    folder: PathBuf,
    /// Where files may lie; empty is anywhere.
    roots: Arc<[PathBuf]>,
    /// What targets begin with, and the folder that this stands for.
    locations: Vec<(String, PathBuf)>,
    /// What `X-Sendfile` names has no type of its own.
    untyped: bool,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let settings = &parts.settings.sendfile;
    let whole = |path: &PathBuf| parts.folder.join(path);
    let location = |(prefix, root): &(String, PathBuf)| (prefix.clone(), whole(root));
    Arc::new(Sendfile {
        next,
        folder: parts.folder.to_owned(),
        roots: settings.roots.iter().map(whole).collect(),
        locations: settings.locations.iter().map(location).collect(),
        untyped: settings.untyped,
    })
}

impl Handler for Sendfile {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let asked = Asked::by(&request.head);
        Box::pin(async move {
            let response = self.next.handle(request, exchange).await;
            match FileName::in_fields(&response.fields) {
                Some(named) => self.send(&asked, named, response).await,
                None => response,
            }
        })
    }
}

/// How PHP names a file.
enum FileName {
    Path(Vec<u8>),
    Target(Vec<u8>),
}

impl FileName {
    fn in_fields(fields: &Fields) -> Option<Self> {
        for (name, value) in fields.iter() {
            if name.eq_ignore_ascii_case(b"x-sendfile") {
                return Some(Self::Path(value.to_vec()));
            }
            if name.eq_ignore_ascii_case(b"x-accel-redirect") {
                return Some(Self::Target(value.to_vec()));
            }
        }
        None
    }
}

/// A file that the application has named, and may name.
struct NamedFile {
    path: PathBuf,
    /// It lies in one of these, if there are any.
    directories: Arc<[PathBuf]>,
}

/// Why a file is not sent: what the client gets, and what the log says.
struct NotSent(u16, String);

impl Sendfile {
    async fn send(&self, asked: &Asked, named: FileName, mut response: Response) -> Response {
        for name in [
            "x-sendfile",
            "x-accel-redirect",
            "x-accel-buffering",
            "x-accel-expires",
        ] {
            response.fields.remove(name);
        }
        if self.untyped && matches!(named, FileName::Path(_)) {
            response.fields.remove("content-type");
            response
                .fields
                .push("Content-Type", "application/octet-stream");
        }
        let on_sent = response.on_sent.take();
        let user = response.worker_user.take();
        let opened = match self.named(&named) {
            Ok(file) => file.open(user).await,
            Err(refused) => Err(refused),
        };
        let mut sent = match opened {
            Ok((path, file)) => asked.answer(response.status, response.fields, &path, file),
            Err(NotSent(status, why)) => {
                let (FileName::Path(name) | FileName::Target(name)) = &named;
                let name = String::from_utf8_lossy(name);
                static RECORDS: Budget = Budget::per_second(MOST_RECORDS);
                if let Some(left_out) = RECORDS.spend() {
                    let left_out = Some(left_out).filter(|records| *records > 0);
                    tracing::warn!(
                        target: "http", status, left_out,
                        "the file `{name}`, which the application names, is not sent: {why}"
                    );
                }
                if status == 404 {
                    Response::plain(404, "not found\n")
                } else {
                    Response::status_only(status)
                }
            }
        };
        sent.on_sent = on_sent;
        sent
    }

    fn named(&self, named: &FileName) -> Result<NamedFile, NotSent> {
        match named {
            FileName::Path(path) => self.by_path(path),
            FileName::Target(target) => self.by_target(target),
        }
    }

    fn by_path(&self, path: &[u8]) -> Result<NamedFile, NotSent> {
        let path = self.folder.join(Path::new(OsStr::from_bytes(path)));
        let path = std::path::absolute(&path).unwrap_or(path);
        if !may_be_named(&path) {
            let why = "its path has `..` in it, its name begins with a dot, or it is a PHP source";
            return Err(NotSent(403, why.to_owned()));
        }
        let directories = self.roots.clone();
        Ok(NamedFile { path, directories })
    }

    fn by_target(&self, target: &[u8]) -> Result<NamedFile, NotSent> {
        let named = |(prefix, directory): &(String, PathBuf)| {
            let path = directory.join(below_prefix(target, prefix)?);
            Some(NamedFile {
                path,
                directories: Arc::from([directory.clone()]),
            })
        };
        self.locations.iter().find_map(named).ok_or_else(|| {
            let why = "it names no file in one of `http.sendfile.locations`";
            NotSent(404, why.to_owned())
        })
    }
}

impl NamedFile {
    /// `user` is who the application ran as, if not as the server. However the file was named: a
    /// location is open to the pools of all users.
    async fn open(
        self,
        user: Option<Arc<Credentials>>,
    ) -> Result<(PathBuf, (OpenFile, Identity)), NotSent> {
        let opened = file::open(self.path.clone(), self.directories, user, is_public).await;
        opened
            .map(|file| (self.path, file))
            .map_err(|why| NotSent(404, why))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use pronghorn_serve::Body;
    use pronghorn_testkit::Directory;

    use super::*;
    use crate::middleware::testing::{Nobody, head};

    /// Answers to the application of a pool with a user of its own, by each way.
    async fn statuses(directory: &Path) -> [u16; 2] {
        let sendfile = Sendfile {
            next: Arc::new(Nobody),
            folder: directory.to_owned(),
            roots: Arc::default(),
            locations: vec![("/protected".to_owned(), directory.join("storage"))],
            untyped: false,
        };
        let asked = Asked::by(&head("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let ways = [
            FileName::Path(b"storage/file.txt".to_vec()),
            FileName::Target(b"/protected/file.txt".to_vec()),
        ];
        let mut statuses = [0; 2];
        for (status, named) in statuses.iter_mut().zip(ways) {
            let mut response = Response::new(200, Body::Empty);
            response.worker_user = Some(Arc::new(Credentials::nobody()));
            *status = sendfile.send(&asked, named, response).await.status;
        }
        statuses
    }

    #[tokio::test]
    async fn however_a_file_is_named_the_workers_user_must_be_allowed_to_read_it() {
        let directory = Directory::with(&[("storage/file.txt", "0123456789")]);
        let mode = |name: &str, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.join(name), mode).unwrap();
        };
        mode("", 0o755);
        for (of_directory, of_file, status) in [
            (0o755, 0o644, 200),
            (0o711, 0o604, 200),
            (0o755, 0o640, 404),
            (0o750, 0o644, 404),
        ] {
            mode("storage", of_directory);
            mode("storage/file.txt", of_file);
            let case = format!("{of_directory:o} {of_file:o}");
            assert_eq!(statuses(&directory).await, [status; 2], "{case}");
        }
    }
}
