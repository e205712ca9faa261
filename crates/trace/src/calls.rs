//! Methods of the server that an application called during a piece of work, until they are spans.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::SpanId;
use crate::sampling::nanos;
use crate::span::{Kind, Span, Value};

/// Calls that one piece of work keeps: those after them are only counted.
const MOST: usize = 64;
/// The length of a name, which a worker chooses, and of an error, in bytes.
const LONGEST: usize = 128;

/// Calls of one piece of work, as they end.
#[derive(Debug)]
pub struct Calls {
    /// When the work began; all spans are placed by it.
    start: Instant,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    calls: Vec<Call>,
    count: u64,
}

#[derive(Debug)]
struct Call {
    method: Box<str>,
    /// From the start of the work.
    from: Duration,
    took: Duration,
    error: Option<Box<str>>,
}

impl Calls {
    /// The calls of a piece of work that began so.
    #[must_use]
    pub fn since(start: Instant) -> Self {
        Self {
            start,
            made: Mutex::default(),
        }
    }

    /// A call of `service.Method` has ended now.
    pub fn add(&self, method: &str, since: Instant, error: Option<&str>) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.count += 1;
        if made.calls.len() < MOST {
            made.calls.push(Call {
                method: cut(method).into(),
                from: since.saturating_duration_since(self.start),
                took: since.elapsed(),
                error: error.map(|why| cut(why.lines().next().unwrap_or_default()).into()),
            });
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.count
    }

    /// A span for each, as parts of `parent`; the work began so many nanoseconds after the Unix
    /// epoch.
    #[must_use]
    pub fn spans(&self, parent: SpanId, start: u64) -> Vec<Span> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = made.calls.iter();
        calls.map(|call| call.span(parent, start)).collect()
    }
}

impl Call {
    fn span(&self, parent: SpanId, start: u64) -> Span {
        let (service, method) = self.method.rsplit_once('.').unwrap_or(("", &self.method));
        let at = |after: Duration| start.saturating_add(nanos(after));
        Span {
            id: SpanId::random(),
            parent: Some(parent),
            name: format!("{service}/{method}").into(),
            kind: Kind::Internal,
            start: at(self.from),
            end: at(self.from.saturating_add(self.took)),
            attributes: vec![
                ("rpc.system", Value::from("goridge")),
                ("rpc.service", service.into()),
                ("rpc.method", method.into()),
            ],
            error: self.error.as_deref().map(Into::into),
        }
    }
}

fn cut(text: &str) -> &str {
    let end = text.floor_char_boundary(LONGEST);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_is_a_span_where_it_was() {
        let calls = Calls::since(Instant::now());
        advance(Duration::from_millis(5)).await;
        let since = Instant::now();
        advance(Duration::from_millis(2)).await;
        calls.add("kv.a.MGet", since, None);
        calls.add("none", since, Some("no such method\nat all"));
        let parent = SpanId::random();
        let spans = calls.spans(parent, 1_000_000);
        let [get, none] = &spans[..] else {
            panic!("{spans:?}");
        };
        assert_eq!((&*get.name, get.parent), ("kv.a/MGet", Some(parent)));
        assert_eq!((get.start, get.end), (6_000_000, 8_000_000));
        assert_eq!(get.attributes[1], ("rpc.service", "kv.a".into()));
        assert_eq!(get.error, None);
        assert_eq!(none.error.as_deref(), Some("no such method"));
    }

    #[tokio::test(start_paused = true)]
    async fn many_calls_are_counted_and_long_names_cut() {
        let calls = Calls::since(Instant::now());
        for _ in 0..1000 {
            calls.add(&"é".repeat(1000), Instant::now(), None);
        }
        assert_eq!(calls.count(), 1000);
        let spans = calls.spans(SpanId::random(), 0);
        assert_eq!(spans.len(), MOST);
        assert_eq!(spans[0].name.len(), LONGEST + 1);
    }
}
