<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/**
 * The worker script is wrong: no handler for the pool's mode, or one of a shape nobody can call.
 * Ends the boot.
 */
final class BadWorker extends \LogicException implements Exception
{
}
