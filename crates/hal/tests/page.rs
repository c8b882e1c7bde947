//! The page on environment variables says what the list says.

use std::collections::BTreeSet;

use tidegate_hal::variables::{ALL, DEVELOPERS, Variable};

/// A cell of a table without its markup: links become their texts.
fn plain(cell: &str) -> String {
    let mut text = cell.replace('`', "");
    while let Some((before, rest)) = text.split_once('[') {
        let (link, behind) = rest.split_once(']').expect("the link ends");
        let end = behind.find([']', ')']).expect("its target ends");
        text = format!("{before}{link}{}", &behind[end + 1..]);
    }
    text.trim().to_owned()
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
    std::fs::read_to_string(path).expect("the page can be read")
}

#[test]
fn the_tables_are_those_of_the_list() {
    let page = page();
    let row = |variable: &Variable| {
        let begin = format!("| `{}` |", variable.name);
        let row = page.lines().find_map(|line| line.strip_prefix(&begin));
        row.unwrap_or_else(|| panic!("the page has no row for {}", variable.name))
    };
    for variable in ALL {
        let cells: Vec<_> = row(variable).split('|').map(plain).collect();
        assert_eq!(cells[0], variable.meaning, "{}", variable.name);
        assert_eq!(cells[1], variable.default, "{}", variable.name);
    }
}

#[test]
fn the_page_and_the_list_name_the_same_variables() {
    let page = page();
    let is_of_a_name = |char: char| char.is_ascii_uppercase() || char == '_';
    let named: BTreeSet<&str> = page
        .split(|char| !is_of_a_name(char))
        .filter(|word| word.starts_with("TIDEGATE_") && !word.ends_with('_'))
        .collect();
    let ours = ALL.iter().map(|each| each.name);
    let ours = ours.filter(|name| name.starts_with("TIDEGATE_"));
    let listed: BTreeSet<&str> = ours.chain(DEVELOPERS.iter().copied()).collect();
    assert_eq!(named, listed);
}
