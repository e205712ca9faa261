<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Psr\Cache\InvalidArgumentException;

/** The caller's mistake, where PSR-6 is used: no key, no moment, an item of somebody else. */
final class InvalidItem extends \InvalidArgumentException implements InvalidArgumentException
{
}
