//! Requests made anew: to go on with an answer, or to have one again that keeps its schema.
