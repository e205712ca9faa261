<?php

// A Slim application, kept in memory. Start it from the repository's root with
//     pronghorn serve -c examples/slim/pronghorn.yaml
// and open http://127.0.0.1:8080/hello/you

declare(strict_types=1);

use Psr\Http\Message\ServerRequestInterface;

// With Composer: require __DIR__ . '/vendor/autoload.php';
require __DIR__ . '/../../php/worker/autoload.php';
$app = require __DIR__ . '/app.php';
// Slim 4 is a PSR-15 handler: Pronghorn\serve($app);
Pronghorn\serve(fn (ServerRequestInterface $request) => $app->process($request, new Slim\Http\Response()));
