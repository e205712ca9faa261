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
        why: "nginx keeps two connections to php-fpm and answers the same few clients again and \
              again. Clients that get no reply during the whole run do not appear in the \
              latencies. The rate is lower than Pronghorn's.",
    },
    Reason {
        name: "Starts of CGI programs",
        measures: &["p99", "requests", "CPU"],
        families: &["cgi-"],
        why: "Ten processes start at once on two processors. The first place changes from run to \
              run.",
    },
    Reason {
        name: "A handler that waits",
        measures: &["p99"],
        families: &["waiting-"],
        why: "Both servers wait for the handler. The first place changes from run to run.",
    },
    Reason {
        name: "Memory beside CGI programs",
        measures: &["memory"],
        families: &["cgi-"],
        why: "No other process uses the pages of Pronghorn's program. Apache's processes share the \
              pages of their program, and have no queue, no metrics and no TLS.",
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
        why: "A kept worker keeps memory that php-fpm frees after a request, and shares 1.4 MB \
              with the server for calls and replies. The server's program takes 12 MB more than \
              nginx'.",
    },
    Reason {
        name: "Memory of the server",
        measures: &["memory"],
        families: &[""],
        why: "The server's program takes 12 MB more than nginx'. `php -S` is server and PHP in one \
              program.",
    },
];

/// None where nobody has looked yet.
pub(crate) fn reason(measure: &str, family: &str) -> Option<&'static Reason> {
    let fits = |text: &str, starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    REASONS
        .iter()
        .find(|it| fits(measure, it.measures) && fits(family, it.families))
}
