<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Nyholm\Psr7\Factory\Psr17Factory;
use Nyholm\Psr7\Uri;
use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\Psr\ServerRequest;
use Pronghorn\Internal\Relay;
use Pronghorn\Tests\Support\SocketServer;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\ServerRequestInterface as Request;

/**
 * Our own PSR-7 request, held against that of a library: the same is done to both, and the same has
 * to come out.
 */
final class ServerRequestTest extends TestCase
{
    private Exchange $exchange;

    /**
     * @dataProvider changes
     * @param \Closure(Request): Request $change
     */
    public function testChangesAreThoseOfALibrary(\Closure $change): void
    {
        [$ours, $theirs] = $this->both();
        $before = self::shown($ours);
        $changed = $change($ours);

        self::assertInstanceOf(ServerRequest::class, $changed);
        self::assertSame(self::shown($change($theirs)), self::shown($changed));
        self::assertSame($before, self::shown($ours), 'what was changed is another object');
        self::assertSame(self::shown($change($change($theirs))), self::shown($change($changed)), 'twice');
    }

    /** @return iterable<string, array{\Closure(Request): Request}> */
    public static function changes(): iterable
    {
        $streams = new Psr17Factory();
        yield 'nothing' => [fn (Request $r) => $r];
        yield 'version' => [fn (Request $r) => $r->withProtocolVersion('1.0')];
        yield 'method' => [fn (Request $r) => $r->withMethod('PATCH')];
        yield 'target' => [fn (Request $r) => $r->withRequestTarget('*')];
        yield 'body' => [fn (Request $r) => $r->withBody($streams->createStream('other'))];
        yield 'a header more' => [fn (Request $r) => $r->withHeader('X-New', [' a ', 2])];
        yield 'a header anew' => [fn (Request $r) => $r->withHeader('X-MANY', 'one')];
        yield 'a value more' => [fn (Request $r) => $r->withAddedHeader('x-many', '3')];
        yield 'a value for a new one' => [fn (Request $r) => $r->withAddedHeader('X-New', 'a')];
        yield 'a header less' => [fn (Request $r) => $r->withoutHeader('X-Many')];
        yield 'a header less that is not there' => [fn (Request $r) => $r->withoutHeader('X-None')];
        yield 'a number for a name' => [fn (Request $r) => $r->withHeader('7', 'seven')];
        yield 'uri' => [fn (Request $r) => $r->withUri(new Uri('https://other:8443/p?q'))];
        yield 'uri without a host' => [fn (Request $r) => $r->withUri(new Uri('/p'))];
        yield 'uri, host kept' => [fn (Request $r) => $r->withUri(new Uri('http://other/p'), true)];
        yield 'uri, no host to keep' => [
            fn (Request $r) => $r->withoutHeader('host')->withUri(new Uri('http://other/p'), true),
        ];
        yield 'query' => [fn (Request $r) => $r->withQueryParams(['a' => ['b']])];
        yield 'cookies' => [fn (Request $r) => $r->withCookieParams(['c' => 'd'])];
        yield 'files' => [fn (Request $r) => $r->withUploadedFiles([])];
        yield 'parsed body' => [fn (Request $r) => $r->withParsedBody(['e' => 'f'])];
        yield 'no parsed body' => [fn (Request $r) => $r->withParsedBody(null)];
        yield 'attributes' => [fn (Request $r) => $r->withAttribute('a', 1)->withAttribute('b', null)];
        yield 'an attribute less' => [fn (Request $r) => $r->withAttribute('a', 1)->withoutAttribute('a')];
    }

    /**
     * @dataProvider refused
     * @param \Closure(Request): mixed $change
     */
    public function testWhatIsNoHttpIsRefused(\Closure $change): void
    {
        foreach ($this->both() as $request) {
            try {
                $change($request);
                self::fail($request::class . ' takes it');
            } catch (\InvalidArgumentException) {
                $this->addToAssertionCount(1);
            }
        }
    }

    /** @return iterable<string, array{\Closure(Request): mixed}> */
    public static function refused(): iterable
    {
        yield 'name' => [fn (Request $r) => $r->withHeader('a b', 'x')];
        yield 'empty name' => [fn (Request $r) => $r->withHeader('', 'x')];
        yield 'line end' => [fn (Request $r) => $r->withHeader('a', "x\r\nb: c")];
        yield 'line end in one of several' => [fn (Request $r) => $r->withAddedHeader('a', ['x', "y\n"])];
        yield 'no value' => [fn (Request $r) => $r->withHeader('a', [])];
        yield 'a value of another kind' => [fn (Request $r) => $r->withHeader('a', [[]])];
        yield 'target' => [fn (Request $r) => $r->withRequestTarget('/a b')];
        yield 'parsed body' => [fn (Request $r) => $r->withParsedBody('text')];
    }

    /** @return array{ServerRequestInterface, ServerRequestInterface} */
    private function both(): array
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        (new SocketServer($server))->request([
            'method' => 'POST',
            'uri' => 'http://h:81/a?x=1',
            'headers' => [
                ['x-many', '1'], ['x-many', '2'], ['cookie', 'k=v'],
                ['content-type', 'application/x-www-form-urlencoded'],
            ],
            'attributes' => [['user', 'me']],
        ], 'f=1');
        $this->exchange = (new Relay(new Pipes($worker, $worker)))->next();

        return [
            (new Messages([]))->request($this->exchange),
            (new Messages([new Psr17Factory()]))->request($this->exchange),
        ];
    }

    /** @return array<string, mixed> */
    private static function shown(Request $request): array
    {
        // Their order means nothing.
        $headers = $request->getHeaders();
        ksort($headers);
        $lines = [];
        foreach (array_keys($headers) as $name) {
            $lines[$name] = [$request->hasHeader(strtoupper((string) $name)), $request->getHeaderLine((string) $name)];
        }

        return [
            'version' => $request->getProtocolVersion(),
            'method' => $request->getMethod(),
            'target' => $request->getRequestTarget(),
            'uri' => (string) $request->getUri(),
            'headers' => $headers,
            'lines' => $lines,
            'none' => [$request->hasHeader('none'), $request->getHeader('none'), $request->getHeaderLine('none')],
            'body' => (string) $request->getBody(),
            'server' => $request->getServerParams(),
            'cookies' => $request->getCookieParams(),
            'query' => $request->getQueryParams(),
            'files' => $request->getUploadedFiles(),
            'parsed' => $request->getParsedBody(),
            'attributes' => $request->getAttributes(),
            'one' => [$request->getAttribute('b', 'default'), $request->getAttribute('none', 'default')],
        ];
    }
}
