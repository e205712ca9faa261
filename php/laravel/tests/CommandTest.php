<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Console\Command;
use Illuminate\Foundation\Application;
use PHPUnit\Framework\TestCase;
use Pronghorn\Laravel\Console\InstallCommand;
use Pronghorn\Laravel\Console\ReloadCommand;
use Pronghorn\Laravel\Console\ServerCommand;
use Pronghorn\Laravel\Console\StatusCommand;
use Pronghorn\Laravel\PronghornServiceProvider;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;

/** The server is a script that says how it was called; `serve` is seen in a process of its own. */
final class CommandTest extends TestCase
{
    private string $folder;
    private Application $app;

    protected function setUp(): void
    {
        $this->folder = sys_get_temp_dir() . '/laravel-' . bin2hex(random_bytes(6));
        mkdir($this->folder);
        $this->app = new Application($this->folder);
        $binary = "$this->folder/pronghorn";
        file_put_contents($binary, "#!/bin/sh\necho \"\$@ in \$(pwd)\"\nexit 3\n");
        chmod($binary, 0700);
        putenv("PRONGHORN_BINARY=$binary");
    }

    protected function tearDown(): void
    {
        array_map('unlink', array_filter(glob("$this->folder/*"), 'is_file'));
        foreach (['storage/app/public', 'storage/app', 'storage', ''] as $folder) {
            @rmdir("$this->folder/$folder");
        }
        putenv('PRONGHORN_BINARY');
    }

    public function testTheConfigurationIsWrittenOnce(): void
    {
        [$code, $said] = $this->call(new InstallCommand());
        self::assertSame(0, $code, $said);
        self::assertStringContainsString('pronghorn-laravel', file_get_contents("$this->folder/pronghorn.yaml"));
        self::assertDirectoryExists("$this->folder/storage/app/public", 'the server wants it');

        file_put_contents("$this->folder/pronghorn.yaml", 'mine');
        [$code, $said] = $this->call(new InstallCommand());
        self::assertStringContainsString('stays as it is', $said);
        self::assertSame([0, 'mine'], [$code, file_get_contents("$this->folder/pronghorn.yaml")]);
    }

    /** @dataProvider commands */
    public function testTheServerIsAskedWhereItsConfigurationIs(ServerCommand $command, string $arguments): void
    {
        [$code, $said] = $this->call($command);
        self::assertSame(1, $code);
        self::assertStringContainsString('pronghorn:install', $said);

        touch("$this->folder/.rr.yaml");
        [$code, $said] = $this->call($command);
        self::assertSame([3, "$arguments in $this->folder\n"], [$code, $said]);
        unlink("$this->folder/.rr.yaml");
    }

    /** @return iterable<string, array{ServerCommand, string}> */
    public static function commands(): iterable
    {
        yield 'reload' => [new ReloadCommand(), 'reset'];
        yield 'status' => [new StatusCommand(), 'workers'];
    }

    public function testAServerThatIsNotInstalled(): void
    {
        touch("$this->folder/pronghorn.yaml");
        putenv('PRONGHORN_BINARY');
        $path = getenv('PATH');
        putenv('PATH=/nowhere');
        [$code, $said] = $this->call(new StatusCommand());
        putenv("PATH=$path");

        self::assertSame(1, $code);
        self::assertStringContainsString('PRONGHORN_BINARY', $said);
    }

    public function testServeTakesThePlaceOfArtisan(): void
    {
        touch("$this->folder/pronghorn.yaml");
        $code = \sprintf(
            'require %s; $app = new Illuminate\Foundation\Application(%s);'
                . ' $command = new Pronghorn\Laravel\Console\ServeCommand(); $command->setLaravel($app);'
                . ' exit($command->run(new Symfony\Component\Console\Input\ArrayInput(["--address" => ":81",'
                . ' "--workers" => "2"]), new Symfony\Component\Console\Output\ConsoleOutput()));',
            var_export(__DIR__ . '/bootstrap.php', true),
            var_export($this->folder, true),
        );
        exec(escapeshellarg(PHP_BINARY) . ' -r ' . escapeshellarg($code), $said, $exit);

        $arguments = 'serve -o http.address=:81 -o http.pool.num_workers=2';
        self::assertSame([3, ["$arguments in $this->folder"]], [$exit, $said]);
    }

    public function testTheProviderBringsTheConfiguration(): void
    {
        $this->app->instance('config', new \Illuminate\Config\Repository(['pronghorn' => ['reset' => ['cart']]]));
        $provider = new PronghornServiceProvider($this->app);
        $provider->register();
        $provider->boot();

        $settings = $this->app->make('config')->get('pronghorn');
        self::assertSame(['cart'], $settings['reset']);
        self::assertContains('router', $settings['warm']);
    }

    /** @return array{int, string} its exit code, and what it said */
    private function call(Command $command): array
    {
        $command->setLaravel($this->app);
        $output = new BufferedOutput();

        return [$command->run(new ArrayInput([]), $output), $output->fetch()];
    }
}
