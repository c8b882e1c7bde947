//! Finds the lines of a file that are code, and those that are tests. It is a scanner for comments, strings and
//! brackets.

/// The counts of a file.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Scanned {
    /// Lines of code.
    pub(super) code: usize,
    /// Lines of items that are compiled for tests only.
    pub(super) tests: usize,
    /// Test modules with files of their own.
    pub(super) test_modules: Vec<Module>,
}

/// `mod name;`
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    pub(super) name: String,
    /// The value of a `#[path]` attribute.
    pub(super) path: Option<String>,
}

pub(super) fn scan(text: &str) -> Scanned {
    let code = blank(text);
    let mut scanned = Scanned::default();
    // The items of tests, from their attributes to their ends.
    let mut tests = Vec::new();
    let mut at = 0;
    while let Some(bracket) = find(&code, at, b"[cfg(") {
        let condition = bracket + b"[cfg(".len();
        let end = closing(&code, condition);
        at = end;
        if !needs_test(&code[condition..end]) {
            continue;
        }
        if code[..bracket].ends_with(b"#!") {
            return Scanned {
                tests: lines(&code).count(),
                ..Scanned::default()
            };
        }
        let start = skip_attributes(&code, end + 1);
        at = item_end(&code, start);
        // The `#` is included.
        tests.push(bracket - 1..at);
        let words: Vec<_> = words(&code[start..at]).collect();
        if let [.., "mod", name] = words[..]
            && code[at - 1] == b';'
        {
            let told = text[bracket..start].split_once("path = \"");
            let path = told.and_then(|(_, rest)| rest.split_once('"'));
            scanned.test_modules.push(Module {
                name: name.to_owned(),
                path: path.map(|(path, _)| path.to_owned()),
            });
        }
    }
    let mut without = code.clone();
    for item in tests {
        without[item]
            .iter_mut()
            .filter(|it| **it != b'\n')
            .for_each(|it| *it = b' ');
    }
    scanned.code = lines(&without).count();
    scanned.tests = lines(&code).count() - scanned.code;
    scanned
}

/// Lines that are not empty.
fn lines(code: &[u8]) -> impl Iterator<Item = &[u8]> {
    code.split(|it| *it == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
}

/// The text with the same length, in which comments are replaced by spaces, and the contents of strings and characters
/// by quotes.
fn blank(text: &str) -> Vec<u8> {
    let from = text.as_bytes();
    let mut to = from.to_vec();
    let mut fill = |range: std::ops::Range<usize>, with: u8| {
        let range = range.start..range.end.min(from.len());
        to[range]
            .iter_mut()
            .filter(|it| !it.is_ascii_whitespace())
            .for_each(|it| *it = with);
    };
    let mut at = 0;
    while at < from.len() {
        let rest = &from[at..];
        let is_in_word = at > 0 && is_word(from[at - 1]);
        let len = if rest.starts_with(b"//") {
            let len = rest
                .iter()
                .position(|it| *it == b'\n')
                .unwrap_or(rest.len());
            fill(at..at + len, b' ');
            len
        } else if rest.starts_with(b"/*") {
            let len = block_comment(rest);
            fill(at..at + len, b' ');
            len
        } else if let Some(hashes) = raw_string(rest).filter(|_| !is_in_word) {
            let open = rest.iter().position(|it| *it == b'"').unwrap_or(0) + 1;
            let mut close = vec![b'"'];
            close.resize(1 + hashes, b'#');
            let len = find(rest, open, &close).map_or(rest.len(), |end| end + close.len());
            fill(at..at + len, b'"');
            len
        } else if rest[0] == b'"' {
            let len = quoted(rest, b'"');
            fill(at..at + len, b'"');
            len
        } else if rest[0] == b'\'' && is_character(rest) {
            let len = quoted(rest, b'\'');
            fill(at..at + len, b'"');
            len
        } else {
            1
        };
        at += len;
    }
    to
}

/// The length of the block comment at the start. Such comments nest.
fn block_comment(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let step = match &text[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The number of `#` of a raw string at the start.
fn raw_string(text: &[u8]) -> Option<usize> {
    let rest = text
        .strip_prefix(b"b")
        .or_else(|| text.strip_prefix(b"c"))
        .unwrap_or(text);
    let rest = rest.strip_prefix(b"r")?;
    let hashes = rest.iter().position(|it| *it != b'#')?;
    (rest[hashes] == b'"').then_some(hashes)
}

/// The length of the literal at the start.
fn quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Whether the quote at the start begins a character, and not a lifetime.
fn is_character(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&text[1..text.len().min(8)]);
    let mut characters = text.chars();
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn words(code: &[u8]) -> impl Iterator<Item = &str> {
    let words = code
        .split(|it| !is_word(*it))
        .filter(|word| !word.is_empty());
    words.filter_map(|word| str::from_utf8(word).ok())
}

fn find(code: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let found = code
        .get(from..)?
        .windows(what.len())
        .position(|it| it == what);
    found.map(|at| from + at)
}

/// The place behind the bracket that closes the one that was just opened.
fn closing(code: &[u8], mut at: usize) -> usize {
    let mut depth = 1;
    while at < code.len() && depth > 0 {
        match code[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Whether a condition (with its closing bracket) holds in tests only. `cfg(doc)` counts, too, since such code never
/// runs.
fn needs_test(condition: &[u8]) -> bool {
    let condition = &condition[..condition.len().saturating_sub(1)];
    let name = words(condition).next().unwrap_or("");
    let Some(open) = condition.iter().position(|it| *it == b'(') else {
        return matches!(name, "test" | "loom" | "doc");
    };
    let (mut parts, mut start, mut depth) = (Vec::new(), open + 1, 0);
    for (at, byte) in condition.iter().enumerate().skip(open + 1) {
        match byte {
            b'(' => depth += 1,
            b')' if depth > 0 => depth -= 1,
            // Each part ends like a condition, with one more byte.
            b',' | b')' if depth == 0 => {
                parts.push(needs_test(&condition[start..=at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    match name {
        "all" => parts.contains(&true),
        "any" => !parts.contains(&false),
        _ => false,
    }
}

/// Skips white space and attributes.
fn skip_attributes(code: &[u8], mut at: usize) -> usize {
    loop {
        while code.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if !code[at..].starts_with(b"#[") {
            return at;
        }
        at = closing(code, at + 2);
    }
}

/// The place behind the end of an item, a statement, a field, a variant or an argument.
fn item_end(code: &[u8], start: usize) -> usize {
    const ITEMS: [&str; 15] = [
        "fn",
        "impl",
        "struct",
        "mod",
        "use",
        "const",
        "static",
        "unsafe",
        "type",
        "trait",
        "enum",
        "let",
        "extern",
        "async",
        "macro_rules",
    ];
    let first = words(&code[start..]).find(|word| !matches!(*word, "pub" | "crate" | "super"));
    let ends_at_comma = !first.is_some_and(|word| ITEMS.contains(&word));
    let (mut at, mut angles) = (start, 0);
    while at < code.len() {
        match code[at] {
            b'(' | b'[' => {
                at = closing(code, at + 1);
                continue;
            }
            b'{' => {
                let end = closing(code, at + 1);
                let more = code[end..].iter().position(|it| !it.is_ascii_whitespace());
                let more = more.map_or(end, |more| end + more);
                return match code.get(more) {
                    Some(b';' | b',') => more + 1,
                    _ => end,
                };
            }
            b'<' => angles += 1,
            b'>' if !matches!(code[at - 1], b'-' | b'=') => angles -= 1,
            b';' => return at + 1,
            b',' if ends_at_comma && angles <= 0 => return at + 1,
            // This ends the thing that contains it.
            b'}' | b')' | b']' => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_and_tests(text: &str) -> (usize, usize) {
        let scanned = scan(text);
        (scanned.code, scanned.tests)
    }

    #[test]
    fn comments_and_empty_lines_do_not_count() {
        let text = "//! a\n\n/* b\n /* c */\n*/\nfn d() {} // e\n  \n/// f\nconst G: &str = \"// no comment\";\n";
        assert_eq!(code_and_tests(text), (2, 0));
    }

    #[test]
    fn strings_and_characters_hold_what_they_like() {
        for text in [
            "let a = \"/* \\\" {\";\nlet b = 1;\n",
            "let a = r#\"/* \" {\"#;\nlet b = 1;\n",
            "let a = ['\"', '\\'', '{', '\u{e9}', b'\"'];\nlet b: &'a str = c;\n",
            "let a = \"one\n    two\";\n",
        ] {
            assert_eq!(code_and_tests(text), (2, 0), "{text}");
        }
    }

    #[test]
    fn items_of_tests_are_counted_apart() {
        for (text, code, tests) in [
            (
                "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
                1,
                4,
            ),
            (
                "#[cfg(test)]\n#[allow(dead_code)]\nfn a<B, C>(_: [u8; 2]) -> B\nwhere\n    B: C,\n{\n}\nfn d() {}\n",
                1,
                7,
            ),
            (
                "struct A {\n    #[cfg(test)]\n    b: HashMap<u8, u8>,\n    c: u8,\n}\n",
                3,
                2,
            ),
            (
                "struct A {\n    c: u8,\n    #[cfg(test)]\n    b: u8\n}\n",
                3,
                2,
            ),
            ("#[cfg(test)]\nuse a::{b, c};\nuse d;\n", 1, 2),
            (
                "fn a() {\n    #[cfg(test)]\n    b(c, d);\n    e();\n}\n",
                3,
                2,
            ),
            (
                "fn a() {\n    #[cfg(test)]\n    let b = C { d };\n    e();\n}\n",
                3,
                2,
            ),
            ("#![cfg(loom)]\nfn a() {}\n", 0, 2),
        ] {
            assert_eq!(code_and_tests(text), (code, tests), "{text}");
        }
    }

    #[test]
    fn conditions() {
        for (condition, is_test) in [
            ("test", true),
            ("all(test, not(miri))", true),
            ("all(unix, any(test, loom))", true),
            ("any(test, unix)", false),
            ("not(test)", false),
            ("feature = \"test\"", false),
        ] {
            let text = format!("#[cfg({condition})]\nfn a() {{}}\n");
            assert_eq!(code_and_tests(&text).1 == 2, is_test, "{condition}");
        }
    }

    #[test]
    fn modules_with_files() {
        let text =
            "#[cfg(test)]\nmod a;\n#[cfg(test)]\n#[path = \"c/d.rs\"]\npub(crate) mod b;\nmod e;\n";
        let modules = scan(text).test_modules;
        let modules: Vec<_> = modules
            .iter()
            .map(|it| (it.name.as_str(), it.path.as_deref()))
            .collect();
        assert_eq!(modules, [("a", None), ("b", Some("c/d.rs"))]);
    }
}
