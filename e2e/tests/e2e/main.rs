//! The real binary with real PHP: client answer, log line, and that nothing is left.

mod apps;
mod behind_nginx;
mod bodies;
mod called_as_rr;
mod command;
mod control;
mod development;
mod examples;
mod faults;
mod files;
mod foreign;
mod guide;
mod http;
mod life;
mod malformed;
mod middleware;
mod misbehaviour;
mod nginx;
mod reload;
mod replies;
mod requests;
mod routes;
mod start;
mod steering;
mod supervision;
mod upgrade;
