//! Invariants of security.md 5.3, checked after each step from inputs and effects alone.
//!
//! The oracle keeps its own books, by scanning plain maps. It knows nothing of how the machine decides, only what must
//! never be seen: two slots for one request (I3), a slot returned twice (I4), a grant to a Node that is not ready (I5),
//! a generation that does not rise (I8), a second terminal (I9), a younger request overtaking a runnable older one
//! (I10), a runnable request left waiting (I11), an overlong queue (I12), a lost request (I13), a grant to a client
//! that left (I14).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use control::{
    Counters,
    config::{PoolConfig, ProviderPolicy},
    counters::Returned,
    effect::{Effect, Grant, HealthVerdict, Probe, ProviderStatus, Snapshot},
    input::{Admit, CommandId, ConnectionId, Input, LeaseId, Moment, RequestId},
};
use proto::message::{ErrorKind, ExecutionError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    Running(LeaseId),
    /// Its caller was told that the generation is fenced; it may still turn out to be unsent.
    Lost(LeaseId),
    Ended,
}

#[derive(Debug)]
pub struct Request {
    pub admit: Admit,
    pub stage: Stage,
    order: u64,
}

#[derive(Debug)]
pub struct Held {
    pub request: RequestId,
    pub connection: ConnectionId,
    node: Arc<str>,
    provider: Arc<str>,
    pub adapter: Arc<str>,
    pub target: Arc<str>,
    generation: u64,
    /// Of a direct route: it holds no slot.
    pub direct: bool,
    long: bool,
    /// Whether the slot is still taken.
    pub open: bool,
    /// Whether the holder still exists.
    pub holder: bool,
    bound: Option<Moment>,
}

#[derive(Debug)]
struct Claim {
    connection: ConnectionId,
    ready: Option<u64>,
    /// It takes no new runs.
    draining: bool,
}

impl Claim {
    fn takes_runs(&self) -> bool {
        self.ready.is_some() && !self.draining
    }
}

pub struct Oracle {
    config: Arc<PoolConfig>,
    claims: BTreeMap<Arc<str>, Claim>,
    /// Ready owners whose connection closed: a fence must follow in the same step.
    closed: Option<(Arc<str>, u64)>,
    last_generation: BTreeMap<Arc<str>, u64>,
    last_lease: u64,
    pub requests: BTreeMap<RequestId, Request>,
    pub leases: BTreeMap<LeaseId, Held>,
    granted: u64,
    returned: Returned,
    direct_granted: u64,
    direct_returned: u64,
    /// Providers that are taken out, with the probe whose answer counts: by Node and provider.
    pub overlaid: BTreeMap<(Arc<str>, Arc<str>), Option<Probe>>,
    last_command: u64,
    /// The latest probes, outstanding or not.
    pub probes: VecDeque<Probe>,
    /// What the input of this step may do to an overlay.
    may_lower: Option<(Arc<str>, Arc<str>)>,
    may_clear: Option<(ConnectionId, CommandId)>,
    /// The lease and node names of the input of this step.
    certified: Option<Arc<str>>,
}

impl Oracle {
    pub fn new(config: Arc<PoolConfig>) -> Self {
        Self {
            config,
            claims: BTreeMap::new(),
            closed: None,
            last_generation: BTreeMap::new(),
            last_lease: 0,
            requests: BTreeMap::new(),
            leases: BTreeMap::new(),
            granted: 0,
            direct_granted: 0,
            direct_returned: 0,
            returned: Returned::default(),
            overlaid: BTreeMap::new(),
            last_command: 0,
            probes: VecDeque::new(),
            may_lower: None,
            may_clear: None,
            certified: None,
        }
    }

    pub fn step(&mut self, now: Moment, input: Option<&Input>, effects: &[Effect]) {
        let due: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, l)| l.bound.is_some_and(|at| at <= now))
            .map(|(&id, _)| id)
            .collect();
        due.into_iter().for_each(|id| self.give_back(id, |by| &mut by.cancel_bound));
        (self.may_lower, self.may_clear) = (None, None);
        if let Some(input) = input {
            self.fact(now, input);
        }
        for effect in effects {
            self.effect(effect);
        }
        assert_eq!(self.closed, None, "FEN-2: a ready owner closed and its generation was not fenced");
        self.leases.retain(|_, lease| lease.open || lease.holder);
        let gone = |(node, provider): &(Arc<str>, Arc<str>)| {
            self.find_on(node, provider).is_none() && self.load(node, provider) == (0, 0)
        };
        let gone: Vec<_> = self.overlaid.keys().filter(|key| gone(key)).cloned().collect();
        gone.iter().for_each(|key| drop(self.overlaid.remove(key)));
    }

    fn fact(&mut self, now: Moment, input: &Input) {
        self.certified = None;
        match input {
            Input::Configure(config) => self.config = Arc::clone(config),
            Input::Register { certified, .. } => self.certified = Some(Arc::clone(certified)),
            Input::Draining { connection } => {
                let mine = |c: &&mut Claim| c.connection == *connection && c.ready.is_some();
                if let Some(claim) = self.claims.values_mut().find(mine) {
                    claim.draining = true;
                    let of = |probe: &Option<Probe>| {
                        probe.as_ref().is_some_and(|probe| probe.connection == *connection)
                    };
                    self.overlaid.values_mut().filter(|probe| of(probe)).for_each(|probe| *probe = None);
                }
            }
            Input::ConnectionClosed { connection } => {
                let node =
                    self.claims.iter().find(|(_, c)| c.connection == *connection).map(|(n, _)| n.clone());
                if let Some((node, claim)) = node.and_then(|node| self.claims.remove_entry(&node)) {
                    self.closed = claim.ready.map(|generation| (node, generation));
                }
            }
            Input::Admit(admit) => {
                let order = self.requests.len() as u64;
                let request = Request { admit: admit.clone(), stage: Stage::Waiting, order };
                self.requests.entry(admit.request).or_insert(request);
            }
            Input::Withdraw { request } => {
                if let Some(request) = self.requests.get_mut(request).filter(|r| r.stage == Stage::Waiting) {
                    request.stage = Stage::Ended;
                }
            }
            Input::HolderGone { lease, sent } => self.holder_gone(now, *lease, *sent),
            Input::NotSent { lease } => self.give_back(*lease, |by| &mut by.not_sent),
            Input::Terminal { connection, lease, error, sequence } => {
                let mine = |l: &&Held| l.connection == *connection && l.open;
                if let Some(held) = self.leases.get(lease).filter(mine) {
                    let (request, holder) = (held.request, held.holder);
                    let claims = |e: &ExecutionError| e.kind == ErrorKind::Stalled && e.failure.is_some();
                    if !held.direct && error.as_ref().is_some_and(claims) {
                        self.may_lower = Some((held.node.clone(), held.provider.clone()));
                    }
                    let busy = *sequence == 0 && error.as_ref().is_some_and(|e| e.kind == ErrorKind::Busy);
                    self.give_back(*lease, |by| match (holder, error, busy) {
                        (false, ..) => &mut by.cancelled,
                        (true, None, _) => &mut by.completed,
                        (true, Some(_), true) => &mut by.busy,
                        (true, Some(_), false) => &mut by.failed,
                    });
                    if holder && error.is_none() {
                        self.end(request);
                    }
                }
            }
            Input::CommandAnswered { connection, command, .. } => {
                self.may_clear = Some((*connection, *command));
            }
            Input::Ready { .. } | Input::Inspect { .. } => {}
        }
    }

    fn holder_gone(&mut self, now: Moment, id: LeaseId, sent: bool) {
        let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.holder) else { return };
        lease.holder = false;
        let request = lease.request;
        if lease.open && sent {
            lease.bound = Some(now.after(Duration::from_secs(10)));
        } else {
            self.give_back(id, |by| &mut by.abandoned);
        }
        let stage = self.requests[&request].stage;
        if stage == Stage::Running(id) || stage == Stage::Lost(id) {
            self.end(request);
        }
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Registration { connection, outcome: Ok(()) } => {
                let node = self.certified.clone().expect("I6: accepted without a registration");
                let claim = Claim { connection: *connection, ready: None, draining: false };
                assert!(self.claims.insert(node, claim).is_none(), "I8: two owners of one Node ID");
            }
            Effect::CloseConnection { connection, .. } => {
                let owned = self.claims.iter().find(|(_, claim)| claim.connection == *connection);
                let node = owned.map(|(node, _)| node.clone()).expect("REG-7: closed one that owns nothing");
                let claim = self.claims.remove(&node);
                assert!(
                    claim.is_some_and(|c| c.ready.is_none()),
                    "REG-8: closed a generation before its fence"
                );
            }
            Effect::NodeConnected { node, generation } => {
                let claim = self.claims.get_mut(node).expect("I6: connected without a claim");
                assert_eq!(claim.ready, None, "REG-6: connected twice");
                let last = self.last_generation.insert(node.clone(), *generation);
                assert!(last < Some(*generation), "I8: generation does not rise");
                claim.ready = Some(*generation);
            }
            Effect::NodeFenced { node, generation, leases } => self.fence(node, *generation, *leases),
            Effect::Grant(grant) => self.grant(grant),
            Effect::Refuse { request, .. } => {
                let stage = self.requests[request].stage;
                let settled = |id| self.leases.get(&id).is_some_and(|lease| !lease.open && lease.holder);
                let allowed = match stage {
                    Stage::Waiting => true,
                    Stage::Running(lease) => settled(lease),
                    Stage::Lost(_) | Stage::Ended => false,
                };
                assert!(allowed, "I9: refused in {stage:?}");
                self.end(*request);
            }
            Effect::Fenced { lease, request } => {
                self.expect_settled_holder(*lease);
                self.move_on(*request, *lease, Stage::Lost(*lease));
            }
            Effect::Failed { lease, request, .. } => {
                self.expect_settled_holder(*lease);
                self.move_on(*request, *lease, Stage::Ended);
            }
            Effect::Requeued { lease, request } => {
                self.expect_settled_holder(*lease);
                self.move_on(*request, *lease, Stage::Waiting);
            }
            Effect::OverlayLowered { node, provider, .. } => {
                let key = (node.clone(), provider.clone());
                assert_eq!(self.may_lower.take().as_ref(), Some(&key), "HND-4: without its evidence");
                assert!(self.overlaid.insert(key, None).is_none(), "HND-4: lowered twice");
            }
            Effect::OverlayCleared { node, provider } => {
                let probe = self.overlaid.remove(&(node.clone(), provider.clone()));
                let probe = probe.flatten().expect("CAP-2: cleared without a probe");
                let told = self.may_clear.take();
                assert_eq!(told, Some((probe.connection, probe.command)), "CAP-2: not its answer");
            }
            Effect::Probe(probe) => {
                let claim = self.claims.get(&probe.node).expect("REG-5: probe without an owner");
                assert!(claim.takes_runs() && claim.connection == probe.connection, "REG-5: {probe:?}");
                assert!(probe.command.0 > self.last_command, "command ids rise");
                self.last_command = probe.command.0;
                let overlaid = self.overlaid.get_mut(&(probe.node.clone(), probe.provider.clone()));
                *overlaid.expect("CAP-3: probe of a provider that is not overlaid") = Some(probe.clone());
                self.probes.push_back(probe.clone());
                self.probes.drain(..self.probes.len().saturating_sub(16));
            }
            Effect::HealthObserved(seen) => {
                let out = self.overlaid.contains_key(&(seen.node.clone(), seen.provider.clone()));
                match seen.verdict {
                    HealthVerdict::Lowered | HealthVerdict::Repeated => assert!(out, "OBS-2: {seen:?}"),
                    HealthVerdict::Cleared => assert!(!out, "OBS-2: {seen:?}"),
                    HealthVerdict::Unchanged | HealthVerdict::Stale | HealthVerdict::Rejected => {}
                }
            }
            Effect::Registration { .. } | Effect::Readiness { .. } | Effect::Snapshot { .. } => {}
        }
    }

    fn fence(&mut self, node: &Arc<str>, generation: u64, count: usize) {
        if let Some(claim) = self.claims.get_mut(node).filter(|claim| claim.ready == Some(generation)) {
            claim.ready = None;
        } else {
            assert_eq!(self.closed.take(), Some((node.clone(), generation)), "FEN-1: not the ready owner");
        }
        let of = |l: &Held| l.open && l.generation == generation;
        let ids: Vec<_> = self.leases.iter().filter(|(_, l)| of(l)).map(|(&id, _)| id).collect();
        assert_eq!(ids.len(), count, "FEN-2: leases of the generation");
        ids.into_iter().for_each(|id| self.give_back(id, |by| &mut by.fenced));
        self.overlaid.retain(|(of, _), _| of != node);
    }

    fn grant(&mut self, grant: &Grant) {
        let request = self.requests.get(&grant.request).expect("I3: grant without a request");
        assert_eq!(request.stage, Stage::Waiting, "I3, I9, I14: granted to {request:?}");
        if grant.direct {
            self.check_direct(grant);
        } else {
            assert!(
                self.can_run(&request.admit).contains(&&grant.provider),
                "POL-2: not eligible: {grant:?}"
            );
            self.check_overtaken(request);
        }
        let claim = self.claims.get(&grant.node).expect("I5: no owner");
        assert!(claim.takes_runs(), "granted to a node that drains");
        let current = (claim.connection, claim.ready);
        assert_eq!(current, (grant.connection, Some(grant.generation)), "I5: not the ready owner");
        assert!(grant.lease.0 > self.last_lease, "lease ids rise");
        self.last_lease = grant.lease.0;
        *(if grant.direct { &mut self.direct_granted } else { &mut self.granted }) += 1;
        let held = Held {
            request: grant.request,
            connection: grant.connection,
            node: grant.node.clone(),
            provider: grant.provider.clone(),
            adapter: grant.adapter.clone(),
            target: grant.target.clone(),
            generation: grant.generation,
            direct: grant.direct,
            long: request.admit.long,
            open: true,
            holder: true,
            bound: None,
        };
        self.leases.insert(grant.lease, held);
        self.requests.get_mut(&grant.request).unwrap().stage = Stage::Running(grant.lease);
    }

    /// A direct route holds no slot and waits for nothing, so it overtakes nobody (POL-12).
    fn check_direct(&self, grant: &Grant) {
        let admit = &self.requests[&grant.request].admit;
        let is_group = self.config.groups.iter().any(|group| group.id == admit.group);
        let route = self.config.routes.iter().rfind(|route| route.model == admit.group);
        let route = route.filter(|_| !is_group).expect("POL-12: no such route");
        let (to, from) = (
            (&grant.provider, &grant.adapter, &grant.target),
            (&route.provider, &route.adapter, &route.target),
        );
        assert_eq!(to, from, "POL-12: not what the route says");
        let node = self.config.nodes.iter().find(|node| node.id == grant.node).expect("I20");
        assert!(node.adapters.contains(&route.adapter), "POL-12: {} lacks the adapter", grant.node);
    }

    fn check_overtaken(&self, request: &Request) {
        let overtaken = self.requests.values().find(|older| {
            older.order < request.order
                && older.stage == Stage::Waiting
                && !self.can_run(&older.admit).is_empty()
        });
        assert!(overtaken.is_none(), "I10: overtook {overtaken:?}");
    }

    fn expect_settled_holder(&self, lease: LeaseId) {
        let lease = &self.leases[&lease];
        assert!(lease.holder && !lease.open, "told about {lease:?}");
    }

    fn move_on(&mut self, request: RequestId, lease: LeaseId, to: Stage) {
        let stage = &mut self.requests.get_mut(&request).unwrap().stage;
        let allowed = *stage == Stage::Running(lease) || *stage == Stage::Lost(lease) && to == Stage::Waiting;
        assert!(allowed, "I9: {to:?} in {stage:?}");
        *stage = to;
    }

    fn end(&mut self, request: RequestId) {
        self.requests.get_mut(&request).unwrap().stage = Stage::Ended;
    }

    /// A slot that is free already stays so: the books count each lease once (I4).
    fn give_back(&mut self, id: LeaseId, cause: impl FnOnce(&mut Returned) -> &mut u64) {
        if let Some(lease) = self.leases.get_mut(&id).filter(|lease| lease.open) {
            lease.open = false;
            lease.bound = None;
            if lease.direct {
                self.direct_returned += 1;
            } else {
                *cause(&mut self.returned) += 1;
            }
        }
    }

    /// Whether the provider of a lease is taken out.
    pub fn is_overlaid(&self, held: &Held) -> bool {
        self.overlaid.contains_key(&(held.node.clone(), held.provider.clone()))
    }

    /// Whether a connection is an owner that takes new runs.
    pub fn takes_runs(&self, connection: ConnectionId) -> bool {
        self.claims.values().any(|claim| claim.connection == connection && claim.takes_runs())
    }

    /// Compares the books with what the machine says of itself.
    pub fn compare(&self, snapshot: &Snapshot, counters: &Counters) {
        let waiting: Vec<_> = self.requests.values().filter(|r| r.stage == Stage::Waiting).collect();
        assert_eq!(snapshot.queued, waiting.len(), "I13: queued");
        assert!(snapshot.queued <= self.config.queue_max, "I12");
        for request in &waiting {
            assert!(self.can_run(&request.admit).is_empty(), "I11: could run: {request:?}");
        }
        assert_eq!((counters.granted, counters.returned), (self.granted, self.returned), "I4");
        assert_eq!(counters.settled, self.returned.total(), "I4");
        let direct = (counters.direct_granted, counters.direct_returned);
        assert_eq!(direct, (self.direct_granted, self.direct_returned), "I4");
        assert_eq!(counters.admitted, self.requests.len() as u64, "I13: admitted");
        assert_eq!(snapshot.leases, self.leases.len(), "records");
        let cancelling = self.leases.values().filter(|lease| lease.open && !lease.holder).count();
        assert_eq!(snapshot.cancelling, cancelling, "POL-11");
        let running = self.requests.iter().filter_map(|(&id, request)| match request.stage {
            Stage::Running(lease) => Some((id, lease)),
            _ => None,
        });
        let open = self.leases.iter().filter(|(_, l)| l.open && l.holder).map(|(&id, l)| (l.request, id));
        let (mut running, mut open) = (running.collect::<Vec<_>>(), open.collect::<Vec<_>>());
        running.sort();
        open.sort();
        assert_eq!(running, open, "I3: running requests and held leases");
        let ids = |request: &&Request| self.live_candidates(&request.admit).into_iter().map(|(_, p)| &p.id);
        let candidates: Vec<(bool, Vec<&Arc<str>>)> =
            waiting.iter().map(|request| (request.admit.long, ids(request).collect())).collect();
        for node in &snapshot.nodes {
            let ready = self.claims.get(&node.id).is_some_and(Claim::takes_runs);
            assert_eq!(node.connected, ready, "REG-5: {node:?}");
            for provider in &node.providers {
                let load = self.load(&node.id, &provider.id);
                let mine = candidates.iter().filter(|(_, ids)| ids.contains(&&provider.id));
                let counted =
                    mine.fold((0, 0), |(all, long), (is_long, _)| (all + 1, long + u32::from(*is_long)));
                assert_eq!((provider.queued, provider.long_queued), counted, "SNP-1: {provider:?}");
                let key = (node.id.clone(), provider.id.clone());
                assert_eq!(
                    provider.overlay.is_some(),
                    self.overlaid.contains_key(&key),
                    "HND-6: {provider:?}"
                );
                if provider.status == ProviderStatus::Unavailable {
                    assert!(ready && provider.overlay.is_some(), "HND-7: {provider:?}");
                    let numbers = [
                        provider.capacity,
                        provider.long_capacity,
                        provider.in_flight,
                        provider.long_in_flight,
                        provider.queued,
                        provider.long_queued,
                    ];
                    assert_eq!(numbers, [0; 6], "HND-6: {provider:?}");
                    continue;
                }
                let offline = provider.status == ProviderStatus::Offline;
                let draining = self.claims.get(&node.id).is_some_and(|claim| claim.draining);
                assert!(!offline || draining || load == (0, 0), "FEN-2");
                let shown = if offline { (0, 0) } else { load };
                assert_eq!((provider.in_flight, provider.long_in_flight), shown, "I1, SNP-2");
            }
        }
    }

    fn load(&self, node: &str, provider: &str) -> (u32, u32) {
        let mine = |l: &&Held| l.open && !l.direct && *l.node == *node && *l.provider == *provider;
        let leases: Vec<_> = self.leases.values().filter(mine).collect();
        (leases.len() as u32, leases.iter().filter(|lease| lease.long).count() as u32)
    }

    /// The eligible candidates of a request, by scanning everything.
    fn can_run(&self, admit: &Admit) -> Vec<&Arc<str>> {
        let free = |(node, p): &(&str, &ProviderPolicy)| {
            let (all, long) = self.load(node, &p.id);
            all < p.capacity && (!admit.long || long < p.long_capacity)
        };
        self.live_candidates(admit).into_iter().filter(free).map(|(_, p)| &p.id).collect()
    }

    /// The live candidates of a request, busy or not (POL-2, POL-8).
    fn live_candidates(&self, admit: &Admit) -> Vec<(&str, &ProviderPolicy)> {
        let Some(group) = self.config.groups.iter().find(|group| group.id == admit.group) else {
            return Vec::new();
        };
        let live: Vec<(&str, &ProviderPolicy)> = group
            .members
            .iter()
            .filter_map(|member| self.find(&member.provider))
            .filter(|(node, p)| {
                p.enabled
                    && p.capabilities.covers(admit.needs)
                    && (!admit.long || p.long_capacity > 0)
                    && self.claims.get(*node).is_some_and(Claim::takes_runs)
                    && !self.overlaid.contains_key(&((*node).into(), p.id.clone()))
            })
            .collect();
        let avoided = |p: &ProviderPolicy| admit.avoid.iter().any(|it| it.provider == p.id);
        let permitted = |p: &ProviderPolicy| {
            admit.avoid.iter().filter(|it| it.provider == p.id).all(|it| it.allow_fallback)
        };
        let alternate = live.iter().any(|(_, p)| !avoided(p));
        live.into_iter().filter(|(_, p)| !avoided(p) || (permitted(p) && !alternate)).collect()
    }

    fn find_on(&self, node: &str, provider: &str) -> Option<&ProviderPolicy> {
        let node = self.config.nodes.iter().find(|found| *found.id == *node)?;
        node.providers.iter().find(|policy| *policy.id == *provider)
    }

    fn find(&self, provider: &str) -> Option<(&str, &ProviderPolicy)> {
        let mut all = self.config.nodes.iter().flat_map(|node| node.providers.iter().map(|p| (&*node.id, p)));
        all.find(|(_, policy)| *policy.id == *provider)
    }
}
