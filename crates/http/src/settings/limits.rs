//! `http.timeouts` and `http.forms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use pronghorn_config::{Section, Size, Table};
use pronghorn_form::{FIELD_BYTES, FIELDS, FILES, LEVELS, Limits as FormLimits};
use pronghorn_h1::{BODY_PAUSE, HEAD_TIME, IDLE, Limits as ReceiveLimits};
use pronghorn_serve::{Limits, SEND_PAUSE};

/// What is waited for longer is not waited for at all.
const WAIT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub head: Duration,
    pub body: Duration,
    pub send: Duration,
    pub idle: Duration,
}

impl Timeouts {
    /// The limits of connections, of which there may be so many.
    pub fn limits(&self, connections: usize) -> Limits {
        Limits {
            receive: ReceiveLimits {
                head_time: self.head,
                body_pause: self.body,
                idle: self.idle,
                ..ReceiveLimits::default()
            },
            send_pause: self.send,
            connections,
            ..Limits::default()
        }
    }
}

impl Section for Timeouts {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        let mut wait = |name, sentence, default| t.key(name, sentence).range(WAIT).default(default);
        Self {
            head: wait(
                "head",
                "Time limit for the head of a request, from its first byte.",
                HEAD_TIME,
            ),
            body: wait(
                "body",
                "Time limit for the next bytes of a body. After that time, the average must also \
                 be at least 500 bytes per second.",
                BODY_PAUSE,
            ),
            send: wait(
                "send",
                "Time limit for a client to read more of its response.",
                SEND_PAUSE,
            ),
            idle: wait(
                "idle",
                "Time limit for the next request on a connection. It must be longer than the same \
                 limit of a proxy or load balancer in front of the server.",
                IDLE,
            ),
        }
    }
}

/// Limits of forms.
#[derive(Clone, Copy, Debug)]
pub struct Forms(pub FormLimits);

impl Section for Forms {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let memory = t
            .key(
                "memory",
                "How much of a form may be in memory: everything except its files.",
            )
            .range(Size::megabytes(1)..=Size::megabytes(1000))
            .default(Size::megabytes(FIELD_BYTES as u64 >> 20));
        Self(FormLimits {
            fields: t
                .key(
                    "fields",
                    "How many fields a form may have. A form with more is answered 400. \
                     `max_input_vars` in php.ini has no effect here.",
                )
                .range(1..=1_000_000)
                .default(FIELDS),
            files: t
                .key(
                    "files",
                    "How many files a form may have. A form with more is answered 400.",
                )
                .range(0..=10_000)
                .default(FILES),
            levels: t
                .key(
                    "levels",
                    "How many pairs of brackets a field's name may have; `a[b][c]` has 2. A form \
                     with more is answered 400.",
                )
                .range(1..=u8::MAX)
                .default(LEVELS),
            field_bytes: usize::try_from(memory.bytes()).unwrap_or(usize::MAX),
        })
    }
}
