//! A conversation as the text that a program reads from its standard input. Pure.
//!
//! One user message alone is its text, byte for byte. Anything else is every message under a line with its speaker, with an empty line
//! between two:
//!
//! ```text
//! System:
//! be brief
//!
//! User:
//! how far is the moon?
//! ```
//!
//! What somebody says is not escaped: a text may look as if another one had spoken, as it may with any program that reads text.

use proto::run_input::{Format, Role, RunInput, ToolChoice, Turn};
use thiserror::Error;

/// Why a conversation cannot be put to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PromptError {
    /// It has images.
    #[error("messages: images cannot be passed to a command-line model, which reads text only")]
    Images,
    /// It has tools that may be called.
    #[error("tools: a command-line model takes no tools")]
    Tools,
    /// It has calls of tools, or their results.
    #[error("messages: calls of tools and their results cannot be passed to a command-line model")]
    Calls,
    /// It wants an answer of a certain form.
    #[error("response_format: a command-line model answers with text only")]
    Format,
    /// Nobody says anything.
    #[error("messages: there is no text for the model to read")]
    Empty,
}

/// What the program is to read.
///
/// # Errors
/// [`PromptError`]: it asks for what no program that reads text can be asked.
pub fn render(input: &RunInput) -> Result<String, PromptError> {
    if !input.tools.is_empty() && input.tool_choice != ToolChoice::None {
        return Err(PromptError::Tools);
    }
    if !matches!(input.format, Format::Text) {
        return Err(PromptError::Format);
    }
    input.messages.iter().try_for_each(check)?;
    let said: Vec<_> = input.messages.iter().filter(|turn| !turn.text.is_empty()).collect();
    match said.as_slice() {
        [] => Err(PromptError::Empty),
        [only] if only.role == Role::User => Ok(only.text.clone()),
        turns => Ok(turns.iter().map(|turn| marked(turn)).collect::<Vec<_>>().join("\n")),
    }
}

fn check(turn: &Turn) -> Result<(), PromptError> {
    if !turn.images.is_empty() {
        return Err(PromptError::Images);
    }
    if turn.role == Role::Tool || !turn.tool_calls.is_empty() {
        return Err(PromptError::Calls);
    }
    Ok(())
}

fn marked(turn: &Turn) -> String {
    let speaker = match turn.role {
        Role::System => "System",
        Role::User => "User",
        Role::Assistant => "Assistant",
        Role::Tool => "Tool",
    };
    format!("{speaker}:\n{}\n", turn.text)
}

#[cfg(test)]
mod tests {
    use proto::run_input::{Tool, ToolCall};

    use super::*;

    fn turn(role: Role, text: &str) -> Turn {
        Turn { role, text: text.to_owned(), ..Turn::default() }
    }

    fn input(messages: Vec<Turn>) -> RunInput {
        RunInput { messages, ..RunInput::default() }
    }

    fn tools() -> Vec<Tool> {
        vec![Tool { name: "f".to_owned(), description: String::new(), parameters: None }]
    }

    // req: RUN-1
    #[test]
    fn one_users_message_is_its_text_alone_and_a_conversation_names_its_speakers() {
        use Role::{Assistant, System, User};
        for (turns, text) in [
            (vec![turn(User, " hi\n--help; $(id)\n")], " hi\n--help; $(id)\n"),
            (vec![turn(User, "a"), turn(Assistant, "")], "a"),
            (vec![turn(System, "a")], "System:\na\n"),
            (vec![turn(System, "a"), turn(User, "b")], "System:\na\n\nUser:\nb\n"),
            (
                vec![turn(User, "a\nb"), turn(Assistant, "c"), turn(User, "d\n")],
                "User:\na\nb\n\nAssistant:\nc\n\nUser:\nd\n\n",
            ),
        ] {
            assert_eq!(render(&input(turns)).unwrap(), text);
        }
    }

    // req: RUN-1
    #[test]
    fn what_no_text_can_carry_is_refused_by_name() {
        let user = || turn(Role::User, "a");
        let with = |change: fn(&mut RunInput)| {
            let mut input = input(vec![turn(Role::User, "a")]);
            change(&mut input);
            input
        };
        for (input, error) in [
            (input(vec![]), PromptError::Empty),
            (input(vec![turn(Role::User, "")]), PromptError::Empty),
            (input(vec![Turn { images: vec!["aGk=".to_owned()], ..user() }]), PromptError::Images),
            (input(vec![user(), turn(Role::Tool, "4")]), PromptError::Calls),
            (
                input(vec![
                    user(),
                    Turn { role: Role::Assistant, tool_calls: vec![ToolCall::default()], ..user() },
                ]),
                PromptError::Calls,
            ),
            (with(|input| input.tools = tools()), PromptError::Tools),
            (with(|input| input.format = Format::JsonObject), PromptError::Format),
        ] {
            assert_eq!(render(&input).unwrap_err(), error);
        }
        // Tools that must not be called need not be known.
        let input = with(|input| {
            input.tools = tools();
            input.tool_choice = ToolChoice::None;
        });
        assert_eq!(render(&input).unwrap(), "a");
    }
}
