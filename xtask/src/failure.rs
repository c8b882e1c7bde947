//! Why a command failed, with the part of its output that tells more.
//!
//! The output of a whole run is long, and often only its end is kept. The summary therefore repeats what a failed command said.

use std::collections::VecDeque;

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its exit status, or how it hung.
    pub(crate) why: String,
    /// What it said of that: see [`excerpt`].
    pub(crate) said: String,
}

/// It failed before it could say anything.
impl From<String> for Failure {
    fn from(why: String) -> Self {
        Failure {
            why,
            said: String::new(),
        }
    }
}

/// Where the output has just been printed.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.why
    }
}

/// So many lines of an output are repeated at most, and so many of each program of tests.
const LINES: usize = 120;

/// What the programs of tests said of the tests that failed; the end of the output where there is none of that.
pub(crate) fn excerpt(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let failed = blocks(output.lines());
    let lines = if failed.is_empty() {
        last(output.lines(), LINES)
    } else {
        failed
    };
    let mut text = lines.join("\n");
    text.truncate(text.trim_end().len());
    text
}

/// From each `failures:` to the result of that program. (The harness prints the word once more, above a list of names.)
fn blocks<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut blocks, mut block) = (Vec::new(), None::<Vec<&str>>);
    for line in lines {
        if line == "failures:" {
            block.get_or_insert_default();
        }
        let Some(open) = &mut block else { continue };
        open.push(line);
        if line.starts_with("test result:") {
            blocks.extend(last(open.drain(..), LINES));
            block = None;
        }
    }
    // It ended in the middle.
    blocks.extend(last(block.into_iter().flatten(), LINES));
    blocks
}

/// The last ones, and how many stand before them.
fn last<'a>(lines: impl Iterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let mut kept = VecDeque::new();
    let mut is_whole = true;
    for line in lines {
        if kept.len() == count {
            kept.pop_front();
            is_whole = false;
        }
        kept.push_back(line);
    }
    let before = (!is_whole).then_some("[...]");
    before.into_iter().chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_what_tests_said_and_nothing_of_those_that_passed() {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nleft: 1\n\nfailures:\n    b\n\n\
                      test result: FAILED. 1 passed; 1 failed\n\nRunning c\ntest c ... ok\ntest result: ok. 1 passed\n\
                      failures:\n    d\ntest result: FAILED. 0 passed; 1 failed\nerror: 2 targets failed\n";
        let said = "failures:\n\n---- b stdout ----\nleft: 1\n\nfailures:\n    b\n\n\
                    test result: FAILED. 1 passed; 1 failed\n\
                    failures:\n    d\ntest result: FAILED. 0 passed; 1 failed";
        assert_eq!(excerpt(output.as_bytes()), said);
    }

    #[test]
    fn repeats_the_end_of_anything_else() {
        assert_eq!(excerpt(b""), "");
        assert_eq!(
            excerpt(b"compiling\nerror: no such name\n\n"),
            "compiling\nerror: no such name"
        );
        let long: Vec<_> = (0..=LINES).map(|line| line.to_string()).collect();
        let said = excerpt(long.join("\n").as_bytes());
        assert!(said.starts_with("[...]\n1\n") && said.ends_with(&format!("\n{LINES}")));
    }

    #[test]
    fn a_test_that_ends_its_program_is_repeated_too() {
        let said = excerpt(b"test a ... FAILED\nfailures:\nthread 'a' panicked\nSIGABRT\n");
        assert_eq!(said, "failures:\nthread 'a' panicked\nSIGABRT");
    }
}
