//! Checks that the guide agrees with the code: its list of variables is complete, and the messages that it quotes
//! exist. Links between its pages lead to headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Tests use these to name a variable that has no meaning.
const NO_VARIABLES: [&str; 6] = [
    "TIDEGATE_DEFAULT",
    "TIDEGATE_ENGIN",
    "TIDEGATE_GPU_GATE",
    "TIDEGATE_HEARTBEAT",
    "TIDEGATE_NO_SUCH_VARIABLE",
    "TIDEGATE_RUOTE",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("the page can be read")
}

/// The sources in a folder.
fn sources(folder: &Path, found: &mut Vec<String>) {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    for path in entries.map(|entry| entry.expect("it can be read").path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path).expect("the source can be read"));
        }
    }
}

/// The texts of all string literals of a source.
fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source.chars().peekable();
    while let Some(char) = rest.next() {
        match char {
            '/' if rest.peek() == Some(&'/') => {
                while rest.next_if(|char| *char != '\n').is_some() {}
            }
            // A quote in a character literal. A lifetime has no closing quote.
            '\'' if rest.peek() == Some(&'"') => drop(rest.next()),
            '"' => found.push(literal(&mut rest)),
            _ => {}
        }
    }
    found
}

/// The text of a literal behind its first quote. An escape at the end of a line includes the spaces of the next one.
fn literal(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(char) = rest.next_if(|char| *char != '"') {
        match char {
            '\\' => match rest.next() {
                Some('\n') => while rest.next_if(|char| char.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    rest.next();
    text
}

/// A text in which each part in braces is replaced by `…`.
fn with_gaps(text: &str) -> String {
    let mut outside = String::new();
    let mut depth = 0usize;
    for char in text.chars() {
        match char {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    outside.push('…');
                }
            }
            other if depth == 0 => outside.push(other),
            _ => {}
        }
    }
    outside
}

/// The texts of all literals of the workspace, except for those of this file.
fn all_literals() -> Vec<String> {
    let mut files = Vec::new();
    for folder in ["crates", "src", "tests", "benches", "examples", "xtask"] {
        sources(&root().join(folder), &mut files);
    }
    let others = files
        .iter()
        .filter(|file| !file.contains("const NO_VARIABLES"));
    others.flat_map(|file| literals(file)).collect()
}

/// The variables that a text names.
fn variables(text: &str) -> BTreeSet<String> {
    let is_of_a_name =
        |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_';
    let named = text.match_indices("TIDEGATE_").map(|(at, _)| {
        let behind = &text[at..];
        let end = behind.find(|char| !is_of_a_name(char));
        behind[..end.unwrap_or(behind.len())].to_owned()
    });
    named.filter(|name| !name.ends_with('_')).collect()
}

#[test]
fn the_page_on_variables_names_each_that_is_read() {
    let is_one = |text: &String| variables(text).contains(text);
    let mut read: BTreeSet<String> = all_literals().into_iter().filter(is_one).collect();
    read.retain(|name| !NO_VARIABLES.contains(&&**name));
    let named = variables(&page("environment.md"));
    let missing: Vec<_> = read.difference(&named).collect();
    assert!(missing.is_empty(), "docs/environment.md lacks {missing:?}");
    let unread: Vec<_> = named.difference(&read).collect();
    assert!(
        unread.is_empty(),
        "docs/environment.md names {unread:?}, which nothing reads"
    );
}

/// The messages that a page quotes: code at the beginning of a table's row, or in a heading.
fn quotes(page: &str) -> Vec<&str> {
    let quoted = page.lines().filter_map(|line| {
        let behind = line.strip_prefix("| `").or(line.strip_prefix("### `"))?;
        behind.split_once('`')
    });
    quoted.map(|(quote, _)| quote).collect()
}

#[test]
fn the_messages_that_the_page_on_trouble_quotes_exist() {
    let said: Vec<_> = all_literals().iter().map(|text| with_gaps(text)).collect();
    let page = page("troubleshooting.md");
    let quotes = quotes(&page);
    assert!(quotes.len() > 50, "{} messages", quotes.len());
    let is_said = |quote: &&str| {
        let quote = quote.trim_matches('…');
        said.iter().any(|text| text.contains(quote))
    };
    let unsaid: Vec<_> = quotes
        .iter()
        .filter(|quote| quote.len() < 8 || !is_said(quote))
        .collect();
    assert!(
        unsaid.is_empty(),
        "docs/troubleshooting.md quotes what no literal of the code says: {unsaid:#?}"
    );
}

/// The reference definitions in a text: `[name]: target`.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .collect()
}

/// The anchors of a page's headings, as GitHub and rustdoc make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let prose = page.split("\n```").step_by(2);
    let headings = prose
        .flat_map(str::lines)
        .filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = |char: &char| char.is_alphanumeric() || matches!(char, '-' | '_' | ' ');
        let text = line.trim_start_matches('#').trim().to_lowercase();
        text.chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// rustdoc checks that modules exist, but not headings. Its links are the definitions in `guide.md`; GitHub's are those
/// of the page.
#[test]
fn links_between_pages_lead_to_headings() {
    let source = |name: &str| fs::read_to_string(root().join("src").join(name)).unwrap();
    let (modules, references) = (source("guide.rs"), source("guide.md"));
    let files = modules.lines().filter_map(|line| {
        let (module, file) = line.trim().split_once(" = \"")?;
        Some((module, file.split('"').next()?)).filter(|(_, file)| file.ends_with(".md"))
    });
    let files: BTreeMap<_, _> = files.collect();
    let as_module = definitions(&references);
    // The pictures that rustdoc gets have a file each.
    let picture = |reference: &str| {
        let file = root().join("src").join(format!("{reference}.md"));
        let begin = format!("[{reference}]: data:image/");
        fs::read_to_string(file).is_ok_and(|text| text.starts_with(&begin))
    };
    for name in files.values().copied().chain(["README.md"]) {
        let text = page(name);
        let own = text
            .split("](#")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        for (anchor, _) in own {
            assert!(anchors(&text).contains(anchor), "{name}: #{anchor}");
        }
        for (reference, target) in definitions(&text) {
            if target.starts_with("img/") {
                let there = root().join("docs").join(target).exists();
                assert!(there && picture(reference), "{name}: [{reference}]");
                continue;
            }
            let Some(module) = as_module.get(reference) else {
                assert!(
                    target.contains("//"),
                    "src/guide.md lacks [{reference}] of {name}"
                );
                continue;
            };
            let module = module.trim_start_matches("crate::guide::");
            let (module, anchor) = module.split_once('#').unwrap_or((module, ""));
            let file = files.get(module).copied().unwrap_or("README.md");
            let same = target
                .strip_prefix(file)
                .map(|rest| rest.trim_start_matches('#'));
            assert_eq!(same, Some(anchor), "{name}: [{reference}]");
            assert!(
                anchor.is_empty() || anchors(&page(file)).contains(anchor),
                "{name}: #{anchor}"
            );
        }
    }
}

/// `core/part.rs` stands for `crates/core/src/part.rs`. Other paths begin with a folder of the root.
#[test]
fn the_files_that_pages_about_the_source_name_exist() {
    let (root, crates) = (root(), root().join("crates"));
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md"] {
        let text = fs::read_to_string(root.join(page)).expect("the page can be read");
        let spans = text.split('`').skip(1).step_by(2);
        let is_path = |char: char| char.is_ascii_alphanumeric() || "_-./".contains(char);
        let paths = spans.filter_map(|span| Some((span, span.split_once('/')?)));
        let paths = paths.filter(|(span, _)| span.chars().all(is_path));
        let (missing, found): (Vec<_>, Vec<_>) = paths
            .filter(|(_, (first, _))| crates.join(first).is_dir() || root.join(first).is_dir())
            .partition(|(span, (first, rest))| {
                !root.join(span).exists() && !crates.join(first).join("src").join(rest).exists()
            });
        assert!(missing.is_empty(), "{page} names {missing:?}");
        assert!(found.len() > 10, "{page}: {} files", found.len());
    }
}

#[test]
fn literals_are_found() {
    let source =
        "a(\"one {x:?} \\\n   two\"); // no \"literal\"\nlet c = '\"'; b::<'a>(\"TIDEGATE_X\")";
    let found: Vec<_> = literals(source)
        .iter()
        .map(|text| with_gaps(text))
        .collect();
    assert_eq!(found, ["one … two", "TIDEGATE_X"]);
    assert!(variables("TIDEGATE_X=1, TIDEGATE_…").contains("TIDEGATE_X"));
}
