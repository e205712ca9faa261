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
        saw: "The article measured Laravel's landing page with 50 connections, by wrk with four \
              threads on the server's machine. nginx and php-fpm answered 694 requests per second, \
              RoadRunner behind nginx 496, and RoadRunner by itself 447. RoadRunner was slower, \
              and the author could not explain it.",
        why: "The setup had all these costs at once: a session file for each request, because wrk \
              sends no cookies; a PSR-7 message and a Symfony message for each request; new \
              workers after every 64 requests, which booted Laravel again; an OPcache for each \
              worker; a new connection from nginx for each request; a line in a terminal for each \
              request. The tables of suspects below show the cost of each one.",
        sights: &[
            sight("by itself", (446.52, 694.44), "landing", "50"),
            sight("behind nginx", (496.12, 694.44), "no-keep-alive", "50"),
        ],
    },
    Article {
        title: "RoadRunner in production",
        saw: "A real project ran on RoadRunner instead of php-fpm. For constant JSON, it answered \
              2,200 instead of 1,150 requests per second; for the result of one query, 1,600 \
              instead of 530.",
        why: "With kept workers, a request no longer includes the boot of the framework or a new \
              connection to the database. The more a project does at its boot, the more it gains.",
        sights: &[
            sight("constant JSON", (2200.0, 1150.0), "laravel-json", "10"),
            sight("one query", (1600.0, 530.0), "laravel-query", "10"),
        ],
    },
    Article {
        title: "Apache and nginx for PHP",
        saw: "For a template without a database, at 200 connections, nginx with FastCGI answered \
              7,600 requests per second, and Apache with mod_php 7,100. For CGI programs, Apache \
              answered 1,580 in C, 1,100 in C++, 870 in bash, 250 in PHP and 190 in Python.",
        why: "PHP does little for such a page, so the work around PHP decides: parsing requests, \
              the way between two processes, a process for each connection. A CGI program must \
              start its language for each request, behind any server.",
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
        saw: "The author measured the same page with 100 workers that are never replaced, and with \
              the log in a file. At 20 and 50 connections, php-fpm answered 491 and 587 requests \
              per second, and RoadRunner 562 and 546. RoadRunner brought no gain, and the author \
              did not explain it.",
        why: "100 processes that compute on few processors only alternate. The session files, \
              PSR-7 and nginx's new connections were still there. The directory with sessions had \
              grown, and two of 100 requests search all of it.",
        sights: &[
            sight("20 connections", (561.8, 490.67), "landing", "20"),
            sight("50 connections", (546.11, 587.25), "landing", "50"),
        ],
    },
    Article {
        title: "RoadRunner 2024.3 with Slim",
        saw: "The article measured a greeting by Slim with ab from another machine, with 100 \
              workers of RoadRunner and 100 children of php-fpm. With one connection, php-fpm \
              answered 661 requests per second and RoadRunner 926; with 100 connections, 1,373 and \
              3,268.",
        why: "Slim boots in a fraction of a millisecond, so a kept worker saves only this time. \
              Nothing else in this setup slowed RoadRunner down.",
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
        name: "first article behind nginx",
        ratio: 496.12 / 694.44,
    },
    Puzzle {
        name: "fourth article",
        ratio: 546.11 / 587.25,
    },
];
