mod parts;
mod receiving;
mod sending;
