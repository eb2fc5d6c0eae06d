//! Raw streams, event by event: what is only a beginning, what is content, what is a failure.
