//! Tests of the crate from outside.

mod circles;
mod configuration;
mod features;
mod layers;
mod manifests;
mod pages;
mod peer_memory;
mod ratchet;
