//! Columns of plain text.

use std::io;

/// Writes rows in columns, two spaces apart. The last column is not filled up.
pub(crate) fn write<const N: usize>(
    rows: &[[String; N]],
    indent: &str,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let mut line = String::from(indent);
        for (cell, width) in row.iter().zip(widths) {
            line += &format!("{cell:width$}  ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A number of bytes, as people say it.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift >= 1);
    match unit {
        Some((name, shift)) => format!("{} {name}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = [["a", "bb", "c"], ["aaa", "", "d"]].map(|row| row.map(str::to_owned));
        let mut out = Vec::new();
        write(&rows, "  ", &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  a    bb  c\n  aaa      d\n"
        );
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(64 << 10), "64 KiB");
        assert_eq!(bytes(63 << 30), "63 GiB");
        assert_eq!(bytes(5), "5 bytes");
    }
}
