<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\HttpFoundation\Dumps;
use Symfony\Component\VarDumper\VarDumper;

final class DumpsTest extends TestCase
{
    protected function setUp(): void
    {
        unset($_SERVER['VAR_DUMPER_FORMAT']);
        VarDumper::setHandler(null);
    }

    public function testEachPageHasTheStylesAndTheScriptOnce(): void
    {
        Dumps::listen();
        for ($request = 1; $request <= 2; $request++) {
            Dumps::begin();
            \ob_start();
            VarDumper::dump('the first');
            VarDumper::dump('the second');
            $page = (string) \ob_get_clean();
            self::assertMatchesRegularExpression('~^<script>.*</script>.*the first.*the second~s', $page);
            self::assertSame(1, \substr_count($page, 'Sfdump = window.Sfdump'));
        }
    }

    public function testAHandlerOfTheApplicationIsTold(): void
    {
        $told = [];
        VarDumper::setHandler(static function (mixed $value) use (&$told): void {
            $told[] = $value;
        });
        Dumps::listen(static fn () => self::fail('there is one'));
        for ($request = 1; $request <= 2; $request++) {
            Dumps::begin();
            VarDumper::dump('a');
            VarDumper::dump('b');
        }
        self::assertSame(['a', 'b', 'a', 'b'], $told);
    }

    public function testAnotherFormatStays(): void
    {
        $_SERVER['VAR_DUMPER_FORMAT'] = 'server';
        Dumps::listen();
        self::assertSame('server', $_SERVER['VAR_DUMPER_FORMAT']);
    }
}
