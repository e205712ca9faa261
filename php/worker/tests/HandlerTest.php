<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\RawHandler;
use Pronghorn\Request;
use Psr\Http\Message\RequestInterface;
use Psr\Http\Message\ServerRequestInterface;

final class HandlerTest extends TestCase
{
    /** @dataProvider shapes */
    public function testTheFirstParameterDecides(callable $handler, bool $psr): void
    {
        self::assertSame($psr, HttpHandler::of($handler, new Messages([]))->wantsPsr);
    }

    /** @return iterable<string, array{callable, bool}> */
    public static function shapes(): iterable
    {
        yield 'plain' => [fn (Request $r) => '', false];
        yield 'plain or nothing' => [fn (?Request $r = null) => '', false];
        yield 'PSR-7' => [fn (ServerRequestInterface $r) => '', true];
        yield 'what PSR-7 extends' => [fn (RequestInterface $r) => '', true];
        yield 'a class of PSR-7' => [fn (\Nyholm\Psr7\ServerRequest $r) => '', true];
        yield 'one of several types' => [fn (int|ServerRequestInterface $r) => '', true];
        yield 'more parameters that need not be given' => [fn (Request $r, int $x = 5, string ...$y) => '', false];
        yield 'a method' => [[new self(), 'takesRequest'], false];
        yield 'a static method by name' => [self::class . '::takesPsr', true];
        yield 'an invokable object' => [new class {
            public function __invoke(Request $request): string
            {
                return '';
            }
        }, false];
    }

    /** @dataProvider misshapen */
    public function testWhatNobodyCanCall(callable $handler, string $message): void
    {
        try {
            HttpHandler::of($handler, new Messages([]));
            self::fail();
        } catch (BadWorker $bad) {
            self::assertStringContainsString($message, $bad->getMessage());
            self::assertStringContainsString('fn (Pronghorn\Request $request)', $bad->getMessage());
            self::assertMatchesRegularExpression('#^The handler (in .+:\d+|strlen\(\)) takes#', $bad->getMessage());
        }
    }

    /** @return iterable<string, array{callable, string}> */
    public static function misshapen(): iterable
    {
        yield 'a request of Symfony' => [
            fn (\Symfony\Component\HttpFoundation\Request $r) => '',
            '`composer require pronghorn/http-foundation`',
        ];
        yield 'nothing' => [fn () => '', 'runs in a pool with `mode: classic`'];
        yield 'no type' => [fn ($r) => '', 'a parameter without a type'];
        yield 'mixed' => [fn (mixed $r) => '', '`mixed`'];
        yield 'object' => [fn (object $r) => '', '`object`'];
        yield 'another class' => [fn (\stdClass $r) => '', '`stdClass`'];
        yield 'a class that is not there' => [fn (Reqest $r) => '', '`Pronghorn\Tests\Reqest`'];
        yield 'two' => [fn (Request $r, int $x) => '', 'more than one parameter'];
        yield 'a function of PHP' => ['strlen', '`string`'];
    }

    /** @dataProvider rawShapes */
    public function testAHandlerOfRawCallsTakesAString(callable $handler, bool $taken): void
    {
        if (!$taken) {
            $this->expectException(BadWorker::class);
            $this->expectExceptionMessageMatches('/^The handler .+ does not take one string. Accepted is fn/');
        }
        self::assertInstanceOf(RawHandler::class, RawHandler::of($handler));
    }

    /** @return iterable<string, array{callable, bool}> */
    public static function rawShapes(): iterable
    {
        yield 'a string' => [fn (string $payload) => '', true];
        yield 'a string or null' => [fn (?string $payload) => '', true];
        yield 'mixed' => [fn (mixed $payload) => '', true];
        yield 'no type' => [fn ($payload) => '', true];
        yield 'a function of PHP' => ['strrev', true];
        yield 'more that need not be given' => [fn (string $payload, int $x = 5) => '', true];
        yield 'nothing' => [fn () => '', false];
        yield 'a request' => [fn (Request $request) => '', false];
        yield 'a number' => [fn (int $payload) => '', false];
        yield 'two' => [fn (string $payload, int $x) => '', false];
    }

    public static function takesPsr(ServerRequestInterface $request): string
    {
        return '';
    }

    public function takesRequest(Request $request): string
    {
        return '';
    }
}
