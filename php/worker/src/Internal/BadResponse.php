<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/** A reply that no server could send. */
final class BadResponse extends \InvalidArgumentException implements Exception
{
}
