// All ways through a function of PTX: what tests of several crates prove orders with. They have this file as a module.

use std::collections::BTreeSet;

/// The lines of a function, without what stands around them.
pub(crate) fn body<'a>(text: &'a str, function: &str) -> Vec<&'a str> {
    let lines: Vec<_> = text.lines().collect();
    let begins = |line: &str| {
        let head = line.contains(".func") || line.contains(".entry");
        head && line.trim_end().ends_with(&format!("{function}("))
    };
    // The last of this name: before that it may be declared.
    let head = lines
        .iter()
        .rposition(|line| begins(line))
        .expect("it is there");
    let begin = head
        + lines[head..]
            .iter()
            .position(|line| *line == "{")
            .expect("it begins");
    let end = begin
        + lines[begin..]
            .iter()
            .position(|line| *line == "}")
            .expect("it ends");
    lines[begin..end].iter().map(|line| line.trim()).collect()
}

/// Follows all ways through a function, each line once with and once without what a line `gains` and another `loses`:
/// says of each line whether it is had there.
pub(crate) fn follow(
    text: &str,
    function: &str,
    gains: impl Fn(&str) -> bool,
    loses: impl Fn(&str) -> bool,
    mut sees: impl FnMut(usize, &str, bool),
) {
    let body = body(text, function);
    let label = |name: &str| {
        let place = body
            .iter()
            .position(|line| line.strip_suffix(':') == Some(name));
        place.unwrap_or_else(|| panic!("{function} has {name}"))
    };
    let mut seen = vec![[false; 2]; body.len()];
    let mut ways = vec![(0, false)];
    while let Some((at, has)) = ways.pop() {
        if at >= body.len() || std::mem::replace(&mut seen[at][usize::from(has)], true) {
            continue;
        }
        let line = body[at];
        sees(at, line, has);
        let has = gains(line) || (has && !loses(line));
        let code = line.trim_start_matches(|first| first != ' ' || !line.starts_with('@'));
        let code = if line.starts_with('@') {
            code.trim()
        } else {
            line
        };
        assert!(!code.starts_with("brx"), "{function}: {line}");
        if code.starts_with("bra") {
            let target = code
                .split([' ', '\t', ';'])
                .find(|part| part.starts_with('$'));
            ways.push((label(target.expect("a branch has a target")), has));
        }
        let ends = line.starts_with("bra") || line.starts_with("ret");
        if !ends {
            ways.push((at + 1, has));
        }
    }
}

/// Wherever a line `needs` it, a line that `gains` must have come before, and none that `loses` it since. How many lines
/// need it.
pub(crate) fn always(
    text: &str,
    function: &str,
    gains: impl Fn(&str) -> bool,
    loses: impl Fn(&str) -> bool,
    needs: impl Fn(&str) -> bool,
) -> usize {
    let mut found = BTreeSet::new();
    follow(text, function, gains, loses, |at, line, has| {
        if needs(line) {
            assert!(has, "{function}: {line} ({at})");
            found.insert(at);
        }
    });
    found.len()
}
