//! Latency and bandwidth of puts, as MPI people measure them: `cargo bench --bench osu -- --help`.

fn main() -> std::process::ExitCode {
    tidegate_bench::osu::main()
}
