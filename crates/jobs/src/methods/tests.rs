//! What callers get, word for word where RoadRunner's clients may look at it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::BoxFuture;
use pronghorn_plugin_api::rpc::{Caller, Encoding, ReplyRoom};
use pronghorn_pool::transport::{Allowed, Borders};
use pronghorn_store::LazyStore;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::metrics::Metrics;
use crate::results::Ended;
use crate::schedules::Surroundings;
use crate::settings::tests::brokers;

struct Server(Methods, Pipelines);

impl Server {
    fn new() -> Self {
        Self::with_patience(Duration::from_secs(60))
    }

    fn with_patience(patience: Duration) -> Self {
        Self::over(LazyStore::default(), patience)
    }

    fn over(store: LazyStore, patience: Duration) -> Self {
        let methods = Methods::default();
        let metrics = Metrics::new(&Registry::default());
        let pipelines =
            Pipelines::new(store, patience, metrics, ["default"].into_iter(), brokers());
        let surroundings = Surroundings {
            spawner: pronghorn_process::Spawner::start().unwrap(),
            folder: std::env::temp_dir(),
            variables: Vec::new(),
            user: None,
        };
        let store = LazyStore::default();
        let schedules = Schedules::new([], pipelines.clone(), store, surroundings);
        add(&methods, &pipelines, &schedules);
        Self(methods, pipelines)
    }

    async fn call(&self, method: &str, json: &str) -> String {
        self.call_by(&Caller::anyone(), method, json).await
    }

    async fn call_by(&self, caller: &Caller, method: &str, json: &str) -> String {
        let argument = Bytes::copy_from_slice(json.as_bytes());
        let method = self.0.find(&format!("jobs.{method}")).unwrap();
        match method.call(caller, Encoding::Json, argument).await {
            Ok(result) => String::from_utf8(result.to_vec()).unwrap(),
            Err(failure) => failure.to_string(),
        }
    }

    async fn expect(&self, method: &str, json: &str, said: &str) {
        assert_eq!(self.call(method, json).await, said, "{method} {json}");
    }
}

#[tokio::test]
async fn a_pipeline_is_declared_filled_seen_and_destroyed() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"mail","driver":"memory","priority":"7"}}"#;
    server.expect("Declare", declare, "{}").await;
    server
        .expect("List", "{}", r#"{"pipelines":["mail"]}"#)
        .await;
    let push = r#"{"job":{"job":"n","id":"1","payload":"","options":{"pipeline":"mail"}}}"#;
    server.expect("Push", push, "{}").await;
    let batch = r#"{"jobs":[{"id":"2","options":{"pipeline":"mail","delay":9}},{"id":"3","options":{"pipeline":"mail"}}]}"#;
    server.expect("PushBatch", batch, "{}").await;
    let stat = r#"{"stats":[{"pipeline":"mail","driver":"memory","queue":"mail","active":2,"delayed":1,"priority":7}]}"#;
    server.expect("Stat", "{}", stat).await;
    let mail = r#"{"pipelines":["mail"]}"#;
    server.expect("Resume", mail, "{}").await;
    let ready = stat.replace(r#""priority""#, r#""ready":true,"priority""#);
    server.expect("Stat", "null", &ready).await;
    server.expect("Pause", mail, "{}").await;
    server.expect("Stat", "{}", stat).await;
    server.expect("Destroy", mail, mail).await;
    server.expect("List", "{}", "{}").await;
}

/// The pipeline is paused, so its jobs stay where they are.
#[tokio::test]
async fn who_waits_is_told_where_a_job_stands() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"mail","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    let result = r#""headers":{"pronghorn-result":{"value":["1"]}},"#;
    for (id, headers, delay) in [("plain", "", 0), ("ready", result, 0), ("later", result, 9)] {
        let push = format!(
            r#"{{"job":{{"job":"n","id":"{id}",{headers}"options":{{"pipeline":"mail","delay":{delay}}}}}}}"#
        );
        server.expect("Push", &push, "{}").await;
    }
    for (id, standing) in [
        ("plain", r#""no_result","pipeline":"mail""#),
        ("ready", r#""waiting","pipeline":"mail""#),
        ("later", r#""delayed","pipeline":"mail""#),
        ("none", r#""unknown""#),
    ] {
        let asked = format!(r#"{{"id":"{id}","explain":true}}"#);
        let said = format!(r#"{{"state":"waiting","standing":{standing}}}"#);
        server.expect("Await", &asked, &said).await;
    }
    let plain = r#"{"state":"waiting"}"#;
    server.expect("Await", r#"{"id":"none"}"#, plain).await;
    // A job that is nowhere is waited for by nobody: in memory when the server was killed, perhaps.
    let since = tokio::time::Instant::now();
    let long = r#"{"id":"none","explain":true,"timeout_ms":60000,"pipeline":"mail"}"#;
    let unknown = r#"{"state":"waiting","standing":"unknown"}"#;
    server.expect("Await", long, unknown).await;
    assert!(
        since.elapsed() < Duration::from_secs(10),
        "it was told at once"
    );
    // A broker may have it, and does not tell.
    let redis = r#"{"pipeline":{"name":"far","driver":"redis","addr":"redis://127.0.0.1:1"}}"#;
    server.expect("Declare", redis, "{}").await;
    let asked = r#"{"id":"none","explain":true,"timeout_ms":10}"#;
    let said = r#"{"state":"waiting","standing":"broker"}"#;
    server.expect("Await", asked, said).await;
    server.expect("Await", long, unknown).await;
}

#[tokio::test]
async fn the_jobs_of_a_pipeline_are_listed() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"mail","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    let push = r#"{"jobs":[{"job":"n","id":"1","payload":"aGk=","options":{"pipeline":"mail"}},{"id":"2","options":{"pipeline":"mail","delay":9}}]}"#;
    server.expect("PushBatch", push, "{}").await;
    let listed = server.call("Waiting", r#"{"pipeline":"mail"}"#).await;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let (first, second) = (&listed["jobs"][0], &listed["jobs"][1]);
    assert_eq!(
        (
            &first["id"],
            &first["state"],
            &first["size"],
            &listed["more"]
        ),
        (&"1".into(), &"waiting".into(), &2.into(), &false.into())
    );
    let queued = first["queued_at"].as_u64().unwrap();
    assert!(pronghorn_base::now_ms() - queued < 60_000, "{first}");
    assert_eq!(second["state"], "delayed");
    assert!(second["due_in"].as_f64().unwrap() > 8.0, "{second}");
    let unknown = "no such pipeline, requested: mial; did you mean `mail`? There are: `mail`";
    server
        .expect("Waiting", r#"{"pipeline":"mial"}"#, unknown)
        .await;
}

#[tokio::test]
async fn failures_have_roadrunners_words() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"n","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    for (method, json, said) in [
        (
            "Push",
            r#"{"job":{"id":""}}"#,
            "rpc_push: empty ID field not allowed",
        ),
        (
            "Push",
            r#"{"job":{"id":"1","options":{"pipeline":"X"}}}"#,
            "rpc_push:\n\tjobs_plugin_push: no such pipeline, requested: X; there are: `n`",
        ),
        (
            "PushBatch",
            r#"{"jobs":[{"id":"1","options":{"pipeline":"n"}},{"id":"2"}]}"#,
            "rpc_push:\n\tjobs_plugin_push: no such pipeline, requested: ; there are: `n`",
        ),
        (
            "Pause",
            r#"{"pipelines":["X"]}"#,
            "no such pipeline, requested: X; there are: `n`",
        ),
        (
            "Resume",
            r#"{"pipelines":["X"]}"#,
            "no such pipeline, requested: X; there are: `n`",
        ),
        (
            "Destroy",
            r#"{"pipelines":["X"]}"#,
            "rpc_destroy_pipeline:\n\tjobs_plugin_destroy: no such pipeline, requested: X; there are: `n`",
        ),
        (
            "Declare",
            declare,
            "rpc_declare_pipeline: pipeline already exists, name: n, driver: memory",
        ),
        (
            "Declare",
            r#"{"pipeline":{"name":"m"}}"#,
            "rpc_declare_pipeline: no associated driver with the pipeline, pipeline name: m",
        ),
        (
            "Declare",
            r#"{"pipeline":{"name":"m","driver":"embedded"}}"#,
            "rpc_declare_pipeline: there is no state directory",
        ),
    ] {
        server.expect(method, json, said).await;
    }
    server
        .expect(
            "Stat",
            "{}",
            r#"{"stats":[{"pipeline":"n","driver":"memory","queue":"n","priority":10}]}"#,
        )
        .await;
}

#[tokio::test]
async fn a_name_counts_in_lower_case_too() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"Mail","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    let push = r#"{"job":{"id":"1","options":{"pipeline":"mail"}}}"#;
    server.expect("Push", push, "{}").await;
}

#[tokio::test]
async fn names_that_are_empty_or_long_are_refused() {
    let server = Server::new();
    let long = "n".repeat(10 << 10);
    for (method, json, said) in [
        (
            "Declare",
            format!(r#"{{"pipeline":{{"name":"{long}","driver":"memory"}}}}"#),
            "a pipeline's name has 1 to 255 bytes",
        ),
        (
            "Declare",
            r#"{"pipeline":{"name":"","driver":"memory"}}"#.to_owned(),
            "the pipeline has no name",
        ),
        (
            "Push",
            format!(r#"{{"job":{{"id":"1","job":"{long}","options":{{"pipeline":"n"}}}}}}"#),
            "the job's name: 10240 bytes; at most 4096 are taken",
        ),
        (
            "Push",
            format!(r#"{{"job":{{"id":"1","options":{{"pipeline":"{long}"}}}}}}"#),
            "no such pipeline",
        ),
        (
            "Batch",
            r#"{"jobs":[],"then":{"id":"1"}}"#.to_owned(),
            "rpc_batch: a batch has at least one job",
        ),
        (
            "Batch",
            r#"{"jobs":[{"id":"2"}],"then":{"id":"a\u0000"}}"#.to_owned(),
            "rpc_batch: a batch has at least one job, and an ID without a byte of zero",
        ),
        (
            "Progress",
            r#"{"id":"1","done":2}"#.to_owned(),
            "a progress of 2; accepted: 0 to 1",
        ),
        ("Progress", r#"{"id":"1","done":1}"#.to_owned(), "false"),
    ] {
        let answer = server.call(method, &json).await;
        assert!(answer.contains(said), "{method}: {answer}");
    }
}

#[tokio::test]
async fn there_is_an_end_to_pipelines() {
    let server = Server::new();
    for number in 0..MOST_PIPELINES {
        let declare = format!(r#"{{"pipeline":{{"name":"{number}","driver":"memory"}}}}"#);
        server.expect("Declare", &declare, "{}").await;
    }
    let declare = r#"{"pipeline":{"name":"more","driver":"memory"}}"#;
    let said = "rpc_declare_pipeline: there are 1000 pipelines already, and no more are taken";
    server.expect("Declare", declare, said).await;
}

#[tokio::test]
async fn a_push_to_a_broker_that_is_away_fails_in_time_with_the_reason() {
    let server = Server::with_patience(Duration::from_secs(1));
    let port = pronghorn_testkit::free_address().port();
    let declare = format!(
        r#"{{"pipeline":{{"name":"far","driver":"redis","addr":"redis://me:secret@127.0.0.1:{port}"}}}}"#
    );
    server.expect("Declare", &declare, "{}").await;
    let push = r#"{"job":{"id":"1","options":{"pipeline":"far"}}}"#;
    let said = server.call("Push", push).await;
    let why = format!(
        "rpc_push:\n\tjobs_plugin_push: pipeline far is not ready: the Redis at 127.0.0.1:{port} is away: "
    );
    assert!(said.starts_with(&why) && !said.contains("secret"), "{said}");
    let stat = server.call("Stat", "{}").await;
    assert!(
        stat.starts_with("rpc_stats: pipeline far is not ready"),
        "{stat}"
    );
}

#[tokio::test]
async fn a_job_is_for_workers_that_there_are() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"n","driver":"memory","pool":"others"}}"#;
    let said = "rpc_declare_pipeline: there is no pool `others`; there are: `default`";
    server.expect("Declare", declare, said).await;
    let declare = r#"{"pipeline":{"name":"n","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    for (pool, said) in [
        ("default", "{}"),
        (
            "others",
            "rpc_push:\n\tjobs_plugin_push: there is no pool `others`; there are: `default`",
        ),
    ] {
        let push = format!(
            r#"{{"job":{{"id":"1","headers":{{"pool":{{"value":["{pool}"]}}}},"options":{{"pipeline":"n"}}}}}}"#
        );
        server.expect("Push", &push, said).await;
    }
}

#[tokio::test]
async fn a_delay_may_be_of_years_and_one_below_zero_is_none() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"n","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    for delay in [315_360_000, i64::MAX, -1, i64::MIN] {
        let push =
            format!(r#"{{"job":{{"id":"{delay}","options":{{"pipeline":"n","delay":{delay}}}}}}}"#);
        server.expect("Push", &push, "{}").await;
    }
    let stat = r#"{"stats":[{"pipeline":"n","driver":"memory","queue":"n","active":2,"delayed":2,"priority":10}]}"#;
    server.expect("Stat", "{}", stat).await;
}

#[tokio::test]
async fn a_call_names_so_many_and_no_more() {
    let server = Server::new();
    let ids = |count: usize| serde_json::json!({"ids": vec!["x"; count]}).to_string();
    for (method, why) in [
        ("Cancel", "no job waits or runs with this ID"),
        ("Retry", "there is no such dead letter"),
        ("Discard", "there is no such dead letter"),
    ] {
        let said = server.call(method, &ids(1000)).await;
        assert_eq!(said.matches(why).count(), 1000, "{method} {said}");
        let refused =
            "1001 IDs; at most 1000 are taken at a time: make a call for each 1000 of them";
        server.expect(method, &ids(1001), refused).await;
    }
    let pipelines = serde_json::json!({"pipelines": vec!["x"; 1001]}).to_string();
    for method in ["Pause", "Resume", "Destroy"] {
        let refused = "1001 pipelines; at most 1000 are taken at a time";
        server.expect(method, &pipelines, refused).await;
    }
}

/// Whoever pushes chooses the ID.
#[tokio::test]
async fn jobs_of_two_pipelines_with_one_id_are_told_apart() {
    let directory = pronghorn_testkit::Directory::new();
    let store = LazyStore::new(directory.join("state"), 1 << 20);
    let server = Server::over(store, Duration::from_secs(60));
    for name in ["evil", "good"] {
        let declare = format!(r#"{{"pipeline":{{"name":"{name}","driver":"memory"}}}}"#);
        server.expect("Declare", &declare, "{}").await;
    }
    let die = async |pipeline: &str, id: &str| {
        let job = Job {
            id: id.to_owned(),
            ..Job::default()
        };
        let dead = server.1.dead();
        dead.keep(pipeline, &job, 3, pipeline).await.unwrap();
    };
    let left = async || {
        let (all, _) = server.1.dead().list(None, 100).await.unwrap();
        let mut all: Vec<_> = (all.iter())
            .map(|it| format!("{} {}", it.pipeline, it.id))
            .collect();
        all.sort_unstable();
        all.join(", ")
    };
    for (pipeline, id) in [
        ("good", "a"),
        ("good", "b"),
        ("good", "c"),
        ("evil", "a"),
        ("evil", "c"),
    ] {
        die(pipeline, id).await;
    }
    let which = "jobs of several pipelines have the ID `a`: `evil`, `good` (hint: `pipeline` says \
                 which one is meant)";
    for method in ["Retry", "Discard"] {
        let said = format!(r#"{{"done":[],"not_done":[{{"id":"a","why":"{which}"}}]}}"#);
        server.expect(method, r#"{"ids":["a"]}"#, &said).await;
    }
    server.expect("Show", r#"{"id":"a"}"#, which).await;
    let shown = server.call("Show", r#"{"id":"a","pipeline":"good"}"#).await;
    assert!(shown.contains(r#""reason":"good""#), "{shown}");
    let done = |ids: &str| format!(r#"{{"done":[{ids}]}}"#);
    let of_good = r#"{"ids":["a"],"pipeline":"good"}"#;
    server.expect("Retry", of_good, &done(r#""a""#)).await;
    assert_eq!(left().await, "evil a, evil c, good b, good c");
    // It waits in one pipeline, and is a dead letter of the other one.
    server.expect("Show", r#"{"id":"a"}"#, which).await;
    let shown = server.call("Show", r#"{"id":"a","pipeline":"good"}"#).await;
    assert!(shown.contains(r#""state":"waiting""#), "{shown}");
    let discard = r#"{"ids":["a","x"],"pipeline":"evil"}"#;
    let said = r#"{"done":["a"],"not_done":[{"id":"x","why":"there is no such dead letter"}]}"#;
    server.expect("Discard", discard, said).await;
    let shown = server.call("Show", r#"{"id":"a"}"#).await;
    assert!(shown.contains(r#""pipeline":"good""#), "{shown}");
    // One that no other pipeline has needs no pipeline; and all of a pipeline are its own.
    server
        .expect("Discard", r#"{"ids":["b"]}"#, &done(r#""b""#))
        .await;
    server
        .expect("Discard", r#"{"pipeline":"good"}"#, &done(r#""c""#))
        .await;
    assert_eq!(left().await, "evil c");
    let unknown =
        "no such pipeline, requested: goood; did you mean `good`? There are: `evil`, `good`";
    server
        .expect("Retry", r#"{"pipeline":"goood"}"#, unknown)
        .await;
}

/// A job is not cancelled for having the ID of another one.
#[tokio::test]
async fn a_job_is_cancelled_in_the_pipeline_that_is_meant() {
    let directory = pronghorn_testkit::Directory::new();
    let store = LazyStore::new(directory.join("state"), 1 << 20);
    let server = Server::over(store, Duration::from_secs(60));
    for (name, driver) in [("evil", "memory"), ("good", "embedded"), ("more", "memory")] {
        let declare = format!(r#"{{"pipeline":{{"name":"{name}","driver":"{driver}"}}}}"#);
        server.expect("Declare", &declare, "{}").await;
    }
    for (pipeline, id) in [("evil", "a"), ("good", "a"), ("good", "b"), ("more", "c")] {
        let options = format!(r#"{{"pipeline":"{pipeline}","delay":60}}"#);
        let push = format!(r#"{{"job":{{"job":"n","id":"{id}","options":{options}}}}}"#);
        server.expect("Push", &push, "{}").await;
    }
    let last = r#"{"job":"n","id":"c","options":{"pipeline":"evil"}}"#;
    let of_batch = r#"{"job":"n","id":"d","options":{"pipeline":"evil","delay":60}}"#;
    let batch = format!(r#"{{"jobs":[{of_batch}],"then":{last}}}"#);
    server.expect("Batch", &batch, "{}").await;
    let said = |done: &str, removed: u32, not_done: &str| {
        format!(r#"{{"done":[{done}],"removed":{removed},"running":0{not_done}}}"#)
    };
    let several = |id: &str, all: &str| {
        let why = format!(
            "jobs of several pipelines have the ID `{id}`: {all} (hint: `pipeline` says which one \
             is meant)"
        );
        format!(r#"{{"id":"{id}","why":"{why}"}}"#)
    };
    let (a, c) = (
        several("a", "`evil`, `good`"),
        several("c", "`evil`, `more`"),
    );
    let unclear = said(r#""b""#, 1, &format!(r#","not_done":[{a},{c}]"#));
    server
        .expect("Cancel", r#"{"ids":["a","b","c"]}"#, &unclear)
        .await;
    let none = r#","not_done":[{"id":"b","why":"no job waits or runs with this ID"}]"#;
    let of_good = r#"{"ids":["a","b"],"pipeline":"GOOD"}"#;
    server
        .expect("Cancel", of_good, &said(r#""a""#, 1, none))
        .await;
    let shown = server.call("Show", r#"{"id":"a"}"#).await;
    assert!(shown.contains(r#""pipeline":"evil""#), "{shown}");
    // The last job of a batch is of its pipeline.
    let of_more = r#"{"ids":["c"],"pipeline":"more"}"#;
    server
        .expect("Cancel", of_more, &said(r#""c""#, 1, ""))
        .await;
    let nothing = r#","not_done":[{"id":"c","why":"no job waits or runs with this ID"}]"#;
    server
        .expect("Cancel", of_more, &said("", 0, nothing))
        .await;
    let of_evil = r#"{"ids":["c","a"],"pipeline":"evil"}"#;
    server
        .expect("Cancel", of_evil, &said(r#""c","a""#, 2, ""))
        .await;
    let unknown = server
        .call("Cancel", r#"{"ids":["a"],"pipeline":"goood"}"#)
        .await;
    assert!(unknown.contains("did you mean `good`?"), "{unknown}");
}

/// Room that is given once, after somebody asked for it.
#[derive(Debug)]
struct Gate(Semaphore);

impl ReplyRoom for Gate {
    fn reserve(&self, bytes: usize) -> BoxFuture<'_, usize> {
        Box::pin(async move {
            self.0.acquire().await.expect("it is open").forget();
            bytes
        })
    }

    fn try_reserve(&self, _: usize) -> usize {
        0
    }
}

#[tokio::test]
async fn replies_that_jobs_make_long_wait_for_room() {
    let server = Server::new();
    let declare = r#"{"pipeline":{"name":"mail","driver":"memory"}}"#;
    server.expect("Declare", declare, "{}").await;
    let push = r#"{"job":{"job":"n","id":"1","options":{"pipeline":"mail"}}}"#;
    server.expect("Push", push, "{}").await;
    for (method, argument) in [
        ("Export", r#"{"pipeline":"mail"}"#),
        ("Waiting", r#"{"pipeline":"mail"}"#),
        ("Show", r#"{"id":"1"}"#),
        ("Recent", "{}"),
        ("DeadLetters", "{}"),
        ("Batches", "{}"),
        ("Retry", r#"{"ids":["1"]}"#),
        ("Discard", r#"{"ids":["1"]}"#),
    ] {
        let gate = Arc::new(Gate(Semaphore::new(0)));
        let found = server.0.find(&format!("jobs.{method}")).unwrap();
        let caller = Caller::in_room(gate.clone());
        let mut calling = found.call(&caller, Encoding::Json, argument.into());
        let early = timeout(Duration::from_millis(1), &mut calling).await;
        assert!(early.is_err(), "{method}: {early:?}");
        gate.0.add_permits(1);
        _ = calling.await; // there may be no store
        assert_eq!(gate.0.available_permits(), 0, "{method}");
    }
}

/// Whatever IDs and keys a pool with `pipelines` chooses, jobs of others have their own.
#[tokio::test(start_paused = true)]
async fn a_pool_touches_no_job_of_a_pipeline_that_is_not_its_own() {
    let server = Server::new();
    for pipeline in ["mine", "theirs"] {
        let declare = format!(r#"{{"pipeline":{{"name":"{pipeline}","driver":"memory"}}}}"#);
        server.expect("Declare", &declare, "{}").await;
    }
    let borders = Borders {
        // As of the pool of HTTP, and as a pipeline calls the only pool of jobs.
        pool: "default".to_owned(),
        methods: Allowed::default(),
        storages: None,
        pipelines: Some(vec!["mine".to_owned()]),
    };
    let pool = Caller::of_pool(&Arc::new(borders), Arc::new(Gate(Semaphore::new(1000))));
    let job = |id: &str, pipeline: &str, header: &str, value: &str| {
        format!(
            r#"{{"job":{{"job":"x","id":"{id}","payload":"","headers":{{"{header}":{{"value":["{value}"]}}}},"options":{{"pipeline":"{pipeline}"}}}}}}"#
        )
    };
    let push = async |job: &str| server.call_by(&pool, "Push", job).await;
    // A key of another pipeline is not taken, one of the same is.
    let unique = "pronghorn-unique";
    assert_eq!(push(&job("a", "mine", unique, "k")).await, "{}");
    server
        .expect("Push", &job("b", "theirs", unique, "k"), "{}")
        .await;
    let taken = server.call("Push", &job("c", "mine", unique, "k")).await;
    assert_eq!(taken, r#"{"duplicates":{"c":"a"}}"#);
    // Nor is its batch joined, or taken over.
    let said = push(&job("B1a", "mine", "pronghorn-batch", "B1")).await;
    assert!(said.contains("`pronghorn-batch`, which the pool"), "{said}");
    let said = push(&job("p", "mine", "pool", "other")).await;
    assert!(said.contains("the header `pool`, which the pool"), "{said}");
    let alone = |pushed: &str| {
        let job = pushed.strip_prefix(r#"{"job":"#).unwrap();
        job.strip_suffix('}').unwrap().to_owned()
    };
    let last = alone(&job("v", "mine", "pronghorn-batch", "L"));
    let of = alone(&job("m", "mine", "x", "y"));
    let batch = format!(r#"{{"jobs":[{of}],"then":{last}}}"#);
    let said = server.call_by(&pool, "Batch", &batch).await;
    assert!(said.contains("`pronghorn-batch`, which the pool"), "{said}");
    server
        .expect("Push", &job("B1b", "theirs", "pronghorn-batch", "B1"), "{}")
        .await;
    // Its results are neither read nor written.
    let ended = |text: &str| Ended::Done(Bytes::copy_from_slice(text.as_bytes()));
    let results = server.1.results();
    results.keep("theirs", "r", ended("secret"));
    let wait = r#"{"id":"r","explain":true}"#;
    let said = server.call_by(&pool, "Await", wait).await;
    assert_eq!(said, r#"{"state":"waiting","standing":"unknown"}"#);
    results.keep("mine", "r", ended("own"));
    let said = server.call_by(&pool, "Await", wait).await;
    assert_eq!(said, r#"{"state":"done","result":"own"}"#);
    // Nor does it say how far they have come.
    let running = |id: &str| {
        let id = id.to_owned();
        Arc::new(Job {
            id,
            ..Job::default()
        })
    };
    let keys = server.1.keys();
    keys.run(&running("t"), "theirs");
    keys.run(&running("m"), "mine");
    for (id, is_noted) in [("t", "false"), ("m", "true")] {
        let said = format!(r#"{{"id":"{id}","done":0.9,"text":"owned"}}"#);
        assert_eq!(server.call_by(&pool, "Progress", &said).await, is_noted);
    }
    assert!(
        keys.running_of(None, "t")
            .is_some_and(|it| it.progress.is_none())
    );
    let said = server
        .call_by(&pool, "Await", r#"{"id":"t","explain":true}"#)
        .await;
    assert_eq!(said, r#"{"state":"waiting","standing":"unknown"}"#);
    // A pool of jobs sees those that it runs.
    let borders = Borders {
        pool: "jobs".to_owned(),
        methods: Allowed::default(),
        storages: None,
        pipelines: Some(Vec::new()),
    };
    let runs = Caller::of_pool(&Arc::new(borders), Arc::new(Gate(Semaphore::new(1000))));
    let said = server
        .call_by(&runs, "Progress", r#"{"id":"t","done":0.5}"#)
        .await;
    assert_eq!(said, "true");
}
