//! The compiler's messages about a program, without the parts that differ between machines, or that change with each
//! line that is added to the library.

/// Items of lists begin further to the right than this. The next constant says how many of them are kept.
const LIST: usize = 10;
const LISTED: usize = 8;
const MORE: usize = LISTED + 1;

/// All messages about the program at `path`, whose folder is below `root`.
pub(crate) fn said(errors: &str, path: &str, root: &str) -> String {
    let errors = errors.replace(root, "$DIR");
    let lines: Vec<_> = errors.lines().filter(|line| is_kept(line)).collect();
    let begins = |line: &&str| line.starts_with("error") || line.starts_with("warning");
    let mut all = Vec::new();
    for message in lines.chunk_by(|_, next| !begins(next)) {
        all.extend(shortened(narrowed(message, path)));
    }
    // Where lines are left out, the lines above and below are empty.
    all.dedup_by(|next, line| next.is_empty() && line.is_empty());
    format!("{}\n", all.join("\n").trim())
}

/// Whether a message is about the program, and not the number of errors, or a hint for more information.
fn is_kept(line: &str) -> bool {
    let left_out = [
        "error: aborting due to ",
        "Some errors have detailed explanations",
        "For more information about ",
        "= note: the full name for the type has been written to",
        "= note: the full type name has been written to",
    ];
    let line = line.trim_start();
    !left_out.iter().any(|begin| line.starts_with(begin))
}

/// The source of a message's lines.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Program,
    Library,
    /// The standard library, whose sources are quoted if they are installed.
    Std,
}

/// The lines of a message, with only the program's own line numbers, and a margin as wide as these.
fn narrowed(message: &[&str], path: &str) -> Vec<String> {
    let Some((wide, ..)) = message.iter().find_map(|line| place(line)) else {
        return message.iter().map(|line| (*line).to_owned()).collect();
    };
    let mut from = From::Program;
    let lines: Vec<_> = message
        .iter()
        .map(|line| {
            if let Some((.., file)) = place(line) {
                from = match file {
                    _ if file.starts_with(path) => From::Program,
                    _ if file.contains("/library/") => From::Std,
                    _ => From::Library,
                };
            } else if line.starts_with(char::is_alphabetic) {
                from = From::Program;
            }
            (*line, from)
        })
        .collect();
    let numbers = lines.iter().filter(|(_, from)| *from == From::Program);
    let lengths = numbers.filter_map(|(line, _)| Some(margin(line, wide)?.0.len()));
    let width = lengths.max().unwrap_or(1);
    let narrow = |(line, from): (&str, From)| {
        if let Some((_, arrow, file)) = place(line) {
            let file = match from {
                From::Program => file,
                From::Library | From::Std => &elsewhere(file),
            };
            return Some(format!("{:width$}{arrow}{file}", ""));
        }
        if let Some(rest) = line.strip_prefix("... ") {
            return Some(format!(
                "{:1$}{2}",
                "...",
                (width + 2).max(4),
                rest.trim_start()
            ));
        }
        let Some((number, rest)) = margin(line, wide) else {
            return Some(line.to_owned());
        };
        match from {
            From::Program => Some(format!("{number:>width$} {rest}")),
            From::Std if rest.starts_with('|') => None,
            From::Library | From::Std => Some(format!("{:width$} {rest}", "")),
        }
    };
    let narrowed = lines.into_iter().filter_map(narrow);
    narrowed.map(|line| line.trim_end().to_owned()).collect()
}

/// Only the first few of a long list of implementations, since the list grows with the library.
fn shortened(message: Vec<String>) -> impl Iterator<Item = String> {
    let mut listed = None;
    message.into_iter().filter_map(move |line| {
        let item = line.trim_start();
        let indent = line.len() - item.len();
        if item.starts_with("= help: the following ") && line.ends_with(':') {
            listed = Some(0);
        } else if indent <= LIST {
            listed = None;
        }
        let Some(number) = listed.as_mut().filter(|_| indent > LIST) else {
            return Some(line);
        };
        *number += 1;
        match *number {
            ..=LISTED => Some(line),
            MORE => Some(format!("{:1$}and $N others", "", indent - 2)),
            _ => None,
        }
    })
}

/// For a line with a place: the width of the margin, its arrow, and the place.
fn place(line: &str) -> Option<(usize, &str, &str)> {
    let place = line.trim_start();
    let (arrow, file) = place.split_at_checked(4)?;
    ["--> ", "::: "]
        .contains(&arrow)
        .then_some((line.len() - place.len(), arrow, file))
}

/// A line's number, which may be empty, and the text behind the margin, if it has one.
fn margin(line: &str, wide: usize) -> Option<(&str, &str)> {
    let (number, rest) = line.split_at_checked(wide + 1)?;
    let number = number.trim();
    // The continuation of a line begins far to the right.
    let is_margin = rest.starts_with(['|', '=', '+', '-', '~']) || rest.starts_with("        ");
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    (is_margin && is_number).then_some((number, rest))
}

/// A file outside of the program, without line and column.
fn elsewhere(place: &str) -> String {
    let file = place.split(':').next().unwrap_or(place);
    let file = file.strip_prefix("$DIR/").unwrap_or(file);
    match file.split_once("/library/") {
        Some((_, file)) => format!("$RUST/{file}"),
        None => file.to_owned(),
    }
}
