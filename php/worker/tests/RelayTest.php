<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Kind;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Internal\Relay;
use Pronghorn\Tests\Support\Codec;
use Pronghorn\Tests\Support\SocketServer;

final class RelayTest extends TransportTestCase
{
    protected function connect(): array
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);

        return [new Relay(new Pipes($worker, $worker)), new SocketServer($server)];
    }

    public function testTheHandshakeSaysWhatTheWorkerSpeaks(): void
    {
        $this->server->send(Codec::control('{"pid":1,"native":1}'));
        $this->transport->announce([Kind::Http]);
        [$answer] = $this->server->received();

        $said = json_decode($answer->body, true);
        self::assertSame(
            ['pid' => getmypid(), 'codec' => 'native', 'version' => 1, 'kinds' => ['http'], 'settings' => ''],
            array_diff_key($said, ['sdk' => 1, 'php' => 1]),
        );
        self::assertMatchesRegularExpression('#^pronghorn/worker \d+\.\d+\.\d+$#', $said['sdk']);
        self::assertSame(PHP_VERSION, $said['php']);
    }

    /** @dataProvider notOurs */
    public function testAServerThatSpeaksSomethingElseIsRefused(string $bytes, string $message): void
    {
        $this->server->send($bytes);
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage($message);
        $this->transport->announce([Kind::Http]);
    }

    /** @return iterable<string, array{string, string}> */
    public static function notOurs(): iterable
    {
        yield 'RoadRunner' => [Codec::control('{"pid":1}'), 'native codec'];
        yield 'text' => ["HTTP/1.1 400 Bad Request\r\n\r\n", '"HTTP/1.1 400 Bad Request\r\n'];
        yield 'a call at once' => [Codec::frame(Codec::request([])), 'control'];
    }

    public function testAPidQuestionIsAnsweredAtAnyTime(): void
    {
        $this->server->send(Codec::control('{"pid":77}'));
        $this->server->hangUp();
        self::assertNull($this->transport->next());
        self::assertSame('{"pid":' . getmypid() . '}', $this->server->received()[0]->body);
    }

    public function testAnUnknownControlMessageIsAnError(): void
    {
        $this->server->send(Codec::control('{"reload":true}'));
        $this->expectException(ProtocolError::class);
        $this->expectExceptionMessage('{"reload":true}');
        $this->transport->next();
    }

    public function testASocketThatDoesNotBlockIsMadeToBlock(): void
    {
        [$worker] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        stream_set_blocking($worker, false);
        new Relay(new Pipes($worker, $worker));
        self::assertTrue(stream_get_meta_data($worker)['blocked']);
    }
}
