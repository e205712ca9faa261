<?php

// The same with RoadRunner's official packages, from the folder that PRONGHORN_COMPAT_DIR names.

declare(strict_types=1);

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Response;
use Spiral\RoadRunner\Http\PSR7Worker;
use Spiral\RoadRunner\Worker;

require __DIR__ . '/../../../e2e/fixtures/foreign/find-packages.php';
require __DIR__ . '/app.php';

Foreign\load((string) \getenv('PRONGHORN_COMPAT_DIR'));
$factory = new Psr17Factory();
$psr = new PSR7Worker(Worker::create(), $factory, $factory, $factory);

while (($request = $psr->waitRequest()) !== null) {
    [$status, $type, $body] = answer(
        $request->getUri()->getPath(),
        $request->getQueryParams(),
        static fn (): string => (string) $request->getBody(),
    );
    $psr->respond(new Response($status, ['Content-Type' => $type], $body));
}
