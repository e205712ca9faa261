<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/** Something that cannot be done with a call as it stands. */
final class BadCall extends \LogicException implements Exception
{
}
