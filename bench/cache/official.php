<?php

// RoadRunner's own package for `kv`, against the server at an address: calls per second of all
// processes together.
//
// official.php PACKAGES ADDRESS WHAT PROCESSES SECONDS

declare(strict_types=1);

require __DIR__ . '/../../e2e/fixtures/foreign/find-packages.php';
require __DIR__ . '/../../e2e/fixtures/foreign/simple-cache.php';

[, $packages, $address, $what, $processes, $seconds] = $argv;
Foreign\load($packages);

$measure = static function () use ($address, $what, $seconds): float {
    $rpc = Spiral\Goridge\RPC\RPC::create($address);
    $storage = (new Spiral\RoadRunner\KeyValue\Factory($rpc))->select('it');
    $value = str_repeat('v', 100);
    $storage->set('bench', $value);
    $begun = hrtime(true);
    $until = $begun + (int) ((float) $seconds * 1e9);
    for ($calls = 0; hrtime(true) < $until; $calls++) {
        if ($what === 'get') {
            $storage->get('bench') === $value || exit(1);
        } else {
            $storage->set('bench', $value);
        }
    }

    return $calls / ((hrtime(true) - $begun) / 1e9);
};

$pipes = [];
for ($other = 1; $other < (int) $processes; $other++) {
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        fwrite($pair[1], $measure() . "\n");
        exit(0);
    }
    fclose($pair[1]);
    $pipes[] = $pair[0];
}
$rate = $measure();
foreach ($pipes as $pipe) {
    $rate += (float) fgets($pipe);
}
echo $rate, "\n";
