//! The kinds of hashes that a line may have.

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::ShaCrypt;
use sha1::{Digest as _, Sha1};
use subtle::ConstantTimeEq as _;

use crate::apr1::Apr1;

/// `htpasswd` with `-d` or `-p`, `openssl passwd -1`, yescrypt: broken long ago, or of one C
/// library.
pub(crate) const UNKNOWN: &str =
    "has a hash of a kind that is not supported: make it anew with `htpasswd -B`";
pub(crate) const BROKEN: &str = "has a hash that is not whole: make it anew with `htpasswd -B`";
pub(crate) const TOO_SLOW: &str = "has a hash that takes too long or too much memory: make it anew with a lower cost, `htpasswd -B -C 10`";

/// About five seconds.
const HIGHEST_COST: u32 = 16;
/// About a second.
const MOST_ROUNDS: u32 = 1_000_000;
/// The rounds of SHA-crypt where a hash says nothing.
const ROUNDS: u32 = 5_000;
const SHA1_LEN: usize = 20;

/// The hash of a password, by its kind.
#[derive(Debug, Clone)]
pub(crate) enum Hash {
    /// `$2y$`, `$2a$`, `$2b$`: `htpasswd -B`, PHP's `password_hash()`.
    Bcrypt { hash: Box<str>, cost: u32 },
    /// `$argon2id$`, `$argon2i$`, `$argon2d$`: PHP's `password_hash()`. Its work is kilobytes in
    /// all passes.
    Argon2 { hash: Box<PasswordHash>, work: u64 },
    /// `$5$`, `$6$`: `htpasswd -2` and `-5`, `mkpasswd`.
    ShaCrypt { hash: Box<str>, rounds: u32 },
    /// `$apr1$`: `htpasswd` by default.
    Apr1(Apr1),
    /// `{SHA}` without a salt, `{SSHA}` with one.
    Sha1 {
        digest: [u8; SHA1_LEN],
        salt: Box<[u8]>,
    },
}

impl Hash {
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        if let Some(rest) = text.strip_prefix("{SSHA}") {
            return sha1(rest, true);
        }
        if let Some(rest) = text.strip_prefix("{SHA}") {
            return sha1(rest, false);
        }
        if let Some(rest) = text.strip_prefix("$apr1$") {
            return Apr1::read(rest).map(Self::Apr1).ok_or(BROKEN);
        }
        let kind = text
            .strip_prefix('$')
            .and_then(|rest| rest.split('$').next());
        match kind {
            Some("2y" | "2a" | "2b") => bcrypt(text),
            Some("5" | "6") => sha_crypt(text),
            Some("argon2id" | "argon2i" | "argon2d") => argon2(text),
            _ => Err(UNKNOWN),
        }
    }

    /// By which the slower one of two is known: nanoseconds, roughly.
    pub(crate) fn slowness(&self) -> u64 {
        match self {
            Self::Sha1 { .. } => 1_000,
            Self::Apr1(_) => 500_000,
            Self::ShaCrypt { rounds, .. } => u64::from(*rounds) * 500,
            Self::Bcrypt { cost, .. } => 50_000 << cost,
            Self::Argon2 { work, .. } => work * 1_000,
        }
    }

    /// Compares in a time that does not depend on how much is right.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt { hash, .. } => ::bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2 { hash, .. } => {
                Argon2::default().verify_password(password, &**hash).is_ok()
            }
            Self::ShaCrypt { hash, .. } => ShaCrypt::default()
                .verify_password(password, &**hash)
                .is_ok(),
            Self::Apr1(hash) => hash.verify(password),
            Self::Sha1 { digest, salt } => {
                let of_password = Sha1::new().chain_update(password).chain_update(salt);
                of_password.finalize().ct_eq(digest).into()
            }
        }
    }
}

fn sha1(text: &str, is_salted: bool) -> Result<Hash, &'static str> {
    let bytes = STANDARD.decode(text).map_err(|_| BROKEN)?;
    let (digest, salt) = bytes.split_first_chunk().ok_or(BROKEN)?;
    if salt.is_empty() == is_salted {
        return Err(BROKEN);
    }
    Ok(Hash::Sha1 {
        digest: *digest,
        salt: salt.into(),
    })
}

fn bcrypt(text: &str) -> Result<Hash, &'static str> {
    let parts: ::bcrypt::HashParts = text.parse().map_err(|_| BROKEN)?;
    match parts.get_cost() {
        cost @ ..=HIGHEST_COST => Ok(Hash::Bcrypt {
            hash: text.into(),
            cost,
        }),
        _ => Err(TOO_SLOW),
    }
}

fn sha_crypt(text: &str) -> Result<Hash, &'static str> {
    let mut fields = text.split('$').skip(2).peekable();
    let rounds = fields.next_if(|field| field.starts_with("rounds="));
    let rounds = rounds.and_then(|field| field.strip_prefix("rounds="));
    let rounds: u32 = rounds.map_or(Ok(ROUNDS), str::parse).map_err(|_| BROKEN)?;
    if rounds > MOST_ROUNDS {
        return Err(TOO_SLOW);
    }
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    let is_whole = |digest: &str| {
        digest.len() == length
            && digest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
    };
    match (fields.next(), fields.next(), fields.next()) {
        (Some(_), Some(digest), None) if is_whole(digest) => Ok(Hash::ShaCrypt {
            hash: text.into(),
            rounds,
        }),
        _ => Err(BROKEN),
    }
}

fn argon2(text: &str) -> Result<Hash, &'static str> {
    let hash = PasswordHash::new(text).map_err(|_| BROKEN)?;
    let params = ::argon2::Params::try_from(&hash).map_err(|_| BROKEN)?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(BROKEN);
    }
    // PHP's default is 64 MB and four passes. Half a gigabyte of work in each is about a second.
    let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
    if params.m_cost() > 256 << 10 || work > 4 << 20 {
        return Err(TOO_SLOW);
    }
    Ok(Hash::Argon2 {
        hash: Box::new(hash),
        work,
    })
}
