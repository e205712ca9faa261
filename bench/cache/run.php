<?php

// Measures caches and sessions beside their rivals: one table, and JSON in a file. README.md beside
// it says what the rows are. `make bench-cache`.

declare(strict_types=1);

const USAGE = <<<'TEXT'
    run.php --pronghorn BINARY --extension FILE
        [--extensions LIST] what scripts/php-extensions has unpacked, for the rows of APCu and of Redis
        [--packages DIR]   RoadRunner's PHP packages, for the rows of RPC
        [--rr BINARY]      RoadRunner itself beside us, with these packages
        [--seconds 1] [--rounds 3] [--only PART,…]   memory, rpc, million, laravel
        [--json FILE]

    TEXT;
/** Processors of this machine are shared, so a run has an end. */
const LONGEST_RUN = 300;

$given = getopt('', ['pronghorn:', 'extension:', 'extensions:', 'packages:', 'rr:', 'seconds:', 'rounds:', 'only:', 'json:']);
if (!isset($given['pronghorn'], $given['extension'])) {
    fwrite(STDERR, USAGE);
    exit(1);
}
$bench = new Bench(
    realpath($given['pronghorn']) ?: wrong("there is no {$given['pronghorn']}"),
    realpath($given['extension']) ?: wrong("there is no {$given['extension']}"),
    options_of('apcu', $given['extensions'] ?? ''),
    options_of('redis', $given['extensions'] ?? ''),
    $given['packages'] ?? null,
    $given['rr'] ?? null,
    (float) ($given['seconds'] ?? 1),
    (int) ($given['rounds'] ?? 3),
);
$parts = ['memory', 'rpc', 'million', 'laravel'];
$wanted = isset($given['only']) ? explode(',', $given['only']) : $parts;
array_diff($wanted, $parts) === [] || wrong('--only takes ' . implode(', ', $parts));
foreach ($wanted as $part) {
    $bench->$part();
}
$bench->print();
if (isset($given['json'])) {
    file_put_contents($given['json'], json_encode($bench->rows, JSON_PRETTY_PRINT) . "\n");
    echo "\nthe same as JSON: {$given['json']}\n";
}

function wrong(string $what): never
{
    fwrite(STDERR, "error: $what\n");
    exit(1);
}

/** The options by which PHP loads an extension; null: it is not there. */
function options_of(string $extension, string $list): ?string
{
    if (extension_loaded($extension)) {
        return '';
    }
    $text = $list === '' ? '' : (string) @file_get_contents($list);

    return preg_match("/^$extension (.*)\$/m", $text, $found) === 1 ? trim($found[1]) : null;
}

/** A process of a server; it ends with this object. */
final class Started
{
    public readonly int $pid;

    /**
     * @param resource $process
     * @param string $log where its output is
     */
    public function __construct(private $process, public readonly string $log)
    {
        $this->pid = proc_get_status($process)['pid'];
    }

    public function __destruct()
    {
        proc_terminate($this->process);
        proc_close($this->process);
    }

    /** Seconds of processor time that it took, by itself and, for `$deep`, by its children. */
    public function cpu(bool $deep = false): float
    {
        $ticks = 0;
        foreach ($deep ? self::family($this->pid) : [$this->pid] as $pid) {
            $stat = (string) @file_get_contents("/proc/$pid/stat");
            $fields = explode(' ', substr($stat, strrpos($stat, ')') + 2));
            $ticks += (int) ($fields[11] ?? 0) + (int) ($fields[12] ?? 0);
        }

        return $ticks / 100;
    }

    /** @return list<int> */
    private static function family(int $pid): array
    {
        $all = [$pid];
        foreach (glob("/proc/$pid/task/*/children") as $file) {
            foreach (array_filter(explode(' ', (string) @file_get_contents($file))) as $child) {
                $all = [...$all, ...self::family((int) $child)];
            }
        }

        return $all;
    }

    /** The descriptor of its storage in memory, which is there soon after it listens. */
    public function storage(): string
    {
        for ($tries = 0; $tries < 500; $tries++) {
            foreach (glob("/proc/$this->pid/fd/*") as $link) {
                if (str_contains((string) @readlink($link), 'memfd:pronghorn-cache')) {
                    return $link;
                }
            }
            usleep(20_000);
        }
        wrong('the server has no storage in memory: ' . file_get_contents($this->log));
    }
}

final class Bench
{
    /** @var list<array{what: string, who: string, value: float, unit: string, cpu?: float}> */
    public array $rows = [];
    private readonly string $folder;
    private readonly float $begun;

    public function __construct(
        private readonly string $binary,
        private readonly string $extension,
        private readonly ?string $apcu,
        private readonly ?string $phpredis,
        private readonly ?string $packages,
        private readonly ?string $rr,
        private readonly float $seconds,
        private readonly int $rounds,
    ) {
        $this->begun = microtime(true);
        $this->folder = sys_get_temp_dir() . '/pronghorn-bench-cache-' . getmypid();
        mkdir($this->folder, 0700);
    }

    public function __destruct()
    {
        exec('rm -rf ' . escapeshellarg($this->folder));
    }

    /** Storages that processes map, without a server on the way. */
    public function memory(): void
    {
        $server = $this->serve($this->config('64MB'));
        $storage = $server->storage();
        $this->apcu ?? $this->note('APCu is left out: scripts/php-extensions unpacks it, and --extensions names its list');
        [$redis, $port] = $this->redis();
        foreach ([1, 2] as $processes) {
            foreach (['nothing', 'get', 'set', 'increment'] as $what) {
                $measured = [];
                for ($round = 0; $round < $this->rounds; $round++) {
                    $script = __DIR__ . '/calls.php';
                    $arguments = "$what $processes $this->seconds";
                    $measured['pronghorn'][] = (float) $this->run(
                        "PRONGHORN_CACHE=9=it exec php -d extension=$this->extension $script pronghorn $arguments 9<>$storage",
                    );
                    if ($this->apcu !== null && $what !== 'nothing') {
                        $measured['APCu'][] = (float) $this->run(
                            "exec php $this->apcu -d apc.enable_cli=1 $script apcu $arguments",
                        );
                    }
                    if ($redis !== null && $what !== 'nothing') {
                        $measured['Redis by phpredis'][] = (float) $this->run(
                            "exec php $this->phpredis $script redis $arguments $port",
                        );
                    }
                }
                $of = $processes === 1 ? 'one process' : "$processes processes, one key";
                $name = $what === 'nothing' ? "an empty loop, $of" : "$what of 100 bytes, $of";
                $name = $what === 'increment' ? "increment, $of" : $name;
                foreach ($measured as $who => $values) {
                    $this->row($name, $who, $values, 'ns per call');
                }
            }
        }
    }

    /** @return array{?Started, int} a Redis that keeps nothing on its disk, and its port */
    private function redis(): array
    {
        if ($this->phpredis === null || trim((string) shell_exec('command -v redis-server')) === '') {
            $this->note('Redis is left out: redis-server is not installed, or --extensions has no phpredis');

            return [null, 0];
        }
        $port = self::port();
        $call = ['redis-server', '--bind', '127.0.0.1', '--port', (string) $port, '--save', '', '--appendonly', 'no'];

        return [$this->start($call, $port), $port];
    }

    /** RoadRunner's own package, over RPC. */
    public function rpc(): void
    {
        if ($this->packages === null) {
            $this->note('the rows of RPC are left out: --packages names the folder of RoadRunner\'s packages');

            return;
        }
        $port = self::port();
        $servers = ['pronghorn' => [$this->serve($this->config('64MB', $port)), $port]];
        if ($this->rr !== null) {
            $port = self::port();
            $servers['RoadRunner'] = [$this->roadrunner($port), $port];
        }
        foreach ([1, 4] as $processes) {
            foreach (['get', 'set'] as $what) {
                $rates = $cpu = [];
                for ($round = 0; $round < $this->rounds; $round++) {
                    foreach ($servers as $who => [$server, $port]) {
                        $before = $server->cpu();
                        $call = [
                            PHP_BINARY, __DIR__ . '/official.php', $this->packages, "tcp://127.0.0.1:$port",
                            $what, (string) $processes, (string) $this->seconds,
                        ];
                        $rate = (float) $this->run(implode(' ', array_map(escapeshellarg(...), $call)));
                        $rates[$who][] = $rate;
                        $cpu[$who][] = ($server->cpu() - $before) * 1e6 / max(1.0, $rate * $this->seconds);
                    }
                }
                $of = $processes === 1 ? 'one process' : "$processes processes";
                foreach ($rates as $who => $values) {
                    $this->row("official package over RPC, $what, $of", $who, $values, 'per second', $cpu[$who]);
                }
            }
        }
    }

    /** What a million entries of 100 bytes take. */
    public function million(): void
    {
        $server = $this->serve($this->config('200MB'));
        $storage = $server->storage();
        $code = '$c = Pronghorn\Cache\SharedMemory::open("it"); $v = str_repeat("v", 100);'
            . 'for ($i = 0; $i < 1_000_000; $i++) { $c->set("key:$i", $v); }'
            . 'for ($i = $n = 0; $i < 1_000_000; $i++) { $n += $c->get("key:$i") === $v ? 1 : 0; } echo $n;';
        $call = [PHP_BINARY, '-d', "extension=$this->extension", '-r', $code];
        $command = implode(' ', array_map(escapeshellarg(...), $call));
        $there = (float) $this->run("PRONGHORN_CACHE=9=it exec $command 9<>$storage");
        clearstatcache();
        $this->row('memory of 1,000,000 entries of 100 bytes', 'pronghorn', [stat($storage)['blocks'] * 512 / 1e6], 'MB');
        $this->row('of them still there', 'pronghorn', [$there / 1e4], '%');
    }

    /** Laravel's page with a session, kept in a storage and in files. */
    public function laravel(): void
    {
        if (trim((string) shell_exec('command -v wrk')) === '') {
            $this->note('Laravel is left out: wrk is not installed');

            return;
        }
        $servers = [];
        foreach (['pronghorn', 'file'] as $driver) {
            $port = self::port();
            $servers[$driver] = [$this->site($driver, $port), $port];
        }
        foreach ($servers as [$server, $port]) {
            // Until both workers have booted, a round would measure that.
            $this->visits($server, $port);
            $this->load($server, $port, null);
        }
        $clients = ['one session' => $this->cookie(), 'clients without cookies' => null];
        foreach ($clients as $client => $cookie) {
            $rates = $cpu = [];
            for ($round = 0; $round < $this->rounds; $round++) {
                foreach ($servers as $driver => [$server, $port]) {
                    $before = $server->cpu(true);
                    [$requests, $rate] = $this->load($server, $port, $cookie);
                    $rates[$driver][] = $rate;
                    $cpu[$driver][] = ($server->cpu(true) - $before) * 1e6 / $requests;
                }
            }
            foreach ($rates as $driver => $values) {
                $who = $driver === 'file' ? 'sessions in files' : 'sessions in a storage';
                $this->row("Laravel's web route, $client", $who, $values, 'per second', $cpu[$driver]);
            }
        }
        foreach (array_keys($servers) as $driver) {
            $files = count(glob("$this->folder/$driver/laravel/sessions/*"));
            $who = $driver === 'file' ? 'sessions in files' : 'sessions in a storage';
            $this->row('files of sessions afterwards', $who, [(float) $files], 'files');
        }
    }

    /** Whether the session of the cookie goes on from one request to the next one. */
    private function visits(Started $server, int $port): void
    {
        $context = stream_context_create(['http' => ['header' => 'Cookie: ' . $this->cookie(), 'timeout' => 30]]);
        $visits = [];
        foreach ([1, 2, 3] as $_) {
            $page = (string) @file_get_contents("http://127.0.0.1:$port/", false, $context);
            if (preg_match('/Visit (\d+) of/', $page, $found) !== 1) {
                wrong("Laravel does not answer:\n$page" . file_get_contents($server->log));
            }
            $visits[] = (int) $found[1];
        }
        $visits === [1, 2, 3] || wrong('the session does not go on: its visits are ' . implode(', ', $visits));
    }

    /** @return array{int, float} requests, at least one, and how many there were in a second */
    private function load(Started $server, int $port, ?string $cookie): array
    {
        $header = $cookie === null ? '' : '-H ' . escapeshellarg("Cookie: $cookie");
        $seconds = max(1, (int) ceil($this->seconds));
        $said = $this->run("wrk -t1 -c10 -d{$seconds}s $header http://127.0.0.1:$port/");
        $is_good = preg_match('#(\d+) requests in.*Requests/sec:\s+([\d.]+)#s', $said, $found) === 1
            && (int) $found[1] > 0 && !str_contains($said, 'Non-2xx');
        $is_good || wrong("Laravel does not answer:\n$said" . file_get_contents($server->log));

        return [(int) $found[1], (float) $found[2]];
    }

    public function print(): void
    {
        foreach ($this->rows as ['what' => $what, 'who' => $who, 'value' => $value, 'unit' => $unit, 'cpu' => $cpu]) {
            $number = number_format($value, $value < 1000 ? 1 : 0);
            $spent = $cpu === null ? '' : sprintf('%10.1f µs of server CPU', $cpu);
            printf("%-52s %-22s %12s %-12s%s\n", $what, $who, $number, $unit, $spent);
        }
    }

    /**
     * @param non-empty-list<float> $values
     * @param ?non-empty-list<float> $cpu microseconds per call
     */
    private function row(string $what, string $who, array $values, string $unit, ?array $cpu = null): void
    {
        $median = static function (array $of): float {
            sort($of);

            return $of[intdiv(count($of), 2)];
        };
        $cpu = $cpu === null ? null : $median($cpu);
        $this->rows[] = ['what' => $what, 'who' => $who, 'value' => $median($values), 'unit' => $unit, 'cpu' => $cpu];
        fwrite(STDERR, "$what, $who\n");
    }

    private function note(string $text): void
    {
        fwrite(STDERR, "note: $text\n");
    }

    private function run(string $command): string
    {
        $left = LONGEST_RUN - (int) (microtime(true) - $this->begun);
        $left > 0 || wrong('the run takes longer than ' . LONGEST_RUN . ' s: --seconds and --rounds make it shorter');
        exec("timeout $left sh -c " . escapeshellarg($command), $lines, $code);
        $code === 0 || wrong("this failed ($code): $command\n" . implode("\n", $lines));

        return implode("\n", $lines);
    }

    private function config(string $size, ?int $port = null): string
    {
        $port ??= self::port();

        return "version: '3'\nlogs: {level: error}\nrpc: {listen: 'tcp://127.0.0.1:$port'}\n"
            . "kv: {it: {driver: memory, config: {max_size: $size}}}\n";
    }

    private function serve(string $config): Started
    {
        $file = "$this->folder/" . bin2hex(random_bytes(4)) . '.yaml';
        file_put_contents($file, $config);
        preg_match('#127\.0\.0\.1:(\d+)#', $config, $port);

        return $this->start([$this->binary, 'serve', '-c', $file], (int) $port[1]);
    }

    private function roadrunner(int $port): Started
    {
        $file = "$this->folder/rr.yaml";
        file_put_contents($file, "version: '3'\nlogs: {level: error}\nrpc: {listen: 'tcp://127.0.0.1:$port'}\n"
            . "kv: {it: {driver: memory, config: {}}}\n");

        return $this->start([$this->rr, 'serve', '-c', $file], $port);
    }

    private function site(string $driver, int $port): Started
    {
        $rpc = self::port();
        $data = "$this->folder/$driver";
        $worker = dirname(__DIR__) . '/apps/laravel/worker.php';

        return $this->serve("version: '3'\nlogs: {level: error}\nhttp:\n  address: 127.0.0.1:$port\n"
            . "  pool: {num_workers: 2}\nserver:\n  command: " . PHP_BINARY . " $worker\n"
            . "  env: {PRONGHORN_APPS_DATA: '$data', BENCH_SESSION: $driver}\n"
            . "rpc: {listen: 'tcp://127.0.0.1:$rpc'}\nkv: {sessions: {driver: memory}}\n");
    }

    /** That of the scenario `laravel-web`. */
    private function cookie(): string
    {
        $scenario = (string) file_get_contents(dirname(__DIR__) . '/scenarios/laravel-web.toml');
        preg_match('/^Cookie = "(.*)"$/m', $scenario, $found) === 1 || wrong('the scenario laravel-web has no cookie');

        return $found[1];
    }

    /** @param list<string> $command */
    private function start(array $command, int $port): Started
    {
        $log = "$this->folder/" . bin2hex(random_bytes(4)) . '.log';
        $output = [0 => ['file', '/dev/null', 'r'], 1 => ['file', $log, 'a'], 2 => ['file', $log, 'a']];
        $environment = ['STATE_DIRECTORY' => $this->folder] + getenv();
        $process = proc_open($command, $output, $pipes, $this->folder, $environment);
        $started = new Started($process, $log);
        for ($tries = 0; $tries < 500; $tries++) {
            $socket = @stream_socket_client("tcp://127.0.0.1:$port", $code, $why, 1);
            if ($socket !== false) {
                fclose($socket);

                return $started;
            }
            usleep(20_000);
        }
        wrong(implode(' ', $command) . ' does not come up: ' . file_get_contents($log));
    }

    private static function port(): int
    {
        $socket = stream_socket_server('tcp://127.0.0.1:0');
        $name = (string) stream_socket_get_name($socket, false);
        fclose($socket);

        return (int) substr($name, strrpos($name, ':') + 1);
    }
}
