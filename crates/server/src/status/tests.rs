use pronghorn_plugin_api::Readiness;

use pronghorn_serve::Body;

use super::*;

fn checks() -> (Checks, Readiness) {
    let http = Readiness::default();
    let health = Health::default();
    health.watch(vec![("http", http.clone())]);
    let unavailable = 503;
    (
        Checks {
            health,
            unavailable,
        },
        http,
    )
}

fn answer(checks: &Checks, question: Question, query: &str) -> (u16, String) {
    let response = checks.report(question, Some(query.as_bytes()));
    let Body::Whole(body) = response.body else {
        panic!("a body");
    };
    assert_eq!(
        response.fields.get("content-type"),
        Some(&b"text/plain; charset=utf-8"[..])
    );
    (response.status, String::from_utf8(body.into()).unwrap())
}

#[test]
fn the_answers_are_those_of_roadrunner() {
    let (checks, http) = checks();
    let line = |error: &str, status: u16| {
        format!(r#"[{{"plugin_name":"http","error_message":"{error}","status_code":{status}}}]"#)
    };
    let all = [Question::Alive, Question::Ready];
    for question in all {
        let want = (503, line("starting", 503));
        assert_eq!(answer(&checks, question, ""), want);
    }
    http.answer_apart(|| Err(NotReady("full".into())), || Ok(()));
    assert_eq!(answer(&checks, Question::Alive, ""), (200, line("", 200)));
    assert_eq!(
        answer(&checks, Question::Ready, ""),
        (503, line("full", 503))
    );
    let two = "plugin=http&x=1&plugin=nope&plugin=http";
    let (status, body) = answer(&checks, Question::Alive, two);
    assert_eq!((status, body.matches("http").count()), (200, 2));
    assert_eq!(
        answer(&checks, Question::Ready, "plugin=nope"),
        (200, "[]".to_owned())
    );

    checks.health.leave();
    assert_eq!(
        answer(&checks, Question::Alive, ""),
        (200, STOPPING.to_owned())
    );
    assert_eq!(
        answer(&checks, Question::Ready, ""),
        (503, STOPPING.to_owned())
    );
}

#[tokio::test]
async fn a_pipeline_that_is_not_well_is_told_by_the_status() {
    let (checks, _) = checks();
    assert_eq!(checks.pipelines().await.status, 200);
    let report = QueueReport {
        error: "redis is away".to_owned(),
        ready: true,
        ..QueueReport::default()
    };
    let reports =
        move || -> BoxFuture<'static, _> { Box::pin(std::future::ready(vec![report.clone()])) };
    checks.health.queues().answer_with(reports);
    assert_eq!(checks.pipelines().await.status, 503);
}
