<?php

// The same with RoadRunner's official packages, from the folder that PRONGHORN_COMPAT_DIR names.

declare(strict_types=1);

use Nyholm\Psr7\Factory\Psr17Factory;
use Spiral\RoadRunner\Http\PSR7Worker;
use Spiral\RoadRunner\Worker;

require __DIR__ . '/../../../e2e/fixtures/foreign/find-packages.php';
require __DIR__ . '/psr7.php';

Foreign\load((string) \getenv('PRONGHORN_COMPAT_DIR'));
// Before Laravel, so that PSR-3 is the packages' own. Laravel 8 takes version 2 of it.
$worker = Worker::create();
$handle = psr7_handler();
$factory = new Psr17Factory();
$psr = new PSR7Worker($worker, $factory, $factory, $factory);

while (($request = $psr->waitRequest()) !== null) {
    $psr->respond($handle($request));
}
