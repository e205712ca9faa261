<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Psr\SimpleCache\InvalidArgumentException;

/** The caller's mistake: no key, no time to live, no list. */
final class InvalidKey extends \InvalidArgumentException implements InvalidArgumentException
{
}
