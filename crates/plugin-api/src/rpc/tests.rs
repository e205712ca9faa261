use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use pronghorn_metrics::Reading;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

/// A message with all that the messages of RoadRunner have, and a protobuf form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Message {
    plugin: String,
    count: i64,
    ratio: f32,
    flag: bool,
    ttl: Option<u64>,
    value: Binary,
    items: Vec<Item>,
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Item {
    #[serde(rename = "exec_timeout")]
    timeout: u32,
}

/// Field 1 is `plugin`, which is all that is needed to see bytes come in and go out.
impl Argument for Message {
    const PROTOBUF: Option<Reader<Self>> = Some(|bytes| match bytes.as_ref() {
        [] => Ok(Self::default()),
        [0x0a, length, plugin @ ..] if usize::from(*length) == plugin.len() => Ok(Self {
            plugin: String::from_utf8_lossy(plugin).into_owned(),
            ..Self::default()
        }),
        _ => Err(Failure::new("proto: cannot parse it")),
    });
}

impl Outcome for Message {
    const PROTOBUF: Option<Writer<Self>> = Some(|message| {
        let length = u8::try_from(message.plugin.len()).unwrap();
        Ok([&[0x0a, length], message.plugin.as_bytes()].concat().into())
    });
}

/// The methods of the tests return at once.
fn call(name: &str, encoding: Encoding, argument: &[u8]) -> Result<String, String> {
    let mut calling = methods()
        .find(name)
        .map_err(|unknown| unknown.to_string())?
        .call(
            &Caller::anyone(),
            encoding,
            Bytes::copy_from_slice(argument),
        );
    match calling
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(Ok(bytes)) => Ok(String::from_utf8(bytes.into()).unwrap()),
        Poll::Ready(Err(failure)) => Err(failure.to_string()),
        Poll::Pending => panic!("{name} waits"),
    }
}

fn methods() -> Methods {
    let methods = Methods::default();
    let service = methods.service("test", "state");
    service.add("Not", async |_, it: bool| Ok(!it));
    service.add("Prefix", async |state, it: String| {
        Ok(format!("{state} {it}"))
    });
    service.add("Bytes", async |_, it: Binary| Ok(it));
    service.add("Message", async |_, it: Message| Ok(it));
    service.add("Dummy", async |_, dummy: bool| {
        Ok(Binary(format!("{dummy}").into()))
    });
    methods
        .service("a.b", ())
        .add("C", async |(), _: bool| Ok(true));
    methods
}

#[test]
fn names_are_looked_up_as_in_go() {
    let none = |name| {
        methods()
            .find(name)
            .err()
            .map(|unknown| unknown.to_string())
    };
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(none("test.Not"), None);
    assert_eq!(none("a.b.C"), None);
    assert_eq!(none("nope.X"), said("rpc: can't find service nope.X"));
    assert_eq!(none("test.nope"), said("rpc: can't find method test.nope"));
    assert_eq!(none("test.not"), said("rpc: can't find method test.not"));
    assert_eq!(none("a.b"), said("rpc: can't find service a.b"));
    assert_eq!(none("X"), said("rpc: service/method request ill-formed: X"));
    assert_eq!(none(""), said("rpc: service/method request ill-formed: "));
}

#[test]
fn a_service_that_is_not_configured_says_by_what_it_would_be() {
    let methods = methods();
    methods.lack(["rpc", "test"]);
    let why = methods.find("rpc.Version").err().map(|why| why.to_string());
    let expected = "rpc: can't find service rpc.Version: the configuration has no section `rpc`, \
                    without which there is none (hint: write `rpc: {}`)";
    assert_eq!(why.as_deref(), Some(expected));
    assert!(methods.find("test.Not").is_ok(), "what is there is there");
}

#[test]
fn calls_count_by_method_from_the_first_one_on() {
    let (methods, metrics) = (Methods::default(), Registry::default());
    methods.count_in(&metrics);
    let service = methods.service("test", ());
    service.add("Works", async |(), _: bool| Ok(true));
    service.add("Fails", async |(), _: bool| {
        Err::<bool, _>(Failure::new("no"))
    });
    service.add("Never", async |(), _: bool| Ok(true));
    for (name, argument) in [
        ("test.Works", "true"),
        ("test.Works", "no JSON"),
        ("test.Fails", "true"),
    ] {
        let method = methods.find(name).expect("it is there");
        let mut calling = method.call(
            &Caller::anyone(),
            Encoding::Json,
            Bytes::from_static(argument.as_bytes()),
        );
        let polled = calling
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
    }
    let families = metrics.families();
    let counts = |name: &str| {
        let family = families.iter().find(|family| family.name == name);
        let series = family.expect(name).series.iter();
        let counts = series.map(|series| (series.labels[0].1.clone(), series.reading.clone()));
        counts.collect::<Vec<_>>()
    };
    let of = |method: &str, count| (method.to_owned(), Reading::Count(count));
    let called = [of("test.Works", 2), of("test.Fails", 1)];
    assert_eq!(counts("rpc_calls_total"), called);
    let failed = [of("test.Works", 1), of("test.Fails", 1)];
    assert_eq!(counts("rpc_failures_total"), failed);
}

#[test]
#[should_panic(expected = "there are two methods test.Not")]
fn a_second_method_of_a_name_is_a_bug() {
    methods()
        .service("test", ())
        .add("Not", async |(), it: bool| Ok(it));
}

#[test]
fn json_comes_in_and_goes_out() {
    let json = |name, json: &str| call(name, Encoding::Json, json.as_bytes());
    assert_eq!(json("test.Not", "true"), Ok("false".into()));
    assert_eq!(json("test.Not", " null "), Ok("true".into()));
    assert_eq!(
        json("test.Prefix", r#""\u00e4""#),
        Ok(r#""state ä""#.into())
    );
    assert_eq!(json("test.Prefix", "null"), Ok(r#""state ""#.into()));
    assert_eq!(json("test.Bytes", r#""aGk=""#), Ok(r#""aGk=""#.into()));
    for bad in ["", "tru", "1", "{}", "true false"] {
        let expected = Err("json: bool unexpected end of JSON input".into());
        assert_eq!(json("test.Not", bad), expected, "{bad}");
    }
    for cut in ["", "{", "{\"items\":[{"] {
        let expected = Err("unexpected end of JSON input".into());
        assert_eq!(json("test.Message", cut), expected, "{cut}");
    }
    let wrong = json("test.Message", r#"{"count":"1"}"#).unwrap_err();
    assert_eq!(
        wrong,
        "json: invalid type: string \"1\", expected i64 at line 1 column 12"
    );
    assert!(
        json("test.Bytes", "\"%\"").unwrap_err().contains("base64"),
        "says what is wrong with it"
    );
}

#[test]
fn json_is_as_lenient_as_go() {
    let message = |json: &str| go_json::read::<Message>(json.as_bytes());
    let full = Message {
        plugin: "http".into(),
        count: -1,
        ratio: 2.0,
        flag: true,
        ttl: Some(7),
        value: Binary("hi".into()),
        items: vec![Item { timeout: 3 }, Item::default()],
        headers: [("X-Case".to_owned(), vec!["1".to_owned()])].into(),
    };
    assert_eq!(
        message(
            r#"{"Plugin":"http","COUNT":-1,"ratio":2,"Flag":true,"ttl":7,"VALUE":"aGk=",
                "Items":[{"Exec_Timeout":3,"else":[1,{}]},null],"headers":{"X-Case":["1"]},"unknown":{"a":null}}"#
        ),
        Ok(full)
    );
    for zero in [
        "null",
        "{}",
        "[]",
        r#"{"plugin":null,"count":null,"ratio":null,"flag":null,"ttl":null,"value":null,"items":null,"headers":null}"#,
    ] {
        assert_eq!(message(zero), Ok(Message::default()), "{zero}");
    }
    assert_eq!(
        message(r#"{"headers":{"A":null,"a":["x",null]}}"#)
            .unwrap()
            .headers,
        [
            ("A".into(), vec![]),
            ("a".into(), vec!["x".into(), String::new()])
        ]
        .into()
    );
    assert!(message(r#"{"count":1.5}"#).is_err());
    assert!(message("[1]").is_err());
    assert!(message("{} {}").is_err());
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(message(&format!("{{\"items\":{deep}}}")).is_err());
    let passed_over = message(&format!("{{\"unknown\":{deep}}}"));
    assert_eq!(passed_over, Ok(Message::default()));
}

#[test]
fn message_pack_comes_in_and_goes_out_with_the_names_of_go() {
    let pack = |name, bytes: &[u8]| {
        let mut calling = methods().find(name).unwrap().call(
            &Caller::anyone(),
            Encoding::MessagePack,
            Bytes::copy_from_slice(bytes),
        );
        match calling
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(answer) => answer.map_err(|failure| failure.to_string()),
            Poll::Pending => panic!("{name} waits"),
        }
    };
    assert_eq!(pack("test.Not", b"\xc3").unwrap().as_ref(), b"\xc2");
    assert_eq!(pack("test.Not", b"\xc0").unwrap().as_ref(), b"\xc3");
    let said = pack("test.Prefix", b"\xa2hi").unwrap();
    assert_eq!(said.as_ref(), b"\xa8state hi");
    // Bytes are bytes, and text is taken for them.
    for bytes in [&b"\xc4\x02\0\xff"[..], b"\xa2\0\xff"] {
        assert_eq!(
            pack("test.Bytes", bytes).unwrap().as_ref(),
            b"\xc4\x02\0\xff"
        );
    }

    let item = [&b"\x81\xacexec_timeout\x03"[..], b"\x81\xabExecTimeout\x03"];
    for item in item {
        let message = [
            &b"\x83\xa6Plugin\xa4http\xa5Items\x91"[..],
            item,
            b"\xa4else\x90",
        ]
        .concat();
        let answer = pack("test.Message", &message).unwrap();
        let text = answer.escape_ascii().to_string();
        for part in [
            "\\xa6Plugin\\xa4http",
            "\\xabExecTimeout\\x03",
            "\\xa5Ratio",
            "\\xa3Ttl\\xc0",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    for bad in [&b""[..], b"\xa4cut", b"\x91", &vec![0x91; 100_000]] {
        let said = pack("test.Message", bad).unwrap_err();
        assert!(said.starts_with("msgpack: "), "{said}");
    }
}

#[test]
fn protobuf_is_for_methods_that_have_it() {
    let protobuf = |name, bytes| call(name, Encoding::Protobuf, bytes);
    assert_eq!(
        protobuf("test.Message", b"\x0a\x04http"),
        Ok("\x0a\x04http".into())
    );
    assert_eq!(protobuf("test.Message", b""), Ok("\x0a\x00".into()));
    assert_eq!(
        protobuf("test.Message", b"\xff"),
        Err("proto: cannot parse it".into())
    );
    let none = Err("test.Not has no protobuf form; call it with JSON".to_owned());
    assert_eq!(protobuf("test.Not", b""), none);
}

#[test]
fn raw_bytes_are_for_methods_that_return_some() {
    let raw = |name, bytes| call(name, Encoding::Raw, bytes);
    assert_eq!(raw("test.Bytes", b"\0{"), Ok("\0{".into()));
    assert_eq!(
        raw("test.Dummy", b"true"),
        Ok("false".into()),
        "the argument is no bytes"
    );
    let none = Err("unknown Raw payload type".to_owned());
    assert_eq!(raw("test.Not", b"true"), none);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_serde_writes_is_read_back(
        plugin in ".{0,9}", count: i64, flag: bool, ttl: Option<u64>,
        value in prop::collection::vec(any::<u8>(), 0..20),
        timeouts in prop::collection::vec(any::<u32>(), 0..4),
        headers in prop::collection::btree_map(".{0,4}", prop::collection::vec(".{0,4}", 0..3), 0..3),
    ) {
        let items = timeouts.into_iter().map(|timeout| Item { timeout }).collect();
        let value = Binary(value.into());
        let message = Message { plugin, count, ratio: 0.5, flag, ttl, value, items, headers };
        let json = serde_json::to_vec(&message).unwrap();
        prop_assert_eq!(go_json::read::<Message>(&json), Ok(message.clone()));
        let pack = go_names::to_message_pack(&message).unwrap();
        prop_assert_eq!(go_json::read_message_pack::<Message>(&pack), Ok(message));
    }

    #[test]
    fn no_message_pack_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        _ = go_json::read_message_pack::<Message>(&bytes);
    }

    #[test]
    fn what_serde_reads_as_an_object_is_read_alike(
        json in "\\{(\"(count|ratio|flag|ttl|items|value|x)\":[\\[\\]{}a-c0-9 .eE+-]{0,6},?){0,3}\\}",
    ) {
        let lenient = go_json::read::<Message>(json.as_bytes());
        if let Ok(strict) = serde_json::from_str::<Message>(&json) {
            prop_assert_eq!(lenient, Ok(strict));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_services_start_a_method_that_may_come_is_waited_for() {
    let methods = Methods::default();
    let unknown = |found: Result<Method, Unknown>| found.map(|_| ()).unwrap_err().to_string();
    let at_once = methods.find_in_time("own.Push").await;
    assert_eq!(unknown(at_once), "rpc: can't find service own.Push");
    methods.expect_more();
    methods.lack(["kv"]);
    let begun = tokio::time::Instant::now();
    assert!(unknown(methods.find_in_time("kv.Set").await).contains("no section `kv`"));
    assert!(begun.elapsed().is_zero());
    let adding = async {
        let own = methods.service("own", ());
        own.add("Other", async |(), _: bool| Ok(true));
        tokio::time::sleep(WHILE_STARTING / 2).await;
        own.add("Push", async |(), _: bool| Ok(true));
    };
    let (found, ()) = tokio::join!(methods.find_in_time("own.Push"), adding);
    assert!(found.is_ok());
    // Not for ever.
    assert!(methods.find_in_time("own.None").await.is_err());
    let ending = async { methods.are_complete() };
    let begun = tokio::time::Instant::now();
    let (found, ()) = tokio::join!(methods.find_in_time("own.None"), ending);
    assert!(found.is_err() && begun.elapsed().is_zero());
}

/// As `jobs.PushBatch` takes them.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    jobs: Vec<Job>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
struct Job {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, repeated, tag = "2")]
    names: Vec<String>,
    #[prost(btree_map = "string, string", tag = "3")]
    headers: BTreeMap<String, String>,
}

type ReadBatch = fn(&[u8]) -> Result<Batch, Failure>;

const BATCH: [ReadBatch; 3] = [go_json::read, go_json::read_message_pack, read_protobuf];

fn read_protobuf(bytes: &[u8]) -> Result<Batch, Failure> {
    read_message(Bytes::copy_from_slice(bytes))
}

/// A batch of many such jobs, in the order of `BATCH`.
fn written(job: Job, count: u32) -> [Vec<u8>; 3] {
    let times = count.try_into().unwrap();
    let one = Batch { jobs: vec![job] };
    let json = serde_json::to_vec(&one).unwrap();
    let json = json.strip_prefix(b"{\"jobs\":[").unwrap();
    let json = [json.strip_suffix(b"]}").unwrap(), b","].concat();
    let json = json.repeat(times);
    let pack = go_names::to_message_pack(&one).unwrap();
    let pack = pack.strip_prefix(b"\x81\xa4Jobs\x91").unwrap();
    [
        [b"{\"jobs\":[", json.strip_suffix(b",").unwrap(), b"]}"].concat(),
        [
            b"\x81\xa4Jobs\xdd",
            &count.to_be_bytes()[..],
            &pack.repeat(times),
        ]
        .concat(),
        prost::Message::encode_to_vec(&one).repeat(times),
    ]
}

/// The number of jobs that are read from each.
fn read_back(written: &[Vec<u8>; 3]) -> [Result<usize, String>; 3] {
    let read = |at: usize| {
        let batch = (BATCH[at])(&written[at]);
        let jobs = batch.map(|batch| batch.jobs.len());
        jobs.map_err(|failure| failure.to_string())
    };
    std::array::from_fn(read)
}

#[test]
fn a_list_of_many_elements_is_refused_in_each_encoding() {
    let why = "more than 131072 elements in a list of the argument; send fewer at a time";
    let refused = || std::array::from_fn(|_| Err(why.to_owned()));
    let most = read_back(&written(Job::default(), 131_072));
    assert_eq!(most, [Ok(131_072), Ok(131_072), Ok(131_072)]);
    assert_eq!(read_back(&written(Job::default(), 131_073)), refused());

    // As they were seen to take most: two bytes or one for each.
    let long = [
        [&b"{\"jobs\":["[..], &b"{},".repeat(200_000), b"{}]}"].concat(),
        [
            &b"\x81\xa4jobs\xdd\0\x10\0\0"[..],
            &b"\x80".repeat(0x10_0000),
        ]
        .concat(),
        b"\x0a\0".repeat(200_000),
    ];
    let nulls = [
        [&b"{\"jobs\":["[..], &b"null,".repeat(200_000), b"null]}"].concat(),
        [
            &b"\x81\xa4jobs\xdd\0\x10\0\0"[..],
            &b"\xc0".repeat(0x10_0000),
        ]
        .concat(),
        // Groups are passed over, and count.
        b"\x13\x14".repeat(200_000),
    ];
    assert_eq!(read_back(&long), refused());
    assert_eq!(read_back(&nulls), refused());
    // A header may promise any number: nothing is set aside for it.
    let cut = go_json::read_message_pack::<Batch>(b"\x81\xa4jobs\xdd\xff\xff\xff\xff\x80");
    assert!(cut.unwrap_err().to_string().starts_with("msgpack: "));
}

#[test]
fn many_parts_in_lists_within_lists_are_refused_in_each_encoding() {
    let job = Job {
        names: vec![String::new(); 120_000],
        ..Job::default()
    };
    let why = "more than 2097152 fields and elements in the argument; send fewer at a time";
    let refused = std::array::from_fn(|_| Err(why.to_owned()));
    assert_eq!(
        read_back(&written(job.clone(), 17)),
        [Ok(17), Ok(17), Ok(17)]
    );
    // In protobuf, empty names count half.
    assert_eq!(read_back(&written(job, 36)), refused);
}

#[test]
fn a_full_batch_of_jobs_with_a_dozen_headers_is_read_in_each_encoding() {
    let headers = (0..12).map(|number| (format!("x-{number}"), "value".to_owned()));
    let job = Job {
        id: "e5f7b1c2".to_owned(),
        names: vec!["one".to_owned(), "two".to_owned()],
        headers: headers.collect(),
    };
    let read = read_back(&written(job, 65_536));
    assert_eq!(read, [Ok(65_536), Ok(65_536), Ok(65_536)]);
}

#[test]
fn a_message_that_is_cut_anywhere_is_refused_and_panics_nowhere() {
    let job = Job {
        id: "a".repeat(300),
        names: vec!["b".to_owned(); 3],
        headers: [("c".to_owned(), "d".to_owned())].into(),
    };
    let whole = prost::Message::encode_to_vec(&Batch { jobs: vec![job] });
    for length in 1..whole.len() {
        let cut = read_message::<Batch>(Bytes::copy_from_slice(&whole[..length]));
        let said = cut.unwrap_err().to_string();
        assert!(said.starts_with("proto: "), "{said}");
    }
    assert!(read_message::<Batch>(whole.into()).is_ok());
}
