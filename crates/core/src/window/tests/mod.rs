//! Windows of no elements, and of very many slots; and how ranks call them.

mod ids;
mod many;
mod nothing;
