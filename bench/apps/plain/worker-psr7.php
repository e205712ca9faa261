<?php

// The same with PSR-7, Debian's nyholm.

declare(strict_types=1);

use Nyholm\Psr7\Response;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

require __DIR__ . '/../../../php/worker/autoload.php';
require 'Nyholm/Psr7/autoload.php';
require __DIR__ . '/app.php';

Pronghorn\serve(static function (ServerRequestInterface $request): ResponseInterface {
    [$status, $type, $body] = answer(
        $request->getUri()->getPath(),
        $request->getQueryParams(),
        static fn (): string => (string) $request->getBody(),
    );

    return new Response($status, ['Content-Type' => $type], $body);
});
