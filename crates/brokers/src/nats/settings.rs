//! `nats`: where JetStream is, and what a pipeline says of its place there.

use std::collections::BTreeMap;
use std::time::Duration;

use pronghorn_config::{Seconds, Table};

use crate::address::{BrokerAddress, address_or};
use crate::kind::text_of;
use crate::tls::{self, BrokerTls};

const NATS: &str = "nats://127.0.0.1:4222";
/// As RoadRunner's.
const SUBJECT: &str = "default";
const STREAM: &str = "default-stream";
/// RoadRunner 3 has this one. The server says every few seconds that it works on its jobs.
const ACK_WAIT: Duration = Duration::from_secs(30);
const ACK_WAIT_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_hours(24);
/// NATS takes longer names, and files are called by them.
const LONGEST_NAME: usize = 200;

/// A server, or several of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsServer {
    /// Several addresses have commas between them.
    pub(crate) address: BrokerAddress,
    pub(crate) tls: BrokerTls,
}

/// The settings of a pipeline's place in JetStream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsPipeline {
    pub(crate) server: NatsServer,
    pub(crate) subject: String,
    pub(crate) stream: String,
    /// Jobs that were there before the first server came are nobody's.
    pub(crate) deliver_new: bool,
    pub(crate) delete_stream_on_stop: bool,
    pub(crate) delete_after_ack: bool,
    pub(crate) ack_wait: Duration,
}

impl NatsServer {
    /// Each of its places, without credentials.
    #[cfg(feature = "nats")]
    pub(super) fn places(&self) -> String {
        let each = self.address.as_str().split(',');
        let each = each.map(|one| BrokerAddress::new(one.to_owned()).place().to_owned());
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The section `nats`.
pub(super) fn server(t: &mut Table<'_>) -> NatsServer {
    let sentence = "The NATS server for pipelines with `driver: nats`. It needs JetStream.";
    t.section_with("nats", sentence, |t| NatsServer {
        // RoadRunner takes an address without a scheme, too.
        address: address_or(t, NATS, &["nats", "tls"], Some("nats")),
        tls: tls::read(t),
    })
}

/// The keys of a pipeline's `config`.
pub(crate) fn read(t: &mut Table<'_>, server: &NatsServer) -> NatsPipeline {
    t.no_effect(
        "rate_limit",
        "`rate` of the pipeline limits how many jobs begin",
    );
    let pipeline = NatsPipeline {
        server: server.clone(),
        subject: t
            .key("subject", "The subject that jobs are pushed to.")
            .default(SUBJECT.to_owned()),
        stream: t
            .key(
                "stream",
                "The stream that stores the subject. The server creates it if it does not exist.",
            )
            .default(STREAM.to_owned()),
        deliver_new: t
            .key(
                "deliver_new",
                "Whether to skip jobs that are in the stream before the first server connects.",
            )
            .default(false),
        delete_stream_on_stop: t
            .key(
                "delete_stream_on_stop",
                "Whether the stream and its jobs are deleted when the server stops.",
            )
            .default(false),
        delete_after_ack: t
            .key(
                "delete_after_ack",
                "Whether a job is deleted from the stream when it is done. Otherwise, the stream's \
                 limits remove it.",
            )
            .default(false),
        ack_wait: t
            .key::<Seconds>(
                "ack_wait",
                "How long a server may be silent before other servers get its jobs.",
            )
            .zero_is_default()
            .range(Seconds(*ACK_WAIT_RANGE.start())..=Seconds(*ACK_WAIT_RANGE.end()))
            .default(Seconds(ACK_WAIT))
            .0,
    };
    if !is_subject(&pipeline.subject) {
        let hint = "write words with dots between them, as `orders.mail`";
        t.error("subject", WRONG_SUBJECT, hint);
    }
    if !is_stream(&pipeline.stream) {
        t.error("stream", WRONG_STREAM, "write letters and digits");
    }
    pipeline
}

const WRONG_SUBJECT: &str =
    "is no subject for jobs: no empty words, no spaces, no `*` or `>`, at most 200 bytes";
const WRONG_STREAM: &str = "is no name of a stream: no dots, no spaces, at most 200 bytes";

impl NatsPipeline {
    /// Reads a pipeline that PHP declares.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        server: &NatsServer,
    ) -> Result<Self, String> {
        let text = |key: &str| text_of(map, key);
        let yes = |key: &str| map.get(key).is_some_and(|text| text == "true");
        let subject = text("subject").unwrap_or_else(|| SUBJECT.to_owned());
        let stream = text("stream").unwrap_or_else(|| STREAM.to_owned());
        if !is_subject(&subject) {
            return Err(format!("`{subject}` {WRONG_SUBJECT}"));
        }
        if !is_stream(&stream) {
            return Err(format!("`{stream}` {WRONG_STREAM}"));
        }
        Ok(Self {
            server: server.clone(),
            subject,
            stream,
            deliver_new: yes("deliver_new"),
            delete_stream_on_stop: yes("delete_stream_on_stop"),
            delete_after_ack: yes("delete_after_ack"),
            ack_wait: ACK_WAIT,
        })
    }
}

fn is_word(word: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"*>/\\".contains(c);
    !word.is_empty() && word.chars().all(is_plain)
}

fn is_subject(subject: &str) -> bool {
    subject.len() <= LONGEST_NAME && subject.split('.').all(is_word)
}

fn is_stream(stream: &str) -> bool {
    stream.len() <= LONGEST_NAME && !stream.contains('.') && is_word(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn each_of_several_places_is_shown_without_who_asks() {
        let mut several = of_nothing(server);
        let url = "nats://u:a@one:1,nats://u:b@two:2,three:3".to_owned();
        several.address = BrokerAddress::new(url);
        assert_eq!(several.places(), "one:1, two:2, three:3");
    }

    #[test]
    fn names_that_nats_does_not_take_are_refused() {
        for subject in [
            "",
            "a..b",
            ".",
            "a b",
            "a.*",
            "a.>",
            "a\n",
            &"n".repeat(201),
        ] {
            assert!(!is_subject(subject), "{subject:?}");
        }
        for subject in ["a", "orders.mail", "größe.x-y"] {
            assert!(is_subject(subject), "{subject:?}");
        }
        for stream in ["", "a.b", "a b", "a/b", "a>"] {
            assert!(!is_stream(stream), "{stream:?}");
        }
        let map = [("subject".to_owned(), "a.*".to_owned())].into();
        let refused = NatsPipeline::declared(&map, &of_nothing(server)).unwrap_err();
        assert_eq!(refused, format!("`a.*` {WRONG_SUBJECT}"));
    }
}
