//! The closed table of what a provider's error is worth (SEG-8). Which answer is of which class the Edge's reader says.

/// What kind of error a provider gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// 429, or 503 with or without `Retry-After`: it is full, not broken.
    Backpressure,
    /// Another 4xx, or the 500 that engines give for a prompt too long: the request's own fault.
    Client,
    /// Another 5xx.
    Server,
    /// The connection was refused, reset, or cut before content.
    Transport,
    /// A 200 with nothing in it.
    Empty,
    /// An event that is no JSON, or no event of its surface.
    Malformed,
    /// An error event before content whose code says the server's side, or nothing known.
    InBand,
    /// 401 or 403 for the credential that the Edge itself sends.
    Credential,
}

/// How often an error of a class may lead to an exact replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    Never,
    /// Once for each request.
    Once,
    WithinBudget,
}

impl ErrorClass {
    /// Every class, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Backpressure,
        Self::Client,
        Self::Server,
        Self::Transport,
        Self::Empty,
        Self::Malformed,
        Self::InBand,
        Self::Credential,
    ];

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Backpressure => "backpressure",
            Self::Client => "client",
            Self::Server => "server",
            Self::Transport => "transport",
            Self::Empty => "empty",
            Self::Malformed => "malformed",
            Self::InBand => "in_band",
            Self::Credential => "credential",
        }
    }

    pub(super) fn replay(self) -> Replay {
        match self {
            // Another provider may be as full, and the client is told when to come back: a replay would only add load.
            Self::Backpressure => Replay::Never,
            // Every provider would say the same.
            Self::Client => Replay::Never,
            // The operator's to mend; spending budget would only hide it.
            Self::Credential => Replay::Never,
            Self::Server | Self::Transport | Self::Empty | Self::Malformed => Replay::WithinBudget,
            // It is not known whose fault it was; a second one of the kind makes it the request's.
            Self::InBand => Replay::Once,
        }
    }

    /// Whether a model's only provider may have the request back after such an error: those that pass by themselves.
    pub fn may_return_to_sole(self) -> bool {
        matches!(self, Self::Server | Self::Transport)
    }
}
