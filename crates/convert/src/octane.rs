//! Laravel Octane's `config/octane.php`. It is PHP and is not run: the values of plain keys are
//! read off.

use super::draft::{Draft, Site};

/// Hooks, tables and the like of Octane's own worker.
const OF_ITS_WORKER: [&str; 8] = [
    "listeners",
    "warm",
    "flush",
    "tables",
    "cache",
    "swoole",
    "state_file",
    "garbage",
];

pub(super) fn read(text: &str, draft: &mut Draft) {
    let mut site = Site {
        root: Some("public".to_owned()),
        listens: vec![("127.0.0.1:8000".to_owned(), false)],
        ..Site::default()
    };
    for (line, key, value) in keys(text) {
        match key {
            "server" | "watch" => {} // development mode watches by itself
            "https" if value.contains("true") => {
                draft.leave_out_text(line, "'https' => true");
                draft.note("`trusted_subnets` names the proxy that speaks HTTPS for this server");
            }
            "https" => {}
            "max_execution_time" => match value.parse::<u64>() {
                Ok(0) => {}
                Ok(seconds) => {
                    let limit = format!("{seconds}s");
                    site.pool.map(&["supervisor"]).set("exec_ttl", limit);
                }
                Err(_) => draft.leave_out_text(line, &format!("'{key}' => {value}")),
            },
            key if OF_ITS_WORKER.contains(&key) => {
                draft.leave_out_text(line, &format!("'{key}'"));
            }
            _ => draft.leave_out_text(line, &format!("'{key}'")),
        }
    }
    draft.note(
        "`composer require pronghorn/laravel` keeps the application in memory as Octane does; \
         then `pronghorn init` writes a configuration for that",
    );
    draft.sites.push(site);
}

/// The keys of the outermost array, with their lines and what follows them there.
fn keys(text: &str) -> Vec<(usize, &str, &str)> {
    let mut keys = Vec::new();
    let (mut depth, mut is_comment) = (0_i32, false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("/*") {
            is_comment = true;
        }
        if is_comment || line.starts_with("//") || line.starts_with('#') || line.starts_with("use ")
        {
            is_comment &= !line.contains("*/");
            continue;
        }
        if depth == 1
            && let Some((key, value)) = line.split_once("=>")
        {
            let key = key.trim().trim_matches(['\'', '"']);
            keys.push((number, key, value.trim().trim_end_matches(',')));
        }
        for letter in line.chars() {
            match letter {
                '[' | '(' => depth += 1,
                ']' | ')' => depth -= 1,
                _ => {}
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_outermost_array_are_read() {
        let text = "<?php\nuse A\\B;\nreturn [\n/*\n | 'x' => 1\n */\n    'server' => env('S', 'roadrunner'),\n    \
                    'listeners' => [\n        A::class => [\n        ],\n    ],\n    'max_execution_time' => 30,\n];\n";
        let names: Vec<_> = keys(text)
            .into_iter()
            .map(|(line, key, _)| (line, key))
            .collect();
        assert_eq!(
            names,
            [(7, "server"), (8, "listeners"), (12, "max_execution_time")]
        );
    }
}
