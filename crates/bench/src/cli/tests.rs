//! Command lines: what they mean, and which are refused.

use super::*;

fn parse(line: &str) -> Result<FacesArgs, String> {
    let args = std::iter::once("faces").chain(line.split_whitespace());
    FacesArgs::try_from_iter(args).map_err(|e| e.to_string())
}

#[test]
fn the_definition_is_consistent() {
    FacesArgs::command().debug_assert();
}

#[test]
fn a_bare_run_is_the_desk_run() {
    let params = parse("--bench").unwrap().params().unwrap();
    assert_eq!(params.grid, Grid([2, 2, 2]));
    assert_eq!((params.size, params.counts), (Size::DESK, Counts::DESK));
    assert_eq!(params.variants, Variant::DEFAULT);
    assert!(!params.compute && params.init == Init::Same);
}

#[test]
fn reports_go_to_where_cargo_builds() {
    let folder = |target: Option<&str>| report_folder(target.map(Into::into));
    assert_eq!(
        folder(Some("/elsewhere")),
        PathBuf::from("/elsewhere/faces")
    );
    for unset in [None, Some("")] {
        assert_eq!(folder(unset), PathBuf::from("target/faces"));
    }
}

#[test]
fn the_long_help_says_what_the_table_means() {
    let help = FacesArgs::command().render_long_help().to_string();
    assert!(help.contains("avg, min, max us: ") && help.contains("verified: "));
}

#[test]
fn everything_can_be_said() {
    let args = parse(
        "--grid 3x2x1 --size 5x4x3x10 --counts 1,2,3 --compute --init global --variants rma,st --device host \
         --json out.json --report out --rounds 1 --no-bind --bench",
    )
    .unwrap();
    let params = args.params().unwrap();
    assert_eq!(
        params.size,
        Size {
            m: [5, 4, 3],
            n: 10
        }
    );
    assert_eq!(params.variants, [Variant::Rma, Variant::St]);
    assert!(params.compute && params.init == Init::Global);
    assert_eq!(args.json.as_deref(), Some("out.json".as_ref()));
    assert_eq!(args.report, std::path::Path::new("out"));
}

#[test]
fn commands_can_be_repeated() {
    let words = [
        "--bench",
        "--provider",
        "tcp;ofi_rxm",
        "--grid",
        "2x1x1",
        "it's",
    ];
    let line = |mpi| command_line(words.map(str::to_owned), mpi);
    let expected = r"cargo bench --bench faces -- --provider 'tcp;ofi_rxm' --grid 2x1x1 'it'\''s'";
    assert_eq!(line(false), expected);
    assert!(line(true).starts_with("cargo bench --features mpi --bench faces -- "));
}

#[test]
fn forms_that_can_be_combined() {
    assert_eq!(parse("--pair").unwrap().ranks(), 2);
    let throttling = parse("--throttling --transport fabric").unwrap();
    assert_eq!(throttling.budgets, BUDGETS);
    for line in [
        "--exchange --buffers single --unroll 10 --counts 1,2,1000 --grid 2x1x1 --size small --variants st",
        "--exchange --neighbours 9 --bytes 4096 --grid 8x1x1",
        "--pair --bytes 64 --counted 16 --puts 3 --counts 1,2,3",
        "--pair --device cuda --peers nccl,floor",
        "--grid 4x4x4 --size 2x2x2x3 --throttling --budgets 16,32 --nodes 8x8 --variants st",
        "--transport fabric --budget 3 --throttle static",
        "--transport mpi --exchange",
        "--transport mpi --pair",
        "--transport mpi --timeline t.json",
        "--transport mpi --mpi-signals messages --mpi-not-shared --compute --variants st,mpi-rma --mpirun mpirun.mpich",
    ] {
        parse(line).expect(line);
    }
}

#[test]
fn published_sizes_bring_their_counts() {
    assert_eq!(
        parse("--size small").unwrap().params().unwrap().counts,
        Counts::SMALL
    );
    assert_eq!(
        parse("--size small --counts 1,1,1")
            .unwrap()
            .params()
            .unwrap()
            .counts
            .ni,
        1
    );
}

#[test]
fn errors_say_what_is_wrong() {
    for (line, needle) in [
        ("--grid 2x2", "a rank grid such as `2x2x2`"),
        ("--size 2x2x2x2", "at least 3, not 2"),
        ("--size tiny", "`desk`, `small`, `large`"),
        ("--counts 1,1,1000", "at most 336 stay finite"),
        ("--variants st,mpi", "st, st-graph, st-strided"),
        ("--variants st,st", "asked for twice"),
        ("--variants mpi-rma --device cuda", "on the host"),
        ("--variants st,mpi-p2p --exchange", "for Faces alone"),
        ("--init other", "same, global"),
        ("--device gpu", "host, cuda, hip"),
        ("--pair --exchange", "cannot be used with"),
        ("--pair --bytes 12", "multiples of 8 bytes"),
        ("--pair --bytes 16 --counted 12", "a multiple of 8"),
        ("--pair --bytes 16 --counted 24", "not more than --bytes"),
        ("--exchange --bytes 16", "goes with --neighbours"),
        ("--exchange --neighbours 3", "--bytes"),
        ("--exchange --grid 1x1x1 --neighbours 3 --bytes 8", "alone"),
        ("--exchange --neighbours 0 --bytes 8", "neighbours must be"),
        ("--rounds 0", "0"),
        ("--timeline t.json --exchange", "cannot be used with"),
        ("--timeline t.json --counts 1,1,1", "cannot be used with"),
        ("--peers gasnet", "nvshmem, nccl, mpi, hostrma, floor"),
        (
            "--exchange --neighbours 1 --bytes 8 --peers nccl",
            "cannot be used with",
        ),
        (
            "--device cuda --peers nccl --peers-limit 18446744073709551615",
            "is not in 0..=31536000",
        ),
        ("--throttling", "goes with a NIC"),
        (
            "--throttling --transport fabric --budget 3",
            "cannot be used with",
        ),
        ("--budgets 3", "--throttling"),
        (
            "--transport mpi --netns --nodes 2x4",
            "--netns does not go with --transport mpi",
        ),
        (
            "--transport mpi --nodes 2x4",
            "that an MPI's launcher starts",
        ),
        (
            "--transport mpi --provider sockets",
            "no NIC of this library's",
        ),
        ("--transport mpi --staged", "--staged does not go"),
        (
            "--transport mpi --throttle static",
            "--throttle does not go",
        ),
        ("--transport mpi --device cuda", "memory of the host"),
        ("--transport mpi --throttling", "--throttling does not go"),
        ("--transport mpi --peers nccl", "not part of an MPI job"),
        ("--transport mpi --ranks-as threads", "are processes"),
        ("--mpi-signals words", "goes with --transport mpi"),
        (
            "--transport fabric --mpi-not-shared",
            "goes with --transport mpi",
        ),
        ("--nodes 2x2", "has 4 ranks, and there are 8"),
        (
            "--transport fabric --throttle none",
            "application, static, adaptive",
        ),
        ("extra", "unexpected argument"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(needle), "{line}: {error}");
    }
    assert!(!parse("--help").unwrap_err().contains("cargo adds"));
}
