//! Histograms of times, their figures and their distribution.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest time a histogram holds; longer ones count as this. Unit: µs.
const TIME_US_MAX: u64 = 3_600_000_000;

/// A histogram of µs with three significant digits.
#[expect(
    clippy::expect_used,
    reason = "the bounds are constants that the constructor accepts; a test makes one"
)]
pub(super) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_US_MAX, 3).expect("bounds are valid")
}

/// A histogram in a few figures. Unit: µs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// How many were measured.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: u64,
    /// Nine of ten are not longer.
    pub p90: u64,
    /// 99 of 100 are not longer.
    pub p99: u64,
    /// 999 of 1,000 are not longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl From<&Histogram<u64>> for Times {
    fn from(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
        }
    }
}

/// The distribution of a histogram, to be drawn: values at fixed quantiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distributions {
    /// The quantiles, from 0 to 1; every other list here has a value for each of them, or none at all.
    pub quantiles: Vec<f64>,
    /// From where the request counts to the first event. Unit: µs.
    pub first_event_us: Vec<u64>,
    /// Between two events. Unit: µs.
    pub gap_us: Vec<u64>,
    /// From where the request counts to the end of the reply. Unit: µs.
    pub total_us: Vec<u64>,
    /// From the provider's write to the reading. Unit: µs.
    pub delivery_us: Vec<u64>,
}

/// Every hundredth, and a finer end: what is slow is seldom.
pub(super) fn quantiles() -> Vec<f64> {
    let fine = [0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0];
    (0..100).map(|hundredth| f64::from(hundredth) / 100.0).chain(fine).collect()
}

/// The values of `histogram` at `quantiles`; none if it is empty.
pub(super) fn distribution(histogram: &Histogram<u64>, quantiles: &[f64]) -> Vec<u64> {
    if histogram.is_empty() {
        return Vec::new();
    }
    quantiles.iter().map(|quantile| histogram.value_at_quantile(*quantile)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_read_at_every_quantile_and_ends_with_the_longest() {
        let mut histogram = times();
        (1..=1000).for_each(|us| histogram.saturating_record(us));
        let quantiles = quantiles();
        assert!(quantiles.is_sorted() && quantiles.len() < 110);
        let values = distribution(&histogram, &quantiles);
        assert_eq!((values.len(), values[50], values.last()), (quantiles.len(), 500, Some(&1000)));
        assert!(values.is_sorted());
        assert!(distribution(&times(), &quantiles).is_empty());
    }

    #[test]
    fn times_beyond_the_longest_count_as_the_longest() {
        let mut histogram = times();
        histogram.saturating_record(u64::MAX);
        let times = Times::from(&histogram);
        assert!(times.count == 1 && times.max >= TIME_US_MAX);
    }
}
