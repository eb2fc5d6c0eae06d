//! How often a request may be recovered (SEG-1): one total for all strategies, and one bound alike for each.

use super::{Ineligible, Strategy};

/// What is left. At most the request's total is ever spent, and of no strategy more than its bound.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    request_max: u32,
    strategy_max: u32,
    /// Spent, by [`Strategy::ALL`].
    spent: [u32; Strategy::ALL.len()],
}

impl Budget {
    pub(super) fn new(request_max: u32, strategy_max: u32) -> Self {
        Self { request_max, strategy_max, spent: [0; Strategy::ALL.len()] }
    }

    /// Takes one, and says the how manieth of its strategy it is.
    pub(super) fn spend(&mut self, strategy: Strategy) -> Result<u32, Ineligible> {
        let total: u32 = self.spent.iter().sum();
        let [replays, continuations, repairs] = &mut self.spent;
        let spent = match strategy {
            Strategy::ExactReplay => replays,
            Strategy::ContinuationRepair => continuations,
            Strategy::SchemaRepair => repairs,
        };
        if total >= self.request_max {
            return Err(Ineligible::RequestBudget);
        }
        if *spent >= self.strategy_max {
            return Err(Ineligible::StrategyBudget);
        }
        *spent += 1;
        Ok(*spent)
    }
}
