//! The body of a response on its way to the client.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming};
use pronghorn_base::{LogThrottle, Timer};
use pronghorn_serve::{BodySource, Read};
use pronghorn_wire::Fields;
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use crate::connection::{BUFFER, Connection};
use crate::head::incoming;
use crate::server::Busy;

/// A connection while it carries a request.
pub(crate) struct Lease {
    pub(crate) connection: Connection,
    pub(crate) busy: Busy,
    /// Whether another request may follow.
    pub(crate) is_reusable: bool,
}

impl Lease {
    /// The response is whole.
    pub(crate) fn give_back(self) {
        if self.is_reusable {
            self.busy.0.keep(self.connection);
        }
    }
}

/// A response's body as it comes from a server, piece by piece.
pub(crate) struct ResponseBody {
    body: Incoming,
    /// None once the response is whole.
    lease: Option<Lease>,
    /// The rest of the request's body on its way.
    _upload: JoinSet<()>,
    upstream: Arc<str>,
    idle: Duration,
    timer: Timer,
    /// Since when a piece is awaited.
    waits: Option<Instant>,
    trailers: Fields,
    /// The piece that was read before it was asked for.
    first: Option<Bytes>,
    /// Why there was none.
    failed: Option<String>,
}

impl ResponseBody {
    pub(crate) fn new(
        upstream: &str,
        body: Incoming,
        lease: Lease,
        idle: Duration,
        upload: JoinSet<()>,
    ) -> Self {
        Self {
            body,
            lease: Some(lease),
            _upload: upload,
            upstream: upstream.into(),
            idle,
            timer: Timer::default(),
            waits: None,
            trailers: Fields::new(),
            first: None,
            failed: None,
        }
    }

    /// All of a short body that is there with its head, or comes at once.
    pub(crate) async fn whole(&mut self) -> Option<Bytes> {
        if self.body.is_end_stream() {
            self.finish();
            return Some(Bytes::new());
        }
        let len = self.body.size_hint().exact()?;
        if len > BUFFER as u64 {
            return None;
        }
        if poll_fn(|cx| Poll::Ready(self.begin(cx))).await.is_pending() {
            // The connection's own task reads the body when it is asked for: now it has its turn.
            yield_now().await;
            _ = poll_fn(|cx| Poll::Ready(self.begin(cx))).await;
        }
        if !self.body.is_end_stream() || self.first.as_ref()?.len() as u64 != len {
            return None;
        }
        self.finish();
        self.first.take()
    }

    /// Reads the first piece, if it is there.
    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => self.first = Some(bytes),
                Err(frame) => self.take_trailers(frame),
            },
            Some(Err(error)) => self.failed = Some(error.to_string()),
            None => {}
        }
        Poll::Ready(())
    }

    fn take_trailers(&mut self, frame: Frame<Bytes>) {
        if let Ok(trailers) = frame.into_trailers() {
            self.trailers = incoming(&trailers);
        }
    }

    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    fn broken(&self, why: &str) -> Poll<Read> {
        static BROKEN: LogThrottle = LogThrottle::new();
        if let Some(responses) = BROKEN.should_log() {
            let server = self.lease.as_ref().map(|it| it.busy.0.address.to_string());
            tracing::warn!(
                target: "http", upstream = &*self.upstream, server, responses,
                "a response of an upstream broke off, and the client got a part of it: {why}"
            );
        }
        Poll::Ready(Read::Broken)
    }
}

impl BodySource for ResponseBody {
    /// A buffer that is being read into, and pieces on their way.
    fn cost(&self) -> usize {
        2 * BUFFER
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        if let Some(bytes) = self.first.take() {
            return Poll::Ready(Read::Bytes(bytes));
        }
        if let Some(why) = self.failed.take() {
            return self.broken(&why);
        }
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                let since = *self.waits.get_or_insert_with(Instant::now);
                ready!(self.timer.poll(cx, Some(since + self.idle)));
                let limit = self.idle.as_secs_f64();
                return self.broken(&format!("nothing came for {limit} s (`idle_timeout`)"));
            };
            self.waits = None;
            match frame {
                None => {
                    self.finish();
                    return Poll::Ready(Read::End);
                }
                Some(Err(error)) => return self.broken(&error.to_string()),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Poll::Ready(Read::Bytes(bytes)),
                    Err(frame) => self.take_trailers(frame),
                },
            }
        }
    }

    fn trailers(&mut self) -> Fields {
        std::mem::take(&mut self.trailers)
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("upstream", &self.upstream)
            .finish_non_exhaustive()
    }
}
