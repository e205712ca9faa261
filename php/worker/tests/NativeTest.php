<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Frame;
use Pronghorn\Internal\Native;
use Pronghorn\Internal\Pipes;
use Pronghorn\Internal\Relay;
use Pronghorn\Tests\Support\SocketServer;

/** The vectors, read and written by plain PHP. */
final class NativeTest extends NativeTestCase
{
    protected static function connect(): array
    {
        [$worker, $server] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);

        return [new Relay(new Pipes($worker, $worker)), new SocketServer($server)];
    }

    /** The extension has the codec's, and pronghorn/goridge its own. */
    public function testBothTransportsTakeFramesOfTheSameLength(): void
    {
        self::assertSame(Native::MAX_PAYLOAD, Frame::MAX_PAYLOAD);
    }
}
