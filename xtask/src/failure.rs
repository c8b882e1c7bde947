//! Why a command failed, with the relevant part of its output.
//!
//! The output of a whole run is long, and often only its end is kept. So the summary repeats the output of a failed
//! command.

use std::collections::VecDeque;

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its exit status, or how it hung.
    pub(crate) why: String,
    /// The relevant output: see [`excerpt`].
    pub(crate) said: String,
}

/// For a failure before any output.
impl From<String> for Failure {
    fn from(why: String) -> Self {
        Failure {
            why,
            said: String::new(),
        }
    }
}

/// For output that has just been printed.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.why
    }
}

/// The most lines of an output that are repeated, for each test program.
const LINES: usize = 120;

/// The reports of test programs about failed tests, or the end of the output if there are none.
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

/// The lines from each `failures:` to the result of that program. (The harness prints the word again, above a list of
/// names.)
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
    // The output ended within a block.
    blocks.extend(last(block.into_iter().flatten(), LINES));
    blocks
}

/// The last lines, and how many come before them.
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
