//! A service of one's own, without HTTP: `examples/service`.

use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::Signal;

use crate::control::Rpc;

fn start() -> Server {
    let worker = Site::example("service").with_file_name("worker.php");
    let config = format!(
        "version: '3'\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\nlogs: {{level: debug, encoding: json}}\n\
         echo: {{prefix: 'one: ', pool: {{command: php {}, num_workers: 2}}}}\n",
        worker.display()
    );
    let site = Site::new().config(&config);
    Server::start_own_without_http("echo-service", site, &["serve"])
}

fn pids(rpc: &mut Rpc) -> Vec<u32> {
    let workers = rpc.workers("echo");
    workers.into_iter().map(|(pid, _)| pid).collect()
}

#[test]
fn it_starts_answers_reloads_and_stops_with_its_pool() {
    let server = start();
    let mut rpc = Rpc::connect(&server);
    assert_eq!(rpc.call("echo.Say", "\"hello\""), "\"one: HELLO\"");
    assert_eq!(rpc.call("echo.Say", "\"\""), "\"one: \"");
    assert_eq!(rpc.call("resetter.List", "true"), "[\"echo\"]");
    let ready = rpc.call("status.Ready", "{\"plugin\":\"echo\"}");
    assert!(ready.contains("200"), "{ready}");
    let before = pids(&mut rpc);
    assert_eq!(before.len(), 2);

    server.site().change_config("'one: '", "'two: '");
    server
        .site()
        .change_config("num_workers: 2", "num_workers: 3");
    server.signal(Signal::HUP);
    server.logged(&["the configuration is applied"]);
    assert!(!server.log().contains("can't apply"));
    assert_eq!(rpc.call("echo.Say", "\"hello\""), "\"two: HELLO\"");
    let after = wait_for("three new workers", || {
        let now = pids(&mut rpc);
        (now.len() == 3).then_some(now)
    });
    assert!(before.iter().all(|pid| !after.contains(pid)), "{after:?}");

    assert_eq!(rpc.call("resetter.Reset", "\"echo\""), "true");
    assert_eq!(rpc.call("echo.Say", "\"again\""), "\"two: AGAIN\"");
    server.stop();
}

#[test]
fn what_its_reload_does_not_apply_is_named() {
    let server = start();
    server
        .site()
        .change_config("tcp://127.0.0.1:0", "tcp://127.0.0.1:1");
    server.signal(Signal::HUP);
    server.logged(&["rpc.listen", "a reload can't apply"]);
    server.logged(&["the configuration is applied"]);
    server.stop();
}

#[test]
fn mistakes_in_its_section_are_told_as_all_others() {
    let site = Site::new().config("version: '3'\necho: {prefx: x, pool: {warmup: [/]}}\n");
    let mut check = std::process::Command::new(pronghorn_testkit::built("echo-service"));
    let said = check.arg("check").current_dir(site.folder()).output();
    let said = String::from_utf8(said.expect("it runs").stdout).expect("UTF-8");
    for part in [
        "unknown key `echo.prefx`",
        "did you mean `prefix`?",
        "`echo.pool.warmup` is of pools that answer HTTP requests",
        "`echo` has no workers for pool `echo`: neither `server.command` nor `echo.pool.command` is set",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}
