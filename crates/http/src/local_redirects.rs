//! Answers that are to be found at another path of this server (RFC 3875, section 6.2.2).

use std::sync::{Arc, OnceLock, Weak};

use pronghorn_serve::{Exchange, Handled, Handler, OnSent, Request, Response, Unhandled};

/// One after the other; a program that sends to itself must not run for ever.
const MOST_REDIRECTS: u8 = 10;

/// The handler that finds an answer by its path, for handlers behind it. It is known only when all
/// of them are there.
#[derive(Default)]
pub struct LocalRedirects(OnceLock<Weak<dyn Handler>>);

impl LocalRedirects {
    pub fn set(&self, first: &Arc<dyn Handler>) {
        _ = self.0.set(Arc::downgrade(first)); // it is set once
    }

    /// The request for another target, and who answers it.
    ///
    /// # Errors
    ///
    /// Why nobody does, for the log.
    pub(crate) fn follow(
        &self,
        request: &Request,
        target: &[u8],
    ) -> Result<(Request, Arc<dyn Handler>), &'static str> {
        let is_target = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        if !target.iter().all(is_target) {
            return Err("has characters that no path has");
        }
        if request.redirects >= MOST_REDIRECTS {
            return Err("is one redirect too many");
        }
        let first = self.0.get().and_then(Weak::upgrade);
        let first = first.ok_or("came when the server was stopping")?;
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(mark) => (target.get(..mark), target.get(mark + 1..)),
            None => (Some(target), None),
        };
        let head = request.head.elsewhere(path.unwrap_or_default(), query);
        let mut next = Request::new(
            Box::new(head),
            request.peer.clone(),
            request.accepted,
            request.accepted_us,
        );
        next.attributes = request.attributes.clone();
        next.id.clone_from(&request.id);
        next.redirects = request.redirects + 1;
        next.trace.clone_from(&request.trace);
        Ok((next, first))
    }
}

/// The chain, and what lives as long: the handler at which local redirects begin.
pub(crate) struct Redirecting {
    pub(crate) next: Arc<dyn Handler>,
    pub(crate) _found: Arc<dyn Handler>,
}

impl Handler for Redirecting {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        self.next.handle(request, exchange)
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}

impl std::fmt::Debug for LocalRedirects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalRedirects").finish_non_exhaustive()
    }
}
