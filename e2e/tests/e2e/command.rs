//! The command line: what a person types, and what they are told.

use pronghorn_testkit::{Server, Site, free_address};

const WORKING: &str = "version: '3'\nserver: {command: php worker.php}\nhttp: {address: 127.0.0.1:0, pool: {num_workers: 2}}\n";

#[test]
fn a_script_alone_is_served() {
    let site = Site::new().file("worker.php", &Site::sdk_worker("return 'Served';"));
    let server = Server::start_with(
        site,
        &["serve", "worker.php", "-o", "http.address=127.0.0.1:0"],
    );
    assert_eq!(server.get("/").text(), "Served");
    assert!(
        server.log().contains("workers of `php") && server.stdout().is_empty(),
        "{}{}",
        server.stdout(),
        server.log()
    );
    server.stop();
}

#[test]
fn a_folder_without_an_application_says_what_was_looked_for() {
    let site = Site::new().file("notes.txt", "");
    let ended = Server::run(&site, &["serve"]);
    assert_eq!(ended.code, Some(2));
    for part in [
        "pronghorn.yaml",
        ".rr.yaml",
        "artisan",
        "`pronghorn serve worker.php`",
    ] {
        assert!(ended.stderr.contains(part), "{part} in\n{}", ended.stderr);
    }
}

#[test]
fn a_script_that_is_not_there_is_named() {
    let ended = Server::run(&Site::new(), &["serve", "worker.php"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("there is no script `worker.php`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_configuration_that_serves_nothing_is_refused() {
    let site = Site::new()
        .config("version: '3'\nserver: {command: php worker.php}\n")
        .file("worker.php", &Site::sdk_worker("return 'x';"));
    let ended = Server::run(&site, &["serve"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("nothing to serve")
            && ended.stderr.contains("hint: `-o http.address"),
        "{}",
        ended.stderr
    );
    // The script that was asked for would not run, whatever else is there.
    for more in ["", "rpc: {listen: 'tcp://127.0.0.1:0'}\n"] {
        let site = Site::new()
            .config(&format!("version: '3'\n{more}"))
            .file("worker.php", &Site::sdk_worker("return 'x';"));
        let ended = Server::run(&site, &["serve", "worker.php"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("the script would not run"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn log_files_lie_in_the_working_folder() {
    let site = Site::new()
        .file(
            "app/.rr.yaml",
            &format!("{WORKING}logs: {{output: server.log}}\n"),
        )
        .file("app/worker.php", &Site::sdk_worker("return 'x';"));
    let server = Server::start_with(site, &["serve", "-w", "app"]);
    server.get("/");
    let site = server.into_site();
    assert!(
        std::fs::read_to_string(site.path("app/server.log"))
            .unwrap()
            .contains("http log")
    );
    assert!(!site.path("server.log").exists());
}

#[test]
fn every_mistake_of_a_configuration_is_reported_at_once() {
    let site = Site::new().config(
        "version: '3'\nserver: {command: php worker.php}\nhttp:\n  adress: :80\n  pool: {num_workers: many, boot_timeout: 60}\n",
    );
    for command in ["serve", "check"] {
        let ended = Server::run(&site, &[command]);
        assert_eq!(ended.code, Some(2), "{command}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        for part in [
            ".rr.yaml:4:3",
            "did you mean `address`",
            "num_workers",
            "`60s`",
        ] {
            assert!(said.contains(part), "{command}: {part} in\n{said}");
        }
    }
}

#[test]
fn a_configuration_that_is_no_yaml_is_refused_with_its_place() {
    let site = Site::new().config("http: {address: [\n");
    let ended = Server::run(&site, &["serve"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains(".rr.yaml:"), "{}", ended.stderr);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let ended = Server::run(&Site::new(), &["serve", "-c", "nowhere.yaml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("nowhere.yaml"), "{}", ended.stderr);
}

#[test]
fn check_and_show_start_nothing() {
    let site = Site::new()
        .config(WORKING)
        .file("worker.php", "<?php file_put_contents('started', '');");
    let checked = Server::run(&site, &["check"]);
    assert_eq!(
        checked.code,
        Some(0),
        "{}{}",
        checked.stdout,
        checked.stderr
    );
    let shown = Server::run(&site, &["config", "show"]);
    assert_eq!(shown.code, Some(0));
    assert!(shown.stdout.contains("num_workers"), "{}", shown.stdout);
    assert!(!site.path("started").exists());
}

#[test]
fn misuse_is_code_2_and_help_is_code_0() {
    let site = Site::new();
    assert_eq!(Server::run(&site, &["serv"]).code, Some(2));
    assert_eq!(Server::run(&site, &["serve", "--nope"]).code, Some(2));
    let help = Server::run(&site, &["--help"]);
    assert_eq!(help.code, Some(0));
    for command in ["serve", "check", "config", "version"] {
        assert!(help.stdout.contains(command), "{}", help.stdout);
    }
    assert!(
        Server::run(&site, &["version"])
            .stdout
            .starts_with("pronghorn 0.")
    );
}

#[test]
fn the_process_number_is_in_a_file_while_the_server_runs() {
    let site = Site::new()
        .config(WORKING)
        .file("worker.php", &Site::sdk_worker("return 'x';"));
    let server = Server::start_with(site, &["serve", "-p"]);
    let file = server.site().path(".pid");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap().trim(),
        server.pid().to_string()
    );
    server.stop();
    assert!(!file.exists());
}

#[test]
fn called_rr_it_says_what_tools_read() {
    let site = Site::new();
    for flag in ["--version", "-v"] {
        let version = Server::run_as_rr(&site, &[flag]);
        assert_eq!(version.code, Some(0), "{}", version.stderr);
        assert!(
            version.stdout.starts_with("rr version 2025.1."),
            "{}",
            version.stdout
        );
    }
    let free = free_address();
    let site = site
        .config(WORKING)
        .file("worker.php", &Site::sdk_worker("return 'x';"));
    let address = format!("http.address={free}");
    let server = Server::start_as_rr(
        site,
        &["serve", "-c", ".rr.yaml", "-o", &address],
        &[],
        free,
    );
    assert!(
        server
            .stdout()
            .starts_with("[INFO] RoadRunner server started; version: 2025.1."),
        "{}",
        server.stdout()
    );
    assert_eq!(server.get("/").text(), "x");
    server.stop();
}

/// Data that does not get out is a failure, and never a panic.
#[test]
fn output_that_can_not_be_written_fails_the_command() {
    let worker = Site::sdk_worker("return 'x';");
    let site = Site::new().config(WORKING).file("worker.php", &worker);
    for arguments in [
        &["config", "show"][..],
        &["check"],
        &["crashes"],
        &["version"],
        &["--help"],
        &["completion", "bash"],
    ] {
        for (stdout, stderr, code) in [
            ("/dev/full", "/dev/null", Some(1)),
            ("/dev/null", "/dev/full", Some(0)),
        ] {
            let open = |path| std::fs::OpenOptions::new().write(true).open(path).unwrap();
            let status = std::process::Command::new(pronghorn_testkit::binary())
                .args(arguments)
                .current_dir(site.folder())
                .stdin(std::process::Stdio::null())
                .stdout(open(stdout))
                .stderr(open(stderr))
                .status()
                .unwrap();
            assert_eq!(status.code(), code, "{arguments:?} > {stdout} 2> {stderr}");
        }
    }
}
