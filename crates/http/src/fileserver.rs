//! `fileserver`: files, and nothing behind them.

use std::path::Path;
use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request, Response};

use crate::compress::Compressor;
use crate::files::{Answer, Files, Tag};
use crate::middleware::Unusable;
use crate::settings::{CompressSettings, RootKeys};

/// Answers each request with a file, or with the word that there is none.
#[derive(Debug)]
pub struct FileServer {
    roots: Vec<(Arc<Files>, Option<Compressor>)>,
}

impl FileServer {
    /// Relative folders begin at `base`.
    ///
    /// # Errors
    ///
    /// When one of the folders can't be used.
    pub fn open(roots: &[RootKeys], base: &Path, tag: Tag) -> Result<Self, Unusable> {
        let open = |keys: &RootKeys| {
            let files = Files::open(vec![keys.settings(base, tag)]);
            let files = files.map_err(|(_, source)| Unusable {
                key: "fileserver.serve",
                path: keys.folder.clone(),
                source,
            })?;
            let compressor = keys
                .compress
                .then(|| CompressSettings::default().compressor());
            Ok((Arc::new(files), compressor))
        };
        Ok(Self {
            roots: roots.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "an exchange is not Sync: a shared one could not go to another thread"
    )]
    async fn answer(&self, request: Request, exchange: &mut dyn Exchange) -> Response {
        let head = &request.head;
        if !matches!(head.method(), "GET" | "HEAD") {
            let mut response = Response::status_only(405);
            response.fields.push("Allow", "GET, HEAD");
            return response;
        }
        for (files, compressor) in &self.roots {
            let Some(Answer { response, .. }) = files.answer(&request).await else {
                continue;
            };
            return match compressor {
                Some(compressor) => {
                    let wish = compressor.wish(head.method(), head.fields());
                    compressor.apply(&wish, response, || exchange.charge().has_room())
                }
                None => response,
            };
        }
        Response::status_only(404)
    }
}

impl Handler for FileServer {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(self.answer(request, exchange))
    }
}
