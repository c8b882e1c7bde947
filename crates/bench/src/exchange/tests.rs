use super::*;
use crate::cli::FacesArgs;
use crate::progress::Progress;
use crate::results::{Row, exit_code, table::table};
use tidegate_core::World;
use tidegate_host::Host;

fn rows(line: &str, change: impl Fn(usize, &mut Case) + Sync) -> Vec<Row> {
    let words = std::iter::once("faces").chain(line.split_whitespace());
    let args = FacesArgs::try_from_iter(words).unwrap();
    let mut ranks = World::<Host>::local(args.ranks(), |world| {
        let cases = |device: &str| match args.pair {
            true => pairs(&args, world.rank(), device),
            false => exchanges(&args, world.rank(), device),
        };
        let mut cases = cases("host").unwrap();
        for case in &mut cases {
            change(world.rank(), case);
        }
        run(&world, &cases, 2, &Progress::hidden(0)).map_err(|error| error.to_string())
    });
    ranks.remove(0).unwrap()
}

fn all_right(line: &str) -> Vec<Row> {
    let rows = rows(line, |_, _| {});
    assert_eq!(exit_code(&rows), 0, "{line}\n{}", table(&rows));
    rows
}

#[test]
fn faces_shaped() {
    for buffers in ["double", "single"] {
        let line =
            format!("--exchange --grid 3x2x1 --size 2x3x2x4 --counts 2,1,7 --buffers {buffers}");
        let rows = all_right(&line);
        let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
        assert_eq!(names, ["st", "st-graph"]);
        assert_eq!(rows[0].launches, Some(1.0));
        assert_eq!(rows[0].setting.messages, 5);
    }
    let rows = all_right("--exchange --grid 3x3x3 --size 2x2x2x3 --counts 1,1,5");
    assert_eq!(rows[0].setting.messages, 26);
}

#[test]
fn several_epochs_in_a_graph() {
    let line = "--exchange --grid 2x1x1 --size 2x2x2x3 --counts 1,2,7 --unroll 4";
    let rows = all_right(line);
    // 7 epochs are two graphs of four.
    assert_eq!(rows[1].setting.counts, [1, 2, 8]);
    assert_eq!(rows[1].launches, Some(0.25));
}

#[test]
fn some_neighbours_in_a_ring() {
    for (grid, neighbours) in [("2x1x1", 5), ("4x1x1", 1), ("4x1x1", 3), ("3x1x1", 7)] {
        let line =
            format!("--exchange --grid {grid} --neighbours {neighbours} --bytes 72 --counts 1,1,3");
        let rows = all_right(&line);
        assert_eq!(rows[0].setting.messages, neighbours);
        assert_eq!(rows[0].setting.bytes, 72 * neighbours as u64);
    }
}

#[test]
fn pairs_of_all_kinds() {
    for buffers in ["double", "single"] {
        let line = format!("--pair --bytes 4096 --counts 1,1,5 --buffers {buffers}");
        let rows = all_right(&line);
        let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
        assert_eq!(
            names,
            [
                "ping 4 KiB",
                "ping-graph 4 KiB",
                "both 4 KiB",
                "both-graph 4 KiB"
            ]
        );
    }
}

#[test]
fn counted_messages_of_a_pair() {
    let rows = all_right("--pair --bytes 4096 --counted 264 --counts 1,1,5");
    let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
    assert_eq!(names[0], "ping 264 B of 4 KiB");
    // Only the words that were sent are compared.
    for row in self::rows(
        "--pair --bytes 4096 --counted 264 --counts 1,1,5",
        |_, case| {
            case.counted = case.counted.map(|words| words - 1);
        },
    ) {
        assert_eq!(row.failure, None);
    }
    let rows = self::rows(
        "--pair --bytes 4096 --counted 264 --counts 1,1,5",
        |rank, case| {
            case.counted = case.counted.map(|words| words - rank);
        },
    );
    for row in rows {
        let failure = row.failure.expect("it was seen");
        assert!(failure.contains(": 1 of 33 words are wrong"), "{failure}");
    }
}

#[test]
fn several_puts_of_a_pair() {
    let rows = all_right("--pair --bytes 4096 --puts 3 --counts 1,1,5 --buffers single");
    assert_eq!(rows[0].setting.messages, 3);
    assert_eq!(rows[0].setting.bytes, 3 * 4096);
}

#[test]
fn what_is_wrong_fails() {
    for line in [
        "--exchange --grid 2x2x1 --size 2x2x2x3 --counts 1,1,3",
        "--pair --bytes 8 --counts 1,1,3",
    ] {
        let rows = rows(line, |rank, case| case.spoil = rank == 1);
        assert_eq!(exit_code(&rows), 1);
        for row in rows {
            let failure = row.failure.expect("it was seen");
            assert!(failure.contains("from rank 1"), "{failure}");
        }
    }
}

/// As if the timed epochs moved nothing.
#[test]
fn the_epochs_before_the_clock_bring_other_words() {
    for buffers in ["double", "single"] {
        let line =
            format!("--exchange --grid 2x1x1 --size 2x2x2x3 --counts 1,1,4 --buffers {buffers}");
        for row in rows(&line, |_, case| case.counts.ni = 0) {
            let failure = row.failure.expect("it was seen");
            assert!(failure.contains("words are wrong"), "{failure}");
        }
    }
}
