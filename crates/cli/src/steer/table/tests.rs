use super::*;

const SCREEN: Look = Look {
    width: Some(80),
    height: None,
    colours: false,
};

fn worker(pid: u32, state: &str) -> Row {
    Row {
        pid,
        state: state.to_owned(),
        transport: Some("ring".to_owned()),
        generation: Some(1),
        executions: 1204,
        memory: 25_270_682,
        load: 12.34,
        age: Duration::from_secs(725),
        ..Row::default()
    }
}

fn busy(pid: u32, what: &str, millis: u64) -> Row {
    Row {
        request: Some((what.to_owned(), Duration::from_millis(millis))),
        ..worker(pid, "busy")
    }
}

fn pool(name: &str, rows: Vec<Row>) -> View {
    View {
        pool: name.to_owned(),
        plugin: "http".to_owned(),
        waiting: Some(0),
        takes_calls: true,
        rows,
    }
}

#[test]
fn it_is_readable_at_eighty_columns() {
    let long = format!("GET /report?{}", "x".repeat(200));
    let views = [
        pool(
            "default",
            vec![busy(4_194_304, &long, 61_000), worker(712, "ready")],
        ),
        pool(
            "api",
            vec![Row {
                forked_by: Some(710),
                ..worker(713, "draining")
            }],
        ),
    ];
    let shown = table(&views, SCREEN);
    assert_eq!(
        shown,
        "    PID  STATE     VIA    GEN    EXECS    MEMORY     CPU   AGE  REQUEST\n\
         default: 2 workers, 1 busy, 0 calls waiting\n\
         4194304  busy      ring     1    1,204   24.1 MB   12.3%   12m  1m 1s GET /repo…\n\
         \u{20}   712  ready     ring     1    1,204   24.1 MB   12.3%   12m\n\
         api: 0 workers, 0 busy, 1 leaving, 0 calls waiting, forked by 710\n\
         \u{20}   713  draining  ring     1    1,204   24.1 MB   12.3%   12m\n"
    );
    assert!(shown.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn narrow_terminals_lose_columns_and_wrap_no_row() {
    let views = [pool(
        "default",
        vec![
            busy(4_194_304, "GET /report/of/a/year?detail=1", 61_000),
            worker(712, "ready"),
        ],
    )];
    let at = |width| {
        let look = Look {
            width: Some(width),
            ..SCREEN
        };
        table(&views, look)
    };
    assert_eq!(
        at(60),
        "    PID  STATE       MEMORY     CPU   AGE  REQUEST\n\
         default: 2 workers, 1 busy, 0 calls waiting\n\
         4194304  busy       24.1 MB   12.3%   12m  1m 1s GET /repor…\n\
         \u{20}   712  ready      24.1 MB   12.3%   12m\n"
    );
    assert_eq!(
        at(40),
        "    PID  STATE      AGE  REQUEST\n\
         default: 2 workers, 1 busy, 0 calls wai…\n\
         4194304  busy       12m  1m 1s GET /rep…\n\
         \u{20}   712  ready      12m\n"
    );
    for width in [1, 10, 20, 40, 60, 70, 79, 80, 200] {
        let shown = at(width);
        let fits = shown.lines().all(|line| line.chars().count() <= width);
        assert!(fits, "{width}:\n{shown}");
    }
}

#[test]
fn a_place_without_a_process_has_no_number() {
    let shown = table(&[pool("cgi", vec![worker(0, "ready")])], SCREEN);
    assert!(shown.contains("\n      -  ready "), "{shown}");
}

#[test]
fn without_a_terminal_nothing_is_cut() {
    let long = format!("GET /{}", "x".repeat(200));
    let views = [pool("default", vec![busy(1, &long, 100)])];
    let look = Look {
        width: None,
        ..SCREEN
    };
    assert!(table(&views, look).contains(&long));
}

#[test]
fn colours_are_all_that_no_colours_takes_away() {
    let views = [pool(
        "default",
        vec![busy(1, "GET /\u{1b}[31m", 100), worker(2, "failed")],
    )];
    let coloured = table(
        &views,
        Look {
            colours: true,
            ..SCREEN
        },
    );
    let mut plain = coloured.clone();
    for code in [BOLD, DIM, GREEN, YELLOW, RED, PLAIN] {
        plain = plain.replace(code, "");
    }
    assert_ne!(coloured, plain);
    assert_eq!(plain, table(&views, SCREEN));
    assert!(
        !plain.contains('\u{1b}'),
        "a client's path moves no cursor: {plain:?}"
    );
}

#[test]
fn what_does_not_fit_is_counted_and_the_busiest_are_kept() {
    let mut rows: Vec<_> = (1..=50).map(|pid| worker(pid, "ready")).collect();
    rows[40] = busy(41, "GET /short", 100);
    rows[45] = busy(46, "GET /long", 9000);
    let views = [
        pool("default", rows),
        pool("api", vec![worker(99, "ready")]),
    ];
    let shown = table(
        &views,
        Look {
            height: Some(9),
            ..SCREEN
        },
    );
    let pids: Vec<_> = shown
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(
        pids,
        ["PID", "default:", "46", "41", "1", "2", "…", "api:", "99"],
        "{shown}"
    );
    assert!(shown.contains("… and 46 more workers\n"), "{shown}");
    // However small the screen is, no line too many.
    for height in 0..12 {
        let shown = table(
            &views,
            Look {
                height: Some(height),
                ..SCREEN
            },
        );
        assert!(shown.lines().count() <= height, "{height}: {shown}");
    }
}

#[test]
fn rpc_tells_less() {
    let row = Row {
        generation: None,
        transport: None,
        ..worker(7, "ready")
    };
    let view = View {
        waiting: None,
        takes_calls: true,
        ..pool("http", vec![row])
    };
    let shown = table(&[view], SCREEN);
    assert!(
        shown.contains("http: 1 worker, 0 busy\n      7  ready     -        -"),
        "{shown}"
    );
}

#[test]
fn as_rr_it_is_roadrunners() {
    let views = [
        pool("default", vec![busy(8, "GET /", 1)]),
        pool("api", vec![worker(7, "ready")]),
        View {
            plugin: "jobs".to_owned(),
            ..pool("jobs", Vec::new())
        },
    ];
    assert_eq!(
        roadrunners(&views),
        "\
Workers of [http]:
┌─────┬─────────┬───────┬────────┬───────┬────────────────┐
│ PID │ STATUS  │ EXECS │ MEMORY │ CPU % │    CREATED     │
├─────┼─────────┼───────┼────────┼───────┼────────────────┤
│ 7   │ ready   │ 1,204 │ 25 MB  │ 12.34 │ 12 minutes ago │
│ 8   │ working │ 1,204 │ 25 MB  │ 12.34 │ 12 minutes ago │
└─────┴─────────┴───────┴────────┴───────┴────────────────┘
"
    );
}

#[test]
fn as_rr_pipelines_have_a_table_too() {
    let pipeline = |name: &str, ready| Pipeline {
        pipeline: name.to_owned(),
        driver: "memory".to_owned(),
        queue: "x y".to_owned(),
        delayed: 10,
        ready,
        ..Pipeline::default()
    };
    assert_eq!(jobs_table(Vec::new()), "");
    assert_eq!(
        jobs_table(vec![pipeline("test-1", false), pipeline("mail", true)]),
        "\
Jobs of [jobs]:
┌────────────────┬──────────┬────────┬───────┬────────┬─────────┬──────────┐
│     STATUS     │ PIPELINE │ DRIVER │ QUEUE │ ACTIVE │ DELAYED │ RESERVED │
├────────────────┼──────────┼────────┼───────┼────────┼─────────┼──────────┤
│ READY          │ mail     │ memory │ x y   │ 0      │ 10      │ 0        │
│ PAUSED/STOPPED │ test-1   │ memory │ x y   │ 0      │ 10      │ 0        │
└────────────────┴──────────┴────────┴───────┴────────┴─────────┴──────────┘
"
    );
}
