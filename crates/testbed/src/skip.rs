//! Skipping tests on machines that can have no bed.

use crate::bed::{Bed, Builder};
use crate::skipped;

impl Builder {
    /// Makes the bed, for tests. Returns `None` if the machine cannot have one, unless this is a run of continuous
    /// integration. The test then returns. The reason is printed, and noted in the file that `TIDEGATE_SKIPS` names.
    ///
    /// # Panics
    ///
    /// If the bed cannot be made although nothing is missing, or if something is missing and `CI` is set.
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
