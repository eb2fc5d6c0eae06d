//! The guards, one by one, and what is remembered over attempts.

use alloc::vec::Vec;

use super::{
    Attempt, Category, ErrorClass, Evidence, Fence, Ineligible, Limits, Owner, Snapshot, Strategy, Verdict,
};
use crate::{
    effect::{Handoff, ProviderHealth},
    input::Avoided,
    limits::{ATTEMPTS_TOLD_MAX, AVOIDED_MAX, RECOVERIES_MAX},
};

const LIMITS: Limits = Limits { request_max: 3, strategy_max: 3, snapshot_bytes_max: 100 };
const WHOLE: Snapshot = Snapshot { kept: true, bytes: 100, continuation: Ok(()) };

fn attempt(provider: &str, category: Category) -> Attempt {
    Attempt { provider: provider.into(), category, direct: false, sole_candidate: false }
}

fn local(provider: &str) -> Attempt {
    attempt(provider, Category::LocalInference)
}

fn stall(provider: &str, health: ProviderHealth) -> Evidence {
    Evidence::Stall { handoff: Some(Handoff { provider: provider.into(), health }), fence: Fence::Confirmed }
}

fn error(class: ErrorClass) -> Evidence {
    Evidence::ProviderError { class }
}

fn running(attempt: Attempt) -> Owner {
    with(LIMITS, attempt)
}

fn with(limits: Limits, attempt: Attempt) -> Owner {
    let mut owner = Owner::new(limits);
    owner.dispatched(attempt);
    owner
}

fn replay(ordinal: u32) -> Verdict {
    Verdict::Recover { strategy: Strategy::ExactReplay, ordinal, cancel_old: false }
}

fn avoided(owner: &Owner) -> Vec<(&'static str, bool)> {
    let names = ["a", "b", "c", "d", "e", "f"];
    let of = |it: Avoided| (*names.iter().find(|name| **name == &*it.provider).unwrap(), it.allow_fallback);
    owner.avoid().into_iter().map(of).collect()
}

/// Every kind of evidence that a whole request before content is recovered from.
fn recoverable() -> Vec<Evidence> {
    let mut all = Vec::from([
        stall("a", ProviderHealth::Unknown),
        Evidence::NodeLost,
        Evidence::Repetition,
        Evidence::SchemaMismatch,
    ]);
    let classes = ErrorClass::ALL.into_iter();
    all.extend(classes.filter(|class| class.replay() != super::class::Replay::Never).map(error));
    all
}

// req: REC-1, REC-2
#[test]
fn a_confirmed_stall_before_content_is_replayed_elsewhere_and_after_it_never() {
    let mut owner = running(local("a"));
    assert_eq!(owner.judge(&stall("a", ProviderHealth::Unavailable), &WHOLE), replay(1));
    assert_eq!(
        (avoided(&owner), owner.last_strategy()),
        ([("a", false)].into(), Some(Strategy::ExactReplay))
    );
    owner.dispatched(local("b"));
    assert!(owner.commit() && owner.is_committed());
    for evidence in recoverable().into_iter().filter(|evidence| *evidence != Evidence::Repetition) {
        let evidence = if let Evidence::Stall { .. } = evidence {
            stall("b", ProviderHealth::Available)
        } else {
            evidence
        };
        assert_eq!(owner.judge(&evidence, &WHOLE), Verdict::Stay(Ineligible::Committed), "{evidence:?}");
    }
    assert_eq!(owner.attempts(), 2);
    assert_eq!(owner.providers().iter().map(|it| &**it).collect::<Vec<_>>(), ["a", "b"]);
}

// req: REC-2
#[test]
fn a_stall_that_the_edge_has_not_confirmed_is_no_candidate() {
    for handoff in [None, Some(Handoff { provider: "b".into(), health: ProviderHealth::Available })] {
        let mut owner = running(local("a"));
        let evidence = Evidence::Stall { handoff, fence: Fence::Confirmed };
        assert_eq!(owner.judge(&evidence, &WHOLE), Verdict::Stay(Ineligible::Unconfirmed));
        assert!(owner.avoid().is_empty());
    }
}

// req: REC-5
#[test]
fn nothing_starts_once_the_request_is_over() {
    for evidence in recoverable() {
        let mut owner = running(local("a"));
        owner.close();
        assert_eq!(owner.judge(&evidence, &WHOLE), Verdict::Stay(Ineligible::Closed), "{evidence:?}");
        assert!(!owner.commit() && !owner.is_committed());
    }
}

// req: REC-5, POL-12
#[test]
fn a_program_is_never_run_twice_and_a_direct_route_never_recovered() {
    for evidence in recoverable() {
        let mut owner = running(attempt("a", Category::Cli));
        assert_eq!(owner.judge(&evidence, &WHOLE), Verdict::Stay(Ineligible::SideEffect), "{evidence:?}");
        let mut owner = running(Attempt { direct: true, ..local("a") });
        assert_eq!(owner.judge(&evidence, &WHOLE), Verdict::Stay(Ineligible::Direct), "{evidence:?}");
    }
}

// req: REC-5
#[test]
fn what_may_go_on_at_a_paid_interface_is_not_sent_again() {
    for (category, fence, verdict) in [
        (Category::Api, Fence::Unconfirmed, Verdict::Stay(Ineligible::SideEffect)),
        (Category::Api, Fence::Confirmed, replay(1)),
        (Category::LocalInference, Fence::Unconfirmed, replay(1)),
    ] {
        let mut owner = running(attempt("a", category));
        let handoff = Some(Handoff { provider: "a".into(), health: ProviderHealth::Available });
        assert_eq!(
            owner.judge(&Evidence::Stall { handoff, fence }, &WHOLE),
            verdict,
            "{category:?} {fence:?}"
        );
    }
}

// req: REC-6
#[test]
fn a_lost_generation_is_replayed_for_an_engine_of_ones_own_alone() {
    for (category, verdict) in [
        (Category::LocalInference, replay(1)),
        (Category::Api, Verdict::Stay(Ineligible::SideEffect)),
        (Category::Cli, Verdict::Stay(Ineligible::SideEffect)),
    ] {
        assert_eq!(
            running(attempt("a", category)).judge(&Evidence::NodeLost, &WHOLE),
            verdict,
            "{category:?}"
        );
    }
}

// req: REC-3
#[test]
fn a_fenced_run_is_sent_no_cancel_and_one_that_may_go_on_is() {
    for evidence in recoverable() {
        let mut owner = running(local("a"));
        let Verdict::Recover { cancel_old, .. } = owner.judge(&evidence, &WHOLE) else {
            panic!("{evidence:?}")
        };
        let is_fenced = matches!(evidence, Evidence::Stall { .. } | Evidence::NodeLost);
        assert_eq!(cancel_old, !is_fenced, "{evidence:?}");
    }
}

// req: REC-3, SEG-1
#[test]
fn the_budget_is_one_for_all_strategies_and_bounds_each_of_them() {
    let limits = Limits { request_max: 3, strategy_max: 2, ..LIMITS };
    let mut owner = with(limits, local("a"));
    let mut next = |evidence: &Evidence| {
        let verdict = owner.judge(evidence, &WHOLE);
        owner.dispatched(local("a"));
        match verdict {
            Verdict::Recover { strategy, ordinal, .. } => Ok((strategy, ordinal)),
            Verdict::Stay(why) => Err(why),
        }
    };
    assert_eq!(next(&Evidence::NodeLost), Ok((Strategy::ExactReplay, 1)));
    assert_eq!(next(&error(ErrorClass::Server)), Ok((Strategy::ExactReplay, 2)));
    assert_eq!(next(&Evidence::NodeLost), Err(Ineligible::StrategyBudget));
    assert_eq!(next(&Evidence::SchemaMismatch), Ok((Strategy::SchemaRepair, 1)));
    assert_eq!(next(&Evidence::Repetition), Err(Ineligible::RequestBudget));
}

// req: SEG-1
#[test]
fn no_budget_disables_and_none_is_larger_than_the_largest() {
    let none = Limits { request_max: 0, ..LIMITS };
    let verdict = with(none, local("a")).judge(&Evidence::NodeLost, &WHOLE);
    assert_eq!(verdict, Verdict::Stay(Ineligible::RequestBudget));
    let none = Limits { strategy_max: 0, ..LIMITS };
    let verdict = with(none, local("a")).judge(&Evidence::NodeLost, &WHOLE);
    assert_eq!(verdict, Verdict::Stay(Ineligible::StrategyBudget));
    let mut owner = with(Limits { request_max: 100, strategy_max: 100, ..LIMITS }, local("a"));
    for ordinal in 1..=RECOVERIES_MAX {
        assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), replay(ordinal));
        owner.dispatched(local("a"));
    }
    assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), Verdict::Stay(Ineligible::RequestBudget));
}

// req: REC-5, SEG-1, SEG-5
#[test]
fn what_is_not_held_or_too_large_is_not_sent_again() {
    let of = |snapshot| {
        let mut owner = running(local("a"));
        let Verdict::Stay(why) = owner.judge(&Evidence::NodeLost, &snapshot) else { panic!("{snapshot:?}") };
        // A guard that refuses spends nothing.
        assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), replay(1));
        why
    };
    assert_eq!(of(Snapshot { bytes: 101, ..WHOLE }), Ineligible::SnapshotTooLarge);
    assert_eq!(of(Snapshot { kept: false, bytes: 101, ..WHOLE }), Ineligible::SnapshotTooLarge);
    assert_eq!(of(Snapshot { kept: false, ..WHOLE }), Ineligible::SnapshotGone);
    let no = Snapshot { continuation: Err(Ineligible::ContextUnknown), ..WHOLE };
    let verdict = running(local("a")).judge(&Evidence::Repetition, &no);
    assert_eq!(verdict, Verdict::Stay(Ineligible::ContextUnknown));
    assert_eq!(running(local("a")).judge(&Evidence::NodeLost, &no), replay(1));
}

// req: REC-2, SEG-5
#[test]
fn a_loop_is_continued_before_and_after_content_and_is_nobodys_fault() {
    for committed in [false, true] {
        let mut owner = running(local("a"));
        assert!(!committed || owner.commit());
        let verdict = owner.judge(&Evidence::Repetition, &WHOLE);
        let strategy = Strategy::ContinuationRepair;
        assert_eq!(verdict, Verdict::Recover { strategy, ordinal: 1, cancel_old: true });
        owner.dispatched(local("a"));
        assert_eq!((owner.commit(), owner.avoid().len()), (!committed, 0));
    }
}

// req: REC-4, POL-8
#[test]
fn who_stalled_may_have_it_back_only_if_its_probe_said_available_each_time() {
    let mut owner = running(local("a"));
    owner.judge(&stall("a", ProviderHealth::Available), &WHOLE);
    assert_eq!(avoided(&owner), [("a", true)]);
    owner.dispatched(local("b"));
    owner.judge(&stall("b", ProviderHealth::Unknown), &WHOLE);
    assert_eq!(avoided(&owner), [("a", true), ("b", false)]);
    owner.dispatched(local("a"));
    owner.judge(&stall("a", ProviderHealth::Unavailable), &WHOLE);
    assert_eq!(avoided(&owner), [("a", false), ("b", false)]);
    // Once without evidence it stays so.
    owner.dispatched(local("a"));
    owner.judge(&stall("a", ProviderHealth::Available), &WHOLE);
    assert_eq!(avoided(&owner), [("a", false), ("b", false)]);
}

/// Case 33: a transient failure of a model's only provider; case 32: its silence is no such thing.
// req: REC-5, SEG-8
#[test]
fn the_only_provider_of_a_model_gets_it_back_after_what_passes_by_itself() {
    for evidence in recoverable() {
        let mut owner = running(Attempt { sole_candidate: true, ..local("a") });
        assert!(matches!(owner.judge(&evidence, &WHOLE), Verdict::Recover { .. }), "{evidence:?}");
        let returns = matches!(
            evidence,
            Evidence::ProviderError { class: ErrorClass::Transport | ErrorClass::Server }
                | Evidence::Repetition
                | Evidence::SchemaMismatch
        );
        assert_eq!(owner.avoid().is_empty(), returns, "{evidence:?}");
    }
}

/// Cases 34, 37 and 38.
// req: SEG-6, SEG-8
#[test]
fn the_table_says_which_errors_of_a_provider_are_replayed() {
    let table = [
        (ErrorClass::Backpressure, false),
        (ErrorClass::Client, false),
        (ErrorClass::Server, true),
        (ErrorClass::Transport, true),
        (ErrorClass::Empty, true),
        (ErrorClass::Malformed, true),
        (ErrorClass::InBand, true),
        (ErrorClass::Credential, false),
    ];
    assert_eq!(table.map(|(class, _)| class), ErrorClass::ALL);
    for (class, replayed) in table {
        let mut owner = running(local("a"));
        let verdict = owner.judge(&error(class), &WHOLE);
        assert_eq!(matches!(verdict, Verdict::Recover { .. }), replayed, "{class:?}");
        assert_eq!(avoided(&owner).len(), usize::from(replayed), "{class:?}");
        owner.dispatched(local("b"));
        let again = owner.judge(&error(class), &WHOLE);
        let twice = replayed && class != ErrorClass::InBand;
        assert_eq!(matches!(again, Verdict::Recover { .. }), twice, "{class:?}");
    }
}

#[test]
fn what_has_been_judged_and_followed_is_not_followed_twice() {
    let mut owner = Owner::new(LIMITS);
    assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), Verdict::Stay(Ineligible::NotReplayable));
    owner.dispatched(local("a"));
    assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), replay(1));
    assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), Verdict::Stay(Ineligible::NotReplayable));
    owner.dispatched(local("b"));
    assert_eq!(owner.judge(&Evidence::NodeLost, &WHOLE), replay(2));
}

#[test]
fn the_first_content_byte_is_committed_once() {
    let mut owner = running(local("a"));
    assert!(!owner.is_committed());
    assert_eq!([owner.commit(), owner.commit(), owner.is_committed()], [true, false, true]);
    owner.judge(&Evidence::Repetition, &WHOLE);
    owner.dispatched(local("b"));
    assert_eq!([owner.commit(), owner.is_committed()], [false, true]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut avoidance = super::avoidance::Avoidance::default();
    for name in ["a", "b", "c", "d", "e", "f"] {
        avoidance.add(&name.into(), false);
    }
    let names: Vec<_> = avoidance.list().into_iter().map(|it| it.provider).collect();
    assert_eq!(names.iter().map(|it| &**it).collect::<Vec<_>>(), ["c", "d", "e", "f"]);
    assert_eq!(names.len(), AVOIDED_MAX);
    let mut owner = Owner::new(LIMITS);
    for _ in 0..20 {
        owner.dispatched(local("a"));
    }
    assert_eq!((owner.attempts(), owner.providers().len()), (20, ATTEMPTS_TOLD_MAX));
}

// req: OBS-4
#[test]
fn every_name_is_told_once() {
    let mut names: Vec<_> = Ineligible::ALL.iter().map(|why| why.name()).collect();
    names.extend(ErrorClass::ALL.iter().map(|class| class.name()));
    names.extend(Strategy::ALL.iter().map(|strategy| strategy.name()));
    names.push(replay(1).eligibility());
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert_eq!(Verdict::Stay(Ineligible::Committed).eligibility(), "committed");
}
