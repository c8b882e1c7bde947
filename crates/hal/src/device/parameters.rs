//! What a kernel is launched with: a grid, and parameters as bytes.

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in each dimension.
    pub blocks: [u32; 3],
    /// Threads of a block in each dimension.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// The parameters of a kernel, as bytes.
pub struct Parameters {
    /// Aligned for anything that is a parameter.
    bytes: [u128; Parameters::MAX_BYTES / 16],
    used: usize,
    offsets: [u16; Parameters::MAX],
    count: usize,
}

impl Parameters {
    /// The most parameters of one kernel.
    pub const MAX: usize = 32;
    /// The most bytes of parameters of one kernel.
    pub const MAX_BYTES: usize = 1024;

    /// No parameter yet.
    pub fn new() -> Self {
        Parameters {
            bytes: [0; Parameters::MAX_BYTES / 16],
            used: 0,
            offsets: [0; Parameters::MAX],
            count: 0,
        }
    }

    /// Appends one. Only types without padding make sense here: addresses, numbers, plain structs of them.
    ///
    /// A type that is aligned to more than 16 bytes is none: that does not compile.
    ///
    /// # Panics
    ///
    /// If there are more than [`Parameters::MAX`], or of more than [`Parameters::MAX_BYTES`] in all.
    pub fn push<T: Copy>(&mut self, value: &T) {
        const {
            assert!(
                align_of::<T>() <= 16,
                "parameters are aligned to 16 bytes at most"
            );
        }
        let at = self.used.next_multiple_of(align_of::<T>());
        assert!(
            self.count < Self::MAX && at + size_of::<T>() <= Self::MAX_BYTES,
            "a kernel takes {} parameters of {} bytes in all, at most",
            Self::MAX,
            Self::MAX_BYTES
        );
        // SAFETY: the bytes `at..` have room for the value, as was checked, and are this struct's.
        unsafe {
            let place = self.bytes.as_mut_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(value).cast::<u8>(),
                place,
                size_of::<T>(),
            );
        }
        self.offsets[self.count] = at as u16;
        self.count += 1;
        self.used = at + size_of::<T>();
    }

    /// Whether there is room for parameters of these sizes, however they are aligned.
    pub fn hold(sizes: &[usize]) -> bool {
        let bytes = sizes.iter().map(|size| size.next_multiple_of(16));
        sizes.len() <= Self::MAX && bytes.sum::<usize>() <= Self::MAX_BYTES
    }

    /// Where each of them lies, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = *const u8> + '_ {
        let base = self.bytes.as_ptr().cast::<u8>();
        self.offsets[..self.count]
            .iter()
            .map(move |offset| base.wrapping_add(usize::from(*offset)))
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Parameters;

    #[test]
    fn parameters_that_hold_can_be_pushed() {
        let [most, many] = [&[16; 64][..32], &[8; 40]];
        assert!(Parameters::hold(most) && !Parameters::hold(many));
        assert!(Parameters::hold(&[1008, 8]) && !Parameters::hold(&[1008, 8, 8]));
        let mut parameters = Parameters::new();
        parameters.push(&[0u64; 126]);
        parameters.push(&0u128);
        assert_eq!(parameters.addresses().len(), 2);
    }
}
