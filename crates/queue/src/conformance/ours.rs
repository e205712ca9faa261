//! The drivers of this crate conform, and what they alone do.

use std::os::unix::net::UnixStream;

use pronghorn_store::LazyStore;

use super::*;
use crate::driver::{Keeper, MOST_IN_PART};
use crate::embedded::{Embedded, OpenPipelines};
use crate::memory::Memory;
use crate::options;

fn memory(limit: u64) -> Subject {
    let wake = Wake::default();
    Subject {
        driver: Arc::new(Memory::new(limit, wake.clone())),
        wake,
        ability: Ability::OURS,
        again: None,
        directory: None,
    }
}

async fn embedded(limit: u64) -> Subject {
    embedded_in(new_directory(), limit).await
}

async fn embedded_in(directory: PathBuf, limit: u64) -> Subject {
    let store = Store::open(&directory, limit).unwrap();
    let wake = Wake::default();
    let left = store.clone();
    let open = move |wake| {
        let store = store.clone();
        let driver = async move {
            let driver = Embedded::open("mail", store, wake).await.unwrap();
            Arc::new(driver) as Arc<dyn Driver>
        };
        Box::pin(driver) as BoxFuture<'static, _>
    };
    Subject {
        driver: open(wake.clone()).await,
        wake,
        ability: Ability::OURS,
        again: Some(Box::new(open)),
        directory: Some((directory, left)),
    }
}

#[tokio::test]
async fn a_job_that_is_always_given_back_does_not_keep_a_worker_busy() {
    let memory = Memory::new(1 << 20, Wake::default());
    memory.resume();
    memory.push(vec![job("a")]).await.unwrap();
    for at_once in [true, true, true, false] {
        let delivery = memory.take(Instant::now()).expect("it is there");
        let nack = Settlement::Nack {
            delay: Duration::ZERO,
        };
        memory.settle(delivery.ticket, nack).await.unwrap();
        let stat = memory.stat().await.unwrap();
        let (active, delayed) = if at_once { (1, 0) } else { (0, 1) };
        assert_eq!((stat.active, stat.delayed), (active, delayed));
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms(|_| Box::pin(async { memory(PLENTY) })).await;
}

#[tokio::test]
async fn embedded_conforms() {
    conforms(|_| Box::pin(embedded(PLENTY))).await;
}

/// Starts this test again as a process of its own, which is killed while it pushes and consumes.
#[tokio::test]
async fn a_kill_loses_no_job_that_was_pushed_and_none_comes_after_its_ack() {
    const DIRECTORY: &str = "PRONGHORN_QUEUE_TEST_DIRECTORY";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let store = Store::open(directory.as_ref(), PLENTY).unwrap();
        let wake = Wake::default();
        let driver = Embedded::open("mail", store, wake).await.unwrap();
        driver.resume();
        for number in 0.. {
            let id = format!("{}-{number}", std::process::id());
            let pushed = Job {
                delay: Duration::from_millis(fastrand::u64(0..2) * 20),
                ..job(&id)
            };
            driver.push(vec![pushed]).await.unwrap();
            println!("pushed {id}");
            if let Some(delivery) = driver.take(Instant::now()).filter(|_| fastrand::bool()) {
                println!("acking {}", delivery.job.id);
                driver
                    .settle(delivery.ticket, Settlement::Ack)
                    .await
                    .unwrap();
                println!("acked {}", delivery.job.id);
            }
        }
    }
    let subject = embedded(PLENTY).await;
    let (directory, store) = subject.directory.clone().unwrap();
    store.close().await;
    drop(subject);
    // Nobody knows of one whose ack is under way at the kill.
    let (mut pushed, mut acking, mut acked) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..5 {
        let test = "a_kill_loses_no_job_that_was_pushed_and_none_comes_after_its_ack";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--nocapture"])
            .env(DIRECTORY, &directory)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        let enough = pushed.len() + fastrand::usize(10..40);
        for line in lines {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("pushed ") {
                pushed.insert(id.to_owned());
            } else if let Some(id) = line.strip_prefix("acking ") {
                acking.insert(id.to_owned());
            } else if let Some(id) = line.strip_prefix("acked ") {
                acked.insert(id.to_owned());
            }
            if pushed.len() == enough {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
    }
    let subject = embedded_in(directory, PLENTY).await;
    subject.driver.resume();
    let mut left = BTreeSet::new();
    loop {
        let stat = subject.driver.stat().await.unwrap();
        if stat.active + stat.delayed == 0 {
            break;
        }
        let delivery = subject.next().await;
        let id = delivery.job.id.clone();
        assert!(!acked.contains(&id), "{id} comes after its ack");
        assert!(left.insert(id), "{} comes twice", delivery.job.id);
    }
    let lost: Vec<_> = pushed
        .iter()
        .filter(|id| !acking.contains(*id) && !left.contains(*id))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(pushed.len() >= 50 && acked.len() >= 5);
}

#[tokio::test]
async fn a_full_driver_refuses_all_of_a_push_and_has_room_after_an_ack() {
    let small = Job {
        payload: vec![1; 900].into(),
        ..job("a")
    };
    for subject in [memory(4000), embedded(4000).await] {
        let driver = subject.driver.clone();
        driver.resume();
        subject.push([small.clone(), small.clone()]).await;
        let refused = driver.push(vec![small.clone(); 3]).await.unwrap_err();
        // In the store, others have their share.
        let limit = match refused {
            DriverError::Full { limit } => limit,
            other => panic!("{other}"),
        };
        assert!((3600..=4000).contains(&limit), "{limit}");
        subject.stat(2, 0, 0).await;
        subject.ack_next().await;
        subject.push([small.clone()]).await;
        let delivery = subject.next().await;
        let requeue = Settlement::Requeue {
            headers: Headers::new(),
            delay: Duration::ZERO,
        };
        subject.settle(&delivery, requeue).await;
        subject.stat(2, 0, 0).await;
    }
}

/// Whatever some keep, others find room.
#[tokio::test]
async fn pipelines_share_a_store() {
    let directory = new_directory();
    let store = Store::open(&directory, 1 << 20).unwrap();
    let [good, evil, last] = ["good", "evil", "last"];
    let open = async |name| {
        Embedded::open(name, store.clone(), Wake::default())
            .await
            .unwrap()
    };
    let [good, evil, last] = [open(good).await, open(evil).await, open(last).await];
    let large = || Job {
        payload: vec![1; 10_000].into(),
        ..job("a")
    };
    let fill = async |driver: &Embedded| {
        let mut pushed = 0;
        while driver.push(vec![large()]).await.is_ok() {
            pushed += 1;
        }
        pushed
    };
    let pushed = fill(&evil).await;
    assert!((80..=94).contains(&pushed), "{pushed}");
    assert!((5..=15).contains(&fill(&good).await));
    // A thousandth in any case.
    while evil.push(vec![job("small")]).await.is_ok() {}
    while good.push(vec![job("small")]).await.is_ok() {}
    last.push(vec![job("one")]).await.unwrap();
    // Whatever ends makes room, for its own pipeline as well.
    let mut after = None;
    loop {
        let mut part = evil.withdraw(None, after).await.unwrap();
        after = part.next.take();
        part.remove().await.unwrap();
        if after.is_none() {
            break;
        }
    }
    evil.push(vec![large()]).await.unwrap();
    _ = std::fs::remove_dir_all(&directory);
}

#[tokio::test]
async fn all_jobs_of_a_driver_of_ours_are_listed() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        lists_all(subject, MOST_IN_PART).await;
    }
}

#[tokio::test]
async fn what_is_removed_is_gone_for_good() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        removes(subject).await;
    }
}

/// More jobs than the driver has in memory, of two priorities, and delayed ones.
async fn removes(mut subject: Subject) {
    subject.driver.resume();
    subject.push([job("taken")]).await;
    let taken = subject.next().await;
    let urgent = |id: String| Job {
        priority: 1,
        ..job(id)
    };
    let later = |id: String| Job {
        delay: Duration::from_secs(3600),
        ..job(id)
    };
    subject.push((0..40).map(job)).await;
    let pairs = (0..20).flat_map(|n| [urgent(format!("u{n}")), later(format!("l{n}"))]);
    subject.push(pairs).await;
    for id in ["0", "39", "u19", "l19", "taken", "none"] {
        let (jobs, reserved) = remove_all(&*subject.driver, Some(id)).await;
        let is_taken = id == "taken";
        let expected = if is_taken || id == "none" {
            vec![]
        } else {
            vec![id.to_owned()]
        };
        assert_eq!((jobs, reserved), (expected, usize::from(is_taken)));
    }
    subject.stat(57, 19, 1).await;
    subject.settle(&taken, Settlement::Ack).await;
    assert_eq!(subject.ack_next().await, "u0");
    if let Some(again) = subject.again.take() {
        subject.driver = again(subject.wake.clone()).await;
        subject.driver.resume();
        subject.stat(56, 19, 0).await;
    }
    if subject.driver.keeper() == Keeper::Store {
        withdraws(&subject).await;
    }
    let taken = subject.next().await;
    let (jobs, reserved) = remove_all(&*subject.driver, None).await;
    assert_eq!((jobs.len(), reserved), (74, 1));
    subject.settle(&taken, Settlement::Release).await;
    subject.push([job("new")]).await;
    let mut left = [subject.ack_next().await, subject.ack_next().await];
    left.sort();
    assert_eq!(left, ["new".to_owned(), taken.job.id.clone()]);
    subject.stat(0, 0, 0).await;
}

/// A job that is withdrawn is there, for nobody, until it is removed; and comes again if it is not.
async fn withdraws(subject: &Subject) {
    let withdrawn = subject.driver.withdraw(Some("u1"), None).await.unwrap();
    assert_eq!((withdrawn.jobs.len(), withdrawn.reserved), (1, 0));
    let also = subject.driver.withdraw(Some("u1"), None).await.unwrap();
    assert_eq!((also.jobs.len(), also.reserved), (0, 1));
    drop(also);
    subject.stat(56, 19, 0).await;
    let taken = subject.next().await;
    assert_eq!(taken.job.id, "u2");
    subject.settle(&taken, Settlement::Release).await;
    drop(withdrawn);
    let mut taken = vec![subject.next().await];
    while !taken.iter().any(|it| it.job.id == "u1") {
        taken.push(subject.next().await);
    }
    for delivery in taken {
        subject.settle(&delivery, Settlement::Release).await;
    }
}

#[tokio::test]
async fn what_has_expired_is_taken_from_a_paused_pipeline() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        expires(subject).await;
    }
}

/// More jobs than the driver has in memory.
async fn expires(mut subject: Subject) {
    let at = |at: u64, id: String| Job {
        headers: Headers::from([("pronghorn-expires-at".to_owned(), vec![at.to_string()])]),
        ..job(id)
    };
    let later = |n: u64| Job {
        delay: Duration::from_hours(1),
        ..at(500 + n, format!("late {n}"))
    };
    subject.push([at(100, "out".to_owned())]).await;
    subject.driver.resume();
    let out = subject.next().await;
    subject.driver.pause();
    subject
        .push((0..40).map(|n| at(1000 + n, n.to_string())))
        .await;
    subject.push((0..40).map(later)).await;
    subject
        .push((0..5).map(|n| job(format!("stays {n}"))))
        .await;
    assert!(take_expired(&subject, 499).await.is_empty());
    assert_eq!(subject.driver.next_expiry(), Some(500));
    let taken = take_expired(&subject, 1019).await;
    assert_eq!(taken.len(), 60);
    assert_eq!(subject.driver.next_expiry(), Some(1020));
    subject.stat(25, 0, 61).await;
    for delivery in &taken {
        assert!(delivery.job.id != "out", "a worker has it");
        let settlement = match &*delivery.job.id {
            "7" => Settlement::Release,
            _ => Settlement::Ack,
        };
        subject.settle(delivery, settlement).await;
    }
    assert_eq!(subject.driver.next_expiry(), Some(1007));
    subject.settle(&out, Settlement::Release).await;
    subject.stat(27, 0, 0).await;
    if let Some(again) = subject.again.take() {
        subject.driver = again(subject.wake.clone()).await;
        assert_eq!(subject.driver.next_expiry(), Some(100));
        subject.stat(27, 0, 0).await;
    }
    let mut ids = BTreeSet::new();
    for delivery in take_expired(&subject, u64::MAX).await {
        subject.settle(&delivery, Settlement::Ack).await;
        assert!(ids.insert(delivery.job.id.clone()), "each comes once");
    }
    assert!(ids.contains("out") && ids.len() == 22, "{ids:?}");
    assert_eq!(subject.driver.next_expiry(), None);
    subject.driver.resume();
    for n in 0..5 {
        assert_eq!(subject.ack_next().await, format!("stays {n}"));
    }
    subject.stat(0, 0, 0).await;
}

async fn take_expired(subject: &Subject, now_ms: u64) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        let some = subject.driver.take_expired(now_ms).await.unwrap();
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

#[tokio::test]
async fn a_pipeline_that_is_open_twice_gives_out_each_job_once() {
    let (directory, store) = new_store(PLENTY);
    let open = OpenPipelines::default();
    let [one, other] = [(); 2].map(|()| open.open("mail", store.clone()));
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    one.resume();
    one.push(vec![job("a"), job("b")]).await.unwrap();
    let a = one.take(Instant::now()).expect("it is there");
    let b = other.take(Instant::now()).expect("it is there");
    assert_eq!([&*a.job.id, &*b.job.id], ["a", "b"]);
    drop(one);
    other.settle(a.ticket, Settlement::Ack).await.unwrap();
    let third = open.open("mail", store.clone()).await.unwrap();
    assert_eq!(third.take(Instant::now()).map(|it| it.ticket), None);
    third.settle(b.ticket, Settlement::Release).await.unwrap();
    drop((other, third));
    let anew = open.open("mail", store).await.unwrap();
    assert!(anew.take(Instant::now()).is_none(), "a new one is paused");
    assert_eq!(anew.stat().await.unwrap().active, 1);
    _ = std::fs::remove_dir_all(directory);
}

/// Two servers of one machine, the second of which takes over with the store.
#[tokio::test]
async fn jobs_that_are_with_workers_of_the_process_before_are_its_own_until_they_end() {
    let directory = new_directory();
    let [old, new] = [(); 2].map(|()| LazyStore::new(directory.clone(), PLENTY));
    let before = Embedded::open("mail", old.get().await.unwrap(), Wake::default());
    let before = before.await.unwrap();
    before.resume();
    let later = Job {
        delay: Duration::from_millis(1),
        ..job("later")
    };
    let with_key = |id: &str| {
        let mut job = job(id);
        options::hold_key(&mut job, format!("key of {id}"));
        job
    };
    let jobs = ["done", "fails", "returned", "left"].map(with_key);
    before
        .push(jobs.into_iter().chain([later]).collect())
        .await
        .unwrap();
    let mut out = Vec::new();
    while out.len() < 5 {
        match before.take(Instant::now()) {
            Some(delivery) => out.push(delivery),
            None => sleep(Duration::from_millis(1)).await,
        }
    }
    before.push(vec![job("waits")]).await.unwrap();
    let ticket = |id: &str| {
        let delivery = out.iter().find(|delivery| delivery.job.id == id);
        delivery.expect("it is out").ticket
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(new.take_over(theirs).unwrap());
    assert!(old.hand_over(ours).await);
    assert!(before.take(Instant::now()).is_none(), "it has left");

    let wake = Wake::default();
    let driver = Embedded::open("mail", new.get().await.unwrap(), wake.clone());
    let subject = Subject {
        driver: Arc::new(driver.await.unwrap()),
        wake,
        ability: Ability::OURS,
        again: None,
        directory: None,
    };
    subject.driver.resume();
    assert_eq!(subject.ack_next().await, "waits");
    subject.nothing_comes().await;
    subject.stat(0, 0, 5).await;
    assert_eq!(remove_all(&*subject.driver, None).await, (Vec::new(), 5));
    let store = new.get().await.unwrap();
    let again = OpenPipelines::default();
    let again = again.open("mail", store).await.unwrap();
    let all = ["done", "fails", "left", "returned"];
    assert_eq!(lent_keys(&again).await, all);
    before
        .settle(ticket("done"), Settlement::Ack)
        .await
        .unwrap();
    let failed = Settlement::Failed {
        delay: Duration::ZERO,
    };
    before.settle(ticket("fails"), failed).await.unwrap();
    let failed = subject.next().await;
    assert_eq!((&*failed.job.id, failed.job.attempts), ("fails", 1));
    assert_eq!(lent_keys(&again).await, ["left", "returned"]);
    assert_eq!(again.unique_jobs().await.unwrap().len(), 3);
    subject.settle(&failed, Settlement::Ack).await;
    before
        .settle(ticket("returned"), Settlement::Release)
        .await
        .unwrap();
    assert_eq!(subject.ack_next().await, "returned");
    subject.nothing_comes().await;
    // A job that the process before pushes itself, as the last of a batch, comes as well.
    before.push(vec![job("last")]).await.unwrap();
    assert_eq!(subject.ack_next().await, "last");
    before
        .settle(ticket("later"), Settlement::Ack)
        .await
        .unwrap();
    subject.stat(0, 0, 1).await;

    // It ends with one that is not at its end.
    old.close().await;
    serving.join_next().await.unwrap().unwrap();
    assert_eq!(subject.ack_next().await, "left");
    subject.stat(0, 0, 0).await;
    new.close().await;
    _ = std::fs::remove_dir_all(directory);
}

async fn lent_keys(pipeline: &Embedded) -> Vec<String> {
    let jobs = pipeline.unique_jobs().await.unwrap().into_iter();
    let mut ids: Vec<_> = jobs.filter(|job| job.is_lent).map(|job| job.id).collect();
    ids.sort();
    ids
}

/// Among a backlog of several priorities that is larger than what is in memory.
#[tokio::test]
async fn what_is_due_does_not_wait_for_a_backlog() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        for priority in 5..8 {
            let of_priority = |number| Job {
                priority,
                ..job(format!("{priority}-{number}"))
            };
            subject.push((0..500).map(of_priority)).await;
        }
        let urgent = Job {
            priority: 1,
            delay: Duration::from_millis(20),
            ..job("urgent")
        };
        let same = Job {
            priority: 7,
            delay: Duration::from_millis(20),
            ..job("same")
        };
        subject.push([urgent, same]).await;
        sleep(Duration::from_millis(30)).await;
        subject.driver.resume();
        let mut came = Vec::new();
        for _ in 0..40 {
            came.push(subject.ack_next().await);
        }
        assert!(came[..3].contains(&"urgent".to_owned()), "{came:?}");
        assert!(came.contains(&"same".to_owned()), "{came:?}");
    }
}

async fn remove_all(driver: &dyn Driver, id: Option<&str>) -> (Vec<String>, usize) {
    let (mut ids, mut reserved, mut after) = (Vec::new(), 0, None);
    loop {
        let mut withdrawn = driver.withdraw(id, after).await.unwrap();
        reserved += withdrawn.reserved;
        after = withdrawn.next.take();
        let removed = withdrawn.remove().await.unwrap();
        ids.extend(removed.jobs.into_iter().map(|job| job.id));
        if after.is_none() {
            return (ids, reserved);
        }
    }
}
