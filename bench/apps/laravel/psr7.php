<?php

// Laravel behind PSR-7, as bridges do it: a request of HttpFoundation is made of each PSR-7
// request, and a PSR-7 response of each response.

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;
use Nyholm\Psr7\Response;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Pronghorn\Laravel\Sandbox;

require __DIR__ . '/../../../php/worker/autoload.php';
require __DIR__ . '/../../../php/laravel/autoload.php';
require 'Nyholm/Psr7/autoload.php'; // Debian's php-nyholm-psr7

/**
 * The application, booted once: a handler of PSR-7 requests.
 *
 * @return \Closure(ServerRequestInterface): ResponseInterface
 */
function psr7_handler(): \Closure
{
    $app = require __DIR__ . '/booted.php';
    $kernel = $app->make(Kernel::class);
    $sandbox = new Sandbox($app);
    $collects = \get_cfg_var('bench.collect_cycles') === '1';

    return static function (ServerRequestInterface $asked) use ($kernel, $sandbox, $collects): ResponseInterface {
        $request = Request::createFromBase(foundation_request($asked));
        $response = $kernel->handle($request);
        $reply = psr7_response($response);
        $kernel->terminate($request, $response);
        $sandbox->restore();
        $collects && \gc_collect_cycles();

        return $reply;
    };
}

function foundation_request(ServerRequestInterface $asked): \Symfony\Component\HttpFoundation\Request
{
    $uri = $asked->getUri();
    $server = $asked->getServerParams();
    $server['SERVER_NAME'] = $uri->getHost();
    $server['SERVER_PORT'] = $uri->getPort() ?? ($uri->getScheme() === 'https' ? 443 : 80);
    $server['REQUEST_URI'] = $uri->getPath() . ($uri->getQuery() === '' ? '' : '?' . $uri->getQuery());
    $server['QUERY_STRING'] = $uri->getQuery();
    $server['REQUEST_METHOD'] = $asked->getMethod();
    foreach ($asked->getHeaders() as $name => $values) {
        $server['HTTP_' . \strtr(\strtoupper((string) $name), '-', '_')] = \implode(', ', $values);
    }
    $form = $asked->getParsedBody();

    return new \Symfony\Component\HttpFoundation\Request(
        $asked->getQueryParams(),
        \is_array($form) ? $form : [],
        $asked->getAttributes(),
        $asked->getCookieParams(),
        [],
        $server,
        (string) $asked->getBody(),
    );
}

function psr7_response(\Symfony\Component\HttpFoundation\Response $response): ResponseInterface
{
    $headers = $response->headers->allPreserveCaseWithoutCookies();
    $cookies = \array_map('strval', $response->headers->getCookies());
    if ($cookies !== []) {
        $headers['Set-Cookie'] = $cookies;
    }

    return new Response($response->getStatusCode(), $headers, (string) $response->getContent());
}
