<?php

// The same, booted once and kept by Pronghorn. The kernel resets its services itself before each
// request but the first.

declare(strict_types=1);

use Pronghorn\Call;

require __DIR__ . '/../../../php/worker/autoload.php';
require __DIR__ . '/../http-foundation.php';

$kernel = require __DIR__ . '/bootstrap.php';
$kernel->boot();

Pronghorn\serve(static function (Pronghorn\Request $asked) use ($kernel): Pronghorn\Response {
    $request = foundation_request($asked);
    $response = $kernel->handle($request);
    Call::current()->defer(static fn () => $kernel->terminate($request, $response));

    return foundation_reply($response);
});
