<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Console;

use Illuminate\Console\Command;

/** Writes the server's configuration. */
final class InstallCommand extends Command
{
    protected $signature = 'pronghorn:install';
    protected $description = 'Write pronghorn.yaml, the configuration of the Pronghorn server';

    public function handle(): int
    {
        $file = $this->laravel->basePath('pronghorn.yaml');
        if (\file_exists($file)) {
            $this->line("$file is there and stays as it is.");

            return self::SUCCESS;
        }
        // The server does not start without a directory that its configuration names.
        $uploads = $this->laravel->basePath('storage/app/public');
        if (!\is_dir($uploads) && !@\mkdir($uploads, 0755, true)) {
            $this->error("$uploads can't be made: " . (\error_get_last()['message'] ?? 'unknown reason'));

            return self::FAILURE;
        }
        if (!@\copy(__DIR__ . '/../../stubs/pronghorn.yaml', $file)) {
            $this->error("$file can't be written: " . (\error_get_last()['message'] ?? 'unknown reason'));

            return self::FAILURE;
        }
        $this->line("$file is written. `php artisan pronghorn:serve` starts the server.");

        return self::SUCCESS;
    }
}
