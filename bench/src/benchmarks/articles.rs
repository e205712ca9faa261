//! The five articles that this project began with: what each saw, why, and where the same is
//! measured here. Only ratios are compared: their machines were others.

use super::parts::FPM;

/// One article.
pub(crate) struct Article {
    pub(crate) title: &'static str,
    pub(crate) saw: &'static str,
    pub(crate) why: &'static str,
    pub(crate) sights: &'static [Sight],
}

/// A ratio of two servers that an article has, and the same two here.
pub(crate) struct Sight {
    pub(crate) what: &'static str,
    /// Requests per second there, of the server in question and of the one beside it.
    rates: (f64, f64),
    pub(crate) here: Place,
    pub(crate) beside: Place,
}

/// Case, load and server of a row.
pub(crate) type Place = (&'static str, &'static str, &'static str);

impl Sight {
    pub(crate) fn ratio(&self) -> f64 {
        self.rates.0 / self.rates.1
    }
}

/// Ours beside php-fpm.
const fn sight(
    what: &'static str,
    rates: (f64, f64),
    case: &'static str,
    load: &'static str,
) -> Sight {
    Sight {
        what,
        rates,
        here: (case, load, "pronghorn"),
        beside: (case, load, FPM),
    }
}

/// A CGI program beside that in C.
const fn program(what: &'static str, rate: f64, case: &'static str) -> Sight {
    const C: f64 = 1580.0;
    Sight {
        what,
        rates: (rate, C),
        here: (case, "10", "apache-cgid"),
        beside: ("cgi-c", "10", "apache-cgid"),
    }
}

pub(crate) const ARTICLES: [Article; 5] = [
    Article {
        title: "RoadRunner 2.0.1 with Laravel",
        saw: "Laravel's landing page, 50 connections, wrk with four threads beside the server. nginx \
              and php-fpm answered 694 requests per second, RoadRunner behind nginx 496, RoadRunner \
              by itself 447: slower, and the author could not tell why.",
        why: "The worker's configuration had all of this at once: a session file per request, \
              since wrk sends no cookies; a PSR-7 message and a message of Symfony's for each \
              request; workers that were replaced after 64 requests, each of which booted Laravel \
              again; an OPcache per worker; a new connection from nginx for each request; a line per \
              request in a terminal. The tables of suspects below show what each one costs.",
        sights: &[
            sight("by itself", (446.52, 694.44), "landing", "50"),
            sight("behind nginx", (496.12, 694.44), "no-keep-alive", "50"),
        ],
    },
    Article {
        title: "RoadRunner in production",
        saw: "A real project on RoadRunner instead of php-fpm: constant JSON 2,200 instead of 1,150 \
              requests per second, the result of one query 1,600 instead of 530.",
        why: "What a framework does before its first line of the application is gone from each \
              request, and so is the connection to the database. The more a project does at its \
              boot, the more it gains.",
        sights: &[
            sight("constant JSON", (2200.0, 1150.0), "laravel-json", "10"),
            sight("one query", (1600.0, 530.0), "laravel-query", "10"),
        ],
    },
    Article {
        title: "Apache and nginx for PHP",
        saw: "A template without a database at 200 connections: nginx with FastCGI 7,600 requests per \
              second, Apache with mod_php 7,100. CGI programs in Apache: C 1,580, C++ 1,100, bash 870, \
              PHP 250, Python 190.",
        why: "A page that takes so little is bound by what is around PHP: parsing, a hop between \
              processes, a process per connection. A CGI program costs a start of its language for \
              each request, whoever starts it.",
        sights: &[
            Sight {
                what: "nginx with FastCGI to mod_php",
                rates: (7600.0, 7100.0),
                here: ("template", "200", FPM),
                beside: ("template", "200", "apache-php"),
            },
            program("CGI: C++ to C", 1100.0, "cgi-cpp"),
            program("CGI: bash to C", 870.0, "cgi-sh"),
            program("CGI: PHP to C", 250.0, "cgi-php"),
            program("CGI: Python to C", 190.0, "cgi-python"),
        ],
    },
    Article {
        title: "The first author again, tuned",
        saw: "The same page with 100 workers that are never replaced, and the log in a file. At 20 and \
              50 connections php-fpm answered 491 and 587 requests per second, RoadRunner 562 and 546: no \
              gain, unexplained.",
        why: "100 processes that compute on few processors only take turns, and the file sessions, \
              PSR-7 and nginx's new connections stayed. What grew meanwhile was the folder with \
              sessions, through which two of 100 requests look.",
        sights: &[
            sight("20 connections", (561.8, 490.67), "landing", "20"),
            sight("50 connections", (546.11, 587.25), "landing", "50"),
        ],
    },
    Article {
        title: "RoadRunner 2024.3 with Slim",
        saw: "A greeting by Slim with 100 workers and 100 children of php-fpm, ab from another machine: \
              661 and 926 requests per second with one connection, 1,373 and 3,268 with 100.",
        why: "Slim boots in a fraction of a millisecond, so that a kept worker gains that much and no \
              more. Nothing in this setup was in its way.",
        sights: &[
            sight("1 connection", (925.74, 660.75), "slim", "1"),
            sight("2 connections", (1659.52, 1059.36), "slim", "2"),
            sight("3 connections", (2191.29, 1241.54), "slim", "3"),
            sight("4 connections", (2475.24, 1283.96), "slim", "4"),
            sight("5 connections", (2591.36, 1308.92), "slim", "5"),
            sight("10 connections", (2820.52, 1363.07), "slim", "10"),
            sight("100 connections", (3268.43, 1373.17), "slim", "100"),
            sight("150 connections", (3261.71, 1353.76), "slim", "150"),
        ],
    },
];

/// The ratios that suspects have to explain.
pub(crate) struct Puzzle {
    pub(crate) name: &'static str,
    pub(crate) ratio: f64,
}

pub(crate) const PUZZLES: [Puzzle; 3] = [
    Puzzle {
        name: "first article",
        ratio: 446.52 / 694.44,
    },
    Puzzle {
        name: "first, behind nginx",
        ratio: 496.12 / 694.44,
    },
    Puzzle {
        name: "fourth article",
        ratio: 546.11 / 587.25,
    },
];
