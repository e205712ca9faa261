<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Console;

final class ReloadCommand extends ServerCommand
{
    protected $signature = 'pronghorn:reload';
    protected $description = 'Replace the workers of the server: the new ones load the code anew';

    public function handle(): int
    {
        return $this->runServer(['reset']);
    }
}
