<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Contracts\Queue\ShouldBeUnique;

final class UniqueTask extends Task implements ShouldBeUnique
{
    public function uniqueId(): string
    {
        return $this->name;
    }
}
