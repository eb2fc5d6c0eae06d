//! Whether a prompt was cut to the context window. Pure.
//!
//! Ollama does not say so: it leaves out old messages, or the middle of one that is too long, and answers. What can be seen is how
//! many tokens it evaluated. A prompt counts as cut when its length, estimated at four bytes a token, is at least a quarter
//! over what was evaluated, *and* what was evaluated fills the window (at least 15/16 of it: whole messages are left out).
//! Images count nothing. The estimate is coarse, so this is a hint for people and never an error.

use proto::run_input::RunInput;

/// Prompts that are estimated shorter are never asked about: no window in use is that small.
pub const SUSPICIOUS_TOKENS_MIN: u64 = 1024;

/// Tokens of all texts of `input`, at four bytes each.
#[must_use]
pub fn estimate(input: &RunInput) -> u64 {
    let turns = input.messages.iter().map(|turn| {
        let calls =
            turn.tool_calls.iter().map(|call| call.function.name.len() + call.function.arguments.len());
        turn.text.len() + turn.reasoning.len() + calls.sum::<usize>()
    });
    let tools = input.tools.iter().map(|tool| {
        let parameters = tool.parameters.as_ref().map_or(0, |raw| raw.get().len());
        tool.name.len() + tool.description.len() + parameters
    });
    (turns.sum::<usize>() + tools.sum::<usize>()) as u64 / 4
}

/// Whether a prompt of `estimated` tokens of which `evaluated` were evaluated can have been cut, whatever the window is.
#[must_use]
pub const fn is_suspicious(estimated: u64, evaluated: u64) -> bool {
    estimated >= SUSPICIOUS_TOKENS_MIN
        && evaluated > 0
        && estimated >= evaluated.saturating_add(evaluated / 4)
}

/// Whether it was, in a window of `window` tokens.
#[must_use]
pub const fn is_truncated(estimated: u64, evaluated: u64, window: u64) -> bool {
    window > 0 && is_suspicious(estimated, evaluated) && evaluated >= window - window / 16
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_calls_and_tools_count_and_images_do_not() {
        let input = json!({
            "messages": [{"role": "user", "text": "x".repeat(400), "images": ["y".repeat(4000)]},
                {"role": "assistant", "reasoning": "z".repeat(400), "tool_calls": [
                    {"id": "i", "type": "function", "function": {"name": "nnnn", "arguments": "{\"a\":12}"}}]}],
            "tools": [{"name": "nnnn", "description": "d".repeat(80), "parameters": {"a": 1}}],
        });
        let input = RunInput::from_json(input.to_string().as_bytes()).unwrap();
        assert_eq!(estimate(&input), (400 + 400 + 4 + 8 + 4 + 80 + 7) / 4);
        assert_eq!(estimate(&RunInput::default()), 0);
    }

    #[test]
    fn a_prompt_is_cut_when_the_window_is_full_and_the_prompt_was_clearly_longer() {
        for (estimated, evaluated, window, truncated) in [
            (8000, 4096, 4096, true),
            (8000, 3900, 4096, true),
            // Much room was left: the text has long tokens.
            (8000, 3000, 4096, false),
            // It fits, if only just.
            (4200, 4096, 4096, false),
            (8000, 4096, 32_768, false),
            (8000, 4096, 0, false),
            // Older versions report nothing for a prompt that was cached.
            (8000, 0, 4096, false),
            (900, 512, 512, false),
        ] {
            let found = is_truncated(estimated, evaluated, window);
            assert_eq!(found, truncated, "{estimated} {evaluated} {window}");
        }
    }
}
