//! What a test does where there can be no bed.

use crate::bed::{Bed, Builder};
use std::io::Write;

impl Builder {
    /// For tests: the bed, or `None` where the machine cannot have one and this is no run of continuous integration.
    /// The test then returns; why is printed, and noted in the file that `TIDEGATE_SKIPS` names.
    ///
    /// # Panics
    ///
    /// If the bed cannot be made for another reason than that something is missing, or `CI` is set.
    pub fn build_or_skip(self, test: &str) -> Option<Bed> {
        let error = match self.build() {
            Ok(bed) => return Some(bed),
            Err(error) => error,
        };
        let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        assert!(error.is_missing(), "{test}: {error}");
        assert!(!ci, "{test}: CI is set, and {error}");
        println!("{test}: SKIPPED: {error}");
        if let Some(path) = std::env::var_os("TIDEGATE_SKIPS") {
            let skips = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path);
            let noted = skips.and_then(|mut skips| writeln!(skips, "{test}: {error}"));
            noted.expect("the list of skipped tests");
        }
        None
    }
}
