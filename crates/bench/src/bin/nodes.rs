//! Makes the tables of `scripts/nodes.sh`: `nodes DIR [NAME=VALUE...] [--charts DIR]`. The script runs it.

use clap::Parser;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_bench::nodes::Measured;
use tidegate_bench::report::About;

/// Prints the table of a run of scripts/nodes.sh, and writes results.json and SVG files; ends with 1 if anything failed,
/// was not verified, or was not run
#[derive(Debug, Parser)]
#[command(name = "nodes")]
struct Args {
    /// The folder that the script has left
    #[arg(value_name = "DIR")]
    from: PathBuf,

    /// More facts about the run
    #[arg(value_name = "NAME=VALUE", value_parser = pair)]
    about: Vec<(String, String)>,

    /// Where the pictures go (default: DIR/charts)
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let found = About::detect("scripts/nodes.sh", "");
    let mut about = args.about;
    for (name, value) in [
        ("date", found.date),
        ("processor", found.processor),
        ("system", found.system),
    ] {
        // When a run is drawn again, it is known when it was.
        if about.iter().all(|(other, _)| other != name) {
            about.push((name.to_owned(), value));
        }
    }
    let to = args.charts.unwrap_or_else(|| args.from.join("charts"));
    let measured = Measured::read(&args.from, about);
    let written = measured.and_then(|all| Ok((all.write(&args.from, &to)?, all)));
    match written {
        Err(error) => {
            eprintln!("nodes: {error}");
            ExitCode::from(2)
        }
        Ok((files, measured)) => {
            // Not `print!`: it panics if the reader has gone.
            let mut out = std::io::stdout().lock();
            _ = write!(out, "{}", measured.table());
            for path in files {
                _ = writeln!(out, "{}", path.display());
            }
            ExitCode::from(u8::from(!measured.problems().is_empty()))
        }
    }
}
