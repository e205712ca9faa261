//! The counts of jobs, which NSQ tells over HTTP alone.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::broker::{BrokerError, Counts};
use crate::nsq::settings::{NsqPipeline, NsqServer};

/// One topic with its channels.
const LONGEST_ANSWER: u64 = 1 << 20;

#[derive(Deserialize)]
struct Stats {
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    /// Messages that are in no channel yet.
    depth: u64,
    channels: Vec<Channel>,
}

#[derive(Deserialize)]
struct Channel {
    channel_name: String,
    depth: u64,
    in_flight_count: u64,
    deferred_count: u64,
}

pub(super) async fn ask(settings: &NsqPipeline, place: &str) -> Result<Counts, BrokerError> {
    let topic = settings.topic.replace('#', "%23");
    let path = format!("/stats?format=json&include_clients=false&include_mem=false&topic={topic}");
    let stats = get_json::<Stats>(&settings.server, place, &path).await;
    // Jobs come and go without it.
    let stats = stats.map_err(|why| {
        BrokerError::Refused(format!(
            "it does not count its jobs at http://{place} (`nsq.http_addr`): {why}"
        ))
    })?;
    Ok(counts(stats, settings))
}

/// The answer of a server of NSQ, or a text that says what is wrong.
pub(super) async fn get_json<T: DeserializeOwned>(
    server: &NsqServer,
    place: &str,
    path: &str,
) -> Result<T, String> {
    let patience = server.dial_timeout + server.read_timeout;
    let answer = timeout(patience, get(place, path)).await;
    let answer = answer.map_err(|_| "it did not answer in time".to_owned())?;
    let answer = answer.map_err(|error| error.to_string())?;
    let body = answer.windows(4).position(|part| part == b"\r\n\r\n");
    let body = body.and_then(|at| answer.get(at + 4..));
    let parsed = body.and_then(|body| serde_json::from_slice(body).ok());
    parsed.ok_or_else(|| "what it answers is not of NSQ".to_owned())
}

async fn get(place: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(place).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {place}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn counts(stats: Stats, settings: &NsqPipeline) -> Counts {
    let mut topics = stats.topics.into_iter();
    let Some(topic) = topics.find(|topic| topic.topic_name == settings.topic) else {
        return Counts::default();
    };
    let mut channels = topic.channels.iter();
    let channel = channels.find(|channel| channel.channel_name == settings.channel);
    Counts {
        waiting: topic.depth + channel.map_or(0, |channel| channel.depth),
        delayed: channel.map_or(0, |channel| channel.deferred_count),
        out: Some(channel.map_or(0, |channel| channel.in_flight_count)),
        oldest: None,
    }
}
