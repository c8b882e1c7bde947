//! Windows of no elements, and of very many slots; how ranks call them; and what ranks are told of mistakes.

mod ids;
mod many;
mod nothing;
mod told;
