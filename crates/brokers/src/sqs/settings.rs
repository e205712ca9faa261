//! `sqs`: who this server is at AWS, and what a pipeline says of its queue there.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pronghorn_config::{Pairs, Table};

use crate::kind::{object_of, text_of};

/// As RoadRunner's.
const QUEUE: &str = "default";
/// SQS names no shorter wait that saves a request, and a stop waits for it.
const WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: u32 = 20;
/// The server says every few seconds that it works on its jobs.
const VISIBILITY: u32 = 60;
/// SQS takes 12 hours.
const VISIBILITY_RANGE: std::ops::RangeInclusive<u32> = 30..=43_200;

/// The place of SQS. A setting that is not written is looked for where AWS's own tools look.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SqsServer {
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl fmt::Debug for SqsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsServer")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The settings of a pipeline's place in SQS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqsPipeline {
    pub(crate) server: SqsServer,
    pub(crate) queue: String,
    /// The queue is created where it is missing.
    pub(crate) declare: bool,
    /// A job that is out is hidden for so long while nothing is heard of its server.
    pub(crate) visibility: Duration,
    /// A job that is given up stays, for what the queue does with such.
    pub(crate) retain_failed: bool,
    /// It is not given to anybody for so long then.
    pub(crate) error_visibility: Duration,
    /// How long a request waits for a job.
    pub(crate) wait: Duration,
    pub(crate) group: Option<String>,
    /// A queue that is created has these.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
}

/// The section `sqs`.
pub(super) fn server(t: &mut Table<'_>) -> SqsServer {
    let sentence = "Amazon SQS for pipelines with `driver: sqs`. Keys that are not set come from \
                    the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION` and similar variables) or \
                    from the machine's role.";
    t.section_with("sqs", sentence, |t| {
        let mut text = |name, sentence| {
            let text: Option<String> = t.key(name, sentence).optional();
            text.filter(|text| !text.is_empty())
        };
        let server = SqsServer {
            key: text("key", "The access key ID."),
            secret: text("secret", "The secret access key."),
            session_token: text(
                "session_token",
                "The session token of temporary credentials.",
            ),
            region: text("region", "The region of the queues, such as `eu-west-1`."),
            endpoint: text("endpoint", "A URL to use instead of AWS's."),
        };
        if server.key.is_some() != server.secret.is_some() {
            let (there, missing) = if server.key.is_some() {
                ("key", "secret")
            } else {
                ("secret", "key")
            };
            let message = format!("stands without `{missing}`");
            t.error(there, &message, &format!("add `{missing}`"));
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if server.endpoint.as_ref().is_some_and(|url| !is_url(url)) {
            let message = "is no URL; accepted: what begins with `http://` or `https://`";
            t.error("endpoint", message, "for example `http://127.0.0.1:9324`");
        }
        server
    })
}

/// The keys of a pipeline's `config`.
pub(crate) fn read(t: &mut Table<'_>, server: &SqsServer, queue: Option<String>) -> SqsPipeline {
    t.no_effect(
        "max_messages_in_flight",
        "a job is taken when a worker is free for it, and not before",
    );
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let pairs = |pairs: Pairs| {
        let pairs = pairs.iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        pairs.collect()
    };
    let pipeline = SqsPipeline {
        server: server.clone(),
        queue: queue.unwrap_or_else(|| QUEUE.to_owned()),
        declare: !t
            .key(
                "skip_queue_declaration",
                "Whether the server must not create the queue, because it already exists.",
            )
            .default(false),
        visibility: seconds(
            t.key(
                "visibility_timeout",
                "Seconds for which a server may be silent before other servers get its jobs.",
            )
            .zero_is_default()
            .range(VISIBILITY_RANGE)
            .default(VISIBILITY),
        ),
        retain_failed: t
            .key(
                "retain_failed_jobs",
                "Whether a job that was given up stays in the queue, for SQS's own dead-letter \
                 queue.",
            )
            .default(false),
        error_visibility: seconds(
            t.key(
                "error_visibility_timeout",
                "Seconds for which SQS hides a job that was given up and stays in the queue. With \
                 0, the job is hidden until `visibility_timeout` has passed.",
            )
            .range(0..=43_200)
            .default(0),
        ),
        wait: seconds(
            t.key(
                "wait_time_seconds",
                "Seconds for which a request waits for a job. A stop of the server also waits that \
                 long.",
            )
            .zero_is_default()
            .range(1..=LONGEST_WAIT)
            .default(1),
        ),
        group: t
            .key(
                "message_group_id",
                "The message group of jobs in a FIFO queue, whose name ends in `.fifo`. By \
                 default, the pipeline's name.",
            )
            .optional(),
        attributes: pairs(
            t.key(
                "attributes",
                "Attributes for a queue that the server creates.",
            )
            .default(Pairs::default()),
        ),
        tags: pairs(
            t.key("tags", "Tags for a queue that the server creates.")
                .default(Pairs::default()),
        ),
    };
    if !is_queue(&pipeline.queue) {
        t.error("queue", WRONG_QUEUE, "write letters and digits");
    }
    pipeline
}

const WRONG_QUEUE: &str = "is no name for SQS: it takes 1 to 80 letters, digits, `-` and `_`, and \
                           `.fifo` at the end of such a queue";

fn is_queue(name: &str) -> bool {
    let plain = name.strip_suffix(".fifo").unwrap_or(name);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=80).contains(&name.len()) && !plain.is_empty() && plain.bytes().all(is_plain)
}

impl SqsPipeline {
    #[cfg(feature = "sqs")]
    pub(crate) fn is_fifo(&self) -> bool {
        self.queue.strip_suffix(".fifo").is_some() // as AWS tells them apart, case and all
    }

    /// Reads a pipeline that PHP declares.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        server: &SqsServer,
    ) -> Result<Self, String> {
        let text = |key: &str| text_of(map, key);
        let number = |key: &str| match text(key) {
            None => Ok(0),
            Some(text) => (text.parse::<u32>()).map_err(|_| format!("`{key}` is no number")),
        };
        let object = |key: &str| match text(key) {
            None => Ok(BTreeMap::new()),
            Some(json) => {
                object_of(&json).ok_or_else(|| format!("`{key}` is no JSON object of values"))
            }
        };
        let queue = text("queue").unwrap_or_else(|| QUEUE.to_owned());
        if !is_queue(&queue) {
            return Err(format!("`{queue}` {WRONG_QUEUE}"));
        }
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (least, most) = (VISIBILITY_RANGE.start(), VISIBILITY_RANGE.end());
        let visibility = match number("visibility_timeout")? {
            0 => VISIBILITY,
            written => written.clamp(*least, *most),
        };
        // The package of PHP has a name of its own for it.
        let wait = number("wait_time_seconds")?.max(number("wait_time")?);
        Ok(Self {
            server: server.clone(),
            queue,
            declare: text("skip_queue_declaration").is_none_or(|text| text != "true"),
            visibility: seconds(visibility),
            retain_failed: text("retain_failed_jobs").is_some_and(|text| text == "true"),
            error_visibility: seconds(number("error_visibility_timeout")?.min(*most)),
            wait: seconds(wait.min(LONGEST_WAIT)).max(WAIT),
            group: text("message_group_id"),
            attributes: object("attributes")?,
            tags: object("tags")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn a_declared_queue_is_read_from_texts() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let declared = map(&[
            ("queue", "a.fifo"),
            ("wait_time", "50"),
            ("attributes", r#"{"DelaySeconds":3}"#),
            ("tags", "[]"),
        ]);
        let read = SqsPipeline::declared(&declared, &of_nothing(server)).unwrap();
        assert!(read.is_fifo() && read.declare);
        assert_eq!(read.wait, Duration::from_secs(20));
        assert_eq!(read.attributes["DelaySeconds"], "3");
        for (wrong, why) in [
            (&[("queue", "a b")][..], "`a b` is no name for SQS"),
            (&[("tags", "x")], "`tags` is no JSON object of values"),
            (
                &[("visibility_timeout", "x")],
                "`visibility_timeout` is no number",
            ),
        ] {
            let refused = SqsPipeline::declared(&map(wrong), &of_nothing(server)).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
