//! Development mode: a boot that failed is shown in the browser.

use std::sync::Arc;

use pronghorn_serve::{Exchange, Handled, Handler, Request};
use pronghorn_workers::Standing;
use tokio::sync::watch;

use crate::development::{Asked, Development, Problem, show};

/// Shows why the workers don't boot, in place of their replies.
pub(super) struct Gate {
    pub(super) next: Arc<dyn Handler>,
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) development: Arc<Development>,
    /// Pages load again by themselves.
    pub(super) reloads: bool,
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
                let asked = Asked::by(&request);
                let problem = Problem::of_boot(&why);
                let mut response = show(&asked, 500, &problem, &self.development).await;
                if !(self.reloads && asked.wants_html) {
                    // So that the page comes back by itself once the code boots.
                    response.fields.push("Refresh", "1");
                }
                response
            }),
        }
    }
}
