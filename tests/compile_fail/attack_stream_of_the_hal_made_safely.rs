use std::sync::Arc;

use tidegate::host::Host;
use tidegate::hal::device::{Device, Priority, Reclaim, Stream, StreamConfig};
use tidegate::hal::memory::Ptr;

fn main() {
    let config = StreamConfig {
        name: "mine".into(),
        bell: Ptr(8 as *mut u8),
        keep: Arc::new(()),
        inline: false,
        ranks_on_node: 1,
        priority: Priority::Normal,
        helper: None,
        stamped: false,
    };
    let stream = Host::for_threads().stream(config).expect("a stream");
    stream.reclaim().abort();
}
