//! How many jobs there are, which nsqd says over HTTP alone.

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connection::late;
use crate::drivers::broker::{BrokerError, Counts};
use crate::settings::NsqPipeline;

/// One topic with its channels.
const LONGEST_ANSWER: u64 = 1 << 20;

#[derive(Deserialize)]
struct Stats {
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
struct Topic {
    topic_name: String,
    /// What is in no channel yet.
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

pub(super) async fn ask(settings: &NsqPipeline) -> Result<Counts, BrokerError> {
    let place = settings.server.http_place();
    let patience = settings.server.dial_timeout + settings.server.read_timeout;
    let answer = timeout(patience, get(&place, &settings.topic)).await;
    let answer = answer.map_err(|_| late()).and_then(|answer| Ok(answer?));
    // Jobs come and go without it.
    let answer = answer.map_err(|error| {
        let why = match error {
            BrokerError::Lost(why) | BrokerError::Refused(why) => why,
            BrokerError::NotReserved => String::new(),
        };
        BrokerError::Refused(format!(
            "it does not count its jobs at http://{place} (`nsq.http_addr`): {why}"
        ))
    })?;
    counts(&answer, settings)
        .ok_or_else(|| BrokerError::Refused(format!("what http://{place} answers is not of nsqd")))
}

async fn get(place: &str, topic: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(place).await?;
    let topic = topic.replace('#', "%23");
    let request = format!(
        "GET /stats?format=json&include_clients=false&include_mem=false&topic={topic} HTTP/1.0\r\n\
         Host: {place}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn counts(answer: &[u8], settings: &NsqPipeline) -> Option<Counts> {
    let body = answer.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let stats: Stats = serde_json::from_slice(answer.get(body..)?).ok()?;
    let mut topics = stats.topics.into_iter();
    let Some(topic) = topics.find(|topic| topic.topic_name == settings.topic) else {
        return Some(Counts::default());
    };
    let mut channels = topic.channels.iter();
    let channel = channels.find(|channel| channel.channel_name == settings.channel);
    Some(Counts {
        waiting: topic.depth + channel.map_or(0, |channel| channel.depth),
        delayed: channel.map_or(0, |channel| channel.deferred_count),
        out: Some(channel.map_or(0, |channel| channel.in_flight_count)),
    })
}
