<?php

// A Slim application, kept in memory. Start it from the repository's root with
//     pronghorn serve -c examples/slim/pronghorn.yaml
// and open http://127.0.0.1:8080/hello/you

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Slim\App;
use Slim\Http\Response;

// With Composer: require __DIR__ . '/vendor/autoload.php'; instead of these.
require __DIR__ . '/../../php/worker/autoload.php';
require 'Slim/autoload.php'; // Debian's php-slim, version 3
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

$app = new App();
$app->get('/hello/{name}', function (ServerRequestInterface $request, ResponseInterface $response, array $args) {
    $response->getBody()->write("Hello, {$args['name']}!\n");

    return $response->withHeader('Content-Type', 'text/plain');
});

// Slim 4 is a PSR-15 handler: Pronghorn\serve($app);
Pronghorn\serve(fn (ServerRequestInterface $request): ResponseInterface => $app->process($request, new Response()));
