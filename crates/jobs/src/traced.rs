//! A trace for each run of a job, while traces are wanted. Where the headers of a job say to which
//! trace its push belongs, it is that one.

use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_base::{BoxFuture, since_1970};
use pronghorn_queue::Job;
use pronghorn_trace::{Begun, Calls, Incoming, Kind, Recorder, Span, Trace, Value, nanos, text};
use tokio::time::Instant;

use crate::call::JobCall;
use crate::consumer::{Attempt, Outcome, Runners};

/// As RoadRunner writes them.
const TRACEPARENT: &str = "Traceparent";
const UBER_TRACE_ID: &str = "Uber-Trace-Id";

/// Runners whose jobs have traces.
pub(crate) struct Traced<R> {
    pub(crate) runners: R,
    /// None while nobody wants traces.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl<R: Runners> Runners for Traced<R> {
    fn places(&self) -> usize {
        self.runners.places()
    }

    fn room(&self) -> usize {
        self.runners.room()
    }

    fn run(&self, mut call: JobCall) -> BoxFuture<'static, Attempt> {
        let Some(recorder) = &self.recorder else {
            return self.runners.run(call);
        };
        let trace = JobTrace::begin(recorder, &mut call);
        let attempt = self.runners.run(call);
        Box::pin(async move {
            let attempt = attempt.await;
            trace.end(&attempt.outcome);
            attempt
        })
    }
}

/// One run of a job.
struct JobTrace {
    recorder: Arc<Recorder>,
    begun: Begun,
    job: Arc<Job>,
    pipeline: String,
    driver: &'static str,
    calls: Arc<Calls>,
    wall: SystemTime,
    start: Instant,
}

impl JobTrace {
    /// The job's handler is told which span it is part of.
    fn begin(recorder: &Arc<Recorder>, call: &mut JobCall) -> Self {
        let headers = &call.job.headers;
        let begun = recorder.begin(Incoming::read(|wanted| {
            let found = headers
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found
                .and_then(|(_, values)| values.first())
                .map(String::as_bytes)
        }));
        let outgoing = begun.outgoing(begun.span);
        let mut job = Job::clone(&call.job);
        job.headers.retain(|name, _| {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            !is(TRACEPARENT) && !is(UBER_TRACE_ID)
        });
        for (name, value) in [
            (
                TRACEPARENT,
                String::from_utf8_lossy(&outgoing.w3c()).into_owned(),
            ),
            (UBER_TRACE_ID, outgoing.jaeger()),
        ] {
            job.headers.insert(name.to_owned(), vec![value]);
        }
        call.job = Arc::new(job);
        let start = Instant::now();
        let calls = Arc::new(Calls::since(start));
        call.calls = Some(calls.clone());
        Self {
            recorder: recorder.clone(),
            begun,
            job: call.job.clone(),
            pipeline: call.pipeline.clone(),
            driver: call.driver,
            calls,
            wall: SystemTime::now(),
            start,
        }
    }

    fn end(self, outcome: &Outcome) {
        let took = self.start.elapsed();
        let error = match outcome {
            Outcome::NotBegun => return, // nothing has happened
            Outcome::Answered(_) | Outcome::Replied(..) | Outcome::Dropped(_) => None,
            Outcome::NotTaken(why) => Some(why.as_str()),
            Outcome::Reported(reason) | Outcome::Lost(reason) => Some(reason.brief()),
        };
        if !self.recorder.keeps(&self.begun, error.is_some(), took) {
            return;
        }
        let error = error.and_then(|why| why.lines().next());
        let start = nanos(since_1970(self.wall));
        let attempt = self.job.attempts.saturating_add(1);
        let span = Span {
            id: self.begun.span,
            parent: self.begun.parent,
            name: format!("process {}", self.pipeline).into(),
            kind: Kind::Consumer,
            start,
            end: start.saturating_add(nanos(took)),
            attributes: vec![
                ("messaging.system", self.driver.into()),
                ("messaging.operation.type", "process".into()),
                ("messaging.destination.name", self.pipeline.as_str().into()),
                ("messaging.message.id", text(self.job.id.as_bytes())),
                (
                    "messaging.message.body.size",
                    (self.job.payload.len() as u64).into(),
                ),
                ("pronghorn.job", text(self.job.name.as_bytes())),
                ("pronghorn.attempt", Value::Int(attempt.into())),
            ],
            error: error.map(Into::into),
        };
        let mut spans = vec![span];
        spans.extend(self.calls.spans(self.begun.span, start));
        self.recorder.take(Trace {
            id: self.begun.trace,
            state: self.begun.state,
            spans,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use bytes::Bytes;
    use pronghorn_metrics::Registry;
    use pronghorn_trace::{Sampling, Tracer};

    use super::*;
    use pronghorn_queue::Headers;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PUSH: &str = "00f067aa0ba902b7";

    /// Says which headers it was given.
    struct Runner;

    impl Runners for Runner {
        fn places(&self) -> usize {
            1
        }

        fn room(&self) -> usize {
            0
        }

        fn run(&self, call: JobCall) -> BoxFuture<'static, Attempt> {
            let told = call
                .job
                .headers
                .get(TRACEPARENT)
                .map(|values| values.join(","));
            let told = told.unwrap_or_default();
            let outcome = match &*call.job.name {
                "fail" => Outcome::Reported(format!("{told}\nand its trace").into()),
                _ => Outcome::Answered(Bytes::from(told)),
            };
            Box::pin(std::future::ready(outcome.into()))
        }
    }

    fn call(name: &str, headers: &[(&str, String)]) -> JobCall {
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| ((*name).to_owned(), vec![value.clone()]));
        JobCall {
            job: Arc::new(Job {
                id: "id-1".to_owned(),
                name: name.to_owned(),
                headers: headers.collect::<Headers>(),
                ..Job::default()
            }),
            pipeline: "mail".to_owned(),
            queue: None,
            driver: "memory",
            deadline: None,
            wants_result: false,
            can_go_back: true,
            calls: None,
            pid: AtomicU32::new(0),
        }
    }

    fn traced(ratio: f64) -> (Traced<Runner>, pronghorn_trace::Traces) {
        let tracer = Tracer::default();
        let sampling = Sampling {
            parent: true,
            ratio,
            errors: true,
            slow: None,
        };
        let traces = tracer.turn_on(&sampling, 8, &Registry::default());
        let recorder = tracer.recorder().cloned();
        let runners = Runner;
        (Traced { runners, recorder }, traces.expect("it was off"))
    }

    #[tokio::test]
    async fn a_job_goes_on_in_the_trace_of_its_push() {
        let (traced, mut traces) = traced(0.0);
        let headers = [("traceparent", format!("00-{TRACE}-{PUSH}-01"))];
        let attempt = traced.run(call("ping", &headers)).await;
        let trace = traces.waiting().expect("its push is kept");
        let span = &trace.spans[0];
        assert_eq!(trace.id.to_string(), TRACE);
        assert_eq!(span.parent.map(|id| id.to_string()), Some(PUSH.to_owned()));
        assert_eq!((&*span.name, span.kind), ("process mail", Kind::Consumer));
        match attempt.outcome {
            Outcome::Answered(told) => assert_eq!(told, format!("00-{TRACE}-{}-01", span.id)),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_job_that_failed_is_kept_and_the_others_as_the_ratio_says() {
        let (traced, mut traces) = traced(0.0);
        traced.run(call("ping", &[])).await;
        assert_eq!(traces.waiting(), None);
        traced.run(call("fail", &[])).await;
        let trace = traces.waiting().expect("an error");
        let error = trace.spans[0].error.as_deref().expect("an error");
        assert!(
            error.starts_with("00-") && !error.contains("trace"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn nothing_is_told_while_nobody_wants_traces() {
        let traced = Traced {
            runners: Runner,
            recorder: None,
        };
        match traced.run(call("ping", &[])).await.outcome {
            Outcome::Answered(told) => assert_eq!(told, ""),
            other => panic!("{other:?}"),
        }
    }
}
