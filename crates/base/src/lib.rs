//! Small helpers that more than one crate needs. Nothing here knows what a server is.

#![forbid(unsafe_code)]

mod backoff;
mod budget;
mod calendar;
mod causes;
mod duration;
mod heaviest;
mod log_throttle;
mod mutex;
mod peer;
mod plain_file;
mod shown;
mod standing;
mod timer;
mod trusted;

use std::pin::Pin;

pub use backoff::Backoff;
pub use budget::Budget;
pub use calendar::{now_ms, since_1970};
pub use causes::with_causes;
pub use duration::{micros, millis};
pub use heaviest::heaviest;
pub use log_throttle::LogThrottle;
pub use mutex::lock;
pub use peer::{Peer, PeerChange, PeerHealth, watch_peer};
pub use plain_file::{kind_of, open_linked, open_plain, read_linked, read_opened, read_plain};
pub use shown::{LONGEST_SHOWN, LeftOut, shown};
pub use standing::{Admission, Cut, Place, Standings};
pub use timer::Timer;
pub use trusted::{Trusted, TrustedPlace, Untrusted, begin_in};

/// A future whose type a trait cannot name.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
