//! A reader of MessagePack, of the kinds that metadata of code objects has.

/// A value.
#[derive(Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool(bool),
    /// A number that is not negative.
    Number(u64),
    /// A negative number.
    Negative(i64),
    Text(&'a str),
    List(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
}

/// How deep values may lie in each other.
const DEPTH: usize = 32;

impl<'a> Value<'a> {
    /// The value that these bytes begin with, or `None` if they are something else, or not whole.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        Reader(bytes).value(DEPTH)
    }

    /// The value of a map under a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value<'a>> {
        let Value::Map(entries) = self else {
            return None;
        };
        let entry = entries.iter().find(|(name, _)| name.text() == Some(key));
        entry.map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Value<'a>]> {
        match self {
            Value::List(values) => Some(values),
            _ => None,
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A big-endian number of so many bytes.
    fn number(&mut self, bytes: u64) -> Option<u64> {
        let bytes = self.bytes(bytes)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        let depth = depth.checked_sub(1)?;
        let first = self.number(1)?;
        // The number's size as a power of two, which the last bits of many first bytes say.
        let wide = |base: u64| 1 << (first - base);
        Some(match first {
            0x00..=0x7f => Value::Number(first),
            0x80..=0x8f => self.map(first & 0xf, depth)?,
            0x90..=0x9f => self.list(first & 0xf, depth)?,
            0xa0..=0xbf => self.text(first & 0x1f)?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Bool(first == 0xc3),
            0xcc..=0xcf => Value::Number(self.number(wide(0xcc))?),
            0xd0..=0xd3 => {
                let bytes = wide(0xd0);
                signed(self.number(bytes)?, bytes)
            }
            0xd9..=0xdb => {
                let len = self.number(wide(0xd9))?;
                self.text(len)?
            }
            0xdc | 0xdd => {
                let len = self.number(2 * wide(0xdc))?;
                self.list(len, depth)?
            }
            0xde | 0xdf => {
                let len = self.number(2 * wide(0xde))?;
                self.map(len, depth)?
            }
            0xe0..=0xff => signed(first, 1),
            // Bytes, floating-point numbers and extensions: there are none in metadata.
            _ => return None,
        })
    }

    fn text(&mut self, len: u64) -> Option<Value<'a>> {
        std::str::from_utf8(self.bytes(len)?).ok().map(Value::Text)
    }

    // A length is not believed before the values are there.

    fn list(&mut self, len: u64, depth: usize) -> Option<Value<'a>> {
        let mut values = Vec::new();
        for _ in 0..len {
            values.push(self.value(depth)?);
        }
        Some(Value::List(values))
    }

    fn map(&mut self, len: u64, depth: usize) -> Option<Value<'a>> {
        let mut entries = Vec::new();
        for _ in 0..len {
            entries.push((self.value(depth)?, self.value(depth)?));
        }
        Some(Value::Map(entries))
    }
}

/// A number with a sign, of so many bytes.
fn signed(number: u64, bytes: u64) -> Value<'static> {
    let unused = 64 - 8 * bytes;
    match (number << unused) as i64 >> unused {
        negative @ ..0 => Value::Negative(negative),
        number => Value::Number(number as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_sizes() {
        for (bytes, value) in [
            (&[0x00][..], Value::Number(0)),
            (&[0x7f], Value::Number(127)),
            (&[0xcc, 0xff], Value::Number(255)),
            (&[0xcd, 1, 2], Value::Number(0x102)),
            (&[0xce, 1, 2, 3, 4], Value::Number(0x0102_0304)),
            (
                &[0xcf, 0xff, 0, 0, 0, 0, 0, 0, 1],
                Value::Number(0xff00_0000_0000_0001),
            ),
            (&[0xff], Value::Negative(-1)),
            (&[0xe0], Value::Negative(-32)),
            (&[0xd0, 0x80], Value::Negative(-128)),
            (&[0xd1, 0x01, 0x00], Value::Number(256)),
            (&[0xd2, 0xff, 0xff, 0xff, 0xfe], Value::Negative(-2)),
            (
                &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0],
                Value::Negative(i64::MIN),
            ),
            (&[0xc0], Value::Nil),
            (&[0xc2], Value::Bool(false)),
            (&[0xc3], Value::Bool(true)),
        ] {
            assert_eq!(Value::of(bytes), Some(value), "{bytes:x?}");
            assert_eq!(Value::of(&bytes[..bytes.len() - 1]), None, "{bytes:x?}");
        }
        for other in [0xc1, 0xc4, 0xc7, 0xca, 0xcb, 0xd4, 0xd8] {
            assert_eq!(
                Value::of(&[other, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                None,
                "{other:x}"
            );
        }
    }

    #[test]
    fn texts_lists_and_maps_of_all_sizes() {
        let long = "x".repeat(300);
        for (head, len) in [
            (&[0xa3][..], 3),
            (&[0xd9, 200], 200),
            (&[0xda, 1, 44], 300),
            (&[0xdb, 0, 0, 1, 0], 256),
        ] {
            let bytes = [head, &long.as_bytes()[..len]].concat();
            assert_eq!(Value::of(&bytes), Some(Value::Text(&long[..len])));
            assert_eq!(Value::of(&bytes[..bytes.len() - 1]), None);
        }
        for head in [&[0x92][..], &[0xdc, 0, 2], &[0xdd, 0, 0, 0, 2]] {
            let bytes = [head, &[5, 0xa1, b'y']].concat();
            let list = Value::of(&bytes).unwrap();
            assert_eq!(list.list(), Some(&[Value::Number(5), Value::Text("y")][..]));
        }
        for head in [&[0x81][..], &[0xde, 0, 1], &[0xdf, 0, 0, 0, 1]] {
            let bytes = [head, &[0xa1, b'k', 7]].concat();
            let map = Value::of(&bytes).unwrap();
            assert_eq!(map.get("k").and_then(Value::number), Some(7));
            assert_eq!(map.get("l"), None);
        }
        assert_eq!(Value::of(&[0xa1, 0xff]), None, "it is no text");
    }

    #[test]
    fn bytes_that_lie_about_their_length_or_depth_are_refused() {
        assert_eq!(Value::of(&[0xdd, 0xff, 0xff, 0xff, 0xff, 1]), None);
        assert_eq!(Value::of(&[0xdb, 0xff, 0xff, 0xff, 0xff, 1]), None);
        assert_eq!(Value::of(&[0x91; 1 << 20]), None);
    }
}
