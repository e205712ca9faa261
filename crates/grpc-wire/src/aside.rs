//! Work that takes too long for an I/O thread, which has others to serve.

use tokio::sync::Semaphore;

use crate::status::{Code, Status};

/// Bytes of a message whose work is worth a file thread.
pub const LONG: usize = 64 << 10;
/// Calls that have such work at once: each takes a file thread, which others need.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// Does it on a file thread, in turn. Whoever leaves while he waits takes none.
///
/// # Errors
///
/// The status of a call that the server's end cuts off.
pub async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    let ending = || Status::new(Code::Unavailable, "the server ends");
    let _turn = AT_ONCE.acquire().await.map_err(|_| ending())?;
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ending())
}
