//! Charts as SVG within a page: curves, and bars in parts. Pure. Colours are classes `c0` to `c9` of the page's style.

use std::fmt::Write as _;

use super::page::escape;

/// How many colours there are; a further one begins anew.
pub(super) const COLOURS: usize = 10;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// A named curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// How values become places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// From 0 on.
    Linear,
    /// By powers of ten; values are above 0.
    Log,
    /// Of shares below 1: as far from 0 to 90 % as from 90 to 99 %, so that a tail can be seen.
    Nines,
}

/// An axis: its scale and what it shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) scale: Scale,
    pub(super) label: &'a str,
}

/// A range of an axis, in its own measure.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    scale: Scale,
    from: f64,
    to: f64,
}

impl Scale {
    fn measure(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.max(1e-6).log10(),
            Self::Nines => -(1.0 - value.min(0.99999)).log10(),
        }
    }
}

impl Range {
    fn over(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(|value| scale.measure(value)) {
            from = from.min(value);
            to = to.max(value);
        }
        if !from.is_finite() || !to.is_finite() {
            return None;
        }
        let (from, to) = match scale {
            Scale::Linear => (0.0, (to * 1.05).max(1e-9)),
            Scale::Log => (from - 0.05, to.max(from + 0.3) + 0.05),
            Scale::Nines => (0.0, to.max(1.0)),
        };
        Some(Self { scale, from, to })
    }

    /// Where a value lies between 0 and 1.
    fn place(self, value: f64) -> f64 {
        ((self.scale.measure(value) - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    /// Values with a line, and their texts.
    fn ticks(self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.to);
                (0..=10)
                    .map(|index| f64::from(index) * step)
                    .filter(|at| *at <= self.to)
                    .map(|at| (at, number(at)))
                    .collect()
            }
            Scale::Log => {
                // Over many decades only their own lines.
                let factors: &[f64] = if self.to - self.from < 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades =
                    (-6..=9).flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
                let within = decades.filter(|at| (self.from..=self.to).contains(&self.scale.measure(*at)));
                within.map(|at| (at, number(at))).collect()
            }
            Scale::Nines => [
                (0.0, "0 %"),
                (0.5, "50 %"),
                (0.9, "90 %"),
                (0.99, "99 %"),
                (0.999, "99.9 %"),
                (0.9999, "99.99 %"),
            ]
            .into_iter()
            .filter(|(at, _)| self.scale.measure(*at) <= self.to + 1e-9)
            .map(|(at, text)| (at, text.to_owned()))
            .collect(),
        }
    }
}

/// A round step that divides 0 to `to` into four to ten.
fn step(to: f64) -> f64 {
    let power = 10_f64.powf((to / 4.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|factor| factor * power).find(|step| to / step >= 4.0).unwrap_or(power)
}

/// A number without needless digits.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Curves over two axes, with a legend. Empty without a point.
pub(super) fn curves(curves: &[Curve], x: Axis<'_>, y: Axis<'_>) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let ranges = Range::over(x.scale, points().map(|point| point.0))
        .zip(Range::over(y.scale, points().map(|point| point.1)));
    let Some((across, up)) = ranges else { return String::new() };
    let at_x = |value: f64| LEFT + across.place(value) * (WIDTH - LEFT - RIGHT);
    let at_y = |value: f64| HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = legend(curves.iter().map(|curve| (curve.name.as_str(), curve.colour)));
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\">",
        escape(y.label),
        escape(x.label)
    );
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (value, text) in across.ticks() {
        let x = at_x(value);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/><text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            floor + 16.0
        );
    }
    for (value, text) in up.ticks() {
        let y = at_y(value);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    let _ = write!(
        svg,
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 6.0,
        escape(x.label)
    );
    let _ = write!(
        svg,
        "<text class=\"label\" transform=\"translate(12 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(TOP, floor),
        escape(y.label)
    );
    for curve in curves {
        let path: Vec<String> =
            curve.points.iter().map(|(x, y)| format!("{:.1} {:.1}", at_x(*x), at_y(*y))).collect();
        let class = curve.colour % COLOURS;
        let _ = write!(
            svg,
            "<path class=\"curve c{class}\" d=\"M{}\"><title>{}</title></path>",
            path.join("L"),
            escape(&curve.name)
        );
    }
    svg + "</svg>"
}

/// A bar in parts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) parts: Vec<(String, f64)>,
}

/// Bars across, each with its parts side by side and its sum behind it. Empty without a bar.
pub(super) fn bars(bars: &[Bar], unit: &str) -> String {
    const ROW: f64 = 30.0;
    const NAMES: f64 = 130.0;
    const SUMS: f64 = 90.0;
    let sum = |bar: &Bar| bar.parts.iter().map(|part| part.1).sum::<f64>();
    let longest = bars.iter().map(sum).fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let height = ROW * bars.len() as f64;
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escape(unit));
    for (index, bar) in bars.iter().enumerate() {
        let top = ROW * index as f64;
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            top + 19.0,
            escape(&bar.name)
        );
        let mut left = NAMES;
        for (part, (name, value)) in bar.parts.iter().enumerate() {
            let wide = value / longest * (WIDTH - NAMES - SUMS);
            // A part is told from its neighbour by its shade and by the gap.
            let shade = 1.0 - 0.28 * (part % 3) as f64;
            let name = escape(name);
            let _ = write!(
                svg,
                "<rect class=\"c{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"20\" rx=\"2\" opacity=\"{shade:.2}\"><title>{name} {}</title></rect>",
                bar.colour % COLOURS,
                top + 5.0,
                (wide - 1.5).max(0.5),
                number(*value)
            );
            let text = if bar.parts.len() > 1 { format!("{name} {}", number(*value)) } else { String::new() };
            // About what a letter takes at this size.
            if text.chars().count() as f64 * 6.2 + 8.0 < wide {
                let _ = write!(
                    svg,
                    "<text class=\"within\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                    left + 5.0,
                    top + 19.0
                );
            }
            left += wide;
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
            left + 6.0,
            top + 19.0,
            number(sum(bar)),
            escape(unit)
        );
    }
    svg + "</svg>"
}

fn legend<'a>(entries: impl Iterator<Item = (&'a str, usize)>) -> String {
    let items: String = entries
        .map(|(name, colour)| {
            format!("<li><span class=\"key c{}\"></span>{}</li>", colour % COLOURS, escape(name))
        })
        .collect();
    format!("<ul class=\"legend\">{items}</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_of_nothing_is_nothing() {
        let axis = Axis { scale: Scale::Linear, label: "x" };
        assert_eq!(curves(&[], axis, axis), "");
        assert_eq!(bars(&[], "us"), "");
        assert_eq!(bars(&[Bar { name: "direct".to_owned(), colour: 0, parts: Vec::new() }], "us"), "");
    }

    #[test]
    fn curves_stay_within_the_picture_and_names_are_escaped() {
        let curve = Curve {
            name: "<a>".to_owned(),
            colour: 11,
            points: vec![(0.05, 0.0), (0.2, 0.5), (40.0, 0.99999), (41.0, 1.0)],
        };
        let svg = curves(
            &[curve],
            Axis { scale: Scale::Log, label: "ms" },
            Axis { scale: Scale::Nines, label: "share" },
        );
        let path = svg.split("curve c1\" d=\"M").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        for point in path.split('L') {
            let (x, y) = point.split_once(' ').unwrap();
            assert!(
                (LEFT..=WIDTH).contains(&x.parse().unwrap()) && (0.0..=HEIGHT).contains(&y.parse().unwrap()),
                "{point}"
            );
        }
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("<a>"), "{svg}");
        assert!(["0.1", "1", "10", "99.9 %"].iter().all(|tick| svg.contains(&format!(">{tick}<"))), "{svg}");
    }

    #[test]
    fn ticks_are_round_and_numbers_short() {
        let range = Range::over(Scale::Linear, [3.0, 57.0].into_iter()).unwrap();
        let ticks: Vec<String> = range.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["0", "10", "20", "30", "40", "50"]);
        let range = Range::over(Scale::Log, [3.0, 57.0].into_iter()).unwrap();
        let ticks: Vec<String> = range.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["5", "10", "20", "50"], "a narrow range has lines within its decades");
        let texts: Vec<String> = [0.0, 0.05, 0.5, 1.0, 12.34, 1234.5].into_iter().map(number).collect();
        assert_eq!(texts, ["0", "0.05", "0.5", "1", "12.3", "1234"]);
    }

    #[test]
    fn the_longest_bar_is_the_scale_and_sums_are_said() {
        let bar = |name: &str, parts: &[f64]| Bar {
            name: name.to_owned(),
            colour: 0,
            parts: parts.iter().map(|value| ("p".to_owned(), *value)).collect(),
        };
        let svg = bars(&[bar("two", &[30.0, 20.0]), bar("one", &[25.0])], "us");
        let widths: Vec<f64> =
            svg.split("width=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect();
        assert_eq!(widths, [298.5, 198.5, 248.5]);
        assert!(svg.contains(">50 us<") && svg.contains(">25 us<"), "{svg}");
    }
}
