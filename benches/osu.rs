//! Latency and bandwidth of puts, and sums over all ranks, as MPI people measure them: `cargo bench --bench osu -- --help`.

fn main() -> std::process::ExitCode {
    tidegate_bench::osu::main()
}
