//! `beanstalk`: where beanstalkd is, and what a pipeline says of its place there.

use std::collections::BTreeMap;
use std::time::Duration;

use pronghorn_config::Table;

use crate::address::{BrokerAddress, address};
use crate::kind::text_of;

const BEANSTALK: &str = "tcp://127.0.0.1:11300";

/// As RoadRunner's.
const TIMEOUT: Duration = Duration::from_secs(30);
const TUBE: &str = "default";

/// A beanstalkd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BeanstalkServer {
    pub(crate) address: BrokerAddress,
    pub(crate) timeout: Duration,
}

/// The tube of a pipeline in beanstalkd, by its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BeanstalkPipeline {
    pub(crate) server: BeanstalkServer,
    pub(crate) tube: String,
}

/// The section `beanstalk`.
pub(super) fn server(t: &mut Table<'_>) -> BeanstalkServer {
    let sentence = "The beanstalkd for pipelines with `driver: beanstalk`.";
    t.section_with("beanstalk", sentence, |t| BeanstalkServer {
        address: address(t, BEANSTALK, &["tcp", "unix"]),
        timeout: t
            .key("timeout", "Time limit for connecting, and for an answer.")
            .zero_is_default()
            .default(TIMEOUT),
    })
}

/// The keys of a pipeline's `config`.
pub(super) fn read(t: &mut Table<'_>, server: &BeanstalkServer) -> BeanstalkPipeline {
    let tube = t
        .key("tube", "The tube that contains the jobs.")
        .default(TUBE.to_owned());
    if !is_tube(&tube) {
        let message = "has a sign that beanstalkd takes in no name, or more than 200";
        t.error("tube", message, "write letters and digits");
    }
    BeanstalkPipeline {
        server: server.clone(),
        tube,
    }
}

impl BeanstalkPipeline {
    /// Reads a pipeline that PHP declares.
    pub(super) fn declared(
        map: &BTreeMap<String, String>,
        server: &BeanstalkServer,
    ) -> Result<Self, String> {
        let tube = text_of(map, "tube").unwrap_or_else(|| TUBE.to_owned());
        if !is_tube(&tube) {
            return Err(format!("beanstalkd takes no tube named `{tube}`"));
        }
        Ok(Self {
            server: server.clone(),
            tube,
        })
    }
}

/// Its own names: 200 bytes of letters, digits and a few signs.
fn is_tube(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-+/;.$_()".contains(c);
    (1..=200).contains(&name.len()) && !name.starts_with('-') && name.chars().all(is_plain)
}
