//! Records that an application makes, on the channel `app`.

use pronghorn_wire::native::LogEntry;

use crate::observer::Origin;

/// PSR-3's names, which are syslog's, in the order of their numbers.
const LEVELS: [&str; 8] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug",
];

/// The same for all levels, each of which is a place of its own for `tracing`.
macro_rules! record {
    ($level:ident, $pool:expr, $pid:expr, $origin:expr, $severity:expr, $entry:expr) => {{
        let Origin { request_id, route, trace_id } = $origin;
        let context = Some($entry.context.as_str()).filter(|context| !context.is_empty());
        tracing::$level!(
            target: "app", pool = $pool, pid = $pid, request_id, route, trace_id, severity = $severity, context, "{}",
            $entry.message
        );
    }};
}

/// `severity` is PSR-3's level, where the record's own does not say it.
pub(crate) fn write(pool: &str, pid: u32, origin: Origin<'_>, entry: &LogEntry) {
    let level = LEVELS.get(usize::from(entry.level)).copied();
    let severity = level.filter(|level| matches!(entry.level, 0..3 | 5) && !level.is_empty());
    match entry.level {
        0..=3 => record!(error, pool, pid, origin, severity, entry),
        4 => record!(warn, pool, pid, origin, severity, entry),
        5 | 6 => record!(info, pool, pid, origin, severity, entry),
        _ => record!(debug, pool, pid, origin, severity, entry),
    }
}
