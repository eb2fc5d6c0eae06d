//! Selection: which candidate a wish gets (POL-2, POL-8). Reads only.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{
    GroupKey, Pool, ProviderKey, Shape, Wish,
    bucket::{Bucket, Tally},
    provider::Standing,
};
use crate::{effect::Refusal, input::Admit, registry::Avoidance};

/// One model group, resolved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    /// In configured order.
    pub(crate) members: Vec<Member>,
    /// Position of each member, by provider id.
    pub(crate) positions: BTreeMap<Arc<str>, u32>,
    pub(crate) buckets: Vec<Bucket>,
}

/// One candidate of a group, resolved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) provider: ProviderKey,
    pub(crate) bucket: usize,
    pub(crate) target: Arc<str>,
}

/// A candidate found eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) group: GroupKey,
    pub(crate) member: u32,
    pub(crate) provider: ProviderKey,
}

impl Group {
    fn covering(&self, shape: Shape) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().filter(move |bucket| bucket.capabilities.covers(shape.needs))
    }

    fn count(&self, shape: Shape, tally: impl Fn(&Bucket) -> Tally) -> u32 {
        self.covering(shape).map(|bucket| tally(bucket).of(shape.long)).sum()
    }

    fn member(&self, position: u32) -> Option<&Member> {
        self.members.get(position as usize)
    }
}

impl Pool {
    /// What a request asks for, or why nothing configured can ever give it (POL-1, POL-5).
    pub(crate) fn resolve(&self, admit: &Admit) -> Result<Wish, Refusal> {
        let key = *self.group_keys.get(&admit.group).ok_or(Refusal::UnknownModel)?;
        let group = self.groups.get(key.0).ok_or(Refusal::UnknownModel)?;
        let shape = Shape { needs: admit.needs, long: admit.long };
        let member = admit.avoid_provider.as_ref().and_then(|id| group.positions.get(id)).copied();
        let fallback = member.is_some() && admit.allow_avoided_provider_fallback;
        let wish = Wish { group: key, shape, avoidance: Avoidance { member, fallback } };
        let excluded = !fallback && self.avoided(&wish).is_some_and(|standing| standing.fits(shape.long));
        let possible = group.count(shape, |bucket| bucket.enabled) - u32::from(excluded);
        if possible == 0 { Err(Refusal::Unservable) } else { Ok(wish) }
    }

    /// The best eligible candidate. Each candidate set looked at adds one to `examined`.
    pub(crate) fn choose(&self, wish: &Wish, examined: &mut u64) -> Option<Choice> {
        let group = self.groups.get(wish.group.0)?;
        let Wish { shape, avoidance, .. } = *wish;
        let best = group
            .covering(shape)
            .inspect(|_| *examined += 1)
            .filter_map(|bucket| {
                bucket.best(shape.long, avoidance.member.filter(|_| !planted!(AvoidIgnored)))
            })
            .min();
        let member = match best {
            Some((_, member)) => member,
            None => {
                let standing = self.avoided(wish)?;
                if !standing.is_open(shape.long) || !self.avoided_is_permitted(wish) {
                    return None;
                }
                avoidance.member?
            }
        };
        let provider = group.member(member)?.provider;
        Some(Choice { group: wish.group, member, provider })
    }

    /// The live candidates of a wish: those that may get it once they have a free slot (SNP-1).
    pub(crate) fn live_candidates(&self, wish: Wish) -> impl Iterator<Item = ProviderKey> {
        let permitted = self.avoided_is_permitted(&wish);
        let members = self.groups.get(wish.group.0).map_or(&[][..], |group| &group.members);
        (0..).zip(members).filter_map(move |(position, member)| {
            let standing = self.standing_in(wish.group, position, wish.shape)?;
            let wanted = wish.avoidance.member != Some(position) || permitted;
            (standing.is_live(wish.shape.long) && wanted).then_some(member.provider)
        })
    }

    /// The avoided candidate, if it is live and yet none of the wish's live candidates.
    pub(crate) fn live_but_avoided(&self, wish: &Wish) -> Option<ProviderKey> {
        let position = wish.avoidance.member?;
        let is_live = self.avoided(wish)?.is_live(wish.shape.long);
        if !is_live || self.avoided_is_permitted(wish) {
            return None;
        }
        Some(self.groups.get(wish.group.0)?.member(position)?.provider)
    }

    /// Whether the avoided candidate may be taken: only by the flag, and while no alternate is live, busy or not.
    fn avoided_is_permitted(&self, wish: &Wish) -> bool {
        let Some(group) = self.groups.get(wish.group.0) else { return false };
        let itself = self.avoided(wish).is_some_and(|standing| standing.is_live(wish.shape.long));
        if planted!(FallbackWhileBusy) {
            return wish.avoidance.fallback;
        }
        let shape = Shape { long: wish.shape.long && !planted!(AlternateOfWrongKind), ..wish.shape };
        wish.avoidance.fallback && group.count(shape, |bucket| bucket.live) == u32::from(itself)
    }

    /// The standing of the avoided candidate, if there is one and it has the capabilities.
    fn avoided(&self, wish: &Wish) -> Option<Standing> {
        self.standing_in(wish.group, wish.avoidance.member?, wish.shape)
    }

    fn standing_in(&self, group: GroupKey, position: u32, shape: Shape) -> Option<Standing> {
        let group = self.groups.get(group.0)?;
        let member = group.member(position)?;
        let covers = group.buckets.get(member.bucket)?.capabilities.covers(shape.needs);
        if covers { Some(self.providers.get(&member.provider)?.standing()) } else { None }
    }
}
