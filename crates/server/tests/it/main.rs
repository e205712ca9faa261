//! Tests of the crate from outside.

mod configuration;
mod features;
mod layers;
mod pages;
