//! How the launcher learns which rank's failure was first.
//!
//! # Model
//!
//! A rank that fails because of another one often ends before that one: it has less to clean up. So the order in which
//! processes end says little, and each rank tells the launcher because of which rank it fails. The launcher makes a
//! file of memory that all ranks of its machine inherit, with a word for each rank. A rank writes its word when a call
//! of its program fails. The launcher reads the word when the rank's process has ended.
//!
//! # Failure
//!
//! A rank without the file tells nothing. The launcher trusts the words of its own job, and checks only that they name
//! ranks.

use crate::error::BootError;
use crate::inherit::{announced, came_with_the_process, duplicate, is_inherited};
use rustix::fs::{FileType, MemfdFlags, fstat, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;

/// The variable that names the inherited file.
pub const ENDS_FD: &str = tidegate_hal::variables::ENDS_FD.name;

/// The bytes of a word. It is the number of a rank plus 1, or 0.
const WORD: usize = size_of::<u32>();

/// For each rank of a job, the rank because of which it fails.
#[derive(Debug)]
pub struct Ends(File);

impl AsFd for Ends {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Ends {
    /// The file for a job of `ranks` ranks, in which no rank has told anything.
    pub fn new(ranks: usize) -> io::Result<Self> {
        let file = memfd_create("tidegate-ends", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (ranks * WORD) as u64)?;
        Ok(Self(file.into()))
    }

    /// The file that the launcher left open for this process, if it has one.
    pub(crate) fn inherited() -> Result<Option<Self>, BootError> {
        let Some((value, number, inode)) = announced(ENDS_FD)? else {
            return Ok(None);
        };
        let file = meant(number, inode).ok().flatten();
        Ok(file
            .filter(|_| came_with_the_process(ENDS_FD, &value))
            .map(Self))
    }

    /// Tells because of which rank this one fails, if it fails.
    pub(crate) fn note(&self, rank: usize, first: Option<usize>) {
        let word = first.map_or(0, |first| first as u32 + 1);
        // If it fails, the launcher names the rank that ended first.
        let _ = self
            .0
            .write_all_at(&word.to_ne_bytes(), (rank * WORD) as u64);
    }

    /// The rank because of which a rank has failed, as that rank has told.
    pub fn told(&self, rank: usize) -> Option<usize> {
        let mut word = [0; WORD];
        self.0.read_exact_at(&mut word, (rank * WORD) as u64).ok()?;
        (u32::from_ne_bytes(word) as usize).checked_sub(1)
    }
}

/// A descriptor of our own for an inherited file, if it is the one with this inode.
fn meant(number: RawFd, inode: u64) -> io::Result<Option<File>> {
    let inherited = is_inherited(number)?;
    let file = duplicate(number)?;
    let found = fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    Ok((inherited && is_file && found.st_ino == inode).then(|| file.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inherit::announce;
    use rustix::io::{FdFlags, fcntl_setfd};
    use std::os::fd::AsRawFd;

    #[test]
    fn each_rank_tells_for_itself() {
        let ends = Ends::new(3).unwrap();
        ends.note(0, Some(2));
        ends.note(2, Some(0));
        assert_eq!(
            [0, 1, 2].map(|rank| ends.told(rank)),
            [Some(2), None, Some(0)]
        );
        ends.note(0, None);
        assert_eq!(ends.told(0), None);
        assert_eq!(ends.told(3), None, "there is no such rank");
    }

    #[test]
    fn only_the_inherited_file_itself_is_meant() {
        let ends = Ends::new(1).unwrap();
        let number = ends.as_fd().as_raw_fd();
        let value = announce(&ends).unwrap();
        let inode = value.split_once(':').unwrap().1.parse().unwrap();
        let is_meant = |inode| meant(number, inode).unwrap().is_some();
        assert!(!is_meant(inode), "this program opened it");
        fcntl_setfd(&ends, FdFlags::empty()).unwrap();
        assert!(is_meant(inode));
        assert!(!is_meant(inode + 1));
        assert!(!came_with_the_process(ENDS_FD, &value));
        let null = File::open("/dev/null").unwrap();
        fcntl_setfd(&null, FdFlags::empty()).unwrap();
        let inode = fstat(&null).unwrap().st_ino;
        assert!(meant(null.as_raw_fd(), inode).unwrap().is_none(), "no file");
        assert!(meant(RawFd::MAX, inode).is_err(), "not open");
    }
}
