//! The crate from outside: against PHP and against the vectors.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod native;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tree;
