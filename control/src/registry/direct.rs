//! Direct routes: models that go to an adapter instance of any Node, past the pool (POL-12).
//!
//! No slots are counted here. How many direct leases a Node has only orders the candidates.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};

use serde::{Deserialize, Serialize};

use super::{Dispatch, Live};
use crate::{
    config::{PoolConfig, Route},
    lease::Binding,
};

/// One configured Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Candidate {
    /// Those of its adapters that a route names.
    adapters: Vec<Arc<str>>,
    /// Its dispatch-ready generation.
    live: Option<Live>,
    /// Direct leases that are not over.
    open: u32,
    /// Number of its last direct grant, 0 = none yet.
    last_grant: u64,
}

/// Order among candidates, best first: the fewest open leases, then the one granted longest ago, then by name.
type Rank = (u32, u64, Arc<str>);

/// All direct routes and who can take them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Direct {
    /// By model.
    routes: BTreeMap<Arc<str>, Route>,
    nodes: BTreeMap<Arc<str>, Candidate>,
    /// Ready Nodes by adapter.
    ready: BTreeMap<Arc<str>, BTreeSet<Rank>>,
    last_grant: u64,
}

impl Direct {
    /// Takes over `config`. `live` tells the dispatch-ready generation of a Node. A Node that left it has no lease any more.
    pub(crate) fn rebuild(&mut self, config: &PoolConfig, live: impl Fn(&str) -> Option<Live>) {
        self.routes = config.routes.iter().map(|route| (Arc::clone(&route.model), route.clone())).collect();
        let named: BTreeSet<_> = self.routes.values().map(|route| &route.adapter).collect();
        let mut old = core::mem::take(&mut self.nodes);
        self.ready.clear();
        for node in &config.nodes {
            let mut candidate = old.remove(&node.id).unwrap_or_default();
            let adapters: BTreeSet<_> = node.adapters.iter().filter(|it| named.contains(it)).collect();
            candidate.adapters = adapters.into_iter().cloned().collect();
            candidate.live = live(&node.id);
            enter(&mut self.ready, &node.id, &candidate);
            self.nodes.insert(Arc::clone(&node.id), candidate);
        }
    }

    /// Whether a model has a route.
    pub(crate) fn serves(&self, model: &str) -> bool {
        self.routes.contains_key(model)
    }

    /// A Node is served by a new generation, or takes nothing new.
    pub(crate) fn set_live(&mut self, node: &str, live: Option<Live>) {
        self.update(node, |candidate| candidate.live = live);
    }

    /// Takes the best ready Node for a model. `None`: there is none, or no such route.
    pub(crate) fn take(&mut self, model: &str) -> Option<Dispatch> {
        let route = self.routes.get(model)?;
        let (_, _, node) = self.ready.get(&route.adapter)?.first()?;
        let node = Arc::clone(node);
        let dispatch = Dispatch {
            live: self.nodes.get(&node)?.live?,
            binding: Binding {
                node: Arc::clone(&node),
                provider: Arc::clone(&route.provider),
                adapter: Arc::clone(&route.adapter),
                target: Arc::clone(&route.target),
            },
            stall_timeout: route.stall_timeout,
            request_timeout: route.request_timeout,
        };
        self.last_grant += 1;
        let last_grant = self.last_grant;
        self.update(&node, |candidate| {
            candidate.open += 1;
            candidate.last_grant = last_grant;
        });
        Some(dispatch)
    }

    /// A direct lease of a Node is over.
    pub(crate) fn give_back(&mut self, node: &str) {
        self.update(node, |candidate| candidate.open -= 1);
    }

    /// The one place where a candidate changes.
    fn update(&mut self, node: &str, change: impl FnOnce(&mut Candidate)) {
        let Some((id, _)) = self.nodes.get_key_value(node) else { return };
        let id = Arc::clone(id);
        let Some(candidate) = self.nodes.get_mut(&id) else { return };
        if candidate.live.is_some() {
            for adapter in &candidate.adapters {
                if let Some(ready) = self.ready.get_mut(adapter) {
                    ready.remove(&rank(&id, candidate));
                }
            }
        }
        change(candidate);
        enter(&mut self.ready, &id, candidate);
    }

    /// Whether the ordered sets are what they would be if built now, every Node has as many open leases as `open` says, and
    /// serves under the generation `live` says; for audits.
    pub(crate) fn is_consistent(
        &self,
        open: &BTreeMap<Arc<str>, u32>,
        live: impl Fn(&str) -> Option<Live>,
    ) -> bool {
        let mut fresh = BTreeMap::new();
        self.nodes.iter().for_each(|(node, candidate)| enter(&mut fresh, node, candidate));
        let filled = self.ready.iter().filter(|(_, ready)| !ready.is_empty());
        filled.eq(fresh.iter())
            && open.keys().all(|node| self.nodes.contains_key(node))
            && self.nodes.iter().all(|(node, candidate)| {
                candidate.open == open.get(node).copied().unwrap_or_default() && candidate.live == live(node)
            })
    }
}

fn rank(node: &Arc<str>, candidate: &Candidate) -> Rank {
    (candidate.open, candidate.last_grant, Arc::clone(node))
}

fn enter(ready: &mut BTreeMap<Arc<str>, BTreeSet<Rank>>, node: &Arc<str>, candidate: &Candidate) {
    if candidate.live.is_some() {
        for adapter in &candidate.adapters {
            ready.entry(Arc::clone(adapter)).or_default().insert(rank(node, candidate));
        }
    }
}
