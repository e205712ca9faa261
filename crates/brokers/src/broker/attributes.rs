//! The attributes that RoadRunner writes beside the payload of a job, where a broker keeps texts by
//! their names.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_queue::{Headers, Job};

pub(crate) const ID: &str = "rr_id";
pub(crate) const NAME: &str = "rr_job";
pub(crate) const HEADERS: &str = "rr_headers";
pub(crate) const PRIORITY: &str = "rr_priority";
pub(crate) const DELAY: &str = "rr_delay";
pub(crate) const AUTO_ACK: &str = "rr_auto_ack";
/// Ours: how often the job has failed.
pub(crate) const ATTEMPTS: &str = "pronghorn_attempts";

/// The job of such texts. One that is missing, or makes no sense, stands for nothing.
pub(crate) fn job<'a>(
    text: impl Fn(&str) -> Option<&'a str>,
    headers: Option<Headers>,
    payload: Bytes,
) -> Job {
    let number = |name: &str| text(name).and_then(|text| text.parse::<i64>().ok());
    Job {
        id: text(ID).unwrap_or_default().to_owned(),
        name: text(NAME).unwrap_or_default().to_owned(),
        payload,
        headers: headers.unwrap_or_default(),
        priority: number(PRIORITY).unwrap_or_default(),
        delay: Duration::ZERO,
        auto_ack: text(AUTO_ACK) == Some("true"),
        attempts: number(ATTEMPTS).map_or(0, |it| u32::try_from(it).unwrap_or(u32::MAX)),
    }
}
