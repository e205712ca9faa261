//! What each format makes of each kind of record.

use std::error::Error;
use std::time::{Duration, SystemTime};

use pronghorn_pool::WORKER_OUTPUT;
use proptest::prelude::*;
use serde_json::Value;
use tracing::{debug, error, info, warn};

use super::Rig;
use crate::logs::time::Moment;
use crate::logs::{printable, readable};

/// A record with a field of each type, and all that has to be escaped.
fn a_field_of_each_type() {
    let failure: &(dyn Error + 'static) = &std::fmt::Error;
    let missing: Option<u64> = None;
    warn!(
        target: "pool",
        text = "a \"quote\", a \\, a\ttab, a\r\nline break, ESC \x1b, NUL \0, an é",
        signed = -1_i64,
        unsigned = 18_446_744_073_709_551_615_u64,
        large = u128::MAX,
        small = i128::MIN,
        yes = true,
        float = 1.5,
        no_number = f64::NAN,
        shown = %"with \"Display\"\nand",
        debugged = ?["a\n", "b"],
        bytes = &b"not \xff UTF-8\n"[..],
        failure,
        missing,
        r#type = "keyword",
        "App\\Kernel said \"hi\",\tthen\nwent"
    );
}

fn a_request() {
    info!(
        target: "http", status = 200_u16, method = "GET", URI = "/x?a=1", URL = "/x?a=1",
        remote_address = %"127.0.0.1:33156", read_bytes = 0_u64, write_bytes = 448_u64,
        start = 1_795_289_175_000_000_000_u64, elapsed = 12_u64, elapsed_us = 12_345_u64, "http log"
    );
}

fn a_line_of_a_worker() {
    info!(name: WORKER_OUTPUT, target: "server", pool = "default", pid = 7, "{}", "{\"a\": \"\tb\"}");
}

const FIELDS: &str = concat!(
    r#""text":"a \"quote\", a \\, a\ttab, a\r\nline break, ESC \u001b, NUL \u0000, an é","#,
    r#""signed":-1,"unsigned":18446744073709551615,"#,
    r#""large":340282366920938463463374607431768211455,"#,
    r#""small":-170141183460469231731687303715884105728,"#,
    r#""yes":true,"float":1.5,"no_number":"NaN","shown":"with \"Display\"\nand","#,
    r#""debugged":"[\"a\\n\", \"b\"]","bytes":"not � UTF-8\n","#,
    r#""failure":"an error occurred when formatting an argument","type":"keyword"}"#,
);

const REQUEST_FIELDS: &str = concat!(
    r#""status":200,"method":"GET","URI":"/x?a=1","URL":"/x?a=1","remote_address":"127.0.0.1:33156","#,
    r#""read_bytes":0,"write_bytes":448,"start":1795289175000000000,"elapsed":12,"elapsed_us":12345}"#,
);

#[test]
fn in_production_a_record_is_an_object() {
    let rig = Rig::new();
    let head = r#"{"level":"warn","ts":1795289175123456789,"logger":"pool","msg":"App\\Kernel said \"hi\",\tthen\nwent","#;
    assert_eq!(
        rig.records("mode: production", a_field_of_each_type),
        format!("{head}{FIELDS}\n")
    );
    let head = r#"{"level":"info","ts":1795289175123456789,"logger":"http","msg":"http log","#;
    assert_eq!(
        rig.records("mode: production", a_request),
        format!("{head}{REQUEST_FIELDS}\n")
    );
    assert_eq!(
        rig.records("mode: production", || error!(target: "rpc", "alone")),
        "{\"level\":\"error\",\"ts\":1795289175123456789,\"logger\":\"rpc\",\"msg\":\"alone\"}\n"
    );
    assert_eq!(
        rig.records("mode: production", || info!(target: "rpc", only = 1)),
        "{\"level\":\"info\",\"ts\":1795289175123456789,\"logger\":\"rpc\",\"msg\":\"\",\"only\":1}\n"
    );
}

#[test]
fn in_development_a_record_is_columns() {
    let rig = Rig::new();
    let head =
        "2026-11-21T19:26:15+0000\tWARN\tpool        \tApp\\Kernel said \"hi\",\\tthen\\nwent\t{";
    assert_eq!(
        rig.records("mode: development", a_field_of_each_type),
        format!("{head}{FIELDS}\n")
    );
    let head = "2026-11-21T19:26:15+0000\tINFO\thttp        \thttp log\t{";
    assert_eq!(
        rig.records("mode: development", a_request),
        format!("{head}{REQUEST_FIELDS}\n")
    );
    assert_eq!(
        rig.records("level: debug", || debug!(target: "rpc", "alone")),
        "2026-11-21T19:26:15+0000\tDEBUG\trpc         \talone\n"
    );
}

/// Whatever the log itself looks like.
#[test]
fn a_record_that_is_kept_is_shown_as_on_a_terminal() {
    let make = || {
        warn!(
            target: "pool", text = "a \"quote\", ESC \x1b, é\nsecond", signed = -1_i64, yes = true,
            float = 1.5, context = "{\"b\": [1, null, {\"c\": \"\\u001b\"}]}", debugged = ?["a\n"],
            "App\\Kernel said \"hi\",\tthen\nwent"
        );
        a_request();
        a_line_of_a_worker();
    };
    let expected = Rig::on_a_terminal().records("mode: development", make);
    let journal = Rig {
        is_journal: true,
        ..Rig::new()
    };
    for (rig, yaml) in [
        (Rig::new(), "mode: development"),
        (Rig::new(), "{mode: production, line_ending: \"\\r\\n\"}"),
        (journal, "mode: production"),
        (Rig::new(), "mode: raw"),
        (Rig::new(), "{mode: production, format: '%message%'}"),
        (Rig::new(), "{mode: production, output: [stdout, stderr]}"),
    ] {
        let (logs, router) = rig.start(yaml).unwrap();
        tracing::subscriber::with_default(router, make);
        let kept = logs.newest().read(0).records;
        let shown = kept.iter().map(|(_, json)| readable(json, false));
        assert_eq!(
            shown.collect::<Option<String>>().unwrap(),
            expected,
            "{yaml}"
        );
    }
    for none in ["", "[]", "{}", "{\"level\":\"info\"}", "null"] {
        assert_eq!(readable(none, false), None, "{none}");
    }
    // Below the level there is nothing to keep.
    let (logs, router) = Rig::new().start("level: error").unwrap();
    tracing::subscriber::with_default(router, make);
    assert_eq!(logs.newest().read(0).records, []);
}

#[test]
fn a_format_of_ones_own_has_the_parts_that_it_names() {
    let rig = Rig::new();
    let of = |settings: &str, record: fn()| rig.records(settings, record);
    let record = || info!(target: "http", status = 200_u16, text = "a\tb", "hi\nthere");
    for (format, line) in [
        (
            "%time% [%level%] %logger% %message% %attrs%",
            "2026-11-21T19:26:15Z [INFO] http hi\\nthere status=200 text=a\\tb",
        ),
        (
            "%message% %attrs%",
            "hi\\nthere logger=http status=200 text=a\\tb",
        ),
        ("no parts", "no parts"),
        ("%unknown% %time %level%%", "%unknown% %time INFO%"),
        ("é%level%é", "éINFOé"),
    ] {
        let settings = format!("{{mode: production, format: '{format}'}}");
        assert_eq!(of(&settings, record), format!("{line}\n"), "{format}");
    }
    // A visitor's text makes no other field.
    let forged = || {
        info!(
            target: "http", agent = "a status=500 level=ERROR\" x=\"", b = "c d\n", e = "", f = "=",
            class = "A\\B", "hi"
        );
    };
    assert_eq!(
        of("format: '%attrs%'", forged),
        "logger=http agent=\"a status=500 level=ERROR\\\" x=\\\"\" b=\"c d\\n\" e=\"\" f=\"=\" \
         class=A\\B\n"
    );
    let source = of(
        "format: '%source_file%:%source_line% %source_func%'",
        record,
    );
    assert!(source.contains("tests/formats.rs:"), "{source}");
    assert!(source.ends_with("logs::tests::formats\n"), "{source}");
    assert_eq!(
        of("{format: '%time%', time_format: '15:04:05.000'}", record),
        "19:26:15.123\n"
    );
    assert_eq!(
        of("{format: '%message%', skip_line_ending: true}", record),
        "hi\\nthere"
    );
    assert_eq!(of("{mode: off, format: '%message%'}", record), "");
    assert_eq!(
        of("{mode: raw, format: ''}", || error!(target: "rpc", "alone")),
        "alone\n"
    );
}

#[test]
fn a_channel_has_the_format_of_all_unless_it_has_a_mode() {
    let rig = Rig::new();
    let record = || error!(target: "rpc", "alone");
    for (channel, line) in [
        ("level: debug", "ERROR alone"),
        ("mode: raw", "alone"),
        ("format: '<%message%>'", "<alone>"),
    ] {
        let settings = format!("{{format: '%level% %message%', channels: {{rpc: {{{channel}}}}}}}");
        assert_eq!(
            rig.records(&settings, record),
            format!("{line}\n"),
            "{channel}"
        );
    }
}

#[test]
fn a_raw_record_is_its_message_and_its_fields() {
    let rig = Rig::new();
    assert_eq!(
        rig.records("mode: raw", a_field_of_each_type),
        format!("App\\Kernel said \"hi\",\tthen\\nwent\t{{{FIELDS}\n")
    );
    assert_eq!(
        rig.records("mode: raw", || error!(target: "rpc", "alone")),
        "alone\n"
    );
}

#[test]
fn a_raw_line_of_a_worker_is_that_line() {
    let rig = Rig::new();
    assert_eq!(
        rig.records("mode: raw", a_line_of_a_worker),
        "{\"a\": \"\tb\"}\n"
    );
    assert_eq!(
        rig.records("mode: production", a_line_of_a_worker),
        concat!(
            r#"{"level":"info","ts":1795289175123456789,"logger":"server","msg":"{\"a\": \"\tb\"}","#,
            "\"pool\":\"default\",\"pid\":7}\n"
        )
    );
}

#[test]
fn encoding_and_line_ending_can_be_chosen() {
    let rig = Rig::on_a_terminal();
    let make = || error!(target: "rpc", "alone");
    let json =
        "{\"level\":\"error\",\"ts\":1795289175123456789,\"logger\":\"rpc\",\"msg\":\"alone\"}\n";
    let columns = "2026-11-21T19:26:15+0000\tERROR\trpc         \talone";
    assert_eq!(rig.records("{mode: raw, encoding: json}", make), json);
    assert_eq!(
        rig.records("{mode: development, encoding: json}", make),
        json
    );
    assert_eq!(
        rig.records("{mode: production, encoding: console}", make),
        format!("{columns}\n")
    );
    assert_eq!(
        rig.records("{line_ending: \"\\r\\n\"}", make),
        format!("{columns}\r\n")
    );
}

#[test]
fn people_get_one_short_line_for_a_request() {
    let request = |status: u16, elapsed_us: u64, write_bytes: u64| {
        info!(
            target: "http", status, method = "GET", URI = "/a\x1b\nb", write_bytes, elapsed_us,
            "http log"
        );
    };
    let mut rig = Rig::on_a_terminal();
    let lines = rig.records("mode: development", || {
        request(200, 0, 0);
        request(304, 999, 1023);
        request(404, 12_345, 1024);
        request(500, 999_999, 1_048_576 + 52_429 * 2);
        request(101, 61_239_999, 5 << 30);
    });
    assert_eq!(
        lines,
        "19:26:15 200 GET /a\\u001b\\nb 0 µs 0 B\n\
         19:26:15 304 GET /a\\u001b\\nb 999 µs 1023 B\n\
         19:26:15 404 GET /a\\u001b\\nb 12.3 ms 1.0 KB\n\
         19:26:15 500 GET /a\\u001b\\nb 999.9 ms 1.1 MB\n\
         19:26:15 101 GET /a\\u001b\\nb 61.23 s 5.0 GB\n"
    );
    let of_php = || {
        let (queue_us, php_us) = (20_u64, 11_900_u64);
        info!(
            target: "http", status = 200_u16, method = "GET", URI = "/", write_bytes = 448_u64,
            elapsed_us = 12_345_u64, queue_us, php_us, "http log"
        );
    };
    assert_eq!(
        rig.records("mode: development", of_php),
        "19:26:15 200 GET / 12.3 ms (PHP 11.9 ms, waited 20 µs) 448 B\n"
    );
    rig.colours = true;
    let line = rig.records("mode: development", || request(404, 5, 6));
    assert_eq!(
        line,
        "\x1b[2m19:26:15\x1b[0m\x1b[33m 404 \x1b[0mGET /a\\u001b\\nb\x1b[2m 5 µs 6 B\x1b[0m\n"
    );
}

#[test]
fn the_journal_gets_a_priority_before_each_record() {
    let mut rig = Rig::new();
    rig.is_journal = true;
    let of_each_level = || {
        error!(target: "rpc", "e");
        warn!(target: "rpc", "w");
        info!(target: "rpc", "i");
        debug!(target: "rpc", "d");
    };
    assert_eq!(
        rig.records("{mode: raw, level: debug}", of_each_level),
        "<3>e\n<4>w\n<6>i\n<7>d\n"
    );
}

#[test]
fn octane_shows_a_request_whatever_became_of_it() {
    let mut rig = Rig::new();
    let failed = || warn!(target: "http", status = 500_u16, method = "GET", "http log");
    let begins = |rig: &Rig, with: &str| {
        let line = rig.records("mode: production", failed);
        assert!(line.starts_with(with), "{line}");
    };
    begins(&rig, r#"{"level":"warn","#);
    rig.is_octane = true;
    begins(&rig, r#"{"level":"info","#);
}

#[test]
fn people_can_read_a_report_of_several_lines() {
    let report = || {
        error!(
            target: "server", pid = 7, stderr = "PHP Fatal error\n#0 \x1b[2J\tmain\n", cause = %"one\ntwo",
            "cannot start\n  command  php\nhint: \x1b look"
        );
    };
    let mut rig = Rig::on_a_terminal();
    assert_eq!(
        rig.records("mode: development", report),
        "2026-11-21T19:26:15+0000\tERROR\tserver      \tcannot start\n      command  php\n    \
         hint: \\u001b look\t{\"pid\":7}\n    stderr:\n    PHP Fatal error\n    #0 \\u001b[2J    main\n    \
         cause:\n    one\n    two\n"
    );
    rig.colours = true;
    assert_eq!(
        rig.records("mode: development", || warn!(target: "pool", n = 1, "m")),
        "\x1b[2m2026-11-21T19:26:15+0000\x1b[0m\t\x1b[33mWARN\x1b[0m\tpool        \tm\x1b[2m\t{\"n\":1}\x1b[0m\n"
    );
}

#[test]
fn a_text_without_end_is_cut_and_the_record_stays_whole() {
    let rig = Rig::new();
    let long = "é\n".repeat(200 << 10);
    let record = rig.records("mode: production", || {
        info!(target: "server", stderr = long, second = "nothing left", n = 1, "m");
    });
    assert!(record.len() < 300 << 10);
    let record: Value = serde_json::from_str(&record).unwrap();
    let first = record["stderr"].as_str().unwrap();
    let (start, mark) = first.split_once("...").unwrap();
    assert!(start.starts_with("é\né\n") && long.starts_with(start));
    let left_out = |bytes: usize| format!("[{bytes}-bytes-left-out]");
    assert_eq!(mark, left_out(long.len() - start.len()));
    let second = format!("...{}", left_out("nothing left".len()));
    assert_eq!(
        (&record["second"], &record["n"]),
        (&second.into(), &1.into())
    );
}

/// Whatever a format makes of it, and however often it is shown.
#[test]
fn what_a_visitor_chooses_is_bounded_in_every_format() {
    let request = |message: &str, long: &str| {
        warn!(target: "http", status = 500, method = "GET", URI = long, URL = long, referer = long, "{message}");
    };
    for long in ["x", "\"", "\u{1}", "\u{202e}", "é", "a\nb"] {
        let long = long.repeat(60 << 10);
        for mode in [
            "mode: production",
            "mode: development",
            "mode: raw",
            "{mode: production, format: '%message% %attrs%'}",
        ] {
            for rig in [Rig::new(), Rig::on_a_terminal()] {
                for message in ["http log", "slow request"] {
                    let record = rig.records(mode, || request(message, &long));
                    assert!(record.len() < 3 * 2048 + 600, "{mode}: {}", record.len());
                    assert!(record.contains("-bytes-left-out]"), "{record}");
                }
            }
        }
        let kept = Rig::new().records("mode: production", || request("http log", &long));
        assert_eq!(kept.matches("left-out").count(), 3, "{kept}");
        let again = readable(&kept, false).expect("it is a record");
        assert_eq!(again.matches("left-out").count(), 1, "{again}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_ends_its_record(text in any_text()) {
        let make = || warn!(target: "pool", shown = text, "a{text}");
        let rig = Rig::new();
        for mode in ["production", "development", "raw"] {
            let record = rig.records(&format!("mode: {mode}"), make);
            let line = record.strip_suffix('\n').unwrap();
            let breaks = ['\n', '\r', '\x0b', '\x0c', '\u{85}', '\u{2028}', '\u{2029}'];
            prop_assert!(!line.contains(breaks), "{line:?}");
            if mode == "development" {
                prop_assert_eq!(line.matches('\t').count(), 4, "{:?}", line);
            }
            if mode != "raw" {
                prop_assert!(!line.replace('\t', "").contains(is_dangerous), "{line:?}");
            }
            if mode == "production" {
                let record: Value = serde_json::from_str(line).unwrap();
                prop_assert_eq!(&record["msg"], &format!("a{text}"));
                prop_assert_eq!(&record["shown"], &text);
            }
        }
        let record = Rig::on_a_terminal().records("mode: development", make);
        prop_assert!(!record.replace(['\n', '\t'], "").contains(is_dangerous), "{record:?}");
        let mut lines = record.lines();
        prop_assert!(lines.next().unwrap().starts_with("2026-"));
        prop_assert!(lines.all(|line| line.starts_with("    ")), "{record:?}");
    }

    #[test]
    fn dates_are_right(seconds in 0..253_402_300_799_u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut long = String::new();
        Moment::of(time).write_long(&mut long);
        let http = httpdate::fmt_http_date(time);
        let words: Vec<&str> = http.split(' ').collect();
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = months.iter().position(|month| *month == words[2]).unwrap() + 1;
        prop_assert_eq!(long, format!("{}-{month:02}-{}T{}+0000", words[3], words[1], words[4]));
    }
}

#[test]
fn the_ends_of_years_are_right() {
    let at = |seconds| Moment::of(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).stamp();
    assert_eq!(at(0), "1970-01-01T00-00-00.000");
    assert_eq!(at(951_782_399), "2000-02-28T23-59-59.000");
    assert_eq!(at(951_782_400), "2000-02-29T00-00-00.000");
    assert_eq!(at(978_307_199), "2000-12-31T23-59-59.000");
    assert_eq!(at(4_107_542_399), "2100-02-28T23-59-59.000");
    assert_eq!(at(4_107_542_400), "2100-03-01T00-00-00.000");
    assert_eq!(at(u64::MAX >> 2), "9999-12-31T23-59-59.000");
}

#[test]
fn what_commands_print_keeps_its_lines_and_nothing_a_terminal_obeys() {
    for (text, shown) in [
        ("a\n\tb\\ \"é\"", "a\n\tb\\ \"é\""),
        ("\x1b]0;x\x07\u{9b}31m", "\\u001b]0;x\\u0007\\u009b31m"),
        ("a\r\u{202e}\u{61c}", "a\\r\\u202e\\u061c"),
    ] {
        assert_eq!(printable(text), shown);
    }
}

/// Texts with much in them that could break a line.
fn any_text() -> impl Strategy<Value = String> {
    let special = "\n\r\t\0\x0b\x0c\x1b\x7f\"\\{}'\u{85}\u{9b}\u{2028}\u{2029}\u{61c}\u{200f}\u{202e}\u{2066}";
    let special: Vec<char> = special.chars().collect();
    let c = prop_oneof![prop::sample::select(special), any::<char>()];
    prop::collection::vec(c, 0..40).prop_map(String::from_iter)
}

fn is_dangerous(c: char) -> bool {
    c.is_control()
        || ['\u{61c}', '\u{200e}', '\u{200f}'].contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}
