<?php

// A worker that pushes jobs while it has a request, through what it shares with the server.

declare(strict_types=1);

namespace Bench\Jobs;

use Pronghorn\Request;

require __DIR__ . '/clients.php';
require __DIR__ . '/../../php/autoload.php';

\Pronghorn\serve(static function (Request $request): string {
    static $pushers = [];
    ['pipeline' => $pipeline, 'batch' => $batch, 'seconds' => $seconds] = $request->query();
    $push = $pushers[$pipeline] ??= pusher('ours', null, $pipeline);

    return \json_encode(pushFor($push, (int) $batch, (float) $seconds));
});
