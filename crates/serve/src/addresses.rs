//! How many connections, or behind a trusted proxy requests, each address has at a time.
//!
//! A connection is counted by its own address. That of a trusted proxy carries many clients and is
//! not counted; its requests are, each by the address that the proxy tells, until their responses
//! are out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwapOption;
use pronghorn_base::lock;
use pronghorn_config::Subnet;

use crate::peer_address::Household;
use crate::sent::{OnSent, Sent};

/// The count. It holds an entry for each address that has a connection or a request, so it is
/// bounded by those.
#[derive(Debug, Default)]
pub struct Addresses {
    /// 0 is no limit.
    limit: AtomicU32,
    /// None without any: most servers have none.
    proxies: ArcSwapOption<Vec<Subnet>>,
    taken: Mutex<HashMap<Household, u32>>,
}

/// One of the places that an address may take; free again when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    addresses: Arc<Addresses>,
    household: Household,
}

/// The address has as many as it may.
#[derive(Debug)]
pub struct NoPermit;

impl Addresses {
    /// From now on an address has at most so many, and these are proxies. Who has more than a new
    /// limit keeps it.
    pub fn set(&self, limit: Option<u32>, proxies: Vec<Subnet>) {
        let proxies = (!proxies.is_empty()).then(|| Arc::new(proxies));
        self.proxies.store(proxies);
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// A place for a new connection; none is needed without a limit, for a trusted proxy and for a
    /// client without an address.
    pub(crate) fn connection(
        self: &Arc<Self>,
        ip: Option<IpAddr>,
    ) -> Result<Option<ConnectionPermit>, NoPermit> {
        match ip {
            Some(ip) if self.limit() > 0 && !self.is_proxy(ip) => self.permit(ip),
            _ => Ok(None),
        }
    }

    /// Who a connection is counted for; none for a trusted proxy, who carries many clients.
    pub(crate) fn household(&self, ip: Option<IpAddr>) -> Option<Household> {
        ip.filter(|ip| !self.is_proxy(*ip)).map(Household::of)
    }

    fn is_proxy(&self, ip: IpAddr) -> bool {
        let proxies = self.proxies.load();
        proxies
            .as_ref()
            .is_some_and(|proxies| proxies.iter().any(|net| net.contains(ip)))
    }

    /// A place for a request of a client that a trusted proxy tells of.
    pub fn request(self: &Arc<Self>, ip: IpAddr) -> Result<Option<ConnectionPermit>, NoPermit> {
        if self.limit() == 0 {
            Ok(None)
        } else {
            self.permit(ip)
        }
    }

    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn permit(self: &Arc<Self>, ip: IpAddr) -> Result<Option<ConnectionPermit>, NoPermit> {
        let household = Household::of(ip);
        let mut taken = self.taken();
        let count = taken.entry(household).or_default();
        if *count >= self.limit() {
            return Err(NoPermit);
        }
        *count += 1;
        Ok(Some(ConnectionPermit {
            addresses: self.clone(),
            household,
        }))
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Household, u32>> {
        lock(&self.taken)
    }
}

impl OnSent for ConnectionPermit {
    /// It is given back when it is dropped, which follows.
    fn on_sent(&self, _: &mut Sent) {}
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.addresses.taken();
        if let Some(count) = taken.get_mut(&self.household) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.household);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    fn addresses(limit: u32) -> Arc<Addresses> {
        let addresses = Arc::new(Addresses::default());
        addresses.limit.store(limit, Ordering::Relaxed);
        addresses
    }

    #[test]
    fn an_address_has_so_many_places_and_gets_them_back() {
        let addresses = addresses(2);
        let (one, other) = (Some(ip("192.0.2.1")), Some(ip("192.0.2.2")));
        let first = addresses.connection(one);
        let second = addresses.connection(one);
        assert!(first.is_ok() && second.is_ok() && addresses.connection(one).is_err());
        assert!(addresses.connection(other).is_ok());
        drop(first);
        assert!(addresses.connection(one).is_ok());
        drop(second);
        assert!(
            addresses.taken().is_empty(),
            "nothing is kept of who has nothing"
        );
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one() {
        let addresses = addresses(1);
        let first = addresses.request(ip("2001:db8:0:1::1"));
        assert!(addresses.request(ip("2001:db8:0:1:ffff::2")).is_err());
        assert!(addresses.request(ip("2001:db8:0:2::1")).is_ok());
        assert!(addresses.request(ip("::ffff:192.0.2.1")).is_ok());
        drop(first);
    }

    #[test]
    fn without_a_limit_or_an_address_nobody_is_counted() {
        assert!(matches!(
            addresses(0).connection(Some(ip("192.0.2.1"))),
            Ok(None)
        ));
        assert!(matches!(addresses(1).connection(None), Ok(None)));
    }
}
