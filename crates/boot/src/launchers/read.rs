//! Parsing of PMI servers' answers. These are pure functions of bytes.
//!
//! # Model
//!
//! An answer is a list of names with values, and the first name is `cmd`. In version 1 it is a line, with spaces
//! between the pairs. In version 2 its length is in front (six characters, padded on either side), and a semicolon is
//! behind each value. A semicolon in a value is doubled.
//!
//! # Failure
//!
//! If bytes are no answer, the error says why. It does not repeat them, since values may be secrets.

use super::store::StoreError;

/// A longer line or message is taken as having no end.
const LONGEST: usize = 64 << 10;
/// How many characters are the length in version 2.
const LENGTH: usize = 6;

/// One answer of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PmiAnswer(Vec<(String, String)>);

impl PmiAnswer {
    /// The value of a name. If the name occurs twice, the first one counts.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| &**value)
    }

    /// The number of this name.
    pub(crate) fn number(&self, name: &str) -> Result<usize, StoreError> {
        let found = self.get(name).and_then(|value| value.parse().ok());
        found.ok_or_else(|| StoreError::Garbled(format!("it does not say its {name}")))
    }

    /// The value that was asked for.
    pub(crate) fn value(&self) -> Result<String, StoreError> {
        let value = self.get("value").map(str::to_owned);
        value.ok_or_else(|| StoreError::Garbled("its answer has no value".into()))
    }

    /// The kind of the answer: the value of `cmd`, if it is short enough.
    pub(crate) fn command(&self) -> &str {
        let command = self.get("cmd").unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if command.len() <= 40 && command.bytes().all(plain) {
            command
        } else {
            ""
        }
    }

    /// An error if the server refuses. An answer without a code means success.
    pub(crate) fn accepted(&self) -> Result<(), StoreError> {
        match self.get("rc") {
            None | Some("0") => Ok(()),
            Some(code) => {
                let said = self.get("msg").or(self.get("errmsg"));
                let short = |text: &str| text.chars().take(80).collect::<String>();
                let said = said.map(short).unwrap_or_default();
                Err(StoreError::Refused(format!("{} {said}", short(code))))
            }
        }
    }
}

/// The first line of `bytes`, in version 1, with its length. `None`: it is not complete.
pub(crate) fn line(bytes: &[u8]) -> Result<Option<(usize, PmiAnswer)>, String> {
    let Some(end) = bytes.iter().take(LONGEST).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST {
            Ok(None)
        } else {
            Err("its line has no end".into())
        };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "it speaks no UTF-8".to_owned())?;
    // Some servers include a string's NUL.
    let text = text.trim_matches(['\0', '\r', ' ']);
    let words = text.split(' ').filter_map(|word| word.split_once('='));
    let answer = PmiAnswer(words.map(|(n, v)| (n.to_owned(), v.to_owned())).collect());
    match answer.command() {
        "" => Err("its line is no answer of PMI-1".into()),
        _ => Ok(Some((end + 1, answer))),
    }
}

/// The first message of `bytes`, in version 2, with its length. `None`: it is not complete.
pub(crate) fn message(bytes: &[u8]) -> Result<Option<(usize, PmiAnswer)>, String> {
    let Some((length, rest)) = bytes.split_at_checked(LENGTH) else {
        return Ok(None);
    };
    let number = std::str::from_utf8(length).ok().map(str::trim);
    let length = match number.map(str::parse::<usize>) {
        Some(Ok(length)) if length <= LONGEST => length,
        _ => return Err("its message has no length".into()),
    };
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let body = std::str::from_utf8(body).map_err(|_| "it speaks no UTF-8".to_owned())?;
    let answer = PmiAnswer(pairs(body));
    match answer.command() {
        "" => Err("its message is no answer of PMI-2".into()),
        _ => Ok(Some((LENGTH + length, answer))),
    }
}

/// Parses `name=value;name=value;`. A doubled semicolon is part of a value.
fn pairs(body: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pair = String::new();
    let mut chars = body.chars().peekable();
    while let Some(next) = chars.next() {
        if next != ';' {
            pair.push(next);
        } else if chars.next_if_eq(&';').is_some() {
            pair.push(';');
        } else {
            add(&mut found, &std::mem::take(&mut pair));
        }
    }
    // The last pair may lack its semicolon.
    add(&mut found, &pair);
    found
}

fn add(found: &mut Vec<(String, String)>, pair: &str) {
    if let Some((name, value)) = pair.split_once('=') {
        found.push((name.to_owned(), value.to_owned()));
    }
}

/// A message of version 2.
pub(crate) fn frame(body: &str) -> Vec<u8> {
    format!("{:LENGTH$}{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = b"cmd=get_result rc=0 msg=success value=a=b\ncmd=next\n";
        let (used, answer) = line(text).unwrap().unwrap();
        assert_eq!(&text[used..], b"cmd=next\n");
        assert_eq!(answer.command(), "get_result");
        assert_eq!(answer.get("value"), Some("a=b"));
        assert_eq!(answer.get("rc"), Some("0"));
        assert_eq!(answer.get("none"), None);
        assert!(line(b"cmd=half").unwrap().is_none());
        for bad in [
            &b"\n"[..],
            b"hello\n",
            b"cmd=\n",
            b"rc=0\n",
            b"cmd=\xff\n",
            b"cmd=a;b\n",
        ] {
            assert!(line(bad).is_err(), "{bad:?}");
        }
        assert!(line(&vec![b'x'; LONGEST]).is_err());
    }

    #[test]
    fn messages_are_read_whichever_way_their_length_is_padded() {
        let body = "cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=c;";
        for text in [
            String::from_utf8(frame(body)).unwrap(),
            format!("{:<6}{body}", body.len()),
            format!("{:06}{body}", body.len()),
        ] {
            let (used, answer) = message(text.as_bytes()).unwrap().unwrap();
            assert_eq!(used, text.len());
            assert_eq!(answer.command(), "kvs-get-response");
            assert_eq!(answer.get("value"), Some("a;b=c"));
            assert!(message(&text.as_bytes()[..used - 1]).unwrap().is_none());
        }
        for bad in ["xxxxxx", "-00001", "999999", "     3a=b", "000000"] {
            assert!(message(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
