//! The rules of Google's "Trace Event Format", as a check.

use std::collections::HashMap;

use serde_json::{Value, json};

/// What Google's "Trace Event Format" asks of each kind of event, and that slices of a thread nest.
pub(crate) fn check(text: &str) -> usize {
    let whole: Value = serde_json::from_str(text).unwrap();
    assert!(matches!(
        whole["displayTimeUnit"].as_str(),
        Some("ns" | "ms")
    ));
    let events = whole["traceEvents"].as_array().unwrap();
    let mut flows = HashMap::<u64, Vec<&Value>>::new();
    let mut threads = HashMap::<(u64, u64), Vec<(f64, f64)>>::new();
    let (mut named, mut used) = (Vec::new(), Vec::new());
    for event in events {
        let text = |field: &str| {
            event[field]
                .as_str()
                .unwrap_or_else(|| panic!("{field}: {event}"))
        };
        let number = |field: &str| {
            event[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{field}: {event}"))
        };
        let whole = |field: &str| {
            event[field]
                .as_u64()
                .unwrap_or_else(|| panic!("{field}: {event}"))
        };
        let of = (whole("pid"), whole("tid"));
        assert!(of.0 > 0 && of.1 > 0 && !text("name").is_empty(), "{event}");
        if text("ph") != "M" {
            assert!(number("ts") >= 0.0 && !text("cat").is_empty(), "{event}");
            used.push(of);
        }
        match text("ph") {
            "X" => {
                assert!(number("dur") >= 0.0 && event["args"].is_object(), "{event}");
                threads
                    .entry(of)
                    .or_default()
                    .push((number("ts"), number("ts") + number("dur")));
            }
            "i" => assert!(matches!(text("s"), "g" | "p" | "t"), "{event}"),
            "s" => flows.entry(whole("id")).or_default().push(event),
            "f" => {
                assert_eq!(text("bp"), "e", "{event}");
                flows.entry(whole("id")).or_default().push(event);
            }
            "M" => {
                let args = &event["args"];
                match text("name") {
                    "process_name" => assert!(args["name"].is_string()),
                    "thread_name" => {
                        assert!(args["name"].is_string());
                        named.push(of);
                    }
                    "process_sort_index" | "thread_sort_index" => {
                        assert!(args["sort_index"].is_u64())
                    }
                    "process_labels" => assert!(args["labels"].is_string()),
                    other => panic!("{other} is no name of metadata"),
                }
            }
            other => panic!("{other} is no phase that is used here"),
        }
    }
    assert!(
        used.iter().all(|of| named.contains(of)),
        "a thread has no name"
    );
    for (of, mut slices) in threads.clone() {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut around: Vec<f64> = Vec::new();
        for (begun, ended) in slices {
            // Nanoseconds as microseconds are not exact in binary.
            around.retain(|end| *end > begun + 0.0005);
            assert!(
                around.iter().all(|end| ended <= end + 0.0005),
                "{of:?}: {begun} to {ended}, {around:?}"
            );
            around.push(ended);
        }
    }
    for (id, ends) in &flows {
        assert_eq!(ends.len(), 2, "flow {id}");
        assert_eq!((&ends[0]["ph"], &ends[1]["ph"]), (&json!("s"), &json!("f")));
        for field in ["name", "cat"] {
            assert_eq!(ends[0][field], ends[1][field]);
        }
        for end in ends {
            // An arrow begins and ends at a slice.
            let of = (end["pid"].as_u64().unwrap(), end["tid"].as_u64().unwrap());
            let at = end["ts"].as_f64().unwrap();
            let inside =
                |(begun, ended): &(f64, f64)| *begun - 0.0005 <= at && at <= *ended + 0.0005;
            assert!(threads[&of].iter().any(inside), "{end}");
        }
    }
    flows.len()
}
