<?php

// The same with the PSR-7 library that the argument names, from Debian's packages.

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

require __DIR__ . '/../../../php/worker/autoload.php';
require __DIR__ . '/app.php';

$guzzle = ($argv[1] ?? 'nyholm') === 'guzzle';
require $guzzle ? 'GuzzleHttp/Psr7/autoload.php' : 'Nyholm/Psr7/autoload.php';
$response = $guzzle ? GuzzleHttp\Psr7\Response::class : Nyholm\Psr7\Response::class;

Pronghorn\serve(static function (ServerRequestInterface $request) use ($response): ResponseInterface {
    [$status, $type, $body] = answer(
        $request->getUri()->getPath(),
        $request->getQueryParams(),
        static fn (): string => (string) $request->getBody(),
    );

    $body = \is_string($body) ? $body : Pronghorn\StreamBody::from($body);

    return new $response($status, ['Content-Type' => $type], $body);
});
