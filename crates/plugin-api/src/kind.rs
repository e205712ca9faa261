//! What kinds of services a server can have: the rows of its table.

use std::fmt;
use std::sync::Arc;

use pronghorn_config::{Section, Table};

use crate::service::Service;

/// A kind of service: the section that it is configured by, and how a service is made of it.
#[derive(Clone)]
pub struct ServiceKind {
    name: &'static str,
    read: Arc<Read>,
}

type Read = dyn Fn(&mut Table<'_>) -> Option<Box<dyn Service>> + Send + Sync;

impl ServiceKind {
    /// A service that is there when its section is written. `sentence` says what it is, for the
    /// reference.
    pub fn optional<S: Section, V: Service>(
        name: &'static str,
        sentence: &'static str,
        make: impl Fn(S) -> V + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |t| {
            let service = make(t.optional_section(name, sentence)?);
            Some(Box::new(service))
        })
    }

    /// As [`ServiceKind::optional`], for a service that reads other sections beside its own. `read`
    /// is None without the section.
    pub fn optional_with<V: Service>(
        name: &'static str,
        read: impl Fn(&mut Table<'_>) -> Option<V> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |t| Some(Box::new(read(t)?)))
    }

    /// A service that is always there. `read` reads what there is of it in the configuration.
    pub fn always<V: Service>(
        name: &'static str,
        read: impl Fn(&mut Table<'_>) -> V + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, move |t| Some(Box::new(read(t))))
    }

    fn new(
        name: &'static str,
        read: impl Fn(&mut Table<'_>) -> Option<Box<dyn Service>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            read: Arc::new(read),
        }
    }

    /// The name of its section, which is also the service's name in records and in RPC: `http`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Reads its part of the whole configuration. None: there is no such service.
    #[must_use]
    pub fn read(&self, t: &mut Table<'_>) -> Option<Box<dyn Service>> {
        (self.read)(t)
    }
}

impl fmt::Debug for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceKind").field(&self.name).finish()
    }
}
