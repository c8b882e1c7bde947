//! The functions of a PTX text, and their parameters.

/// A function that can be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The bytes of each parameter.
    pub(crate) sizes: Vec<usize>,
    /// The offset of each parameter.
    pub(crate) offsets: Vec<usize>,
}

/// The functions of a text; `None` if it is no PTX.
pub(crate) fn entries(text: &str) -> Option<Vec<Entry>> {
    if !(text.contains(".version") && text.contains(".target")) {
        return None;
    }
    text.split(".entry").skip(1).map(entry).collect()
}

fn entry(text: &str) -> Option<Entry> {
    let name = text.trim_start();
    let end = name.find(|c: char| c == '(' || c == '{' || c.is_whitespace())?;
    let (name, rest) = name.split_at(end);
    let (mut sizes, mut offsets, mut used) = (Vec::new(), Vec::new(), 0_usize);
    if let Some(list) = rest.trim_start().strip_prefix('(') {
        for parameter in list
            .split_once(')')?
            .0
            .split(',')
            .filter(|p| p.contains(".param"))
        {
            let (size, align) = size(parameter)?;
            let offset = used.next_multiple_of(align);
            offsets.push(offset);
            sizes.push(size);
            used = offset + size;
        }
    }
    let name = name.to_owned();
    Some(Entry {
        name,
        sizes,
        offsets,
    })
}

/// `.param .align 8 .b8 name[256]`, or `.param .u64 name`: its bytes, and its alignment.
fn size(parameter: &str) -> Option<(usize, usize)> {
    let (mut each, mut align, mut words) = (None, None, parameter.split_whitespace());
    while let Some(word) = words.next() {
        match word {
            ".param" | ".ptr" | ".global" => {}
            ".align" => align = words.next()?.parse().ok(),
            _ => {
                let bits = word
                    .strip_prefix('.')
                    .and_then(|kind| kind.get(1..)?.parse::<usize>().ok());
                each = each.or(bits.map(|bits| bits / 8));
            }
        }
    }
    let each = each?;
    let count = match parameter.split_once('[') {
        Some((_, count)) => count.split_once(']')?.0.trim().parse().ok()?,
        None => 1,
    };
    Some((each * count, align.unwrap_or(each).max(1)))
}
