//! Messages whose length is only known at run time: particles that leave a block, lists of changes.
//!
//! # Model
//!
//! **Put a header in every epoch, even if nothing follows it.** A slot has room for the longest message. Nothing tells the
//! receiver how much of it came, or whether anything came. A slot you skip is not empty: it keeps the data from two epochs
//! ago (from the last epoch, with [`Buffers::Single`](crate::Buffers)). So after `if n > 0 { epoch.put(…)? }` the receiver
//! reads an old message again, and nothing can notice it.
//!
//! All elements of a window have one type, so the header has that type, too. It is an element with a field for the number,
//! or one number among others (`f64` counts to 2^53). There are three ways to send a message.
//!
//! | | whole slot | counted | header and payload |
//! |---|---|---|---|
//! | the program puts | one region as long as the slot, header first, by [`put`](crate::window::Access::put) | the beginning of such a region, by [`put_counted`](crate::window::Access::put_counted) | always the header, then a slice as long as the payload |
//! | the number is known to | the kernel that packs | the kernel that packs; it also writes the number of elements, with the header, to a region of one `u64` | the host, before it calls `put` |
//! | can be recorded | yes | yes | no: a recording fixes the lengths |
//! | moves | the whole slot, each time | the message; over a NIC the whole region | the message |
//! | further costs | none | on GPUs 0.2 to 0.6 us up to 1 MiB (measured with two ranks on one GPU); a slot of up to 256 bytes is faster whole; no copy engine is used for that rank | the host must know the number. If a kernel finds it, each epoch needs a [`synchronize`](crate::generic::Stream::synchronize), and the stream idles meanwhile. An epoch with new lengths is prepared anew |
//!
//! Put whole slots if messages have up to a hundred kilobytes, or mostly fill the slot. Use counted puts if the slot is much
//! larger than most messages. Use header and payload if the host knows the number anyway. `examples/particles.rs` is a whole
//! program with counted messages.
//!
//! # All three
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! /// The longest payload. Element 0 is the header: how many numbers are behind it.
//! const ROOM: usize = 100;
//!
//! type Halves<'s> = (Inbox<'s, f64>, Outbox<'s, f64>);
//!
//! /// The kernel of the receiver. It is the same in all three cases.
//! fn add_up(came: Slots<'_, f64>, from: In<f64>, sum: &mut [f64]) {
//!     let message = came.slot(from);
//!     sum[0] += message[1..][..message[0] as usize].iter().sum::<f64>();
//! }
//!
//! /// A kernel decides how long the message is, and says so in its header.
//! fn pack(message: &mut [f64]) {
//!     let n = 3;
//!     message[0] = n as f64;
//!     message[1..][..n].fill(1.0);
//! }
//!
//! /// Puts the whole slot.
//! fn whole<'s>(
//!     s: &Stream<'s>,
//!     (inbox, outbox): Halves<'s>,
//!     to: Out<f64>,
//!     message: &mut Region<f64, On<'s>>,
//! ) -> Result<Halves<'s>> {
//!     s.launch(pack, &mut *message)?;
//!     let mut epoch = outbox.start();
//!     epoch.put(&*message, to)?;
//!     exchange(s, inbox, epoch)
//! }
//!
//! /// Puts as much as the kernel has packed.
//! fn counted<'s>(
//!     s: &Stream<'s>,
//!     (inbox, outbox): Halves<'s>,
//!     to: Out<f64>,
//!     message: &mut Region<f64, On<'s>>,
//!     count: &mut Region<u64, On<'s>>,
//! ) -> Result<Halves<'s>> {
//!     let pack = |message: &mut [f64], count: &mut [u64]| {
//!         pack(message);
//!         count[0] = 1 + message[0] as u64; // the header is an element, too
//!     };
//!     s.launch(pack, (&mut *message, &mut *count))?;
//!     let mut epoch = outbox.start();
//!     epoch.put_counted(&*message, &*count, to)?;
//!     exchange(s, inbox, epoch)
//! }
//!
//! /// The host knows how long the message is, and puts twice into one slot.
//! fn in_two<'s>(
//!     s: &Stream<'s>,
//!     (inbox, outbox): Halves<'s>,
//!     to: Out<f64>,
//!     header: &mut Region<f64, On<'s>>,
//!     data: &Region<f64, On<'s>>,
//!     n: usize,
//! ) -> Result<Halves<'s>> {
//!     s.launch(|header: &mut [f64], n: f64| header[0] = n, (&mut *header, n as f64))?;
//!     let mut epoch = outbox.start();
//!     epoch.put(&*header, to)?; // always
//!     epoch.put(data.slice(0..n)?, to.at(1))?; // of 0 elements, too
//!     exchange(s, inbox, epoch)
//! }
//!
//! fn rank(world: World) -> Result<()> {
//!     let peer = 1 - world.rank();
//!     stream!(let s = world.stream()?);
//!     let mut window = SlotWindow::new("messages");
//!     let (from, to) = (window.slot_from(peer, 0, 1 + ROOM), window.slot_to(peer, 0));
//!     let mut halves = window.open(&s)?;
//!     let mut message = Region::zeroed(&world, 1 + ROOM)?.on(&s)?;
//!     let mut count = Region::zeroed(&world, 1)?.on(&s)?;
//!     let mut header = Region::zeroed(&world, 1)?.on(&s)?;
//!     let data = Region::from_slice(&world, &[1.0; ROOM])?.on(&s)?;
//!     let mut sum = Region::zeroed(&world, 1)?.on(&s)?;
//!
//!     halves = whole(&s, halves, to, &mut message)?;
//!     s.launch(add_up, (halves.0.view(), from, &mut sum))?;
//!     halves = counted(&s, halves, to, &mut message, &mut count)?;
//!     s.launch(add_up, (halves.0.view(), from, &mut sum))?;
//!     for n in [ROOM, 0, 5] {
//!         halves = in_two(&s, halves, to, &mut header, &data, n)?;
//!         s.launch(add_up, (halves.0.view(), from, &mut sum))?;
//!     }
//!     assert_eq!(sum.into_host(&s)?[0], (3 + 3 + ROOM + 5) as f64);
//!     Ok(())
//! }
//!
//! for outcome in World::local(2, rank) {
//!     outcome.expect("both ranks are there");
//! }
//! ```
//!
//! # Failure
//!
//! `put` refuses a payload that does not fit ([`EpochError::OutOfBounds`](crate::error::EpochError::OutOfBounds)). A kernel that packs must check the
//! length itself: if the count is greater than the source, the whole source is put, and no more.
