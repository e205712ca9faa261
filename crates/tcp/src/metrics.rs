//! Counters of each server. Connections are counted where they are accepted.

use pronghorn_metrics::{Counter, Family, Registry};

use crate::end::End;

/// The counters of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) messages: Counter,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    ended: Family<Counter, 1>,
}

impl Metrics {
    /// `registry` has the name of the server as a label.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            messages: registry.counter("messages_total", "Messages of clients."),
            received: registry.counter("received_bytes_total", "Bytes of clients."),
            sent: registry.counter("sent_bytes_total", "Bytes that clients took."),
            ended: registry.family(
                "connections_ended_total",
                "Connections that have ended, by reason.",
                ["reason"],
                End::NAMES.len(),
            ),
        }
    }

    pub(crate) fn ended(&self, end: &End) {
        self.ended.with([end.name()]).increment();
    }
}
