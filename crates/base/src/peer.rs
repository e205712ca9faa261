//! Whether a server of somebody else answers, so that readiness knows it without a call and the log
//! has one record when it goes and one when it is back.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use crate::mutex::lock;

/// Between two looks at a peer that answers.
const WATCH_EVERY: Duration = Duration::from_secs(5);
/// Between two looks at one that does not: readiness waits for it.
const WATCH_EVERY_AWAY: Duration = Duration::from_secs(1);

/// The state of a peer, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It has not been asked yet, or has not answered.
    Unknown,
    Here,
    /// Why it does not answer.
    Away(String),
}

/// A change that is worth a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// It answers for the first time.
    Found,
    Lost,
    Back,
}

/// The state of one peer. It is set by who asks the peer, and read by who wants to know.
#[derive(Debug)]
pub struct PeerHealth(Mutex<Peer>);

impl PeerHealth {
    /// A peer that is taken for one that answers until it does not.
    pub const fn supposed() -> Self {
        Self(Mutex::new(Peer::Here))
    }

    pub const fn unknown() -> Self {
        Self(Mutex::new(Peer::Unknown))
    }

    /// Notes how the last question ended. A change is returned once. While the peer stays away, the
    /// newest reason is kept and is no change.
    pub fn set(&self, now: Result<(), String>) -> Option<PeerChange> {
        let mut peer = lock(&self.0);
        let change = match (&*peer, &now) {
            (Peer::Unknown, Ok(())) => Some(PeerChange::Found),
            (Peer::Away(_), Ok(())) => Some(PeerChange::Back),
            (Peer::Unknown | Peer::Here, Err(_)) => Some(PeerChange::Lost),
            (Peer::Here, Ok(())) | (Peer::Away(_), Err(_)) => None,
        };
        *peer = now.map_or_else(Peer::Away, |()| Peer::Here);
        change
    }

    pub fn get(&self) -> Peer {
        lock(&self.0).clone()
    }

    /// Why it does not answer, if it does not.
    pub fn check(&self) -> Result<(), String> {
        match self.get() {
            Peer::Away(why) => Err(why),
            Peer::Unknown | Peer::Here => Ok(()),
        }
    }
}

/// Asks a peer from time to time, without end, and tells each change. The reason comes with a loss.
pub async fn watch_peer<F>(mut ask: impl FnMut() -> F, tell: impl Fn(PeerChange, &str))
where
    F: Future<Output = Result<(), String>>,
{
    let health = PeerHealth::supposed();
    loop {
        let answer = ask().await;
        let why = answer.as_ref().err().cloned();
        if let Some(change) = health.set(answer) {
            tell(change, why.as_deref().unwrap_or_default());
        }
        sleep(if why.is_some() {
            WATCH_EVERY_AWAY
        } else {
            WATCH_EVERY
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Handle;
    use tokio::time::{Instant, advance};

    use super::*;

    fn no() -> Result<(), String> {
        Err("no".to_owned())
    }

    #[test]
    fn each_change_is_told_once() {
        let health = PeerHealth::unknown();
        assert_eq!(health.get(), Peer::Unknown);
        assert_eq!(health.set(Ok(())), Some(PeerChange::Found));
        assert_eq!(health.set(Ok(())), None);
        assert_eq!(health.set(no()), Some(PeerChange::Lost));
        assert_eq!(health.set(Err("still".to_owned())), None);
        assert_eq!(health.check(), Err("still".to_owned()));
        assert_eq!(health.set(Ok(())), Some(PeerChange::Back));
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn a_peer_that_never_answered_is_lost_at_once_and_back_later() {
        let health = PeerHealth::unknown();
        assert_eq!(health.set(no()), Some(PeerChange::Lost));
        assert_eq!(health.set(Ok(())), Some(PeerChange::Back));
        let supposed = PeerHealth::supposed();
        assert_eq!(supposed.set(Ok(())), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_away_is_asked_more_often() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let begin = Instant::now();
        let mut answers = [Ok(()), no(), no(), Ok(())].into_iter();
        let ask = move || {
            let answer = answers.next();
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        };
        let telling = told.clone();
        let tell = move |change, why: &str| {
            let at = begin.elapsed().as_secs();
            lock(&telling).push((at, change, why.to_owned()));
        };
        let task = Handle::current().spawn(watch_peer(ask, tell));
        for _ in 0..20 {
            advance(Duration::from_millis(500)).await;
            tokio::task::yield_now().await;
        }
        task.abort();
        let expected = [
            (5, PeerChange::Lost, "no".to_owned()),
            (7, PeerChange::Back, String::new()),
        ];
        assert_eq!(*lock(&told), expected);
    }
}
