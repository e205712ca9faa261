//! Requests at a constant rate, whatever the answers do.
//!
//! A client that waits for an answer before it asks again asks less while the server is slow, and
//! so does not see how long others would have waited then (coordinated omission). Here the moment
//! of each request is set beforehand, and latency counts from that moment, not from when the
//! request could be sent at last. Each connection has its own share of the moments, as a person has
//! who does not change over to another's.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{Latency, Seen};
use crate::client::{CheckError, Connection};
use crate::error::BenchError;
use crate::scenario::Scenario;

/// After the last request, for late answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between the call and the first request: all connections are open then.
const LEAD: Duration = Duration::from_millis(100);
/// Microseconds; far above what can be, with patience.
const LONGEST: u64 = 120_000_000;

pub(super) async fn run(
    address: SocketAddr,
    scenario: &Scenario,
    rate: u32,
    connections: u32,
    seconds: u32,
) -> Result<Seen, BenchError> {
    let plan = Plan {
        start: Instant::now() + LEAD,
        rate,
        connections,
        seconds,
    };
    let scenario = Arc::new(scenario.clone());
    let tally = Arc::new(Mutex::new(Tally::new(plan.start)));
    let mut clients = JoinSet::new();
    for index in 0..connections {
        let (scenario, tally) = (Arc::clone(&scenario), Arc::clone(&tally));
        clients.spawn(async move {
            let alarm = Alarm::new()?;
            let share = Share { plan, index };
            let connect = || Connection::open(address, scenario.protocol);
            let wait = |moment| alarm.at(moment);
            share.ask(&scenario, connect, wait, &tally).await
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic")?;
    }
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.seen(plan)
}

/// Which requests there are, and when.
#[derive(Debug, Clone, Copy)]
struct Plan {
    start: Instant,
    /// Per second.
    rate: u32,
    connections: u32,
    seconds: u32,
}

impl Plan {
    fn moment(self, request: u32) -> Instant {
        self.start + Duration::from_secs(1) * request / self.rate
    }

    fn requests(self) -> u32 {
        self.rate * self.seconds
    }

    fn end_of_patience(self) -> Instant {
        self.moment(self.requests()) + PATIENCE
    }
}

/// One connection's requests: each so many places behind the one before.
struct Share {
    plan: Plan,
    index: u32,
}

impl Share {
    async fn ask<S, C, W>(
        &self,
        scenario: &Scenario,
        connect: impl Fn() -> C,
        wait: impl Fn(Instant) -> W,
        tally: &Mutex<Tally>,
    ) -> Result<(), CheckError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        C: Future<Output = Result<Connection<S>, CheckError>>,
        W: Future<Output = io::Result<()>>,
    {
        let Self { plan, index } = self;
        let tally = || tally.lock().unwrap_or_else(PoisonError::into_inner);
        let request = scenario.request();
        let mut kept = Some(connect().await?);
        for number in (*index..plan.requests()).step_by(plan.connections as usize) {
            let moment = plan.moment(number);
            let now = Instant::now();
            if now >= plan.end_of_patience() {
                tally().give_up(plan.end_of_patience() - moment);
                continue;
            }
            if now < moment {
                wait(moment).await?;
            }
            let asked = async {
                // A server may close a connection that waits.
                let mut connection = match still_open(kept.take()).await {
                    Some(connection) => connection,
                    None => connect().await?,
                };
                let answer = connection.ask(&request).await?;
                kept = answer.keep.then_some(connection);
                Ok::<_, CheckError>(answer)
            };
            let Ok(answer) = timeout_at(plan.end_of_patience(), asked).await else {
                tally().give_up(plan.end_of_patience() - moment);
                continue;
            };
            let answer = answer?;
            tally().answered(Instant::now() - moment);
            answer.judge(scenario)?;
        }
        Ok(())
    }
}

async fn still_open<S: AsyncRead + AsyncWrite + Unpin>(
    connection: Option<Connection<S>>,
) -> Option<Connection<S>> {
    let mut connection = connection?;
    connection.is_open().await.then_some(connection)
}

/// What all connections saw.
struct Tally {
    /// From the moments on which requests were due, in microseconds.
    waits: Histogram<u64>,
    answered: u64,
    given_up: u64,
    last: Instant,
}

impl Tally {
    fn new(start: Instant) -> Self {
        Self {
            waits: Histogram::new_with_max(LONGEST, 3).expect("the bounds are sound"),
            answered: 0,
            given_up: 0,
            last: start,
        }
    }

    fn answered(&mut self, wait: Duration) {
        self.answered += 1;
        self.last = Instant::now();
        self.note(wait);
    }

    fn give_up(&mut self, wait: Duration) {
        self.given_up += 1;
        self.note(wait);
    }

    fn note(&mut self, wait: Duration) {
        let wait = u64::try_from(wait.as_micros()).unwrap_or(LONGEST);
        self.waits.saturating_record(wait);
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests")]
    fn seen(&self, plan: Plan) -> Result<Seen, BenchError> {
        if self.answered == 0 {
            return Err(BenchError::Errors(
                "not one request was answered".to_owned(),
            ));
        }
        let requests = self.answered as f64;
        let time = self.last.max(plan.moment(plan.requests())) - plan.start;
        Ok(Seen {
            requests,
            rate: requests / time.as_secs_f64(),
            latency: Latency::of(&self.waits),
            unanswered: self.given_up,
            errors_percent: 0.0,
        })
    }
}

/// A timer of the kernel's: the runtime's own are only good to a millisecond, many answers' time.
///
/// It is read like a pipe, and the runtime's type for pipes waits for any such descriptor.
struct Alarm(Receiver);

impl Alarm {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    async fn at(&self, moment: Instant) -> io::Result<()> {
        let left = moment.saturating_duration_since(Instant::now());
        // Nothing at all would switch it off.
        let left = left.max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: left.try_into().map_err(io::Error::other)?,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value)?;
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                expirations => return expirations.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{sleep, sleep_until};

    use super::*;
    use crate::scenario::{Body, folder, select};

    fn plan(rate: u32, connections: u32, seconds: u32) -> Plan {
        let start = Instant::now() + LEAD;
        Plan {
            start,
            rate,
            connections,
            seconds,
        }
    }

    /// A server with one worker: it answers one request at a time, the one that comes at a moment
    /// after a stall.
    async fn serve(mut stream: DuplexStream, stall: (Instant, Duration)) {
        let mut request = [0; 1024];
        let mut stalled = false;
        while let Ok(1..) = stream.read(&mut request).await {
            if !stalled && Instant::now() >= stall.0 {
                stalled = true;
                sleep(stall.1).await;
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello World!";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }

    /// What a single connection shows of a server that stalls once.
    async fn seen(
        plan: Plan,
        stall: (Instant, Duration),
        expected: &str,
    ) -> Result<Seen, BenchError> {
        let mut scenario = select(&folder(), &["hello".to_owned()]).unwrap().remove(0);
        scenario.expected.body = Body::Exactly(expected.into());
        let tally = Mutex::new(Tally::new(plan.start));
        let (ours, theirs) = duplex(4096);
        let mut server = JoinSet::new();
        server.spawn(serve(theirs, stall));
        let ours = Mutex::new(Some(Connection::of(ours)));
        let connect = || ready(Ok(ours.lock().unwrap().take().expect("one is enough")));
        let wait = |moment| async move {
            sleep_until(moment).await;
            Ok(())
        };
        let share = Share { plan, index: 0 };
        share.ask(&scenario, connect, wait, &tally).await?;
        tally.into_inner().unwrap().seen(plan)
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_of_a_second_in_ten_is_seen_by_all_who_came_meanwhile() {
        let plan = plan(1000, 1, 10);
        let stall = (plan.start + Duration::from_secs(3), Duration::from_secs(1));
        let seen = seen(plan, stall, "Hello World!").await.unwrap();
        assert_eq!((seen.requests, seen.unanswered), (10_000.0, 0));
        // A tenth of them waited, evenly from a second down to nothing.
        let Latency {
            p50_us,
            p90_us,
            p99_us,
            p999_us,
            max_us,
        } = seen.latency;
        assert!(p50_us < 2000.0 && p90_us < 10_000.0, "{p50_us} {p90_us}");
        assert!((899_000.0..=902_000.0).contains(&p99_us), "{p99_us}");
        assert!((989_000.0..=992_000.0).contains(&p999_us), "{p999_us}");
        assert!((1_000_000.0..=1_002_000.0).contains(&max_us), "{max_us}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_get_no_answer_count_with_the_time_that_they_waited() {
        let plan = plan(100, 1, 10);
        let stall = (
            plan.start + Duration::from_secs(5),
            Duration::from_secs(1000),
        );
        let seen = seen(plan, stall, "Hello World!").await.unwrap();
        assert_eq!((seen.requests, seen.unanswered), (500.0, 500));
        assert!((seen.rate - 50.0).abs() < 0.1, "{}", seen.rate);
        // The first of them waited for the other half of the time and for all of the patience.
        assert!(
            (seen.latency.max_us - 10_000_000.0).abs() < 10_000.0,
            "{}",
            seen.latency.max_us
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_wrong_answer_refuses_the_rate() {
        let plan = plan(100, 1, 10);
        let never = (plan.start + Duration::from_secs(100), Duration::ZERO);
        let error = seen(plan, never, "Hello world!").await.unwrap_err();
        assert!(error.to_string().contains("instead of"), "{error}");
    }

    #[tokio::test]
    async fn the_alarm_is_finer_than_a_millisecond() {
        let alarm = Alarm::new().unwrap();
        // Others may have the CPU just then: not each time, but some time.
        let mut late = Duration::MAX;
        for _ in 0..10_000 {
            let moment = Instant::now() + Duration::from_micros(300);
            alarm.at(moment).await.unwrap();
            late = Instant::now().checked_duration_since(moment).unwrap();
            if late < Duration::from_micros(500) {
                return;
            }
        }
        panic!("late by {late:?}");
    }
}
