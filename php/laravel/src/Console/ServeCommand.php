<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Console;

final class ServeCommand extends ServerCommand
{
    protected $signature = 'pronghorn:serve
        {--address= : Listen on this address instead of the one in pronghorn.yaml, 127.0.0.1:8000 for instance}
        {--workers= : Keep so many workers}';
    protected $description = 'Serve the application with Pronghorn';

    public function handle(): int
    {
        $arguments = ['serve'];
        foreach (['address' => 'http.address', 'workers' => 'http.pool.num_workers'] as $option => $key) {
            $value = $this->option($option);
            if ($value !== null) {
                \array_push($arguments, '-o', "$key=$value");
            }
        }

        return $this->runServer($arguments, true);
    }
}
