//! The folder of a trace: a file of events for each rank.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidegate_core::observe::{self, Recorder};

use super::check;
use super::error::TraceError;
use super::rank::Rank;

/// The files of ranks in a folder, with their numbers, in ascending order.
fn files(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| {
            let number = name.strip_prefix("rank-")?.strip_suffix(".tidegate")?;
            number.parse().ok()
        });
        // Other spellings of a number, such as 07, are not names of such files.
        if let Some(number) = number
            && Recorder::file(folder, number) == folder.join(&name)
        {
            files.push((number, folder.join(name)));
        }
    }
    files.sort();
    Ok(files)
}

/// Makes a folder for a new trace, and removes the files of ranks of an older one. Returns how many there were.
pub(super) fn clear(folder: &Path) -> Result<usize, TraceError> {
    let io = |error| TraceError::Folder(folder.to_owned(), error);
    fs::create_dir_all(folder).map_err(io)?;
    let files = files(folder).map_err(io)?;
    for (_, path) in &files {
        fs::remove_file(path).map_err(io)?;
    }
    Ok(files.len())
}

/// Reads the files of all ranks.
pub(super) fn read(folder: &Path) -> Result<Vec<Rank>, TraceError> {
    let files = files(folder).map_err(|error| TraceError::Folder(folder.to_owned(), error))?;
    let mut ranks = Vec::new();
    for (_, path) in files {
        let events = observe::read(&path)?;
        if let Some((event, flaw)) = check::flaw(&events) {
            return Err(TraceError::Broken(path, event, flaw));
        }
        // A rank that died at once may have written nothing yet.
        if !events.is_empty() {
            ranks.push(Rank::new(&events));
        }
    }
    match ranks.is_empty() {
        true => Err(TraceError::Empty(folder.to_owned())),
        false => Ok(ranks),
    }
}
