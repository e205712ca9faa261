<?php

// A server under measurement: ours, or a RoadRunner.

declare(strict_types=1);

namespace Bench\Jobs;

/** A server in a folder of its own, which goes with it. */
final class Server
{
    public readonly string $rpc;
    public readonly string $http;
    public readonly string $late;
    private readonly string $folder;
    /** @var resource */
    private $process;
    private int $pid;
    private ?object $client = null;

    /**
     * @param string $command with `{config}` where its configuration's path belongs
     * @param string $consumer argument of the worker for jobs
     */
    public function __construct(string $command, bool $isOurs, string $consumer, string $packages)
    {
        $name = 'pronghorn-bench-jobs-' . \getmypid() . '-' . \bin2hex(\random_bytes(4));
        $this->folder = \sys_get_temp_dir() . "/$name";
        \mkdir($this->folder, 0o700);
        $this->late = "$this->folder/late";
        \touch($this->late);
        [$rpc, $http] = [freePort(), freePort()];
        $this->rpc = "tcp://127.0.0.1:$rpc";
        $this->http = "tcp://127.0.0.1:$http";
        $config = "$this->folder/.rr.yaml";
        \file_put_contents($config, $this->config($isOurs, $rpc, $http, $consumer, $packages));
        $log = ['file', "$this->folder/log", 'w'];
        // A shell in between would have the process id that is measured.
        $arguments = \array_map(
            static fn (string $part) => \str_replace('{config}', $config, $part),
            \preg_split('/\s+/', \trim($command)),
        );
        $environment = ['PACKAGES' => $packages, 'LATE' => $this->late] + \getenv();
        $streams = [['file', '/dev/null', 'r'], $log, $log];
        $this->process = \proc_open($arguments, $streams, $pipes, $this->folder, $environment)
            ?: throw new \RuntimeException("`$command` can't be started");
        $this->pid = \proc_get_status($this->process)['pid'];
        waitFor(20, fn () => $this->call('jobs.List', new \stdClass()) !== null)
            || throw new \RuntimeException("`$command` does not come up:\n" . \file_get_contents("$this->folder/log"));
    }

    private function config(bool $isOurs, int $rpc, int $http, string $consumer, string $packages): string
    {
        $here = __DIR__;
        $durable = $isOurs
            ? "{driver: embedded}"
            : "{driver: boltdb, config: {file: $this->folder/rr.db, prefetch: 10000}}";
        $memory = $isOurs
            ? '{driver: memory, config: {max_size: 4096MB}}'
            : '{driver: memory, config: {prefetch: 10000000}}';
        $more = $isOurs
            ? "state_dir: $this->folder/state\n"
                . "http:\n  address: '127.0.0.1:$http'\n"
                . "  pool: {num_workers: 8, command: php $here/ring.php, supervisor: {exec_ttl: 0}}\n"
            : '';

        return <<<YAML
            version: '3'
            rpc: {listen: 'tcp://127.0.0.1:$rpc'}
            server:
              command: php $here/consumer.php $consumer
              env: {PACKAGES: '$packages', LATE: '$this->late'}
            logs: {level: error}
            {$more}jobs:
              pool: {num_workers: 2}
              consume: []
              pipelines:
                memory: $memory
                durable: $durable

            YAML;
    }

    /** Calls a method over RPC, with JSON. */
    public function call(string $method, object $argument): mixed
    {
        $this->client ??= \Pronghorn\Rpc::connect($this->rpc);

        return $this->client->call($method, $argument);
    }

    public function consume(string $pipeline): void
    {
        $this->call('jobs.Resume', (object) ['pipelines' => [$pipeline]]);
    }

    /** Jobs of a pipeline that are not done. */
    public function left(string $pipeline): int
    {
        foreach ($this->call('jobs.Stat', new \stdClass())['stats'] ?? [] as $stat) {
            if ($stat['pipeline'] === $pipeline) {
                return ($stat['active'] ?? 0) + ($stat['reserved'] ?? 0);
            }
        }

        return 0;
    }

    /** Seconds of a processor that the server has used, without its workers. */
    public function cpu(): float
    {
        $fields = \explode(' ', \substr(\strrchr((string) \file_get_contents("/proc/$this->pid/stat"), ')'), 2));

        return ($fields[11] + $fields[12]) / 100;
    }

    /** Bytes of memory that are the server's. */
    public function memory(): int
    {
        \preg_match('/^VmRSS:\s+(\d+) kB/m', (string) \file_get_contents("/proc/$this->pid/status"), $found);

        return (int) $found[1] * 1024;
    }

    /** @return list<float> milliseconds */
    public function latencies(): array
    {
        $lines = \file($this->late, \FILE_IGNORE_NEW_LINES) ?: [];

        return \array_map(static fn (string $line) => (int) $line / 1e6, $lines);
    }

    public function stop(): void
    {
        $this->client = null;
        \proc_terminate($this->process, \SIGTERM);
        if (!waitFor(10, fn () => !\proc_get_status($this->process)['running'])) {
            \proc_terminate($this->process, \SIGKILL);
        }
        \proc_close($this->process);
        \exec('rm -rf ' . \escapeshellarg($this->folder));
    }
}

function freePort(): int
{
    $socket = \stream_socket_server('tcp://127.0.0.1:0');
    $port = (int) \substr(\strrchr(\stream_socket_get_name($socket, false), ':'), 1);
    \fclose($socket);

    return $port;
}

/** Whether it comes true within so many seconds. */
function waitFor(float $seconds, \Closure $is): bool
{
    $until = \microtime(true) + $seconds;
    do {
        try {
            if ($is()) {
                return true;
            }
        } catch (\Throwable) {
            // Not yet.
        }
        \usleep(5000);
    } while (\microtime(true) < $until);

    return false;
}
