//! What a test does where there can be no bed.

use crate::bed::{Bed, Builder};
use crate::skipped;

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
        assert!(error.is_missing(), "{test}: {error}");
        skipped::skipped(test, &error.to_string());
        None
    }
}
