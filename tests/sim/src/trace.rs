//! A list of inputs that can be judged again, and made as short as it can be while it still shows what it showed.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Once},
    time::{Duration, Instant},
};

use control::{
    config::PoolConfig,
    input::{Input, Moment},
};

use crate::{
    invariants::{Broken, Checked},
    judge::{Depth, Judge},
};

/// One step: a fact, or time passing.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When.
    pub at: Moment,
    /// What; `None` = a timeout is handled.
    pub input: Option<Input>,
}

/// Everything a machine was told from its beginning.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What it began with.
    pub config: Arc<PoolConfig>,
    /// What it was told.
    pub steps: Vec<Step>,
}

/// The end of a run that broke a check.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which check.
    pub broken: Broken,
    /// Steps taken, the breaking one included.
    pub steps: u64,
}

/// Judges every step again; `None`: all checks hold.
pub fn judge(trace: &Trace, depth: Depth) -> Option<Failure> {
    let mut steps = 0;
    let checked = guarded(|| {
        let mut judge = Judge::new(&trace.config, depth);
        for step in &trace.steps {
            steps += 1;
            judge.step(step.at, step.input.as_ref())?;
        }
        Ok(())
    });
    checked.err().map(|broken| Failure { broken, steps })
}

/// The shortest list found in `budget` that breaks the same check: by leaving out pieces, ever smaller ones (Zeller's
/// delta debugging).
pub fn minimise(trace: &Trace, failure: &Failure, budget: Duration) -> Trace {
    let until = Instant::now() + budget;
    let check = failure.broken.check;
    let mut best = trace.clone();
    // The checks that cost the size of everything are made only where nothing else shows it.
    let shows = |depth: &Depth| judge(trace, *depth).is_some_and(|found| found.broken.check == check);
    let depth = [Depth::NEVER, Depth::ALWAYS].into_iter().find(shows).unwrap_or(Depth::ALWAYS);
    let fails = |steps: &[Step]| {
        let trace = Trace { config: Arc::clone(&trace.config), steps: steps.to_vec() };
        judge(&trace, depth).filter(|found| found.broken.check == check).map(|found| found.steps as usize)
    };
    // Judged more often than in its run it may break earlier; if it breaks another check, the list stays as it is.
    let Some(length) = fails(&best.steps) else { return best };
    best.steps.truncate(length);
    let mut piece = best.steps.len().div_ceil(2);
    while piece > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < best.steps.len() && Instant::now() < until {
            let mut steps = best.steps.clone();
            steps.drain(at..(at + piece).min(steps.len()));
            if let Some(length) = fails(&steps) {
                steps.truncate(length);
                best.steps = steps;
                shorter = true;
            } else {
                at += piece;
            }
        }
        if Instant::now() >= until {
            break;
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        } else if !shorter {
            break;
        }
    }
    best
}

thread_local! {
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs something that may panic, which is a broken check like any other.
///
/// # Errors
/// What it gives, or its panic.
pub fn guarded(run: impl FnOnce() -> Checked) -> Checked {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.with(|quiet| *quiet.borrow()) {
                SAID.with(|said| *said.borrow_mut() = Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    QUIET.with(|quiet| *quiet.borrow_mut() = true);
    let ended = catch_unwind(AssertUnwindSafe(run));
    QUIET.with(|quiet| *quiet.borrow_mut() = false);
    ended.unwrap_or_else(|_| {
        let detail = SAID.with(|said| said.borrow_mut().take()).unwrap_or_default();
        Err(Broken { check: "panic", detail })
    })
}
