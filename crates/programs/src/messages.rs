//! `service.v1`, as PHP and JSON have it.

use std::collections::BTreeMap;

use pronghorn_plugin_api::rpc::{Argument, Outcome, Reader, Writer, read_message, write_message};
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Create {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) command: String,
    #[prost(int64, tag = "3")]
    pub(crate) process_num: i64,
    /// Seconds.
    #[prost(int64, tag = "4")]
    pub(crate) exec_timeout: i64,
    #[prost(bool, tag = "5")]
    pub(crate) remain_after_exit: bool,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) env: BTreeMap<String, String>,
    /// Seconds.
    #[prost(uint64, tag = "7")]
    pub(crate) restart_sec: u64,
    #[prost(bool, tag = "8")]
    pub(crate) service_name_in_logs: bool,
    /// Seconds.
    #[prost(uint64, tag = "9")]
    pub(crate) timeout_stop_sec: u64,
}

/// A method of RoadRunner 3: what is not there stays as it is.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Update {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(int64, optional, tag = "2")]
    pub(crate) process_num: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub(crate) exec_timeout: Option<i64>,
    #[prost(bool, optional, tag = "4")]
    pub(crate) remain_after_exit: Option<bool>,
    #[prost(message, optional, tag = "5")]
    pub(crate) env: Option<Environment>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) restart_sec: Option<u64>,
    #[prost(bool, optional, tag = "7")]
    pub(crate) service_name_in_logs: Option<bool>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timeout_stop_sec: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Environment {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) values: BTreeMap<String, String>,
}

/// A program by its name.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Response {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ok: bool,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct List {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Statuses {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) status: Vec<Status>,
}

/// The state of one process.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Status {
    #[prost(float, tag = "1")]
    #[serde(skip_serializing_if = "is_nothing")]
    pub(crate) cpu_percent: f32,
    #[prost(int32, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) pid: i32,
    #[prost(uint64, tag = "3")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) memory_usage: u64,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) command: String,
    /// Set for a process that can't be looked at.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Wrong>,
}

/// `common.v1.Status`, of which details are never given.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Wrong {
    #[prost(int32, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_nothing(percent: &f32) -> bool {
    *percent == 0.0
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

macro_rules! both_forms {
    ($($kind:ident: $($message:ty),*;)*) => {$($(both_forms!(@ $kind $message);)*)*};
    (@ Argument $message:ty) => {
        impl Argument for $message {
            const PROTOBUF: Option<Reader<Self>> = Some(read_message);
        }
    };
    (@ Outcome $message:ty) => {
        impl Outcome for $message {
            const PROTOBUF: Option<Writer<Self>> = Some(write_message);
        }
    };
}

both_forms! {
    Argument: Create, Update, Service;
    Outcome: Response, List, Status, Statuses;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field numbers by the bytes that PHP writes.
    #[test]
    fn the_messages_are_those_of_the_php_package() {
        let bytes: &[u8] = b"\x0a\x01n\x12\x01c\x18\x02\x20\x03\x28\x01\x32\x06\x0a\x01A\x12\x01b\x38\x04\x40\x01\x48\x05";
        let create = read_message::<Create>(bytes.into()).unwrap();
        let expected = Create {
            name: "n".into(),
            command: "c".into(),
            process_num: 2,
            exec_timeout: 3,
            remain_after_exit: true,
            env: [("A".into(), "b".into())].into(),
            restart_sec: 4,
            service_name_in_logs: true,
            timeout_stop_sec: 5,
        };
        assert_eq!(create, expected);
        let bytes: &[u8] = b"\x0a\x01n\x10\x02\x2a\x00\x30\x04";
        let update = read_message::<Update>(bytes.into()).unwrap();
        assert_eq!((update.process_num, update.restart_sec), (Some(2), Some(4)));
        assert_eq!(update.env, Some(Environment::default()));
        assert_eq!(update.exec_timeout, None);
        let status = Status {
            cpu_percent: 1.0,
            pid: 2,
            memory_usage: 3,
            command: "c".into(),
            status: Some(Wrong {
                code: 0,
                message: "m".into(),
            }),
        };
        let expected: &[u8] = b"\x0d\x00\x00\x80\x3f\x10\x02\x18\x03\x22\x01c\x2a\x03\x12\x01m";
        assert_eq!(write_message(&status).unwrap().as_ref(), expected);
        let response = Response {
            message: "m".into(),
            ok: true,
        };
        assert_eq!(
            write_message(&response).unwrap().as_ref(),
            b"\x0a\x01m\x10\x01"
        );
        let json = serde_json::to_string(&Status::default()).unwrap();
        assert_eq!(json, "{}");
    }
}
