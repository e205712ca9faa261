//! A connection after `101 Switching Protocols`: bytes in both directions.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pronghorn_serve::{Upgrade, Upgraded};
use tokio::io::copy_bidirectional;

use crate::response_body::Lease;

/// Carries bytes until one side closes. When the server stops, both are closed at once: their
/// clients come back by themselves, and nobody waits for them.
pub(crate) fn tunnel(upgrading: OnUpgrade, lease: Lease) -> Upgrade {
    Box::new(move |mut client: Upgraded| {
        Box::pin(async move {
            let stopping = client.stopping();
            let carried = async {
                if let Ok(server) = upgrading.await {
                    // Each side sees when the other one fails: its connection ends.
                    _ = copy_bidirectional(&mut client, &mut TokioIo::new(server)).await;
                }
            };
            tokio::select! {
                () = carried => {}
                () = stopping.cancelled() => {}
            }
            drop(lease);
        })
    })
}
