//! What `Debug` says about each type: what it is, and no contents that the host may not read.

use tidegate_core::element::Element;
use tidegate_core::window::SlotWindow;
use tidegate_core::{AllReduce, Barrier, IndexSet, Part, Region, World, WorldOptions, stream};
use tidegate_host::Host;

#[test]
fn regions_say_where_they_are_at_home() {
    World::<Host>::local(1, |world| {
        let values: Vec<u16> = (0..9).collect();
        let region = Region::from_vec(&world, values).unwrap();
        let head = r#"Region { element: u16, device: "host", home:"#;
        let said = format!("{head} host, len: 9, values: [0, 1, 2, 3, 4, 5, 6, 7, ..] }}");
        assert_eq!(format!("{region:?}"), said);
        let region = region.split_at(8).unwrap().0;
        let said = format!("{head} host, len: 8, values: [0, 1, 2, 3, 4, 5, 6, 7] }}");
        assert_eq!(format!("{region:?}"), said);
        stream!(let s = world.stream().unwrap());
        let region = region.on(&s).unwrap();
        assert_eq!(format!("{region:?}"), format!("{head} stream, len: 8 }}"));
        let empty = Region::<u16, _>::zeroed(&world, 0).unwrap();
        assert_eq!(
            format!("{empty:?}"),
            format!("{head} host, len: 0, values: [] }}")
        );
    });
}

/// A region of elements without `Debug` has none, except a region on a stream.
#[test]
fn elements_need_not_be_debug() {
    #[derive(Clone, Copy)]
    #[repr(transparent)]
    struct Silent(u8);
    // SAFETY: it is a `u8`.
    unsafe impl Element for Silent {
        const LAYOUT: u64 = 1;
    }
    World::<Host>::local(1, |world| {
        stream!(let s = world.stream().unwrap());
        let region = Region::from_slice(&world, &[Silent(1)]).unwrap();
        assert_eq!(region[0].0, 1);
        let said = format!("{:?}", region.on(&s).unwrap());
        assert!(said.contains("Silent,"), "{said}");
    });
}

#[test]
fn tokens_say_of_which_window_they_are() {
    let said = World::<Host>::local(2, |world| {
        let peer = 1 - world.rank();
        stream!(let s = world.named_stream("s").unwrap());
        let mut window = SlotWindow::<f64>::new("w");
        window.slot_from(peer, 0, 3);
        let to = window.slot_to(peer, 0);
        let declared = format!("{window:?}");
        assert!(declared.contains(r#"name: "w""#), "{declared}");
        let (inbox, outbox) = window.open(&s).unwrap();
        let source = Region::<f64, _>::zeroed(&world, 3).unwrap().on(&s).unwrap();
        let mut said = vec![
            format!("{world:?}"),
            format!("{inbox:?}"),
            format!("{outbox:?}"),
        ];
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&source, to).unwrap();
        said.extend([format!("{exposed:?}"), format!("{epoch:?}")]);
        let outbox = epoch.complete(&s).unwrap();
        let mut inbox = exposed.wait(&s).unwrap();
        said.push(format!("{:?}", inbox.read(&s).unwrap()));
        let barrier = Barrier::open(&s, "all").unwrap();
        let sum = AllReduce::<u32, _>::open(&s, "sum", 5, tidegate_hal::batch::Op::Sum).unwrap();
        said.extend([format!("{barrier:?}"), format!("{sum:?}")]);
        drop((outbox, inbox));
        said
    });
    let half = |token: &str| {
        let of = r#"window: "w", id: number 0, element: f64, device: "host", rank: 1, peers: [0]"#;
        format!("{token} {{ {of}, .. }}")
    };
    let expected = [
        r#"World { rank: 1, size: 2, device: "host", .. }"#,
        &half("Inbox"),
        &half("Outbox"),
        &half("Exposed"),
        &half("Access"),
        "Slots { element: f64, lengths: [3] }",
        r#"Barrier { name: "all", id: number 1, device: "host", .. }"#,
        r#"AllReduce { name: "sum", id: number 2, element: u32, device: "host", len: 5, .. }"#,
    ];
    assert_eq!(said[1], expected);
}

#[test]
fn parts_recordings_and_options_say_what_they_are() {
    World::<Host>::local(1, |world| {
        stream!(let mut s = world.stream().unwrap());
        let region = Region::<u8, _>::zeroed(&world, 6).unwrap().on(&s).unwrap();
        let three = IndexSet::from_ranges([0..2, 3..4]).unwrap();
        let parts = region.partition([three]).unwrap();
        let part: &Part<_, _> = &parts[0];
        let said = format!("{part:?}");
        let expected =
            r#"Part { element: u8, device: "host", home: stream, elements: 3, whole_len: 6 }"#;
        assert_eq!(said, expected);
        let lent = Region::<u8, _>::zeroed(&world, 6).unwrap().on(&s).unwrap();
        let (graph, _lent) = s.capture(lent, |_, lent| Ok(lent)).unwrap();
        assert_eq!(
            format!("{graph:?}"),
            r#"Graph { device: "host", lent: 1, .. }"#
        );
    });
    let said = format!("{:?}", WorldOptions::new());
    assert!(
        said.starts_with("WorldOptions { nic: none, route: None"),
        "{said}"
    );
}
