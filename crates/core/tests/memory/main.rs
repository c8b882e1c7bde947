//! What regions and windows hold, and whose memory that is. Miri runs this, too, and looks for leaks.

mod adopted;
mod debug;
mod elements;
