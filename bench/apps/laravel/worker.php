<?php

// The same, booted once and kept by Pronghorn.

declare(strict_types=1);

$app = require __DIR__ . '/bootstrap.php';
require __DIR__ . '/../../../php/laravel/autoload.php';

if (\get_cfg_var('bench.collect_cycles') === '1') {
    $app->terminating(static fn (): int => \gc_collect_cycles());
}
(new Pronghorn\Laravel\Worker($app))->run();
