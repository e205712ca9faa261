<?php

/**
 * What a call costs in the worker: starts workers as the server does, sends them the same request
 * again and again, one at a time, and prints CPU time and time to the reply.
 *
 *     php bench/calls.php [calls, default 20000] [part of a scenario's name]
 *
 * The libraries of the PSR-7 rows must be in include_path. A round takes seconds; run it twice, the
 * machine is noisy.
 */

declare(strict_types=1);

use Pronghorn\Tests\Support\Codec;

require __DIR__ . '/../tests/bootstrap.php';

const BROWSER = [
    ['user-agent', 'Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0'],
    ['accept', 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8'],
    ['accept-language', 'en-US,en;q=0.5'],
    ['accept-encoding', 'gzip, deflate, br'],
    ['cookie', 'session=2f6b3a; theme=dark'],
    ['connection', 'keep-alive'],
    ['upgrade-insecure-requests', '1'],
    ['sec-fetch-dest', 'document'],
    ['sec-fetch-mode', 'navigate'],
    ['sec-fetch-site', 'none'],
    ['sec-fetch-user', '?1'],
];

$calls = min(1_000_000, max(100, (int) ($argv[1] ?? 20_000)));
$browser = ['uri' => 'http://127.0.0.1:8080/items/5?page=2&sort=name', 'headers' => BROWSER, 'left' => 30_000];
$form = ['method' => 'POST', 'headers' => [['content-type', 'application/x-www-form-urlencoded']]];
$scenarios = [
    'plain hello' => ['plain', []],
    'plain, path, query, header, cookie of a browser' => ['plain-all', $browser],
    'plain, JSON' => ['plain-json', $browser],
    'plain, form' => ['plain-form', $form, 'a=1&b=2&c[]=3'],
    'plain, reply of 64 KB' => ['plain-64k', []],
    'plain, reply of 1 MB' => ['plain-1m', []],
    'plain, body of 64 KB' => ['plain', ['method' => 'POST'], str_repeat('x', 65536)],
];
foreach (['nyholm', 'guzzle', 'slim', 'slim-factories'] as $library) {
    $scenarios["PSR-7 hello, $library"] = [$library, []];
    $scenarios["PSR-7 of a browser, $library"] = [$library, $browser];
}

printf("%-50s %12s %12s\n", '', 'CPU µs', 'reply in µs');
foreach ($scenarios as $name => $scenario) {
    if (str_contains($name, $argv[2] ?? '')) {
        [$cpu, $elapsed] = measure($calls, ...$scenario);
        printf("%-50s %12.1f %12.1f\n", $name, $cpu, $elapsed);
    }
}

/** @return array{float, float} microseconds a call: CPU time of the worker, time to the reply */
function measure(int $calls, string $worker, array $request, string $body = ''): array
{
    $process = proc_open(
        [PHP_BINARY, '-d', 'opcache.enable_cli=1', __DIR__ . '/worker.php', $worker],
        [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], STDERR, ['pipe', 'r'], ['pipe', 'w']],
        $pipes,
        null,
        ['PRONGHORN_PIPES' => '3,4'] + getenv(),
    );
    [3 => $requests, 4 => $replies] = $pipes;
    stream_set_read_buffer($replies, 0);
    fwrite($requests, Codec::control('{"pid":1,"native":1}'));
    fread($replies, 8192);
    $frame = Codec::frame(Codec::request($request), $body);
    exchange($requests, $replies, $frame, 200);
    $cpu = -cpu($process);
    $elapsed = -hrtime(true);
    exchange($requests, $replies, $frame, $calls);
    $elapsed += hrtime(true);
    $cpu += cpu($process);
    fclose($requests);
    proc_close($process);

    return [$cpu / $calls / 1000, $elapsed / $calls / 1000];
}

/**
 * @param resource $requests
 * @param resource $replies
 */
function exchange($requests, $replies, string $frame, int $calls): void
{
    for ($call = 0; $call < $calls; $call++) {
        fwrite($requests, $frame);
        $reply = (string) fread($replies, 65536);
        if (strlen($reply) < 28 || ord($reply[16]) !== 0x81 || substr($reply, 18, 2) !== pack('v', 200)) {
            exit('No reply: ' . addcslashes(substr($reply, 0, 1000), "\0..\37\177..\377") . "\n");
        }
        for ($left = unpack('V', $reply, 2)[1] + 16 - strlen($reply); $left > 0;) {
            $left -= strlen((string) fread($replies, min($left, 1 << 20)));
        }
    }
}

/**
 * Nanoseconds that a process has run.
 *
 * @param resource $process
 */
function cpu($process): int
{
    return (int) file_get_contents('/proc/' . proc_get_status($process)['pid'] . '/schedstat');
}
