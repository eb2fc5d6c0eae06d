//! Output that was promised to keep a JSON Schema (SEG-8).
