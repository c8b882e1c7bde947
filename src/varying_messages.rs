//! Messages whose length is only known at run time: particles that leave, lists of what has changed.
//!
//! # Model
//!
//! **Put a header in every epoch, also where nothing is behind it.** A slot has room for the longest message; nothing tells
//! the receiver how much of it has come, nor whether anything has. What an epoch does not put is not empty: it is what
//! the epoch *before last* left there (the last one, with [`Buffers::Single`](crate::Buffers)). So after
//! `if n > 0 { epoch.put(…)? }` the receiver reads an old message once more, and nothing can notice that.
//!
//! All elements of a window have one type, so the header has it, too: an element with a field for the number, or a
//! number among numbers (`f64` counts to 2^53). There are three ways to send one.
//!
//! | | whole slots | counted | header and payload |
//! |---|---|---|---|
//! | what is put | one region as long as the slot, header first, by [`put`](crate::window::Access::put) | the beginning of such a region, by [`put_counted`](crate::window::Access::put_counted) | the header always, then a slice as long as the payload |
//! | who knows the number | the kernel that packs | the kernel that packs; it writes the number of elements, header included, to a region of one `u64` as well | the host, before it calls `put` |
//! | in a recording | yes | yes | no: the lengths are recorded, too |
//! | what moves | the whole slot, each time | what there is; where a NIC carries it, all of the region | what there is |
//! | what it costs besides | nothing | on GPUs 0.2 to 0.6 us up to 1 MiB, measured where two ranks share one; a slot of up to 256 bytes is quicker whole; no copy engine takes it, nor what else goes to that rank | the host must know the number: where a kernel finds it, a [`synchronize`](crate::generic::Stream::synchronize) in each epoch, so that the stream stands still meanwhile; and an epoch of other lengths than those before is made anew, instead of being submitted again |
//!
//! Whole slots are the way for messages of up to a hundred kilobytes, or whose room is mostly used; counted ones for rooms
//! that are much larger than what usually comes; header and payload for numbers that the host has anyway.
//! `examples/particles.rs` is a whole program, with counted messages.
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
//! /// The kernel of the receiver, the same for all ways.
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
//! /// The whole slot is put.
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
//! /// As much of it as there is.
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
//! /// The host knows how long it is: two puts into one slot.
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
//! A payload that does not fit is refused by `put` ([`EpochError::OutOfBounds`](crate::error::EpochError::OutOfBounds)); where a kernel packs, it is
//! the kernel that must look: of a count that is greater than its source, all of the source is put, and no more. This
//! module has nothing else that could fail: it is a text.
