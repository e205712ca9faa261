<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use GuzzleHttp\Psr7\HttpFactory;
use Nyholm\Psr7\Factory\Psr17Factory;
use PHPUnit\Framework\TestCase;
use Pronghorn\Call;
use Pronghorn\ClientGone;
use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\Loop;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Relay;
use Pronghorn\StreamBody;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Message;
use Pronghorn\Tests\Support\Process;
use Pronghorn\Tests\Support\SocketServer;
use Pronghorn\Tests\Support\UntilServed;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\UploadedFileInterface;
use Slim\Psr7\Factory\ResponseFactory;
use Slim\Psr7\Factory\ServerRequestFactory;
use Slim\Psr7\Factory\StreamFactory;
use Slim\Psr7\Factory\UploadedFileFactory;

/** PSR-7 requests and responses, the same with every library. */
final class PsrTest extends TestCase
{
    private SocketServer $server;

    protected function tearDown(): void
    {
        // Requests hold their sockets in circles, and stream_select() knows descriptors up to 1,023
        // only.
        gc_collect_cycles();
    }

    /** @dataProvider libraries */
    public function testARequestHasEverything(array $factories, string $class): void
    {
        $request = $this->request($factories, [
            'call' => 8,
            'started' => 1_795_297_449_250_000,
            'method' => 'PUT',
            'remote' => '2001:db8::1',
            'uri' => 'https://example.com:8443/a%20b/c?x=1&y[]=2',
            'protocol' => 11,
            'headers' => [
                ['accept', '*/*'], ['x-many', '1'], ['x-many', '2'], ['cookie', 'a=1; b=2'],
                ['content-type', 'text/plain'],
                ['content-length', '4'], ['proxy', 'http://evil'], ['123', 'number'],
            ],
            'attributes' => [['ipAddress', '10.0.0.1'], ['5', 'five']],
        ], 'body');

        self::assertInstanceOf($class, $request);
        self::assertSame('PUT', $request->getMethod());
        // Some encode the brackets.
        $uri = str_replace('[]', '%5B%5D', (string) $request->getUri());
        self::assertSame('https://example.com:8443/a%20b/c?x=1&y%5B%5D=2', $uri);
        self::assertSame('/a%20b/c', $request->getUri()->getPath());
        self::assertSame('1.1', $request->getProtocolVersion());
        self::assertSame(['1', '2'], $request->getHeader('X-Many'));
        self::assertSame('example.com:8443', $request->getHeaderLine('Host'));
        self::assertSame(['number'], $request->getHeader('123'));
        self::assertSame(['a' => '1', 'b' => '2'], $request->getCookieParams());
        self::assertSame(['x' => '1', 'y' => ['2']], $request->getQueryParams());
        self::assertNull($request->getParsedBody());
        self::assertSame([], $request->getUploadedFiles());
        self::assertSame('body', $request->getBody()->getContents(), 'it stands at its start');
        self::assertSame('10.0.0.1', $request->getAttribute('ipAddress'));
        self::assertSame('five', $request->getAttribute('5'));
        self::assertSame(8, $request->getAttribute(Call::class)->id);
        self::assertSame([
            'REQUEST_METHOD' => 'PUT',
            'REQUEST_URI' => '/a%20b/c?x=1&y[]=2',
            'QUERY_STRING' => 'x=1&y[]=2',
            'SERVER_PROTOCOL' => 'HTTP/1.1',
            'SERVER_NAME' => 'example.com',
            'SERVER_PORT' => '8443',
            'REQUEST_SCHEME' => 'https',
            'REMOTE_ADDR' => '2001:db8::1',
            'REQUEST_TIME' => 1_795_297_449,
            'REQUEST_TIME_FLOAT' => 1_795_297_449.25,
            'HTTPS' => 'on',
            'HTTP_HOST' => 'example.com:8443',
            'HTTP_ACCEPT' => '*/*',
            'HTTP_X_MANY' => '1, 2',
            'HTTP_COOKIE' => 'a=1; b=2',
            'CONTENT_TYPE' => 'text/plain',
            'CONTENT_LENGTH' => '4',
            'HTTP_123' => 'number',
        ], $request->getServerParams());
    }

    /** @dataProvider libraries */
    public function testAPlainGet(array $factories): void
    {
        $request = $this->request($factories, ['uri' => 'http://[::1]/']);

        self::assertSame('/', $request->getServerParams()['REQUEST_URI']);
        self::assertSame('[::1]', $request->getServerParams()['SERVER_NAME']);
        self::assertSame('80', $request->getServerParams()['SERVER_PORT']);
        self::assertArrayNotHasKey('HTTPS', $request->getServerParams());
        self::assertSame([], $request->getQueryParams());
        self::assertSame([], $request->getCookieParams());
        self::assertNull($request->getParsedBody());
        self::assertSame('', (string) $request->getBody());
    }

    /** @dataProvider libraries */
    public function testUrisThatAreRightForHttpAndOddForLibraries(array $factories): void
    {
        $odd = [
            'http:///p?q=1' => ['', '/p', 'q=1'],
            'http://h//p' => ['h', '//p', ''],
            'http://h/?' => ['h', '/', ''],
            'http://h/%zz' => ['h', '/%25zz', ''],
            'http://h/:80' => ['h', '/:80', ''],
            'http://h/a:99999/b' => ['h', '/a:99999/b', ''],
        ];
        foreach ($odd as $uri => [$host, $path, $query]) {
            $got = $this->request($factories, ['uri' => $uri])->getUri();
            self::assertSame($host, $got->getHost(), $uri);
            // Some encode the percent sign anew, some make one slash of two.
            $normal = static fn (string $path) => '/' . ltrim(str_replace('%25', '%', $path), '/');
            self::assertSame($normal($path), $normal($got->getPath()), $uri);
            self::assertSame($query, $got->getQuery(), $uri);
        }
    }

    /** @dataProvider libraries */
    public function testUrisThatComeAgainAreStillTheirOwn(array $factories): void
    {
        $messages = new Messages($factories);
        foreach ([1, 2] as $_) {
            for ($i = 0; $i < 70; $i++) {
                $uri = "http://h$i/p?q=$i";
                $request = $messages->request($this->exchange(['uri' => $uri], ''));
                self::assertSame($uri, (string) $request->getUri());
                self::assertSame("h$i", $request->getHeaderLine('Host'));
            }
        }
        $long = 'http://h/' . str_repeat('x', 300);
        self::assertSame($long, (string) $messages->request($this->exchange(['uri' => $long], ''))->getUri());
    }

    /** @dataProvider libraries */
    public function testProtocols(array $factories): void
    {
        foreach ([10 => '1.0', 11 => '1.1', 20 => '2'] as $protocol => $version) {
            $got = $this->request($factories, ['protocol' => $protocol])->getProtocolVersion();
            self::assertSame($version, str_replace('2.0', '2', $got));
        }
        self::assertNotSame('', $this->request($factories, ['protocol' => 30])->getProtocolVersion());
    }

    /** @dataProvider libraries */
    public function testForms(array $factories): void
    {
        $headers = [['content-type', 'application/x-www-form-urlencoded; charset=utf-8']];
        $request = $this->request($factories, ['method' => 'POST', 'headers' => $headers], 'a[]=1&a[]=2');
        self::assertSame(['a' => ['1', '2']], $request->getParsedBody());
        self::assertSame('a[]=1&a[]=2', (string) $request->getBody());

        self::assertSame([], $this->request($factories, ['method' => 'POST', 'headers' => $headers])->getParsedBody());
    }

    /** @dataProvider libraries */
    public function testUploads(array $factories): void
    {
        $path = (string) tempnam(sys_get_temp_dir(), 'pronghorn');
        file_put_contents($path, 'content');
        $request = $this->request($factories, ['method' => 'POST', 'flags' => Native::FORM], Codec::form([
            ['name' => 'title', 'value' => 'x'],
            ['kind' => 1, 'name' => 'doc[cv]', 'value' => 'cv.pdf', 'type' => 'text/cv', 'path' => $path, 'size' => 7],
            ['kind' => 1, 'name' => 'doc[none]', 'value' => '', 'error' => UPLOAD_ERR_NO_FILE, 'size' => 0],
        ]));

        self::assertSame(['title' => 'x'], $request->getParsedBody());
        self::assertSame('', (string) $request->getBody());
        ['cv' => $cv, 'none' => $none] = $request->getUploadedFiles()['doc'];
        self::assertInstanceOf(UploadedFileInterface::class, $cv);
        self::assertSame(
            ['cv.pdf', 'text/cv', 7, UPLOAD_ERR_OK],
            [$cv->getClientFilename(), $cv->getClientMediaType(), $cv->getSize(), $cv->getError()],
        );
        self::assertSame('content', (string) $cv->getStream());
        self::assertSame(UPLOAD_ERR_NO_FILE, $none->getError());
        $cv->moveTo("$path.moved");
        self::assertSame('content', file_get_contents("$path.moved"));
        unlink("$path.moved");
        @unlink($path);
    }

    /** @dataProvider libraries */
    public function testABodyInAFile(array $factories): void
    {
        $file = tmpfile();
        fwrite($file, 'a long body');
        $request = $this->request($factories, ['flags' => Native::BODY_FILE], stream_get_meta_data($file)['uri']);

        self::assertSame(11, $request->getBody()->getSize());
        self::assertSame('a long body', $request->getBody()->getContents());
    }

    /** @dataProvider libraries */
    public function testAResponseIsSentAsItIs(array $factories, string $_, \Closure $response): void
    {
        $handler = static fn (ServerRequestInterface $request): ResponseInterface => $response()
            ->withStatus(404)
            ->withHeader('X-A', '1')
            ->withAddedHeader('Set-Cookie', 'a=1')
            ->withAddedHeader('Set-Cookie', 'b=2');
        $received = $this->serve($handler, $factories, function (ResponseInterface $response): void {
            $response->getBody()->write('not found');
        });
        self::assertCount(1, $received);
        self::assertSame(404, $received[0]->number);
        self::assertSame('not found', $received[0]->body);
        self::assertSame(['1'], $received[0]->header('x-a'));
        self::assertSame(['a=1', 'b=2'], $received[0]->header('set-cookie'));
    }

    /** @dataProvider libraries */
    public function testABodyThatWasReadIsSentFromItsStart(array $factories, string $_, \Closure $response): void
    {
        $handler = fn (ServerRequestInterface $request) => $response();
        $received = $this->serve($handler, $factories, function (ResponseInterface $response): void {
            $response->getBody()->write('whole');
            $response->getBody()->rewind();
            $response->getBody()->read(3);
        });
        self::assertSame('whole', $received[0]->body);
    }

    /** @dataProvider libraries */
    public function testALongBodyIsSentInPieces(array $factories, string $_, \Closure $response): void
    {
        $content = random_bytes(70_000);
        $body = new class ($content) extends Support\StringStream {
            public function getSize(): ?int
            {
                return 20_000_000;
            }
        };
        $received = $this->serve(fn (ServerRequestInterface $r) => $response()->withBody($body), $factories);

        self::assertSame($content, implode('', array_column($received, 'body')));
        self::assertSame(['20000000'], $received[0]->header('content-length'));
        self::assertSame([true, true, false], array_column($received, 'more'));
        self::assertSame([65536, 70_000 - 65536, 0], array_map('strlen', array_column($received, 'body')));

        $said = $response()->withBody($body)->withHeader('content-length', '5');
        $received = $this->serve(fn (ServerRequestInterface $r) => $said, $factories);
        self::assertSame(['5'], $received[0]->header('content-length'), 'what the application says stays');
    }

    /** @dataProvider libraries */
    public function testBodiesOfALibraryAreSentWholeUpToAMegabyte(array $factories, string $_, \Closure $response): void
    {
        foreach ([0, 1, 65_535, 65_536, 65_537, 150_000] as $size) {
            $content = $size === 0 ? '' : random_bytes($size);
            $answer = $response();
            $answer->getBody()->write($content);
            [$reply] = $this->serve(fn (ServerRequestInterface $r) => $answer, $factories);
            self::assertSame([false, true], [$reply->more, $reply->body === $content], "$size bytes");
        }
    }

    /**
     * As of Guzzle's `InflateStream`, which says how long it is deflated.
     *
     * @dataProvider libraries
     */
    public function testABodyThatCanBeRewoundOnceIsSentWhole(array $factories, string $_, \Closure $response): void
    {
        $body = new class ($content = random_bytes(150_000)) extends Support\StringStream {
            private int $rewound = 0;

            public function rewind(): void
            {
                ++$this->rewound > 1 ? $this->seek(0, SEEK_END) : parent::rewind();
            }

            public function getSize(): ?int
            {
                return 500;
            }
        };
        [$reply] = $this->serve(fn (ServerRequestInterface $r) => $response()->withBody($body), $factories);
        self::assertTrue($reply->body === $content);
    }

    /** A pipe says that its size is 0. */
    public function testABodyThatIsLongerThanItSaysIsSentInPieces(): void
    {
        $worker = Process::started(__DIR__ . '/fixtures/psr-worker.php');
        $worker->request(['uri' => 'http://h/?command=' . urlencode('head -c 1500000 /dev/zero')]);
        $reply = $worker->reply();

        self::assertSame([], $reply[0]->header('content-length'));
        self::assertTrue(str_repeat("\0", 1_500_000) === implode('', array_column($reply, 'body')));
        self::assertGreaterThan(1, \count($reply));
    }

    public function testALongFileIsSentInPieces(): void
    {
        $file = tmpfile();
        fwrite($file, $content = random_bytes(1_500_000));
        $worker = Process::started(__DIR__ . '/fixtures/psr-worker.php');
        $worker->request(['uri' => 'http://h/?file=' . stream_get_meta_data($file)['uri']]);
        $reply = $worker->reply();

        self::assertSame(['1500000'], $reply[0]->header('content-length'));
        self::assertTrue($content === implode('', array_column($reply, 'body')));
        self::assertSame(65_536, max(array_map('strlen', array_column($reply, 'body'))));
    }

    /** @dataProvider libraries */
    public function testABodyOfUnknownSizeIsStreamed(array $factories, string $_, \Closure $response): void
    {
        $body = new class ('piece') extends Support\StringStream {
            public function getSize(): ?int
            {
                return null;
            }
        };
        $received = $this->serve(fn (ServerRequestInterface $r) => $response()->withBody($body), $factories);

        self::assertSame(['piece', ''], array_column($received, 'body'));
        self::assertSame([], $received[0]->header('content-length'));
    }

    /** @dataProvider libraries */
    public function testAStreamBodyIsSentPieceByPiece(array $factories, string $_, \Closure $response): void
    {
        $gone = false;
        $pieces = function () use (&$gone): \Generator {
            try {
                yield 'a';
                yield 'b';
                $this->server->cancel(1);
                yield 'c';
            } catch (ClientGone) {
                $gone = true;
            }
        };
        $handler = fn (ServerRequestInterface $r) => $response()->withBody(StreamBody::from($pieces()));
        $received = $this->serve($handler, $factories);

        self::assertSame(['a', 'b', ''], array_column($received, 'body'));
        self::assertTrue($gone);
    }

    /** @dataProvider libraries */
    public function testABodyArrivesWhileItIsRead(array $factories): void
    {
        $seen = [];
        $handler = function (ServerRequestInterface $request) use (&$seen, $factories): ResponseInterface {
            $body = $request->getBody();
            $seen = [$body->getSize(), $body->isSeekable(), $body->eof()];
            $body->rewind();
            $seen[] = $body->read(3);
            $seen[] = $body->tell();
            $seen[] = $body->getContents();
            $seen[] = $body->eof();

            return (new Psr17Factory())->createResponse();
        };
        $received = $this->serve($handler, $factories, fields: [
            'method' => 'PUT', 'flags' => Native::BODY_STREAM, 'headers' => [['content-length', '11']],
        ], pieces: ['first ', 'piece']);

        self::assertSame([11, false, false, 'fir', 3, 'st piece', true], $seen);
        self::assertSame(['want', 'want', 'reply'], array_column($received, 'kind'));
    }

    public function testAStreamBodyThatMiddlewareReadGoesOnWhereItStands(): void
    {
        $body = StreamBody::from(['abc', 'def', 'ghi']);
        self::assertSame('ab', $body->read(2));
        $response = (new Psr17Factory())->createResponse()->withBody($body);
        $received = $this->serve(fn (ServerRequestInterface $r) => $response, []);

        self::assertSame('cdefghi', implode('', array_column($received, 'body')));
    }

    public function testABodyThatNeverEndsAndNeverGivesAnythingIsAnError(): void
    {
        $body = new class ('') extends Support\StringStream {
            public function getSize(): ?int
            {
                return null;
            }

            public function eof(): bool
            {
                return false;
            }
        };
        $response = (new Psr17Factory())->createResponse()->withBody($body);
        $received = $this->serve(fn (ServerRequestInterface $r) => $response, []);

        self::assertStringContainsString('gives nothing', end($received)->error['message']);
    }

    /** As Laminas' CallbackStream. */
    public function testABodyThatCanOnlyBeCastIsSent(): void
    {
        $body = new class ('of a callback') extends Support\StringStream {
            public function getSize(): ?int
            {
                return null;
            }

            public function isSeekable(): bool
            {
                return false;
            }

            public function isReadable(): bool
            {
                return false;
            }

            public function __toString(): string
            {
                return 'of a callback';
            }

            public function getContents(): string
            {
                throw new \RuntimeException('A callback can not be read');
            }

            public function read($length): string
            {
                throw new \RuntimeException('A callback can not be read');
            }
        };
        $response = (new Psr17Factory())->createResponse()->withBody($body);
        $received = $this->serve(fn (ServerRequestInterface $r) => $response, []);

        self::assertSame('of a callback', implode('', array_column($received, 'body')));
    }

    public function testAHandlerMayAskForTheClassOfALibrary(): void
    {
        foreach (['GuzzleHttp\Psr7\ServerRequest', 'Slim\Psr7\Request', 'Nyholm\Psr7\ServerRequest'] as $class) {
            $messages = new Messages([]);
            $messages->prepare($class);
            self::assertInstanceOf($class, $messages->request($this->exchange([], '')));
        }
        $this->expectException(BadWorker::class);
        $this->expectExceptionMessage('takes a `Slim\Psr7\Request`, but PSR-7 requests here are Nyholm');
        // Given factories come first, for every kind of object that they make.
        (new Messages([new Psr17Factory()]))->prepare(\Slim\Psr7\Request::class);
    }

    /**
     * @return iterable<string, array{list<object>, class-string, \Closure(): ResponseInterface}>
     */
    public static function libraries(): iterable
    {
        $nyholm = static fn () => (new Psr17Factory())->createResponse();
        $guzzle = static fn () => (new HttpFactory())->createResponse();
        $slim = static fn () => (new ResponseFactory())->createResponse();
        yield 'our own' => [[], \Pronghorn\Internal\Psr\ServerRequest::class, $nyholm];
        yield 'nyholm' => [[new Psr17Factory()], \Nyholm\Psr7\ServerRequest::class, $nyholm];
        yield 'guzzle' => [[new HttpFactory()], \GuzzleHttp\Psr7\ServerRequest::class, $guzzle];
        yield 'slim' => [
            [new StreamFactory(), new UploadedFileFactory(), new ServerRequestFactory()],
            \Slim\Psr7\Request::class,
            $slim,
        ];
        foreach (['laminas' => 'Laminas\Diactoros', 'httpsoft' => 'HttpSoft\Message'] as $name => $namespace) {
            // Not every machine has these.
            if (class_exists("$namespace\\ServerRequestFactory")) {
                yield $name => [
                    array_map(static fn (string $kind) => new ("$namespace\\{$kind}Factory")(), [
                        'ServerRequest', 'Stream', 'UploadedFile',
                    ]),
                    "$namespace\\ServerRequest",
                    static fn () => (new ("$namespace\\ResponseFactory")())->createResponse(),
                ];
            }
        }
        yield 'slim through its factories' => [
            [new class extends ServerRequestFactory {
            }, new StreamFactory(), new UploadedFileFactory()],
            \Slim\Psr7\Request::class,
            $slim,
        ];
        yield 'nyholm through its factories' => [
            [new Support\ForwardingFactory(new Psr17Factory()), new StreamFactory()],
            \Nyholm\Psr7\ServerRequest::class,
            $nyholm,
        ];
    }

    /**
     * @param list<object> $factories
     * @param array<string, mixed> $fields
     */
    private function request(array $factories, array $fields, string $body = ''): ServerRequestInterface
    {
        return (new Messages($factories))->request($this->exchange($fields, $body));
    }

    /** @param array<string, mixed> $fields */
    private function exchange(array $fields, string $body): \Pronghorn\Internal\HttpExchange
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        (new SocketServer($server))->request($fields, $body);

        return (new Relay(new Pipes($worker, $worker)))->next();
    }

    /**
     * @param list<object> $factories
     * @param array<string, mixed> $fields
     * @param list<string> $pieces of the body
     * @return list<Message>
     */
    private function serve(
        \Closure $handler,
        array $factories,
        ?\Closure $after = null,
        array $fields = [],
        array $pieces = [],
    ): array {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $this->server = new SocketServer($server);
        $this->server->request($fields);
        foreach ($pieces as $number => $piece) {
            $this->server->body(1, $piece, $number === count($pieces) - 1);
        }
        $transport = new UntilServed(new Relay(new Pipes($worker, $worker)), $this->server);
        $messages = new Messages($factories);
        $loop = new Loop($transport, new Output(STDERR), $messages);
        $answer = function (ServerRequestInterface $request) use ($handler, $after): ResponseInterface {
            $response = $handler($request);
            if ($after !== null) {
                $after($response);
            }

            return $response;
        };
        $loop->run(['http' => HttpHandler::of($answer, $messages)]);
        $loop->stop();

        return $this->server->received();
    }
}
