//! One Redis: its connection, opened when a command needs it and given up when it is lost.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::with_causes;
use pronghorn_client::TlsError;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::bounded::Bounded;
use crate::failure::RedisFailure;
use crate::settings::{RedisAddress, RedisSettings};

/// While it is away, calls are told so without a try of their own. A Redis that starts anew is
/// found soon all the same.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(500);

/// Opens connections, and tells failures.
pub(crate) struct Dialer {
    pub(crate) settings: RedisSettings,
    pub(crate) title: String,
    /// The bytes that one reply may take.
    pub(crate) longest: usize,
}

/// A connection. Clones are the same one; it ends with the last of them.
#[derive(Clone)]
pub(crate) struct Link {
    commands: MultiplexedConnection,
    driver: Arc<JoinSet<()>>,
    /// Ends with the connection.
    task: AbortHandle,
}

/// The address of a node.
pub(crate) enum NodeAddress {
    At(RedisAddress),
    /// Where sentinels say.
    Master(String),
}

pub(crate) struct Node {
    dialer: Arc<Dialer>,
    place: NodeAddress,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    open: Option<Link>,
    failed: Option<(Instant, RedisFailure)>,
}

impl Node {
    /// Connects to nobody yet.
    pub(crate) fn new(dialer: Arc<Dialer>, place: NodeAddress) -> Self {
        Self {
            dialer,
            place,
            state: Mutex::default(),
        }
    }

    /// The connection that is open, or a new one: opened by one call, while the others wait for it.
    pub(crate) async fn link(&self) -> Result<Link, RedisFailure> {
        let mut state = self.state.lock().await;
        // A Redis that was started anew has closed what was open before.
        state.open.take_if(|open| open.task.is_finished());
        if let Some(open) = &state.open {
            return Ok(open.clone());
        }
        if let Some((at, failure)) = &state.failed
            && at.elapsed() < UNTIL_NEXT_TRY
        {
            return Err(failure.clone());
        }
        match self.dialer.dial(&self.place).await {
            Ok(link) => {
                state.failed = None;
                state.open = Some(link.clone());
                Ok(link)
            }
            Err(failure) => {
                state.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Gives up the connection that a failure says is of no use any more. A late failure of one
    /// does not end the next one.
    pub(crate) async fn failed(&self, error: &RedisError, link: &Link) {
        if is_lost(error) {
            let mut state = self.state.lock().await;
            let is_same = |open: &mut Link| Arc::ptr_eq(&open.driver, &link.driver);
            state.open.take_if(is_same);
        }
    }
}

impl Link {
    pub(crate) async fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.commands
            .req_packed_command(command)
            .await?
            .extract_error()
    }

    /// The answer to the last one of commands that are sent at once.
    pub(crate) async fn ask_last(&mut self, commands: &Pipeline) -> Result<Value, RedisError> {
        let before = commands.len().saturating_sub(1);
        let answers = self.commands.req_packed_commands(commands, before, 1);
        let answer = answers.await?.pop().unwrap_or_default();
        answer.extract_error()
    }
}

impl Dialer {
    async fn dial(&self, place: &NodeAddress) -> Result<Link, RedisFailure> {
        let limit = self.settings.dial_timeout;
        let opening = async {
            match place {
                NodeAddress::At(address) => self.open(address, &self.settings.client()).await,
                NodeAddress::Master(name) => self.master(name).await,
            }
        };
        let opened = timeout(limit, opening).await;
        opened.unwrap_or_else(|_| Err(self.away(&format!("no connection within {limit:?}"))))
    }

    /// Connects to whom the first sentinel names that answers, if that one is a master.
    async fn master(&self, name: &str) -> Result<Link, RedisFailure> {
        let sentinels = &self.settings.addresses;
        // One that does not answer leaves time for the others.
        let share = self.settings.dial_timeout / (u32::try_from(sentinels.len()).unwrap_or(1) + 1);
        let mut failure = self.away("there is no sentinel");
        for sentinel in sentinels {
            let asked = timeout(share, self.ask_sentinel(sentinel, name)).await;
            let asked = asked.unwrap_or_else(|_| {
                Err(self.away(&format!("no answer of {sentinel} within {share:?}")))
            });
            let master = match asked {
                Ok(Some(master)) => master,
                Ok(None) => {
                    failure = self.refused(&format!("{sentinel} knows no master of this name"));
                    continue;
                }
                Err(why) => {
                    failure = why;
                    continue;
                }
            };
            let mut link = self.open(&master, &self.settings.client()).await?;
            let role = link.ask(&redis::cmd("ROLE")).await;
            let role = role.map_err(|error| self.failure(&error))?;
            if is_master(&role) {
                return Ok(link);
            }
            failure = self.away(&format!("{master} is no master yet"));
        }
        Err(failure)
    }

    async fn ask_sentinel(
        &self,
        sentinel: &RedisAddress,
        name: &str,
    ) -> Result<Option<RedisAddress>, RedisFailure> {
        let mut link = self
            .open(sentinel, &self.settings.sentinel_client())
            .await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        let answer = link.ask(&command).await;
        let answer = answer.map_err(|error| self.failure(&error))?;
        let master: Option<(String, u16)> =
            redis::from_redis_value(answer).map_err(|error| self.refused(&error.to_string()))?;
        Ok(master.map(|(host, port)| RedisAddress::Tcp(host, port)))
    }

    async fn open(
        &self,
        address: &RedisAddress,
        client: &RedisConnectionInfo,
    ) -> Result<Link, RedisFailure> {
        let lost = |error: std::io::Error| self.away(&error.to_string());
        let (host, port) = match address {
            RedisAddress::Unix(path) => {
                let socket = UnixStream::connect(path).await.map_err(lost)?;
                return self.over(socket, client).await;
            }
            RedisAddress::Tcp(host, port) => (host, *port),
        };
        let socket = TcpStream::connect((host.as_str(), port)).await;
        let socket = socket.map_err(lost)?;
        socket.set_nodelay(true).map_err(lost)?;
        let Some(tls) = &self.settings.tls else {
            return self.over(socket, client).await;
        };
        let socket = tls.encrypt(host, socket).await.map_err(|error| {
            let why = with_causes(&error);
            match error {
                TlsError::Handshake(_) => self.away(&why),
                _ => RedisFailure::Unusable(why),
            }
        })?;
        self.over(socket, client).await
    }

    async fn over(
        &self,
        socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        client: &RedisConnectionInfo,
    ) -> Result<Link, RedisFailure> {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(self.settings.read_timeout));
        let socket = Bounded::new(socket, self.longest);
        let opened = MultiplexedConnection::new_with_config(client, socket, config).await;
        let (commands, driver) = opened.map_err(|error| self.failure(&error))?;
        let mut tasks = JoinSet::new();
        let task = tasks.spawn(driver);
        Ok(Link {
            commands,
            driver: Arc::new(tasks),
            task,
        })
    }

    /// The failure of a command, as it is told.
    pub(crate) fn failure(&self, error: &RedisError) -> RedisFailure {
        if error.is_timeout() {
            return self.away(&format!(
                "no answer within {:?}",
                self.settings.read_timeout
            ));
        }
        let why = error.to_string();
        if error.is_io_error() || error.is_connection_dropped() {
            return self.away(&why);
        }
        RedisFailure::Refused {
            title: self.title.clone(),
            why,
            code: error.code().map(ToOwned::to_owned),
        }
    }

    pub(crate) fn away(&self, why: &str) -> RedisFailure {
        RedisFailure::Away {
            title: self.title.clone(),
            why: why.to_owned(),
        }
    }

    pub(crate) fn refused(&self, why: &str) -> RedisFailure {
        RedisFailure::Refused {
            title: self.title.clone(),
            why: why.to_owned(),
            code: None,
        }
    }
}

fn is_master(role: &Value) -> bool {
    let Value::Array(role) = role else {
        return false;
    };
    matches!(role.first(), Some(Value::BulkString(word)) if word == b"master")
}

/// A master that became a replica refuses to write: who is asked anew says who is master now.
fn is_lost(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || error.code() == Some("READONLY")
}
