<?php

declare(strict_types=1);

namespace App;

use Nyholm\Psr7\Response;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

// With Composer it comes with psr/http-server-handler, of which Debian has no package.
interface_exists(RequestHandlerInterface::class) || require __DIR__ . '/psr15.php';

final class Greeter implements RequestHandlerInterface
{
    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        $name = rawurldecode(ltrim($request->getUri()->getPath(), '/'));

        return $name === ''
            ? new Response(404, ['Content-Type' => 'text/plain'], "Who are you?\n")
            : new Response(200, ['Content-Type' => 'text/plain'], "Hello, $name!\n");
    }
}

return new Greeter();
