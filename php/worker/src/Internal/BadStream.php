<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Exception;

/** Something a streamed body cannot do; PSR-7 wants a RuntimeException. */
final class BadStream extends \RuntimeException implements Exception
{
}
