//! Sending a request out: as a tunnel or as a run, by the provider that was granted.

use std::rc::Rc;

use control::effect::Grant;
use dataplane::{clock, http::body::Body, panic_point};

use super::{
    super::{
        outgoing,
        reading::{self, Goal, Input, Job},
        running::Run,
        way::Way,
        written::Written,
    },
    Session,
};
use crate::{
    config::capability,
    mail::{Open, RequestMessage, ToShard},
    reply::Fault,
    surface::Surface,
};

impl Session<'_> {
    /// Sends the request out. What has to be made of a large body is made first, elsewhere.
    ///
    /// # Errors
    /// It cannot run on what was granted, and on nothing else of its kind.
    pub(super) fn dispatch(&mut self, grant: Box<Grant>) -> Result<(), Fault> {
        if self.attempt.dispatches() == 1 {
            self.shard.metrics.queue_wait.observe(grant.queued_for.as_secs_f64());
        }
        panic_point!("edge.dispatch");
        self.note_grant(&grant);
        if let Err(fault) = self.prepare_gate(&grant) {
            self.grant = Some(grant);
            return Err(fault);
        }
        let settings = &self.shard.settings;
        // What its client has got a part of goes on as the same answer, whatever this provider is.
        let goes_on = self.written.as_ref().is_some_and(|written| written.has_begun());
        let goal = match Way::of(settings, &grant, self.plan.surface) {
            Some(Way::Raw) if goes_on && self.plan.surface == Surface::Chat => {
                let watch = self.watch.take();
                if let Some(written) = &mut self.written {
                    written.go_on(&self.plan, (true, false), Vec::new(), watch);
                }
                self.send_raw(grant);
                return Ok(());
            }
            Some(Way::Raw) if goes_on => {
                let provider = settings.provider(&grant.provider).map(|(_, provider)| provider);
                if !provider.is_some_and(|it| it.capabilities.covers(capability::CHAT)) {
                    self.grant = Some(grant);
                    return Err(Fault::Unservable);
                }
                Goal::chat(settings, &grant, self.plan.scan.stream)
            }
            Some(Way::Raw) => {
                self.written = None;
                self.send_raw(grant);
                return Ok(());
            }
            Some(Way::Normalized) => Goal::Run,
            Some(Way::Translated) => Goal::chat(settings, &grant, self.plan.scan.stream),
            None => {
                self.grant = Some(grant);
                return Err(Fault::Unservable);
            }
        };
        let job = Job { surface: self.plan.surface, policy: self.plan.generation, goal };
        let read = reading::begin(self.shard, (self.events.id, grant.lease), &self.plan.body, job);
        // The client is told whose language it was, also where it goes no further.
        self.grant = Some(grant);
        read.map_or(Ok(()), |read| self.input(*read?))
    }

    /// Sends the request out as its client made it.
    fn send_raw(&mut self, grant: Box<Grant>) {
        let settings = &self.shard.settings;
        let tunnel = outgoing::raw_tunnel(&self.plan, &grant, settings);
        let body = outgoing::raw_body(&self.plan, &grant, settings);
        self.send(grant, RequestMessage::Tunnel(Box::new(tunnel)), body);
    }

    /// Sends out what was made of the body.
    ///
    /// # Errors
    /// A defect: nothing is granted.
    pub(super) fn input(&mut self, input: Input) -> Result<(), Fault> {
        let grant = self.grant.take().ok_or(Fault::Internal)?;
        let Input { json, is_chat, tools, single_call, manner, metadata } = input;
        match &mut self.written {
            Some(written) if written.has_begun() => {
                written.go_on(&self.plan, (is_chat, single_call), tools, self.watch.take());
            }
            _ => {
                let (openai, watch) = (&self.shard.settings.openai, self.watch.take());
                let written =
                    Written::new(&self.plan, openai, (is_chat, single_call), tools, (manner, watch));
                self.written = Some(Box::new(written));
            }
        }
        let request = if is_chat {
            RequestMessage::Tunnel(Box::new(outgoing::chat_tunnel(&self.plan, &grant)))
        } else {
            RequestMessage::Run(Box::new(outgoing::run(&self.plan, &grant, metadata)))
        };
        self.send(grant, request, Body::from(json));
        Ok(())
    }

    fn send(&mut self, grant: Box<Grant>, request: RequestMessage, body: Body) {
        let Some(lease) = self.attempt.lease() else { return };
        let margin = self.shard.settings.openai.response_wait_margin;
        self.run = Some(Run {
            shard: Rc::clone(self.shard),
            connection: grant.connection,
            lease: grant.lease,
            deadline: clock::now() + grant.request_timeout + margin,
            over: false,
        });
        let open = Open {
            connection: grant.connection,
            lease: grant.lease,
            claim: lease.claim().clone(),
            request: self.events.id,
            request_message: Some(request),
            body,
        };
        self.shard.to_connection(grant.connection, ToShard::Open(Box::new(open)));
        self.attempt_sent();
        self.grant = Some(grant);
    }
}
