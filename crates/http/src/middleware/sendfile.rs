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
use crate::files::{Asked, below_prefix, is_public, may_be_named, open_named};

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
            match Named::in_fields(&response.fields) {
                Some(named) => self.send(&asked, named, response).await,
                None => response,
            }
        })
    }
}

/// How PHP names a file.
enum Named {
    Path(Vec<u8>),
    Target(Vec<u8>),
}

impl Named {
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

/// Why a file is not sent: what the client gets, and what the log says.
struct NotSent(u16, String);

impl Sendfile {
    async fn send(&self, asked: &Asked, named: Named, mut response: Response) -> Response {
        for name in [
            "x-sendfile",
            "x-accel-redirect",
            "x-accel-buffering",
            "x-accel-expires",
        ] {
            response.fields.remove(name);
        }
        if self.untyped && matches!(named, Named::Path(_)) {
            response.fields.remove("content-type");
            response
                .fields
                .push("Content-Type", "application/octet-stream");
        }
        let on_sent = response.on_sent.take();
        let user = response.worker_user.take();
        let opened = match &named {
            Named::Path(path) => self.by_path(path, user).await,
            Named::Target(target) => self.by_target(target).await,
        };
        let mut sent = match opened {
            Ok((path, file)) => asked.answer(response.status, response.fields, &path, file),
            Err(NotSent(status, why)) => {
                let (Named::Path(name) | Named::Target(name)) = &named;
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

    /// `user` is who the application ran as, if not as the server.
    async fn by_path(
        &self,
        path: &[u8],
        user: Option<Arc<Credentials>>,
    ) -> Result<(PathBuf, (OpenFile, Identity)), NotSent> {
        let path = self.folder.join(Path::new(OsStr::from_bytes(path)));
        let path = std::path::absolute(&path).unwrap_or(path);
        if !may_be_named(&path) {
            let why = "its path has `..` in it, its name begins with a dot, or it is a PHP source";
            return Err(NotSent(403, why.to_owned()));
        }
        let opened = file::open(path.clone(), self.roots.clone(), user, is_public).await;
        opened
            .map(|file| (path, file))
            .map_err(|why| NotSent(404, why))
    }

    async fn by_target(&self, target: &[u8]) -> Result<(PathBuf, (OpenFile, Identity)), NotSent> {
        let named = |(prefix, folder): &(String, PathBuf)| {
            Some((folder.clone(), below_prefix(target, prefix)?))
        };
        let Some((folder, path)) = self.locations.iter().find_map(named) else {
            let why = "it names no file in one of `http.sendfile.locations`";
            return Err(NotSent(404, why.to_owned()));
        };
        let name = path.clone();
        let opened = tokio::task::spawn_blocking(move || open_named(&folder, &path)).await;
        let opened = opened.map_err(|panicked| NotSent(500, panicked.to_string()))?;
        opened
            .map(|file| (name, file))
            .map_err(|why| NotSent(404, why))
    }
}
