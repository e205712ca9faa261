//! Who workers are.

use pronghorn_process::{Credentials, LookupError};
use thiserror::Error;

/// The user that workers run as, by the name in the configuration.
pub type WorkerUser = (String, Credentials);

/// Why workers can't run as the configuration says. The operator's.
#[derive(Debug, Error)]
pub enum UserError {
    /// `server.user` or `server.group`.
    #[error("workers can't run as `server.user` says")]
    Unknown(#[source] LookupError),
    /// Only root may start processes of another user.
    #[error("workers can't run as `{0}`: only root may start processes of another user")]
    NotRoot(String),
}

/// None where workers run as the server itself does.
///
/// # Errors
///
/// When there is no such user or group, or this process may not become it.
pub fn look_up(user: Option<&str>, group: Option<&str>) -> Result<Option<WorkerUser>, UserError> {
    let Some(user) = user else { return Ok(None) };
    let credentials = Credentials::look_up(user, group).map_err(UserError::Unknown)?;
    if credentials.is_current() {
        return Ok(None);
    }
    if !Credentials::may_change() {
        return Err(UserError::NotRoot(user.to_owned()));
    }
    Ok(Some((user.to_owned(), credentials)))
}
