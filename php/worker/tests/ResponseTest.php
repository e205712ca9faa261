<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Exception;
use Pronghorn\Internal\Events;
use Pronghorn\Response;
use Pronghorn\StreamBody;

final class ResponseTest extends TestCase
{
    /** @dataProvider refused */
    public function testWhatNoServerCouldSend(\Closure $make, string $message): void
    {
        $this->expectException(Exception::class);
        $this->expectExceptionMessage($message);
        $make();
    }

    /** @return iterable<string, array{\Closure, string}> */
    public static function refused(): iterable
    {
        yield 'status too low' => [fn () => new Response('', 199), 'status 199'];
        yield 'status too high' => [fn () => Response::json([], 600), 'status 600'];
        yield 'redirect that is none' => [fn () => Response::redirect('/', 200), 'status 200'];
        yield 'no such file' => [fn () => Response::file('/nowhere.txt'), '/nowhere.txt'];
        yield 'a folder' => [fn () => Response::file(__DIR__), 'cannot be sent'];
        yield 'a NUL byte' => [fn () => Response::file("x\0y"), 'cannot be sent'];
    }

    public function testAFileCanBeReadByOthers(): void
    {
        self::assertSame(file_get_contents(__FILE__), (string) Response::file(__FILE__)->body);
    }

    /** @dataProvider events */
    public function testEvents(mixed $event, string $bytes): void
    {
        self::assertSame($bytes, implode('', iterator_to_array(new Events([$event]), false)));
    }

    /** @return iterable<string, array{mixed, string}> */
    public static function events(): iterable
    {
        yield 'data' => ['x', "data: x\n\n"];
        yield 'no data' => ['', "data: \n\n"];
        yield 'lines of any kind' => ["a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"];
        yield 'a number' => [5, "data: 5\n\n"];
        yield 'all fields' => [
            ['event' => 'add', 'id' => 7, 'retry' => 1000, 'comment' => 'c', 'data' => '{}'],
            "event: add\nid: 7\nretry: 1000\n: c\ndata: {}\n\n",
        ];
        yield 'a comment alone' => [['comment' => "still\nhere"], ": still\n: here\n\n"];
        yield 'bytes that are no text' => [['data' => "\xff\0"], "data: \xff\0\n\n"];
    }

    /** @dataProvider badEvents */
    public function testEventsThatWouldForgeOthers(mixed $event, string $message): void
    {
        $this->expectExceptionMessage($message);
        iterator_to_array(new Events([$event]));
    }

    /** @return iterable<string, array{mixed, string}> */
    public static function badEvents(): iterable
    {
        yield 'line feed in the id' => [['id' => "1\ndata: x"], 'The id of an event holds a line end'];
        yield 'carriage return in the name' => [['event' => "a\rb"], 'The event of an event'];
        yield 'NUL in the id' => [['id' => "1\0"], 'NUL byte'];
        yield 'negative time' => [['retry' => -1], 'milliseconds'];
        yield 'time as text' => [['retry' => '5'], 'milliseconds'];
        yield 'unknown field' => [['dta' => 'x'], 'the field "dta"'];
        yield 'a list' => [['x'], 'the field "0"'];
        yield 'data that is no text' => [['data' => []], 'type array'];
    }

    public function testAStreamBodyGivesItsPiecesOnce(): void
    {
        $body = StreamBody::from((function (): \Generator {
            yield 'abc';
            yield '';
            yield 'def';
        })());
        self::assertNull($body->getSize());
        self::assertSame([true, false, false], [$body->isReadable(), $body->isWritable(), $body->isSeekable()]);
        self::assertFalse($body->eof());
        self::assertSame(['ab', 'c', '', 'de'], [$body->read(2), $body->read(9), $body->read(9), $body->read(2)]);
        self::assertSame(5, $body->tell());
        self::assertSame('f', $body->getContents());
        self::assertTrue($body->eof());
        self::assertSame('', $body->read(5));
        self::assertSame('', (string) $body);
        self::assertSame([], $body->getMetadata());
        self::assertNull($body->getMetadata('uri'));
    }

    public function testAStreamBodyCannotBeReadTwice(): void
    {
        $body = StreamBody::from(['a']);
        foreach ([fn () => $body->rewind(), fn () => $body->seek(0), fn () => $body->write('x')] as $try) {
            try {
                $try();
                self::fail();
            } catch (\RuntimeException $thrown) {
                self::assertInstanceOf(Exception::class, $thrown);
            }
        }
        self::assertSame('a', (string) $body);
    }

    public function testClosingAStreamBodyEndsItsGenerator(): void
    {
        $ended = false;
        $body = StreamBody::from((function () use (&$ended): \Generator {
            try {
                yield 'a';
                yield 'b';
            } finally {
                $ended = true;
            }
        })());
        $body->read(1);
        $body->close();
        self::assertTrue($ended);
        self::assertTrue($body->eof());
        self::assertSame('', $body->getContents());
        self::assertNull(StreamBody::from([])->detach());
    }
}
