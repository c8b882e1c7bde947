//! Text in JSON.

use std::fmt::{self, Display, Write};

/// A text as JSON, which may also stand in a script of a page.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for each in self.0.chars() {
            match each {
                '"' | '\\' => write!(f, "\\{each}")?,
                // A page would end its script at `</script>`.
                '<' => f.write_str("\\u003c")?,
                each if each < ' ' => write!(f, "\\u{:04x}", each as u32)?,
                each => f.write_char(each)?,
            }
        }
        f.write_char('"')
    }
}

/// Nanoseconds as microseconds.
pub(super) struct Micros(pub(super) i64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back() {
        let text = "a \"b\" \\ </script> \n\u{1} é";
        let quoted = Quoted(text).to_string();
        assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        assert!(!quoted.contains('<'));
        assert_eq!(Micros(1_234_005).to_string(), "1234.005");
    }
}
