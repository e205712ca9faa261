//! The handler of a site: scripts below a root, run by a pool.

use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use pronghorn_cgi::{Found, Script, Site, Target};

use crate::bridge::PoolHandler;
use crate::exchange::Exchange;
use crate::message::{Handled, Handler, Request, Response};

/// Answers requests by the scripts below a root.
#[derive(Debug, Clone)]
pub struct ScriptHandler {
    pub pool: Arc<PoolHandler>,
    pub site: Arc<Site>,
}

/// The script that a call runs.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    pub(crate) site: Arc<Site>,
    pub(crate) script: Script,
}

impl Handler for ScriptHandler {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(self.answer(request, exchange))
    }
}

impl ScriptHandler {
    async fn answer(&self, request: Request, exchange: &mut dyn Exchange) -> Response {
        match self.resolve(request.head.path()) {
            Target::Script(script) => {
                let site = self.site.clone();
                let script = ScriptCall { site, script };
                self.pool.answer(request, exchange, Some(script)).await
            }
            Target::Folder => {
                let mut response = Response::status_only(301);
                let location = [request.head.path(), b"/"].concat();
                response.fields.push("Location", location);
                response
            }
            Target::Page(_) | Target::NotFound => Response::status_only(404),
            Target::Forbidden => Response::status_only(403),
            Target::BadRequest => Response::status_only(400),
        }
    }

    fn resolve(&self, path: &[u8]) -> Target {
        let look = |path: &[u8]| {
            let path = self
                .site
                .root()
                .join(Path::new(std::ffi::OsStr::from_bytes(path)));
            Ok::<_, Infallible>(match std::fs::metadata(path) {
                Ok(found) if found.is_file() => Found::File,
                Ok(found) if found.is_dir() => Found::Folder,
                _ => Found::Nothing,
            })
        };
        self.site
            .resolve(path, look)
            .unwrap_or_else(|never| match never {})
    }
}
