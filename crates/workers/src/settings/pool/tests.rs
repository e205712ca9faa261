use pronghorn_config::{Input, Severity, load};

use super::*;

fn read<S: Section>(text: &str) -> (Option<S>, String) {
    let loaded = load(&Input::from_text("a.yaml", text));
    let resolved = loaded.resolve::<S>(Severity::Error);
    let said = resolved.report().to_string();
    (resolved.into_settings().ok(), said)
}

#[test]
fn a_pool_without_requests_takes_what_workers_have_in_common() {
    let text = "{command: php jobs.php, num_workers: 3, max_queue_size: 7, queue_timeout: 2s, \
                 destroy_timeout: 3s, reset_timeout: 4s, max_jobs: 5, transport: relay, \
                 codec: proto, relay: {fence: never}, ini: {memory_limit: 64M}, \
                 client_gone: run, supervisor: {ttl: 1h, exec_ttl: 9s}}";
    let (settings, said) = read::<PoolSettings>(text);
    assert_eq!(said, "");
    let PoolSettings { common, runner } = settings.unwrap();
    assert_eq!((common.num_workers, common.max_queue_size), (3, 7));
    assert_eq!(common.exec_ttl, Some(Duration::from_secs(9)));
    let Runner::Worker(worker) = runner else {
        panic!("{runner:?}");
    };
    assert_eq!(worker.command.unwrap().to_string(), "php jobs.php");
    assert_eq!(worker.transport, TransportChoice::Relay);
    assert_eq!(worker.fence, Fence::Never);
    assert_eq!(worker.kept.ttl, Some(Duration::from_hours(1)));
    assert_eq!(worker.kept.max_jobs, NonZeroU64::new(5));
}

#[test]
fn a_pool_without_requests_refuses_each_key_about_them() {
    for key in [
        "mode: worker",
        "root: public",
        "index: [index.php]",
        "fallback: none",
        "no_scripts: [a]",
        "forbid: [.sql]",
        "symlinks: never",
        "resolve_root: never",
        "server_software: x",
        "php: php",
        "clear_env: true",
        "fastcgi: {php_fpm: php-fpm}",
        "warmup: [/]",
        "retry: safe",
        "request_body: buffer",
    ] {
        let (settings, said) = read::<PoolSettings>(&format!("{{{key}}}"));
        let name = key.split(':').next().unwrap();
        let error =
            format!("`{name}` is of pools that answer HTTP requests, and this one does not");
        assert!(said.contains(&error), "{key}: {said}");
        assert_eq!(said.matches("error").count(), 1, "{key}: {said}");
        assert!(settings.is_none(), "{key}");
    }
}

/// A key that counts in one mode alone is refused, warned about or without effect in the others:
/// what is said is said by its own statement.
#[test]
fn programs_for_each_call_refuse_the_limits_of_kept_processes_by_name() {
    for key in ["ttl: 1h", "idle_ttl: 1m", "max_worker_memory: 64"] {
        let text = format!("{{mode: cgi, root: ., supervisor: {{{key}, exec_ttl: 5s}}}}");
        let (_, said) = read::<HttpPoolSettings>(&text);
        let name = key.split(':').next().unwrap();
        let error = format!("`supervisor.{name}` is of pools whose processes are kept");
        assert!(said.contains(&error), "{said}");
        assert_eq!(said.matches("error").count(), 1, "{said}");
    }
    let text = "{mode: cgi, root: ., supervisor: {ttl: 0, exec_ttl: 5s, watch_tick: 1s}}";
    let (settings, said) = read::<HttpPoolSettings>(text);
    assert_eq!(said, "");
    assert!(settings.unwrap().workers.kept().is_none());
}

#[test]
fn what_answers_by_fastcgi_is_one_thing() {
    let peer = |keys: &str| {
        let text = format!("{{mode: fastcgi, root: ., {keys}}}");
        let (settings, said) = read::<HttpPoolSettings>(&text);
        let Some(settings) = settings else {
            return said;
        };
        let Runner::FastCgi(fastcgi) = settings.workers.runner else {
            panic!("{:?}", settings.workers.runner);
        };
        match fastcgi.peer {
            FastCgiPeer::Addresses(addresses) => format!("{} addresses", addresses.len()),
            FastCgiPeer::Command(command) => command.to_string(),
            FastCgiPeer::PhpFpm(name) => format!("fpm {name}"),
            FastCgiPeer::Found => "found".to_owned(),
        }
    };
    assert_eq!(peer("debug: false"), "found");
    assert_eq!(peer("command: php-cgi8.2 -n"), "php-cgi8.2 -n");
    assert_eq!(peer("fastcgi: {php_fpm: php-fpm8.2}"), "fpm php-fpm8.2");
    assert_eq!(peer("fastcgi: {address: 127.0.0.1:9000}"), "1 addresses");
    let both = peer("command: php-cgi, fastcgi: {address: 127.0.0.1:9000}");
    assert!(both.contains("says where FastCGI servers are"), "{both}");
    let both = peer("command: php-cgi, fastcgi: {php_fpm: php-fpm8.2}");
    assert!(
        both.contains("`fastcgi.php_fpm` names a php-fpm to run"),
        "{both}"
    );
}

fn scaling(text: &str) -> (Option<Scaling>, String) {
    let (settings, said) = read::<PoolSettings>(text);
    let scaling = settings.and_then(|settings| settings.common.scaling);
    (scaling, said)
}

#[test]
fn a_pool_grows_in_four_steps_from_the_fewest_to_the_most() {
    for (text, min, max, step) in [
        ("{min_workers: 2, max_workers: 10}", 2, 10, 2),
        ("{min_workers: 2, max_workers: 4}", 2, 4, 1),
        ("{num_workers: 3, max_workers: 23}", 3, 23, 5),
        ("{min_workers: 4, max_workers: 4}", 4, 4, 1),
    ] {
        let (scaling, said) = scaling(text);
        assert_eq!(said, "", "{text}");
        let found = scaling.map(|it| (it.min, it.max, it.step));
        assert_eq!(found, Some((min, max, step)), "{text}");
    }
    assert_eq!(scaling("{num_workers: 3}"), (None, String::new()));
}

#[test]
fn roadrunners_workers_come_beside_those_that_are_always_there() {
    let (found, said) = scaling("{num_workers: 3, dynamic_allocator: {}}");
    assert_eq!(said, "");
    let expected = Scaling {
        min: 3,
        max: 13,
        step: 5,
        idle: Duration::from_mins(1),
    };
    assert_eq!(found, Some(expected));
    let text = "{num_workers: 2, dynamic_allocator: {max_workers: 4, spawn_rate: 3, \
                 idle_timeout: 9s}}";
    let expected = Scaling {
        min: 2,
        max: 6,
        step: 3,
        idle: Duration::from_secs(9),
    };
    assert_eq!(scaling(text), (Some(expected), String::new()));
}

#[test]
fn a_pool_that_can_not_grow_so_is_told_by_its_key() {
    for (text, message) in [
        (
            "{min_workers: 5, max_workers: 4}",
            "is 4, which is less than the 5 workers that are always there",
        ),
        ("{min_workers: 5}", "has no effect without `max_workers`"),
        (
            "{num_workers: 2, max_workers: 4, dynamic_allocator: {}}",
            "says how the pool grows, and `min_workers` and `max_workers` say so too",
        ),
    ] {
        let (_, said) = scaling(text);
        assert!(said.contains(message), "{text}: {said}");
    }
}
