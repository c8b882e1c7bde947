//! What regions and windows hold, and who owns that memory. Miri runs these tests, too, and looks for leaks.

mod adopted;
mod debug;
mod elements;
