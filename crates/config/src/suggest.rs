//! "Did you mean …?"

/// Longer names are not compared: the cost is the product of both lengths.
const LONGEST: usize = 64;

/// The candidate that a slip of the keyboard turns into `text`: one mistake in three letters.
pub fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let text = normal(text);
    if text.len() > LONGEST {
        return None;
    }
    let judged = candidates.into_iter().map(|candidate| {
        let name = normal(candidate);
        // Someone who stops after `prod` has made no mistake yet.
        let begins = text.len() > 2 && name.starts_with(&text);
        (if begins { 0 } else { distance(&text, &name) }, candidate)
    });
    let (mistakes, nearest) = judged.min_by_key(|(mistakes, _)| *mistakes)?;
    (mistakes <= (text.len() / 3).max(1) && mistakes < text.len()).then_some(nearest)
}

/// Names of keys in php-fpm, nginx, Apache, supervisord and other application servers, with the
/// names that the keys have here.
const ALIASES: &[(&[&str], &[&str])] = &[
    (
        &[
            "workers",
            "worker",
            "worker_num",
            "worker_processes",
            "processes",
            "children",
            "max_children",
            "pm.max_children",
            "instances",
            "numprocs",
            "replicas",
            "scale",
            "concurrency",
            "threads",
        ],
        &["num_workers", "process_num"],
    ),
    (
        &[
            "timeout",
            "exec_timeout",
            "request_timeout",
            "max_execution_time",
            "request_terminate_timeout",
            "deadline",
        ],
        &["supervisor.exec_ttl"],
    ),
    (
        &[
            "requests",
            "max_requests",
            "max_request",
            "pm.max_requests",
            "jobs",
        ],
        &["max_jobs"],
    ),
    (
        &[
            "memory",
            "memory_limit",
            "max_memory",
            "max_memory_per_child",
            "mem_limit",
            "memorymax",
        ],
        &["supervisor.max_worker_memory", "max_memory"],
    ),
    (
        &["lifetime", "max_lifetime", "max_age"],
        &["supervisor.ttl"],
    ),
    (
        &[
            "process_idle_timeout",
            "idle_timeout",
            "pm.process_idle_timeout",
        ],
        &["supervisor.idle_ttl"],
    ),
    (&["min_spare_servers", "start_servers"], &["min_workers"]),
    (&["max_spare_servers"], &["max_workers"]),
    (&["backlog", "queue", "queue_size"], &["max_queue_size"]),
    (
        &["document_root", "docroot", "webroot", "public", "folder"],
        &["root", "dir"],
    ),
    (
        &["port", "host", "bind"],
        &["address", "listen", "addr", "proxy_address"],
    ),
    (&["listen"], &["address", "addr", "proxy_address"]),
    (&["address"], &["listen", "addr", "proxy_address"]),
    (&["addr"], &["address", "listen", "proxy_address"]),
    (
        &["php_value", "php_admin_value", "php_ini", "settings"],
        &["ini"],
    ),
    (
        &[
            "script",
            "cmd",
            "exec",
            "worker_command",
            "execstart",
            "entrypoint",
        ],
        &["command"],
    ),
    (&["environment"], &["env"]),
    (
        &["certificate", "cert_file", "certfile", "ssl_certificate"],
        &["cert"],
    ),
    (
        &["private_key", "key_file", "keyfile", "ssl_certificate_key"],
        &["key"],
    ),
    (&["tls", "https"], &["ssl"]),
    (
        &[
            "max_body_size",
            "client_max_body_size",
            "body_limit",
            "post_max_size",
        ],
        &["max_request_size"],
    ),
    (&["gzip", "brotli", "encode"], &["compress"]),
    (&["log", "logging", "logger"], &["logs"]),
    (&["log_level"], &["logs.level", "level"]),
    (
        &["health", "healthcheck", "livenessprobe"],
        &["status", "health"],
    ),
    (&["trusted_proxies", "proxies"], &["trusted_subnets"]),
    (&["program", "programs", "daemons"], &["service"]),
    (&["autorestart", "restart_policy"], &["restart"]),
    (&["startsecs"], &["start_time"]),
    (
        &["startretries", "max_restarts", "startlimitburst"],
        &["max_failures"],
    ),
    (&["stopwaitsecs", "stop_grace_period"], &["stop_timeout"]),
    (&["killsignal"], &["stop_signal"]),
    (&["killmode"], &["stop_group"]),
    (&["timeoutstartsec"], &["start_timeout"]),
    (&["runtimemaxsec"], &["exec_timeout"]),
    (&["restartmaxdelaysec"], &["restart_max_delay"]),
    (&["successexitstatus"], &["exit_codes"]),
    (&["limitnofile", "nofile"], &["open_files"]),
    (&["depends_on", "after", "requires"], &["order"]),
    (&["stopasgroup"], &["stop_group"]),
    (&["priority"], &["order"]),
    (&["stdout_logfile", "standardoutput"], &["output.file"]),
    (
        &["stderr_logfile", "standarderror"],
        &["output.stderr_file"],
    ),
    (&["stdout_logfile_maxbytes"], &["output.max_size"]),
    (&["stdout_logfile_backups"], &["output.backups"]),
    (&["cwd", "working_dir", "working_directory"], &["directory"]),
];

/// Keys of other programs that nothing has to be written for, the key beside which they stand, and
/// why.
const NEEDLESS: &[(&str, &str, &str)] = &[
    (
        "killasgroup",
        "stop_group",
        "all processes that a program has started are killed with it",
    ),
    (
        "redirect_stderr",
        "output",
        "the log, and `output.file`, have the lines of both streams",
    ),
    (
        "services",
        "json_transcoding",
        "the services are those of the files in `proto`",
    ),
    (
        "reflection",
        "json_transcoding",
        "the server answers reflection in any case",
    ),
];

/// Why nothing has to be written for a name of another program beside `candidates`.
pub(crate) fn needless(name: &str, candidates: &[&str]) -> Option<&'static str> {
    let found = NEEDLESS
        .iter()
        .find(|(word, beside, _)| is_same(word, name) && candidates.contains(beside));
    found.map(|(_, _, why)| *why)
}

/// The name that was meant by a name that is none of `candidates`: what it is called here, or the
/// nearest one.
pub fn meant<'c>(name: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let is_here = |alias: &&str| {
        let first = alias.split('.').next().unwrap_or_default();
        candidates.contains(&first)
    };
    let alias = aliases(name).iter().copied().find(is_here);
    alias.or_else(|| nearest(name, candidates.iter().copied()))
}

/// What a name of the trade is called here, with the section below which it stands.
pub(crate) fn aliases(name: &str) -> &'static [&'static str] {
    let found = ALIASES
        .iter()
        .find(|(words, _)| words.iter().any(|word| is_same(word, name)));
    found.map_or(&[], |(_, names)| names)
}

/// True when two names differ in case and separators only.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    normal(a) == normal(b)
}

/// Case and separators are no mistakes: `numWorkers` is `num_workers`.
fn normal(text: &str) -> Vec<char> {
    let letters = text.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    letters
        .take(LONGEST + 1)
        .flat_map(char::to_lowercase)
        .collect()
}

/// How many letters must be added, removed, replaced, or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let at = |row: &[usize], i: usize| row.get(i).copied().unwrap_or(usize::MAX / 2);
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = at(&last, j) + usize::from(x != y);
            let mut best = replaced.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(at(&before_last, j - 1) + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    at(&last, b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_trade_are_known() {
        for (typed, meant) in [
            ("workers", "num_workers"),
            ("maxRequests", "max_jobs"),
            ("memory-limit", "supervisor.max_worker_memory"),
            ("timeout", "supervisor.exec_ttl"),
            ("document_root", "root"),
            ("startSecs", "start_time"),
        ] {
            assert_eq!(aliases(typed).first(), Some(&meant), "{typed}");
        }
        assert_eq!(aliases("num_workers"), [""; 0]);
        let words = ALIASES.iter().flat_map(|(words, _)| *words);
        let mut words: Vec<_> = words.collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all, "a word stands twice");
    }

    #[test]
    fn what_needs_no_key_is_told_beside_the_key_that_is_meant() {
        let program = ["command", "stop_group", "output"];
        assert!(needless("killAsGroup", &program).is_some());
        assert!(needless("redirect_stderr", &program).is_some());
        assert_eq!(needless("services", &program), None);
        assert!(needless("services", &["proto", "json_transcoding"]).is_some());
    }

    #[test]
    fn a_name_of_the_trade_counts_where_its_key_is() {
        assert_eq!(meant("host", &["addr", "banner"]), Some("addr"));
        assert_eq!(meant("host", &["listen", "proto"]), Some("listen"));
        assert_eq!(
            meant("stdout_logfile", &["command", "output"]),
            Some("output.file")
        );
        assert_eq!(
            meant("autorestart", &["autostart", "restart"]),
            Some("restart")
        );
        assert_eq!(meant("bannr", &["addr", "banner"]), Some("banner"));
        assert_eq!(meant("host", &["banner"]), None);
    }

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = [
            "num_workers",
            "max_jobs",
            "debug",
            "ttl",
            "command",
            "address",
        ];
        for (typed, meant) in [
            ("num_worker", Some("num_workers")),
            ("numWorkers", Some("num_workers")),
            ("num-workers", Some("num_workers")),
            ("adress", Some("address")),
            ("addrses", Some("address")),
            ("maxjobs", Some("max_jobs")),
            ("tll", Some("ttl")),
            ("comand", Some("command")),
            ("com", Some("command")),
            ("x", None),
            ("", None),
            ("workers", None),
            ("timeout", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }
}
