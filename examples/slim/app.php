<?php

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;

require 'Slim/autoload.php'; // Debian's php-slim, version 3
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

$app = new Slim\App();
$app->get('/hello/{name}', function (ServerRequestInterface $request, ResponseInterface $response, array $args) {
    $response->getBody()->write("Hello, {$args['name']}!\n");

    return $response->withHeader('Content-Type', 'text/plain');
});

return $app;
