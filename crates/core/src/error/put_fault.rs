//! What a kernel did wrong in an epoch.

use std::fmt;

/// What a kernel did wrong in an epoch. Unless a variant says otherwise, a kernel of a GPU did it, and its put, get or
/// completion was left out. (A kernel of a host stream panics instead.) See
/// [`StreamError::KernelFault`](super::StreamError::KernelFault).
///
/// # Examples
///
/// ```
/// use tidegate::error::PutFault;
///
/// let fault = PutFault::Beyond { slot: 0, end: 38 };
/// assert_eq!(fault.to_string(), "it put or got up to element 38 of outbound slot 0, which has fewer");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PutFault {
    /// A put or get does not fit in its slot or range.
    Beyond {
        /// The number of the outbound slot: [`Out::index`](crate::window::Out::index). Here and in the other faults,
        /// 1,048,575 stands for all greater numbers, too.
        slot: u32,
        /// The element at which it would have ended, in elements from the beginning of the slot, or 2^40 - 1 if it
        /// is beyond that.
        end: u64,
    },
    /// There is no slot of this number.
    NoSlot {
        /// The number.
        slot: u32,
    },
    /// A put to (or get from) a target that an earlier kernel has completed.
    Completed {
        /// The number of the outbound slot.
        slot: u32,
    },
    /// A put to (or get from) a slot of another target than the one that the kernel completes.
    OtherTarget {
        /// The number of the outbound slot.
        slot: u32,
    },
    /// More blocks have completed a target than the kernel said, or a block has completed it twice.
    CompletedTwice,
    /// The threads of a block called a block's put or get with different arguments, or the threads of a warp that is
    /// not whole called a warp's. Only kernels that are compiled with `TIDEGATE_CHECKS` find this.
    NotTogether {
        /// The number of the outbound slot that one of them named.
        slot: u32,
    },
    /// The kernel's own elements of a put or get are not aligned for their type. Only kernels that are compiled with
    /// `TIDEGATE_CHECKS` find this.
    Unaligned {
        /// The number of the outbound slot.
        slot: u32,
    },
    /// A kernel that an inbox was lent to ended between post and wait ([`Inbox::lend`](crate::window::Inbox::lend)).
    /// Kernels of host streams can do this, too.
    LeftExposed,
    /// A kernel that an outbox was lent to ended between start and complete
    /// ([`Outbox::lend`](crate::window::Outbox::lend)). Kernels of host streams can do this, too.
    LeftOpen,
    /// A kernel ended without closing a half of a window that was lent to it.
    NotClosed,
    /// A kernel called a function of a half that was lent to it, on a token that it had moved away.
    OutOfTurn,
    /// Kernels began more epochs than they can have in one window: half of all that the window can have. The host has
    /// the other half ([`EpochError::LastEpoch`](super::EpochError::LastEpoch)).
    NoEpochLeft,
    /// A kernel that owned an inbox read a slot that does not exist.
    NoInboundSlot {
        /// The number.
        slot: u32,
    },
    /// A kernel that owned a half of a window used a slot that it had found in another half.
    FoundElsewhere {
        /// The number of the slot.
        slot: u32,
    },
}

/// The greatest numbers that a fault has room for.
const MOST_SLOT: u64 = (1 << 20) - 1;
const MOST_END: u64 = (1 << 40) - 1;

impl PutFault {
    /// How device code and host streams record [`PutFault::LeftExposed`] and [`PutFault::LeftOpen`].
    pub(crate) const LEFT_EXPOSED: u64 = 14;
    pub(crate) const LEFT_OPEN: u64 = 15;

    /// The fault that the device code has recorded: see `kernels/tidegate.cuh`. The lowest four bits say which it is.
    /// Twenty bits have the number of the slot, and the others the end of the put. A number of blocks that is left over
    /// is in the upper half.
    pub(crate) fn decode(recorded: u64) -> Option<Self> {
        let (slot, end) = ((recorded >> 4) as u32 & 0xf_ffff, recorded >> 24);
        Some(match recorded & 15 {
            1 => PutFault::Beyond { slot, end },
            2 => PutFault::NoSlot { slot },
            3 => PutFault::Completed { slot },
            4 => PutFault::OtherTarget { slot },
            5 => PutFault::CompletedTwice,
            0 if recorded > 0 => PutFault::CompletedTwice,
            6 => PutFault::NotTogether { slot },
            7 => PutFault::Unaligned { slot },
            8 => PutFault::NotClosed,
            9 => PutFault::OutOfTurn,
            10 => PutFault::NoEpochLeft,
            11 => PutFault::NoInboundSlot { slot },
            12 => PutFault::FoundElsewhere { slot },
            Self::LEFT_EXPOSED => PutFault::LeftExposed,
            Self::LEFT_OPEN => PutFault::LeftOpen,
            _ => return None,
        })
    }
}

/// A number, and whether greater ones are recorded as this one.
struct AtMost(u64, u64);

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtMost(number, most) = self;
        write!(f, "{number}")?;
        if number == most {
            f.write_str(" (or more)")?;
        }
        Ok(())
    }
}

impl fmt::Display for PutFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |slot: &u32| AtMost(u64::from(*slot), MOST_SLOT);
        match self {
            PutFault::Beyond { slot, end } => {
                let (slot, end) = (of(slot), AtMost(*end, MOST_END));
                write!(
                    f,
                    "it put or got up to element {end} of outbound slot {slot}, which has fewer"
                )
            }
            PutFault::NoSlot { slot } => {
                let slot = of(slot);
                write!(f, "it named outbound slot {slot}, which does not exist")
            }
            PutFault::Completed { slot } => {
                write!(
                    f,
                    "it put to or got from outbound slot {slot}, whose target a kernel has completed"
                )
            }
            PutFault::OtherTarget { slot } => write!(
                f,
                "it named outbound slot {slot}, which belongs to another target than the one that it completes"
            ),
            PutFault::CompletedTwice => f.write_str(
                "more of its blocks completed a target than it said, or one did so twice",
            ),
            PutFault::NotTogether { slot } => write!(
                f,
                "the threads of a block did not put to (or get from) outbound slot {slot} with the same arguments, or a warp that did so is not whole"
            ),
            PutFault::Unaligned { slot } => {
                write!(
                    f,
                    "it put or got elements of outbound slot {slot} at an address that is not aligned for their type"
                )
            }
            PutFault::LeftExposed => {
                f.write_str("it ended while an inbox that it owned was exposed, without the wait")
            }
            PutFault::LeftOpen => f.write_str(
                "it ended in the middle of an epoch of an outbox that it owned, without the complete",
            ),
            PutFault::NotClosed => {
                f.write_str("it ended without closing a half of the window that it owned")
            }
            PutFault::OutOfTurn => f.write_str(
                "it used a token of a half of the window that it had moved away",
            ),
            PutFault::NoEpochLeft => {
                f.write_str("it began more epochs than kernels can have in one window")
            }
            PutFault::NoInboundSlot { slot } => {
                let slot = of(slot);
                write!(f, "it named inbound slot {slot}, which does not exist")
            }
            PutFault::FoundElsewhere { slot } => {
                let slot = of(slot);
                write!(f, "it used slot {slot}, which it had found in another half of a window")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PutFault;

    #[test]
    fn what_a_kernel_records_is_found() {
        let recorded = |kind: u64, slot: u64, end: u64| kind | slot << 4 | end << 24;
        let fault = PutFault::decode(recorded(1, 0xf_ffff, (1 << 40) - 1));
        let (slot, end) = (0xf_ffff, (1 << 40) - 1);
        assert_eq!(fault, Some(PutFault::Beyond { slot, end }));
        assert_eq!(
            fault.unwrap().to_string(),
            "it put or got up to element 1099511627775 (or more) of outbound slot 1048575 (or more), which has fewer"
        );
        let fault = PutFault::decode(recorded(4, 7, 0));
        assert_eq!(fault, Some(PutFault::OtherTarget { slot: 7 }));
        assert_eq!(PutFault::decode(3 << 32), Some(PutFault::CompletedTwice));
        assert_eq!(PutFault::decode(0), None);
        assert_eq!(PutFault::decode(14), Some(PutFault::LeftExposed));
        assert_eq!(PutFault::decode(15), Some(PutFault::LeftOpen));
        assert_eq!(PutFault::decode(8), Some(PutFault::NotClosed));
        assert_eq!(PutFault::decode(9), Some(PutFault::OutOfTurn));
        assert_eq!(PutFault::decode(10), Some(PutFault::NoEpochLeft));
        let fault = PutFault::decode(recorded(11, 3, 0));
        assert_eq!(fault, Some(PutFault::NoInboundSlot { slot: 3 }));
        let fault = PutFault::decode(recorded(12, 5, 0));
        assert_eq!(fault, Some(PutFault::FoundElsewhere { slot: 5 }));
        assert_eq!(PutFault::decode(13), None);
    }
}
