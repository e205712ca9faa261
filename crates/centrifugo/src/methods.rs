//! `centrifuge.Publish` and all others of Centrifugo's API, over RPC.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use pronghorn_plugin_api::rpc::{
    Argument, Binary, Caller, Failure, Methods, Outcome, Reader, Writer,
};
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::shown::ApiCalls;

/// Methods of the API in Centrifugo 6.9, and `RateLimit`, which RoadRunner has besides.
const METHODS: [&str; 41] = [
    "Batch",
    "Publish",
    "Broadcast",
    "Subscribe",
    "Unsubscribe",
    "Disconnect",
    "Presence",
    "PresenceStats",
    "History",
    "HistoryRemove",
    "Info",
    "RPC",
    "Refresh",
    "Channels",
    "Connections",
    "UpdateUserStatus",
    "GetUserStatus",
    "DeleteUserStatus",
    "BlockUser",
    "UnblockUser",
    "RevokeToken",
    "InvalidateUserTokens",
    "DeviceRegister",
    "DeviceUpdate",
    "DeviceRemove",
    "DeviceList",
    "DeviceTopicList",
    "DeviceTopicUpdate",
    "UserTopicList",
    "UserTopicUpdate",
    "SendPushNotification",
    "UpdatePushStatus",
    "CancelPush",
    "RateLimit",
    "MapPublish",
    "MapRemove",
    "MapReadState",
    "MapReadStream",
    "MapStats",
    "MapClear",
    "SharedPollPublish",
];

/// A message as its bytes: in protobuf and raw form themselves, in JSON base64.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
struct Message(Binary);

impl Argument for Message {
    const PROTOBUF: Option<Reader<Self>> = Some(|bytes| Ok(Self(Binary(bytes))));
    const RAW: Option<Reader<Self>> = Some(|bytes| Ok(Self(Binary(bytes))));
}

impl Outcome for Message {
    const PROTOBUF: Option<Writer<Self>> = Some(|message| Ok(message.0.0.clone()));
    const RAW: Option<Writer<Self>> = Some(|message| Ok(message.0.0.clone()));
}

/// The API for one caller.
#[derive(Clone)]
struct ApiFor {
    api: Arc<ArcSwap<Api>>,
    calls: ApiCalls,
    caller: Caller,
}

pub(crate) fn add(methods: &Methods, api: &Arc<ArcSwap<Api>>, calls: &ApiCalls) {
    let (api, calls) = (api.clone(), calls.clone());
    let methods = methods.service_by_caller("centrifuge", move |caller| ApiFor {
        api: api.clone(),
        calls: calls.clone(),
        caller: caller.clone(),
    });
    for name in METHODS {
        methods.add(name, move |on, message| ask(name, on, message));
    }
}

async fn ask(name: &'static str, on: ApiFor, message: Message) -> Result<Message, Failure> {
    let api = on.api.load_full();
    let reply: Result<Bytes, _> = api.ask(name, message.0.0).await;
    let reply = reply.map_err(|error| error.to_string());
    on.calls.ended(reply.as_ref().err().map(String::as_str));
    let reply = reply.map_err(Failure::new)?;
    on.caller.reserve(reply.len()).await;
    Ok(Message(Binary(reply)))
}
