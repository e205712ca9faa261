//! What the figures were taken on: the machine and the versions of all programs.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use pronghorn_process::cpus;

use crate::program::{Argv, Program};
use crate::servers::find_fpm;
use crate::site::{Site, find, find_any};

/// For a program to tell its version.
const PATIENCE: Duration = Duration::from_secs(5);

/// Names and what is to be said about them, in order.
pub(crate) async fn describe(site: &Site) -> Vec<(String, String)> {
    let nginx = find("nginx", "nginx").ok();
    let php = find("php", "php-cli").ok();
    let apache = find_any(&["apache2", "httpd"], "apache2-bin").ok();
    let wrk = find("wrk", "wrk").ok();
    let h2load = find("h2load", "nghttp2-client").ok();
    let all = [
        ("CPU", cpu()),
        ("system", system()),
        ("idle CPUs", idle()),
        ("pronghorn", ours(site).await),
        ("nginx", first_line(nginx, "-v", site).await),
        ("php", php_version(php, site).await),
        ("php-fpm", php_version(find_fpm().ok(), site).await),
        ("apache", first_line(apache, "-v", site).await),
        ("wrk", first_line(wrk, "-v", site).await),
        ("h2load", first_line(h2load, "--version", site).await),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(": "))
        .map_or("of an unnamed model", |(_, model)| model);
    format!("{} × {model}", cpus::usable())
}

fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or("Linux", |name| name.trim_matches('"'));
    let kernel = setting("/proc/sys/kernel/osrelease");
    let control = setting("/proc/sys/net/ipv4/tcp_congestion_control");
    format!("{name}, kernel {kernel}, TCP by {control}")
}

/// What a processor does that has nothing to do: to wake one that halted costs a virtual machine
/// tens of microseconds.
fn idle() -> String {
    let driver = setting("/sys/devices/system/cpu/cpuidle/current_driver");
    match driver.as_str() {
        "" | "none" => "without an idle driver".to_owned(),
        "haltpoll" => {
            let polls_ns = setting("/sys/module/haltpoll/parameters/guest_halt_poll_ns");
            format!("by haltpoll, guest_halt_poll_ns={polls_ns}")
        }
        driver => format!("by {driver}"),
    }
}

/// What the kernel says of itself; nothing where it doesn't.
fn setting(path: &str) -> String {
    let said = fs::read_to_string(path).unwrap_or_default();
    said.trim().to_owned()
}

async fn php_version(program: Option<OsString>, site: &Site) -> String {
    let arguments = ["-c".into(), site.php_ini().into(), "-v".into()];
    let said = say(program, arguments.into(), site).await;
    let first = said.lines().next().unwrap_or_default();
    if first.starts_with("PHP") && !said.contains("Zend OPcache") {
        return format!("{first}, without OPcache: this distorts the comparison");
    }
    first.to_owned()
}

/// With its path: of the two binaries that the sources make, one is compiled for the load.
async fn ours(site: &Site) -> String {
    let version = first_line(Some(site.pronghorn.clone().into()), "version", site).await;
    format!("{version}, {}", site.pronghorn.display())
}

async fn first_line(program: Option<OsString>, argument: &str, site: &Site) -> String {
    let said = say(program, vec![argument.into()], site).await;
    said.lines().next().unwrap_or_default().to_owned()
}

async fn say(program: Option<OsString>, arguments: Vec<OsString>, site: &Site) -> String {
    let Some(program) = program else {
        return "not found".to_owned();
    };
    match Program::start(Argv(program, arguments), site, &site.folder).await {
        Ok(mut program) => {
            program.finish(PATIENCE).await;
            format!("{}{}", program.stdout(), program.stderr())
        }
        Err(error) => error.to_string(),
    }
}
