<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Statics;

final class StaticsTest extends TestCase
{
    /** Each with a class of its own, which is loaded by then or later. */
    private static function load(string $name): string
    {
        $class = "Pronghorn\\Tests\\Kept\\$name";
        $parent = "{$class}Parent";
        // phpcs:ignore Squiz.PHP.Eval -- loaded in the middle of a test
        eval("namespace Pronghorn\\Tests\\Kept;
            class {$name}Parent { const ONE = 1;
                public static array \$shared = [self::ONE]; private static int \$own = 1;
                public static function own(?int \$own = null): int { return self::\$own = \$own ?? self::\$own; } }
            class {$name} extends {$name}Parent { protected static ?object \$object = null; public static string \$late;
                public static function object(?object \$object): void { self::\$object = \$object; }
                public static function get(): ?object { return self::\$object; } }");
        self::assertTrue(\class_exists($parent, false));

        return $class;
    }

    public function testTakesStaticPropertiesBack(): void
    {
        $class = self::load('Early');
        $kept = new \ArrayObject();
        $class::object($kept);
        $class::$shared['boot'] = [$inner = new \stdClass()];
        $statics = Statics::of(['Pronghorn\\Tests\\Kept\\Early']);
        self::assertSame([$inner, $kept], $statics->objects());
        for ($time = 1; $time <= 2; $time++) {
            $class::$shared[] = 'of a request';
            $class::own(7);
            $class::object(new \stdClass());
            self::assertTrue($statics->restore());
            self::assertFalse($statics->restore());
            self::assertSame([1, 'boot' => [$inner]], $class::$shared);
            self::assertSame([1, $kept], [$class::own(), $class::get()]);
        }
    }

    public function testAClassThatCameLaterIsAsItWasDeclared(): void
    {
        $statics = Statics::of(['Pronghorn\\Tests\\Kept\\Late']);
        $class = self::load('Late');
        for ($time = 1; $time <= 2; $time++) {
            $class::$shared[] = 'of a request';
            $class::own(7);
            $class::object(new \stdClass());
            $statics->restore();
            self::assertSame([[1], 1, null], [$class::$shared, $class::own(), $class::get()]);
        }
    }

    public function testOtherClassesStay(): void
    {
        $class = self::load('Other');
        $statics = Statics::of(['Pronghorn\\Tests\\Kept\\Other'], ['Pronghorn\\Tests\\Kept\\OtherParent']);
        $class::own(7);
        $class::object($class::get() ?? new \stdClass());
        $statics->restore();
        self::assertSame([7, null], [$class::own(), $class::get()]);
    }
}
