//! Health checks.

use std::sync::Arc;

use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use pronghorn_client::Tls;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::address::Destination;
use crate::connection::Connection;
use crate::head::UNNAMED;
use crate::request_body::RequestBody;
use crate::server::Server;
use crate::settings::HealthSettings;

/// By which a server's log tells checks from requests.
const AGENT: &str = "pronghorn-health";

/// Asks a server from time to time, without end.
pub(crate) async fn watch(
    upstream: String,
    server: Arc<Server>,
    tls: Tls,
    host: Option<String>,
    settings: HealthSettings,
) {
    let mut ticks = interval(settings.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = ask(&server, &tls, host.as_deref(), &settings.path);
        let answer = match timeout(settings.interval, asked).await {
            Ok(answer) => answer,
            Err(_) => Err("it did not answer in time".to_owned()),
        };
        let shown = &server.address;
        match (server.checked(answer.is_ok()), answer) {
            (Some(false), Err(why)) => tracing::warn!(
                target: "http", upstream, server = %shown,
                "a server of an upstream fails its health checks and gets no requests: {why}"
            ),
            (Some(true), _) => tracing::info!(
                target: "http", upstream, server = %shown,
                "a server of an upstream passes its health check again"
            ),
            _ => {}
        }
    }
}

/// Each time over a new connection: whether the server takes one is what is asked.
async fn ask(server: &Server, tls: &Tls, host: Option<&str>, path: &str) -> Result<(), String> {
    let opened = Connection::open(&server.address, tls, None).await;
    let mut connection = opened.map_err(|error| error.to_string())?;
    let own = match &server.address.place {
        Destination::Host(origin) => origin.authority(),
        Destination::Unix(_) => UNNAMED,
    };
    let authority = host.unwrap_or(own);
    let mut request = Request::new(RequestBody::empty());
    let target = if server.address.is_http2 {
        format!("http://{authority}{path}")
    } else {
        path.to_owned()
    };
    *request.uri_mut() = Uri::try_from(target).map_err(|error| error.to_string())?;
    let fields = request.headers_mut();
    fields.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    if !server.address.is_http2 {
        let value = HeaderValue::from_str(authority);
        fields.insert(HOST, value.map_err(|error| error.to_string())?);
    }
    let answered = connection.send(request).await;
    let response = answered.map_err(|unanswered| unanswered.error.to_string())?;
    match response.status().as_u16() {
        200..=399 => Ok(()),
        status => Err(format!("its status is {status}")),
    }
}
