//! The server over sockets that the system gave.

#[cfg(test)]
mod calling;
mod listening;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod support;
