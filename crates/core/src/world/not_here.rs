//! Calls that other libraries have, and a world does not. The compiler's error names the call to use instead.

use tidegate_hal::device::Device;

use super::World;

/// Declares calls that nobody can make, because no type implements the trait that they require. The trait has the error
/// message.
macro_rules! not_here {
    ($(#[$message:meta] $habit:ident: $($call:ident)*;)*) => {$(
        #[$message]
        pub trait $habit {}

        #[doc(hidden)]
        #[allow(missing_docs, clippy::unused_self, reason = "nobody can call them")]
        impl<D: Device> World<D>
        where
            World<D>: $habit,
        {
            $(pub fn $call(&self) {})*
        }
    )*};
}

not_here! {
    #[diagnostic::on_unimplemented(
        message = "a world moves no data: ranks put into each other's windows",
        label = "not a call of a world",
        note = "the receiver declares `let from = window.slot_from(sender, key, len)`, the sender `let to = window.slot_to(receiver, key)`; then `let (inbox, outbox) = window.open(&s)?`",
        note = "a message is `epoch.put(&x, to)?` between `outbox.start()` and `exchange(&s, inbox, epoch)?`; `slots.slot(from)` is the message that has come",
        note = "`tidegate::guide::from_mpi` shows for each call of MPI what to write here"
    )]
    MovesData: send recv isend irecv sendrecv put get broadcast bcast gather scatter all_to_all alltoall;

    #[diagnostic::on_unimplemented(
        message = "a barrier is opened once, and enqueued on a stream each time",
        label = "not a call of a world",
        note = "`let mut barrier = Barrier::open(&s, \"a name\")?`, and then `barrier.enqueue(&s)?`",
        note = "most programs need none: an epoch waits for those whose data it needs"
    )]
    HasABarrier: barrier;

    #[diagnostic::on_unimplemented(
        message = "a sum over all ranks is opened once, and enqueued on a stream each time",
        label = "not a call of a world",
        note = "`let mut total = AllReduce::open(&s, \"a name\", len, Op::Sum)?`, and then `total.enqueue(&s, &mut x)?`; `Op` has the other reductions"
    )]
    Reduces: all_reduce allreduce reduce;
}
