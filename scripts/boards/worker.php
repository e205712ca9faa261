<?php

// What the pictures of the boards are made of: fast and slow routes, one that fails and one that
// dies.

declare(strict_types=1);

require __DIR__ . '/../../php/worker/autoload.php';

Pronghorn\serve(static function (Pronghorn\Request $request): string|Pronghorn\Response {
    $route = \explode('/', $request->path)[1];
    \usleep(match ($route) {
        'user' => \mt_rand(1_000, 4_000),
        'report' => \mt_rand(40_000, 90_000),
        default => 500,
    });
    switch ($route) {
        case 'report':
            \hash('sha256', \str_repeat('x', 4_000_000));
            break;
        case 'checkout':
            return \mt_rand(0, 4) === 0 ? new Pronghorn\Response('No stock.', 503) : 'Sold.';
        case 'broken':
            \posix_kill(\getmypid(), SIGSEGV);
    }
    return "Done.\n";
});
