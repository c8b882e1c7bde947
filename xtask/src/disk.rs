//! The room on the disk of the build. A check from scratch takes gigabytes, and compilers report a full disk as if the
//! code were wrong. So the table says what each step has left, and a step that fails on a full disk says so.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A number of bytes, printed in gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Room(u64);

impl Room {
    /// Below this, the next program that is linked may not fit.
    const SCARCE: Room = Room(512 << 20);

    /// What is free for this user on the disk of `folder`; nothing where `df` cannot tell.
    pub(crate) fn free(folder: &Path) -> Option<Room> {
        let output = Command::new("df").arg("-Pk").arg(folder).output().ok()?;
        Room::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Parses what `df -Pk` prints of one file system (POSIX, `df`, "STDOUT"): a line of titles, then the name, its
    /// size, what is used, and what is free, in KiB.
    fn parse(output: &str) -> Option<Room> {
        let kib: u64 = output
            .lines()
            .nth(1)?
            .split_whitespace()
            .nth(3)?
            .parse()
            .ok()?;
        Some(Room(kib << 10))
    }

    /// Whether it is too little to build on.
    pub(crate) fn is_scarce(self) -> bool {
        self < Room::SCARCE
    }

    #[cfg(test)]
    pub(crate) fn of_megabytes(megabytes: u64) -> Room {
        Room(megabytes * 1_000_000)
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} GB", self.0 as f64 / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_df_prints_is_read() {
        let output = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 264 200 1000000 87% /\n";
        let room = Room::parse(output).unwrap();
        assert_eq!(
            (room, room.to_string().as_str()),
            (Room(1_024_000_000), "1.0 GB")
        );
        assert!(!room.is_scarce() && Room::of_megabytes(200).is_scarce());
        assert_eq!(Room::parse("df: no such folder"), None);
    }

    #[test]
    fn this_machine_has_a_disk() {
        assert!(Room::free(Path::new("/")).is_some());
    }
}
