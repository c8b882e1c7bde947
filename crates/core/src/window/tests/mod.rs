//! Windows of no elements, and of very many slots.

mod many;
mod nothing;
