//! Why others are ahead where they are: what was found out about each loss of the published run.

/// A reason for losses whose measures and families begin so; the first one that fits is told.
struct Reason {
    measures: &'static [&'static str],
    families: &'static [&'static str],
    why: &'static str,
}

const REASONS: [Reason; 6] = [
    Reason {
        measures: &["p99"],
        families: &["landing"],
        why: "nginx keeps two connections to php-fpm and answers the same few clients over and over; \
              those that wait for the whole run have no latency, and the rate is lower",
    },
    Reason {
        measures: &["p99", "requests", "CPU"],
        families: &["cgi-"],
        why: "starts of ten processes at once on two processors: runs disagree about who is first",
    },
    Reason {
        measures: &["p99"],
        families: &["waiting-"],
        why: "runs disagree about who is first: both wait for the handler",
    },
    Reason {
        measures: &["memory"],
        families: &["cgi-"],
        why: "pages of our program, which nothing else maps; Apache's processes share theirs, and \
              hold no queue, no metrics and no TLS",
    },
    Reason {
        measures: &["memory"],
        families: &[
            "hello-N-workers",
            "landing-N-workers",
            "memory-N-workers",
            "slim",
            "waiting-",
        ],
        why: "a kept worker keeps what php-fpm frees after a request, and shares 1.4 MB with the \
              server for calls and replies; the server's program is 12 MB more than nginx'",
    },
    Reason {
        measures: &["memory"],
        families: &[""],
        why: "pages of the server's program: 12 MB more than nginx', and `php -S` has no server \
              beside it",
    },
];

/// None where nobody has looked yet.
pub(crate) fn reason(measure: &str, family: &str) -> Option<&'static str> {
    let fits = |text: &str, starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    let found = REASONS
        .iter()
        .find(|it| fits(measure, it.measures) && fits(family, it.families));
    Some(found?.why)
}
