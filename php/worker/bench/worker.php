<?php

// The workers that bench/calls.php measures, by name.

declare(strict_types=1);

use Psr\Http\Message\ServerRequestInterface;

require __DIR__ . '/../autoload.php';

$large = str_repeat('0123456789abcdef', 4096);
$larger = str_repeat($large, 16);

$worker = new Pronghorn\Worker();
$worker->onRequest(match ($argv[1]) {
    'plain' => fn (Pronghorn\Request $request) => 'Hello World!',
    'plain-all' => fn (Pronghorn\Request $request) => $request->method . $request->path . $request->query()['page']
        . $request->header('user-agent') . $request->cookies['session'],
    'plain-json' => fn (Pronghorn\Request $request) => [
        'path' => $request->path,
        'query' => $request->query(),
        'list' => [1, 2, 3],
    ],
    'plain-form' => fn (Pronghorn\Request $request) => $request->form()['b'],
    'plain-64k' => fn (Pronghorn\Request $request) => $large,
    'plain-1m' => fn (Pronghorn\Request $request) => $larger,
    'nyholm' => (function (): Closure {
        require 'Nyholm/Psr7/autoload.php';

        return fn (ServerRequestInterface $request) => new Nyholm\Psr7\Response(200, [], 'Hello World!');
    })(),
    'guzzle' => (function (): Closure {
        require 'GuzzleHttp/Psr7/autoload.php';

        return fn (ServerRequestInterface $request) => new GuzzleHttp\Psr7\Response(200, [], 'Hello World!');
    })(),
    'slim', 'slim-factories' => (function () use ($worker, $argv): Closure {
        require 'Slim/Psr7/autoload.php';
        $streams = new Slim\Psr7\Factory\StreamFactory();
        if ($argv[1] === 'slim-factories') {
            // A class that is not known, so the way of all factories.
            $worker->withFactories(new class extends Slim\Psr7\Factory\ServerRequestFactory {
            });
        }

        return fn (ServerRequestInterface $request) => new Slim\Psr7\Response(
            200,
            null,
            $streams->createStream('Hello World!'),
        );
    })(),
});
$worker->run();
