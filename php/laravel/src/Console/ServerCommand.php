<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Console;

use Illuminate\Console\Command;
use Symfony\Component\Process\ExecutableFinder;
use Symfony\Component\Process\Process;

/** A command that the server's binary carries out. */
abstract class ServerCommand extends Command
{
    /**
     * Runs the binary in the application's directory, where its configuration is.
     *
     * @param list<string> $arguments
     * @param bool $replaces whether it takes the place of this process, where PHP can do that: the
     *     server gets its signals itself then
     */
    protected function runServer(array $arguments, bool $replaces = false): int
    {
        $folder = $this->laravel->basePath();
        if (!\is_file("$folder/pronghorn.yaml") && !\is_file("$folder/.rr.yaml")) {
            $this->error("There is no $folder/pronghorn.yaml: `php artisan pronghorn:install` writes it.");

            return self::FAILURE;
        }
        $binary = $this->binary();
        if ($binary === null) {
            $this->error(
                'There is no `pronghorn` in PATH. Install the server, or name its binary by the variable '
                    . 'PRONGHORN_BINARY.'
            );

            return self::FAILURE;
        }
        if ($replaces && \function_exists('pcntl_exec')) {
            \chdir($folder);
            @\pcntl_exec($binary, $arguments);
            $this->error("$binary can't be started: " . \pcntl_strerror(\pcntl_get_last_error()));

            return self::FAILURE;
        }
        $process = new Process([$binary, ...$arguments], $folder, null, null, null);

        $process->start();
        foreach ($process as $text) {
            $this->output->write($text, false, $this->output::OUTPUT_RAW);
        }

        return $process->wait();
    }

    private function binary(): ?string
    {
        $named = (string) \getenv('PRONGHORN_BINARY');

        return $named !== '' ? $named : (new ExecutableFinder())->find('pronghorn');
    }
}
