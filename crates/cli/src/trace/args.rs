//! The command line of `tidegate trace`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::error::TraceError;
use super::job::Job;
use super::tables::Tables;
use super::view::View;
use super::{chrome, folder, page, summary};
use crate::options::JobEnd;
use crate::say::{print, say};

/// The arguments of `tidegate trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The folder to which the ranks of a job have written their events, by TIDEGATE_TRACE
    folder: PathBuf,

    /// Where to write the page; the default is trace.html in the folder
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Where to write the file for ui.perfetto.dev; the default is trace.json in the folder
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print the summary only, and write no files
    #[arg(long, conflicts_with_all = ["html", "json"])]
    summary: bool,
}

impl TraceArgs {
    pub(crate) fn run(self) -> u8 {
        let mut text = Vec::new();
        match self.text(&mut text) {
            Ok(()) => (!print(&text)).into(),
            Err(error) => {
                say(format_args!("{error}"));
                1
            }
        }
    }

    /// Writes the files, and the summary to `out`.
    fn text(self, out: &mut Vec<u8>) -> Result<(), TraceError> {
        let job = Job::new(folder::read(&self.folder)?);
        let tables = Tables::of(&job);
        summary::write(&job, &tables, out).expect("memory takes all");
        if self.summary {
            return Ok(());
        }
        let view = View::of(&job);
        let html = self.html.unwrap_or_else(|| self.folder.join("trace.html"));
        let json = self.json.unwrap_or_else(|| self.folder.join("trace.json"));
        file(&html, |out| page::write(&job, &tables, &view, out))?;
        let lines = summary::head(&job, &tables);
        file(&json, |out| chrome::write(&view, &lines, out))?;
        let (html, json) = (html.display(), json.display());
        let end = writeln!(
            out,
            "\nOpen {html} in a browser, or {json} in https://ui.perfetto.dev."
        );
        end.expect("memory takes all");
        Ok(())
    }
}

/// Writes a file.
fn file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), TraceError> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    written.map_err(|error| TraceError::Write(path.to_owned(), error))
}

/// Runs a job whose ranks write their events to a folder, and then tells of it. `run` gets the folder. Returns the exit
/// code.
pub(crate) fn traced(folder: &Path, run: impl FnOnce(OsString) -> JobEnd) -> u8 {
    let ready = folder::clear(folder).and_then(|old| {
        let whole = std::path::absolute(folder);
        let whole = whole.map_err(|error| TraceError::Folder(folder.to_owned(), error))?;
        Ok((old, whole))
    });
    let (old, whole) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            say(format_args!("{error}"));
            return 1;
        }
    };
    if old > 0 {
        let shown = folder.display();
        say(format_args!(
            "the trace of an earlier job in {shown} is replaced"
        ));
    }
    let JobEnd { code, is_unread } = run(whole.into());
    let args = TraceArgs {
        folder: folder.to_owned(),
        html: None,
        json: None,
        summary: false,
    };
    let mut text = Vec::new();
    let written = args.text(&mut text);
    let code = code.max(written.is_err().into());
    match written {
        _ if is_unread => {}
        // The output of the ranks is on stdout.
        Ok(()) => drop(io::stderr().write_all(&text)),
        Err(error) => say(format_args!("{error}")),
    }
    code
}
