//! What ranks say when they have waited long for others. It depends on the machine which runs have such lines.

/// What was said, without the lines on waits.
pub(crate) fn without_waits(said: &str) -> String {
    let waits = |line: &str| line.contains(" waits ") && line.contains(" until ");
    let lines = said.split_inclusive('\n');
    lines.filter(|line| !waits(line)).collect()
}
