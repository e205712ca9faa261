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

    public function testWhatIsPrintedIsForThePageOnlyWithADump(): void
    {
        Dumps::listen();
        $this->expectOutputString('beside the page');
        for ($request = 1; $request <= 2; $request++) {
            [$result, $printed] = Dumps::of(static function (): string {
                echo 'before';
                VarDumper::dump('the value');

                return 'the page';
            });
            self::assertSame('the page', $result);
            self::assertMatchesRegularExpression('~^before<script>.*</script>.*the value~s', $printed);
        }
        $printed = Dumps::of(static function (): void {
            echo 'beside the page';
        })[1];
        self::assertSame('', $printed);
    }

    public function testBuffersAreTheApplications(): void
    {
        Dumps::listen();
        $this->expectOutputString('a download');
        $level = \ob_get_level();
        [, $printed] = Dumps::of(static function (): void {
            \ob_start(static fn (string $text): string => \strtoupper($text));
            VarDumper::dump('left open');
        });
        self::assertStringContainsString('LEFT OPEN', $printed);
        [, $printed] = Dumps::of(static function (): void {
            VarDumper::dump('dropped');
            \ob_end_clean();
            echo 'a download';
        });
        self::assertSame(['', $level], [$printed, \ob_get_level()]);
    }

    public function testAHandlerOfTheApplicationIsTold(): void
    {
        $told = [];
        VarDumper::setHandler(static function (mixed $value) use (&$told): void {
            $told[] = $value;
        });
        Dumps::listen(static fn () => self::fail('there is one'));
        for ($request = 1; $request <= 2; $request++) {
            Dumps::of(static function (): void {
                VarDumper::dump('a');
                VarDumper::dump('b');
            });
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
