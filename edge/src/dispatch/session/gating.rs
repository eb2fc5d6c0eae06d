//! What the stream evidence gate does with a request: which filters look at an attempt, and what becomes of what they find (SEG).

use std::sync::Arc;

use bytes::Bytes;
use control::{
    effect::Grant,
    recovery::{Evidence, Ineligible},
};
use dataplane::{clock, http::body::Body};
use serde::Deserialize;

use super::{
    super::{held::Held, written::Written},
    Session, WayOut,
    recover::{Original, Rebuilt},
};
use crate::{
    config::gate::Target,
    gate::{
        active::Active,
        hold::{Finding, Watch, history},
        reading::Text,
        rebuild,
        recorder::Recorder,
        repeat::{History, Repetition},
        schema::{Mismatch, SchemaGate},
    },
    metrics::recovery::Action,
    openai::scan::Scanner,
    reply::Fault,
    surface::Surface,
};

/// Most bytes of an answer that are kept to be gone on with (SEG-5).
const RECORDED_BYTES_MAX: usize = 1024 * 1024;

/// What the chunks of a stream have in common: what goes on with them has it, too.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) id: String,
    #[serde(default)]
    pub(super) created: u64,
    #[serde(default)]
    pub(super) model: String,
}

impl Session<'_> {
    /// The filters that look at this attempt, before it is sent.
    ///
    /// # Errors
    /// The answer is to be held against a schema that nothing can be held against.
    pub(super) fn prepare_gate(&mut self, grant: &Grant) -> Result<(), Fault> {
        let gate = &self.shard.settings.openai.gate;
        if !gate.enabled {
            return Ok(());
        }
        let target = Target {
            environment: gate.environment,
            model_group: &self.plan.group,
            model: &grant.target,
            provider: &grant.provider,
        };
        self.active = Active::at(gate, target);
        self.watch = None;
        if self.active.repeat.is_none() && self.active.schema.is_none() {
            return Ok(());
        }
        let body = self.recovery.source(&self.plan.body).joined();
        let schema = match self.active.schema {
            Some(looks) => match SchemaGate::of_request(self.plan.surface, &body) {
                Some(Err(bad)) if looks.blocks() => {
                    return Err(Fault::BadJson {
                        detail: bad.to_string().into(),
                        param: Some(bad.param.into()),
                    });
                }
                Some(Ok(gate)) => Some(gate),
                Some(Err(_)) | None => None,
            },
            None => None,
        };
        let history = match self.active.repeat {
            Some(_) if self.recovery.continuations == 0 => self.history(&body),
            // What goes on with an answer does not begin where that did.
            _ => Arc::new(History::default()),
        };
        if self.active.continues() && self.plan.scan.stream {
            let recorder = self.recovery.recorder.get_or_insert_with(|| Recorder::new(RECORDED_BYTES_MAX));
            recorder.begin_attempt();
        }
        self.watch = Watch::new(&self.active, history, schema).map(Box::new);
        Ok(())
    }

    /// What was said before in the conversation, read once.
    fn history(&mut self, body: &[u8]) -> Arc<History> {
        let surface = self.plan.surface;
        Arc::clone(self.recovery.history.get_or_insert_with(|| Arc::new(history(surface, body))))
    }

    /// Counts what filters found that may only record.
    pub(super) fn note_observed(&mut self) {
        let of_held = self.held.as_mut().map(Held::take_observed).unwrap_or_default();
        let of_written = self.written.as_mut().map(|written| written.take_observed()).unwrap_or_default();
        for filter in of_held.into_iter().chain(of_written) {
            self.shard.metrics.recovery.found(filter, Action::Observe);
        }
    }

    /// Text of a stream goes to its client.
    pub(super) fn record(&mut self, texts: &[Text], bytes: &[u8]) {
        let Some(recorder) = &mut self.recovery.recorder else { return };
        if self.recovery.chunk.is_none() && self.plan.surface == Surface::Chat {
            self.recovery.chunk = first_chunk(bytes);
        }
        texts.iter().for_each(|text| recorder.push(text.channel, &text.text));
    }

    /// What was held back for a filter has been held for long enough.
    pub(super) fn let_out(&mut self) {
        let now = clock::now();
        if self.held.as_mut().is_some_and(|held| held.is_overdue(now)) {
            self.release_held();
        }
        if self.written.as_mut().is_some_and(|written| written.is_overdue(now)) {
            self.pass_on();
        }
    }

    /// A filter stops the answer.
    pub(super) fn found(&mut self, finding: Finding) -> Option<WayOut> {
        let filter = finding.filter();
        let way_out = match finding {
            Finding::Repetition(repetition) => self.repetition(&repetition),
            Finding::Mismatch(mismatch) => self.mismatch(&mismatch),
        };
        let action = if way_out.is_none() { Action::Recover } else { Action::Stop };
        self.shard.metrics.recovery.found(filter, action);
        way_out
    }

    /// The answer goes round in circles: what came before that is the client's, and perhaps somebody goes on behind it.
    fn repetition(&mut self, found: &Repetition) -> Option<WayOut> {
        if let Some(held) = &mut self.held {
            if held.is_stream() && held.keep_before(found) {
                self.release_held();
            }
        } else if let Some(written) = &mut self.written
            && written.keep_before(found)
        {
            self.pass_on();
        }
        let rebuilt = self.continuation();
        self.judge_finding(&Evidence::Repetition, rebuilt, Fault::Repetition)
    }

    /// The request that goes on behind what the client has got.
    fn continuation(&mut self) -> Result<Rebuilt, Ineligible> {
        // A stream that is passed on is gone on with by a writer of ours, which can write more chunks and nothing else.
        let is_written = self.written.as_ref().is_some_and(|written| written.is_stream());
        if !is_written && (self.plan.surface != Surface::Chat || self.recovery.chunk.is_none()) {
            return Err(Ineligible::Unsupported);
        }
        let recorder = self.recovery.recorder.as_mut().ok_or(Ineligible::Unsupported)?;
        let recorded = recorder.take().ok_or(Ineligible::Unsupported)?;
        let body = self.recovery.source(&self.plan.body).joined();
        let ordinal = self.recovery.continuations + 1;
        rebuilt(rebuild::continuation(self.plan.surface, &body, &recorded, ordinal, self.plan.window)?)
    }

    /// The answer does not keep its schema: perhaps another one does.
    fn mismatch(&mut self, found: &Mismatch) -> Option<WayOut> {
        let rebuilt = self.repair(found);
        let words = found.told_to_client();
        self.judge_finding(&Evidence::SchemaMismatch, rebuilt, Fault::SchemaMismatch { words })
    }

    fn repair(&mut self, found: &Mismatch) -> Result<Rebuilt, Ineligible> {
        if self.recovery.owner.is_committed() {
            return Err(Ineligible::Committed);
        }
        let watch = match &mut self.held {
            Some(held) => held.watch(),
            None => self.written.as_mut().and_then(|written| written.watch()),
        };
        let invalid = watch.map(|watch| watch.content().to_owned()).unwrap_or_default();
        let body = self.recovery.source(&self.plan.body).joined();
        rebuilt(rebuild::schema_repair(self.plan.surface, &body, &invalid, found)?)
    }

    /// Asks the owner, and makes what was rebuilt the request if it says so.
    fn judge_finding(
        &mut self,
        evidence: &Evidence,
        rebuilt: Result<Rebuilt, Ineligible>,
        fault: Fault,
    ) -> Option<WayOut> {
        let ready = rebuilt.as_ref().map(|_| ()).map_err(|why| *why);
        let way_out = self.judge_with(evidence, ready, Original::Fault(fault));
        if way_out.is_none()
            && let Ok(rebuilt) = rebuilt
        {
            self.ask_for(rebuilt, matches!(evidence, Evidence::Repetition));
        }
        way_out
    }

    /// From now on this is what providers are asked.
    fn ask_for(&mut self, rebuilt: Rebuilt, goes_on: bool) {
        let Rebuilt { body, scan } = rebuilt;
        let body = std::mem::replace(&mut self.plan.body, body);
        self.recovery.keep_source(body);
        self.plan.scan = scan;
        if !goes_on {
            return;
        }
        self.recovery.continuations += 1;
        if self.written.is_none()
            && let Some(chunk) = self.recovery.chunk.clone()
        {
            let openai = &self.shard.settings.openai;
            self.written =
                Some(Box::new(Written::going_on(&self.plan, openai, chunk.id, chunk.created, &chunk.model)));
        }
    }
}

/// A body as providers are sent it, with what routing needs of it.
fn rebuilt(json: Vec<u8>) -> Result<Rebuilt, Ineligible> {
    let mut scanner = Scanner::default();
    let scan = scanner.push(&json).and_then(|()| scanner.finish());
    let scan = scan.map_err(|_| Ineligible::Unsupported)?;
    Ok(Rebuilt { body: Body::from(Bytes::from(json)), scan })
}

/// What the first chunk of a stream says of all of them.
fn first_chunk(bytes: &[u8]) -> Option<Chunk> {
    let data = bytes.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| serde_json::from_slice(data).ok()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SEG-5
    #[test]
    fn what_goes_on_with_a_stream_has_the_name_of_its_chunks() {
        let stream = b": hi\r\ndata: {\"id\":\"chatcmpl-7\",\"created\":12,\"model\":\"m\",\"choices\":[]}\r\n\r\ndata: [DONE]\n\n";
        let chunk = first_chunk(stream).unwrap();
        assert_eq!((&*chunk.id, chunk.created, &*chunk.model), ("chatcmpl-7", 12, "m"));
        assert!(first_chunk(b"data: [DONE]\n\n").is_none());
    }

    #[test]
    fn a_rebuilt_request_is_scanned_as_one_that_came() {
        let rebuilt = rebuilt(b"{\"model\":\"m\",\"stream\":true}".to_vec()).unwrap();
        assert_eq!((&*rebuilt.scan.model, rebuilt.scan.stream), ("m", true));
        assert_eq!(rebuilt.body.joined().len(), 27);
    }
}
