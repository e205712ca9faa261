//! Why others are ahead where they are: what was found out about each loss of the published run.

/// A reason for losses whose measures and families begin so; the first one that fits is told.
#[derive(Debug)]
pub(crate) struct Reason {
    /// A heading.
    pub(crate) name: &'static str,
    measures: &'static [&'static str],
    families: &'static [&'static str],
    pub(crate) why: &'static str,
}

/// Nobody has looked so far.
pub(crate) static UNKNOWN: Reason = Reason {
    name: "Not explained",
    measures: &[],
    families: &[],
    why: "Nobody has looked into these.",
};

static REASONS: [Reason; 6] = [
    Reason {
        name: "Few connections to php-fpm",
        measures: &["p99"],
        families: &["landing"],
        why: "nginx keeps two connections to php-fpm and answers the same few clients over and over. \
              Clients without a reply in the whole run count in no latency. The rate is lower than \
              ours.",
    },
    Reason {
        name: "Starts of CGI programs",
        measures: &["p99", "requests", "CPU"],
        families: &["cgi-"],
        why: "Ten processes start at once on two processors. Runs disagree about who is first.",
    },
    Reason {
        name: "A handler that waits",
        measures: &["p99"],
        families: &["waiting-"],
        why: "Both servers wait for the handler. Runs disagree about who is first.",
    },
    Reason {
        name: "Memory beside CGI programs",
        measures: &["memory"],
        families: &["cgi-"],
        why: "Nothing else maps the pages of our program. Apache's processes share theirs, and hold \
              no queue, no metrics and no TLS.",
    },
    Reason {
        name: "Memory of kept workers",
        measures: &["memory"],
        families: &[
            "hello-N-workers",
            "landing-N-workers",
            "memory-N-workers",
            "slim",
            "waiting-",
        ],
        why: "A kept worker keeps what php-fpm frees after a request, and shares 1.4 MB with the \
              server for calls and replies. The server's program is 12 MB more than nginx'.",
    },
    Reason {
        name: "Memory of the server",
        measures: &["memory"],
        families: &[""],
        why: "The server's program is 12 MB more than nginx'. `php -S` has no server beside it.",
    },
];

/// None where nobody has looked yet.
pub(crate) fn reason(measure: &str, family: &str) -> Option<&'static Reason> {
    let fits = |text: &str, starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    REASONS
        .iter()
        .find(|it| fits(measure, it.measures) && fits(family, it.families))
}
