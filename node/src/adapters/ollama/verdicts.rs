//! Models of one instance that are known to take no tools (RUN-4). Pure.

use std::collections::VecDeque;

/// Models that are remembered; the one remembered longest gives way, and is found out again when it is asked for.
pub const MODELS_MAX: usize = 256;

/// The models, oldest first.
#[derive(Debug, Default)]
pub struct Verdicts(VecDeque<String>);

impl Verdicts {
    /// Whether `model` has refused tools.
    #[must_use]
    pub fn refuses_tools(&self, model: &str) -> bool {
        self.0.iter().any(|known| known == model)
    }

    /// `model` has refused tools.
    pub fn note_refusal(&mut self, model: &str) {
        if self.refuses_tools(model) {
            return;
        }
        if self.0.len() >= MODELS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(model.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: RUN-4
    #[test]
    fn verdicts_are_of_one_model_and_bounded() {
        let mut verdicts = Verdicts::default();
        verdicts.note_refusal("a");
        verdicts.note_refusal("a");
        assert!(verdicts.refuses_tools("a") && !verdicts.refuses_tools("b"));
        for number in 1..MODELS_MAX {
            verdicts.note_refusal(&number.to_string());
        }
        assert!(verdicts.refuses_tools("a"));
        verdicts.note_refusal("one more");
        assert!(!verdicts.refuses_tools("a") && verdicts.refuses_tools("one more"));
        assert_eq!(verdicts.0.len(), MODELS_MAX);
    }
}
