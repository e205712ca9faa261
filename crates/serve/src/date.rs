//! The clock that tells dates: the value of the Date field, formatted once a second, and moments as
//! numbers.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pronghorn_base::{micros, since_1970};
use tokio::time::Instant;

thread_local! {
    static DATE: RefCell<Option<Date>> = const { RefCell::new(None) };
}

struct Date {
    text: String,
    /// When the second that it names is over.
    until: Instant,
}

impl Date {
    fn of(now: Instant) -> Self {
        const SECOND: u32 = 1_000_000_000;
        let since = since_1970(SystemTime::now());
        let left = Duration::from_nanos((SECOND - since.subsec_nanos()).into());
        Self {
            text: httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(since.as_secs())),
            until: now + left,
        }
    }
}

/// Calls `with` with the date, as RFC 9110, section 5.6.7, writes it. `now` is now: looking at the
/// clock costs as much as the rest. A clock that is set counts within a second.
pub(crate) fn with_now<R>(now: Instant, with: impl FnOnce(&[u8]) -> R) -> R {
    DATE.with_borrow_mut(|known| {
        if known.as_ref().is_none_or(|date| now >= date.until) {
            *known = None;
        }
        with(known.get_or_insert_with(|| Date::of(now)).text.as_bytes())
    })
}

/// A moment in microseconds since the Unix epoch.
pub(crate) fn epoch_us(moment: Instant) -> u64 {
    micros(since_1970(SystemTime::now()).saturating_sub(moment.elapsed()))
}
