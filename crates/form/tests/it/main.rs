//! The crate from outside: against PHP, against the vectors, and its properties.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod native;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tree;
