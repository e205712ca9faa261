<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support\Kept;

#[\AllowDynamicProperties]
class Open
{
    public int $declared = 1;
}
