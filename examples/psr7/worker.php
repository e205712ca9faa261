<?php

// PSR-7 in and out. Start it from the repository's root with
//     pronghorn serve -c examples/psr7/pronghorn.yaml
// and send it something: curl -d name=you http://127.0.0.1:8080/greet

declare(strict_types=1);

use Nyholm\Psr7\Response;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

// With Composer: require __DIR__ . '/vendor/autoload.php'; instead of both.
require __DIR__ . '/../../php/worker/autoload.php';
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

Pronghorn\serve(function (ServerRequestInterface $request): ResponseInterface {
    $form = $request->getParsedBody();
    if ($request->getMethod() === 'POST' && isset($form['name'])) {
        return new Response(200, ['Content-Type' => 'text/plain'], "Hello, {$form['name']}!\n");
    }

    return new Response(200, ['Content-Type' => 'text/plain'], "{$request->getMethod()} {$request->getUri()}\n");
});
