//! All health records and all outstanding commands.

use alloc::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Overlay, evidence::Observation, health::Health};
use crate::{
    effect::ProviderHealth,
    input::{CommandId, Moment},
    registry::{Live, ProviderKey},
};

/// A command whose answer is awaited. What it was sent to is kept here and nowhere else (CAP-2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Command {
    pub(crate) provider: ProviderKey,
    /// Connection and generation it was sent on.
    pub(crate) live: Live,
    pub(crate) adapter: Arc<str>,
    pub(crate) target: Arc<str>,
}

/// What an observation of a stall changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// It says something else than `unavailable`, which changes nothing.
    Irrelevant,
    /// Not newer than what was applied.
    Stale,
    /// The provider is taken out now.
    Lowered,
    /// It was taken out before; what failed is noted.
    Again,
}

/// At most one record for each provider, and one command for each record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Overlays {
    #[serde(with = "crate::pairs")]
    records: BTreeMap<ProviderKey, Health>,
    #[serde(with = "crate::pairs")]
    commands: BTreeMap<CommandId, Command>,
    last_command: u64,
}

impl Overlays {
    /// Applies what a validated stall of a run on `adapter` and `target` says (HND-4).
    pub(crate) fn observe(
        &mut self,
        key: ProviderKey,
        now: Moment,
        seen: Observation,
        adapter: &Arc<str>,
        target: &Arc<str>,
    ) -> Observed {
        if seen.health != ProviderHealth::Unavailable {
            return Observed::Irrelevant;
        }
        let record = self.records.entry(key).or_insert(Health { applied: 0, overlay: None });
        let old = if planted!(EqualNumberLowers) { record.applied.saturating_sub(1) } else { record.applied };
        if seen.sequence <= old {
            return Observed::Stale;
        }
        record.applied = seen.sequence;
        let Some(overlay) = &mut record.overlay else {
            record.overlay = Some(Overlay::new(now, Arc::clone(adapter), Arc::clone(target)));
            return Observed::Lowered;
        };
        // That something else answers would not prove that this does.
        if (&overlay.adapter, &overlay.target) != (adapter, target) {
            (overlay.adapter, overlay.target) = (Arc::clone(adapter), Arc::clone(target));
            if let Some(command) = overlay.outstanding.take() {
                self.commands.remove(&command);
            }
        }
        Observed::Again
    }

    /// Plans the next probe of an overlaid provider; gives its deadline.
    pub(crate) fn arm(&mut self, key: ProviderKey, now: Moment) -> Option<Moment> {
        Some(self.records.get_mut(&key)?.overlay.as_mut()?.arm(now))
    }

    /// Stops probing a provider that stays overlaid; gives the deadline that no longer matters.
    pub(crate) fn disarm(&mut self, key: ProviderKey) -> Option<Moment> {
        let overlay = self.records.get_mut(&key)?.overlay.as_mut()?;
        if let Some(command) = overlay.outstanding.take() {
            self.commands.remove(&command);
        }
        overlay.next_probe.take()
    }

    /// Notes a command that is sent now; it replaces the one before.
    pub(crate) fn send(&mut self, command: Command) -> Option<CommandId> {
        let overlay = self.records.get_mut(&command.provider)?.overlay.as_mut()?;
        self.last_command += 1;
        let id = CommandId(self.last_command);
        if let Some(replaced) = overlay.outstanding.replace(id).filter(|_| !planted!(ReplacedCommandCounts)) {
            self.commands.remove(&replaced);
        }
        overlay.probes = overlay.probes.saturating_add(1);
        self.commands.insert(id, command);
        Some(id)
    }

    /// Applies an observation `available` (CAP-2): the overlay is over. Gives the deadline that no longer matters. `None`,
    /// and no change, when the observation is not newer than what was applied, or there is no overlay.
    pub(crate) fn clear(&mut self, key: ProviderKey, sequence: u64) -> Option<Option<Moment>> {
        let record = self.records.get_mut(&key).filter(|record| {
            sequence > record.applied || sequence == record.applied && planted!(EqualNumberClears)
        })?;
        let overlay = record.overlay.take()?;
        record.applied = sequence;
        if let Some(command) = overlay.outstanding {
            self.commands.remove(&command);
        }
        Some(overlay.next_probe)
    }

    /// Forgets a provider: its generation, or itself, is over. Gives the overlay it had.
    pub(crate) fn forget(&mut self, key: ProviderKey) -> Option<Overlay> {
        let overlay = self.records.remove(&key)?.overlay?;
        if let Some(command) = overlay.outstanding.filter(|_| !planted!(CommandOutlivesGeneration)) {
            self.commands.remove(&command);
        }
        Some(overlay)
    }

    /// The command an answer may speak of.
    pub(crate) fn command(&self, id: CommandId) -> Option<&Command> {
        self.commands.get(&id)
    }

    /// Sequence of the last observation applied to a provider; 0 = none.
    pub(crate) fn applied(&self, key: ProviderKey) -> u64 {
        self.records.get(&key).map_or(0, |record| record.applied)
    }

    pub(crate) fn overlay(&self, key: ProviderKey) -> Option<&Overlay> {
        self.records.get(&key)?.overlay.as_ref()
    }

    /// All overlaid providers.
    pub(crate) fn overlaid(&self) -> impl Iterator<Item = (ProviderKey, &Overlay)> {
        self.records.iter().filter_map(|(&key, record)| Some((key, record.overlay.as_ref()?)))
    }

    /// Providers with a record, for audits.
    pub(crate) fn known(&self) -> impl Iterator<Item = ProviderKey> {
        self.records.keys().copied()
    }

    /// Outstanding commands, for audits.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (CommandId, &Command)> {
        self.commands.iter().map(|(&id, command)| (id, command))
    }
}
