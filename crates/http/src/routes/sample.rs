//! Requests that a route gets, to try routes with before a client does.

use std::net::IpAddr;

use pronghorn_wire::Fields;

use super::{Asked, Conditions, HostPattern, Method, is_met};

/// In case a route names none, or some that it does not take.
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// A request without a path.
#[derive(Debug)]
pub(crate) struct Sample {
    method: String,
    host: String,
    fields: Fields,
    address: Option<IpAddr>,
}

impl Sample {
    pub(crate) fn asked<'a>(&'a self, path: &'a [u8]) -> Asked<'a> {
        Asked {
            method: &self.method,
            authority: &self.host,
            path,
            fields: &self.fields,
            address: self.address,
        }
    }
}

impl Conditions {
    /// A request that meets all but the paths, for one of these hosts, if there are any. `None`
    /// where none was found.
    pub(crate) fn sample(&self, hosts: &[HostPattern]) -> Option<Sample> {
        let named = self.hosts.iter().chain(hosts).map(HostPattern::sample);
        let nameless = is_met(&self.hosts, |_| false) && is_met(hosts, |_| false);
        let mut named = named.chain(nameless.then(String::new));
        let host = named.find(|host| {
            let is_of = |patterns: &[HostPattern]| is_met(patterns, |it| it.matches(host));
            is_of(&self.hosts) && is_of(hosts)
        })?;
        let methods = self.methods.iter().map(Method::name).chain(METHODS);
        // A client of a unix socket has no address, and is in no network.
        let addresses = self.addresses.iter().map(|net| Some(net.address()));
        let addresses: Vec<Option<IpAddr>> = addresses.chain([None]).collect();
        let fields = self.headers.sample()?;
        let mut clients = methods.flat_map(|method| addresses.iter().map(move |it| (method, *it)));
        let (method, address) = clients.find(|(method, address)| {
            let asked = Asked {
                method,
                authority: &host,
                path: b"/",
                fields: &fields,
                address: *address,
            };
            self.match_client(&asked, &host)
        })?;
        let method = method.to_owned();
        Some(Sample {
            method,
            host,
            fields,
            address,
        })
    }
}
