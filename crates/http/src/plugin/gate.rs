//! Development mode: a boot that failed is shown in the browser.

use std::sync::Arc;

use pronghorn_workers::Standing;
use tokio::sync::watch;

use crate::exchange::Exchange;
use crate::message::{Handled, Handler, Request, Response};

/// Shows why the workers don't boot, in place of their replies.
pub(super) struct Gate {
    pub(super) next: Arc<dyn Handler>,
    pub(super) standing: watch::Receiver<Standing>,
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
