//! What differs between devices, as numbers and flags.

/// Whether kernels of several processes run on a device at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They run at the same time, and have room only together.
    Together,
    /// The device gives each process its turn.
    InTurn,
    /// Nobody has seen it, so only one process of a job may use the device.
    Unknown,
}

/// How much shared memory a multiprocessor has, in bytes.
///
/// Some devices divide one memory into a cache and shared memory, for the kernel that comes to an empty multiprocessor.
/// As long as a block stands there, the parts keep their sizes.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    /// The sizes that the shared memory can have, ascending. There are none if it has one size only.
    pub sizes: Vec<usize>,
    /// What each block takes in addition to what its kernel asks for.
    pub reserved: usize,
}

/// The limits of a device, as this process may use it.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The vendor's name, as in [`Vendor::name`](crate::driver::Vendor::name).
    pub vendor: &'static str,
    /// The device's name, as the driver gives it.
    pub name: String,
    /// The device's number among those that the process may see.
    pub ordinal: usize,
    /// The device's UUID, which is the same in every process.
    pub uuid: [u8; 16],
    /// How many multiprocessors the process may use.
    pub multiprocessors: usize,
    /// The shared memory of a multiprocessor.
    pub shared_memory: SharedMemory,
    /// The threads that execute one instruction together: 32 or 64.
    pub wave: usize,
    /// Whether a kernel may begin before the kernel in front of it is over ([`Launch::early`](crate::driver::Launch::early)).
    pub dependent_launch: bool,
    /// Whether streams can carry out each [`WordOp`](crate::driver::WordOp).
    pub word_operations: bool,
    /// How several processes share the device.
    pub sharing: Sharing,
    /// How many launches the device can have resident at a time.
    pub launches: usize,
    /// How many hardware queues the process has. The device's own streams take two of them.
    pub queues: usize,
    /// What a user should know where there are too few queues: which setting says how many there are, and how to get
    /// more.
    pub queue_advice: String,
    /// What a user should know where processes that share the device get too few blocks.
    pub sharing_advice: &'static str,
}
