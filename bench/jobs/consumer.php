<?php

// A worker that does nothing with its jobs. The payload of a job named `when` is the moment of its
// push, or the one that it is delayed to: how long that is past goes into the file that `LATE`
// names. With `official` as its argument it is one of RoadRunner's package.

declare(strict_types=1);

namespace Bench\Jobs;

use Pronghorn\Job;
use Spiral\RoadRunner\Jobs\Consumer;

require __DIR__ . '/clients.php';

$note = static function (string $name, string $payload): void {
    if ($name === 'when') {
        $late = \hrtime(true) - (int) $payload;
        \file_put_contents((string) \getenv('LATE'), "$late\n", \FILE_APPEND | \LOCK_EX);
    }
};

if (($argv[1] ?? '') !== 'official') {
    require __DIR__ . '/../../php/autoload.php';
    (new \Pronghorn\Worker())->onJob(static function (Job $job) use ($note): void {
        $note($job->name, $job->body);
    })->run();

    return;
}
load((string) \getenv('PACKAGES'));
$consumer = new Consumer();
while (($task = $consumer->waitTask()) !== null) {
    $note($task->getName(), $task->getPayload());
    \method_exists($task, 'ack') ? $task->ack() : $task->complete();
}
