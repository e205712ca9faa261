<?php

// What pushes jobs: our package, or RoadRunner's.

declare(strict_types=1);

namespace Bench\Jobs;

use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\Options;
use Pronghorn\Jobs\Queue;
use Spiral\Goridge\RPC\RPC;
use Spiral\RoadRunner\Jobs\Jobs;

// Bytes of each job.
const PAYLOAD = 100;

/** RoadRunner's packages in a folder: a Composer project, or a checkout of each. */
function load(string $packages): void
{
    require_once __DIR__ . '/../../e2e/fixtures/foreign/find-packages.php';
    \Foreign\load($packages);
}

/**
 * What pushes a number of jobs to a pipeline with one call.
 *
 * @return \Closure(int, string=, string=, int=): void how many, their name, payload and delay
 */
function pusher(string $client, ?string $address, string $pipeline): \Closure
{
    $text = \str_repeat('x', PAYLOAD);
    if ($client === 'official') {
        load((string) \getenv('PACKAGES'));
        $queue = (new Jobs(RPC::create((string) $address)))->connect($pipeline);

        return static function (
            int $count,
            string $name = 'nothing',
            string $payload = '',
            int $delay = 0,
        ) use (
            $queue,
            $text,
        ): void {
            $payload = $payload === '' ? $text : $payload;
            $task = static fn () => $queue->create($name, $payload)->withDelay($delay);
            if ($count === 1) {
                $queue->dispatch($task());

                return;
            }
            $tasks = [];
            for ($i = 0; $i < $count; $i++) {
                $tasks[] = $task();
            }
            $queue->dispatchMany(...$tasks);
        };
    }
    require_once __DIR__ . '/../../php/autoload.php';
    $queue = Queue::connect($address, $pipeline);

    return static function (
        int $count,
        string $name = 'nothing',
        string $payload = '',
        int $delay = 0,
    ) use (
        $queue,
        $text,
    ): void {
        $options = $delay > 0 ? new Options(delay: $delay) : null;
        $payload = $payload === '' ? $text : $payload;
        if ($count === 1) {
            $queue->push($name, $payload, $options);

            return;
        }
        $queue->batch(...\array_fill(0, $count, new NewJob($name, $payload, $options)));
    };
}

/**
 * Pushes for so many seconds.
 *
 * @return array{int, float} how many jobs, and in how many seconds
 */
function pushFor(\Closure $push, int $batch, float $seconds): array
{
    $began = \hrtime(true);
    $until = $began + (int) ($seconds * 1e9);
    $count = 0;
    do {
        $push($batch);
        $count += $batch;
    } while (\hrtime(true) < $until);

    return [$count, (\hrtime(true) - $began) / 1e9];
}
