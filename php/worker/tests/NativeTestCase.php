<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Exception;
use Pronghorn\File;
use Pronghorn\Internal\Failure;
use Pronghorn\Internal\Frame;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Internal\Transport;
use Pronghorn\TcpEvent;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\Server;
use Pronghorn\Tests\Support\Vectors;

/** The vectors of the native codec, the same over every transport. */
abstract class NativeTestCase extends TestCase
{
    /** @return array{Transport, Server} two ends that are connected; the handshake is done */
    abstract protected static function connect(): array;

    /**
     * @dataProvider requests
     * @param array<string, mixed> $vector
     */
    public function testReadsRequests(array $vector): void
    {
        [$relay, $server] = static::connect();
        $server->send(hex2bin($vector['frame_hex']));
        $exchange = $relay->next();
        $fields = self::latin1($vector['fields']);

        self::assertSame($fields['call'], $exchange->id);
        self::assertSame($fields['started'], $exchange->request->startedAt());
        self::assertSame($fields['left'] === null, $exchange->deadline === null);
        $request = $exchange->request;
        self::assertSame($fields['method'], $request->method);
        self::assertSame($fields['remote'], $request->remoteAddress);
        self::assertSame($fields['uri'], $request->uri);
        self::assertSame($fields['path'], $request->path);
        self::assertSame($fields['query'], $request->queryString);
        self::assertSame(sprintf('HTTP/%.1f', $fields['protocol'] / 10), $request->protocol);
        self::assertSame(self::grouped($fields['headers']), array_diff_key($request->headers, ['host' => 1]));
        self::assertSame(array_column($fields['attributes'], 1, 0), $request->attributes);
        if ($fields['flags'] & Native::BODY_FILE) {
            self::assertSame(hex2bin($vector['body_hex']), $request->bodyFile());
        } elseif ($fields['flags'] & Native::BODY_STREAM) {
            $server->body($fields['call'], 'asked for', true);
            self::assertSame('asked for', $request->body());
        } elseif ($fields['flags'] & Native::FORM) {
            self::assertSame('', $request->body());
            self::assertCount(array_count_values(array_column($fields['form'], 'kind'))[0] ?? 0, $request->form());
        } else {
            self::assertSame(hex2bin($vector['body_hex']), $request->body());
        }
    }

    /** @return iterable<string, array{array<string, mixed>}> */
    public static function requests(): iterable
    {
        foreach (Vectors::named('native', 'messages') as $name => [$vector]) {
            if ($vector['kind'] === 'request') {
                yield $name => [$vector];
            }
        }
    }

    public function testReadsTheFormOfTheVectors(): void
    {
        [$relay, $server] = static::connect();
        $vector = iterator_to_array(Vectors::named('native', 'messages'))['multipart form'][0];
        $server->send(hex2bin($vector['frame_hex']));
        $request = $relay->next()->request;

        self::assertSame(['title' => 'Hello', 'tags' => ['été']], $request->form());
        [$cv, $none] = $request->files()['file'];
        self::assertInstanceOf(File::class, $cv);
        self::assertSame(
            ['cv.pdf', 'application/pdf', 12345, 0, '/tmp/pronghorn/upload-1'],
            [$cv->name, $cv->type, $cv->size, $cv->error, $cv->path()],
        );
        self::assertSame(UPLOAD_ERR_NO_FILE, $none->error);
    }

    /**
     * @dataProvider replies
     * @param array<string, mixed> $vector
     */
    public function testWritesReplies(array $vector): void
    {
        [$relay, $server] = static::connect();
        $fields = self::latin1($vector['fields']);
        if ($vector['kind'] === 'want') {
            // It waits for what it asks for.
            $server->body($fields['call'], '', true);
        }
        if ($vector['kind'] === 'free') {
            // The extension tells, once, how long ago the reply to this call was, which another
            // vector has.
            $relay->free($fields['call']);
            $server->bytes();
        }
        self::write($relay, $vector['kind'], $fields, hex2bin($vector['body_hex']), $vector['stream'] === 1);

        self::assertSame($vector['frame_hex'], bin2hex($server->bytes()));
    }

    /** @return iterable<string, array{array<string, mixed>}> */
    public static function replies(): iterable
    {
        foreach (Vectors::named('native', 'messages') as $name => [$vector]) {
            // Nobody can ask for a certain `rest`.
            $isAskedFor = $vector['kind'] !== 'pong' && !isset($vector['fields']['rest']);
            if ($vector['direction'] === 'to server' && $isAskedFor) {
                yield $name => [$vector];
            }
        }
    }

    public function testAnswersPingAndIgnoresACancelThatCameTooLate(): void
    {
        [$relay, $server] = static::connect();
        foreach (Vectors::named('native', 'messages') as [$vector]) {
            if ($vector['direction'] === 'to worker' && $vector['kind'] !== 'request') {
                $server->send(hex2bin($vector['frame_hex']));
            }
        }
        $server->hangUp();

        self::assertNull($relay->next());
        [$pong] = $server->received();
        self::assertSame(['pong', 8], [$pong->kind, $pong->call]);
    }

    /**
     * @dataProvider broken
     * @param array<string, string> $vector
     */
    public function testRefusesBrokenRequests(array $vector): void
    {
        [$relay, $server] = static::connect();
        $server->send(Codec::frame(hex2bin($vector['context_hex']), hex2bin($vector['body_hex'])));

        $this->expectException(ProtocolError::class);
        $request = $relay->next()->request;
        // Tables and forms are decoded when somebody asks, and so refused only then.
        $request->headers;
        $request->attributes;
        $request->form();
    }

    /** @return iterable<string, array{array<string, string>}> */
    public static function broken(): iterable
    {
        foreach (Vectors::named('native', 'broken') as $name => [$vector]) {
            if ($vector['direction'] === 'to worker') {
                yield $name => [$vector];
            }
        }
    }

    public function testCutsAtEveryByteAreRefusedOrWaitForMore(): void
    {
        $context = Codec::request(['headers' => [['a', 'b']], 'attributes' => [['c', 'd']]]);
        for ($length = 0; $length < strlen($context); $length++) {
            [$relay, $server] = static::connect();
            $server->send(Codec::frame(substr($context, 0, $length)));
            try {
                $request = $relay->next()->request;
                $request->headers;
                $request->attributes;
                self::fail("$length bytes of a context were taken for a request");
            } catch (ProtocolError) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testReadsAndAnswersTheRawCallOfTheVectors(): void
    {
        [$relay, $server] = static::connect();
        [[$call], [$reply]] = array_values(iterator_to_array(Vectors::named('native', 'raw')));
        $server->send(hex2bin($call['frame_hex']));
        $exchange = $relay->next();
        self::assertSame(
            [$call['fields']['call'], $call['fields']['started'], hex2bin($call['body_hex'])],
            [$exchange->id, $exchange->startedAt(), $exchange->payload],
        );
        self::assertNotNull($exchange->deadline);

        $relay->replyRaw($reply['fields']['call'], hex2bin($reply['body_hex']), $reply['fields']['flags']);
        self::assertSame($reply['frame_hex'], bin2hex($server->bytes()));
    }

    public function testReadsTheJobsOfTheVectorsAndAnswersThem(): void
    {
        foreach (Vectors::named('native', 'jobs') as $name => [$vector]) {
            [$relay, $server] = static::connect();
            $fields = $vector['fields'];
            if ($vector['direction'] === 'to server') {
                $body = hex2bin($vector['body_hex']);
                $relay->replyJob($fields['call'], $fields['outcome'], $fields['delay'] ?? 0, $body, $fields['flags']);
                self::assertSame($vector['frame_hex'], bin2hex($server->bytes()), $name);
                continue;
            }
            $server->send(hex2bin($vector['frame_hex']));
            $exchange = $relay->next();
            $job = $exchange->job;
            $headers = [];
            foreach ($fields['headers'] as [$header, $value]) {
                $headers[$header][] = $value;
            }
            self::assertSame(
                [$fields['call'], $fields['started'], $fields['flags'], $fields['left'] === null],
                [
                    $exchange->id,
                    $exchange->startedAt(),
                    $exchange->wantsResult ? Native::WANTS_RESULT : 0,
                    $exchange->deadline === null,
                ],
                $name,
            );
            $keys = ['id', 'name', 'pipeline', 'driver', 'attempt'];
            self::assertSame(
                array_map(fn (string $key) => $fields[$key], $keys),
                array_map(fn (string $key) => $job->$key, $keys),
                $name,
            );
            self::assertSame([hex2bin($vector['body_hex']), $headers], [$job->body, $job->headers], $name);
        }
    }

    public function testReadsTheEventsOfConnectionsOfTheVectorsAndAnswersThem(): void
    {
        $events = ['connected' => TcpEvent::Connected, 'data' => TcpEvent::Message, 'closed' => TcpEvent::Closed];
        foreach (Vectors::named('native', 'tcp') as $name => [$vector]) {
            [$relay, $server] = static::connect();
            [$fields, $body] = [self::latin1($vector['fields']), $vector['body_hex']];
            $state = $fields['state'];
            if ($vector['direction'] === 'to server') {
                $relay->replyTcp($fields['call'], $fields['close'], $state, hex2bin($body), $fields['flags']);
                self::assertSame($vector['frame_hex'], bin2hex($server->bytes()), $name);
                continue;
            }
            $server->send(hex2bin($vector['frame_hex']));
            $exchange = $relay->next();
            $connection = $exchange->connection;
            self::assertSame(
                [$fields['call'], $fields['started'], $fields['left'] === null, $state],
                [$exchange->id, $exchange->startedAt(), $exchange->deadline === null, $exchange->packedState],
                $name,
            );
            self::assertSame(
                [
                    $events[$fields['event']], hex2bin($body), $fields['connection'], $fields['server'],
                    $fields['remote'], $fields['flags'] === Native::TLS, $fields['certificate'],
                ],
                [
                    $connection->event, $connection->message, $connection->id, $connection->server,
                    $connection->remoteAddress, $connection->isEncrypted, $connection->certificate,
                ],
                $name,
            );
            self::assertSame([], $connection->state, 'no state of PHP');
        }
    }

    public function testReadsTheGrpcCallsOfTheVectorsAndAnswersThem(): void
    {
        foreach (Vectors::named('native', 'grpc') as $name => [$vector]) {
            if ($vector['direction'] === 'to server') {
                continue;
            }
            [$relay, $server] = static::connect();
            $fields = $vector['fields'];
            $server->send(hex2bin($vector['frame_hex']));
            $exchange = $relay->next();
            $call = $exchange->grpcCall;
            $metadata = [];
            foreach ($fields['metadata'] as [$key, $value]) {
                $metadata[$key][] = $value;
            }
            self::assertSame(
                [$fields['call'], $fields['started'], $fields['service'], $fields['method'], $metadata],
                [$exchange->id, $exchange->startedAt(), $call->service, $call->method, $call->metadata],
                $name,
            );
            self::assertSame(
                [($fields['flags'] & Native::BODY_STREAM) !== 0, ($fields['flags'] & Native::STREAMS) !== 0],
                [$call->clientStreams, $call->serverStreams],
                $name,
            );
            if ($name === 'a unary call') {
                self::assertSame(["\x0a\x01x"], iterator_to_array($call->messages()));
                self::assertSame("\x0a\x01x", $call->message());
                $call->send("\x0a\x01y");
                $call->end();
                $reply = iterator_to_array(Vectors::named('native', 'grpc'))['a message and success'][0];
                self::assertSame($reply['frame_hex'], bin2hex($server->bytes()));
            }
        }
    }

    public function testCutsOfAGrpcCallAreRefused(): void
    {
        $vector = iterator_to_array(Vectors::named('native', 'grpc'))['a client that streams'][0];
        $context = hex2bin($vector['context_hex']);
        for ($length = 0; $length < strlen($context); $length++) {
            [$relay, $server] = static::connect();
            $server->send(Codec::frame(substr($context, 0, $length)));
            try {
                $relay->next();
                self::fail("$length bytes of a context were taken for a gRPC call");
            } catch (ProtocolError) {
                $this->addToAssertionCount(1);
            }
        }
    }

    public function testCutsOfAJobAreRefused(): void
    {
        $context = Codec::job(['headers' => [['a', 'b']]]);
        for ($length = 0; $length < strlen($context); $length++) {
            [$relay, $server] = static::connect();
            $server->send(Codec::frame(substr($context, 0, $length)));
            try {
                $relay->next();
                self::fail("$length bytes of a context were taken for a job");
            } catch (ProtocolError) {
                $this->addToAssertionCount(1);
            }
        }
    }

    /** @dataProvider wrong */
    public function testRefusesRequestsThatCannotBe(string $frame, string $message): void
    {
        [$relay, $server] = static::connect();
        $server->send($frame);
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage($message);
        $relay->next();
    }

    /** @return iterable<string, array{string, string}> */
    public static function wrong(): iterable
    {
        $frame = Codec::frame(Codec::request([]));
        yield 'check sum' => [substr_replace($frame, 'XXXX', 6, 4), 'crc: '];
        yield 'call 0' => [Codec::frame(Codec::request(['call' => 0])), 'leave its frame'];
        yield 'context longer than the payload' => [substr_replace($frame, pack('V', 500), 12, 4), 'leave its frame'];
        yield 'no context' => [substr_replace($frame, pack('V', 0), 12, 4), 'leave its frame'];
        yield 'a reply' => [Codec::frame(Codec::envelope(Native::REPLY, 1)), '0x81'];
        yield 'a raw call 0' => [Codec::frame(Codec::raw(['call' => 0]), 'x'), 'raw'];
        yield 'a raw call in a file' => [Codec::frame(Codec::raw(['flags' => Native::BODY_FILE]), '/x'), 'raw'];
        yield 'a raw call with a longer head' => [Codec::frame(Codec::raw([]) . 'x', 'x'), 'raw'];
        yield 'a raw call with half a head' => [Codec::frame(substr(Codec::raw([]), 0, 19)), '0x03'];
        yield 'a job 0' => [Codec::frame(Codec::job(['call' => 0])), 'a job'];
        yield 'a job in a file' => [Codec::frame(Codec::job(['flags' => Native::BODY_FILE]), '/x'), 'a job'];
        yield 'a job with a longer head' => [Codec::frame(Codec::job([]) . 'x', 'x'), 'a job'];
        yield 'an event 0' => [Codec::frame(Codec::tcp(['call' => 0])), 'an event'];
        yield 'an event that is none' => [Codec::frame(Codec::tcp(['event' => 3])), 'an event'];
        yield 'an event in a file' => [Codec::frame(Codec::tcp(['flags' => Native::BODY_FILE]), '/x'), 'an event'];
        yield 'an event with a longer head' => [Codec::frame(Codec::tcp([]) . 'x', 'x'), 'an event'];
        yield 'another codec' => [Frame::encode(Frame::JSON, 0, [2], '{}'), 'neither control nor native'];
        yield 'two options' => [Frame::encode(Frame::NATIVE, 0, [8, 0], '12345678'), 'neither control nor native'];
        yield 'half an envelope' => [Frame::encode(Frame::NATIVE, 0, [4], '12345678'), 'neither control nor native'];
    }

    public function testAMessageOfAnUnknownKindIsIgnoredOnlyWhenItSaysSo(): void
    {
        [$relay, $server] = static::connect();
        $server->send(Codec::frame(Codec::envelope(0x40, 1, Native::IGNORABLE)));
        $server->request(['call' => 7]);
        self::assertSame(7, $relay->next()->id);

        $server->send(Codec::frame(Codec::envelope(0x40, 1)));
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage('0x40');
        $relay->next();
    }

    public function testTakesFramesInWhateverPiecesTheyCome(): void
    {
        $body = random_bytes(20000);
        $bytes = Codec::frame(Codec::request(['call' => 1, 'method' => 'POST']), $body);
        $bytes .= Codec::frame(Codec::request(['call' => 2]));
        [$relay, $server] = static::connect();
        $server->send($bytes);
        self::assertSame($body, $relay->next()->request->body());
        self::assertSame(2, $relay->next()->id);

        foreach ([1, 11, 12, 13, 59, 60, 61, 8191, 8192, 8193] as $cut) {
            [$relay, $server] = static::connect();
            $server->send(substr($bytes, 0, $cut));
            // The rest arrives when the worker has read what is there.
            $relay->cancelled(9);
            $server->send(substr($bytes, $cut));
            self::assertSame($body, $relay->next()->request->body(), "cut after $cut bytes");
            self::assertSame(2, $relay->next()->id);
        }
    }

    /**
     * Whatever bytes come: a request, an exception of this package, or the end. Never a warning,
     * never a crash.
     */
    public function testBrokenBytesAreRefusedInGoodOrder(): void
    {
        mt_srand(4711);
        $context = Codec::request([
            'flags' => Native::FORM,
            'headers' => [['accept', '*/*'], ['cookie', 'a=1; b[c]=2'], ['content-type', 'multipart/form-data']],
            'attributes' => [['x', 'y']],
        ]);
        $form = Codec::form([
            ['name' => 'a[b]', 'value' => '1'],
            ['kind' => 1, 'name' => 'f[]', 'value' => 'x', 'type' => 'text/plain', 'path' => '/tmp/x', 'size' => 5],
        ]);
        $taken = 0;
        for ($round = 0; $round < 4000; $round++) {
            [$relay, $server] = static::connect();
            $server->send(self::mutant($context, $form));
            $server->hangUp();
            try {
                while (($request = $relay->next()?->request) !== null) {
                    $taken++;
                    [$request->headers, $request->cookies, $request->attributes, $request->path, $request->query()];
                    [$request->form(), $request->files(), $request->bodyFile() ?? $request->body()];
                }
            } catch (Exception) {
            }
        }
        self::assertGreaterThan(100, $taken);
    }

    /**
     * A request with one to three bytes changed, in a frame that says the truth or is changed
     * itself.
     */
    private static function mutant(string $context, string $form): string
    {
        $cut = static function (string $bytes): string {
            for ($changes = mt_rand(1, 3); $changes > 0; $changes--) {
                $bytes[mt_rand(0, strlen($bytes) - 1)] = chr([0, 1, 0x7F, 0xFF, mt_rand(0, 255)][mt_rand(0, 4)]);
            }

            return mt_rand(0, 9) === 0 ? substr($bytes, 0, mt_rand(0, strlen($bytes))) : $bytes;
        };

        return match (mt_rand(0, 3)) {
            0 => $cut(Codec::frame($context, $form)),
            1 => Codec::frame($context, $cut($form)),
            default => Codec::frame($cut($context), $form),
        };
    }

    /** @param array<string, mixed> $fields */
    private static function write(Transport $to, string $kind, array $fields, string $body, bool $more): void
    {
        ['call' => $call, 'flags' => $flags] = $fields;
        match ($kind) {
            'reply' => $to->reply($call, $fields['status'], self::grouped($fields['headers']), $body, $flags, $more),
            'chunk' => $to->chunk($call, $body, $flags, $more),
            'informational' => $to->informational($call, $fields['status'], self::grouped($fields['headers'])),
            'error' => $to->error($call, new Failure(
                $fields['class'],
                $fields['message'],
                $fields['file'],
                $fields['line'],
                $fields['trace'],
            ), $flags),
            'extend' => $to->extend($call, $fields['left']),
            'free' => $to->free($call),
            'want' => $to->body($call, $fields['most']),
        };
    }

    /**
     * @param list<array{string, string}> $fields
     * @return array<string, list<string>>
     */
    private static function grouped(array $fields): array
    {
        $grouped = [];
        foreach ($fields as [$name, $value]) {
            $grouped[$name][] = $value;
        }

        return $grouped;
    }

    /**
     * Strings of the vectors stand for the bytes of the same number, except in forms and errors.
     */
    private static function latin1(array $fields): array
    {
        if (isset($fields['form']) || isset($fields['class'])) {
            return $fields;
        }
        array_walk_recursive($fields, static function (mixed &$value): void {
            $value = is_string($value) ? iconv('UTF-8', 'ISO-8859-1', $value) : $value;
        });

        return $fields;
    }
}
