//! Draws the results of `scripts/gpu.sh`: `charts DIR... [--to DIR]`. `cargo xtask charts` runs it.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draws the results of scripts/gpu.sh, as SVG files
#[derive(Debug, Parser)]
#[command(name = "charts")]
struct Args {
    /// The folders that the script has left; more than one where the steps were run in parts
    #[arg(value_name = "DIR", required = true)]
    from: Vec<PathBuf>,

    /// Where the pictures go
    #[arg(long, value_name = "DIR", default_value = "benches/charts")]
    to: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match tidegate_bench::charts::run(&args.from, &args.to) {
        Err(error) => {
            eprintln!("charts: {error}");
            ExitCode::from(2)
        }
        Ok((written, missing)) => {
            for path in &written {
                println!("{}", path.display());
            }
            for missing in &missing {
                eprintln!("charts: {missing}");
            }
            ExitCode::from(u8::from(written.is_empty()))
        }
    }
}
