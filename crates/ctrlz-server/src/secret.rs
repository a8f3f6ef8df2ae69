//! Secrets: made by the kernel, compared in constant time, never shown.

use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

const BYTES: usize = 32;

/// 256 random bits, written as 64 hexadecimal digits.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// A new one.
    pub(crate) fn new() -> io::Result<Secret> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        Ok(Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The digits, for whoever it is meant for.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `guess` is this secret. How long it takes says nothing about where they differ.
    pub(crate) fn is(&self, guess: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(guess).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let secret = Secret::new().unwrap();
        let text = secret.reveal().to_owned();
        assert_eq!(text.len(), 2 * BYTES);
        assert!(secret.is(text.as_bytes()));
        assert!(!secret.is(&text.as_bytes()[..63]));
        assert!(!secret.is(format!("{text}0").as_bytes()));
        assert!(!secret.is(b""));
        assert!(!secret.is(Secret::new().unwrap().reveal().as_bytes()));
        assert!(!format!("{secret:?}").contains(&text), "it is not printed by accident");
    }
}
