//! What a program can choose about the algorithms of a collective.

use tidegate_hal::device::Device;

use crate::stream::Stream;

/// Where a collective changes from one algorithm to another, and how long its messages are. All ranks must choose
/// alike.
///
/// No choice changes a result: reductions go in the order of the ranks in every algorithm, so even the bits of a float
/// sum stay the same.
///
/// # Examples
///
/// ```
/// use tidegate::Choice;
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(3, |world| {
/// # stream!(let s = world.stream()?);
/// # let mut x = Region::from_slice(&world, &[world.rank() as f64; 1000])?.on(&s)?;
/// // With two other ranks, vectors of more than 1 KiB / 2² = 256 bytes are reduced in chunks.
/// let choice = Choice { short: 1 << 10, ..Choice::on(&s) };
/// let mut sums = AllReduce::open_with(&s, "sums", 1000, Op::Sum, choice)?;
/// sums.enqueue(&s, &mut x)?;
/// assert_eq!(x.into_host(&s)?[999], 3.0);
/// # Ok(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Up to how many bytes a vector is short, divided by the square of the number of other ranks (but see
    /// [`Choice::at_once`]). A short vector takes the algorithm with the fewest rounds: all ranks send to all, say. A
    /// longer one is divided into chunks, so that fewer bytes are sent. Between nodes, the other ranks of the largest
    /// node and the other nodes count. A broadcast or reduce of two ranks has one algorithm, and an all-reduce of two
    /// looks at [`Choice::pair`]. The default is 64 KiB on the host, and 512 KiB on GPUs.
    pub short: usize,
    /// Whether a rank sends to several ranks of its node at the same time, and not one after the other. Then, on one
    /// node, the bound of short vectors is divided only by the number of other ranks. Of a reduce, it is four times as
    /// much, since only one rank gets all vectors; of a scan, it is divided by the square all the same. The default is
    /// false on the host, and true on GPUs.
    pub at_once: bool,
    /// The most bytes of a vector that both of two ranks reduce as a whole in an all-reduce. If each reduced a half of it,
    /// they would send as many bytes, in twice as many rounds, but reduce fewer. The default is 64 KiB on the host. On
    /// GPUs there is no bound.
    pub pair: usize,
    /// The most bytes of a message between two ranks, where one rank sends to another what it has itself. Longer data
    /// is sent in pieces. Each rank has room for two pieces from each rank that sends to it, or for four if the
    /// algorithm has two phases. The default is 256 KiB on the host, and 16 MiB on GPUs. Pieces of a broadcast, scatter,
    /// all-gather or all-to-all on the host are four times as long, since processes of one node read them from each
    /// other's memory where they can. If many ranks send to one,
    /// pieces are shorter than chosen, so that the room of a rank stays below 128 MiB where possible.
    pub piece: usize,
    /// The most ranks of which each sends a short vector to all others. More ranks gather the vectors of all in a
    /// logarithm of rounds, as long as these have no more than `8 * short` bytes together in an all-reduce, or `short`
    /// bytes in an all-gather. Between nodes, the ranks of the largest node and the other nodes count. The default is
    /// 32.
    pub few: usize,
    /// The most ranks of which each sends a short vector of a scan to all higher ranks, on all nodes. A scan of more ranks
    /// goes from rank to rank at every length. The default is 2 on the host, and 32 on GPUs.
    pub scan: usize,
    /// From how many bytes on the sum of vectors that are not short goes from node to node; of a reduce-scatter, all blocks
    /// of a rank count. That sends the fewest bytes over the network, but each node waits for the one before. Shorter
    /// vectors are reduced in chunks, as on one node. The default is 0.
    pub along: usize,
    /// Whether data crosses the network once a node, and not once a rank, where several ranks share a node:
    /// [`World::node`](crate::World::node) says which do. It is so by default.
    pub by_node: bool,
}

impl Choice {
    /// What `open` chooses on this stream: what is best on its device.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Choice;
    /// use tidegate::host::prelude::*;
    ///
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// // Like `open`, but with shorter messages.
    /// let choice = Choice { piece: 64 << 10, ..Choice::on(&s) };
    /// let parts = AllGather::<f64>::open_with(&s, "parts", 100_000, choice)?;
    /// # Ok(()) });
    /// ```
    pub fn on<D: Device>(_: &Stream<'_, D>) -> Self {
        Choice {
            short: D::SHORT,
            at_once: D::AT_ONCE,
            pair: D::PAIR,
            piece: D::PIECE,
            scan: D::SCAN,
            ..Choice::default()
        }
    }
}

/// What `open` chooses on streams of the host.
impl Default for Choice {
    fn default() -> Self {
        Choice {
            short: 64 << 10,
            at_once: false,
            pair: 64 << 10,
            piece: 256 << 10,
            few: 32,
            scan: 2,
            along: 0,
            by_node: true,
        }
    }
}

/// The most bytes of one buffer of the slots of a rank, if pieces need not be shorter than [`SHORTEST`] for it.
const ROOM: usize = 64 << 20;
const SHORTEST: usize = 4 << 10;

impl Choice {
    /// The most elements of a slot, where ranks have up to two slots for each of the others.
    /// Pieces may be `longer` than chosen.
    pub(crate) fn piece(&self, ranks: usize, size: usize, longer: usize) -> usize {
        let fits = (ROOM / (2 * ranks)).max(SHORTEST);
        (self.piece.saturating_mul(longer).min(fits) / size).max(1)
    }
}
