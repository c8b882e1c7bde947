//! Windows without elements, and with very many slots; ids and names of windows; and what ranks are told about
//! mistakes.

mod ids;
mod many;
mod nothing;
mod told;
