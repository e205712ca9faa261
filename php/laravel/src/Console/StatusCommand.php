<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Console;

final class StatusCommand extends ServerCommand
{
    protected $signature = 'pronghorn:status';
    protected $description = 'Show what the server and its workers are doing';

    public function handle(): int
    {
        return $this->runServer(['workers']);
    }
}
