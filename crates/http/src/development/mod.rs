//! What development mode shows in a browser: a page for what went wrong, and pages that load again
//! after a change.

mod page;
mod problem;
mod reload;
mod source;

use std::sync::Arc;

use pronghorn_process::Credentials;

pub(crate) use page::{Asked, show};
pub(crate) use problem::Problem;
pub(crate) use reload::{Changes, Reloading};

use crate::settings::Editor;

/// What the pages need to know.
#[derive(Debug, Clone)]
pub struct Development {
    pub editor: Editor,
    /// Who the workers are, when they are not the server's own user: no file is shown that they
    /// could not read.
    pub worker_user: Option<Arc<Credentials>>,
}
