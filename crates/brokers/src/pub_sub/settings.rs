//! `google_pub_sub`: where it is, and what a pipeline says of its place there.

use std::collections::BTreeMap;

use pronghorn_config::Table;

use crate::kind::text_of;

/// RoadRunner's, of an emulator.
const EMULATOR: &str = "127.0.0.1:8085";
const GOOGLE: &str = "pubsub.googleapis.com";

/// Google's, or an emulator of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PubSubServer {
    /// `host` or `host:port`.
    pub(crate) endpoint: String,
    /// No encryption, and nobody asks who this server is.
    pub(crate) insecure: bool,
}

#[cfg(feature = "google_pub_sub")]
impl PubSubServer {
    pub(crate) fn url(&self) -> String {
        let scheme = if self.insecure { "http" } else { "https" };
        format!("{scheme}://{}", self.endpoint)
    }
}

/// The settings of a pipeline's place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PubSubPipeline {
    pub(crate) server: PubSubServer,
    pub(crate) project: String,
    pub(crate) topic: String,
    pub(crate) subscription: String,
    /// The topic of jobs that are given up.
    pub(crate) dead_letter_topic: Option<String>,
}

/// The section `google_pub_sub`.
pub(super) fn server(t: &mut Table<'_>) -> PubSubServer {
    let sentence = "Google Cloud Pub/Sub for pipelines with `driver: google_pub_sub`.";
    t.section_with("google_pub_sub", sentence, |t| {
        let insecure = t
            .key(
                "insecure",
                "Whether to connect without encryption and credentials, for an emulator.",
            )
            .default(false);
        let endpoint: Option<String> = t
            .key(
                "endpoint",
                "The address of Pub/Sub, as `host:port`. By default, Google's; with `insecure`, \
                 127.0.0.1:8085.",
            )
            .optional();
        if endpoint.as_ref().is_some_and(|it| it.contains('/')) {
            let message = "is no `host:port`";
            t.error("endpoint", message, "for example `127.0.0.1:8085`");
        }
        let default = if insecure { EMULATOR } else { GOOGLE };
        PubSubServer {
            endpoint: endpoint.unwrap_or_else(|| default.to_owned()),
            insecure,
        }
    })
}

/// The keys of a pipeline's `config`.
pub(crate) fn read(
    t: &mut Table<'_>,
    server: &PubSubServer,
    pipeline: &str,
    topic: Option<String>,
) -> PubSubPipeline {
    t.no_effect(
        "max_delivery_attempts",
        "`retry` of the pipeline says how often a job is tried",
    );
    let mut text = |name, sentence| -> Option<String> { t.key(name, sentence).optional() };
    let project = text("project_id", "Required. The project of the topic.");
    let subscription = text(
        "subscription",
        "The subscription that jobs are taken from. By default, the topic's name.",
    );
    let dead_letter_topic = text(
        "dead_letter_topic",
        "A topic that also gets jobs that were given up. The server keeps them as dead letters in \
         any case.",
    );
    // The page of the keys has no name of a pipeline.
    if pipeline != "<name>" {
        for (key, value) in [("project_id", &project), ("topic", &topic)] {
            if value.is_none() {
                t.error(key, "is missing", &format!("add `{key}` to `config`"));
            }
        }
        for (key, value) in [
            ("project_id", &project),
            ("topic", &topic),
            ("subscription", &subscription),
            ("dead_letter_topic", &dead_letter_topic),
        ] {
            if value.as_ref().is_some_and(|name| !is_name(name)) {
                t.error(key, WRONG_NAME, "write letters, digits, `-` and `_`");
            }
        }
    }
    PubSubPipeline::of(server, project, topic, subscription, dead_letter_topic)
}

const WRONG_NAME: &str = "is no name for Pub/Sub: it takes letters, digits, `-`, `_`, `.`, `~`, \
                          `+`, `%` and `:`, at most 255";

/// A name is a part of a path.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~+%:".contains(&byte);
    (1..=255).contains(&name.len()) && name.bytes().all(is_plain)
}

impl PubSubPipeline {
    fn of(
        server: &PubSubServer,
        project: Option<String>,
        topic: Option<String>,
        subscription: Option<String>,
        dead_letter_topic: Option<String>,
    ) -> Self {
        let topic = topic.unwrap_or_default();
        Self {
            server: server.clone(),
            project: project.unwrap_or_default(),
            subscription: subscription.unwrap_or_else(|| topic.clone()),
            topic,
            dead_letter_topic,
        }
    }

    /// Reads a pipeline that PHP declares.
    pub(crate) fn declared(
        map: &BTreeMap<String, String>,
        server: &PubSubServer,
    ) -> Result<Self, String> {
        let text = |key: &str| text_of(map, key);
        for key in ["project_id", "topic"] {
            if text(key).is_none() {
                return Err(format!("`{key}` is missing"));
            }
        }
        for key in ["project_id", "topic", "subscription", "dead_letter_topic"] {
            if let Some(name) = text(key).filter(|name| !is_name(name)) {
                return Err(format!("`{name}` {WRONG_NAME}"));
            }
        }
        Ok(Self::of(
            server,
            text("project_id"),
            text("topic"),
            text("subscription"),
            text("dead_letter_topic"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::of_nothing;

    #[test]
    fn a_declared_topic_is_read_from_texts() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let server = of_nothing(server);
        assert_eq!(server.url(), "https://pubsub.googleapis.com");
        let read = PubSubPipeline::declared(&map(&[("project_id", "p"), ("topic", "t")]), &server);
        assert_eq!(read.unwrap().subscription, "t");
        let refused = PubSubPipeline::declared(&map(&[("topic", "t")]), &server);
        assert_eq!(refused.unwrap_err(), "`project_id` is missing");
        let wrong = map(&[("project_id", "p"), ("topic", "a/b")]);
        let refused = PubSubPipeline::declared(&wrong, &server).unwrap_err();
        assert_eq!(refused, format!("`a/b` {WRONG_NAME}"));
    }
}
