//! The machine once more, written for obviousness: plain vectors, everything found by scanning, nothing remembered
//! that can be counted. Under every sequence of inputs it must give the same effects in the same order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use control::{
    config::{Member, NodePolicy, PoolConfig, ProviderPolicy},
    effect::{
        CloseReason, Effect, Grant, Handoff, HealthObservation, HealthVerdict, Probe, ProviderHealth,
        ReadinessRefusal, Refusal, RegistrationRefusal,
    },
    input::{Admit, CommandId, ConnectionId, Input, LeaseId, Moment, RequestId},
};
use proto::message::{ErrorKind, ExecutionError};

#[derive(Clone, Debug)]
struct Owner {
    node: Arc<str>,
    connection: ConnectionId,
    generation: u64,
    /// `None` = ready, or draining.
    pending_until: Option<Moment>,
    draining: bool,
}

#[derive(Clone, Debug)]
struct Waiter {
    place: u64,
    admit: Admit,
    arrived: Moment,
    since: Moment,
    waited: Duration,
    attempts: u32,
    busy: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Slot {
    Held,
    HeldUntil(Moment),
    Fenced,
    Free,
}

#[derive(Clone, Debug)]
struct Lease {
    id: LeaseId,
    waiter: Waiter,
    node: Arc<str>,
    provider: Arc<str>,
    adapter: Arc<str>,
    target: Arc<str>,
    connection: ConnectionId,
    generation: u64,
    /// Of a direct route: it holds no slot, whatever `slot` says of its life.
    direct: bool,
    slot: Slot,
    holder: bool,
}

/// What a grant is dispatched to, beside its Node.
struct Target {
    direct: bool,
    provider: Arc<str>,
    adapter: Arc<str>,
    target: Arc<str>,
    stall_timeout: Duration,
    request_timeout: Duration,
}

/// What is remembered of a provider while it is configured or has leases.
#[derive(Clone, Debug)]
struct Known {
    node: Arc<str>,
    provider: Arc<str>,
    /// Number of its last grant; 0 = none.
    last_grant: u64,
    /// Sequence of the last health observation applied in this generation; 0 = none.
    applied: u64,
    overlay: Option<Overlay>,
}

#[derive(Clone, Debug)]
struct Overlay {
    adapter: Arc<str>,
    target: Arc<str>,
    next_probe: Option<Moment>,
    /// Seconds of the wait that comes next.
    wait: u64,
    outstanding: Option<Probe>,
}

pub struct Reference {
    config: Arc<PoolConfig>,
    owners: Vec<Owner>,
    retired: Vec<ConnectionId>,
    waiters: Vec<Waiter>,
    leases: Vec<Lease>,
    /// The configuration with its names looked up: for each group the places of its members, of Node, provider, member.
    places_of: Vec<Vec<(usize, usize, usize)>>,
    /// In the order in which they became known.
    known: Vec<Known>,
    /// Whether some of them may have left the configuration.
    some_left: bool,
    commands: u64,
    /// Number of the last direct grant of each Node.
    direct_grants: Vec<(Arc<str>, u64)>,
    places: u64,
    generations: u64,
    grants: u64,
    effects: Vec<Effect>,
}

impl Reference {
    pub fn new(config: Arc<PoolConfig>) -> Self {
        let mut new = Self {
            config,
            owners: vec![],
            retired: vec![],
            waiters: vec![],
            leases: vec![],
            places_of: vec![],
            known: vec![],
            some_left: false,
            commands: 0,
            direct_grants: vec![],
            places: 0,
            generations: 0,
            grants: 0,
            effects: vec![],
        };
        new.learn();
        new
    }

    pub fn handle(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        match input {
            Input::Configure(config) => self.configure(now, config),
            Input::Register { connection, certified, claimed, token_ok } => {
                self.register(now, connection, certified, &claimed, token_ok);
            }
            Input::Ready { connection, claimed } => self.ready(connection, &claimed),
            Input::Draining { connection } => {
                let ready = |o: &&mut Owner| o.connection == connection && o.pending_until.is_none();
                if let Some(owner) = self.owners.iter_mut().find(ready) {
                    owner.draining = true;
                    let node = owner.node.clone();
                    for known in self.known.iter_mut().filter(|known| known.node == node) {
                        if let Some(overlay) = &mut known.overlay {
                            (overlay.next_probe, overlay.outstanding) = (None, None);
                        }
                    }
                }
            }
            Input::ConnectionClosed { connection } => {
                self.disown(connection);
            }
            Input::Admit(admit) => {
                self.places += 1;
                let waited = Duration::ZERO;
                let place = self.places;
                self.enter(Waiter {
                    place,
                    admit,
                    arrived: now,
                    since: now,
                    waited,
                    attempts: 0,
                    busy: false,
                });
            }
            Input::Withdraw { request } => self.waiters.retain(|waiter| waiter.admit.request != request),
            Input::HolderGone { lease, sent } => self.holder_gone(now, lease, sent),
            Input::NotSent { lease } => self.not_sent(now, lease),
            Input::Terminal { connection, lease, error, sequence } => {
                self.terminal(now, connection, lease, error, sequence);
            }
            Input::CommandAnswered { connection, command, result } => {
                if let Ok(fields) = result {
                    self.answered(connection, command, &fields);
                }
            }
            Input::Inspect { .. } => {}
        }
        self.pump(now);
        self.time(now);
        while self.waiters.len() > self.config.queue_max {
            let newest = (0..self.waiters.len()).max_by_key(|&i| self.waiters[i].place).unwrap();
            let waiter = self.waiters.remove(newest);
            self.refuse(waiter.admit.request, Refusal::QueueFull);
        }
        self.tidy();
        std::mem::take(&mut self.effects)
    }

    pub fn handle_timeout(&mut self, now: Moment) -> Vec<Effect> {
        self.time(now);
        self.tidy();
        std::mem::take(&mut self.effects)
    }

    pub fn next_timeout(&self) -> Option<Moment> {
        let pending = self.owners.iter().filter_map(|owner| owner.pending_until);
        let waiting = self.waiters.iter().filter_map(|waiter| self.deadline(waiter));
        let bounds = self.leases.iter().filter_map(|lease| match lease.slot {
            Slot::HeldUntil(at) => Some(at),
            _ => None,
        });
        let overlays = self.known.iter().filter_map(|known| known.overlay.as_ref());
        let probes = overlays.filter_map(|overlay| overlay.next_probe);
        pending.chain(waiting).chain(bounds).chain(probes).min()
    }

    fn register(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        certified: Arc<str>,
        claimed: &str,
        token_ok: bool,
    ) {
        let refusal = if self.retired.contains(&connection) {
            Some(RegistrationRefusal::Stale)
        } else if self.owners.iter().any(|owner| owner.connection == connection) {
            Some(RegistrationRefusal::AlreadyRegistered)
        } else if *certified != *claimed {
            Some(RegistrationRefusal::IdentityMismatch)
        } else if self.config.nodes.iter().all(|node| node.id != certified) {
            Some(RegistrationRefusal::UnknownNode)
        } else {
            (!token_ok).then_some(RegistrationRefusal::BadToken)
        };
        if let Some(refusal) = refusal {
            self.effects.push(Effect::Registration { connection, outcome: Err(refusal) });
            return;
        }
        if let Some(old) = self.owners.iter().find(|owner| owner.node == certified).map(|o| o.connection) {
            self.disown(old);
            self.effects.push(Effect::CloseConnection { connection: old, reason: CloseReason::Superseded });
        }
        self.generations += 1;
        self.owners.push(Owner {
            node: certified,
            connection,
            generation: self.generations,
            pending_until: Some(now.after(Duration::from_secs(60))),
            draining: false,
        });
        self.effects.push(Effect::Registration { connection, outcome: Ok(()) });
    }

    fn ready(&mut self, connection: ConnectionId, claimed: &str) {
        let retired = self.retired.contains(&connection);
        let owner = self.owners.iter_mut().find(|owner| owner.connection == connection);
        let (outcome, connected) = match owner {
            None if retired => (Err(ReadinessRefusal::Stale), None),
            None => (Err(ReadinessRefusal::NotRegistered), None),
            Some(owner) if *owner.node != *claimed => (Err(ReadinessRefusal::IdentityMismatch), None),
            Some(owner) => {
                let first = owner.pending_until.take().is_some();
                (Ok(()), first.then(|| (owner.node.clone(), owner.generation)))
            }
        };
        self.effects.push(Effect::Readiness { connection, outcome });
        if let Some((node, generation)) = connected {
            self.effects.push(Effect::NodeConnected { node, generation });
        }
    }

    /// Whether it owned anything.
    fn disown(&mut self, connection: ConnectionId) -> bool {
        self.retired.push(connection);
        let Some(index) = self.owners.iter().position(|owner| owner.connection == connection) else {
            return false;
        };
        let owner = self.owners.remove(index);
        if owner.pending_until.is_some() {
            return true;
        }
        for known in self.known.iter_mut().filter(|known| known.node == owner.node) {
            (known.applied, known.overlay) = (0, None);
        }
        let mut told = vec![];
        let mut leases = 0;
        for lease in self.leases.iter_mut().filter(|lease| lease.generation == owner.generation) {
            match lease.slot {
                Slot::Held => {
                    lease.slot = Slot::Fenced;
                    told.push(Effect::Fenced { lease: lease.id, request: lease.waiter.admit.request });
                }
                Slot::HeldUntil(_) => lease.slot = Slot::Free,
                Slot::Fenced | Slot::Free => continue,
            }
            leases += 1;
        }
        self.effects.push(Effect::NodeFenced { node: owner.node, generation: owner.generation, leases });
        self.effects.extend(told);
        true
    }

    fn configure(&mut self, now: Moment, config: Arc<PoolConfig>) {
        let configured = |node: &Arc<str>| config.nodes.iter().any(|n: &NodePolicy| n.id == *node);
        let mut removed: Vec<_> = self
            .owners
            .iter()
            .filter(|o| !configured(&o.node))
            .map(|o| (o.node.clone(), o.connection))
            .collect();
        removed.sort();
        for (_, connection) in removed {
            self.disown(connection);
            self.effects.push(Effect::CloseConnection { connection, reason: CloseReason::Removed });
        }
        self.config = config;
        self.learn();
        self.tidy();
        let config = Arc::clone(&self.config);
        self.direct_grants.retain(|(node, _)| config.nodes.iter().any(|n| n.id == *node));
        for index in 0..self.known.len() {
            let probed = self.is_probed(&self.known[index]);
            let Some(overlay) = &mut self.known[index].overlay else { continue };
            if !probed {
                (overlay.next_probe, overlay.outstanding) = (None, None);
            } else if overlay.next_probe.is_none() {
                overlay.plan(now);
            }
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        waiters.sort_by_key(|waiter| waiter.place);
        for mut waiter in waiters {
            if self.members(&waiter.admit).is_none() {
                waiter.waited += now.since(waiter.since);
            }
            self.enter(waiter);
        }
    }

    fn enter(&mut self, waiter: Waiter) {
        let request = waiter.admit.request;
        let Some(members) = self.members(&waiter.admit) else {
            self.enter_directly(waiter);
            return;
        };
        let possible = members.iter().any(|&(_, provider, _)| {
            fits(provider, &waiter.admit) && avoids(&waiter.admit, provider).is_none_or(|only_last| only_last)
        });
        if possible {
            self.waiters.push(waiter);
        } else {
            self.refuse(request, Refusal::Unservable);
        }
    }

    /// POL-12, word by word.
    fn enter_directly(&mut self, waiter: Waiter) {
        let request = waiter.admit.request;
        let Some(route) = self.config.routes.iter().rfind(|route| route.model == waiter.admit.group) else {
            self.refuse(request, Refusal::UnknownModel);
            return;
        };
        let route = route.clone();
        let has = |node: &Arc<str>| {
            let nodes = self.config.nodes.iter();
            nodes.filter(|n| n.id == *node).any(|n| n.adapters.contains(&route.adapter))
        };
        let rank = |owner: &&Owner| {
            let running = |l: &&Lease| matches!(l.slot, Slot::Held | Slot::HeldUntil(_));
            let mine = |l: &&Lease| l.direct && l.node == owner.node;
            let last = self.direct_grants.iter().find(|(node, _)| *node == owner.node);
            let open = self.leases.iter().filter(running).filter(mine).count();
            (open, last.map_or(0, |&(_, number)| number), owner.node.clone())
        };
        let ready = self.owners.iter().filter(|o| o.pending_until.is_none() && !o.draining);
        let Some(owner) = ready.filter(|owner| has(&owner.node)).min_by_key(rank).cloned() else {
            self.refuse(request, Refusal::NoNode);
            return;
        };
        self.direct_grants.retain(|(node, _)| *node != owner.node);
        self.direct_grants.push((owner.node.clone(), self.grants + 1));
        self.give(
            waiter,
            &owner,
            Target {
                direct: true,
                provider: route.provider,
                adapter: route.adapter,
                target: route.target,
                stall_timeout: route.stall_timeout,
                request_timeout: route.request_timeout,
            },
        );
    }

    fn holder_gone(&mut self, now: Moment, id: LeaseId, sent: bool) {
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id && lease.holder) else { return };
        lease.holder = false;
        if lease.slot == Slot::Held {
            lease.slot = if sent { Slot::HeldUntil(now.after(Duration::from_secs(10))) } else { Slot::Free };
        } else {
            lease.slot = Slot::Free;
        }
    }

    fn not_sent(&mut self, now: Moment, id: LeaseId) {
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) else { return };
        let waits_again = matches!(lease.slot, Slot::Held | Slot::Fenced);
        lease.slot = Slot::Free;
        if waits_again {
            let waiter = Waiter { since: now, ..lease.waiter.clone() };
            self.effects.push(Effect::Requeued { lease: id, request: waiter.admit.request });
            self.enter(waiter);
        }
    }

    fn terminal(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        id: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
    ) {
        let draining = self.owners.iter().any(|owner| owner.connection == connection && owner.draining);
        let open = |l: &&mut Lease| matches!(l.slot, Slot::Held | Slot::HeldUntil(_));
        let mine = |l: &&mut Lease| l.id == id && l.connection == connection;
        let Some(lease) = self.leases.iter_mut().filter(open).find(mine) else { return };
        lease.slot = Slot::Free;
        let lease = lease.clone();
        let waiter = lease.waiter.clone();
        let request = waiter.admit.request;
        let handoff = error.as_ref().and_then(|error| self.stalled(now, &lease, error));
        match error {
            _ if !lease.holder => {}
            None => {}
            Some(error) if error.kind != ErrorKind::Busy || sequence > 0 => {
                self.effects.push(Effect::Failed { lease: id, request, error, sequence, handoff });
            }
            Some(_) if lease.direct => self.refuse(request, Refusal::Busy),
            Some(_) if draining => {
                self.effects.push(Effect::Requeued { lease: id, request });
                self.enter(Waiter { since: now, ..waiter });
            }
            Some(_) if waiter.busy => self.refuse(request, Refusal::Busy),
            Some(_) => {
                self.effects.push(Effect::Requeued { lease: id, request });
                self.enter(Waiter { busy: true, since: now, ..waiter });
            }
        }
    }

    fn time(&mut self, now: Moment) {
        let mut fired = false;
        while let Some(at) = self.next_timeout().filter(|&at| at <= now) {
            fired = true;
            let late = |o: &&Owner| o.pending_until == Some(at);
            let bound = |l: &&mut Lease| l.slot == Slot::HeldUntil(at);
            if let Some(connection) = self.owners.iter().filter(late).map(|o| o.connection).min() {
                self.disown(connection);
                self.effects.push(Effect::CloseConnection { connection, reason: CloseReason::ReadyTimeout });
            } else if let Some(lease) = self.leases.iter_mut().find(bound) {
                lease.slot = Slot::Free;
            } else if let Some(place) =
                self.waiters.iter().filter(|w| self.deadline(w) == Some(at)).map(|w| w.place).min()
            {
                let index = self.waiters.iter().position(|waiter| waiter.place == place).unwrap();
                let waiter = self.waiters.remove(index);
                self.refuse(waiter.admit.request, Refusal::QueueTimeout);
            } else {
                let due = |known: &Known| known.overlay.as_ref().is_some_and(|o| o.next_probe == Some(at));
                let index = self.known.iter().position(due).unwrap();
                self.probe(now, index);
            }
        }
        if fired {
            self.pump(now);
        }
    }

    fn pump(&mut self, now: Moment) {
        loop {
            let mut oldest_first: Vec<_> = (0..self.waiters.len()).collect();
            oldest_first.sort_unstable_by_key(|&index| self.waiters[index].place);
            // Who asks for the same as somebody who cannot run cannot run either.
            let mut in_vain: Vec<&Admit> = vec![];
            let runnable = oldest_first.into_iter().find(|&index| {
                let admit = &self.waiters[index].admit;
                let runs = in_vain.iter().all(|other| !asks_for_the_same(other, admit))
                    && self.choose(admit).is_some();
                if !runs {
                    in_vain.push(admit);
                }
                runs
            });
            let Some(oldest) = runnable else { return };
            self.grant(now, oldest);
        }
    }

    fn grant(&mut self, now: Moment, index: usize) {
        let mut waiter = self.waiters.remove(index);
        let (owner, provider, member) = self.choose(&waiter.admit).unwrap();
        let (owner, provider, member) = (owner.clone(), provider.clone(), member.clone());
        waiter.waited += now.since(waiter.since);
        let number = self.grants + 1;
        self.known_mut(&owner.node, &provider.id).unwrap().last_grant = number;
        self.give(
            waiter,
            &owner,
            Target {
                direct: false,
                provider: provider.id,
                adapter: provider.adapter,
                target: member.target,
                stall_timeout: provider.stall_timeout,
                request_timeout: provider.request_timeout,
            },
        );
    }

    fn give(&mut self, mut waiter: Waiter, owner: &Owner, to: Target) {
        waiter.attempts += 1;
        self.grants += 1;
        let id = LeaseId(self.grants);
        let grant = Grant {
            request: waiter.admit.request,
            lease: id,
            connection: owner.connection,
            generation: owner.generation,
            node: owner.node.clone(),
            provider: to.provider,
            direct: to.direct,
            adapter: to.adapter,
            target: to.target,
            stall_timeout: to.stall_timeout,
            request_timeout: to.request_timeout,
            queued_for: waiter.waited,
            attempt: waiter.attempts,
        };
        self.leases.push(Lease {
            id,
            waiter,
            node: grant.node.clone(),
            provider: grant.provider.clone(),
            adapter: grant.adapter.clone(),
            target: grant.target.clone(),
            connection: grant.connection,
            generation: grant.generation,
            direct: grant.direct,
            slot: Slot::Held,
            holder: true,
        });
        self.effects.push(Effect::Grant(grant));
    }

    /// POL-2 and POL-8, word by word.
    fn choose(&self, admit: &Admit) -> Option<(&Owner, &ProviderPolicy, &Member)> {
        let members = self.members(admit)?;
        let takes_runs = |owner: &&Owner| owner.pending_until.is_none() && !owner.draining;
        let ready = |node: &Arc<str>| self.owners.iter().filter(takes_runs).find(|o| o.node == *node);
        let live: Vec<_> = members
            .into_iter()
            .filter_map(|(node, provider, member)| Some((ready(node)?, provider, member)))
            .filter(|(_, provider, _)| fits(provider, admit))
            .filter(|(owner, provider, _)| {
                self.known(&owner.node, &provider.id).is_none_or(|known| known.overlay.is_none())
            })
            .collect();
        let eligible = |&&(owner, provider, _): &&(&Owner, &ProviderPolicy, &Member)| {
            let (all, long) = self.load(&owner.node, &provider.id);
            all < provider.capacity && (!admit.long || long < provider.long_capacity)
        };
        let rank = |&&(owner, provider, _): &&(&Owner, &ProviderPolicy, &Member)| {
            let (in_flight, _) = self.load(&owner.node, &provider.id);
            let last = self.known(&owner.node, &provider.id).map_or(0, |known| known.last_grant);
            (in_flight, provider.priority, last)
        };
        let alternates: Vec<_> =
            live.iter().filter(|(_, provider, _)| avoids(admit, provider).is_none()).collect();
        let found = if alternates.is_empty() {
            let permitted = live.iter().filter(|(_, provider, _)| avoids(admit, provider) == Some(true));
            permitted.filter(eligible).min_by_key(rank)
        } else {
            alternates.into_iter().filter(eligible).min_by_key(rank)
        };
        found.copied()
    }

    /// The resolved members of a request's group in configured order; `None` when there is no such group.
    fn members(&self, admit: &Admit) -> Option<Vec<(&Arc<str>, &ProviderPolicy, &Member)>> {
        let config = &self.config;
        let group = config.groups.iter().position(|group| group.id == admit.group)?;
        let found = self.places_of[group].iter().map(|&(node, provider, member)| {
            let node = &config.nodes[node];
            (&node.id, &node.providers[provider], &config.groups[group].members[member])
        });
        Some(found.collect())
    }

    fn load(&self, node: &Arc<str>, provider: &Arc<str>) -> (u32, u32) {
        let held = |l: &&Lease| matches!(l.slot, Slot::Held | Slot::HeldUntil(_));
        let mine = |l: &&Lease| !l.direct && same(&l.provider, provider) && same(&l.node, node);
        let (mut all, mut long) = (0, 0);
        for lease in self.leases.iter().filter(held).filter(mine) {
            all += 1;
            long += u32::from(lease.waiter.admit.long);
        }
        (all, long)
    }

    fn deadline(&self, waiter: &Waiter) -> Option<Moment> {
        self.config.queue_timeout.map(|timeout| waiter.arrived.after(timeout))
    }

    fn refuse(&mut self, request: RequestId, reason: Refusal) {
        self.effects.push(Effect::Refuse { request, reason });
    }

    fn tidy(&mut self) {
        self.leases.retain(|lease| lease.holder || lease.slot != Slot::Free);
        if !self.some_left {
            return;
        }
        let mut known = std::mem::take(&mut self.known);
        known.retain(|known| {
            self.policy(known).is_some() || self.load(&known.node, &known.provider) != (0, 0)
        });
        self.some_left = known.iter().any(|known| self.policy(known).is_none());
        self.known = known;
    }

    /// Takes note of the configured providers, and looks up the members of groups.
    fn learn(&mut self) {
        self.some_left = true;
        let config = Arc::clone(&self.config);
        let place = |id: &Arc<str>| {
            let mut nodes = config.nodes.iter().enumerate();
            nodes.find_map(|(n, node)| Some((n, node.providers.iter().position(|p| p.id == *id)?)))
        };
        let places = |group: &control::config::Group| {
            let members = group.members.iter().enumerate();
            members.filter_map(|(m, member)| place(&member.provider).map(|(n, p)| (n, p, m))).collect()
        };
        self.places_of = config.groups.iter().map(places).collect();
        for (node, policy) in config.nodes.iter().flat_map(|n| n.providers.iter().map(move |p| (&n.id, p))) {
            if self.known(node, &policy.id).is_none() {
                let (node, provider) = (node.clone(), policy.id.clone());
                self.known.push(Known { node, provider, last_grant: 0, applied: 0, overlay: None });
            }
        }
    }

    fn known(&self, node: &str, provider: &str) -> Option<&Known> {
        self.known.iter().find(|known| same(&known.provider, provider) && same(&known.node, node))
    }

    fn known_mut(&mut self, node: &str, provider: &str) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| *known.node == *node && *known.provider == *provider)
    }

    /// The policy of a known provider, while it is configured.
    fn policy(&self, known: &Known) -> Option<&ProviderPolicy> {
        let node = self.config.nodes.iter().find(|node| node.id == known.node)?;
        node.providers.iter().find(|policy| policy.id == known.provider)
    }

    /// The targets a provider serves.
    fn targets(&self, provider: &str) -> Vec<&Arc<str>> {
        let named = |group: &'_ control::config::Group| {
            group.members.iter().position(|member| *member.provider == *provider)
        };
        let groups = self.config.groups.iter();
        groups.filter_map(|group| Some(&group.members[named(group)?].target)).collect()
    }

    fn is_probed(&self, known: &Known) -> bool {
        let ready = |o: &Owner| o.node == known.node && o.pending_until.is_none() && !o.draining;
        self.policy(known).is_some() && self.owners.iter().any(ready)
    }

    /// OBS-2: what came of everything that claims to be a stall of a pool's run.
    fn stalled(&mut self, now: Moment, lease: &Lease, error: &ExecutionError) -> Option<Handoff> {
        if lease.direct || error.failure.is_none() && error.kind != ErrorKind::Stalled {
            return None;
        }
        let (health, verdict) = match self.believed(lease, error) {
            None => (None, HealthVerdict::Rejected),
            Some((health, sequence)) => (Some(health), self.observed(now, lease, health, sequence)),
        };
        let (node, provider) = (lease.node.clone(), lease.provider.clone());
        self.effects.push(Effect::HealthObserved(HealthObservation { node, provider, health, verdict }));
        Some(Handoff { provider: lease.provider.clone(), health: health? })
    }

    /// HND-3, word by word.
    fn believed(&self, lease: &Lease, error: &ExecutionError) -> Option<(ProviderHealth, u64)> {
        let failure = error.failure.as_ref()?;
        let field = |key: &str| failure.metadata.get(key).map(String::as_str);
        if error.kind != ErrorKind::Stalled
            || failure.failure_code != "response_stalled"
            || field("adapter") != Some(&*lease.adapter)
            || field("target") != Some(&*lease.target)
        {
            return None;
        }
        let health = match (field("provider_health"), field("liveness_classification")) {
            (Some("available"), Some("request_stalled")) => ProviderHealth::Available,
            (Some("unavailable"), Some("provider_unhealthy")) => ProviderHealth::Unavailable,
            (Some("unknown"), Some("health_unknown")) => ProviderHealth::Unknown,
            _ => return None,
        };
        Some((health, number(field("health_observation_seq")?)?))
    }

    /// HND-4, word by word.
    fn observed(
        &mut self,
        now: Moment,
        lease: &Lease,
        health: ProviderHealth,
        sequence: u64,
    ) -> HealthVerdict {
        self.tidy();
        let found = self.known.iter().position(|k| k.node == lease.node && k.provider == lease.provider);
        let Some(index) = found.filter(|_| health == ProviderHealth::Unavailable) else {
            return HealthVerdict::Unchanged;
        };
        if sequence <= self.known[index].applied {
            return HealthVerdict::Stale;
        }
        let out = self.known[index].overlay.is_some();
        self.lower(now, index, sequence, lease);
        if out { HealthVerdict::Repeated } else { HealthVerdict::Lowered }
    }

    fn lower(&mut self, now: Moment, index: usize, sequence: u64, lease: &Lease) {
        let probed = self.is_probed(&self.known[index]);
        let known = &mut self.known[index];
        known.applied = sequence;
        let (adapter, target) = (lease.adapter.clone(), lease.target.clone());
        if let Some(overlay) = &mut known.overlay {
            if (&overlay.adapter, &overlay.target) != (&adapter, &target) {
                (overlay.adapter, overlay.target, overlay.outstanding) = (adapter, target, None);
            }
            return;
        }
        let mut overlay = Overlay {
            adapter: adapter.clone(),
            target: target.clone(),
            next_probe: None,
            wait: 5,
            outstanding: None,
        };
        if probed {
            overlay.plan(now);
        }
        known.overlay = Some(overlay);
        let (node, provider) = (lease.node.clone(), lease.provider.clone());
        self.effects.push(Effect::OverlayLowered { node, provider, adapter, target });
    }

    fn probe(&mut self, now: Moment, index: usize) {
        let known = self.known[index].clone();
        let adapter = self.policy(&known).unwrap().adapter.clone();
        let targets: Vec<Arc<str>> = self.targets(&known.provider).into_iter().cloned().collect();
        let connection = self.owners.iter().find(|owner| owner.node == known.node).unwrap().connection;
        let overlay = self.known[index].overlay.as_mut().unwrap();
        overlay.plan(now);
        let wanted = targets.iter().find(|target| **target == overlay.target);
        let Some(target) = wanted.or(targets.first()).cloned() else { return };
        self.commands += 1;
        let command = CommandId(self.commands);
        let probe =
            Probe { command, connection, node: known.node, provider: known.provider, adapter, target };
        overlay.outstanding = Some(probe.clone());
        self.effects.push(Effect::Probe(probe));
    }

    /// CAP-2, word by word.
    fn answered(&mut self, connection: ConnectionId, id: CommandId, fields: &BTreeMap<String, String>) {
        let asked = |known: &Known| {
            let probe = known.overlay.as_ref()?.outstanding.clone()?;
            (probe.command == id && probe.connection == connection).then_some(probe)
        };
        let Some(index) = self.known.iter().position(|known| asked(known).is_some()) else { return };
        let probe = asked(&self.known[index]).unwrap();
        let field = |key: &str| fields.get(key).map(String::as_str);
        let bound = self.known.iter().filter(|known| {
            known.node == probe.node
                && self.policy(known).is_some_and(|policy| policy.adapter == probe.adapter)
                && self.targets(&known.provider).contains(&&probe.target)
        });
        let bound: Vec<_> = bound.map(|known| &known.provider).collect();
        if field("adapter_key") == Some(&*probe.adapter)
            && field("target") == Some(&*probe.target)
            && field("provider_status") == Some("available")
            && bound == [&probe.provider]
            && let Some(sequence) = field("health_observation_seq").and_then(number)
            && sequence > self.known[index].applied
        {
            (self.known[index].applied, self.known[index].overlay) = (sequence, None);
            let Probe { node, provider, .. } = probe;
            self.effects.push(Effect::OverlayCleared { node: node.clone(), provider: provider.clone() });
            let (health, verdict) = (Some(ProviderHealth::Available), HealthVerdict::Cleared);
            self.effects.push(Effect::HealthObserved(HealthObservation { node, provider, health, verdict }));
        }
    }
}

impl Overlay {
    fn plan(&mut self, now: Moment) {
        self.next_probe = Some(now.after(Duration::from_secs(self.wait)));
        self.wait = (self.wait * 2).min(60);
    }
}

/// A positive number as it is written without sign and leading zeros.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number > 0 && number.to_string() == text).then_some(number)
}

/// Names are short: no call for each.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().eq(other.bytes())
}

fn asks_for_the_same(one: &Admit, other: &Admit) -> bool {
    (one.needs, one.long) == (other.needs, other.long) && one.group == other.group && one.avoid == other.avoid
}

fn fits(provider: &ProviderPolicy, admit: &Admit) -> bool {
    provider.enabled
        && provider.capabilities.covers(admit.needs)
        && (!admit.long || provider.long_capacity > 0)
}

/// `None`: not avoided; else whether it may be taken where no alternate is live.
fn avoids(admit: &Admit, provider: &ProviderPolicy) -> Option<bool> {
    let mut said = admit.avoid.iter().filter(|it| it.provider == provider.id).map(|it| it.allow_fallback);
    let first = said.next()?;
    Some(first && said.all(|permitted| permitted))
}
