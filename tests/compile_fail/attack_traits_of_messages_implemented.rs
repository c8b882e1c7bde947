//! A trait that only carries an error message, and that no type implements, is implemented.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

impl tidegate::window::SeenAsItIs for Inbox<'_, f64> {}

fn main() {}
