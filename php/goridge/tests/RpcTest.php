<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\ConnectionLost;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Rpc;
use Pronghorn\RpcError;

final class RpcTest extends TestCase
{
    /** @var resource */
    private $process;
    private string $address;

    protected function setUp(): void
    {
        $this->start('tcp://127.0.0.1:0');
    }

    protected function tearDown(): void
    {
        proc_terminate($this->process, SIGKILL);
        proc_close($this->process);
    }

    public function testCallsReturnWhatTheServerSays(): void
    {
        $rpc = Rpc::connect($this->address);
        foreach ([null, true, 5, 1.5, 'é"', [], ['a' => ['b' => null]], str_repeat('x', 300_000)] as $value) {
            self::assertSame($value, $rpc->call('test.Echo', $value));
        }
    }

    public function testEveryCallHasANumberOfItsOwn(): void
    {
        $rpc = Rpc::connect($this->address);
        self::assertSame([1, 2, 3], [$rpc->call('test.Number'), $rpc->call('test.Number'), $rpc->call('test.Number')]);
    }

    public function testTheServersErrorIsAnException(): void
    {
        $rpc = Rpc::connect($this->address);
        try {
            $rpc->call('test.Fail');
            self::fail();
        } catch (RpcError $error) {
            self::assertSame("rpc: can't find service test.Fail", $error->getMessage());
        }
        self::assertSame(1, $rpc->call('test.Accepted'), 'the connection is good');
    }

    public function testACallThatTheServerWouldNotTakeIsNotSent(): void
    {
        $rpc = Rpc::connect($this->address);
        try {
            $rpc->call('test.Echo', str_repeat('x', 64 << 20));
            self::fail();
        } catch (RpcError $error) {
            $why = 'a call of test.Echo with 67108875 bytes was not sent: the server takes at most 67108864 bytes';
            self::assertStringContainsString($why, $error->getMessage());
        }
        self::assertSame(1, $rpc->call('test.Number'), 'nothing went before');
        self::assertSame(1, $rpc->call('test.Accepted'), 'the connection is good');
    }

    public function testAClosedConnectionIsOpenedAgain(): void
    {
        $this->tearDown();
        $path = sys_get_temp_dir() . '/pronghorn-rpc-again-' . getmypid() . '.sock';
        $this->start("unix://$path");
        $rpc = Rpc::connect("unix://$path");
        self::assertSame(1, $rpc->call('test.Number'));
        // A server that starts anew.
        $this->tearDown();
        unlink($path);
        $this->start("unix://$path");
        self::assertSame(2, $rpc->call('test.Number'));
        unlink($path);
    }

    /**
     * @dataProvider broken
     * @param class-string<\Throwable> $class
     */
    public function testTheCallAfterABrokenReplyHasANewConnection(string $method, string $class, string $message): void
    {
        $rpc = Rpc::connect($this->address);
        try {
            $rpc->call($method);
            self::fail();
        } catch (\Exception $thrown) {
            self::assertInstanceOf($class, $thrown);
            self::assertStringContainsString($message, $thrown->getMessage());
        }
        self::assertSame(2, $rpc->call('test.Accepted'));
    }

    /** @return iterable<array{string, class-string<\Throwable>, string}> */
    public static function broken(): iterable
    {
        yield ['test.Close', ConnectionLost::class, 'closed the connection'];
        yield ['test.Half', ConnectionLost::class, 'closed the connection'];
        yield ['test.OtherCall', ProtocolError::class, 'another call'];
        yield ['test.Garbage', ProtocolError::class, 'HTTP/1.1 400'];
    }

    public function testAReplyThatCannotBeReadDoesNotCostTheConnection(): void
    {
        $rpc = Rpc::connect($this->address);
        $broken = ['test.OtherCodec' => ProtocolError::class, 'test.NoJson' => \JsonException::class];
        foreach ($broken as $method => $class) {
            try {
                $rpc->call($method);
                self::fail();
            } catch (\Exception $thrown) {
                self::assertInstanceOf($class, $thrown);
            }
        }
        self::assertSame(1, $rpc->call('test.Accepted'));
    }

    public function testASilentServerIsNotWaitedForForEver(): void
    {
        $rpc = Rpc::connect($this->address, 1.5);
        $since = microtime(true);
        try {
            $rpc->call('test.Silence');
            self::fail();
        } catch (ConnectionLost $lost) {
            self::assertStringContainsString('did not answer within 1.5 s', $lost->getMessage());
        }
        self::assertLessThan(5.0, microtime(true) - $since);
        self::assertSame(2, $rpc->call('test.Accepted'), 'a late reply must not meet the next call');
    }

    /** @dataProvider senseless */
    public function testATimeOutThatMakesNoSense(float $timeout): void
    {
        $this->expectException(\ValueError::class);
        $this->expectExceptionMessage("A call's time-out is above 0 and below 1000000 seconds, this is ");
        Rpc::connect($this->address, $timeout);
    }

    /** @return iterable<array{float}> */
    public static function senseless(): iterable
    {
        return [[0.0], [-1.0], [NAN], [INF], [1e6]];
    }

    public function testAnArgumentThatIsNoJson(): void
    {
        $rpc = Rpc::connect($this->address);
        $this->expectException(\JsonException::class);
        $rpc->call('test.Echo', "\xff");
    }

    public function testUnixSockets(): void
    {
        $this->tearDown();
        $path = sys_get_temp_dir() . '/pronghorn-rpc-' . getmypid() . '.sock';
        @unlink($path);
        $this->start("unix://$path");
        self::assertSame('x', Rpc::connect("unix://$path")->call('test.Echo', 'x'));
        unlink($path);
    }

    public function testTheAddressComesFromTheEnvironment(): void
    {
        putenv("RR_RPC=$this->address");
        try {
            self::assertSame(1, Rpc::connect()->call('test.Accepted'));
        } finally {
            putenv('RR_RPC');
        }
    }

    /** @requires extension pcntl */
    public function testAForkedChildGetsItsOwnConnection(): void
    {
        $rpc = Rpc::connect($this->address);
        self::assertSame(1, $rpc->call('test.Accepted'));
        $pid = pcntl_fork();
        if ($pid === 0) {
            // The server takes the child's connection when this one has been closed.
            try {
                $rpc->call('test.Accepted');
            } finally {
                posix_kill(getmypid(), SIGKILL);
            }
        }
        self::assertSame(1, $rpc->call('test.Accepted'));
        posix_kill($pid, SIGKILL);
        pcntl_waitpid($pid, $status);
        self::assertSame(1, $rpc->call('test.Accepted'));
    }

    /** @dataProvider addresses */
    public function testAnAddressThatNobodyListensAt(string $address, string $message): void
    {
        $this->expectException(ConnectionLost::class);
        $this->expectExceptionMessage($message);
        Rpc::connect($address);
    }

    /** @return iterable<array{string, string}> */
    public static function addresses(): iterable
    {
        yield ['tcp://127.0.0.1:1', 'No RPC server answers at tcp://127.0.0.1:1: Connection refused'];
        yield ['unix:///nowhere/at/all.sock', 'No such file'];
        yield ['127.0.0.1:6001', 'neither tcp://host:port nor unix:///path'];
        yield ['ssl://127.0.0.1:6001', 'neither'];
        yield ['', 'neither'];
    }

    private function start(string $listen): void
    {
        $this->process = proc_open(
            [PHP_BINARY, __DIR__ . '/fixtures/rpc-server.php', $listen],
            [['file', '/dev/null', 'r'], ['pipe', 'w'], STDERR],
            $pipes,
        );
        $this->address = 'tcp://' . trim((string) fgets($pipes[1]));
    }
}
