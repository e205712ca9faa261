mod receiving;
mod sending;
