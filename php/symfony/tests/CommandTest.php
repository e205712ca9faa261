<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\Command\ServerCommand;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;

/** The server is a script that says how it was called. */
final class CommandTest extends TestCase
{
    private string $folder;

    protected function setUp(): void
    {
        $this->folder = sys_get_temp_dir() . '/symfony-' . bin2hex(random_bytes(6));
        mkdir($this->folder);
        file_put_contents("$this->folder/server", "#!/bin/sh\necho \"\$@ in \$(pwd)\" > said\nexit 3\n");
        chmod("$this->folder/server", 0700);
        putenv("PRONGHORN_BINARY=$this->folder/server");
    }

    protected function tearDown(): void
    {
        array_map('unlink', glob("$this->folder/*"));
        rmdir($this->folder);
        putenv('PRONGHORN_BINARY');
    }

    public function testTheServerIsAskedInTheProjectsFolder(): void
    {
        touch("$this->folder/pronghorn.yaml");
        self::assertSame([3, ''], $this->call(['reset']));
        self::assertSame("reset in $this->folder\n", file_get_contents("$this->folder/said"));
    }

    public function testASignalIsHandedOn(): void
    {
        touch("$this->folder/pronghorn.yaml");
        file_put_contents("$this->folder/server", <<<'SH'
            #!/bin/sh
            trap 'exit 5' TERM
            kill -TERM $PPID
            for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.1; done
            SH);
        self::assertSame([5, ''], $this->call(['serve']));
    }

    public function testWhatIsMissingIsSaid(): void
    {
        [$code, $said] = $this->call(['status']);
        self::assertSame(1, $code);
        self::assertStringContainsString('`pronghorn init` writes one', $said);

        touch("$this->folder/pronghorn.yaml");
        putenv("PRONGHORN_BINARY=$this->folder/nowhere");
        [$code, $said] = $this->call(['status']);
        self::assertSame(1, $code);
        self::assertStringContainsString("nowhere` can't be started", $said);
    }

    /**
     * @param list<string> $arguments
     * @return array{int, string}
     */
    private function call(array $arguments): array
    {
        $output = new BufferedOutput();
        $command = new ServerCommand('pronghorn:any', 'Any', $arguments, $this->folder);

        return [$command->run(new ArrayInput([]), $output), $output->fetch()];
    }
}
