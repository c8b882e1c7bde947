//! The Faces benchmark: `cargo bench --bench faces -- --help`.

fn main() -> std::process::ExitCode {
    tidegate_bench::program::main()
}
