<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\Runner;
use Pronghorn\Symfony\Runtime;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\RebootableInterface;
use Symfony\Component\Runtime\Runner\Symfony\HttpKernelRunner;
use Symfony\Component\Runtime\Runner\Symfony\ResponseRunner;

/** What it does with requests is seen end to end, with a real server. */
final class RunnerTest extends TestCase
{
    private const OPTIONS = ['disable_dotenv' => true, 'error_handler' => false];

    protected function tearDown(): void
    {
        putenv('PRONGHORN_PIPES');
    }

    public function testAWorkerKeepsItsKernelAndOthersRunAsBefore(): void
    {
        $kernel = $this->createStub(HttpKernelInterface::class);
        $runtime = new Runtime(self::OPTIONS);
        self::assertInstanceOf(HttpKernelRunner::class, $runtime->getRunner($kernel));

        putenv('PRONGHORN_PIPES=3,4');
        self::assertInstanceOf(Runner::class, $runtime->getRunner($kernel));
        self::assertInstanceOf(ResponseRunner::class, $runtime->getRunner(new Response()));
    }

    /** @dataProvider refused */
    public function testOptionsThatMeanNothing(string|int $reboot, string $message): void
    {
        putenv('PRONGHORN_PIPES=3,4');
        $runtime = new Runtime(['reboot' => $reboot] + self::OPTIONS);
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessage($message);
        $runtime->getRunner($this->createStub(KernelInterface::class));
    }

    /** @return iterable<string, array{string|int, string}> */
    public static function refused(): iterable
    {
        yield 'a word' => ['always', '`always`: `never`, `exception` or a number of requests is meant'];
        yield 'nothing' => [0, '`0`'];
        yield 'a number as text' => ['0', '`0`'];
        yield 'a kernel that cannot' => ['5', 'is no RebootableInterface'];
    }

    public function testAKernelThatCanBeBootedAnew(): void
    {
        $kernel = new class implements HttpKernelInterface, RebootableInterface {
            public function handle($request, int $type = self::MAIN_REQUEST, bool $catch = true): Response
            {
                return new Response();
            }

            public function reboot(?string $warmupDir): void
            {
            }
        };
        putenv('PRONGHORN_PIPES=3,4');
        $runtime = new Runtime(['reboot' => '500'] + self::OPTIONS);
        self::assertEquals(new Runner($kernel, 500), $runtime->getRunner($kernel));
    }
}
