<?php

// A kept worker with the PSR-7 library that the argument names, from Debian's packages.

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

require __DIR__ . '/../../../php/worker/autoload.php';

if ($argv[1] === 'nyholm-requests') {
    require 'Nyholm/Psr7/autoload.php';
    // A handler that asks for the library's class gets it, instead of ours that is filled as it is
    // asked.
    Pronghorn\serve(static fn (Nyholm\Psr7\ServerRequest $request): ResponseInterface
        => new Nyholm\Psr7\Response(200, [], 'Hello World!'));
} elseif ($argv[1] === 'nyholm') {
    require 'Nyholm/Psr7/autoload.php';
    Pronghorn\serve(static fn (ServerRequestInterface $request): ResponseInterface
        => new Nyholm\Psr7\Response(200, [], 'Hello World!'));
} else {
    require 'GuzzleHttp/Psr7/autoload.php';
    Pronghorn\serve(static fn (ServerRequestInterface $request): ResponseInterface
        => new GuzzleHttp\Psr7\Response(200, [], 'Hello World!'));
}
