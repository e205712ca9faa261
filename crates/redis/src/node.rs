//! One Redis: its connection, opened when a command needs it and given up when it is lost.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::{lock, with_causes};
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

/// While it is away, one call tries again so often, and the others are told so at once. A Redis
/// that starts anew is found soon all the same.
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
    /// Held by the call that opens the connection.
    open: Mutex<Option<Link>>,
    /// The last failure, and when it was: none while it is not known to be away.
    away: std::sync::Mutex<Option<(Instant, RedisFailure)>>,
}

impl Node {
    /// Connects to nobody yet.
    pub(crate) fn new(dialer: Arc<Dialer>, place: NodeAddress) -> Self {
        Self {
            dialer,
            place,
            open: Mutex::default(),
            away: std::sync::Mutex::default(),
        }
    }

    /// The connection that is open, or a new one, which one call opens. The others wait for it. If
    /// Redis is known to be away, they are told so instead.
    pub(crate) async fn link(&self) -> Result<Link, RedisFailure> {
        let mut open = match (self.open.try_lock(), self.last_failure()) {
            (Ok(open), _) => open,
            (Err(_), Some((_, failure))) => return Err(failure),
            (Err(_), None) => self.open.lock().await,
        };
        // A Redis that was started anew has closed what was open before.
        open.take_if(|open| open.task.is_finished());
        if let Some(open) = &*open {
            return Ok(open.clone());
        }
        if let Some((at, failure)) = self.last_failure()
            && at.elapsed() < UNTIL_NEXT_TRY
        {
            return Err(failure);
        }
        let dialed = self.dialer.dial(&self.place).await;
        let failure = dialed.as_ref().err().cloned();
        *lock(&self.away) = failure.map(|failure| (Instant::now(), failure));
        *open = dialed.as_ref().ok().cloned();
        dialed
    }

    fn last_failure(&self) -> Option<(Instant, RedisFailure)> {
        lock(&self.away).clone()
    }

    /// Gives up the connection that a failure says is of no use any more. A late failure of one
    /// does not end the next one.
    pub(crate) async fn failed(&self, error: &RedisError, link: &Link) {
        if is_lost(error) {
            let mut open = self.open.lock().await;
            let is_same = |open: &mut Link| Arc::ptr_eq(&open.driver, &link.driver);
            // A Redis that hangs accepts connections, and each would take its time.
            if open.take_if(is_same).is_some() && error.is_timeout() {
                *lock(&self.away) = Some((Instant::now(), self.dialer.failure(error)));
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn node(listener: &TcpListener) -> Arc<Node> {
        let port = listener.local_addr().unwrap().port();
        let address = RedisAddress::Tcp("127.0.0.1".to_owned(), port);
        let dialer = Dialer {
            settings: RedisSettings::at(vec![address.clone()]),
            title: "the Redis".to_owned(),
            longest: 1 << 20,
        };
        Arc::new(Node::new(Arc::new(dialer), NodeAddress::At(address)))
    }

    async fn failure_after(node: &Node) -> (String, Duration) {
        let begin = Instant::now();
        let failure = node.link().await.map(drop).unwrap_err();
        (failure.to_string(), begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_waits_for_a_redis_that_hangs() {
        // The kernel accepts connections, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = node(&listener);
        let limit = node.dialer.settings.dial_timeout;
        let said = format!("the Redis does not answer: no connection within {limit:?}");
        assert_eq!(failure_after(&node).await, (said.clone(), limit));
        let at_once = (said, Duration::ZERO);
        assert_eq!(failure_after(&node).await, at_once);
        tokio::time::advance(UNTIL_NEXT_TRY).await;
        let trying = node.clone();
        let (tried, ()) = tokio::join!(failure_after(&trying), async {
            tokio::task::yield_now().await;
            assert_eq!(failure_after(&node).await, at_once);
        });
        assert_eq!(tried.1, limit);
    }

    #[tokio::test]
    async fn calls_after_one_that_had_no_answer_in_time_fail_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialed = node(&listener);
        let limit = Duration::from_millis(50);
        let dialer = Arc::get_mut(&mut Arc::get_mut(&mut dialed).unwrap().dialer).unwrap();
        dialer.settings.read_timeout = limit;
        let node = dialed;
        // It answers to what each connection begins with, and then no more.
        let silent = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
            socket.write_all(b"+OK\r\n+OK\r\n").unwrap();
            (listener, socket)
        });
        let mut link = node.link().await.unwrap();
        let (listener, _socket) = silent.join().unwrap();
        let error = link.ask(&redis::cmd("PING")).await.unwrap_err();
        node.failed(&error, &link).await;
        let (said, _) = failure_after(&node).await;
        assert_eq!(
            said,
            format!("the Redis does not answer: no answer within {limit:?}")
        );
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "no other connection was opened");
    }
}
