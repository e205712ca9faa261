//! Encryption on the way to a broker.

use pronghorn_base::with_causes;
use pronghorn_client::{TlsError, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::BrokerError;
use crate::tls::BrokerTls;

/// The stream that a client reads from and writes to.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Begins encryption with a host. Files are read anew.
pub(crate) async fn encrypt(
    tls: &BrokerTls,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream, BrokerError> {
    Ok(tls.encrypt(host, stream).await?)
}

impl From<TlsError> for BrokerError {
    fn from(error: TlsError) -> Self {
        let why = with_causes(&error);
        match error {
            TlsError::Handshake(_) => Self::Lost(why),
            TlsError::NoRoots => Self::Refused(format!(
                "{why}; name a file in `root_ca`, or install `ca-certificates`"
            )),
            _ => Self::Refused(why),
        }
    }
}
