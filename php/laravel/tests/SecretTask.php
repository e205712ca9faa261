<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Contracts\Queue\ShouldBeEncrypted;

final class SecretTask extends Task implements ShouldBeEncrypted
{
}
