//! What an error of a provider is taken for (SEG-8).
