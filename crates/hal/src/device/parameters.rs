//! What a kernel is launched with: a grid, parameters as bytes, and where it finds how its stream fares.

use std::mem::MaybeUninit;

use crate::memory::Ptr;

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

/// Where kernels of a stream see that it has failed, and say so. Both are null if no kernel runs on a stream that has
/// failed, as on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reports {
    /// The address of a `u32` that is not zero once the stream has failed. What follows it is the device's own.
    pub stop: Ptr,
    /// The address of memory of the host, which the device's own kernels and `kernels/tidegate_own.cuh` know.
    pub mirror: Ptr,
}

impl Reports {
    /// Of a stream that has none.
    pub const NONE: Self = Reports {
        stop: Ptr::NULL,
        mirror: Ptr::NULL,
    };
}

/// The parameters of a kernel, as bytes.
///
/// They are made for every launch, so the inline part must be small: the compiler may clear all of it each time, used
/// or not.
pub struct Parameters {
    /// Holds the parameters, aligned for any of them, while they take no more than [`Parameters::NEAR`] bytes.
    near: MaybeUninit<[u128; Parameters::NEAR / 16]>,
    /// Holds all parameters if they take more.
    far: Vec<MaybeUninit<u128>>,
    /// The bytes that all pushed parameters take, also those for which there was no room.
    used: usize,
    offsets: [u16; Parameters::MAX],
    /// How many were pushed.
    count: usize,
}

impl Parameters {
    /// The most parameters of one kernel.
    pub const MAX: usize = 32;
    /// The most bytes of parameters of one kernel: CUDA's limit, from 12.1 on. (An older driver takes 4096. It refuses
    /// to load code whose functions take more.)
    pub const MAX_BYTES: usize = 32764;
    /// Up to this many bytes, parameters need no allocation.
    const NEAR: usize = 1024;

    /// No parameter yet.
    #[inline]
    pub fn new() -> Self {
        Parameters {
            near: MaybeUninit::uninit(),
            far: Vec::new(),
            used: 0,
            offsets: [0; Parameters::MAX],
            count: 0,
        }
    }

    /// Appends a parameter. Its type should have no padding: addresses, numbers, and plain structs of them.
    ///
    /// A type that is aligned to more than 16 bytes does not compile.
    ///
    /// If there is no room, this parameter and all later ones are counted but left out: see [`Parameters::fit`].
    pub fn push<T: Copy>(&mut self, value: &T) {
        const {
            assert!(
                align_of::<T>() <= 16,
                "parameters are aligned to 16 bytes at most"
            );
        }
        let fitted = self.fit();
        // The sum saturates because parameters that do not fit may be of any size, and of any number.
        let at = self.used.saturating_add(align_of::<T>() - 1) & !(align_of::<T>() - 1);
        self.used = at.saturating_add(size_of::<T>());
        self.count += 1;
        if !(fitted && self.fit()) {
            return;
        }
        if self.used > Self::NEAR && self.far.is_empty() {
            self.go_far(at);
        }
        let base = if self.far.is_empty() {
            self.near.as_mut_ptr().cast::<u8>()
        } else {
            self.far.as_mut_ptr().cast()
        };
        // SAFETY: the bytes from `at` on have room for the value, near or far, as was checked, and belong to this
        // struct.
        unsafe {
            let place = base.add(at);
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(value).cast::<u8>(),
                place,
                size_of::<T>(),
            );
        }
        self.offsets[self.count - 1] = at as u16;
    }

    /// Allocates for the most bytes that there can be, and copies the first `end` bytes, which have been pushed so far.
    #[cold]
    fn go_far(&mut self, end: usize) {
        self.far = vec![MaybeUninit::uninit(); Self::MAX_BYTES.div_ceil(16)];
        // SAFETY: both have at least that many bytes. Some are parameters, and some are padding between them, which may
        // be uninitialised: so they are copied as `MaybeUninit`.
        unsafe {
            let near = self.near.as_ptr().cast::<MaybeUninit<u8>>();
            let far = self.far.as_mut_ptr().cast::<MaybeUninit<u8>>();
            far.copy_from_nonoverlapping(near, end.min(Self::NEAR));
        }
    }

    /// Whether there was room for all parameters. If not, no kernel may be launched with them.
    pub fn fit(&self) -> bool {
        self.count <= Self::MAX && self.used <= Self::MAX_BYTES
    }

    /// Whether there is room for parameters of these sizes, however they are aligned.
    pub fn hold(sizes: &[usize]) -> bool {
        let bytes = sizes.iter().map(|size| size.next_multiple_of(16));
        sizes.len() <= Self::MAX && bytes.sum::<usize>() <= Self::MAX_BYTES
    }

    /// The address of each parameter, in order.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = *const u8> + '_ {
        let base = if self.far.is_empty() {
            self.near.as_ptr().cast::<u8>()
        } else {
            self.far.as_ptr().cast()
        };
        self.offsets[..self.count.min(Self::MAX)]
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
        let most = Parameters::MAX_BYTES - 12;
        assert!(Parameters::hold(&[most - 16, 8]) && !Parameters::hold(&[most, 16]));
        let mut parameters = Parameters::new();
        parameters.push(&[7u64; 126]);
        parameters.push(&8u128);
        assert!(parameters.fit());
        let addresses: Vec<_> = parameters.addresses().collect();
        // SAFETY: they are the addresses of the two that were pushed, aligned for their types.
        let (first, second) = unsafe {
            (
                addresses[0].cast::<u64>().read(),
                addresses[1].cast::<u128>().read(),
            )
        };
        assert_eq!((addresses.len(), first, second), (2, 7, 8));
    }

    #[test]
    fn what_goes_far_is_as_it_was() {
        let mut parameters = Parameters::new();
        parameters.push(&1u8);
        parameters.push(&[2u64; 100]);
        parameters.push(&[3u32; 200]);
        parameters.push(&4u16);
        let addresses: Vec<_> = parameters.addresses().collect();
        // SAFETY: they are the addresses of those that were pushed, aligned for their types.
        let found = unsafe {
            (
                addresses[0].read(),
                addresses[1].cast::<[u64; 100]>().read(),
                addresses[2].cast::<[u32; 200]>().read(),
                addresses[3].cast::<u16>().read(),
            )
        };
        assert_eq!(found, (1, [2; 100], [3; 200], 4));
    }

    /// Each launch may clear all of them, and must not displace other data from the first cache.
    #[test]
    fn what_is_made_for_every_launch_is_little() {
        assert!(
            size_of::<Parameters>() <= 1200,
            "{}",
            size_of::<Parameters>()
        );
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let mut full = Parameters::new();
        full.push(&[0u32; Parameters::MAX_BYTES / 4]);
        assert!(full.fit());
        // The next is left out, and the first stays as it was.
        full.push(&u128::MAX);
        full.push(&1u8);
        assert!(!full.fit());
        let first = full.addresses().next().expect("there is one");
        // SAFETY: the last four bytes of the first parameter.
        let last = unsafe { first.add(Parameters::MAX_BYTES - 4).cast::<u32>().read() };
        assert_eq!(last, 0);
        let mut many = Parameters::new();
        (0..Parameters::MAX).for_each(|_| many.push(&0u8));
        assert!(many.fit());
        many.push(&0u8);
        assert!(!many.fit());
        assert_eq!(many.addresses().len(), Parameters::MAX);
    }
}
