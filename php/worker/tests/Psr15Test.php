<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Worker;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** @runTestsInSeparateProcesses the interface must be unknown to all other tests */
final class Psr15Test extends TestCase
{
    public function testARequestHandlerIsAHandler(): void
    {
        require __DIR__ . '/fixtures/psr15.php';
        $handler = new class implements RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface
            {
                return new \Nyholm\Psr7\Response(204);
            }

            /** A handler that can be called as well is still a handler. */
            public function __invoke(int $x): void
            {
            }
        };
        self::assertTrue(HttpHandler::of($handler, new Messages([]))->wantsPsr);
        self::assertInstanceOf(Worker::class, (new Worker())->onRequest($handler));
    }
}
