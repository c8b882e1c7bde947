//! All-to-alls of rows whose numbers only the stream knows.

use super::super::schedule::{Buffer, From, How, Job, Local, NUMBER, Schedule, Sent, Spot};

/// The keys of the two slots of a pair.
const ROWS: u64 = 0;
const COUNT: u64 = 1;

/// Each rank gets some rows from each rank, and how many they are. A block has `block` bytes, and a row has `row`.
/// Elements are bytes here.
///
/// All of a block goes in one stage. In pieces, each piece would cost a stage, even if no row is left for it.
pub(super) fn all_to_all(job: &Job, row: usize, block: usize) -> Schedule {
    let mut made = Schedule::default();
    let spot = |buffer, rank, length| Spot::new(buffer, rank * length);
    // Two moves: how many rows there are, and the rows.
    let lane = |rank, how, count, rows| {
        let number = Local {
            how,
            from: count,
            to: spot(Buffer::Received, rank, NUMBER),
            count: NUMBER,
        };
        let rows = Local {
            how: How::Rows { count, size: row },
            from: rows,
            to: spot(Buffer::Output, rank, block),
            count: block,
        };
        let moves = [number, rows].into_iter();
        moves.filter(|one| one.count != 0).collect()
    };
    let most = block / row;
    let own = From::Spot(spot(Buffer::Counts, job.rank, NUMBER));
    let rows = From::Spot(spot(Buffer::Input, job.rank, block));
    made.beside(0, lane(job.rank, How::Number(most), own, rows));
    for other in job.others() {
        let count = spot(Buffer::Counts, other, NUMBER);
        let what = Sent::Number(most);
        made.send_some(job, 0, what, (other, COUNT), count, NUMBER);
        let (what, rows) = (
            Sent::Rows { count, size: row },
            spot(Buffer::Input, other, block),
        );
        made.send_some(job, 0, what, (other, ROWS), rows, block);
        let count = made.receive(job, 0, (other, COUNT), NUMBER);
        let rows = made.receive(job, 0, (other, ROWS), block);
        made.behind(job, 0, other, lane(other, How::Copy, count, rows));
    }
    made
}
