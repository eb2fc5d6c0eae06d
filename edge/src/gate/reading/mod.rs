//! Raw streams, event by event: what is only a beginning, what is content, what is a failure.

/// Which of the texts of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// What the client shows.
    Content,
    /// What the model thought.
    Reasoning,
    /// Arguments of a tool call.
    Arguments,
}
