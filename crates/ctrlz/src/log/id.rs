//! Ids of operations: ULIDs, sortable by time.

use crate::clock::now_millis;
use crate::fs::fill_random;

/// Returns a new id, sortable by time.
pub(crate) fn new_id() -> String {
    id_at(now_millis())
}

/// Returns an id that sorts after `last`, even if the clock was set back.
pub(super) fn id_after(last: Option<&str>, at_millis: u64) -> String {
    let id = id_at(at_millis);
    match last.and_then(number_of) {
        Some(last) if id.as_str() <= text_of(last).as_str() => text_of(last.wrapping_add(1)),
        _ => id,
    }
}

/// Returns a ULID: 48 bits of milliseconds and 80 random bits, in Crockford's base 32.
fn id_at(at_millis: u64) -> String {
    let mut random = [0; 16];
    fill_random(&mut random[6..]);
    text_of((u128::from(at_millis) << 80) | u128::from_be_bytes(random))
}

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

fn text_of(value: u128) -> String {
    (0..26).rev().map(|at| char::from(DIGITS[(value >> (at * 5)) as usize & 31])).collect()
}

fn number_of(id: &str) -> Option<u128> {
    let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte);
    id.bytes().try_fold(0u128, |value, byte| Some((value << 5) | digit(byte)? as u128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time() {
        let (early, late) = (id_at(1_000), id_at(2_000));
        assert_eq!(early.len(), 26);
        assert!(early < late);
        assert_ne!(id_at(5), id_at(5));
        let last = id_at(9_000);
        assert!(id_after(Some(&last), 1_000) > last, "the clock was set back");
    }
}
