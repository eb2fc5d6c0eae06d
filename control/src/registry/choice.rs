//! Selection: which candidate a wish gets (POL-2, POL-8). Reads only.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{
    Avoidance, GroupKey, Pool, ProviderKey, Shape, Wish,
    bucket::{Bucket, Tally},
    provider::{Rank, Standing},
};
use crate::{
    effect::Refusal,
    input::{Admit, Avoided},
    limits::AVOIDED_MAX,
};

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

/// A candidate that a wish avoids.
struct Unwanted {
    member: u32,
    fallback: bool,
    standing: Standing,
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

    /// The newest of the list that are members.
    fn avoidance(&self, list: &[Avoided]) -> Avoidance {
        let mut avoidance = Avoidance::default();
        let at_most = if planted!(OneOfSeveralAvoided) { 1 } else { AVOIDED_MAX };
        for Avoided { provider, allow_fallback } in list.iter().rev().take(at_most) {
            if let Some(&position) = self.positions.get(provider) {
                let other = planted!(PermissionForAnother) && list.iter().any(|it| it.allow_fallback);
                avoidance.add(position, *allow_fallback || other);
            }
        }
        avoidance
    }
}

impl Pool {
    /// What a request asks for, or why nothing configured can ever give it (POL-1, POL-5).
    pub(crate) fn resolve(&self, admit: &Admit) -> Result<Wish, Refusal> {
        let key = *self.group_keys.get(&admit.group).ok_or(Refusal::UnknownModel)?;
        let group = self.groups.get(key.0).ok_or(Refusal::UnknownModel)?;
        let shape = Shape { needs: admit.needs, long: admit.long };
        let wish = Wish { group: key, shape, avoidance: group.avoidance(&admit.avoid) };
        let excluded = self
            .avoided(&wish)
            .filter(|it| !it.fallback && it.standing.fits(shape.long))
            .fold(0, |sum, _| sum + 1);
        let possible = group.count(shape, |bucket| bucket.enabled) - excluded;
        if possible == 0 { Err(Refusal::Unservable) } else { Ok(wish) }
    }

    /// The best eligible candidate. Each candidate set looked at adds one to `examined`.
    pub(crate) fn choose(&self, wish: &Wish, examined: &mut u64) -> Option<Choice> {
        let group = self.groups.get(wish.group.0)?;
        let Wish { shape, avoidance, .. } = *wish;
        let wanted = if planted!(AvoidIgnored) { Avoidance::default() } else { avoidance };
        let best = group
            .covering(shape)
            .inspect(|_| *examined += 1)
            .filter_map(|bucket| bucket.best(shape.long, &wanted))
            .min();
        let (_, member) = best.or_else(|| self.best_avoided(wish))?;
        let provider = group.member(member)?.provider;
        Some(Choice { group: wish.group, member, provider })
    }

    /// The best of the avoided candidates that are permitted and have a free slot.
    fn best_avoided(&self, wish: &Wish) -> Option<(Rank, u32)> {
        let open = |it: &Unwanted| it.fallback && it.standing.is_open(wish.shape.long);
        let mut permitted = self.avoided(wish).filter(open).map(|it| (it.standing.rank, it.member));
        let best = if planted!(AvoidedWithoutRank) { permitted.next() } else { permitted.min() }?;
        self.is_without_alternate(wish).then_some(best)
    }

    /// The live candidates of a wish: those that may get it once they have a free slot (SNP-1).
    pub(crate) fn live_candidates(&self, wish: Wish) -> impl Iterator<Item = ProviderKey> {
        let without_alternate = self.is_without_alternate(&wish);
        let members = self.groups.get(wish.group.0).map_or(&[][..], |group| &group.members);
        (0..).zip(members).filter_map(move |(position, member)| {
            let standing = self.standing_in(wish.group, position, wish.shape)?;
            let mut avoided = wish.avoidance.iter().filter(|(avoided, _)| *avoided == position);
            let wanted = avoided.next().is_none_or(|(_, fallback)| fallback && without_alternate);
            (standing.is_live(wish.shape.long) && wanted).then_some(member.provider)
        })
    }

    /// The avoided candidates that are live and yet none of the wish's live candidates.
    pub(crate) fn live_but_avoided(&self, wish: &Wish) -> impl Iterator<Item = ProviderKey> {
        let without_alternate = self.is_without_alternate(wish);
        let forbidden =
            move |it: &Unwanted| it.standing.is_live(wish.shape.long) && !(it.fallback && without_alternate);
        let group = self.groups.get(wish.group.0);
        self.avoided(wish).filter(forbidden).filter_map(move |it| Some(group?.member(it.member)?.provider))
    }

    /// Whether no candidate that is not avoided is live, busy or not.
    fn is_without_alternate(&self, wish: &Wish) -> bool {
        let Some(group) = self.groups.get(wish.group.0) else { return false };
        let live = |it: &Unwanted| it.standing.is_live(wish.shape.long);
        let avoided = self.avoided(wish).filter(live).fold(0, |sum, _| sum + 1);
        let shape = Shape { long: wish.shape.long && !planted!(AlternateOfWrongKind), ..wish.shape };
        let avoided = if planted!(AvoidedIsAlternate) { avoided.min(1) } else { avoided };
        planted!(FallbackWhileBusy) || group.count(shape, |bucket| bucket.live) == avoided
    }

    /// The avoided candidates that have the capabilities.
    fn avoided(&self, wish: &Wish) -> impl Iterator<Item = Unwanted> {
        let Wish { group, shape, avoidance } = *wish;
        avoidance.iter().filter_map(move |(member, fallback)| {
            Some(Unwanted { member, fallback, standing: self.standing_in(group, member, shape)? })
        })
    }

    fn standing_in(&self, group: GroupKey, position: u32, shape: Shape) -> Option<Standing> {
        let group = self.groups.get(group.0)?;
        let member = group.member(position)?;
        let covers = group.buckets.get(member.bucket)?.capabilities.covers(shape.needs);
        if covers { Some(self.providers.get(&member.provider)?.standing()) } else { None }
    }
}
