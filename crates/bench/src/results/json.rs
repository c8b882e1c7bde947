//! Rows as JSON.

use super::Row;
use std::io;
use std::path::Path;

/// The rows as a JSON array with one object a line. Fields are those of [`Row`] and of its
/// [`Setting`](super::Setting), side by side; a missing time is `null`.
pub fn to_json(rows: &[Row]) -> String {
    let rows: Vec<String> = rows
        .iter()
        // Only maps with strange keys and failing writers can fail here.
        .map(|r| serde_json::to_string(r).expect("a row is plain data"))
        .collect();
    if rows.is_empty() {
        "[]\n".into()
    } else {
        format!("[\n{}\n]\n", rows.join(",\n"))
    }
}

/// Writes [`to_json`] to a file.
///
/// # Errors
///
/// When the file cannot be written; the message names it.
pub fn write(path: &Path, rows: &[Row]) -> io::Result<()> {
    std::fs::write(path, to_json(rows))
        .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RankSample;
    use crate::results::tests::{rows, setting};

    #[test]
    fn one_object_a_row() {
        let mut rows = rows();
        rows.push(Row::new(
            "bad",
            setting(4),
            &[vec![RankSample::failed(2, "timed out")]],
        ));
        let text = to_json(&rows);
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
        assert_eq!(text.lines().count(), rows.len() + 2);
        let first: serde_json::Value =
            serde_json::from_str(text.lines().nth(1).unwrap().trim_end_matches(',')).unwrap();
        for field in [
            "variant",
            "device",
            "transport",
            "ranks",
            "grid",
            "elements",
            "points",
            "counts",
            "compute",
            "us_avg",
            "us_min",
            "us_max",
            "enqueue_us",
            "cpu_us",
            "launches",
            "verified",
            "failed",
        ] {
            assert!(!first[field].is_null(), "{field}");
        }
        assert!(text.contains("\"us_max\":null"));
        assert_eq!(serde_json::from_str::<Vec<Row>>(&to_json(&[])).unwrap(), []);
    }

    #[test]
    fn errors_name_the_file() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("rows.json"), &rows()).unwrap();
        let error = write(&dir.path().join("no/rows.json"), &rows()).unwrap_err();
        assert!(error.to_string().contains("no/rows.json"));
    }
}
