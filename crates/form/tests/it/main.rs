//! The crate from outside.

#[cfg(test)]
mod native;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tree;
