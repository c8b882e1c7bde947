//! Files of results. Each error names its file.

use super::Row;
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of results cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A file or folder that cannot be used.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// The attempt: `read`, `write`, …
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file that holds something else.
    #[error("{} does not hold what it should: {error}", path.display())]
    Content {
        /// The file that holds something else.
        path: PathBuf,
        /// The place in the file, and what was expected there.
        error: serde_json::Error,
    },
    /// A line of the steps that is none.
    #[error("{}, line {line} is no step", path.display())]
    Step {
        /// The file that has the steps.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// The command line named no folder of results.
    #[error("no folder with results was named")]
    Nothing,
}

/// Makes an error of the system's error.
pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { what, path, error }
}

/// The text of a file.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(failed("read", path))
}

/// The value in a JSON file.
///
/// # Errors
///
/// [`FileError::Io`], [`FileError::Content`].
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    serde_json::from_str(&read(path)?).map_err(|error| FileError::Content {
        path: path.to_owned(),
        error,
    })
}

/// The rows in a JSON file; none if it is empty, as a job leaves it that ended early.
///
/// # Errors
///
/// [`FileError::Io`], [`FileError::Content`].
pub fn read_rows(path: &Path) -> Result<Vec<Row>, FileError> {
    match read(path)?.is_empty() {
        true => Ok(Vec::new()),
        false => read_json(path),
    }
}

/// Writes a text to a file, whose folder is made if it is missing.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text))
        .map_err(failed("write", path))
}

/// Items (rows, say) as a JSON array with one object a line. Fields of a row are those of [`Row`] and of its
/// [`Setting`](super::Setting), side by side; a missing time is `null`.
pub fn to_json<T: Serialize>(items: &[T]) -> String {
    // Only maps with strange keys and failing writers can fail here.
    let one = |item| serde_json::to_string(item).expect("an item is plain data");
    let lines: Vec<String> = items.iter().map(one).collect();
    match items.is_empty() {
        true => "[]\n".into(),
        false => format!("[\n{}\n]\n", lines.join(",\n")),
    }
}

/// Writes [`to_json`] to a file.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write_rows(path: &Path, rows: &[Row]) -> Result<(), FileError> {
    write(path, &to_json(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RankSample;
    use crate::results::tests::{rows, setting};

    #[test]
    fn one_object_a_row() {
        let mut rows = rows();
        let failed = vec![RankSample::failed(2, "timed out")];
        rows.push(Row::new("bad", setting(4), &[failed]));
        let text = to_json(&rows);
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
        assert_eq!(text.lines().count(), rows.len() + 2);
        let line = text.lines().nth(1).unwrap().trim_end_matches(',');
        let first: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = "variant device transport ranks grid elements points counts compute us_avg us_min us_max \
                      enqueue_us cpu_us launches verified failed";
        for field in fields.split_whitespace() {
            assert!(!first[field].is_null(), "{field}");
        }
        assert!(text.contains("\"us_max\":null"));
        assert_eq!(
            serde_json::from_str::<Vec<Row>>(&to_json::<Row>(&[])).unwrap(),
            []
        );
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/rows.json");
        write_rows(&path, &rows()).unwrap();
        assert_eq!(read_rows(&path).unwrap(), rows());
        let inside = write(&path.join("no"), "").unwrap_err().to_string();
        assert!(inside.starts_with("cannot write ") && inside.contains("rows.json/no"));
        let none = read(&dir.path().join("none")).unwrap_err().to_string();
        assert!(none.starts_with("cannot read ") && none.contains("none"));
        write(&path, "{").unwrap();
        let other = read_rows(&path).unwrap_err().to_string();
        assert!(other.contains("rows.json does not hold"), "{other}");
        write(&path, "").unwrap();
        assert_eq!(read_rows(&path).unwrap(), []);
    }
}
