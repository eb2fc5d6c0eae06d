//! Medians, geometric means and spreads. Pure.

use serde::Serialize;

/// A figure over several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The median, or of ratios the geometric mean.
    pub mid: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Of how many.
    pub count: usize,
}

impl Spread {
    /// Of plain figures: around their median. `None` without any.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        let upper = *sorted.get(half)?;
        let mid = if sorted.len() % 2 == 1 { upper } else { (sorted.get(half - 1)? + upper) / 2.0 };
        Self::around(mid, &sorted)
    }

    /// Of ratios: around their geometric mean, in which 2 and ½ cancel out. `None` without any, or when one is not
    /// positive.
    #[must_use]
    pub fn of_ratios(ratios: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = ratios.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.iter().any(|ratio| *ratio <= 0.0) {
            return None;
        }
        let logs: f64 = sorted.iter().map(|ratio| ratio.ln()).sum();
        Self::around((logs / sorted.len() as f64).exp(), &sorted)
    }

    fn around(mid: f64, sorted: &[f64]) -> Option<Self> {
        Some(Self { mid, min: *sorted.first()?, max: *sorted.last()?, count: sorted.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(spread: Option<Spread>, mid: f64, min: f64, max: f64) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        spread.is_some_and(|s| close(s.mid, mid) && close(s.min, min) && close(s.max, max))
    }

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        assert!(near(Spread::of([3.0, 1.0, 9.0]), 3.0, 1.0, 9.0));
        assert!(near(Spread::of([4.0, 1.0, 2.0, 9.0]), 3.0, 1.0, 9.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn double_and_half_cancel_out_in_a_geometric_mean() {
        assert!(near(Spread::of_ratios([2.0, 0.5]), 1.0, 0.5, 2.0));
        assert!(near(Spread::of_ratios([1.0, 8.0]), 8.0_f64.sqrt(), 1.0, 8.0));
        assert_eq!(Spread::of_ratios([]), None);
        assert_eq!(Spread::of_ratios([1.0, 0.0]), None);
    }
}
