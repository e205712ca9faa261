<?php

// Replies that are sent while they are made. Start it from the repository's root with
//     pronghorn serve -c examples/stream/pronghorn.yaml
// and watch: curl -N http://127.0.0.1:8080/count or /events, or get this file from /source

declare(strict_types=1);

use Pronghorn\ClientGone;
use Pronghorn\Request;
use Pronghorn\Response;

// With Composer: require __DIR__ . '/vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';

/** Each element goes to the client at once. */
function count_down(int $from): Generator
{
    for ($i = $from; $i > 0; $i--) {
        yield "$i\n";
        usleep(200_000);
    }
    yield "lift-off\n";
}

/** Thrown into the generator when the client leaves: the place to clean up. */
function clock(): Generator
{
    try {
        while (true) {
            yield ['event' => 'time', 'data' => date(DATE_ATOM)];
            sleep(1);
        }
    } catch (ClientGone) {
        fwrite(STDERR, "the clock's reader has left\n");
    }
}

Pronghorn\serve(fn (Request $request): Response => match ($request->path) {
    '/count' => new Response(count_down(5), 200, ['Content-Type' => 'text/plain']),
    '/events' => Response::events(clock()),
    '/source' => Response::file(__FILE__, ['Content-Type' => 'text/plain']),
    default => new Response("Try /count, /events or /source\n", 404, ['Content-Type' => 'text/plain']),
});
