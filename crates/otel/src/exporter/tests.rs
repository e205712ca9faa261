use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_metrics::Reading;
use pronghorn_trace::{Incoming, Kind, Recorder, Sampling, Span, Tracer};
use tokio::task::JoinSet;
use tokio::time::advance;

use super::*;

type Answers = Arc<Mutex<Vec<Result<Accepted, Failure>>>>;
type Sent = Arc<Mutex<Vec<(Signal, usize, Duration)>>>;

/// Answers as it was told, and then takes everything. Notes what it got, and when.
struct Fake {
    answers: Answers,
    sent: Sent,
    start: Instant,
}

impl Sink for Fake {
    async fn send(&mut self, signal: Signal, message: &[u8]) -> Result<Accepted, Failure> {
        let spans = match signal {
            Signal::Traces => {
                let request = crate::messages::TracesRequest::decode(message).expect("a message");
                request.resource_spans[0].scope_spans[0].spans.len()
            }
            Signal::Metrics => 0,
        };
        lock(&self.sent).push((signal, spans, self.start.elapsed()));
        lock(&self.answers)
            .pop()
            .unwrap_or_else(|| Ok(Accepted::default()))
    }
}

struct Play {
    recorder: Arc<Recorder>,
    sent: Sent,
    metrics: Registry,
    end: CancellationToken,
    task: JoinSet<()>,
}

impl Play {
    /// With the answers of the collector, the last one first.
    fn start(mut answers: Vec<Result<Accepted, Failure>>) -> Self {
        answers.reverse();
        let (tracer, metrics) = (Tracer::default(), Registry::default());
        let all = Sampling {
            parent: true,
            ratio: 1.0,
            errors: true,
            slow: None,
        };
        let traces = tracer.turn_on(&all, 100, &metrics).expect("it was off");
        let (sent, end) = (Sent::default(), CancellationToken::new());
        let exporter = Exporter {
            output: Output::Sink(Fake {
                answers: Arc::new(Mutex::new(answers)),
                sent: sent.clone(),
                start: Instant::now(),
            }),
            resource: Resource::default(),
            traces,
            batch: Batch {
                spans: 10,
                wait: Duration::from_secs(5),
            },
            metrics: None,
            counters: Counters::new(&metrics),
            end: end.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(exporter.run());
        Self {
            recorder: tracer.recorder().expect("it is on").clone(),
            sent,
            metrics,
            end,
            task,
        }
    }

    fn traces(&self, traces: usize) {
        for _ in 0..traces {
            let begun = self.recorder.begin(Incoming::default());
            let span = Span {
                id: begun.span,
                parent: None,
                name: "GET".into(),
                kind: Kind::Server,
                start: 0,
                end: 1,
                attributes: Vec::new(),
                error: None,
            };
            self.recorder.take(Trace {
                id: begun.trace,
                state: Box::default(),
                spans: vec![span],
            });
        }
    }

    /// Lets it go on for so many seconds.
    async fn after(&self, seconds: u64) {
        for _ in 0..seconds * 10 {
            advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
    }

    fn spans(&self) -> Vec<usize> {
        lock(&self.sent)
            .iter()
            .map(|(_, spans, _)| *spans)
            .collect()
    }

    fn count(&self, name: &str) -> u64 {
        let families = self.metrics.families();
        let family = families.iter().find(|family| family.name == name);
        match family.expect(name).series[0].reading {
            Reading::Count(count) => count,
            ref other => panic!("{other:?}"),
        }
    }
}

fn fails(is_passing: bool) -> Result<Accepted, Failure> {
    Err(Failure {
        is_passing,
        after: None,
        why: "it was told to".to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_it_is_full_or_has_waited() {
    let play = Play::start(Vec::new());
    play.traces(13);
    play.after(1).await;
    assert_eq!(play.spans(), [10]);
    play.after(5).await;
    assert_eq!(play.spans(), [10, 3]);
    assert_eq!(play.count("spans_exported_total"), 13);
}

#[tokio::test(start_paused = true)]
async fn what_can_pass_is_tried_again_with_longer_and_longer_pauses() {
    let play = Play::start(vec![fails(true), fails(true), fails(true)]);
    play.traces(10);
    play.after(10).await;
    assert_eq!(play.spans(), [10; 4]);
    let sent = lock(&play.sent).clone();
    let pauses: Vec<_> = sent
        .windows(2)
        .map(|pair| pair[1].2.saturating_sub(pair[0].2))
        .collect();
    for (at, pause) in pauses.iter().enumerate() {
        let most = Duration::from_secs(1 << at) + Duration::from_millis(200);
        assert!(*pause >= most / 3 && *pause <= most, "{pauses:?}");
    }
    assert_eq!(play.count("spans_exported_total"), 10);
    assert_eq!(play.count("export_failures_total"), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_of_no_use_is_lost_at_once_and_the_rest_after_a_minute() {
    let play = Play::start(vec![fails(false)]);
    play.traces(10);
    play.after(1).await;
    play.traces(10);
    play.after(1).await;
    assert_eq!(play.spans(), [10, 10]);
    assert_eq!(play.count("spans_lost_total"), 10);

    let play = Play::start((0..100).map(|_| fails(true)).collect());
    play.traces(10);
    play.after(70).await;
    assert!((5..15).contains(&play.spans().len()), "{:?}", play.spans());
    assert_eq!(play.count("spans_lost_total"), 10);
}

#[tokio::test(start_paused = true)]
async fn a_collector_may_say_when() {
    let later = Failure {
        is_passing: true,
        after: Some(Duration::from_secs(20)),
        why: "busy".to_owned(),
    };
    let play = Play::start(vec![Err(later)]);
    play.traces(10);
    play.after(19).await;
    assert_eq!(play.spans(), [10]);
    play.after(2).await;
    assert_eq!(play.spans(), [10, 10]);
}

#[tokio::test(start_paused = true)]
async fn the_end_sends_what_is_left_each_batch_once() {
    let mut play = Play::start((0..100).map(|_| fails(true)).collect());
    play.traces(25);
    play.after(1).await;
    play.end.cancel();
    play.task
        .join_next()
        .await
        .expect("a task")
        .expect("no panic");
    let spans = play.spans();
    let of_each = |wanted| spans.iter().filter(|spans| **spans == wanted).count();
    assert!(of_each(5) == 1 && of_each(10) <= 4, "{spans:?}");
    assert_eq!(play.count("spans_lost_total"), 25);
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_is_counted_and_never_more_than_there_was() {
    let rejected = |rejected| {
        Ok(Accepted {
            rejected,
            why: "no".to_owned(),
        })
    };
    let play = Play::start(vec![rejected(3), rejected(u64::MAX)]);
    play.traces(20);
    play.after(1).await;
    assert_eq!(play.count("spans_rejected_total"), 13);
    assert_eq!(play.count("spans_exported_total"), 7);
}
