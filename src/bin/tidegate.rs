//! The launcher: `tidegate run -n 8 PROGRAM ARGS…`.
fn main() {}
