//! `compress`, and `gzip` and `zstd` as RoadRunner has them: shorter responses, and requests with a
//! body that was made shorter.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use pronghorn_serve::{BodyError, Charge, Exchange, Handled, Handler, Request};
use pronghorn_wire::Fields;

use super::parts::Parts;
use crate::coding::Coding;
use crate::compress::{Compressor, Decoder, memory};
use crate::settings::CompressSettings;

struct Compression {
    next: Arc<dyn Handler>,
    compressor: Compressor,
    /// What a request's body may become, in bytes.
    most: u64,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let settings = &parts.settings.compress;
    with(next, settings, settings.codings.clone())
}

/// The settings are those of `compress`, but for the codings.
pub(super) fn coding_around(
    next: Arc<dyn Handler>,
    parts: Parts<'_>,
    coding: Coding,
) -> Arc<dyn Handler> {
    with(next, &parts.settings.compress, vec![coding])
}

fn with(
    next: Arc<dyn Handler>,
    settings: &CompressSettings,
    codings: Vec<Coding>,
) -> Arc<dyn Handler> {
    let mut compressor = settings.compressor();
    compressor.codings = codings;
    Arc::new(Compression {
        next,
        compressor,
        most: settings.max_request_body.bytes(),
    })
}

impl Handler for Compression {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let head = &request.head;
        let wish = self.compressor.wish(head.method(), head.fields());
        Box::pin(async move {
            let coding = match request.head.body_len() {
                Some(0) => None,
                _ => self.sent_in(request.head.fields()),
            };
            let response = match coding {
                None => self.next.handle(request, exchange).await,
                Some(coding) => self.decoded(coding, request, exchange).await,
            };
            let has_room = || exchange.charge().has_room();
            self.compressor.apply(&wish, response, has_room)
        })
    }
}

impl Compression {
    /// The one coding of a request's body, if it is one of ours.
    fn sent_in(&self, request: &Fields) -> Option<Coding> {
        let mut all = request.all("content-encoding");
        let coding = Coding::by_name(all.next()?.trim_ascii())?;
        let is_ours = all.next().is_none() && self.compressor.codings.contains(&coding);
        is_ours.then_some(coding)
    }

    async fn decoded(
        &self,
        coding: Coding,
        mut request: Request,
        exchange: &mut dyn Exchange,
    ) -> pronghorn_serve::Response {
        request.head.forget_coding();
        let mut decoded = Decoded {
            decoder: Decoder::new(coding, self.most),
            input: Bytes::new(),
            held: Charge::default(),
            coding,
            exchange,
        };
        self.next.handle(request, &mut decoded).await
    }
}

/// A request's body without the coding that it came in.
struct Decoded<'a> {
    exchange: &'a mut dyn Exchange,
    decoder: Decoder,
    /// Received and not decoded.
    input: Bytes,
    /// For what decoding takes.
    held: Charge,
    coding: Coding,
}

impl Exchange for Decoded<'_> {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let decoded = self.decoder.decode(&mut self.input)?;
            if !decoded.is_empty() {
                return Poll::Ready(Ok(Some(decoded)));
            }
            match std::task::ready!(self.exchange.poll_body(cx))? {
                Some(more) => {
                    if self.held.is_none() {
                        self.held = self.exchange.charge();
                        self.held.set(memory(self.coding, &more));
                    }
                    self.input = more;
                }
                None => {
                    self.decoder.end()?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.exchange.poll_gone(cx)
    }

    fn begun(&mut self, can_be_told: bool) {
        self.exchange.begun(can_be_told);
    }

    fn charge(&self) -> Charge {
        self.exchange.charge()
    }

    fn takes(&mut self, bytes: usize) {
        self.exchange.takes(bytes);
    }

    fn uncounted(&self) -> usize {
        self.exchange.uncounted()
    }

    fn inform(&mut self, status: u16, fields: &Fields) {
        self.exchange.inform(status, fields);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.exchange.poll_flush(cx)
    }
}
