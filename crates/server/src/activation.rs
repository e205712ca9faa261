//! Sockets that systemd has opened for this server: which service takes which.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use pronghorn_config::{Listen, Preset};
use pronghorn_plugin_api::Sockets;
use pronghorn_process::activation::{Activated, ActivatedPlace};

use crate::error::{StartError, Unclaimed};
use crate::settings::Settings;

/// Keys that a socket sets by the name of its service, where no other socket has that name.
const KEYS: [(&str, &str); 2] = [("http", "http.address"), ("rpc", "rpc.listen")];

/// The keys that the names of sockets set.
#[must_use]
pub fn presets(named: &[(&str, &ActivatedPlace)]) -> Vec<Preset> {
    let set = KEYS.iter().filter_map(|(name, key)| {
        let mut of_name = named.iter().filter(|(given, _)| given == name);
        match (of_name.next(), of_name.next()) {
            (Some((_, place)), None) => Some(Preset::text(*key, shown(place))),
            _ => None,
        }
    });
    set.collect()
}

/// Hands each to the service that listens at its address.
pub(crate) fn share(
    activated: Vec<Activated>,
    settings: &Settings,
    folder: &Path,
    sockets: &Sockets,
) -> Result<(), StartError> {
    for Activated {
        name,
        place,
        socket,
    } in activated
    {
        let mut services = settings.services.iter();
        let claims = |listen: &Listen| is_at(listen, &place, folder);
        let taker = services.find(|(_, service)| service.listens().iter().any(claims));
        let Some((service, _)) = taker else {
            let place = shown(&place);
            return Err(Unclaimed { place, name }.into());
        };
        tracing::info!(
            target: "server", service, name, address = shown(&place),
            "systemd has opened the socket"
        );
        let name = KEYS.iter().find(|(known, _)| *known == name);
        let name = name.map(|(name, _)| *name).unwrap_or_default();
        sockets.add_systemds(service, name, socket)?;
    }
    Ok(())
}

fn is_at(listen: &Listen, place: &ActivatedPlace, folder: &Path) -> bool {
    match (listen, place) {
        (Listen::Unix(path), ActivatedPlace::Unix(there)) => folder.join(path) == *there,
        (Listen::Tcp(address), ActivatedPlace::Tcp(there)) => {
            let port_fits = address.port == there.port();
            port_fits
                && match &address.host {
                    None => there.ip().is_unspecified(),
                    Some(host) => is_name_of(host, *there).unwrap_or(false),
                }
        }
        _ => false,
    }
}

fn is_name_of(host: &str, there: SocketAddr) -> io::Result<bool> {
    let mut found = (host, there.port()).to_socket_addrs()?;
    Ok(found.any(|address| address == there))
}

fn shown(place: &ActivatedPlace) -> String {
    match place {
        ActivatedPlace::Tcp(address) => address.to_string(),
        ActivatedPlace::Unix(path) => format!("unix://{}", path.display()),
    }
}
