<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Nyholm\Psr7\Response as Psr7Response;
use PHPUnit\Framework\TestCase;
use Pronghorn\Call;
use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;
use Pronghorn\Exception;
use Pronghorn\Internal\Frames;
use Pronghorn\Internal\Handler;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\JobHandler;
use Pronghorn\Internal\Loop;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\RawHandler;
use Pronghorn\Internal\TcpHandler;
use Pronghorn\Internal\Transport;
use Pronghorn\Internal\WorkerChannel;
use Pronghorn\Job;
use Pronghorn\NotAWorker;
use Pronghorn\Request;
use Pronghorn\Response;
use Pronghorn\StreamBody;
use Pronghorn\TcpConnection;
use Pronghorn\TcpEvent;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Message;
use Pronghorn\Tests\Support\Server;
use Pronghorn\Tests\Support\StringStream;
use Pronghorn\Tests\Support\Text;
use Pronghorn\Tests\Support\UntilServed;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamInterface;

/** What a worker does with its calls, the same over every transport. */
abstract class TransportTestCase extends TestCase
{
    protected Transport $transport;
    protected Server $server;
    /** @var resource what the application's output goes to */
    protected $log;

    /** @return array{Transport, Server} two ends that are connected; the handshake is done */
    abstract protected function connect(): array;

    protected function setUp(): void
    {
        [$this->transport, $this->server] = $this->connect();
        $this->log = tmpfile();
    }

    public function testMethodsOfTheServerAreCalledWhileACallIsUnderWay(): void
    {
        $answer = fn (int $number, int $small, string $body): string
            => Codec::frame(pack('CCvV', Native::ANSWER, 0, $small, $number), $body);
        $this->server->request();
        $asked = null;
        $this->serve(function (Request $request) use ($answer, &$asked): string {
            $number = self::numberOf($this->transport);
            $this->server->send($answer($number, 9, 'of a question before'));
            $this->server->send($answer($number + 1, Native::ANSWER_RESULT, '"done"'));
            $this->server->send($answer($number + 2, Native::ANSWER_FAILURE, 'not today'));
            $asked = [$this->transport->ask('a.B', '[]'), $this->transport->ask('a.C', '{}')];

            return 'reply';
        });
        self::assertSame([[true, '"done"'], [false, 'not today']], $asked);
        self::assertNull($this->transport->ask('a.B', '[]'), 'it has ended');
    }

    /** Of its last question. */
    private static function numberOf(Transport $transport): int
    {
        $asked = new \ReflectionProperty(Frames::class, 'asked');

        return $asked->getValue($transport instanceof UntilServed ? $transport->inner : $transport);
    }

    public function testAStringIsAReply(): void
    {
        $this->server->request(['call' => 4]);
        [$reply] = $this->serve(fn (Request $request) => "Hello, $request->path");

        self::assertEquals(new Message('reply', 4, number: 200, body: 'Hello, /'), $reply);
    }

    /**
     * @dataProvider whole
     * @param array<string, string|list<string>> $headers
     */
    public function testWhatAHandlerMayReturn(
        mixed $returned,
        int $status,
        array $headers,
        string $body,
        int $flags = 0,
    ): void {
        $this->server->request();
        $received = $this->serve(fn (Request $request) => $returned);

        self::assertEquals([new Message('reply', 1, $flags, false, $status, $headers, $body)], $received);
    }

    /** @return iterable<string, array<mixed>> */
    public static function whole(): iterable
    {
        $json = ['Content-Type', 'application/json'];
        yield 'empty string' => ['', 200, [], ''];
        yield 'array' => [['a' => 1.0, 'b' => 'é/'], 200, [$json], '{"a":1.0,"b":"é/"}'];
        yield 'empty array' => [[], 200, [$json], '[]'];
        yield 'stringable' => [new Text('x'), 200, [], 'x'];
        yield 'json' => [Response::json('x', 201), 201, [$json], '"x"'];
        yield 'json with another type' => [
            Response::json(null, 422, ['Content-Type' => 'application/problem+json']),
            422,
            [['Content-Type', 'application/problem+json']],
            'null',
        ];
        yield 'redirect' => [Response::redirect('/a?b', 307), 307, [['Location', '/a?b']], ''];
        yield 'redirect with a cookie' => [
            Response::redirect('/', headers: ['Set-Cookie' => ['a=1', 'b=2']]),
            302,
            [['Location', '/'], ['Set-Cookie', 'a=1'], ['Set-Cookie', 'b=2']],
            '',
        ];
        yield 'response' => [
            new Response('gone', 410, ['X-Number' => 5, 'X-Many' => ['a', 2], '7' => 'seven', 'X-None' => []]),
            410,
            [['X-Number', '5'], ['X-Many', 'a'], ['X-Many', '2'], ['7', 'seven']],
            'gone',
        ];
        yield 'file' => [Response::file(__FILE__), 200, [], realpath(__FILE__), Native::BODY_FILE];
        yield 'file with a name' => [
            Response::file(__DIR__ . '/../tests/bootstrap.php', ['Content-Disposition' => 'attachment']),
            200,
            [['Content-Disposition', 'attachment']],
            realpath(__DIR__ . '/bootstrap.php'),
            Native::BODY_FILE,
        ];
        yield 'empty stream' => [new \ArrayIterator([]), 200, [], ''];
        yield 'response with an empty list' => [new Response([], 204), 204, [], ''];
    }

    /**
     * @dataProvider psr
     * @param list<string> $bodies
     */
    public function testWhatAHandlerOfPsr7MayReturn(ResponseInterface $returned, int $status, array $bodies): void
    {
        $this->server->request();
        $received = $this->serve(fn (ServerRequestInterface $request) => $returned);

        self::assertSame([$status, [['X-Many', 'a'], ['X-Many', 'b']]], [$received[0]->number, $received[0]->headers]);
        self::assertSame($bodies, array_column($received, 'body'));
        self::assertSame([...array_fill(0, count($bodies) - 1, true), false], array_column($received, 'more'));
    }

    /** @return iterable<string, array<mixed>> */
    public static function psr(): iterable
    {
        $of = fn (string|StreamInterface $body, int $status = 200) => new Psr7Response(
            $status,
            ['X-Many' => ['a', 'b']],
            $body,
        );
        $unknown = new class ('piece') extends StringStream {
            public function getSize(): ?int
            {
                return null;
            }
        };
        yield 'text' => [$of('text'), 200, ['text']];
        yield 'nothing' => [$of('', 204), 204, ['']];
        yield 'read once only' => [$of(new StringStream('once'), 404), 404, ['once']];
        yield 'longer than a piece' => [$of($long = str_repeat('long', 20_000)), 200, [$long]];
        yield 'of unknown length' => [$of($unknown), 200, ['piece', '']];
        yield 'in pieces' => [$of(StreamBody::from(['a', 'b'])), 200, ['a', 'b', '']];
        yield 'a status that is the server\'s to refuse' => [$of('x', 199), 199, ['x']];
    }

    public function testDeferredWorkRunsAfterAReplyOfPsr7(): void
    {
        $this->server->request();
        $seen = null;
        $received = $this->serve(function (ServerRequestInterface $request) use (&$seen): ResponseInterface {
            Call::current()->defer(function () use (&$seen): void {
                $seen = $this->server->received();
            });

            return new Psr7Response(body: 'done');
        });

        self::assertEquals([new Message('reply', 1, Native::BUSY, number: 200, body: 'done')], $seen);
        self::assertEquals([new Message('free', 1)], $received);
    }

    public function testABodyOfPsr7ThatCannotBeReadIsAnError(): void
    {
        $body = new class ('') extends StringStream {
            public function eof(): bool
            {
                throw new \DomainException('the disk is gone');
            }
        };
        $this->server->request();
        [$error] = $this->serve(fn (ServerRequestInterface $request) => new Psr7Response(body: $body));

        self::assertSame('error', $error->kind);
        self::assertSame('the disk is gone', $error->error['message']);
    }

    /**
     * @dataProvider streamed
     * @param list<string> $pieces
     */
    public function testEachElementIsOneChunk(mixed $returned, int $status, array $pieces): void
    {
        $this->server->request(['call' => 6]);
        $received = $this->serve(fn (Request $request) => $returned);

        $first = array_shift($received);
        self::assertSame(['reply', 6, true, $status], [$first->kind, $first->call, $first->more, $first->number]);
        $last = array_pop($received);
        self::assertEquals(new Message('chunk', 6), $last);
        foreach ($received as $chunk) {
            self::assertSame(['chunk', 6, true], [$chunk->kind, $chunk->call, $chunk->more]);
        }
        self::assertSame($pieces, array_map(static fn (Message $m) => $m->body, [$first, ...$received]));
    }

    /** @return iterable<string, array<mixed>> */
    public static function streamed(): iterable
    {
        $generator = static function (): \Generator {
            yield 'a';
            yield '';
            yield 5;
            yield new Text('x');
        };
        yield 'generator' => [$generator(), 200, ['a', '5', 'x']];
        yield 'iterator' => [new \ArrayIterator(['a', 'b']), 200, ['a', 'b']];
        yield 'iterator of an aggregate' => [new \ArrayObject(['a', 'b']), 200, ['a', 'b']];
        yield 'list in a response' => [new Response(['a', 'b'], 203), 203, ['a', 'b']];
        yield 'the head first' => [new Response(['', 'b'], 203), 203, ['', 'b']];
        yield 'events' => [
            Response::events([['id' => 1, 'data' => "x\ny"], 'z']),
            200,
            ['', "id: 1\ndata: x\ndata: y\n\n", "data: z\n\n"],
        ];
    }

    public function testEventsSendTheirHeadBeforeTheFirstEvent(): void
    {
        $this->server->request();
        $seen = null;
        $events = function () use (&$seen): \Generator {
            $seen = $this->server->received();
            yield 'late';
        };
        $this->serve(fn (Request $request) => Response::events($events()));

        self::assertCount(1, $seen);
        self::assertTrue($seen[0]->more);
        self::assertSame(['text/event-stream'], $seen[0]->header('content-type'));
        self::assertSame(['no-cache'], $seen[0]->header('cache-control'));
    }

    /** @dataProvider unusable */
    public function testWhatCannotBeAReplyIsAnError(mixed $returned, string $class, string $message): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $received = $this->serve(fn (Request $request) => $returned);

        self::assertSame(['error', 'error'], array_column($received, 'kind'), 'and the worker goes on');
        self::assertSame($class, $received[0]->error['class']);
        self::assertStringContainsString($message, $received[0]->error['message']);
    }

    /** @return iterable<string, array<mixed>> */
    public static function unusable(): iterable
    {
        yield 'nothing' => [null, \TypeError::class, 'returned null'];
        yield 'number' => [5, \TypeError::class, 'returned int'];
        yield 'object' => [new \stdClass(), \TypeError::class, 'returned stdClass'];
        yield 'array that is no JSON' => [["\xff"], \JsonException::class, 'UTF-8'];
        yield 'a piece that is no string' => [new \ArrayIterator([[]]), \TypeError::class, 'body is of type array'];
    }

    public function testAnExceptionBecomesAnErrorAndTheWorkerGoesOn(): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $line = __LINE__ + 3;
        [$error, $reply] = $this->serve(function (Request $request): string {
            if (Call::current()->id === 1) {
                throw new \DomainException('no € left', 0, new \LogicException('because'));
            }

            return 'fine';
        });

        self::assertSame(['error', 1, 0, false], [$error->kind, $error->call, $error->flags, $error->more]);
        self::assertSame(\DomainException::class, $error->error['class']);
        self::assertSame('no € left', $error->error['message']);
        self::assertSame([__FILE__, $line], [$error->error['file'], $error->error['line']]);
        self::assertStringContainsString('#0 ', $error->error['trace']);
        self::assertStringContainsString('caused by LogicException: because in ' . __FILE__, $error->error['trace']);
        self::assertSame(['reply', 'fine'], [$reply->kind, $reply->body]);
    }

    public function testAGeneratorThatThrowsAtOnceGivesACleanError(): void
    {
        $this->server->request();
        [$error] = $this->serve(fn (Request $request) => (function (): \Generator {
            throw new \DomainException('early');
            yield;
        })());

        self::assertSame(['error', 'early'], [$error->kind, $error->error['message']]);
    }

    public function testAGeneratorThatThrowsInTheMiddleEndsTheStreamWithAnError(): void
    {
        $this->server->request();
        $received = $this->serve(fn (Request $request) => (function (): \Generator {
            yield 'a';
            throw new \DomainException('late');
        })());

        self::assertSame(['reply', 'error'], array_column($received, 'kind'));
    }

    public function testClientGoneIsThrownIntoTheGenerator(): void
    {
        $this->server->request(['call' => 3]);
        $caught = null;
        $cleaned = false;
        $generator = function () use (&$caught, &$cleaned): \Generator {
            try {
                yield 'a';
                $this->server->cancel(3);
                yield 'nobody reads this';
            } catch (ClientGone $gone) {
                $caught = $gone;
            } finally {
                $cleaned = true;
            }
            yield 'nor this';
        };
        $received = $this->serve(fn (Request $request) => $generator());

        self::assertInstanceOf(ClientGone::class, $caught);
        self::assertTrue($cleaned);
        self::assertSame(['a', ''], array_column($received, 'body'));
        self::assertFalse(end($received)->more);
    }

    public function testClientGoneReachesTheGeneratorOfEvents(): void
    {
        $this->server->request(['call' => 3]);
        $caught = false;
        $generator = function () use (&$caught): \Generator {
            try {
                $this->server->cancel(3);
                yield 'x';
            } catch (ClientGone) {
                $caught = true;
            }
        };
        $received = $this->serve(fn (Request $request) => Response::events($generator()));

        self::assertTrue($caught);
        self::assertSame(['reply', 'chunk'], array_column($received, 'kind'));
        self::assertFalse($received[1]->more);
    }

    public function testAWrittenBodyIsSentPieceByPieceUntilTheClientLeaves(): void
    {
        $this->server->request(['call' => 1]);
        $wrote = [];
        $write = function (\Closure $send) use (&$wrote): void {
            if (($call = Call::current()->id) === 3) {
                return;
            }
            $send('a');
            $call === 2 && $this->server->cancel(2);
            $this->server->request(['call' => $call + 1]);
            $send('b');
            $wrote[] = $call;
        };
        $received = $this->serve(fn (Request $request) => Response::stream($write, 201, ['X-A' => '1']));

        self::assertSame(['reply', 'chunk', 'chunk', 'reply', 'chunk', 'reply'], array_column($received, 'kind'));
        self::assertSame(['a', 'b', '', 'a', '', ''], array_column($received, 'body'));
        self::assertSame([201, 201], [$received[0]->number, $received[5]->number]);
        self::assertSame([1], $wrote, 'ClientGone was thrown to the second one');
    }

    public function testAGeneratorNeedNotCatchClientGone(): void
    {
        $this->server->request(['call' => 1]);
        $generator = function (): \Generator {
            yield 'a';
            $this->server->cancel(1);
            $this->server->request(['call' => 2]);
            yield 'b';
        };
        $received = $this->serve(fn (Request $request) => Call::current()->id === 1 ? $generator() : 'next');

        self::assertSame(['reply', 'chunk', 'reply'], array_column($received, 'kind'));
        self::assertSame('next', $received[2]->body);
    }

    public function testWhatAGeneratorThrowsUponClientGoneIsReported(): void
    {
        $this->server->request();
        $generator = function (): \Generator {
            try {
                yield 'a';
                $this->server->cancel(1);
                yield 'b';
            } catch (ClientGone) {
                throw new \DomainException('clean-up failed');
            }
        };
        $received = $this->serve(fn (Request $request) => $generator());

        self::assertSame('clean-up failed', $received[1]->error['message']);
    }

    public function testACancelOfAnotherCallIsIgnored(): void
    {
        $this->server->request(['call' => 2]);
        $this->server->cancel(1);
        $received = $this->serve(fn (Request $request) => new \ArrayIterator(['a', 'b']));

        self::assertSame(['a', 'b', ''], array_column($received, 'body'));
    }

    public function testAStopThatComesInACallEndsTheWorkerAfterIt(): void
    {
        $this->server->request(['call' => 1]);
        $received = $this->serve(function (Request $request): string {
            $this->server->ping(9);
            $this->server->stop();

            return Call::current()->clientConnected() ? 'connected' : 'gone';
        });

        self::assertSame(['pong', 'reply'], array_column($received, 'kind'));
        self::assertSame('connected', $received[1]->body);
    }

    public function testClientConnected(): void
    {
        $this->server->request(['call' => 1]);
        $answers = [];
        $this->serve(function (Request $request) use (&$answers): string {
            $call = Call::current();
            $answers[] = $call->clientConnected();
            $this->server->cancel(1);
            $answers[] = $call->clientConnected();
            $answers[] = $call->clientConnected();

            return '';
        });

        self::assertSame([true, false, false], $answers);
    }

    public function testACallKnowsItsTimes(): void
    {
        $this->server->request(['started' => 1_795_297_449_123_456, 'left' => 30_000]);
        $this->server->request(['left' => null]);
        $this->server->request(['left' => 0]);
        $left = [];
        $started = [];
        $this->serve(function (Request $request) use (&$left, &$started): string {
            $left[] = Call::current()->timeLeft();
            $started[] = Call::current()->startedAt;

            return '';
        });

        self::assertSame(1_795_297_449.123456, $started[0]);
        self::assertGreaterThan(20.0, $left[0]);
        self::assertLessThanOrEqual(30.0, $left[0]);
        self::assertNull($left[1]);
        self::assertSame(0.0, $left[2]);
    }

    public function testExtend(): void
    {
        $this->server->request(['left' => 10]);
        [$extend] = $this->serve(function (Request $request) use (&$left): string {
            Call::current()->extend(61.5);
            Call::current()->extend(1); // takes nothing away
            $left = Call::current()->timeLeft();

            return '';
        });

        self::assertEquals(new Message('extend', 1, number: 61_500), $extend);
        self::assertGreaterThan(50.0, $left);
    }

    /** @dataProvider senseless */
    public function testExtendRefusesATimeThatMakesNoSense(float $seconds): void
    {
        $this->server->request();
        [$error] = $this->serve(function (Request $request) use ($seconds): string {
            Call::current()->extend($seconds);

            return '';
        });

        self::assertStringContainsString('cannot be extended', $error->error['message']);
    }

    /** @return iterable<array{float}> */
    public static function senseless(): iterable
    {
        return [[0.0], [-1.0], [NAN], [INF], [5e9]];
    }

    public function testEarlyHintsComeBeforeTheReplyOnly(): void
    {
        $this->server->request();
        [$hints, $head, $error] = $this->serve(function (Request $request): \Generator {
            Call::current()->earlyHints('</a.css>; rel=preload', '</b.js>; rel=preload');
            Call::current()->earlyHints();
            yield 'a';
            Call::current()->earlyHints('</late.css>; rel=preload');
        });

        self::assertSame(['informational', 103, true], [$hints->kind, $hints->number, $hints->more]);
        self::assertSame(['</a.css>; rel=preload', '</b.js>; rel=preload'], $hints->header('link'));
        self::assertSame('reply', $head->kind);
        self::assertStringContainsString('Early hints come before', $error->error['message']);
    }

    public function testTheApplicationNamesItsRoute(): void
    {
        $this->server->request();
        $refused = [];
        [$route, $reply] = $this->serve(function (Request $request) use (&$refused): string {
            Call::current()->route('users.show');
            foreach (['', "a\nb", 'say "a"', str_repeat('a', 101), 'é'] as $name) {
                $refused[] = self::message(fn () => Call::current()->route($name));
            }

            return 'done';
        });

        self::assertSame(['route', 1, 'users.show'], [$route->kind, $route->call, $route->body]);
        self::assertSame('reply', $reply->kind);
        self::assertCount(1, array_unique($refused));
        self::assertStringContainsString('from 1 to 100 printable', $refused[0]);
    }

    public function testRecordsOfTheApplicationGoToTheServer(): void
    {
        $this->server->request();
        [$first, $second, $third, $reply] = $this->serve(function (Request $request): string {
            $log = new \Pronghorn\Log();
            $log->warning('Cart {id} of {user} is lost.', ['id' => 7, 'list' => [1, 'é'], 'no' => null]);
            $log->emergency(new class () {
                public function __toString(): string
                {
                    return str_repeat('long ', 10_000);
                }
            });
            $log->debug("bytes \xff", ['exception' => new \DomainException('no'), 'much' => str_repeat('a', 100_000)]);

            return 'done';
        });

        self::assertSame('log', $first->kind);
        self::assertSame(4, $first->number);
        self::assertSame('Cart 7 of {user} is lost. {"id":7,"list":[1,"é"],"no":null}', $first->body);
        self::assertSame(0, $second->number);
        self::assertLessThan(17_000, strlen($second->body));
        self::assertStringEndsWith('cut off ', $second->body);
        self::assertSame(7, $third->number);
        self::assertStringStartsWith("bytes \u{fffd} ", $third->body);
        self::assertStringContainsString('{"context_left_out":"it is longer than', $third->body);
        self::assertSame('reply', $reply->kind);
    }

    public function testALevelThatPsr3HasNot(): void
    {
        $this->expectException(\Psr\Log\InvalidArgumentException::class);
        $this->expectExceptionMessage('`loud` is no level of PSR-3: emergency, alert,');
        (new \Pronghorn\Log())->log('loud', 'message');
    }

    public function testWhatIsCountedGoesBehindTheReplyInOneMessage(): void
    {
        foreach (range(1, 3) as $_) {
            $this->server->request();
        }
        $kept = [];
        $orders = \Pronghorn\Metrics::counter('orders_total', ['shop' => "eu \xff"], 'Orders.');
        $orders->add(); // in the boot
        $received = $this->serve(function (Request $request) use (&$kept, $orders): string {
            $kept[] = Call::current();
            if (count($kept) === 2) {
                return 'counts nothing';
            }
            foreach (range(1, 1000) as $_) {
                $orders->add(0.5);
            }
            self::assertSame($orders, \Pronghorn\Metrics::counter('orders_total', ['shop' => "eu \xff"]));
            $open = \Pronghorn\Metrics::gauge('open', ['a' => true, 'b' => 1.5]);
            $open->add(100);
            $open->set(7);
            $open->sub(2);
            $took = \Pronghorn\Metrics::histogram('took', buckets: [1, 2.5]);
            array_map($took->observe(...), [0.5, 1, 2, 3]);

            return \Pronghorn\Metrics::histogram('timed')->time(fn () => 'done');
        });

        $kinds = array_map(fn ($message) => $message->kind, $received);
        self::assertSame(['reply', 'counts', 'reply', 'reply', 'counts'], $kinds);
        $counts = json_decode($received[1]->body, true, flags: JSON_THROW_ON_ERROR);
        $name = ['name' => 'orders_total', 'help' => 'Orders.', 'labels' => ['shop' => "eu \u{fffd}"]];
        self::assertSame($name + ['type' => 'counter', 'add' => 501], $counts[0]);
        $name = ['name' => 'open', 'help' => '', 'labels' => ['a' => 'true', 'b' => '1.5']];
        self::assertSame($name + ['type' => 'gauge', 'set' => 7, 'add' => -2], $counts[1]);
        $name = ['name' => 'took', 'help' => '', 'labels' => []];
        $counted = ['type' => 'histogram', 'buckets' => [1, 2.5], 'counts' => [2, 1, 1], 'sum' => 6.5];
        self::assertSame($name + $counted, $counts[2]);
        self::assertStringContainsString('"labels":{}', $received[1]->body);
        self::assertSame(1, array_sum($counts[3]['counts']));
        self::assertStringContainsString('"add":500', $received[4]->body, 'each change is told once');
    }

    public function testMuchThatIsCountedGoesBefore(): void
    {
        $this->server->request();
        $received = $this->serve(function (Request $request): string {
            foreach (range(1, 1500) as $number) {
                \Pronghorn\Metrics::counter('many', ['n' => $number])->add();
            }

            return 'done';
        });

        $sum = 0;
        foreach ($received as $message) {
            self::assertLessThan(64 * 1024, strlen($message->body));
            $sum += $message->kind === 'counts' ? count(json_decode($message->body)) : 0;
        }
        self::assertSame(1500, $sum);
    }

    public function testWhatCannotBeAMetric(): void
    {
        $metrics = \Pronghorn\Metrics::class;
        foreach (
            [
                [fn () => $metrics::counter('9'), '`9` can\'t name a metric: write letters'],
                [fn () => $metrics::counter("a\n"), 'can\'t name a metric'],
                [fn () => $metrics::counter('a', ['__x' => 1]), '`__x` can\'t name a label'],
                [fn () => $metrics::counter('a', ['x']), '`0` can\'t name a label'],
                [fn () => $metrics::counter('a')->add(-1), 'A counter only grows: -1'],
                [fn () => $metrics::counter('a')->add(NAN), 'A counter only grows: NAN'],
                [fn () => $metrics::gauge('a')->set(INF), 'finite numbers: INF'],
                [fn () => $metrics::histogram('a')->observe(NAN), 'finite numbers: NAN'],
                [fn () => $metrics::histogram('a', buckets: [2, 1]), 'ascend: 1 is behind 2'],
                [fn () => $metrics::histogram('a', buckets: []), 'not an empty one'],
            ] as [$wrong, $why]
        ) {
            try {
                $wrong();
                self::fail("nothing says: $why");
            } catch (\InvalidArgumentException $refused) {
                self::assertStringContainsString($why, $refused->getMessage());
            }
        }
    }

    public function testDeferredWorkRunsAfterTheReply(): void
    {
        $this->server->request();
        $seen = null;
        $order = [];
        $received = $this->serve(function (Request $request) use (&$seen, &$order): string {
            Call::current()->defer(function () use (&$seen, &$order): void {
                $seen = $this->server->received();
                $order[] = 'first';
                Call::current()->defer(function () use (&$order): void {
                    $order[] = 'third';
                });
                throw new \DomainException('not the client\'s business');
            });
            Call::current()->defer(function () use (&$order): void {
                $order[] = 'second';
            });

            return 'done';
        });

        self::assertEquals([new Message('reply', 1, Native::BUSY, number: 200, body: 'done')], $seen);
        self::assertSame(['first', 'second', 'third'], $order);
        self::assertEquals([new Message('free', 1)], $received);
        self::assertStringContainsString('work of GET / failed: DomainException: not the client', $this->log());
    }

    public function testAStreamSaysInItsLastChunkThatTheWorkerIsBusy(): void
    {
        $this->server->request();
        $received = $this->serve(function (Request $request): \Generator {
            yield 'a';
            Call::current()->defer(static fn () => null);
        });

        self::assertSame(['reply', 'chunk', 'free'], array_column($received, 'kind'));
        self::assertSame([0, Native::BUSY, 0], array_column($received, 'flags'));
    }

    public function testDeferredWorkOfAFailedCallRunsToo(): void
    {
        $this->server->request();
        $received = $this->serve(function (Request $request): string {
            Call::current()->defer(static fn () => null);
            throw new \DomainException('x');
        });

        self::assertSame(['error', 'free'], array_column($received, 'kind'));
        self::assertSame(Native::BUSY, $received[0]->flags);
    }

    public function testACallThatIsOverDoesNothingAnyMore(): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $first = null;
        $refused = [];
        $received = $this->serve(function (Request $request) use (&$first, &$refused): string {
            $first ??= Call::current();
            if (Call::current()->id === 2) {
                $refused[] = self::message(fn () => $first->extend(5));
                $refused[] = self::message(fn () => $first->defer(fn () => null));
                $refused[] = self::message(fn () => $first->earlyHints('x'));
                $this->server->cancel(2);
                self::assertTrue($first->clientConnected());
                self::assertFalse(Call::current()->clientConnected(), 'a look at another call must not lose the word');
            }

            return '';
        });

        self::assertCount(3, array_filter($refused));
        self::assertSame(['reply', 'reply'], array_column($received, 'kind'));
    }

    public function testAnOwnLoopsOutputIsLoggedBeforeItWaits(): void
    {
        $loop = $this->loop(function () use (&$logged): void {
            $logged = $this->log();
        });
        echo 'starting';
        $loop->next();
        $loop->stop();
        self::assertSame("starting\n", $logged);
    }

    public function testNoCallIsCurrentOutsideOfOne(): void
    {
        $this->server->request();
        $this->serve(fn (Request $request) => '');

        $this->expectException(NotAWorker::class);
        Call::current();
    }

    public function testWhatIsPrintedComesBeforeWhatIsReturned(): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $received = $this->serve(function (Request $request): string {
            if (Call::current()->id === 1) {
                echo 'one';
                ob_start();
                echo ' two';

                return 'a';
            }
            echo "three\n";

            return 'b';
        });

        self::assertSame(['one twoa', "three\nb"], array_column($received, 'body'));
        self::assertSame('', $this->log());
    }

    public function testTheLengthOfAReplyIsNotThatOfWhatWasReturned(): void
    {
        $this->server->request();
        [$reply] = $this->serve(function (Request $request): Response {
            echo 'printed ';

            return new Response('made', 201, ['content-length' => '4', 'X-A' => '1']);
        });

        self::assertSame(['printed made', 201], [$reply->body, $reply->number]);
        self::assertSame([['X-A', '1']], $reply->headers);
    }

    public function testWhatAStreamPrintsStandsWhereItWasPrinted(): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $pieces = $this->serve(function (Request $request): Response {
            echo '0';
            $write = function (\Closure $send): void {
                $send('1');
                echo '2';
                $send('3');
                echo '4';
            };

            return Call::current()->id === 1 ? new Response(body: (function () use ($write): iterable {
                yield '1';
                echo '2';
                yield '3';
                echo '4';
            })()) : Response::stream($write);
        });

        self::assertSame('01234' . '01234', implode('', array_column($pieces, 'body')));
        self::assertSame('', $this->log());
    }

    public function testWhatIsPrintedBehindAReplyIsCountedAndNotLogged(): void
    {
        $this->server->request(['uri' => 'http://h/a?secret=1']);
        [$reply] = $this->serve(function (Request $request): string {
            Call::current()->defer(function (): void {
                echo 'of a visitor';
            });

            return 'made';
        });

        self::assertSame('made', $reply->body);
        self::assertStringContainsString('GET /a has printed 12 bytes after its reply', $this->log());
        self::assertStringNotContainsString('visitor', $this->log());
    }

    public function testWhatAHandlerHasPrintedThatThrowsIsNowhere(): void
    {
        $this->server->request();
        [$error] = $this->serve(function (Request $request): string {
            echo 'of a visitor';
            throw new \LogicException('thrown');
        });

        self::assertSame('error', $error->kind);
        self::assertSame('', $this->log());
    }

    public function testOutputSurvivesAnApplicationThatClosesAllBuffers(): void
    {
        $level = ob_get_level();
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $received = $this->serve(function (Request $request) use ($level): string {
            echo 'call ' . Call::current()->id;
            while (ob_get_level() > $level) {
                ob_end_flush();
            }
            // Left open, and at the level where ours was.
            ob_start();

            return '';
        });

        self::assertSame(['call 1', 'call 2'], array_column($received, 'body'));
        self::assertSame('', $this->log());
        self::assertSame($level, ob_get_level());
    }

    public function testOutputDoesNotPileUp(): void
    {
        $this->server->raw('1');
        $this->server->raw('2');
        $memory = 0;
        $level = ob_get_level();
        $this->serveRaw(function (string $payload) use (&$memory, $level): string {
            if ($payload === '1') {
                // Not even when the application puts a buffer of its own in the place of ours.
                while (ob_get_level() > $level) {
                    ob_end_clean();
                }
                ob_start();

                return '';
            }
            $line = str_repeat('x', 1023) . "\n";
            for ($i = 0; $i < 32 * 1024; $i++) {
                echo $line;
            }
            $memory = memory_get_usage();

            return '';
        });

        self::assertLessThan(memory_get_usage() + 16 * 1024 * 1024, $memory);
        self::assertSame(32 * 1024 * 1024, strlen($this->log()));
    }

    public function testABodyIsAskedForWhileItIsRead(): void
    {
        $this->server->request(['flags' => Native::BODY_STREAM]);
        $this->server->body(1, 'first ', false);
        $this->server->body(1, 'second', false);
        $this->server->body(1, '', true);
        $received = $this->serve(function (Request $request): string {
            self::assertTrue($request->hasBody());
            $stream = $request->stream();
            self::assertSame('fir', fread($stream, 3));
            self::assertFalse(feof($stream));

            return stream_get_contents($stream) . (feof($stream) ? '.' : '');
        });

        self::assertSame(['want', 'want', 'want', 'reply'], array_column($received, 'kind'));
        self::assertSame('st second.', $received[3]->body);
    }

    public function testABodyThatNobodyReadsIsNotAskedFor(): void
    {
        $this->server->request(['flags' => Native::BODY_STREAM]);
        // The answer to what a call asked for that is over.
        $this->server->body(9, 'late', true);
        $this->server->request(['call' => 2]);
        $received = $this->serve(fn (Request $request) => 'x');

        self::assertSame(['reply', 'reply'], array_column($received, 'kind'));
    }

    public function testAWholeBodyCanBeAskedForTwice(): void
    {
        $this->server->request(['flags' => Native::BODY_STREAM, 'headers' => [['content-type', 'application/json']]]);
        $this->server->body(1, '{"a"', false);
        $this->server->body(1, ':1}', true);
        $received = $this->serve(fn (Request $request) => [
            $request->json(),
            $request->body(),
            stream_get_contents($request->stream()),
        ]);

        self::assertSame('[{"a":1},"{\"a\":1}","{\"a\":1}"]', end($received)->body);
    }

    public function testWhoReadsABodyLearnsThatTheClientLeft(): void
    {
        $this->server->request(['flags' => Native::BODY_STREAM]);
        $this->server->body(1, 'half', false);
        $this->server->cancel(1);
        $seen = [];
        $this->serve(function (Request $request) use (&$seen): string {
            $stream = $request->stream();
            $seen[] = fread($stream, 100);
            foreach ([1, 2] as $try) {
                try {
                    fread($stream, 100);
                } catch (ClientGone) {
                    $seen[] = $try;
                }
            }

            return Call::current()->clientConnected() ? 'here' : 'gone';
        });

        self::assertSame(['half', 1, 2], $seen);
    }

    public function testABodyCannotBeReadOnceTheReplyHasBegun(): void
    {
        $this->server->request(['flags' => Native::BODY_STREAM]);
        $this->server->body(1, 'half', false);
        $message = '';
        $received = $this->serve(function (Request $request) use (&$message): iterable {
            $stream = $request->stream();
            yield fread($stream, 100);
            $message = self::message(static fn () => fread($stream, 100));
            yield 'end';
        });

        self::assertStringContainsString('The reply has begun', $message);
        self::assertSame(['want', 'reply', 'chunk', 'chunk'], array_column($received, 'kind'));
        self::assertStringContainsString('read from its stream', self::message(fn () => $this->partlyRead()->body()));
    }

    private function partlyRead(): Request
    {
        [$this->transport, $this->server] = $this->connect();
        $this->server->request(['flags' => Native::BODY_STREAM]);
        $this->server->body(1, 'half', false);
        $request = $this->transport->next()->request;
        fread($request->stream(), 1);

        return $request;
    }

    public function testAnOwnLoopAnswersThroughTheCall(): void
    {
        foreach ([1, 2, 3, 4] as $call) {
            $this->server->request(['call' => $call, 'uri' => "http://h/$call"]);
        }
        $loop = $this->loop();
        $call = $loop->next()->call();
        self::assertSame($call, Call::current());
        $call->defer(static fn () => null);
        $call->reply('first: ' . $call->request()->path);
        self::assertSame($call->id, 1);

        $loop->next()->call()->fail(new \DomainException('second'));
        $loop->next()->call()->reply((function (): \Generator {
            yield 'third';
        })());
        $loop->next()->call();
        self::assertNull($loop->next());
        $loop->stop();

        $received = $this->server->received();
        self::assertSame(['reply', 'free', 'error', 'reply', 'chunk', 'error'], array_column($received, 'kind'));
        self::assertSame([1, 1, 2, 3, 3, 4], array_column($received, 'call'));
        self::assertSame(Native::BUSY, $received[0]->flags);
        self::assertStringContainsString('has no reply', $received[5]->error['message']);
    }

    public function testACallIsAnsweredOnce(): void
    {
        $this->server->request();
        $loop = $this->loop();
        $call = $loop->next()->call();
        $call->reply('');
        try {
            $this->expectException(Exception::class);
            $call->reply('again');
        } finally {
            $loop->stop();
            self::assertCount(1, $this->server->received());
        }
    }

    public function testAReplyCannotBeSentWhileOneIsSent(): void
    {
        $this->server->request();
        $loop = $this->loop();
        $call = $loop->next()->call();
        $call->reply((function () use ($call): \Generator {
            yield 'a';
            $call->reply('b');
        })());
        $loop->stop();

        $received = $this->server->received();
        self::assertSame(['reply', 'error'], array_column($received, 'kind'));
        self::assertStringContainsString('has been answered', $received[1]->error['message']);
    }

    public function testAHandlerCannotReplyThroughItsCall(): void
    {
        $this->server->request();
        [$error] = $this->serve(function (Request $request): string {
            Call::current()->reply('x');

            return 'y';
        });

        self::assertStringContainsString('a handler returns its reply', $error->error['message']);
    }

    /** @dataProvider payloads */
    public function testBytesAreAnsweredByBytes(string $payload): void
    {
        $this->server->raw($payload, ['call' => 4]);
        $received = $this->serveRaw(strrev(...));

        self::assertEquals([new Message('reply', 4, body: strrev($payload))], $received);
    }

    /** @return iterable<string, array{string}> */
    public static function payloads(): iterable
    {
        yield 'nothing' => [''];
        yield 'one byte' => ["\0"];
        yield 'some' => ["\0\xff any bytes"];
        yield 'many' => [str_repeat("\xff\0", 50_000)];
    }

    public function testWorkersMayAnswerMoreThanOneKind(): void
    {
        $this->server->raw('bytes', ['call' => 1]);
        $this->server->request(['call' => 2]);
        $this->server->raw('again', ['call' => 3]);
        $received = $this->answerAll([
            'http' => HttpHandler::of(fn (Request $request) => $request->path, new Messages([])),
            'raw' => RawHandler::of(fn (string $payload) => "<$payload>"),
        ]);

        self::assertSame(['<bytes>', '/', '<again>'], array_column($received, 'body'));
        self::assertSame([0, 200, 0], array_column($received, 'number'));
    }

    public function testWhatAHandlerOfRawCallsThrowsFailsTheCall(): void
    {
        $this->server->raw('one', ['call' => 1]);
        $this->server->raw('two', ['call' => 2]);
        $received = $this->serveRaw(fn (string $payload) => match ($payload) {
            'one' => throw new \DomainException('no such thing'),
            default => 'good',
        });

        self::assertSame(['error', 'reply'], array_column($received, 'kind'));
        self::assertSame(['DomainException', 'no such thing'], [
            $received[0]->error['class'], $received[0]->error['message'],
        ]);
    }

    /** @dataProvider noBytes */
    public function testAHandlerOfRawCallsReturnsAString(mixed $returned, string $type): void
    {
        $this->server->raw('x');
        [$error] = $this->serveRaw(fn (string $payload) => $returned);

        self::assertSame('TypeError', $error->error['class']);
        self::assertStringStartsWith("A handler of raw calls returned $type.", $error->error['message']);
    }

    /** @return iterable<string, array{mixed, string}> */
    public static function noBytes(): iterable
    {
        yield 'nothing' => [null, 'null'];
        yield 'a number' => [5, 'int'];
        yield 'a response' => [new Response('x'), Response::class];
    }

    public function testARawCallIsACallButNoRequest(): void
    {
        $this->server->raw('x', ['call' => 9, 'started' => 1_500_000, 'left' => 60_000]);
        $seen = [];
        $received = $this->serveRaw(function (string $payload) use (&$seen): string {
            $call = Call::current();
            $seen = [$call->id, $call->startedAt, $call->timeLeft() > 50, $call->clientConnected()];
            $seen[] = self::message(fn () => $call->request());
            $seen[] = self::message(fn () => $call->earlyHints('</app.css>'));
            $call->extend(5);
            $call->defer(function () use (&$seen): void {
                $seen[] = count($this->server->received());
            });

            return 'good';
        });

        $refused = 'This call is no HTTP request.';
        self::assertSame([9, 1.5, true, true, $refused, $refused, 2], $seen);
        self::assertEquals([new Message('free', 9)], $received);
    }

    public function testWorkThatARawCallDeferredMayFail(): void
    {
        $this->server->raw('x');
        $this->serveRaw(function (string $payload): string {
            Call::current()->defer(fn () => throw new \LogicException('deferred too far'));

            return 'good';
        });

        self::assertStringContainsString('pronghorn: deferred work of a raw call failed: ', $this->log());
        self::assertStringContainsString('deferred too far', $this->log());
    }

    public function testWhatAHandlerOfRawCallsEchoesGoesToTheLog(): void
    {
        $this->server->raw('x');
        [$reply] = $this->serveRaw(function (string $payload): string {
            echo 'echoed';

            return 'good';
        });

        self::assertSame('good', $reply->body);
        self::assertSame("echoed\n", $this->log());
    }

    public function testAJobIsDoneWhenItsHandlerReturns(): void
    {
        $headers = [['content-type', 'application/json'], ['a', '1']];
        $this->server->job('{"to":"x"}', ['call' => 4, 'attempt' => 3, 'left' => 1000, 'headers' => $headers]);
        $seen = null;
        $received = $this->serveJob(function (Job $job) use (&$seen): string {
            $seen = [$job->name, $job->payload(), $job->header('a'), $job->header('b'), $job->attempt];
            self::assertEqualsWithDelta(1.0, $job->timeLeft(), 0.9);

            return 'nobody waits for it';
        });

        self::assertSame(['ping', ['to' => 'x'], '1', null, 3], $seen);
        self::assertEquals([new Message('reply', 4)], $received);
    }

    public function testWhatAJobIsAtMayBeNoUtf8(): void
    {
        (new \ReflectionProperty(Job::class, 'server'))->setValue(null, null);
        $channel = new class extends WorkerChannel {
            /** @var list<string> */
            public array $called = [];

            public function call(string $method, string $argument): array
            {
                $this->called[] = "$method $argument";

                return [true, 'null'];
            }
        };
        $this->server->job('', ['id' => 'a']);
        [$reply] = $this->serveJob(function (Job $job) use ($channel): void {
            $before = WorkerChannel::$current;
            try {
                WorkerChannel::$current = $channel;
                $job->progress(0.5, "<M\xfcller> & \"ö\".csv");
            } finally {
                WorkerChannel::$current = $before;
                (new \ReflectionProperty(Job::class, 'server'))->setValue(null, null);
            }
        });
        self::assertSame(Native::JOB_DONE, $reply->number);
        [$method, $argument] = explode(' ', $channel->called[0] ?? '', 2);
        self::assertSame('jobs.Progress', $method);
        self::assertSame("<M\u{FFFD}ller> & \"ö\".csv", json_decode($argument, true)['text']);
    }

    public function testWhatAHandlerReturnsGoesToWhoeverWaitsForIt(): void
    {
        $this->server->job('', ['flags' => Native::WANTS_RESULT]);
        $this->server->job('', ['flags' => Native::WANTS_RESULT, 'name' => 'nan']);
        [$good, $bad] = $this->serveJob(fn (Job $job) => $job->name === 'nan' ? \NAN : ['sent' => 3, 'paid' => 1.0]);

        self::assertSame([Native::JOB_DONE, '{"sent":3,"paid":1.0}'], [$good->number, $good->body]);
        self::assertSame(Native::JOB_DONE_WITHOUT, $bad->number, 'its work is done');
        self::assertStringStartsWith("what its handler returned can't be written as JSON: ", $bad->body);
    }

    public function testAHandlerSaysWhatIsToBecomeOfItsJob(): void
    {
        foreach (['fail', 'fail and throw', 'again', 'throw'] as $name) {
            $this->server->job('', ['name' => $name]);
        }
        $received = $this->serveJob(function (Job $job): void {
            match ($job->name) {
                'fail' => $job->fail('no such address'),
                'again' => $job->retryIn(1.5, new \DomainException('busy')),
                'throw' => throw new \DomainException('down'),
                default => $job->fail() ?? throw new \LogicException('too late'),
            };
        });

        self::assertSame(
            ['reply 1', 'reply 1', 'reply 2', 'error 0'],
            array_map(fn (Message $it) => "$it->kind $it->number", $received),
        );
        self::assertSame(['no such address', ''], [$received[0]->body, $received[1]->body]);
        self::assertSame([['delay', 1500]], $received[2]->headers);
        self::assertStringStartsWith('DomainException: busy in ', $received[2]->body);
        self::assertSame('down', $received[3]->error['message']);
    }

    public function testAJobThatReturnsAGeneratorHasNotRun(): void
    {
        $this->server->job('', ['name' => 'mail']);
        $received = $this->serveJob(fn (Job $job) => (static function () use ($job): \Generator {
            yield $job->name;
        })());

        self::assertSame('error', $received[0]->kind);
        self::assertStringContainsString('a generator, which nobody runs', $received[0]->error['message']);
    }

    public function testWhatAHandlerSaysFirstOfItsJobCounts(): void
    {
        foreach (['fail', 'again', 'caught'] as $name) {
            $this->server->job('', ['name' => $name]);
        }
        $told = [];
        $received = $this->serveJob(function (Job $job) use (&$told): void {
            $job->name === 'again' ? $job->retryIn(1.5) : $job->fail('no such address');
            try {
                $job->name === 'again' ? $job->fail() : $job->retryIn(9);
                $told[] = 'it went on';
            } catch (\LogicException $thrown) {
                $told[] = $thrown->getMessage();
                if ($job->name !== 'caught') {
                    throw $thrown;
                }
            }
        });

        self::assertSame(
            [Native::JOB_FAILED, Native::JOB_RETRY, Native::JOB_FAILED],
            array_map(fn (Message $it) => $it->number, $received),
        );
        self::assertSame([['delay', 1500]], $received[1]->headers);
        $rest = 'was called for this job before, and counts: write `return` after it.';
        self::assertSame(["fail() $rest", "retryIn() $rest", "fail() $rest"], $told);
    }

    public function testAHandlerOfConnectionsAnswersTheirClients(): void
    {
        $this->server->tcp('', ['event' => Native::TCP_CONNECTED]);
        $this->server->tcp("a\r\n", ['left' => 1000]);
        $this->server->tcp("quit\r\n");
        $this->server->tcp('', ['event' => Native::TCP_CLOSED]);
        $received = $this->serveTcp(function (TcpConnection $connection): ?string {
            if ($connection->message === "a\r\n") {
                self::assertEqualsWithDelta(1.0, $connection->timeLeft(), 0.9);
            }
            if ($connection->message === "quit\r\n") {
                $connection->close();
            }

            return match ($connection->event) {
                TcpEvent::Connected => 'hello',
                TcpEvent::Message => $connection->message,
                TcpEvent::Closed => null,
            };
        });

        self::assertSame(
            [[0, 'hello'], [0, "a\r\n"], [Native::TCP_CLOSE, "quit\r\n"], [0, '']],
            array_map(fn (Message $it) => [$it->number, $it->body], $received),
        );
    }

    public function testTheStateOfAConnectionGoesToTheServerWhenItHasChanged(): void
    {
        $known = ['lines' => 1, 'raw' => "\xff"];
        $changes = ['none', 'more', 'nothing', 'object', 'long'];
        foreach ($changes as $change) {
            $this->server->tcp($change, ['state' => serialize($known)]);
        }
        $this->server->tcp('none', ['state' => 'O:8:"stdClass":0:{}']);
        $this->server->tcp('none', ['state' => '']);
        $seen = [];
        $received = $this->serveTcp(function (TcpConnection $connection) use (&$seen): ?string {
            $seen[] = $connection->state;
            match ($connection->message) {
                'more' => $connection->state['lines']++,
                'nothing' => $connection->state = [],
                'object' => $connection->state['deep'] = ['er' => new \stdClass()],
                'long' => $connection->state[] = str_repeat('x', 65_536),
                default => null,
            };

            return null;
        });

        self::assertSame([$known, $known, $known, $known, $known, [], []], $seen);
        self::assertSame(
            ['reply 0', 'reply 2', 'reply 2', 'error 0', 'error 0', 'reply 2', 'reply 0'],
            array_map(fn (Message $it) => "$it->kind $it->number", $received),
        );
        self::assertSame([['state', serialize(['lines' => 2, 'raw' => "\xff"])]], $received[1]->headers);
        self::assertStringContainsString('an object of stdClass', $received[3]->error['message']);
        self::assertStringContainsString('at most 64 KB are kept', $received[4]->error['message']);
    }

    public function testWhatIsNoAnswerToAClientEndsItsConnection(): void
    {
        foreach (['throw', 'array'] as $message) {
            $this->server->tcp($message);
        }
        $received = $this->serveTcp(fn (TcpConnection $connection) => $connection->message === 'throw'
            ? throw new \DomainException('down')
            : ['an array']);

        self::assertSame(['error', 'error'], array_map(fn (Message $it) => $it->kind, $received));
        self::assertSame('down', $received[0]->error['message']);
        self::assertStringStartsWith('A handler of connections returned array. ', $received[1]->error['message']);
    }

    public function testACallOfAKindThatNoHandlerIsForEndsTheWorker(): void
    {
        $this->server->raw('x');
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage('a call of the kind `raw`, which this worker does not answer');
        $this->serve(fn (Request $request) => 'x');
    }

    public function testAnOwnLoopTakesNoRawCalls(): void
    {
        $this->server->raw('x');
        $loop = $this->loop();
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage('a call of the kind `raw`, which this worker does not answer');
        try {
            $loop->next();
        } finally {
            $loop->stop();
        }
    }

    public function testWhenTheServerIsGoneAWriteSaysSo(): void
    {
        $this->server->request();
        $this->expectException(ConnectionLost::class);
        $this->serve(function (Request $request): string {
            $this->server->close();

            return 'x';
        });
    }

    public function testNothingOfACallIsKeptUntilTheNextOne(): void
    {
        $this->server->request(['call' => 1]);
        $this->server->request(['call' => 2]);
        $request = null;
        $alive = [];
        $this->serve(
            function (Request $given) use (&$request): string {
                $request = \WeakReference::create($given);
                // Which must not make a circle of call and request.
                Call::current();

                return '';
            },
            function () use (&$request, &$alive): void {
                $alive[] = $request?->get() !== null;
            },
        );

        self::assertSame([false, false, false], $alive);
    }

    /** What was thrown, if anything. */
    private static function message(\Closure $try): string
    {
        try {
            $try();
        } catch (Exception $thrown) {
            return $thrown->getMessage();
        }

        return '';
    }

    /**
     * Answers all requests of the server.
     *
     * @param ?\Closure(): void $idle called before each wait for a request
     * @return list<Message>
     */
    protected function serve(callable $handler, ?\Closure $idle = null): array
    {
        return $this->answerAll(['http' => HttpHandler::of($handler, new Messages([]))], $idle);
    }

    /**
     * Answers all raw calls of the server.
     *
     * @return list<Message>
     */
    private function serveRaw(callable $handler): array
    {
        return $this->answerAll(['raw' => RawHandler::of($handler)]);
    }

    /**
     * Runs all jobs of the server.
     *
     * @return list<Message>
     */
    private function serveJob(callable $handler): array
    {
        return $this->answerAll(['job' => JobHandler::of($handler)]);
    }

    /**
     * Answers all events of the server.
     *
     * @return list<Message>
     */
    private function serveTcp(callable $handler): array
    {
        return $this->answerAll(['tcp' => TcpHandler::of($handler)]);
    }

    /**
     * @param array<string, Handler> $handlers
     * @return list<Message>
     */
    private function answerAll(array $handlers, ?\Closure $idle = null): array
    {
        $loop = $this->loop($idle);
        try {
            $loop->run($handlers);
        } finally {
            $loop->stop();
        }

        return $this->server->received();
    }

    protected function loop(?\Closure $idle = null): Loop
    {
        $transport = new UntilServed($this->transport, $this->server);
        $transport->idle = $idle;

        return new Loop($transport, new Output($this->log), new Messages([]));
    }

    private function log(): string
    {
        rewind($this->log);

        return (string) stream_get_contents($this->log);
    }
}
