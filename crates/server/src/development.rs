//! Development mode: what is watched, and a boot that failed is shown in the browser.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_http::{Exchange, Handled, Handler, Request, Response};
use tokio::sync::watch;

use pronghorn_workers::{Standing, Watching};

/// Folders whose files come and go without being the application's code.
const LEFT_OUT: [&str; 7] = [
    "node_modules",
    ".git",
    ".idea",
    "cache",
    "storage",
    "log",
    "logs",
];
const CODE: [&str; 3] = [".php", ".env", "composer.lock"];

/// What is watched while nobody has written what to watch: all that is code.
pub(crate) fn watching() -> Watching {
    Watching {
        folders: vec![PathBuf::from(".")],
        recursive: true,
        ignored: LEFT_OUT.map(PathBuf::from).into(),
        patterns: CODE.map(String::from).into(),
        interval: Duration::from_secs(1),
    }
}

/// Shows why the workers don't boot, in place of their replies.
pub(crate) struct Gate {
    pub(crate) next: Arc<dyn Handler>,
    pub(crate) standing: watch::Receiver<Standing>,
}

impl Handler for Gate {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let why = match &*self.standing.borrow() {
            Standing::Up => None,
            Standing::Down(why) => Some(why.clone()),
        };
        match why {
            None => self.next.handle(request, exchange),
            Some(why) => Box::pin(async move {
                let mut response = Response::plain(
                    500,
                    &format!("{why}\n\nThe server tries again when a file changes.\n"),
                );
                // So that the page comes back by itself once the code boots.
                response.fields.push("Refresh", "1");
                response
            }),
        }
    }
}
