<?php

// Pushes jobs over RPC, once it is told to: push.php CLIENT ADDRESS PIPELINE BATCH SECONDS. Says as
// JSON how many, and in how many seconds.

declare(strict_types=1);

namespace Bench\Jobs;

require __DIR__ . '/clients.php';

[, $client, $address, $pipeline, $batch, $seconds] = $argv;
$push = pusher($client, $address, $pipeline);
$push((int) $batch);
echo "ready\n";
\fgets(\STDIN);
echo \json_encode(pushFor($push, (int) $batch, (float) $seconds)), "\n";
