<?php

// A Slim application: routes with arguments, a group, middleware around all and around the group.

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface as Response;
use Psr\Http\Message\ServerRequestInterface as Request;
use Slim\App;

require 'Slim/autoload.php'; // Debian's php-slim, version 3

$app = new App(['settings' => ['displayErrorDetails' => false]]);

$text = static function (Response $response, string $text): Response {
    $response->getBody()->write($text);

    return $response->withHeader('Content-Type', 'text/plain');
};
$json = static function (Response $response, mixed $value, int $status = 200): Response {
    $response->getBody()->write(\json_encode($value, \JSON_THROW_ON_ERROR));

    return $response->withHeader('Content-Type', 'application/json')->withStatus($status);
};

$app->getContainer()['notFoundHandler'] = fn (): callable => fn (Request $request, Response $response): Response
    => $json($response, ['error' => 'Not found'], 404);

$app->add(function (Request $request, Response $response, callable $next): Response {
    $response = $next($request->withAttribute('seen', 1 + $request->getAttribute('seen', 0)), $response);

    return $response->withHeader('X-App', 'slim');
});

$app->get('/', fn (Request $request, Response $response): Response => $text($response, 'Hello World!'));
$app->get('/hello/{name}', fn (Request $request, Response $response, array $args): Response
    => $text($response, "Hello, {$args['name']}!"));
$app->post('/form', fn (Request $request, Response $response): Response
    => $json($response, ['form' => $request->getParsedBody(), 'seen' => $request->getAttribute('seen')]));

// As many routes as a small application has, since finding one is part of the work.
$app->group('/api', function () use ($json): void {
    foreach (['users', 'orders', 'items', 'carts', 'pages'] as $name) {
        $this->get("/$name", fn (Request $request, Response $response): Response
            => $json($response, ['list' => $name, 'page' => (int) ($request->getQueryParams()['page'] ?? 1)]));
        $this->get("/$name/{id:[0-9]+}", fn (Request $request, Response $response, array $args): Response
            => $json($response, ["$name/{$args['id']}" => $request->getAttribute('client')]));
        $this->delete("/$name/{id:[0-9]+}", fn (Request $request, Response $response): Response
            => $response->withStatus(204));
    }
})->add(function (Request $request, Response $response, callable $next) use ($json): Response {
    $client = $request->getHeaderLine('X-Client');

    return $client === ''
        ? $json($response, ['error' => 'X-Client is missing'], 401)
        : $next($request->withAttribute('client', $client), $response);
});

return $app;
