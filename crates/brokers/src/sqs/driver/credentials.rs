//! Who this server is at AWS: what the configuration says, else the environment, else the role of
//! the container or the machine.

use std::env::var;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use pronghorn_client::Method;
use pronghorn_client::header::{AUTHORIZATION, HeaderName};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::broker::BrokerError;
use crate::broker::http::{Client, HttpRequest};
use crate::sqs::settings::SqsServer;

/// Both answer at once, or are not there.
const PATIENCE: Duration = Duration::from_secs(2);
/// New keys of a role are asked for so long before the old ones are over.
const EARLY: Duration = Duration::from_mins(5);
/// The address of the service of machines, which have no name for it.
const MACHINE: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";

#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) session_token: Option<String>,
    /// None: for ever.
    until: Option<DateTime<Utc>>,
}

/// The keys, as roles tell them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: DateTime<Utc>,
}

/// The keys that are good now.
pub(super) struct Source {
    fixed: Option<Credentials>,
    of_role: Mutex<Option<Credentials>>,
}

impl Credentials {
    pub(super) fn new(key: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            secret: secret.into(),
            session_token: None,
            until: None,
        }
    }

    fn are_good(&self) -> bool {
        let early = Utc::now() + EARLY;
        self.until.is_none_or(|until| until > early)
    }
}

impl Source {
    pub(super) fn new(server: &SqsServer) -> Self {
        let written = server.key.clone().zip(server.secret.clone());
        let written = written.map(|(key, secret)| Credentials {
            session_token: server.session_token.clone(),
            ..Credentials::new(key, secret)
        });
        let environment = || {
            let key = filled("AWS_ACCESS_KEY_ID")?;
            let secret = filled("AWS_SECRET_ACCESS_KEY")?;
            Some(Credentials {
                session_token: filled("AWS_SESSION_TOKEN"),
                ..Credentials::new(key, secret)
            })
        };
        Self {
            fixed: written.or_else(environment),
            of_role: Mutex::default(),
        }
    }

    pub(super) async fn get(&self) -> Result<Credentials, BrokerError> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let mut of_role = self.of_role.lock().await;
        if let Some(known) = of_role.as_ref().filter(|known| known.are_good()) {
            return Ok(known.clone());
        }
        let told = match container() {
            Some((url, token)) => of_container(&url, token).await,
            None => of_machine().await,
        };
        let told = told.map_err(|error| {
            BrokerError::Refused(format!(
                "there are no credentials: neither `sqs.key` nor AWS_ACCESS_KEY_ID is set, and \
                 the machine's role is not told ({error:?})"
            ))
        })?;
        let credentials = Credentials {
            key: told.access_key_id,
            secret: told.secret_access_key,
            session_token: Some(told.token),
            until: Some(told.expiration),
        };
        *of_role = Some(credentials.clone());
        Ok(credentials)
    }
}

/// Finds the region as AWS's own tools do.
pub(super) fn region(server: &SqsServer) -> Option<String> {
    let written = server.region.clone();
    written
        .or_else(|| filled("AWS_REGION"))
        .or_else(|| filled("AWS_DEFAULT_REGION"))
}

fn filled(name: &str) -> Option<String> {
    var(name).ok().filter(|text| !text.is_empty())
}

fn container() -> Option<(String, Option<String>)> {
    let relative = || {
        let path = filled("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")?;
        Some(format!("{CONTAINER}{path}"))
    };
    let url = filled("AWS_CONTAINER_CREDENTIALS_FULL_URI").or_else(relative)?;
    let of_file = || {
        let path = filled("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")?;
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned())
    };
    let token = filled("AWS_CONTAINER_AUTHORIZATION_TOKEN").or_else(of_file);
    Some((url, token))
}

async fn of_container(url: &str, token: Option<String>) -> Result<Told, BrokerError> {
    let client = Client::new(url, PATIENCE)?;
    let behind = url.splitn(4, '/').nth(3).unwrap_or_default();
    let fields = token.into_iter().map(|token| (AUTHORIZATION, token));
    let path = format!("/{behind}");
    parse(&get(&client, Method::GET, &path, fields.collect()).await?)
}

/// Asks by the second version of that service, which wants a token first.
async fn of_machine() -> Result<Told, BrokerError> {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let client = Client::new(MACHINE, PATIENCE)?;
    let seconds = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");
    let asked = vec![(seconds, "21600".to_owned())];
    let token = get(&client, Method::PUT, "/latest/api/token", asked).await?;
    let token = String::from_utf8_lossy(&token).into_owned();
    let name = HeaderName::from_static("x-aws-ec2-metadata-token");
    let field = || vec![(name.clone(), token.clone())];
    let roles = get(&client, Method::GET, ROLES, field()).await?;
    let roles = String::from_utf8_lossy(&roles);
    let role = roles.lines().next().unwrap_or_default();
    let path = format!("{ROLES}{role}");
    parse(&get(&client, Method::GET, &path, field()).await?)
}

async fn get(
    client: &Client,
    method: Method,
    path: &str,
    fields: Vec<(HeaderName, String)>,
) -> Result<Bytes, BrokerError> {
    let asked = HttpRequest {
        method,
        path,
        fields,
        body: Bytes::new(),
    };
    let answer = client.ask(asked).await?;
    if !answer.status.is_success() {
        let why = format!("{} answered {}", client.authority(), answer.status.as_u16());
        return Err(BrokerError::Refused(why));
    }
    Ok(answer.body)
}

fn parse(json: &[u8]) -> Result<Told, BrokerError> {
    serde_json::from_slice(json)
        .map_err(|_| BrokerError::Refused("the role's credentials can't be read".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_comes_first_and_a_role_tells_until_when() {
        let server = SqsServer {
            key: Some("k".to_owned()),
            secret: Some("s".to_owned()),
            session_token: Some("t".to_owned()),
            ..SqsServer::default()
        };
        let Ok(found) = Source::new(&server).get().await else {
            panic!("they are written");
        };
        assert_eq!((&*found.key, &*found.secret), ("k", "s"));
        assert_eq!(found.session_token.as_deref(), Some("t"));
        let json = br#"{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Code":"Success",
            "Expiration":"2020-01-01T00:00:00Z"}"#;
        let Ok(told) = parse(json) else {
            panic!("it is one");
        };
        let mut of_role = Credentials::new(told.access_key_id, told.secret_access_key);
        of_role.until = Some(told.expiration);
        assert!(!of_role.are_good());
        assert!(parse(b"{}").is_err());
    }
}
