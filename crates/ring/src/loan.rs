//! Bytes of a worker that are used where they lie.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use pronghorn_base::lock;

use crate::link::{count, give_back};
use crate::memory::SharedMemory;

/// Bytes that lie in a box until they are sent from there or copied, at most once.
///
/// Meanwhile their room is not the worker's. So a loan is for whoever uses it soon; the
/// [`Link`](crate::Link) that gave it copies the bytes when it reads on, and then the loan is of
/// the copy.
#[derive(Debug)]
pub struct Loan(Arc<Lent>);

/// A loan as its link sees it.
#[derive(Debug)]
pub(crate) struct Lent {
    len: usize,
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    /// The first one's place in the stream up.
    SharedMemory(Arc<SharedMemory>, u64),
    Copy(Bytes),
    Nowhere,
}

impl Loan {
    /// The next `len` bytes of a stream, which are there.
    pub(crate) fn new(owner: Arc<SharedMemory>, at: u64, len: usize) -> (Self, Arc<Lent>) {
        let place = Mutex::new(Place::SharedMemory(owner, at));
        let lent = Arc::new(Lent { len, place });
        (Self(lent.clone()), lent)
    }

    /// How many bytes it is of.
    #[expect(clippy::len_without_is_empty, reason = "no loan is of nothing")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// `send` says how many of the bytes it has sent; the others are copied. It must leave it to
    /// the kernel to look at them: the worker can change them at any time.
    pub fn send(self, send: impl FnOnce(IoSlice<'_>) -> usize) -> Bytes {
        let len = self.0.len;
        // Held until the end, so that the link does not give later room back before this.
        let mut place = self.0.lock();
        match std::mem::replace(&mut *place, Place::Nowhere) {
            Place::SharedMemory(owner, at) => {
                let sent = owner.lend_up(at, len, send).min(len);
                let rest = owner.copy_up(at.wrapping_add(count(sent)), len - sent);
                give_back(&owner, at.wrapping_add(count(len)));
                rest.into()
            }
            Place::Copy(mut bytes) => {
                let sent = send(IoSlice::new(&bytes)).min(len);
                bytes.split_off(sent)
            }
            Place::Nowhere => unreachable!("a loan is used once"),
        }
    }
}

impl From<Loan> for Bytes {
    fn from(loan: Loan) -> Self {
        loan.send(|_| 0)
    }
}

/// Nobody wants the bytes.
impl Drop for Loan {
    fn drop(&mut self) {
        let mut place = self.0.lock();
        if let Place::SharedMemory(owner, at) = std::mem::replace(&mut *place, Place::Nowhere) {
            give_back(&owner, at.wrapping_add(count(self.0.len)));
        }
    }
}

impl Lent {
    /// After this, the room is the worker's.
    pub(crate) fn end(&self) {
        let mut place = self.lock();
        if let Place::SharedMemory(owner, at) = &*place {
            let bytes = owner.copy_up(*at, self.len);
            give_back(owner, at.wrapping_add(count(self.len)));
            *place = Place::Copy(bytes.into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        lock(&self.place)
    }
}
