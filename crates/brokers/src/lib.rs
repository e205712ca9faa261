//! Brokers that keep the jobs of pipelines.
//!
//! A driver is a directory with its settings, and two lines of this file: its `mod`, and its row of
//! [`KINDS`]. One that needs a client of others has a feature by its name as well, which brings the
//! client; in a build without the feature its settings are read all the same, so that somebody
//! hears what is missing.
//!
//! - [`Brokers`]: what a configuration says of them, and of pipelines in them.
//! - `broker`: what all drivers have in common.
//! - `address` and `tls`: settings that several of them have.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod amqp;
mod beanstalk;
mod broker;
mod kafka;
mod kind;
mod nats;
mod nsq;
mod pub_sub;
mod redis;
mod sqs;
#[cfg(test)]
mod testing;
mod tls;

pub use kind::{BrokerPipeline, Brokers, Kind, OpenFailure, Opening};

/// All kinds, in the order in which people are told of them.
pub const KINDS: &[Kind] = &[
    redis::KIND,
    amqp::KIND,
    beanstalk::KIND,
    pub_sub::KIND,
    kafka::KIND,
    nats::KIND,
    nsq::KIND,
    sqs::KIND,
];
