<?php

// The same, kept by Pronghorn. Slim's messages are PSR-7 already.

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Slim\Http\Response;

require __DIR__ . '/../../../php/worker/autoload.php';
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

$app = require __DIR__ . '/app.php';

Pronghorn\serve(
    static fn (ServerRequestInterface $request): ResponseInterface => $app->process($request, new Response()),
);
