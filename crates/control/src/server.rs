//! The server's end: who may ask, and that no peer costs more than its share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::{Admission, BoxFuture, LogThrottle, Place, Standings};
use pronghorn_process::open_files::{self, Share};
use pronghorn_process::socket::{AFTER_FAILED_ACCEPT, is_about_the_connection};
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, interval, timeout};

use crate::lines::{self, LineError};
use crate::listener::{Listener, SocketFile};
use crate::message::{Ask, PROTOCOL, Question, Tell, Version};

/// The longest question: a call that pushes a batch of jobs.
const QUESTION: usize = 16 << 20;
/// From one question to the next, and from its first byte to its last. `workers -i` asks every
/// second.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a command may leave a line unread.
const UNREAD: Duration = Duration::from_secs(5);
/// The same for an answer without end: a person may stop a terminal and come back after lunch.
/// Nothing is kept for it meanwhile.
const UNREAD_ENDLESS: Duration = Duration::from_hours(1);
/// How often a long answer shows that it is under way.
const PULSE: Duration = Duration::from_secs(1);
/// Lines that wait for their command.
const LINES: usize = 16;

/// Carries out what is asked.
pub trait Steerable: Send + Sync + 'static {
    /// Tells all it has to tell through `answer`; the end is the connection's to tell. Goes on when
    /// the command leaves, unless the answer has no end: then it is dropped.
    fn steer(self: Arc<Self>, ask: Ask, answer: Answer) -> Steering;
}

/// An answer under way.
pub type Steering = BoxFuture<'static, Result<(), Refusal>>;

/// Why a question has no answer, for a person.
#[derive(Debug)]
pub struct Refusal(pub String);

/// Where an answer's lines go.
#[derive(Debug)]
pub struct Answer(mpsc::Sender<Tell>);

impl Answer {
    /// One line.
    pub async fn tell(&self, line: Tell) {
        // The connection reads to the end of the answer, whoever is at its other end.
        _ = self.0.send(line).await;
    }
}

/// Answers until it is dropped; the socket's file goes with it.
pub async fn serve(listener: Listener, steerable: Arc<dyn Steerable>) -> io::Result<()> {
    let Listener { socket, file } = listener;
    let door = Door {
        socket: UnixListener::from_std(socket)?,
        _file: file,
    };
    let mut connections = JoinSet::new();
    let throttles = Arc::<Throttles>::default();
    let standings = Arc::<Standings>::default();
    // For one more the one that has asked nothing for the longest time goes.
    let most = Share::CONTROL.connections();
    loop {
        let opened = tokio::select! {
            opened = door.socket.accept() => opened,
            Some(_) = connections.join_next() => continue,
        };
        match opened {
            // They are tried again by a person.
            Ok(_) if standings.make_room(connections.len(), most) == Admission::Full => {
                if let Some(connections) = throttles.too_many.should_log() {
                    tracing::warn!(
                        target: "server", connections, limit = most,
                        "connections of commands refused: there are too many"
                    );
                }
            }
            Ok((stream, _)) => {
                let place = standings.enter();
                connections.spawn(host(stream, place, steerable.clone(), throttles.clone()));
                // Who is to make room for the next one gets the time for it.
                yield_now().await;
            }
            Err(error) if is_about_the_connection(&error) => {}
            Err(error) => {
                if let Some(times) = throttles.failed.should_log() {
                    tracing::error!(target: "server", times, "cannot accept connections of commands: {error}");
                }
                open_files::made_room(&error);
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
}

struct Door {
    socket: UnixListener,
    _file: SocketFile,
}

/// Of records about what anybody can do who reaches the socket.
#[derive(Debug, Default)]
struct Throttles {
    too_many: LogThrottle,
    failed: LogThrottle,
    strangers: LogThrottle,
}

async fn host(
    stream: UnixStream,
    place: Place,
    steerable: Arc<dyn Steerable>,
    throttles: Arc<Throttles>,
) {
    let mut guest = Guest {
        stream: BufReader::new(stream),
        gone: false,
        patience: UNREAD,
    };
    if let Err(why) = guest.may_ask() {
        if let Some(commands) = throttles.strangers.should_log() {
            tracing::warn!(target: "server", commands, "command refused: {why}");
        }
        guest.tell(&Tell::Refused { why }).await;
        return;
    }
    loop {
        place.idle(Instant::now());
        let asked = tokio::select! {
            biased; // a question in the last moment is answered
            asked = guest.question() => asked,
            () = place.evicted() => return,
        };
        let Some(asked) = asked else {
            return;
        };
        place.busy();
        let outcome = match asked {
            Ok(ask) => guest.answered(ask, steerable.clone()).await,
            Err(refusal) => Err(refusal),
        };
        let end = match outcome {
            Ok(()) => Tell::Done,
            Err(Refusal(why)) => Tell::Refused { why },
        };
        guest.tell(&end).await;
        if guest.gone {
            return;
        }
    }
}

struct Guest {
    stream: BufReader<UnixStream>,
    gone: bool,
    /// How long a line may stay unread.
    patience: Duration,
}

impl Guest {
    /// Root and the server's own user. The socket's mode keeps others out as well, until somebody
    /// changes it.
    fn may_ask(&self) -> Result<(), String> {
        let peer = self.stream.get_ref().peer_cred();
        let uid = peer
            .map_err(|error| format!("who asks is not known: {error}"))?
            .uid();
        let own = rustix::process::geteuid().as_raw();
        if uid == 0 || uid == own {
            return Ok(());
        }
        Err(format!("user {uid} may not steer a server of user {own}"))
    }

    /// The next question; none when there is no more, or what came is none that could be answered.
    async fn question(&mut self) -> Option<Result<Ask, Refusal>> {
        let line = match timeout(SILENCE, lines::read(&mut self.stream, QUESTION)).await {
            Ok(Ok(line)) => line?,
            Ok(Err(LineError::TooLong(limit))) => {
                let why = format!("a question has at most {limit} bytes");
                self.tell(&Tell::Refused { why }).await;
                return None;
            }
            Ok(Err(_)) | Err(_) => return None,
        };
        Some(understand(&line))
    }

    /// Passes the lines of an answer on, to its end.
    async fn answered(&mut self, ask: Ask, steerable: Arc<dyn Steerable>) -> Result<(), Refusal> {
        let is_endless = ask.is_endless();
        self.patience = if is_endless { UNREAD_ENDLESS } else { UNREAD };
        let (sender, mut lines) = mpsc::channel(LINES);
        let mut steering = steerable.steer(ask, Answer(sender));
        let mut pulse = interval(PULSE);
        pulse.tick().await; // the first is at once
        let outcome = loop {
            tokio::select! {
                biased;
                Some(line) = lines.recv() => self.tell(&line).await,
                outcome = &mut steering => break outcome,
                _ = pulse.tick() => self.tell(&Tell::Working).await,
            }
            if is_endless && self.gone {
                return Ok(());
            }
        };
        while let Ok(line) = lines.try_recv() {
            self.tell(&line).await;
        }
        outcome
    }

    async fn tell(&mut self, line: &Tell) {
        if self.gone {
            return;
        }
        let written = timeout(self.patience, lines::write(self.stream.get_mut(), line)).await;
        self.gone = !matches!(written, Ok(Ok(())));
    }
}

fn understand(line: &[u8]) -> Result<Ask, Refusal> {
    let unreadable = |error: LineError| Refusal(format!("the question can't be read: {error}"));
    let Version { pronghorn } = lines::parse(line).map_err(unreadable)?;
    if pronghorn != PROTOCOL {
        return Err(Refusal(format!(
            "the command speaks version {pronghorn} of the control protocol, the server \
             {PROTOCOL}: use the command of the server's release, or restart the server"
        )));
    }
    let question: Question = lines::parse(line).map_err(unreadable)?;
    Ok(question.ask)
}
