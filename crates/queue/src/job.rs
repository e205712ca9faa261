//! A job and its options.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

/// Fields that go with a job, as those of HTTP: a name can have several values.
pub type Headers = BTreeMap<String, Vec<String>>;

/// A longer delay is taken for this one: ten years, which a clock can count for certain.
pub const LONGEST_DELAY: Duration = Duration::from_hours(24 * 3652);

/// A call of a handler in PHP, and when it is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Chosen by whoever pushed it.
    pub id: String,
    /// Which handler it is for; a class, mostly.
    pub name: String,
    /// The bytes for the handler, as they were pushed.
    pub payload: Bytes,
    /// Fields for the handler, and the job's options.
    pub headers: Headers,
    /// Lower goes first.
    pub priority: i64,
    /// From the push on; zero is now.
    pub delay: Duration,
    /// It counts as done as soon as a worker gets it.
    pub auto_ack: bool,
    /// How many workers have died of it or have let its deadline pass.
    pub attempts: u32,
}

impl Job {
    /// The bytes that it takes in memory, about: its texts, and the places where they hang.
    pub fn size(&self) -> u64 {
        const ITSELF: usize = size_of::<Job>();
        // A node of the map shared by some entries, the list, and each text.
        const HEADER: usize = 96;
        let headers = self.headers.iter().map(|(name, values)| {
            let values = values.iter().map(|value| value.len() + size_of::<String>());
            HEADER + name.len() + values.sum::<usize>()
        });
        let texts = self.id.len() + self.name.len() + self.payload.len();
        (ITSELF + texts + headers.sum::<usize>()) as u64
    }

    /// The pool that is to run it, if it names one: RoadRunner's header.
    pub fn pool(&self) -> Option<&str> {
        let values = self.headers.get("pool")?;
        values.first().map(String::as_str)
    }

    /// Adds headers; those of a name that is there are replaced.
    pub fn merge(&mut self, headers: Headers) {
        self.headers.extend(headers);
    }
}
