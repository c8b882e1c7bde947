//! The `Debug` text of regions.

use std::fmt;

use tidegate_hal::device::Device;

use super::Region;
use crate::element::Element;
use crate::place::{On, OnHost};

/// How many elements `Debug` shows.
const SHOWN: usize = 8;

/// Shows the first elements, which are read from the device.
impl<T: Element + fmt::Debug, D: Device> fmt::Debug for Region<T, OnHost<D>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The first elements, and whether there are more.
        struct Values<T>(Vec<T>, bool);
        impl<T: fmt::Debug> fmt::Debug for Values<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut list = f.debug_list();
                list.entries(&self.0);
                if self.1 {
                    list.finish_non_exhaustive()
                } else {
                    list.finish()
                }
            }
        }
        let mut said = self.body.debug::<T>("Region", "host", f);
        said.field("len", &self.len());
        // If the device cannot be read any more, the text has all fields but the values.
        if let Ok(first) = self.first(SHOWN) {
            said.field("values", &Values(first, self.len() > SHOWN));
        }
        said.finish()
    }
}

/// Shows no elements, since the stream may still have work that changes them.
impl<T, D: Device> fmt::Debug for Region<T, On<'_, D>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.body.debug::<T>("Region", "stream", f);
        said.field("len", &self.body.len).finish()
    }
}
