//! The value of the Date field: formatted once a second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    static NOW: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Calls `with` with the current date, as RFC 9110, section 5.6.7, writes it.
pub(crate) fn with_now<R>(with: impl FnOnce(&[u8]) -> R) -> R {
    let second = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    NOW.with_borrow_mut(|(known, text)| {
        if *known != second {
            *known = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        with(text.as_bytes())
    })
}
