<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Internal\Failure;

final class FailureTest extends TestCase
{
    public function testEveryPartIsCapped(): void
    {
        $long = str_repeat('é', 1_000_000);
        $failure = new Failure($long, $long, $long, 1, $long);
        self::assertLessThan(5_000, strlen($failure->class));
        self::assertLessThan(17_000, strlen($failure->message));
        self::assertLessThan(5_000, strlen($failure->file));
        self::assertLessThan(66_000, strlen($failure->trace));
        self::assertStringEndsWith('é … cut off', $failure->message);
    }

    public function testACutInTheMiddleOfACharacterLeavesText(): void
    {
        $message = (new Failure('', 'x' . str_repeat('é', 10_000), '', 1))->message;
        self::assertSame(1, preg_match('//u', $message));
    }

    public function testWhatIsNoUtf8IsReplaced(): void
    {
        self::assertSame('<a> "&amp;" \'', (new Failure('', '<a> "&amp;" \'', '', 1))->message);
        $message = (new Failure('', "<a> \xff \"&amp;\" 'é\xc3", '', 1))->message;
        self::assertSame("<a> \u{FFFD} \"&amp;\" 'é\u{FFFD}", $message);
    }

    public function testALongChainOfCausesEnds(): void
    {
        $thrown = null;
        for ($level = 0; $level < 50; $level++) {
            $thrown = new \Exception("level $level", 0, $thrown);
        }
        $trace = Failure::of($thrown)->trace;
        self::assertSame(10, substr_count($trace, 'caused by Exception: level'));
        self::assertStringContainsString('level 48', $trace);
    }
}
