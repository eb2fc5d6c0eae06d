//! The addresses of providers: resolved when a configuration is applied, and again after a connection failed.

use std::{cell::RefCell, collections::HashMap, net::SocketAddr, time::Duration};

use dataplane::{clock, time::before};

use super::openai_compat::endpoint::Origin;
use crate::resolve::{ResolveError, Resolver};

/// How long the names of a new configuration are waited for altogether before the Node becomes ready without the rest;
/// those are resolved when they are first needed.
pub const APPLY_RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Addresses by origin. It holds the origins of one configuration, which the wire bounds.
#[derive(Debug)]
pub struct AddressBook {
    resolver: Resolver,
    known: RefCell<HashMap<Origin, Vec<SocketAddr>>>,
}

impl AddressBook {
    /// An empty book that asks `resolver`.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        Self { resolver, known: RefCell::default() }
    }

    /// Forgets everything and resolves `origins`, for at most [`APPLY_RESOLVE_TIMEOUT`]. A name that cannot be resolved is
    /// logged and tried again when it is needed.
    pub async fn prepare(&self, origins: impl IntoIterator<Item = &Origin>) {
        self.known.borrow_mut().clear();
        let resolved = futures::future::join_all(origins.into_iter().map(|origin| async move {
            if let Err(error) = self.addresses(origin).await {
                tracing::warn!(host = origin.host, %error, "provider name not resolved");
            }
        }));
        if before(clock::now() + APPLY_RESOLVE_TIMEOUT, resolved).await.is_none() {
            tracing::warn!("provider names are still being resolved");
        }
    }

    /// The address of `origin` that worked last, if the book has one.
    #[must_use]
    pub fn preferred(&self, origin: &Origin) -> Option<SocketAddr> {
        self.known.borrow().get(origin)?.first().copied()
    }

    /// The addresses of `origin`, from the book or from the resolver.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, ResolveError> {
        if let Some(known) = self.known.borrow().get(origin) {
            return Ok(known.clone());
        }
        let found = self.resolver.resolve(&origin.host, origin.port).await?;
        self.known.borrow_mut().insert(origin.clone(), found.clone());
        Ok(found)
    }

    /// `address` has just been connected to: it comes first from now on.
    pub fn prefer(&self, origin: &Origin, address: SocketAddr) {
        // It nearly always does already.
        if self.preferred(origin) != Some(address)
            && let Some(known) = self.known.borrow_mut().get_mut(origin)
            && let Some(at) = known.iter().position(|found| *found == address)
        {
            known.swap(0, at);
        }
    }

    /// None of the addresses could be connected to: the next request asks the resolver again.
    pub fn forget(&self, origin: &Origin) {
        self.known.borrow_mut().remove(origin);
    }
}
