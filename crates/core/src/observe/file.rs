//! A file of events: one for each rank.
//!
//! A file begins with [`HEAD`]. Then come the events, each as four bytes for its length (little-endian), and the event
//! in the encoding of `postcard`.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::Observer;
use super::event::Event;
use crate::ground::lock;

const HEAD: &[u8] = concat!("tidegate ", env!("CARGO_PKG_VERSION"), " events\n").as_bytes();

/// Writes all events of a rank to a file in a folder: `rank-0.tidegate`, and so on. Make one for
/// each rank: events of several ranks would be mixed.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tidegate::host::prelude::*;
/// use tidegate::observe::{Event, Recorder, read};
/// use tidegate::WorldOptions;
///
/// # fn main() -> Result<()> {
/// let folder = std::env::temp_dir().join(format!("events-{}", std::process::id()));
/// let recorders = [0, 1].map(|_| Arc::new(Recorder::new(&folder).unwrap()));
/// World::local_with(2, |rank| WorldOptions::new().observer(recorders[rank].clone()), |world| {
///     stream!(let s = world.stream().unwrap());
///     s.synchronize().unwrap();
/// });
/// let events = read(&folder.join("rank-1.tidegate")).map_err(Error::other)?;
/// let [joined, .., left] = &events[..] else { panic!("{events:?}") };
/// assert!(matches!(joined, Event::Joined(_)) && matches!(left, Event::Left { .. }));
/// assert!(events.iter().any(|event| matches!(event, Event::Made { stream: 0, .. })));
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
pub struct Recorder {
    folder: PathBuf,
    file: Mutex<State>,
}

enum State {
    /// The rank has not joined yet.
    New,
    Open(BufWriter<File>),
    /// It could not write, which it has said.
    Failed,
}

impl Recorder {
    /// Makes a recorder, and the folder if there is none. The file is made when the rank joins the job. A file of an
    /// earlier job is replaced.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        Ok(Recorder {
            folder,
            file: Mutex::new(State::New),
        })
    }

    /// The file of a rank in a folder.
    pub fn file(folder: &Path, rank: u32) -> PathBuf {
        folder.join(format!("rank-{rank}.tidegate"))
    }

    fn write(&self, does: impl FnOnce(&mut State) -> io::Result<()>) {
        let mut state = lock(&self.file);
        if let Err(error) = does(&mut state) {
            *state = State::Failed;
            let folder = self.folder.display();
            let text = format!("no more events are written to {folder}: {error}");
            tidegate_hal::say!(text, io::stderr());
        }
    }
}

impl Observer for Recorder {
    fn event(&self, event: &Event) {
        self.write(|state| {
            if let (State::New, Event::Joined(joined)) = (&*state, event) {
                let file = File::create(Self::file(&self.folder, joined.rank))?;
                let mut file = BufWriter::with_capacity(1 << 16, file);
                file.write_all(HEAD)?;
                write(&mut file, event)?;
                // If the rank dies soon, its file says at least who it was.
                file.flush()?;
                *state = State::Open(file);
                return Ok(());
            }
            match state {
                State::Open(file) => write(file, event),
                State::New | State::Failed => Ok(()),
            }
        });
    }

    fn returns(&self) -> bool {
        true
    }

    fn flush(&self) {
        self.write(|state| match state {
            State::Open(file) => file.flush(),
            State::New | State::Failed => Ok(()),
        });
    }
}

fn write(file: &mut impl io::Write, event: &Event) -> io::Result<()> {
    let bytes = postcard::to_stdvec(event).map_err(io::Error::other)?;
    file.write_all(&(bytes.len() as u32).to_le_bytes())?;
    file.write_all(&bytes)
}

/// Why a file of events cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// It is no file of events, or another version of tidegate has written it.
    #[error("{}: no file of events of tidegate {}", path.display(), env!("CARGO_PKG_VERSION"))]
    Head {
        /// The file.
        path: PathBuf,
    },
    /// An event cannot be read.
    #[error("{}: the event at byte {at} is broken", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where it begins.
        at: usize,
    },
}

/// Reads a file of events. If the rank ended in the middle of an event, that event is left out.
///
/// # Errors
///
/// [`ReadError`].
///
/// # Examples
///
/// See [`Recorder`].
pub fn read(path: &Path) -> Result<Vec<Event>, ReadError> {
    let io = |error| ReadError::Io {
        path: path.to_owned(),
        error,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(io)?;
    if HEAD.starts_with(&bytes) {
        // The rank ended before it had written anything.
        return Ok(Vec::new());
    }
    let Some(mut rest) = bytes.strip_prefix(HEAD) else {
        let path = path.to_owned();
        return Err(ReadError::Head { path });
    };
    let mut events = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let Some((event, behind)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)
        else {
            break;
        };
        let broken = |_| ReadError::Broken {
            path: path.to_owned(),
            at: bytes.len() - rest.len(),
        };
        events.push(postcard::from_bytes(event).map_err(broken)?);
        rest = behind;
    }
    Ok(events)
}
