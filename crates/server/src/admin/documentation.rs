//! `/docs/`: the pages of the documentation, as packages bring them.
//!
//! Everybody may read them: they are the same on each machine, and a browser has no token to send.

use std::sync::Arc;

use pronghorn_http::files::{Files, RootSettings};
use pronghorn_serve::{Request, Response};

const PREFIX: &str = "/docs";
/// The directory of the pages in a package, from that of the program.
const SITE: &str = "../share/pronghorn/site";

/// The pages beside this program, if it has any.
pub(super) fn open() -> Option<Arc<Files>> {
    let program = std::env::current_exe().ok()?;
    let directory = program.parent()?.join(SITE).canonicalize().ok()?;
    let mut settings = RootSettings::new(directory.clone());
    PREFIX.clone_into(&mut settings.prefix);
    settings.index = vec!["index.html".to_owned()];
    match Files::open(vec![settings]) {
        Ok(files) => Some(Arc::new(files)),
        Err((_, error)) => {
            let directory = directory.display();
            tracing::warn!(target: "server", %directory, "the documentation can't be shown: {error}");
            None
        }
    }
}

pub(super) fn is_asked(path: &[u8]) -> bool {
    let below = path.strip_prefix(PREFIX.as_bytes());
    below.is_some_and(|below| matches!(below, [] | [b'/', ..]))
}

pub(super) async fn answer(pages: Option<&Arc<Files>>, request: Request) -> Response {
    let Some(pages) = pages else {
        let why = "the documentation is not installed beside this program: packages bring it\n";
        return Response::plain(404, why);
    };
    match pages.answer(&request).await {
        Some(answer) => answer.response,
        None => Response::plain(404, "there is no such page: `/docs/` has a search\n"),
    }
}
