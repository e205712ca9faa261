<?php

// How fast jobs are, beside others in the same run: `make bench-jobs`. --help lists the options,
// and bench/README.md says more.

declare(strict_types=1);

namespace Bench\Jobs;

require __DIR__ . '/clients.php';
require __DIR__ . '/server.php';
require __DIR__ . '/../../php/autoload.php';

const HELP = <<<'TEXT'
    php bench/jobs/measure.php [OPTION]...
      --pronghorn PATH     our binary [default: target/tuned/pronghorn]
      --packages DIR       RoadRunner's PHP packages: a Composer project, or a checkout of each
      --peer NAME=COMMAND  another server, with {config} where its .rr.yaml belongs; it needs --packages
      --seconds N          how long each push is measured [default: 3]
      --jobs N             jobs that are consumed [default: 100000]
      --queued N           jobs whose memory is measured [default: 1000000]
      --only WORD          rows whose name has this word
      --json FILE          where the figures go as JSON
      --limit N            seconds for all; what is left then is not measured [default: 450]

    TEXT;

/** One run: its servers, and the rows of its table. */
final class Measurement
{
    private const PROCESSES = [1, 4, 8];
    private const LATENCIES = 300;

    /** @var list<array<string, mixed>> */
    private array $rows = [];
    private float $until;

    /** @param array<string, string> $options */
    public function __construct(private readonly array $options)
    {
        $this->until = \microtime(true) + (float) $options['limit'];
    }

    public function run(): void
    {
        $ours = \realpath($this->options['pronghorn']) ?: throw new \RuntimeException("there is no {$this->options['pronghorn']}");
        $servers = ['pronghorn' => ["$ours serve -c {config}", true]];
        if (($this->options['peer'] ?? '') !== '') {
            [$name, $command] = \explode('=', $this->options['peer'], 2) + [1 => ''];
            $servers[$name] = [$command, false];
        }
        foreach ($servers as $name => [$command, $isOurs]) {
            $clients = \array_keys(\array_filter([
                'official' => $this->options['packages'] !== '',
                'ours' => $isOurs,
            ]));
            foreach (['memory', 'durable'] as $pipeline) {
                foreach ($clients as $client) {
                    $start = fn () => new Server($command, $isOurs, $client, $this->options['packages']);
                    $row = "$name, $client client, $pipeline";
                    foreach (self::PROCESSES as $processes) {
                        $this->row("push, $row, $processes", $start, fn (Server $it) => $this->push($it, $client, $pipeline, 1, $processes));
                    }
                    $this->row("push by 100, $row, 1", $start, fn (Server $it) => $this->push($it, $client, $pipeline, 100, 1));
                    // BoltDB takes a minute for as many as the others.
                    $jobs = (int) $this->options['jobs'] / ($isOurs || $pipeline === 'memory' ? 1 : 10);
                    $this->row("consume, $row, 2", $start, fn (Server $it) => $this->consume($it, $pipeline, (int) $jobs));
                    $this->row("push to start, $row", $start, fn (Server $it) => $this->latency($it, $client, $pipeline));
                }
                if ($isOurs) {
                    $start = fn () => new Server($command, true, 'ours', $this->options['packages']);
                    foreach (self::PROCESSES as $processes) {
                        $this->row("push, $name, ring, $pipeline, $processes", $start, fn (Server $it) => $this->ring($it, $pipeline, 1, $processes));
                    }
                    $this->row("push by 100, $name, ring, $pipeline, 1", $start, fn (Server $it) => $this->ring($it, $pipeline, 100, 1));
                }
                if ($isOurs || $pipeline === 'memory') {
                    $consumer = $isOurs ? 'ours' : 'official';
                    $start = fn () => new Server($command, $isOurs, $consumer, $this->options['packages']);
                    $this->row("queued, $name, $pipeline", $start, fn (Server $it) => $this->queued($it, $pipeline));
                }
            }
        }
    }

    /**
     * @param \Closure(): Server $start
     * @param \Closure(Server): array<string, mixed> $measure
     */
    private function row(string $name, \Closure $start, \Closure $measure): void
    {
        if (!\str_contains($name, $this->options['only'] ?? '')) {
            return;
        }
        if (\microtime(true) > $this->until) {
            $this->rows[] = ['name' => $name, 'failed' => 'no time was left'];

            return;
        }
        $server = null;
        try {
            $server = $start();
            $this->rows[] = ['name' => $name] + $measure($server);
        } catch (\Throwable $wrong) {
            $this->rows[] = ['name' => $name, 'failed' => $wrong->getMessage()];
        } finally {
            $server?->stop();
        }
        \fwrite(\STDERR, text(\end($this->rows)) . "\n");
    }

    /** @return array<string, float> */
    private function push(Server $server, string $client, string $pipeline, int $batch, int $processes): array
    {
        $command = [\PHP_BINARY, __DIR__ . '/push.php', $client, $server->rpc, $pipeline, (string) $batch, $this->options['seconds']];
        $clients = [];
        for ($i = 0; $i < $processes; $i++) {
            $process = \proc_open($command, [['pipe', 'r'], ['pipe', 'w'], \STDERR], $pipes);
            $clients[] = [$process, $pipes[0], $pipes[1]];
        }
        foreach ($clients as [, , $out]) {
            \trim((string) \fgets($out)) === 'ready' || throw new \RuntimeException('a client did not come up');
        }
        $cpu = $server->cpu();
        foreach ($clients as [, $in]) {
            \fwrite($in, "go\n");
        }
        $results = \array_map(static fn (array $client) => \json_decode((string) \fgets($client[2]), true), $clients);
        $cpu = $server->cpu() - $cpu;
        foreach ($clients as [$process, $in, $out]) {
            \fclose($in);
            \fclose($out);
            \proc_close($process);
        }

        return self::rate($results, $cpu);
    }

    /** @return array<string, float> */
    private function ring(Server $server, string $pipeline, int $batch, int $processes): array
    {
        $ask = function (float $seconds) use ($server, $pipeline, $batch, $processes): array {
            $sockets = [];
            for ($i = 0; $i < $processes; $i++) {
                $sockets[] = $socket = \stream_socket_client($server->http);
                $path = "/?pipeline=$pipeline&batch=$batch&seconds=$seconds";
                \fwrite($socket, "GET $path HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
            }
            $results = [];
            foreach ($sockets as $socket) {
                \stream_set_timeout($socket, (int) $seconds + 60);
                $answer = (string) \stream_get_contents($socket);
                $results[] = \json_decode(\substr((string) \strstr($answer, "\r\n\r\n"), 4), true)
                    ?? throw new \RuntimeException("a worker answers: $answer");
            }

            return $results;
        };
        $ask(0.2);
        $cpu = $server->cpu();
        $results = $ask((float) $this->options['seconds']);

        return self::rate($results, $server->cpu() - $cpu);
    }

    /**
     * @param list<array{int, float}> $results
     * @return array<string, float>
     */
    private static function rate(array $results, float $cpu): array
    {
        $count = \array_sum(\array_column($results, 0));
        $rates = \array_map(static fn (array $it) => $it[0] / $it[1], $results);

        return ['per second' => \array_sum($rates), 'server µs' => $cpu / $count * 1e6];
    }

    /** @return array<string, float> */
    private function consume(Server $server, string $pipeline, int $jobs): array
    {
        $this->fill($server, $pipeline, $jobs, 0);
        $cpu = $server->cpu();
        $began = \hrtime(true);
        $server->consume($pipeline);
        $left = $jobs;
        waitFor(60, function () use ($server, $pipeline, &$left): bool {
            $left = $server->left($pipeline);

            return $left === 0;
        });
        $took = (\hrtime(true) - $began) / 1e9;
        $done = $jobs - $left;
        $figures = ['per second' => $done / $took, 'server µs' => ($server->cpu() - $cpu) / \max($done, 1) * 1e6];

        return $left > 0 ? $figures + ['not consumed' => $left] : $figures;
    }

    private function fill(Server $server, string $pipeline, int $jobs, int $delay): void
    {
        $push = pusher('ours', $server->rpc, $pipeline);
        for ($left = $jobs; $left > 0; $left -= 1000) {
            $push(\min($left, 1000), delay: $delay);
        }
    }

    /** @return array<string, float> */
    private function latency(Server $server, string $client, string $pipeline): array
    {
        $push = pusher($client, $server->rpc, $pipeline);
        $server->consume($pipeline);
        for ($i = 0; $i < self::LATENCIES; $i++) {
            $push(1, 'when', (string) \hrtime(true));
            \usleep(5000);
        }
        waitFor(10, static fn () => \count($server->latencies()) === self::LATENCIES);
        // The first ones wake everything up.
        $all = \array_slice($server->latencies(), 20);
        \sort($all);
        $of = static fn (float $part) => $all[(int) (\count($all) * $part)] ?? \NAN;

        return ['p50 ms' => $of(0.5), 'p99 ms' => $of(0.99)];
    }

    /**
     * Memory of jobs that wait for their time, and how late one among them begins.
     *
     * @return array<string, float>
     */
    private function queued(Server $server, string $pipeline): array
    {
        $jobs = (int) $this->options['queued'];
        $this->fill($server, $pipeline, 1000, 3600);
        $before = $server->memory();
        $began = \hrtime(true);
        $this->fill($server, $pipeline, $jobs, 3600);
        $took = (\hrtime(true) - $began) / 1e9;
        $grown = $server->memory() - $before;
        $server->consume($pipeline);
        $push = pusher('ours', $server->rpc, $pipeline);
        $push(1, 'when', (string) (\hrtime(true) + 2_000_000_000), 2);
        waitFor(10, static fn () => $server->latencies() !== []);

        return [
            'bytes each' => $grown / $jobs,
            'MB in all' => $server->memory() / 1048576,
            'filled per second' => $jobs / $took,
            'late ms' => $server->latencies()[0] ?? \NAN,
        ];
    }

    /** Prints the table, and writes the file. */
    public function report(): void
    {
        foreach ($this->rows as $row) {
            echo text($row), "\n";
        }
        if (($this->options['json'] ?? '') !== '') {
            $json = ['rows' => $this->rows, 'machine' => \php_uname(), 'php' => \PHP_VERSION, 'options' => $this->options];
            $flags = \JSON_PRETTY_PRINT | \JSON_UNESCAPED_UNICODE | \JSON_PARTIAL_OUTPUT_ON_ERROR;
            \file_put_contents($this->options['json'], \json_encode($json, $flags) . "\n");
        }
    }
}

/** @param array<string, mixed> $row */
function text(array $row): string
{
    $cells = [];
    foreach (\array_diff_key($row, ['name' => true]) as $what => $figure) {
        $cells[] = \is_string($figure)
            ? "$what: $figure"
            : \sprintf($figure < 10 ? '%.3f %s' : '%.0f %s', $figure, $what);
    }

    return \str_pad((string) $row['name'], 48) . '  ' . \implode(', ', $cells);
}

$options = \getopt('', ['help', 'pronghorn:', 'packages:', 'peer:', 'seconds:', 'jobs:', 'queued:', 'only:', 'json:', 'limit:'], $rest);
if ($options === false || isset($options['help']) || $rest < $argc) {
    \fwrite(isset($options['help']) ? \STDOUT : \STDERR, HELP);
    exit(isset($options['help']) ? 0 : 2);
}
$options += [
    'pronghorn' => __DIR__ . '/../../target/tuned/pronghorn', 'packages' => '', 'seconds' => '3',
    'jobs' => '100000', 'queued' => '1000000', 'limit' => '450',
];
if ($options['packages'] !== '') {
    $options['packages'] = (string) \realpath($options['packages']);
    \putenv("PACKAGES={$options['packages']}");
}
$measurement = new Measurement($options);
$measurement->run();
$measurement->report();
