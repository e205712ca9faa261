//! Texts with secrets in them, and texts that must stay readable.

use proptest::prelude::*;

use super::{masked, masked_words};

/// Texts with a secret in them, the `§`.
const PLACES: [&str; 26] = [
    "redis-cli -a § ping",
    "/usr/bin/redis-cli -h h -a '§'",
    "sh -c 'valkey-cli -a §'",
    "ldapsearch -x -w § -b dc",
    "ldapwhoami -w§",
    "mosquitto_pub -P § -t x",
    "http -a user:§ GET host",
    "curl -H \"Authorization: Bearer §\" https://host",
    "curl --header='X-Api-Key: §' https://host",
    "curl -H 'Cookie: a=§; b=§' https://host",
    "curl -H \"X-Auth-Token:§\"",
    "{\"user\": \"me\", \"password\":\"§\"}",
    "{\\\"password\\\": \\\"§\\\"}",
    "['password' => '§', 'user' => 'me']",
    "password: §",
    "db_password: \"§\"",
    "{\"otp\": 1§}",
    "Cookie: PHPSESSID=§",
    "PHPSESSID=§",
    "openssl rsa -passin pass:§ -in a.pem",
    "see https://hooks.slack.com/services/T0/B0/§ for it",
    "https://discord.com/api/webhooks/1/§",
    "https://api.telegram.org/bot1:§/sendMessage",
    "it said Bearer 0123456789§",
    "key (AKIA0123456789012345§)",
    "php -r '-----BEGIN RSA PRIVATE KEY-----\n§\n-----END RSA PRIVATE KEY-----' x",
];

proptest! {
    #[test]
    fn no_secret_is_left(
        before in "([a-z./]{0,12} )?",
        secret in "[A-Z0-9]{8,24}",
        after in "( [a-z./]{0,12})?",
        place in 0..PLACES.len(),
    ) {
        let place = PLACES[place].replace('§', &secret);
        let value = format!("{before}{place}{after}");
        let shown = masked(&value, false);
        prop_assert!(!shown.contains(&secret), "{value}: {shown}");
        prop_assert!(shown.contains("***"), "{value}: {shown}");
        prop_assert_eq!(masked(&shown, false), shown);
    }

    #[test]
    fn no_text_makes_it_panic(value in "(password|[a-zé:=>\"'\\\\ -]|-----BEGIN |Bearer ){0,20}") {
        masked(&value, false);
    }
}

#[test]
fn what_is_not_secret_stays_readable() {
    for text in [
        "docker ps -a",
        "grep -w word file",
        "ls -a; redis-cli -h host; tar -a x",
        "redis-cli -h host | grep -a x",
        "psql -w -h host",
        "Duplicate entry for key: users.email",
        "private: true",
        "the token: null",
        "{\"password\": null, \"token\": false}",
        "password: ${DB_PASSWORD}",
        "password: %env(DB_PASSWORD)%",
        "http://secret:8080/path",
        "secret:8080",
        "Token::parse",
        "App\\Token: not a class",
        "code=404 exit code: 255",
        "author: me",
        "compress: gzip, monkey: yes",
        "a bearer of news, the bearer token-authentication-scheme",
        "sk-SK, AKIA, SG.",
        "https://hooks.slack.com/",
        "curl -H 'Accept: text/html' -H \"X-Request-Id: 123\" https://host",
        "http GET host",
        "state: 1, status: 200, sid: 5, sig: 6",
    ] {
        assert_eq!(masked(text, false), text);
    }
}

#[test]
fn what_stands_around_a_secret_stays() {
    for (text, shown) in [
        (
            "curl -H \"Authorization: Bearer abc\" https://host",
            "curl -H \"Authorization: ***\" https://host",
        ),
        (
            "{\"user\": \"me\", \"password\":\"hu\\\"sh\", \"a\": 1}",
            "{\"user\": \"me\", \"password\":\"***\", \"a\": 1}",
        ),
        ("password: hush, user: me", "password: ***, user: me"),
        (
            "['password' => 'hush', 'user' => 'me']",
            "['password' => '***', 'user' => 'me']",
        ),
        (
            "https://hooks.slack.com/services/T/B/x y",
            "https://hooks.slack.com/services/*** y",
        ),
        ("redis-cli -a hush ping", "redis-cli -a *** ping"),
        (
            "openssl rsa -passin pass:hush -in a",
            "openssl rsa -passin pass:*** -in a",
        ),
    ] {
        assert_eq!(masked(text, false), shown);
    }
}

#[test]
fn words_of_a_command_are_masked_by_their_program() {
    for (words, shown) in [
        (
            &["redis-cli", "-a", "hush", "get", "a"][..],
            "redis-cli -a *** get a",
        ),
        (
            &["/usr/bin/ldapsearch", "-whush", "-x"],
            "/usr/bin/ldapsearch -w*** -x",
        ),
        (&["http", "-a", "me:hush", "host"], "http -a me:*** host"),
        (&["docker", "ps", "-a", "name"], "docker ps -a name"),
        (&["grep", "-w", "word"], "grep -w word"),
        (
            &[
                "curl",
                "-H",
                "Authorization: Bearer hush",
                "-H",
                "Accept: a",
            ],
            "curl -H Authorization: *** -H Accept: a",
        ),
        (
            &["sh", "-c", "redis-cli -a hush; ls -a x"],
            "sh -c redis-cli -a ***; ls -a x",
        ),
    ] {
        assert_eq!(masked_words(words.iter().copied()).join(" "), shown);
    }
}
