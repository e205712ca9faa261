//! From an event in the code to the queues of its channel's outputs.
//!
//! A subscriber of our own and no layer on a registry: nothing here uses spans, and without them a
//! record that nobody wants costs what the callsite's cached answer costs.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::format::{Content, Format, Record};
use super::host::Clock;
use super::newest::Newest;
use super::queue::Queue;
use crate::settings::Level;

/// The channel of the server itself, and of records without a channel.
pub(super) const SERVER: &str = "server";

/// A longer buffer is given back: a crash report should not stay in the memory of its thread.
const KEPT: usize = 16 << 10;

/// Where records go, by channel.
pub(super) struct Router {
    pub(super) channels: Channels,
    pub(super) clock: Clock,
    pub(super) newest: Arc<Newest>,
}

/// The channels as they are now. Clones are the same ones. A swap and no lock: every request makes
/// a record.
#[derive(Clone)]
pub(super) struct Channels(Arc<ArcSwap<Vec<Channel>>>);

impl Channels {
    pub(super) fn new(channels: Vec<Channel>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(channels)))
    }

    pub(super) fn set(&self, channels: Vec<Channel>) {
        self.0.store(Arc::new(channels));
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = self.0.load();
        f.debug_list()
            .entries(channels.iter().map(|channel| &channel.name))
            .finish()
    }
}

pub(super) struct Channel {
    /// A record belongs to the channel when its target is this, without regard to case.
    pub(super) name: String,
    /// The lowest level that is written. `None` when nothing is.
    pub(super) level: Option<Level>,
    pub(super) lanes: Arc<[Lane]>,
}

/// Outputs that get the same text.
pub(super) struct Lane {
    pub(super) format: Format,
    pub(super) queues: Vec<Arc<Queue>>,
}

/// A record's channel, if it wants it.
struct Route<'a> {
    channel: &'a Channel,
    level: Level,
    logger: &'a str,
    stranger: Option<&'a str>,
}

impl<'a> Route<'a> {
    fn of(metadata: &'a Metadata<'_>, channels: &'a [Channel]) -> Option<Self> {
        let level = level(metadata)?;
        let target = metadata.target();
        let find = |is_named: fn(&str, &str) -> bool| {
            channels
                .iter()
                .find(|channel| is_named(&channel.name, target))
        };
        let own = find(|name, target| name == target).or_else(|| find(str::eq_ignore_ascii_case));
        let route = match own {
            Some(channel) => Route {
                channel,
                level,
                logger: target,
                stranger: None,
            },
            // A library's, or one of ours that lacks its channel: only what should be looked at.
            None if level >= Level::Warn && !is_talkative(target) => Route {
                channel: channels.iter().find(|channel| channel.name == SERVER)?,
                level,
                logger: SERVER,
                stranger: Some(target),
            },
            None => return None,
        };
        let wanted = route.channel.level.is_some_and(|least| level >= least);
        wanted.then_some(route)
    }
}

/// The clients of Kafka, AMQP and NATS tell of each attempt to reach a broker; the drivers tell
/// what changes, once. The library of HTTP/2 warns of each frame that a client should not have
/// sent.
fn is_talkative(target: &str) -> bool {
    const CRATES: [&str; 4] = ["krafka", "lapin", "async_nats", "h2"];
    let of = target
        .split_once("::")
        .map_or(target, |(crate_name, _)| crate_name);
    CRATES.contains(&of)
}

impl Subscriber for Router {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) && Route::of(metadata, &self.channels.0.load()).is_some() {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    /// Asked several times for each record, of callsites that are not [`Interest::never`] already.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let channels = self.channels.0.load();
        let least = channels.iter().filter_map(|channel| channel.level);
        Some(match least.min() {
            Some(Level::Debug) => LevelFilter::DEBUG,
            Some(Level::Info) => LevelFilter::INFO,
            Some(Level::Warn) => LevelFilter::WARN,
            Some(Level::Error) => LevelFilter::ERROR,
            None => LevelFilter::OFF,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let channels = self.channels.0.load();
        let Some(route) = Route::of(event.metadata(), &channels) else {
            return;
        };
        let record = Record {
            time: (self.clock)(),
            level: route.level,
            logger: route.logger,
            content: Content::Event {
                event,
                stranger: route.stranger,
            },
        };
        with_buffer(|line| {
            let mut is_kept = false;
            for lane in &*route.channel.lanes {
                line.clear();
                lane.format.write(line, &record);
                for queue in &lane.queues {
                    queue.push(line, route.level);
                }
                if let Some(json) = lane.format.kept(line).filter(|_| !is_kept) {
                    self.newest.push(json, route.level);
                    is_kept = true;
                }
            }
            if !is_kept {
                line.clear();
                Format::to_be_kept().write(line, &record);
                self.newest.push(line, route.level);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1) // asked for only by code that ignores `enabled`
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// `None` for what is below debug.
fn level(metadata: &Metadata<'_>) -> Option<Level> {
    match *metadata.level() {
        tracing::Level::ERROR => Some(Level::Error),
        tracing::Level::WARN => Some(Level::Warn),
        tracing::Level::INFO => Some(Level::Info),
        tracing::Level::DEBUG => Some(Level::Debug),
        tracing::Level::TRACE => None,
    }
}

/// Lends the thread's buffer. A record made while another one is (by a field's `Debug`), or while
/// the thread ends, gets a new one.
pub(super) fn with_buffer(write: impl FnOnce(&mut String)) {
    thread_local! {
        static BUFFER: Cell<String> = const { Cell::new(String::new()) };
    }
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    write(&mut buffer);
    if buffer.capacity() <= KEPT {
        _ = BUFFER.try_with(|kept| kept.set(buffer)); // else the thread ends
    }
}
