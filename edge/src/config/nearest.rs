//! The nearest known name to a mistyped one.

/// Longest name that is compared; a longer one is no slip of the fingers. Bounds the work per comparison.
const NAME_BYTES_MAX: usize = 64;

/// The known name that `typed` was most likely meant to be: at most a third of its letters differ, or one is the beginning
/// of the other.
pub(super) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if typed.is_empty() || typed.len() > NAME_BYTES_MAX {
        return None;
    }
    let typed = typed.to_ascii_lowercase().replace('-', "_");
    // Of one or two letters nothing is left to recognize.
    let allowed = typed.chars().count() / 3;
    known
        .into_iter()
        .filter(|name| name.len() <= NAME_BYTES_MAX)
        .filter_map(|name| {
            let known = name.to_ascii_lowercase().replace('-', "_");
            let distance = distance(&typed, &known);
            let begins =
                allowed > 0 && (known.starts_with(&typed) || (known.len() > 2 && typed.starts_with(&known)));
            (distance <= allowed || begins).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// `did you mean …` for an unknown name, with a leading separator, or nothing.
pub(super) fn hint<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(typed, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`: the optimal string alignment distance.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        let known = ["enabled", "capacity", "priority", "models", "long_context_capacity"];
        for (typed, meant) in [
            ("enable", Some("enabled")),
            ("capcity", Some("capacity")),
            ("prioirty", Some("priority")),
            ("Models", Some("models")),
            ("long-context-capacity", Some("long_context_capacity")),
            ("colour", None),
            ("cap", Some("capacity")),
            ("b", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }
}
