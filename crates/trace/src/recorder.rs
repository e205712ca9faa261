//! Where traces begin and where they go.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_base::LogThrottle;
use pronghorn_metrics::{Counter, Registry};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::id::{SpanId, TraceId};
use crate::propagation::{Incoming, Outgoing};
use crate::sampling::{Live, Sampling};
use crate::span::Trace;

/// Whether traces are wanted, and by whom. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Arc<OnceLock<Arc<Recorder>>>);

/// Begins traces, and takes those that have ended. Never waits.
#[derive(Debug)]
pub struct Recorder {
    sampling: Live,
    queue: Sender<Trace>,
    kept: Counter,
    dropped: Counter,
    throttle: LogThrottle,
}

/// Traces that have ended, in that order.
#[derive(Debug)]
pub struct Traces(Receiver<Trace>);

/// A trace as it begins.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The caller's, or a new one.
    pub trace: TraceId,
    /// The caller's span.
    pub parent: Option<SpanId>,
    /// The caller's `tracestate`, as it was sent.
    pub state: Box<str>,
    /// The span that is all of the work here.
    pub span: SpanId,
    /// Whether services that are asked next are told to keep it.
    pub sampled: bool,
}

impl Tracer {
    /// From now on traces are wanted: `waiting` of them at most lie in the queue. None if somebody
    /// wants them already.
    #[must_use]
    pub fn turn_on(
        &self,
        sampling: &Sampling,
        waiting: usize,
        metrics: &Registry,
    ) -> Option<Traces> {
        let (queue, traces) = channel(waiting);
        let recorder = Recorder {
            sampling: Live::new(sampling),
            queue,
            kept: metrics.counter("traces_total", "Traces that were to be exported."),
            dropped: metrics.counter(
                "traces_dropped_total",
                "Traces that found the queue to the exporter full.",
            ),
            throttle: LogThrottle::default(),
        };
        self.0.set(Arc::new(recorder)).ok()?;
        Some(Traces(traces))
    }

    /// None while nobody wants traces.
    #[must_use]
    pub fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.get()
    }
}

impl Recorder {
    /// Other settings hold for traces that begin or end from now on.
    pub fn set_sampling(&self, sampling: &Sampling) {
        self.sampling.set(sampling);
    }

    /// Begins the part of a trace that is done here.
    pub fn begin(&self, incoming: Incoming) -> Begun {
        let Incoming {
            parent,
            sampled,
            state,
        } = incoming;
        let trace = parent.map_or_else(TraceId::random, |(trace, _)| trace);
        Begun {
            trace,
            parent: parent.map(|(_, span)| span),
            state,
            span: SpanId::random(),
            sampled: self.sampling.is_sampled(trace, sampled),
        }
    }

    /// Whether a trace is to be made of what has ended so.
    pub fn keeps(&self, begun: &Begun, failed: bool, took: Duration) -> bool {
        self.sampling.is_kept(begun.sampled, failed, took)
    }

    /// Takes a trace that has ended. Where the queue is full, it is lost and counted.
    pub fn take(&self, trace: Trace) {
        self.kept.increment();
        if self.queue.try_send(trace).is_err() {
            self.dropped.increment();
            if let Some(traces) = self.throttle.should_log() {
                tracing::warn!(
                    target: "otel", traces,
                    "traces are lost: they end faster than they are exported"
                );
            }
        }
    }
}

impl Begun {
    /// The context for services that work on a part of it, which is the span `part`.
    #[must_use]
    pub fn outgoing(&self, part: SpanId) -> Outgoing {
        Outgoing {
            trace: self.trace,
            span: part,
            sampled: self.sampled,
        }
    }
}

impl Traces {
    /// The next one. None never comes: the queue lives as long as the tracer.
    ///
    /// Cancel safe: a trace that has not been returned stays.
    pub async fn next(&mut self) -> Option<Trace> {
        self.0.recv().await
    }

    /// One that waits already.
    pub fn waiting(&mut self) -> Option<Trace> {
        self.0.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sampling = Sampling {
        parent: true,
        ratio: 1.0,
        errors: true,
        slow: None,
    };

    fn trace(begun: &Begun) -> Trace {
        Trace {
            id: begun.trace,
            state: begun.state.clone(),
            spans: Vec::new(),
        }
    }

    #[test]
    fn a_full_queue_loses_what_comes_and_counts_it() {
        let (tracer, metrics) = (Tracer::default(), Registry::default());
        assert!(tracer.recorder().is_none());
        let mut traces = tracer.turn_on(&ALL, 2, &metrics).expect("it was off");
        assert!(tracer.turn_on(&ALL, 2, &metrics).is_none());
        let recorder = tracer.recorder().expect("it is on");
        let begun: Vec<_> = (0..5)
            .map(|_| recorder.begin(Incoming::default()))
            .collect();
        for begun in &begun {
            recorder.take(trace(begun));
        }
        assert_eq!((recorder.kept.get(), recorder.dropped.get()), (5, 3));
        let taken: Vec<_> = std::iter::from_fn(|| traces.waiting()).collect();
        let ids: Vec<_> = taken.iter().map(|trace| trace.id).collect();
        assert_eq!(ids, [begun[0].trace, begun[1].trace]);
    }

    #[test]
    fn a_trace_goes_on_where_its_caller_is() {
        let tracer = Tracer::default();
        let traces = tracer.turn_on(&ALL, 1, &Registry::default());
        let recorder = tracer.recorder().expect("it is on");
        let (trace, span) = (TraceId::random(), SpanId::random());
        let begun = recorder.begin(Incoming {
            parent: Some((trace, span)),
            sampled: Some(false),
            state: "a=b".into(),
        });
        assert_eq!((begun.trace, begun.parent), (trace, Some(span)));
        assert_ne!(begun.span, span);
        assert!(!begun.sampled && !recorder.keeps(&begun, false, Duration::ZERO));
        assert!(recorder.keeps(&begun, true, Duration::ZERO));
        assert_eq!(traces.expect("it was off").waiting(), None);
    }
}
