//! Reading callgrind's profiles. Pure. The format: valgrind's manual, "Callgrind Format Specification".

use std::collections::{BTreeMap, HashMap};

/// Instructions by function, each its own without those it calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    functions: BTreeMap<String, f64>,
}

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A line that the format does not have.
    #[error("line {0} is not of callgrind's format")]
    Line(usize),
    /// The parts do not add up to the whole that the file states.
    #[error("functions add up to {sum}, the profile says {summary}")]
    Sum {
        /// What the functions add up to.
        sum: u64,
        /// What the file says.
        summary: u64,
    },
    /// There is no total.
    #[error("there is no summary")]
    NoSummary,
}

impl Profile {
    /// Reads a profile of one event, instructions executed.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        let (mut current, mut own, mut summary, mut is_call) = ("?", 0, None, false);
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(name) = line.strip_prefix("fn=") {
                *functions.entry(clean(current)).or_default() += std::mem::take(&mut own);
                current = resolve(&mut names, name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                // The name may be given here for the first time.
                resolve(&mut names, name);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if let Some(total) = line.strip_prefix("summary:") {
                summary = total.trim().parse().ok();
            } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
                // A position and a cost; behind `calls=` the cost is that of the called.
                let cost = line.split_ascii_whitespace().nth(1).unwrap_or("0");
                let cost: u64 = cost.parse().map_err(|_| ProfileError::Line(number))?;
                own += if std::mem::take(&mut is_call) { 0 } else { cost };
            }
        }
        *functions.entry(clean(current)).or_default() += own;
        functions.retain(|_, cost| *cost > 0);
        let (sum, summary) = (functions.values().sum(), summary.ok_or(ProfileError::NoSummary)?);
        if sum != summary {
            return Err(ProfileError::Sum { sum, summary });
        }
        Ok(Self { functions: functions.into_iter().map(|(name, cost)| (name, cost as f64)).collect() })
    }

    /// All instructions.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.functions.values().sum()
    }

    /// What this one has more than `other`; less counts as negative.
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        for (name, cost) in &other.functions {
            *self.functions.entry(name.clone()).or_default() -= cost;
        }
        self
    }

    /// Every cost by `count`.
    #[must_use]
    pub fn divided_by(mut self, count: f64) -> Self {
        self.functions.values_mut().for_each(|cost| *cost /= count);
        self
    }

    /// Functions and their costs, in order of their names.
    pub fn functions(&self) -> impl Iterator<Item = (&str, f64)> {
        self.functions.iter().map(|(name, cost)| (name.as_str(), *cost))
    }
}

/// `(12) name` defines a name, `(12)` repeats it.
fn resolve<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    let Some((id, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')) else { return text };
    match name.trim() {
        "" => names.get(id).copied().unwrap_or("?"),
        name => {
            names.insert(id, name);
            name
        }
    }
}

/// A name without what changes from build to build: the hash at its end, the number of a recursion level.
fn clean(name: &str) -> String {
    let name = name.split_once("'2").map_or(name, |(name, _)| name);
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    match name.rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version: 1\ncreator: callgrind\npositions: line\nevents: Ir\nsummary: 127\n\n\
        ob=(1) /bin/x\nfl=(1) a.rs\nfn=(1) a::b::h0123456789abcdef\n5 10\n+2 7\ncfn=(2) c\ncalls=3 9\n* 400\n\
        fi=(2) c.rs\n7 100\n\nfn=(2)\n9 8\n\nfn=(3) a::b'2\n1 2\n";

    fn cost(profile: &Profile, name: &str) -> f64 {
        profile.functions().find(|(own, _)| *own == name).map_or(0.0, |(_, cost)| cost)
    }

    #[test]
    fn own_costs_are_summed_and_calls_are_not() {
        let profile = Profile::parse(TEXT).unwrap();
        assert_eq!(cost(&profile, "a::b"), 119.0);
        assert_eq!(cost(&profile, "c"), 8.0);
        assert_eq!(profile.total(), 127.0);
    }

    #[test]
    fn a_profile_that_does_not_add_up_is_refused() {
        let wrong = TEXT.replace("summary: 127", "summary: 128");
        assert_eq!(Profile::parse(&wrong), Err(ProfileError::Sum { sum: 127, summary: 128 }));
        assert_eq!(Profile::parse("fn=(1) a\n5 1\n"), Err(ProfileError::NoSummary));
        assert_eq!(Profile::parse("fn=(1) a\n5 x\nsummary: 0\n"), Err(ProfileError::Line(2)));
    }

    #[test]
    fn differences_are_taken_function_by_function() {
        let profile = Profile::parse(TEXT).unwrap();
        let less =
            Profile::parse(&TEXT.replace("9 8", "9 4").replace("summary: 127", "summary: 123")).unwrap();
        let difference = profile.minus(&less).divided_by(2.0);
        assert_eq!((cost(&difference, "c"), cost(&difference, "a::b"), difference.total()), (2.0, 0.0, 2.0));
    }
}
