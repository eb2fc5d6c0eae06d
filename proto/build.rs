//! Compiles `schema/runtime.proto` into `OUT_DIR` with a protobuf compiler written in Rust, so that a bare toolchain builds
//! the project. The result is never checked in and never edited (WIR-8).

use std::error::Error;

const SCHEMA: &str = "schema/runtime.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SCHEMA}");
    let descriptors = protox::compile([SCHEMA], ["schema"])?;
    prost_build::Config::new()
        // Bodies share the memory of the frame they came in.
        .bytes(["."])
        // `no_std` has no hash map, and an ordered one encodes equal messages to equal bytes.
        .btree_map(["."])
        .compile_fds(descriptors)?;
    Ok(())
}
