//! `$apr1$`: the hash by MD5 that `htpasswd` makes by default. No crate that is kept has it.
//!
//! The steps are those of `apr_md5_encode` in Apache's Portable Runtime, and of crypt's `$1$` with
//! another name in the first one.

use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

const LONGEST_SALT: usize = 8;
const ROUNDS: u32 = 1000;
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[derive(Debug, Clone)]
pub(crate) struct Apr1 {
    salt: Box<[u8]>,
    digest: [u8; 22],
}

impl Apr1 {
    /// The text after `$apr1$`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (salt, digest) = text.split_once('$')?;
        let digest: [u8; 22] = digest.as_bytes().try_into().ok()?;
        let is_whole =
            salt.len() <= LONGEST_SALT && digest.iter().all(|byte| DIGITS.contains(byte));
        is_whole.then(|| Self {
            salt: salt.as_bytes().into(),
            digest,
        })
    }

    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        digits(&digest(password, &self.salt))
            .ct_eq(&self.digest)
            .into()
    }
}

fn digest(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password);
    let inner: [u8; 16] = inner.finalize().into();
    let mut first = Md5::new()
        .chain_update(password)
        .chain_update(b"$apr1$")
        .chain_update(salt);
    for (at, _) in password.chunks(16).enumerate() {
        let left = password.len() - at * 16;
        first.update(&inner[..left.min(16)]);
    }
    let mut length = password.len();
    while length > 0 {
        // The second one is the first byte of the password, as the original has it.
        let byte = if length & 1 == 1 { 0 } else { password[0] };
        first.update([byte]);
        length >>= 1;
    }
    let mut digest: [u8; 16] = first.finalize().into();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        let is_odd = round & 1 == 1;
        next.update(if is_odd { password } else { &digest });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &digest } else { password });
        digest = next.finalize().into();
    }
    digest
}

/// Six bits to a digit, the lowest first, of bytes in an order of their own.
fn digits(digest: &[u8; 16]) -> [u8; 22] {
    const ORDER: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut text = [0; 22];
    let mut out = text.iter_mut();
    let mut put = |mut bits: u32, count: usize| {
        for place in out.by_ref().take(count) {
            *place = DIGITS[(bits & 63) as usize];
            bits >>= 6;
        }
    };
    for [high, middle, low] in ORDER {
        let byte = |at: usize| u32::from(digest[at]);
        put(byte(high) << 16 | byte(middle) << 8 | byte(low), 4);
    }
    put(u32::from(digest[11]), 2);
    text
}
