<?php

// The same with RoadRunner's official packages, from the folder that PRONGHORN_COMPAT_DIR names.

declare(strict_types=1);

use Nyholm\Psr7\Factory\Psr17Factory;
use Slim\Http\Response;
use Spiral\RoadRunner\Http\PSR7Worker;
use Spiral\RoadRunner\Worker;

require __DIR__ . '/../../../e2e/fixtures/foreign/find-packages.php';
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

$app = require __DIR__ . '/app.php';
Foreign\load((string) \getenv('PRONGHORN_COMPAT_DIR'));
$factory = new Psr17Factory();
$psr = new PSR7Worker(Worker::create(), $factory, $factory, $factory);

while (($request = $psr->waitRequest()) !== null) {
    $psr->respond($app->process($request, new Response()));
}
