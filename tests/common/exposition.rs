//! A reader of the text format of Prometheus, version 0.0.4, as its page on exposition formats says. It refuses all that
//! the page does not allow.

use std::collections::{BTreeMap, BTreeSet};

/// The samples: the name and the labels of each, with the value.
pub(crate) type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads a text.
///
/// # Panics
///
/// If it has another format, with the line.
pub(crate) fn read(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line must end");
    let (mut samples, mut types) = (Samples::new(), BTreeMap::new());
    let (mut helped, mut over) = (BTreeSet::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        let read = || -> Option<(String, Line)> {
            match line.strip_prefix("# ") {
                Some(comment) => comment_line(comment),
                None => sample(line),
            }
        };
        let (name, read) = read().unwrap_or_else(|| panic!("not of the format: {line}"));
        // All lines of a metric are one group, and what describes it comes first.
        if name != current {
            assert!(over.insert(std::mem::replace(&mut current, name.clone())));
            assert!(!over.contains(&name), "a second group: {line}");
        }
        match read {
            Line::Help => assert!(helped.insert(name), "a second help: {line}"),
            Line::Type(kind) => {
                assert!(!samples.keys().any(|(metric, _)| *metric == name));
                // A convention, and a check of `promtool`.
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(types.insert(name, kind).is_none(), "a second type: {line}");
            }
            Line::Sample(labels, value) => {
                assert!(types.contains_key(&name), "no type: {line}");
                let before = samples.insert((name, labels), value);
                assert!(before.is_none(), "a second sample: {line}");
            }
        }
    }
    samples
}

enum Line {
    Help,
    Type(String),
    Sample(BTreeMap<String, String>, f64),
}

fn is_name(text: &str, colons: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    text.chars().all(allowed) && text.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

fn comment_line(comment: &str) -> Option<(String, Line)> {
    let (word, rest) = comment.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    let line = match word {
        "HELP" => Line::Help,
        "TYPE" => {
            let types = ["counter", "gauge", "histogram", "summary", "untyped"];
            Line::Type(types.contains(&rest).then(|| rest.to_owned())?)
        }
        _ => return None,
    };
    is_name(name, true).then(|| (name.to_owned(), line))
}

fn sample(line: &str) -> Option<(String, Line)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"")?;
            let (value, behind) = quoted(behind)?;
            rest = behind.strip_prefix(',').unwrap_or(behind);
            (rest.starts_with('}') || behind.starts_with(',')).then_some(())?;
            is_name(label, false).then_some(())?;
            labels
                .insert(label.to_owned(), value)
                .is_none()
                .then_some(())?;
        }
        rest = &rest[1..];
    }
    // Rust reads all that Go's `ParseFloat` writes in this format. A time may follow, which is not written here.
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(name, true).then(|| (name.to_owned(), Line::Sample(labels, value)))
}

/// The value of a label, and what comes behind its quotation mark.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    loop {
        match chars.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            (_, c) => value.push(c),
        }
    }
}
