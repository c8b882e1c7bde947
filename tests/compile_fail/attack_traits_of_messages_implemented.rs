//! A trait that nothing implements, so that its message is seen, is implemented.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

impl tidegate::window::SeenAsItIs for Inbox<'_, f64> {}

fn main() {}
