//! The state that all connections of a listener share.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::{Admission, LogThrottle, Place, Standings};
use pronghorn_metrics::Registry;
use pronghorn_pool::{Spool, SpoolClient};
use pronghorn_process::open_files::{Spare, spared_by};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::addresses::{Addresses, ConnectionPermit};
use crate::client_memory::{Account, Charge, ClientBytes, ClientMemory, UNCOUNTED};
use crate::client_stream::{CutFor, StreamHandler, StreamPlace};
use crate::exchange::Exchange;
use crate::limits::Limits;
use crate::message::{Body, Handled, Handler, Peer, Request, Response};
use crate::metrics::{ConnectionMetrics, RefusedConnections, ResponseMetrics};
use crate::owner::{Owner, tell};
use crate::peer_address::PeerAddress;
use crate::sent::{OnSent, Sent};

/// A handler with its limits, and the way to an orderly end.
pub struct Service {
    pub(crate) owner: Owner,
    handler: ArcSwap<Arc<dyn Handler>>,
    /// Takes the connections where they speak no HTTP.
    pub(crate) streams: Option<Arc<dyn StreamHandler>>,
    pub(crate) limits: Limits,
    pub(crate) draining: CancellationToken,
    drain_idle: OnceLock<Duration>,
    connections: TaskTracker,
    pub(crate) refusals: LogThrottle,
    evictions: LogThrottle,
    standings: Arc<Standings>,
    groups: RandomState,
    addresses: Arc<Addresses>,
    memory: Arc<ClientMemory>,
    /// Where somebody reads metrics.
    pub(crate) counted: Option<ConnectionMetrics>,
    responses: Option<ResponseMetrics>,
    /// For replies over HTTP/2 that wait for their clients. Without it, those for which there is no
    /// memory are cut off.
    pub(crate) spool: Option<Arc<Spool>>,
}

/// Why a connection is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There are as many as there may be.
    All,
    /// There are as many of this address.
    Address,
}

impl Service {
    /// Counts connections and responses in `metrics`, if there are any.
    pub fn new(
        handler: Arc<dyn Handler>,
        limits: Limits,
        addresses: Arc<Addresses>,
        metrics: Option<&Registry>,
        spool: Option<Arc<Spool>>,
    ) -> Arc<Self> {
        let (owner, streams) = (Owner::Http, None);
        Self::made(Self {
            responses: metrics.map(ResponseMetrics::new),
            spool,
            ..Self::bare(owner, handler, streams, limits, addresses, metrics)
        })
    }

    /// For connections that speak no HTTP. Counts them in `metrics`, if there are any.
    pub fn of_streams(
        streams: Arc<dyn StreamHandler>,
        limits: Limits,
        addresses: Arc<Addresses>,
        metrics: Option<&Registry>,
    ) -> Arc<Self> {
        let (owner, streams) = (Owner::Tcp, Some(streams));
        let nobody: Arc<dyn Handler> = Arc::new(NoHttp);
        Self::made(Self {
            standings: Arc::new(Standings::of_silent()),
            ..Self::bare(owner, nobody, streams, limits, addresses, metrics)
        })
    }

    fn made(service: Self) -> Arc<Self> {
        let service = Arc::new(service);
        let spare: Arc<dyn Spare> = service.clone();
        spared_by(Arc::downgrade(&spare));
        service
    }

    fn bare(
        owner: Owner,
        handler: Arc<dyn Handler>,
        streams: Option<Arc<dyn StreamHandler>>,
        limits: Limits,
        addresses: Arc<Addresses>,
        metrics: Option<&Registry>,
    ) -> Self {
        let (draining, connections) = (CancellationToken::new(), TaskTracker::new());
        let counted = metrics.map(|metrics| {
            let open = connections.clone();
            ConnectionMetrics::new(metrics, move || open.len())
        });
        Self {
            owner,
            handler: ArcSwap::from_pointee(handler),
            streams,
            limits,
            draining,
            drain_idle: OnceLock::new(),
            connections,
            refusals: LogThrottle::default(),
            evictions: LogThrottle::default(),
            standings: Arc::default(),
            groups: RandomState::new(),
            addresses,
            memory: ClientMemory::new(owner, &limits, metrics),
            counted,
            responses: None,
            spool: None,
        }
    }

    /// Requests from now on go to this one.
    pub fn set_handler(&self, handler: Arc<dyn Handler>) {
        self.handler.store(Arc::new(handler));
    }

    pub(crate) fn handler(&self) -> Arc<Arc<dyn Handler>> {
        self.handler.load_full()
    }

    /// A response is out: does what is due then.
    pub(crate) fn sent(&self, on_sent: Option<Arc<dyn OnSent>>, mut sent: Sent) {
        if let Some(responses) = &self.responses {
            responses.observe(&sent);
        }
        if let Some(on_sent) = on_sent {
            on_sent.on_sent(&mut sent);
        }
    }

    /// From now on each connection ends after its current request or, after `idle`, without one: a
    /// request may be on its way. What waits to be accepted is still accepted, then no more.
    /// Returns when all have ended.
    pub async fn drain(&self, idle: Duration) {
        _ = self.drain_idle.set(idle); // a second drain changes nothing
        self.draining.cancel();
        self.connections.close();
        self.connections.wait().await;
    }

    /// Returns when all connections have ended of their own accord.
    pub async fn all_ended(&self) {
        self.connections.close();
        self.connections.wait().await;
    }

    /// How long an idle connection is kept once the service drains.
    pub(crate) fn drain_idle(&self) -> Duration {
        self.drain_idle.get().copied().unwrap_or_default()
    }

    /// Returns when a draining service has waited long enough for a client that shakes hands.
    async fn drained(&self) {
        self.draining.cancelled().await;
        tokio::time::sleep(self.drain_idle()).await;
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    /// Counts a connection while the returned value lives, for this address if it is known. Where
    /// there are as many as there may be, the one that has been without a request for the longest
    /// time is told to end.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Entered, Full> {
        let permit = self.addresses.connection(address);
        let permit = permit.map_err(|_| Full::Address)?;
        let (open, limit) = (self.connections.len(), self.limits.connections);
        let room = self.standings.make_room(open, limit);
        match room {
            Admission::Free => {}
            Admission::Freed => self.tell_of_eviction(),
            Admission::Full => return Err(Full::All),
        }
        if let Some(counted) = &self.counted {
            counted.accepted.increment();
        }
        let place = self.standings.enter();
        place.belongs_to(self.group(address));
        Ok(Entered {
            service: self.clone(),
            place,
            is_over: room == Admission::Freed,
            _token: self.connections.token(),
            permit: permit.map(Box::new),
            account: OnceLock::new(),
        })
    }

    /// A number for all connections of an address; 0 for one that stands for itself.
    fn group(&self, address: Option<IpAddr>) -> u64 {
        let household = self.addresses.household(address);
        household.map_or(0, |household| self.groups.hash_one(household).max(1))
    }

    /// The counters of refused connections, if somebody reads them.
    pub(crate) fn refused(&self) -> Option<&RefusedConnections> {
        self.counted.as_ref().map(|counted| &counted.refused)
    }

    /// It is closed without a word: an answer would cost more than the connection.
    pub(crate) fn refuse(&self, full: Full, address: PeerAddress) {
        if let Some(counted) = &self.counted {
            match full {
                Full::All => counted.refused.full.increment(),
                Full::Address => counted.refused.address.increment(),
            }
        }
        let Some(connections) = self.refusals.should_log() else {
            return;
        };
        match full {
            Full::All => {
                let limit = self.limits.connections;
                tell!(
                    self.owner,
                    warn,
                    connections,
                    limit,
                    "connections refused: there are too many"
                );
            }
            Full::Address => {
                let key = self.owner.limit_of_address();
                tell!(
                    self.owner, warn, connections, remote_address = %address,
                    "connections refused: an address has reached `{key}`"
                );
            }
        }
    }

    fn tell_of_eviction(&self) {
        let limit = self.limits.connections;
        if let Some(counted) = &self.counted {
            counted.evicted.increment();
        }
        if let Some(connections) = self.evictions.should_log() {
            tell!(
                self.owner,
                warn,
                connections,
                limit,
                "idle connections closed for new ones: the limit of connections is reached"
            );
        }
    }
}

/// Answers nobody: the connections of such a service speak no HTTP.
#[derive(Debug)]
struct NoHttp;

impl Handler for NoHttp {
    fn handle<'a>(&'a self, _: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(std::future::ready(Response::new(500, Body::Empty)))
    }
}

impl Spare for Service {
    /// Tells some connections to end that have no request: a client of another one waits.
    fn give_back(&self) {
        /// Until the next look a tenth of a second later, this many new ones may come.
        const SPARED: usize = 8;
        for _ in 0..SPARED {
            let open = self.connections.len();
            if self.standings.make_room(open, open) != Admission::Freed {
                return;
            }
            if let Some(counted) = &self.counted {
                counted.evicted.increment();
            }
        }
    }
}

/// One open connection.
pub(crate) struct Entered {
    service: Arc<Service>,
    place: Place,
    is_over: bool,
    _token: TaskTrackerToken,
    /// Behind a pointer: without a limit for addresses, no connection has one.
    permit: Option<Box<ConnectionPermit>>,
    /// Once it holds more than an ordinary one.
    account: OnceLock<Arc<Account>>,
}

impl Entered {
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Counts it for this address, which a proxy has told.
    pub(crate) fn count(&mut self, ip: IpAddr) -> Result<(), Full> {
        self.place.belongs_to(self.service.group(Some(ip)));
        let permit = self.service.addresses.connection(Some(ip));
        self.permit = permit.map_err(|_| Full::Address)?.map(Box::new);
        Ok(())
    }

    /// Whether another one was told to end for it, which takes its task a moment.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// To be told what the connection does.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The account of this connection of `peer`.
    pub(crate) fn account(&self, peer: &Peer) -> &Arc<Account> {
        self.account.get_or_init(|| {
            let household = self.service.addresses.household(peer.address.ip());
            let (memory, cut) = (&self.service.memory, self.place.cut());
            memory.open(household, peer.address, cut)
        })
    }

    /// Whether memory is short, so that nothing is held only to be faster.
    pub(crate) fn is_memory_tight(&self) -> bool {
        self.service.memory.is_tight()
    }

    /// Counts what a connection keeps, where it is more than an ordinary one does.
    pub(crate) fn keeps(&self, peer: &Peer, what: ClientBytes, bytes: usize) {
        if bytes > UNCOUNTED || self.account.get().is_some() {
            self.account(peer).keep(what, bytes);
        }
    }

    /// For so much memory, where it is more than may be `uncounted`.
    pub(crate) fn charged(&self, peer: &Peer, bytes: usize, uncounted: usize) -> Charge {
        if bytes <= uncounted {
            return Charge::default();
        }
        let mut charge = self.account(peer).charge();
        charge.set(bytes);
        charge
    }

    /// Returns when the connection is to make room for another one, or a draining service has
    /// waited long enough for it: for a client that shakes hands.
    pub(crate) async fn ended(&self) {
        tokio::select! {
            () = self.place.evicted() => {}
            () = self.service.drained() => {}
        }
    }
}

impl StreamPlace for Entered {
    fn stopping(&self) -> &CancellationToken {
        &self.service.draining
    }

    fn poll_cut(&self, cx: &Context<'_>) -> Poll<CutFor> {
        let cut = self.place.poll_evicted(cx);
        cut.map(|()| {
            if self.place.is_cut() {
                CutFor::Memory
            } else {
                CutFor::Room
            }
        })
    }

    fn waits(&self, since: Instant) {
        self.place.untaken(since);
    }

    fn moves(&self) {
        self.place.taken();
    }

    fn busy(&self) {
        self.place.busy();
    }

    fn keeps(&self, peer: &Peer, bytes: usize) {
        Self::keeps(self, peer, ClientBytes::Input, bytes);
    }

    fn spool_client(&self, peer: &Peer) -> Arc<dyn SpoolClient> {
        self.account(peer).clone()
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("limits", &self.limits)
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}
