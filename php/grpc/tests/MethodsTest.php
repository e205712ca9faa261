<?php

declare(strict_types=1);

namespace Pronghorn\Grpc\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Grpc\Context;
use Pronghorn\Grpc\Internal\Details;
use Pronghorn\Grpc\Internal\Method;
use Pronghorn\Grpc\Server;

/** What is refused before a call, and how details are packed. Calls are tested with the server. */
final class MethodsTest extends TestCase
{
    public function testAMethodThatTakesNoMessageIsRefused(): void
    {
        $service = new class () {
            public function say(int $number): void
            {
            }
        };
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('Parameter $number');
        (new Server())->register('a.B', $service);
    }

    public function testAStreamNeedsTheClassOfItsMessages(): void
    {
        $service = new class () {
            public function join(iterable $messages): void
            {
            }
        };
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('#[Receives(Message::class)] iterable $messages');
        (new Server())->register('a.B', $service);
    }

    public function testTheInterfaceMayTellWhatAClientStreams(): void
    {
        $service = new class () implements Joins {
            public function join(iterable $in): void
            {
            }
        };
        self::assertInstanceOf(Server::class, (new Server())->register(Joins::class, $service));
    }

    public function testAnInterfaceThatIsNotThereIsNoService(): void
    {
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('There is no interface `Shop\V1\PricesInterface`');
        (new Server())->register('Shop\V1\PricesInterface', new \stdClass());
    }

    public function testAResultThatIsNoMessageNamesItsMethod(): void
    {
        $service = new class () {
            public function say(Context $context): string
            {
                return 'hello';
            }
        };
        $say = new \ReflectionMethod($service, 'say');
        $method = Method::of($service, $say, $say);
        $this->expectException(\TypeError::class);
        $this->expectExceptionMessageMatches('/::say\(\) returned string, which is no message/');
        (new \ReflectionMethod($method, 'text'))->invoke($method, 'hello');
    }

    public function testDetailsArePackedAsAStatusOfGoogleRpc(): void
    {
        $detail = new class () {
            public function serializeToString(): string
            {
                return 'ab';
            }
        };
        $packed = Details::pack(5, 'no', [$detail]);
        self::assertStringStartsWith("\x08\x05\x12\x02no\x1a", $packed);
        self::assertStringEndsWith("\x12\x02ab", $packed);
        self::assertSame("\x08\x05", Details::pack(5, '', []));
    }
}
